//! Peers: one record per remote node, shared by the queue pairs that talk to it (protocol.md §3).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use mrc_protocol::{EndpointLimits, Instant, Qpcc};
use mrc_wire::{IpPair, L3Path, L3Template, PortNum, PortSet};

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
    pub(super) cc: Qpcc,
    /// By port number minus one.
    pub(super) hops: Vec<Hop>,
    /// Ports whose next hop is known.
    pub(super) resolved: PortSet,
    /// Ports that may lead to the peer: resolved, or not known yet.
    pub(super) hopeful: PortSet,
    /// Queue pairs that wait for the window.
    pub(super) waiting: VecDeque<u32>,
    /// What the node as such has told us.
    pub(super) node: mrc_protocol::Peer,
    /// When an EV probe was last sent to it.
    pub(super) probed: Option<Instant>,
    users: u32,
}

impl Peer {
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
            cc: Qpcc::fixed(config.window_packets).with_trimming(config.fabric_trims),
            hops: Vec::with_capacity(ports.len()),
            resolved: PortSet::EMPTY,
            hopeful: PortSet::EMPTY,
            waiting: VecDeque::new(),
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
