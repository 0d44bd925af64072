//! Timers to the nanosecond: not before, and not later (protocol.md §5.6 to §5.8, §9.1).

use std::vec::Vec;

use mrc_wire::{CcState, Headers, NackReason, Opcode, PortSet, Tick};

use super::nacks::nack;
use crate::attr::{PathConfig, RetryAttr, Tuning};
use crate::path::EvState;
use crate::testing::*;
use crate::work::Disposition;

/// Timeout 14, the default.
const T0: u64 = 1024 << 14;

pub(super) fn retry(timeout: u8, linear_cnt: u8, exp_cnt: u8) -> RetryAttr {
    RetryAttr {
        timeout,
        linear_cnt,
        exp_cnt,
    }
}

pub(super) fn of(retry: RetryAttr) -> Setup {
    Setup {
        trimming: true,
        retry,
        ..Setup::default()
    }
}

/// A pair whose every round trip took `rtt_ns`, until they vary no more.
pub(super) fn steady(setup: &Setup, rtt_ns: u64) -> (End, End) {
    let (mut a, mut b) = setup.pair();
    for n in 0..80 {
        a.post(write(n, 1, 0));
        let sent = a.poll_writes();
        let back = b.receive_all(&sent);
        a.advance(rtt_ns);
        b.now = a.now;
        a.hear(&back);
        a.completions();
    }
    (a, b)
}

/// Serves timers, and says when `count` of something first reaches `wanted`.
fn until(a: &mut End, wanted: u64, count: impl Fn(&End) -> u64) -> u64 {
    let start = a.now;
    for _ in 0..200 {
        a.poll_all();
        if count(a) >= wanted {
            return a.now.since(start);
        }
        a.wait_for_timeout();
    }
    panic!("never: {:?}", a.qp.stats());
}

// protocol.md §5.7: PTO = max(2 srtt, srtt + 4 rttvar, 100 us), each of the three.
#[test]
fn tail_probe_leaves_after_two_round_trips_but_not_within_100_us() {
    for (rtt_ns, pto_ns) in [(12_800, 100_000), (51_200, 102_400), (640_000, 1_280_000)] {
        let (mut a, _) = steady(&of(RetryAttr::default()), rtt_ns);
        assert_eq!(a.qp.rtt_ns().0, rtt_ns);
        a.post(write(1, 1, 0));
        a.poll_writes();
        let probes = a.qp.stats().tail_probes_sent;
        a.advance(pto_ns - 1);
        a.poll_all();
        assert_eq!(a.qp.stats().tail_probes_sent, probes, "{rtt_ns}");
        a.advance(1);
        a.poll_all();
        assert_eq!(a.qp.stats().tail_probes_sent, probes + 1, "{rtt_ns}");
    }
}

// protocol.md §5.7: "and PTO < T0", which is 262.144 us here.
#[test]
fn tail_probe_of_the_length_of_the_timeout_is_none() {
    for (rtt_ns, probes) in [(131_072, 0), (131_072 - 128, 1)] {
        let (mut a, _) = steady(&of(retry(8, 3, 5)), rtt_ns);
        a.post(write(1, 1, 0));
        a.poll_writes();
        let before = a.qp.stats().tail_probes_sent;
        a.advance(262_143);
        a.poll_all();
        assert_eq!(a.qp.stats().tail_probes_sent - before, probes);
    }
}

// protocol.md §5.7: two for each silence; what is heard ends one. A Transport ACK is heard too.
#[test]
fn each_silence_has_its_own_two_probes() {
    let (mut a, _) = steady(&of(RetryAttr::default()), 51_200);
    a.post(write(1, 1, 0));
    let lost = a.poll_writes();
    let start = a.qp.stats().tail_probes_sent;
    until(&mut a, start + 2, |a| a.qp.stats().tail_probes_sent);
    // Transport ACK of what was done long ago.
    let ack = transport_ack(&lost[0], lost[0].psn() - 1);
    a.hear([&ack]);
    assert_eq!(until(&mut a, start + 3, |a| a.qp.stats().tail_probes_sent), 102_400);
    a.advance(100_000);
    a.hear([&ack]);
    assert_eq!(
        until(&mut a, start + 4, |a| a.qp.stats().tail_probes_sent),
        102_400,
        "the first again"
    );
}

