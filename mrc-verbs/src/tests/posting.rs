//! Queue slots, lists, and what a post refuses.

use super::*;
use crate::{Error, PostListError, QpAttr, QpState, SendRequest, WcOpcode};

fn small(fabric: &Fabric) -> (QueuePair, QueuePair) {
    let sizes = QpSizes {
        max_send_wr: 4,
        max_recv_wr: 3,
        max_send_sge: 2,
        max_inline: 16,
        ..QpSizes::default()
    };
    let (a, b) = (fabric.a.qp_of(sizes), fabric.b.qp_of(sizes));
    connect(&a, &b);
    (a, b)
}

#[test]
fn a_signaled_write_keeps_its_slot_until_its_completion_is_taken() {
    let fabric = Fabric::new(1);
    let (a, _b) = small(&fabric);
    let remote = fabric.b.region.remote();
    for wr_id in 0..4_u8 {
        a.post_write(&SendRequest::inline(
            wr_id.into(),
            &[wr_id + 1],
            remote.at(wr_id.into()),
        ))
        .unwrap();
    }
    let fifth = SendRequest::inline(4, b"5", remote);
    assert!(matches!(a.post_write(&fifth), Err(Error::QueueFull { depth: 4, .. })));
    // All have been carried out; only the completions are still there.
    until("the last byte", || fabric.b.region.load_u8(3).unwrap() == 4);
    assert!(matches!(a.post_write(&fifth), Err(Error::QueueFull { .. })));
    assert_eq!(fabric.a.completion().wr_id, 0);
    a.post_write(&fifth).unwrap();
    assert!(matches!(a.post_write(&fifth), Err(Error::QueueFull { .. })));
    let ids: Vec<u64> = fabric.a.completions(4).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
}

#[test]
fn unsignaled_writes_never_run_dry_without_polling() {
    let fabric = Fabric::new(2);
    let (a, _b) = small(&fabric);
    for round in 1..=100_u64 {
        let bytes = round.to_ne_bytes();
        let request = SendRequest::inline(round, &bytes, fabric.b.region.remote().at(8 * round)).unsignaled();
        until("room", || match a.post_write(&request) {
            Ok(()) => true,
            Err(Error::QueueFull { .. }) => false,
            Err(error) => panic!("{error}"),
        });
    }
    // Writes land in any order.
    for round in 1..=100 {
        until("all of them", || {
            fabric.b.region.load_u64(8 * round as usize).unwrap() == round
        });
    }
    assert_eq!(fabric.a.cq.poll_one().unwrap(), None);
}

#[test]
fn a_completion_frees_the_unsignaled_ones_before_it() {
    let fabric = Fabric::new(1);
    let (a, _b) = small(&fabric);
    for _ in 0..50 {
        for wr_id in 0..4 {
            let request = SendRequest::inline(wr_id, b"x", fabric.b.region.remote());
            a.post_write(&if wr_id == 3 { request } else { request.unsignaled() })
                .unwrap();
        }
        assert_eq!(fabric.a.completion().wr_id, 3);
    }
}

#[test]
fn signal_all_makes_a_completion_for_each() {
    let fabric = Fabric::new(1);
    let init = QpInit {
        signal_all: true,
        ..QpInit::new(&fabric.a.cq)
    };
    let (a, b) = (fabric.a.context.create_qp(&fabric.a.pd, &init).unwrap(), fabric.b.qp());
    connect(&a, &b);
    a.post_write(&SendRequest::inline(9, b"x", fabric.b.region.remote()).unsignaled())
        .unwrap();
    assert_eq!(fabric.a.completion().wr_id, 9);
}

#[test]
fn a_list_is_posted_up_to_the_first_bad_request() {
    let fabric = Fabric::new(1);
    let (a, b) = small(&fabric);
    let remote = fabric.b.region.remote();
    let good = |wr_id| SendRequest::inline(wr_id, b"ok", remote);
    let too_long = [0_u8; 17];
    let list = [good(1), good(2), SendRequest::inline(3, &too_long, remote), good(4)];
    let PostListError { index, error } = a.post_write_list(&list).unwrap_err();
    assert_eq!(index, 2);
    assert!(error.to_string().contains("max_inline"), "{error}");
    let ids: Vec<u64> = fabric.a.completions(2).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [1, 2]);
    assert_eq!(fabric.a.cq.poll_one().unwrap(), None);
    assert_eq!(b.post_recv_list(&[1, 2, 3, 4]).unwrap_err().index, 3);
    a.post_write_list(&[]).unwrap();
}

#[test]
fn what_a_queue_pair_was_not_made_for_is_refused() {
    let fabric = Fabric::new(1);
    let (a, _b) = small(&fabric);
    let remote = fabric.b.region.remote();
    let piece = fabric.a.region.slice(0..8).unwrap();
    let refused = a
        .post_write(&SendRequest::write_pieces(1, &[piece; 3], remote))
        .unwrap_err();
    assert!(refused.to_string().contains("max_send_sge"), "{refused}");
    assert!(
        a.post_write(&SendRequest::write_pieces(1, &[piece; 40], remote))
            .is_err()
    );
    let other_pd = ProtectionDomain::new(&fabric.a.device).unwrap();
    let foreign = other_pd.register_owned(64, Access::empty()).unwrap();
    let refused = a.post_write(&SendRequest::write(1, (&foreign).into(), remote));
    assert!(matches!(refused, Err(Error::Foreign { .. })));
    assert_eq!(fabric.a.cq.poll_one().unwrap(), None);
}

#[test]
fn without_max_wimm_no_immediate_can_be_posted() {
    let fabric = Fabric::new(1);
    let (a, b) = (fabric.a.qp(), fabric.b.qp());
    let (of_a, of_b) = (a.offer().unwrap(), b.offer().unwrap());
    a.connect(&QpConfig::new(of_a, of_b).max_wimm(0)).unwrap();
    let request = SendRequest::inline(1, b"", fabric.b.region.remote());
    assert!(matches!(
        a.post_write(&request.with_imm([1; 4])),
        Err(Error::Invalid { .. })
    ));
    a.post_write(&request).unwrap();
}

#[test]
fn receives_are_taken_from_init_on_and_consumed_in_order() {
    let fabric = Fabric::new(2);
    let (a, b) = (fabric.a.qp(), fabric.b.qp());
    assert!(matches!(b.post_recv(1), Err(Error::PostState { .. })));
    b.modify(&QpAttr::to_state(QpState::Init)).unwrap();
    b.post_recv_list(&[10, 11, 12]).unwrap();
    connect(&a, &b);
    for number in 0..3_u8 {
        let five = [number; 5];
        let request = SendRequest::inline(number.into(), &five, fabric.b.region.remote().at(100));
        a.post_write(&request.with_imm([number, 1, 2, 3])).unwrap();
    }
    for number in 0..3_u8 {
        let wc = fabric.b.completion();
        assert_eq!(
            (wc.wr_id, wc.result),
            (10 + u64::from(number), Ok(WcOpcode::RecvRdmaWithImm))
        );
        assert_eq!((wc.imm, wc.byte_len, wc.is_recv), (Some([number, 1, 2, 3]), 5, true));
        assert_eq!((wc.qpn, wc.src_qpn), (b.qpn(), a.qpn()));
    }
    for number in 0..3 {
        let wc = fabric.a.completion();
        assert_eq!(
            (wc.wr_id, wc.result, wc.imm, wc.byte_len),
            (number, Ok(WcOpcode::RdmaWrite), None, 5)
        );
        assert_eq!((wc.qpn, wc.src_qpn, wc.is_recv), (a.qpn(), b.qpn(), false));
    }
}
