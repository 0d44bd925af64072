//! The plan of a lab: every node, interface, address, route and link, as plain data before anything is built.
//!
//! [`Plan::new`] turns a [`Topology`] into it, [`Lab`](crate::Lab) executes it and replays parts of it when a link comes back,
//! `netns-lab show` prints it. One scheme of addresses serves all topologies; hosts count from 0, planes from 1:
//!
//! | What | IPv4 | IPv6 |
//! |---|---|---|
//! | node address of host h, on `lo` (`protocol.md` §3: the GID) | `10.0.0.(h+1)/32` | `fd4d:5243::(h+1)/128` |
//! | `pair`: port of host h in plane n | `10.n.0.(h+1)/24` | `fd4d:5243:n::(h+1)/64` |
//! | `leaf`: port of host h in plane n | `10.n.(h+1).1/30` | `fd4d:5243:n:(h+1)::1/64` |
//! | `leaf`: the T0's end of it | `10.n.(h+1).2/30` | `fd4d:5243:n:(h+1)::2/64` |
//! | management port of host h | `172.16.0.(h+1)/24` | |

mod layout;
mod leaf_spine;
mod paths;
mod show;
mod sid;

pub use paths::{Path, PathEv};
pub(crate) use paths::{STRUCTURED_PORT, SidField, sid_fields};
pub use sid::{BLOCK, BLOCK_BITS, adjacency_sid, host_sid, sid_prefix, t0_sid, t1_sid};

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{LabError, Shape, Topology};

/// An address with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// Number of leading bits that name the network.
    pub length: u8,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A route out of the interface that owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub destination: Prefix,
    /// The next hop.
    pub via: IpAddr,
    /// The preferred source address, for what the kernel itself sends.
    pub source: Option<IpAddr>,
    /// Smaller is preferred.
    pub metric: u32,
}

/// One end of a link, or the bridge of the management node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name inside its namespace.
    pub name: String,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its MTU, bytes.
    pub mtu: u32,
    /// The addresses on it.
    pub addresses: Vec<Prefix>,
    /// The routes over it.
    pub routes: Vec<Route>,
    /// Permanent neighbour entries, if the topology asks for them.
    pub neighbours: Vec<(IpAddr, [u8; 6])>,
    /// The plane it belongs to; none on the management network.
    pub plane: Option<usize>,
    /// How fast it sends; none: as fast as the machine can.
    pub rate_bps: Option<u64>,
}

/// A route over several interfaces of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// Where to.
    pub destination: Prefix,
    /// Interfaces, as indices into [`Node::interfaces`], and the next hop on each.
    pub legs: Vec<(usize, Ipv6Addr)>,
}

impl Interface {
    /// The link-local address that the kernel gives it, made from its MAC address (RFC 4291, appendix A).
    pub fn link_local(&self) -> Ipv6Addr {
        let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
        let mac = self.mac;
        Ipv6Addr::new(
            0xfe80,
            0,
            0,
            0,
            pair(mac[0] ^ 2, mac[1]),
            pair(mac[2], 0xff),
            pair(0xfe, mac[3]),
            pair(mac[4], mac[5]),
        )
    }
}

/// What a namespace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Runs applications.
    Host,
    /// Forwards between its interfaces.
    Switch,
    /// Bridges the management ports of all hosts.
    Management,
}

/// How far a switch is from the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// A leaf: hosts are joined to it.
    T0,
    /// A spine: T0s are joined to it.
    T1,
}

/// Which switch of a fabric this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its tier.
    pub tier: Tier,
    /// Its plane, from 1.
    pub plane: usize,
    /// Its number among those of its tier and plane, from 0.
    pub number: usize,
}

impl Place {
    /// Its uSID.
    pub fn sid(&self) -> u16 {
        match self.tier {
            Tier::T0 => t0_sid(self.plane, self.number),
            Tier::T1 => t1_sid(self.plane, self.number),
        }
    }
}

/// One namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// `h0`, `h1`, ... for hosts; `t0.p1` for the T0 of plane 1 in `leaf`; `t0.0.p1`, `t1.2.p1` for T0 0 and T1 2 of plane 1 in a
    /// fabric; `mgmt`.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// The addresses on its `lo`, beside the kernel's own.
    pub loopback: Vec<Prefix>,
    /// Its interfaces; what belongs to a host's plane n is named `pn`.
    pub interfaces: Vec<Interface>,
    /// Its routes over several interfaces.
    pub spread: Vec<Spread>,
    /// Where a switch of a `fabric` stands.
    pub place: Option<Place>,
    /// Its own uSID, if the kernel is to process it (wire-format.md §5).
    pub kernel_sid: Option<u16>,
    /// Where its hash over the legs of a [`Spread`] starts from.
    pub hash_seed: Option<u32>,
}

