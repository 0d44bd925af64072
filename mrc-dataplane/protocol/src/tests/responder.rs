//! Classification, SACK triggers and contents, duplicates, limits (protocol.md §6, §14).

use std::vec::Vec;

use mrc_wire::{Headers, NackReason, Opcode, PathVerdict, Peth, Pmtu, Tick};

use crate::attr::Tuning;
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::work::{Disposition, DropReason};

/// `count` packets of one byte, PSN 10 on, without `a` bits, and a fresh responder.
fn quiet(count: u32, setup: &Setup) -> (Vec<Wire>, End) {
    let setup = Setup {
        sq_depth: 4096,
        cc: Qpcc::fixed(5000),
        ..setup.clone()
    };
    let (mut a, b) = setup.pair();
    for n in 0..count {
        a.post(write(u64::from(n), 1, u64::from(n)));
    }
    let mut sent = a.poll_all();
    assert_eq!(sent.len(), count as usize);
    for wire in &mut sent {
        wire.sent.bth.a = false;
    }
    (sent, b)
}

#[test]
fn psns_are_classified_as_the_vectors_say() {
    for (epsn, n, mpr, class) in [
        (0x100, 0x100, 1, "new"),
        (0x100, 0x17f, 1, "new"),
        (0x100, 0x180, 1, "ahead"),
        (0x100, 0xff, 1, "duplicate"),
        (0xff_fff0, 0x0f, 1, "new"),
        (0xff_fff0, 0x6f, 1, "new"),
        (0xff_fff0, 0x70, 1, "ahead"),
        (5, 0xff_ffff, 1, "duplicate"),
        (0, 0x7f_ffff, 255, "ahead"),
        (0, 0x80_0000, 255, "duplicate"),
        (0, 0x7f7f, 255, "new"),
        (0, 0x7f80, 255, "ahead"),
    ] {
        let setup = Setup {
            first_psn: epsn,
            mpr,
            ..Setup::default()
        };
        let (mut a, mut b) = setup.pair();
        a.post(write(1, 1, 0));
        let mut wire = a.poll().unwrap();
        wire.sent.bth.psn = psn(n);
        let disposition = b.receive(&wire);
        let got = match (disposition, b.region.placed) {
            (Disposition::Accepted, 1) => "new",
            (Disposition::Accepted, 0) => "duplicate",
            (Disposition::Dropped(DropReason::OutOfWindow), 0) => "ahead",
            other => panic!("{other:?}"),
        };
        assert_eq!(got, class, "{n:#x} with ePSN {epsn:#x}");
        if class == "ahead" {
            b.qp.end_of_batch(b.now);
            assert_eq!(b.poll_all(), [], "no answer");
        }
    }
}

#[test]
fn sack_of_vector_v9() {
    let (sent, mut b) = quiet(
        12,
        &Setup {
            first_psn: 0,
            ..Setup::default()
        },
    );
    let order = [0, 1, 2, 3, 4, 6, 7, 9, 10];
    for n in order {
        b.receive(&sent[n]);
    }
    let mut last = sent[11].clone();
    last.sent.bth.a = true;
    b.receive(&last);
    b.qp.end_of_batch(b.now);
    let back = b.poll_all();
    let (bth, seth, state) = sacks(&back)[0];
    assert_eq!(
        (bth.psn, seth.cack_psn, seth.ack_psn_offset()),
        (psn(4), psn(4), Some(7))
    );
    assert_eq!((seth.sack_offset, seth.sack_bitmap, state.ooo_count), (1, 0x76, 5));
}

