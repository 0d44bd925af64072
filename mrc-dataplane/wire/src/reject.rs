//! Why a frame is not accepted: small enums, so that a counter per reason costs an index.

use core::fmt;

/// A frame that [`crate::parse`] does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// Not MRC (wire-format.md §11 steps 1 and 2): steering hands such frames to the kernel.
    NotMrc(NotMrc),
    /// MRC, but broken: dropped and counted, never answered (steps 3 to 8).
    Drop(DropReason),
}

/// Defines an enum with a text for each variant and the means to count by it.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every reason, in the order of its index.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant,)*];
            /// How many reasons there are.
            pub const COUNT: usize = [$(Self::$variant,)*].len();

            /// Position in a table of counters, below `COUNT`.
            #[inline]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// Name of the counter: lowercase, words joined by `_`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)* })
            }
        }
    };
}

reasons! {
    /// Which check of wire-format.md §11 steps 1 and 2 a frame failed.
    NotMrc {
        /// Neither IPv4 nor IPv6 behind at most one 802.1Q tag.
        EtherType => "ethertype", "neither IPv4 nor IPv6 behind at most one 802.1Q tag";
        /// The frame ends before the headers do.
        FrameShort => "frame_short", "the frame ends before its headers do";
        /// The version field contradicts the `EtherType` or the outer header.
        IpVersion => "ip_version", "the IP version does not fit the layer below";
        /// IPv4 header length other than 5 words.
        IpOptions => "ip_options", "IPv4 header length is not 20 bytes";
        /// An IP length runs past the frame or past the outer packet, or is shorter than its headers.
        IpLength => "ip_length", "an IP length does not fit the frame";
        /// A fragment of a larger IPv4 packet.
        Fragment => "fragment", "IPv4 fragment";
        /// Protocol or next header leads neither to UDP nor into an IPv6 tunnel.
        NotUdp => "not_udp", "protocol or next header leads to something other than UDP";
        /// A routing header that is not a segment routing header before IPv6.
        RoutingHeader => "routing_header", "routing header of another type than segment routing before IPv6";
        /// UDP destination port outside the configured set.
        UdpPort => "udp_port", "UDP destination port is not one of ours";
        /// Fewer than 16 bytes of UDP payload (12 with a trimmed DSCP).
        PayloadShort => "payload_short", "UDP payload is too short for BTH and ICRC";
        /// `opcode[7:5]` is not 0b110: plain RoCEv2.
        OpcodeRange => "opcode_range", "opcode is outside MRC's range (plain RoCEv2?)";
    }
}

reasons! {
    /// Which check of wire-format.md §11 steps 3 to 8 a packet failed.
    DropReason {
        /// Inside MRC's range, but not in the table (step 3).
        Opcode => "opcode", "opcode is in MRC's range but not defined";
        /// Transport version other than 0 (step 3).
        Tver => "tver", "transport version is not 0";
        /// A packet that switches may not trim carries a trimmed DSCP and is not complete (§10).
        TrimmedControl => "trimmed_control", "incomplete packet with a trimmed DSCP that is not a write";
        /// IPv4 header checksum (step 5).
        Checksum => "checksum", "IPv4 header checksum is wrong";
        /// UDP length differs from the IP payload length (step 5).
        UdpLength => "udp_length", "UDP length differs from the IP payload length";
        /// The headers, or the pad, do not fit into the UDP payload (step 5).
        Short => "short", "UDP payload is too short for the headers of its opcode";
        /// Data plus pad of a write is no multiple of four (step 5).
        Alignment => "alignment", "data and pad are not a multiple of 4 bytes";
        /// Step 6.
        Icrc => "icrc", "ICRC is wrong";
        /// A control packet with pad (step 8).
        ControlPad => "control_pad", "control packet with pad";
        /// `BTH.psn` and its copy in SETH or NETH differ (step 8, §8).
        PsnMismatch => "psn_mismatch", "BTH.psn differs from cack_psn or nack_psn";
        /// An endpoint operation to another queue pair than 2, or another packet to queue pair 2 (step 7).
        Dqp => "dqp", "queue pair 2 is for endpoint operations, and only for them";
        /// An endpoint request with a reserved operation (§7.11).
        EndpointOp => "endpoint_op", "reserved endpoint operation";
        /// A syndrome that MRC does not use (§7.6, W17).
        Syndrome => "syndrome", "AETH syndrome that MRC does not use";
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMrc(reason) => write!(f, "not MRC: {reason}"),
            Self::Drop(reason) => write!(f, "dropped: {reason}"),
        }
    }
}

impl core::error::Error for Reject {}

impl From<NotMrc> for Reject {
    fn from(reason: NotMrc) -> Self {
        Self::NotMrc(reason)
    }
}

impl From<DropReason> for Reject {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}
