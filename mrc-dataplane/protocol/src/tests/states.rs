//! States, limits, and the ways in which a queue pair ends by the application's will (protocol.md §2.2, §5.9).

use std::vec::Vec;

use crate::attr::{QpCreate, Universe};
use crate::qp::{Qp, QpState};
use crate::testing::*;
use crate::time::Instant;
use crate::work::{CreateError, Disposition, DropReason, PostError, Queue, StateError, Status};

#[test]
fn error_by_the_application_flushes_without_an_event_and_reset_discards() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 4096, 0));
    a.qp.handle_recv(2).unwrap();
    let sent = a.poll_all();
    a.cx(Qp::handle_error);
    let expected = [(Queue::Send, 1, Status::Flushed), (Queue::Recv, 2, Status::Flushed)];
    assert_eq!(outcomes(&a.completions()), expected);
    assert_eq!((a.events(), a.cc.inflight_packets()), (Vec::new(), 0));

    b.hear(&sent);
    b.post(write(1, 4096, 0));
    b.poll_all();
    b.cx(Qp::handle_reset);
    assert_eq!((b.completions(), b.cc.inflight_packets()), (Vec::new(), 0));
    assert_eq!(
        (b.qp.state(), b.qp.sq_outstanding(), b.qp.next_timeout()),
        (QpState::Reset, 0, None)
    );
    assert_eq!(b.receive(&sent[0]), Disposition::Dropped(DropReason::State));
    assert_eq!(b.qp.handle_recv(1), Err(PostError::State(QpState::Reset)));
}

#[test]
fn destroyed_queue_pair_still_acknowledges_what_it_took() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 8192, 0));
    let sent = a.poll_all();
    b.post(write(3, 4096, 0));
    b.poll_all();
    b.receive(&sent[0]);
    b.receive(&sent[1]);
    b.qp.end_of_batch(b.now);
    b.cx(Qp::handle_linger);
    assert_eq!((b.cc.inflight_packets(), b.completions()), (0, Vec::new()));
    let lost = b.poll_all();
    assert_eq!(lost.len(), 2, "what was owed");
    a.wait_for_timeout();
    let again = a.poll_all();
    let back = b.receive_all(&again);
    a.hear(&back);
    assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::Success)]);
    a.post(write(2, 1, 0));
    let fresh = a.poll_all();
    assert_eq!(b.receive(&fresh[0]), Disposition::Dropped(DropReason::State));
    assert_eq!(
        b.qp.handle_send(&write(0, 0, 0), b.now),
        Err(PostError::State(QpState::Rts))
    );
}

#[test]
fn limits_of_creation_are_limits() {
    let (mut a, _) = Setup {
        sq_depth: 3,
        rq_depth: 3,
        ..Setup::default()
    }
    .pair();
    for n in 0..3 {
        a.post(write(n, 1, 0));
    }
    assert_eq!(a.qp.handle_send(&write(3, 1, 0), a.now), Err(PostError::Full));
    assert_eq!(
        a.qp.handle_send(&write(3, (1 << 31) + 1, 0), a.now),
        Err(PostError::TooLong((1 << 31) + 1))
    );
    for n in 0..3 {
        assert_eq!(a.qp.handle_recv(n), Ok(()));
    }
    assert_eq!(a.qp.handle_recv(3), Err(PostError::Full));

    let refuse = |change: fn(&mut QpCreate)| {
        let mut create = Setup::default().create(5);
        change(&mut create);
        Qp::new(create).err()
    };
    assert_eq!(refuse(|c| c.sq_depth = 0), Some(CreateError::SqDepth(0)));
    assert_eq!(refuse(|c| c.sq_depth = 40_000), Some(CreateError::SqDepth(40_000)));
    assert_eq!(refuse(|c| c.max_mpr = 0), Some(CreateError::Limit));
    assert_eq!(refuse(|c| c.tuning.sack_hold_ns = 1_000_001), Some(CreateError::Tuning));
    assert_eq!(
        refuse(|c| c.path.universe = Universe::Explicit(Vec::new())),
        Some(CreateError::Universe(0))
    );
}

#[test]
fn states_follow_one_another() {
    let now = Instant::ZERO;
    let mut qp = Qp::new(Setup::default().create(5)).unwrap();
    let (init, rtr, rts) = Setup::default().attrs(6);
    assert_eq!(
        qp.handle_rtr(&rtr, now),
        Err(StateError::Transition(QpState::Reset, QpState::Rtr))
    );
    assert_eq!(
        qp.handle_send(&write(0, 0, 0), now),
        Err(PostError::State(QpState::Reset))
    );
    qp.handle_init(&init).unwrap();
    assert_eq!(
        qp.handle_init(&init),
        Err(StateError::Transition(QpState::Init, QpState::Init))
    );
    let mut wide = rtr;
    wide.mpr_dest = 9;
    let limit = StateError::Limit {
        name: "mpr_dest",
        value: 9,
        max: 8,
    };
    assert_eq!(qp.handle_rtr(&wide, now), Err(limit));
    qp.handle_rtr(&rtr, now).unwrap();
    assert_eq!(
        qp.handle_send(&write(0, 0, 0), now),
        Err(PostError::State(QpState::Rtr))
    );
    let mut hasty = rts;
    hasty.retry.timeout = 25;
    assert_eq!(qp.handle_rts(&hasty, now), Err(StateError::Retry));
    qp.handle_rts(&rts, now).unwrap();
    assert_eq!(qp.state(), QpState::Rts);
}
