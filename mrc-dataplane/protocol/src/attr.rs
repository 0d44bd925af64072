//! What a queue pair is made from: creation parameters and the attributes of each state (protocol.md §2, §15).

use alloc::vec::Vec;

use mrc_wire::{Ev, EvLayout, Pmtu, PortNum, PortSet, Psn, Qpn};

use crate::profile::{EvProfile, ProfileEv};
use crate::time::{MS, US};

/// One entry of an EV universe: a path is an EV on a port (protocol.md §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EvEntry {
    /// The value in the packet.
    pub ev: Ev,
    /// The port that it leaves from.
    pub port: PortNum,
}

/// Where the EVs of a queue pair come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Universe {
    /// Random source ports in 0xC000-0xFFFF, each value on one port only (protocol.md §7.1 AUTO, wire-format.md W6).
    Auto {
        /// The ports (planes) to use.
        ports: PortSet,
        /// EVs per port; `None`: 128 in all, at least 2 a port (protocol.md §15).
        per_port: Option<u16>,
        /// Which half of an EV is the source port.
        layout: EvLayout,
        /// Random flow labels too, for fabrics that hash them (IPv6 only); else 0.
        flow_label: bool,
    },
    /// A controller's list; a value may stand in it more than once (weight).
    Explicit(Vec<EvEntry>),
    /// The entries of an EV profile, with their outer addresses and the states that the controller has set (protocol.md §7.1);
    /// in rising order of their indices.
    Profile(Vec<ProfileEv>),
}

/// The path set of a queue pair (protocol.md §8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// All EVs.
    pub universe: Universe,
    /// EVs in the active set, over all ports; `None`: 64, or all but one per port of a universe below 64.
    pub active: Option<u16>,
    /// The floor of the active set; `None`: a quarter of it.
    pub min_active: Option<u16>,
    /// Which bits of a reflected entropy name the path: `0xffff` over IPv4 and for port-only profiles (wire-format.md §3).
    pub ev_mask: u32,
    /// Do the fabric's switches trim instead of dropping? Together with the peer's `trim_nack` it decides traffic classes
    /// and what a loss means (protocol.md §8.2 (2)).
    pub fabric_trims: bool,
    /// Probe answers in a row that bring an EV back; `None`: 1 where trimming tells loss from congestion, else 5 (P22).
    pub revive_after: Option<u8>,
    /// Passes of the rotation before it is drawn anew.
    pub reshuffle_passes: u16,
}

impl PathConfig {
    /// The defaults of protocol.md §15: AUTO over these ports.
    pub fn auto(ports: PortSet) -> Self {
        Self {
            universe: Universe::Auto {
                ports,
                per_port: None,
                layout: EvLayout::FlowHigh,
                flow_label: false,
            },
            active: None,
            min_active: None,
            ev_mask: 0xffff,
            fabric_trims: false,
            revive_after: None,
            reshuffle_passes: 8,
        }
    }

    /// The paths of a profile that is ONLINE, on these ports. Over IPv4 the layout is `FlowHigh`.
    pub fn profile(profile: &EvProfile, ports: PortSet, layout: EvLayout) -> Self {
        Self {
            universe: Universe::Profile(profile.universe(ports, layout)),
            min_active: Some(u16::try_from(profile.min_active()).unwrap_or(u16::MAX)),
            ev_mask: profile.ev_mask(layout),
            ..Self::auto(ports)
        }
    }

    /// Exactly these EVs.
    pub fn explicit(entries: Vec<EvEntry>) -> Self {
        Self {
            universe: Universe::Explicit(entries),
            ev_mask: u32::MAX,
            ..Self::auto(PortSet::EMPTY)
        }
    }
}

/// Numbers that change how quickly the protocol reacts, not what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// A SACK at least every so many bytes received; 0 = every packet (protocol.md §6.4, P13).
    pub sack_gen_threshold_bytes: u32,
    /// Longest time without a SACK for a received packet; 0 = off (protocol.md §6.4, P13).
    pub sack_hold_ns: u64,
    /// A SACK shows 64 PSNs. How many more may follow it in a batch, when packets arrived that are further apart; 0 = the
    /// window is shown part by part, one SACK a batch (protocol.md §6.5).
    pub extra_sacks: u8,
    /// The least tolerance of reordering (protocol.md §5.6).
    pub reo_min_ns: u64,
    /// NACKs, answers to probes and answers to duplicates per second and kind, besides those that packets received pay for
    /// (protocol.md §14, P29).
    pub answers_per_s: u32,
    /// How many of them may come in one burst; of NACKs at least a window.
    pub answers_burst: u32,
    /// As requestor: send less when the responder asks for it (protocol.md §11).
    pub flow_control: bool,
    /// As responder: a write that fails the access check is dropped in silence the first time, and refused when its PSN fails
    /// again. A peer that means it repeats it; who forges packets must hit the same PSN twice (protocol.md §14, P28).
    pub spare_first_violation: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            sack_gen_threshold_bytes: 16384,
            sack_hold_ns: 20 * US,
            extra_sacks: 15,
            reo_min_ns: 50 * US,
            answers_per_s: 1000,
            answers_burst: 256,
            flow_control: true,
            spare_first_violation: false,
        }
    }
}

