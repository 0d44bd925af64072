//! The tail probe (protocol.md §5.7, P8; §8.2 (4)).

use std::vec::Vec;

use mrc_wire::{Headers, Opcode, PortSet};

use crate::attr::{RetryAttr, Tuning};
use crate::path::EvState;
use crate::testing::*;

/// Timeout 14, the default.
const T0: u64 = 1024 << 14;

/// A pair that has measured a round trip of 40 us, with one more packet under way.
fn measured(setup: &Setup) -> (End, End, Wire) {
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 100, 0));
    let sent = a.poll_all();
    b.advance(20_000);
    let back = b.receive_all(&sent);
    a.advance(40_000);
    a.hear(&back);
    a.poll_all();
    a.post(write(2, 100, 0));
    let mut last = a.poll_writes();
    assert_eq!(last.len(), 1);
    (a, b, last.remove(0))
}

fn tail_probes(a: &mut End) -> Vec<Wire> {
    let wires = a.poll_all();
    assert!(wires.iter().all(|wire| wire.sent.bth.opcode == Opcode::Probe));
    wires
}

// protocol.md §5.7: PTO = srtt + 4 rttvar here, then 2 PTO, then nothing before T0.
#[test]
fn two_probes_go_out_into_the_silence_then_the_timeout_decides() {
    let (mut a, _, _) = measured(&Setup::default());
    let (srtt, rttvar) = a.qp.rtt_ns();
    let pto = (2 * srtt).max(srtt + 4 * rttvar).max(100_000);
    let start = a.now;
    let mut at = Vec::new();
    while a.qp.stats().timeouts == 0 {
        a.wait_for_timeout();
        let probes = a.qp.stats().tail_probes_sent;
        a.poll_all();
        if a.qp.stats().tail_probes_sent > probes {
            at.push(a.now.since(start));
        }
    }
    assert_eq!(at, [pto, 3 * pto]);
    assert_eq!(a.now.since(start), T0);
}

// protocol.md §5.7: preferably of another plane than the last packet; §12: data class, asks nothing of windows (§9.1).
#[test]
fn probe_prefers_another_plane() {
    for seed in 0..8 {
        let setup = Setup {
            first_psn: seed,
            ..Setup::default()
        };
        let (mut a, _, last) = measured(&setup);
        a.wait_for_timeout();
        let probes = tail_probes(&mut a);
        assert_eq!(probes.len(), 1);
        assert_ne!(probes[0].sent.port, last.sent.port);
        // Only where there is room.
        let (mut a, _, last) = measured(&setup);
        a.wait_for_timeout();
        let probe = a.poll_on(PortSet::EMPTY.with(last.sent.port)).unwrap();
        assert_eq!(
            (probe.sent.bth.opcode, probe.sent.port),
            (Opcode::Probe, last.sent.port)
        );
    }
}

// protocol.md §5.7: where only the plane of the last write works, the second probe gets through.
#[test]
fn second_probe_takes_another_plane_than_the_first() {
    let (mut a, _, last) = measured(&Setup::default());
    let mut planes = Vec::new();
    while planes.len() < 2 {
        a.wait_for_timeout();
        planes.extend(tail_probes(&mut a).iter().map(|probe| probe.sent.port));
    }
    assert_ne!(planes[0], last.sent.port);
    assert_ne!(planes[1], planes[0]);
}

// protocol.md §5.6 rule C, §13 "Tail loss".
#[test]
fn lost_tail_is_resent_after_the_answer_not_after_the_timeout() {
    let (mut a, mut b, _) = measured(&Setup::default());
    let start = a.now;
    let again = loop {
        a.wait_for_timeout();
        b.now = a.now;
        let probes = tail_probes(&mut a);
        let back = b.receive_all(&probes);
        a.advance(40_000);
        let next = a.receive_all(&back);
        if !writes(&next).is_empty() {
            break next;
        }
    };
    assert_eq!(writes(&again), [11]);
    assert!(a.now.since(start) < T0 / 10, "{}", a.now.since(start));
    assert_eq!((a.qp.stats().losses_unseen, a.qp.stats().timeouts), (1, 0));
    let back = b.receive_all(&again);
    a.hear(&back);
    assert_eq!(a.completions().len(), 2);
}

// protocol.md §5.7: the answer also refreshes the bitmap when SACKs were lost.
#[test]
fn lost_sack_is_made_good_without_a_retransmission() {
    let (mut a, mut b, last) = measured(&Setup::default());
    let _lost = b.receive_all([&last]);
    a.wait_for_timeout();
    b.now = a.now;
    let probes = tail_probes(&mut a);
    let back = b.receive_all(&probes);
    a.advance(40_000);
    a.hear(&back);
    assert_eq!(a.completions().len(), 2);
    assert_eq!(a.qp.stats().packets_retransmitted, 0);
}

// protocol.md §5.7: silence counts from the last packet sent, or heard.
#[test]
fn no_probe_while_packets_are_sent_or_sacks_come() {
    let (mut a, _, _) = measured(&Setup::default());
    for _ in 0..50 {
        a.advance(60_000);
        a.post(write(3, 1, 0));
        a.poll_all();
    }
    assert_eq!(a.qp.stats().tail_probes_sent, 0);
    let (mut a, mut b, mut last) = measured(&Setup::default());
    for _ in 0..50 {
        b.now = a.now;
        let back = b.receive_all([&last]);
        a.advance(60_000);
        a.hear(&back);
        a.completions();
        a.post(write(3, 1, 0));
        last = a.poll_writes().remove(0);
    }
    assert_eq!(a.qp.stats().tail_probes_sent, 0);
}

