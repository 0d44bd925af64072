//! Packets that nobody sent.

use mrc_wire::{
    Aeth, Bth, CcState, Ev, Headers, ImmDt, Meth, NackReason, Neth, Opcode, PathVerdict, Peth, Reth, Seth, Tick, Tseth,
};
use proptest::prelude::*;

use crate::testing::*;
use crate::work::Transmit;

/// A packet that nobody sent, near what the receiver knows.
#[derive(Clone, Debug)]
pub(super) struct Forgery {
    pub(super) kind: u8,
    pub(super) opcode: u8,
    pub(super) psn: i32,
    pub(super) offset: i16,
    pub(super) trigger: u16,
    pub(super) bitmap: u64,
    pub(super) flags: u8,
    pub(super) code: u8,
    pub(super) len: u16,
    pub(super) va: u64,
    pub(super) stamp: u16,
}

pub(super) fn forgery() -> impl Strategy<Value = Forgery> {
    let near = prop_oneof![-5..300_i32, -2000..2000_i32, any::<i32>()];
    let offset = prop_oneof![-70..70_i16, any::<i16>()];
    let bitmap = prop_oneof![Just(0_u64), Just(u64::MAX), 0..256_u64, any::<u64>()];
    let va = prop_oneof![BASE..BASE + 4096, any::<u64>()];
    (
        (0..6_u8, any::<u8>(), near, offset, prop_oneof![0..8_u16, any::<u16>()]),
        (
            bitmap,
            any::<u8>(),
            any::<u8>(),
            prop_oneof![0..8_u16, Just(256), 0..5000_u16],
            va,
            any::<u16>(),
        ),
    )
        .prop_map(
            |((kind, opcode, psn, offset, trigger), (bitmap, flags, code, len, va, stamp))| Forgery {
                kind,
                opcode,
                psn,
                offset,
                trigger,
                bitmap,
                flags,
                code,
                len,
                va,
                stamp,
            },
        )
}

impl Forgery {
    pub(super) fn wire(&self, to: &End) -> Wire {
        let base = if self.flags & 1 != 0 {
            to.qp.unack_psn()
        } else {
            to.qp.cack_psn()
        };
        let psn = base.offset(self.psn);
        let stamp = Tick(self.stamp);
        let writes = &Opcode::ALL[..6];
        let (opcode, headers) = match self.kind {
            0 => {
                let opcode = writes[usize::from(self.opcode) % writes.len()];
                let dmalen = if self.flags & 2 != 0 {
                    u32::from(self.len)
                } else {
                    u32::from(self.len) << 17
                };
                let headers = Headers::Write {
                    meth: Meth::default(),
                    tseth: Some(Tseth::new(stamp)),
                    reth: Reth {
                        va: self.va,
                        r_key: R_KEY ^ u32::from(self.flags & 64),
                        dmalen,
                    },
                    imm: opcode.has_imm().then_some(ImmDt([1; 4])),
                };
                (opcode, headers)
            }
            1 => (
                Opcode::Ack,
                Headers::Ack(Aeth {
                    syndrome: self.code,
                    msn: 0,
                }),
            ),
            2 | 3 => {
                let seth = Seth {
                    m: [PathVerdict::None, PathVerdict::SkipOnce, PathVerdict::AlwaysSkip][usize::from(self.code) % 3],
                    pr: self.flags & 4 != 0,
                    ack_psn_offset_or_probe_id: self.trigger,
                    entropy: Ev(0x1000 + u32::from(self.code)),
                    cack_psn: psn,
                    sack_offset: self.offset,
                    sack_bitmap: self.bitmap,
                    ..Seth::default()
                };
                let state = CcState {
                    tx_timestamp: stamp,
                    ooo_count: self.len,
                    ..CcState::default()
                };
                (
                    Opcode::Sack,
                    Headers::Sack(seth, (self.flags & 8 != 0).then_some(state)),
                )
            }
            4 => {
                let reasons = [
                    NackReason::TRIMMED,
                    NackReason::NO_BITMAP,
                    NackReason::PSN_OOR_WINDOW,
                    NackReason::UNEXP_EVENT,
                    NackReason(self.code),
                ];
                let neth = Neth {
                    reason: reasons[usize::from(self.opcode) % reasons.len()],
                    nack_psn: psn,
                    tx_timestamp: if self.flags & 4 != 0 { Tick(0) } else { stamp },
                    ..Neth::default()
                };
                (Opcode::Nack, Headers::Nack(neth))
            }
            _ => (
                Opcode::Probe,
                Headers::Probe(Peth {
                    probe_id: self.trigger,
                    ..Peth::default()
                }),
            ),
        };
        let sent = Transmit {
            bth: Bth {
                a: self.flags & 16 != 0,
                rtx: self.flags & 32 != 0,
                ts: true,
                ..Bth::new(opcode, to.qp.qpn(), psn)
            },
            headers,
            ev: Ev(0x1000),
            path: 0,
            port: port(1),
            class: mrc_wire::TrafficClass::NoTrim,
            ect: true,
            payload: None,
            is_retransmission: false,
        };
        Wire::forged(sent, usize::from(self.len))
    }
}
