//! Operations between nodes: ERTH and EETH (wire-format.md §7.11, §7.12).

use super::{PethIgnored, TypeNxt, be16, be32, put};
use crate::{PortSet, Tick};

/// What an endpoint request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EndpointOp(u8);

impl EndpointOp {
    /// Tells which of the sender's ports are reachable.
    pub const PORT_STATUS_UPDATE: Self = Self(0);
    /// Asks for nothing but an answer.
    pub const EV_PROBE: Self = Self(1);

    /// The low two bits of `value`.
    pub const fn new(value: u8) -> Self {
        Self(value & 3)
    }

    /// The value on the wire, 0 to 3.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// 2 and 3: dropped, counted, not answered.
    pub const fn is_reserved(self) -> bool {
        self.0 > 1
    }
}

/// Endpoint request, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erth {
    /// What is asked for.
    pub op: EndpointOp,
    /// Reachable ports of the sender, for a port status update; else 0. See [`Erth::ports`].
    pub port_status_mask: u32,
    /// Clock at transmission; 0 if `ftype` is 0.
    pub tx_timestamp: Tick,
    /// 1 = timestamp present. Ignored on receipt.
    pub ftype: u8,
}

impl Erth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// `port_status_mask` as a set (W20: bit N = port N).
    pub const fn ports(&self) -> PortSet {
        PortSet::from_bits(self.port_status_mask)
    }

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            op: EndpointOp::new(b[1]),
            port_status_mask: be32(b, 4),
            tx_timestamp: Tick(be16(b, 12)),
            ftype: b[15] & 0x0f,
        }
    }

    /// The fields that `parse` leaves out.
    pub fn ignored(b: &[u8; Self::LEN]) -> PethIgnored {
        PethIgnored::parse(b)
    }

    /// Writes the header; reserved fields are 0.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        *out = [0; Self::LEN];
        out[1] = self.op.get();
        put(out, 4, self.port_status_mask.to_be_bytes());
        put(out, 12, self.tx_timestamp.0.to_be_bytes());
        out[15] = self.ftype & 0x0f;
    }
}

/// Endpoint response, 36 bytes: the size of SETH + `CC_STATE`, with the timestamp where `CC_STATE` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eeth {
    /// Copy of the request's `op` (W21: bits 3:2). Match answers by id and do not rely on it.
    pub op: EndpointOp,
    /// Reflected from the request.
    pub tx_timestamp: Tick,
}

impl Eeth {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            op: EndpointOp::new(b[1] >> 2),
            tx_timestamp: Tick(be16(b, 28)),
        }
    }

    /// The fields that `parse` leaves out.
    pub const fn ignored(b: &[u8; Self::LEN]) -> TypeNxt {
        TypeNxt::parse(b[0], b[1])
    }

    /// Writes the header; reserved fields are 0.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        *out = [0; Self::LEN];
        out[1] = self.op.get() << 2;
        put(out, 28, self.tx_timestamp.0.to_be_bytes());
    }
}