// protocol.md §5.6 "no blame", §8.2 (4)
#[test]
fn tail_probe_lost_while_the_port_of_the_peer_flapped_speaks_against_no_path() {
    for flap in [false, true] {
        let setup = Setup {
            trimming: false,
            ..Setup::default()
        };
        let (mut a, _) = steady(&setup, 51_200);
        a.post(write(1, 1, 0));
        a.poll_writes();
        a.wait_for_timeout();
        let probe = a.poll_all().remove(0);
        assert_eq!(probe.sent.bth.opcode, Opcode::Probe);
        a.advance(1);
        if flap {
            a.handle_ports(ALL, ALL.difference(PortSet::EMPTY.with(probe.sent.port)));
            a.handle_ports(ALL, ALL);
        }
        // max(4 srtt, 200 us), §9.1.
        let state = |a: &End| {
            let view = a.qp.ev_states().find(|view| view.entry.ev == probe.sent.ev);
            view.unwrap().state
        };
        a.advance(204_798);
        assert_eq!(state(&a), EvState::Good);
        a.advance(1);
        assert_eq!(state(&a) == EvState::Skip, !flap);
    }
}

/// Everything was SACKed just now, and the Transport ACK is missing; round trips take 10 us.
fn without_ack(retry: RetryAttr) -> End {
    let (mut a, mut b) = of(retry).pair();
    a.post(write(1, 4096, 0));
    let sent = a.poll_all();
    let back = b.receive_all(&sent);
    a.advance(10_000);
    a.hear(
        back.iter()
            .filter(|wire| matches!(wire.sent.headers, Headers::Sack(..))),
    );
    assert_eq!(a.cc.inflight_packets(), 0);
    a
}

// protocol.md §5.8: after max(2 srtt, 100 us) a probe, when that is lost (200 us) a second one, then the highest PSN; "or T0 expires".
#[test]
fn missing_transport_ack_is_asked_for_by_two_probes_and_then_by_a_repetition() {
    const NEVER: u64 = u64::MAX;
    for (timeout, probes, repetition) in [
        (14, [100_000, 300_000], 500_000),
        (0, [100_000, 300_000], 500_000),
        // T0 = 262.144 us
        (8, [100_000, NEVER], 262_144),
        // T0 = 65.536 us
        (6, [NEVER, NEVER], 65_536),
    ] {
        let mut a = without_ack(retry(timeout, 3, 5));
        let start = a.now;
        let (mut probed, mut repeated) = (Vec::new(), Vec::new());
        while repeated.is_empty() {
            a.wait_for_timeout();
            for wire in a.poll_all() {
                let at = if wire.sent.bth.opcode == Opcode::Probe {
                    &mut probed
                } else {
                    &mut repeated
                };
                at.push(a.now.since(start));
            }
        }
        probed.resize(2, NEVER);
        assert_eq!(
            (&probed[..], &repeated[..]),
            (&probes[..], &[repetition][..]),
            "{timeout}"
        );
    }
}

// protocol.md §5.8: two probes have to fail first; one that found no room on the link has not failed, however late it is.
#[test]
fn probe_that_finds_no_room_has_not_failed() {
    let mut a = without_ack(RetryAttr::default());
    for _ in 0..2 {
        a.advance(500_000);
        let sent = a.poll_all();
        assert_eq!((sent.len(), sent[0].sent.bth.opcode), (1, Opcode::Probe));
    }
    a.advance(500_000);
    let sent = a.poll_all();
    assert_eq!((sent.len(), writes(&sent)), (1, [10].to_vec()));
    assert!(sent[0].sent.bth.a && sent[0].sent.bth.rtx);
}

// protocol.md §5.8: nor does a repetition that found no room use up the retry budget. A link that others fill is no dead peer.
#[test]
fn repetition_that_finds_no_room_uses_up_no_budget() {
    let mut a = without_ack(retry(8, 3, 2));
    let count = |a: &End| a.qp.stats().ack_resends;
    until(&mut a, 1, count);
    a.advance(262_144);
    let before = a.qp.retries();
    for _ in 0..100 {
        a.advance(10_000_000);
    }
    assert!(a.qp.retries() <= before + 1, "{} to {}", before, a.qp.retries());
    assert_eq!(writes(&a.poll_all()), [10]);
    // Once they do leave, and nobody answers, it ends.
    while a.qp.state() == crate::QpState::Rts {
        a.wait_for_timeout();
        a.poll_all();
    }
    assert!(a.now.since(crate::Instant::ZERO) < 20_000_000_000);
}

// protocol.md §4: T0 = 0 disables; then the repetitions come once a second, and use up no budget.
#[test]
fn without_timeout_the_repetition_comes_every_second() {
    let mut a = without_ack(retry(0, 0, 1));
    let count = |a: &End| a.qp.stats().ack_resends;
    until(&mut a, 1, count);
    for n in 2..5 {
        assert_eq!(until(&mut a, n, count), 1_000_000_000);
    }
    assert_eq!(a.qp.retries(), 0);
}

