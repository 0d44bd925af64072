//! The rotation over the active set, and the choice of a path for one packet (protocol.md §8.3).

use alloc::vec::Vec;

use mrc_wire::{PortNum, PortSet};

use super::state::{Happening, Step};
use super::{EvIndex, EvState, PathSet, Reason, below};
use crate::time::{Instant, earlier};

/// The active set in the order of its use.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    order: Vec<EvIndex>,
    cursor: usize,
    passes: u16,
    reshuffle_passes: u16,
}

impl Rotation {
    pub(super) fn new(universe: usize, reshuffle_passes: u16) -> Self {
        Self {
            order: Vec::with_capacity(universe),
            cursor: 0,
            passes: 0,
            reshuffle_passes: reshuffle_passes.max(1),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.cursor = 0;
        self.passes = 0;
    }

    pub(super) fn replace(&mut self, slot: u16, index: EvIndex) {
        self.order[usize::from(slot)] = index;
    }

    /// Takes the slot out. Returns the path that moved into it, if any.
    pub(super) fn remove(&mut self, slot: u16) -> Option<EvIndex> {
        self.order.swap_remove(usize::from(slot));
        self.cursor = self.cursor.min(self.order.len());
        self.order.get(usize::from(slot)).copied()
    }

    /// Puts a path into the slot. Returns the one that it displaced to the end, if any, and its new slot.
    pub(super) fn insert(&mut self, slot: u16, index: EvIndex) -> Option<(EvIndex, u16)> {
        let last = self.order.len();
        self.order.push(index);
        self.order.swap(usize::from(slot), last);
        (usize::from(slot) != last).then(|| (self.order[last], last as u16))
    }

    /// The slot at the cursor, which moves on. Whether a number of passes is complete.
    fn step(&mut self) -> (EvIndex, bool) {
        if self.cursor >= self.order.len() {
            self.cursor = 0;
        }
        let index = self.order[self.cursor];
        self.cursor += 1;
        let mut stale = false;
        if self.cursor == self.order.len() {
            self.passes += 1;
            stale = self.passes >= self.reshuffle_passes;
        }
        (index, stale)
    }
}

/// What a choice came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This path.
    Path(EvIndex),
    /// None now: wait for room on a port, for feedback, or until this time.
    Wait(Option<Instant>),
}

impl PathSet {
    /// Draws a new order, so that queue pairs do not march in step (MRC 1.0 §9.3.1).
    pub(super) fn shuffle(&mut self) {
        let order = &mut self.rotation.order;
        for at in (1..order.len()).rev() {
            order.swap(at, below(&mut self.rng, at + 1));
        }
        for (slot, &index) in order.iter().enumerate() {
            self.paths[usize::from(index)].slot = Some(slot as u16);
        }
        self.rotation.passes = 0;
        self.rotation.cursor = 0;
    }

    /// The path of the next data packet, on a port with room (MRC 1.0 §9.3.1, §11.2.2). `avoid`: the path that lost the
    /// packet before, and so all copies of its EV.
    pub(crate) fn select(&mut self, room: PortSet, avoid: Option<EvIndex>, now: Instant, rtt_ns: u64) -> Choice {
        let ports = room.intersection(self.usable);
        if ports.intersection(self.active_ports).is_empty() {
            return Choice::Wait(None);
        }
        let lost = avoid.map(|index| self.entry(index));
        let mut restored = None;
        let mut avoided = None;
        let mut wait = None;
        let mut found = None;
        let mut stale = false;
        for _ in 0..self.rotation.len() {
            let (index, passes_complete) = self.rotation.step();
            stale |= passes_complete;
            let path = &self.paths[usize::from(index)];
            let (port, state, floor) = (path.port, path.state, path.floor);
            let step = state.on(Happening::Turn);
            if !ports.contains(port) {
                // Rule 1: pass over, change nothing.
            } else if floor > now {
                // P23: once per round trip.
                wait = earlier(wait, Some(floor));
            } else if step == Step::Use && lost == Some(path.entry()) {
                avoided = Some(index);
            } else if step == Step::Use {
                found = Some(index);
                break;
            } else if step == Step::LoseTurn && restored.is_none() {
                // Rule 3: this is the turn that it loses.
                self.handle_one(index, Happening::Turn, Reason::Turn, now, rtt_ns);
                restored = Some(index);
            }
        }
        // Not before the walk has ended: it is to meet every path once.
        if stale {
            self.shuffle();
        }
        // Rule 4.
        match found
            .or(restored.filter(|&index| lost != Some(self.entry(index))))
            .or(avoided)
            .or(restored)
        {
            Some(index) => self.chosen(index, now, rtt_ns),
            None => Choice::Wait(wait),
        }
    }

