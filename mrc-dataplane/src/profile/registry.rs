//! The register of a device's profiles: the protocol's stores, and the names that people gave.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use mrc_protocol::cc::{Algorithm, CcChange, CcProfiles, Config, Network, NsccConfig, NsccParams};
use mrc_protocol::profile::{
    BUILT_IN, EvChange, EvMode, EvOp, EvProfile, FormatChange, Limits, PortEv, ProfileState, Profiles, Replace,
    SetState,
};
use mrc_wire::{Encap, EvLayout, PortSet};

use super::{CcNumbers, CcStart, EvStart, FormatStart, PeerStart, ProfileConfig, ProfileId, ProfileRef};

/// Why profiles are refused: which, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct ProfileFault {
    /// Which one, as it stands in a configuration file.
    pub what: String,
    /// Why, and what to do.
    pub reason: String,
}

impl ProfileFault {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "errors and texts alike, mostly made for this"
    )]
    pub(crate) fn new(what: impl Into<String>, reason: impl ToString) -> Self {
        Self {
            what: what.into(),
            reason: reason.to_string(),
        }
    }
}

/// What the protocol's store does not keep of an EV profile.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvExtra {
    pub(crate) name: String,
    pub(crate) active: Option<u16>,
    pub(crate) outer_source: Option<Ipv6Addr>,
    names: BTreeMap<PortEv, String>,
}

impl EvExtra {
    /// What people call the path of an EV.
    pub(crate) fn path_name(&self, ev: &PortEv) -> Option<&str> {
        self.names.get(ev).map(String::as_str)
    }
}

/// What a queue pair's window is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CcPlan {
    pub(crate) id: ProfileId,
    pub(crate) algorithm: Algorithm,
    pub(crate) numbers: CcNumbers,
    pub(crate) per_qp: bool,
    /// Sum of the peer's links, if it is known.
    pub(crate) peer_bps: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Registry {
    pub(crate) evs: Profiles,
    pub(crate) ccs: CcProfiles,
    ev_extras: BTreeMap<ProfileId, EvExtra>,
    cc_starts: BTreeMap<ProfileId, CcStart>,
    ev_default: ProfileId,
    cc_default: ProfileId,
    peers: BTreeMap<IpAddr, Choice>,
}

/// What queue pairs that choose nothing get towards a peer.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    ev: Option<ProfileId>,
    cc: Option<ProfileId>,
    speed_bps: Option<u64>,
}

/// More than api.md §4.4 asks for: a host has a profile per destination, and memory is taken only by those that there are.
fn limits(ports: PortSet) -> Limits {
    Limits {
        max_formats: 64,
        max_profiles: 4096,
        max_count: 4096,
        max_total: 1 << 17,
        ..Limits::new(ports)
    }
}

/// CC profiles besides the built-in one.
const MAX_CC_PROFILES: u32 = 64;

impl Registry {
    /// The register of a device with these ports; refused whole if any part is wrong. AUTO and GENERATED draw from `seed`.
    pub fn new(config: &ProfileConfig, ports: PortSet, seed: [u8; 32]) -> Result<Self, ProfileFault> {
        let mut registry = Self {
            evs: Profiles::new(limits(ports), seed),
            ccs: CcProfiles::new(MAX_CC_PROFILES, true),
            ev_extras: BTreeMap::new(),
            cc_starts: BTreeMap::new(),
            ev_default: BUILT_IN,
            cc_default: BUILT_IN,
            peers: BTreeMap::new(),
        };
        for format in &config.formats {
            registry.add_format(format)?;
        }
        for ev in &config.evs {
            registry.add_ev(ev)?;
        }
        for cc in &config.ccs {
            registry.add_cc(cc)?;
        }
        if let Some(chosen) = &config.ev_default {
            registry.ev_default = registry.ev_id(chosen, "default ev_profile")?;
        }
        if let Some(chosen) = &config.cc_default {
            registry.cc_default = registry.cc_id(chosen, "default cc_profile")?;
        }
        for peer in &config.peers {
            registry.add_peer(peer)?;
        }
        Ok(registry)
    }

