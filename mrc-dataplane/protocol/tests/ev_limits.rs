//! Sizes and numbers of profiles (protocol.md §7.4, §15, api.md §4.4, §4.7).

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod profiles;

use mrc_protocol::profile::*;
use mrc_wire::PortSet;

use self::profiles::*;

#[test]
fn sizes_are_limited_per_profile_and_over_all() {
    let mut profiles = profiles(2);
    with_format(&mut profiles, FormatMode::Stev, &[32]);
    assert_eq!(
        profiles.modify(ID, &count(EvMode::Explicit, 0)),
        Err(ProfileError::NoCount)
    );
    let error = profiles.modify(ID, &count(EvMode::Explicit, 1025)).unwrap_err();
    assert_eq!(
        (error, error.class()),
        (
            ProfileError::Count {
                count: 1025,
                limit: 1024
            },
            ErrorClass::TooBig
        )
    );
    for id in 1..=3 {
        profiles.modify(id, &count(EvMode::Explicit, 1024)).unwrap();
    }
    profiles.modify(ID, &count(EvMode::Explicit, 1000)).unwrap();
    assert_eq!(profiles.free_count(), 24);
    // The own entries count as free.
    let resize = |count| EvChange {
        count: Some(count),
        ..to(None)
    };
    profiles.modify(ID, &resize(1024)).unwrap();
    assert_eq!(profiles.free_count(), 0);
    let error = profiles.modify(8, &count(EvMode::Explicit, 1)).unwrap_err();
    assert_eq!(
        (error, error.class()),
        (ProfileError::Free { count: 1, free: 0 }, ErrorClass::TooBig)
    );
    assert_eq!(profiles.ev(ID).unwrap().ev_count(), 1024, "still there");
    profiles.modify(1, &to(INIT)).unwrap();
    assert_eq!(profiles.free_count(), 1024);
}

#[test]
fn no_limit_lets_a_profile_outgrow_what_a_queue_pair_can_name() {
    let limits = Limits {
        max_count: u32::MAX,
        max_total: u32::MAX,
        ..Limits::new(PortSet::first(1))
    };
    let mut profiles = Profiles::new(limits, [0; 32]);
    with_format(&mut profiles, FormatMode::Stev, &[32]);
    let error = profiles.modify(ID, &count(EvMode::Explicit, u32::MAX)).unwrap_err();
    assert_eq!(
        error,
        ProfileError::Count {
            count: u32::MAX,
            limit: MAX_EV_COUNT
        }
    );
}

#[test]
fn slots_are_limited_and_become_free() {
    let mut profiles = profiles(2);
    let format = FormatChange {
        state: OFFLINE,
        mode: Some(FormatMode::Stev),
        ..FormatChange::default()
    };
    let auto = EvChange {
        mode: Some(EvMode::Auto),
        count: Some(2),
        ..to(OFFLINE)
    };
    for id in 1..=32 {
        profiles.modify_format(id, &format).unwrap();
        profiles.modify(id, &auto).unwrap();
    }
    assert_eq!(profiles.modify_format(33, &format), Err(ProfileError::Slots(32)));
    assert_eq!(profiles.modify(33, &auto), Err(ProfileError::Slots(32)));
    assert!(profiles.ev(33).is_none());
    profiles.modify(5, &to(INIT)).unwrap();
    profiles.modify(33, &auto).unwrap();
}

#[test]
fn an_array_as_large_as_allowed_is_filled_one_entry_a_call() {
    let mut profiles = profiles(4);
    with_format(&mut profiles, FormatMode::Stev, &[16, 16]);
    profiles.modify(ID, &count(EvMode::Explicit, 1024)).unwrap();
    let path = |n: u32| ev(&n.wrapping_mul(0x9e37_79b1).to_be_bytes(), (n % 4) as u8 + 1);
    for n in 0..1024 {
        let touched = profiles.modify(ID, &replace(&[put(None, path(n))]));
        assert_eq!(touched, Ok(Touched::Entries(vec![n])), "the lowest empty entry");
    }
    profiles.modify(ID, &to(ONLINE)).unwrap();
    let profile = profiles.ev(ID).unwrap();
    assert!((0..1024).all(|n| profile.entry(n).0 == Some(path(n))));
    assert!((0..1024).all(|n| profile.entry_state(&path(n)).is_ok()));
}

#[test]
fn the_floor_is_at_most_the_count_and_a_quarter_of_those_in_use_by_default() {
    let mut profiles = profiles(4);
    with_format(&mut profiles, FormatMode::Stev, &[32]);
    for (number, floor) in [(1, 1), (4, 1), (12, 2), (32, 7), (64, 16), (128, 16), (1024, 16)] {
        profiles.modify(ID, &count(EvMode::Explicit, number)).unwrap();
        assert_eq!(profiles.ev(ID).unwrap().min_active(), floor, "{number}");
        profiles.modify(ID, &to(INIT)).unwrap();
    }
    let change = |min_active| EvChange {
        min_active: Some(min_active),
        ..count(EvMode::Explicit, 8)
    };
    let error = ProfileError::MinActive {
        min_active: 9,
        count: 8,
    };
    assert_eq!(profiles.modify(ID, &change(9)), Err(error));
    profiles.modify(ID, &change(8)).unwrap();
    // A smaller array would leave the floor hanging.
    let shrink = EvChange {
        count: Some(7),
        ..to(None)
    };
    assert_eq!(
        profiles.modify(ID, &shrink),
        Err(ProfileError::MinActive {
            min_active: 8,
            count: 7
        })
    );
}

#[test]
fn mode_format_and_count_start_the_array_afresh() {
    let mut profiles = profiles(4);
    with_format(&mut profiles, FormatMode::Stev, &[32]);
    for reset in [
        EvChange {
            count: Some(1),
            ..to(None)
        },
        EvChange {
            format_id: Some(FORMAT),
            ..to(None)
        },
        EvChange {
            mode: Some(EvMode::Explicit),
            ..to(None)
        },
    ] {
        explicit(&mut profiles, &[ev(&[1], 1)]);
        profiles.modify(ID, &to(OFFLINE)).unwrap();
        assert_eq!(profiles.modify(ID, &reset), Ok(Touched::All));
        assert_eq!(profiles.ev(ID).unwrap().entry(0), (None, None));
        profiles.modify(ID, &to(INIT)).unwrap();
    }
}

#[test]
fn masks_take_no_more_bits_than_an_ev_has() {
    let mut profiles = profiles(1);
    with_format(&mut profiles, FormatMode::Srv6, &[32; 8]);
    let fields = [ProfileField::free(32); 9];
    let change = EvChange {
        fields: Some(&fields),
        ..count(EvMode::Generated, 1)
    };
    let error = profiles.modify(ID, &change).unwrap_err();
    assert_eq!(
        (error, error.class()),
        (FieldError::Taken { bits: 288 }.into(), ErrorClass::TooBig)
    );
}

#[test]
fn a_device_without_ports_has_no_profile_online() {
    let mut profiles = profiles(0);
    assert_eq!(profiles.bind(BUILT_IN).unwrap_err(), ProfileError::NotOnline(BUILT_IN));
    let auto = EvChange {
        mode: Some(EvMode::Auto),
        ..to(OFFLINE)
    };
    profiles.modify(ID, &auto).unwrap();
    assert!(matches!(
        profiles.modify(ID, &to(ONLINE)),
        Err(ProfileError::Missing { need: Need::Port, .. })
    ));
}
