//! Responder flow control (protocol.md §11; MRC 1.0 §7.5.1).

use super::{Bench, fast};
use crate::cc::{AckSample, Penalty, RttSample};

const STEP: u64 = 1_000;

/// One round trip of a sender that always fills its window: everything that was in flight at its start is acknowledged with
/// this penalty, and the window filled again.
fn round(bench: &mut Bench, pen: u8) {
    bench.inflight = bench.cwnd().cast_signed();
    let mut left = bench.inflight;
    while left > 0 {
        let n = left.min(STEP as i64);
        left -= n;
        bench.inflight -= n;
        bench.penalty(n as u64, pen, true);
        bench.inflight = bench.inflight.max(bench.cwnd().cast_signed());
    }
}

#[test]
fn sixty_four_for_one_round_trip_halves() {
    let mut bench = Bench::without_apply(&fast());
    round(&mut bench, 64);
    assert_eq!(bench.cwnd(), 112_500);
    round(&mut bench, 64);
    assert!((56_000..=56_500).contains(&bench.cwnd()), "{}", bench.cwnd());
}

#[test]
fn full_penalty_leaves_about_one_packet() {
    let mut bench = Bench::without_apply(&fast());
    round(&mut bench, 127);
    assert_eq!(bench.cwnd(), 4184);
}

#[test]
fn small_penalty_is_felt_little() {
    let mut bench = Bench::without_apply(&fast());
    round(&mut bench, 1);
    // 7 bytes of each 1000.
    assert_eq!(bench.cwnd(), 225_000 - 225 * 7);
}

#[test]
fn unused_window_is_given_up() {
    let mut bench = Bench::without_apply(&fast());
    bench.inflight = 19_000;
    bench.penalty(1_000, 64, true);
    assert_eq!(bench.cwnd(), 20_000 - 500);
    bench.inflight = -5;
    bench.penalty(0, 64, true);
    assert_eq!(bench.cwnd(), 4184);
}

#[test]
fn window_comes_back_if_the_responder_says_so() {
    let mut bench = Bench::without_apply(&fast()).shrunk_to(150_000);
    round(&mut bench, 64);
    round(&mut bench, 100);
    assert!(bench.nscc.is_limited() && bench.cwnd() < 75_000);
    bench.penalty(0, 0, true);
    assert_eq!(
        (bench.cwnd(), bench.nscc.is_limited()),
        (150_000, false),
        "as before the first"
    );
}

#[test]
fn window_comes_back_up_to_its_maximum() {
    let mut bench = Bench::without_apply(&fast());
    round(&mut bench, 64);
    bench.nscc.set_link_bps(50_000_000_000);
    bench.penalty(0, 0, true);
    assert_eq!(bench.cwnd(), 112_500);
}

#[test]
fn window_stays_small_otherwise() {
    let mut bench = Bench::without_apply(&fast());
    round(&mut bench, 64);
    bench.penalty(0, 0, false);
    assert_eq!((bench.cwnd(), bench.nscc.is_limited()), (112_500, false));
    bench.penalty(0, 0, true);
    assert_eq!(bench.cwnd(), 112_500, "nothing is saved any more");
}

#[test]
fn nothing_grows_while_limited_and_decreases_go_on() {
    let mut bench = Bench::new(crate::cc::NsccParams::new(&fast())).shrunk_to(100_000);
    bench.inflight = 100_000;
    let limited = |delay_ns: u64, ce, now| AckSample {
        ce,
        rtt: Some(RttSample {
            ns: 12_000 + delay_ns,
            bytes: 4184,
        }),
        penalty: Some(Penalty {
            rcv_cwnd_pen: 1,
            rc: false,
        }),
        ..AckSample::new(now, 0)
    };
    for delay_ns in [0, 5_000, 10_000, 20_000] {
        bench.wait(12_001);
        bench.nscc.on_ack(&limited(delay_ns, false, bench.now), 100_000);
        assert_eq!(bench.cwnd(), 100_000);
    }
    bench.wait(12_001);
    bench.nscc.on_ack(&limited(18_000, true, bench.now), 100_000);
    assert_eq!(bench.cwnd(), 60_000);
}

#[test]
fn acknowledgement_that_says_nothing_ends_nothing() {
    let mut bench = Bench::new(crate::cc::NsccParams::new(&fast())).shrunk_to(100_000);
    bench.inflight = 100_000;
    bench.penalty(0, 1, true);
    // A Transport ACK, say.
    bench.nscc.on_ack(&AckSample::new(bench.now, 4184), 100_000);
    assert!(bench.nscc.is_limited());
    bench.wait(12_000).sack(4184, 10_000, false);
    assert_eq!(bench.cwnd(), 100_000, "still nothing grows");
    bench.penalty(0, 0, true);
    assert!(!bench.nscc.is_limited());
}
