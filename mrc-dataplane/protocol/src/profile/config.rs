//! What a controller says about an EV profile (protocol.md §7.1, api.md §4.7, §4.8).

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use mrc_wire::PortSet;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::VENDOR_CFG_LEN;
use super::draw::Space;
use super::entries::{Entries, EntryState, PortEv};
use super::error::{FieldError, ProfileError};
use super::expand::Expansion;
use super::field::{Format, FormatField, FormatMode, MAX_FIELDS, ProfileField};
use super::state::{Attr, ProfileState};
use super::store::MAX_EV_COUNT;
use super::value::EvValue;

/// Who makes the EVs (protocol.md §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvMode {
    /// The endpoint: random UDP source ports.
    Auto,
    /// The controller: each entry.
    Explicit,
    /// The endpoint, from the controller's ranges.
    Generated,
}

impl fmt::Display for EvMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "AUTO",
            Self::Explicit => "EXPLICIT",
            Self::Generated => "GENERATED",
        })
    }
}

/// Which changes of an entry's state are events. DENIED cannot be among them (api.md §4.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventMask {
    /// It is good again.
    pub good: bool,
    /// Its path failed.
    pub assumed_bad: bool,
}

impl EventMask {
    pub(super) const fn includes(self, state: EntryState) -> bool {
        match state {
            EntryState::Good => self.good,
            EntryState::AssumedBad => self.assumed_bad,
            EntryState::Denied => false,
        }
    }
}

/// Puts an EV in place of another one; `None` stands for an entry that is not populated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replace {
    /// The entry to find.
    pub old: Option<PortEv>,
    /// What it becomes.
    pub new: Option<PortEv>,
    /// Its state.
    pub state: EntryState,
    /// Every copy of it, or else the one with the lowest index.
    pub all_copies: bool,
}

/// Gives an entry a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetState {
    /// The entry to find.
    pub ev: PortEv,
    /// Its state. ASSUMED_BAD here does not ask for `ev_min_active` (api.md §4.8).
    pub state: EntryState,
    /// Every copy of it, or else the one with the lowest index.
    pub all_copies: bool,
}

/// One operation on entries, applied in order up to the first that fails (api.md §4.8).
#[derive(Clone, Copy, Debug)]
pub enum EvOp<'a> {
    /// Puts EVs in place of others; EXPLICIT only.
    Replace(&'a [Replace]),
    /// Sets states.
    SetState(&'a [SetState]),
}

/// One call that changes an EV profile. What is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvChange<'a> {
    /// The state to move to, one step at a time.
    pub state: Option<ProfileState>,
    /// The state that the caller believes the profile is in.
    pub current_state: Option<ProfileState>,
    /// Who makes the EVs.
    pub mode: Option<EvMode>,
    /// Number of the format profile; ignored in mode AUTO.
    pub format_id: Option<u64>,
    /// How many EVs.
    pub count: Option<u32>,
    /// What an EV fills. EXPLICIT without: all bits of all format fields.
    pub fields: Option<&'a [ProfileField]>,
    /// Fields (counted from 0) whose masked bits hold the plane, `min_val` on port 1 and one more on each next port. They
    /// are no choice of GENERATED, and EVs of EXPLICIT must agree with their port (protocol.md §7.4).
    pub plane_fields: Option<&'a [u16]>,
    /// EVs that must stay usable.
    pub min_active: Option<u32>,
    /// Which changes are events.
    pub event_mask: Option<EventMask>,
    /// The provider's own bytes.
    pub vendor_cfg: Option<[u8; VENDOR_CFG_LEN]>,
    /// Entries.
    pub entries: Option<EvOp<'a>>,
}

impl EvChange<'_> {
    pub(super) fn attrs(&self) -> impl Iterator<Item = Attr> {
        [
            (self.mode.is_some(), Attr::Mode),
            (self.format_id.is_some(), Attr::FormatId),
            (self.count.is_some(), Attr::Count),
            (self.fields.is_some(), Attr::Fields),
            (self.plane_fields.is_some(), Attr::PlaneFields),
            (self.min_active.is_some(), Attr::MinActive),
            (self.event_mask.is_some(), Attr::EventMask),
            (self.vendor_cfg.is_some(), Attr::VendorCfg),
            (matches!(self.entries, Some(EvOp::Replace(_))), Attr::ReplaceEv),
            (matches!(self.entries, Some(EvOp::SetState(_))), Attr::EvState),
        ]
        .into_iter()
        .filter_map(|(set, attr)| set.then_some(attr))
    }

    /// Does it start the array afresh? (api.md §4.7)
    pub(super) const fn resets_entries(&self) -> bool {
        self.mode.is_some() || self.format_id.is_some() || self.count.is_some()
    }
}

