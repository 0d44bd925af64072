//! How the two queue pairs are made.

use mrc_protocol::cc::{Network, NsccParams};
use mrc_protocol::profile::{EntryState, ProfileEv};
use mrc_protocol::{
    EvEntry, InitAttr, Instant, PathConfig, PeerCaps, QpCreate, Qpcc, RetryAttr, RtrAttr, RtsAttr, Tuning, Universe,
};
use mrc_wire::{Ev, Pmtu, PortNum, Psn, Qpn};

use super::end::End;
use crate::draw::Draw;

pub(super) const PORTS: u8 = 3;

/// What both ends agree on.
pub(super) struct Setup {
    pmtu: Pmtu,
    pub(super) max_mpr: u8,
    max_wimm: u16,
    depth: u32,
    sq_sig_all: bool,
    path: PathConfig,
    tuning: Tuning,
    retry: RetryAttr,
    caps: PeerCaps,
    pub(super) cc: Qpcc,
}

pub(super) fn port(draw: &mut Draw<'_>) -> PortNum {
    PortNum::new(1 + draw.below(PORTS.into()) as u8).expect("1 to 3")
}

pub(super) fn entry_state(draw: &mut Draw<'_>) -> EntryState {
    draw.pick(&[
        EntryState::Good,
        EntryState::Good,
        EntryState::AssumedBad,
        EntryState::Denied,
    ])
}

/// Entry `index`, with values that meet now and then.
pub(super) fn entry(draw: &mut Draw<'_>, index: u32) -> ProfileEv {
    ProfileEv {
        tag: Ev(0x1000 + draw.below(16)),
        port: port(draw),
        encap: None,
        entry: index,
        state: entry_state(draw),
    }
}

impl Setup {
    pub(super) fn draw(draw: &mut Draw<'_>) -> Self {
        let pmtu = draw.pick(&[Pmtu::B256, Pmtu::B256, Pmtu::B1024, Pmtu::B4096]);
        let trimming = draw.any();
        let universe = universe(draw);
        Self {
            pmtu,
            max_mpr: 1 + draw.below(4) as u8,
            max_wimm: 1 + draw.below(4) as u16,
            depth: 1 + draw.below(16),
            sq_sig_all: draw.any(),
            path: PathConfig {
                universe,
                active: draw.maybe(|draw| draw.below(12) as u16),
                min_active: draw.maybe(|draw| draw.below(12) as u16),
                ev_mask: draw.pick(&[u32::MAX, 0xffff]),
                fabric_trims: trimming,
                revive_after: draw.maybe(|draw| draw.below(6) as u8),
                reshuffle_passes: draw.below(4) as u16,
            },
            tuning: Tuning {
                sack_gen_threshold_bytes: draw.pick(&[0, 1, 1024, 16384, 65536]),
                sack_hold_ns: draw.pick(&[0, 1, 20_000, Tuning::MAX_SACK_HOLD_NS]),
                extra_sacks: draw.pick(&[0, 1, 15, 255]),
                spare_first_violation: draw.below(4) == 0,
                reo_min_ns: draw.magnitude() >> 30,
                answers_per_s: draw.pick(&[0, 1, 1000, u32::MAX]),
                answers_burst: draw.pick(&[0, 1, 256, u32::MAX]),
                flow_control: draw.any(),
            },
            retry: retry(draw),
            caps: PeerCaps {
                trim_nack: trimming,
                dynamic_mpr: draw.any(),
                svc_time: draw.any(),
            },
            cc: congestion(draw, trimming, pmtu),
        }
    }

    pub(super) fn create(&self, qpn: u32) -> QpCreate {
        QpCreate {
            qpn: Qpn::new(qpn),
            sq_depth: self.depth,
            rq_depth: self.depth,
            max_mpr: self.max_mpr,
            max_wimm: self.max_wimm,
            sq_sig_all: self.sq_sig_all,
            seed: [qpn as u8; 32],
            path: self.path.clone(),
            tuning: self.tuning.clone(),
        }
    }

    /// From RESET to RTS.
    pub(super) fn connect(&self, end: &mut End, peer: u32, first_psn: u32, remote_write: bool) {
        let init = InitAttr {
            p_key: 0xffff,
            remote_write,
        };
        let rtr = RtrAttr {
            dest_qpn: Qpn::new(peer),
            rq_psn: Psn::new(first_psn),
            pmtu: self.pmtu,
            mpr_dest: self.max_mpr,
            max_wimm_dest: self.max_wimm,
            trim_nack: self.caps.trim_nack,
            dynamic_mpr: self.caps.dynamic_mpr,
            svc_time: self.caps.svc_time,
            peer: self.caps,
        };
        let rts = RtsAttr {
            sq_psn: Psn::new(first_psn),
            mpr: self.max_mpr,
            max_wimm: self.max_wimm,
            retry: self.retry,
        };
        end.remote_write = remote_write;
        end.qp.handle_init(&init).expect("from RESET");
        end.qp.handle_rtr(&rtr, end.now).expect("within the limits");
        end.qp.handle_rts(&rts, end.now).expect("within the limits");
    }
}

pub(super) fn retry(draw: &mut Draw<'_>) -> RetryAttr {
    RetryAttr {
        timeout: draw.pick(&[0, 1, 8, 12, 14, 24]),
        linear_cnt: draw.below(8) as u8,
        exp_cnt: draw.below(26) as u8,
    }
}

fn universe(draw: &mut Draw<'_>) -> Universe {
    let count = 1 + draw.below(10);
    if draw.any() {
        let entries = (0..count).map(|index| entry(draw, index)).collect();
        return Universe::Profile(entries);
    }
    let entries = (0..count).map(|index| EvEntry {
        ev: Ev(0x1000 + index),
        port: port(draw),
    });
    Universe::Explicit(entries.collect())
}

fn congestion(draw: &mut Draw<'_>, trimming: bool, pmtu: Pmtu) -> Qpcc {
    let per_port = 1 + draw.below(200) as u16;
    let network = Network {
        trimming,
        base_rtt_ns: draw.maybe(|draw| 1_000 + u64::from(draw.below(1_000_000))),
        ..Network::new(PORTS, 1_000_000_000, pmtu.bytes() as u32 + 88)
    };
    let params = NsccParams::new(&network);
    match draw.below(4) {
        0 => Qpcc::fixed(per_port).with_trimming(trimming),
        1 => Qpcc::uncontrolled(params, per_port),
        _ => Qpcc::nscc(params, per_port, Instant::from_ns(1_000_000_000)),
    }
}
