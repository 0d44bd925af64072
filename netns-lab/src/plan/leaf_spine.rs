//! Leaf-spine fabrics: hosts under T0s, every T0 of a plane joined to every T1 of it.
//!
//! Routes are static, as in a fabric that steers by addresses: what lies behind a dead link is lost until its sender takes another
//! path. For what the kernel itself sends (and for MRC where the routing is `ecmp`) T0s spread over their T1s, by a hash.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layout::{self, ROUTE_METRIC};
use super::{
    BLOCK_BITS, End, Interface, Link, Node, Place, Prefix, Role, Route, Spread, Tier, host_sid, node_v4, node_v6, sid,
    sid_prefix, t0_sid, t1_sid,
};
use crate::Topology;
use crate::fabric::{FabricSpec, Routing};

/// The name of a T0.
pub(super) fn t0_name(plane: usize, number: usize) -> String {
    format!("t0.{number}.p{plane}")
}

/// The name of a T1.
pub(super) fn t1_name(plane: usize, number: usize) -> String {
    format!("t1.{number}.p{plane}")
}

pub(super) fn lay_out(topology: &Topology, nodes: &mut Vec<Node>, links: &mut Vec<Link>) {
    let Some(spec) = &topology.fabric else { return };
    for plane in 1..=spec.planes {
        let first = nodes.len();
        for number in 0..spec.t0 {
            let mut switch = switch(
                spec,
                Place {
                    tier: Tier::T0,
                    plane,
                    number,
                },
            );
            let node = first + number;
            let hosts = nodes.iter_mut().take(topology.hosts).enumerate();
            for (h, host) in hosts.filter(|(h, _)| spec.t0_of(*h) == number) {
                links.push(layout::host_link(topology, plane, (h, host), (node, &mut switch)));
            }
            nodes.push(switch);
        }
        for number in 0..spec.t1 {
            let mut spine = switch(
                spec,
                Place {
                    tier: Tier::T1,
                    plane,
                    number,
                },
            );
            for (t0, leaf) in nodes[first..first + spec.t0].iter_mut().enumerate() {
                links.push(fabric_link(
                    spec,
                    (plane, t0, number),
                    (first + t0, leaf),
                    (first + spec.t0 + number, &mut spine),
                ));
            }
            nodes.push(spine);
        }
        let t0s = &mut nodes[first..first + spec.t0];
        t0s.iter_mut().for_each(spread_upwards);
    }
    if spec.routing.tunnelled() {
        add_sid_routes(topology, nodes);
    }
}

fn switch(spec: &FabricSpec, place: Place) -> Node {
    let Place { tier, plane, number } = place;
    let (name, tier) = match tier {
        Tier::T0 => (t0_name(plane, number), 0),
        Tier::T1 => (t1_name(plane, number), 1),
    };
    let sid = place.sid();
    let mut node = Node::new(name, Role::Switch);
    node.place = Some(place);
    // Names the switch in ICMP errors: `traceroute` shows the way.
    let v6 = Ipv6Addr::new(
        0xfd4d,
        0x5243,
        0xffff,
        plane as u16,
        0,
        0,
        tier.into(),
        number as u16 + 1,
    );
    let v4 = Ipv4Addr::new(10, 255, plane as u8, tier * 100 + number as u8 + 1);
    node.loopback = layout::both(v4, 32, v6, 128);
    // Different in every switch, or all flows that one has sent to a port would take the same port of the next; never 0, which
    // means "drawn by the kernel".
    node.hash_seed = Some(spec.seed.wrapping_mul(0x9e37_79b1).wrapping_add(u32::from(sid)).max(1));
    node.kernel_sid = (spec.routing == Routing::Srv6Kernel).then_some(sid);
    node
}

/// Next hops between switches are link-local addresses, for IPv4 too: these links need no addresses.
fn fabric_link(
    spec: &FabricSpec,
    (plane, t0, t1): (usize, usize, usize),
    (leaf_node, leaf): (usize, &mut Node),
    (spine_node, spine): (usize, &mut Node),
) -> Link {
    let port = |name: String, side: u8| Interface {
        name,
        mac: [0x02, 0x01, plane as u8, t0 as u8, t1 as u8, side],
        mtu: spec.mtu,
        addresses: Vec::new(),
        routes: Vec::new(),
        neighbours: Vec::new(),
        plane: Some(plane),
        rate_bps: Some(spec.fabric_link_bps),
    };
    let mut up = port(format!("t1.{t1}"), 1);
    let mut down = port(format!("t0.{t0}"), 2);
    up.neighbours.push((down.link_local().into(), down.mac));
    down.neighbours.push((up.link_local().into(), up.mac));
    let hosts = (0..spec.hosts()).filter(|h| spec.t0_of(*h) == t0);
    down.routes = hosts
        .flat_map(|h| [host_prefix(node_v4(h).into()), host_prefix(node_v6(h).into())])
        .map(|destination| route(destination, up.link_local(), 0))
        .collect();
    if spec.routing == Routing::Srv6Kernel {
        up.routes
            .push(route(sid_prefix(t1_sid(plane, t1)), down.link_local(), 0));
        down.routes
            .push(route(sid_prefix(t0_sid(plane, t0)), up.link_local(), 0));
    }
    let ends = [
        End {
            node: leaf_node,
            interface: leaf.add(up),
        },
        End {
            node: spine_node,
            interface: spine.add(down),
        },
    ];
    Link { ends }
}

/// What is not under a T0 itself is above it.
fn spread_upwards(leaf: &mut Node) {
    let uplinks: Vec<(usize, Ipv6Addr)> = leaf
        .interfaces
        .iter()
        .enumerate()
        .filter(|(_, port)| port.addresses.is_empty())
        .filter_map(|(n, port)| match port.neighbours.first() {
            Some(&(IpAddr::V6(hop), _)) => Some((n, hop)),
            _ => None,
        })
        .collect();
    if uplinks.is_empty() {
        return;
    }
    for any in [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()] {
        leaf.spread.push(Spread {
            destination: Prefix {
                address: any,
                length: 0,
            },
            legs: uplinks.clone(),
        });
    }
}

/// Hosts send whatever begins with the block to their T0, whose kernel, if it forwards, knows its hosts by their uSIDs.
fn add_sid_routes(topology: &Topology, nodes: &mut [Node]) {
    let Some(spec) = &topology.fabric else { return };
    let block = Prefix {
        address: sid::container(&[]).into(),
        length: BLOCK_BITS,
    };
    for node in nodes {
        for port in &mut node.interfaces {
            let Some(plane) = port.plane else { continue };
            let hop = port.neighbours.iter().find_map(|(address, _)| match address {
                IpAddr::V6(v6) => Some(*v6),
                IpAddr::V4(_) => None,
            });
            let Some(hop) = hop else { continue };
            match node.role {
                Role::Host => port.routes.push(route(block, hop, ROUTE_METRIC + plane as u32)),
                Role::Switch if spec.routing == Routing::Srv6Kernel => {
                    if let Some(host) = port.name.strip_prefix('h').and_then(|n| n.parse().ok()) {
                        port.routes.push(route(sid_prefix(host_sid(plane, host)), hop, 0));
                    }
                }
                Role::Switch | Role::Management => {}
            }
        }
    }
}

fn host_prefix(address: IpAddr) -> Prefix {
    Prefix {
        address,
        length: if address.is_ipv4() { 32 } else { 128 },
    }
}

fn route(destination: Prefix, via: Ipv6Addr, metric: u32) -> Route {
    Route {
        destination,
        via: via.into(),
        source: None,
        metric: ROUTE_METRIC.max(metric),
    }
}
