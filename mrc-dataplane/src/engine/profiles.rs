//! Profiles of the device and the queue pairs that use them (api.md §4.1, §4.7, §4.8).

use std::collections::BTreeMap;
use std::net::IpAddr;

use mrc_protocol::PathConfig;
use mrc_protocol::profile::{BUILT_IN, Binding, EntryState, EvChange, EvOp, PortEv, ProfileEv, SetState, Touched};
use mrc_wire::{Encap, EvLayout, PortSet, Qpn};

use super::check::encap_towards;
use super::command::{CreateQp, EvEntryInfo, EvProfileInfo, EvSelection, PathInfo, QpInfo};
use super::control::{Control, QpRecord};
use super::error::CommandError;
use super::job::{Answer, Task, Wiring};
use super::threads::Threads;
use crate::profile::{ProfileFault, ProfileId, ProfileRef, tunnel_of};

/// The profiles of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// As its program has chosen.
    ev_chosen: Option<ProfileId>,
    cc_chosen: Option<ProfileId>,
    /// It has paths of its own, whatever profiles say.
    own_paths: bool,
    /// From RTR to RESET: its use of an EV profile, and of a CC profile.
    ev: Option<Binding>,
    cc: Option<ProfileId>,
    /// Its paths are those of a profile, also after RESET.
    has_profile_paths: bool,
}

impl Control {
    /// The profiles that a program asks for must be there.
    pub(super) fn choose_profiles(&self, create: &CreateQp) -> Result<Bound, CommandError> {
        let ev = create.ev_profile.as_ref();
        let cc = create.cc_profile.as_ref();
        Ok(Bound {
            ev_chosen: ev.map(|chosen| self.registry.ev_id(chosen, "queue pair")).transpose()?,
            cc_chosen: cc.map(|chosen| self.registry.cc_id(chosen, "queue pair")).transpose()?,
            own_paths: create.path.is_some(),
            ..Bound::default()
        })
    }

    /// What a queue pair gets towards this peer.
    pub(super) fn wire(&self, qpn: Qpn, remote: IpAddr, ports: usize) -> Result<Wiring, CommandError> {
        let record = self.qps.get(&qpn).ok_or(CommandError::NoSuchQp(qpn))?;
        let bound = &record.profiles;
        let cc = self.registry.cc_towards(bound.cc_chosen, remote);
        let id = self.ev_profile_of(record, remote);
        let plain = Wiring {
            path: bound.has_profile_paths.then(|| self.default_path(ports)),
            outer_source: None,
            encap: encap_towards(remote),
            of_profile: false,
            cc,
        };
        let (Some(profile), Some(extra)) = (self.registry.evs.ev(id), self.registry.extra(id)) else {
            return Ok(plain);
        };
        let layout = self.layout_towards(remote);
        let mut path = PathConfig::profile(profile, PortSet::first(ports as u8), layout);
        path.active = extra.active;
        path.fabric_trims = self.config.fabric_trims;
        if remote.is_ipv4() {
            path.ev_mask = 0xffff;
        }
        let encap = tunnel_of(profile, layout).unwrap_or_else(|| encap_towards(remote));
        let fault = |reason: &str| ProfileFault::new(format!("ev_profile {:?}", extra.name), reason);
        let mut outer_source = None;
        if matches!(encap, Encap::Srv6 | Encap::Srv6Srh) {
            if remote.is_ipv4() {
                return Err(fault("SRv6 carries IPv6 only: use IPv6 GIDs, or another profile").into());
            }
            outer_source = extra.outer_source.or(self.config.address_v6);
        }
        let usable = |path: ProfileEv| path.state != EntryState::Denied;
        if !profile
            .universe(PortSet::first(ports as u8), layout)
            .into_iter()
            .any(usable)
        {
            return Err(fault("all its EVs are DENIED: allow some, or use another profile").into());
        }
        Ok(Wiring {
            path: Some(path),
            outer_source,
            encap,
            of_profile: true,
            cc,
        })
    }

