//! The ports of the paths: up or down at either end, and where the peer was heard (protocol.md §8.2, §9.3).

use mrc_wire::{PortNum, PortSet};

use super::{EvIndex, Happening, PathSet, Reason};
use crate::time::{Instant, MS};

impl PathSet {
    /// The ports that are up here and at the peer. Returns those that went down here.
    pub(crate) fn set_ports(&mut self, local_up: PortSet, peer_up: PortSet, now: Instant) -> PortSet {
        self.told_ports = (local_up, peer_up);
        let own: PortSet = (1..self.planes.len())
            .filter(|&port| !self.planes[port].members.is_empty())
            .filter_map(|port| PortNum::new(port as u8))
            .collect();
        let local_up = local_up.intersection(own);
        let lost_here = self.local_up.difference(local_up);
        let mut usable = local_up.intersection(peer_up);
        if usable.is_empty() {
            // P24: a peer cannot talk us out of the last port; the lowest is as good as any.
            let last = local_up
                .intersection(self.usable)
                .iter()
                .next()
                .or(local_up.iter().next());
            usable = last.map_or(PortSet::EMPTY, |port| PortSet::EMPTY.with(port));
        }
        for port in self.usable.difference(usable).iter() {
            self.down_until[usize::from(port.get())] = Instant(u64::MAX);
            self.handle_members(port, Happening::PortDown, now);
        }
        let returned = usable.difference(self.usable);
        self.local_up = local_up;
        self.usable = usable;
        for port in returned.iter() {
            self.down_until[usize::from(port.get())] = now;
            self.handle_members(port, Happening::PortUp, now);
        }
        lost_here
    }

    fn handle_members(&mut self, port: PortNum, happening: Happening, now: Instant) {
        for at in 0..self.planes[usize::from(port.get())].members.len() {
            let index = self.planes[usize::from(port.get())].members[at];
            self.handle_one(index, happening, Reason::Initial, now, 0);
        }
    }

    /// Was the port of this path down at some time since `sent`, or did the path have another EV then? Then a loss is not the path's fault (§5.6).
    pub(crate) fn was_down_since(&self, index: EvIndex, sent: Instant) -> bool {
        let path = &self.paths[usize::from(index)];
        self.down_until[usize::from(path.port.get())] > sent || self.born(index) > sent
    }

    /// A packet of the peer arrived on this port: so that path works, and the way back along it probably too.
    pub(crate) fn heard(&mut self, port: PortNum, now: Instant) {
        if let Some(at) = self.heard_at.get_mut(usize::from(port.get())) {
            *at = now;
            self.heard_last = now;
        }
    }

    /// The ports on which the peer was heard lately, as long as it was heard (P17); all if it never was.
    pub(super) fn heard_lately(&self) -> PortSet {
        const LATELY_NS: u64 = 100 * MS;
        let lately = |port: &PortNum| self.heard_at[usize::from(port.get())] + LATELY_NS > self.heard_last;
        self.usable.iter().filter(lately).collect()
    }
}
