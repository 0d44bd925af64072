//! The keys of a configuration file.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTable {
    #[serde(default)]
    pub(super) device: DeviceTable,
    #[serde(default)]
    pub(super) port: Vec<PortTable>,
    #[serde(default)]
    pub(super) ev_format_profile: Vec<FormatTable>,
    #[serde(default)]
    pub(super) ev_profile: Vec<EvTable>,
    #[serde(default)]
    pub(super) cc_profile: Vec<CcTable>,
    #[serde(default)]
    pub(super) peer: BTreeMap<String, PeerTable>,
}

/// `[device]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceTable {
    pub(super) gid4: Option<Ipv4Addr>,
    pub(super) gid6: Option<Ipv6Addr>,
    pub(super) udp_port: Option<u16>,
    pub(super) ev_layout: Option<Layout>,
    pub(super) threads: Option<u8>,
    pub(super) fabric_trims: Option<bool>,
    pub(super) window_packets: Option<u16>,
    pub(super) host_rtt_ns: Option<u32>,
    pub(super) spin_ns: Option<u64>,
    pub(super) ev_profile: Option<String>,
    pub(super) cc_profile: Option<String>,
    pub(super) dscps: Option<BTreeMap<String, Dscp>>,
}

/// Which half of an EV is the source port.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Layout {
    FlowHi,
    PortHi,
}

/// A code point, or `false` where the fabric has no such class.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a DSCP from 0 to 63, or false where the fabric has no such class"
)]
pub(super) enum Dscp {
    Is(u8),
    None(bool),
}

/// `[[port]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortTable {
    pub(super) name: String,
    pub(super) speed_bps: Option<u64>,
    #[serde(default)]
    pub(super) queue: u32,
}

/// `[[ev_format_profile]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FormatTable {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    pub(super) mode: FormatMode,
    pub(super) fields: Vec<u8>,
}

/// Where an EV goes in a packet.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) enum FormatMode {
    #[serde(rename = "STEV")]
    Stev,
    #[serde(rename = "UDP")]
    Udp,
    #[serde(rename = "SRV6")]
    Srv6,
}

/// `[[ev_profile]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvTable {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    pub(super) mode: EvMode,
    pub(super) format: Option<String>,
    pub(super) count: Option<u32>,
    pub(super) fields: Option<Vec<FieldTable>>,
    pub(super) ev_min_active: Option<u32>,
    pub(super) active: Option<u16>,
    pub(super) outer_source: Option<Ipv6Addr>,
    #[serde(default)]
    pub(super) evs: Vec<EntryTable>,
}

/// Who makes the EVs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum EvMode {
    Auto,
    Explicit,
    Generated,
}

/// A field of an EV profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FieldTable {
    pub(super) width: u32,
    #[serde(default)]
    pub(super) init: u32,
    #[serde(default)]
    pub(super) min: u32,
    #[serde(default)]
    pub(super) max: u32,
    #[serde(default)]
    pub(super) mask: u32,
    /// It holds the plane.
    #[serde(default)]
    pub(super) plane: bool,
}

/// An EV of a profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryTable {
    pub(super) port: u8,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) state: EntryState,
    /// How often it stands in the array.
    pub(super) weight: Option<u16>,
    /// Not expanded, hexadecimal.
    pub(super) ev: Option<String>,
    pub(super) flow_label: Option<u16>,
    pub(super) source_port: Option<u16>,
    pub(super) dst: Option<Ipv6Addr>,
    pub(super) srh: Option<Ipv6Addr>,
}

/// What a controller says of an EV.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) enum EntryState {
    #[default]
    #[serde(rename = "GOOD")]
    Good,
    #[serde(rename = "ASSUMED_BAD")]
    AssumedBad,
    #[serde(rename = "DENIED")]
    Denied,
}

/// `[[cc_profile]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CcTable {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    pub(super) algorithm: Option<String>,
    #[serde(default)]
    pub(super) per_qp: bool,
    pub(super) base_rtt_ns: Option<u32>,
    pub(super) target_delay_ns: Option<u32>,
    pub(super) max_cwnd_bytes: Option<u32>,
    pub(super) adjust_bytes_threshold: Option<u32>,
    pub(super) adjust_period_threshold_ns: Option<u32>,
    pub(super) eta: Option<f32>,
    pub(super) fi: Option<f32>,
    pub(super) fi_scale: Option<f32>,
    pub(super) gamma: Option<f32>,
    pub(super) max_md_jump: Option<f32>,
    pub(super) qa_gate: Option<u8>,
    pub(super) qa_threshold_ns: Option<u32>,
    pub(super) disable_qa: Option<bool>,
    pub(super) jitter_ns: Option<u32>,
    pub(super) path_links: Option<u8>,
}

/// `[peer."GID"]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerTable {
    pub(super) ev_profile: Option<String>,
    pub(super) cc_profile: Option<String>,
    pub(super) speed_bps: Option<u64>,
}
