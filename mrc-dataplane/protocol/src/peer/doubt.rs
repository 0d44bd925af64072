//! Ports that a peer says are down although they are up here: EV probes find out whether that is still true, or ever was. Anybody
//! who can forge its address can say so (protocol.md §14: "verify by probes").

use mrc_wire::{PortNum, PortSet};

use crate::time::{Instant, MS, SEC};

/// For so long the peer's word stands against anything that is heard (protocol.md §9.3).
const STANDS_NS: u64 = SEC;
/// Between the probes of different ports.
const APART_NS: u64 = MS;
/// [decision] All ports are probed again after 1, 2, 4 ... s, at most 64: a port that is down for days costs nothing.
const MAX_DOUBLINGS: u32 = 6;

#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// When the next probe may leave; `None` before the peer has said anything.
    due: Option<Instant>,
    /// Ports probed in this round.
    probed: PortSet,
    /// Ports with a probe that was not answered, and its id.
    asked: PortSet,
    ids: [u16; PortNum::MAX as usize + 1],
    doublings: u32,
    /// An answer came to a probe of these.
    proven: PortSet,
}

impl Doubts {
    /// The peer says which of its ports are up.
    pub(super) fn told(&mut self, now: Instant) {
        *self = Self {
            due: Some(now + STANDS_NS),
            ..Self::default()
        };
    }

    /// A port to probe now: one of `doubted`, which are up here and down there, that has `room`.
    pub(super) fn next_port(&mut self, doubted: PortSet, room: PortSet, now: Instant) -> Option<PortNum> {
        self.due.filter(|&due| due <= now)?;
        let port = doubted.intersection(room).difference(self.probed).iter().next();
        if port.is_none() {
            self.probed = PortSet::EMPTY;
            self.due = Some(now + (SEC << self.doublings));
            self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        }
        port
    }

    pub(super) fn sent(&mut self, id: u16, port: PortNum, now: Instant) {
        self.probed.insert(port);
        self.asked.insert(port);
        self.ids[usize::from(port.get())] = id;
        self.due = Some(now + APART_NS);
    }

    /// True if this is the id of a probe: its way there works, whatever way the answer took.
    pub(super) fn answered(&mut self, id: u16) -> bool {
        let asked = self.asked.iter().find(|port| self.ids[usize::from(port.get())] == id);
        if let Some(port) = asked {
            self.asked.remove(port);
            self.proven.insert(port);
        }
        asked.is_some()
    }

    /// Ports that were proven since the last call.
    pub(super) fn take_proven(&mut self) -> PortSet {
        core::mem::replace(&mut self.proven, PortSet::EMPTY)
    }

    pub(super) fn next_timeout(&self, doubted: PortSet) -> Option<Instant> {
        self.due.filter(|_| !doubted.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // protocol.md §14: after 1 s, one port a millisecond; each again after 1, 2, 4 ... s, at most 64.
    #[test]
    fn doubted_ports_are_probed_one_by_one_and_ever_more_seldom() {
        let now = Instant::from_ns(7 * SEC);
        let both = PortSet::first(2);
        let mut doubts = Doubts::default();
        assert_eq!(doubts.next_port(both, both, now), None, "nothing was said");
        doubts.told(now);
        let mut at = now + SEC;
        assert_eq!(doubts.next_port(both, both, at - 1), None);
        for round in 0..10 {
            let mut ports = PortSet::EMPTY;
            for id in 0..2 {
                let port = doubts.next_port(both, both, at).unwrap();
                ports.insert(port);
                doubts.sent(id, port, at);
                assert_eq!(doubts.next_port(both, both, at + MS - 1), None, "1 ms apart");
                at = at + MS;
            }
            assert_eq!(ports, both);
            assert_eq!(doubts.next_port(both, both, at), None, "the round is over");
            at = at + (SEC << round.min(6));
            assert_eq!(doubts.next_port(both, both, at - 1), None);
        }
    }

    #[test]
    fn answer_counts_once() {
        let mut doubts = Doubts::default();
        let port = PortNum::new(2).unwrap();
        doubts.sent(9, port, Instant::ZERO);
        assert!(!doubts.answered(8) && doubts.answered(9) && !doubts.answered(9));
        assert_eq!(doubts.take_proven(), PortSet::EMPTY.with(port));
        assert_eq!(doubts.take_proven(), PortSet::EMPTY);
    }
}
