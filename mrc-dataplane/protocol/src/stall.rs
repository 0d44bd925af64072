//! When the own engine was away (protocol.md §5.6, "no blame").

use crate::time::{Instant, Stall};

/// Absences that are remembered: on a host whose cores are shared, one long wait may be made of several.
const REMEMBERED: usize = 8;

/// The latest absences, apart from each other and in the order of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    ring: [Option<Stall>; REMEMBERED],
    next: usize,
}

impl Stalls {
    /// One more, or more of the last one. What is known already, or older, counts for nothing.
    pub(crate) fn note(&mut self, stall: Stall) {
        let at = (self.next + REMEMBERED - 1) % REMEMBERED;
        match &mut self.ring[at] {
            Some(last) if stall.to <= last.to => {}
            Some(last) if stall.from <= last.to => {
                last.from = last.from.min(stall.from);
                last.to = stall.to;
            }
            _ => {
                self.ring[self.next] = Some(stall);
                self.next = (self.next + 1) % REMEMBERED;
            }
        }
    }

    /// Nanoseconds of absence since then.
    pub(crate) fn since(&self, at: Instant) -> u64 {
        let away = |stall: &Stall| stall.to.since(stall.from.max(at));
        self.ring.iter().flatten().map(away).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(from: u64, to: u64) -> Stall {
        Stall {
            from: Instant::from_ns(from),
            to: Instant::from_ns(to),
        }
    }

    #[test]
    fn absences_add_up_and_none_counts_twice() {
        let mut stalls = Stalls::default();
        for (from, to) in [(10, 20), (10, 20), (15, 18), (30, 40), (38, 45), (30, 45)] {
            stalls.note(stall(from, to));
        }
        assert_eq!(stalls.since(Instant::ZERO), 10 + 15);
        assert_eq!(stalls.since(Instant::from_ns(15)), 5 + 15);
        assert_eq!(stalls.since(Instant::from_ns(40)), 5);
        assert_eq!(stalls.since(Instant::from_ns(45)), 0);
        // One that turns out to have begun earlier, and gone on longer.
        stalls.note(stall(25, 50));
        assert_eq!(stalls.since(Instant::ZERO), 10 + 25);
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut stalls = Stalls::default();
        for n in 0..100 {
            stalls.note(stall(10 * n, 10 * n + 1));
        }
        assert_eq!(stalls.since(Instant::ZERO), REMEMBERED as u64);
    }
}
