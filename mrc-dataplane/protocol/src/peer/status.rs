//! Telling a peer which of the own ports are reachable (protocol.md §9.3, P24).

use mrc_wire::{PortNum, PortSet};

use crate::time::{Instant, MS};

/// Updates that say the same, until one is answered.
const TRIES: usize = 5;
/// Flaps within this time become one update.
const COALESCE_NS: u64 = MS;
/// [decision] A peer that answered none of them, perhaps because it did not know this side yet, is told again when it is
/// heard after this time.
const AGAIN_NS: u64 = 100 * MS;
/// Earlier updates whose answers are still recognised.
const REMEMBERED: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Status {
    /// The own ports that are reachable.
    current: PortSet,
    /// What the peer was told last, or believes because nobody told it anything.
    told: PortSet,
    /// Updates that told it, their ids, and the ports that they left from.
    tries: usize,
    ids: [u16; TRIES],
    over: PortSet,
    /// Updates before these and what they said, the oldest overwritten first.
    past: [Option<(u16, PortSet)>; REMEMBERED],
    oldest: usize,
    /// One of them was answered, or none was needed.
    settled: bool,
    last_sent: Option<Instant>,
    /// When the next update is to leave.
    due: Option<Instant>,
}

impl Status {
    pub(super) fn new(own: PortSet) -> Self {
        Self {
            current: own,
            told: own,
            tries: 0,
            ids: [0; TRIES],
            over: PortSet::EMPTY,
            past: [None; REMEMBERED],
            oldest: 0,
            settled: true,
            last_sent: None,
            due: None,
        }
    }

    /// *All* reachable ports.
    pub(super) fn mask(&self) -> PortSet {
        self.current
    }

    pub(super) fn change(&mut self, reachable: PortSet, now: Instant) {
        if reachable == self.current {
            return;
        }
        self.current = reachable;
        if self.current == self.told {
            // It flapped, and the peer knows nothing of it, or is being told this already.
            self.due = self.last_sent.and_then(|last| self.repetition(last));
            return;
        }
        self.due = Some(self.last_sent.map_or(now, |last| (last + COALESCE_NS).max(now)));
    }

    /// Where an update is to leave now: over a port that is up, and another one than those before.
    pub(super) fn next_port(&mut self, room: PortSet, peer_up: PortSet, now: Instant) -> Option<PortNum> {
        let due = self.due.filter(|&due| due <= now)?;
        let fresh = if self.current == self.told {
            self.over
        } else {
            PortSet::EMPTY
        };
        let open = self.current.intersection(room);
        let both = open.intersection(peer_up);
        let port = [both.difference(fresh), open.difference(fresh), both, open]
            .iter()
            .find_map(|ports| ports.iter().next());
        if port.is_none() {
            self.due = Some(due.max(now) + COALESCE_NS);
        }
        port
    }

    pub(super) fn sent(&mut self, id: u16, port: PortNum, now: Instant) {
        if self.told != self.current {
            self.begin_again();
            self.told = self.current;
        }
        if let Some(place) = self.ids.get_mut(self.tries) {
            *place = id;
        }
        self.tries += 1;
        self.over.insert(port);
        self.last_sent = Some(now);
        self.due = self.repetition(now);
    }

    /// When the update that left at `last` is to be repeated: after 1, 2, 4 and 8 ms, until one is answered.
    fn repetition(&self, last: Instant) -> Option<Instant> {
        let wait_ns = match self.tries {
            0 => COALESCE_NS,
            tries => MS << (tries - 1),
        };
        (!self.settled && self.tries < TRIES).then(|| last + wait_ns)
    }

    /// No update says it yet. What was sent is remembered.
    fn begin_again(&mut self) {
        for &id in self.ids.iter().take(self.tries) {
            self.past[self.oldest] = Some((id, self.told));
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
        self.tries = 0;
        self.over = PortSet::EMPTY;
        self.settled = false;
    }

    /// True if this is the id of an update.
    pub(super) fn answered(&mut self, id: u16) -> bool {
        if self.ids.iter().take(self.tries).any(|&sent| sent == id) {
            if self.told == self.current {
                self.settled = true;
                self.due = None;
            }
            return true;
        }
        let past = self.past.iter().flatten().find(|(sent, _)| *sent == id);
        let Some(&(_, said)) = past else { return false };
        if said != self.told {
            // [decision] The last mask wins, and that may have been this one: a copy of it that came late. Answers do not say in
            // which order the peer was told, so it is told again.
            self.begin_again();
            self.due = self.last_sent.and_then(|last| self.repetition(last));
        }
        true
    }

    /// The peer lives.
    pub(super) fn heard(&mut self, now: Instant) {
        let silent = !self.settled && self.due.is_none();
        if silent && self.last_sent.is_none_or(|last| now.since(last) >= AGAIN_NS) {
            self.begin_again();
            self.due = Some(now);
        }
    }

    /// Without a port that is up, nothing can be said.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.due.filter(|_| !self.current.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_ns(7_000 * MS);
    const ALL: PortSet = PortSet::first(3);

    fn port(num: u8) -> PortNum {
        PortNum::new(num).unwrap()
    }

    /// Sends what is due.
    fn send(status: &mut Status, id: u16, now: Instant) -> Option<PortNum> {
        let port = status.next_port(ALL, ALL, now)?;
        status.sent(id, port, now);
        Some(port)
    }

    // protocol.md §9.3: "over other planes" is counted anew for each mask.
    #[test]
    fn new_mask_begins_on_any_plane() {
        let mut status = Status::new(ALL);
        status.change(PortSet::first(2), NOW);
        assert_eq!(send(&mut status, 1, NOW), Some(port(1)));
        assert_eq!(send(&mut status, 2, NOW + MS - 1), None);
        assert_eq!(send(&mut status, 3, NOW + MS), Some(port(2)));
        status.change(ALL, NOW + MS);
        assert_eq!(send(&mut status, 4, NOW + 2 * MS), Some(port(1)));
        assert_eq!(
            send(&mut status, 5, NOW + 3 * MS),
            Some(port(2)),
            "not the third already"
        );
        assert_eq!(send(&mut status, 6, NOW + 5 * MS), Some(port(3)));
    }

    // protocol.md §9.3 [decision]: when the peer is heard 100 ms after the last of five or later.
    #[test]
    fn silent_peer_is_told_again_when_it_is_heard_after_100_ms() {
        let mut status = Status::new(ALL);
        status.change(PortSet::first(2), NOW);
        let mut last = NOW;
        for id in 0..5 {
            last = status.next_timeout().unwrap();
            assert!(send(&mut status, id, last).is_some());
        }
        assert_eq!((last, status.next_timeout()), (NOW + 15 * MS, None));
        status.heard(last + 100 * MS - 1);
        assert_eq!(status.next_timeout(), None);
        status.heard(last + 100 * MS);
        assert_eq!(status.next_timeout(), Some(last + 100 * MS));
    }
}
