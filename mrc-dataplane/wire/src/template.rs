//! Everything of a path that stays the same from packet to packet, as bytes to copy and patch.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::headers::{ipv4_sum, ipv4_sum_fold};
use crate::icrc::IpKind;
use crate::{
    Ecn, Encap, EthernetHeader, Ev, EvLayout, Ipv4Header, Ipv6Header, SrhHeader, UdpHeader, VlanTag, ether_type,
    next_header,
};

/// Longest template: VLAN tag and a tunnel with one segment-list entry.
const MAX_LEN: usize = EthernetHeader::LEN + VlanTag::LEN + Encap::Srv6Srh.ip_len() + UdpHeader::LEN;

/// Node addresses of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPair {
    /// IPv4; cannot be tunnelled (W1).
    V4 {
        /// This node.
        src: Ipv4Addr,
        /// The peer.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// This node.
        src: Ipv6Addr,
        /// The peer.
        dst: Ipv6Addr,
    },
}

/// The one entry of a segment routing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrhEntry {
    /// The second uSID container, or a copy of the first for debugging.
    pub container: Ipv6Addr,
    /// 1 when the entry extends the path, 0 when it is a copy (W12).
    pub segments_left: u8,
}

/// An SRv6 tunnel (wire-format.md §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Srv6Path {
    /// Outer source: the node address, or a global address of the sending port.
    pub src: Ipv6Addr,
    /// Outer destination: the (first) uSID container.
    pub container: Ipv6Addr,
    /// Segment routing header, if the path needs a second container.
    pub srh: Option<SrhEntry>,
}

/// What a template is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L3Path {
    /// MAC address of the sending port.
    pub src_mac: [u8; 6],
    /// MAC address of the next hop.
    pub dst_mac: [u8; 6],
    /// Tag control information of an 802.1Q tag.
    pub vlan: Option<u16>,
    /// Node addresses.
    pub ip: IpPair,
    /// Tunnel; ignored over IPv4, which cannot be tunnelled (W1).
    pub srv6: Option<Srv6Path>,
    /// TTL or hop limit of every IP header; 64 unless there is a reason.
    pub hop_limit: u8,
    /// UDP destination port.
    pub udp_port: u16,
}

/// The bytes below the BTH of every packet on one path. Make one per queue pair and port (with SRv6 per EV) and keep it.
#[derive(Clone, Copy, Debug)]
pub struct L3Template {
    bytes: [u8; MAX_LEN],
    /// End of the UDP header.
    len: usize,
    outer_at: Option<usize>,
    ip_at: usize,
    kind: IpKind,
    encap: Encap,
}

impl L3Template {
    /// Lays the headers out.
    pub fn new(path: &L3Path) -> Self {
        let mut out = Cursor {
            bytes: [0; MAX_LEN],
            at: 0,
        };
        let ethertype = match path.ip {
            IpPair::V4 { .. } => ether_type::IPV4,
            IpPair::V6 { .. } => ether_type::IPV6,
        };
        let outermost = if path.vlan.is_some() {
            ether_type::VLAN
        } else {
            ethertype
        };
        let eth = EthernetHeader {
            dst: path.dst_mac,
            src: path.src_mac,
            ethertype: outermost,
        };
        out.emit(|b| eth.emit(b));
        if let Some(tci) = path.vlan {
            out.emit(|b| VlanTag { tci, ethertype }.emit(b));
        }

        let (outer_at, encap) = match (path.ip, path.srv6) {
            (IpPair::V4 { .. }, _) => (None, Encap::Ipv4),
            (IpPair::V6 { .. }, None) => (None, Encap::Ipv6),
            (IpPair::V6 { .. }, Some(tunnel)) => (Some(out.at), out.tunnel(&tunnel, path.hop_limit)),
        };
        let ip_at = out.at;
        let kind = match path.ip {
            IpPair::V4 { src, dst } => {
                let ip = Ipv4Header {
                    version_ihl: Ipv4Header::VERSION_IHL,
                    tos: 0,
                    total_length: 0,
                    identification: 0,
                    flags_offset: Ipv4Header::DONT_FRAGMENT,
                    ttl: path.hop_limit,
                    protocol: next_header::UDP,
                    checksum: 0,
                    src,
                    dst,
                };
                out.emit(|b| ip.emit(b));
                IpKind::V4
            }
            IpPair::V6 { src, dst } => {
                out.ipv6(next_header::UDP, path.hop_limit, src, dst);
                IpKind::V6
            }
        };
        let udp = UdpHeader {
            dst_port: path.udp_port,
            ..UdpHeader::default()
        };
        out.emit(|b| udp.emit(b));
        Self {
            bytes: out.bytes,
            len: out.at,
            outer_at,
            ip_at,
            kind,
            encap,
        }
    }

