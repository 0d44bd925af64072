//! Token buckets (protocol.md §14).

use crate::time::{Instant, SEC};

/// Permits `per_s` events a second on average and `burst` at once.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    interval_ns: u64,
    burst_ns: u64,
    /// When the bucket was, or will be, full. Empty = `burst_ns` from now.
    full_at: Instant,
}

impl TokenBucket {
    pub(crate) fn new(per_s: u32, burst: u32) -> Self {
        let interval_ns = SEC / u64::from(per_s.max(1));
        Self {
            interval_ns,
            burst_ns: interval_ns * u64::from(burst.max(1)),
            full_at: Instant::ZERO,
        }
    }

    /// Takes a token; false if there is none.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.next(now) > now {
            return false;
        }
        self.full_at = self.full_at.max(now) + self.interval_ns;
        true
    }

    /// Puts so many tokens back, as far as there is room for them.
    pub(crate) fn earn(&mut self, tokens: u32) {
        self.full_at = self.full_at - self.interval_ns.saturating_mul(u64::from(tokens));
    }

    /// When there is a token; `now` if there is one already.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let full_at = self.full_at.max(now) + self.interval_ns;
        Instant(full_at.as_ns().saturating_sub(self.burst_ns)).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowest_bucket_fills_once_a_second() {
        for per_s in [0, 1] {
            let mut bucket = TokenBucket::new(per_s, 0);
            let now = Instant::from_ns(SEC);
            assert!(bucket.take(now) && !bucket.take(now + SEC - 1) && bucket.take(now + SEC));
        }
    }

    #[test]
    fn burst_then_rate() {
        let mut bucket = TokenBucket::new(1000, 3);
        let now = Instant::from_ns(SEC);
        assert_eq!((0..5).filter(|_| bucket.take(now)).count(), 3);
        let next = bucket.next(now);
        assert_eq!(next, now + 1_000_000);
        assert!(!bucket.take(next - 1));
        assert!(bucket.take(next));
        assert!(!bucket.take(next));
        bucket.earn(2);
        assert_eq!((0..5).filter(|_| bucket.take(next)).count(), 2, "earned");
        assert_eq!(
            (0..5).filter(|_| bucket.take(now + SEC)).count(),
            3,
            "full again, and no more than full"
        );
    }
}