impl Node {
    fn new(name: String, role: Role) -> Self {
        Self {
            name,
            role,
            loopback: Vec::new(),
            interfaces: Vec::new(),
            spread: Vec::new(),
            place: None,
            kernel_sid: None,
            hash_seed: None,
        }
    }

    fn add(&mut self, interface: Interface) -> usize {
        self.interfaces.push(interface);
        self.interfaces.len() - 1
    }
}

/// An interface of the plan: indices into [`Plan::nodes`] and [`Node::interfaces`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Index of the node.
    pub node: usize,
    /// Index of the interface in it.
    pub interface: usize,
}

/// A cable. The first end is a host's where there is a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its two ends.
    pub ends: [End; 2],
}

/// Everything that is to be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The topology that it was made from.
    pub topology: Topology,
    /// Hosts first, in order; then switches; last the management node.
    pub nodes: Vec<Node>,
    /// All links, fabric and management.
    pub links: Vec<Link>,
}

/// The node address of a host, IPv4: its GID in IPv4-mapped form names it to peers.
pub fn node_v4(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1)
}

/// The node address of a host, IPv6.
pub fn node_v6(host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd4d, 0x5243, 0, 0, 0, 0, 0, host as u16 + 1)
}

/// The management address of a host.
pub fn mgmt_v4(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(172, 16, 0, host as u8 + 1)
}

impl Plan {
    /// Lays out a topology.
    pub fn new(topology: &Topology) -> Result<Self, LabError> {
        topology.validate()?;
        let mut nodes: Vec<Node> = (0..topology.hosts)
            .map(|h| {
                let mut node = Node::new(format!("h{h}"), Role::Host);
                node.loopback = layout::both(node_v4(h), 32, node_v6(h), 128);
                node
            })
            .collect();
        let mut links = Vec::new();
        match topology.shape {
            Shape::Pair => layout::pair(topology, &mut nodes, &mut links),
            Shape::Leaf => layout::leaf(topology, &mut nodes, &mut links),
            Shape::Fabric => leaf_spine::lay_out(topology, &mut nodes, &mut links),
        }
        layout::management(topology, &mut nodes, &mut links);
        Ok(Self {
            topology: topology.clone(),
            nodes,
            links,
        })
    }

    /// An interface by its place.
    pub fn interface(&self, end: End) -> &Interface {
        &self.nodes[end.node].interfaces[end.interface]
    }