#[test]
fn sack_follows_every_16_kib() {
    let setup = Setup {
        tuning: Tuning {
            sack_hold_ns: 0,
            ..Tuning::default()
        },
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 4096 * 9, 0));
    let sent = a.poll_all();
    let answers: Vec<usize> = sent.iter().map(|wire| sacks(&b.receive_all([wire])).len()).collect();
    assert_eq!(
        answers,
        [0, 0, 0, 1, 0, 0, 0, 1, 1],
        "4 * 4184 >= 16384; the last one asks"
    );
    // Small packets count as 1024 bytes.
    let (sent, mut b) = quiet(33, &setup);
    let answers: Vec<usize> = (0..33)
        .filter(|&n| !sacks(&b.receive_all([&sent[n]])).is_empty())
        .collect();
    assert_eq!(answers, [15, 31]);
    // 0 = every packet.
    let setup = Setup {
        tuning: Tuning {
            sack_gen_threshold_bytes: 0,
            ..Tuning::default()
        },
        ..Setup::default()
    };
    let (sent, mut b) = quiet(5, &setup);
    assert!(sent.iter().all(|wire| sacks(&b.receive_all([wire])).len() == 1));
}

#[test]
fn repeated_packet_is_sacked_at_once_even_if_it_does_not_ask() {
    // protocol.md §6.4: `rtx` is a trigger of its own.
    let (mut sent, mut b) = quiet(2, &Setup::default());
    sent[1].sent.bth.rtx = true;
    assert!(sacks(&b.receive_all([&sent[0]])).is_empty());
    assert_eq!(sacks(&b.receive_all([&sent[1]])).len(), 1);
}

#[test]
fn hold_timer_answers_what_no_trigger_did() {
    let (sent, mut b) = quiet(3, &Setup::default());
    let sacked = |wires: &[Wire]| {
        sacks(wires)
            .iter()
            .map(|s| (s.1.cack_psn.get(), s.1.ack_psn_offset()))
            .collect::<Vec<_>>()
    };
    assert_eq!(sacked(&b.receive_all([&sent[0]])), []);
    b.advance(10_000);
    assert_eq!(sacked(&b.receive_all([&sent[1]])), []);
    b.advance(9_999);
    assert_eq!(sacked(&b.poll_all()), []);
    b.advance(1);
    assert_eq!(sacked(&b.poll_all()), [(11, Some(0))], "20 us after the first");
    assert_eq!(b.qp.next_timeout(), None);
}

#[test]
fn a_sack_covers_what_was_counted_behind_its_trigger() {
    let (mut sent, mut b) = quiet(3, &Setup::default());
    sent[0].sent.bth.a = true;
    let answer = b.receive_all(&sent[..2]);
    assert_eq!(sacks(&answer).len(), 1);
    b.advance(30_000);
    assert_eq!(sacks(&b.poll_all()), [], "the hold timer has nothing to add");
    assert_eq!(
        b.receive_all([&sent[1].clone().marked()]).len(),
        2,
        "a marked duplicate: SACK and ACK"
    );
    b.advance(10_000);
    let held = b.receive_all([&sent[2]]);
    assert_eq!(sacks(&held).len(), 0);
    let answer = b.receive_all([&sent[0].clone().marked()]);
    assert_eq!(sacks(&answer).len(), 1, "at once");
    b.advance(30_000);
    assert_eq!(sacks(&b.poll_all()), [], "and it was a SACK of packet 2 too");
}

#[test]
fn trimmed_duplicates_do_not_count() {
    let setup = Setup {
        trimming: true,
        tuning: Tuning {
            sack_gen_threshold_bytes: 3000,
            ..Tuning::default()
        },
        ..Setup::default()
    };
    let (sent, mut b) = quiet(3, &setup);
    let trimmed = sent[0].clone().trimmed(false);
    assert_eq!(sacks(&b.receive_all([&sent[0]])), []);
    assert_eq!(sacks(&b.receive_all([&trimmed])).len(), 1, "the first is answered");
    for _ in 0..5 {
        assert_eq!(b.receive(&trimmed), Disposition::Dropped(DropReason::RateLimited));
    }
    assert_eq!(sacks(&b.receive_all([&sent[1]])), [], "one packet of 1024 bytes");
}

