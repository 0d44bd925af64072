//! Completion channels: one event per arming, nothing lost, nothing left behind.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::{CompletionChannel, QpAttr, QpState, SendRequest};

const AT_ONCE: Duration = Duration::ZERO;

struct Watched {
    fabric: Fabric,
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair,
    peer: QueuePair,
}

/// Host b's queue pair completes into a queue with a channel.
fn watched() -> Watched {
    let fabric = Fabric::new(1);
    let channel = fabric.b.context.create_channel().unwrap();
    let cq = fabric.b.context.create_cq_with_channel(64, &channel).unwrap();
    let qp = fabric.b.context.create_qp(&fabric.b.pd, &QpInit::new(&cq)).unwrap();
    let peer = fabric.a.qp();
    connect(&qp, &peer);
    Watched {
        fabric,
        channel,
        cq,
        qp,
        peer,
    }
}

impl Watched {
    /// The peer's immediate arrives as a receive completion.
    fn receive(&self, solicited: bool) {
        self.qp.post_recv(1).unwrap();
        let request = SendRequest::inline(1, b"", self.fabric.b.region.remote()).with_imm([7; 4]);
        self.peer
            .post_write(&if solicited { request.solicited() } else { request })
            .unwrap();
        // The sender's completion comes after the receive completion is visible.
        assert!(self.fabric.a.completion().is_ok());
    }
}

fn is_readable(channel: &CompletionChannel) -> bool {
    poll(
        &mut [PollFd::new(channel.as_fd(), PollFlags::POLLIN)],
        PollTimeout::ZERO,
    )
    .unwrap()
        == 1
}

#[test]
fn one_event_for_the_next_completion_after_arming() {
    let w = watched();
    w.receive(false);
    assert_eq!(w.channel.next(AT_ONCE), None, "not armed");
    w.cq.arm(false);
    assert_eq!(w.channel.next(AT_ONCE), None, "what is there already gives no event");
    w.receive(false);
    w.receive(false);
    until("the fd", || is_readable(&w.channel));
    assert_eq!(w.channel.next(PATIENCE), Some(w.cq.clone()));
    assert!(!is_readable(&w.channel));
    assert_eq!(w.channel.try_next(), None);
    let mut three = [WorkCompletion::EMPTY; 8];
    until("three completions", || w.cq.poll(&mut three).unwrap() == 3);
}

#[test]
fn solicited_arming_waits_for_solicited_completions() {
    let w = watched();
    w.cq.arm(true);
    w.receive(false);
    assert_eq!(w.channel.next(AT_ONCE), None);
    w.receive(true);
    assert_eq!(w.channel.next(PATIENCE), Some(w.cq.clone()));
    // The wider condition stays.
    w.cq.arm(false);
    w.cq.arm(true);
    w.receive(false);
    assert_eq!(w.channel.next(PATIENCE), Some(w.cq.clone()));
}

#[test]
fn an_error_counts_as_solicited() {
    let w = watched();
    w.cq.arm(true);
    w.qp.post_recv(1).unwrap();
    w.qp.modify(&QpAttr::to_state(QpState::Err)).unwrap();
    assert_eq!(w.channel.next(PATIENCE), Some(w.cq.clone()));
    assert!(!w.cq.poll_one().unwrap().unwrap().is_ok());
}

const COUNT: u32 = 300;

#[test]
fn a_sleeper_is_woken_by_every_message() {
    let w = watched();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..COUNT {
                let request = SendRequest::inline(1, b"", w.fabric.b.region.remote()).with_imm([7; 4]);
                w.peer.post_write(&request).unwrap();
                assert!(w.fabric.a.completion().is_ok());
            }
        });
        (0..64).for_each(|_| w.qp.post_recv(1).unwrap());
        let mut received = 0;
        while received < COUNT {
            w.cq.arm(false);
            if let Some(wc) = w.cq.poll_one().unwrap() {
                assert!(wc.is_ok(), "{wc:?}");
                w.qp.post_recv(1).unwrap();
                received += 1;
            } else {
                assert!(w.channel.next(PATIENCE).is_some(), "lost after {received}");
            }
        }
    });
}

#[test]
fn several_queues_share_a_channel_and_each_event_names_its_queue() {
    let fabric = Fabric::new(1);
    let channel = fabric.b.context.create_channel().unwrap();
    let cqs: Vec<_> = (0..3)
        .map(|_| fabric.b.context.create_cq_with_channel(8, &channel).unwrap())
        .collect();
    let qps: Vec<_> = cqs
        .iter()
        .map(|cq| fabric.b.context.create_qp(&fabric.b.pd, &QpInit::new(cq)).unwrap())
        .collect();
    for (cq, qp) in cqs.iter().zip(&qps) {
        cq.arm(false);
        qp.modify(&QpAttr::to_state(QpState::Init)).unwrap();
        qp.post_recv(1).unwrap();
        qp.modify(&QpAttr::to_state(QpState::Err)).unwrap();
    }
    let mut named: Vec<u32> = (0..3).map(|_| channel.next(PATIENCE).unwrap().id()).collect();
    named.sort_unstable();
    let mut expected: Vec<u32> = cqs.iter().map(CompletionQueue::id).collect();
    expected.sort_unstable();
    assert_eq!(named, expected);
    assert_eq!(channel.try_next(), None);
}

#[test]
fn a_queue_that_is_gone_takes_its_events_along() {
    let fabric = Fabric::new(1);
    let channel = fabric.b.context.create_channel().unwrap();
    let [gone, stays] = [(); 2].map(|()| fabric.b.context.create_cq_with_channel(8, &channel).unwrap());
    for cq in [&gone, &stays] {
        let qp = fabric.b.context.create_qp(&fabric.b.pd, &QpInit::new(cq)).unwrap();
        cq.arm(false);
        qp.modify(&QpAttr::to_state(QpState::Init)).unwrap();
        qp.post_recv(1).unwrap();
        qp.modify(&QpAttr::to_state(QpState::Err)).unwrap();
        until("the event", || cq.inner().watch().events() == 1);
    }
    drop(gone);
    assert_eq!(channel.next(PATIENCE), Some(stays));
    assert!(!is_readable(&channel));
    assert_eq!(channel.try_next(), None);
}

#[test]
fn a_queue_without_channel_can_be_armed_to_no_effect() {
    let fabric = Fabric::new(1);
    fabric.a.cq.arm(false);
    let (a, _b) = fabric.connected();
    a.post_write(&SendRequest::inline(1, b"", fabric.b.region.remote()))
        .unwrap();
    assert!(fabric.a.completion().is_ok());
}
