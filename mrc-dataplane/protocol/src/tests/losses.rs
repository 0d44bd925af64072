//! Windows, SACK processing and loss detection (protocol.md §5.1 to §5.6).

use std::vec::Vec;

use mrc_wire::{Bth, CcState, Headers, Opcode, PathVerdict, Pmtu, PortSet, Seth, Tick};

use crate::attr::Tuning;
use crate::path::EvState;
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::work::{Disposition, DropReason};

/// A SACK as B might have sent it.
struct Sack {
    cack: u32,
    offset: i16,
    base: i16,
    bitmap: u64,
    rtx: bool,
}

impl Sack {
    fn up_to(cack: u32) -> Self {
        Self {
            cack,
            offset: 0,
            base: 1,
            bitmap: 0,
            rtx: false,
        }
    }

    fn send(&self, to: &mut End, about: &Wire) -> Disposition {
        let mut wire = about.clone();
        let seth = Seth {
            ack_psn_offset_or_probe_id: self.offset.cast_unsigned(),
            entropy: about.sent.ev,
            cack_psn: psn(self.cack),
            sack_offset: self.base,
            sack_bitmap: self.bitmap,
            ..Seth::default()
        };
        let state = CcState {
            tx_timestamp: about.packet().tx_timestamp(),
            ..CcState::default()
        };
        wire.sent.bth = Bth {
            rtx: self.rtx,
            ..Bth::new(Opcode::Sack, to.qp.qpn(), psn(self.cack))
        };
        wire.sent.headers = Headers::Sack(seth, Some(state));
        to.receive(&wire)
    }
}

/// PSNs that are still in flight, found out by taking their ports away.
fn in_flight(mut end: End) -> Vec<u32> {
    end.handle_ports(PortSet::EMPTY, ALL);
    end.handle_ports(ALL, ALL);
    writes(
        &end.poll_all()
            .into_iter()
            .filter(|w| w.sent.is_retransmission)
            .collect::<Vec<_>>(),
    )
}

#[test]
fn window_is_mpr_times_128_psns_and_its_last_packet_asks() {
    let setup = Setup {
        mpr: 2,
        pmtu: Pmtu::B256,
        cc: Qpcc::fixed(1000),
        ..Setup::default()
    };
    let (mut a, _) = setup.pair();
    a.post(write(1, 256 * 1000, 0));
    let sent = a.poll_all();
    assert_eq!(writes(&sent), (10..10 + 256).collect::<Vec<_>>());
    let asking: Vec<u32> = sent.iter().filter(|w| w.sent.bth.a).map(Wire::psn).collect();
    assert_eq!(asking, [265]);
    Sack::up_to(12).send(&mut a, &sent[2]);
    let more = a.poll_all();
    assert_eq!(writes(&more), [266, 267, 268]);
    assert_eq!(
        more.iter().map(|w| w.sent.bth.a).collect::<Vec<_>>(),
        [false, false, true]
    );
}

#[test]
fn fixed_window_counts_packets_per_port_and_the_last_one_asks() {
    let setup = Setup {
        cc: Qpcc::fixed(5),
        ..Setup::default()
    };
    let (mut a, _) = setup.pair();
    a.post(write(1, 4096 * 100, 0));
    let sent = a.poll_all();
    assert_eq!(sent.len(), 10);
    for num in 1..=2 {
        assert_eq!(sent.iter().filter(|w| w.sent.port == port(num)).count(), 5);
        assert_eq!(a.cc.inflight_on(port(num)), 5);
    }
    assert_eq!(
        sent.iter().filter(|w| w.sent.bth.a).map(Wire::psn).collect::<Vec<_>>(),
        [19]
    );
}

#[test]
fn only_ports_with_room_are_used() {
    let (mut a, _) = Setup::default().pair();
    a.post(write(1, 4096 * 4, 0));
    let two = PortSet::EMPTY.with(port(2));
    assert_eq!(a.poll_on(PortSet::EMPTY), None);
    for _ in 0..4 {
        assert_eq!(a.poll_on(two).unwrap().sent.port, port(2));
    }
}

