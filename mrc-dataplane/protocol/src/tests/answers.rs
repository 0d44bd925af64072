//! What the responder owes in cases that are rare one by one (protocol.md §6.2, §6.4, §6.6, §6.7, §14).

use std::vec::Vec;

use mrc_wire::{Bth, Headers, NackReason, Opcode, PathVerdict, Peth, Tick, TrafficClass};

use super::errors::nak_of;
use crate::attr::Tuning;
use crate::qp::{Qp, QpState};
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::work::{Disposition, DropReason, Shortage};

fn wide() -> Setup {
    Setup {
        sq_depth: 1024,
        cc: Qpcc::fixed(2000),
        ..Setup::default()
    }
}

/// Packets that do not ask.
fn quiet(mut wires: Vec<Wire>) -> Vec<Wire> {
    for wire in &mut wires {
        wire.sent.bth.a = false;
    }
    wires
}

/// One message of so many full packets.
fn message(packets: u32) -> (Vec<Wire>, End) {
    let (mut a, b) = wide().pair();
    a.post(write(1, 4096 * packets, 0));
    (quiet(a.poll_all()), b)
}

fn acks(wires: &[Wire]) -> Vec<(u32, u32)> {
    let ack = |wire: &Wire| match wire.sent.headers {
        Headers::Ack(aeth) => Some((wire.psn(), aeth.msn)),
        _ => None,
    };
    wires.iter().filter_map(ack).collect()
}

// protocol.md §6.7
#[test]
fn transport_ack_is_called_for_by_the_last_packet_and_by_one_that_asks() {
    let (mut sent, mut b) = message(3);
    sent[0].sent.bth.a = true;
    assert_eq!(acks(&b.receive_all(&sent[..1])), [(10, 0)]);
    assert_eq!(acks(&b.receive_all(&sent[1..2])), []);
    assert_eq!(acks(&b.receive_all(&sent[2..])), [(12, 1)]);
}

// protocol.md §6.4: `m` is not lost when more marked packets come in a batch than SACKs may wait.
#[test]
fn marks_beyond_the_places_for_their_sacks_share_one() {
    let (sent, mut b) = message(70);
    let marked: Vec<Wire> = sent.into_iter().map(Wire::marked).collect();
    let back = b.receive_all(&marked);
    let marks = sacks(&back)
        .into_iter()
        .filter(|(_, seth, _)| seth.m == PathVerdict::SkipOnce);
    assert_eq!(marks.count(), 65);
}

// protocol.md §6.4: the hold timer may be off.
#[test]
fn without_hold_timer_nothing_is_armed() {
    let tuning = Tuning {
        sack_hold_ns: 0,
        ..Tuning::default()
    };
    let (mut a, mut b) = Setup {
        tuning,
        ..Setup::default()
    }
    .pair();
    a.post(write(1, 4096 * 3, 0));
    let sent = quiet(a.poll_all());
    assert_eq!((b.receive_all(&sent[..1]), b.qp.next_timeout()), (Vec::new(), None));
}

// protocol.md §6.4: `sack_trigger_cnt` counts accepted packets and duplicates.
#[test]
fn duplicates_whose_answer_waits_are_counted() {
    let (sent, mut b) = message(40);
    assert_eq!(sacks(&b.receive_all(&sent[..1])).len(), 0);
    assert_eq!(sacks(&b.receive_all(&sent[..1])).len(), 1, "the first at once");
    let three = [sent[0].clone(), sent[0].clone(), sent[0].clone()];
    assert_eq!(sacks(&b.receive_all(&three)).len(), 0);
    // The fourth of 4184 bytes since.
    assert_eq!(sacks(&b.receive_all(&sent[1..2])).len(), 1);
}

// protocol.md §6.4: each CE-marked packet gets its own SACK, a duplicate too.
#[test]
fn marked_duplicate_has_a_sack_of_its_own() {
    let (mut sent, mut b) = message(4);
    b.hear(&sent[..2]);
    b.poll_all();
    sent[2].sent.bth.a = true;
    let back = b.receive_all(&[sent[0].clone().marked(), sent[2].clone()]);
    let said: Vec<_> = sacks(&back)
        .into_iter()
        .map(|(_, seth, _)| (seth.m, seth.trigger_psn().unwrap().get()))
        .collect();
    assert_eq!(said, [(PathVerdict::SkipOnce, 10), (PathVerdict::None, 12)]);
}