// protocol.md §5.7 (P3): after k failures in a row the next counts only once the k-th value of §4 has passed. Here T0, 2, 4 and 8 T0; and
// 16.8 ms each where T0 is disabled.
#[test]
fn failures_that_come_faster_than_timeouts_count_like_timeouts() {
    let t0 = 1024 << 8;
    for (timeout, gaps) in [(8, [t0, 2 * t0, 4 * t0, 8 * t0]), (0, [T0; 4])] {
        let setup = of(retry(timeout, 2, 20));
        let (mut a, mut sent) = flying(&setup, 1);
        let mut about = sent.remove(0);
        // Of whichever copy was the last.
        if let Headers::Write { tseth: Some(tseth), .. } = &mut about.sent.headers {
            tseth.tx_timestamp = Tick(0);
        }
        let (mut grown, mut before) = (Vec::new(), 0);
        while grown.len() < 5 {
            a.poll_all();
            nack(&mut a, &about, NackReason::TRIMMED);
            if a.qp.retries() > before {
                before = a.qp.retries();
                grown.push(a.now);
            }
            a.advance(2_000);
        }
        for (pair, gap) in grown.windows(2).zip(gaps) {
            let took = pair[1].since(pair[0]);
            assert!((gap..gap + 60_000).contains(&took), "{timeout}: {took} for {gap}");
        }
    }
}

