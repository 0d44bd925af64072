//! The states of format and EV profiles, and the table of their steps (protocol.md §7.1, api.md §4.1, §4.5, §4.7).

use core::fmt;

use super::config::EvMode;
use super::error::ProfileError;

/// Where a profile stands. Any number exists from the start, in INIT, and costs nothing there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProfileState {
    /// Nothing is known of it.
    #[default]
    Init,
    /// Being described.
    Offline,
    /// In use, or ready for it.
    Online,
}

impl fmt::Display for ProfileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "INIT",
            Self::Offline => "OFFLINE",
            Self::Online => "ONLINE",
        })
    }
}

/// What a call may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attr {
    /// Mode of either profile.
    Mode,
    /// The format that an EV profile names.
    FormatId,
    /// Size of the array.
    Count,
    /// Fields of either profile.
    Fields,
    /// Which fields hold the plane (protocol.md §7.4).
    PlaneFields,
    /// The floor of the active set.
    MinActive,
    /// Which changes are events.
    EventMask,
    /// The provider's own bytes.
    VendorCfg,
    /// Entries of the array.
    ReplaceEv,
    /// States of entries.
    EvState,
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mode => "the mode",
            Self::FormatId => "the format id",
            Self::Count => "ev_count",
            Self::Fields => "the list of fields",
            Self::PlaneFields => "the list of plane fields",
            Self::MinActive => "ev_min_active",
            Self::EventMask => "the event mask",
            Self::VendorCfg => "vendor_cfg",
            Self::ReplaceEv => "an entry",
            Self::EvState => "the state of an entry",
        })
    }
}

/// What a step needs, set by the same call or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// A mode.
    Mode,
    /// The number of a format.
    FormatId,
    /// The size of the array.
    Count,
    /// A list of fields.
    Fields,
    /// No entry without EV.
    AllPopulated,
    /// The format ONLINE.
    FormatOnline,
    /// At least one port to put EVs on.
    Port,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mode => "a mode: set it in the same call",
            Self::FormatId => "a format: set the format id in the same call",
            Self::Count => "a size: set ev_count in the same call",
            Self::Fields => "fields: set them in this call or before",
            Self::AllPopulated => "every entry populated: replace the empty ones",
            Self::FormatOnline => "its format ONLINE: move the format profile there first",
            Self::Port => "a port: the device has none",
        })
    }
}

/// Which kind of profile a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Format,
    Ev,
}

/// Who can forbid a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bar {
    /// An EV profile outside INIT names the format.
    ConfiguredProfile,
    /// An ONLINE EV profile names the format.
    OnlineProfile,
    /// A queue pair uses the EV profile.
    BoundQp,
}

/// Modes of an EV profile in which something is needed; a format profile counts as `Any`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Any,
    Explicit,
    Generated,
    NotAuto,
}

impl Of {
    pub(super) fn includes(self, mode: EvMode) -> bool {
        match self {
            Self::Any => true,
            Self::Explicit => mode == EvMode::Explicit,
            Self::Generated => mode == EvMode::Generated,
            Self::NotAuto => mode != EvMode::Auto,
        }
    }
}

/// One step. Staying in a state is none: it is always possible, and needs nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) object: Object,
    pub(super) from: ProfileState,
    pub(super) to: ProfileState,
    /// The state whose attributes the call may set; `None`: no attributes.
    pub(super) judged_as: Option<ProfileState>,
    pub(super) bar: Option<Bar>,
    pub(super) needs: &'static [(Of, Need)],
}

/// What may be set in a state; INIT has no row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permits {
    pub(super) object: Object,
    pub(super) state: ProfileState,
    pub(super) always: &'static [Attr],
    /// Only if the implementation offers online modification.
    pub(super) optional: &'static [Attr],
}

pub(super) const STEPS: [Step; 8] = {
    use Object::{Ev, Format};
    use ProfileState::{Init, Offline, Online};
    [
        row(Format, Init, Offline, Some(Offline), None, &[(Of::Any, Need::Mode)]),
        row(Format, Offline, Online, Some(Offline), None, &[(Of::Any, Need::Fields)]),
        row(Format, Online, Offline, Some(Online), Some(Bar::OnlineProfile), &[]),
        row(Format, Offline, Init, None, Some(Bar::ConfiguredProfile), &[]),
        row(
            Ev,
            Init,
            Offline,
            Some(Offline),
            None,
            &[
                (Of::Any, Need::Mode),
                (Of::NotAuto, Need::FormatId),
                (Of::NotAuto, Need::Count),
            ],
        ),
        row(
            Ev,
            Offline,
            Online,
            Some(Offline),
            None,
            &[
                (Of::NotAuto, Need::FormatId),
                (Of::NotAuto, Need::Count),
                (Of::NotAuto, Need::FormatOnline),
                (Of::Generated, Need::Fields),
                (Of::Explicit, Need::AllPopulated),
                (Of::Any, Need::Port),
            ],
        ),
        row(Ev, Online, Offline, Some(Online), Some(Bar::BoundQp), &[]),
        row(Ev, Offline, Init, None, None, &[]),
    ]
};