#[test]
fn one_batch_shares_one_sack_but_each_mark_and_each_probe_has_its_own() {
    let (mut sent, mut b) = quiet(10, &Setup::default());
    for n in [1, 4, 7, 9] {
        sent[n].sent.bth.a = true;
    }
    sent[3].ce = true;
    sent[7].ce = true;
    let mut probe = sent[0].clone();
    probe.sent.bth.opcode = Opcode::Probe;
    probe.sent.headers = Headers::Probe(Peth {
        probe_id: 0xbeef,
        tx_timestamp: Tick(9),
        ..Peth::default()
    });
    let mut batch: Vec<&Wire> = sent.iter().collect();
    batch.insert(6, &probe);
    let back = b.receive_all(batch);
    let told: Vec<_> = sacks(&back)
        .iter()
        .map(|(_, s, c)| (s.m, s.probe_id(), s.ack_psn_offset(), s.cack_psn.get(), c.tx_timestamp))
        .collect();
    let stamp = sent[0].packet().tx_timestamp();
    assert_eq!(
        told,
        [
            (PathVerdict::SkipOnce, None, Some(-6), 19, stamp),
            (PathVerdict::None, Some(0xbeef), None, 19, Tick(9)),
            (PathVerdict::SkipOnce, None, Some(-2), 19, stamp),
            (PathVerdict::None, None, Some(0), 19, stamp),
        ]
    );
    let kinds: Vec<Opcode> = back.iter().map(|w| w.sent.bth.opcode).collect();
    assert_eq!(kinds[4..], [Opcode::Ack], "one Transport ACK, behind the SACKs");
}

#[test]
fn long_windows_are_shown_part_by_part() {
    let setup = Setup {
        tuning: Tuning {
            extra_sacks: 0,
            sack_hold_ns: 0,
            ..Tuning::default()
        },
        ..Setup::default()
    };
    let (sent, mut b) = quiet(400, &setup);
    // PSN 10 is missing; everything else arrives, 16 packets a SACK.
    let mut shown = Vec::new();
    for wire in &sent[1..] {
        for (_, seth, state) in sacks(&b.receive_all([wire])) {
            assert_eq!(seth.cack_psn, psn(9));
            shown.push((seth.sack_offset, seth.sack_bitmap.count_ones(), state.ooo_count));
        }
    }
    assert_eq!(shown[..3], [(1, 16, 16), (1, 32, 32), (1, 48, 48)]);
    assert!(shown.iter().skip(4).any(|&(offset, _, _)| offset > 100));
    let mut covered = [false; 401];
    for &(offset, count, _) in &shown {
        for at in offset..(offset + 64).min(401) {
            covered[at as usize] = true;
        }
        assert!(count >= 16);
    }
    assert!(
        covered[1..=320].iter().all(|&c| c),
        "all but the newest, whose turn comes"
    );
    // Asked explicitly: from the start.
    let mut ask = sent[1].clone();
    ask.sent.bth.a = true;
    let back = b.receive_all([&ask]);
    assert_eq!(sacks(&back)[0].1.sack_offset, 1);
}

#[test]
fn duplicates_are_answered_at_once_and_then_every_10_us() {
    let (sent, mut b) = quiet(3, &Setup::default());
    b.hear(&sent);
    b.advance(100_000);
    b.poll_all();
    let placed = b.region.placed;
    let kinds = |wires: &[Wire]| wires.iter().map(|w| w.sent.bth.opcode).collect::<Vec<_>>();
    assert_eq!(
        kinds(&b.receive_all([&sent[0]])),
        [Opcode::Sack, Opcode::Ack],
        "below: SACK and Transport ACK"
    );
    let mut answers = 0;
    let start = b.now;
    while b.now.since(start) < 1_000_000 {
        answers += b.receive_all([&sent[1]]).len();
        b.advance(1_000);
    }
    answers += b.poll_all().len();
    assert!((190..=202).contains(&answers), "{answers}");
    b.advance(10_000);
    answers = b.poll_all().len();
    assert!(answers <= 2, "the last one is not forgotten");
    assert_eq!(b.region.placed, placed);
    // Above a hole: SACK only.
    let (sent, mut b) = quiet(3, &Setup::default());
    b.hear([&sent[1]]);
    b.advance(100_000);
    b.poll_all();
    let back = b.receive_all([&sent[1]]);
    assert_eq!(kinds(&back), [Opcode::Sack]);
    assert_eq!(sacks(&back)[0].1.ack_psn_offset(), Some(2));
    assert_eq!(
        sacks(&back)[0].2.rcvd_bytes,
        sent[1].packet().nominal_size().div_ceil(256),
        "counted once"
    );
}

