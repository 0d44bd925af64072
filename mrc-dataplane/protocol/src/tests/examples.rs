//! The exchanges of protocol.md §13, packet by packet.

use std::vec::Vec;

use mrc_wire::{Aeth, Headers, NackReason, PathVerdict, TrafficClass};

use crate::path::EvState;
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::work::Status;

fn acks(wires: &[Wire]) -> Vec<(u32, Aeth)> {
    wires
        .iter()
        .filter_map(|wire| match wire.sent.headers {
            Headers::Ack(aeth) => Some((wire.psn(), aeth)),
            _ => None,
        })
        .collect()
}

fn state_of(end: &End, wire: &Wire) -> EvState {
    end.qp
        .ev_states()
        .find(|view| view.entry.ev == wire.sent.ev)
        .unwrap()
        .state
}

#[test]
fn plain_message_of_three_packets() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 3 * 4096, 0));
    let sent = a.poll_all();
    assert_eq!(writes(&sent), [10, 11, 12]);
    assert_eq!(
        sent.iter().map(|w| w.sent.bth.a).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert!(
        sent.iter()
            .all(|w| w.sent.bth.ts && w.sent.ect && w.sent.class == TrafficClass::NoTrim)
    );
    assert_eq!(sent.iter().map(|w| w.packet().nominal_size()).sum::<u32>(), 3 * 4184);
    assert_eq!(a.cc.inflight_bytes(), 3 * 4184);

    b.advance(20_000);
    let back = b.receive_all(&sent);
    let (bth, seth, state) = sacks(&back)[0];
    assert_eq!(sacks(&back).len(), 1);
    assert_eq!(
        (bth.psn, seth.cack_psn, seth.ack_psn_offset()),
        (psn(12), psn(12), Some(0))
    );
    assert_eq!(
        (seth.sack_offset, seth.sack_bitmap, seth.m, seth.pr),
        (1, 0, PathVerdict::None, false)
    );
    assert_eq!((state.ooo_count, state.rcvd_bytes), (0, (3_u32 * 4184).div_ceil(256)));
    assert_eq!(seth.entropy, sent[2].sent.ev);
    assert_eq!(
        acks(&back),
        [(
            12,
            Aeth {
                syndrome: Aeth::ACK,
                msn: 1
            }
        )]
    );
    assert!(
        back.iter()
            .all(|w| w.sent.class == TrafficClass::Control && !w.sent.ect)
    );

    a.advance(40_000);
    a.receive(&back[0]);
    assert_eq!(a.cc.inflight_bytes(), 0);
    assert_eq!(a.completions(), [], "a SACK completes nothing");
    a.receive(&back[1]);
    let done = a.completions();
    assert_eq!((done.len(), done[0].wr_id, done[0].status), (1, 1, Status::Success));
    assert_eq!(a.qp.rtt_ns().0, 39_936, "in whole ticks");
}

