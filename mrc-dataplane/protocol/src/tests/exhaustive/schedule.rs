//! Timeouts, and the end that they lead to, for every setting (protocol.md §2.2, §4, §5.7).

use crate::attr::RetryAttr;
use crate::qp::QpState;
use crate::testing::*;
use crate::time::{Instant, ack_timeout_ns, backoff_class, doubled_ns};
use crate::work::Status;

/// 1.024 us * 2^24.
const LONGEST_NS: u128 = 1024 << 24;

/// The formula of §4 in numbers that nothing overflows.
fn formula_ns(timeout: u32, k: u32, linear_cnt: u32) -> u128 {
    let t0_ns = 1024_u128 << timeout;
    // §5.7: every transmission starts with T0.
    if k == 0 || k < linear_cnt {
        t0_ns
    } else {
        (t0_ns << (k - linear_cnt + 1)).min(LONGEST_NS)
    }
}

// protocol.md §4
#[test]
fn every_timeout_is_that_of_the_formula() {
    for linear_cnt in 0..=7_u8 {
        // 7 + 25 is the largest budget; for ever goes on beyond it.
        for k in 0..=64 {
            assert_eq!(ack_timeout_ns(0, k, linear_cnt), None, "disabled");
            for timeout in 1..=24_u8 {
                let ns = ack_timeout_ns(timeout, k, linear_cnt).map(u128::from);
                let formula = formula_ns(timeout.into(), k, linear_cnt.into());
                assert_eq!(ns, Some(formula), "timeout {timeout}, k {k}, linear {linear_cnt}");
            }
        }
        for timeout in [1, 24] {
            let last = ack_timeout_ns(timeout, u32::MAX, linear_cnt).map(u128::from);
            assert_eq!(last, Some(LONGEST_NS));
        }
    }
}

// protocol.md §4, §5.7
#[test]
fn backoff_of_a_timeout_that_long_round_trips_stretched_neither_shrinks_nor_overflows() {
    for timeout in 1..=24 {
        for stretch in [1_u64, 2, 4] {
            let t0_ns = stretch * (1024 << timeout);
            let mut before = t0_ns;
            for k in 0..=64 {
                let ns = doubled_ns(t0_ns, backoff_class(k, 0));
                assert!(ns >= before && u128::from(ns) <= LONGEST_NS.max(t0_ns.into()));
                before = ns;
            }
        }
    }
    assert_eq!(doubled_ns(u64::MAX, 24), u64::MAX);
}

/// One write into a dead network: when it ends, and after how many failures; `None` if `failures` did not end it.
fn end_of(retry: RetryAttr, failures: u32) -> Option<(u64, u32)> {
    let setup = Setup {
        retry,
        region: 0,
        ..Setup::default()
    };
    let (mut a, _) = setup.pair();
    a.post(write(1, 0, 0));
    let start: Instant = a.now;
    a.poll_all();
    let mut timers = 0;
    while a.qp.state() == QpState::Rts && a.qp.retries() < failures {
        a.wait_for_timeout();
        a.poll_all();
        timers += 1;
        assert!(
            timers < 100_000,
            "{retry:?} comes to no end: {} retries",
            a.qp.retries()
        );
    }
    if a.qp.state() == QpState::Rts {
        return None;
    }
    let done = a.completions();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].status, Status::RetryExceeded);
    Some((a.now.since(start), a.qp.retries()))
}

// protocol.md §5.7: R reaches linear_cnt + exp_cnt, and each failure counts at most once in its timeout (P3)
#[test]
fn every_retry_budget_ends_a_write_that_nobody_answers() {
    for timeout in [1, 14, 24] {
        for linear_cnt in 0..=7 {
            for exp_cnt in 0..25 {
                let retry = RetryAttr {
                    timeout,
                    linear_cnt,
                    exp_cnt,
                };
                let limit = u32::from(linear_cnt) + u32::from(exp_cnt);
                let (ns, retries) = end_of(retry, u32::MAX).expect("it ends");
                // A budget of nothing is spent by the first failure.
                assert_eq!(retries, limit.max(1), "{retry:?}");
                let least: u128 = (0..limit.max(1))
                    .map(|k| formula_ns(timeout.into(), k, linear_cnt.into()))
                    .sum();
                let ns = u128::from(ns);
                assert!(
                    ns >= least && ns <= 3 * least,
                    "{retry:?} ends after {ns} ns, budget {least} ns"
                );
            }
        }
    }
}

// protocol.md §2.2, §5.7
#[test]
fn exponent_of_25_never_ends() {
    for linear_cnt in 0..=7 {
        let retry = RetryAttr {
            timeout: 1,
            linear_cnt,
            exp_cnt: 25,
        };
        assert_eq!(end_of(retry, 100), None, "{retry:?}");
    }
}
