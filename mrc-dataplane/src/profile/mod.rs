//! The profiles of a device: format, EV and CC profiles as they are at the start, and which of them queue pairs use
//! (protocol.md §7.1, api.md §4.1).
//!
//! [`ProfileConfig`] is what a file or a program says; the engine makes its register of it, and refuses all of it if any part is
//! wrong.

mod registry;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use mrc_protocol::cc::Algorithm;
use mrc_protocol::profile::{EntryState, EvMode, FormatField, FormatMode, PortEv, ProfileField};

pub(crate) use registry::{CcPlan, tunnel_of};
pub use registry::{ProfileFault, Registry};

/// Number of a profile; 0 is built in: AUTO, and NSCC with its defaults (api.md §4.1).
pub type ProfileId = u64;

/// How a profile is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileRef {
    /// By number.
    Id(ProfileId),
    /// By name.
    Name(String),
}

impl fmt::Display for ProfileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => write!(f, "{name:?}"),
        }
    }
}

impl From<&str> for ProfileRef {
    /// Digits are a number.
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }
}

/// All profiles of a device at its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileConfig {
    /// Format profiles.
    pub formats: Vec<FormatStart>,
    /// EV profiles.
    pub evs: Vec<EvStart>,
    /// CC profiles.
    pub ccs: Vec<CcStart>,
    /// EV profile of queue pairs that choose none; `None`: the built-in one.
    pub ev_default: Option<ProfileRef>,
    /// The same of CC profiles.
    pub cc_default: Option<ProfileRef>,
    /// What is different towards some peers.
    pub peers: Vec<PeerStart>,
}

/// A format profile (protocol.md §7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatStart {
    /// Number.
    pub id: ProfileId,
    /// Name.
    pub name: String,
    /// Where EVs go in a packet.
    pub mode: FormatMode,
    /// Fields.
    pub fields: Vec<FormatField>,
}

/// An EV profile (protocol.md §7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvStart {
    /// Number.
    pub id: ProfileId,
    /// Name.
    pub name: String,
    /// Who makes the EVs.
    pub mode: EvMode,
    /// Number of the format; none with AUTO.
    pub format: Option<ProfileId>,
    /// How many EVs; EXPLICIT has as many as are listed.
    pub count: Option<u32>,
    /// Fields.
    pub fields: Option<Vec<ProfileField>>,
    /// Fields that hold the plane.
    pub plane_fields: Vec<u16>,
    /// EVs that must stay usable.
    pub min_active: Option<u32>,
    /// EVs in the active set of a queue pair; the rest are its backup.
    pub active: Option<u16>,
    /// Outer source address with SRv6; `None`: the node address.
    pub outer_source: Option<Ipv6Addr>,
    /// EXPLICIT: all EVs. Otherwise names and states of some of those that were made.
    pub entries: Vec<EntryStart>,
}

/// An EV of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryStart {
    /// The value, not expanded, and its port.
    pub ev: PortEv,
    /// The controller's word on it.
    pub state: EntryState,
    /// What people call its path.
    pub name: Option<String>,
}

/// A CC profile (protocol.md §10.3).
#[derive(Clone, Debug, PartialEq)]
pub struct CcStart {
    /// Number.
    pub id: ProfileId,
    /// Name.
    pub name: String,
    /// Congestion control, or none.
    pub algorithm: Algorithm,
    /// The numbers that differ from those that suit the network.
    pub numbers: CcNumbers,
    /// A window for each queue pair instead of one for all towards a peer (protocol.md §10.6).
    pub per_qp: bool,
}

/// Numbers of NSCC, and what it is told of the network; `None`: as computed (protocol.md §10.3).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CcNumbers {
    /// Idle round trip of a full packet.
    pub base_rtt_ns: Option<u32>,
    /// Queueing delay that is aimed at.
    pub target_delay_ns: Option<u32>,
    /// Largest window, and first one.
    pub max_cwnd_bytes: Option<u32>,
    /// Bytes acknowledged between two changes of the window.
    pub adjust_bytes_threshold: Option<u32>,
    /// Longest time between two changes of the window.
    pub adjust_period_threshold_ns: Option<u32>,
    /// Periodic increase in bytes.
    pub eta: Option<f32>,
    /// Fair increase in bytes.
    pub fi: Option<f32>,
    /// Fast increase per byte.
    pub fi_scale: Option<f32>,
    /// Strength of a decrease.
    pub gamma: Option<f32>,
    /// Smallest factor of one decrease.
    pub max_md_jump: Option<f32>,
    /// Quick adapt only if less than `max_cwnd / 2^qa_gate` was received.
    pub qa_gate: Option<u8>,
    /// Queueing delay that asks for quick adapt; `u32::MAX` = none does.
    pub qa_threshold_ns: Option<u32>,
    /// Without quick adapt.
    pub disable_qa: Option<bool>,
    /// How much idle round trips differ because hosts are busy (P25).
    pub jitter_ns: Option<u32>,
    /// Links of a path that store a packet before they forward it.
    pub path_links: Option<u8>,
}

/// What is different towards one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStart {
    /// Its address.
    pub gid: IpAddr,
    /// EV profile of queue pairs that choose none.
    pub ev: Option<ProfileRef>,
    /// CC profile of queue pairs that choose none.
    pub cc: Option<ProfileRef>,
    /// Sum of its links (protocol.md §3, §10.3).
    pub speed_bps: Option<u64>,
}

impl ProfileConfig {
    /// Says nothing: queue pairs behave as AUTO.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
