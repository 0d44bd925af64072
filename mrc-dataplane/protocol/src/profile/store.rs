//! All format and EV profiles of a device (api.md §4.1, §4.4).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use mrc_wire::PortSet;

use super::config::{EvChange, EvMode, Room};
use super::entries::{EntryState, PortEv};
use super::error::ProfileError;
use super::ev::{Env, EvProfile, Touched};
use super::field::ProfileField;
use super::format::{FormatChange, FormatProfile, FormatUsers};
use super::state::ProfileState;

/// The EV profile that is always there: ONLINE, AUTO, not to be changed (api.md §4.1). A queue pair without a profile
/// behaves like it (protocol.md §7.1).
pub const BUILT_IN: u64 = 0;

/// No profile holds more EVs, whatever the limits: a queue pair names its paths with 16 bits.
pub const MAX_EV_COUNT: u32 = 16384;

/// Events that wait to be taken.
const EVENT_CAPACITY: usize = 1024;

/// What a device offers (api.md §4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Its ports.
    pub ports: PortSet,
    /// Format profiles outside INIT.
    pub max_formats: u32,
    /// EV profiles outside INIT, the built-in one not counted.
    pub max_profiles: u32,
    /// EVs of one profile; above [`MAX_EV_COUNT`] it means just that.
    pub max_count: u32,
    /// EVs of all profiles, the built-in one not counted.
    pub max_total: u32,
    /// May fields, entries and event masks be changed ONLINE?
    pub modify_online: bool,
}

impl Limits {
    /// What api.md §4.4 asks for at least, on these ports.
    pub const fn new(ports: PortSet) -> Self {
        Self {
            ports,
            max_formats: 32,
            max_profiles: 32,
            max_count: 1024,
            max_total: 4 * 1024,
            modify_online: true,
        }
    }
}

/// An entry changed to a state in the event mask of its profile (protocol.md §8.1, api.md §4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvEvent {
    /// Which profile.
    pub profile: u64,
    /// Which EV, as the controller knows it.
    pub ev: PortEv,
    /// Its new state.
    pub state: EntryState,
    /// Events lost between the one before and this (P20).
    pub lost_before: u32,
}

/// The use of a profile by a queue pair, from INIT until RESET or destruction (api.md §4.7). Give it back to
/// [`Profiles::unbind`]: until then the profile cannot leave ONLINE.
#[derive(Debug)]
#[must_use = "a profile cannot leave ONLINE until this is given back to `unbind`"]
pub struct Binding {
    profile: u64,
    marks: Vec<u32>,
}

impl Binding {
    /// Number of the profile.
    pub const fn profile(&self) -> u64 {
        self.profile
    }
}

/// Format and EV profiles, their references, and the events of their entries.
#[derive(Debug)]
pub struct Profiles {
    limits: Limits,
    seed: [u8; 32],
    formats: BTreeMap<u64, FormatProfile>,
    /// The built-in one included.
    evs: BTreeMap<u64, EvProfile>,
    events: Events,
    /// What the last call has changed although it failed, and in which profile.
    half_done: Option<(u64, Touched)>,
}

impl Profiles {
    /// Only the built-in profile. Generated and automatic EVs are drawn from `seed`.
    pub fn new(limits: Limits, seed: [u8; 32]) -> Self {
        let mut profiles = Self {
            limits,
            seed,
            formats: BTreeMap::new(),
            evs: BTreeMap::new(),
            events: Events::default(),
            half_done: None,
        };
        let mut built_in = EvProfile::new(profiles.limits.ports.len() as u32);
        let env = Env {
            formats: &profiles.formats,
            room: profiles.room(MAX_EV_COUNT),
            modify_online: false,
        };
        for (state, mode) in [
            (ProfileState::Offline, Some(EvMode::Auto)),
            (ProfileState::Online, None),
        ] {
            let change = EvChange {
                state: Some(state),
                mode,
                ..EvChange::default()
            };
            // Refused only without ports; then it stays OFFLINE, and nothing can be bound to it.
            let _ = built_in.modify(&change, &env, &mut |_, _| {}, &mut Touched::Nothing);
        }
        profiles.evs.insert(BUILT_IN, built_in);
        profiles
    }

    /// What was announced.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// EVs that are left for further profiles.
    pub fn free_count(&self) -> u32 {
        let own = self.evs.iter().filter(|(id, _)| **id != BUILT_IN);
        let used = own.map(|(_, profile)| profile.ev_count()).sum();
        self.limits.max_total.saturating_sub(used)
    }

    /// A format profile; `None` in INIT.
    pub fn format(&self, id: u64) -> Option<&FormatProfile> {
        self.formats.get(&id)
    }

    /// An EV profile; `None` in INIT.
    pub fn ev(&self, id: u64) -> Option<&EvProfile> {
        self.evs.get(&id)
    }