impl Tuning {
    /// Upper end of the range of `sack_hold_ns` (protocol.md §15).
    pub const MAX_SACK_HOLD_NS: u64 = MS;
    /// Upper end of the range of `sack_gen_threshold_bytes` (protocol.md §15).
    pub const MAX_SACK_GEN_THRESHOLD: u32 = 65536;
}

/// What memory a queue pair needs: everything is allocated from this, once.
#[derive(Clone, Debug)]
pub struct QpCreate {
    /// Own number.
    pub qpn: Qpn,
    /// Send requests that may be outstanding, 1 to 32768.
    pub sq_depth: u32,
    /// Receive requests that may be posted.
    pub rq_depth: u32,
    /// Largest window in units of 128 PSNs, as requestor and as responder.
    pub max_mpr: u8,
    /// Most WriteIMM messages in flight, as requestor and as responder; at least 1.
    pub max_wimm: u16,
    /// A completion for every send request, signaled or not.
    pub sq_sig_all: bool,
    /// Randomness of this queue pair: rotation, AUTO EVs.
    pub seed: [u8; 32],
    /// Its paths.
    pub path: PathConfig,
    /// Its habits.
    pub tuning: Tuning,
}

/// RESET to INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitAttr {
    /// The low 15 bits are compared with those of arriving packets.
    pub p_key: u16,
    /// May the peer write to this side's memory?
    pub remote_write: bool,
}

/// What the peer said about itself out of band (protocol.md §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCaps {
    /// It answers trimmed packets with NACKs.
    pub trim_nack: bool,
    /// It may change its window at run time, and bears that this side does (protocol.md §5.4).
    pub dynamic_mpr: bool,
    /// It takes its service time out of the timestamps that it reflects (protocol.md §6.9).
    pub svc_time: bool,
}

/// INIT to RTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtrAttr {
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// The peer's initial PSN.
    pub rq_psn: Psn,
    /// Data bytes of a full packet.
    pub pmtu: Pmtu,
    /// Own window as responder, in units of 128 PSNs: what was offered to the peer.
    pub mpr_dest: u8,
    /// Own stash for immediates as responder: what was offered to the peer.
    pub max_wimm_dest: u16,
    /// This side answers trimmed packets with NACKs.
    pub trim_nack: bool,
    /// This side wishes for Dynamic MPR; it is in force if the peer does too (protocol.md §5.4).
    pub dynamic_mpr: bool,
    /// This side takes its service time out of the timestamps that it reflects (protocol.md §6.9).
    pub svc_time: bool,
    /// The peer's capabilities.
    pub peer: PeerCaps,
}

/// RTR to RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtsAttr {
    /// Own initial PSN.
    pub sq_psn: Psn,
    /// Window as requestor in units of 128 PSNs: the smaller of the own limit and the peer's `max_mpr_dest`.
    pub mpr: u8,
    /// WriteIMM messages in flight: the smaller of the own limit and the peer's `max_wimm_dest`.
    pub max_wimm: u16,
    /// Timeout and retries.
    pub retry: RetryAttr,
}

/// When to give up (protocol.md §4, §5.7). May be changed in RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAttr {
    /// Local ACK timeout 1.024 us * 2^timeout, 0 to 24; 0 = disabled.
    pub timeout: u8,
    /// Retries at the first timeout, 0 to 7.
    pub linear_cnt: u8,
    /// Retries with a doubling timeout, 0 to 25; 25 = for ever.
    pub exp_cnt: u8,
}

impl Default for RetryAttr {
    fn default() -> Self {
        Self {
            timeout: 14,
            linear_cnt: 3,
            exp_cnt: 5,
        }
    }
}

/// Changes of a live queue pair; `None` leaves a value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModifyAttr {
    /// May the peer write? (INIT, RTR, RTS)
    pub remote_write: Option<bool>,
    /// When to give up. (RTS)
    pub retry: Option<RetryAttr>,
}
