//! What can be wrong with fields, values and changes of profiles. Fields and entries are counted from 0.

use thiserror::Error;

use super::config::EvMode;
use super::field::{FormatMode, MAX_FIELDS, MAX_WIDTH};
use super::state::{Attr, Need, ProfileState};
use super::store::MAX_EV_COUNT;
use super::value::EvValue;

/// What kind of answer an error is: the `errno` of the C interface (api.md §4.5 to §4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// `EINVAL`: wrong, now or ever.
    Invalid,
    /// `E2BIG`: more than this device handles.
    TooBig,
    /// `EBUSY`: somebody uses it.
    Busy,
    /// `ENOENT`: there is no such entry.
    NotFound,
}

/// Why a format, the fields of a profile or a value are refused (protocol.md §7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// A format without fields.
    #[error("a format needs at least 1 field: give their widths")]
    NoFormatFields,
    /// Too many format fields.
    #[error("{count} format fields, at most {MAX_FIELDS}: join neighbours")]
    FormatFields {
        /// How many.
        count: usize,
    },
    /// The width of a format field.
    #[error("format field {field}: width {width} is outside 1 to {MAX_WIDTH}: split it or leave it out")]
    FormatWidth {
        /// Which field.
        field: usize,
        /// Its width.
        width: u32,
    },
    /// The sum of the widths of a format.
    #[error("format fields have {bits} bits in all, {mode} carries {limit}: narrow them or choose another mode")]
    FormatBits {
        /// Mode of the format.
        mode: FormatMode,
        /// Sum of the widths.
        bits: u32,
        /// What the mode carries.
        limit: u32,
    },
    /// A format field would lie across both containers.
    #[error(
        "format fields beyond 128 bits need a boundary at bit 128, where the second container begins: split a field"
    )]
    NoBoundary,
    /// A profile without fields.
    #[error("a profile needs at least 1 field: describe what the EV fills")]
    NoFields,
    /// More fields than the format has.
    #[error("{count} profile fields, the format has {limit}: leave fields out or extend the format")]
    Fields {
        /// How many.
        count: usize,
        /// Fields of the format.
        limit: usize,
    },
    /// The width of a field.
    #[error("field {field}: width {width} is outside 1 to {MAX_WIDTH}: split it or leave it out")]
    Width {
        /// Which field.
        field: usize,
        /// Its width.
        width: u32,
    },
    /// The sum of the widths.
    #[error("fields have {bits} bits in all, the format has {limit}: narrow them or extend the format")]
    Bits {
        /// Sum of the widths.
        bits: u32,
        /// Sum of the format's widths.
        limit: u32,
    },
    /// A field wider than its format field (P18).
    #[error(
        "field {field}: width {width} is above the {limit} bits of its format field: narrow it or widen the format"
    )]
    WiderThanFormat {
        /// Which field.
        field: usize,
        /// Its width.
        width: u32,
        /// Width of the format field.
        limit: u32,
    },
    /// Fixed bits outside the field.
    #[error(
        "field {field}: init_val {init_val:#x} needs more than {width} bits: widen the field or clear the upper bits"
    )]
    InitVal {
        /// Which field.
        field: usize,
        /// Its value.
        init_val: u32,
        /// Its width.
        width: u32,
    },
    /// A mask outside the field.
    #[error("field {field}: mask {mask:#x} needs more than {width} bits: widen the field or clear the upper bits")]
    Mask {
        /// Which field.
        field: usize,
        /// Its mask.
        mask: u32,
        /// Its width.
        width: u32,
    },
    /// A range without a mask.
    #[error("field {field}: a constant (mask 0) takes no range: set min_val and max_val to 0")]
    ConstantRange {
        /// Which field.
        field: usize,
    },
    /// An empty range.
    #[error("field {field}: min_val {min_val} is above max_val {max_val}: exchange them")]
    Range {
        /// Which field.
        field: usize,
        /// Its lower end.
        min_val: u32,
        /// Its upper end.
        max_val: u32,
    },
    /// A range that the mask cannot hold.
    #[error(
        "field {field}: max_val {max_val} does not fit the {bits} bits of the mask: lower it or set more mask bits"
    )]
    MaxVal {
        /// Which field.
        field: usize,
        /// Its upper end.
        max_val: u32,
        /// Set bits of the mask.
        bits: u32,
    },
    /// Masks that take more bits than an EV has.
    #[error("masks take {bits} bits, an EV has {}: clear mask bits", EvValue::BITS)]
    Taken {
        /// Bits that the masks take.
        bits: u32,
    },
    /// Bits that no mask takes.
    #[error("bit {bit} of the EV is set, the fields take {taken} bits: clear what follows")]
    Excess {
        /// The last set bit.
        bit: u32,
        /// Bits that the fields take.
        taken: u32,
    },
    /// Not a value that the fields expand to.
    #[error("bits {at} to {end} are not what the fields expand to: they are fixed")]
    NotExpanded {
        /// First bit of the format field (or of the rest).
        at: u32,
        /// Its last bit.
        end: u32,
    },
    /// Bits that the mode does not carry.
    #[error("bit {bit} of the wire value is set, {mode} carries {limit}: clear what follows")]
    BeyondMode {
        /// The last set bit.
        bit: u32,
        /// The mode.
        mode: FormatMode,
        /// What it carries.
        limit: u32,
    },
}

