//! What the table of protocol.md §8.2 does to a path, to the active set and to the backup (§8.3).

use alloc::vec::Vec;

use mrc_wire::PortNum;
use rand_chacha::ChaCha8Rng;

use super::state::{EvState, Happening, Reason, Step};
use super::{EvIndex, Path, PathSet, below};
use crate::attr::EvEntry;
use crate::time::Instant;
use crate::work::QpEvent;

impl PathSet {
    /// Something happened to a path, and so to all its copies.
    pub(crate) fn handle(&mut self, index: EvIndex, happening: Happening, reason: Reason, now: Instant, rtt_ns: u64) {
        let path = &mut self.paths[usize::from(index)];
        match happening {
            Happening::Loss => path.losses = path.losses.saturating_add(1),
            Happening::Marked => path.marks = path.marks.saturating_add(1),
            _ => {}
        }
        if !self.weighted {
            self.handle_one(index, happening, reason, now, rtt_ns);
            return;
        }
        let EvEntry { ev, port } = self.entry(index);
        let value = ev.0 & self.ev_mask;
        for at in 0..self.with_entropy(value).len() {
            let Some(&copy) = self.with_entropy(value).get(at) else {
                break;
            };
            if self.entry(copy).port == port {
                self.handle_one(copy, happening, reason, now, rtt_ns);
            }
        }
    }

    pub(super) fn handle_one(
        &mut self,
        index: EvIndex,
        happening: Happening,
        reason: Reason,
        now: Instant,
        rtt_ns: u64,
    ) {
        self.met.count(happening, self.paths[usize::from(index)].state);
        let path = &mut self.paths[usize::from(index)];
        match path.state.on(happening) {
            Step::Stay | Step::Use => {}
            Step::CountDelivery => {
                path.outcomes <<= 1;
                path.floor = Instant::ZERO;
            }
            Step::Skip => path.enter(EvState::Skip, reason, now),
            Step::LoseTurn => path.enter(EvState::Good, reason, now),
            Step::Condemn => self.condemn(index, reason, now, rtt_ns),
            Step::CountLostProbe if self.loss_condemns => {}
            Step::CountLoss | Step::CountLostProbe => self.count_loss(index, reason, now, rtt_ns),
            Step::CountToGood => self.count_success(index, EvState::Good, now),
            Step::CountToSkip => self.count_success(index, EvState::Skip, now),
            Step::BackOff => {
                path.back_off(now);
                self.checks.schedule(path.check_due());
            }
            Step::Probe => {
                path.check_at_once(now);
                self.checks.schedule(path.check_due());
            }
            Step::Deny => {
                self.withdraw(index);
                self.paths[usize::from(index)].enter(EvState::Denied, reason, now);
            }
            Step::Banish => {
                self.withdraw(index);
                self.assume_bad(index, reason, now);
            }
            Step::Restore => self.restore(index, EvState::Good, reason, now),
        }
    }

    /// (2), P21: where congestion loses packets too, 3 of the last 16 condemn.
    fn count_loss(&mut self, index: EvIndex, reason: Reason, now: Instant, rtt_ns: u64) {
        let path = &mut self.paths[usize::from(index)];
        path.outcomes = path.outcomes << 1 | 1;
        path.blamed_at = now;
        if self.loss_condemns || path.outcomes.count_ones() >= 3 {
            self.condemn(index, reason, now, rtt_ns);
        } else {
            path.enter(EvState::Skip, reason, now);
        }
    }

    /// To ASSUMED_BAD, unless too few would be left: (1), P23. Better a bad path now and then than none.
    fn condemn(&mut self, index: EvIndex, reason: Reason, now: Instant, rtt_ns: u64) {
        let path = &self.paths[usize::from(index)];
        let backup = &self.planes[usize::from(path.port.get())].backup;
        if path.slot.is_some() && self.rotation.len() <= self.min_active && backup.is_empty() {
            let path = &mut self.paths[usize::from(index)];
            path.enter(EvState::Skip, reason, now);
            path.floor = now + rtt_ns.max(1);
            return;
        }
        self.withdraw(index);
        self.assume_bad(index, reason, now);
    }

