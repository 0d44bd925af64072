//! What is built.

use netns_lab::Topology;
use serde::{Deserialize, Serialize};

/// What a write packet has beside its payload: IPv6 40, UDP 8, BTH 12, METH 4, RETH 16, TSETH 4, ICRC 4 (wire-format.md §1, §7).
const IP_TO_ICRC: usize = 88;
/// What a link spends on a frame beside that: Ethernet header 14, FCS 4, preamble 8, gap 12.
const ETHERNET: usize = 38;

/// The table `[topology]`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fabric {
    /// How hosts are joined.
    pub shape: ShapeName,
    /// Number of hosts.
    #[serde(default = "two")]
    pub hosts: usize,
    /// Number of planes.
    #[serde(default = "four")]
    pub planes: usize,
    /// MTU of the fabric links, bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// What engines are told of their links' speed, Mbit/s.
    #[serde(default)]
    pub link_mbps: Option<u64>,
}

/// Known shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShapeName {
    /// Two hosts back to back.
    Pair,
    /// Hosts under one T0 per plane.
    Leaf,
}

fn two() -> usize {
    2
}

fn four() -> usize {
    4
}

fn default_mtu() -> u32 {
    9000
}

impl Fabric {
    /// What `Lab::build` takes.
    pub(crate) fn topology(&self) -> Topology {
        let topology = match self.shape {
            ShapeName::Pair => Topology {
                hosts: self.hosts,
                ..Topology::pair(self.planes)
            },
            ShapeName::Leaf => Topology::leaf(self.hosts, self.planes),
        };
        topology.mtu(self.mtu).static_neighbours(true)
    }

    /// Bits per second of a host's link, if there is a limit.
    pub(crate) fn host_link_bps(&self) -> Option<u64> {
        self.link_mbps.map(|mbps| mbps * 1_000_000)
    }

    /// The hosts' ports with what their engines are told of their speed, as `MRC_PORTS` has them.
    pub(crate) fn port_arguments(&self) -> Vec<String> {
        let port = |plane: usize| match self.link_mbps {
            Some(mbps) => format!("p{plane}@{mbps}"),
            None => format!("p{plane}"),
        };
        (1..=self.planes).map(port).collect()
    }

    /// Payload per second of a link at full rate, after the headers of full packets.
    pub(crate) fn payload_bps(&self) -> Option<f64> {
        let room = (self.mtu as usize).saturating_sub(IP_TO_ICRC);
        let pmtu = [4096, 2048, 1024, 512, 256].into_iter().find(|pmtu| *pmtu <= room)?;
        let share = pmtu as f64 / (pmtu + IP_TO_ICRC + ETHERNET) as f64;
        Some(self.host_link_bps()? as f64 * share)
    }
}
