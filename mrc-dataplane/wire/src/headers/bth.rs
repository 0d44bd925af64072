//! Base transport header (wire-format.md §7.1).

use super::be16;
use crate::num::read24;
use crate::{Opcode, Psn, Qpn};

/// Base transport header, 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// Solicited event.
    pub se: bool,
    /// Migration state: sent 0, ignored (W13).
    pub m: bool,
    /// Pad bytes after the data, 0 to 3. The builder fills it in.
    pub pad: u8,
    /// Partition key.
    pub p_key: u16,
    /// Destination queue pair.
    pub dqp: Qpn,
    /// Acknowledge request.
    pub a: bool,
    /// Retransmission.
    pub rtx: bool,
    /// TSETH present; has a meaning on writes only. The builder fills it in.
    pub ts: bool,
    /// What it numbers depends on the opcode (wire-format.md §8).
    pub psn: Psn,
}

/// The fields of a BTH that a receiver does not act on, but for `tver`, which must be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BthIgnored {
    /// Transport version.
    pub tver: u8,
    /// Variant: masked in the ICRC.
    pub var_res: u8,
    /// Reserved bit beside `a`.
    pub r: bool,
    /// Reserved, inside the ICRC.
    pub inv_res: u8,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;
    /// The default partition key.
    pub const DEFAULT_P_KEY: u16 = 0xffff;
    /// Offset of `var_res`, which the ICRC masks.
    pub(crate) const VAR_RES_AT: usize = 4;

    /// A header with the default partition key and all flags clear.
    pub const fn new(opcode: Opcode, dqp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            se: false,
            m: false,
            pad: 0,
            p_key: Self::DEFAULT_P_KEY,
            dqp,
            a: false,
            rtx: false,
            ts: false,
            psn,
        }
    }

    /// The opcode byte, whatever it is.
    #[inline]
    pub const fn raw_opcode(b: &[u8; Self::LEN]) -> u8 {
        b[0]
    }

    /// `None` if the opcode is not one of the table. `tver` is not looked at: see [`Bth::ignored`].
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Option<Self> {
        let opcode = Opcode::from_wire(Self::raw_opcode(b))?;
        Some(Self {
            opcode,
            se: b[1] & 0x80 != 0,
            m: b[1] & 0x40 != 0,
            pad: b[1] >> 4 & 3,
            p_key: be16(b, 2),
            dqp: Qpn::new(read24(b[5], b[6], b[7])),
            a: b[8] & 0x80 != 0,
            rtx: b[8] & 0x20 != 0,
            ts: b[8] & 0x10 != 0,
            psn: Psn::new(read24(b[9], b[10], b[11])),
        })
    }

    /// The fields that `parse` leaves out.
    #[inline]
    pub const fn ignored(b: &[u8; Self::LEN]) -> BthIgnored {
        BthIgnored {
            tver: b[1] & 0x0f,
            var_res: b[Self::VAR_RES_AT],
            r: b[8] & 0x40 != 0,
            inv_res: b[8] & 0x0f,
        }
    }

    /// Writes the header; reserved fields are 0.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let [key_hi, key_lo] = self.p_key.to_be_bytes();
        let [d0, d1, d2] = self.dqp.to_bytes();
        let [p0, p1, p2] = self.psn.to_bytes();
        let flags = (self.se as u8) << 7 | (self.m as u8) << 6 | (self.pad & 3) << 4;
        let request = (self.a as u8) << 7 | (self.rtx as u8) << 5 | (self.ts as u8) << 4;
        *out = [
            self.opcode.wire(),
            flags,
            key_hi,
            key_lo,
            0,
            d0,
            d1,
            d2,
            request,
            p0,
            p1,
            p2,
        ];
    }
}
