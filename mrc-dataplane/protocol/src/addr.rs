//! The addresses of a node: one for all ports, or one for each (protocol.md §3, P2).
//!
//! Programs exchange a GID, which is the node's address. That is all there is to know where every port has it. Elsewhere the
//! configuration of a device says which address a peer has on each port, by table or by template.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mrc_wire::PortNum;
use thiserror::Error;

/// A node's address, and those of its ports where they are others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddrs {
    node: IpAddr,
    /// In the order of ports.
    ports: Box<[(PortNum, IpAddr)]>,
}

/// Why addresses are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddrError {
    /// IPv4 and IPv6 do not talk to each other.
    #[error("port {port}: {addr} is not of the family of {node}, the address of the node: give one that is")]
    Family {
        /// The port.
        port: PortNum,
        /// Its address.
        addr: IpAddr,
        /// The node's.
        node: IpAddr,
    },
    /// A port has one address.
    #[error("port {0} has two addresses: leave one out")]
    Twice(PortNum),
    /// More bits than an address has.
    #[error("prefix {0}/{1} is longer than the address: at most {max}", max = bits(*.0))]
    Length(IpAddr, u8),
    /// Two templates could both be meant.
    #[error("nodes {0}/{1} have a template already: leave one out")]
    Known(IpAddr, u8),
}

impl NodeAddrs {
    /// The same address on every port.
    pub fn one(node: IpAddr) -> Self {
        Self {
            node: node.to_canonical(),
            ports: Box::default(),
        }
    }

    /// Addresses of its own for some ports; others have the node's.
    pub fn with_ports(node: IpAddr, ports: impl IntoIterator<Item = (PortNum, IpAddr)>) -> Result<Self, AddrError> {
        let node = node.to_canonical();
        let mut list: Vec<_> = ports
            .into_iter()
            .map(|(port, addr)| (port, addr.to_canonical()))
            .collect();
        list.sort_unstable();
        if let Some(pair) = list.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(AddrError::Twice(pair[0].0));
        }
        match list.iter().find(|(_, addr)| addr.is_ipv4() != node.is_ipv4()) {
            Some(&(port, addr)) => Err(AddrError::Family { port, addr, node }),
            None => Ok(Self {
                node,
                ports: list.into_boxed_slice(),
            }),
        }
    }

    /// The GID.
    pub const fn node(&self) -> IpAddr {
        self.node
    }

    /// The address on a port.
    pub fn on(&self, port: PortNum) -> IpAddr {
        let own = self.ports.iter().find(|(other, _)| *other == port);
        own.map_or(self.node, |&(_, addr)| addr)
    }

    /// All of them, the node's first: what the peer record is found by.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let ports = self.ports.iter().map(|&(_, addr)| addr);
        core::iter::once(self.node).chain(ports.filter(|&addr| addr != self.node))
    }

    /// Is it one of them?
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.iter().any(|own| own == addr)
    }

    /// Source and destination of what leaves on `port`, control packets too: both ends' addresses of that port. `tunnelled`:
    /// in an SRv6 tunnel, whose outer addresses are the EV's; inside, the destination is the node.
    pub fn towards(&self, peer: &Self, port: PortNum, tunnelled: bool) -> (IpAddr, IpAddr) {
        let destination = if tunnelled { peer.node } else { peer.on(port) };
        (self.on(port), destination)
    }

    /// Is a packet with these addresses one from `peer` to this node? On which port it came does not matter.
    pub fn accepts(&self, peer: &Self, source: IpAddr, destination: IpAddr) -> bool {
        peer.contains(source) && self.contains(destination)
    }
}

/// What a device is told about the addresses of its peers. A table goes before templates, a template of fewer nodes before
/// one of more; a peer of which nothing is said has one address.
#[derive(Clone, Debug, Default)]
pub struct AddressMap {
    table: BTreeMap<IpAddr, NodeAddrs>,
    templates: Vec<Template>,
}

/// The addresses of all nodes of one network.
#[derive(Clone, Debug)]
struct Template {
    nodes: Prefix,
    /// The network of each port: its prefix, with the host part of the node's address.
    ports: Vec<(PortNum, IpAddr)>,
}

impl AddressMap {
    /// One peer.
    pub fn insert(&mut self, addrs: NodeAddrs) {
        self.table.insert(addrs.node(), addrs);
    }