// protocol.md §5.6: rule A counts from the SACK on, and what was acknowledged meanwhile gives those between a time of their own.
#[test]
fn rule_a_waits_for_each_gap_on_a_path() {
    let setup = Setup {
        path: PathConfig {
            active: Some(1),
            ..PathConfig::explicit(evs(1, 1))
        },
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    let mut sent = Vec::new();
    for n in 0..4 {
        a.post(write(n, 1, 0));
        sent.extend(a.poll_writes());
        a.advance(1000);
    }
    let mut hear = |a: &mut End, wire: &Wire| {
        let back = b.receive_all([wire]);
        a.hear(&back);
        a.poll_all();
    };
    hear(&mut a, &sent[1]);
    let start = a.now;
    a.advance(10_000);
    hear(&mut a, &sent[3]);
    let lost_at = |a: &mut End, at: u64, lost| {
        a.advance(at - 1 - a.now.since(start));
        assert_eq!(a.qp.stats().losses_same_path, lost - 1, "{at}");
        a.advance(1);
        assert_eq!(a.qp.stats().losses_same_path, lost, "{at}");
    };
    lost_at(&mut a, 50_000, 1);
    lost_at(&mut a, 100_000, 2);
}

// protocol.md §5.7: "a retransmission caused by SACK, NACK or probe starts again from T0 with k = 0".
#[test]
fn loss_that_a_sack_shows_ends_the_backoff() {
    let t0 = 1024 << 8;
    let (mut a, mut b) = of(retry(8, 1, 20)).pair();
    a.post(write(1, 1, 0));
    a.poll_all();
    for _ in 0..2 {
        a.wait_for_loss();
        assert_eq!(writes(&a.poll_all()), [10]);
    }
    // The third copy would have 4 T0. One that is sent later arrives.
    a.advance(200_000);
    a.post(write(2, 1, 0));
    let later = a.poll_writes();
    b.now = a.now;
    let back = b.receive_all(&later);
    a.advance(10_000);
    a.hear(&back);
    let again = a.poll_writes();
    assert_eq!((writes(&again), a.qp.stats().losses_late), ([10].to_vec(), 1));
    let (start, before) = (a.now, a.qp.stats().timeouts);
    a.wait_for_loss();
    assert_eq!((a.now.since(start), a.qp.stats().timeouts), (t0, before + 1));
}

// protocol.md §5.7: a NACK shows that the peer lives, so there is no reason for caution any more.
#[test]
fn nack_ends_the_caution_after_timeouts() {
    let (mut a, _) = flying(&Setup::default(), 100);
    a.wait_for_loss();
    let again = a.poll_writes();
    assert_eq!(again.len(), 16);
    assert_eq!(nack(&mut a, &again[0], NackReason::TRIMMED), Disposition::Accepted);
    assert_eq!(a.poll_writes().len(), 1 + 84);
}

// protocol.md §8.3 (P23), §5.7: without any port nothing is guarded; the wait counts as a timeout after T0.
#[test]
fn without_ports_only_the_timeout_is_waited_for() {
    let (mut a, _) = flying(&Setup::default(), 4);
    a.handle_ports(PortSet::EMPTY, ALL);
    assert_eq!(a.qp.next_timeout(), Some(a.now + T0));
    a.advance(T0 - 1);
    assert_eq!(a.qp.retries(), 0);
    a.advance(1);
    assert_eq!(a.qp.retries(), 1);
}

// protocol.md §5.6 rule C; any base of the bitmap is right (§6.5), one at or below cack_psn too. Nothing out of order: then nothing was
// received beyond the bitmap either.
#[test]
fn probe_shows_what_is_missing_whatever_the_base_of_its_bitmap() {
    for base in [-3, 0, 1] {
        let (mut a, mut b) = steady(&of(RetryAttr::default()), 51_200);
        let start = a.qp.next_psn();
        for n in 0..2 {
            a.post(write(n, 50 * 4096, 0));
        }
        assert_eq!(a.poll_writes().len(), 100);
        let before = a.qp.stats().tail_probes_sent;
        until(&mut a, before + 1, |a| a.qp.stats().tail_probes_sent);
        a.advance(204_800);
        let probe = a
            .poll_all()
            .into_iter()
            .find(|wire| wire.sent.bth.opcode == Opcode::Probe);
        b.now = a.now;
        let mut back = b.receive_all(&probe);
        back.retain(|wire| matches!(wire.sent.headers, Headers::Sack(..)));
        let Headers::Sack(seth, state) = &mut back[0].sent.headers else {
            panic!("{back:?}")
        };
        assert_eq!((seth.cack_psn, seth.sack_bitmap), (start.sub(1), 0));
        seth.sack_offset = base;
        seth.sack_bitmap = (1 << (1 - base)) - 1;
        *state = Some(CcState::default());
        assert_eq!(a.receive(&back[0]), Disposition::Accepted);
        assert_eq!(a.qp.stats().losses_unseen, 100, "{base}");
    }
}

/// A Transport ACK of everything up to this PSN.
fn transport_ack(about: &Wire, up_to: u32) -> Wire {
    let mut ack = about.clone();
    ack.sent.bth = mrc_wire::Bth::new(Opcode::Ack, mrc_wire::Qpn::new(0xa), psn(up_to));
    ack.sent.headers = Headers::Ack(mrc_wire::Aeth {
        syndrome: mrc_wire::Aeth::ACK,
        msn: 0,
    });
    ack
}

// protocol.md §5.6: "if a LOST packet turns out to have been delivered": what is acknowledged sooner after the second copy than any round
// trip took was the first.
#[test]
fn acknowledgement_that_comes_too_soon_is_of_the_first_copy() {
    for (after, spurious) in [(51_199, 1), (51_200, 0)] {
        let (mut a, _) = steady(&of(RetryAttr::default()), 51_200);
        a.post(write(1, 1, 0));
        let sent = a.poll_writes();
        a.wait_for_loss();
        assert_eq!(a.poll_writes().len(), 1);
        a.advance(after);
        a.hear([&transport_ack(&sent[0], sent[0].psn())]);
        assert_eq!(a.completions().len(), 1);
        assert_eq!(a.qp.stats().losses_spurious, spurious, "{after}");
    }
}

// protocol.md §5.6: "if ... the rtx echo does not tell which copy it was, use its first send time": so others are not late.
#[test]
fn acknowledgement_without_an_echo_condemns_nothing_that_was_sent_before_the_second_copy() {
    let (mut a, _) = of(retry(8, 3, 5)).pair();
    a.post(write(1, 1, 0));
    let sent = a.poll_writes();
    a.advance(50_000);
    a.post(write(2, 1, 0));
    a.poll_writes();
    a.wait_for_loss();
    assert_eq!(writes(&a.poll_writes()), [10]);
    a.advance(10_000);
    a.hear([&transport_ack(&sent[0], 10)]);
    assert_eq!((a.completions().len(), writes(&a.poll_writes())), (1, Vec::new()));
    assert_eq!(a.qp.stats().losses_late, 0);
}

// protocol.md §5.3: retransmissions go before new packets, those too that wait for the first sign of life.
#[test]
fn nothing_new_overtakes_what_waits_to_be_repeated() {
    let (mut a, _) = flying(&Setup::default(), 100);
    a.wait_for_loss();
    a.post(write(2, 4096, 0));
    assert_eq!(writes(&a.poll_writes()), (10..26).collect::<Vec<_>>());
}

// protocol.md §5.6 rule C: of a probe sent *after* t_P + reo_wnd. The second tail probe leaves 307.2 us after the packet.
#[test]
fn probe_condemns_what_was_sent_more_than_the_tolerance_before_it() {
    for (reo_min_ns, lost) in [(307_200, 0), (307_199, 1)] {
        let setup = Setup {
            tuning: Tuning {
                reo_min_ns,
                ..Tuning::default()
            },
            ..of(RetryAttr::default())
        };
        let (mut a, mut b) = steady(&setup, 51_200);
        a.post(write(1, 1, 0));
        a.poll_writes();
        let before = a.qp.stats().tail_probes_sent;
        until(&mut a, before + 1, |a| a.qp.stats().tail_probes_sent);
        a.advance(204_800);
        b.now = a.now;
        let probes = a.poll_all();
        assert_eq!(a.qp.stats().tail_probes_sent, before + 2);
        let back = b.receive_all(&probes);
        a.advance(51_200);
        a.hear(&back);
        assert_eq!(a.qp.stats().losses_unseen, lost);
    }
}
