//! How a queue pair fails, and in which order that is told (protocol.md §5.7 to §5.9, §6.6).

use std::vec::Vec;

use mrc_wire::{Aeth, Headers, NackReason, Neth, Opcode, PortSet};

use crate::attr::{ModifyAttr, RetryAttr};
use crate::path::EvState;
use crate::qp::QpState;
use crate::testing::*;
use crate::time::{Instant, ack_timeout_ns};
use crate::work::{Disposition, DropReason, QpEvent, Queue, SendRequest, Status};

pub(super) fn nak_of(wires: &[Wire]) -> (u32, u8) {
    assert_eq!(wires.len(), 1, "the NAK and nothing else: {wires:?}");
    match wires[0].sent.headers {
        Headers::Ack(aeth) => (wires[0].psn(), aeth.syndrome),
        other => panic!("{other:?}"),
    }
}

#[test]
fn silent_peer_ends_in_a_retry_error_within_the_budget() {
    for (linear_cnt, exp_cnt) in [(3, 5), (0, 0), (7, 0), (0, 3), (1, 1)] {
        let retry = RetryAttr {
            timeout: 10,
            linear_cnt,
            exp_cnt,
        };
        let (mut a, _) = Setup {
            retry,
            ..Setup::default()
        }
        .pair();
        for n in 0..3 {
            a.post(SendRequest {
                signaled: n != 0,
                ..write(n, 4096 * 4, 0)
            });
        }
        a.qp.handle_recv(9).unwrap();
        let start = a.now;
        assert_eq!(a.poll_all().len(), 12);
        while a.qp.state() == QpState::Rts {
            a.wait_for_timeout();
            a.poll_all();
        }
        let budget: u64 = (0..32)
            .map(|k| ack_timeout_ns(10, k, linear_cnt).unwrap())
            .take(16)
            .sum();
        assert!(
            a.now.since(start) <= budget,
            "{linear_cnt}+{exp_cnt}: {}",
            a.now.since(start)
        );
        assert_eq!(
            a.qp.retries(),
            u32::from(linear_cnt + exp_cnt).max(1),
            "one step per timeout, not per packet"
        );
        let expected = [
            (Queue::Send, 0, Status::RetryExceeded),
            (Queue::Send, 1, Status::Flushed),
            (Queue::Send, 2, Status::Flushed),
            (Queue::Recv, 9, Status::Flushed),
        ];
        let done = a.completions();
        assert_eq!(outcomes(&done), expected);
        assert!(done[0].signaled, "even if unsignaled");
        assert!(a.events().contains(&QpEvent::Fatal));
        assert_eq!((a.cc.inflight_bytes(), a.cc.inflight_packets()), (0, 0));
        assert_eq!(a.poll_all(), []);
        assert_eq!(a.qp.next_timeout(), None);
    }
}

#[test]
fn exp_cnt_25_never_gives_up() {
    let retry = RetryAttr {
        timeout: 1,
        linear_cnt: 0,
        exp_cnt: 25,
    };
    let (mut a, _) = Setup {
        retry,
        ..Setup::default()
    }
    .pair();
    a.post(write(1, 1, 0));
    a.poll_all();
    let mut longest = 0;
    let mut last = a.now;
    while a.now.since(Instant::from_ns(1_000_000_000)) < 200_000_000_000 {
        a.wait_for_timeout();
        if a.poll_all().iter().any(|wire| wire.sent.bth.opcode.is_write()) {
            longest = longest.max(a.now.since(last));
            last = a.now;
        }
    }
    assert_eq!(a.qp.state(), QpState::Rts);
    assert_eq!(longest, 1024 << 24, "backs off up to 17 s");
}

#[test]
fn all_ports_down_ends_in_a_retry_error_without_sending() {
    let retry = RetryAttr {
        timeout: 10,
        linear_cnt: 3,
        exp_cnt: 5,
    };
    let (mut a, _) = Setup {
        retry,
        ..Setup::default()
    }
    .pair();
    a.post(write(1, 4096 * 4, 0));
    a.poll_all();
    a.handle_ports(PortSet::EMPTY, ALL);
    let start = a.now;
    assert_eq!((a.poll_all(), a.cc.inflight_packets()), (Vec::new(), 0));
    while a.qp.state() == QpState::Rts {
        a.wait_for_timeout();
        assert_eq!(a.poll_all(), []);
    }
    let budget: u64 = (0..8).map(|k| ack_timeout_ns(10, k, 3).unwrap()).sum();
    assert_eq!(a.now.since(start), budget, "the same as one packet's timeouts");
    assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::RetryExceeded)]);
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Good));
}

