//! Timeouts, the retry counter, and losses that are no path's fault (protocol.md §4, §5.6, §5.7).

use std::vec::Vec;

use mrc_wire::PortSet;

use crate::attr::RetryAttr;
use crate::path::EvState;
use crate::testing::*;
use crate::time::{Stall, ack_timeout_ns};
use crate::work::Cx;

/// Timeout 14, the default.
const T0: u64 = 1024 << 14;

#[test]
fn deadline_of_each_packet_backs_off_by_itself() {
    let retry = RetryAttr {
        timeout: 8,
        linear_cnt: 2,
        exp_cnt: 20,
    };
    let (mut a, _) = Setup {
        retry,
        ..Setup::default()
    }
    .pair();
    a.post(write(1, 1, 0));
    a.poll_all();
    let start = a.now;
    let mut sent_at = Vec::new();
    while sent_at.len() < 6 {
        a.wait_for_timeout();
        if !writes(&a.poll_all()).is_empty() {
            sent_at.push(a.now.since(start));
        }
    }
    let t0 = 262_144;
    assert_eq!(sent_at, [t0, 2 * t0, 4 * t0, 8 * t0, 16 * t0, 32 * t0]);
}

#[test]
fn timeouts_follow_the_table() {
    for (timeout, us) in [
        (1, 2.048),
        (8, 262.144),
        (10, 1_048.576),
        (14, 16_777.216),
        (17, 134_217.728),
    ] {
        assert_eq!(ack_timeout_ns(timeout, 0, 3), Some((us * 1000.0) as u64));
    }
    assert_eq!(ack_timeout_ns(20, 0, 0), Some(1_073_741_824));
    assert_eq!(ack_timeout_ns(24, 0, 0), Some(17_179_869_184));
    assert_eq!(ack_timeout_ns(24, 31, 0), Some(17_179_869_184), "the longest");
    assert_eq!(ack_timeout_ns(0, 3, 3), None, "disabled");
    let t0 = 1024 << 10;
    let steps: Vec<u64> = (0..6).map(|k| ack_timeout_ns(10, k, 2).unwrap() / t0).collect();
    assert_eq!(steps, [1, 1, 2, 4, 8, 16]);
}

#[test]
fn timeout_zero_disables() {
    let retry = RetryAttr {
        timeout: 0,
        ..RetryAttr::default()
    };
    let (mut a, _) = Setup {
        retry,
        ..Setup::default()
    }
    .pair();
    a.post(write(1, 1, 0));
    a.poll_all();
    assert_eq!(a.qp.next_timeout(), None);
}

#[test]
fn retry_counter_starts_again_with_progress() {
    let retry = RetryAttr {
        timeout: 8,
        linear_cnt: 3,
        exp_cnt: 5,
    };
    let (mut a, mut b) = Setup {
        retry,
        ..Setup::default()
    }
    .pair();
    a.post(write(1, 4096 * 2, 0));
    a.poll_all();
    a.advance(262_144);
    assert_eq!(a.qp.retries(), 1);
    let again = a.poll_all();
    let back = b.receive_all([&again[0]]);
    a.hear(&back);
    assert_eq!(a.qp.retries(), 0);
}

#[test]
fn stall_of_the_own_engine_blames_nobody() {
    let setup = Setup {
        trimming: true,
        ..Setup::default()
    };
    let (mut a, _) = flying(&setup, 16);
    a.advance(5_000_000);
    // The engine was away: its timer is served 100 ms late.
    a.now = a.now + 100_000_000;
    a.cx(crate::Qp::handle_timeout);
    a.poll_all();
    assert!(a.qp.stats().timeouts > 0);
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Good));
    // In time, it is the path's fault.
    let (mut a, _) = flying(&setup, 16);
    a.wait_for_loss();
    a.poll_all();
    assert!(a.qp.ev_states().any(|view| view.state == EvState::AssumedBad));
    // Or it says so itself.
    let (mut a, _) = flying(&setup, 16);
    let (start, due) = (a.now, a.now + T0);
    a.advance(T0 - 1);
    let stall = Some(Stall {
        from: start + 1,
        to: start + T0 / 2 + 1,
    });
    a.now = due;
    let mut cx = Cx {
        stall,
        ..Cx::new(a.now, &mut a.cc, &mut a.region)
    };
    a.qp.handle_timeout(&mut cx);
    while a.qp.poll_transmit(&mut cx, ALL).is_some() {}
    assert!(a.qp.stats().timeouts > 0);
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Good));
    // A short absence in a long wait explains nothing.
    let (mut a, _) = flying(&setup, 16);
    let (start, due) = (a.now, a.now + T0);
    a.advance(T0 - 1);
    let stall = Some(Stall {
        from: start + 1,
        to: start + 4_000_000,
    });
    a.now = due;
    let mut cx = Cx {
        stall,
        ..Cx::new(a.now, &mut a.cc, &mut a.region)
    };
    a.qp.handle_timeout(&mut cx);
    while a.qp.poll_transmit(&mut cx, ALL).is_some() {}
    assert!(a.qp.ev_states().any(|view| view.state == EvState::AssumedBad));
}