    /// All pairs of hosts, both ways round.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let hosts = self.topology.hosts;
        (0..hosts).flat_map(move |a| (0..hosts).filter(move |b| *b != a).map(move |b| (a, b)))
    }

    /// The other end of an interface's link; every interface has one.
    pub fn far(&self, end: End) -> Option<End> {
        self.links.iter().find_map(|link| match link.ends {
            [a, b] if a == end => Some(b),
            [a, b] if b == end => Some(a),
            _ => None,
        })
    }

    /// `h0:p1`.
    pub fn end_name(&self, end: End) -> String {
        format!("{}:{}", self.nodes[end.node].name, self.interface(end).name)
    }

    /// The name of a link: `h0-t0.0.p1`, `t0.0.p1-t1.2.p1`; in `pair`, where the nodes do not say the plane, `h0-h1.p1`.
    pub fn link_name(&self, link: &Link) -> String {
        let [a, b] = link.ends.map(|end| &self.nodes[end.node]);
        match self.interface(link.ends[0]).plane {
            Some(plane) if b.role == Role::Host => format!("{}-{}.p{plane}", a.name, b.name),
            _ => format!("{}-{}", a.name, b.name),
        }
    }

    /// The links of the fabric (not those of the management network), in the order in which they are built.
    pub fn fabric_links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|l| self.interface(l.ends[0]).plane.is_some())
    }

    /// The fabric link of that name.
    pub fn link(&self, name: &str) -> Result<Link, LabError> {
        let found = self.fabric_links().find(|l| self.link_name(l) == name);
        found.copied().ok_or_else(|| LabError::UnknownLink {
            name: name.to_owned(),
            example: self.fabric_links().next().map_or(String::new(), |l| self.link_name(l)),
        })
    }

    /// The link at a host's port of a plane, the host's end first.
    pub fn host_link(&self, host: usize, plane: usize) -> Option<[End; 2]> {
        self.links.iter().find_map(|link| {
            let [a, b] = link.ends;
            [[a, b], [b, a]]
                .into_iter()
                .find(|ends| ends[0].node == host && self.interface(ends[0]).plane == Some(plane))
        })
    }

    /// The index of the node of that name.
    pub fn node(&self, name: &str) -> Result<usize, LabError> {
        self.nodes
            .iter()
            .position(|n| n.name == name)
            .ok_or_else(|| LabError::UnknownNode {
                name: name.to_owned(),
                known: self
                    .nodes
                    .iter()
                    .map(|n| n.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// The variables by which every command finds all hosts and its own ports.
    pub fn env(&self) -> Vec<(String, String)> {
        let ports: Vec<String> = (1..=self.topology.planes).map(port_name).collect();
        let mut env = vec![("MRC_PORTS".to_owned(), ports.join(","))];
        for h in 0..self.topology.hosts {
            env.push((format!("H{h}_MGMT"), mgmt_v4(h).to_string()));
            env.push((format!("H{h}_GID4"), node_v4(h).to_string()));
            env.push((format!("H{h}_GID6"), node_v6(h).to_string()));
        }
        env
    }
}

/// The name of a host's port in a plane.
pub fn port_name(plane: usize) -> String {
    format!("p{plane}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::FabricSpec;

    fn plans() -> Vec<Plan> {
        [
            Topology::pair(1),
            Topology::pair(16),
            Topology::leaf(2, 8),
            Topology::leaf(64, 16),
            Topology::fabric(FabricSpec {
                planes: 8,
                t0: 4,
                t1: 4,
                hosts_per_t0: 2,
                ..FabricSpec::default()
            }),
            Topology::fabric(FabricSpec {
                planes: 2,
                hosts_per_t0: 5,
                ..FabricSpec::default()
            }),
        ]
        .map(|t| Plan::new(&t).unwrap())
        .into()
    }

    #[test]
    fn every_mac_and_link_address_is_used_once() {
        for plan in plans() {
            let all: Vec<&Interface> = plan.nodes.iter().flat_map(|n| &n.interfaces).collect();
            let macs: HashSet<[u8; 6]> = all.iter().map(|i| i.mac).collect();
            assert_eq!(macs.len(), all.len());
            let addresses: Vec<IpAddr> = all.iter().flat_map(|i| &i.addresses).map(|p| p.address).collect();
            assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), addresses.len());
        }
    }

    #[test]
    fn every_interface_is_the_end_of_one_link() {
        for plan in plans() {
            let interfaces: usize = plan.nodes.iter().map(|n| n.interfaces.len()).sum();
            assert_eq!(plan.links.len() * 2, interfaces);
        }
    }

    #[test]
    fn every_host_has_a_route_to_every_peer_on_every_plane_in_both_families() {
        for plan in plans() {
            let (hosts, planes) = (plan.topology.hosts, plan.topology.planes);
            for host in 0..hosts {
                for plane in 1..=planes {
                    let [end, far] = plan.host_link(host, plane).unwrap();
                    let port = plan.interface(end);
                    assert_eq!(port.name, port_name(plane));
                    assert_eq!(port.routes.len(), 2 * (hosts - 1));
                    let hops: Vec<IpAddr> = plan.interface(far).addresses.iter().map(|a| a.address).collect();
                    assert!(port.routes.iter().all(|r| hops.contains(&r.via)));
                }
            }
        }
    }

    #[test]
    fn every_end_is_the_far_end_of_its_far_end() {
        for plan in plans() {
            for end in plan.links.iter().flat_map(|l| l.ends) {
                let far = plan.far(end).unwrap();
                assert_ne!(far, end);
                assert_eq!(plan.far(far), Some(end));
            }
        }
    }

    #[test]
    fn every_link_of_a_plan_is_found_by_its_name() {
        for plan in plans() {
            for link in plan.fabric_links() {
                assert_eq!(plan.link(&plan.link_name(link)).unwrap(), *link);
            }
        }
    }

    #[test]
    fn a_missing_node_is_told_with_the_names_there_are() {
        let message = Plan::new(&Topology::leaf(2, 1))
            .unwrap()
            .node("h2")
            .unwrap_err()
            .to_string();
        assert_eq!(message, "no 'h2' in this lab: it has h0, h1, t0.p1, mgmt");
    }

    #[test]
    fn the_environment_names_every_host_and_all_ports() {
        let env = Plan::new(&Topology::pair(2)).unwrap().env();
        let env: Vec<String> = env.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            env,
            [
                "MRC_PORTS=p1,p2",
                "H0_MGMT=172.16.0.1",
                "H0_GID4=10.0.0.1",
                "H0_GID6=fd4d:5243::1",
                "H1_MGMT=172.16.0.2",
                "H1_GID4=10.0.0.2",
                "H1_GID6=fd4d:5243::2",
            ]
        );
    }
}
