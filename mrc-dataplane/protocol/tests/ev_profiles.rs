//! Format and EV profiles: states, needs, references, entries and events (protocol.md §7.1, api.md §4.1 to §4.9).

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod profiles;

use mrc_protocol::profile::*;
use mrc_wire::PortSet;

use self::profiles::*;

fn format_to(state: Option<ProfileState>) -> FormatChange<'static> {
    FormatChange {
        state,
        ..FormatChange::default()
    }
}

#[test]
fn the_built_in_profile_is_automatic_online_and_unchangeable() {
    let mut profiles = profiles(4);
    let built_in = profiles.ev(BUILT_IN).unwrap();
    assert_eq!(
        (built_in.state(), built_in.mode()),
        (ProfileState::Online, Some(EvMode::Auto))
    );
    assert_eq!((built_in.ev_count(), built_in.min_active()), (128, 16));
    assert_eq!(profiles.free_count(), 4096, "it takes nothing from others");
    assert_eq!(profiles.modify(BUILT_IN, &to(OFFLINE)), Err(ProfileError::BuiltIn));
    let binding = profiles.bind(BUILT_IN).unwrap();
    profiles.unbind(binding);
}

#[test]
fn each_mode_needs_its_attributes_in_the_step_to_offline() {
    let mut profiles = stev();
    let missing = |need| {
        Err(ProfileError::Missing {
            need,
            to: ProfileState::Offline,
        })
    };
    assert_eq!(profiles.modify(ID, &to(OFFLINE)), missing(Need::Mode));
    for mode in [EvMode::Explicit, EvMode::Generated] {
        let all = count(mode, 4);
        let change = EvChange { format_id: None, ..all };
        assert_eq!(profiles.modify(ID, &change), missing(Need::FormatId));
        let change = EvChange { count: None, ..all };
        assert_eq!(profiles.modify(ID, &change), missing(Need::Count));
        assert!(profiles.ev(ID).is_none(), "nothing is kept");
        profiles.modify(ID, &all).unwrap();
        profiles.modify(ID, &to(INIT)).unwrap();
    }
    let auto = EvChange {
        state: OFFLINE,
        mode: Some(EvMode::Auto),
        format_id: Some(12345),
        ..EvChange::default()
    };
    profiles.modify(ID, &auto).unwrap();
    assert_eq!(profiles.ev(ID).unwrap().format_id(), None, "ignored");
    profiles.modify(ID, &to(ONLINE)).unwrap();
}

#[test]
fn states_change_one_step_at_a_time() {
    let mut profiles = stev();
    let jump = |from, to| Err(ProfileError::Transition { from, to });
    assert_eq!(
        profiles.modify(ID, &to(ONLINE)),
        jump(ProfileState::Init, ProfileState::Online)
    );
    explicit(&mut profiles, &[ev(&[1], 1)]);
    assert_eq!(
        profiles.modify(ID, &to(INIT)),
        jump(ProfileState::Online, ProfileState::Init)
    );
    assert_eq!(profiles.modify(ID, &to(ONLINE)), Ok(Touched::Nothing), "no step");
    let wrong = EvChange {
        current_state: OFFLINE,
        ..to(None)
    };
    assert!(matches!(
        profiles.modify(ID, &wrong),
        Err(ProfileError::CurrentState { .. })
    ));
    profiles.modify(ID, &to(OFFLINE)).unwrap();
    assert_eq!(profiles.modify(ID, &to(INIT)), Ok(Touched::All));
    assert!(profiles.ev(ID).is_none());
    assert_eq!(
        profiles.modify(ID, &EvChange::default()).unwrap(),
        Touched::Nothing,
        "an empty call does nothing"
    );
    let mode = EvChange {
        mode: Some(EvMode::Auto),
        ..to(None)
    };
    assert!(matches!(
        profiles.modify(ID, &mode),
        Err(ProfileError::NotNow { attr: Attr::Mode, .. })
    ));
}

