//! What a controller changes while a queue pair is at work: states of entries, and entries themselves (protocol.md §7.1, §8.2,
//! api.md §4.8). Nothing here happens for a packet, so memory may be allocated.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mrc_wire::PortNum;

use super::state::{EvState, Happening, Reason};
use super::{EvIndex, PathSet, Plane, Word, universe};
use crate::profile::{Containers, EntryState, ProfileEv};
use crate::time::Instant;

impl PathSet {
    /// The path that has this name in the profile.
    pub(crate) fn named(&self, entry: u32) -> Option<EvIndex> {
        let at = self.words.binary_search_by_key(&entry, |word| word.name).ok()?;
        Some(at as EvIndex)
    }

    /// Its name.
    pub(crate) fn name(&self, index: EvIndex) -> Option<u32> {
        self.words.get(usize::from(index)).map(|word| word.name)
    }

    /// Since when a path has its EV.
    pub(crate) fn born(&self, index: EvIndex) -> Instant {
        let word = self.words.get(usize::from(index));
        word.map_or(self.born, |word| word.born.max(self.born))
    }

    /// Another universe in the place of this one. What is known of the ports stays, and so do events and counts.
    pub(crate) fn exchange(&mut self, mut new: Self, now: Instant) {
        new.born = now;
        new.set_loss_condemns(self.loss_condemns);
        new.heard_last = self.heard_last;
        core::mem::swap(&mut new.events, &mut self.events);
        core::mem::swap(&mut new.met, &mut self.met);
        for (port, plane) in self.planes.iter().enumerate() {
            let Some(successor) = new.planes.get_mut(port) else {
                break;
            };
            (successor.withdrawn, successor.returned) = (plane.withdrawn, plane.returned);
            new.heard_at[port] = self.heard_at[port];
            new.down_until[port] = self.down_until[port];
        }
        let (local_up, peer_up) = self.told_ports;
        new.set_ports(local_up, peer_up, now);
        *self = new;
    }

    /// Outer addresses of a path, with SRv6.
    pub(crate) fn encap(&self, index: EvIndex) -> Option<Containers> {
        self.words.get(usize::from(index))?.encap
    }

    /// A path that failed, returned or was forbidden since it was last told, and whether it or a copy is bad: reports are about
    /// all copies (§7.1). Unlike an event, none is lost.
    pub(crate) fn poll_report(&mut self) -> Option<(u32, bool)> {
        while let Some(index) = self.unreported.first() {
            self.unreported.clear(index);
            if let Some(name) = self.name(index) {
                let bad = |copy: EvIndex| self.paths[usize::from(copy)].state == EvState::AssumedBad;
                let bad = self.copies(index).any(bad);
                return Some((name, bad));
            }
        }
        None
    }

