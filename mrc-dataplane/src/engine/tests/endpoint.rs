//! Requests between nodes: EV probes and port status.

use std::sync::mpsc::channel;

use mrc_wire::{
    Bth, Dscps, Ecn, EndpointOp, Erth, Ev, EvLayout, Frame, Headers, IpPair, L3Path, L3Template, Opcode, Outgoing,
    ReceiveRules, Tick, build_frame, parse,
};

use super::*;
use crate::port::Fate;

/// A request from this address to B.
fn request(src: [u8; 4], id: u32, op: EndpointOp, port_status_mask: u32) -> Vec<u8> {
    let template = L3Template::new(&L3Path {
        src_mac: [2; 6],
        dst_mac: [4; 6],
        vlan: None,
        ip: IpPair::V4 {
            src: src.into(),
            dst: [10, 0, 0, 2].into(),
        },
        srv6: None,
        hop_limit: 64,
        udp_port: 4791,
    });
    let erth = Erth {
        op,
        port_status_mask,
        tx_timestamp: Tick(77),
        ftype: 1,
    };
    let outgoing = Outgoing {
        bth: Bth::new(Opcode::EndpointRequest, Qpn::ENDPOINT, Psn::new(id)),
        headers: Headers::EndpointRequest(erth),
        ev: Ev(0xc123),
        ev_layout: EvLayout::FlowHigh,
        dscp: Dscps::default().no_trim,
        ecn: Ecn::Ect0,
        payload_len: 0,
    };
    let mut frame = vec![0; 200];
    let len = build_frame(&mut frame, &template, &outgoing, &[]).unwrap();
    frame.truncate(len);
    frame
}

/// Puts these requests in the place of what A sends next on plane 1.
fn inject(rig: &mut Rig, mut requests: Vec<Vec<u8>>) {
    rig.links[0].judge(0, move |frame| {
        if let Some(request) = requests.pop() {
            *frame = request;
        }
        Fate::Deliver
    });
    let target = rig.b.target();
    rig.a.write(1, &target, 0, 100_000);
    assert_eq!(rig.a.completion().status, 0);
}

#[test]
fn an_ev_probe_of_a_peer_is_answered_and_one_of_a_stranger_is_not() {
    let mut rig = Rig::new(&Choice::default());
    let (answer, answers) = channel();
    rig.links[0].judge(1, move |frame| {
        // Nobody listens any more when the test is over.
        let _ = answer.send(frame.clone());
        Fate::Deliver
    });
    let probe = EndpointOp::EV_PROBE;
    inject(
        &mut rig,
        vec![
            request([10, 0, 0, 1], 0x4567, probe, 0),
            request([10, 0, 0, 9], 0x1111, probe, 0),
        ],
    );
    let rules = ReceiveRules {
        udp_ports: &[4791],
        dscps: &Dscps::default(),
        ev_layout: EvLayout::FlowHigh,
    };
    let (id, eeth, dscp) = wait_for("the answer", || {
        let frame = answers.recv_timeout(Duration::from_secs(30)).unwrap();
        let packet = parse(Frame::whole(&frame), &rules).unwrap();
        match packet.headers {
            Headers::EndpointResponse(eeth) => Some((packet.bth.psn, eeth, packet.dscp)),
            _ => None,
        }
    });
    assert_eq!(id, Psn::new(0x4567));
    assert_eq!((eeth.op, eeth.tx_timestamp), (EndpointOp::EV_PROBE, Tick(77)));
    assert_eq!(dscp, Dscps::default().control);
    assert_eq!(rig.b.engine.counters().dropped("engine.unknown_peer"), 1);
}

#[test]
fn a_port_that_the_peer_says_is_down_is_not_used_towards_it() {
    let mut rig = Rig::new(&Choice {
        planes: 2,
        ..Choice::default()
    });
    let only_the_second = 0b100;
    inject(
        &mut rig,
        vec![request(
            [10, 0, 0, 1],
            1,
            EndpointOp::PORT_STATUS_UPDATE,
            only_the_second,
        )],
    );
    let before = rig.b.engine.counters().ports[0].tx_data_bytes;
    let target = rig.a.target();
    rig.b.write(2, &target, 0, 200_000);
    assert_eq!(rig.b.completion().status, 0);
    assert_eq!(rig.b.engine.counters().ports[0].tx_data_bytes, before);

    let none = 0;
    inject(
        &mut rig,
        vec![request([10, 0, 0, 1], 2, EndpointOp::PORT_STATUS_UPDATE, none)],
    );
    rig.b.write(3, &target, 0, 200_000);
    assert_eq!(
        rig.b.completion().status,
        0,
        "a mask that leaves nothing does not cut us off"
    );
}