#[test]
fn explicit_goes_online_when_every_entry_is_there() {
    let mut profiles = stev();
    profiles.modify(ID, &count(EvMode::Explicit, 3)).unwrap();
    assert!(profiles.ev(ID).unwrap().entries().all(|entry| entry == (None, None)));
    profiles
        .modify(ID, &replace(&[put(None, ev(&[], 1)), put(None, ev(&[2], 2))]))
        .unwrap();
    let missing = Err(ProfileError::Missing {
        need: Need::AllPopulated,
        to: ProfileState::Online,
    });
    assert_eq!(profiles.modify(ID, &to(ONLINE)), missing);
    // The last entry and the step in one call.
    let last = [put(None, ev(&[3], 3))];
    let change = EvChange {
        state: ONLINE,
        ..replace(&last)
    };
    assert_eq!(profiles.modify(ID, &change), Ok(Touched::Entries(vec![2])));
    assert_eq!(profiles.fields(ID), Some(vec![ProfileField::free(16); 2]), "implied");
    assert_eq!(profiles.ev(ID).unwrap().fields(), None);
}

#[test]
fn fields_are_not_for_auto_and_entries_not_for_generated() {
    let mut profiles = stev();
    let fields = [ProfileField::free(16)];
    let change = EvChange {
        fields: Some(&fields),
        ..count(EvMode::Auto, 4)
    };
    let error = ProfileError::NotInMode {
        attr: Attr::Fields,
        mode: EvMode::Auto,
    };
    assert_eq!(profiles.modify(ID, &change), Err(error));
    profiles.modify(ID, &count(EvMode::Generated, 4)).unwrap();
    assert!(matches!(
        replace_one(&mut profiles, ev(&[1], 1)),
        Err(ProfileError::NotInMode { .. })
    ));
    let missing = Err(ProfileError::Missing {
        need: Need::Fields,
        to: ProfileState::Online,
    });
    assert_eq!(profiles.modify(ID, &to(ONLINE)), missing);
    let list = [put(None, ev(&[1], 1))];
    let both = EvChange {
        fields: Some(&fields),
        ..replace(&list)
    };
    assert_eq!(profiles.modify(ID, &both), Err(ProfileError::EntriesAndFields));
}

#[test]
fn a_format_stays_while_profiles_refer_to_it() {
    let mut profiles = stev();
    assert_eq!(
        profiles.modify(
            ID,
            &EvChange {
                format_id: Some(71),
                ..count(EvMode::Explicit, 1)
            }
        ),
        Err(ProfileError::NoFormat(71))
    );
    explicit(&mut profiles, &[ev(&[1], 1)]);
    let in_use = Err(ProfileError::FormatInUse(ID));
    assert_eq!(profiles.modify_format(FORMAT, &format_to(OFFLINE)), in_use);
    assert_eq!(ProfileError::FormatInUse(ID).class(), ErrorClass::Busy);
    profiles.modify(ID, &to(OFFLINE)).unwrap();
    profiles.modify_format(FORMAT, &format_to(OFFLINE)).unwrap();
    assert_eq!(profiles.modify_format(FORMAT, &format_to(INIT)), in_use);
    let missing = Err(ProfileError::Missing {
        need: Need::FormatOnline,
        to: ProfileState::Online,
    });
    assert_eq!(profiles.modify(ID, &to(ONLINE)), missing);
    profiles.modify(ID, &to(INIT)).unwrap();
    profiles.modify_format(FORMAT, &format_to(INIT)).unwrap();
    assert!(profiles.format(FORMAT).is_none());
}

#[test]
fn a_format_is_described_offline_and_a_new_mode_clears_its_fields() {
    let mut profiles = stev();
    let fields = [FormatField::new(32)];
    let refused = profiles.modify_format(
        FORMAT,
        &FormatChange {
            fields: Some(&fields),
            ..format_to(None)
        },
    );
    assert!(
        matches!(refused, Err(ProfileError::NotNow { attr: Attr::Fields, .. })),
        "ONLINE"
    );
    profiles.modify_format(FORMAT, &format_to(OFFLINE)).unwrap();
    let too_wide = FormatChange {
        mode: Some(FormatMode::Udp),
        fields: Some(&fields),
        vendor_cfg: Some([1; VENDOR_CFG_LEN]),
        ..format_to(None)
    };
    let error = profiles.modify_format(FORMAT, &too_wide).unwrap_err();
    assert_eq!(error.class(), ErrorClass::TooBig);
    let format = profiles.format(FORMAT).unwrap();
    assert_eq!(format.mode(), Some(FormatMode::Stev), "all or nothing");
    assert_eq!(format.vendor_cfg(), &[0; VENDOR_CFG_LEN]);
    let mode = FormatChange {
        mode: Some(FormatMode::Udp),
        ..format_to(None)
    };
    profiles.modify_format(FORMAT, &mode).unwrap();
    assert_eq!(profiles.format(FORMAT).unwrap().format(), None);
    assert!(matches!(
        profiles.modify_format(FORMAT, &format_to(ONLINE)),
        Err(ProfileError::Missing { need: Need::Fields, .. })
    ));
}