#[test]
fn deadline_stretches_with_long_round_trips_but_not_beyond_four_t0() {
    // T0 is 1.05 ms.
    let retry = RetryAttr {
        timeout: 10,
        ..RetryAttr::default()
    };
    for (rtt_ns, expected_ns) in [(100_000, 1 << 20), (1_000_000, 3_000_000), (10_000_000, 4 << 20)] {
        let setup = Setup {
            retry,
            ..Setup::default()
        };
        let (mut a, mut b) = setup.pair();
        a.post(write(1, 1, 0));
        let sent = a.poll_all();
        let back = b.receive_all(&sent);
        // Nothing can be sent meanwhile: there is one copy, and it takes so long.
        a.advance(rtt_ns);
        a.hear(&back);
        a.completions();
        a.post(write(2, 1, 0));
        let from = a.now;
        a.poll_all();
        let before = a.qp.stats().timeouts;
        let until = loop {
            a.wait_for_timeout();
            if a.qp.stats().timeouts > before {
                break a.now.since(from);
            }
        };
        assert!(until.abs_diff(expected_ns) < 1_000, "{rtt_ns}: {until}");
    }
}

#[test]
fn after_timeouts_few_packets_are_repeated_until_something_is_heard() {
    let (mut a, sent) = flying(&Setup::default(), 100);
    let (_, mut b) = Setup::default().pair();
    let back = b.receive_all(&sent[..40]);
    a.advance(16_777_216);
    assert_eq!(a.qp.stats().timeouts, 100);
    let again = a.poll_all();
    assert_eq!(writes(&again), (10..26).collect::<Vec<_>>(), "16, lowest PSN first");
    let blamed = |a: &End| {
        a.qp.ev_states()
            .filter(|view| view.reason == crate::Reason::Timeout)
            .count()
    };
    let blamed_early = blamed(&a);
    // The answers had only been late: most of what timed out needs no second copy, and speaks against no path.
    a.hear(&back);
    assert_eq!(blamed(&a), blamed_early);
    let more = a.poll_all();
    assert_eq!(writes(&more), (50..110).collect::<Vec<_>>(), "two for one");
    assert!(a.qp.stats().losses_spurious > 0);
}

#[test]
fn silent_peer_gets_few_packets_per_timeout() {
    let (mut a, _) = flying(&Setup::default(), 100);
    let start = a.now;
    let mut repeated = 0;
    while a.qp.state() == crate::QpState::Rts {
        a.wait_for_timeout();
        repeated += writes(&a.poll_all()).len();
    }
    assert!(repeated <= 16 * 8, "{repeated}");
    // api.md §3.4: the 8th failure, after 65 T0.
    let budget = 65 * 16_777_216;
    let taken = a.now.since(start);
    assert!((budget..budget + budget / 100).contains(&taken), "{taken}");
}

#[test]
fn cautious_try_that_a_probe_ends_is_followed_by_another() {
    let setup = Setup {
        trimming: true,
        ..Setup::default()
    };
    let (mut a, _) = flying(&setup, 100);
    let (_, mut b) = setup.pair();
    a.wait_for_loss();
    assert_eq!(writes(&a.poll_all()).len(), 16);
    // All 16 are lost too, and the answer to a probe of a bad path says so before their timeout (rule C).
    let mut back = Vec::new();
    for _ in 0..20 {
        if !back.is_empty() {
            break;
        }
        a.wait_for_timeout();
        b.now = a.now;
        let probes = a.poll_all();
        assert_eq!(writes(&probes), [] as [u32; 0]);
        back = b.receive_all(&probes);
    }
    a.hear(&back);
    assert!(a.qp.stats().losses_unseen >= 16);
    assert!(!writes(&a.poll_all()).is_empty());
}

