//! Endpoint operations: two nodes ask and answer, and third parties interfere (protocol.md §9.2, §9.3).

use crate::draw::Draw;
use mrc_protocol::{EndpointLimits, EndpointOps, EndpointRequest, EvProbe, Instant, Peer, RequestClass};
use mrc_wire::{
    Bth, Condition, Eeth, EndpointOp, Erth, Ev, EvLayout, Headers, Opcode, Packet, Payload, PortNum, PortSet, Psn, Qpn,
    Tick, TrafficClass,
};
use std::net::{IpAddr, Ipv6Addr};

const PLANES: u8 = 4;
const OTHER: u32 = 1;

/// A node: what it does, and its record of the other.
struct Node {
    ops: EndpointOps,
    other: Peer,
    asked: u32,
    results: u32,
}

pub(crate) fn target(data: &[u8]) {
    let mut draw = Draw::new(data);
    let limits = EndpointLimits {
        answers_per_s_and_peer: 1 + draw.below(2000),
        answers_per_s: 1 + draw.below(2000),
        burst: 1 + draw.below(64),
    };
    let own = PortSet::first(PLANES);
    let mut nodes = [0, 1].map(|low| Node {
        ops: EndpointOps::new(&limits, EvLayout::FlowHigh).with_ids(low, 1),
        other: Peer::new(&limits, own),
        asked: 0,
        results: 0,
    });
    let mut now = Instant::from_ns(1_000_000_000);
    let mut network: Vec<(usize, Bth, Headers, PortNum)> = Vec::new();
    while !draw.is_empty() {
        let at = usize::from(draw.any::<bool>());
        let room = PortSet::from_bits(draw.any());
        let node = &mut nodes[at];
        match draw.below(8) {
            0 => node
                .other
                .handle_local_ports(PortSet::from_bits(draw.any::<u32>() & own.bits()), now),
            1 => {
                let probe = EvProbe {
                    peer: OTHER,
                    token: draw.any(),
                    ev: Ev(draw.any()),
                    encap: None,
                    port: port(&mut draw),
                    class: RequestClass::Of(TrafficClass::NoTrim),
                    timeout_ns: draw.magnitude(),
                };
                node.asked += u32::from(node.ops.handle_probe(&probe, now));
            }
            2 => {
                let mut sent = Vec::new();
                while let Some(update) = node.ops.poll_update(&mut node.other, room, now) {
                    sent.push(update);
                    assert!(sent.len() < 100, "a storm of port status updates");
                }
                while let Some((peer, probe)) = node.ops.poll_probe(room, now) {
                    assert_eq!(peer, OTHER);
                    sent.push(probe);
                }
                for request in sent {
                    network.push(leaves(&request, room, 1 - at));
                }
            }
            3 | 4 => {
                if !network.is_empty() {
                    let index = draw.below(network.len() as u32) as usize;
                    let (to, bth, headers, port) = network.swap_remove(index);
                    if draw.below(8) == 7 {
                        network.push((to, bth, headers, port));
                    }
                    arrive(&mut nodes[to], &mut network, (to, bth, headers, port), now);
                }
            }
            5 => {
                let (bth, headers) = forged(&mut draw);
                let port = port(&mut draw);
                arrive(node, &mut network, (at, bth, headers, port), now);
            }
            6 => {
                now = now + (draw.magnitude() >> 20);
                for node in &mut nodes {
                    serve(node, now);
                }
            }
            _ => {
                node.other.handle_arrival(port(&mut draw), now);
            }
        }
        network.truncate(64);
        for node in &mut nodes {
            while let Some(result) = node.ops.poll_result() {
                assert_eq!(result.probe.peer, OTHER);
                node.results += 1;
            }
            assert!(node.results <= node.asked, "a probe has two results");
        }
    }
    // Whoever waits long enough has heard of every probe that could leave.
    now = now + 1_000_000_000;
    for node in &mut nodes {
        while node.ops.poll_probe(own, now).is_some() {}
    }
    let end = Instant::from_ns(u64::MAX);
    for node in &mut nodes {
        serve(node, end);
        while node.ops.poll_result().is_some() {
            node.results += 1;
        }
        assert_eq!(node.results, node.asked, "a probe has no result");
        assert!(node.ops.next_timeout().is_none_or(|at| at > end));
    }
}

fn serve(node: &mut Node, now: Instant) {
    if node.ops.next_timeout().is_some_and(|at| at <= now) {
        node.ops.handle_timeout(now);
        assert!(
            node.ops.next_timeout().is_none_or(|at| at > now),
            "a timer is due for ever"
        );
    }
}

fn port(draw: &mut Draw<'_>) -> PortNum {
    PortNum::new(1 + draw.below(PLANES.into()) as u8).expect("1 to 4")
}

fn leaves(request: &EndpointRequest, room: PortSet, to: usize) -> (usize, Bth, Headers, PortNum) {
    assert!(room.contains(request.port), "sent on a port without room");
    assert_eq!(request.bth.dqp, Qpn::ENDPOINT);
    (to, request.bth, request.headers, request.port)
}

fn arrive(
    node: &mut Node,
    network: &mut Vec<(usize, Bth, Headers, PortNum)>,
    (to, bth, headers, port): (usize, Bth, Headers, PortNum),
    now: Instant,
) {
    let packet = Packet {
        bth,
        headers,
        payload: Payload::EMPTY,
        condition: Condition::Whole,
        ev: Ev(7),
        ce: false,
        dscp: 0,
        udp_len: 40,
        src: IpAddr::V6(Ipv6Addr::LOCALHOST),
        dst: IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    node.other.handle_arrival(port, now);
    if let Ok(reply) = node.ops.handle_request(Some(&mut node.other), &packet, port, now) {
        assert_eq!((reply.port, reply.bth.dqp), (port, Qpn::ENDPOINT));
        network.push((1 - to, reply.bth, reply.headers, reply.port));
    }
    let _ = node
        .ops
        .handle_response(OTHER, Some(&mut node.other), &packet, port, now);
    assert!(
        node.ops.handle_request(None, &packet, port, now).is_err(),
        "strangers get no answer"
    );
}

fn forged(draw: &mut Draw<'_>) -> (Bth, Headers) {
    let op = draw.pick(&[EndpointOp::PORT_STATUS_UPDATE, EndpointOp::EV_PROBE]);
    let psn = Psn::new(draw.magnitude() as u32);
    let tx_timestamp = Tick(draw.any());
    let p_key = if draw.below(8) == 7 { draw.any() } else { 0xffff };
    let (opcode, headers) = if draw.any() {
        let erth = Erth {
            op,
            port_status_mask: draw.any(),
            tx_timestamp,
            ftype: 1,
        };
        (Opcode::EndpointRequest, Headers::EndpointRequest(erth))
    } else {
        (
            Opcode::EndpointResponse,
            Headers::EndpointResponse(Eeth { op, tx_timestamp }),
        )
    };
    (
        Bth {
            p_key,
            ..Bth::new(opcode, Qpn::ENDPOINT, psn)
        },
        headers,
    )
}
