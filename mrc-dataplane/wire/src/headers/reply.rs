//! What a responder's reliability layer sends: SETH, `CC_STATE`, NETH (wire-format.md §7.7 to §7.9).

use core::fmt;

use super::{be16, be32, be64, put};
use crate::num::read24;
use crate::{Ev, Psn, Tick};

/// The reserved `type` and `nxt` fields that begin SETH, NETH, PETH, ERTH and EETH; sent 0, ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeNxt {
    /// 4 bits.
    pub type_: u8,
    /// 5 bits.
    pub nxt: u8,
}

impl TypeNxt {
    pub(super) const fn parse(first: u8, second: u8) -> Self {
        Self {
            type_: first >> 4,
            nxt: (first & 0x0f) << 1 | second >> 7,
        }
    }
}

/// What the responder thinks of the path that `entropy` names (MRC 1.0 §7.5.5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PathVerdict {
    /// 00, nothing to say; also what the reserved 11 is taken for.
    #[default]
    None = 0,
    /// 01, CE seen: leave the path out once.
    SkipOnce = 1,
    /// 10, the responder judges the path bad.
    AlwaysSkip = 2,
}

/// SACK, 28 bytes; `CC_STATE` follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seth {
    /// Verdict on `entropy`.
    pub m: PathVerdict,
    /// This answers a reliability probe.
    pub pr: bool,
    /// `ack_psn_offset` (signed) if `pr` is false, else `probe_id`. See the methods of these names.
    pub ack_psn_offset_or_probe_id: u16,
    /// Reflected EV of the packet or probe that triggered this (wire-format.md §3).
    pub entropy: Ev,
    /// Low bits of the sender's QPN; ignored (W19).
    pub spdcid: u16,
    /// Low bits of `BTH.dqp`; ignored (W19).
    pub dpdcid: u16,
    /// Highest PSN up to which everything was received.
    pub cack_psn: Psn,
    /// 0 = `CC_STATE` is NSCC's; 4 bits.
    pub cc_type: u8,
    /// Sent 0; 4 bits.
    pub cc_fl: u8,
    /// Current MPR in units of 128 PSNs; 0 unless Dynamic MPR is on.
    pub mpr: u8,
    /// PSN of bitmap bit 0, relative to `cack_psn`. May be 0 or negative.
    pub sack_offset: i16,
    /// Bit i (0 = least significant) = the PSN `base + i` was received.
    pub sack_bitmap: u64,
}

impl Seth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;
    /// `cc_type` of NSCC.
    pub const CC_NSCC: u8 = 0;

    /// The probe that this answers.
    pub const fn probe_id(&self) -> Option<u16> {
        if self.pr {
            Some(self.ack_psn_offset_or_probe_id)
        } else {
            None
        }
    }

    /// Distance from `cack_psn` to the packet that triggered this, unless it answers a probe.
    pub const fn ack_psn_offset(&self) -> Option<i16> {
        if self.pr {
            None
        } else {
            Some(self.ack_psn_offset_or_probe_id.cast_signed())
        }
    }

    /// PSN of the packet that triggered this, unless it answers a probe.
    pub fn trigger_psn(&self) -> Option<Psn> {
        self.ack_psn_offset().map(|offset| self.cack_psn.offset(offset as i32))
    }

    /// PSN of bitmap bit 0.
    pub const fn bitmap_base(&self) -> Psn {
        self.cack_psn.offset(self.sack_offset as i32)
    }

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            m: match b[1] >> 5 & 3 {
                1 => PathVerdict::SkipOnce,
                2 => PathVerdict::AlwaysSkip,
                _ => PathVerdict::None,
            },
            pr: b[1] & 0x02 != 0,
            ack_psn_offset_or_probe_id: be16(b, 2),
            entropy: Ev(be32(b, 4)),
            spdcid: be16(b, 8),
            dpdcid: be16(b, 10),
            cack_psn: Psn::new(read24(b[13], b[14], b[15])),
            cc_type: b[16] >> 4,
            cc_fl: b[16] & 0x0f,
            mpr: b[17],
            sack_offset: be16(b, 18).cast_signed(),
            sack_bitmap: be64(b, 20),
        }
    }

    /// The fields that `parse` leaves out.
    pub const fn ignored(b: &[u8; Self::LEN]) -> TypeNxt {
        TypeNxt::parse(b[0], b[1])
    }

    /// Writes the header; reserved fields are 0.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        out[0] = 0;
        out[1] = (self.m as u8) << 5 | (self.pr as u8) << 1;
        put(out, 2, self.ack_psn_offset_or_probe_id.to_be_bytes());
        put(out, 4, self.entropy.0.to_be_bytes());
        put(out, 8, self.spdcid.to_be_bytes());
        put(out, 10, self.dpdcid.to_be_bytes());
        put(out, 12, self.cack_psn.get().to_be_bytes());
        out[16] = self.cc_type << 4 | self.cc_fl & 0x0f;
        out[17] = self.mpr;
        put(out, 18, self.sack_offset.to_be_bytes());
        put(out, 20, self.sack_bitmap.to_be_bytes());
    }
}