    /// The queue pair uses its profiles from now on.
    pub(super) fn bind(&mut self, qpn: Qpn, remote: IpAddr, cc: ProfileId) {
        self.unbind(qpn);
        let Some(record) = self.qps.get(&qpn) else { return };
        let ev = self.ev_profile_of(record, remote);
        // Profiles do not leave ONLINE between the choice and this: both are this thread's work.
        let binding = if self.registry.extra(ev).is_some() {
            self.registry.evs.bind(ev).ok()
        } else {
            None
        };
        let cc = self.registry.ccs.bind(cc).is_ok().then_some(cc);
        if let Some(record) = self.qps.get_mut(&qpn) {
            record.profiles.has_profile_paths = binding.is_some();
            record.profiles.ev = binding;
            record.profiles.cc = cc;
        }
    }

    /// It uses them no longer.
    pub(super) fn unbind(&mut self, qpn: Qpn) {
        let Some(record) = self.qps.get_mut(&qpn) else { return };
        if let Some(binding) = record.profiles.ev.take() {
            self.registry.evs.unbind(binding);
        }
        if let Some(cc) = record.profiles.cc.take() {
            self.registry.ccs.unbind(cc);
        }
    }

    fn ev_profile_of(&self, record: &QpRecord, remote: IpAddr) -> ProfileId {
        match record.profiles.ev_chosen {
            Some(chosen) => chosen,
            None if record.profiles.own_paths => BUILT_IN,
            None => self.registry.ev_towards(remote),
        }
    }

    /// Over IPv4 the source port is the lower half in either layout (wire-format.md §3).
    fn layout_towards(&self, remote: IpAddr) -> EvLayout {
        if remote.is_ipv4() {
            EvLayout::FlowHigh
        } else {
            self.config.ev_layout
        }
    }

    /// Says which profiles a queue pair uses.
    pub(super) fn name_profiles(&self, record: &QpRecord, info: &mut QpInfo) {
        if let Some((remote, _)) = record.addresses {
            let ev = record.profiles.ev.as_ref().map_or(BUILT_IN, Binding::profile);
            info.ev_profile = self.registry.ev_name(ev);
            let cc = self.registry.cc_towards(record.profiles.cc_chosen, remote);
            info.cc_profile = self.registry.cc_name(cc.id);
        }
    }

    /// Gives paths the names that their profile has for them. It has them in the same order.
    pub(super) fn name_paths(&self, record: &QpRecord, paths: &mut [PathInfo]) {
        let Some(id) = record.profiles.ev.as_ref().map(Binding::profile) else {
            return;
        };
        let (Some(profile), Some(extra)) = (self.registry.evs.ev(id), self.registry.extra(id)) else {
            return;
        };
        for (path, (ev, _)) in paths.iter_mut().zip(profile.entries()) {
            path.value = ev.map(|ev| ev.value);
            path.name = ev.and_then(|ev| extra.path_name(&ev)).map(str::to_owned);
        }
    }

    /// An EV profile as it is now.
    pub(super) fn ev_profile_info(
        &mut self,
        chosen: &ProfileRef,
        threads: &Threads,
    ) -> Result<EvProfileInfo, CommandError> {
        let id = self.registry.ev_id(chosen, "query")?;
        self.hear_reports(id, threads)?;
        let registry = &self.registry;
        let profile = registry.evs.ev(id).ok_or_else(|| gone(chosen))?;
        let entries = profile.entries().filter_map(|(ev, state)| {
            let ev = ev?;
            let name = registry.extra(id).and_then(|extra| extra.path_name(&ev));
            Some(EvEntryInfo {
                ev,
                name: name.map(str::to_owned),
                state: state?,
            })
        });
        Ok(EvProfileInfo {
            id,
            name: registry.ev_name(id),
            mode: profile.mode(),
            min_active: profile.min_active(),
            bound_qps: profile.bound_qps(),
            entries: entries.collect(),
        })
    }