#[test]
fn ports_that_return_in_time_cost_nothing() {
    let (mut a, mut b) = Setup::default().pair();
    a.handle_ports(PortSet::EMPTY, ALL);
    a.post(write(1, 4096 * 4, 0));
    assert_eq!(a.poll_all(), []);
    a.advance(50_000_000);
    assert!(a.qp.retries() > 0);
    a.handle_ports(ALL, ALL);
    talk(&mut a, &mut b);
    assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::Success)]);
    assert_eq!((a.qp.retries(), a.qp.next_timeout()), (0, None));
}

#[test]
fn nak_flushes_what_is_before_and_behind_it() {
    for (syndrome, status) in [
        (0x61, Status::RemoteInvalidRequest),
        (0x62, Status::RemoteAccess),
        (0x63, Status::RemoteOperation),
        (0x7f, Status::RemoteOperation),
    ] {
        let (mut a, _) = Setup::default().pair();
        for n in 0..4 {
            a.post(SendRequest {
                signaled: false,
                ..write(n, 4096 * 2, 0)
            });
        }
        let sent = a.poll_all();
        // PSN 15 belongs to the third request.
        let mut nak = sent[5].clone();
        nak.sent.headers = Headers::Ack(Aeth { syndrome, msn: 0 });
        nak.sent.bth.opcode = Opcode::Ack;
        nak.sent.bth.dqp = a.qp.qpn();
        assert_eq!(a.receive(&nak), Disposition::Accepted);
        let expected = [
            (Queue::Send, 0, Status::Flushed),
            (Queue::Send, 1, Status::Flushed),
            (Queue::Send, 2, status),
            (Queue::Send, 3, Status::Flushed),
        ];
        assert_eq!(outcomes(&a.completions()), expected);
        // Later posts complete at once.
        a.post(write(8, 1, 0));
        a.qp.handle_recv(9).unwrap();
        let late = [(Queue::Send, 8, Status::Flushed), (Queue::Recv, 9, Status::Flushed)];
        assert_eq!(outcomes(&a.completions()), late);
        assert_eq!(a.poll_all(), []);
    }
}

#[test]
fn naks_and_acks_about_nothing_are_ignored() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096 * 2, 0));
    let sent = a.poll_all();
    let ack = |psn_value: u32, syndrome: u8| {
        let mut wire = sent[0].clone();
        wire.sent.headers = Headers::Ack(Aeth { syndrome, msn: 0 });
        wire.sent.bth.psn = psn(psn_value);
        wire
    };
    for (wire, reason) in [
        (ack(12, 0x1f), DropReason::Implausible),
        (ack(12, 0x61), DropReason::NotOutstanding),
        (ack(9, 0x61), DropReason::NotOutstanding),
        (ack(10, 0x60), DropReason::Syndrome),
        (ack(10, 0x20), DropReason::Syndrome),
        (ack(10, 0x80), DropReason::Syndrome),
    ] {
        assert_eq!(a.receive(&wire), Disposition::Dropped(reason));
    }
    assert_eq!(a.receive(&ack(9, 0x1f)), Disposition::Accepted, "an old one");
    assert_eq!(a.completions(), []);
    assert_eq!(a.receive(&ack(10, 0x1f)), Disposition::Accepted);
    assert_eq!(a.qp.unack_psn(), psn(10), "acknowledges on both layers");
    let back = b.receive_all(&sent);
    a.hear(&back);
    assert_eq!(a.completions().len(), 1);
}

