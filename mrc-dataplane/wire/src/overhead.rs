//! What the headers cost, and which PMTU a port's MTU can hold (wire-format.md §6).

use crate::packet::write_headers_len;
use crate::{Bth, ICRC_LEN, Ipv4Header, Ipv6Header, SrhHeader, UdpHeader};

/// How a packet is carried (wire-format.md §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encap {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv6 in an IPv6 SRv6 tunnel.
    Srv6,
    /// IPv6 in an SRv6 tunnel whose segment routing header has one entry.
    Srv6Srh,
}

impl Encap {
    /// Bytes from the outermost IP header to the one that carries UDP, that one included.
    pub const fn ip_len(self) -> usize {
        match self {
            Self::Ipv4 => Ipv4Header::LEN,
            Self::Ipv6 => Ipv6Header::LEN,
            Self::Srv6 => 2 * Ipv6Header::LEN,
            Self::Srv6Srh => 2 * Ipv6Header::LEN + SrhHeader::LEN + SrhHeader::ENTRY_LEN,
        }
    }
}

/// Bytes that the largest write (TSETH and `ImmDt`) adds to its data, Ethernet not counted: 72, 92, 132 or 156.
pub const fn of_write(encap: Encap) -> usize {
    encap.ip_len() + UdpHeader::LEN + Bth::LEN + write_headers_len(true, true) + ICRC_LEN
}

/// Data bytes of a full packet. The discriminant is the IBTA MTU code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Pmtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Pmtu {
    /// All of them, smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Data bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        128 << self as usize
    }

    /// IBTA MTU code, 1 to 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// From an IBTA MTU code.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// From a number of bytes; `None` if it is not one of the five.
    pub fn from_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|pmtu| pmtu.bytes() == bytes)
    }

    /// The largest PMTU whose full write fits into an IP MTU; `None` if not even 256 bytes do.
    pub fn from_mtu(ip_mtu: usize, encap: Encap) -> Option<Self> {
        Self::ALL
            .into_iter()
            .rev()
            .find(|pmtu| pmtu.min_ip_mtu(encap) <= ip_mtu)
    }

    /// The IP MTU that a port needs for this PMTU.
    pub const fn min_ip_mtu(self, encap: Encap) -> usize {
        self.bytes() + of_write(encap)
    }
}
