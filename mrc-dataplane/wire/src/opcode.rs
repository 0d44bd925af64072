//! The opcodes of wire-format.md §6.

use core::fmt;

/// What a packet is; the discriminant is the value on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// First packet of a longer write: exactly PMTU bytes of data.
    WriteFirst = 0xc6,
    /// Neither first nor last packet of a write: exactly PMTU bytes.
    WriteMiddle = 0xc7,
    /// Last packet of a write: 1 to PMTU bytes.
    WriteLast = 0xc8,
    /// Last packet of a write that carries immediate data: 1 to PMTU bytes.
    WriteLastImm = 0xc9,
    /// A write of one packet: 0 to PMTU bytes.
    WriteOnly = 0xca,
    /// A write of one packet with immediate data: 0 to PMTU bytes.
    WriteOnlyImm = 0xcb,
    /// Transport ACK or NAK.
    Ack = 0xd1,
    /// Port status update or EV probe, addressed to a node.
    EndpointRequest = 0xd8,
    /// Answer to an endpoint request.
    EndpointResponse = 0xd9,
    /// Reliability SACK.
    Sack = 0xdc,
    /// Reliability NACK.
    Nack = 0xdd,
    /// Reliability probe request.
    Probe = 0xde,
}

impl Opcode {
    /// Every opcode, in order of its value.
    pub const ALL: [Self; 12] = [
        Self::WriteFirst,
        Self::WriteMiddle,
        Self::WriteLast,
        Self::WriteLastImm,
        Self::WriteOnly,
        Self::WriteOnlyImm,
        Self::Ack,
        Self::EndpointRequest,
        Self::EndpointResponse,
        Self::Sack,
        Self::Nack,
        Self::Probe,
    ];

    /// The opcode of a value on the wire, if it is in the table of wire-format.md §6.
    #[inline]
    pub const fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            0xc6 => Self::WriteFirst,
            0xc7 => Self::WriteMiddle,
            0xc8 => Self::WriteLast,
            0xc9 => Self::WriteLastImm,
            0xca => Self::WriteOnly,
            0xcb => Self::WriteOnlyImm,
            0xd1 => Self::Ack,
            0xd8 => Self::EndpointRequest,
            0xd9 => Self::EndpointResponse,
            0xdc => Self::Sack,
            0xdd => Self::Nack,
            0xde => Self::Probe,
            _ => return None,
        })
    }

    /// Does the value belong to MRC at all (`opcode[7:5]` = 0b110)? The rest of the space is plain RoCEv2's.
    #[inline]
    pub const fn in_mrc_range(value: u8) -> bool {
        value >> 5 == 0b110
    }

    /// The value on the wire.
    #[inline]
    pub const fn wire(self) -> u8 {
        self as u8
    }

    /// One of the six writes: the only packets with data, TSETH, and a PSN of their own.
    #[inline]
    pub const fn is_write(self) -> bool {
        (self as u8) < Self::Ack as u8
    }

    /// A write that ends a message with immediate data.
    #[inline]
    pub const fn has_imm(self) -> bool {
        matches!(self, Self::WriteLastImm | Self::WriteOnlyImm)
    }

    /// Begins a message.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self, Self::WriteFirst | Self::WriteOnly | Self::WriteOnlyImm)
    }

    /// Ends a message.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(
            self,
            Self::WriteLast | Self::WriteLastImm | Self::WriteOnly | Self::WriteOnlyImm
        )
    }

    /// Is the packet addressed to a node ([`crate::Qpn::ENDPOINT`]) and not to a queue pair?
    #[inline]
    pub const fn is_endpoint(self) -> bool {
        matches!(self, Self::EndpointRequest | Self::EndpointResponse)
    }

    /// Short name in capitals, as in the worked packets of wire-format.md §12.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteFirst => "WRITE_FIRST",
            Self::WriteMiddle => "WRITE_MIDDLE",
            Self::WriteLast => "WRITE_LAST",
            Self::WriteLastImm => "WRITE_LAST_IMM",
            Self::WriteOnly => "WRITE_ONLY",
            Self::WriteOnlyImm => "WRITE_ONLY_IMM",
            Self::Ack => "ACK",
            Self::EndpointRequest => "EP_REQ",
            Self::EndpointResponse => "EP_RSP",
            Self::Sack => "SACK",
            Self::Nack => "NACK",
            Self::Probe => "PROBE",
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