    fn chosen(&mut self, index: EvIndex, now: Instant, rtt_ns: u64) -> Choice {
        let path = &mut self.paths[usize::from(index)];
        if path.floor > Instant::ZERO {
            path.floor = now + rtt_ns.max(1);
        }
        Choice::Path(index)
    }

    /// Deadlock guard (P23): the ASSUMED_BAD path on a port with room that was blamed longest ago.
    pub(crate) fn least_recently_blamed(&mut self, room: PortSet, now: Instant) -> Option<EvIndex> {
        let ports = room.intersection(self.usable);
        let index = self
            .checks
            .bad()
            .filter(|&index| {
                let path = &self.paths[usize::from(index)];
                path.state == EvState::AssumedBad && ports.contains(path.port)
            })
            .min_by_key(|&index| self.paths[usize::from(index)].blamed_at)?;
        // The next call takes another one.
        self.paths[usize::from(index)].blamed_at = now;
        Some(index)
    }

    /// A path for a control packet (protocol.md §6.10): the plane that its trigger `arrived` on, if that plane's reverse EV was
    /// confirmed lately. Else from the best kind to the worst: planes with such an EV; then ports on which the peer was heard
    /// lately before others, since one whose far end is dead still looks alive here; and paths that are bad last.
    ///
    /// Within a kind, every port has one turn per pass, in a random order. In a fixed order, a SACK and a Transport ACK that
    /// always leave together would meet a silently dead plane with the same one of them for ever.
    pub(crate) fn control(&mut self, room: PortSet, arrived: Option<PortNum>, now: Instant) -> Option<EvIndex> {
        // Now and then anywhere: where every plane fails in one direction, those that are heard are the wrong ones; and what
        // is known of a path at the floor grows old while this side sends no data.
        let anywhere = below(&mut self.rng, 8) == 0;
        let confirmed = self.confirmed(now);
        if let Some(port) = arrived.filter(|&port| !anywhere && confirmed.intersection(room).contains(port))
            && let Some(index) = self.reverse_ev(port, now)
        {
            self.control_turns.remove(port);
            return Some(index);
        }
        let (heard, confirmed) = if anywhere {
            (self.usable, PortSet::EMPTY)
        } else {
            (self.heard_lately(), confirmed)
        };
        let others = self.usable.difference(heard);
        let unconfirmed = heard.difference(confirmed);
        for (ports, bad) in [
            (confirmed, false),
            (unconfirmed, false),
            (others, false),
            (heard, true),
            (others, true),
        ] {
            let open = ports.intersection(room);
            let left = open.intersection(self.control_turns);
            for (turns, new_pass) in [(left, false), (open.difference(left), true)] {
                let start = below(&mut self.rng, turns.len());
                for port in turns.iter().skip(start).chain(turns.iter().take(start)) {
                    let reverse = if bad { None } else { self.reverse_ev(port, now) };
                    let Some(index) = reverse.or_else(|| self.control_on(port, bad, anywhere)) else {
                        continue;
                    };
                    if new_pass {
                        self.control_turns = self.usable;
                    }
                    self.control_turns.remove(port);
                    return Some(index);
                }
            }
            // A path of this kind on a port that has no room this very moment is worth the wait: else, where answers leave in
            // pairs and a port takes one frame at a time, the second one would take the worse path each time.
            if ports
                .difference(room)
                .iter()
                .any(|port| self.control_on(port, bad, anywhere).is_some())
            {
                return None;
            }
        }
        None
    }

    /// The next path of a port that is bad, or is not. `trusting`: one at the floor is not.
    fn control_on(&mut self, port: PortNum, bad: bool, trusting: bool) -> Option<EvIndex> {
        let plane = &mut self.planes[usize::from(port.get())];
        for _ in 0..plane.members.len() {
            plane.control_cursor = (plane.control_cursor + 1) % plane.members.len();
            let index = plane.members[plane.control_cursor];
            let path = &self.paths[usize::from(index)];
            let is_bad = match path.state {
                // One at the floor is as bad as others, it only has no substitute.
                EvState::Good | EvState::Skip => path.floor > Instant::ZERO && !trusting,
                EvState::AssumedBad => true,
                EvState::Denied => continue,
            };
            if is_bad == bad {
                return Some(index);
            }
        }
        None
    }
}