#[test]
fn refused_packet_is_answered_once_and_nothing_follows() {
    type Spoil = fn(&mut Wire);
    let spoilers: [(Spoil, u8, QpEvent); 5] = [
        (|w| set_reth(w, |reth| reth.r_key ^= 1), 0x62, QpEvent::AccessError),
        (|w| set_reth(w, |reth| reth.va += 1 << 40), 0x62, QpEvent::AccessError),
        (
            |w| set_reth(w, |reth| reth.va = u64::MAX - 10),
            0x62,
            QpEvent::AccessError,
        ),
        (|w| set_reth(w, |reth| reth.dmalen = 4096), 0x61, QpEvent::RequestError),
        (
            |w| set_reth(w, |reth| reth.dmalen = (1 << 31) + 1),
            0x61,
            QpEvent::RequestError,
        ),
    ];
    for (spoil, syndrome, event) in spoilers {
        let (mut a, mut b) = Setup::default().pair();
        b.post(write(5, 4096, 0));
        let own = b.poll_all();
        a.post(write(1, 8192, 0));
        let mut sent = a.poll_all();
        spoil(&mut sent[0]);
        b.receive(&sent[1]);
        b.receive(&sent[0]);
        b.qp.end_of_batch(b.now);
        assert_eq!(b.qp.state(), QpState::Err);
        let back = b.poll_all();
        assert_eq!(nak_of(&back), (10, syndrome), "still goes out in ERR");
        assert_eq!(b.region.placed, 1, "the refused packet is not placed");
        assert_eq!(b.events(), [event]);
        assert_eq!(outcomes(&b.completions()), [(Queue::Send, 5, Status::Flushed)]);
        assert_eq!(b.cc.inflight_packets(), 0);
        // Nothing more, whatever comes.
        assert_eq!(b.receive(&sent[1]), Disposition::Dropped(DropReason::State));
        b.qp.end_of_batch(b.now);
        b.advance(1_000_000_000);
        assert_eq!((b.poll_all(), b.qp.next_timeout()), (Vec::new(), None));
        a.receive(&back[0]);
        let status = if syndrome == 0x61 {
            Status::RemoteInvalidRequest
        } else {
            Status::RemoteAccess
        };
        assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, status)]);
        let _ = own;
    }
}

fn set_reth(wire: &mut Wire, change: fn(&mut mrc_wire::Reth)) {
    let Headers::Write { reth, .. } = &mut wire.sent.headers else {
        panic!()
    };
    change(reth);
}

#[test]
fn message_that_begins_inside_and_ends_outside_is_refused_at_its_first_packet() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 8192, (1 << 20) - 4096));
    let sent = a.poll_all();
    assert_eq!(nak_of(&b.receive_all([&sent[0]])), (10, 0x62));
    assert_eq!(b.region.placed, 0);
}

#[test]
fn peer_without_permission_may_write_nothing_but_empty_messages() {
    let (mut a, mut b) = Setup::default().pair();
    b.qp.handle_modify(&ModifyAttr {
        remote_write: Some(false),
        retry: None,
    })
    .unwrap();
    a.post(write(1, 0, 1 << 60));
    talk(&mut a, &mut b);
    assert_eq!(
        outcomes(&a.completions()),
        [(Queue::Send, 1, Status::Success)],
        "no access check for zero data"
    );
    a.post(write(2, 1, 0));
    let sent = a.poll_all();
    assert_eq!(nak_of(&b.receive_all(&sent)), (11, 0x62));
}

#[test]
fn immediate_without_receive_request_is_fatal() {
    let (mut a, mut b) = Setup::default().pair();
    b.qp.handle_recv(1).unwrap();
    for n in 0..3 {
        a.post(write_imm(n, 4, 0, [n as u8; 4]));
    }
    let sent = a.poll_all();
    assert_eq!(nak_of(&b.receive_all(&sent)), (11, 0x63));
    let done = b.completions();
    assert_eq!(outcomes(&done), [(Queue::Recv, 1, Status::Success)]);
    assert_eq!(done[0].imm, Some([0; 4]));
    assert_eq!(b.events(), [QpEvent::AccessError]);
}