    /// api.md §4.8 `MODIFY_EV_STATE`. Returns how many entries that were.
    pub(super) fn set_ev_state(
        &mut self,
        chosen: &ProfileRef,
        evs: &EvSelection,
        state: EntryState,
        threads: &Threads,
    ) -> Result<usize, CommandError> {
        let id = self.registry.ev_id(chosen, "change of EV states")?;
        let profile = self.registry.evs.ev(id).ok_or_else(|| gone(chosen))?;
        let extra = self.registry.extra(id);
        let selected = |ev: &PortEv| match evs {
            EvSelection::Named(name) => extra.and_then(|extra| extra.path_name(ev)) == Some(name.as_str()),
            EvSelection::Exactly(wanted) => ev == wanted,
            EvSelection::OnPort(port) => ev.port == *port,
            EvSelection::All => true,
        };
        let mut found: Vec<PortEv> = profile.entries().filter_map(|(ev, _)| ev).filter(selected).collect();
        let count = found.len();
        // Copies of an EV change together.
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            return Err(ProfileFault::new(
                format!("ev_profile {chosen}"),
                "it has no such EV: query the profile for its names, values and ports",
            )
            .into());
        }
        let ops: Vec<SetState> = found
            .into_iter()
            .map(|ev| SetState {
                ev,
                state,
                all_copies: true,
            })
            .collect();
        let change = EvChange {
            entries: Some(EvOp::SetState(&ops)),
            ..EvChange::default()
        };
        let fault = |error: &dyn ToString| ProfileFault::new(format!("ev_profile {chosen}"), error.to_string());
        let outcome = self.registry.evs.modify(id, &change);
        // Also of what is in force although a later one failed.
        let half_done = self.registry.evs.take_half_done().map(|(_, touched)| touched);
        if let Some(touched) = half_done.as_ref().or(outcome.as_ref().ok()) {
            self.tell_entries(id, touched, threads)?;
        }
        outcome.map_err(|error| fault(&error))?;
        Ok(count)
    }

    /// Queue pairs that use a profile learn what has changed in it.
    fn tell_entries(&self, id: ProfileId, touched: &Touched, threads: &Threads) -> Result<(), CommandError> {
        let Some(profile) = self.registry.evs.ev(id) else {
            return Ok(());
        };
        let indices: Vec<u32> = match touched {
            Touched::Nothing => return Ok(()),
            Touched::Entries(indices) => indices.clone(),
            Touched::All => (0..profile.ev_count()).collect(),
        };
        for record in self.qps.values() {
            let bound = record.profiles.ev.as_ref().map(Binding::profile) == Some(id);
            let Some((remote, _)) = record.addresses.filter(|_| bound) else {
                continue;
            };
            let layout = self.layout_towards(remote);
            let entries = indices.iter().filter_map(|&index| profile.path(index, layout));
            let task = Task::Entries {
                key: record.key,
                entries: entries.collect(),
            };
            threads.one(record.thread, task)?;
        }
        Ok(())
    }

    /// What queue pairs have found out about the paths of a profile becomes known to it.
    fn hear_reports(&mut self, id: ProfileId, threads: &Threads) -> Result<(), CommandError> {
        let mut keys: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let mut bound = BTreeMap::new();
        for (qpn, record) in &self.qps {
            if record.profiles.ev.as_ref().map(Binding::profile) == Some(id) {
                keys.entry(record.thread).or_default().push(record.key);
                bound.insert((record.thread, record.key), *qpn);
            }
        }
        for (thread, keys) in keys {
            let Answer::PathReports(reports) = threads.one(thread, Task::PathReports { keys })? else {
                continue;
            };
            for (key, entry, bad) in reports {
                let record = bound.get(&(thread, key)).and_then(|qpn| self.qps.get_mut(qpn));
                if let Some(binding) = record.and_then(|record| record.profiles.ev.as_mut()) {
                    self.registry.evs.handle_path(binding, entry, bad);
                }
            }
        }
        Ok(())
    }
}

fn gone(chosen: &ProfileRef) -> ProfileFault {
    ProfileFault::new(format!("ev_profile {chosen}"), "it is not there any more")
}
