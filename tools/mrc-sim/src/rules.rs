//! Which rules of the protocol the runs have exercised: one name for each, by section of protocol.md.

use crate::coverage::Coverage;
use crate::endpoint::Node;
use crate::oracle::flow::Flow;
use crate::world::World;
use mrc_protocol::{Disposition, DropReason, EvState, Happening};
use mrc_wire::{Headers, NackReason, Opcode, Packet};

/// All rules that the harness can exercise, in the order of the sections. Many seeds must exercise each.
///
/// Not here: outer headers of SRv6, and the turn of a GOOD path, which no cell counts.
pub const RULES: &[&str] = &[
    "§2.2 packet in a state that does not take it",
    "§5.2 Only",
    "§5.2 Only with immediate",
    "§5.2 First",
    "§5.2 Middle",
    "§5.2 Last",
    "§5.2 Last with immediate",
    "§5.3 2 window in bytes closes",
    "§5.3 3 responder's window closes",
    "§5.3 4 limit of WriteIMM is reached",
    "§5.4 window grows",
    "§5.4 window shrinks",
    "§5.4 window shrinks below what is out",
    "§5.5 1 implausible SACK or ACK",
    "§5.6 A same path",
    "§5.6 B time",
    "§5.6 C probe",
    "§5.6 D TRIMMED",
    "§5.6 D TRIMMED_LASTHOP",
    "§5.6 D NO_BITMAP",
    "§5.6 D NO_PKT_BUFFER",
    "§5.6 D NO_RESOURCE",
    "§5.6 D PSN_OOR_WINDOW",
    "§5.6 D UNEXP_EVENT",
    "§5.6 D unknown reason",
    "§5.6 D NACK of a packet that is not outstanding",
    "§5.6 E timeout",
    "§5.6 loss that was none",
    "§5.6 packet withdrawn from a port that is down",
    "§5.7 tail probe",
    "§5.7 retry budget is spent",
    "§5.8 Transport ACK completes requests",
    "§5.8 Transport ACK missing, highest PSN again",
    "§5.8 NAK 0x61",
    "§5.8 NAK 0x62",
    "§5.8 NAK 0x63",
    "§5.9 requests flushed",
    "§6.2 new",
    "§6.2 duplicate above ePSN",
    "§6.2 duplicate below ePSN",
    "§6.2 out of the window",
    "§6.2 in a window announced before",
    "§6.3 1 trimmed packet",
    "§6.3 2 NO_BITMAP",
    "§6.3 2 NO_PKT_BUFFER",
    "§6.3 2 NO_RESOURCE",
    "§6.3 2 UNEXP_EVENT",
    "§6.3 2 duplicate that could not be kept",
    "§6.3 4 write refused",
    "§6.4 threshold",
    "§6.4 a",
    "§6.4 CE",
    "§6.4 rtx",
    "§6.4 probe",
    "§6.4 duplicate",
    "§6.4 hold timer",
    "§6.5 bitmap away from cack_psn",
    "§6.5 very old duplicate",
    "§6.6 immediate waits for earlier packets",
    "§6.6 immediate in its turn",
    "§6.7 Transport ACK",
    "§6.8 NACK",
    "§6.9 service time",
    "§6.10 EV probe for a reverse EV",
    "§7.1 entry is exchanged under a queue pair",
    "§7.1 profile is regenerated under a queue pair",
    "§7.1 universe of a queue pair in RESET",
    "§7.1 profile hears of a bad path",
    "§7.1 profile hears of a good path",
    "§8.2 Delivered, GOOD",
    "§8.2 Delivered, SKIP",
    "§8.2 Delivered, ASSUMED_BAD",
    "§8.2 Marked, GOOD",
    "§8.2 Marked, SKIP",
    "§8.2 Marked, ASSUMED_BAD",
    "§8.2 Trimmed, GOOD",
    "§8.2 Trimmed, SKIP",
    "§8.2 Loss, GOOD",
    "§8.2 Loss, SKIP",
    "§8.2 Loss, ASSUMED_BAD",
    "§8.2 Turn, SKIP",
    "§8.2 ProbeDelivered, GOOD",
    "§8.2 ProbeDelivered, SKIP",
    "§8.2 ProbeDelivered, ASSUMED_BAD",
    "§8.2 ProbeMarked, GOOD",
    "§8.2 ProbeMarked, SKIP",
    "§8.2 ProbeMarked, ASSUMED_BAD",
    "§8.2 ProbeLost, ASSUMED_BAD",
    "§8.2 TailProbeLost, GOOD",
    "§8.2 TailProbeLost, SKIP",
    "§8.2 TailProbeLost, ASSUMED_BAD",
    "§8.2 Delivered, DENIED",
    "§8.2 Verdict, GOOD",
    "§8.2 Verdict, SKIP",
    "§8.2 Refused, GOOD",
    "§8.2 ProbeVerdict, GOOD",
    "§8.2 ProbeVerdict, ASSUMED_BAD",
    "§8.2 EvProbeDelivered, GOOD",
    "§8.2 EvProbeDelivered, ASSUMED_BAD",
    "§8.2 ProbeLost, GOOD",
    "§8.2 Deny, GOOD",
    "§8.2 Deny, SKIP",
    "§8.2 Deny, ASSUMED_BAD",
    "§8.2 Allow, GOOD",
    "§8.2 Allow, SKIP",
    "§8.2 Allow, ASSUMED_BAD",
    "§8.2 Allow, DENIED",
    "§8.2 Banish, GOOD",
    "§8.2 Banish, SKIP",
    "§8.2 Banish, DENIED",
    "§8.2 PortDown, GOOD",
    "§8.2 PortDown, SKIP",
    "§8.2 PortDown, ASSUMED_BAD",
    "§8.2 PortDown, DENIED",
    "§8.2 PortUp, GOOD",
    "§8.2 PortUp, SKIP",
    "§8.2 PortUp, ASSUMED_BAD",
    "§8.3 rotation without disturbance",
    "§8.3 fresh path for a retransmission",
    "§8.3 deadlock guard",
    "§9.1 probe of the control class",
    "§9.1 probe counts as lost",
    "§9.2 EV probe is answered",
    "§9.2 EV probe tells of its path",
    "§9.2 EV probe without an answer",
    "§9.3 no usable port left",
    "§9.3 update at once",
    "§9.3 changes coalesce",
    "§9.3 flap is not told",
    "§9.3 update repeats",
    "§9.3 update repeats on another plane",
    "§9.3 updates begin again",
    "§9.3 update is answered",
    "§9.3 answer to what is out of date",
    "§9.3 nothing can be said without a port",
    "§9.3 the last mask wins",
    "§9.3 mask without a usable port",
    "§9.3 mask against traffic within a second",
    "§9.3 traffic shows a port to work",
    "§11 penalty",
    "§12 trimmable write",
    "§12 trimmable write again",
    "§14 answer suppressed",
    "§14 answer suppressed by another limit than the default",
    "§14 port said to be down is probed",
    "§14 probe shows a port to work",
    "§14 endpoint request above the rate",
    "§14 endpoint request of a stranger",
    "§14 endpoint request of another partition",
];

