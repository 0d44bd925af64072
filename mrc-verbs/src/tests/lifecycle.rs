//! States against the real engine, ends in any order, reconnecting.

use super::*;
use crate::{AddressVector, AsyncEvent, Error, QpAttr, QpState, SendRequest, WcStatus};

fn to(state: QpState, of: &QueuePair, peer: &QueuePair) -> QpAttr {
    let (mine, theirs) = (of.offer().unwrap(), peer.offer().unwrap());
    let agreed = mine.check_compatible(&theirs).unwrap();
    match state {
        QpState::Rtr => QpAttr {
            address: Some(AddressVector {
                local: agreed.local_gid,
                remote: agreed.peer_gid,
                hop_limit: 0,
                traffic_class: 0,
            }),
            dest_qpn: Some(theirs.qpn),
            rq_psn: Some(theirs.psn),
            ..QpAttr::to_state(state)
        },
        QpState::Rts => QpAttr {
            sq_psn: Some(mine.psn),
            ..QpAttr::to_state(state)
        },
        _ => QpAttr::to_state(state),
    }
}

/// Brings a queue pair to `state` on the direct way.
fn bring(qp: &QueuePair, peer: &QueuePair, state: QpState) {
    qp.modify(&QpAttr::to_state(QpState::Reset)).unwrap();
    let way: &[QpState] = match state {
        QpState::Reset => &[],
        QpState::Err => &[QpState::Err],
        QpState::Init => &[QpState::Init],
        QpState::Rtr => &[QpState::Init, QpState::Rtr],
        QpState::Rts => &[QpState::Init, QpState::Rtr, QpState::Rts],
    };
    for step in way {
        qp.modify(&to(*step, qp, peer)).unwrap();
    }
    assert_eq!(qp.state().unwrap(), state);
}

#[test]
fn every_transition_is_taken_or_refused_and_a_refused_one_changes_nothing() {
    let fabric = Fabric::new(1);
    let (qp, peer) = (fabric.a.qp(), fabric.b.qp());
    for from in QpState::ALL {
        for next in QpState::ALL {
            bring(&qp, &peer, from);
            let before = qp.query().unwrap().attrs;
            let outcome = qp.modify(&to(next, &qp, &peer).staying(from == next));
            let legal = from.may_go_to(next);
            assert_eq!(outcome.is_ok(), legal, "{from} to {next}: {outcome:?}");
            assert_eq!(qp.state().unwrap(), if legal { next } else { from });
            if !legal {
                assert!(matches!(outcome, Err(Error::Transition { .. })));
                assert_eq!(qp.query().unwrap().attrs, before);
            }
        }
    }
}

impl QpAttr {
    /// Without the attributes that only a transition takes.
    fn staying(self, stays: bool) -> QpAttr {
        if stays {
            QpAttr {
                state: self.state,
                ..QpAttr::default()
            }
        } else {
            self
        }
    }
}

#[test]
fn queries_tell_what_is_in_force() {
    let fabric = Fabric::new(1);
    let (qp, peer) = (fabric.a.qp(), fabric.b.qp());
    bring(&qp, &peer, QpState::Rtr);
    qp.modify(&QpAttr {
        timeout: Some(9),
        mpr: Some(3),
        ..to(QpState::Rts, &qp, &peer)
    })
    .unwrap();
    let seen = qp.query().unwrap();
    assert_eq!((seen.attrs.timeout, seen.attrs.mpr, seen.attrs.max_wimm), (9, 3, 128));
    assert_eq!(seen.attrs.dest_qpn, Some(peer.qpn()));
    assert_eq!(
        (seen.attrs.rq_psn, seen.attrs.sq_psn),
        (peer.offer().unwrap().psn, qp.offer().unwrap().psn)
    );
    assert_eq!(seen.state, QpState::Rts);
    qp.modify(&QpAttr {
        timeout: Some(11),
        ..QpAttr::default()
    })
    .unwrap();
    assert_eq!(qp.query().unwrap().attrs.timeout, 11);
}

#[test]
fn a_pmtu_that_the_ports_do_not_carry_is_refused_by_name() {
    let fabric = Fabric::with_mtu(2, 1500);
    let (a, b) = (fabric.a.qp(), fabric.b.qp());
    let (mut mine, mut theirs) = (a.offer().unwrap(), b.offer().unwrap());
    assert_eq!(mine.pmtu, 1024);
    mine.pmtu = 4096;
    theirs.pmtu = 4096;
    let refused = a.connect(&QpConfig::new(mine, theirs)).unwrap_err().to_string();
    for part in ["4096", "mem1a", "1500", "1024"] {
        assert!(refused.contains(part) && !refused.contains('\n'), "{refused}");
    }
    assert_eq!(a.state().unwrap(), QpState::Reset);
    connect(&a, &b);
}

