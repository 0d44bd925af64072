//! How work fails: statuses, flushes, states and events on both sides.

use super::*;
use crate::{
    AsyncEvent, Error, QpAttr, QpState, RawPiece, RawSendRequest, RemoteAddress, RemoteRegion, SendRequest, WcStatus,
};

/// The write fails with `status`, both sides go to ERR, and the responder is told by `event`.
fn refused(
    fabric: &Fabric,
    (a, b): &(QueuePair, QueuePair),
    request: &SendRequest<'_>,
    status: WcStatus,
    event: Option<AsyncEvent>,
) {
    a.post_write(request).unwrap();
    let wc = fabric.a.completion();
    assert_eq!(wc.result, Err(status));
    assert_eq!(
        (wc.byte_len, wc.imm, wc.src_qpn, wc.is_recv, wc.qpn),
        (0, None, 0, false, a.qpn())
    );
    assert_eq!(a.state().unwrap(), QpState::Err);
    if let Some(event) = event {
        assert_eq!(fabric.b.context.next_event(Some(PATIENCE)), Some(event));
        assert_eq!(b.state().unwrap(), QpState::Err);
    }
    assert_eq!(
        fabric.a.context.next_event(Some(Duration::ZERO)),
        None,
        "the requestor has its completion"
    );
}

#[test]
fn accesses_that_the_peer_refuses() {
    let fabric = Fabric::new(1);
    let read_only = fabric.b.pd.register_owned(4096, Access::LOCAL_WRITE).unwrap();
    let other_pd = ProtectionDomain::new(&fabric.b.device).unwrap();
    let elsewhere = other_pd.register_owned(4096, Access::PEER_WRITABLE).unwrap();
    let whole = fabric.b.region.remote();
    let targets: [RemoteAddress; 5] = [
        RemoteRegion {
            rkey: whole.rkey ^ 1,
            ..whole
        }
        .at(0),
        whole.at(REGION as u64 - 2),
        RemoteAddress {
            addr: u64::MAX - 1,
            rkey: whole.rkey,
        },
        read_only.remote().at(0),
        elsewhere.remote().at(0),
    ];
    for target in targets {
        let pair = fabric.connected();
        let event = AsyncEvent::QpAccessError { qpn: pair.1.qpn() };
        let request = SendRequest::inline(1, b"four", target);
        refused(&fabric, &pair, &request, WcStatus::RemAccessErr, Some(event));
    }
    assert!(fabric.b.region.to_vec(REGION - 2, 2).unwrap() == [0, 0]);
}

#[test]
fn a_queue_pair_without_remote_write_refuses() {
    let fabric = Fabric::new(1);
    let (a, b) = (fabric.a.qp(), fabric.b.qp());
    let (of_a, of_b) = (a.offer().unwrap(), b.offer().unwrap());
    a.connect(&QpConfig::new(of_a.clone(), of_b.clone())).unwrap();
    b.connect(&QpConfig::new(of_b, of_a).access(Access::LOCAL_WRITE))
        .unwrap();
    let event = AsyncEvent::QpAccessError { qpn: b.qpn() };
    let request = SendRequest::inline(1, b"x", fabric.b.region.remote());
    refused(&fabric, &(a, b), &request, WcStatus::RemAccessErr, Some(event));
}

#[test]
fn an_immediate_without_a_receive_ends_the_connection() {
    let fabric = Fabric::new(1);
    let pair = fabric.connected();
    let event = AsyncEvent::QpAccessError { qpn: pair.1.qpn() };
    let request = SendRequest::inline(1, b"x", fabric.b.region.remote()).with_imm([0; 4]);
    refused(&fabric, &pair, &request, WcStatus::RemOpErr, Some(event));
}

#[test]
#[expect(unsafe_code, reason = "names memory by address and key")]
fn local_pieces_that_are_not_registered_fail() {
    let fabric = Fabric::new(1);
    let other_pd = ProtectionDomain::new(&fabric.a.device).unwrap();
    let elsewhere = other_pd.register_owned(64, Access::empty()).unwrap();
    let good = &fabric.a.region;
    let pieces = [
        RawPiece {
            addr: good.addr(),
            length: 8,
            lkey: good.lkey() ^ 1,
        },
        RawPiece {
            addr: good.addr() + REGION as u64 - 4,
            length: 8,
            lkey: good.lkey(),
        },
        RawPiece {
            addr: elsewhere.addr(),
            length: 8,
            lkey: elsewhere.lkey(),
        },
    ];
    for piece in pieces {
        let (a, b) = fabric.connected();
        let request = RawSendRequest {
            wr_id: 3,
            pieces: &[piece],
            remote: fabric.b.region.remote().into(),
            imm: None,
            signaled: false,
            solicited: false,
        };
        // SAFETY: pieces that are not registered are not read.
        unsafe { a.post_write_raw(&request) }.unwrap();
        let wc = fabric.a.completion();
        assert_eq!(
            (wc.wr_id, wc.result),
            (3, Err(WcStatus::LocProtErr)),
            "an unsignaled failure completes too"
        );
        assert_eq!(a.state().unwrap(), QpState::Err);
        assert_eq!(b.state().unwrap(), QpState::Rts);
    }
}

