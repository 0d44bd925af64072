//! Reliability probe (wire-format.md §7.10).

use super::{TypeNxt, be16, put};
use crate::{Tick, Tseth};

/// Reliability probe request, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peth {
    /// Chosen by the requestor, returned in `SETH.probe_id`.
    pub probe_id: u16,
    /// Low bits of the sender's QPN; ignored (W19).
    pub spdcid: u16,
    /// Low bits of `BTH.dqp`; ignored (W19).
    pub dpdcid: u16,
    /// Clock at transmission; 0 if `ftype` is 0.
    pub tx_timestamp: Tick,
    /// 1 = timestamp present. Ignored on receipt.
    pub ftype: u8,
}

/// What [`Peth::parse`] leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PethIgnored {
    /// `type` and `nxt`.
    pub type_nxt: TypeNxt,
    /// Not specified.
    pub vendor_info: u8,
    /// Resolution of the timestamp; sent 0.
    pub tsr: bool,
    /// Reserved bits of the timestamp group.
    pub reserved: u16,
}

impl PethIgnored {
    /// From a header whose first word and last four bytes are arranged like PETH's.
    pub(super) fn parse(b: &[u8; Peth::LEN]) -> Self {
        let group = [b[12], b[13], b[14], b[15]];
        Self {
            type_nxt: TypeNxt::parse(b[0], b[1]),
            vendor_info: b[3],
            tsr: Tseth::parse(&group).tsr,
            reserved: Tseth::ignored(&group).reserved,
        }
    }
}

impl Peth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            probe_id: be16(b, 4),
            spdcid: be16(b, 8),
            dpdcid: be16(b, 10),
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
        put(out, 4, self.probe_id.to_be_bytes());
        put(out, 8, self.spdcid.to_be_bytes());
        put(out, 10, self.dpdcid.to_be_bytes());
        put(out, 12, self.tx_timestamp.0.to_be_bytes());
        out[15] = self.ftype & 0x0f;
    }
}