// protocol.md §5.7: nothing in flight, nothing to ask for.
#[test]
fn no_probe_when_nothing_is_in_flight() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 100, 0));
    talk(&mut a, &mut b);
    assert_eq!(a.completions().len(), 1);
    a.advance(T0);
    a.poll_all();
    assert_eq!(a.qp.stats().tail_probes_sent, 0);
}

// protocol.md §5.7: only if PTO < T0.
#[test]
fn no_probe_when_the_timeout_is_not_longer() {
    let retry = |timeout| RetryAttr {
        timeout,
        ..RetryAttr::default()
    };
    // 131 us against at least 3 * 40 us.
    for (timeout, probes) in [(6, 0), (7, 1)] {
        let setup = Setup {
            retry: retry(timeout),
            ..Setup::default()
        };
        let (mut a, _, _) = measured(&setup);
        let first = a.qp.next_timeout().unwrap();
        a.wait_for_timeout();
        a.poll_all();
        assert_eq!(a.qp.stats().tail_probes_sent, probes, "{timeout} {first}");
    }
}

// protocol.md §5.7: before the first round trip, T0 / 4.
#[test]
fn first_packet_of_a_connection_is_probed_for_late() {
    let (mut a, _) = flying(&Setup::default(), 1);
    a.advance(T0 / 4 - 1);
    assert_eq!(a.poll_all(), []);
    a.advance(1);
    assert_eq!(tail_probes(&mut a).len(), 1);
}

// protocol.md §8.2 (4) with (2): a loss where congestion loses packets; no news where it would have trimmed them.
#[test]
fn lost_tail_probe_speaks_against_its_path_unless_the_fabric_trims() {
    for (trimming, skipped) in [(false, 1), (true, 0)] {
        let setup = Setup {
            trimming,
            ..Setup::default()
        };
        let (mut a, _, _) = measured(&setup);
        a.wait_for_timeout();
        let probe = tail_probes(&mut a);
        assert!(matches!(probe[0].sent.headers, Headers::Probe(_)));
        a.advance(250_000);
        let state = |a: &End| {
            let view = a.qp.ev_states().find(|view| view.entry.ev == probe[0].sent.ev);
            view.unwrap().state
        };
        assert_eq!(usize::from(state(&a) == EvState::Skip), skipped);
        assert_ne!(state(&a), EvState::AssumedBad);
    }
}

/// A window far wider than a SACK, every second packet of which is lost, and then the SACKs too: sender and probe.
fn wide_silence(setup: &Setup) -> (End, End, Wire) {
    let (mut a, mut b, _) = measured(setup);
    let back = b.poll_all();
    a.hear(&back);
    for n in 0..8 {
        a.post(write(10 + n, 64 * 4096, 0));
    }
    let sent = a.poll_writes();
    let odd: Vec<&Wire> = sent.iter().skip(1).step_by(2).collect();
    let _lost = b.receive_all(odd);
    // The first one is too early to judge them.
    let mut probes = Vec::new();
    while a.qp.stats().tail_probes_sent < 2 {
        a.wait_for_timeout();
        probes = tail_probes(&mut a);
    }
    b.now = a.now;
    (a, b, probes.remove(0))
}

// protocol.md §9.1, §5.6 rule C: a window that is closed by what was lost in it cannot wait until each 64 PSNs are repaired.
#[test]
fn answer_to_a_probe_shows_the_whole_window_in_parts() {
    let (mut a, mut b, probe) = wide_silence(&Setup::default());
    let in_flight = a.cc.inflight_packets();
    assert!(in_flight > 256, "{in_flight}");
    let mut back = b.receive_all([&probe]);
    let parts = sacks(&back);
    assert!(
        parts
            .iter()
            .all(|(_, seth, _)| seth.probe_id() == parts[0].1.probe_id())
    );
    for (n, (_, seth, _)) in parts.iter().enumerate() {
        assert_eq!(seth.bitmap_base(), seth.cack_psn.next().add(64 * n as u32));
    }
    // In whatever order they arrive.
    back.reverse();
    a.advance(10_000);
    for wire in &back {
        a.receive(wire);
    }
    let lost = a.qp.stats().losses_unseen;
    assert_eq!((lost, a.cc.inflight_packets()), (u64::from(in_flight / 2 + 1), 0));
    let samples = a.qp.rtt_ns();
    a.hear(&back);
    assert_eq!(a.qp.rtt_ns(), samples, "parts are no further round trips");
}

// protocol.md §9.1: no more parts than SACKs may follow one another.
#[test]
fn answer_to_a_probe_has_no_more_parts_than_extra_sacks() {
    for extra_sacks in [0, 2] {
        let setup = Setup {
            tuning: Tuning {
                extra_sacks,
                ..Tuning::default()
            },
            ..Setup::default()
        };
        let (_, mut b, probe) = wide_silence(&setup);
        let back = b.receive_all([&probe]);
        let parts = sacks(&back)
            .iter()
            .filter(|(_, seth, _)| seth.probe_id().is_some())
            .count();
        assert_eq!(parts, 1 + usize::from(extra_sacks));
    }
}

// protocol.md §5.6 rule C: what was sent within `reo_wnd` before the probe may still be on its way.
#[test]
fn answer_to_a_probe_condemns_nothing_that_may_only_be_reordered() {
    let tuning = Tuning {
        reo_min_ns: 2_000_000,
        ..Tuning::default()
    };
    let (mut a, mut b, _) = measured(&Setup {
        tuning,
        ..Setup::default()
    });
    a.wait_for_timeout();
    b.now = a.now;
    let probes = tail_probes(&mut a);
    assert_eq!(probes.len(), 1);
    let back = b.receive_all(&probes);
    a.advance(40_000);
    a.hear(&back);
    assert_eq!((writes(&a.poll_all()), a.qp.stats().losses_unseen), (Vec::new(), 0));
}