// protocol.md §6.2 P11, §6.7: the one answer to several duplicates answers all of them.
#[test]
fn waiting_answer_keeps_the_transport_ack_that_one_of_the_duplicates_called_for() {
    let (sent, mut b) = message(4);
    b.hear([&sent[0], &sent[2]]);
    b.poll_all();
    assert_eq!(acks(&b.receive_all(&sent[..1])), [(10, 0)]);
    // Below ePSN, then above: both within 10 us.
    assert_eq!(b.receive_all([&sent[0], &sent[2]]), []);
    b.advance(10_000);
    assert_eq!(acks(&b.poll_all()), [(10, 0)]);
}

// protocol.md §14, P29
#[test]
fn who_delivers_is_answered_however_often_it_probes_and_repeats() {
    let (mut a, mut b) = wide().pair();
    for n in 0..600 {
        a.post(write(n, 1, n));
    }
    for (n, wire) in quiet(a.poll_all()).iter().enumerate() {
        let mut probe = wire.sent;
        probe.bth = Bth::new(Opcode::Probe, probe.bth.dqp, psn(0));
        probe.headers = Headers::Probe(Peth {
            probe_id: n as u16,
            spdcid: 0,
            dpdcid: 0,
            tx_timestamp: Tick(1),
            ftype: 1,
        });
        let back = b.receive_all(&[wire.clone(), Wire::forged(probe, 0), wire.clone()]);
        assert!(
            sacks(&back)
                .iter()
                .any(|(_, seth, _)| seth.probe_id() == Some(n as u16))
        );
        b.advance(10_000);
    }
    assert_eq!(b.qp.stats().answers_suppressed, 0);
}

/// A responder that offered less than it was made for.
fn modest(change: fn(&mut crate::RtrAttr)) -> End {
    let (_, mut b) = wide().pair();
    b.cx(Qp::handle_reset);
    let (init, mut rtr, _) = wide().attrs(0xa);
    change(&mut rtr);
    b.qp.handle_init(&init).unwrap();
    b.qp.handle_rtr(&rtr, b.now).unwrap();
    b
}

// protocol.md §6.6: exactly what was offered, P15.
#[test]
fn stash_is_as_large_as_was_offered_not_as_was_allocated() {
    let mut b = modest(|rtr| rtr.max_wimm_dest = 2);
    let (mut a, _) = wide().pair();
    a.post(write(1, 1, 0));
    for n in 0..3 {
        a.post(write_imm(2 + n, 1, 0, [n as u8; 4]));
    }
    let sent = a.poll_all();
    b.hear(&sent[1..3]);
    assert_eq!(b.qp.state(), QpState::Rtr);
    let back = b.receive_all(&sent[3..]);
    assert_eq!((b.qp.state(), nak_of(&back)), (QpState::Err, (13, 0x61)));
}

// protocol.md §6.2, P10: silence beyond what was ever announced, a NACK inside it.
#[test]
fn only_windows_that_were_announced_are_answered() {
    let mut b = modest(|rtr| {
        rtr.mpr_dest = 2;
        rtr.dynamic_mpr = true;
        rtr.peer.dynamic_mpr = true;
    });
    let (mut a, _) = wide().pair();
    for n in 0..400 {
        a.post(write(n, 1, n));
    }
    let sent = a.poll_all();
    let dropped = Disposition::Dropped(DropReason::OutOfWindow);
    assert_eq!(b.receive(&sent[300]), dropped, "allocated, but never announced");
    b.qp.handle_window(3).unwrap();
    b.qp.handle_window(1).unwrap();
    assert_eq!(b.receive(&sent[384]), dropped);
    let back = b.receive_all(&sent[383..384]);
    let Headers::Nack(neth) = back[0].sent.headers else {
        panic!("no NACK")
    };
    assert_eq!(neth.reason, NackReason::PSN_OOR_WINDOW);
}

