//! CC profiles: every state with every attribute (api.md §4.1, §4.11).

use super::fast;
use crate::cc::{Algorithm, CcAttr, CcChange, CcProfileError, CcProfiles, Config, ConfigError, NsccParams};
use crate::profile::{ErrorClass, ProfileState};

const INIT: Option<ProfileState> = Some(ProfileState::Init);
const OFFLINE: Option<ProfileState> = Some(ProfileState::Offline);
const ONLINE: Option<ProfileState> = Some(ProfileState::Online);

fn to(state: Option<ProfileState>) -> CcChange {
    CcChange {
        state,
        ..CcChange::default()
    }
}

fn nscc() -> CcChange {
    CcChange {
        algorithm: Some(Algorithm::Nscc),
        ..CcChange::default()
    }
}

fn numbers() -> Config {
    let mut config = NsccParams::new(&fast()).config();
    config.max_cwnd_bytes = 50_000;
    Config::Nscc(config)
}

/// Profile 5 in this state, NSCC with defaults.
fn profiles(state: ProfileState) -> CcProfiles {
    let mut profiles = CcProfiles::new(2, true);
    if state != ProfileState::Init {
        profiles
            .modify(
                5,
                &CcChange {
                    state: OFFLINE,
                    config: Some(Config::Defaults),
                    ..nscc()
                },
            )
            .unwrap();
    }
    if state == ProfileState::Online {
        profiles.modify(5, &to(ONLINE)).unwrap();
    }
    assert_eq!(profiles.state(5), state);
    profiles
}

#[test]
fn algorithms_have_names() {
    assert_eq!(Algorithm::named(Some("uet-1.0-nscc")), Ok(Algorithm::Nscc));
    assert_eq!(Algorithm::named(None), Ok(Algorithm::Off));
    assert_eq!(Algorithm::named(Some("reno")), Err(CcProfileError::UnknownAlgorithm));
    for algorithm in [Algorithm::Nscc, Algorithm::Off] {
        assert_eq!(Algorithm::named(algorithm.name()), Ok(algorithm));
    }
}

#[test]
fn states_are_passed_one_at_a_time() {
    const STATES: [ProfileState; 3] = [ProfileState::Init, ProfileState::Offline, ProfileState::Online];
    for from in STATES {
        for target in STATES {
            let mut profiles = profiles(from);
            let result = profiles.modify(
                5,
                &CcChange {
                    state: Some(target),
                    algorithm: (from == ProfileState::Init && target == ProfileState::Offline)
                        .then_some(Algorithm::Off),
                    ..CcChange::default()
                },
            );
            let far = (from as i32 - target as i32).abs() > 1;
            if far {
                assert_eq!(result, Err(CcProfileError::Transition { from, to: target }));
            } else {
                assert_eq!(result, Ok(()));
            }
            assert_eq!(profiles.state(5), if far { from } else { target });
        }
    }
}

#[test]
fn attributes_are_judged_by_state_and_step() {
    let algorithm = nscc();
    let config = CcChange {
        config: Some(numbers()),
        ..CcChange::default()
    };
    let vendor_cfg = CcChange {
        vendor_cfg: Some([7; 128]),
        ..CcChange::default()
    };
    let with = |change: CcChange, state| CcChange { state, ..change };
    for (attr, change) in [
        (CcAttr::Algorithm, algorithm),
        (CcAttr::Config, config),
        (CcAttr::VendorCfg, vendor_cfg),
    ] {
        let refused = |from: ProfileState, target: ProfileState| {
            let result = profiles(from).modify(5, &with(change, Some(target)));
            assert_eq!(result, Err(CcProfileError::NotNow { attr, from, to: target }));
        };
        refused(ProfileState::Init, ProfileState::Init);
        refused(ProfileState::Offline, ProfileState::Init);
        assert_eq!(profiles(ProfileState::Offline).modify(5, &change), Ok(()));
        assert_eq!(profiles(ProfileState::Offline).modify(5, &with(change, ONLINE)), Ok(()));
        if attr == CcAttr::Config {
            assert_eq!(profiles(ProfileState::Online).modify(5, &change), Ok(()));
            assert_eq!(profiles(ProfileState::Online).modify(5, &with(change, OFFLINE)), Ok(()));
        } else {
            refused(ProfileState::Online, ProfileState::Online);
            refused(ProfileState::Online, ProfileState::Offline);
        }
    }
}

#[test]
fn config_of_a_profile_in_use_changes_only_where_that_is_offered() {
    let change = CcChange {
        config: Some(numbers()),
        ..CcChange::default()
    };
    let mut fixed = CcProfiles::new(2, false);
    fixed
        .modify(
            5,
            &CcChange {
                state: OFFLINE,
                config: Some(Config::Defaults),
                ..nscc()
            },
        )
        .unwrap();
    fixed.modify(5, &to(ONLINE)).unwrap();
    assert!(matches!(fixed.modify(5, &change), Err(CcProfileError::NotNow { .. })));

    let mut flexible = profiles(ProfileState::Online);
    flexible.bind(5).unwrap();
    flexible.modify(5, &change).unwrap();
    assert_eq!(flexible.profile(5).unwrap().params(&fast()).max_cwnd_bytes, 50_000);
}

