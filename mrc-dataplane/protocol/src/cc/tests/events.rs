//! Events one by one, computed by hand (protocol.md §10.4). 100 Gbit/s, 12 us: target 9 us, alpha 4184 / 3000 B/ns,
//! fi 20920 B, `fi_scale` 0.25, eta 627.6 B, Apply after 33472 B or 12 us.

use super::{Bench, MTU, START, fast};
use crate::cc::{AckSample, NsccParams, RttSample};

fn bench() -> Bench {
    Bench::new(NsccParams::new(&fast()))
}

fn full(ns: u64) -> RttSample {
    RttSample { ns, bytes: MTU }
}

#[test]
fn window_starts_at_its_maximum() {
    let bench = bench();
    assert_eq!((bench.cwnd(), bench.nscc.max_wnd_bytes()), (225_000, 225_000));
    assert_eq!((bench.nscc.base_rtt_ns(), bench.nscc.avg_delay_ns()), (12_000, 0));
    assert!(!bench.nscc.is_fast() && !bench.nscc.is_limited());
}

#[test]
fn window_is_open_while_less_than_it_is_in_flight() {
    let bench = bench().shrunk_to(10_000);
    assert!(bench.nscc.can_send(-1) && bench.nscc.can_send(0) && bench.nscc.can_send(9_999));
    assert!(!bench.nscc.can_send(10_000) && !bench.nscc.can_send(i64::MAX));
}

#[test]
fn acknowledgement_is_asked_for_when_the_window_closes_or_is_small() {
    let bench = bench().shrunk_to(20_000);
    assert!(!bench.nscc.nearly_closed(20_000 - 4184, 16_384));
    assert!(bench.nscc.nearly_closed(20_000 - 4183, 16_384));
    assert!(
        bench.nscc.nearly_closed(0, 20_001),
        "the peer would wait for more than the window"
    );
    assert!(!bench.nscc.nearly_closed(0, 20_000));
    assert!(bench.nscc.nearly_closed(i64::MAX, 0) && !bench.nscc.nearly_closed(i64::MIN, 0));
}

#[test]
fn increases_are_summed_and_applied_once_per_period_with_eta() {
    let mut bench = bench().shrunk_to(100_000);
    bench.wait(6_000).sack(4184, 3_000, false);
    assert_eq!(bench.cwnd(), 100_000, "6 us and 4184 bytes are not enough");
    bench.wait(6_000).sack(4184, 10_000, false);
    // (4184 * 4184 / 3000 * 6000 + 20920 * 4184) / 100000 = 350.1 + 875.3; + 627.6
    assert_eq!(bench.cwnd(), 101_853);
    bench.wait(11_999).sack(4184, 10_000, false);
    assert_eq!(bench.cwnd(), 101_853, "a new period");
}

#[test]
fn increases_are_applied_after_enough_bytes_without_eta() {
    let mut bench = bench().shrunk_to(100_000);
    for _ in 0..8 {
        bench.wait(10).sack(4184, 10_000, false);
    }
    assert_eq!(bench.cwnd(), 100_000, "33472 bytes are not more than 33472 bytes");
    bench.wait(10).sack(4184, 10_000, false);
    // 9 * 875.3
    assert_eq!(bench.cwnd(), 107_877);
    assert!(bench.now.since(START) < 12_000);
}

#[test]
fn window_does_not_grow_above_its_maximum() {
    let mut bench = bench();
    for _ in 0..10 {
        bench.wait(12_000).sack(225_000, 3_000, false);
        assert_eq!(bench.cwnd(), 225_000);
    }
}

#[test]
fn sack_without_round_trip_is_counted_and_changes_nothing() {
    let mut bench = bench().shrunk_to(100_000);
    for _ in 0..20 {
        bench.wait(12_000);
        bench.nscc.on_ack(&AckSample::new(bench.now, 40_000), 0);
    }
    assert_eq!(bench.cwnd(), 100_000);
    // What came in meanwhile counts for Apply: 800000 bytes, and the time.
    bench.sack(4184, 10_000, false);
    assert_eq!(bench.cwnd(), 100_000 + 1_502, "875.3 + 627.6");
}

#[test]
fn fast_increase_begins_after_a_window_without_delay() {
    let mut bench = Bench::without_apply(&fast()).shrunk_to(100_000);
    // Delays below max(1 us, 12 us / 8) count as none.
    bench.sack(60_000, 1_499, false).sack(40_000, 0, false);
    assert_eq!(
        (bench.cwnd(), bench.nscc.is_fast()),
        (100_000, false),
        "not more than the window"
    );
    bench.sack(1, 0, false);
    assert!(bench.nscc.is_fast());
    bench.sack(40_000, 0, false);
    // 0.25 * (1 + 40000)
    assert_eq!(bench.cwnd(), 110_000);
    assert!(bench.nscc.is_fast(), "and goes on");
    bench.sack(4184, 1_500, false);
    assert!(!bench.nscc.is_fast(), "until there is some");
    assert_eq!(bench.cwnd(), 110_000);
    bench.sack(100_000, 0, false);
    assert!(!bench.nscc.is_fast(), "counted anew");
}

