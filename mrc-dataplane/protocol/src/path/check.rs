//! Checking ASSUMED_BAD paths with reliability probes: when, and how often (protocol.md §9.1, P22).

use alloc::boxed::Box;
use alloc::vec;

use mrc_wire::PortSet;

use super::{EvIndex, Path, PathSet};
use crate::time::{Instant, MS, SEC, earlier};

/// Pace at which probes may go out while no data does.
const IDLE_INTERVAL_NS: u64 = MS;
/// Data packets that pay for one probe: 10 %.
const PACKETS_PER_PROBE: u16 = 10;
/// Probes that data may have paid for in advance.
const PREPAID_PROBES: u16 = 8;

/// One path's probing, but for its time: there are many paths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Check {
    /// Bits 0-3: failures since the last success, that is how often the wait has doubled. Bits 4-6: how often a failure
    /// has ended a row of successes. Bit 7: in flight.
    flags: u8,
    successes: u8,
}

impl Check {
    const IN_FLIGHT: u8 = 0x80;
    const DOUBLINGS: u8 = 0x0f;
    const MAX_DOUBLINGS: u8 = 10;
    const ENDED_ROWS: u8 = 0x70;
    const ENDED_ROW: u8 = 0x10;

    /// The failures that ended a row, as they stand in `flags`; one more if one ends now.
    fn ended_rows(self, ends: bool) -> u8 {
        let ended = self.flags & Self::ENDED_ROWS;
        if ends && ended < Self::ENDED_ROWS {
            ended + Self::ENDED_ROW
        } else {
            ended
        }
    }

    pub(super) fn set_in_flight(&mut self) {
        self.flags |= Self::IN_FLIGHT;
    }
}

impl Path {
    /// First 1 ms after the verdict.
    pub(super) fn start_check(&mut self, now: Instant) {
        self.check = Check::default();
        self.check_at = now + MS;
    }

    /// Failed: twice as long, up to 1 s.
    pub(super) fn back_off(&mut self, now: Instant) {
        let doublings = ((self.check.flags & Check::DOUBLINGS) + 1).min(Check::MAX_DOUBLINGS);
        self.check = Check {
            flags: doublings | self.check.ended_rows(self.check.successes > 0),
            successes: 0,
        };
        self.check_at = now + (MS << doublings).min(SEC);
    }

    /// Succeeded: the next follows as soon as the pace permits. How many in a row.
    ///
    /// Unless failures have ended such rows: then after 2, 4, ... 128 ms, because a peer that limits its answers (§14, P29) might
    /// leave out every other one for ever.
    pub(super) fn succeed(&mut self, now: Instant) -> u8 {
        let successes = self.check.successes.saturating_add(1);
        let flags = self.check.ended_rows(false);
        self.check = Check { flags, successes };
        self.check_at = match flags / Check::ENDED_ROW {
            0 => now,
            ended => now + (MS << ended),
        };
        successes
    }

    pub(super) fn check_at_once(&mut self, now: Instant) {
        self.check = Check {
            flags: self.check.flags & (Check::IN_FLIGHT | Check::ENDED_ROWS),
            successes: 0,
        };
        self.check_at = now;
    }

    /// When the next probe is due, unless one is in flight.
    pub(super) fn check_due(&self) -> Option<Instant> {
        (self.check.flags & Check::IN_FLIGHT == 0).then_some(self.check_at)
    }
}

/// The bad paths, and the pace of their probes.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    bad: Bits,
    /// Due, and not yet sent.
    ready: Bits,
    /// No path that is not `ready` is due before.
    next_due: Option<Instant>,
    /// Data packets sent since, up to a limit.
    paid_packets: u16,
    /// When a probe may go that nobody paid for.
    gate: Instant,
    /// `gate`, if a probe waits for it.
    gate_timer: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) struct Bits(Box<[u64]>);

impl Bits {
    pub(super) fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)].into_boxed_slice())
    }

    pub(super) fn clear_all(&mut self) {
        self.0.fill(0);
    }

    pub(super) fn first(&self) -> Option<EvIndex> {
        self.iter().next()
    }

    pub(super) fn set(&mut self, index: EvIndex) {
        self.0[usize::from(index) / 64] |= 1 << (index % 64);
    }

    pub(super) fn clear(&mut self, index: EvIndex) {
        self.0[usize::from(index) / 64] &= !(1 << (index % 64));
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    fn iter(&self) -> impl Iterator<Item = EvIndex> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (bit < 64).then_some((at * 64) as EvIndex + bit as EvIndex)
            })
        })
    }
}

