//! IPv4, IPv6, segment routing header and UDP (wire-format.md §2.2 to §2.4, §5).

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{be16, be32, be128, put};

/// Values of the protocol and next-header fields.
pub mod next_header {
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IPv6.
    pub const IPV6: u8 = 41;
    /// Routing header.
    pub const ROUTING: u8 = 43;
}

/// IPv4 header without options, 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Version and header length; 0x45 is the only one that MRC knows.
    pub version_ihl: u8,
    /// DSCP << 2 | ECN.
    pub tos: u8,
    /// Of the header and all behind it.
    pub total_length: u16,
    /// Any; it is inside the ICRC.
    pub identification: u16,
    /// Don't fragment = 0x4000; more fragments = 0x2000; offset in the low 13 bits.
    pub flags_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// 17.
    pub protocol: u8,
    /// See [`Ipv4Header::checksum_ok`].
    pub checksum: u16,
    /// Node that sends.
    pub src: Ipv4Addr,
    /// Node that receives.
    pub dst: Ipv4Addr,
}

impl Ipv4Header {
    /// Bytes on the wire.
    pub const LEN: usize = 20;
    /// Version 4, header of five words.
    pub const VERSION_IHL: u8 = 0x45;
    /// The don't-fragment flag in `flags_offset`.
    pub const DONT_FRAGMENT: u16 = 0x4000;

    /// Reads the header, whatever its version and header length say.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            version_ihl: b[0],
            tos: b[1],
            total_length: be16(b, 2),
            identification: be16(b, 4),
            flags_offset: be16(b, 6),
            ttl: b[8],
            protocol: b[9],
            checksum: be16(b, 10),
            src: Ipv4Addr::from_bits(be32(b, 12)),
            dst: Ipv4Addr::from_bits(be32(b, 16)),
        }
    }

    /// Writes the header with its `checksum` as it stands.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        out[0] = self.version_ihl;
        out[1] = self.tos;
        put(out, 2, self.total_length.to_be_bytes());
        put(out, 4, self.identification.to_be_bytes());
        put(out, 6, self.flags_offset.to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol;
        put(out, 10, self.checksum.to_be_bytes());
        put(out, 12, self.src.octets());
        put(out, 16, self.dst.octets());
    }

    /// Part of a larger packet?
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.flags_offset & 0x3fff != 0
    }

    /// Does the checksum of these bytes hold (RFC 791)?
    #[inline]
    pub fn checksum_ok(b: &[u8; Self::LEN]) -> bool {
        ipv4_sum_fold(ipv4_sum(b)) == 0
    }
}

/// Sum of the ten words of a header, not folded: others may be added before [`ipv4_sum_fold`].
#[inline]
pub(crate) fn ipv4_sum(b: &[u8; Ipv4Header::LEN]) -> u32 {
    b.chunks_exact(2)
        .map(|word| (word[0] as u32) << 8 | word[1] as u32)
        .sum()
}

/// The one's complement of the one's-complement sum: the checksum field of a header summed with that field 0.
#[inline]
pub(crate) const fn ipv4_sum_fold(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    !(((once >> 16) + (once & 0xffff)) as u16)
}

/// IPv6 header, 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// 6 for every header that MRC accepts.
    pub version: u8,
    /// DSCP << 2 | ECN.
    pub traffic_class: u8,
    /// 20 bits; the low 16 carry a half of the EV.
    pub flow_label: u32,
    /// Of all behind this header.
    pub payload_length: u16,
    /// One of [`next_header`], or something that is not MRC.
    pub next_header: u8,
    /// Like IPv4's time to live.
    pub hop_limit: u8,
    /// Node that sends.
    pub src: Ipv6Addr,
    /// Node that receives; in an outer header the uSID container.
    pub dst: Ipv6Addr,
}

impl Ipv6Header {
    /// Bytes on the wire.
    pub const LEN: usize = 40;

    /// Reads the header, whatever its version says.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        let first = be32(b, 0);
        Self {
            version: (first >> 28) as u8,
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
            payload_length: be16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            src: Ipv6Addr::from_bits(be128(b, 8)),
            dst: Ipv6Addr::from_bits(be128(b, 24)),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let first = (self.version as u32) << 28 | (self.traffic_class as u32) << 20 | self.flow_label & 0x000f_ffff;
        put(out, 0, first.to_be_bytes());
        put(out, 4, self.payload_length.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        put(out, 8, self.src.octets());
        put(out, 24, self.dst.octets());
    }
}

/// The fixed part of a segment routing header (RFC 8754), 8 bytes; the segment list follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrhHeader {
    /// 41.
    pub next_header: u8,
    /// Units of 8 bytes behind the first 8: 2 per segment.
    pub hdr_ext_len: u8,
    /// 4 for segment routing.
    pub routing_type: u8,
    /// Segments still to be visited; a receiver does not look.
    pub segments_left: u8,
    /// Index of the last entry of the segment list.
    pub last_entry: u8,
    /// 0.
    pub flags: u8,
    /// 0.
    pub tag: u16,
}

impl SrhHeader {
    /// Bytes of the fixed part.
    pub const LEN: usize = 8;
    /// `routing_type` of segment routing.
    pub const ROUTING_TYPE: u8 = 4;
    /// Bytes of one segment-list entry.
    pub const ENTRY_LEN: usize = 16;

    /// Bytes of the whole header, segment list included: 8 to 2048.
    #[inline]
    pub const fn total_len(&self) -> usize {
        8 + 8 * self.hdr_ext_len as usize
    }

    /// Reads the fixed part.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            next_header: b[0],
            hdr_ext_len: b[1],
            routing_type: b[2],
            segments_left: b[3],
            last_entry: b[4],
            flags: b[5],
            tag: be16(b, 6),
        }
    }

    /// Writes the fixed part.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let [tag_hi, tag_lo] = self.tag.to_be_bytes();
        *out = [
            self.next_header,
            self.hdr_ext_len,
            self.routing_type,
            self.segments_left,
            self.last_entry,
            self.flags,
            tag_hi,
            tag_lo,
        ];
    }
}

/// UDP header, 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpHeader {
    /// A half of the EV.
    pub src_port: u16,
    /// 4791, or what the deployment says.
    pub dst_port: u16,
    /// Of this header and all behind it.
    pub length: u16,
    /// Sent 0, never verified: the ICRC covers the payload.
    pub checksum: u16,
}

impl UdpHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            src_port: be16(b, 0),
            dst_port: be16(b, 2),
            length: be16(b, 4),
            checksum: be16(b, 6),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        put(out, 0, self.src_port.to_be_bytes());
        put(out, 2, self.dst_port.to_be_bytes());
        put(out, 4, self.length.to_be_bytes());
        put(out, 6, self.checksum.to_be_bytes());
    }
}
