//! What goes wrong ends with an error, in time, and touches nothing else.

use mrc_protocol::QpState;

use super::*;
use crate::engine::{EngineEvent, EventSink};
use crate::neigh::{NextHop, Unreachable};

const LOC_QP_OP_ERR: u8 = 2;
const LOC_PROT_ERR: u8 = 4;
const FLUSHED: u8 = 5;
const REM_ACCESS_ERR: u8 = 10;
const REM_OP_ERR: u8 = 11;
const RETRY_EXC_ERR: u8 = 12;

/// Gives up after a few milliseconds.
fn impatient(planes: u8) -> Choice {
    Choice {
        planes,
        retry: RetryAttr {
            timeout: 10,
            linear_cnt: 2,
            exp_cnt: 1,
        },
        ..Choice::default()
    }
}

fn events(engine: &Engine) -> std::sync::mpsc::Receiver<EngineEvent> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sink: Arc<dyn EventSink> = Arc::new(sender);
    engine.subscribe(&sink).unwrap();
    receiver
}

#[test]
fn a_wrong_key_is_an_access_error_at_both_ends_and_writes_nothing() {
    let mut rig = Rig::new(&Choice::default());
    let told = events(&rig.b.engine);
    rig.a.memory.write(0, &[9; 100]);
    let target = rig.b.target();
    rig.a.write(1, &(target.0, target.1 ^ 1), 0, 100);
    rig.a.write(2, &target, 0, 100);
    let done = rig.a.completion();
    assert_eq!((done.wr_id, done.status), (1, REM_ACCESS_ERR));
    let done = rig.a.completion();
    assert_eq!((done.wr_id, done.status), (2, FLUSHED));
    assert_eq!(
        told.recv_timeout(Duration::from_secs(30)),
        Ok(EngineEvent::QpAccessError(rig.b.qpn))
    );
    assert_eq!((rig.a.info().state, rig.b.info().state), (QpState::Err, QpState::Err));
    assert_eq!(rig.b.memory.read(0, 100), [0; 100]);
}