#[test]
fn reordering_and_one_loss() {
    let setup = Setup {
        trimming: true,
        cc: Qpcc::fixed(192).with_trimming(true),
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 3 * 4096, 0));
    let sent = a.poll_all();
    assert!(sent.iter().all(|w| w.sent.class == TrafficClass::Trimmable));

    // 12 overtakes 11; 11 is lost.
    let first = b.receive_all([&sent[0]]);
    assert_eq!(first, []);
    let back = b.receive_all([&sent[2]]);
    let (_, seth, state) = sacks(&back)[0];
    assert_eq!(
        (seth.cack_psn, seth.ack_psn_offset(), seth.sack_offset),
        (psn(10), Some(2), 1)
    );
    assert_eq!((seth.sack_bitmap, state.ooo_count), (0b10, 1));
    assert_eq!(acks(&back), [], "no Transport ACK beyond the hole");
    a.advance(40_000);
    assert_eq!(
        a.receive_all(&back),
        [],
        "11 stays in flight: a clear bit is not a loss"
    );
    assert_eq!(a.cc.inflight_packets(), 1);

    // Rule B: something sent more than reo_wnd later is acknowledged.
    a.advance(200_000);
    a.post(write(2, 1, 0x10000));
    let later = a.poll_all();
    assert_eq!(writes(&later), [13]);
    let back = b.receive_all(&later);
    let again = a.receive_all(&back);
    assert_eq!(writes(&again), [11]);
    let (bth, class) = (again[0].sent.bth, again[0].sent.class);
    assert!(bth.rtx && bth.a && again[0].sent.is_retransmission && class == TrafficClass::TrimmableRetx);
    assert_ne!(again[0].sent.ev, sent[1].sent.ev, "a fresh EV");
    assert_eq!(state_of(&a, &sent[1]), EvState::AssumedBad);
    let active =
        a.qp.ev_states()
            .filter(|v| v.active && v.entry.port == sent[1].sent.port)
            .count();
    assert_eq!(active, 4, "a backup of the same plane took its place");

    let back = b.receive_all(&again);
    let (bth, seth, _) = sacks(&back)[0];
    assert_eq!(
        (bth.rtx, seth.cack_psn, seth.ack_psn_offset()),
        (true, psn(13), Some(-2))
    );
    assert_eq!(
        acks(&back),
        [(
            13,
            Aeth {
                syndrome: Aeth::ACK,
                msn: 2
            }
        )]
    );
    a.hear(&back);
    assert_eq!(a.completions().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn rule_a_finds_a_loss_on_the_same_path() {
    let setup = Setup {
        trimming: true,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 4096, 0));
    let lost = a.poll_all();
    // Until the same path had its turn again.
    let mut found = None;
    for n in 0..32 {
        a.advance(1_000);
        a.post(write(2 + n, 4096, 0x1000 * (n + 1)));
        let sent = a.poll_all();
        let same = sent[0].sent.ev == lost[0].sent.ev;
        let back = b.receive_all(&sent);
        a.hear(&back);
        if same {
            found = Some(n);
            break;
        }
    }
    assert!(found.is_some());
    assert_eq!(a.qp.stats().losses_inferred, 0, "not yet");
    a.advance(49_000);
    assert_eq!(a.poll_all(), []);
    a.advance(1_000);
    let again = a.poll_all();
    assert_eq!(writes(&again), [10], "by its own timer");
    assert_eq!(state_of(&a, &lost[0]), EvState::AssumedBad);
}

#[test]
fn trim_is_answered_with_a_nack_and_costs_the_path_one_turn() {
    let setup = Setup {
        trimming: true,
        first_psn: 20,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 4096, 0));
    let sent = a.poll_all();
    b.advance(5_000);
    let back = b.receive_all([&sent[0].clone().trimmed(false)]);
    assert_eq!(back.len(), 1);
    let Headers::Nack(neth) = back[0].sent.headers else {
        panic!("{:?}", back[0])
    };
    assert_eq!(
        (neth.reason, neth.nack_psn, neth.entropy),
        (NackReason::TRIMMED, psn(20), sent[0].sent.ev)
    );
    assert_eq!(neth.tx_timestamp, sent[0].packet().tx_timestamp());
    assert_eq!(b.region.placed, 0);

    a.advance(10_000);
    let again = a.receive_all(&back);
    assert_eq!(writes(&again), [20]);
    assert_ne!(again[0].sent.ev, sent[0].sent.ev);
    assert_eq!(again[0].sent.class, TrafficClass::TrimmableRetx);
    assert_eq!(state_of(&a, &sent[0]), EvState::Skip);
    assert_eq!(a.cc.inflight_packets(), 1);
    let back = b.receive_all(&again);
    a.hear(&back);
    assert_eq!(a.completions().len(), 1);

    // Next time the rotation meets it, it becomes GOOD and loses that turn; the time after, it is used.
    let mut turns = 0;
    for n in 0..64 {
        a.post(write(2, 1, 0));
        let sent_now = a.poll_all();
        let back = b.receive_all(&sent_now);
        a.hear(&back);
        a.completions();
        turns += u32::from(sent_now[0].sent.ev == sent[0].sent.ev);
        if n < 7 {
            assert_eq!(turns, 0, "its turn in the first pass is lost");
        }
    }
    assert!(turns >= 6);
}

#[test]
fn last_hop_trim_blames_no_path() {
    let setup = Setup {
        trimming: true,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 4096, 0));
    let sent = a.poll_all();
    let back = b.receive_all([&sent[0].clone().trimmed(true)]);
    let again = a.receive_all(&back);
    assert_eq!(writes(&again), [10]);
    assert_eq!(state_of(&a, &sent[0]), EvState::Good);
}

