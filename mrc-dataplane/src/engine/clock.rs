//! The engine's clock: nanoseconds since the engine started, the same for all its threads.

use mrc_protocol::Instant;

/// See the module.
#[derive(Clone, Copy)]
pub(super) struct Clock(std::time::Instant);

impl Clock {
    pub(super) fn new() -> Self {
        Self(std::time::Instant::now())
    }

    /// Never 0, which would look like "no timestamp" in the first packets.
    pub(super) fn now(self) -> Instant {
        Instant::from_ns(1_000_000 + self.0.elapsed().as_nanos() as u64)
    }
}
