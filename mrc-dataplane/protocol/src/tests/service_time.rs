//! Service time taken out of reflected timestamps (protocol.md §6.9, P16).

use mrc_wire::{Headers, Tick};

use crate::testing::*;

/// The round trip that A measures when B takes `service_ns` to answer; 40 us on the way.
fn round_trip(svc_time: bool, service_ns: u64) -> (u64, Tick, Tick) {
    let setup = Setup {
        svc_time,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 100, 0));
    let sent = a.poll_all();
    b.advance(20_000);
    b.hear(&sent);
    b.now = b.now + service_ns;
    let back = b.poll_all();
    a.now = a.now + 40_000 + service_ns;
    a.hear(&back);
    let Headers::Sack(_, Some(state)) = back[0].sent.headers else {
        panic!()
    };
    (a.qp.rtt_ns().0, sent[0].packet().tx_timestamp(), state.tx_timestamp)
}

#[test]
fn round_trip_is_without_the_responders_time_when_the_feature_is_on() {
    for service_ns in [0, 12_800, 640_000, 6_400_000] {
        let (rtt, sent, reflected) = round_trip(true, service_ns);
        assert!(rtt.abs_diff(40_000) <= 2 * 128, "{service_ns}: {rtt}");
        let ticks = (service_ns / 128) as u16;
        assert_eq!(reflected.0, sent.0.wrapping_add(ticks));
    }
}

#[test]
fn stamp_comes_back_as_it_was_when_the_feature_is_off() {
    let (rtt, sent, reflected) = round_trip(false, 640_000);
    assert_eq!(reflected, sent);
    assert!(rtt.abs_diff(680_000) <= 2 * 128, "{rtt}");
}

// protocol.md §6.8: a NACK names the copy by its stamp, so that stays exact.
#[test]
fn nack_reflects_the_stamp_unchanged() {
    let setup = Setup {
        svc_time: true,
        trimming: true,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 4096, 0));
    let sent = a.poll_all();
    b.hear(&[sent[0].clone().trimmed(false)]);
    b.now = b.now + 640_000;
    let back = b.poll_all();
    let Headers::Nack(neth) = back[0].sent.headers else {
        panic!()
    };
    assert_eq!(neth.tx_timestamp, sent[0].packet().tx_timestamp());
}

// protocol.md §5.6, §10.5: of three copies the last one is known by its stamp, though that comes back later than it went.
#[test]
fn third_copy_is_recognised_by_a_shifted_stamp() {
    for (svc_time, sampled) in [(true, true), (false, true)] {
        let setup = Setup {
            svc_time,
            ..Setup::default()
        };
        let (mut a, mut b) = setup.pair();
        a.post(write(1, 100, 0));
        a.poll_all();
        a.wait_for_loss();
        a.poll_all();
        a.wait_for_loss();
        let third = a.poll_writes();
        b.now = a.now;
        b.hear(&third);
        b.now = b.now + 256_000;
        let back = b.poll_all();
        a.now = a.now + 300_000;
        a.hear(&back);
        let (rtt, _) = a.qp.rtt_ns();
        let expected = if svc_time { 44_000 } else { 300_000 };
        assert_eq!(rtt.abs_diff(expected) <= 2 * 128, sampled, "{rtt}");
    }
}

// protocol.md §6.5: 0 would mean that the trigger had no stamp.
#[test]
fn stamp_that_is_moved_onto_zero_goes_one_further() {
    let setup = Setup {
        svc_time: true,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 4096 * 2, 0));
    let mut sent = a.poll_all();
    // The hold timer, 20 us, lets it wait.
    let held = b.now.tick().0.wrapping_sub((b.now + 20_000).tick().0);
    let Headers::Write { tseth: Some(tseth), .. } = &mut sent[0].sent.headers else {
        panic!()
    };
    tseth.tx_timestamp = Tick(held);
    b.hear(&sent[..1]);
    b.advance(20_000);
    let back = b.poll_all();
    let stamps: std::vec::Vec<_> = sacks(&back).iter().map(|(_, _, state)| state.tx_timestamp).collect();
    assert_eq!(stamps, [Tick(1)]);
}
