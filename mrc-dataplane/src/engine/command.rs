//! What can be asked of an engine: one enum, with payloads that could cross a process boundary.
//!
//! Rings and event fds cannot, so they travel beside the commands and replies.

use std::net::IpAddr;

use mrc_protocol::cc::{Nscc, SchedulerState};
use mrc_protocol::profile::{EntryState, EvMode, EvValue, PortEv};
use mrc_protocol::{
    EvState, InitAttr, ModifyAttr, PathConfig, QpState, QpStats, Qpcc, Reason, RtrAttr, RtsAttr, Tuning,
};
use mrc_wire::{Ev, Pmtu, PortNum, Psn, Qpn};

use crate::profile::{ProfileId, ProfileRef};
use crate::region::{Access, PdId, RegionMemory};
use crate::ring::{CompletionConsumer, Doorbell, RecvProducer, SendProducer};

/// A completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// What an engine can be asked to do.
#[derive(Debug, Clone)]
pub enum Command {
    /// Makes a protection domain: [`Reply::Pd`].
    CreatePd,
    /// Ends a protection domain without regions and queue pairs.
    DestroyPd {
        /// Which.
        pd: PdId,
    },
    /// Lets queue pairs of `pd` use memory: [`Reply::Region`].
    RegisterRegion {
        /// Protection domain.
        pd: PdId,
        /// The memory.
        memory: RegionMemory,
        /// What for.
        access: Access,
    },
    /// Returns once no engine thread will touch the region any more. Sends that still need it fail.
    DeregisterRegion {
        /// Its local key.
        lkey: u32,
    },
    /// Makes a completion queue; an event fd may come beside it: [`Reply::Cq`] and [`Rings::Cq`].
    CreateCq {
        /// Entries it has room for.
        depth: u32,
    },
    /// Ends a completion queue that no queue pair uses; its event fd is not written any more afterwards.
    DestroyCq {
        /// Which.
        cq: CqId,
    },
    /// Makes a queue pair in RESET: [`Reply::Qp`] and [`Rings::Qp`].
    CreateQp(CreateQp),
    /// Changes a queue pair.
    ModifyQp {
        /// Which.
        qpn: Qpn,
        /// How.
        change: QpChange,
    },
    /// Asks for state and statistics: [`Reply::QpInfo`].
    QueryQp {
        /// Which.
        qpn: Qpn,
    },
    /// Asks for the paths: [`Reply::Paths`].
    QueryPaths {
        /// Which queue pair.
        qpn: Qpn,
    },
    /// Asks for an EV profile and the states of its EVs: [`Reply::EvProfile`].
    QueryEvProfile {
        /// Which.
        profile: ProfileRef,
    },
    /// Denies, allows or banishes EVs of a profile, in all queue pairs that use it (api.md §4.8 `MODIFY_EV_STATE`):
    /// [`Reply::Changed`].
    SetEvState {
        /// Which profile.
        profile: ProfileRef,
        /// Which EVs; refused if there are none.
        evs: EvSelection,
        /// What they become.
        state: EntryState,
    },
    /// Ends a queue pair: owed acknowledgements go out, then nothing of it happens any more but answers to duplicates, for
    /// a second (api.md D11). Its completions that nobody took stay in the queues:
    /// [`CompletionConsumer::discard`] removes them.
    DestroyQp {
        /// Which.
        qpn: Qpn,
    },
}