    fn add_format(&mut self, format: &FormatStart) -> Result<(), ProfileFault> {
        let refuse = |reason: &dyn ToString| {
            ProfileFault::new(format!("ev_format_profile {:?}", format.name), reason.to_string())
        };
        if self.evs.format(format.id).is_some() {
            return Err(refuse(&format!(
                "its number {} is taken: give each profile another",
                format.id
            )));
        }
        let described = FormatChange {
            state: Some(ProfileState::Offline),
            mode: Some(format.mode),
            fields: Some(&format.fields),
            ..FormatChange::default()
        };
        let online = FormatChange {
            state: Some(ProfileState::Online),
            ..FormatChange::default()
        };
        for change in [&described, &online] {
            let done = self.evs.modify_format(format.id, change);
            done.map_err(|error| refuse(&error))?;
        }
        Ok(())
    }

    fn add_ev(&mut self, start: &EvStart) -> Result<(), ProfileFault> {
        let what = format!("ev_profile {:?}", start.name);
        let refuse = |reason: &dyn ToString| ProfileFault::new(what.clone(), reason.to_string());
        let taken = self.evs.ev(start.id).is_some() && start.id != BUILT_IN;
        if taken || self.ev_extras.values().any(|extra| extra.name == start.name) {
            return Err(refuse(&format!(
                "its name or its number {} is taken: give each profile another",
                start.id
            )));
        }
        let explicit = start.mode == EvMode::Explicit;
        let described = EvChange {
            state: Some(ProfileState::Offline),
            mode: Some(start.mode),
            format_id: start.format,
            count: if explicit {
                Some(start.entries.len() as u32)
            } else {
                start.count
            },
            fields: start.fields.as_deref(),
            plane_fields: (!start.plane_fields.is_empty()).then_some(&start.plane_fields),
            min_active: start.min_active,
            ..EvChange::default()
        };
        self.evs.modify(start.id, &described).map_err(|error| refuse(&error))?;
        for (at, entry) in start.entries.iter().enumerate() {
            let replace = [Replace {
                old: None,
                new: Some(entry.ev),
                state: entry.state,
                all_copies: false,
            }];
            let set = [SetState {
                ev: entry.ev,
                state: entry.state,
                all_copies: true,
            }];
            let change = EvChange {
                entries: Some(if explicit {
                    EvOp::Replace(&replace)
                } else {
                    EvOp::SetState(&set)
                }),
                ..EvChange::default()
            };
            let done = self.evs.modify(start.id, &change);
            done.map_err(|error| ProfileFault::new(format!("{what}: evs[{at}]"), error))?;
        }
        let online = EvChange {
            state: Some(ProfileState::Online),
            ..EvChange::default()
        };
        self.evs.modify(start.id, &online).map_err(|error| refuse(&error))?;
        let Some(profile) = self.evs.ev(start.id) else {
            return Err(refuse(&"it cannot be used: give it EVs"));
        };
        for advice in profile.advice() {
            tracing::warn!(profile = start.name, "{advice}");
        }
        if let Some(active) = start.active
            && (active == 0 || u32::from(active) > profile.ev_count())
        {
            return Err(refuse(&format!(
                "active {active} is outside 1 to {}, its number of EVs",
                profile.ev_count()
            )));
        }
        let names = start.entries.iter();
        let names = names.filter_map(|entry| Some((entry.ev, entry.name.clone()?)));
        let extra = EvExtra {
            name: start.name.clone(),
            active: start.active,
            outer_source: start.outer_source,
            names: names.collect(),
        };
        self.ev_extras.insert(start.id, extra);
        Ok(())
    }