#[test]
fn one_immediate_more_than_offered_is_an_invalid_request() {
    let setup = Setup {
        max_wimm: 3,
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    for _ in 0..8 {
        b.qp.handle_recv(0).unwrap();
    }
    // A peer that does not keep to the limit: plain writes turned into WriteIMMs.
    for n in 0..6 {
        a.post(write(n, 4, 0));
    }
    let mut sent = a.poll_all();
    for wire in &mut sent[1..] {
        wire.sent.bth.opcode = Opcode::WriteOnlyImm;
        let Headers::Write { imm, .. } = &mut wire.sent.headers else {
            panic!()
        };
        *imm = Some(mrc_wire::ImmDt([7; 4]));
    }
    for wire in &sent[1..4] {
        assert_eq!(b.receive(wire), Disposition::Accepted);
    }
    assert_eq!(b.qp.state(), QpState::Rts, "three wait: as offered");
    b.receive(&sent[4]);
    assert_eq!(nak_of(&b.poll_all()), (14, 0x61));
    // In its turn, the last one would have needed no place.
    let (_, mut b) = setup.pair();
    for _ in 0..8 {
        b.qp.handle_recv(0).unwrap();
    }
    for wire in [&sent[2], &sent[3], &sent[4], &sent[0], &sent[1], &sent[5]] {
        assert_eq!(b.receive(wire), Disposition::Accepted);
    }
    assert_eq!(b.qp.state(), QpState::Rts);
    assert_eq!(b.completions().len(), 5);
}

#[test]
fn requestor_keeps_to_max_wimm_and_the_whole_queue_waits() {
    let (mut a, mut b) = Setup {
        max_wimm: 2,
        ..Setup::default()
    }
    .pair();
    for n in 0..4 {
        a.post(write_imm(n, 4, 0, [0; 4]));
        b.qp.handle_recv(n).unwrap();
    }
    a.post(write(9, 4, 0));
    let sent = a.poll_all();
    assert_eq!(writes(&sent), [10, 11], "the plain write behind them waits too");
    let back = b.receive_all(&sent);
    assert_eq!(a.receive_all([&back[0]]), [], "a SACK does not end a WriteIMM (P4)");
    let more = a.receive_all([&back[1]]);
    assert_eq!(writes(&more), [12, 13, 14]);
    let numbers: Vec<_> = sent
        .iter()
        .chain(&more)
        .map(|wire| match wire.sent.headers {
            Headers::Write { meth, .. } => (meth.msn, meth.rqmsn),
            _ => panic!(),
        })
        .collect();
    assert_eq!(numbers, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0)]);
}

#[test]
fn unexpected_event_fails_the_request_that_owns_the_packet() {
    let (mut a, _) = Setup::default().pair();
    a.post(write(1, 4096, 0));
    a.post(write(2, 4096, 0));
    let sent = a.poll_all();
    let nack = |n: u32, stamp: bool| {
        let mut wire = sent[0].clone();
        wire.sent.bth.psn = psn(n);
        wire.sent.headers = Headers::Nack(Neth {
            reason: NackReason::UNEXP_EVENT,
            nack_psn: psn(n),
            tx_timestamp: if stamp { mrc_wire::Tick(1) } else { mrc_wire::Tick(0) },
            ..Neth::default()
        });
        wire
    };
    assert_eq!(
        a.receive(&nack(12, false)),
        Disposition::Dropped(DropReason::NotOutstanding)
    );
    assert_eq!(a.receive(&nack(11, true)), Disposition::Accepted);
    assert_eq!(a.qp.state(), QpState::Rts, "speaks of a copy that was never sent");
    a.receive(&nack(11, false));
    let expected = [
        (Queue::Send, 1, Status::Flushed),
        (Queue::Send, 2, Status::RemoteOperation),
    ];
    assert_eq!(outcomes(&a.completions()), expected);
}

#[test]
fn local_fault_fails_its_own_request() {
    let (mut a, _) = Setup::default().pair();
    for n in 0..3 {
        a.post(write(n, 4096, 0));
    }
    a.poll_all();
    a.cx(|qp, cx| qp.handle_local_fault(cx, 1, Status::LocalProtection));
    let expected = [
        (Queue::Send, 0, Status::Flushed),
        (Queue::Send, 1, Status::LocalProtection),
        (Queue::Send, 2, Status::Flushed),
    ];
    assert_eq!(outcomes(&a.completions()), expected);
}