/// Measures of a new queue pair.
#[derive(Debug, Clone)]
pub struct CreateQp {
    /// Protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// Send requests that may be outstanding.
    pub sq_depth: u32,
    /// Receive requests that may be outstanding.
    pub rq_depth: u32,
    /// Pieces per send request.
    pub max_sge: u32,
    /// Bytes of inline data per send request.
    pub max_inline: u32,
    /// Largest window in units of 128 PSNs, either direction.
    pub max_mpr: u8,
    /// Most WriteIMM messages in flight, either direction.
    pub max_wimm: u16,
    /// A completion for every send.
    pub sq_sig_all: bool,
    /// Paths; `None`: random source ports on all ports of the engine.
    pub path: Option<PathConfig>,
    /// Habits of the protocol.
    pub tuning: Tuning,
    /// EV profile; `None`: what the device says for the peer (api.md §3.4).
    pub ev_profile: Option<ProfileRef>,
    /// CC profile; `None`: what the device says for the peer.
    pub cc_profile: Option<ProfileRef>,
}

impl CreateQp {
    /// Default measures (protocol.md §15) with `depth` requests either way.
    pub fn new(pd: PdId, send_cq: CqId, recv_cq: CqId, depth: u32) -> Self {
        Self {
            pd,
            send_cq,
            recv_cq,
            sq_depth: depth,
            rq_depth: depth,
            max_sge: 4,
            max_inline: 64,
            max_mpr: 8,
            max_wimm: 128,
            sq_sig_all: false,
            path: None,
            tuning: Tuning::default(),
            ev_profile: None,
            cc_profile: None,
        }
    }
}

/// How a queue pair is to change.
#[derive(Debug, Clone, Copy)]
pub enum QpChange {
    /// RESET to INIT.
    ToInit(InitAttr),
    /// INIT to RTR.
    ToRtr {
        /// The protocol's part.
        attr: RtrAttr,
        /// Own node address.
        local: IpAddr,
        /// The peer's node address.
        remote: IpAddr,
    },
    /// RTR to RTS.
    ToRts(RtsAttr),
    /// To ERR: what is posted is flushed.
    ToErr,
    /// To RESET: what is posted is forgotten.
    ToReset,
    /// What may change in the present state.
    Adjust(ModifyAttr),
    /// The window as responder, in units of 128 PSNs; with Dynamic MPR only (protocol.md §5.4).
    Window(u8),
}

/// Answer to a command.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Done.
    Done,
    /// A new protection domain.
    Pd(PdId),
    /// A new region.
    Region {
        /// For the own send requests.
        lkey: u32,
        /// For peers.
        rkey: u32,
    },
    /// A new completion queue.
    Cq(CqId),
    /// A new queue pair.
    Qp(Qpn),
    /// About a queue pair.
    QpInfo(Box<QpInfo>),
    /// Its paths.
    Paths(Vec<PathInfo>),
    /// About an EV profile.
    EvProfile(Box<EvProfileInfo>),
    /// So many entries were changed.
    Changed(usize),
}

/// Some EVs of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvSelection {
    /// The path of this name.
    Named(String),
    /// This value on this port.
    Exactly(PortEv),
    /// All on this port.
    OnPort(PortNum),
    /// All.
    All,
}

/// What is known of an EV profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvProfileInfo {
    /// Number.
    pub id: ProfileId,
    /// Name, or else the number.
    pub name: String,
    /// Who makes its EVs.
    pub mode: Option<EvMode>,
    /// EVs that must stay usable.
    pub min_active: u32,
    /// Queue pairs that use it.
    pub bound_qps: u32,
    /// Its EVs.
    pub entries: Vec<EvEntryInfo>,
}

/// One EV of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvEntryInfo {
    /// Value and port.
    pub ev: PortEv,
    /// What people call its path.
    pub name: Option<String>,
    /// DENIED, or ASSUMED_BAD if the controller or any queue pair says so, else GOOD (api.md §4.7).
    pub state: EntryState,
}

/// The ends of new rings, beside a reply.
pub enum Rings {
    /// Of a completion queue.
    Cq(CompletionConsumer),
    /// Of a queue pair.
    Qp(QpRings),
}

/// The application's ends of a queue pair.
pub struct QpRings {
    /// Send requests go here.
    pub send: SendProducer,
    /// Receive requests go here.
    pub recv: RecvProducer,
    /// To be rung after either was published.
    pub doorbell: Doorbell,
}

