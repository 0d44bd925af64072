//! Profiles to test with.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use mrc_protocol::profile::*;
use mrc_wire::{PortNum, PortSet};

pub(crate) const OFFLINE: Option<ProfileState> = Some(ProfileState::Offline);
pub(crate) const ONLINE: Option<ProfileState> = Some(ProfileState::Online);
pub(crate) const INIT: Option<ProfileState> = Some(ProfileState::Init);

/// Number of the EV profile, and of its format.
pub(crate) const ID: u64 = 7;
pub(crate) const FORMAT: u64 = 70;

pub(crate) fn profiles(ports: u8) -> Profiles {
    Profiles::new(Limits::new(PortSet::first(ports)), [5; 32])
}

pub(crate) fn ev(bytes: &[u8], port: u8) -> PortEv {
    PortEv {
        value: EvValue::left_aligned(bytes).unwrap(),
        port: PortNum::new(port).unwrap(),
    }
}

pub(crate) fn put(old: Option<PortEv>, new: PortEv) -> Replace {
    Replace {
        old,
        new: Some(new),
        state: EntryState::Good,
        all_copies: false,
    }
}

pub(crate) fn set(ev: PortEv, state: EntryState) -> SetState {
    SetState {
        ev,
        state,
        all_copies: false,
    }
}

pub(crate) fn to(state: Option<ProfileState>) -> EvChange<'static> {
    EvChange {
        state,
        ..EvChange::default()
    }
}

pub(crate) fn replace(list: &[Replace]) -> EvChange<'_> {
    EvChange {
        entries: Some(EvOp::Replace(list)),
        ..EvChange::default()
    }
}

pub(crate) fn set_states(list: &[SetState]) -> EvChange<'_> {
    EvChange {
        entries: Some(EvOp::SetState(list)),
        ..EvChange::default()
    }
}

pub(crate) fn count(mode: EvMode, count: u32) -> EvChange<'static> {
    EvChange {
        state: OFFLINE,
        mode: Some(mode),
        format_id: Some(FORMAT),
        count: Some(count),
        ..EvChange::default()
    }
}

/// An ONLINE format under [`FORMAT`].
pub(crate) fn with_format(profiles: &mut Profiles, mode: FormatMode, widths: &[u8]) {
    let fields: Vec<_> = widths.iter().map(|&width| FormatField::new(width)).collect();
    let change = FormatChange {
        state: OFFLINE,
        mode: Some(mode),
        fields: Some(&fields),
        ..FormatChange::default()
    };
    profiles.modify_format(FORMAT, &change).unwrap();
    let online = FormatChange {
        state: ONLINE,
        ..FormatChange::default()
    };
    profiles.modify_format(FORMAT, &online).unwrap();
}

/// An ONLINE profile under [`ID`] with exactly these entries.
pub(crate) fn explicit(profiles: &mut Profiles, entries: &[PortEv]) {
    profiles
        .modify(ID, &count(EvMode::Explicit, entries.len() as u32))
        .unwrap();
    let list: Vec<_> = entries.iter().map(|&new| put(None, new)).collect();
    profiles.modify(ID, &replace(&list)).unwrap();
    profiles.modify(ID, &to(ONLINE)).unwrap();
}

/// An ONLINE profile under [`ID`] drawn from these fields.
pub(crate) fn generated(profiles: &mut Profiles, number: u32, fields: &[ProfileField], planes: &[u16]) {
    let change = EvChange {
        fields: Some(fields),
        plane_fields: Some(planes),
        ..count(EvMode::Generated, number)
    };
    profiles.modify(ID, &change).unwrap();
    profiles.modify(ID, &to(ONLINE)).unwrap();
}

pub(crate) fn events(profiles: &mut Profiles) -> Vec<(PortEv, EntryState)> {
    std::iter::from_fn(|| profiles.poll_event())
        .map(|event| (event.ev, event.state))
        .collect()
}

/// Four ports, and a format of two halves.
pub(crate) fn stev() -> Profiles {
    let mut profiles = profiles(4);
    with_format(&mut profiles, FormatMode::Stev, &[16, 16]);
    profiles
}

pub(crate) fn replace_one(profiles: &mut Profiles, new: PortEv) -> Result<Touched, ProfileError> {
    profiles.modify(ID, &replace(&[put(None, new)]))
}
