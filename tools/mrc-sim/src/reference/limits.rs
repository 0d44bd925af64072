//! What limits answers (protocol.md §14), and what asks the peer for less (protocol.md §11).

use mrc_protocol::Instant;
use std::ops::RangeInclusive;

/// A token bucket in exact arithmetic: its unit is the token · ns · per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    per_s: u128,
    full: u128,
    level: u128,
    at: Instant,
}

/// One token.
const TOKEN: u128 = 1_000_000_000;

impl Bucket {
    pub(super) fn new(per_s: u64, burst: u64) -> Self {
        let full = u128::from(burst) * TOKEN;
        Self {
            per_s: per_s.into(),
            full,
            level: full,
            at: Instant::ZERO,
        }
    }

    /// When there is a token.
    pub(super) fn next(mut self, now: Instant) -> Instant {
        self.advance(now);
        let missing = TOKEN.saturating_sub(self.level);
        now + missing.div_ceil(self.per_s) as u64
    }

    fn advance(&mut self, now: Instant) {
        let gained = u128::from(now.since(self.at)) * self.per_s;
        self.at = now;
        self.level = self.full.min(self.level + gained);
    }

    /// Puts tokens in (P29).
    pub(super) fn earn(&mut self, now: Instant, tokens: u128) {
        self.advance(now);
        self.level = self.full.min(self.level + tokens * TOKEN);
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.advance(now);
        let some = self.level >= TOKEN;
        self.level -= if some { TOKEN } else { 0 };
        some
    }
}

/// How full the receive ring is said to be.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pressure {
    fill: Option<f64>,
    was_penalised: bool,
}

impl Pressure {
    pub(super) fn set(&mut self, used: u32, capacity: u32) {
        let fill = f64::from(used) / f64::from(capacity.max(1));
        self.was_penalised = fill >= 0.5 || self.was_penalised && fill >= 0.4;
        self.fill = Some(fill);
    }

    /// The penalties that may be asked for: the recommendation gives a line and says nothing of how it is rounded, nor what
    /// holds between 0.4 and 0.5 on the way down (P27).
    pub(super) fn penalties(&self) -> RangeInclusive<u8> {
        match self.fill {
            Some(fill) if fill >= 0.95 => 127..=127,
            Some(fill) if fill >= 0.5 => {
                let exact = 127.0 * (fill - 0.5) / 0.45;
                exact.floor() as u8..=(exact.ceil() as u8 + 1).min(127)
            }
            Some(_) if self.was_penalised => 0..=127,
            _ => 0..=0,
        }
    }

    /// `rc` has a meaning only for a responder that asks for less now and then.
    pub(super) fn may_restore(&self) -> bool {
        self.fill.is_some()
    }
}