#[test]
fn sack_marks_cumulative_bitmap_and_trigger() {
    let setup = Setup::default();
    let check = |sack: Sack, left: &[u32]| {
        let (mut a, sent) = flying(&setup, 20);
        assert_eq!(sack.send(&mut a, &sent[0]), Disposition::Accepted);
        assert_eq!(in_flight(a), left);
    };
    let all_but = |gone: &[u32]| (10..30).filter(|n| !gone.contains(n)).collect::<Vec<_>>();
    check(Sack::up_to(9), &all_but(&[]));
    check(Sack::up_to(14), &all_but(&[10, 11, 12, 13, 14]));
    // Vector V9 in this PSN range: 5 missing, 6 7 received, 8 missing, 9 10 11 received.
    let v9 = Sack {
        offset: 7,
        bitmap: 0x76,
        ..Sack::up_to(14)
    };
    check(v9, &all_but(&[10, 11, 12, 13, 14, 16, 17, 19, 20, 21]));
    // The trigger alone, beyond the bitmap.
    check(
        Sack {
            offset: 19,
            ..Sack::up_to(10)
        },
        &all_but(&[10, 29]),
    );
    // Offset 0 and negative: bits at or below cack_psn are no news.
    check(
        Sack {
            base: 0,
            bitmap: 0b1011,
            ..Sack::up_to(10)
        },
        &all_but(&[10, 11, 13]),
    );
    check(
        Sack {
            base: -5,
            bitmap: 0b0100_0011_1111,
            ..Sack::up_to(14)
        },
        &all_but(&[10, 11, 12, 13, 14, 19]),
    );
    check(
        Sack {
            base: -200,
            bitmap: u64::MAX,
            ..Sack::up_to(14)
        },
        &all_but(&[10, 11, 12, 13, 14]),
    );
    check(
        Sack {
            base: i16::MIN,
            bitmap: 1,
            ..Sack::up_to(9)
        },
        &all_but(&[]),
    );
    check(
        Sack {
            base: 15,
            bitmap: 0b11,
            ..Sack::up_to(9)
        },
        &all_but(&[24, 25]),
    );
}

#[test]
fn sack_of_something_never_sent_is_ignored() {
    let (mut a, sent) = flying(&Setup::default(), 5);
    for sack in [
        Sack::up_to(15),
        Sack {
            bitmap: 0b11_1111,
            ..Sack::up_to(9)
        },
        Sack {
            bitmap: 1 << 63,
            ..Sack::up_to(9)
        },
        Sack {
            offset: 6,
            ..Sack::up_to(9)
        },
        Sack {
            offset: i16::MAX,
            ..Sack::up_to(9)
        },
    ] {
        assert_eq!(
            sack.send(&mut a, &sent[0]),
            Disposition::Dropped(DropReason::Implausible)
        );
    }
    assert_eq!(in_flight(a), [10, 11, 12, 13, 14]);
}

#[test]
fn old_sacks_add_facts_and_take_none_back() {
    let (mut a, sent) = flying(&Setup::default(), 10);
    Sack {
        bitmap: 0b100,
        ..Sack::up_to(12)
    }
    .send(&mut a, &sent[2]);
    Sack {
        bitmap: 0b1_0000_0000,
        ..Sack::up_to(10)
    }
    .send(&mut a, &sent[0]);
    assert_eq!(a.qp.unack_psn(), psn(12));
    assert_eq!(in_flight(a), [13, 14, 16, 17, 18]);
}

#[test]
fn rule_b_waits_for_reo_wnd() {
    // The answers take no time, so that the base RTT sinks to its floor of 25 us; target 50 us: 125 us.
    let (mut a, sent) = flying(&Setup::default(), 2);
    for (after, lost) in [(125_000, false), (1, true)] {
        a.advance(after);
        a.post(write(2, 10, 0));
        let later = a.poll_all();
        let n = later[0].psn();
        Sack {
            offset: (n - 9) as i16,
            ..Sack::up_to(9)
        }
        .send(&mut a, &later[0]);
        assert_eq!(writes(&a.poll_all()), if lost { [10, 11].to_vec() } else { Vec::new() });
    }
    assert_eq!(a.qp.stats().losses_inferred, 2);
    let _ = sent;
}

