//! The engine's clock: nanoseconds since the engine started, the same for all its threads.

use mrc_protocol::Instant;

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    start: std::time::Instant,
    /// Stands still here.
    held: Option<Instant>,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            start: std::time::Instant::now(),
            held: None,
        }
    }

    /// Never 0, which would look like "no timestamp" in the first packets.
    pub(super) fn now(self) -> Instant {
        self.held
            .unwrap_or_else(|| Instant::from_ns(1_000_000 + self.start.elapsed().as_nanos() as u64))
    }

    /// A clock that stands still at `now`.
    pub(super) fn held(self, now: Instant) -> Self {
        Self {
            held: Some(now),
            ..self
        }
    }

    /// A clock that goes by itself.
    pub(super) fn released(self) -> Self {
        Self { held: None, ..self }
    }
}