#[test]
fn fast_increase_does_not_pass_the_maximum() {
    let mut bench = Bench::without_apply(&fast()).shrunk_to(200_000);
    bench.sack(200_001, 0, false);
    assert_eq!(bench.cwnd(), 225_000);
}

#[test]
fn proportional_increase_rests_while_the_window_grows_fast() {
    let mut bench = bench().shrunk_to(100_000);
    bench.nscc = crate::cc::Nscc::new(
        NsccParams {
            adjust_period_ns: u64::MAX,
            ..NsccParams::new(&fast())
        },
        START,
    );
    bench = bench.shrunk_to(100_000);
    bench.sack(100_001, 0, false);
    // 0.25 * 100001 at once; Apply had nothing to add.
    assert_eq!(bench.cwnd(), 125_000);
}

#[test]
fn mark_with_delay_ends_the_fast_increase() {
    let mut bench = Bench::without_apply(&fast()).shrunk_to(100_000);
    bench.sack(100_001, 0, false);
    assert!(bench.nscc.is_fast());
    bench.sack(4184, 9_000, true);
    assert!(!bench.nscc.is_fast());
    bench.sack(100_001, 0, false);
    assert!(!bench.nscc.is_fast(), "125000 bytes must arrive first");
}

#[test]
fn decrease_comes_at_most_once_per_base_round_trip() {
    let mut bench = Bench::without_apply(&fast()).shrunk_to(100_000);
    bench.wait(12_000).sack(4184, 18_000, true);
    assert_eq!(
        bench.cwnd(),
        100_000,
        "not later than a base round trip after the start"
    );
    bench.wait(1).sack(4184, 18_000, true);
    assert_eq!(bench.cwnd(), 60_000);
    bench.wait(12_000).sack(4184, 18_000, true);
    assert_eq!(bench.cwnd(), 60_000);
    bench.wait(1).sack(4184, 18_000, true);
    assert_eq!(bench.cwnd(), 36_000);
}

#[test]
fn decrease_needs_an_average_above_the_target() {
    let mut bench = Bench::without_apply(&fast()).shrunk_to(100_000);
    bench.wait(13_000).sack(4184, 0, false);
    // A quarter of a round trip later: 0 + 0.25 * 30000 = 7500.
    bench.wait(3_000).sack(4184, 30_000, true);
    assert_eq!((bench.nscc.avg_delay_ns(), bench.cwnd()), (7_500, 100_000));
    // 7500 + 0.5 * 22500 = 18750: 1 - 0.8 * 9750 / 18750 = 0.584
    bench.wait(6_000).sack(4184, 30_000, true);
    assert_eq!((bench.nscc.avg_delay_ns(), bench.cwnd()), (18_750, 58_400));
}

#[test]
fn decrease_leaves_one_packet() {
    let mut bench = Bench::without_apply(&fast()).shrunk_to(5_000);
    bench.wait(13_000).sack(4184, 100_000, true);
    assert_eq!(bench.cwnd(), 4184);
}

#[test]
fn average_delay_weighs_samples_by_their_distance_in_time() {
    let mut bench = bench();
    bench.wait(12_000).sack(0, 8_000, false);
    assert_eq!(bench.nscc.avg_delay_ns(), 8_000, "a whole round trip: all of it");
    bench.sack(0, 2_000, false);
    assert_eq!(bench.nscc.avg_delay_ns(), 8_000, "at the same time: nothing");
    bench.wait(3_000).sack(0, 2_000, false);
    assert_eq!(bench.nscc.avg_delay_ns(), 6_500);
    for _ in 0..100_000 {
        bench.wait(1).sack(0, 2_000, false);
    }
    assert!(
        (2_000..2_010).contains(&bench.nscc.avg_delay_ns()),
        "small weights add up"
    );
}

#[test]
fn trimmed_packet_leaves_the_window_and_is_felt_as_delay() {
    let mut bench = bench();
    bench.wait(6_000).trim(4184);
    assert_eq!(bench.cwnd(), 225_000 - 4184);
    assert_eq!(
        bench.nscc.avg_delay_ns(),
        6_000,
        "half of config_base_rtt, after half of it"
    );
    for _ in 0..100 {
        bench.trim(4184);
    }
    assert_eq!(bench.cwnd(), 4184, "one packet stays");
}

#[test]
fn refused_packet_changes_no_window() {
    let mut bench = bench();
    bench.nscc.on_nack(bench.now, 4184, Some(full(11_000)), false, 0);
    assert_eq!(bench.nscc.base_rtt_ns(), 11_000, "but tells the round trip");
    assert_eq!(bench.cwnd(), 206_250, "1.5 * 100 Gbit/s * 11 us");
    bench.nscc.on_nack(bench.now, 4184, None, false, 0);
    assert_eq!((bench.cwnd(), bench.nscc.avg_delay_ns()), (206_250, 0));
}

#[test]
fn inferred_loss_leaves_the_window() {
    let mut bench = bench();
    bench.nscc.on_inferred_loss(4184);
    assert_eq!(bench.cwnd(), 225_000 - 4184);
    bench.nscc.on_inferred_loss(u32::MAX);
    assert_eq!(bench.cwnd(), 4184);
}
