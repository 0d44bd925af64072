//! Adds up, at the end of a run, what the protocol went through.

use crate::world::World;

impl World {
    pub(crate) fn count_events(&mut self) {
        let coverage = &mut self.coverage;
        for flow in self.flows.iter().flatten() {
            let seen = flow.responder.seen;
            coverage.event("duplicates below ePSN", seen.duplicates_below);
            coverage.event("duplicates above ePSN", seen.duplicates_above);
            coverage.event("packets out of the window", seen.out_of_window);
            coverage.event("packets out of order", seen.out_of_order);
            coverage.event("trimmed packets arrived", seen.trimmed);
            coverage.event("writes refused", seen.refused);
            coverage.event("retransmissions", flow.requestor.resent);
        }
        for slot in self.hosts.iter().flat_map(|host| &host.qps) {
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