#[test]
fn very_old_duplicate_has_offset_zero() {
    let (mut sent, mut b) = quiet(1, &Setup::default());
    sent[0].sent.bth.psn = psn(9).sub(40_000);
    let back = b.receive_all(&sent);
    assert_eq!(sacks(&back)[0].1.ack_psn_offset(), Some(0));
}

#[test]
fn transport_ack_waits_for_the_hole_and_counts_messages() {
    let (mut a, mut b) = Setup::default().pair();
    for n in 0..4 {
        a.post(write(n, 1, n));
    }
    let sent = a.poll_all();
    let ack = |wires: &[Wire]| {
        wires.iter().find_map(|w| match w.sent.headers {
            Headers::Ack(aeth) => Some((w.psn(), aeth.msn)),
            _ => None,
        })
    };
    assert_eq!(ack(&b.receive_all([&sent[0]])), Some((10, 1)));
    assert_eq!(ack(&b.receive_all([&sent[2], &sent[3]])), None);
    assert_eq!(ack(&b.receive_all([&sent[1]])), Some((13, 4)));
}

#[test]
fn immediates_come_in_the_order_of_sending_whatever_the_network_does() {
    let (mut a, mut b) = Setup::default().pair();
    for n in 0..20 {
        b.qp.handle_recv(100 + n).unwrap();
        a.post(write_imm(n, 1, n, [n as u8; 4]));
    }
    let sent = a.poll_all();
    for n in (0..20).rev() {
        b.receive(&sent[n]);
    }
    let got: Vec<_> = b.completions().iter().map(|c| (c.wr_id, c.imm.unwrap()[0])).collect();
    assert_eq!(got, (0..20).map(|n| (100 + n, n as u8)).collect::<Vec<_>>());
}