impl Checks {
    pub(super) fn new(universe: usize) -> Self {
        let bits = Bits::new(universe);
        Self {
            bad: bits.clone(),
            ready: bits,
            next_due: None,
            paid_packets: 0,
            gate: Instant::ZERO,
            gate_timer: None,
        }
    }

    pub(super) fn clear(&mut self) {
        self.bad.0.fill(0);
        self.ready.0.fill(0);
        self.next_due = None;
        self.gate_timer = None;
        self.paid_packets = 0;
    }

    pub(super) fn bad(&self) -> impl Iterator<Item = EvIndex> + '_ {
        self.bad.iter()
    }

    pub(super) fn add(&mut self, index: EvIndex, due: Option<Instant>) {
        self.bad.set(index);
        self.schedule(due);
    }

    pub(super) fn remove(&mut self, index: EvIndex) {
        self.bad.clear(index);
        self.ready.clear(index);
    }

    pub(super) fn schedule(&mut self, due: Option<Instant>) {
        self.next_due = earlier(self.next_due, due);
    }
}

impl PathSet {
    /// A data packet went out: it pays a tenth of a probe.
    pub(crate) fn pay_for_checks(&mut self) {
        self.checks.paid_packets = (self.checks.paid_packets + 1).min(PACKETS_PER_PROBE * PREPAID_PROBES);
    }

    /// Finds the bad paths whose probe is due.
    pub(crate) fn handle_check_timeout(&mut self, now: Instant) {
        if self.checks.gate_timer.is_some_and(|at| at <= now) {
            self.checks.gate_timer = None;
        }
        if self.checks.next_due.is_none_or(|due| due > now) {
            return;
        }
        self.checks.next_due = None;
        for word in 0..self.checks.bad.0.len() {
            let mut rest = self.checks.bad.0[word] & !self.checks.ready.0[word];
            while rest != 0 {
                let index = (word * 64) as EvIndex + rest.trailing_zeros() as EvIndex;
                rest &= rest - 1;
                let path = &self.paths[usize::from(index)];
                match path.check_due() {
                    // Port down: no probes (§8.2). Its return makes them due.
                    _ if !self.usable.contains(path.port) => {}
                    Some(due) if due <= now => self.checks.ready.set(index),
                    due => self.checks.schedule(due),
                }
            }
        }
        self.arm_gate(now);
    }

    /// Does any bad path wait for its probe?
    pub(crate) fn has_checks(&self) -> bool {
        !self.checks.ready.is_empty()
    }

    /// A bad path to probe now, on a port with room.
    pub(crate) fn poll_check(&mut self, room: PortSet, now: Instant) -> Option<EvIndex> {
        if !self.has_checks() {
            return None;
        }
        let paid = self.checks.paid_packets >= PACKETS_PER_PROBE;
        if !paid && self.checks.gate > now {
            self.arm_gate(now);
            return None;
        }
        let ports = room.intersection(self.usable);
        let index = self
            .checks
            .ready
            .iter()
            .find(|&index| ports.contains(self.entry(index).port))?;
        self.checks.ready.clear(index);
        self.paths[usize::from(index)].check.set_in_flight();
        if paid {
            self.checks.paid_packets -= PACKETS_PER_PROBE;
        }
        self.checks.gate = now + IDLE_INTERVAL_NS;
        self.arm_gate(now);
        Some(index)
    }

    fn arm_gate(&mut self, now: Instant) {
        let waits = self.checks.gate > now && !self.checks.ready.is_empty();
        self.checks.gate_timer = waits.then_some(self.checks.gate);
    }

