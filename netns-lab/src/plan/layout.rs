//! Where nodes, addresses and routes go, topology by topology.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{End, Interface, Link, Node, Prefix, Role, Route, mgmt_v4, node_v4, node_v6, port_name};
use crate::Topology;

/// MTU of the management network.
const MGMT_MTU: u32 = 1500;
/// Routes of hosts over plane n have this metric plus n: the kernel's own traffic uses the first plane that is up, and a look-up restricted to
/// a port finds that port's route. (For IPv6 the kernel restricts a look-up to a port only if the look-up names no source address or
/// comes from a socket bound to the port.)
pub(super) const ROUTE_METRIC: u32 = 100;

/// Locally administered; `plane` 0 is the management network, `side` 1 a host's end, 2 the other.
fn mac(plane: usize, host: usize, side: u8) -> [u8; 6] {
    [0x02, 0x00, plane as u8, 0x00, host as u8 + 1, side]
}

pub(super) fn both(v4: Ipv4Addr, v4_length: u8, v6: Ipv6Addr, v6_length: u8) -> Vec<Prefix> {
    vec![
        Prefix {
            address: v4.into(),
            length: v4_length,
        },
        Prefix {
            address: v6.into(),
            length: v6_length,
        },
    ]
}

/// Routes to a host's node addresses, via `hop` (one address per family).
fn routes_to_host(host: usize, hop: &[Prefix], source: Option<usize>, plane: usize) -> Vec<Route> {
    let node = |h: usize, like: IpAddr| -> IpAddr {
        if like.is_ipv4() {
            node_v4(h).into()
        } else {
            node_v6(h).into()
        }
    };
    hop.iter()
        .map(|hop| Route {
            destination: Prefix {
                address: node(host, hop.address),
                length: if hop.address.is_ipv4() { 32 } else { 128 },
            },
            via: hop.address,
            source: source.map(|s| node(s, hop.address)),
            metric: ROUTE_METRIC + plane as u32,
        })
        .collect()
}

fn permanent(topology: &Topology, addresses: &[Prefix], mac: [u8; 6]) -> Vec<(IpAddr, [u8; 6])> {
    if topology.static_neighbours {
        addresses.iter().map(|a| (a.address, mac)).collect()
    } else {
        Vec::new()
    }
}

pub(super) fn pair(topology: &Topology, nodes: &mut [Node], links: &mut Vec<Link>) {
    for plane in 1..=topology.planes {
        let addresses: [Vec<Prefix>; 2] = [0, 1].map(|h| {
            let v6 = Ipv6Addr::new(0xfd4d, 0x5243, plane as u16, 0, 0, 0, 0, h as u16 + 1);
            both(Ipv4Addr::new(10, plane as u8, 0, h as u8 + 1), 24, v6, 64)
        });
        let ends = [0, 1].map(|h| {
            let peer = 1 - h;
            let interface = nodes[h].add(Interface {
                name: port_name(plane),
                mac: mac(plane, h, 1),
                mtu: topology.mtu,
                addresses: addresses[h].clone(),
                routes: routes_to_host(peer, &addresses[peer], Some(h), plane),
                neighbours: permanent(topology, &addresses[peer], mac(plane, peer, 1)),
                plane: Some(plane),
                rate_bps: None,
            });
            End { node: h, interface }
        });
        links.push(Link { ends });
    }
}

pub(super) fn leaf(topology: &Topology, nodes: &mut Vec<Node>, links: &mut Vec<Link>) {
    for plane in 1..=topology.planes {
        let mut switch = Node::new(format!("t0.p{plane}"), Role::Switch);
        let switch_node = nodes.len();
        for (h, host) in nodes.iter_mut().take(topology.hosts).enumerate() {
            links.push(host_link(topology, plane, (h, host), (switch_node, &mut switch)));
        }
        nodes.push(switch);
    }
}

/// Joins port `plane` of a host to its T0 there.
pub(super) fn host_link(
    topology: &Topology,
    plane: usize,
    (h, host): (usize, &mut Node),
    (switch_node, switch): (usize, &mut Node),
) -> Link {
    let end = |side: u16| {
        let v6 = Ipv6Addr::new(0xfd4d, 0x5243, plane as u16, h as u16 + 1, 0, 0, 0, side);
        both(Ipv4Addr::new(10, plane as u8, h as u8 + 1, side as u8), 30, v6, 64)
    };
    let (host_end, switch_end) = (end(1), end(2));
    let routes = (0..topology.hosts)
        .filter(|&peer| peer != h)
        .flat_map(|peer| routes_to_host(peer, &switch_end, Some(h), plane))
        .collect();
    let rate_bps = topology.fabric.as_ref().map(|spec| spec.host_link_bps);
    let host_port = Interface {
        name: port_name(plane),
        mac: mac(plane, h, 1),
        mtu: topology.mtu,
        addresses: host_end.clone(),
        routes,
        neighbours: permanent(topology, &switch_end, mac(plane, h, 2)),
        plane: Some(plane),
        rate_bps,
    };
    let switch_port = Interface {
        name: format!("h{h}"),
        mac: mac(plane, h, 2),
        mtu: topology.mtu,
        routes: routes_to_host(h, &host_end, None, 0),
        neighbours: permanent(topology, &host_end, mac(plane, h, 1)),
        addresses: switch_end,
        plane: Some(plane),
        rate_bps,
    };
    let ends = [
        End {
            node: h,
            interface: host.add(host_port),
        },
        End {
            node: switch_node,
            interface: switch.add(switch_port),
        },
    ];
    Link { ends }
}

pub(super) fn management(topology: &Topology, nodes: &mut Vec<Node>, links: &mut Vec<Link>) {
    let bare = |name: String, mac| Interface {
        name,
        mac,
        mtu: MGMT_MTU,
        addresses: Vec::new(),
        routes: Vec::new(),
        neighbours: Vec::new(),
        plane: None,
        rate_bps: None,
    };
    let mut mgmt = Node::new("mgmt".to_owned(), Role::Management);
    let node = nodes.len();
    for (h, host) in nodes.iter_mut().take(topology.hosts).enumerate() {
        let mut port = bare("mgmt".to_owned(), mac(0, h, 1));
        port.addresses.push(Prefix {
            address: mgmt_v4(h).into(),
            length: 24,
        });
        let ends = [
            End {
                node: h,
                interface: host.add(port),
            },
            End {
                node,
                interface: mgmt.add(bare(format!("h{h}"), mac(0, h, 2))),
            },
        ];
        links.push(Link { ends });
    }
    nodes.push(mgmt);
}
