//! Time as an argument: the protocol never reads a clock.

use core::fmt;
use core::ops::{Add, Sub};

use mrc_wire::Tick;

/// A point on the caller's monotonic clock, in nanoseconds since an origin of the caller's choice.
///
/// Durations are plain `u64` nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// A point `ns` nanoseconds after the origin.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The stamp that packets carry (wire-format.md §7.3).
    pub const fn tick(self) -> Tick {
        Tick::from_ns(self.0)
    }
}

impl Add<u64> for Instant {
    type Output = Self;

    /// Saturates at the end of time.
    fn add(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for Instant {
    type Output = Self;

    /// Saturates at the origin.
    fn sub(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// One microsecond in nanoseconds.
pub(crate) const US: u64 = 1_000;
/// One millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// One second in nanoseconds.
pub(crate) const SEC: u64 = 1_000_000_000;

/// The earlier of two optional times.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

/// A time at which the caller's engine did not run although it should have (protocol.md §5.6, "no blame").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Last sign of life before.
    pub from: Instant,
    /// First one after.
    pub to: Instant,
}

/// One more than the largest value of [`backoff_class`] that matters: 1.024 us * 2^24 is the longest timeout.
pub(crate) const BACKOFF_CLASSES: usize = 25;

/// How often the timeout has been doubled after `k` consecutive timeouts (protocol.md §4, P3).
pub(crate) fn backoff_class(k: u32, linear_cnt: u8) -> u32 {
    let linear = u32::from(linear_cnt);
    // k = 0 is T0 whatever linear_cnt says: every transmission starts there (protocol.md §5.7).
    if k == 0 || k < linear {
        0
    } else {
        (k - linear).saturating_add(1).min(BACKOFF_CLASSES as u32 - 1)
    }
}

/// The longest timeout: 1.024 us * 2^24.
const LONGEST_NS: u64 = 1024 << 24;

/// The local ACK timeout after `k` consecutive timeouts of one packet, in ns; `None` = disabled (protocol.md §4, P3).
pub fn ack_timeout_ns(timeout: u8, k: u32, linear_cnt: u8) -> Option<u64> {
    (timeout > 0).then(|| doubled_ns(1024 << timeout.min(24), backoff_class(k, linear_cnt)))
}

/// A timeout after so many doublings.
pub(crate) fn doubled_ns(t0_ns: u64, doublings: u32) -> u64 {
    t0_ns
        .saturating_mul(1 << doublings.min(BACKOFF_CLASSES as u32))
        .min(t0_ns.max(LONGEST_NS))
}
