//! Peers: one record per remote node, shared by the queue pairs that talk to it (protocol.md §3).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use mrc_protocol::{EndpointLimits, Instant};
use mrc_wire::{Ev, IpPair, L3Path, L3Template, PortNum, PortSet, Srv6Path};

use super::config::EngineConfig;
use crate::neigh::{NextHop, NextHops};
use crate::port::Port;

/// How frames for a peer look on one port.
pub(super) enum Hop {
    Template(L3Template),
    Pending,
    Unreachable(String),
}

/// One remote node, as seen from one own address.
pub(super) struct Peer {
    pub(super) remote: IpAddr,
    pub(super) local: IpAddr,
    /// By port number minus one.
    pub(super) hops: Vec<Hop>,
    /// Ports whose next hop is known.
    pub(super) resolved: PortSet,
    /// Ports that may lead to the peer: resolved, or not known yet.
    pub(super) hopeful: PortSet,
    /// Moves whenever `hops` are looked up again: headers that were made of them are old then.
    pub(super) generation: u32,
    /// Paths for packets between the nodes, where the fabric forwards by what an EV profile says; empty: any will do.
    pub(super) ways: Vec<Way>,
    /// The next of them.
    next_way: usize,
    /// Outer source address of packets to it, with SRv6.
    pub(super) outer_source: Option<Ipv6Addr>,
    /// What the node as such has told us.
    pub(super) node: mrc_protocol::Peer,
    /// When an EV probe was last sent to it.
    pub(super) probed: Option<Instant>,
    users: u32,
}

/// A path of an EV profile, for packets that belong to no queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) port: PortNum,
    pub(super) ev: Ev,
    pub(super) tunnel: Option<Srv6Path>,
}

/// More ways than these are not kept per port of a peer.
const MAX_WAYS: usize = 16;

impl Peer {
    /// The next way over a port: each in turn, since any of them may be dead.
    pub(super) fn next_way(&mut self, port: PortNum) -> Option<Way> {
        let count = self.ways.len();
        let at = (0..count)
            .map(|step| (self.next_way + step) % count)
            .find(|&at| self.ways[at].port == port)?;
        self.next_way = at + 1;
        Some(self.ways[at])
    }

    /// Paths of a queue pair, from whose profile the ways come.
    pub(super) fn set_ways(&mut self, ways: impl Iterator<Item = Way>) {
        self.ways.clear();
        for way in ways {
            if self.ways.iter().filter(|other| other.port == way.port).count() < MAX_WAYS {
                self.ways.push(way);
            }
        }
    }

    /// The headers of a tunnel, around those of the port's own template.
    pub(super) fn tunnelled(&self, port: PortNum, tunnel: &Srv6Path, config: &EngineConfig) -> Option<L3Template> {
        let hop = self.template(port)?;
        Some(L3Template::new(&L3Path {
            src_mac: hop.src_mac(),
            dst_mac: hop.dst_mac(),
            vlan: None,
            ip: ip_pair(self.local, self.remote)?,
            srv6: Some(*tunnel),
            hop_limit: config.hop_limit,
            udp_port: config.udp_port,
        }))
    }

    pub(super) fn template(&self, port: PortNum) -> Option<&L3Template> {
        match self.hops.get(port.index()) {
            Some(Hop::Template(template)) => Some(template),
            _ => None,
        }
    }

    /// Looks all next hops up again; true if anything changed about which ports can be used.
    fn resolve(&mut self, ports: &[Box<dyn Port>], next_hops: &dyn NextHops, config: &EngineConfig) -> bool {
        let before = (self.resolved, self.hopeful);
        (self.resolved, self.hopeful) = (PortSet::EMPTY, PortSet::EMPTY);
        self.hops.clear();
        self.generation = self.generation.wrapping_add(1).max(1);
        for port in ports {
            let hop = match (
                next_hops.lookup(port.num(), self.remote),
                ip_pair(self.local, self.remote),
            ) {
                (NextHop::Resolved(dst_mac), Some(ip)) => {
                    self.resolved.insert(port.num());
                    self.hopeful.insert(port.num());
                    Hop::Template(L3Template::new(&L3Path {
                        src_mac: port.mac(),
                        dst_mac,
                        vlan: None,
                        ip,
                        srv6: None,
                        hop_limit: config.hop_limit,
                        udp_port: config.udp_port,
                    }))
                }
                (NextHop::Pending, _) => {
                    self.hopeful.insert(port.num());
                    Hop::Pending
                }
                (NextHop::Unreachable(why), _) => Hop::Unreachable(why.to_string()),
                (NextHop::Resolved(_), None) => Hop::Unreachable("the addresses are of different families".into()),
            };
            self.hops.push(hop);
        }
        (self.resolved, self.hopeful) != before
    }
}