/// All that a controller said, without the entries.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) mode: Option<EvMode>,
    pub(super) format_id: Option<u64>,
    /// As asked for; the array may be smaller.
    pub(super) count: Option<u32>,
    pub(super) fields: Option<Box<[ProfileField]>>,
    pub(super) plane_fields: Box<[u16]>,
    pub(super) min_active: Option<u32>,
    pub(super) event_mask: EventMask,
    pub(super) vendor_cfg: [u8; VENDOR_CFG_LEN],
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: None,
            format_id: None,
            count: None,
            fields: None,
            plane_fields: Box::default(),
            min_active: None,
            event_mask: EventMask::default(),
            vendor_cfg: [0; VENDOR_CFG_LEN],
        }
    }
}

/// What there is for the array of a profile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) ports: PortSet,
    /// Most EVs of one profile.
    pub(super) max_count: u32,
    /// EVs that other profiles leave.
    pub(super) free: u32,
    pub(super) seed: [u8; 32],
}

/// Source ports of AUTO are drawn from 0xC000-0xFFFF (W6). An EV of AUTO is the source port itself.
const AUTO_FORMAT: FormatField = FormatField::new(16);
pub(super) const AUTO_FIELD: ProfileField = ProfileField {
    width: 16,
    init_val: 0,
    min_val: 0xc000,
    max_val: 0xffff,
    mask: 0xffff,
};

/// EVs of AUTO, and of them in use (protocol.md §15).
const DEFAULT_COUNT: u32 = 128;
const DEFAULT_ACTIVE: u32 = 64;

impl Config {
    /// The configuration after a call (api.md §4.7).
    pub(super) fn with(&self, change: &EvChange<'_>) -> Result<Self, ProfileError> {
        let mut next = self.clone();
        next.mode = change.mode.or(self.mode);
        if next.mode == Some(EvMode::Auto) {
            // AUTO has a format and fields of its own.
            next.format_id = None;
            next.fields = None;
            next.plane_fields = Box::default();
            for (set, attr) in [
                (change.fields.is_some(), Attr::Fields),
                (change.plane_fields.is_some(), Attr::PlaneFields),
            ] {
                if set {
                    return Err(ProfileError::NotInMode {
                        attr,
                        mode: EvMode::Auto,
                    });
                }
            }
        } else {
            next.format_id = change.format_id.or(self.format_id);
        }
        next.count = change.count.or(self.count);
        if next.count == Some(0) {
            return Err(ProfileError::NoCount);
        }
        if let Some(fields) = change.fields {
            if fields.len() > MAX_FIELDS {
                return Err(FieldError::Fields {
                    count: fields.len(),
                    limit: MAX_FIELDS,
                }
                .into());
            }
            for (field, part) in fields.iter().enumerate() {
                part.check(field)?;
            }
            let bits = fields.iter().map(ProfileField::taken).sum();
            if bits > EvValue::BITS {
                return Err(FieldError::Taken { bits }.into());
            }
            next.fields = Some(fields.into());
        }
        if let Some(planes) = change.plane_fields {
            if planes.len() > MAX_FIELDS {
                return Err(FieldError::Fields {
                    count: planes.len(),
                    limit: MAX_FIELDS,
                }
                .into());
            }
            next.plane_fields = planes.into();
        }
        next.min_active = change.min_active.or(self.min_active);
        next.event_mask = change.event_mask.unwrap_or(self.event_mask);
        next.vendor_cfg = change.vendor_cfg.unwrap_or(self.vendor_cfg);
        Ok(next)
    }