/// The rule for a cell of the table of protocol.md §8.2, if it is one of those above.
fn cell(happening: Happening, state: EvState) -> Option<&'static str> {
    let state = match state {
        EvState::Good => "GOOD",
        EvState::Skip => "SKIP",
        EvState::AssumedBad => "ASSUMED_BAD",
        EvState::Denied => "DENIED",
    };
    let name = format!("§8.2 {happening:?}, {state}");
    RULES.iter().copied().find(|rule| **rule == *name)
}

fn segment(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::WriteOnly => "§5.2 Only",
        Opcode::WriteOnlyImm => "§5.2 Only with immediate",
        Opcode::WriteFirst => "§5.2 First",
        Opcode::WriteMiddle => "§5.2 Middle",
        Opcode::WriteLastImm => "§5.2 Last with immediate",
        _ => "§5.2 Last",
    }
}

/// What a queue pair said about a packet that reached it.
pub(crate) fn arrived(coverage: &mut Coverage, packet: &Packet<'_>, disposition: Disposition) {
    let rule = match (&packet.headers, disposition) {
        (_, Disposition::Dropped(DropReason::State)) => "§2.2 packet in a state that does not take it",
        (Headers::Sack(..) | Headers::Ack(_), Disposition::Dropped(DropReason::Implausible)) => {
            "§5.5 1 implausible SACK or ACK"
        }
        (Headers::Nack(_), Disposition::Dropped(_)) => "§5.6 D NACK of a packet that is not outstanding",
        (Headers::Nack(neth), Disposition::Accepted) => match neth.reason {
            NackReason::TRIMMED => "§5.6 D TRIMMED",
            NackReason::TRIMMED_LASTHOP => "§5.6 D TRIMMED_LASTHOP",
            NackReason::NO_BITMAP => "§5.6 D NO_BITMAP",
            NackReason::NO_PKT_BUFFER => "§5.6 D NO_PKT_BUFFER",
            NackReason::NO_RESOURCE => "§5.6 D NO_RESOURCE",
            NackReason::PSN_OOR_WINDOW => "§5.6 D PSN_OOR_WINDOW",
            NackReason::UNEXP_EVENT => "§5.6 D UNEXP_EVENT",
            _ => "§5.6 D unknown reason",
        },
        _ => return,
    };
    coverage.rule(rule, 1);
}

