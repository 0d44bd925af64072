//! Average queueing delay over about one base round trip (protocol.md §10.4 `avg_delay`).

use super::fixed::Fixed;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AverageDelay {
    /// In units of 2^-16 ns: samples that come often weigh little, and must not be lost to rounding.
    units: i64,
    fed_at: Instant,
}

const UNIT_BITS: u32 = 16;
/// 18 minutes. Nothing waits that long for an acknowledgement.
const MAX_NS: u64 = 1 << 40;

impl AverageDelay {
    pub(super) fn new(now: Instant) -> Self {
        Self { units: 0, fed_at: now }
    }

    /// `w = min(1, (now - t_last) / base_rtt); avg += w * (d - avg)`
    pub(super) fn feed(&mut self, delay_ns: u64, now: Instant, base_rtt_ns: u64) {
        let elapsed_ns = now.since(self.fed_at);
        self.fed_at = self.fed_at.max(now);
        let sample = (delay_ns.min(MAX_NS) << UNIT_BITS).cast_signed();
        self.units = if elapsed_ns >= base_rtt_ns {
            sample
        } else {
            let step = i128::from(sample - self.units) * i128::from(elapsed_ns) / i128::from(base_rtt_ns);
            self.units + step as i64
        };
    }

    pub(super) fn ns(&self) -> u64 {
        (self.units >> UNIT_BITS) as u64
    }

    /// `(avg - target) / avg`, if the average is above the target.
    pub(super) fn excess(&self, target_ns: u64) -> Option<Fixed> {
        let average = self.units as u128;
        let target = u128::from(target_ns) << UNIT_BITS;
        (average > target).then(|| Fixed::ratio(average - target, average))
    }
}