/// State for the requestor's congestion control, 8 bytes, follows SETH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CcState {
    /// Reflected from TSETH or PETH; 0 if the trigger had none.
    pub tx_timestamp: Tick,
    /// Packets received above `cack_psn`, at most [`CcState::MAX_OOO_COUNT`].
    pub ooo_count: u16,
    /// `restore_cwnd`.
    pub rc: bool,
    /// Receiver penalty, 0 to 127.
    pub rcv_cwnd_pen: u8,
    /// See [`CcState::rcvd_bytes_of`].
    pub rcvd_bytes: u32,
}

impl CcState {
    /// Bytes on the wire.
    pub const LEN: usize = 8;
    /// Where `ooo_count` saturates.
    pub const MAX_OOO_COUNT: u16 = 0x7fff;

    /// `rcvd_bytes` for a count of received bytes: `ceil(bytes / 256)` modulo 2^24 (MRC 1.0 §7.5.5.4).
    pub const fn rcvd_bytes_of(rx_rcvd_bytes: u64) -> u32 {
        rx_rcvd_bytes.div_ceil(256) as u32 & 0x00ff_ffff
    }

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            tx_timestamp: Tick(be16(b, 0)),
            ooo_count: be16(b, 2) & 0x7fff,
            rc: b[4] & 0x80 != 0,
            rcv_cwnd_pen: b[4] & 0x7f,
            rcvd_bytes: read24(b[5], b[6], b[7]),
        }
    }

    /// The reserved bit beside `ooo_count`.
    pub const fn ignored(b: &[u8; Self::LEN]) -> bool {
        b[2] & 0x80 != 0
    }

    /// Writes the header; `ooo_count` and `rcv_cwnd_pen` saturate, `rcvd_bytes` wraps.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        put(out, 0, self.tx_timestamp.0.to_be_bytes());
        put(out, 2, self.ooo_count.min(Self::MAX_OOO_COUNT).to_be_bytes());
        put(out, 4, (self.rcvd_bytes & 0x00ff_ffff).to_be_bytes());
        out[4] = (self.rc as u8) << 7 | self.rcv_cwnd_pen.min(0x7f);
    }
}

/// Why a responder refuses a packet (wire-format.md §7.9). Codes that are not named here are reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NackReason(pub u8);

impl NackReason {
    /// A switch trimmed the packet.
    pub const TRIMMED: Self = Self(0x01);
    /// The last-hop switch trimmed the packet.
    pub const TRIMMED_LASTHOP: Self = Self(0x02);
    /// No room in the bitmap.
    pub const NO_BITMAP: Self = Self(0x06);
    /// No packet buffer.
    pub const NO_PKT_BUFFER: Self = Self(0x07);
    /// No other resource.
    pub const NO_RESOURCE: Self = Self(0x0a);
    /// The PSN lies beyond the window.
    pub const PSN_OOR_WINDOW: Self = Self(0x0b);
    /// Unexpected event; fatal.
    pub const UNEXP_EVENT: Self = Self(0x19);

    /// Name in the specification; `None` for a reserved code.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::TRIMMED => "TRIMMED",
            Self::TRIMMED_LASTHOP => "TRIMMED_LASTHOP",
            Self::NO_BITMAP => "NO_BITMAP",
            Self::NO_PKT_BUFFER => "NO_PKT_BUFFER",
            Self::NO_RESOURCE => "NO_RESOURCE",
            Self::PSN_OOR_WINDOW => "PSN_OOR_WINDOW",
            Self::UNEXP_EVENT => "UNEXP_EVENT",
            _ => return None,
        })
    }
}

impl fmt::Display for NackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "0x{:02x}", self.0),
        }
    }
}

/// NACK, 20 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neth {
    /// Why.
    pub reason: NackReason,
    /// Not specified; sent 0.
    pub vendor_info: u8,
    /// Reflected EV of the packet that is refused.
    pub entropy: Ev,
    /// Low bits of the sender's QPN; ignored (W19).
    pub spdcid: u16,
    /// Low bits of `BTH.dqp`; ignored (W19).
    pub dpdcid: u16,
    /// The packet that is refused.
    pub nack_psn: Psn,
    /// Reflected from TSETH; 0 if there was none or the trim removed it.
    pub tx_timestamp: Tick,
}

impl Neth {
    /// Bytes on the wire.
    pub const LEN: usize = 20;
    /// What is sent as `cc_type` (wire-format.md §13).
    pub const CC_TYPE: u8 = 2;

    /// Reads the header.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            reason: NackReason(b[2]),
            vendor_info: b[3],
            entropy: Ev(be32(b, 4)),
            spdcid: be16(b, 8),
            dpdcid: be16(b, 10),
            nack_psn: Psn::new(read24(b[13], b[14], b[15])),
            tx_timestamp: Tick(be16(b, 18)),
        }
    }

    /// `type` and `nxt`, then `cc_type` and `cc_fl`.
    pub const fn ignored(b: &[u8; Self::LEN]) -> (TypeNxt, u8, u8) {
        (TypeNxt::parse(b[0], b[1]), b[16] >> 4, b[16] & 0x0f)
    }

    /// Writes the header; reserved fields are 0.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        *out = [0; Self::LEN];
        out[2] = self.reason.0;
        out[3] = self.vendor_info;
        put(out, 4, self.entropy.0.to_be_bytes());
        put(out, 8, self.spdcid.to_be_bytes());
        put(out, 10, self.dpdcid.to_be_bytes());
        put(out, 12, self.nack_psn.get().to_be_bytes());
        out[16] = Self::CC_TYPE << 4;
        put(out, 18, self.tx_timestamp.0.to_be_bytes());
    }
}