#[test]
fn posting_follows_the_state() {
    let fabric = Fabric::new(1);
    let (qp, peer) = (fabric.a.qp(), fabric.b.qp());
    let write = |qp: &QueuePair| qp.post_write(&SendRequest::inline(1, b"x", fabric.b.region.remote()));
    for state in QpState::ALL {
        bring(&qp, &peer, state);
        let sends = matches!(state, QpState::Rts | QpState::Err);
        assert_eq!(write(&qp).is_ok(), sends, "send in {state}");
        assert_eq!(qp.post_recv(2).is_ok(), state != QpState::Reset, "receive in {state}");
    }
    // In ERR, where the loop ended, both are flushed.
    let flushed = fabric.a.completions(2);
    assert!(
        flushed.iter().all(|wc| wc.result == Err(WcStatus::WrFlushErr)),
        "{flushed:?}"
    );
}

#[test]
fn reset_forgets_what_was_posted_and_completed_and_the_pair_connects_again() {
    let fabric = Fabric::new(2);
    let (a, b) = fabric.connected();
    for round in 0..3_u8 {
        fabric.a.region.write_at(0, &[round; 100]).unwrap();
        for wr_id in 0..10 {
            a.post_write(&SendRequest::write(
                wr_id,
                fabric.a.region.slice(0..100).unwrap(),
                fabric.b.region.remote(),
            ))
            .unwrap();
        }
        until("the data", || fabric.b.region.load_u8(99).unwrap() == round);
        b.post_recv(7).unwrap();
        a.modify(&QpAttr::to_state(QpState::Reset)).unwrap();
        b.modify(&QpAttr::to_state(QpState::Reset)).unwrap();
        assert_eq!(fabric.a.cq.poll_one().unwrap(), None);
        assert_eq!(fabric.b.cq.poll_one().unwrap(), None);
        connect(&a, &b);
    }
}

#[test]
fn a_failed_connect_leaves_the_pair_in_reset() {
    let fabric = Fabric::new(1);
    let (a, b) = (fabric.a.qp(), fabric.b.qp());
    let (mine, mut theirs) = (a.offer().unwrap(), b.offer().unwrap());
    theirs.udp_port = 5000;
    let refused = a.connect(&QpConfig::new(mine.clone(), theirs)).unwrap_err();
    assert!(refused.to_string().contains("5000"), "{refused}");
    assert_eq!(a.state().unwrap(), QpState::Reset);
    let other = fabric.a.qp();
    assert!(matches!(
        other.connect(&QpConfig::new(mine, b.offer().unwrap())),
        Err(Error::Invalid { .. })
    ));
    let wrong_timeout = QpConfig::new(other.offer().unwrap(), b.offer().unwrap()).timeout(30);
    assert!(other.connect(&wrong_timeout).is_err());
    assert_eq!(other.state().unwrap(), QpState::Reset);
}

#[test]
fn objects_may_go_in_any_order_in_the_middle_of_traffic() {
    // Every rotation of this list of drops, with writes under way.
    for first in 0..7 {
        let fabric = Fabric::new(2);
        let (qp, peer) = fabric.connected();
        let Fabric { a, b, links: _links } = fabric;
        for wr_id in 0..50 {
            qp.post_write(&SendRequest::write(wr_id, (&a.region).into(), b.region.remote()))
                .unwrap();
        }
        let Host {
            device,
            context,
            pd,
            cq,
            region,
        } = a;
        let mut things: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(device),
            Box::new(context),
            Box::new(pd),
            Box::new(cq),
            Box::new(region),
            Box::new(qp),
            Box::new(peer),
        ];
        things.rotate_left(first);
        things.into_iter().for_each(drop);
        drop(b);
    }
}

#[test]
fn a_region_lives_until_the_writes_that_read_it_are_done() {
    let fabric = Fabric::new(1);
    let (qp, _peer) = fabric.connected();
    let data = noise(300_000, 5);
    {
        let source = fabric.a.pd.register_owned(data.len(), Access::empty()).unwrap();
        source.write_at(0, &data).unwrap();
        qp.post_write(&SendRequest::write(1, (&source).into(), fabric.b.region.remote()))
            .unwrap();
    }
    assert!(fabric.a.completion().is_ok());
    assert_eq!(fabric.b.region.to_vec(0, data.len()).unwrap(), data);
}

#[test]
fn a_box_comes_back_from_its_region_with_what_peers_wrote() {
    let fabric = Fabric::new(1);
    let (qp, _peer) = fabric.connected();
    let region = fabric
        .b
        .pd
        .register_box(vec![0; 64].into_boxed_slice(), Access::PEER_WRITABLE)
        .unwrap();
    qp.post_write(&SendRequest::inline(1, b"into the box", region.remote()))
        .unwrap();
    assert!(fabric.a.completion().is_ok());
    let second_handle = region.clone();
    let region = region.into_box().expect_err("a clone is left");
    drop(second_handle);
    let bytes = region.into_box().unwrap();
    assert_eq!(&bytes[..12], b"into the box");
    let owned = fabric.b.pd.register_owned(8, Access::empty()).unwrap();
    assert!(owned.into_box().is_err());
}