/// §10.5: a clock that leaps while packets are in flight has measured no round trip.
#[test]
fn leap_of_the_clock_is_no_round_trip() {
    for timer_first in [false, true] {
        let (mut a, mut b) = Setup::default().pair();
        a.post(write(1, 4096 * 4, 0));
        let sent = a.poll_all();
        b.now = b.now + 10_000;
        let back = b.receive_all(&sent);
        let leap = 3_000_000_000;
        a.now = a.now + leap;
        if timer_first {
            a.cx(crate::Qp::handle_timeout);
        }
        a.hear(&back);
        assert_eq!(a.qp.unack_psn(), psn(13), "what was said counts");
        assert_eq!(a.qp.rtt_ns(), (0, 0), "timer first: {timer_first}");
        // The next round trip is one.
        a.post(write(2, 4096 * 4, 0));
        let sent = a.poll_writes();
        let back = b.receive_all(&sent);
        a.advance(40_000);
        a.hear(&back);
        assert!((39_000..41_000).contains(&a.qp.rtt_ns().0), "{:?}", a.qp.rtt_ns());
    }
}

/// An absence that is not much longer than T0 is part of the round trip: a host that is always busy has them all the time.
#[test]
fn short_absence_is_part_of_the_round_trip() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096 * 4, 0));
    let back = b.receive_all(&a.poll_all());
    a.now = a.now + 40_000_000;
    a.hear(&back);
    assert!(
        (40_000_000..40_001_000).contains(&a.qp.rtt_ns().0),
        "{:?}",
        a.qp.rtt_ns()
    );
}

/// §5.7: progress shows in SACKs; it need not wait for a Transport ACK.
#[test]
fn retry_counter_starts_again_with_a_sack_alone() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096 * 2, 0));
    a.poll_all();
    a.advance(T0);
    assert_eq!(a.qp.retries(), 1);
    let again = a.poll_writes();
    let mut back = b.receive_all([&again[0]]);
    back.retain(|wire| matches!(wire.sent.headers, mrc_wire::Headers::Sack(..)));
    assert_eq!(back.len(), 1);
    a.hear(&back);
    assert_eq!((a.qp.unack_psn(), a.qp.retries()), (psn(10), 0));
}

/// §5.6: a packet that timed out and is acknowledged before it went again was only late. That speaks against no path.
#[test]
fn timeout_blames_nobody_before_the_packet_goes_again() {
    let setup = Setup {
        trimming: true,
        ..Setup::default()
    };
    let (mut a, sent) = flying(&setup, 16);
    let (_, mut b) = setup.pair();
    let back = b.receive_all(&sent);
    a.advance(T0);
    assert_eq!(a.qp.stats().timeouts, 16);
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Good));
    a.hear(&back);
    a.poll_all();
    assert_eq!(a.qp.unack_psn(), psn(25));
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Good));
}

/// §5.8: a Transport ACK that comes in the end makes up for all the tries that it took.
#[test]
fn retry_counter_starts_again_with_a_transport_ack_alone() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096, 0));
    let sent = a.poll_all();
    let back = b.receive_all(&sent);
    let (sacks, acks): (Vec<_>, Vec<_>) = back
        .iter()
        .partition(|wire| matches!(wire.sent.headers, mrc_wire::Headers::Sack(..)));
    assert_eq!((sacks.len(), acks.len()), (1, 1));
    a.hear(sacks);
    while a.qp.retries() == 0 {
        a.wait_for_timeout();
        a.poll_all();
    }
    a.hear(acks);
    assert_eq!((a.completions().len(), a.qp.retries()), (1, 0));
}

/// §5.6 "no blame", §9.3: what was lost while the peer's port was down, if only for a moment, speaks against no path.
#[test]
fn loss_while_the_port_of_the_peer_flapped_blames_no_path() {
    let blamed = |flap: bool| {
        let setup = Setup {
            trimming: true,
            ..Setup::default()
        };
        let (mut a, _) = flying(&setup, 8);
        a.advance(10_000);
        if flap {
            a.handle_ports(ALL, PortSet::EMPTY.with(port(1)));
            a.advance(10_000);
            a.handle_ports(ALL, ALL);
        }
        // Those of the second port are lost, those of the first are late.
        a.advance(1_000_000);
        a.post(write(2, 8 * 4096, 0));
        let later = a.poll_writes();
        let (_, mut b) = setup.pair();
        let back = b.receive_all(&later);
        a.hear(&back);
        a.poll_all();
        a.advance(1_000_000);
        let again = a.poll_writes();
        assert!(a.qp.stats().losses_late > 0, "{}", again.len());
        let on = |num| {
            a.qp.ev_states()
                .filter(|view| view.entry.port == port(num) && view.state != EvState::Good)
                .count()
        };
        (on(1) > 0, on(2) > 0)
    };
    assert_eq!(blamed(false), (true, true));
    assert_eq!(blamed(true), (true, false));
}
