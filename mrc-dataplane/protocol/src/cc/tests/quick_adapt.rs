//! `QuickAdapt`, step by step (protocol.md §10.4). Without trimming: target 12 us, threshold 48 us, a period is 24 us, the
//! gate 225000 / 8 = 28125 bytes. With trimming: target 9 us, a period is 21 us, no threshold.

use super::{Bench, fast};
use crate::cc::{AckSample, Network, NsccParams};

fn dropping() -> Bench {
    Bench::without_apply(&Network {
        trimming: false,
        ..fast()
    })
}

fn trimming() -> Bench {
    Bench::without_apply(&fast())
}

#[test]
fn first_sack_only_begins_a_period() {
    let mut bench = dropping();
    bench.wait(100).sack(4184, 1_000_000, false);
    assert_eq!(bench.cwnd(), 225_000);
}

#[test]
fn starved_window_becomes_what_arrived() {
    let mut bench = dropping();
    bench.sack(4184, 0, false);
    bench.wait(10_000).sack(8_000, 60_000, false);
    bench.wait(13_999).sack(8_000, 60_000, false);
    assert_eq!(bench.cwnd(), 225_000, "the period is not over");
    bench.wait(1).sack(4_000, 60_000, false);
    assert_eq!(bench.cwnd(), 20_000, "all since the first");
}

#[test]
fn nothing_happens_below_the_threshold() {
    let mut bench = dropping();
    bench.sack(4184, 0, false);
    bench.wait(24_000).sack(8_000, 48_000, false);
    assert_eq!(bench.cwnd(), 225_000);
}

#[test]
fn window_that_gets_enough_is_left_alone() {
    let mut bench = dropping();
    bench.sack(4184, 0, false);
    bench.wait(24_000).sack(28_125, 60_000, false);
    assert_eq!(bench.cwnd(), 225_000);
    // A new period has begun: what came before it does not count.
    bench.wait(24_000).sack(28_124, 60_000, false);
    assert_eq!(bench.cwnd(), 28_124);
}

#[test]
fn late_packets_count_as_arrived() {
    let mut bench = dropping();
    bench.sack(4184, 0, false);
    let sample = AckSample {
        late_bytes: 20_000,
        ..AckSample::new(bench.now, 1_000)
    };
    bench.nscc.on_ack(&sample, 0);
    bench.wait(24_000).sack(2_000, 60_000, false);
    assert_eq!(bench.cwnd(), 23_000);
}

#[test]
fn window_of_the_starved_is_at_least_one_packet() {
    let mut bench = dropping();
    bench.sack(4184, 0, false);
    bench.wait(24_000).sack(0, 60_000, false);
    assert_eq!(bench.cwnd(), 4184);
}

#[test]
fn marks_of_what_was_in_flight_are_ignored() {
    let mut bench = dropping();
    bench.sack(4184, 0, false);
    bench.inflight = 100_000;
    bench.wait(24_000).sack(20_000, 60_000, true);
    assert_eq!(bench.cwnd(), 20_000);
    // 100000 bytes were in flight: until they are accounted for, marks say nothing new.
    bench.wait(12_001).sack(60_000, 60_000, true);
    bench.wait(12_001).sack(39_999, 60_000, true);
    assert_eq!(bench.cwnd(), 20_000);
    // Now they do. This is also the end of a period, in which enough arrived.
    bench.wait(12_001).sack(1, 60_000, true);
    assert_eq!(bench.cwnd(), 10_000, "1 - 0.8 * 48 / 60 = 0.36 < 0.5");
}

#[test]
fn unmarked_sacks_are_heard_at_once() {
    let mut bench = Bench::new(NsccParams {
        adjust_bytes: 0,
        adjust_period_ns: u64::MAX,
        ..NsccParams::new(&Network {
            trimming: false,
            ..fast()
        })
    });
    bench.sack(4184, 0, false);
    bench.inflight = 100_000;
    bench.wait(24_000).sack(20_000, 60_000, true);
    assert_eq!(bench.cwnd(), 20_000);
    bench.wait(1).sack(4184, 13_000, false);
    // 20920 * 4184 / 20000
    assert_eq!(bench.cwnd(), 24_376);
}

#[test]
fn trim_asks_for_the_next_period_end() {
    let mut bench = trimming();
    bench.sack(4184, 0, false);
    bench.wait(10_000).trim(4184);
    assert_eq!(bench.cwnd(), 225_000 - 4184, "not yet");
    bench.wait(11_000).sack(9_000, 0, false);
    assert_eq!(bench.cwnd(), 9_000, "the request stood");
    // It is used up.
    bench.wait(21_000).sack(5_000, 3_000, false);
    assert_eq!(bench.cwnd(), 9_000);
}

#[test]
fn trim_at_the_end_of_a_period_adapts_at_once() {
    let mut bench = trimming();
    bench.sack(4184, 0, false);
    bench.wait(10_000).sack(12_000, 0, false);
    bench.inflight = 50_000;
    bench.wait(11_000).trim(4184);
    assert_eq!(bench.cwnd(), 12_000);
    // Further trims of what was in flight do not shrink it again.
    for _ in 0..11 {
        bench.trim(4184);
    }
    assert_eq!(bench.cwnd(), 12_000);
    // 46024 + 4184 >= 50000: accounted for.
    bench.trim(4184);
    assert_eq!(bench.cwnd(), 12_000 - 4184);
}

#[test]
fn inferred_losses_are_accounted_for() {
    let mut bench = trimming();
    bench.sack(4184, 0, false);
    bench.inflight = 50_000;
    bench.wait(21_000).trim(4184);
    assert_eq!(bench.cwnd(), 4184);
    bench.nscc.on_inferred_loss(50_000);
    bench.wait(1).sack(8_000, 20_000, true);
    assert!(!bench.nscc.is_fast());
    assert_eq!(bench.nscc.cwnd_bytes(), 4184, "heard, and already at the minimum");
}

#[test]
fn request_outlives_a_period_in_which_enough_arrived() {
    let mut bench = trimming();
    bench.sack(4184, 0, false);
    bench.wait(10_000).trim(4184);
    bench.wait(11_000).sack(30_000, 0, false);
    assert_eq!(bench.cwnd(), 225_000 - 4184);
    bench.wait(21_000).sack(6_000, 0, false);
    assert_eq!(bench.cwnd(), 6_000);
}

#[test]
fn quick_adapt_can_be_switched_off() {
    let mut bench = Bench::new(NsccParams {
        disable_qa: true,
        ..NsccParams::new(&Network {
            trimming: false,
            ..fast()
        })
    });
    bench.sack(4184, 0, false);
    bench.wait(24_000).sack(0, 1_000_000, false);
    bench.wait(24_000).trim(4184);
    assert!(bench.cwnd() > 200_000);
}