#[test]
fn lost_transport_ack_is_recalled_by_a_probe() {
    let setup = Setup {
        first_psn: 40,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 100, 0));
    let sent = a.poll_all();
    let back = b.receive_all(&sent);
    a.advance(40_000);
    // The SACK arrives, the Transport ACK does not.
    assert_eq!(a.receive_all([&back[0]]), []);
    assert_eq!(a.completions(), []);
    a.advance(99_999);
    assert_eq!(a.poll_all(), []);
    a.advance(1);
    let probe = a.poll_all();
    assert_eq!(probe.len(), 1);
    let Headers::Probe(peth) = probe[0].sent.headers else {
        panic!("{probe:?}")
    };
    assert_eq!(a.cc.inflight_packets(), 0, "probes are not in flight");
    let back = b.receive_all(&probe);
    let (bth, seth, state) = sacks(&back)[0];
    assert_eq!(
        (bth.psn, seth.pr, seth.probe_id()),
        (psn(40), true, Some(peth.probe_id))
    );
    assert_eq!(
        (seth.entropy, state.tx_timestamp),
        (probe[0].sent.ev, peth.tx_timestamp)
    );
    assert_eq!(
        acks(&back),
        [(
            40,
            Aeth {
                syndrome: Aeth::ACK,
                msn: 1
            }
        )]
    );
    a.hear(&back);
    assert_eq!(a.completions().len(), 1);
    assert_eq!(a.qp.next_timeout(), None);
}

#[test]
fn transport_ack_lost_for_good_ends_in_resends_and_a_retry_error() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 100, 0));
    let sent = a.poll_all();
    let back = b.receive_all(&sent);
    a.hear([&back[0]]);
    let start = a.now;
    let (mut probes, mut resends) = (0, 0);
    while a.qp.next_timeout().is_some() {
        a.wait_for_timeout();
        for wire in a.poll_all() {
            if wire.sent.bth.opcode.is_write() {
                assert!(wire.sent.bth.a && wire.sent.bth.rtx && wire.psn() == 10);
                resends += 1;
                // B answers each of them; nothing arrives.
                let back = b.receive_all([&wire]);
                assert_eq!(back.len(), 2, "SACK and Transport ACK for a duplicate");
                b.advance(1_000_000_000);
            } else {
                probes += 1;
            }
        }
    }
    assert_eq!(probes, 2);
    assert_eq!(resends, 7);
    let done = a.completions();
    assert_eq!((done.len(), done[0].status), (1, Status::RetryExceeded));
    assert!(a.now.since(start) < 3_000_000_000);
    assert!(
        a.qp.ev_states().all(|view| view.state == EvState::Good),
        "no EV is blamed"
    );
}

#[test]
fn write_imm_waits_for_what_was_sent_before_it() {
    let setup = Setup {
        first_psn: 50,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    b.qp.handle_recv(77).unwrap();
    a.post(write(1, 10, 0));
    a.post(crate::work::SendRequest {
        solicited: true,
        ..write_imm(2, 20, 100, *b"x!??")
    });
    let sent = a.poll_all();
    let back = b.receive_all([&sent[1]]);
    assert_eq!(sacks(&back)[0].2.ooo_count, 1);
    assert_eq!(b.region.bytes[100..120], a.sources[1], "data goes to memory at once");
    assert_eq!(b.completions(), []);
    b.hear([&sent[0]]);
    let got = b.completions();
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].wr_id, got[0].imm, got[0].byte_len), (77, Some(*b"x!??"), 20));
    assert!(got[0].solicited && got[0].src_qp.get() == 0xa);
}

#[test]
fn own_port_going_down_moves_its_packets_at_once() {
    let setup = Setup {
        trimming: true,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 32 * 4096, 0));
    let sent = a.poll_all();
    let on_two: Vec<u32> = writes(
        &sent
            .iter()
            .filter(|w| w.sent.port == port(2))
            .cloned()
            .collect::<Vec<_>>(),
    );
    assert_eq!(on_two.len(), 16);
    a.handle_ports(ALL.difference(mrc_wire::PortSet::EMPTY.with(port(2))), ALL);
    let again = a.poll_all();
    assert_eq!(writes(&again), on_two, "lowest PSN first");
    assert!(again.iter().all(|w| w.sent.port == port(1) && w.sent.bth.rtx));
    assert_eq!(a.qp.retries(), 0);
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Good), "no blame");
    let survivors: Vec<_> = sent.iter().filter(|w| w.sent.port == port(1)).collect();
    let back = b.receive_all(survivors.into_iter().chain(&again));
    a.hear(&back);
    assert_eq!(a.completions().len(), 1);
    assert_eq!(b.region.bytes[..32 * 4096], a.sources[0]);

    a.handle_ports(ALL, ALL);
    a.post(write(2, 8 * 4096, 0));
    assert_eq!(
        a.poll_all().iter().filter(|w| w.sent.port == port(2)).count(),
        4,
        "eligible again"
    );
}