impl FieldError {
    /// The kind of answer (api.md §4.5, §4.7).
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::FormatFields { .. } | Self::FormatBits { .. } | Self::Taken { .. } => ErrorClass::TooBig,
            _ => ErrorClass::Invalid,
        }
    }
}

/// Why a profile is not changed or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// Fields, or a value.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The assertion about the current state does not hold.
    #[error("the profile is {actual}, not {expected} as the call says: query it")]
    CurrentState {
        /// Its state.
        actual: ProfileState,
        /// The state that was asserted.
        expected: ProfileState,
    },
    /// A jump.
    #[error("no step from {from} to {to}: go INIT, OFFLINE, ONLINE or back, one step a call")]
    Transition {
        /// The state.
        from: ProfileState,
        /// The state that was asked for.
        to: ProfileState,
    },
    /// An attribute that cannot be set now.
    #[error("{attr} cannot be set in a call that leads from {from} to {to}: {} first", remedy(*.from, *.to))]
    NotNow {
        /// The attribute.
        attr: Attr,
        /// The state.
        from: ProfileState,
        /// The state after the call.
        to: ProfileState,
    },
    /// Something that the next state needs.
    #[error("{to} needs {need}")]
    Missing {
        /// What.
        need: Need,
        /// The state that was asked for.
        to: ProfileState,
    },
    /// Queue pairs use the profile (protocol.md §7.1).
    #[error("{0} queue pairs use the profile: move them to RESET first")]
    QpsBound(u32),
    /// An EV profile uses the format (api.md §4.5).
    #[error("EV profile {0} refers to this format: take it back first")]
    FormatInUse(u64),
    /// All profiles of this kind are taken (api.md §4.1).
    #[error("all {0} profiles are in use: move one to INIT first")]
    Slots(u32),
    /// Profile 0 cannot be changed (api.md §4.1).
    #[error("EV profile 0 is built in and cannot be changed: use another number")]
    BuiltIn,
    /// The format that the profile names is in INIT.
    #[error("format profile {0} is in INIT: set its mode first")]
    NoFormat(u64),
    /// No EVs.
    #[error("ev_count 0: ask for at least 1")]
    NoCount,
    /// More EVs than a profile holds.
    #[error("ev_count {count} is above {limit} (a profile never holds more than {MAX_EV_COUNT}): ask for fewer")]
    Count {
        /// What was asked for.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// More EVs than are left over all profiles.
    #[error("ev_count {count} is above the {free} that other profiles leave: free some or ask for fewer")]
    Free {
        /// What was asked for.
        count: u32,
        /// What is left.
        free: u32,
    },
    /// A floor above the number of EVs.
    #[error("ev_min_active {min_active} is above ev_count {count}: lower it")]
    MinActive {
        /// The floor.
        min_active: u32,
        /// EVs of the profile.
        count: u32,
    },
    /// An attribute or operation that the mode has no use for.
    #[error("{attr} has no meaning in mode {mode}: leave it out or choose another mode")]
    NotInMode {
        /// The attribute.
        attr: Attr,
        /// The mode.
        mode: EvMode,
    },
    /// Two things in one call (api.md §4.7).
    #[error("operations on entries and on fields cannot share a call: make two")]
    EntriesAndFields,
    /// A plane field that does not exist, is constant, or cannot count up to the highest port.
    #[error(
        "plane field {field} cannot hold the plane of port {port}: it needs a mask and a range from min_val on for all ports"
    )]
    PlaneField {
        /// Which field.
        field: usize,
        /// The first port that does not fit.
        port: u8,
    },
    /// An entry whose plane bits name another port (protocol.md §7.4).
    #[error("plane field {field} of the EV says {actual}, its port {port} needs {expected}: make them agree")]
    PlaneValue {
        /// Which field.
        field: usize,
        /// The egress port.
        port: u8,
        /// Number in the field.
        actual: u32,
        /// Number of that port.
        expected: u32,
    },
    /// Not a port of this device.
    #[error("port {0} is not a port of this device: use one of its port mask")]
    Port(u8),
    /// No such entry.
    #[error("the profile has no such entry (value and port): query the array")]
    NotFound,
    /// An entry cannot be emptied, or given a state while it is empty.
    #[error("an entry without EV has no state, and entries are emptied in OFFLINE only: name a populated one")]
    Unpopulated,
    /// An entry of the array does not fit the fields any more.
    #[error("entry {entry}: {source}")]
    Entry {
        /// Which one.
        entry: u32,
        /// Why.
        source: FieldError,
    },
    /// Only an ONLINE profile is used.
    #[error("EV profile {0} is not ONLINE: move it there first")]
    NotOnline(u64),
}

impl ProfileError {
    /// The kind of answer (api.md §4.1, §4.5 to §4.8).
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Field(error) | Self::Entry { source: error, .. } => error.class(),
            Self::QpsBound(_) | Self::FormatInUse(_) => ErrorClass::Busy,
            Self::Count { .. } | Self::Free { .. } => ErrorClass::TooBig,
            Self::NotFound => ErrorClass::NotFound,
            _ => ErrorClass::Invalid,
        }
    }
}

fn remedy(from: ProfileState, to: ProfileState) -> &'static str {
    match (from, to) {
        (ProfileState::Init, _) => "move the profile to OFFLINE",
        (_, ProfileState::Init) => "leave all attributes out, or do not go to INIT",
        _ => "move the profile back to OFFLINE",
    }
}
