//! Commands: life of objects, refusals, states.

use mrc_protocol::QpState;

use super::*;

fn refused(engine: &Engine, command: Command) -> String {
    engine
        .command(command)
        .err()
        .expect("the command is refused")
        .to_string()
}

#[test]
fn objects_in_use_cannot_be_destroyed() {
    let rig = Rig::unconnected(&Choice::default());
    let engine = &rig.a.engine;
    assert!(refused(engine, Command::DestroyPd { pd: rig.a.pd }).contains("in use"));
    assert!(refused(engine, Command::DestroyCq { cq: rig.a.cq }).contains("in use by queue pairs"));
    reply(engine, Command::DestroyQp { qpn: rig.a.qpn });
    reply(engine, Command::DestroyCq { cq: rig.a.cq });
    reply(engine, Command::DeregisterRegion { lkey: rig.a.lkey });
    reply(engine, Command::DestroyPd { pd: rig.a.pd });
    assert!(refused(engine, Command::DestroyPd { pd: rig.a.pd }).contains("no protection domain"));
    assert!(refused(engine, Command::DestroyQp { qpn: rig.a.qpn }).contains("no queue pair"));
}

#[test]
fn a_pmtu_that_does_not_fit_is_refused_with_the_remedy() {
    let choice = Choice {
        mtu: 1500,
        planes: 2,
        ..Choice::default()
    };
    let rig = Rig::unconnected(&choice);
    let [init, rtr, _] = steps(&rig.a, rig.b.qpn, rig.b.address, &choice);
    rig.a.modify(init).unwrap();
    let message = rig.a.modify(rtr).unwrap_err().to_string();
    assert_eq!(
        message,
        "path MTU 4096 needs an MTU of 4168 on mem1a, which has 1500: ip link set mem1a mtu 4168, or use path MTU 1024"
    );
    assert_eq!(rig.a.info().state, QpState::Init, "nothing has changed");
}

#[test]
fn foreign_and_impossible_addresses_are_refused() {
    let choice = Choice::default();
    let rig = Rig::unconnected(&choice);
    let [init, rtr, _] = steps(&rig.a, rig.b.qpn, rig.b.address, &choice);
    rig.a.modify(init).unwrap();
    let QpChange::ToRtr { attr, local, remote } = rtr else {
        panic!()
    };
    let with = |local, remote| rig.a.modify(QpChange::ToRtr { attr, local, remote }).unwrap_err();
    assert_eq!(with(remote, remote), CommandError::NotOurAddress(remote));
    let other_family = "fd00::1".parse().unwrap();
    assert_eq!(with(local, other_family), CommandError::PeerAddress(other_family));
    let multicast = "224.0.0.1".parse().unwrap();
    assert_eq!(with(local, multicast), CommandError::PeerAddress(multicast));
}

#[test]
fn measures_out_of_range_are_refused_by_name() {
    let rig = Rig::unconnected(&Choice::default());
    let create = CreateQp::new(rig.a.pd, rig.a.cq, rig.a.cq, 0);
    assert_eq!(
        refused(&rig.a.engine, Command::CreateQp(create)),
        "send queue depth is 0: give 1 to 32768"
    );
    assert_eq!(
        refused(&rig.a.engine, Command::CreateCq { depth: 1 << 21 }),
        "completion queue depth is 2097152: give 1 to 1048576"
    );
    let create = CreateQp::new(PdId(99), rig.a.cq, rig.a.cq, 1);
    assert_eq!(
        refused(&rig.a.engine, Command::CreateQp(create)),
        "no protection domain 99"
    );
}

#[test]
fn more_queue_pairs_than_configured_are_refused() {
    let config = EngineConfig {
        max_qps: 2,
        ..EngineConfig::default()
    };
    let rig = Rig::unconnected(&Choice {
        config,
        ..Choice::default()
    });
    let create = CreateQp::new(rig.a.pd, rig.a.cq, rig.a.cq, 1);
    let (qpn, _rings) = create_qp(&rig.a.engine, create.clone());
    assert_eq!(
        refused(&rig.a.engine, Command::CreateQp(create.clone())),
        "queue pairs: the limit of 2 is reached; raise max_qps"
    );
    reply(&rig.a.engine, Command::DestroyQp { qpn });
    create_qp(&rig.a.engine, create);
}

#[test]
fn numbers_are_not_used_again_at_once() {
    let rig = Rig::unconnected(&Choice::default());
    let mut seen = std::collections::HashSet::from([rig.a.qpn]);
    for _ in 0..100 {
        let (qpn, _rings) = create_qp(&rig.a.engine, CreateQp::new(rig.a.pd, rig.a.cq, rig.a.cq, 1));
        assert!(qpn >= Qpn::FIRST_USER);
        assert!(seen.insert(qpn), "{qpn} was used again");
        reply(&rig.a.engine, Command::DestroyQp { qpn });
    }
}