pub(super) const PERMITS: [Permits; 4] = {
    use Attr as A;
    use Object::{Ev, Format};
    use ProfileState::{Offline, Online};
    [
        Permits {
            object: Format,
            state: Offline,
            always: &[A::Mode, A::Fields, A::VendorCfg],
            optional: &[],
        },
        Permits {
            object: Format,
            state: Online,
            always: &[],
            optional: &[],
        },
        Permits {
            object: Ev,
            state: Offline,
            always: &[
                A::Mode,
                A::FormatId,
                A::Count,
                A::Fields,
                A::PlaneFields,
                A::MinActive,
                A::EventMask,
                A::VendorCfg,
                A::ReplaceEv,
                A::EvState,
            ],
            optional: &[],
        },
        Permits {
            object: Ev,
            state: Online,
            always: &[A::EvState],
            optional: &[A::EventMask, A::ReplaceEv, A::Fields, A::PlaneFields],
        },
    ]
};

const fn row(
    object: Object,
    from: ProfileState,
    to: ProfileState,
    judged_as: Option<ProfileState>,
    bar: Option<Bar>,
    needs: &'static [(Of, Need)],
) -> Step {
    Step {
        object,
        from,
        to,
        judged_as,
        bar,
        needs,
    }
}

/// A call that may be made, as far as states and attributes go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) from: ProfileState,
    pub(super) to: ProfileState,
    pub(super) bar: Option<Bar>,
    pub(super) needs: &'static [(Of, Need)],
}

impl Plan {
    pub(super) fn moves(&self) -> bool {
        self.from != self.to
    }
}

/// Looks a call up: the state it is made in, the states that it asserts and asks for, and what it sets.
pub(super) fn plan(
    object: Object,
    from: ProfileState,
    asserted: Option<ProfileState>,
    to: Option<ProfileState>,
    attrs: impl Iterator<Item = Attr>,
    modify_online: bool,
) -> Result<Plan, ProfileError> {
    if let Some(expected) = asserted.filter(|&expected| expected != from) {
        return Err(ProfileError::CurrentState { actual: from, expected });
    }
    let to = to.unwrap_or(from);
    let step = STEPS
        .iter()
        .find(|step| step.object == object && step.from == from && step.to == to);
    if step.is_none() && from != to {
        return Err(ProfileError::Transition { from, to });
    }
    let judged_as = step.map_or(Some(from), |step| step.judged_as);
    let permits = PERMITS
        .iter()
        .find(|permits| permits.object == object && Some(permits.state) == judged_as);
    for attr in attrs {
        let allowed = permits
            .is_some_and(|permits| permits.always.contains(&attr) || modify_online && permits.optional.contains(&attr));
        if !allowed {
            return Err(ProfileError::NotNow { attr, from, to });
        }
    }
    Ok(Plan {
        from,
        to,
        bar: step.and_then(|step| step.bar),
        needs: step.map_or(&[], |step| step.needs),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::string::String;

    #[test]
    fn table_is_that_of_the_specification() {
        let mut text = String::new();
        for step in STEPS {
            writeln!(text, "{:?}: {} -> {}", step.object, step.from, step.to).unwrap();
            writeln!(text, "    attributes of {:?}, barred by {:?}", step.judged_as, step.bar).unwrap();
            for (of, need) in step.needs {
                writeln!(text, "    needs {need:?} in {of:?} mode").unwrap();
            }
        }
        for permits in PERMITS {
            writeln!(text, "{:?} {}: {:?}", permits.object, permits.state, permits.always).unwrap();
            writeln!(text, "    with online modification {:?}", permits.optional).unwrap();
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn every_pair_of_states_is_a_step_a_stay_or_refused() {
        const STATES: [ProfileState; 3] = [ProfileState::Init, ProfileState::Offline, ProfileState::Online];
        for object in [Object::Format, Object::Ev] {
            for from in STATES {
                for to in STATES {
                    let plan = plan(object, from, None, Some(to), core::iter::empty(), true);
                    let far = (from as i32 - to as i32).abs() > 1;
                    assert_eq!(plan.is_err(), far, "{object:?} {from} {to}");
                }
            }
        }
    }
}
