//! The entries of an EV profile: operations, states and events (protocol.md §7.1, §8.1, api.md §4.7 to §4.9).

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod profiles;

use mrc_protocol::profile::*;
use mrc_wire::PortSet;

use self::profiles::*;

#[test]
fn operations_before_one_that_fails_stay_and_the_step_does_not_happen() {
    let mut profiles = stev();
    profiles.modify(ID, &count(EvMode::Explicit, 2)).unwrap();
    let list = [
        put(None, ev(&[1], 1)),
        put(Some(ev(&[9], 9)), ev(&[1], 1)),
        put(None, ev(&[2], 2)),
    ];
    let change = EvChange {
        min_active: Some(2),
        state: ONLINE,
        ..replace(&list)
    };
    assert_eq!(profiles.modify(ID, &change), Err(ProfileError::NotFound));
    assert_eq!(ProfileError::NotFound.class(), ErrorClass::NotFound);
    let profile = profiles.ev(ID).unwrap();
    assert_eq!((profile.state(), profile.min_active()), (ProfileState::Offline, 2));
    assert_eq!(profile.entry(0).0, Some(ev(&[1], 1)));
    assert_eq!(profile.entry(1).0, None);
    // From INIT nothing stays; and where only the step fails, the operations do not stay either.
    profiles.modify(ID, &to(INIT)).unwrap();
    let change = EvChange {
        entries: Some(EvOp::Replace(&list)),
        ..count(EvMode::Explicit, 2)
    };
    assert_eq!(profiles.modify(ID, &change), Err(ProfileError::NotFound));
    assert!(profiles.ev(ID).is_none());
    profiles.modify(ID, &count(EvMode::Explicit, 2)).unwrap();
    let change = EvChange {
        state: ONLINE,
        ..replace(&list[..1])
    };
    assert!(profiles.modify(ID, &change).is_err());
    assert_eq!(profiles.ev(ID).unwrap().entry(0).0, None);
}

// api.md §4.8, protocol.md §8.1: what is in force in the profile has to reach the queue pairs that use it.
#[test]
fn a_call_that_fails_half_way_tells_what_it_has_changed() {
    let mut profiles = stev();
    explicit(&mut profiles, &[ev(&[1], 1), ev(&[2], 2), ev(&[3], 3)]);
    let list = [
        set(ev(&[2], 2), EntryState::Denied),
        set(ev(&[9], 1), EntryState::Denied),
        set(ev(&[3], 3), EntryState::Denied),
    ];
    assert_eq!(profiles.modify(ID, &set_states(&list)), Err(ProfileError::NotFound));
    assert_eq!(profiles.take_half_done(), Some((ID, Touched::Entries(vec![1]))));
    assert_eq!(profiles.take_half_done(), None, "once");
    let states: Vec<_> = profiles.ev(ID).unwrap().entries().map(|(_, state)| state).collect();
    assert_eq!(
        states,
        [EntryState::Good, EntryState::Denied, EntryState::Good].map(Some)
    );
    // Nothing was done before the first one failed; and a call that succeeds leaves nothing over.
    assert!(profiles.modify(ID, &set_states(&list[1..])).is_err());
    assert_eq!(profiles.take_half_done(), None);
    assert!(profiles.modify(ID, &set_states(&list)).is_err());
    profiles.modify(ID, &set_states(&list[..1])).unwrap();
    assert_eq!(profiles.take_half_done(), None);
}

// api.md §4.8: a list of more changes than there are entries is not longer than "all".
#[test]
fn more_changes_than_entries_are_all_of_them() {
    let mut profiles = stev();
    explicit(&mut profiles, &[ev(&[1], 1), ev(&[2], 2)]);
    let one = set(ev(&[2], 2), EntryState::Denied);
    let touched = profiles.modify(ID, &set_states(&[one; 2]));
    assert_eq!(touched, Ok(Touched::Entries(vec![1, 1])));
    assert_eq!(profiles.modify(ID, &set_states(&[one; 3])), Ok(Touched::All));
}

#[test]
fn entries_have_to_fit_ports_and_fields() {
    let mut profiles = stev();
    profiles.modify(ID, &count(EvMode::Explicit, 1)).unwrap();
    let excess = FieldError::Excess { bit: 39, taken: 32 };
    let long = replace_one(&mut profiles, ev(&[0, 0, 0, 0, 1], 1));
    assert_eq!(long, Err(ProfileError::Field(excess)));
    assert_eq!(replace_one(&mut profiles, ev(&[1], 5)), Err(ProfileError::Port(5)));
    replace_one(&mut profiles, ev(&[0, 0, 0, 1], 4)).unwrap();
    // Fields that take less make the entry wrong at the step.
    let fields = [ProfileField::free(16), ProfileField::constant(16, 1)];
    let change = EvChange {
        fields: Some(&fields),
        ..to(None)
    };
    profiles.modify(ID, &change).unwrap();
    let source = FieldError::Excess { bit: 31, taken: 16 };
    assert_eq!(
        profiles.modify(ID, &to(ONLINE)),
        Err(ProfileError::Entry { entry: 0, source })
    );
    assert_eq!(PortEv::parse([0; 32], 0), Ok(None));
    assert_eq!(PortEv::parse([0; 32], 1), Ok(Some(ev(&[], 1))));
    assert_eq!(PortEv::parse([1; 32], 0), Err(ProfileError::Port(0)));
    assert_eq!(PortEv::parse([0; 32], 32), Err(ProfileError::Port(32)));
}

