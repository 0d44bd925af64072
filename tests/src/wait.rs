//! Waiting for conditions instead of for time.

use std::time::{Duration, Instant};

/// Longest wait for anything: only a broken program takes so long, on a machine that is busy with other things too.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until `reached`.
///
/// # Panics
/// After [`PATIENCE`], with what was waited for.
pub fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        // Leaves the core to the engines.
        std::thread::sleep(Duration::from_micros(100));
    }
}