    /// All nodes of `network/prefix_len`: on each of these ports a node has the first `prefix_len` bits of the port's network, and the
    /// rest of its own address.
    ///
    /// ```
    /// use mrc_protocol::AddressMap;
    /// use mrc_wire::PortNum;
    ///
    /// let mut map = AddressMap::default();
    /// let ports = [(1, "10.1.0.0"), (2, "10.2.0.0")];
    /// let ports = ports.map(|(num, network)| (PortNum::new(num).unwrap(), network.parse().unwrap()));
    /// map.insert_template("10.0.0.0".parse()?, 16, ports)?;
    /// let peer = map.peer("10.0.7.9".parse()?);
    /// assert_eq!(peer.on(PortNum::new(2).unwrap()).to_string(), "10.2.7.9");
    /// assert_eq!(peer.on(PortNum::new(3).unwrap()).to_string(), "10.0.7.9");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_template(
        &mut self,
        network: IpAddr,
        prefix_len: u8,
        ports: impl IntoIterator<Item = (PortNum, IpAddr)>,
    ) -> Result<(), AddrError> {
        let network = network.to_canonical();
        if u32::from(prefix_len) > bits(network) {
            return Err(AddrError::Length(network, prefix_len));
        }
        let nodes = Prefix {
            network,
            len: prefix_len,
        };
        // The same checks as of a node's.
        let NodeAddrs { ports, .. } = NodeAddrs::with_ports(network, ports)?;
        if self.templates.iter().any(|other| other.nodes.is_same(nodes)) {
            return Err(AddrError::Known(network, prefix_len));
        }
        self.templates.push(Template {
            nodes,
            ports: ports.into_vec(),
        });
        Ok(())
    }

    /// The addresses of the peer with this GID.
    pub fn peer(&self, gid: IpAddr) -> NodeAddrs {
        let node = gid.to_canonical();
        if let Some(known) = self.table.get(&node) {
            return known.clone();
        }
        let templates = self.templates.iter().filter(|template| template.nodes.contains(node));
        let ports = templates.max_by_key(|template| template.nodes.len).map(|template| {
            let len = template.nodes.len;
            let of_port = |&(port, network)| (port, joined(network, node, len));
            template.ports.iter().map(of_port).collect()
        });
        NodeAddrs {
            node,
            ports: ports.unwrap_or_default(),
        }
    }
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    network: IpAddr,
    len: u8,
}

impl Prefix {
    fn contains(self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.network.is_ipv4() && joined(self.network, addr, self.len) == addr
    }

    fn is_same(self, other: Self) -> bool {
        self.len == other.len && self.contains(other.network)
    }
}

fn bits(addr: IpAddr) -> u32 {
    if addr.is_ipv4() { 32 } else { 128 }
}