#[test]
fn copies_are_weights_and_are_changed_one_or_all() {
    let mut profiles = stev();
    let (a, b) = (ev(&[0xa], 1), ev(&[0xb], 1));
    explicit(&mut profiles, &[a, b, a, a]);
    let one = set(a, EntryState::Denied);
    assert_eq!(profiles.modify(ID, &set_states(&[one])), Ok(Touched::Entries(vec![0])));
    let all = SetState {
        all_copies: true,
        ..one
    };
    assert_eq!(
        profiles.modify(ID, &set_states(&[all])),
        Ok(Touched::Entries(vec![0, 2, 3]))
    );
    assert_eq!(profiles.ev(ID).unwrap().entry_state(&b), Ok(EntryState::Good));
    let all = Replace {
        all_copies: true,
        ..put(Some(a), b)
    };
    profiles.modify(ID, &replace(&[all])).unwrap();
    assert!(
        profiles
            .ev(ID)
            .unwrap()
            .entries()
            .all(|entry| entry == (Some(b), Some(EntryState::Good)))
    );
    assert_eq!(profiles.ev(ID).unwrap().entry_state(&a), Err(ProfileError::NotFound));
    // What a queue pair finds holds for every copy.
    let mut binding = profiles.bind(ID).unwrap();
    profiles.handle_path(&mut binding, 2, true);
    let states = |profiles: &Profiles| {
        profiles
            .ev(ID)
            .unwrap()
            .entries()
            .map(|entry| entry.1.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(states(&profiles), [EntryState::AssumedBad; 4]);
    profiles.unbind(binding);
    assert_eq!(states(&profiles), [EntryState::Good; 4], "nobody is left who says so");
}

#[test]
fn an_entry_shows_denied_before_bad_and_bad_if_anybody_says_so() {
    let mut profiles = stev();
    let path = ev(&[1], 1);
    explicit(&mut profiles, &[path, ev(&[2], 2)]);
    let (mut one, mut other) = (profiles.bind(ID).unwrap(), profiles.bind(ID).unwrap());
    let shown = |profiles: &Profiles| profiles.ev(ID).unwrap().entry_state(&path).unwrap();
    profiles.handle_path(&mut one, 0, true);
    profiles.handle_path(&mut one, 0, true);
    profiles.handle_path(&mut other, 0, true);
    profiles.handle_path(&mut one, 0, false);
    assert_eq!(shown(&profiles), EntryState::AssumedBad);
    profiles.handle_path(&mut other, 0, false);
    assert_eq!(shown(&profiles), EntryState::Good);
    profiles.handle_path(&mut other, 0, true);
    profiles
        .modify(ID, &set_states(&[set(path, EntryState::Denied)]))
        .unwrap();
    profiles.handle_path(&mut other, 0, false);
    assert_eq!(shown(&profiles), EntryState::Denied, "no automatic way out");
    profiles.handle_path(&mut other, 0, true);
    profiles
        .modify(ID, &set_states(&[set(path, EntryState::Good)]))
        .unwrap();
    assert_eq!(
        shown(&profiles),
        EntryState::Good,
        "the controller's GOOD forgets what was before"
    );
    // An old report that is taken back takes nothing from a new one.
    profiles.handle_path(&mut one, 0, true);
    profiles.handle_path(&mut other, 0, false);
    assert_eq!(shown(&profiles), EntryState::AssumedBad);
    profiles.handle_path(&mut one, 99, true);
    profiles.unbind(one);
    profiles.unbind(other);
    assert_eq!(shown(&profiles), EntryState::Good);
    profiles
        .modify(ID, &set_states(&[set(path, EntryState::AssumedBad)]))
        .unwrap();
    assert_eq!(shown(&profiles), EntryState::AssumedBad);
    let universe = profiles
        .ev(ID)
        .unwrap()
        .universe(PortSet::first(4), mrc_wire::EvLayout::FlowHigh);
    assert_eq!(universe[0].state, EntryState::AssumedBad, "new queue pairs start there");
}

#[test]
fn events_follow_the_mask_and_tell_how_many_were_lost() {
    let mut profiles = stev();
    let path = ev(&[1], 1);
    explicit(&mut profiles, &[path, ev(&[2], 2)]);
    let mut binding = profiles.bind(ID).unwrap();
    profiles.handle_path(&mut binding, 0, true);
    profiles.handle_path(&mut binding, 0, false);
    assert_eq!(events(&mut profiles), [], "the mask is empty");
    let mask = EventMask {
        good: false,
        assumed_bad: true,
    };
    profiles
        .modify(
            ID,
            &EvChange {
                event_mask: Some(mask),
                ..to(None)
            },
        )
        .unwrap();
    profiles.handle_path(&mut binding, 0, true);
    profiles.handle_path(&mut binding, 0, true);
    profiles.handle_path(&mut binding, 0, false);
    assert_eq!(events(&mut profiles), [(path, EntryState::AssumedBad)]);
    let states = [
        set(path, EntryState::AssumedBad),
        set(path, EntryState::Denied),
        set(path, EntryState::Good),
    ];
    profiles.modify(ID, &set_states(&states)).unwrap();
    assert_eq!(
        events(&mut profiles),
        [(path, EntryState::AssumedBad)],
        "whoever changes it"
    );
    let mut flap = |profiles: &mut Profiles| {
        profiles.handle_path(&mut binding, 0, true);
        profiles.handle_path(&mut binding, 0, false);
    };
    (0..1024 + 3).for_each(|_| flap(&mut profiles));
    let kept: Vec<_> = std::iter::from_fn(|| profiles.poll_event()).collect();
    assert_eq!(kept.len(), 1024);
    assert!(kept.iter().all(|event| event.lost_before == 0 && event.profile == ID));
    flap(&mut profiles);
    assert_eq!(profiles.poll_event().unwrap().lost_before, 3);
    profiles.unbind(binding);
}