/// A reply and what comes with it.
pub struct Outcome {
    /// The reply.
    pub reply: Reply,
    /// New rings, with [`Reply::Cq`] and [`Reply::Qp`].
    pub rings: Option<Rings>,
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self { reply, rings: None }
    }
}

/// What is known of a queue pair.
#[derive(Debug, Clone)]
pub struct QpInfo {
    /// Its state.
    pub state: QpState,
    /// Own address, from RTR on.
    pub local: Option<IpAddr>,
    /// The peer's address, from RTR on.
    pub remote: Option<IpAddr>,
    /// The peer's queue pair, from RTR on.
    pub dest_qpn: Option<Qpn>,
    /// Path MTU, from RTR on.
    pub pmtu: Option<Pmtu>,
    /// Everything up to here was received by the peer.
    pub unack_psn: Psn,
    /// What the protocol has counted.
    pub stats: QpStats,
    /// Smoothed round trip and its variation; 0 before the first sample.
    pub rtt_ns: (u64, u64),
    /// The window that it sends under, from RTR on; others may share it.
    pub window: Option<WindowInfo>,
    /// Name of its EV profile, or its number; empty before RTR.
    pub ev_profile: String,
    /// Name of its CC profile, or its number; empty before RTR.
    pub cc_profile: String,
    /// Why nothing can be sent on a port, per port that has a reason.
    pub unreachable: Vec<(PortNum, String)>,
}

/// A congestion window (protocol.md §10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowInfo {
    /// The window; `None`: only packets per port are limited.
    pub cwnd_bytes: Option<u64>,
    /// Its upper limit, with NSCC.
    pub max_wnd_bytes: Option<u64>,
    /// Bytes in flight.
    pub inflight_bytes: i64,
    /// Packets in flight.
    pub inflight_packets: u32,
    /// Idle round trip of a full packet, as far as it is known.
    pub base_rtt_ns: u64,
    /// Queueing delay that is aimed at.
    pub target_qdelay_ns: u64,
    /// Average queueing delay, with NSCC.
    pub avg_delay_ns: Option<u64>,
    /// The responder asks for less at present.
    pub limited: bool,
    /// Where it stands in the scheduler (protocol.md §10.6).
    pub state: SchedulerState,
}

impl WindowInfo {
    pub(super) fn of(cc: &Qpcc, state: SchedulerState) -> Self {
        let nscc = cc.as_nscc();
        Self {
            cwnd_bytes: cc.cwnd_bytes(),
            max_wnd_bytes: nscc.map(Nscc::max_wnd_bytes),
            inflight_bytes: cc.inflight_bytes(),
            inflight_packets: cc.inflight_packets(),
            base_rtt_ns: cc.base_rtt_ns(),
            target_qdelay_ns: cc.target_qdelay_ns(),
            avg_delay_ns: nscc.map(Nscc::avg_delay_ns),
            limited: nscc.is_some_and(Nscc::is_limited),
            state,
        }
    }
}

/// One path of a queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathInfo {
    /// What people call it, if its profile says so.
    pub name: Option<String>,
    /// The EV as its profile has it, not expanded.
    pub value: Option<EvValue>,
    /// Write packets sent on it, retransmissions included.
    pub packets: u64,
    /// Packets lost on it, as far as nothing else explains the loss.
    pub losses: u32,
    /// Marks (CE) reported of it.
    pub marks: u32,
    /// Entropy value.
    pub ev: Ev,
    /// Port it leaves from.
    pub port: PortNum,
    /// What is thought of it.
    pub state: EvState,
    /// Why.
    pub why: Reason,
    /// Since when, in ns on the engine's clock.
    pub since_ns: u64,
    /// Takes part in the rotation; else it is backup, bad or denied.
    pub active: bool,
    /// Its port is up at both ends.
    pub eligible: bool,
}