#[test]
fn an_error_flushes_and_a_reset_forgets() {
    let choice = Choice::default();
    let mut rig = Rig::new(&choice);
    for link in &rig.links {
        link.blackhole(0, true);
    }
    let target = rig.b.target();
    rig.a.write(1, &target, 0, 10);
    rig.a.post_recv(2);
    rig.a.modify(QpChange::ToErr).unwrap();
    let (first, second) = (rig.a.completion(), rig.a.completion());
    assert_eq!((first.wr_id, first.status), (1, 5));
    assert_eq!((second.wr_id, second.status), (2, 5));
    rig.a.post_recv(3);
    assert_eq!(rig.a.completion().wr_id, 3, "flushed at once");

    rig.a.modify(QpChange::ToReset).unwrap();
    rig.b.modify(QpChange::ToReset).unwrap();
    for link in &rig.links {
        link.blackhole(0, false);
    }
    connect(&rig.a, &rig.b, &choice);
    connect(&rig.b, &rig.a, &choice);
    assert_eq!(rig.a.rings.send.outstanding(), 0);
    rig.a.write(4, &target, 0, 10);
    let done = rig.a.completion();
    assert_eq!((done.wr_id, done.status), (4, 0));
}

#[test]
fn a_queue_pair_destroyed_right_after_its_last_receive_still_lets_the_peer_finish() {
    for _ in 0..20 {
        let mut rig = Rig::new(&Choice::default());
        let target = rig.b.target();
        rig.b.post_recv(1);
        let entry = SendEntry {
            remote_addr: target.0,
            rkey: target.1,
            opcode: SendEntry::WRITE_WITH_IMM,
            flags: SendEntry::SIGNALED,
            ..SendEntry::default()
        };
        rig.a.post(entry, 0, 10_000);
        assert_eq!(rig.b.completion().status, 0);
        reply(&rig.b.engine, Command::DestroyQp { qpn: rig.b.qpn });
        assert_eq!(rig.a.completion().status, 0);
    }
}

#[test]
fn an_engine_dropped_right_after_its_last_receive_still_lets_the_peer_finish() {
    for _ in 0..20 {
        let Rig {
            mut a,
            mut b,
            links: _links,
            hops: _hops,
        } = Rig::new(&Choice::default());
        let target = b.target();
        b.post_recv(1);
        let entry = SendEntry {
            remote_addr: target.0,
            rkey: target.1,
            opcode: SendEntry::WRITE_WITH_IMM,
            flags: SendEntry::SIGNALED,
            ..SendEntry::default()
        };
        a.post(entry, 0, 10_000);
        assert_eq!(b.completion().status, 0);
        drop(b);
        assert_eq!(a.completion().status, 0);
    }
}

#[test]
fn a_lost_acknowledgement_is_repeated_by_a_queue_pair_that_is_gone() {
    let mut rig = Rig::new(&Choice::default());
    let target = rig.b.target();
    // What B says is lost until its queue pair is gone.
    rig.links[0].blackhole(1, true);
    rig.b.post_recv(1);
    let entry = SendEntry {
        remote_addr: target.0,
        rkey: target.1,
        opcode: SendEntry::WRITE_WITH_IMM,
        flags: SendEntry::SIGNALED,
        ..SendEntry::default()
    };
    rig.a.post(entry, 0, 10);
    assert_eq!(rig.b.completion().status, 0);
    reply(&rig.b.engine, Command::DestroyQp { qpn: rig.b.qpn });
    rig.links[0].blackhole(1, false);
    assert_eq!(rig.a.completion().status, 0);
}

#[test]
fn attributes_say_what_fits() {
    let rig = Rig::unconnected(&Choice {
        planes: 2,
        mtu: 1500,
        ..Choice::default()
    });
    let attributes = rig.a.engine.attributes();
    assert_eq!(attributes.ports.len(), 2);
    assert_eq!(attributes.ports[1].name, "mem2a");
    assert_eq!(attributes.active_pmtu(mrc_wire::Encap::Ipv4), Some(Pmtu::B1024));
    assert!(attributes.ports[0].link_up);
    rig.links[0].set_up(false);
    wait_for("the link to be seen down", || {
        (!rig.a.engine.attributes().ports[0].link_up).then_some(())
    });
}

// protocol.md §10.3: a window needs the speed of the link, whoever knows it; the configuration knows better.
#[test]
fn a_link_that_knows_its_speed_makes_the_window_unless_the_configuration_tells_another() {
    for (claimed, configured, expected) in [
        (None, None, None),
        (Some(25_000_000_000), None, Some(25_000_000_000)),
        (Some(25_000_000_000), Some(1_000_000_000), Some(1_000_000_000)),
    ] {
        let mut config = EngineConfig::with_ports(["mem1a"]);
        config.ports[0].link_speed_bps = configured;
        let rig = Rig::new(&Choice {
            config,
            link_speed_bps: claimed,
            ..Choice::default()
        });
        assert_eq!(rig.a.engine.attributes().ports[0].link_speed_bps, expected);
        let window = end::info(&rig.a.engine, rig.a.qpn).window.unwrap();
        assert_eq!(window.cwnd_bytes.is_some(), expected.is_some());
    }
}
