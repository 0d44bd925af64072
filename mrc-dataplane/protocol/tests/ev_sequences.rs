//! Any sequence of calls on profiles keeps the rules that hold at all times (protocol.md §7.1, api.md §4.1).

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod profiles;

use std::collections::BTreeSet;

use mrc_protocol::profile::*;
use mrc_wire::{EvLayout, PortSet};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use self::profiles::ev;

const PORTS: u8 = 3;
const LIMIT: u32 = 12;

/// One call, owned.
#[derive(Clone, Debug)]
enum Call {
    Format(u64, FormatCall),
    Ev(u64, Box<EvCall>),
    Bind(u64),
    Unbind(usize),
    Path(usize, u32, bool),
    Event,
}

#[derive(Clone, Debug)]
struct FormatCall {
    state: Option<ProfileState>,
    mode: Option<FormatMode>,
    widths: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
struct EvCall {
    state: Option<ProfileState>,
    mode: Option<EvMode>,
    format_id: Option<u64>,
    count: Option<u32>,
    fields: Option<Vec<ProfileField>>,
    planes: Option<Vec<u16>>,
    min_active: Option<u32>,
    events: bool,
    op: Op,
}

#[derive(Clone, Debug)]
enum Op {
    None,
    Replace(Vec<Replace>),
    SetState(Vec<SetState>),
}

fn state() -> impl Strategy<Value = Option<ProfileState>> {
    weighted(
        0.6,
        prop_oneof![
            1 => Just(ProfileState::Init),
            3 => Just(ProfileState::Offline),
            4 => Just(ProfileState::Online)
        ],
    )
}

fn path() -> impl Strategy<Value = PortEv> {
    (0u8..4, prop_oneof![20 => 1..=PORTS, 1 => Just(PORTS + 1)]).prop_map(|(value, port)| ev(&[value << 6], port))
}

fn entry_state() -> impl Strategy<Value = EntryState> {
    prop_oneof![
        Just(EntryState::Good),
        Just(EntryState::AssumedBad),
        Just(EntryState::Denied)
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let replace = (
        weighted(0.4, path()),
        weighted(0.9, path()),
        entry_state(),
        any::<bool>(),
    );
    let replace = replace.prop_map(|(old, new, state, all_copies)| Replace {
        old,
        new,
        state,
        all_copies,
    });
    let fill = path().prop_map(|new| {
        let replace = Replace {
            old: None,
            new: Some(new),
            state: EntryState::Good,
            all_copies: true,
        };
        Op::Replace(vec![replace])
    });
    let set = (path(), entry_state(), any::<bool>());
    let set = set.prop_map(|(ev, state, all_copies)| SetState { ev, state, all_copies });
    prop_oneof![
        3 => Just(Op::None),
        2 => vec(replace, 0..4).prop_map(Op::Replace),
        1 => fill,
        1 => vec(set, 0..4).prop_map(Op::SetState)
    ]
}

fn field() -> impl Strategy<Value = ProfileField> {
    (2u32..9, 0u32..4, 0u32..2, 0u32..5, 1u32..8).prop_map(|(width, init_val, min_val, max_val, mask)| ProfileField {
        width,
        init_val,
        min_val,
        max_val,
        mask,
    })
}

fn call() -> impl Strategy<Value = Call> {
    let mode = prop_oneof![Just(FormatMode::Stev), Just(FormatMode::Udp), Just(FormatMode::Srv6)];
    let format = (state(), weighted(0.4, mode), weighted(0.4, vec(1u8..20, 0..4)));
    let format = format.prop_map(|(state, mode, widths)| FormatCall { state, mode, widths });
    let mode = prop_oneof![
        1 => Just(EvMode::Auto),
        3 => Just(EvMode::Explicit),
        3 => Just(EvMode::Generated)
    ];
    let attributes = (
        state(),
        weighted(0.4, mode),
        weighted(0.4, 0u64..2),
        weighted(0.4, 0..LIMIT + 2),
        weighted(0.2, vec(field(), 0..3)),
        weighted(0.05, vec(0u16..3, 0..2)),
        weighted(0.1, 0u32..6),
        any::<bool>(),
        op(),
    );
    let change = attributes.prop_map(
        |(state, mode, format_id, count, fields, planes, min_active, events, op)| EvCall {
            state,
            mode,
            format_id,
            count,
            fields,
            planes,
            min_active,
            events,
            op,
        },
    );
    // A whole configuration, as a controller would write it.
    let mode = prop_oneof![Just(EvMode::Auto), Just(EvMode::Explicit), Just(EvMode::Generated)];
    let whole =
        (mode, 0u64..2, 1..LIMIT, field(), any::<bool>()).prop_map(|(mode, format_id, count, field, events)| EvCall {
            state: Some(ProfileState::Offline),
            mode: Some(mode),
            format_id: Some(format_id),
            count: Some(count),
            fields: (mode == EvMode::Generated).then(|| vec![field]),
            planes: None,
            min_active: None,
            events,
            op: Op::None,
        });
    prop_oneof![
        4 => (1u64..3, whole).prop_map(|(id, call)| Call::Ev(id, Box::new(call))),
        1 => (0u64..2, format).prop_map(|(id, call)| Call::Format(id, call)),
        8 => (0u64..3, change).prop_map(|(id, call)| Call::Ev(id, Box::new(call))),
        2 => (0u64..3).prop_map(Call::Bind),
        1 => any::<prop::sample::Index>().prop_map(|index| Call::Unbind(index.index(1 << 16))),
        2 => (0..8usize, 0..LIMIT + 1, any::<bool>()).prop_map(|(who, entry, bad)| Call::Path(who, entry, bad)),
        1 => Just(Call::Event),
    ]
}

/// What can be seen of a profile, to compare it before and after.
fn view(profiles: &Profiles, id: u64) -> Option<String> {
    let profile = profiles.ev(id)?;
    let entries: Vec<_> = profile.entries().collect();
    Some(format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {} {:?} {entries:?}",
        profile.state(),
        profile.mode(),
        profile.format_id(),
        profile.fields(),
        profile.plane_fields(),
        profile.event_mask(),
        profile.min_active(),
        profile.expansion(),
    ))
}

fn apply(profiles: &mut Profiles, bindings: &mut Vec<Binding>, call: &Call) {
    match call {
        Call::Format(id, call) => {
            let fields: Option<Vec<_>> = call
                .widths
                .as_ref()
                .map(|widths| widths.iter().map(|&width| FormatField::new(width)).collect());
            let change = FormatChange {
                state: call.state,
                mode: call.mode,
                fields: fields.as_deref(),
                ..FormatChange::default()
            };
            let _ = profiles.modify_format(*id, &change);
        }
        Call::Ev(id, call) => {
            let before = view(profiles, *id);
            let change = EvChange {
                state: call.state,
                mode: call.mode,
                format_id: call.format_id,
                count: call.count,
                fields: call.fields.as_deref(),
                plane_fields: call.planes.as_deref(),
                min_active: call.min_active,
                event_mask: call.events.then_some(EventMask {
                    good: true,
                    assumed_bad: true,
                }),
                entries: match &call.op {
                    Op::None => None,
                    Op::Replace(list) => Some(EvOp::Replace(list)),
                    Op::SetState(list) => Some(EvOp::SetState(list)),
                },
                ..EvChange::default()
            };
            if let Err(error) = profiles.modify(*id, &change) {
                assert!(!error.to_string().contains('\n'));
                if change.entries.is_none() {
                    assert_eq!(view(profiles, *id), before, "all or nothing: {error}");
                }
            } else if *id != BUILT_IN {
                let state = profiles.ev(*id).map_or(ProfileState::Init, EvProfile::state);
                assert!(change.state.is_none_or(|wanted| wanted == state));
            }
        }
        Call::Bind(id) => bindings.extend(profiles.bind(*id)),
        Call::Unbind(index) => {
            if !bindings.is_empty() {
                let index = index % bindings.len();
                profiles.unbind(bindings.swap_remove(index));
            }
        }
        Call::Path(who, entry, bad) => {
            if let Some(binding) = bindings.get_mut(*who) {
                profiles.handle_path(binding, *entry, *bad);
            }
        }
        Call::Event => {
            profiles.poll_event();
        }
    }
}

fn check(profiles: &Profiles, bindings: &[Binding]) {
    let ports = PortSet::first(PORTS);
    let mut used = 0;
    for id in 0..3 {
        let bound = bindings.iter().filter(|binding| binding.profile() == id).count();
        let Some(profile) = profiles.ev(id) else {
            assert_eq!(bound, 0, "a profile in INIT is in use");
            continue;
        };
        assert_eq!(profile.bound_qps() as usize, bound);
        let entries: Vec<_> = profile.entries().collect();
        if id != BUILT_IN {
            used += profile.ev_count();
            assert!(profile.ev_count() <= LIMIT);
        }
        for (ev, state) in &entries {
            assert_eq!(ev.is_some(), state.is_some());
            if let Some(ev) = ev {
                assert!(ports.contains(ev.port));
                let first = entries.iter().find(|(other, _)| other.as_ref() == Some(ev)).unwrap();
                assert_eq!(profile.entry_state(ev).ok(), first.1, "the first copy answers");
            }
        }
        let universe = profile.universe(ports, EvLayout::FlowHigh);
        if profile.state() != ProfileState::Online {
            assert_eq!((bound, universe.len()), (0, 0));
            continue;
        }
        // ONLINE: everything is there and expands, tags and paths are the same thing.
        assert_eq!(universe.len(), entries.len());
        let mut tags = BTreeSet::new();
        let mut paths = BTreeSet::new();
        for (path, (ev, _)) in universe.iter().zip(&entries) {
            let ev = ev.expect("every entry is populated");
            assert!(profile.expansion().unwrap().check(&ev.value).is_ok());
            tags.insert((path.tag, path.port));
            paths.insert(ev);
        }
        assert_eq!(tags.len(), paths.len(), "tags are injective");
        if profile.mode() != Some(EvMode::Explicit) {
            assert_eq!(paths.len(), entries.len(), "all different");
        }
        if let Some(format) = profile.format_id() {
            assert_eq!(profiles.format(format).unwrap().state(), ProfileState::Online);
        }
        assert!(profile.min_active() <= profile.ev_count());
    }
    assert_eq!(profiles.free_count(), 2 * LIMIT - used);
}

/// Goes through a sequence, and tells after how many calls a profile of each mode was ONLINE.
fn run(calls: &[Call]) -> [usize; 3] {
    let limits = Limits {
        max_formats: 2,
        max_profiles: 2,
        max_count: LIMIT,
        max_total: 2 * LIMIT,
        ..Limits::new(PortSet::first(PORTS))
    };
    let mut profiles = Profiles::new(limits, [1; 32]);
    let mut bindings = Vec::new();
    for (id, mode, widths) in [(0, FormatMode::Udp, vec![8, 8]), (1, FormatMode::Srv6, vec![9, 9])] {
        for state in [ProfileState::Offline, ProfileState::Online] {
            let call = FormatCall {
                state: Some(state),
                mode: (state == ProfileState::Offline).then_some(mode),
                widths: (state == ProfileState::Offline).then(|| widths.clone()),
            };
            apply(&mut profiles, &mut bindings, &Call::Format(id, call));
        }
    }
    let mut online = [0; 3];
    for call in calls {
        apply(&mut profiles, &mut bindings, call);
        check(&profiles, &bindings);
        for profile in (1..3).filter_map(|id| profiles.ev(id)) {
            if let Some(mode) = profile.mode().filter(|_| profile.state() == ProfileState::Online) {
                online[mode as usize] += 1;
            }
        }
    }
    // When everybody has left, nobody's opinion is left either.
    for binding in bindings {
        profiles.unbind(binding);
    }
    for id in 1..3 {
        if let Some(profile) = profiles
            .ev(id)
            .filter(|profile| profile.state() == ProfileState::Online)
        {
            let start = profile.universe(PortSet::first(PORTS), EvLayout::FlowHigh);
            assert!(start.iter().all(|path| Some(path.state) == profile.entry(path.entry).1));
        }
    }
    online
}

proptest! {
    #[test]
    fn rules_hold_after_every_call(calls in vec(call(), 1..120)) {
        run(&calls);
    }
}

#[test]
fn the_sequences_reach_profiles_in_use() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let sequences = vec(call(), 100..120);
    let mut online = [0; 3];
    for _ in 0..100 {
        let seen = run(&sequences.new_tree(&mut runner).unwrap().current());
        (0..3).for_each(|mode| online[mode] += seen[mode]);
    }
    assert!(
        online.iter().all(|&count| count > 300),
        "AUTO, EXPLICIT, GENERATED: {online:?} of 11,000"
    );
}
