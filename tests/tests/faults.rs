//! Planes that go and come back, and peers that do not.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use mrc_tests::{Connection, End, Fabric, Node, Options, PATIENCE, Side, Stream, completions, connect, until};
use mrc_verbs::{AsyncEvent, EngineConfig, QpState, WcStatus, WorkCompletion};
use netns_lab::{Lab, LabError, Topology};

const END_PROGRAM: &str = env!("CARGO_BIN_EXE_mrc-end");

fn sent_on(node: &Node, plane: usize) -> u64 {
    node.device.counters().ports[plane - 1].tx_data_bytes
}

/// Takes plane 2 away and gives it back under load: no error, all data right, and the plane carries traffic again.
fn a_plane_goes_and_returns(planes: usize, switch: impl Fn(&Lab, bool) -> Result<(), LabError> + Sync) {
    let fabric = Fabric::new(&Topology::leaf(2, planes));
    let options = Options {
        region: 2 << 20,
        ..Options::default()
    };
    let connection = Connection::open(&fabric, &options);
    let mut stream = Stream::new(&connection, 64 << 10);
    stream.pump(100);
    let received = || fabric.lab.counters(1, 2).unwrap().rx_bytes;
    for _ in 0..2 {
        stream.pump_during(|| switch(&fabric.lab, false).unwrap());
        stream.pump(100);
        let before = received();
        stream.pump_during(|| switch(&fabric.lab, true).unwrap());
        stream.pump_until("the plane to carry data again", || received() > before + (1 << 20));
    }
    stream.finish();
    let counters = fabric.a.device.counters();
    assert_eq!(counters.completion_errors, 0);
    assert_eq!(connection.a.qp.state().unwrap(), QpState::Rts);
    assert_eq!(connection.b.qp.state().unwrap(), QpState::Rts);
}

#[test]
fn the_senders_cable_is_pulled_and_plugged_under_load() {
    a_plane_goes_and_returns(4, |lab, up| lab.set_link(0, 2, up));
}

#[test]
fn the_senders_port_is_set_down_and_up_under_load() {
    a_plane_goes_and_returns(4, |lab, up| lab.set_port(0, 2, up));
}

#[test]
fn the_receivers_cable_is_pulled_and_plugged_under_load() {
    a_plane_goes_and_returns(4, |lab, up| lab.set_link(1, 2, up));
}

#[test]
fn the_receivers_port_is_set_down_and_up_under_load() {
    a_plane_goes_and_returns(4, |lab, up| lab.set_port(1, 2, up));
}

#[test]
fn of_two_planes_either_may_go() {
    a_plane_goes_and_returns(2, |lab, up| lab.set_link(0, 2, up));
    a_plane_goes_and_returns(2, |lab, up| lab.set_link(1, 2, up));
}

#[test]
fn a_port_that_is_down_is_not_used() {
    let fabric = Fabric::new(&Topology::leaf(2, 3));
    let connection = Connection::open(&fabric, &Options::default());
    let mut stream = Stream::new(&connection, 64 << 10);
    stream.pump(50);
    stream.pump_during(|| fabric.lab.set_link(0, 3, false).unwrap());
    // What was under way when the cable was pulled has completed after this.
    stream.pump(50);
    let before = sent_on(&fabric.a, 3);
    stream.pump(100);
    assert_eq!(sent_on(&fabric.a, 3), before);
    stream.finish();
}

#[test]
fn a_port_that_goes_and_comes_is_told_to_the_program() {
    let fabric = Fabric::new(&Topology::pair(2));
    let next = || fabric.a.context.next_event(Some(PATIENCE));
    fabric.lab.set_port(0, 2, false).unwrap();
    assert_eq!(next(), Some(AsyncEvent::PortError { port: 2 }));
    fabric.lab.set_port(0, 2, true).unwrap();
    assert_eq!(next(), Some(AsyncEvent::PortActive { port: 2 }));
    // The cable: our own port stays enabled.
    fabric.lab.set_link(0, 1, false).unwrap();
    assert_eq!(next(), Some(AsyncEvent::PortError { port: 1 }));
    fabric.lab.set_link(0, 1, true).unwrap();
    assert_eq!(next(), Some(AsyncEvent::PortActive { port: 1 }));
    Connection::open(&fabric, &Options::default()).write_and_compare(100_000, 5, 1);
}

/// Posts writes and receives, makes the peer unreachable by `end`, and checks how all of it ends.
fn everything_ends(side: &Side, peer: mrc_verbs::RemoteRegion, end: impl FnOnce()) {
    const WRITES: usize = 20;
    end();
    side.give_up_soon();
    for wr_id in 0..3 {
        side.qp.post_recv(1_000 + wr_id).unwrap();
    }
    let piece = side.region.slice(0..100_000).unwrap();
    for wr_id in 0..WRITES as u64 {
        let request = mrc_verbs::SendRequest::write(wr_id, piece, peer);
        // Failures complete whether they were asked to or not.
        let request = if wr_id % 2 == 0 { request } else { request.unsignaled() };
        side.qp.post_write(&request).unwrap();
    }
    let done = completions(&side.cq, WRITES + 3);
    let (sends, recvs): (Vec<_>, Vec<_>) = done.into_iter().partition(|done| !done.is_recv);
    assert_eq!(sends[0].result, Err(WcStatus::RetryExcErr), "{:?}", side.qp.query());
    let is_flushed = |done: &&WorkCompletion| done.result == Err(WcStatus::WrFlushErr);
    assert!(
        sends[1..].iter().chain(&recvs).all(|done| is_flushed(&done)),
        "{sends:?} {recvs:?}"
    );
    assert!(sends.iter().map(|done| done.wr_id).eq(0..WRITES as u64), "{sends:?}");
    assert!(recvs.iter().map(|done| done.wr_id).eq(1_000..1_003), "{recvs:?}");
    assert_eq!(side.qp.state().unwrap(), QpState::Err);
    // What is posted now is flushed as well.
    side.qp
        .post_write(&mrc_verbs::SendRequest::write(99, piece, peer))
        .unwrap();
    assert_eq!(side.completion().result, Err(WcStatus::WrFlushErr));
}