impl Flow {
    /// What both ends of this direction went through.
    pub(crate) fn count_rules(&self, coverage: &mut Coverage) {
        for packet in self.packets.iter().take(self.requestor.sent) {
            coverage.rule(segment(packet.opcode), 1);
        }
        for (rule, times) in self.requestor.exercised.iter().chain(&self.responder.exercised) {
            coverage.rule(rule, *times);
        }
        let seen = self.responder.seen;
        coverage.rule("§6.2 duplicate above ePSN", seen.duplicates_above);
        coverage.rule("§6.2 duplicate below ePSN", seen.duplicates_below);
        coverage.rule("§6.2 out of the window", seen.out_of_window);
        coverage.rule("§6.2 in a window announced before", seen.withdrawn);
        coverage.rule("§6.3 1 trimmed packet", seen.trimmed);
        coverage.rule("§6.3 4 write refused", seen.refused);
    }
}

impl World {
    /// What the queue pairs counted themselves.
    pub(crate) fn count_rules(&mut self) {
        let coverage = &mut self.coverage;
        for flow in self.flows.iter().flatten().filter(|flow| !flow.closed) {
            flow.count_rules(coverage);
        }
        let nodes = self.hosts.iter().filter_map(|host| host.node.as_ref());
        for talk in nodes.flat_map(Node::talks) {
            for (rule, times) in &talk.exercised {
                coverage.rule(rule, *times);
            }
        }
        for slot in self.hosts.iter().flat_map(|host| &host.qps) {
            let stats = slot.qp.stats();
            coverage.rule("§5.6 A same path", stats.losses_same_path);
            coverage.rule("§5.6 B time", stats.losses_late);
            coverage.rule("§5.6 C probe", stats.losses_unseen);
            coverage.rule("§5.6 E timeout", stats.timeouts);
            coverage.rule("§5.6 loss that was none", stats.losses_spurious);
            coverage.rule(
                "§5.6 packet withdrawn from a port that is down",
                stats.packets_withdrawn,
            );
            coverage.rule("§5.7 tail probe", stats.tail_probes_sent);
            coverage.rule("§5.8 Transport ACK completes requests", slot.work.succeeded as u64);
            coverage.rule("§5.8 Transport ACK missing, highest PSN again", stats.ack_resends);
            coverage.rule("§6.2 new", stats.packets_placed);
            coverage.rule("§6.7 Transport ACK", stats.acks_sent);
            coverage.rule("§6.8 NACK", stats.nacks_sent);
            coverage.rule("§14 answer suppressed", stats.answers_suppressed);
            let plan = &self.scenario.connections[slot.connection];
            if plan.limits_answers() {
                coverage.rule(
                    "§14 answer suppressed by another limit than the default",
                    stats.answers_suppressed,
                );
            }
            coverage.rule("§8.3 rotation without disturbance", slot.balance.judged);
            for (happening, state, times) in slot.qp.path_happenings().filter(|(.., times)| *times > 0) {
                if let Some(rule) = cell(happening, state) {
                    coverage.rule(rule, times);
                }
                let lost = matches!(happening, Happening::ProbeLost | Happening::TailProbeLost);
                coverage.rule("§9.1 probe counts as lost", if lost { times } else { 0 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_names_of_their_own_in_the_order_of_sections() {
        let sections: Vec<Vec<u32>> = RULES
            .iter()
            .map(|rule| {
                let number = rule.trim_start_matches('§').split(' ').next().unwrap_or("");
                number.split('.').map(|part| part.parse().expect("a number")).collect()
            })
            .collect();
        assert!(sections.is_sorted());
        let mut names = RULES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }
}
