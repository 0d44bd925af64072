//! Waits for a machine that does nothing else.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// A machine that is busier than this disturbs what is measured.
const QUIET: f64 = 0.1;
const LOOK: Duration = Duration::from_millis(300);

/// Waits until the machine is idle, at most `patience`. Returns the share of its time that it was busy with other things when the
/// waiting ended.
pub(crate) fn wait(patience: Duration) -> f64 {
    let deadline = Instant::now() + patience;
    loop {
        let before = read();
        thread::sleep(LOOK);
        let busy = busy_share(before, read());
        if busy <= QUIET || Instant::now() >= deadline {
            return busy;
        }
    }
}

/// Whether so busy a machine makes figures meaningless.
pub(crate) fn is_noisy(busy: f64) -> bool {
    busy > QUIET
}

/// Busy and idle time of all cores, in ticks.
fn read() -> (u64, u64) {
    parse(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
}

fn parse(stat: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let idle = fields.get(3)? + fields.get(4).copied().unwrap_or(0);
    // The last two count guests, which user time has already.
    let all: u64 = fields.iter().take(8).sum();
    Some((all - idle, idle))
}

fn busy_share(before: (u64, u64), after: (u64, u64)) -> f64 {
    let busy = after.0.saturating_sub(before.0) as f64;
    let idle = after.1.saturating_sub(before.1) as f64;
    if busy + idle > 0.0 { busy / (busy + idle) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_is_idle() {
        assert_eq!(parse("cpu  10 0 20 300 40 0 5 0 0 0\ncpu0 1 2 3\n"), Some((35, 340)));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn the_share_is_that_of_the_time_between() {
        assert!((busy_share((100, 100), (130, 170)) - 0.3).abs() < 1e-9);
        assert!(is_noisy(0.3) && !is_noisy(0.05));
    }
}