/// The first `len` bits of `network`, then those of `host`; of one family.
fn joined(network: IpAddr, host: IpAddr, len: u8) -> IpAddr {
    let len = u32::from(len);
    match (network, host) {
        (IpAddr::V4(network), IpAddr::V4(host)) => {
            let rest = u32::MAX.checked_shr(len).unwrap_or(0);
            Ipv4Addr::from_bits(network.to_bits() & !rest | host.to_bits() & rest).into()
        }
        (IpAddr::V6(network), IpAddr::V6(host)) => {
            let rest = u128::MAX.checked_shr(len).unwrap_or(0);
            Ipv6Addr::from_bits(network.to_bits() & !rest | host.to_bits() & rest).into()
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn port(num: u8) -> PortNum {
        PortNum::new(num).unwrap()
    }

    // protocol.md §3: one node address is all that programs exchange.
    #[test]
    fn node_with_one_address_has_it_on_every_port() {
        let (own, peer) = (NodeAddrs::one(ip("10.0.0.1")), NodeAddrs::one(ip("::ffff:10.0.0.2")));
        for num in [1, 31] {
            assert_eq!(own.towards(&peer, port(num), false), (ip("10.0.0.1"), ip("10.0.0.2")));
        }
        assert!(own.accepts(&peer, ip("10.0.0.2"), ip("10.0.0.1")));
        assert_eq!(peer.iter().collect::<Vec<_>>(), [ip("10.0.0.2")]);
    }

    // protocol.md §3: source and destination are those of the port; in a tunnel the inner destination is the node.
    #[test]
    fn packet_has_both_ends_addresses_of_the_port_that_it_leaves_from() {
        let own = NodeAddrs::with_ports(ip("fd00::1"), [(port(2), ip("fd02::1")), (port(1), ip("fd01::1"))]).unwrap();
        let peer = NodeAddrs::with_ports(ip("fd00::9"), [(port(1), ip("fd01::9"))]).unwrap();
        assert_eq!(own.towards(&peer, port(1), false), (ip("fd01::1"), ip("fd01::9")));
        assert_eq!(own.towards(&peer, port(2), false), (ip("fd02::1"), ip("fd00::9")));
        assert_eq!(own.towards(&peer, port(1), true), (ip("fd01::1"), ip("fd00::9")));
    }

    // protocol.md §3, §14: any of the peer's to any of the own, and nothing else.
    #[test]
    fn only_packets_from_a_peers_address_to_an_own_one_are_accepted() {
        let own = NodeAddrs::with_ports(ip("10.0.0.1"), [(port(1), ip("10.1.0.1"))]).unwrap();
        let peer =
            NodeAddrs::with_ports(ip("10.0.0.9"), [(port(1), ip("10.1.0.9")), (port(2), ip("10.2.0.9"))]).unwrap();
        for source in ["10.0.0.9", "10.1.0.9", "10.2.0.9"] {
            for destination in ["10.0.0.1", "10.1.0.1"] {
                assert!(own.accepts(&peer, ip(source), ip(destination)), "whatever the port");
            }
            assert!(!own.accepts(&peer, ip(source), ip("10.2.0.1")));
        }
        assert!(!own.accepts(&peer, ip("10.3.0.9"), ip("10.0.0.1")));
        assert!(
            !own.accepts(&peer, ip("10.0.0.1"), ip("10.0.0.9")),
            "the other direction"
        );
    }

    #[test]
    fn table_goes_before_templates_and_a_narrow_one_before_a_wide_one() {
        let mut map = AddressMap::default();
        map.insert_template(ip("fd00::"), 64, [(port(1), ip("fd01::"))])
            .unwrap();
        map.insert_template(ip("fd00::1:0:0:0"), 80, [(port(1), ip("fdaa::1:0:0:0"))])
            .unwrap();
        let special = NodeAddrs::with_ports(ip("fd00::5"), [(port(1), ip("fdff::1"))]).unwrap();
        map.insert(special.clone());
        let on_first = |gid: &str| map.peer(ip(gid)).on(port(1)).to_string();
        assert_eq!(on_first("fd00::7"), "fd01::7");
        assert_eq!(on_first("fd00::1:0:0:7"), "fdaa::1:0:0:7");
        assert_eq!(map.peer(ip("fd00::5")), special);
        assert_eq!(
            map.peer(ip("fd11::7")),
            NodeAddrs::one(ip("fd11::7")),
            "of which nothing is said"
        );
        assert_eq!(map.peer(ip("10.0.0.7")), NodeAddrs::one(ip("10.0.0.7")));
    }

    #[test]
    fn mapped_gids_are_the_same_nodes() {
        let mut map = AddressMap::default();
        map.insert_template(ip("10.0.0.0"), 8, [(port(3), ip("11.0.0.0"))])
            .unwrap();
        assert_eq!(map.peer(ip("::ffff:10.1.2.3")).on(port(3)), ip("11.1.2.3"));
    }

    #[test]
    fn whole_addresses_and_empty_prefixes_are_networks_too() {
        let mut map = AddressMap::default();
        map.insert_template(ip("0.0.0.0"), 0, [(port(1), ip("9.9.9.9"))])
            .unwrap();
        map.insert_template(ip("10.0.0.1"), 32, [(port(1), ip("10.1.0.1"))])
            .unwrap();
        assert_eq!(map.peer(ip("10.0.0.1")).on(port(1)), ip("10.1.0.1"));
        assert_eq!(
            map.peer(ip("10.0.0.2")).on(port(1)),
            ip("10.0.0.2"),
            "no bit is the network's"
        );
    }

    #[test]
    fn addresses_that_make_no_sense_are_refused() {
        let (node, v6) = (ip("10.0.0.1"), ip("fd00::1"));
        let family = AddrError::Family {
            port: port(2),
            addr: v6,
            node,
        };
        assert_eq!(NodeAddrs::with_ports(node, [(port(2), v6)]), Err(family));
        let twice = vec![(port(1), ip("10.1.0.1")), (port(1), ip("10.1.0.2"))];
        assert_eq!(NodeAddrs::with_ports(node, twice), Err(AddrError::Twice(port(1))));
        let mut map = AddressMap::default();
        assert_eq!(map.insert_template(node, 33, []), Err(AddrError::Length(node, 33)));
        map.insert_template(node, 24, []).unwrap();
        let other = ip("10.0.0.77");
        assert_eq!(map.insert_template(other, 24, []), Err(AddrError::Known(other, 24)));
        assert_eq!(
            AddrError::Length(node, 33).to_string(),
            "prefix 10.0.0.1/33 is longer than the address: at most 32"
        );
    }
}