#[test]
fn after_deregistration_nothing_is_written_any_more() {
    let fabric = Fabric::new(1);
    let (qp, peer) = fabric.connected();
    let mut memory = vec![0_u64; 1024];
    let start = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: the vector outlives the region and is not touched while it is registered.
    #[expect(unsafe_code, reason = "the test vouches for the memory")]
    let region = unsafe { fabric.b.pd.register_raw(start, 8192, Access::PEER_WRITABLE) }.unwrap();
    let remote = region.remote();
    qp.post_write(&SendRequest::inline(1, &[0xff; 8], remote)).unwrap();
    assert!(fabric.a.completion().is_ok());
    drop(region);
    assert_eq!(memory[0], u64::MAX);
    qp.post_write(&SendRequest::inline(2, &[0xee; 8], remote)).unwrap();
    assert_eq!(fabric.a.completion().result, Err(WcStatus::RemAccessErr));
    assert_eq!(memory[0], u64::MAX);
    until("the event", || {
        fabric.b.context.next_event(Some(PATIENCE)) == Some(AsyncEvent::QpAccessError { qpn: peer.qpn() })
    });
}

#[test]
fn objects_of_other_contexts_and_devices_are_refused() {
    let fabric = Fabric::new(1);
    let other_context = Context::open(&fabric.a.device, ApiVersion::LATEST).unwrap();
    let foreign = |outcome: Result<QueuePair, Error>| matches!(outcome, Err(Error::Foreign { .. }));
    assert!(foreign(
        other_context.create_qp(&fabric.a.pd, &QpInit::new(&fabric.a.cq))
    ));
    assert!(foreign(
        fabric.a.context.create_qp(&fabric.b.pd, &QpInit::new(&fabric.a.cq))
    ));
    let channel = fabric.a.context.create_channel().unwrap();
    assert!(matches!(
        other_context.create_cq_with_channel(1, &channel),
        Err(Error::Foreign { .. })
    ));
}

#[test]
fn sizes_beyond_the_limits_are_refused_by_name() {
    let fabric = Fabric::new(1);
    let host = &fabric.a;
    let create = |sizes: QpSizes| {
        host.context.create_qp(
            &host.pd,
            &QpInit {
                sizes,
                ..QpInit::new(&host.cq)
            },
        )
    };
    let good = QpSizes::default();
    for (name, sizes) in [
        (
            "max_send_wr",
            QpSizes {
                max_send_wr: 1 << 20,
                ..good
            },
        ),
        (
            "max_recv_wr",
            QpSizes {
                max_recv_wr: 1 << 20,
                ..good
            },
        ),
        (
            "max_send_sge",
            QpSizes {
                max_send_sge: 1000,
                ..good
            },
        ),
        (
            "max_inline",
            QpSizes {
                max_inline: 1 << 20,
                ..good
            },
        ),
        ("max_mpr", QpSizes { max_mpr: 0, ..good }),
        (
            "max_wimm",
            QpSizes {
                max_wimm: u16::MAX,
                ..good
            },
        ),
    ] {
        let refused = create(sizes).unwrap_err().to_string();
        assert!(refused.starts_with(name) && !refused.contains('\n'), "{refused}");
    }
    assert!(host.context.create_cq(0).is_err());
    assert!(host.context.create_cq(u32::MAX).is_err());
    assert!(host.pd.register_owned(0, Access::empty()).is_err());
    assert!(host.pd.register_owned(1, Access::REMOTE_WRITE).is_err());
    let zero = create(QpSizes {
        max_send_wr: 0,
        max_recv_wr: 0,
        ..good
    })
    .unwrap();
    assert!(zero.sizes().max_send_wr >= 1);
}

// protocol.md §5.4
#[test]
fn the_receive_window_can_be_changed_while_data_flows() {
    let fabric = Fabric::new(2);
    let (a, b) = fabric.connected();
    assert!(
        a.query()
            .unwrap()
            .attrs
            .capabilities
            .contains(crate::QpCapabilities::DYNAMIC_MPR)
    );
    let write = |size: usize| {
        let data = noise(size, size as u64);
        fabric.a.region.write_at(0, &data).unwrap();
        let piece = fabric.a.region.slice(0..size).unwrap();
        a.post_write(&SendRequest::write(1, piece, fabric.b.region.remote()))
            .unwrap();
        assert!(fabric.a.completion().is_ok());
        assert!(fabric.b.region.to_vec(0, size).unwrap() == data);
    };
    for mpr in [1, 8, 2] {
        b.modify(&QpAttr {
            mpr_dest: Some(mpr),
            ..QpAttr::default()
        })
        .unwrap();
        assert_eq!(b.query().unwrap().attrs.mpr_dest, mpr);
        write(900_000);
    }
    let beyond = b.modify(&QpAttr {
        mpr_dest: Some(9),
        ..QpAttr::default()
    });
    assert!(beyond.is_err(), "above what it was made for");
    assert_eq!(b.query().unwrap().attrs.mpr_dest, 2);
}
