//! When and where packets go again, and what that counts for (protocol.md §5.6, §5.7, §5.8).

use mrc_wire::{Headers, NackReason, Tick};

use super::nacks::nack;
use crate::attr::{PathConfig, RetryAttr};
use crate::qp::{Qp, QpState};
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::work::{Disposition, DropReason, QpEvent, Queue, Status};

/// Timeout 14.
const T0: u64 = 1024 << 14;

fn patient() -> Setup {
    Setup {
        retry: RetryAttr {
            timeout: 14,
            linear_cnt: 0,
            exp_cnt: 25,
        },
        ..Setup::default()
    }
}

// protocol.md §5.6: a retransmission takes a fresh EV, even if the turn is the old one's.
#[test]
fn retransmission_avoids_the_path_of_the_lost_copy() {
    let setup = Setup {
        path: PathConfig {
            active: Some(2),
            ..PathConfig::explicit(evs(1, 2))
        },
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    for _ in 0..20 {
        a.post(write(1, 8192, 0));
        let sent = a.poll_all();
        nack(&mut a, &sent[0], NackReason::TRIMMED_LASTHOP);
        let again = a.poll_all();
        assert_ne!(again[0].sent.ev, sent[0].sent.ev);
        let back = b.receive_all(again.iter().chain(&sent[1..]));
        a.hear(&back);
        assert_eq!(a.completions().len(), 1);
    }
}

// protocol.md §5.7: a retransmission caused by a NACK starts again from T0 with k = 0.
#[test]
fn nack_ends_the_backoff_of_a_packet() {
    let (mut a, _) = flying(&patient(), 1);
    a.wait_for_loss();
    let second = a.poll_writes();
    let at = a.now;
    a.wait_for_loss();
    assert_eq!(a.now.since(at), 4 * T0, "k = 1, with linear_cnt 0 (§4)");
    let third = a.poll_writes();
    assert_ne!(second, third);
    nack(&mut a, &third[0], NackReason::TRIMMED_LASTHOP);
    assert_eq!(a.poll_writes().len(), 1);
    let at = a.now;
    a.wait_for_loss();
    assert_eq!(a.now.since(at), T0);
}

// protocol.md §5.6: nack_delay = max(1 RTT, 20 us), doubling up to T0; times are kept in steps of 1024 ns.
#[test]
fn delay_after_a_resource_nack_is_between_20_us_and_t0() {
    let setup = Setup {
        cc: Qpcc::fixed(192).with_base_rtt(4_000),
        ..patient()
    };
    let (mut a, mut sent) = flying(&setup, 1);
    let mut expected = 20_000;
    for n in 0..14 {
        nack(&mut a, &sent[0], NackReason::NO_RESOURCE);
        let at = a.now;
        a.wait_for_timeout();
        sent = a.poll_writes();
        assert_eq!(sent.len(), 1);
        let delay = a.now.since(at);
        assert!((expected..expected + 2048).contains(&delay), "{n}: {delay}");
        expected = (2 * expected).min(T0);
    }
    assert_eq!(expected, T0);
}

// protocol.md §5.6: a NACK is no inferred loss, so nothing was inferred wrongly.
#[test]
fn packet_that_was_nacked_and_delivered_widens_no_tolerance() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096, 0));
    let sent = a.poll_all();
    nack(&mut a, &sent[0], NackReason::TRIMMED);
    let back = b.receive_all(&sent);
    a.hear(&back);
    assert_eq!((a.qp.stats().losses_spurious, a.completions().len()), (0, 1));
}

// protocol.md §10.5, P26: late packets count as received, and not as in flight again.
#[test]
fn packets_acknowledged_after_their_loss_are_counted_once() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096 * 70, 0));
    let sent = a.poll_all();
    a.wait_for_loss();
    assert_eq!(a.cc.inflight_bytes(), 0);
    let back = b.receive_all(&sent);
    a.hear(&back);
    assert_eq!((a.cc.inflight_bytes(), a.cc.inflight_packets()), (0, 0));
    assert_eq!(a.qp.stats().bytes_overcounted, 0);
}

// protocol.md §5.7: progress of the Transport ACK sets R to 0.
#[test]
fn retry_counter_starts_again_with_a_transport_ack_alone() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 100, 0));
    a.post(write(2, 100, 0));
    let sent = a.poll_all();
    let back = b.receive_all(&sent);
    let is_ack = |wire: &&Wire| matches!(wire.sent.headers, Headers::Ack(_));
    a.hear(back.iter().filter(|wire| !is_ack(wire)));
    while a.qp.retries() == 0 {
        a.wait_for_timeout();
        a.poll_all();
    }
    let mut ack = back.iter().find(is_ack).unwrap().clone();
    ack.sent.bth.psn = psn(10);
    a.hear(&[ack]);
    assert_eq!((a.completions().len(), a.qp.retries()), (1, 0));
}

// protocol.md §10.4 UpdateBase, §10.5: without a stamp there is no sample.
#[test]
fn nack_measures_the_round_trip_only_with_a_stamp() {
    for (stamped, base) in [(false, 50_000), (true, 30_000)] {
        let (mut a, sent) = flying(&Setup::default(), 1);
        a.advance(30_000);
        let mut about = sent[0].clone();
        if !stamped && let Headers::Write { tseth: Some(tseth), .. } = &mut about.sent.headers {
            tseth.tx_timestamp = Tick(0);
        }
        assert_eq!(nack(&mut a, &about, NackReason::NO_RESOURCE), Disposition::Accepted);
        assert_eq!(a.cc.base_rtt_ns(), base);
    }
}