    fn add_cc(&mut self, start: &CcStart) -> Result<(), ProfileFault> {
        let refuse =
            |reason: &dyn ToString| ProfileFault::new(format!("cc_profile {:?}", start.name), reason.to_string());
        let taken = self.ccs.profile(start.id).is_some() && start.id != BUILT_IN;
        if taken || self.cc_starts.values().any(|other| other.name == start.name) {
            return Err(refuse(&format!(
                "its name or its number {} is taken: give each profile another",
                start.id
            )));
        }
        // Of any network: only the numbers that are given can be wrong.
        let network = start.numbers.on(Network::new(1, 1_000_000_000, 4184));
        let numbers = start.numbers.over(&NsccParams::new(&network).config());
        numbers.check().map_err(|error| refuse(&error))?;
        let described = CcChange {
            state: Some(ProfileState::Offline),
            algorithm: Some(start.algorithm),
            config: (start.algorithm == Algorithm::Nscc).then_some(Config::Defaults),
            ..CcChange::default()
        };
        let online = CcChange {
            state: Some(ProfileState::Online),
            ..CcChange::default()
        };
        for change in [&described, &online] {
            self.ccs.modify(start.id, change).map_err(|error| refuse(&error))?;
        }
        self.cc_starts.insert(start.id, start.clone());
        Ok(())
    }

    fn add_peer(&mut self, peer: &PeerStart) -> Result<(), ProfileFault> {
        let what = format!("peer.\"{}\"", peer.gid);
        let ev = peer.ev.as_ref().map(|chosen| self.ev_id(chosen, &what)).transpose()?;
        let cc = peer.cc.as_ref().map(|chosen| self.cc_id(chosen, &what)).transpose()?;
        let choice = Choice {
            ev,
            cc,
            speed_bps: peer.speed_bps,
        };
        self.peers.insert(peer.gid, choice);
        Ok(())
    }

    /// How the largest packets are carried, if a profile has tunnels.
    pub(crate) fn tunnel(&self, layout: EvLayout) -> Option<Encap> {
        let profiles = self.ev_extras.keys().filter_map(|id| self.evs.ev(*id));
        profiles
            .filter_map(|profile| tunnel_of(profile, layout))
            .max_by_key(|encap| encap.ip_len())
    }

    /// EV profile of a queue pair towards this peer, which has chosen none itself.
    pub(crate) fn ev_towards(&self, peer: IpAddr) -> ProfileId {
        let choice = self.peers.get(&peer.to_canonical());
        choice.and_then(|choice| choice.ev).unwrap_or(self.ev_default)
    }

    /// Window of a queue pair towards this peer, which has chosen this CC profile or none.
    pub(crate) fn cc_towards(&self, chosen: Option<ProfileId>, peer: IpAddr) -> CcPlan {
        let choice = self.peers.get(&peer.to_canonical()).copied().unwrap_or_default();
        let id = chosen.or(choice.cc).unwrap_or(self.cc_default);
        let start = self.cc_starts.get(&id);
        CcPlan {
            id,
            algorithm: start.map_or(Algorithm::Nscc, |start| start.algorithm),
            numbers: start.map(|start| start.numbers).unwrap_or_default(),
            per_qp: start.is_some_and(|start| start.per_qp),
            peer_bps: choice.speed_bps,
        }
    }

    /// What is kept beside an EV profile; nothing for the built-in one.
    pub(crate) fn extra(&self, id: ProfileId) -> Option<&EvExtra> {
        self.ev_extras.get(&id)
    }

    /// Name of an EV profile.
    pub(crate) fn ev_name(&self, id: ProfileId) -> String {
        self.ev_extras
            .get(&id)
            .map_or_else(|| id.to_string(), |extra| extra.name.clone())
    }

    /// Name of a CC profile.
    pub(crate) fn cc_name(&self, id: ProfileId) -> String {
        self.cc_starts
            .get(&id)
            .map_or_else(|| id.to_string(), |start| start.name.clone())
    }

    /// Number of an EV profile that is ONLINE; `what` wants it.
    pub fn ev_id(&self, chosen: &ProfileRef, what: &str) -> Result<ProfileId, ProfileFault> {
        let id = match chosen {
            ProfileRef::Id(id) => Some(*id),
            ProfileRef::Name(name) => self
                .ev_extras
                .iter()
                .find_map(|(id, extra)| (extra.name == *name).then_some(*id)),
        };
        let online = |id: &ProfileId| self.evs.ev(*id).is_some_and(|ev| ev.state() == ProfileState::Online);
        id.filter(online).ok_or_else(|| {
            let known = self.ev_extras.values().map(|extra| extra.name.as_str());
            ProfileFault::new(what, format!("no ev_profile {chosen}: {}", there_are(known)))
        })
    }

