//! Where a packet carries its entropy value (wire-format.md §3).

use crate::Ev;

/// Which half of a 32-bit EV lies in the flow label and which in the UDP source port (W4).
///
/// Over IPv4 there is no flow label: the port carries the low half in either layout, and the upper half reads as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EvLayout {
    /// `EV[31:16]` = flow label, `EV[15:0]` = source port.
    #[default]
    FlowHigh,
    /// `EV[31:16]` = source port, `EV[15:0]` = flow label.
    PortHigh,
}

impl EvLayout {
    /// The EV of an IPv6 packet (the inner header when tunnelled), as a responder reflects it.
    #[inline]
    pub const fn reflect(self, flow_label: u32, src_port: u16) -> Ev {
        let (label, port) = (flow_label & 0xffff, src_port as u32);
        match self {
            Self::FlowHigh => Ev(label << 16 | port),
            Self::PortHigh => Ev(port << 16 | label),
        }
    }

    /// The EV of an IPv4 packet.
    #[inline]
    pub const fn reflect_ipv4(src_port: u16) -> Ev {
        Ev(src_port as u32)
    }

    /// Flow label (its top four bits are 0) and UDP source port of an IPv6 packet on this path.
    #[inline]
    pub const fn place(self, ev: Ev) -> (u32, u16) {
        let (high, low) = (ev.0 >> 16, ev.0 & 0xffff);
        match self {
            Self::FlowHigh => (high, low as u16),
            Self::PortHigh => (low, high as u16),
        }
    }
}
