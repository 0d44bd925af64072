//! EV profiles: the paths that a controller offers to queue pairs (protocol.md §7.1, api.md §4.7).

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use mrc_wire::{Ev, EvLayout, PortNum, PortSet};

use super::VENDOR_CFG_LEN;
use super::config::{Config, EvChange, EvMode, EventMask, Room, default_min_active};
use super::entries::{Entries, EntryState, PortEv};
use super::error::ProfileError;
use super::expand::Expansion;
use super::field::{Format, FormatMode, ProfileField};
use super::format::FormatProfile;
use super::output::{Containers, Output};
use super::state::{Bar, Need, Object, Plan, ProfileState, plan};

/// One path of a profile as a queue pair uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileEv {
    /// The 32 bits in the packets, which SACKs reflect.
    ///
    /// With STEV and UDP the wire value itself. With SRv6 the unexpanded EV if it has at most 32 bits, left-aligned, else
    /// a number of its own (W5). Copies of an entry share a tag, since feedback is about all of them.
    pub tag: Ev,
    /// Egress port.
    pub port: PortNum,
    /// Outer addresses, with SRv6 only.
    pub encap: Option<Containers>,
    /// Index in the profile: the name to report under.
    pub entry: u32,
    /// What the controller set last: the state to begin with (api.md §4.7).
    pub state: EntryState,
}

/// Which entries a call changed: bound queue pairs are to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// None.
    Nothing,
    /// These got another EV, or a state by the controller.
    Entries(Vec<u32>),
    /// The array, or what it expands to, is another one.
    All,
}

/// Something permitted that is unwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// A responder reflects no port: feedback about such a value is ambiguous (protocol.md §5.5).
    ValueOnTwoPorts(PortEv, PortEv),
    /// UDP source port 0 (W6).
    SourcePortZero(PortEv),
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ValueOnTwoPorts(one, other) => write!(
                f,
                "EV {} stands on ports {} and {}: feedback cannot tell them apart, give each port values of its own",
                one.value, one.port, other.port
            ),
            Self::SourcePortZero(ev) => write!(
                f,
                "EV {} on port {} gives UDP source port 0, which some devices drop: leave it out",
                ev.value, ev.port
            ),
        }
    }
}

/// What a change is judged against.
#[derive(Clone, Copy)]
pub(super) struct Env<'a> {
    pub(super) formats: &'a BTreeMap<u64, FormatProfile>,
    pub(super) room: Room,
    pub(super) modify_online: bool,
}

impl<'a> Env<'a> {
    fn format_profile(&self, config: &Config) -> Option<&'a FormatProfile> {
        self.formats.get(&config.format_id?)
    }

    pub(super) fn format(&self, config: &Config) -> Option<&'a Format> {
        self.format_profile(config)?.format()
    }
}

/// An EV profile outside INIT.
#[derive(Clone, Debug)]
pub struct EvProfile {
    pub(super) state: ProfileState,
    pub(super) config: Config,
    /// In force while ONLINE; before, the best that is known.
    pub(super) expansion: Option<Expansion>,
    pub(super) entries: Entries,
    /// Ports of the device.
    planes: u32,
    /// Queue pairs that use it.
    pub(super) bound: u32,
}

impl EvProfile {
    pub(super) fn new(planes: u32) -> Self {
        Self {
            state: ProfileState::Init,
            config: Config::default(),
            expansion: None,
            entries: Entries::unpopulated(0),
            planes,
            bound: 0,
        }
    }

    /// Its state.
    pub const fn state(&self) -> ProfileState {
        self.state
    }

    /// Who makes the EVs.
    pub const fn mode(&self) -> Option<EvMode> {
        self.config.mode
    }

    /// Number of its format; none in mode AUTO.
    pub const fn format_id(&self) -> Option<u64> {
        self.config.format_id
    }

    /// How many EVs the array has, after rounding (api.md §4.7).
    pub fn ev_count(&self) -> u32 {
        self.entries.len()
    }

    /// EVs that must stay usable: the controller's word, or else a quarter of those in use (protocol.md §15).
    pub fn min_active(&self) -> u32 {
        let default = || default_min_active(self.ev_count(), self.planes).min(self.ev_count().max(1));
        self.config.min_active.unwrap_or_else(default)
    }

    /// Which changes are events.
    pub const fn event_mask(&self) -> EventMask {
        self.config.event_mask
    }

    /// The provider's own bytes.
    pub const fn vendor_cfg(&self) -> &[u8; VENDOR_CFG_LEN] {
        &self.config.vendor_cfg
    }

    /// Fields that hold the plane (protocol.md §7.4).
    pub const fn plane_fields(&self) -> &[u16] {
        &self.config.plane_fields
    }

    /// The fields as set; [`super::Profiles::fields`] knows the implied ones too.
    pub fn fields(&self) -> Option<&[ProfileField]> {
        self.config.fields.as_deref()
    }