    /// Out of the active set, and a backup of the same plane into its place (§8.3); or out of the backup, or of what is
    /// checked.
    pub(super) fn withdraw(&mut self, index: EvIndex) {
        self.checks.remove(index);
        let path = &mut self.paths[usize::from(index)];
        path.floor = Instant::ZERO;
        path.outcomes = 0;
        let port = path.port;
        let slot = path.slot.take();
        let plane = &mut self.planes[usize::from(port.get())];
        let Some(slot) = slot else {
            plane.backup.retain(|&other| other != index);
            return;
        };
        if let Some(substitute) = take_substitute(&mut plane.backup, &self.paths, &mut self.rng) {
            self.rotation.replace(slot, substitute);
            self.paths[usize::from(substitute)].slot = Some(slot);
            return;
        }
        self.vacate(port, slot);
    }

    /// Out of the active set, and nothing into its place.
    pub(super) fn retire(&mut self, index: EvIndex) {
        let path = &mut self.paths[usize::from(index)];
        let port = path.port;
        if let Some(slot) = path.slot.take() {
            self.vacate(port, slot);
        }
    }

    fn vacate(&mut self, port: PortNum, slot: u16) {
        if let Some(moved) = self.rotation.remove(slot) {
            self.paths[usize::from(moved)].slot = Some(slot);
        }
        let plane = &mut self.planes[usize::from(port.get())];
        plane.active -= 1;
        if plane.active == 0 {
            self.active_ports.remove(port);
        }
    }

    /// A path that is in no set.
    pub(super) fn assume_bad(&mut self, index: EvIndex, reason: Reason, now: Instant) {
        let path = &mut self.paths[usize::from(index)];
        path.blamed_at = now;
        path.enter(EvState::AssumedBad, reason, now);
        path.start_check(now);
        self.checks.add(index, path.check_due());
        self.unreported.set(index);
        let (ev, port) = (path.ev, path.port);
        let plane = &mut self.planes[usize::from(port.get())];
        plane.withdrawn = plane.withdrawn.wrapping_add(1);
        self.events.push(QpEvent::EvBad {
            ev,
            port,
            reason,
            lost_before: 0,
        });
    }

    fn count_success(&mut self, index: EvIndex, state: EvState, now: Instant) {
        let path = &mut self.paths[usize::from(index)];
        if path.succeed(now) < self.revive_after {
            self.checks.schedule(path.check_due());
            return;
        }
        self.restore(index, state, Reason::Probed, now);
    }

    /// Usable again, from any state.
    fn restore(&mut self, index: EvIndex, state: EvState, reason: Reason, now: Instant) {
        let path = &mut self.paths[usize::from(index)];
        let before = path.state;
        path.outcomes = 0;
        path.floor = Instant::ZERO;
        path.enter(state, reason, now);
        let (ev, port) = (path.ev, path.port);
        if before == EvState::Skip {
            // It has kept its place.
            return;
        }
        self.checks.remove(index);
        self.join(index);
        if before != EvState::AssumedBad {
            return;
        }
        self.unreported.set(index);
        let plane = &mut self.planes[usize::from(port.get())];
        plane.returned = plane.returned.wrapping_add(1);
        self.events.push(QpEvent::EvGood {
            ev,
            port,
            lost_before: 0,
        });
    }

    /// Into the active set if the plane is below its share, else to its backup (§8.3 Recovery).
    pub(super) fn join(&mut self, index: EvIndex) {
        let port = self.paths[usize::from(index)].port;
        let plane = &mut self.planes[usize::from(port.get())];
        if plane.active >= plane.share {
            plane.backup.push(index);
            return;
        }
        plane.active += 1;
        self.active_ports.insert(port);
        let slot = below(&mut self.rng, self.rotation.len() + 1) as u16;
        if let Some((moved, to)) = self.rotation.insert(slot, index) {
            self.paths[usize::from(moved)].slot = Some(to);
        }
        self.paths[usize::from(index)].slot = Some(slot);
    }
}

/// A GOOD one at random, else one at random that loses its turn first: in the backup it would lose none for ever.
fn take_substitute(backup: &mut Vec<EvIndex>, paths: &[Path], rng: &mut ChaCha8Rng) -> Option<EvIndex> {
    let start = below(rng, backup.len());
    let mut order = (0..backup.len()).map(|step| (start + step) % backup.len());
    let at = order
        .find(|&at| paths[usize::from(backup[at])].state == EvState::Good)
        .or((!backup.is_empty()).then_some(start))?;
    Some(backup.swap_remove(at))
}