// protocol.md §5.6: "ignore a NACK if nack_psn is ... already LOST" holds for every reason. What ends the queue pair then is the
// retry budget, since a responder in ERR answers nothing.
#[test]
fn unexpected_event_about_a_lost_packet_is_ignored() {
    let (mut a, sent) = flying(&Setup::default(), 1);
    a.wait_for_loss();
    let dropped = Disposition::Dropped(DropReason::NotOutstanding);
    assert_eq!(nack(&mut a, &sent[0], NackReason::UNEXP_EVENT), dropped);
    assert_eq!(a.qp.state(), QpState::Rts);
    let again = a.poll_writes();
    assert_eq!(nack(&mut a, &again[0], NackReason::UNEXP_EVENT), Disposition::Accepted);
    assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::RemoteOperation)]);
}

// protocol.md §5.1: nominal size = UDP length + 40, as the responder counts it.
#[test]
fn nominal_size_is_that_of_the_packet() {
    for len in 0..9 {
        for imm in [None, Some([1; 4])] {
            let (mut a, _) = Setup::default().pair();
            let mut request = write(1, len, 0);
            request.imm = imm;
            a.post(request);
            let sent = a.poll().unwrap();
            assert_eq!(a.cc.inflight_bytes(), i64::from(sent.packet().nominal_size()));
        }
    }
}

// protocol.md §6.6, wire-format.md §7.1
#[test]
fn only_a_solicited_immediate_carries_se() {
    for (imm, solicited, se) in [(true, true, true), (true, false, false), (false, true, false)] {
        let (mut a, mut b) = Setup::default().pair();
        b.qp.handle_recv(1).unwrap();
        let mut request = write(1, 1, 0);
        request.imm = imm.then_some([1; 4]);
        request.solicited = solicited;
        a.post(request);
        let sent = a.poll_all();
        assert_eq!(sent[0].sent.bth.se, se);
        b.hear(&sent);
        let expected: &[bool] = if imm { &[se] } else { &[] };
        let solicited: std::vec::Vec<bool> = b.completions().iter().map(|c| c.solicited).collect();
        assert_eq!(solicited, expected);
    }
}

// protocol.md §5.8
#[test]
fn requests_are_signaled_if_they_or_their_queue_ask_for_it() {
    for (all, own) in [(false, false), (false, true), (true, false)] {
        let setup = Setup::default();
        let (mut a, mut b) = setup.pair();
        let mut create = setup.create(0xa);
        create.sq_sig_all = all;
        a.qp = Qp::new(create).unwrap();
        let (init, rtr, rts) = setup.attrs(0xb);
        a.qp.handle_init(&init).unwrap();
        a.qp.handle_rtr(&rtr, a.now).unwrap();
        a.qp.handle_rts(&rts, a.now).unwrap();
        let mut request = write(1, 1, 0);
        request.signaled = own;
        a.post(request);
        talk(&mut a, &mut b);
        assert_eq!(a.completions()[0].signaled, all || own);
    }
}

// protocol.md §5.9: the request that cannot be read fails even if unsignaled, sent or not; the others are flushed.
#[test]
fn local_fault_of_a_request_that_was_never_sent_is_its_own() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(0, 4096, 0));
    talk(&mut a, &mut b);
    // Done, and its completion not yet polled.
    for n in 1..4 {
        let mut request = write(n, 4096, 0);
        request.signaled = false;
        a.post(request);
    }
    a.qp.handle_recv(9).unwrap();
    a.poll();
    a.cx(|qp, cx| qp.handle_local_fault(cx, 2, Status::LocalProtection));
    assert_eq!((a.qp.state(), a.cc.inflight_packets()), (QpState::Err, 0));
    assert_eq!((a.events(), a.poll_all()), ([QpEvent::Fatal].to_vec(), [].to_vec()));
    let done = a.completions();
    let expected = [
        (Queue::Send, 0, Status::Success),
        (Queue::Send, 1, Status::Flushed),
        (Queue::Send, 2, Status::LocalProtection),
        (Queue::Send, 3, Status::Flushed),
        (Queue::Recv, 9, Status::Flushed),
    ];
    assert_eq!(outcomes(&done), expected);
    assert!(done.iter().all(|completion| completion.signaled));
    // What comes later changes nothing any more.
    a.cx(|qp, cx| qp.handle_local_fault(cx, 3, Status::LocalProtection));
    assert_eq!((a.events(), a.completions()), ([].to_vec(), [].to_vec()));
}

// protocol.md §5.9: a destroyed queue pair has no requests that could fail; it goes on acknowledging.
#[test]
fn local_fault_ends_neither_a_lingering_nor_an_unconnected_queue_pair() {
    let (mut a, _) = Setup::default().pair();
    a.post(write(0, 4096, 0));
    a.poll();
    a.cx(Qp::handle_linger);
    a.cx(|qp, cx| qp.handle_local_fault(cx, 0, Status::LocalProtection));
    assert_eq!((a.qp.state(), a.events()), (QpState::Rts, [].to_vec()));
    a.cx(Qp::handle_reset);
    a.cx(|qp, cx| qp.handle_local_fault(cx, 0, Status::LocalProtection));
    assert_eq!((a.qp.state(), a.events()), (QpState::Reset, [].to_vec()));
}