    pub(super) fn fields_in(&self, formats: &BTreeMap<u64, FormatProfile>) -> Option<Vec<ProfileField>> {
        let format = self.config.format_id.and_then(|id| formats.get(&id)?.format());
        self.config.fields_in(format).map(Cow::into_owned)
    }

    /// How its EVs expand, once fields and format are known.
    pub const fn expansion(&self) -> Option<&Expansion> {
        self.expansion.as_ref()
    }

    /// Queue pairs that use it.
    pub const fn bound_qps(&self) -> u32 {
        self.bound
    }

    /// One entry of the array; both parts are `None` where it is not populated.
    pub fn entry(&self, index: u32) -> (Option<PortEv>, Option<EntryState>) {
        (self.entries.ev(index), self.entries.state(index))
    }

    /// The whole array in index order.
    pub fn entries(&self) -> impl Iterator<Item = (Option<PortEv>, Option<EntryState>)> {
        (0..self.entries.len()).map(|index| self.entry(index))
    }

    /// State of the first entry with this EV on this port (api.md §4.8).
    pub fn entry_state(&self, ev: &PortEv) -> Result<EntryState, ProfileError> {
        let index = self.entries.find(Some(*ev)).ok_or(ProfileError::NotFound)?;
        self.entries.state(index).ok_or(ProfileError::NotFound)
    }

    /// Which bits of a reflected entropy name a path (wire-format.md §3). Over IPv4 only the lower half is carried.
    pub fn ev_mask(&self, layout: EvLayout) -> u32 {
        match (self.expansion.as_ref().map(Expansion::mode), layout) {
            (Some(FormatMode::Udp), EvLayout::FlowHigh) => 0x0000_ffff,
            (Some(FormatMode::Udp), EvLayout::PortHigh) => 0xffff_0000,
            _ => u32::MAX,
        }
    }

    /// The paths on these ports, copies (weights) and DENIED ones included (protocol.md §1, §7.1). Over IPv4 the layout
    /// is `FlowHigh`. Empty unless ONLINE.
    pub fn universe(&self, ports: PortSet, layout: EvLayout) -> Vec<ProfileEv> {
        let paths = (0..self.entries.len()).filter_map(|entry| self.path(entry, layout));
        paths.filter(|path| ports.contains(path.port)).collect()
    }

    /// One of them, as it is now: for queue pairs that were told that it was touched ([`crate::Qp::handle_entry`]).
    pub fn path(&self, entry: u32, layout: EvLayout) -> Option<ProfileEv> {
        let expansion = self.expansion.as_ref().filter(|_| self.state == ProfileState::Online)?;
        let ev = self.entries.ev(entry)?;
        // ONLINE, every entry expands.
        let output = expansion.output(&ev.value).ok()?;
        let tag = output.tag(layout).or_else(|| self.srv6_tag(expansion, entry, &ev));
        Some(ProfileEv {
            tag: tag?,
            port: ev.port,
            encap: match output {
                Output::Srv6(containers) => Some(containers),
                Output::Stev(_) | Output::Udp(_) => None,
            },
            entry,
            state: self.entries.set_by_controller(entry),
        })
    }

    /// Any injective tag would do: nobody but this side interprets it (wire-format.md §3, W5).
    fn srv6_tag(&self, expansion: &Expansion, entry: u32, ev: &PortEv) -> Option<Ev> {
        if expansion.taken_bits() <= 32 {
            Some(Ev(ev.value.first_u32()))
        } else {
            self.entries.tag(entry).map(Ev)
        }
    }

    /// What is unwise about the array, one example of each kind.
    pub fn advice(&self) -> impl Iterator<Item = Advice> {
        let pairs = self.entries.sorted().zip(self.entries.sorted().skip(1));
        let twice = pairs
            .filter(|(one, other)| one.value == other.value && one.port != other.port)
            .map(|(one, other)| Advice::ValueOnTwoPorts(one, other))
            .next();
        let port_zero = self.entries.sorted().find(|ev| {
            let output = self
                .expansion
                .as_ref()
                .and_then(|expansion| expansion.output(&ev.value).ok());
            match output {
                Some(Output::Stev(wire)) => wire.0.trailing_zeros() >= 16,
                Some(Output::Udp(port)) => port == 0,
                Some(Output::Srv6(_)) | None => false,
            }
        });
        twice.into_iter().chain(port_zero.map(Advice::SourcePortZero))
    }