#[test]
fn a_range_one_byte_outside_the_region_is_refused() {
    let choice = Choice {
        memory: 10_000,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    let (addr, rkey) = rig.b.target();
    rig.a.write(1, &(addr + 1, rkey), 0, 10_000);
    assert_eq!(rig.a.completion().status, REM_ACCESS_ERR);
    assert_eq!(rig.b.memory.read(0, 10_000), [0; 10_000]);
}

#[test]
fn a_deregistered_region_is_not_written_any_more() {
    let mut rig = Rig::new(&Choice::default());
    let target = rig.b.target();
    rig.a.write(1, &target, 0, 100);
    assert_eq!(rig.a.completion().status, 0);
    reply(&rig.b.engine, Command::DeregisterRegion { lkey: rig.b.lkey });
    rig.a.write(2, &target, 0, 100);
    assert_eq!(rig.a.completion().status, REM_ACCESS_ERR);
}

#[test]
fn deregistering_in_the_middle_of_a_send_fails_that_send() {
    let choice = Choice {
        memory: 16 << 20,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    let target = rig.b.target();
    rig.a.write(1, &target, 0, choice.memory);
    wait_for("the first bytes", || {
        (rig.a.engine.counters().ports[0].tx_data_bytes > 0).then_some(())
    });
    reply(&rig.a.engine, Command::DeregisterRegion { lkey: rig.a.lkey });
    // From here on the memory is ours alone, whatever is still under way.
    let done = rig.a.completion();
    assert!([0, LOC_PROT_ERR].contains(&done.status), "{done:?}");
}

#[test]
fn a_local_key_that_is_none_is_a_local_protection_error() {
    let mut rig = Rig::new(&Choice::default());
    let target = rig.b.target();
    rig.a.lkey ^= 1;
    rig.a.write(1, &target, 0, 100);
    let done = rig.a.completion();
    assert_eq!((done.wr_id, done.status), (1, LOC_PROT_ERR));
    rig.a.write(2, &target, 0, 100);
    assert_eq!(rig.a.completion().status, FLUSHED);
}

#[test]
fn a_request_with_an_unknown_opcode_is_a_local_operation_error() {
    let mut rig = Rig::new(&Choice::default());
    rig.a.post(
        SendEntry {
            wr_id: 3,
            opcode: 77,
            ..SendEntry::default()
        },
        0,
        10,
    );
    let done = rig.a.completion();
    assert_eq!((done.wr_id, done.status), (3, LOC_QP_OP_ERR));
}

#[test]
fn an_immediate_without_a_receive_request_is_an_operation_error() {
    let mut rig = Rig::new(&Choice::default());
    let target = rig.b.target();
    let entry = SendEntry {
        remote_addr: target.0,
        rkey: target.1,
        opcode: SendEntry::WRITE_WITH_IMM,
        ..SendEntry::default()
    };
    rig.a.post(entry, 0, 10);
    assert_eq!(rig.a.completion().status, REM_OP_ERR);
    rig.b.post_recv(5);
    let flushed = rig.b.completion();
    assert_eq!(
        (flushed.wr_id, flushed.status, flushed.opcode),
        (5, FLUSHED, CompletionEntry::RECV)
    );
}

#[test]
fn a_plane_that_goes_down_under_load_is_no_error_and_is_used_again() {
    let choice = Choice {
        planes: 2,
        memory: 1 << 20,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    let told = events(&rig.a.engine);
    let bytes = pattern(4, choice.memory);
    rig.a.memory.write(0, &bytes);
    let target = rig.b.target();
    let round = |rig: &mut Rig| {
        rig.a.write(1, &target, 0, choice.memory);
        let done = rig.a.completion();
        assert_eq!(done.status, 0);
    };
    round(&mut rig);
    let link = rig.links[0].clone();
    rig.a.write(1, &target, 0, choice.memory);
    link.set_up(false);
    assert_eq!(rig.a.completion().status, 0);
    let down = PortNum::new(1).unwrap();
    assert_eq!(
        told.recv_timeout(Duration::from_secs(30)),
        Ok(EngineEvent::PortError(down))
    );
    let before = rig.a.engine.counters().ports[0].tx_packets;
    round(&mut rig);
    assert_eq!(
        rig.a.engine.counters().ports[0].tx_packets,
        before,
        "a port that is down was used"
    );
    link.set_up(true);
    assert_eq!(
        told.recv_timeout(Duration::from_secs(30)),
        Ok(EngineEvent::PortActive(down))
    );
    round(&mut rig);
    assert!(
        rig.a.engine.counters().ports[0].tx_packets > before,
        "a port that is up again was not used"
    );
    assert!(rig.b.memory.read(0, choice.memory) == bytes);
}

#[test]
fn a_plane_that_swallows_everything_is_no_error() {
    let choice = Choice {
        planes: 2,
        memory: 4 << 20,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    let bytes = pattern(6, choice.memory);
    rig.a.memory.write(0, &bytes);
    let target = rig.b.target();
    rig.links[1].blackhole(0, true);
    // Once is enough, unless the machine is so busy that the engine thinks that its own pauses are to blame.
    wait_for("the dead plane to be found out", || {
        rig.a.write(1, &target, 0, choice.memory);
        let status = rig.a.completion().status;
        assert_eq!(status, 0, "{}", rig.a.state());
        assert!(rig.b.memory.read(0, choice.memory) == bytes);
        (rig.a.engine.counters().evs_withdrawn() > 0).then_some(())
    });
}

#[test]
fn all_planes_down_ends_with_a_retry_error() {
    let mut rig = Rig::new(&impatient(2));
    let target = rig.b.target();
    for link in &rig.links {
        link.set_up(false);
    }
    rig.a.write(1, &target, 0, 100_000);
    rig.a.write(2, &target, 0, 100);
    let done = rig.a.completion();
    assert_eq!((done.wr_id, done.status), (1, RETRY_EXC_ERR));
    assert_eq!(rig.a.completion().status, FLUSHED);
}

#[test]
fn a_port_whose_mtu_shrinks_is_left_and_used_again_when_it_grows() {
    let mut rig = Rig::new(&Choice {
        planes: 2,
        memory: 1 << 20,
        ..Choice::default()
    });
    let bytes = pattern(8, 1 << 20);
    rig.a.memory.write(0, &bytes);
    let target = rig.b.target();
    let sent = |rig: &Rig| rig.a.engine.counters().ports[0].tx_data_bytes;
    rig.links[0].set_mtu(700);
    wait_for("the engine to leave the port", || {
        let before = sent(&rig);
        rig.a.write(1, &target, 0, 1 << 20);
        assert_eq!(rig.a.completion().status, 0);
        (sent(&rig) == before).then_some(())
    });
    rig.links[0].set_mtu(9000);
    wait_for("the engine to use the port", || {
        let before = sent(&rig);
        rig.a.write(1, &target, 0, 1 << 20);
        assert_eq!(rig.a.completion().status, 0);
        (sent(&rig) > before).then_some(())
    });
    assert!(rig.b.memory.read(0, bytes.len()) == bytes);
}

#[test]
fn all_mtus_too_small_ends_with_a_retry_error() {
    let mut rig = Rig::new(&impatient(2));
    let target = rig.b.target();
    for link in &rig.links {
        link.set_mtu(700);
    }
    rig.a.write(1, &target, 0, 100_000);
    let done = rig.a.completion();
    assert_eq!((done.wr_id, done.status), (1, RETRY_EXC_ERR));
}

#[test]
fn a_peer_that_vanishes_ends_with_a_retry_error() {
    let mut rig = Rig::new(&impatient(2));
    let target = rig.b.target();
    rig.a.write(1, &target, 0, 1000);
    assert_eq!(rig.a.completion().status, 0);
    for link in &rig.links {
        link.blackhole(0, true);
    }
    rig.a.write(2, &target, 0, 100_000);
    let done = rig.a.completion();
    assert_eq!((done.wr_id, done.status), (2, RETRY_EXC_ERR));
    assert_eq!(rig.a.info().state, QpState::Err);
}

#[test]
fn a_peer_that_no_port_leads_to_ends_with_a_retry_error_and_says_why() {
    let choice = impatient(1);
    let rig = Rig::unconnected(&choice);
    let port = PortNum::new(1).unwrap();
    let gateway = rig.b.address;
    let silent = Unreachable::NeighbourFailed { gateway };
    rig.hops[0].set(port, rig.b.address, NextHop::Unreachable(silent));
    let mut rig = rig;
    connect(&rig.a, &rig.b, &choice);
    connect(&rig.b, &rig.a, &choice);
    let target = rig.b.target();
    rig.a.write(1, &target, 0, 1000);
    assert_eq!(rig.a.completion().status, RETRY_EXC_ERR);
    let unreachable = rig.a.info().unreachable;
    assert_eq!(unreachable.len(), 1);
    assert_eq!(unreachable[0].1, "next hop 10.0.0.2 does not answer");
}

#[test]
fn a_peer_without_any_route_is_refused_with_the_remedy() {
    let choice = Choice {
        planes: 2,
        ..Choice::default()
    };
    let rig = Rig::unconnected(&choice);
    for num in 1..=2 {
        rig.hops[0].set(
            PortNum::new(num).unwrap(),
            rig.b.address,
            NextHop::Unreachable(Unreachable::NoRoute),
        );
    }
    let [init, rtr, _] = steps(&rig.a, rig.b.qpn, rig.b.address, &choice);
    rig.a.modify(init).unwrap();
    let message = rig.a.modify(rtr).unwrap_err().to_string();
    assert!(
        message.starts_with("peer 10.0.0.2: no route over mem1a, mem2a; add one per port: ip route add"),
        "{message}"
    );
    rig.hops[0].set(PortNum::new(2).unwrap(), rig.b.address, NextHop::Resolved([2; 6]));
    rig.a.modify(rtr).unwrap();
}

#[test]
fn a_next_hop_that_is_found_late_is_waited_for() {
    let choice = Choice::default();
    let mut rig = Rig::unconnected(&choice);
    let port = PortNum::new(1).unwrap();
    rig.hops[0].set(port, rig.b.address, NextHop::Pending);
    connect(&rig.a, &rig.b, &choice);
    connect(&rig.b, &rig.a, &choice);
    let target = rig.b.target();
    rig.a.write(1, &target, 0, 1000);
    assert_eq!(rig.a.completions.pop(), Ok(None));
    assert_eq!(rig.a.engine.counters().ports[0].tx_packets, 0);
    rig.hops[0].set(port, rig.b.address, NextHop::Resolved([2; 6]));
    rig.a.rings.doorbell.ring();
    assert_eq!(rig.a.completion().status, 0);
}

#[test]
fn a_completion_queue_that_overruns_fails_its_queue_pairs() {
    let choice = Choice {
        cq_depth: 2,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    let told = events(&rig.a.engine);
    let target = rig.b.target();
    for id in 0..8 {
        rig.a.write(id, &target, 0, 8);
    }
    assert_eq!(
        told.recv_timeout(Duration::from_secs(30)),
        Ok(EngineEvent::CqError(rig.a.cq))
    );
    assert_eq!(
        told.recv_timeout(Duration::from_secs(30)),
        Ok(EngineEvent::QpFatal(rig.a.qpn))
    );
    wait_for("the error", || rig.a.completions.pop().is_err().then_some(()));
    assert_eq!(rig.a.info().state, QpState::Err);
}