    /// The fields in force. EXPLICIT without fields: one full-mask field per format field (api.md §4.7).
    pub(super) fn fields_in<'a>(&'a self, format: Option<&Format>) -> Option<Cow<'a, [ProfileField]>> {
        match (self.mode?, self.fields.as_deref(), format) {
            (EvMode::Auto, _, _) => Some(Cow::Borrowed(&[AUTO_FIELD])),
            (_, Some(fields), _) => Some(Cow::Borrowed(fields)),
            (EvMode::Explicit, None, Some(format)) => {
                let free: Vec<_> = format
                    .fields()
                    .iter()
                    .map(|field| ProfileField::free(field.width))
                    .collect();
                Some(Cow::Owned(free))
            }
            _ => None,
        }
    }

    /// How to expand; `None` as long as fields or format are missing.
    pub(super) fn expansion(&self, format: Option<&Format>) -> Result<Option<Expansion>, FieldError> {
        let Some(fields) = self.fields_in(format) else {
            return Ok(None);
        };
        match (self.mode, format) {
            (Some(EvMode::Auto), _) => {
                let format = Format::new(FormatMode::Udp, &[AUTO_FORMAT])?;
                Expansion::new(&format, &fields).map(Some)
            }
            (_, Some(format)) => Expansion::new(format, &fields).map(Some),
            (_, None) => Ok(None),
        }
    }

    /// Can each plane field name each port?
    pub(super) fn check_planes(&self, format: Option<&Format>, ports: PortSet) -> Result<(), ProfileError> {
        let Some(fields) = self.fields_in(format) else {
            return Ok(());
        };
        for &plane in &self.plane_fields {
            for port in ports.iter() {
                let field = fields.get(usize::from(plane)).filter(|field| field.mask != 0);
                if field.is_none_or(|field| plane_number(field, port.get()) > u64::from(*field.range().end())) {
                    return Err(ProfileError::PlaneField {
                        field: usize::from(plane),
                        port: port.get(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Do the plane fields of an EV agree with its port? (protocol.md §7.4)
    pub(super) fn check_plane_of(&self, format: Option<&Format>, ev: &PortEv) -> Result<(), ProfileError> {
        if self.plane_fields.is_empty() {
            return Ok(());
        }
        let fields = self.fields_in(format).unwrap_or_default();
        let mut at = 0;
        for (index, field) in fields.iter().enumerate() {
            let actual = ev.value.bits(at, field.taken());
            at += field.taken();
            let expected = plane_number(field, ev.port.get()) as u32;
            if actual != expected && self.plane_fields.iter().any(|&plane| usize::from(plane) == index) {
                return Err(ProfileError::PlaneValue {
                    field: index,
                    port: ev.port.get(),
                    actual,
                    expected,
                });
            }
        }
        Ok(())
    }

    /// A new array. AUTO takes 128 EVs if it is not told how many, but at least 2 per port (protocol.md §15).
    pub(super) fn array(&self, format: Option<&Format>, room: &Room) -> Result<Entries, ProfileError> {
        let limit = room.max_count.min(MAX_EV_COUNT);
        let planes = room.ports.len() as u32;
        let count = match (self.count, self.mode) {
            (Some(count), _) => count,
            (None, Some(EvMode::Auto)) => (DEFAULT_COUNT.div_ceil(planes.max(1)).max(2) * planes).min(limit),
            (None, _) => 0,
        };
        if count > limit {
            return Err(ProfileError::Count { count, limit });
        }
        if count > room.free {
            return Err(ProfileError::Free { count, free: room.free });
        }
        match (self.mode, self.fields_in(format)) {
            (Some(EvMode::Auto | EvMode::Generated), Some(fields)) => {
                let space = Space::new(&fields, &self.plane_fields);
                // The same configuration gives the same EVs (api.md §4.7).
                let mut rng = ChaCha8Rng::from_seed(room.seed);
                Ok(Entries::of(space.entries(count, room.ports, &mut rng)))
            }
            _ => Ok(Entries::unpopulated(count)),
        }
    }
}

/// The number that stands for a port in a plane field.
fn plane_number(field: &ProfileField, port: u8) -> u64 {
    u64::from(*field.range().start()) + u64::from(port) - 1
}

/// The floor when the controller names none: a quarter of the EVs in active use, at least 1. In use are 64, or all but
/// one per plane of a smaller universe (protocol.md §15, api.md §4.7).
pub(super) fn default_min_active(count: u32, planes: u32) -> u32 {
    let active = if count < DEFAULT_ACTIVE {
        count.saturating_sub(planes)
    } else {
        DEFAULT_ACTIVE
    };
    (active / 4).max(1)
}
