//! Adds up, at the end of a run, what the protocol went through.

use crate::coverage::{Coverage, FaultTag};
use crate::host::QpSlot;
use crate::oracle::flow::Flow;
use crate::scenario::{ConnectionPlan, Happening, Scenario};
use crate::world::World;

impl Flow {
    /// What both ends of this direction went through.
    pub(crate) fn count_events(&self, coverage: &mut Coverage) {
        let seen = self.responder.seen;
        coverage.event("duplicates below ePSN", seen.duplicates_below);
        coverage.event("duplicates above ePSN", seen.duplicates_above);
        coverage.event("packets out of the window", seen.out_of_window);
        coverage.event("packets out of order", seen.out_of_order);
        coverage.event("trimmed packets arrived", seen.trimmed);
        coverage.event("writes refused", seen.refused);
        coverage.event("retransmissions", self.requestor.resent);
    }
}

impl World {
    pub(crate) fn count_events(&mut self) {
        let coverage = &mut self.coverage;
        for flow in self.flows.iter().flatten().filter(|flow| !flow.closed) {
            flow.count_events(coverage);
        }
        for slot in self.hosts.iter().flat_map(|host| &host.qps) {
            slot.count_events(coverage);
        }
    }
}

impl QpSlot {
    /// What the queue pair went through.
    pub(crate) fn count_events(&self, coverage: &mut Coverage) {
        {
            let slot = self;
            coverage.event("requests completed", slot.work.succeeded as u64);
            coverage.event("requests failed", slot.work.failed as u64);
            let stats = slot.qp.stats();
            coverage.event("losses, rule A (same path)", stats.losses_same_path);
            coverage.event("losses, rule B (time)", stats.losses_late);
            coverage.event("losses, rule C (probe)", stats.losses_unseen);
            coverage.event("losses, rule D (NACK)", stats.nacks_received);
            coverage.event("losses, rule E (timeout)", stats.timeouts);
            coverage.event("losses that were none", stats.losses_spurious);
            coverage.event("packets withdrawn from a port", stats.packets_withdrawn);
            coverage.event("Transport ACK missing, resent", stats.ack_resends);
            coverage.event("probes sent", stats.probes_sent);
            coverage.event("marks received", stats.marks_received);
            coverage.event("SACKs received", stats.sacks_received);
            coverage.event("answers suppressed", stats.answers_suppressed);
            coverage.event("times without a path", stats.blocked);
        }
    }
}

/// Counts the faults that are there from the beginning or are sure to come.
pub(crate) fn note_planned_faults(scenario: &Scenario, coverage: &mut Coverage) {
    use crate::scenario::Class;
    match scenario.class {
        // Some are counted when they act.
        Class::Survivable | Class::Partition | Class::Restart | Class::MemoryBreaks => {}
        Class::PeerVanishes => coverage.fault(FaultTag::PeerVanishes),
        Class::TooFewReceives => coverage.fault(FaultTag::TooFewReceives),
        Class::BadAccess => coverage.fault(FaultTag::BadAccess),
        Class::TooManyImmediates => coverage.fault(FaultTag::TooManyImmediates),
        Class::LocalError => coverage.fault(FaultTag::LocalError),
    }
    if scenario.connections.iter().any(ConnectionPlan::limits_answers) {
        coverage.fault(FaultTag::AnswerLimit);
    }
    let downs: Vec<usize> = (scenario.happenings.iter())
        .filter_map(|(_, happening)| match happening {
            Happening::Link { host, up: false, .. } => Some(*host),
            _ => None,
        })
        .collect();
    if !downs.is_empty() {
        coverage.fault(FaultTag::PortDown);
        let all = (0..scenario.hosts.len())
            .any(|host| downs.iter().filter(|down| **down == host).count() >= scenario.planes.into());
        if all {
            coverage.fault(FaultTag::AllPortsDown);
        }
    }
    if scenario
        .happenings
        .iter()
        .any(|(_, happening)| matches!(happening, Happening::Stall { .. }))
    {
        coverage.fault(FaultTag::Stall);
    }
    if scenario
        .happenings
        .iter()
        .any(|(_, happening)| matches!(happening, Happening::Forge { .. } | Happening::ForgeNode { .. }))
    {
        coverage.fault(FaultTag::Forgery);
    }
    for connection in &scenario.connections {
        for side in 0..2 {
            let packets: u32 = connection.flows[side]
                .messages
                .iter()
                .map(|m| m.packets(connection.pmtu.bytes() as u32))
                .sum();
            if connection.psn[side] + packets > 1 << 24 {
                coverage.fault(FaultTag::PsnWrap);
            }
        }
    }
}