    /// Bytes from the Ethernet header to the end of the UDP header.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.len
    }

    /// How its packets are carried; [`crate::overhead`] tells what that costs.
    pub const fn encap(&self) -> Encap {
        self.encap
    }

    /// Replaces both MAC addresses: the next hop changed, or was not known before.
    pub fn set_macs(&mut self, src: [u8; 6], dst: [u8; 6]) {
        self.bytes[..6].copy_from_slice(&dst);
        self.bytes[6..12].copy_from_slice(&src);
    }

    /// MAC address of the sending port.
    pub fn src_mac(&self) -> [u8; 6] {
        EthernetHeader::parse(self.bytes.first_chunk().unwrap_or(&[0; EthernetHeader::LEN])).src
    }

    /// MAC address of the next hop.
    pub fn dst_mac(&self) -> [u8; 6] {
        EthernetHeader::parse(self.bytes.first_chunk().unwrap_or(&[0; EthernetHeader::LEN])).dst
    }

    pub(crate) const fn kind(&self) -> IpKind {
        self.kind
    }

    pub(crate) const fn ip_at(&self) -> usize {
        self.ip_at
    }

    /// Writes the headers for one packet to `out`, which is [`L3Template::header_len`] bytes long.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8], ev: Ev, layout: EvLayout, dscp: u8, ecn: Ecn, udp_len: u16) {
        out.copy_from_slice(&self.bytes[..self.len]);
        let tos = ecn.tos(dscp);
        let udp_at = self.ip_at + self.kind.header_len();
        let src_port = match self.kind {
            IpKind::V4 => {
                patch_ipv4(&mut out[self.ip_at..udp_at], tos, udp_len);
                ev.0 as u16
            }
            IpKind::V6 => {
                let (flow_label, src_port) = layout.place(ev);
                patch_ipv6(&mut out[self.ip_at..udp_at], tos, flow_label, udp_len);
                if let Some(outer_at) = self.outer_at {
                    // The outer traffic class and flow label are copies of the inner ones (§5, W11).
                    let between = (udp_at - outer_at - Ipv6Header::LEN) as u16;
                    patch_ipv6(
                        &mut out[outer_at..outer_at + Ipv6Header::LEN],
                        tos,
                        flow_label,
                        udp_len + between,
                    );
                }
                src_port
            }
        };
        out[udp_at..udp_at + 2].copy_from_slice(&src_port.to_be_bytes());
        out[udp_at + 4..udp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
    }
}

fn patch_ipv4(ip: &mut [u8], tos: u8, udp_len: u16) {
    let Some(ip) = ip.first_chunk_mut::<{ Ipv4Header::LEN }>() else {
        return;
    };
    ip[1] = tos;
    [ip[2], ip[3]] = (udp_len + Ipv4Header::LEN as u16).to_be_bytes();
    [ip[10], ip[11]] = ipv4_sum_fold(ipv4_sum(ip)).to_be_bytes();
}

fn patch_ipv6(ip: &mut [u8], tos: u8, flow_label: u32, payload_len: u16) {
    let first = 6 << 28 | (tos as u32) << 20 | flow_label;
    ip[..4].copy_from_slice(&first.to_be_bytes());
    ip[4..6].copy_from_slice(&payload_len.to_be_bytes());
}

struct Cursor {
    bytes: [u8; MAX_LEN],
    at: usize,
}

impl Cursor {
    fn emit<const N: usize>(&mut self, emit: impl FnOnce(&mut [u8; N])) {
        if let Some(room) = self.bytes.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut()) {
            emit(room);
            self.at += N;
        }
    }

    fn ipv6(&mut self, next_header: u8, hop_limit: u8, src: Ipv6Addr, dst: Ipv6Addr) {
        let ip = Ipv6Header {
            version: 6,
            traffic_class: 0,
            flow_label: 0,
            payload_length: 0,
            next_header,
            hop_limit,
            src,
            dst,
        };
        self.emit(|b| ip.emit(b));
    }

    fn tunnel(&mut self, tunnel: &Srv6Path, hop_limit: u8) -> Encap {
        let Some(entry) = tunnel.srh else {
            self.ipv6(next_header::IPV6, hop_limit, tunnel.src, tunnel.container);
            return Encap::Srv6;
        };
        self.ipv6(next_header::ROUTING, hop_limit, tunnel.src, tunnel.container);
        let srh = SrhHeader {
            next_header: next_header::IPV6,
            hdr_ext_len: 2,
            routing_type: SrhHeader::ROUTING_TYPE,
            segments_left: entry.segments_left,
            last_entry: 0,
            flags: 0,
            tag: 0,
        };
        self.emit(|b| srh.emit(b));
        self.emit(|b: &mut [u8; SrhHeader::ENTRY_LEN]| *b = entry.container.octets());
        Encap::Srv6Srh
    }
}
