//! Controller operations on profiles, and queue pairs that use them (protocol.md §7.1, api.md §4).

use crate::draw::Draw;
use mrc_protocol::profile::{
    BUILT_IN, Binding, EntryState, EvChange, EvMode, EvOp, EvProfile, EvValue, EventMask, FormatChange, FormatField,
    FormatMode, Limits, PortEv, ProfileField, ProfileState, Profiles, Replace, SetState,
};
use mrc_wire::{EvLayout, PortNum, PortSet};

const PORTS: u8 = 3;
const LIMIT: u32 = 12;
const STATES: [ProfileState; 3] = [ProfileState::Init, ProfileState::Offline, ProfileState::Online];

pub(crate) fn target(data: &[u8]) {
    let mut draw = Draw::new(data);
    let limits = Limits {
        max_formats: 2,
        max_profiles: 2,
        max_count: LIMIT,
        max_total: 2 * LIMIT,
        modify_online: draw.any(),
        ..Limits::new(PortSet::first(PORTS))
    };
    let mut profiles = Profiles::new(limits, [1; 32]);
    let mut bindings: Vec<Binding> = Vec::new();
    for _ in 0..300 {
        if draw.is_empty() {
            break;
        }
        match draw.below(8) {
            0 | 1 => change_format(&mut profiles, &mut draw),
            2..=4 => change(&mut profiles, &mut draw),
            5 => {
                if bindings.len() < 16 {
                    bindings.extend(profiles.bind(draw.below(3).into()));
                }
            }
            6 => {
                if !bindings.is_empty() {
                    let index = draw.below(bindings.len() as u32) as usize;
                    profiles.unbind(bindings.swap_remove(index));
                }
            }
            _ => {
                let index = draw.below(16) as usize;
                if let Some(binding) = bindings.get_mut(index) {
                    profiles.handle_path(binding, draw.below(LIMIT + 1), draw.any());
                }
                profiles.poll_event();
            }
        }
        check(&profiles, &bindings);
    }
    for binding in bindings {
        profiles.unbind(binding);
    }
    check(&profiles, &[]);
}

fn change_format(profiles: &mut Profiles, draw: &mut Draw<'_>) {
    let fields = draw.maybe(|draw| {
        let count = draw.below(4);
        (0..count)
            .map(|_| FormatField::new(draw.any::<u8>() % 40))
            .collect::<Vec<_>>()
    });
    let change = FormatChange {
        state: draw.maybe(|draw| draw.pick(&STATES)),
        mode: draw.maybe(|draw| draw.pick(&[FormatMode::Stev, FormatMode::Udp, FormatMode::Srv6])),
        fields: fields.as_deref(),
        ..FormatChange::default()
    };
    let _ = profiles.modify_format(draw.below(3).into(), &change);
}

fn change(profiles: &mut Profiles, draw: &mut Draw<'_>) {
    let id = u64::from(draw.below(4));
    let fields = draw.maybe(|draw| {
        let count = draw.below(3);
        (0..count).map(|_| field(draw)).collect::<Vec<_>>()
    });
    let planes = (draw.below(8) == 7).then(|| vec![draw.below(3) as u16]);
    let count = draw.below(4);
    let replace: Vec<_> = (0..count)
        .map(|_| Replace {
            old: draw.maybe(path),
            new: draw.maybe(path),
            state: entry_state(draw),
            all_copies: draw.any(),
        })
        .collect();
    let set: Vec<_> = (0..count)
        .map(|_| SetState {
            ev: path(draw),
            state: entry_state(draw),
            all_copies: draw.any(),
        })
        .collect();
    let change = EvChange {
        state: draw.maybe(|draw| draw.pick(&STATES)),
        current_state: (draw.below(8) == 7).then(|| draw.pick(&STATES)),
        mode: draw.maybe(|draw| draw.pick(&[EvMode::Auto, EvMode::Explicit, EvMode::Generated])),
        format_id: draw.maybe(|draw| draw.below(3).into()),
        count: draw.maybe(|draw| draw.below(LIMIT + 2)),
        fields: fields.as_deref(),
        plane_fields: planes.as_deref(),
        min_active: draw.maybe(|draw| draw.below(6)),
        event_mask: draw.maybe(|draw| EventMask {
            good: draw.any(),
            assumed_bad: draw.any(),
        }),
        entries: match draw.below(4) {
            0 => Some(EvOp::Replace(&replace)),
            1 => Some(EvOp::SetState(&set)),
            _ => None,
        },
        ..EvChange::default()
    };
    let before = view(profiles, id);
    match profiles.modify(id, &change) {
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            let operated = change.entries.is_some();
            assert!(operated || view(profiles, id) == before, "half a change: {error}");
        }
        Ok(_) if id != BUILT_IN => {
            let state = profiles.ev(id).map_or(ProfileState::Init, EvProfile::state);
            assert!(change.state.is_none_or(|wanted| wanted == state));
        }
        Ok(_) => panic!("the built-in profile was changed"),
    }
}