    /// Number of a CC profile that is ONLINE; `what` wants it.
    pub fn cc_id(&self, chosen: &ProfileRef, what: &str) -> Result<ProfileId, ProfileFault> {
        let id = match chosen {
            ProfileRef::Id(id) => Some(*id),
            ProfileRef::Name(name) => self
                .cc_starts
                .iter()
                .find_map(|(id, start)| (start.name == *name).then_some(*id)),
        };
        let online = |id: &ProfileId| self.ccs.state(*id) == ProfileState::Online;
        id.filter(online).ok_or_else(|| {
            let known = self.cc_starts.values().map(|start| start.name.as_str());
            ProfileFault::new(what, format!("no cc_profile {chosen}: {}", there_are(known)))
        })
    }
}

/// How the largest packets on the paths of a profile are carried; `None`: without tunnels.
pub(crate) fn tunnel_of(profile: &EvProfile, layout: EvLayout) -> Option<Encap> {
    let paths = (0..profile.ev_count()).filter_map(|entry| profile.path(entry, layout)?.encap);
    let srh = paths.map(|containers| containers.srh.is_some()).max()?;
    Some(if srh { Encap::Srv6Srh } else { Encap::Srv6 })
}

/// The names to choose from, in a sentence.
fn there_are<'a>(names: impl Iterator<Item = &'a str>) -> String {
    /// More would be no help.
    const SHOWN: usize = 8;
    let names: Vec<&str> = names.collect();
    match names.len() {
        0 => "none is configured; MRC_CONFIG names the file that does".into(),
        count if count > SHOWN => format!("choose one of {}, ... ({count} in all)", names[..SHOWN].join(", ")),
        _ => format!("choose one of {}", names.join(", ")),
    }
}

impl CcNumbers {
    /// The network as these numbers describe it.
    pub(crate) fn on(&self, network: Network) -> Network {
        Network {
            base_rtt_ns: self.base_rtt_ns.map_or(network.base_rtt_ns, |ns| Some(ns.into())),
            jitter_ns: self.jitter_ns.map_or(network.jitter_ns, u64::from),
            path_links: self.path_links.unwrap_or(network.path_links),
            ..network
        }
    }

    /// Those that are given, over those that were computed.
    pub(crate) fn over(&self, computed: &NsccConfig) -> NsccConfig {
        NsccConfig {
            disable_qa: self.disable_qa.unwrap_or(computed.disable_qa),
            adjust_bytes_threshold: self.adjust_bytes_threshold.unwrap_or(computed.adjust_bytes_threshold),
            adjust_period_threshold_ns: self
                .adjust_period_threshold_ns
                .unwrap_or(computed.adjust_period_threshold_ns),
            base_rtt_ns: self.base_rtt_ns.unwrap_or(computed.base_rtt_ns),
            eta: self.eta.unwrap_or(computed.eta),
            fi: self.fi.unwrap_or(computed.fi),
            fi_scale: self.fi_scale.unwrap_or(computed.fi_scale),
            gamma: self.gamma.unwrap_or(computed.gamma),
            max_md_jump: self.max_md_jump.unwrap_or(computed.max_md_jump),
            max_cwnd_bytes: self.max_cwnd_bytes.unwrap_or(computed.max_cwnd_bytes),
            qa_gate: self.qa_gate.unwrap_or(computed.qa_gate),
            qa_threshold_ns: self.qa_threshold_ns.unwrap_or_else(|| {
                // Four times the target, whoever set that (protocol.md §10.3).
                match (self.target_delay_ns, computed.qa_threshold_ns) {
                    (Some(target), limit) if limit != u32::MAX => target.saturating_mul(4),
                    (_, limit) => limit,
                }
            }),
            target_delay_ns: self.target_delay_ns.unwrap_or(computed.target_delay_ns),
        }
    }
}