#[test]
fn spurious_loss_is_noticed_and_widens_the_window_of_reordering() {
    let (mut a, sent) = flying(&Setup::default(), 1);
    let lose = |a: &mut End, cack: u32| {
        a.post(write(2, 10, 0));
        let later = a.poll_writes();
        let n = later[0].psn();
        Sack {
            offset: (n - cack) as i16,
            ..Sack::up_to(cack)
        }
        .send(a, &later[0]);
        a.poll_all()
    };
    a.advance(151_000);
    let again = lose(&mut a, 9);
    assert_eq!(writes(&again), [10]);
    // The first copy had only been slow: echo 0.
    Sack {
        offset: 0,
        ..Sack::up_to(11)
    }
    .send(&mut a, &sent[0]);
    Sack {
        offset: -1,
        ..Sack::up_to(11)
    }
    .send(&mut a, &sent[0]);
    assert_eq!(
        a.qp.stats().losses_spurious,
        0,
        "cack covered it: which copy is not known"
    );

    a.post(write(2, 10, 0));
    let slow = a.poll_all();
    a.advance(151_000);
    let again = lose(&mut a, 11);
    assert_eq!(writes(&again), [12]);
    Sack {
        offset: 1,
        bitmap: 0b10,
        ..Sack::up_to(11)
    }
    .send(&mut a, &slow[0]);
    assert_eq!(a.qp.stats().losses_spurious, 1);
    a.post(write(2, 10, 0));
    assert_eq!(writes(&a.poll_all()), [14]);
    a.advance(230_000);
    assert_eq!(
        writes(&lose(&mut a, 13)),
        [] as [u32; 0],
        "250 us now, less a sixteenth"
    );
}

#[test]
fn retransmissions_go_first_lowest_psn_first_on_a_fresh_ev() {
    let (mut a, sent) = flying(&Setup::default(), 6);
    a.advance(200_000);
    a.post(write(2, 4096 * 3, 0));
    let probe = a.poll().unwrap();
    Sack {
        offset: 7,
        bitmap: 0b1_0100,
        ..Sack::up_to(9)
    }
    .send(&mut a, &probe);
    let next = a.poll_all();
    assert_eq!(writes(&next), [10, 11, 13, 15, 17, 18]);
    for wire in &next[..4] {
        let first = sent.iter().find(|w| w.psn() == wire.psn()).unwrap();
        assert_ne!(wire.sent.ev, first.sent.ev);
        assert!(wire.sent.bth.a && wire.sent.bth.rtx);
    }
}

#[test]
fn probe_answer_shows_what_is_missing() {
    // Rule C, with a probe that looks for the Transport ACK... of nothing: so one that checks a bad path.
    let setup = Setup {
        trimming: true,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 10, 0));
    let first = a.poll_all();
    // m = 10 condemns the path; the packet is delivered.
    let mut back = b.receive_all(&first);
    let Headers::Sack(seth, _) = &mut back[0].sent.headers else {
        panic!()
    };
    seth.m = PathVerdict::AlwaysSkip;
    a.hear(&back);
    assert_eq!(a.qp.ev_states().filter(|v| v.state == EvState::AssumedBad).count(), 1);
    // One packet is lost, the probe goes out 1 ms after the verdict.
    a.post(write(2, 10, 0));
    assert_eq!(writes(&a.poll_all()), [11]);
    a.advance(1_000_000);
    // Tail probes are due too: the one for the bad path is meant.
    let mut probe = a.poll_all();
    probe.retain(|wire| wire.sent.ev == first[0].sent.ev);
    assert_eq!((probe.len(), probe[0].sent.bth.opcode), (1, Opcode::Probe));
    assert_eq!(probe[0].sent.ev, first[0].sent.ev);
    b.advance(1_000_000);
    let back = b.receive_all(&probe);
    let next = a.receive_all(&back);
    assert_eq!(writes(&next), [11], "the snapshot does not show it");
    assert_eq!(
        a.qp.ev_states().filter(|v| v.state == EvState::AssumedBad).count(),
        1,
        "another one"
    );
    assert_eq!(
        a.qp.ev_states().find(|v| v.entry.ev == first[0].sent.ev).unwrap().state,
        EvState::Good
    );
}