#[test]
fn trims_are_nacked_once_per_10_us_and_only_for_new_psns() {
    let setup = Setup {
        trimming: true,
        ..Setup::default()
    };
    let (sent, mut b) = quiet(3, &setup);
    let cut: Vec<Wire> = sent.iter().map(|w| w.clone().trimmed(false)).collect();
    assert_eq!(b.receive(&cut[0]), Disposition::Accepted);
    assert_eq!(b.receive(&cut[0]), Disposition::Dropped(DropReason::RateLimited));
    assert_eq!(b.receive(&cut[1]), Disposition::Accepted);
    let reasons: Vec<_> = b
        .poll_all()
        .iter()
        .map(|w| match w.sent.headers {
            Headers::Nack(neth) => (neth.nack_psn.get(), neth.reason),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reasons, [(10, NackReason::TRIMMED), (11, NackReason::TRIMMED)]);
    b.advance(10_000);
    assert_eq!(b.receive(&cut[0]), Disposition::Accepted);
    b.poll_all();
    // Duplicate: SACK. Out of window: nothing.
    b.hear(&sent);
    b.advance(1_000_000);
    b.poll_all();
    let back = b.receive_all([&cut[0]]);
    assert_eq!(sacks(&back).len(), 1);
    let mut far = cut[0].clone();
    far.sent.bth.psn = psn(5000);
    assert_eq!(b.receive(&far), Disposition::Dropped(DropReason::Trimmed));
    // Without the capability: nothing.
    let (sent, mut b) = quiet(1, &Setup::default());
    assert_eq!(
        b.receive(&sent[0].clone().trimmed(true)),
        Disposition::Dropped(DropReason::Trimmed)
    );
}

#[test]
fn answers_to_probes_are_limited() {
    let (sent, mut b) = quiet(1, &Setup::default());
    let mut probe = sent[0].clone();
    probe.sent.bth.opcode = Opcode::Probe;
    probe.sent.headers = Headers::Probe(Peth::default());
    let mut answered = 0;
    for _ in 0..1000 {
        answered += usize::from(b.receive(&probe) == Disposition::Accepted);
        b.qp.end_of_batch(b.now);
        b.poll_all();
    }
    assert_eq!(answered, 256, "a burst");
    assert!(b.qp.stats().answers_suppressed > 0);
    b.advance(10_000_000);
    answered = (0..100).filter(|_| b.receive(&probe) == Disposition::Accepted).count();
    assert_eq!(answered, 10, "1000 a second");
}

#[test]
fn other_partitions_and_wrong_kinds_are_dropped() {
    let (mut sent, mut b) = quiet(2, &Setup::default());
    sent[0].sent.bth.p_key = 0x1234;
    assert_eq!(b.receive(&sent[0]), Disposition::Dropped(DropReason::PKey));
    sent[1].sent.bth.p_key = 0x7fff;
    assert_eq!(
        b.receive(&sent[1]),
        Disposition::Accepted,
        "the membership bit does not count"
    );
}

#[test]
fn window_of_the_largest_mpr_works() {
    let setup = Setup {
        mpr: 255,
        pmtu: Pmtu::B256,
        cc: Qpcc::fixed(u16::MAX),
        region: 1 << 24,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 256 * 40_000, 0));
    let sent = a.poll_all();
    assert_eq!(sent.len(), 255 * 128);
    // In reverse, so that everything waits for the first.
    for wire in sent.iter().rev() {
        assert_eq!(b.receive(wire), Disposition::Accepted);
    }
    b.qp.end_of_batch(b.now);
    assert_eq!(b.qp.cack_psn(), psn(9 + 255 * 128));
    let back = b.poll_all();
    a.hear(&back);
    talk(&mut a, &mut b);
    assert_eq!(a.completions().len(), 1);
    assert_eq!(b.region.bytes[..256 * 40_000], a.sources[0]);
}

#[test]
fn batch_that_is_spread_wide_is_shown_at_once() {
    let setup = Setup::default();
    let (sent, mut b) = quiet(900, &setup);
    b.hear(&sent[1..700]);
    b.poll_all();
    // PSN 10 is missing; one packet in 50 of the rest arrives, the last one asks.
    let mut batch: Vec<Wire> = sent[700..].iter().step_by(50).cloned().collect();
    batch.last_mut().unwrap().sent.bth.a = true;
    let back = b.receive_all(&batch);
    let mut seen = std::collections::BTreeSet::new();
    for (_, seth, _) in sacks(&back) {
        assert_eq!((seth.cack_psn, seth.m), (psn(9), PathVerdict::None));
        let base = 9 + i32::from(seth.sack_offset);
        seen.extend(
            (0..64)
                .filter(|bit| seth.sack_bitmap >> bit & 1 != 0)
                .map(|bit| (base + bit) as u32),
        );
    }
    assert!(batch.iter().all(|wire| seen.contains(&wire.psn())));
    assert!(sacks(&back).len() <= 5, "{}", sacks(&back).len());
    b.advance(20_000);
    assert_eq!(b.poll_all(), [], "nothing more to show");
    // Nothing extra while everything fits into one.
    let (sent, mut b) = quiet(64, &setup);
    assert_eq!(sacks(&b.receive_all(&sent[1..])).len(), 1);
}
