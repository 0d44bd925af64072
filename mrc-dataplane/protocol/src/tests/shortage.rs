//! The responder lacks something: NACKs at its end, patience at the other (protocol.md §6.3 step 2, §5.6 Table 7-3, §6.8).

use std::vec::Vec;

use mrc_wire::{Headers, NackReason, Tick};

use crate::qp::QpState;
use crate::testing::*;
use crate::work::{AccessError, Disposition, DropReason, QpEvent, Queue, Shortage, Status};

const SHORTAGES: [(Shortage, NackReason); 3] = [
    (Shortage::Bitmap, NackReason::NO_BITMAP),
    (Shortage::PacketBuffer, NackReason::NO_PKT_BUFFER),
    (Shortage::Other, NackReason::NO_RESOURCE),
];

fn nacks(wires: &[Wire]) -> Vec<(u32, NackReason, Tick, bool)> {
    let nack = |wire: &Wire| match wire.sent.headers {
        Headers::Nack(neth) => Some((neth.nack_psn.get(), neth.reason, neth.tx_timestamp, wire.sent.bth.rtx)),
        _ => None,
    };
    wires.iter().filter_map(nack).collect()
}

// protocol.md §6.3 step 2: nothing is marked, nothing is counted; §6.8: entropy, stamp and rtx of the packet.
#[test]
fn memory_that_is_busy_is_nacked_with_its_reason_and_written_later() {
    for when in [When::Asked, When::Written] {
        for (shortage, reason) in SHORTAGES {
            let (mut a, mut b) = Setup::default().pair();
            b.qp.handle_recv(7).unwrap();
            a.post(write_imm(1, 4096, 0, [9; 4]));
            let sent = a.poll_all();
            b.region.trouble = Some((when, AccessError::Busy(shortage)));
            let back = b.receive_all(&sent);
            let stamp = sent[0].packet().tx_timestamp();
            assert_eq!(nacks(&back), [(10, reason, stamp, false)]);
            let Headers::Nack(neth) = back[0].sent.headers else {
                panic!()
            };
            assert_eq!((back.len(), neth.entropy), (1, sent[0].sent.ev), "no SACK");
            assert_eq!((b.qp.cack_psn().get(), b.qp.ooo_count(), b.region.placed), (9, 0, 0));

            b.region.trouble = None;
            a.hear(&back);
            assert_eq!(a.poll_all(), [], "not at once");
            a.wait_for_timeout();
            talk(&mut a, &mut b);
            assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::Success)]);
            assert_eq!(outcomes(&b.completions()), [(Queue::Recv, 7, Status::Success)]);
            assert_eq!(b.region.bytes[..4096], a.sources[0][..]);
            assert_eq!(a.qp.stats().packets_retransmitted, 1);
        }
    }
}

// protocol.md §6.6: an immediate whose data could not be placed holds no place of the stash.
#[test]
fn stash_is_not_used_up_by_packets_that_were_not_placed() {
    let setup = Setup {
        max_wimm: 1,
        ..Setup::default()
    };
    let (mut a, _) = Setup::default().pair();
    let (_, mut b) = setup.pair();
    b.qp.handle_recv(1).unwrap();
    a.post(write(1, 10, 0));
    a.post(write_imm(2, 10, 0, [1; 4]));
    let sent = a.poll_all();
    b.region.trouble = Some((When::Written, AccessError::Busy(Shortage::Other)));
    for _ in 0..3 {
        let _ = b.receive_all(&sent[1..]);
        b.advance(20_000);
    }
    b.region.trouble = None;
    let _ = b.receive_all(&sent[1..]);
    let _ = b.receive_all(&sent[..1]);
    assert_eq!(b.qp.state(), QpState::Rts);
    assert_eq!(b.completions().len(), 1);
}

// protocol.md §6.3 step 2: UNEXP_EVENT and ERR; §5.6: remote operation error at the other end, the rest flushed.
#[test]
fn failure_that_cannot_be_repaired_ends_both_queue_pairs() {
    for when in [When::Asked, When::Written] {
        let (mut a, mut b) = Setup::default().pair();
        a.post(write(1, 4096, 0));
        a.post(write(2, 4096, 0));
        let sent = a.poll_all();
        b.region.trouble = Some((when, AccessError::Broken));
        let back = b.receive_all(&sent);
        assert_eq!((b.qp.state(), b.events()), (QpState::Err, [QpEvent::Fatal].to_vec()));
        let said = nacks(&back);
        assert_eq!((back.len(), said[0].0, said[0].1), (1, 10, NackReason::UNEXP_EVENT));
        a.hear(&back);
        assert_eq!((a.qp.state(), a.events()), (QpState::Err, [QpEvent::Fatal].to_vec()));
        assert_eq!(
            outcomes(&a.completions()),
            [
                (Queue::Send, 1, Status::RemoteOperation),
                (Queue::Send, 2, Status::Flushed)
            ]
        );
    }
}

// protocol.md §6.3 step 2: a packet that was attributable, and could not be kept.
#[test]
fn packet_without_a_buffer_is_nacked_if_it_is_new_and_acknowledged_if_it_is_not() {
    for (shortage, reason) in SHORTAGES {
        let (mut a, mut b) = Setup::default().pair();
        a.post(write(1, 4096 * 2, 0));
        let sent = a.poll_all();
        let refused = b.qp.handle_refused(b.now, &sent[0].packet(), shortage);
        b.qp.end_of_batch(b.now);
        assert_eq!(refused, Disposition::Accepted);
        assert_eq!(nacks(&b.poll_all())[0].1, reason);
        let back = b.receive_all(&sent);
        assert_eq!(sacks(&back).len(), 1);
        b.advance(1_000_000);
        b.poll_all();
        let again = b.qp.handle_refused(b.now, &sent[0].packet(), shortage);
        b.qp.end_of_batch(b.now);
        let back = b.poll_all();
        assert_eq!(
            (again, nacks(&back).len(), sacks(&back).len()),
            (Disposition::Accepted, 0, 1)
        );
        // Beyond the window, in the wrong state, or no write: nothing.
        let mut far = sent[0].clone();
        far.sent.bth.psn = psn(10 + 1024 + 2);
        let reply = |b: &mut End, wire: &Wire| b.qp.handle_refused(b.now, &wire.packet(), shortage);
        assert_eq!(reply(&mut b, &far), Disposition::Dropped(DropReason::OutOfWindow));
        assert_eq!(reply(&mut b, &back[0]), Disposition::Dropped(DropReason::NotForQp));
        b.cx(crate::Qp::handle_error);
        assert_eq!(reply(&mut b, &sent[0]), Disposition::Dropped(DropReason::State));
    }
}

// protocol.md §5.6, §5.7: each repeated NACK of a PSN adds to R, at most once per T0; the responder that never has a buffer
// ends the queue pair with a retry error.
#[test]
fn responder_that_never_has_a_buffer_uses_up_the_retry_budget() {
    let (mut a, mut b) = Setup::default().pair();
    b.region.trouble = Some((When::Asked, AccessError::Busy(Shortage::PacketBuffer)));
    a.post(write(1, 10, 0));
    let start = a.now;
    while a.qp.state() == QpState::Rts {
        let sent = a.poll_all();
        b.now = a.now;
        let back = b.receive_all(&sent);
        a.hear(&back);
        if a.qp.state() == QpState::Rts {
            a.wait_for_timeout();
        }
        assert!(a.now.since(start) < 10_000_000_000);
    }
    assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::RetryExceeded)]);
    // Eight failures, at least T0 apart.
    assert!(a.now.since(start) >= 7 * (1024 << 14), "{}", a.now.since(start));
}