fn ip_pair(local: IpAddr, remote: IpAddr) -> Option<IpPair> {
    match (local, remote) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(IpPair::V4 { src, dst }),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(IpPair::V6 { src, dst }),
        _ => None,
    }
}

/// The peers of one engine thread.
pub(super) struct Peers {
    records: Vec<Option<Peer>>,
    by_remote: HashMap<IpAddr, u32>,
    next_hops: Arc<dyn NextHops>,
    generation: u64,
}

impl Peers {
    pub(super) fn new(next_hops: Arc<dyn NextHops>) -> Self {
        let generation = next_hops.generation();
        Self {
            records: Vec::new(),
            by_remote: HashMap::new(),
            next_hops,
            generation,
        }
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Peer> {
        self.records.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn get(&self, index: u32) -> Option<&Peer> {
        self.records.get(index as usize)?.as_ref()
    }

    /// Indices are below this.
    pub(super) fn len(&self) -> u32 {
        self.records.len() as u32
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.records.iter_mut().flatten()
    }

    pub(super) fn find(&self, remote: IpAddr) -> Option<u32> {
        self.by_remote.get(&remote).copied()
    }

    /// The record of a node, made if needed; one more queue pair uses it.
    pub(super) fn join(
        &mut self,
        remote: IpAddr,
        local: IpAddr,
        ports: &[Box<dyn Port>],
        config: &EngineConfig,
    ) -> u32 {
        if let Some(index) = self.find(remote) {
            if let Some(peer) = self.get_mut(index) {
                peer.users += 1;
            }
            return index;
        }
        let mut peer = Peer {
            remote,
            local,
            hops: Vec::with_capacity(ports.len()),
            resolved: PortSet::EMPTY,
            hopeful: PortSet::EMPTY,
            generation: 0,
            ways: Vec::new(),
            next_way: 0,
            outer_source: None,
            node: mrc_protocol::Peer::new(
                &EndpointLimits::default(),
                ports.iter().map(|port| port.num()).collect(),
            ),
            probed: None,
            users: 1,
        };
        peer.resolve(ports, &*self.next_hops, config);
        let index = self.records.iter().position(Option::is_none).unwrap_or_else(|| {
            self.records.push(None);
            self.records.len() - 1
        });
        self.records[index] = Some(peer);
        self.by_remote.insert(remote, index as u32);
        index as u32
    }

    /// One queue pair less uses the record.
    pub(super) fn leave(&mut self, index: u32) {
        if let Some(peer) = self.get_mut(index) {
            peer.users -= 1;
            if peer.users == 0 {
                let remote = peer.remote;
                self.by_remote.remove(&remote);
                self.records[index as usize] = None;
            }
        }
    }

    /// Looks next hops up again if something changed, or if `force` says that the ports did; calls `changed` for every peer
    /// whose usable ports are others now.
    pub(super) fn follow(
        &mut self,
        force: bool,
        ports: &[Box<dyn Port>],
        config: &EngineConfig,
        mut changed: impl FnMut(u32),
    ) {
        let generation = self.next_hops.generation();
        if generation == self.generation && !force {
            return;
        }
        self.generation = generation;
        for (index, peer) in self.records.iter_mut().enumerate() {
            if let Some(peer) = peer
                && peer.resolve(ports, &*self.next_hops, config)
            {
                changed(index as u32);
            }
        }
    }
}
