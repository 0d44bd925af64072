//! An engine run by hand, in a time of the caller's: the same calls do the same work, whatever the machine is busy with.

use std::sync::MutexGuard;

use mrc_protocol::Instant;

use super::Engine;
use super::worker::Worker;

/// Time by hand begins at a multiple of this, so that timers lie alike in their slots every time.
const GRAIN_NS: u64 = 1 << 30;

/// Keeps the threads of an engine from their work, which the caller does in their place. A command to the engine waits until this
/// is gone.
pub struct ByHand<'e> {
    workers: Vec<MutexGuard<'e, Worker>>,
    start: Instant,
}

impl Engine {
    /// Takes the engine out of its threads' hands: for measurements and tests that have to be the same each time.
    pub fn by_hand(&self) -> ByHand<'_> {
        let mut workers: Vec<_> = self.0.shared.iter().map(|shared| shared.lock()).collect();
        let latest = workers.iter().map(|worker| worker.now()).max().unwrap_or(Instant::ZERO);
        let start = Instant::from_ns(latest.as_ns().next_multiple_of(GRAIN_NS));
        for worker in &mut workers {
            worker.hold(start);
        }
        ByHand { workers, start }
    }
}

impl ByHand<'_> {
    /// One pass of each thread, `elapsed_ns` after the engine was taken over. True if there was something to do, or is to be
    /// done at once.
    pub fn pass(&mut self, elapsed_ns: u64) -> bool {
        let now = self.start + elapsed_ns;
        self.workers.iter_mut().fold(false, |busy, worker| {
            worker.set_time(now);
            worker.pass().busy | busy
        })
    }
}

impl Drop for ByHand<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.release();
        }
    }
}