#[test]
fn all_planes_down_is_an_error_and_flushes() {
    let fabric = Fabric::new(&Topology::leaf(2, 3));
    let connection = Connection::open(&fabric, &Options::default());
    connection.write_and_compare(100_000, 5, 1);
    everything_ends(&connection.a, connection.b.region.remote(), || {
        for plane in 1..=3 {
            fabric.lab.set_link(0, plane, false).unwrap();
        }
    });
    // A new connection works as soon as the planes do.
    for plane in 1..=3 {
        fabric.lab.set_link(0, plane, true).unwrap();
    }
    Connection::open(&fabric, &Options::default()).write_and_compare(100_000, 5, 1);
}

#[test]
fn all_cables_of_the_peer_pulled_is_an_error_and_flushes() {
    let fabric = Fabric::new(&Topology::leaf(2, 2));
    let connection = Connection::open(&fabric, &Options::default());
    connection.write_and_compare(100_000, 5, 1);
    everything_ends(&connection.a, connection.b.region.remote(), || {
        for plane in 1..=2 {
            fabric.lab.set_link(1, plane, false).unwrap();
        }
    });
}

#[test]
fn a_peer_whose_engine_stops_is_an_error_and_flushes() {
    let fabric = Fabric::new(&Topology::pair(2));
    let connection = Connection::open(&fabric, &Options::default());
    connection.write_and_compare(100_000, 5, 1);
    let Connection { a, b, .. } = connection;
    let remote = b.region.remote();
    let Fabric { a: node, b: peer, lab } = fabric;
    everything_ends(&a, remote, || {
        drop(b);
        drop(peer);
    });
    // The peer starts again on the same ports.
    let peer = Node::open(lab.host(1), EngineConfig::default()).unwrap();
    Connection::between(&node, &peer, &Options::default()).write_and_compare(100_000, 5, 1);
    drop((a, node, peer));
    drop(lab);
}

#[test]
fn a_queue_pair_that_the_peer_destroyed_is_an_error_and_flushes() {
    let fabric = Fabric::new(&Topology::pair(2));
    let connection = Connection::open(&fabric, &Options::default());
    let other = Connection::open(&fabric, &Options::default());
    connection.write_and_compare(100_000, 5, 1);
    let Connection { a, b, .. } = connection;
    let remote = b.region.remote();
    everything_ends(&a, remote, || drop(b.qp));
    other.write_and_compare(100_000, 5, 1);
}

/// A node in this process, and another process on host 1 that plays `role`; connected.
fn with_process(lab: &Lab, role: &str) -> (Node, Side, End, mrc_verbs::RemoteRegion) {
    let node = Node::open(lab.host(0), EngineConfig::default()).unwrap();
    let mut end = End::start(lab.host(1), END_PROGRAM, role, &[]);
    let options = Options::default();
    let side = Side::new(&node, &options);
    let (theirs, region) = end.offer();
    let theirs = theirs.only(options.family).unwrap();
    let mine = side.offer(&options);
    end.tell(&mine, side.region.remote());
    connect(&side.qp, mine, theirs, &options).unwrap();
    assert_eq!(end.line(), "connected");
    (node, side, end, region)
}

#[test]
fn a_target_that_is_killed_is_an_error_and_flushes() {
    let lab = Fabric::lab(&Topology::leaf(2, 2));
    let (node, side, end, region) = with_process(&lab, "target");
    side.qp
        .post_write(&mrc_verbs::SendRequest::write(
            1,
            side.region.slice(0..500_000).unwrap(),
            region,
        ))
        .unwrap();
    assert!(side.completion().is_ok());
    everything_ends(&side, region, || end.kill());
    drop((side, node));
    drop(lab);
}

#[test]
fn a_source_that_is_killed_leaves_target_and_ports_usable() {
    let lab = Fabric::lab(&Topology::leaf(2, 2));
    let (node, side, mut end, _) = with_process(&lab, "source");
    assert_eq!(end.line(), "writing");
    end.kill();
    // The kernel has taken the program and the sockets back: another engine starts on the same ports.
    let mut peer = None;
    until("the ports to be free", || {
        peer = Node::open(lab.host(1), EngineConfig::default()).ok();
        peer.is_some()
    });
    let peer = peer.unwrap();
    Connection::between(&node, &peer, &Options::default()).write_and_compare(300_000, 5, 1);
    Connection::between(&peer, &node, &Options::default()).write_and_compare(300_000, 5, 1);
    assert_eq!(
        side.qp.state().unwrap(),
        QpState::Rts,
        "a target does not notice, and need not"
    );
    drop((side, node, peer));
    drop(lab);
}
