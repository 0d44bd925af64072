//! What congestion control is told about the network (protocol.md §10.3).

use super::fixed::Fixed;
use super::sample::RttSample;
use crate::time::{SEC, US};

/// The way to one peer, as far as it is known. Speeds are in bit/s; 0 counts as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Sum of the own links over the planes in use.
    pub link_bps: u64,
    /// The same of the peer; `None` = as the own (protocol.md §3).
    pub peer_bps: Option<u64>,
    /// The slowest single link of a path.
    pub path_bps: u64,
    /// Links of a path that store a packet before they forward it: 2 under one T0, 4 over a T1.
    pub path_links: u8,
    /// Nominal size of a full packet.
    pub mtu_bytes: u32,
    /// Idle round trip of a full packet on the longest path, measured; `None` = [`Network::DEFAULT_BASE_RTT_NS`], or longer on slow
    /// links.
    pub base_rtt_ns: Option<u64>,
    /// How much idle round trips differ because hosts are busy (P25); 0 = not measured.
    pub jitter_ns: u64,
    /// Switches trim instead of dropping, and the peer says so.
    pub trimming: bool,
}

impl Network {
    /// Idle round trip of software endpoints on fast links (protocol.md §10.3).
    pub const DEFAULT_BASE_RTT_NS: u64 = 50 * US;

    /// Nominal size of the SACK that ends a round trip (wire-format.md §6): IP, UDP, BTH, SETH, `CC_STATE`, ICRC.
    const SACK_BYTES: u64 = 40 + 8 + 12 + 28 + 8 + 4;

    /// So many planes of links with this speed, under one T0, without trimming; nothing measured.
    pub const fn new(planes: u8, path_bps: u64, mtu_bytes: u32) -> Self {
        Self {
            link_bps: path_bps.saturating_mul(planes as u64),
            peer_bps: None,
            path_bps,
            path_links: 2,
            mtu_bytes,
            base_rtt_ns: None,
            jitter_ns: 0,
            trimming: false,
        }
    }

    /// `config_base_rtt`: as measured, else 50 us, else - on links so slow that this cannot be - the time that a full packet
    /// and its SACK spend on the links (protocol.md §10.3; the 50 us are of hosts, not of links).
    pub fn config_base_rtt_ns(&self) -> u64 {
        let wires_ns = self.serialisation_ns(u64::from(self.mtu_bytes) + Self::SACK_BYTES);
        self.base_rtt_ns
            .unwrap_or_else(|| wires_ns.max(Self::DEFAULT_BASE_RTT_NS))
            .clamp(1, u64::from(u32::MAX))
    }

    /// The slower of both ends (protocol.md §10.3).
    pub fn linkspeed_bps(&self) -> u64 {
        self.link_bps.min(self.peer_bps.unwrap_or(u64::MAX)).max(1)
    }

    /// How long `bytes` are on all links of a path, one way.
    fn serialisation_ns(&self, bytes: u64) -> u64 {
        self.ns_per_byte().times(bytes).round()
    }

    /// Time that each byte of a packet adds to its round trip.
    pub(super) fn ns_per_byte(&self) -> Fixed {
        let links = u128::from(self.path_links.max(1));
        Fixed::ratio(links * 8 * u128::from(SEC), u128::from(self.path_bps.max(1)))
    }
}

/// Round trips of small packets made comparable with those of full ones (protocol.md §10.4 `UpdateBase`, P25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Normaliser {
    ns_per_byte: Fixed,
    mtu_bytes: u32,
}

impl Normaliser {
    pub(super) fn new(network: &Network) -> Self {
        Self {
            ns_per_byte: network.ns_per_byte(),
            mtu_bytes: network.mtu_bytes,
        }
    }

    /// The round trip that a full packet would have made.
    pub(super) fn full_ns(&self, sample: RttSample) -> u64 {
        let missing_bytes = self.mtu_bytes.saturating_sub(sample.bytes);
        let missing_ns = self.ns_per_byte.times(u64::from(missing_bytes)).round();
        sample.ns.saturating_add(missing_ns)
    }
}
