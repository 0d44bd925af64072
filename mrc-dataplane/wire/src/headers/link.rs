//! Ethernet and its one permitted VLAN tag (wire-format.md §2.1).

use super::{be16, put};

/// `EtherType` values.
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// 802.1Q tag.
    pub const VLAN: u16 = 0x8100;
}

/// Ethernet header, 14 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EthernetHeader {
    /// MAC address of the next hop.
    pub dst: [u8; 6],
    /// MAC address of the sending port.
    pub src: [u8; 6],
    /// One of [`ether_type`], or something that is not MRC.
    pub ethertype: u16,
}

impl EthernetHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 14;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *b;
        Self {
            dst: [d0, d1, d2, d3, d4, d5],
            src: [s0, s1, s2, s3, s4, s5],
            ethertype: be16(b, 12),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        put(out, 0, self.dst);
        put(out, 6, self.src);
        put(out, 12, self.ethertype.to_be_bytes());
    }
}

/// What follows an 802.1Q `EtherType`, 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanTag {
    /// Priority (3 bits), drop eligible (1), VLAN id (12).
    pub tci: u16,
    /// `EtherType` of the packet behind the tag.
    pub ethertype: u16,
}

impl VlanTag {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the tag.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            tci: be16(b, 0),
            ethertype: be16(b, 2),
        }
    }

    /// Writes the tag.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        put(out, 0, self.tci.to_be_bytes());
        put(out, 2, self.ethertype.to_be_bytes());
    }
}
