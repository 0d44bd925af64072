//! What is built.

use netns_lab::{FabricSpec, Routing, Topology};
use serde::{Deserialize, Deserializer, Serialize};

/// What a write packet has beside its payload: IPv6 40, UDP 8, BTH 12, METH 4, RETH 16, TSETH 4, ICRC 4 (wire-format.md §1, §7).
const IP_TO_ICRC: usize = 88;
/// The outer IPv6 header of a tunnel (wire-format.md §5).
const OUTER: usize = 40;
/// What a link spends on a frame beside that: Ethernet header 14, FCS 4, preamble 8, gap 12.
const ETHERNET: usize = 38;

/// The table `[topology]`: a leaf-spine fabric, or, with the key `shape`, something plainer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Fabric {
    /// Switches with queues and speeds.
    LeafSpine(Box<FabricSpec>),
    /// Links as fast as the machine.
    Plain(Plain),
}

/// A fabric without limits but the machine's.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plain {
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

impl<'de> Deserialize<'de> for Fabric {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let table = toml::Table::deserialize(from)?;
        let plain = table.contains_key("shape");
        let told = |error: toml::de::Error| serde::de::Error::custom(error.message().replace('\n', " "));
        if plain {
            table.try_into().map(Fabric::Plain).map_err(told)
        } else {
            table
                .try_into()
                .map(|spec| Fabric::LeafSpine(Box::new(spec)))
                .map_err(told)
        }
    }
}

impl Fabric {
    /// What `Lab::build` takes; losses and hashes start from `seed`.
    pub(crate) fn topology(&self, seed: u64) -> Topology {
        match self {
            Fabric::LeafSpine(spec) => Topology::fabric(FabricSpec {
                seed: spec.seed.wrapping_add(seed as u32).wrapping_sub(1),
                ..(**spec).clone()
            }),
            Fabric::Plain(plain) => {
                let topology = match plain.shape {
                    ShapeName::Pair => Topology {
                        hosts: plain.hosts,
                        ..Topology::pair(plain.planes)
                    },
                    ShapeName::Leaf => Topology::leaf(plain.hosts, plain.planes),
                };
                topology.mtu(plain.mtu).static_neighbours(true)
            }
        }
    }

    /// Number of hosts.
    pub(crate) fn hosts(&self) -> usize {
        match self {
            Fabric::LeafSpine(spec) => spec.hosts(),
            Fabric::Plain(plain) => plain.hosts,
        }
    }

    /// Number of planes.
    pub(crate) fn planes(&self) -> usize {
        match self {
            Fabric::LeafSpine(spec) => spec.planes,
            Fabric::Plain(plain) => plain.planes,
        }
    }

    /// Bits per second of a host's link, if there is a limit.
    pub(crate) fn host_link_bps(&self) -> Option<u64> {
        match self {
            Fabric::LeafSpine(spec) => Some(spec.host_link_bps),
            Fabric::Plain(_) => None,
        }
    }

    /// The name of the EV profile that the lab gives hosts for a peer: the built-in one where switches hash.
    pub(crate) fn ev_profile(&self, peer: usize) -> String {
        match self {
            Fabric::LeafSpine(spec) if spec.routing != Routing::Ecmp => format!("to-h{peer}"),
            _ => "0".to_owned(),
        }
    }

    /// Payload of a full packet, and its headers from the outermost IP on.
    fn full_packet(&self) -> Option<(usize, usize)> {
        let Fabric::LeafSpine(spec) = self else { return None };
        let headers = IP_TO_ICRC + if spec.routing.tunnelled() { OUTER } else { 0 };
        let room = (spec.mtu as usize).saturating_sub(headers);
        let pmtu = [4096, 2048, 1024, 512, 256].into_iter().find(|pmtu| *pmtu <= room)?;
        Some((pmtu, headers))
    }

    /// Bytes of a full packet as switches count them, with its Ethernet header.
    pub(crate) fn full_frame(&self) -> Option<u64> {
        let (payload, headers) = self.full_packet()?;
        Some((payload + headers + 14) as u64)
    }

    /// Payload per second of a host's link at full rate, after the headers of full packets.
    pub(crate) fn payload_bps(&self) -> Option<f64> {
        let (payload, headers) = self.full_packet()?;
        Some(self.host_link_bps()? as f64 * payload as f64 / (payload + headers + ETHERNET) as f64)
    }

    /// For the report, after the number of hosts and planes.
    pub(crate) fn describe(&self) -> String {
        match self {
            Fabric::LeafSpine(spec) => format!(
                ", {} T0s and {} T1s a plane, {} Mbit/s between them, routing {}",
                spec.t0,
                spec.t1,
                spec.fabric_link_bps / 1_000_000,
                spec.routing
            ),
            Fabric::Plain(_) => ", links as fast as the machine".to_owned(),
        }
    }
}
