//! The configuration of a host's engine: real link speeds, and for every peer the EVs that take each path there by name.
//!
//! The format is that of `MRC_CONFIG` (mrc-verbs/CONFIG.md).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Serialize;

use crate::LabError;
use crate::fabric::{FabricSpec, Overflow, Routing};
use crate::plan::{BLOCK, PathEv, Plan, SidField, node_v4, node_v6, port_name, sid_fields};

#[derive(Serialize)]
struct Config {
    device: Device,
    port: Vec<Port>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ev_format_profile: Vec<Format>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ev_profile: Vec<EvProfile>,
    cc_profile: Vec<CcProfile>,
    peer: BTreeMap<String, Peer>,
}

#[derive(Serialize)]
struct Device {
    fabric_trims: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    spin_ns: Option<u64>,
}

#[derive(Serialize)]
struct Port {
    name: String,
    speed_bps: u64,
}

#[derive(Serialize)]
struct Format {
    name: &'static str,
    mode: &'static str,
    fields: Vec<u8>,
}

#[derive(Serialize)]
struct EvProfile {
    name: String,
    mode: &'static str,
    format: &'static str,
    fields: Vec<Field>,
    active: usize,
    evs: Vec<Entry>,
}

#[derive(Serialize)]
struct Field {
    width: u8,
    #[serde(skip_serializing_if = "is_zero")]
    init: u32,
    #[serde(skip_serializing_if = "is_zero")]
    mask: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[derive(Serialize)]
struct Entry {
    port: usize,
    name: String,
    #[serde(flatten)]
    value: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Structured { flow_label: u16, source_port: u16 },
    Srv6 { dst: String },
}

#[derive(Serialize)]
struct CcProfile {
    name: &'static str,
    path_links: u8,
}

#[derive(Serialize)]
struct Peer {
    #[serde(skip_serializing_if = "Option::is_none")]
    ev_profile: Option<String>,
    cc_profile: &'static str,
}

/// With more hosts than that, engines do not poll after their last work: frames are milliseconds apart on the lab's links, and the cores
/// that all share have better things to do.
const HOSTS_THAT_POLL: usize = 2;

const STRUCTURED: &str = "structured";
const USIDS: &str = "usids";
const NEAR: &str = "under-t0";
const FAR: &str = "over-t1";

/// Congestion control needs to know how many links store and forward, in links of the host's speed: two under one T0, and over a T1
/// two more, which count for less where they are faster.
fn cc_profiles(spec: &FabricSpec) -> [CcProfile; 2] {
    let between = (2 * spec.host_link_bps).div_ceil(spec.fabric_link_bps.max(1));
    [
        CcProfile {
            name: NEAR,
            path_links: 2,
        },
        CcProfile {
            name: FAR,
            path_links: u8::try_from(2 + between).unwrap_or(u8::MAX),
        },
    ]
}

/// The file for a host, without a name.
pub(crate) fn file(plan: &Plan, spec: &FabricSpec, host: usize) -> Result<OwnedFd, LabError> {
    let text = host_config(plan, spec, host)?;
    let failed = |e: io::Error| LabError::kernel(format!("store the configuration of h{host}"), e);
    let fd = memfd_create(format!("h{host}.toml").as_str(), MFdFlags::MFD_CLOEXEC).map_err(|e| failed(e.into()))?;
    let mut file = File::from(fd);
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(file.into())
}

/// The text of the file for a host of a fabric.
pub(crate) fn host_config(plan: &Plan, spec: &FabricSpec, host: usize) -> Result<String, LabError> {
    let mut file = Config {
        device: Device {
            fabric_trims: spec.queue.overflow == Overflow::Trim,
            spin_ns: (spec.hosts() > HOSTS_THAT_POLL).then_some(0),
        },
        port: (1..=spec.planes)
            .map(|plane| Port {
                name: port_name(plane),
                speed_bps: spec.host_link_bps,
            })
            .collect(),
        ev_format_profile: format(spec).into_iter().collect(),
        ev_profile: Vec::new(),
        cc_profile: cc_profiles(spec).into(),
        peer: BTreeMap::new(),
    };
    for peer in (0..spec.hosts()).filter(|peer| *peer != host) {
        let ev_profile = ev_profile(plan, spec, host, peer);
        let near = spec.t0_of(host) == spec.t0_of(peer);
        let cc_profile = if near { NEAR } else { FAR };
        let entry = |ev_profile| Peer { ev_profile, cc_profile };
        let name = ev_profile.as_ref().map(|p| p.name.clone());
        file.peer.insert(node_v6(peer).to_string(), entry(name));
        // IPv4 has no flow label and no tunnel: there the built-in profile is right.
        file.peer.insert(node_v4(peer).to_string(), entry(None));
        file.ev_profile.extend(ev_profile);
    }
    toml::to_string(&file).map_err(|e| LabError::Usage {
        message: format!("cannot write the configuration of h{host}: {e}"),
    })
}

fn format(spec: &FabricSpec) -> Option<Format> {
    match spec.routing {
        Routing::Ecmp => None,
        Routing::Structured => Some(Format {
            name: STRUCTURED,
            mode: "STEV",
            // Plane, uplink, nothing, source port.
            fields: vec![4, 4, 8, 16],
        }),
        Routing::Srv6 | Routing::Srv6Kernel => Some(Format {
            name: USIDS,
            mode: "SRV6",
            fields: vec![32, 16, 16, 16, 16, 16, 16],
        }),
    }
}

fn ev_profile(plan: &Plan, spec: &FabricSpec, host: usize, peer: usize) -> Option<EvProfile> {
    let fixed = |width, init| Field { width, init, mask: 0 };
    let (format, fields) = match spec.routing {
        Routing::Ecmp => return None,
        Routing::Structured => {
            let free = |width, mask| Field { width, init: 0, mask };
            let port = fixed(16, crate::plan::STRUCTURED_PORT.into());
            (STRUCTURED, vec![free(4, 0xf), free(4, 0xf), fixed(8, 0), port])
        }
        Routing::Srv6 | Routing::Srv6Kernel => {
            let mut fields = vec![fixed(32, BLOCK)];
            let sids = sid_fields(spec, host, peer, 1, 0);
            fields.extend(sids.iter().map(|SidField { sid, mask }| Field {
                width: 16,
                init: (sid & !mask).into(),
                mask: (*mask).into(),
            }));
            (USIDS, fields)
        }
    };
    let entries = plan.paths(host, peer).into_iter().filter_map(|path| {
        let value = match path.ev {
            PathEv::Hashed => return None,
            PathEv::Structured(ev) => Value::Structured {
                flow_label: (ev >> 16) as u16,
                source_port: ev as u16,
            },
            PathEv::Srv6 { destination, .. } => Value::Srv6 {
                dst: destination.to_string(),
            },
        };
        Some(Entry {
            port: path.plane,
            name: path.name,
            value,
        })
    });
    let evs: Vec<Entry> = entries.collect();
    // Between two hosts under one T0 a plane has one path, which is no backup.
    let per_plane = evs.len() / spec.planes;
    let active = spec.planes * per_plane.saturating_sub(spec.backup_evs).max(1);
    Some(EvProfile {
        name: format!("to-h{peer}"),
        mode: "EXPLICIT",
        format,
        fields,
        active,
        evs,
    })
}
