//! A packet above UDP: what the protocol, the engine and the simulator hand to each other.

use core::net::IpAddr;

use crate::{Aeth, Bth, CcState, Eeth, Erth, Ev, ImmDt, Meth, Neth, Opcode, Peth, Reth, Seth, Tseth};

/// The headers behind the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// One of the six writes.
    Write {
        /// Message numbers.
        meth: Meth,
        /// Present exactly when `bth.ts` is set.
        tseth: Option<Tseth>,
        /// Where the data goes.
        reth: Reth,
        /// Present exactly on the opcodes with immediate data.
        imm: Option<ImmDt>,
    },
    /// Transport ACK or NAK.
    Ack(Aeth),
    /// Reliability SACK; no `CC_STATE` if its `cc_type` is not NSCC's.
    Sack(Seth, Option<CcState>),
    /// Reliability NACK.
    Nack(Neth),
    /// Reliability probe request.
    Probe(Peth),
    /// Endpoint request.
    EndpointRequest(Erth),
    /// Endpoint response.
    EndpointResponse(Eeth),
}

impl Headers {
    /// Bytes on the wire behind the BTH.
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Write { tseth, imm, .. } => write_headers_len(tseth.is_some(), imm.is_some()),
            Self::Ack(_) => Aeth::LEN,
            Self::Sack(..) => Seth::LEN + CcState::LEN,
            Self::Nack(_) => Neth::LEN,
            Self::Probe(_) => Peth::LEN,
            Self::EndpointRequest(_) => Erth::LEN,
            Self::EndpointResponse(_) => Eeth::LEN,
        }
    }

    /// May these headers follow this opcode?
    pub const fn fit(&self, opcode: Opcode) -> bool {
        match self {
            Self::Write { imm, .. } => opcode.is_write() && imm.is_some() == opcode.has_imm(),
            Self::Ack(_) => matches!(opcode, Opcode::Ack),
            Self::Sack(..) => matches!(opcode, Opcode::Sack),
            Self::Nack(_) => matches!(opcode, Opcode::Nack),
            Self::Probe(_) => matches!(opcode, Opcode::Probe),
            Self::EndpointRequest(_) => matches!(opcode, Opcode::EndpointRequest),
            Self::EndpointResponse(_) => matches!(opcode, Opcode::EndpointResponse),
        }
    }
}

/// Bytes behind the BTH of a write.
pub(crate) const fn write_headers_len(ts: bool, imm: bool) -> usize {
    Meth::LEN + Reth::LEN + if ts { Tseth::LEN } else { 0 } + if imm { ImmDt::LEN } else { 0 }
}

/// Bytes behind the BTH at most: an endpoint response, or a SACK with its CC_STATE.
pub(crate) const MAX_HEADERS_LEN: usize = Eeth::LEN;
const _: () = assert!(Seth::LEN + CcState::LEN <= MAX_HEADERS_LEN && write_headers_len(true, true) <= MAX_HEADERS_LEN);

/// Did the packet arrive as it was sent?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Condition {
    /// With a right ICRC.
    #[default]
    Whole,
    /// A switch cut the tail off (wire-format.md §10). Nothing but addresses, BTH, and the METH and TSETH that arrived
    /// is usable: RETH is zero, there is no payload, and no ICRC has confirmed any of it.
    Trimmed {
        /// It was the last switch on the path.
        last_hop: bool,
    },
}

/// Data of a write in at most two fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload<'a> {
    /// The first bytes.
    pub head: &'a [u8],
    /// The rest, if the frame came in two buffers.
    pub tail: &'a [u8],
}

impl<'a> Payload<'a> {
    /// No data.
    pub const EMPTY: Self = Self { head: &[], tail: &[] };

    /// Data in one piece.
    pub const fn new(data: &'a [u8]) -> Self {
        Self { head: data, tail: &[] }
    }

    /// Bytes in both fragments.
    #[inline]
    pub const fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Is there no data?
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fragments that are not empty, in order.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> {
        [self.head, self.tail].into_iter().filter(|part| !part.is_empty())
    }

    /// The first `mid` bytes and the rest; `mid` beyond the end counts as the end.
    #[inline]
    #[must_use]
    pub fn split_at(&self, mid: usize) -> (Self, Self) {
        let (head, after_head) = self.head.split_at(mid.min(self.head.len()));
        let (tail, after_tail) = self.tail.split_at((mid - head.len()).min(self.tail.len()));
        (
            Self { head, tail },
            Self {
                head: after_head,
                tail: after_tail,
            },
        )
    }

    /// Copies all data to the start of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than [`Payload::len`].
    pub fn copy_to(&self, out: &mut [u8]) {
        let (head, rest) = out.split_at_mut(self.head.len());
        head.copy_from_slice(self.head);
        rest[..self.tail.len()].copy_from_slice(self.tail);
    }
}

/// A received packet, or one that a simulated link delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// What follows it.
    pub headers: Headers,
    /// Data without pad; writes only.
    pub payload: Payload<'a>,
    /// Whole or trimmed.
    pub condition: Condition,
    /// The EV as a responder reflects it (wire-format.md §3).
    pub ev: Ev,
    /// Marked "congestion experienced" (wire-format.md §4, W10).
    pub ce: bool,
    /// The effective DSCP: the outer one when tunnelled.
    pub dscp: u8,
    /// UDP length; of a trimmed packet that of the original. [`Packet::nominal_size`] builds on it.
    pub udp_len: u16,
    /// Node address of the sender (inner header when tunnelled).
    pub src: IpAddr,
    /// Node address of the receiver.
    pub dst: IpAddr,
}

impl Packet<'_> {
    /// Size for the accounting of received bytes: UDP length + 40, whatever the layers below were.
    pub const fn nominal_size(&self) -> u32 {
        self.udp_len as u32 + 40
    }

    /// Was it cut by a switch?
    pub const fn is_trimmed(&self) -> bool {
        matches!(self.condition, Condition::Trimmed { .. })
    }

    /// The requestor's timestamp that an answer reflects; zero if there is none.
    pub const fn tx_timestamp(&self) -> crate::Tick {
        match self.headers {
            Headers::Write { tseth: Some(tseth), .. } => tseth.tx_timestamp,
            Headers::Probe(peth) => peth.tx_timestamp,
            Headers::EndpointRequest(erth) => erth.tx_timestamp,
            _ => crate::Tick(0),
        }
    }
}