/// Rule C speaks of what the bitmap shows. Beyond it something was received that it does not show: nothing is known there, if
/// the answer has one part only.
#[test]
fn probe_answer_condemns_nothing_beyond_its_bitmap() {
    let setup = Setup {
        tuning: Tuning {
            extra_sacks: 0,
            ..Tuning::default()
        },
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 10, 0));
    let first = a.poll_all();
    let mut back = b.receive_all(&first);
    let Headers::Sack(seth, _) = &mut back[0].sent.headers else {
        panic!()
    };
    seth.m = PathVerdict::AlwaysSkip;
    a.hear(&back);
    a.post(write(2, 80 * 4096, 0));
    let sent = a.poll_all();
    assert_eq!(writes(&sent), (11..91).collect::<Vec<_>>());
    a.advance(1_000_000);
    let mut probe = a.poll_all();
    probe.retain(|wire| wire.sent.ev == first[0].sent.ev);
    b.advance(1_000_000);
    // What it answers to these two is lost.
    let _lost = b.receive_all([&sent[74], &sent[79]]);
    let back = b.receive_all(&probe);
    let [(_, seth, state)] = sacks(&back)[..] else {
        panic!("one answer: {back:?}")
    };
    assert_eq!((seth.bitmap_base(), seth.sack_bitmap, state.ooo_count), (psn(11), 0, 2));
    a.hear(&back);
    assert_eq!(a.qp.stats().losses_unseen, 64, "PSNs 11 to 74");
}

#[test]
fn packet_that_could_not_be_sent_is_sent_again() {
    let (mut a, sent) = flying(&Setup::default(), 3);
    a.cx(|qp, cx| qp.handle_unsent(cx, &sent[1].sent));
    assert_eq!(a.cc.inflight_packets(), 2);
    assert_eq!(writes(&a.poll_all()), [11]);
    assert_eq!(a.qp.stats().losses_inferred, 0);
}

#[test]
fn mark_sends_the_path_to_skip_and_is_counted() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096 * 3, 0));
    let sent: Vec<Wire> = a.poll_all().into_iter().map(Wire::marked).collect();
    let back = b.receive_all(&sent);
    assert_eq!(sacks(&back).len(), 3, "each marked packet its own SACK");
    a.hear(&back);
    assert_eq!(a.qp.stats().marks_received, 3);
    assert_eq!(a.qp.ev_states().filter(|view| view.state == EvState::Skip).count(), 3);
}

#[test]
fn unknown_entropy_is_ignored_and_a_known_one_believed() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096 * 2, 0));
    let sent: Vec<Wire> = a.poll_all().into_iter().map(Wire::marked).collect();
    let mut back = b.receive_all(&sent);
    let other =
        a.qp.ev_states()
            .find(|v| sent.iter().all(|w| w.sent.ev != v.entry.ev))
            .unwrap()
            .entry
            .ev;
    for (wire, entropy) in back.iter_mut().zip([mrc_wire::Ev(0xdead_beef), other]) {
        let Headers::Sack(seth, _) = &mut wire.sent.headers else {
            panic!()
        };
        seth.entropy = entropy;
    }
    a.hear(&back);
    let skipped: Vec<_> =
        a.qp.ev_states()
            .filter(|v| v.state == EvState::Skip)
            .map(|v| v.entry.ev)
            .collect();
    assert_eq!(skipped, [other]);
}

#[test]
fn karn_no_sample_from_an_ambiguous_copy() {
    let (mut a, sent) = flying(&Setup::default(), 1);
    a.wait_for_loss();
    let again = a.poll_writes();
    assert_eq!(writes(&again), [10]);
    a.advance(70_000);
    // Echo 0: the first copy, long ago.
    let Headers::Write { .. } = sent[0].sent.headers else {
        panic!()
    };
    Sack::up_to(10).send(&mut a, &sent[0]);
    assert_eq!(a.qp.rtt_ns(), (0, 0));
    let (mut a, _) = flying(&Setup::default(), 1);
    a.wait_for_loss();
    let again = a.poll_writes();
    a.advance(70_000);
    Sack {
        rtx: true,
        ..Sack::up_to(10)
    }
    .send(&mut a, &again[0]);
    assert!(a.qp.rtt_ns().0.abs_diff(70_000) <= Tick::NS);
}
