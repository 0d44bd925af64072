//! The headers of writes and of the Transport ACK: METH, TSETH, RETH, `ImmDt`, AETH (wire-format.md §7.2 to §7.6).

use super::{be16, be32, be64, put};
use crate::Tick;

/// Message numbers, 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meth {
    /// Number of the `WriteIMM` message; 0 in messages without immediate data (W15).
    pub rqmsn: u16,
    /// Number of the message.
    pub msn: u16,
}

impl Meth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            rqmsn: be16(b, 0),
            msn: be16(b, 2),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        put(out, 0, self.rqmsn.to_be_bytes());
        put(out, 2, self.msn.to_be_bytes());
    }
}

/// Timestamp, 4 bytes. The same four bytes end PETH and ERTH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tseth {
    /// The requestor's clock at transmission, opaque to the responder.
    pub tx_timestamp: Tick,
    /// Resolution; false = 128 ns, which is all that is ever sent (W16).
    pub tsr: bool,
    /// 1 = timestamp present. Ignored on receipt.
    pub ftype: u8,
}

/// What [`Tseth::parse`] leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TsethIgnored {
    /// The eleven bits between `tsr` and `ftype`.
    pub reserved: u16,
}

impl Tseth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;
    /// `ftype` of a header with a timestamp.
    pub const FTYPE_PRESENT: u8 = 1;

    /// A header for this timestamp.
    pub const fn new(tx_timestamp: Tick) -> Self {
        Self {
            tx_timestamp,
            tsr: false,
            ftype: Self::FTYPE_PRESENT,
        }
    }

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            tx_timestamp: Tick(be16(b, 0)),
            tsr: b[2] & 0x80 != 0,
            ftype: b[3] & 0x0f,
        }
    }

    /// The fields that `parse` leaves out.
    pub fn ignored(b: &[u8; Self::LEN]) -> TsethIgnored {
        TsethIgnored {
            reserved: be16(b, 2) >> 4 & 0x7ff,
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        put(out, 0, self.tx_timestamp.0.to_be_bytes());
        out[2] = (self.tsr as u8) << 7;
        out[3] = self.ftype & 0x0f;
    }
}

/// Where a write goes, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Address of *this packet's* first byte.
    pub va: u64,
    /// Key of the memory region; the same in all packets of a message.
    pub r_key: u32,
    /// Length of the *whole message*; the same in all its packets.
    pub dmalen: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            va: be64(b, 0),
            r_key: be32(b, 8),
            dmalen: be32(b, 12),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        put(out, 0, self.va.to_be_bytes());
        put(out, 8, self.r_key.to_be_bytes());
        put(out, 12, self.dmalen.to_be_bytes());
    }
}

/// Immediate data in network order, 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImmDt(pub [u8; 4]);

impl ImmDt {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    #[inline]
    pub const fn parse(b: &[u8; Self::LEN]) -> Self {
        Self(*b)
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(&self, out: &mut [u8; Self::LEN]) {
        *out = self.0;
    }
}

/// Transport ACK or NAK, 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aeth {
    /// See [`Aeth::meaning`].
    pub syndrome: u8,
    /// Messages that the responder completed, modulo 2^24.
    pub msn: u32,
}

/// What an AETH says (wire-format.md §7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// 0x00 to 0x1f.
    Ack,
    /// 0x61, the request was invalid.
    InvalidRequest,
    /// 0x62, the responder may not touch that memory.
    RemoteAccess,
    /// 0x63 and the unknown 0x64 to 0x7f, the responder could not carry it out.
    RemoteOperational,
    /// Everything else: not used by MRC, dropped on receipt (W17).
    Unused,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;
    /// Acknowledgement; the credit field says "no credits".
    pub const ACK: u8 = 0x1f;
    /// NAK, invalid request.
    pub const NAK_INVALID_REQUEST: u8 = 0x61;
    /// NAK, remote access error.
    pub const NAK_REMOTE_ACCESS: u8 = 0x62;
    /// NAK, remote operational error.
    pub const NAK_REMOTE_OPERATIONAL: u8 = 0x63;

    /// What the syndrome says.
    pub const fn meaning(&self) -> Syndrome {
        match self.syndrome {
            0x00..=0x1f => Syndrome::Ack,
            Self::NAK_INVALID_REQUEST => Syndrome::InvalidRequest,
            Self::NAK_REMOTE_ACCESS => Syndrome::RemoteAccess,
            Self::NAK_REMOTE_OPERATIONAL..=0x7f => Syndrome::RemoteOperational,
            _ => Syndrome::Unused,
        }
    }

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            syndrome: b[0],
            msn: be32(b, 0) & 0x00ff_ffff,
        }
    }

    /// Writes the header; `msn` modulo 2^24.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        *out = ((self.syndrome as u32) << 24 | self.msn & 0x00ff_ffff).to_be_bytes();
    }
}