fn field(draw: &mut Draw<'_>) -> ProfileField {
    if draw.below(8) == 7 {
        return ProfileField {
            width: draw.any(),
            init_val: draw.any(),
            min_val: draw.any(),
            max_val: draw.any(),
            mask: draw.any(),
        };
    }
    ProfileField {
        width: 1 + draw.below(10),
        init_val: draw.below(4),
        min_val: draw.below(2),
        max_val: draw.below(5),
        mask: draw.below(16),
    }
}

fn path(draw: &mut Draw<'_>) -> PortEv {
    let value = [draw.any::<u8>() << 6, if draw.below(8) == 7 { draw.any() } else { 0 }];
    PortEv {
        value: EvValue::left_aligned(&value).expect("two bytes"),
        port: PortNum::new(1 + draw.below(u32::from(PORTS) + 1) as u8).expect("1 to 4"),
    }
}

fn entry_state(draw: &mut Draw<'_>) -> EntryState {
    draw.pick(&[EntryState::Good, EntryState::AssumedBad, EntryState::Denied])
}

/// What can be seen of a profile.
fn view(profiles: &Profiles, id: u64) -> Option<String> {
    let profile = profiles.ev(id)?;
    let entries: Vec<_> = profile.entries().collect();
    Some(format!(
        "{:?} {:?} {:?} {:?} {:?} {} {:?} {entries:?}",
        profile.state(),
        profile.mode(),
        profile.format_id(),
        profile.fields(),
        profile.event_mask(),
        profile.min_active(),
        profile.expansion(),
    ))
}

fn check(profiles: &Profiles, bindings: &[Binding]) {
    let ports = PortSet::first(PORTS);
    let mut used = 0;
    for id in 0..4 {
        let bound = bindings.iter().filter(|binding| binding.profile() == id).count();
        let Some(profile) = profiles.ev(id) else {
            assert_eq!(bound, 0, "a profile in INIT is in use");
            continue;
        };
        assert_eq!(profile.bound_qps() as usize, bound);
        if id != BUILT_IN {
            used += profile.ev_count();
            assert!(profile.ev_count() <= LIMIT);
        }
        let entries: Vec<_> = profile.entries().collect();
        assert!(entries.iter().flat_map(|(ev, _)| ev).all(|ev| ports.contains(ev.port)));
        let universe = profile.universe(ports, EvLayout::FlowHigh);
        if profile.state() == ProfileState::Online {
            assert_eq!(universe.len(), entries.len());
            let expansion = profile.expansion();
            let fit = |ev: &PortEv| {
                expansion
                    .as_ref()
                    .is_none_or(|expansion| expansion.check(&ev.value).is_ok())
            };
            assert!(
                entries.iter().all(|(ev, _)| ev.as_ref().is_some_and(fit)),
                "ONLINE with a hole or a misfit"
            );
            assert!(profile.min_active() <= profile.ev_count());
        } else {
            assert_eq!((bound, universe.len()), (0, 0));
        }
    }
    assert_eq!(profiles.free_count(), 2 * LIMIT - used);
}