    /// One call of a controller: all or nothing, except that an entry that fails leaves the entries before it and the
    /// attributes in force, without the change of state (api.md §4.1): `touched` names them then, too.
    pub(super) fn modify(
        &mut self,
        change: &EvChange<'_>,
        env: &Env<'_>,
        event: &mut dyn FnMut(PortEv, EntryState),
        touched: &mut Touched,
    ) -> Result<(), ProfileError> {
        let plan = plan(
            Object::Ev,
            self.state,
            change.current_state,
            change.state,
            change.attrs(),
            env.modify_online,
        )?;
        if plan.bar == Some(Bar::BoundQp) && self.bound > 0 {
            return Err(ProfileError::QpsBound(self.bound));
        }
        if plan.to == ProfileState::Init {
            *self = Self::new(self.planes);
            if plan.moves() {
                *touched = Touched::All;
            }
            return Ok(());
        }
        if change.entries.is_some() && (change.fields.is_some() || change.plane_fields.is_some()) {
            return Err(ProfileError::EntriesAndFields);
        }
        let (config, expansion, array) = self.draft(change, env, &plan)?;
        let rearranged = array.is_some() || change.fields.is_some() || change.plane_fields.is_some();
        if change.entries.is_none() {
            let entries = array.as_ref().unwrap_or(&self.entries);
            if plan.moves() || rearranged {
                ready(&plan, &config, expansion.as_ref(), entries, env)?;
            }
        }
        let before = (plan.moves() && change.entries.is_some()).then(|| self.clone());
        self.config = config;
        self.expansion = expansion;
        if let Some(array) = array {
            self.entries = array;
        }
        if rearranged {
            *touched = Touched::All;
        }
        if let Some(op) = change.entries
            && let Err(error) = self.operate(op, env, event, touched)
        {
            if plan.from == ProfileState::Init {
                *self = Self::new(self.planes);
                *touched = Touched::Nothing;
            }
            return Err(error);
        }
        if let Some(before) = before
            && let Err(error) = ready(&plan, &self.config, self.expansion.as_ref(), &self.entries, env)
        {
            *self = before;
            *touched = Touched::Nothing;
            return Err(error);
        }
        self.state = plan.to;
        Ok(())
    }

    /// Everything that the attributes make of the profile, and a new array if they ask for one.
    fn draft(
        &self,
        change: &EvChange<'_>,
        env: &Env<'_>,
        plan: &Plan,
    ) -> Result<(Config, Option<Expansion>, Option<Entries>), ProfileError> {
        let config = self.config.with(change)?;
        if let Some(id) = change.format_id.filter(|_| config.format_id == change.format_id) {
            // In AUTO the number is ignored (api.md §4.7).
            if !env.formats.contains_key(&id) {
                return Err(ProfileError::NoFormat(id));
            }
        }
        let format = env.format(&config);
        // Fields meet the format when they are set and when the profile goes ONLINE; between, either may change.
        let goes_online = plan.moves() && plan.to == ProfileState::Online;
        let expansion = match config.expansion(format) {
            Err(error) if change.fields.is_some() || goes_online => return Err(error.into()),
            expansion => expansion.unwrap_or(None),
        };
        if change.fields.is_some() || change.plane_fields.is_some() || goes_online {
            config.check_planes(format, env.room.ports)?;
        }
        let redrawn =
            config.mode == Some(EvMode::Generated) && (change.fields.is_some() || change.plane_fields.is_some());
        let array = if change.resets_entries() || redrawn {
            Some(config.array(format, &env.room)?.after(&self.entries))
        } else {
            None
        };
        let count = array.as_ref().unwrap_or(&self.entries).len();
        match config.min_active {
            Some(min_active) if min_active > count => Err(ProfileError::MinActive { min_active, count }),
            _ => Ok((config, expansion, array)),
        }
    }
}

/// Does the profile have what the state after the call needs? (api.md §4.7)
fn ready(
    plan: &Plan,
    config: &Config,
    expansion: Option<&Expansion>,
    entries: &Entries,
    env: &Env<'_>,
) -> Result<(), ProfileError> {
    let to = plan.to;
    let online = |format: &FormatProfile| format.state() == ProfileState::Online;
    for &(of, need) in plan.needs {
        let met = match need {
            Need::Mode => config.mode.is_some(),
            Need::FormatId => config.format_id.is_some(),
            Need::Count => config.count.is_some(),
            Need::Fields => expansion.is_some(),
            Need::AllPopulated => (0..entries.len()).all(|index| entries.ev(index).is_some()),
            Need::FormatOnline => env.format_profile(config).is_some_and(online),
            Need::Port => !env.room.ports.is_empty(),
        };
        if !met && config.mode.is_none_or(|mode| of.includes(mode)) {
            return Err(ProfileError::Missing { need, to });
        }
    }
    if to == ProfileState::Online && config.mode == Some(EvMode::Explicit) {
        // Fields or format may have changed since the entries were written.
        for entry in 0..entries.len() {
            if let (Some(ev), Some(expansion)) = (entries.ev(entry), expansion) {
                expansion
                    .check(&ev.value)
                    .map_err(|source| ProfileError::Entry { entry, source })?;
                config.check_plane_of(env.format(config), &ev)?;
            }
        }
    }
    Ok(())
}