    /// The path and all others with its EV on its port.
    fn copies(&self, index: EvIndex) -> impl Iterator<Item = EvIndex> + '_ {
        let entry = self.entry(index);
        let same = self.with_entropy(self.entropy(index)).iter().copied();
        same.filter(move |&other| self.entry(other) == entry)
    }

    /// The controller's word on a path: the rows of §8.2.
    pub(crate) fn set_state(&mut self, index: EvIndex, state: EntryState, now: Instant) {
        if let Some(word) = self.words.get_mut(usize::from(index)) {
            word.set = state;
        }
        let happening = match state {
            EntryState::Good => Happening::Allow,
            EntryState::AssumedBad => Happening::Banish,
            EntryState::Denied => Happening::Deny,
        };
        // A copy that this one spoke for may be at the floor, not bad (§8.2 (1)).
        if self.paths[usize::from(index)].state == EvState::AssumedBad {
            self.unreported.set(index);
        }
        // Of this copy alone: the caller names the others too, if they are meant (§7.1).
        self.handle_one(index, happening, Reason::Controller, now, 0);
    }

    /// Puts another EV in the place of one. Nothing of what was learned about the old one counts for it.
    pub(crate) fn replace(&mut self, index: EvIndex, new: &ProfileEv, now: Instant) {
        let old_port = self.entry(index).port;
        if self.paths[usize::from(index)].state == EvState::AssumedBad {
            // It spoke for copies that may be at the floor, not bad (§8.2 (1)).
            let copies: Vec<EvIndex> = self.copies(index).collect();
            for copy in copies {
                self.unreported.set(copy);
            }
        }
        self.withdraw(index);
        self.reverse.forget(index);
        self.unreported.clear(index);
        let path = &mut self.paths[usize::from(index)];
        (path.ev, path.port) = (new.tag, new.port);
        (path.losses, path.marks) = (0, 0);
        path.enter(EvState::Good, Reason::Controller, now);
        if let Some(word) = self.words.get_mut(usize::from(index)) {
            *word = Word {
                born: now,
                ..Word::new(new)
            };
        }
        self.index_entropy();
        if new.port != old_port {
            self.move_plane(index, old_port, new.port, now);
        }
        self.begin_at(index, now);
        self.rebalance();
    }

    /// Into the set that the controller's word puts a new path in.
    pub(super) fn begin(&mut self, index: EvIndex) {
        self.begin_at(index, Instant::ZERO);
    }

    fn begin_at(&mut self, index: EvIndex, now: Instant) {
        let set = self
            .words
            .get(usize::from(index))
            .map_or(EntryState::Good, |word| word.set);
        let path = &mut self.paths[usize::from(index)];
        match set {
            EntryState::Good => self.join(index),
            EntryState::Denied => path.enter(EvState::Denied, Reason::Controller, now),
            EntryState::AssumedBad => {
                path.enter(EvState::AssumedBad, Reason::Controller, now);
                path.start_check(now);
                self.checks.add(index, path.check_due());
                // What its probes find is news.
                self.unreported.set(index);
            }
        }
    }

    /// What the entropy of a SACK names.
    pub(super) fn index_entropy(&mut self) {
        let (paths, mask) = (&self.paths, self.ev_mask);
        let entropy = |index: EvIndex| paths[usize::from(index)].ev.0 & mask;
        self.by_entropy.sort_unstable_by_key(|&index| (entropy(index), index));
        let mut neighbours = self.by_entropy.windows(2);
        self.weighted = neighbours.any(|pair| entropy(pair[0]) == entropy(pair[1]));
    }

    /// A path changes its port: the planes' shares are dealt anew.
    fn move_plane(&mut self, index: EvIndex, from: PortNum, to: PortNum, now: Instant) {
        let planes = self.planes.len().max(usize::from(to.get()) + 1);
        extend(&mut self.planes, planes, &Plane::default());
        extend(&mut self.down_until, planes, &Instant::ZERO);
        extend(&mut self.heard_at, planes, &Instant::ZERO);
        self.reverse.grow(planes);
        let left = &mut self.planes[usize::from(from.get())].members;
        *left = left.iter().copied().filter(|&other| other != index).collect();
        let plane = &mut self.planes[usize::from(to.get())];
        let mut members = core::mem::take(&mut plane.members).into_vec();
        members.push(index);
        plane.members = members.into_boxed_slice();
        plane.backup.reserve(plane.members.len());
        let counts: Vec<usize> = self.planes.iter().map(|plane| plane.members.len()).collect();
        let (shares, min_active) = universe::shares(self.active, self.min_active_config, &counts);
        for (plane, share) in self.planes.iter_mut().zip(shares) {
            plane.share = share;
        }
        self.min_active = min_active;
        let (local_up, peer_up) = self.told_ports;
        self.set_ports(local_up, peer_up, now);
    }

    /// Every plane has its share in the active set again, as far as it has paths.
    fn rebalance(&mut self) {
        for port in 0..self.planes.len() {
            while self.planes[port].active > self.planes[port].share {
                let members = &self.planes[port].members;
                let Some(&index) = members.iter().find(|&&i| self.paths[usize::from(i)].slot.is_some()) else {
                    break;
                };
                self.retire(index);
                self.planes[port].backup.push(index);
            }
            while self.planes[port].active < self.planes[port].share
                && let Some(index) = self.planes[port].backup.pop()
            {
                self.join(index);
            }
        }
    }
}

fn extend<T: Clone>(list: &mut Box<[T]>, len: usize, value: &T) {
    let mut longer = core::mem::take(list).into_vec();
    longer.resize(len, value.clone());
    *list = longer.into_boxed_slice();
}
