//! The invariant CRC (wire-format.md §9): CRC-32 over the packet with what routers change set to ones.

use crc_fast::{CrcAlgorithm, Digest};

use crate::packet::MAX_HEADERS_LEN;
use crate::{Bth, ICRC_LEN, Ipv4Header, Ipv6Header, Payload, UdpHeader};

/// Longest run of bytes that [`Icrc::begin`] takes at once: IPv6, UDP, BTH and the longest MRC headers.
const MAX_HEADERS: usize = Ipv6Header::LEN + UdpHeader::LEN + Bth::LEN + MAX_HEADERS_LEN;

/// A running ICRC.
///
/// The state lives in the value (about 300 bytes, no heap): start it from the headers, feed it the data in any number
/// of pieces, take the four bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Icrc(Digest);

/// Which IP header the calculation starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpKind {
    V4,
    V6,
}

impl IpKind {
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::V4 => Ipv4Header::LEN,
            Self::V6 => Ipv6Header::LEN,
        }
    }
}

impl Icrc {
    /// Starts with IP header, UDP header, BTH and as much of what follows as the caller likes, `MAX_HEADERS` bytes in
    /// all; `None` if `headers` is longer than that or does not reach the end of the BTH.
    pub(crate) fn begin(kind: IpKind, headers: Payload<'_>) -> Option<Self> {
        let mut masked = [0xff; 8 + MAX_HEADERS];
        let udp_at = 8 + kind.header_len();
        let bth_at = udp_at + UdpHeader::LEN;
        if headers.len() < kind.header_len() + UdpHeader::LEN + Bth::LEN {
            return None;
        }
        let input = masked.get_mut(..8 + headers.len())?;
        headers.copy_to(&mut input[8..]);
        match kind {
            IpKind::V4 => {
                input[9] = 0xff; // TOS
                input[16] = 0xff; // TTL
                input[18..20].fill(0xff); // header checksum
            }
            IpKind::V6 => {
                input[8] |= 0x0f; // traffic class
                input[9..12].fill(0xff); // traffic class, flow label
                input[15] = 0xff; // hop limit
            }
        }
        input[udp_at + 6..udp_at + 8].fill(0xff); // UDP checksum
        input[bth_at + Bth::VAR_RES_AT] = 0xff;

        let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
        digest.update(input);
        Some(Self(digest))
    }

    /// The ICRC of a whole packet: from its IP header to the last byte before the ICRC.
    pub(crate) fn of(kind: IpKind, packet: Payload<'_>) -> Option<[u8; ICRC_LEN]> {
        let (headers, rest) = packet.split_at(packet.len().min(MAX_HEADERS));
        let mut icrc = Self::begin(kind, headers)?;
        rest.parts().for_each(|part| icrc.update(part));
        Some(icrc.finish())
    }

    /// The next bytes of the packet.
    #[inline]
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The four bytes that end the packet, in the order in which they are sent.
    #[inline]
    pub(crate) fn finish(&self) -> [u8; ICRC_LEN] {
        (self.0.finalize() as u32).to_le_bytes()
    }
}