    pub(crate) fn next_check(&self) -> Option<Instant> {
        earlier(self.checks.next_due, self.checks.gate_timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::PathConfig;
    use crate::path::{Happening, Reason};
    use crate::testing::{ALL, evs, port};

    const NOW: Instant = Instant::from_ns(7 * SEC);

    fn path() -> Path {
        Path::new(evs(1, 1)[0])
    }

    // protocol.md §9.1: 1 ms after the verdict, then 2, 4, ... up to 1 s between failures.
    #[test]
    fn each_failure_doubles_the_wait_up_to_a_second() {
        let mut path = path();
        path.start_check(NOW);
        assert_eq!(path.check_due(), Some(NOW + MS));
        for n in 1..40 {
            path.check.set_in_flight();
            assert_eq!(path.check_due(), None, "one in flight");
            path.back_off(NOW);
            assert_eq!(path.check_due(), Some(NOW + (MS << n.min(10)).min(SEC)));
        }
        path.start_check(NOW);
        path.back_off(NOW);
        assert_eq!(path.check_due(), Some(NOW + 2 * MS), "a new verdict begins anew");
    }

    // protocol.md §9.1: a success is followed at once, but after each failure that ended a row of successes they wait: 2, 4, ... 128 ms.
    #[test]
    fn successes_wait_once_failures_have_ended_their_rows() {
        let mut path = path();
        path.start_check(NOW);
        assert_eq!((path.succeed(NOW), path.check_due()), (1, Some(NOW)));
        assert_eq!((path.succeed(NOW), path.check_due()), (2, Some(NOW)));
        for ended in 1..12 {
            path.back_off(NOW);
            assert_eq!(path.check_due(), Some(NOW + 2 * MS), "the first in a row");
            // One that ends no row does not count.
            path.back_off(NOW);
            assert_eq!(path.succeed(NOW), 1, "counted anew");
            assert_eq!(path.check_due(), Some(NOW + (MS << ended.min(7))));
        }
    }

    // protocol.md §8.2: probed at once when its port is up again; still at most one in flight.
    #[test]
    fn return_of_the_port_does_not_send_a_second_probe() {
        let mut path = path();
        path.start_check(NOW);
        path.check_at_once(NOW + 5);
        assert_eq!(path.check_due(), Some(NOW + 5));
        path.check.set_in_flight();
        path.check_at_once(NOW + 6);
        assert_eq!(path.check_due(), None);
    }

    /// Twelve bad paths on two ports, all of which are due.
    fn bad() -> PathSet {
        let config = PathConfig {
            active: Some(12),
            min_active: Some(1),
            ..PathConfig::explicit(evs(2, 12))
        };
        let mut set = PathSet::new(&config, [3; 32]).unwrap();
        for index in 0..12 {
            set.handle(index, Happening::Verdict, Reason::Verdict, NOW, 0);
        }
        set.handle_check_timeout(NOW + MS - 1);
        assert!(!set.has_checks());
        set.handle_check_timeout(NOW + MS);
        assert!(set.has_checks());
        set
    }

    // protocol.md §9.1: at most max(1, 10 %) of the data packets.
    #[test]
    fn ten_packets_pay_for_one_probe() {
        let now = NOW + MS;
        let mut set = bad();
        assert!(set.poll_check(ALL, now).is_some(), "one that nobody paid for");
        assert_eq!(set.poll_check(ALL, now), None);
        for _ in 0..3 {
            (0..9).for_each(|_| set.pay_for_checks());
            assert_eq!(set.poll_check(ALL, now), None, "nine are not enough");
            set.pay_for_checks();
            assert!(set.poll_check(ALL, now).is_some());
            assert_eq!(set.poll_check(ALL, now), None, "and it is used up");
        }
        // Without data one in a millisecond.
        assert_eq!(set.next_check(), Some(now + MS));
        assert_eq!(set.poll_check(ALL, now + MS - 1), None);
        assert!(set.poll_check(ALL, now + MS).is_some());
        assert_eq!(set.poll_check(ALL, now + MS), None);
    }

    #[test]
    fn data_pays_for_eight_probes_in_advance() {
        let now = NOW + MS;
        let mut set = bad();
        (0..10_000).for_each(|_| set.pay_for_checks());
        let sent = (0..12).filter(|_| set.poll_check(ALL, now).is_some());
        assert_eq!(sent.count(), 8);
    }

    #[test]
    fn probes_leave_only_where_there_is_room() {
        let mut set = bad();
        assert_eq!(set.poll_check(PortSet::EMPTY, NOW + MS), None);
        // All the bad ones are of the first port.
        assert_eq!(set.poll_check(PortSet::EMPTY.with(port(2)), NOW + MS), None);
        assert!(set.poll_check(PortSet::EMPTY.with(port(1)), NOW + MS).is_some());
    }
}