// wire-format.md §7.1, §8
#[test]
fn partition_and_agreement_of_copies_are_checked() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 1, 0));
    let sent = a.poll_all();
    let mut other = sent[0].clone();
    other.sent.bth.p_key = 0x1234;
    let (now, why) = (b.now, Shortage::PacketBuffer);
    let refused = b.qp.handle_refused(now, &other.packet(), why);
    assert_eq!(refused, Disposition::Dropped(DropReason::PKey));
    let mut sack = b.receive_all(&sent).remove(0);
    sack.sent.bth.psn = sack.sent.bth.psn.next();
    assert_eq!(a.receive(&sack), Disposition::Dropped(DropReason::Implausible));
    sack.sent.bth.psn = psn(10);
    a.cx(Qp::handle_linger);
    assert_eq!(
        a.receive(&sack),
        Disposition::Dropped(DropReason::State),
        "nobody waits"
    );
}

// protocol.md §2.2, §6.10: in ERR nothing is sent.
#[test]
fn failed_receiver_looks_for_no_way_back() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 1, 0));
    b.hear(&a.poll_all());
    b.cx(Qp::handle_error);
    assert_eq!(b.cx(|qp, cx| qp.poll_ev_probe(cx)), None);
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 1, 0));
    b.hear(&a.poll_all());
    assert!(b.cx(|qp, cx| qp.poll_ev_probe(cx)).is_some(), "a live one does");
}

// protocol.md §2.1, §12: Dynamic MPR and packets that may be trimmed need both sides.
#[test]
fn features_of_one_side_are_not_in_force() {
    for (own, peer) in [(true, false), (false, true), (true, true)] {
        let setup = Setup::default();
        let (mut a, _) = setup.pair();
        let mut create = setup.create(0xa);
        create.path.fabric_trims = own;
        a.qp = Qp::new(create).unwrap();
        let (init, mut rtr, rts) = setup.attrs(0xb);
        (rtr.dynamic_mpr, rtr.peer.dynamic_mpr) = (own, peer);
        rtr.peer.trim_nack = peer;
        a.qp.handle_init(&init).unwrap();
        a.qp.handle_rtr(&rtr, a.now).unwrap();
        a.qp.handle_rts(&rts, a.now).unwrap();
        assert_eq!(a.qp.handle_window(4).is_ok(), own && peer);
        a.post(write(1, 1, 0));
        let class = a.poll().unwrap().sent.class;
        assert_eq!(class == TrafficClass::Trimmable, own && peer, "{own} {peer}: {class:?}");
    }
}

fn bases(wires: &[Wire]) -> Vec<u32> {
    let bases = sacks(wires);
    bases.iter().map(|(_, seth, _)| seth.bitmap_base().get()).collect()
}

// protocol.md §6.5: after a SACK lowest_unsacked_psn = base + 64, which may be max_rcv_psn itself; and a SACK that stands for a packet that
// asked begins behind cack_psn, whatever came after it in the batch.
#[test]
fn scan_of_a_long_window_goes_on_at_the_last_psn_too() {
    let setup = Setup {
        tuning: Tuning {
            sack_gen_threshold_bytes: 0,
            extra_sacks: 0,
            ..Tuning::default()
        },
        ..wide()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 4096 * 80, 0));
    let mut sent = quiet(a.poll_all());
    let at = |psn: u32| (psn - 10) as usize;
    // PSN 10 is missing.
    assert_eq!(bases(&b.receive_all(&sent[at(11)..=at(73)])), [10], "all of it fits");
    assert_eq!(bases(&b.receive_all(&sent[at(74)..=at(74)])), [10]);
    assert_eq!(bases(&b.receive_all(&sent[at(75)..=at(75)])), [75 - 63]);
    assert_eq!(
        bases(&b.receive_all(&sent[at(76)..=at(76)])),
        [10],
        "then from the beginning"
    );
    sent[at(77)].sent.bth.a = true;
    assert_eq!(bases(&b.receive_all(&sent[at(77)..=at(78)])), [10], "asked");
}

// protocol.md §6.2 (P11): at most one answer per 10 us.
#[test]
fn second_answer_to_duplicates_comes_after_ten_microseconds_not_before() {
    let (sent, mut b) = message(1);
    let _ = b.receive_all(&sent);
    assert_eq!(sacks(&b.receive_all(&sent)).len(), 1);
    b.advance(9_999);
    assert_eq!(b.receive_all(&sent), []);
    assert_eq!(b.qp.next_timeout(), Some(b.now + 1));
    b.advance(1);
    assert_eq!((sacks(&b.poll_all()).len(), b.qp.next_timeout()), (1, None));
    b.advance(10_000);
    assert_eq!(sacks(&b.receive_all(&sent)).len(), 1);
}
