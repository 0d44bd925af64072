//! What a packet carries of an expanded EV (protocol.md §7.2, wire-format.md §3, §5).

use core::net::Ipv6Addr;

use mrc_wire::{Ev, EvLayout, SrhEntry, Srv6Path};

use super::error::FieldError;
use super::field::FormatMode;
use super::value::EvValue;

/// The uSID containers of an SRv6 path (wire-format.md §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Containers {
    /// Outer IPv6 destination.
    pub destination: Ipv6Addr,
    /// The one entry of the segment routing header, which extends the path.
    pub srh: Option<Ipv6Addr>,
}

impl Containers {
    /// The tunnel of packets from this outer source. The entry extends the path, so one segment is left (W12).
    pub fn tunnel(&self, src: Ipv6Addr) -> Srv6Path {
        Srv6Path {
            src,
            container: self.destination,
            srh: self.srh.map(|container| SrhEntry {
                container,
                segments_left: 1,
            }),
        }
    }
}

/// An expanded EV as fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// The 32-bit EV of wire-format.md §3: flow label, then source port, in the default layout.
    Stev(Ev),
    /// The UDP source port.
    Udp(u16),
    /// Outer destination and SRH entry. The 32-bit tag is not in the wire value: [`super::ProfileEv::tag`].
    Srv6(Containers),
}

impl Output {
    /// A wire value that was not expanded, such as that of an endpoint request (api.md §4.6): whatever the mode does not
    /// carry must be zero, and a second container of zeros is none.
    pub fn parse(mode: FormatMode, wire: &EvValue) -> Result<Self, FieldError> {
        let limit = mode.max_bits();
        match wire.used_bits().checked_sub(1) {
            Some(bit) if bit >= limit => Err(FieldError::BeyondMode { bit, mode, limit }),
            _ => Ok(Self::of(mode, wire)),
        }
    }

    pub(super) fn of(mode: FormatMode, wire: &EvValue) -> Self {
        match mode {
            FormatMode::Stev => Self::Stev(Ev(wire.first_u32())),
            FormatMode::Udp => Self::Udp(wire.bits(0, 16) as u16),
            FormatMode::Srv6 => {
                let second = container(wire, 4);
                Self::Srv6(Containers {
                    destination: container(wire, 0),
                    srh: (!second.is_unspecified()).then_some(second),
                })
            }
        }
    }

    /// The 32 bits that a responder reflects; `None` for SRv6, whose tag is the requestor's choice (W5). Over IPv4 the
    /// source port is the lower half in either layout: ask for `FlowHigh` there.
    pub const fn tag(&self, layout: EvLayout) -> Option<Ev> {
        match (self, layout) {
            (Self::Stev(ev), _) => Some(*ev),
            (Self::Udp(port), EvLayout::FlowHigh) => Some(Ev(*port as u32)),
            (Self::Udp(port), EvLayout::PortHigh) => Some(Ev((*port as u32) << 16)),
            (Self::Srv6(_), _) => None,
        }
    }
}

/// The address in four words of the value.
fn container(wire: &EvValue, first_word: u32) -> Ipv6Addr {
    let bits = (first_word..first_word + 4).fold(0u128, |bits, word| bits << 32 | u128::from(wire.bits(32 * word, 32)));
    Ipv6Addr::from_bits(bits)
}