/// Which of a queue pair's paths on this port may be used?
fn eligible_on(end: &End, num: u8) -> bool {
    let crate::engine::Reply::Paths(paths) = reply(&end.engine, Command::QueryPaths { qpn: end.qpn }) else {
        panic!("no paths")
    };
    let on_port = paths.iter().filter(|path| path.port.get() == num);
    on_port.clone().count() > 0 && on_port.clone().all(|path| path.eligible)
}

/// protocol.md §9.3: a host that loses a port says so, and its peers stop using the plane before any packet has timed out.
#[test]
fn a_port_that_goes_down_is_told_to_the_peer_and_so_is_its_return() {
    for threads in [1, 3] {
        let mut choice = Choice {
            planes: 3,
            ..Choice::default()
        };
        choice.config.threads = threads;
        let mut rig = Rig::new(&choice);
        let target = rig.a.target();
        let write = |rig: &mut Rig, wr_id| {
            rig.b.write(wr_id, &target, 0, 400_000);
            assert_eq!(rig.b.completion().status, 0);
        };
        write(&mut rig, 1);
        assert!(eligible_on(&rig.b, 2));
        rig.links[1].set_end_up(0, false);
        wait_for("B to hear of it", || (!eligible_on(&rig.b, 2)).then_some(()));
        assert!(eligible_on(&rig.b, 1) && eligible_on(&rig.b, 3));
        let before = rig.b.engine.counters();
        write(&mut rig, 2);
        let after = rig.b.engine.counters();
        assert_eq!(after.ports[1].tx_data_bytes, before.ports[1].tx_data_bytes);
        assert_eq!(after.retransmissions(), before.retransmissions());
        assert_eq!(rig.b.info().stats.timeouts, 0);
        rig.links[1].set_end_up(0, true);
        wait_for("B to hear of its return", || eligible_on(&rig.b, 2).then_some(()));
        write(&mut rig, 3);
        assert!(rig.b.engine.counters().ports[1].tx_data_bytes > after.ports[1].tx_data_bytes);
    }
}

/// protocol.md §9.3: one update that is lost is not the last.
#[test]
fn updates_that_are_lost_are_repeated_over_other_planes() {
    let mut rig = Rig::new(&Choice {
        planes: 3,
        ..Choice::default()
    });
    let target = rig.a.target();
    rig.b.write(1, &target, 0, 1000);
    assert_eq!(rig.b.completion().status, 0);
    // The first that is tried.
    rig.links[0].blackhole(0, true);
    rig.links[1].set_end_up(0, false);
    wait_for("B to hear of it", || (!eligible_on(&rig.b, 2)).then_some(()));
}

/// protocol.md §9.3: a node that is met while a port is down is told, although nothing changed since.
#[test]
fn a_peer_that_is_new_is_told_which_ports_are_down() {
    let choice = Choice {
        planes: 2,
        ..Choice::default()
    };
    let rig = Rig::unconnected(&choice);
    rig.links[1].set_end_up(0, false);
    connect(&rig.b, &rig.a, &choice);
    connect(&rig.a, &rig.b, &choice);
    wait_for("B to hear of it", || (!eligible_on(&rig.b, 2)).then_some(()));
}

/// protocol.md §6.10: one that only receives sends EV probes, and they are answered.
#[test]
fn a_receiver_probes_the_way_of_its_answers() {
    let mut rig = Rig::new(&Choice {
        planes: 2,
        ..Choice::default()
    });
    let (seen, frames) = channel();
    rig.links[0].judge(0, move |frame| {
        let _ = seen.send(frame.clone());
        Fate::Deliver
    });
    let target = rig.b.target();
    wait_for("A to answer a probe", || {
        rig.a.write(1, &target, 0, 20_000);
        assert_eq!(rig.a.completion().status, 0);
        let rules = ReceiveRules {
            udp_ports: &[4791],
            dscps: &Dscps::default(),
            ev_layout: EvLayout::FlowHigh,
        };
        frames.try_iter().find_map(|frame| {
            let packet = parse(Frame::whole(&frame), &rules).ok()?;
            match packet.headers {
                Headers::EndpointResponse(eeth) if eeth.op == EndpointOp::EV_PROBE => Some(()),
                _ => None,
            }
        })
    });
    assert_eq!(
        rig.b.engine.counters().dropped("engine.endpoint_op"),
        0,
        "B knew what it had asked"
    );
}