    /// The fields of an EV profile, those that EXPLICIT implies included (api.md §4.7).
    pub fn fields(&self, id: u64) -> Option<Vec<ProfileField>> {
        self.evs.get(&id)?.fields_in(&self.formats)
    }

    /// Changes a format profile: all or nothing (api.md §4.5).
    pub fn modify_format(&mut self, id: u64, change: &FormatChange<'_>) -> Result<(), ProfileError> {
        let mut users = FormatUsers::default();
        for (&user, profile) in &self.evs {
            if profile.format_id() == Some(id) {
                users.configured = users.configured.or(Some(user));
                if profile.state() == ProfileState::Online {
                    users.online = users.online.or(Some(user));
                }
            }
        }
        if let Some(profile) = self.formats.get_mut(&id) {
            profile.modify(change, users)?;
            if profile.state() == ProfileState::Init {
                self.formats.remove(&id);
            }
            return Ok(());
        }
        let mut profile = FormatProfile::default();
        profile.modify(change, users)?;
        if profile.state() != ProfileState::Init {
            if self.formats.len() >= self.limits.max_formats as usize {
                return Err(ProfileError::Slots(self.limits.max_formats));
            }
            self.formats.insert(id, profile);
        }
        Ok(())
    }

    /// Changes an EV profile (api.md §4.7). Bound queue pairs are to be told what was touched; if it fails,
    /// [`Profiles::take_half_done`] says whether anything was.
    pub fn modify(&mut self, id: u64, change: &EvChange<'_>) -> Result<Touched, ProfileError> {
        self.half_done = None;
        if id == BUILT_IN {
            return Err(ProfileError::BuiltIn);
        }
        let known = self.evs.remove(&id);
        let full = known.is_none() && self.evs.len() > self.limits.max_profiles as usize;
        let mut profile = known.unwrap_or_else(|| EvProfile::new(self.limits.ports.len() as u32));
        // With the profile taken out, its own EVs count as free.
        let env = Env {
            formats: &self.formats,
            room: self.room(self.free_count()),
            modify_online: self.limits.modify_online,
        };
        let mut touched = Touched::Nothing;
        let result = profile.modify(change, &env, &mut self.events.sink(id), &mut touched);
        if profile.state() == ProfileState::Init {
            return result.map(|()| touched);
        }
        if full {
            return Err(ProfileError::Slots(self.limits.max_profiles));
        }
        self.evs.insert(id, profile);
        match result {
            Ok(()) => Ok(touched),
            Err(error) => {
                self.half_done = (touched != Touched::Nothing).then_some((id, touched));
                Err(error)
            }
        }
    }

    /// What the last call of [`Profiles::modify`] has changed although it failed: operations on entries before the one
    /// that failed stay (api.md §4.8), so bound queue pairs are to be told of these, too.
    pub fn take_half_done(&mut self) -> Option<(u64, Touched)> {
        self.half_done.take()
    }

    /// A queue pair begins to use a profile.
    pub fn bind(&mut self, id: u64) -> Result<Binding, ProfileError> {
        let profile = self.evs.get_mut(&id);
        let profile = profile.filter(|profile| profile.state() == ProfileState::Online);
        let profile = profile.ok_or(ProfileError::NotOnline(id))?;
        profile.bind();
        Ok(Binding {
            profile: id,
            marks: vec![0; profile.ev_count() as usize],
        })
    }

    /// A queue pair no longer uses the profile; what it reported is forgotten.
    pub fn unbind(&mut self, mut binding: Binding) {
        if let Some(profile) = self.evs.get_mut(&binding.profile) {
            let mut event = self.events.sink(binding.profile);
            profile.unbind(&mut binding.marks, &mut event);
        }
    }

    /// A queue pair found a path of its profile bad, or good again. It may say the same twice.
    pub fn handle_path(&mut self, binding: &mut Binding, entry: u32, bad: bool) {
        if let Some(profile) = self.evs.get_mut(&binding.profile) {
            let mut event = self.events.sink(binding.profile);
            profile.report(&mut binding.marks, entry, bad, &mut event);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<EvEvent> {
        self.events.queue.pop_front()
    }

    fn room(&self, free: u32) -> Room {
        Room {
            ports: self.limits.ports,
            max_count: self.limits.max_count,
            free,
            seed: self.seed,
        }
    }
}

/// Bounded; what does not fit is counted (P20).
#[derive(Debug, Default)]
struct Events {
    queue: VecDeque<EvEvent>,
    lost: u32,
}

impl Events {
    fn sink(&mut self, profile: u64) -> impl FnMut(PortEv, EntryState) {
        move |ev, state| {
            if self.queue.len() >= EVENT_CAPACITY {
                self.lost = self.lost.saturating_add(1);
                return;
            }
            self.queue.push_back(EvEvent {
                profile,
                ev,
                state,
                lost_before: core::mem::take(&mut self.lost),
            });
        }
    }
}