#[test]
fn offline_needs_an_algorithm_and_online_a_config() {
    let mut profiles = CcProfiles::new(2, true);
    let missing = |attr, to| Err(CcProfileError::Missing { attr, to });
    assert_eq!(
        profiles.modify(1, &to(OFFLINE)),
        missing(CcAttr::Algorithm, ProfileState::Offline)
    );
    assert_eq!(profiles.state(1), ProfileState::Init, "nothing is kept");
    profiles
        .modify(
            1,
            &CcChange {
                state: OFFLINE,
                ..nscc()
            },
        )
        .unwrap();
    assert_eq!(
        profiles.modify(1, &to(ONLINE)),
        missing(CcAttr::Config, ProfileState::Online)
    );
    // In this call,
    profiles
        .modify(
            1,
            &CcChange {
                config: Some(Config::Defaults),
                ..to(ONLINE)
            },
        )
        .unwrap();
    // or none at all.
    profiles
        .modify(
            2,
            &CcChange {
                state: OFFLINE,
                algorithm: Some(Algorithm::Off),
                ..CcChange::default()
            },
        )
        .unwrap();
    profiles.modify(2, &to(ONLINE)).unwrap();
}

#[test]
fn another_algorithm_clears_the_config() {
    let mut profiles = profiles(ProfileState::Offline);
    profiles.modify(5, &nscc()).unwrap();
    assert!(profiles.profile(5).unwrap().config().is_some(), "the same one does not");
    profiles
        .modify(
            5,
            &CcChange {
                algorithm: Some(Algorithm::Off),
                ..CcChange::default()
            },
        )
        .unwrap();
    assert!(profiles.profile(5).unwrap().config().is_none());
    profiles.modify(5, &nscc()).unwrap();
    assert!(matches!(
        profiles.modify(5, &to(ONLINE)),
        Err(CcProfileError::Missing { .. })
    ));
}

#[test]
fn wrong_numbers_change_nothing() {
    let mut profiles = profiles(ProfileState::Offline);
    let mut config = NsccParams::new(&fast()).config();
    config.gamma = 2.0;
    let change = CcChange {
        config: Some(Config::Nscc(config)),
        vendor_cfg: Some([1; 128]),
        ..to(ONLINE)
    };
    assert_eq!(
        profiles.modify(5, &change),
        Err(CcProfileError::Config(ConfigError::AboveOne("gamma")))
    );
    let profile = profiles.profile(5).unwrap();
    assert_eq!(
        (profile.state(), profile.vendor_cfg()),
        (ProfileState::Offline, &[0; 128])
    );
    assert_eq!(profile.config(), Some(&Config::Defaults));
    let off = CcChange {
        algorithm: Some(Algorithm::Off),
        config: Some(numbers()),
        ..CcChange::default()
    };
    assert_eq!(profiles.modify(5, &off), Err(CcProfileError::NoConfig));
}

#[test]
fn profile_in_use_does_not_go_offline() {
    let mut profiles = profiles(ProfileState::Online);
    profiles.bind(5).unwrap();
    profiles.bind(5).unwrap();
    profiles.unbind(5);
    let error = profiles.modify(5, &to(OFFLINE)).unwrap_err();
    assert_eq!((error, error.class()), (CcProfileError::QpsBound(1), ErrorClass::Busy));
    profiles.unbind(5);
    profiles.modify(5, &to(OFFLINE)).unwrap();
    assert_eq!(profiles.bind(5).unwrap_err(), CcProfileError::NotOnline(5));
    assert_eq!(profiles.bind(77).unwrap_err(), CcProfileError::NotOnline(77));
}

#[test]
fn belief_about_the_state_is_checked_first() {
    let change = CcChange {
        current_state: INIT,
        ..to(INIT)
    };
    assert_eq!(
        profiles(ProfileState::Offline).modify(5, &change),
        Err(CcProfileError::CurrentState {
            actual: ProfileState::Offline,
            expected: ProfileState::Init
        })
    );
}

#[test]
fn init_forgets_and_frees() {
    let mut profiles = CcProfiles::new(1, true);
    let described = CcChange {
        state: OFFLINE,
        ..nscc()
    };
    profiles.modify(1, &described).unwrap();
    assert_eq!(profiles.modify(2, &described), Err(CcProfileError::Slots(1)));
    profiles.modify(1, &to(INIT)).unwrap();
    assert!(profiles.profile(1).is_none());
    profiles.modify(2, &described).unwrap();
    assert!(profiles.profile(2).unwrap().config().is_none());
}

#[test]
fn profile_zero_is_built_in() {
    let mut profiles = CcProfiles::new(0, true);
    assert_eq!(profiles.modify(0, &to(OFFLINE)), Err(CcProfileError::BuiltIn));
    assert_eq!(profiles.modify(0, &CcChange::default()), Err(CcProfileError::BuiltIn));
    let profile = profiles.bind(0).unwrap();
    assert_eq!(
        (profile.algorithm(), profile.config()),
        (Some(Algorithm::Nscc), Some(&Config::Defaults))
    );
    assert_eq!(profile.params(&fast()), NsccParams::new(&fast()));
}