#[test]
fn a_profile_stays_online_while_queue_pairs_use_it() {
    let mut profiles = stev();
    assert_eq!(profiles.bind(ID).unwrap_err(), ProfileError::NotOnline(ID));
    explicit(&mut profiles, &[ev(&[1], 1)]);
    let (one, other) = (profiles.bind(ID).unwrap(), profiles.bind(ID).unwrap());
    assert_eq!(profiles.modify(ID, &to(OFFLINE)), Err(ProfileError::QpsBound(2)));
    assert_eq!(ProfileError::QpsBound(2).class(), ErrorClass::Busy);
    profiles.unbind(one);
    assert_eq!(profiles.modify(ID, &to(OFFLINE)), Err(ProfileError::QpsBound(1)));
    profiles.unbind(other);
    profiles.modify(ID, &to(OFFLINE)).unwrap();
}

#[test]
fn online_only_states_change_unless_modification_is_offered() {
    for offered in [false, true] {
        let limits = Limits {
            modify_online: offered,
            ..Limits::new(PortSet::first(4))
        };
        let mut profiles = Profiles::new(limits, [0; 32]);
        with_format(&mut profiles, FormatMode::Stev, &[16, 16]);
        explicit(&mut profiles, &[ev(&[1], 1), ev(&[2], 2)]);
        let binding = profiles.bind(ID).unwrap();
        profiles
            .modify(ID, &set_states(&[set(ev(&[1], 1), EntryState::Denied)]))
            .unwrap();
        let swap = [put(Some(ev(&[2], 2)), ev(&[3], 3))];
        assert_eq!(profiles.modify(ID, &replace(&swap)).is_ok(), offered);
        let mask = EvChange {
            event_mask: Some(EventMask {
                good: true,
                assumed_bad: true,
            }),
            ..to(None)
        };
        assert_eq!(profiles.modify(ID, &mask).is_ok(), offered);
        for never in [
            count(EvMode::Explicit, 2),
            EvChange {
                min_active: Some(1),
                ..to(None)
            },
        ] {
            let never = EvChange { state: None, ..never };
            assert!(matches!(profiles.modify(ID, &never), Err(ProfileError::NotNow { .. })));
        }
        let empty = [Replace {
            new: None,
            ..put(Some(ev(&[1], 1)), ev(&[1], 1))
        }];
        assert!(
            profiles.modify(ID, &replace(&empty)).is_err(),
            "emptied in OFFLINE only"
        );
        profiles.unbind(binding);
    }
}

#[test]
fn fields_changed_online_have_to_take_every_entry() {
    let mut profiles = stev();
    explicit(&mut profiles, &[ev(&[0, 1], 1), ev(&[0, 2], 2)]);
    let narrow = [ProfileField::free(8)];
    let change = EvChange {
        fields: Some(&narrow),
        ..to(None)
    };
    let source = FieldError::Excess { bit: 15, taken: 8 };
    assert_eq!(
        profiles.modify(ID, &change),
        Err(ProfileError::Entry { entry: 0, source })
    );
    let fields = [ProfileField::free(16), ProfileField::constant(16, 0xc000)];
    let change = EvChange {
        fields: Some(&fields),
        ..to(None)
    };
    assert_eq!(profiles.modify(ID, &change), Ok(Touched::All));
    assert_eq!(profiles.fields(ID).unwrap(), fields);
}
