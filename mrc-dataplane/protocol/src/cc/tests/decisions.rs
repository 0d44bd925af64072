//! The decision table (protocol.md §10.1; MRC 1.0 Table 8-1).

use super::{Bench, fast};

const TARGET_NS: u64 = 9_000;

/// What one SACK of `n` bytes does to a window of 100 000 bytes, applied at once.
fn change(ce: bool, delay_ns: u64, n: u64) -> i64 {
    let mut bench = Bench::new(crate::cc::NsccParams {
        adjust_bytes: 0,
        adjust_period_ns: u64::MAX,
        ..crate::cc::NsccParams::new(&fast())
    })
    .shrunk_to(100_000);
    bench.wait(12_001).sack(n, delay_ns, ce);
    bench.cwnd().cast_signed() - 100_000
}

#[test]
fn idle_network_means_proportional_increase() {
    // 4184 * 4184 / 3000 * 6000 / 100000 = 350.1
    assert_eq!(change(false, TARGET_NS - 6_000, 4184), 350);
    // Just below the target: 1 ns of it.
    assert_eq!(change(false, TARGET_NS - 1, 4184), 0);
    assert_eq!(change(false, TARGET_NS - 1000, 4184), 58);
}

#[test]
fn draining_network_means_fair_increase() {
    // 20920 * 4184 / 100000 = 875.3, whatever the delay.
    assert_eq!(change(false, TARGET_NS, 4184), 875);
    assert_eq!(change(false, 10 * TARGET_NS, 4184), 875);
}

#[test]
fn marks_without_delay_are_left_to_path_selection() {
    assert_eq!(change(true, 0, 4184), 0);
    assert_eq!(change(true, TARGET_NS - 1, 4184), 0);
}

#[test]
fn congested_network_means_decrease() {
    // 1 - 0.8 * (18 - 9) / 18 = 0.6; products round down.
    assert_eq!(change(true, 2 * TARGET_NS, 4184), -40_000);
    // 1 - 0.8 * 0.9 = 0.28 < 0.5
    assert_eq!(change(true, 10 * TARGET_NS, 4184), -50_000);
    // Not above the target.
    assert_eq!(change(true, TARGET_NS, 4184), 0);
}
