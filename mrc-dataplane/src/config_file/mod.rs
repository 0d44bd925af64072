//! The configuration file of a device: ports, settings and profiles in TOML, as `mrc-verbs/CONFIG.md` describes them.
//!
//! A file is taken whole or refused whole. Every error is one line that names the file, the key, what is wrong with its value and
//! what would be right.

mod entries;
mod schema;

use std::net::IpAddr;
use std::path::Path;

use mrc_protocol::cc::Algorithm;
use mrc_protocol::profile::{FormatField, FormatMode};
use mrc_wire::{Dscps, EvLayout};

use crate::engine::{EngineConfig, PortConfig};
use crate::profile::{CcNumbers, CcStart, FormatStart, PeerStart, ProfileConfig, ProfileFault, ProfileId, ProfileRef};
use schema::{CcTable, DeviceTable, FileTable, FormatTable, PeerTable, PortTable};

/// A configuration file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFileError {
    /// It cannot be read.
    #[error("{file}: cannot read it: {error}; MRC_CONFIG names a configuration file")]
    Read {
        /// The file.
        file: String,
        /// What the system said.
        error: String,
    },
    /// It is no TOML, or has a key or a type of value that is not known.
    #[error("{file}:{line}: {text}: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What stands there.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// A value that makes no sense.
    #[error("{file}: {fault}")]
    Value {
        /// The file.
        file: String,
        /// Which, and why.
        fault: ProfileFault,
    },
}

/// Reads a file; what it says replaces what `config` says, what it does not say stays.
pub fn read(path: &Path, config: EngineConfig) -> Result<EngineConfig, ConfigFileError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| ConfigFileError::Read {
        file: file.clone(),
        error: error.to_string(),
    })?;
    parse(&text, &file, config)
}

/// As [`read`], of a text; `file` is how errors call it.
pub fn parse(text: &str, file: &str, config: EngineConfig) -> Result<EngineConfig, ConfigFileError> {
    let table: FileTable = toml::from_str(text).map_err(|error| syntax(text, file, &error))?;
    let config = apply(table, config).map_err(|fault| ConfigFileError::Value {
        file: file.to_owned(),
        fault,
    })?;
    Ok(EngineConfig {
        config_file: Some(file.to_owned()),
        ..config
    })
}

fn syntax(text: &str, file: &str, error: &toml::de::Error) -> ConfigFileError {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..at).unwrap_or_default();
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
    ConfigFileError::Syntax {
        file: file.to_owned(),
        line: before.matches('\n').count() + 1,
        text: line.trim().chars().take(80).collect(),
        problem: error.message().replace('\n', "; "),
    }
}

fn apply(table: FileTable, mut config: EngineConfig) -> Result<EngineConfig, ProfileFault> {
    if !table.port.is_empty() {
        config.ports = table.port.into_iter().map(port).collect::<Result<_, _>>()?;
    }
    let (ev_default, cc_default) = (table.device.ev_profile.clone(), table.device.cc_profile.clone());
    device(table.device, &mut config)?;

    let formats = table.ev_format_profile.into_iter().zip(1..);
    let formats: Vec<FormatStart> = formats.map(|(table, at)| format(table, at)).collect();
    let named = |name: &str, what: &str| {
        let found = formats.iter().find(|format| format.name == name);
        found.ok_or_else(|| {
            ProfileFault::new(
                what,
                format!("format = {name:?}: no ev_format_profile has this name; describe it in the same file"),
            )
        })
    };
    let evs = table.ev_profile.into_iter().zip(1..);
    let evs = evs
        .map(|(table, at)| entries::ev_profile(table, at, &named))
        .collect::<Result<Vec<_>, _>>()?;
    let ccs = table.cc_profile.into_iter().zip(1..);
    let ccs = ccs
        .map(|(table, at)| cc_profile(table, at))
        .collect::<Result<Vec<_>, _>>()?;
    let names = formats.iter().map(|format| ("ev_format_profile", &format.name));
    let names = names.chain(evs.iter().map(|ev| ("ev_profile", &ev.name)));
    for (kind, name) in names.chain(ccs.iter().map(|cc| ("cc_profile", &cc.name))) {
        if name.trim().is_empty() || name.parse::<ProfileId>().is_ok() {
            return Err(ProfileFault::new(
                format!("{kind} {name:?}"),
                "a name must not be empty or a number: it could not be told from a profile's number",
            ));
        }
    }
    let peers = table.peer.into_iter().map(|(gid, table)| peer(&gid, &table));
    config.profiles = ProfileConfig {
        evs,
        ccs,
        ev_default: ev_default.as_deref().map(ProfileRef::from),
        cc_default: cc_default.as_deref().map(ProfileRef::from),
        peers: peers.collect::<Result<_, _>>()?,
        formats,
    };
    Ok(config)
}

fn port(table: PortTable) -> Result<PortConfig, ProfileFault> {
    let what = format!("port {:?}", table.name);
    if table.name.trim().is_empty() {
        return Err(ProfileFault::new(what, "name the interface"));
    }
    if table.speed_bps == Some(0) {
        return Err(ProfileFault::new(
            what,
            "speed_bps = 0: give bits per second, or leave it out where the interface knows it",
        ));
    }
    Ok(PortConfig {
        name: table.name,
        queue: table.queue,
        link_speed_bps: table.speed_bps,
    })
}