#[test]
fn everything_behind_a_failure_is_flushed_in_order() {
    let fabric = Fabric::new(1);
    let (a, b) = fabric.connected();
    a.post_recv_list(&[100, 101]).unwrap();
    let good = fabric.b.region.remote();
    let bad = RemoteRegion {
        rkey: good.rkey ^ 1,
        ..good
    };
    let list = [
        SendRequest::inline(0, b"x", good),
        SendRequest::inline(1, b"x", bad).unsignaled(),
        SendRequest::inline(2, b"x", good).unsignaled(),
        SendRequest::inline(3, b"x", good),
    ];
    // A NAK acknowledges nothing, so what is to succeed completes first (protocol.md §5.8).
    a.post_write(&list[0]).unwrap();
    assert!(fabric.a.completion().is_ok());
    a.post_write_list(&list[1..]).unwrap();
    let ends: Vec<_> = fabric
        .a
        .completions(5)
        .iter()
        .map(|wc| (wc.wr_id, wc.is_recv, wc.result.err()))
        .collect();
    let flush = Some(WcStatus::WrFlushErr);
    let sends: Vec<_> = ends.iter().filter(|end| !end.1).copied().collect();
    let receives: Vec<_> = ends.iter().filter(|end| end.1).copied().collect();
    assert_eq!(
        sends,
        [
            (1, false, Some(WcStatus::RemAccessErr)),
            (2, false, flush),
            (3, false, flush)
        ]
    );
    assert_eq!(receives, [(100, true, flush), (101, true, flush)]);
    until("the responder", || b.state().unwrap() == QpState::Err);
    // What is posted from now on is flushed at once.
    a.post_write(&list[0]).unwrap();
    a.post_recv(102).unwrap();
    assert!(
        fabric
            .a
            .completions(2)
            .iter()
            .all(|wc| wc.result == Err(WcStatus::WrFlushErr))
    );
}

#[test]
fn moving_to_err_flushes_without_an_event() {
    let fabric = Fabric::new(1);
    let (a, _b) = fabric.connected();
    fabric.links[0].blackhole(0, true);
    a.post_recv(1).unwrap();
    a.post_write(&SendRequest::inline(2, b"x", fabric.b.region.remote()))
        .unwrap();
    a.modify(&QpAttr::to_state(QpState::Err)).unwrap();
    assert!(
        fabric
            .a
            .completions(2)
            .iter()
            .all(|wc| wc.result == Err(WcStatus::WrFlushErr))
    );
    assert_eq!(fabric.a.context.next_event(Some(Duration::ZERO)), None);
}

#[test]
fn a_silent_peer_ends_in_an_error_within_the_retry_budget() {
    let fabric = Fabric::new(2);
    let (a, b) = (fabric.a.qp(), fabric.b.qp());
    let (of_a, of_b) = (a.offer().unwrap(), b.offer().unwrap());
    a.connect(&QpConfig::new(of_a, of_b).timeout(10).retry(1, 1)).unwrap();
    a.post_write(&SendRequest::inline(1, b"anyone?", fabric.b.region.remote()))
        .unwrap();
    a.post_write(&SendRequest::inline(2, b"anyone?", fabric.b.region.remote()))
        .unwrap();
    let ends: Vec<_> = fabric.a.completions(2).iter().map(|wc| wc.result).collect();
    assert_eq!(ends, [Err(WcStatus::RetryExcErr), Err(WcStatus::WrFlushErr)]);
}

#[test]
fn a_peer_that_comes_late_is_waited_for() {
    let fabric = Fabric::new(1);
    let (a, b) = (fabric.a.qp(), fabric.b.qp());
    let (of_a, of_b) = (a.offer().unwrap(), b.offer().unwrap());
    a.connect(&QpConfig::new(of_a.clone(), of_b.clone())).unwrap();
    a.post_write(&SendRequest::inline(1, b"early", fabric.b.region.remote()))
        .unwrap();
    // At least one packet has come too early.
    until("a packet", || fabric.b.device.counters().ports[0].rx_packets > 0);
    b.connect(&QpConfig::new(of_b, of_a)).unwrap();
    assert!(fabric.a.completion().is_ok());
    assert_eq!(fabric.b.region.to_vec(0, 5).unwrap(), b"early");
}

#[test]
fn an_overrun_queue_is_in_error_and_takes_its_queue_pairs_along() {
    let fabric = Fabric::new(1);
    let cq = fabric.a.context.create_cq(2).unwrap();
    let a = fabric.a.context.create_qp(&fabric.a.pd, &QpInit::new(&cq)).unwrap();
    let b = fabric.b.qp();
    connect(&a, &b);
    for wr_id in 0..=u64::from(cq.depth()) {
        a.post_write(&SendRequest::inline(wr_id, b"x", fabric.b.region.remote()))
            .unwrap();
    }
    let mut events = vec![];
    until("both events", || {
        events.extend(fabric.a.context.next_event(Some(Duration::from_millis(10))));
        events.len() >= 2
    });
    assert!(events.contains(&AsyncEvent::CqError { cq: cq.id() }), "{events:?}");
    assert!(events.contains(&AsyncEvent::QpFatal { qpn: a.qpn() }), "{events:?}");
    assert_eq!(a.state().unwrap(), QpState::Err);
    for _ in 0..cq.depth() {
        assert!(cq.poll_one().unwrap().is_some());
    }
    assert!(matches!(cq.poll_one(), Err(Error::CqOverrun { .. })));
}

#[test]
fn links_that_change_are_told_to_every_context() {
    let fabric = Fabric::new(2);
    let second = Context::open(&fabric.a.device, ApiVersion::LATEST).unwrap();
    fabric.links[1].set_up(false);
    for context in [&fabric.a.context, &second] {
        assert_eq!(
            context.next_event(Some(PATIENCE)),
            Some(AsyncEvent::PortError { port: 2 })
        );
    }
    fabric.links[1].set_up(true);
    assert_eq!(
        second.next_event(Some(PATIENCE)),
        Some(AsyncEvent::PortActive { port: 2 })
    );
}