fn device(table: DeviceTable, config: &mut EngineConfig) -> Result<(), ProfileFault> {
    config.address_v4 = table.gid4.or(config.address_v4);
    config.address_v6 = table.gid6.or(config.address_v6);
    config.udp_port = table.udp_port.unwrap_or(config.udp_port);
    config.threads = table.threads.unwrap_or(config.threads);
    config.fabric_trims = table.fabric_trims.unwrap_or(config.fabric_trims);
    config.host_rtt_ns = table.host_rtt_ns.unwrap_or(config.host_rtt_ns);
    config.spin_ns = table.spin_ns.unwrap_or(config.spin_ns);
    config.window_packets = table.window_packets.unwrap_or(config.window_packets);
    config.ev_layout = match table.ev_layout {
        Some(schema::Layout::FlowHi) => EvLayout::FlowHigh,
        Some(schema::Layout::PortHi) => EvLayout::PortHigh,
        None => config.ev_layout,
    };
    for (class, value) in table.dscps.unwrap_or_default() {
        dscp(&mut config.dscps, &class, value)?;
    }
    Ok(())
}

fn dscp(dscps: &mut Dscps, class: &str, value: schema::Dscp) -> Result<(), ProfileFault> {
    let refuse = |reason: &str| Err(ProfileFault::new(format!("device.dscps.{class}"), reason));
    let value = match value {
        schema::Dscp::Is(dscp) if dscp < 64 => Some(dscp),
        schema::Dscp::None(false) => None,
        _ => return refuse("give a DSCP from 0 to 63, or false where the fabric has no such class"),
    };
    let required = |value: Option<u8>| {
        value.ok_or_else(|| {
            ProfileFault::new(
                format!("device.dscps.{class}"),
                "false: every fabric has this class, give a DSCP from 0 to 63",
            )
        })
    };
    match class {
        "no_trim" => dscps.no_trim = required(value)?,
        "trimmable" => dscps.trimmable = value,
        "trimmable_retx" => dscps.trimmable_retx = value,
        "trimmed" => dscps.trimmed = required(value)?,
        "trimmed_lasthop" => dscps.trimmed_lasthop = value,
        "control" => dscps.control = required(value)?,
        _ => {
            return refuse(
                "no such class: there are no_trim, trimmable, trimmable_retx, trimmed, trimmed_lasthop and control",
            );
        }
    }
    Ok(())
}

fn format(table: FormatTable, at: ProfileId) -> FormatStart {
    FormatStart {
        id: table.id.unwrap_or(at),
        name: table.name,
        mode: match table.mode {
            schema::FormatMode::Stev => FormatMode::Stev,
            schema::FormatMode::Udp => FormatMode::Udp,
            schema::FormatMode::Srv6 => FormatMode::Srv6,
        },
        fields: table.fields.into_iter().map(FormatField::new).collect(),
    }
}

fn cc_profile(table: CcTable, at: ProfileId) -> Result<CcStart, ProfileFault> {
    let algorithm = match table.algorithm.as_deref() {
        Some("none") => Ok(Algorithm::Off),
        None => Ok(Algorithm::Nscc),
        named => Algorithm::named(named),
    };
    let algorithm = algorithm.map_err(|_| {
        ProfileFault::new(
            format!("cc_profile {:?}", table.name),
            format!(
                "algorithm = {:?}: give {:?}, or \"none\" to switch congestion control off",
                table.algorithm.unwrap_or_default(),
                Algorithm::NSCC_NAME
            ),
        )
    })?;
    let numbers = CcNumbers {
        base_rtt_ns: table.base_rtt_ns,
        target_delay_ns: table.target_delay_ns,
        max_cwnd_bytes: table.max_cwnd_bytes,
        adjust_bytes_threshold: table.adjust_bytes_threshold,
        adjust_period_threshold_ns: table.adjust_period_threshold_ns,
        eta: table.eta,
        fi: table.fi,
        fi_scale: table.fi_scale,
        gamma: table.gamma,
        max_md_jump: table.max_md_jump,
        qa_gate: table.qa_gate,
        qa_threshold_ns: table.qa_threshold_ns,
        disable_qa: table.disable_qa,
        jitter_ns: table.jitter_ns,
        path_links: table.path_links,
    };
    let allowed_when_off = CcNumbers {
        max_cwnd_bytes: numbers.max_cwnd_bytes,
        ..CcNumbers::default()
    };
    if algorithm == Algorithm::Off && numbers != allowed_when_off {
        return Err(ProfileFault::new(
            format!("cc_profile {:?}", table.name),
            "without congestion control only max_cwnd_bytes has a meaning: leave the other numbers out",
        ));
    }
    Ok(CcStart {
        id: table.id.unwrap_or(at),
        name: table.name,
        algorithm,
        numbers,
        per_qp: table.per_qp,
    })
}

fn peer(gid: &str, table: &PeerTable) -> Result<PeerStart, ProfileFault> {
    let address: IpAddr = gid.parse().map_err(|_| {
        ProfileFault::new(
            format!("peer.{gid:?}"),
            "the key is not an address: give the peer's GID, as in [peer.\"192.0.2.1\"]",
        )
    })?;
    Ok(PeerStart {
        gid: address.to_canonical(),
        ev: table.ev_profile.as_deref().map(ProfileRef::from),
        cc: table.cc_profile.as_deref().map(ProfileRef::from),
        speed_bps: table.speed_bps,
    })
}

#[cfg(test)]
mod tests;
