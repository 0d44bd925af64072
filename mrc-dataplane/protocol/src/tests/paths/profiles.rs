//! Queue pairs that use an EV profile (protocol.md §7.1, §8.2, api.md §4.7 to §4.9).

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use mrc_wire::{Ev, EvLayout, PathVerdict, PortSet};

use super::*;
use crate::profile::*;

const ID: u64 = 7;
const PORTS: PortSet = PortSet::first(2);

fn ev(bytes: &[u8], num: u8) -> PortEv {
    PortEv {
        value: EvValue::left_aligned(bytes).unwrap(),
        port: port(num),
    }
}

/// An ONLINE profile of exactly these entries.
fn profiles(mode: FormatMode, widths: &[u8], entries: &[PortEv]) -> Profiles {
    let mut profiles = Profiles::new(Limits::new(PORTS), [5; 32]);
    let fields: Vec<_> = widths.iter().map(|&width| FormatField::new(width)).collect();
    let format = FormatChange {
        state: Some(ProfileState::Offline),
        mode: Some(mode),
        fields: Some(&fields),
        ..FormatChange::default()
    };
    profiles.modify_format(1, &format).unwrap();
    let online = FormatChange {
        state: Some(ProfileState::Online),
        ..FormatChange::default()
    };
    profiles.modify_format(1, &online).unwrap();
    let list: Vec<_> = entries
        .iter()
        .map(|&new| Replace {
            old: None,
            new: Some(new),
            state: EntryState::Good,
            all_copies: false,
        })
        .collect();
    let change = EvChange {
        state: Some(ProfileState::Offline),
        mode: Some(EvMode::Explicit),
        format_id: Some(1),
        count: Some(entries.len() as u32),
        min_active: Some(1),
        event_mask: Some(EventMask {
            good: true,
            assumed_bad: true,
        }),
        entries: Some(EvOp::Replace(&list)),
        ..EvChange::default()
    };
    profiles.modify(ID, &change).unwrap();
    let online = EvChange {
        state: Some(ProfileState::Online),
        ..EvChange::default()
    };
    profiles.modify(ID, &online).unwrap();
    profiles
}

/// A pair whose A uses the profile.
fn pair(profiles: &Profiles) -> (End, End) {
    let path = PathConfig::profile(profiles.ev(ID).unwrap(), PORTS, EvLayout::FlowHigh);
    let with = Setup {
        path,
        trimming: true,
        ..Setup::default()
    };
    let (a, _) = with.pair();
    let (_, b) = setup(2, 4, 8, 2).pair();
    (a, b)
}

/// Tells the queue pair what a call of the controller touched.
fn tell(profiles: &Profiles, touched: &Touched, a: &mut End) {
    let Touched::Entries(entries) = touched else {
        panic!("{touched:?}")
    };
    for &entry in entries {
        let new = profiles.ev(ID).unwrap().path(entry, EvLayout::FlowHigh).unwrap();
        assert!(a.cx(|qp, cx| qp.handle_entry(cx, &new)));
    }
}

fn set(profiles: &mut Profiles, ev: PortEv, state: EntryState, all_copies: bool) -> Touched {
    let list = [SetState { ev, state, all_copies }];
    let change = EvChange {
        entries: Some(EvOp::SetState(&list)),
        ..EvChange::default()
    };
    profiles.modify(ID, &change).unwrap()
}

fn report(profiles: &mut Profiles, binding: &mut Binding, a: &mut End) {
    while let Some((entry, bad)) = a.qp.poll_path_report() {
        profiles.handle_path(binding, entry, bad);
    }
}

fn uses(a: &mut End, b: &mut End, count: usize) -> BTreeMap<u32, usize> {
    let mut uses = BTreeMap::new();
    for _ in 0..count {
        *uses.entry(ping(a, b, PathVerdict::None).sent.ev.0).or_insert(0) += 1;
    }
    uses
}

fn four() -> [PortEv; 4] {
    [
        ev(&[0, 1, 0xc0, 1], 1),
        ev(&[0, 2, 0xc0, 2], 1),
        ev(&[0, 3, 0xc0, 3], 2),
        ev(&[0, 4, 0xc0, 4], 2),
    ]
}

/// §7.1, §8.1: from the failure of a path in a queue pair to the event of its profile and back, with the event mask.
#[test]
fn what_a_queue_pair_finds_reaches_the_profile_and_its_events() {
    let mut profiles = profiles(FormatMode::Stev, &[16, 16], &four());
    let (mut a, mut b) = pair(&profiles);
    let mut binding = profiles.bind(ID).unwrap();
    let bad = ping(&mut a, &mut b, PathVerdict::AlwaysSkip).sent;
    report(&mut profiles, &mut binding, &mut a);
    let event = profiles.poll_event().unwrap();
    assert_eq!((event.state, event.ev.port), (EntryState::AssumedBad, bad.port));
    assert_eq!(event.ev.value.first_u32(), bad.ev.0);
    // Its probe is answered.
    while view(&a, bad.ev).state == EvState::AssumedBad {
        a.wait_for_timeout();
        let sent = a.poll_all();
        let back = b.receive_all(&sent);
        a.hear(&back);
    }
    report(&mut profiles, &mut binding, &mut a);
    assert_eq!(profiles.poll_event().map(|event| event.state), Some(EntryState::Good));
    assert_eq!(profiles.poll_event(), None);
    // While it is bound it cannot leave ONLINE (api.md §4.7).
    let offline = EvChange {
        state: Some(ProfileState::Offline),
        ..EvChange::default()
    };
    assert_eq!(profiles.modify(ID, &offline), Err(ProfileError::QpsBound(1)));
    profiles.unbind(binding);
    profiles.modify(ID, &offline).unwrap();
}

/// §8.2, the controller's rows on a live queue pair.
#[test]
fn a_denied_entry_is_used_no_more_until_it_is_allowed() {
    let mut profiles = profiles(FormatMode::Stev, &[16, 16], &four());
    let (mut a, mut b) = pair(&profiles);
    let touched = set(&mut profiles, four()[2], EntryState::Denied, false);
    tell(&profiles, &touched, &mut a);
    assert!(!uses(&mut a, &mut b, 12).contains_key(&0x0003_c003));
    let touched = set(&mut profiles, four()[3], EntryState::Denied, false);
    tell(&profiles, &touched, &mut a);
    assert!(
        uses(&mut a, &mut b, 12).keys().all(|&ev| ev < 0x0003_0000),
        "the other plane alone"
    );
    let touched = set(&mut profiles, four()[2], EntryState::Good, false);
    tell(&profiles, &touched, &mut a);
    assert!(uses(&mut a, &mut b, 12).contains_key(&0x0003_c003));
    // A queue pair that comes later begins with what was set (api.md §4.7).
    let (late, _) = pair(&profiles);
    assert_eq!(view(&late, Ev(0x0004_c004)).state, EvState::Denied);
    assert_eq!(view(&late, Ev(0x0003_c003)).state, EvState::Good);
}

/// §7.1: an EV that stands in the array twice has two turns; one copy can be denied alone.
#[test]
fn weights_are_copies() {
    let [one, other, ..] = four();
    let mut profiles = profiles(FormatMode::Stev, &[16, 16], &[one, one, one, other]);
    let (mut a, mut b) = pair(&profiles);
    let before = uses(&mut a, &mut b, 30);
    assert!(
        before[&0x0001_c001] > before.get(&0x0002_c002).copied().unwrap_or(0),
        "{before:?}"
    );
    let touched = set(&mut profiles, one, EntryState::Denied, false);
    assert_eq!(touched, Touched::Entries(vec![0]));
    tell(&profiles, &touched, &mut a);
    let denied = a.qp.ev_states().filter(|view| view.state == EvState::Denied).count();
    assert_eq!(denied, 1);
    let touched = set(&mut profiles, one, EntryState::Denied, true);
    tell(&profiles, &touched, &mut a);
    assert_eq!(
        uses(&mut a, &mut b, 4).keys().copied().collect::<Vec<_>>(),
        [0x0002_c002]
    );
}

fn exchange(profiles: &mut Profiles, old: PortEv, new: PortEv) -> Touched {
    let list = [Replace {
        old: Some(old),
        new: Some(new),
        state: EntryState::Good,
        all_copies: false,
    }];
    let change = EvChange {
        entries: Some(EvOp::Replace(&list)),
        ..EvChange::default()
    };
    profiles.modify(ID, &change).unwrap()
}

/// wire-format.md §3, W5: a tag names one path, also when one of several copies of an EV is exchanged; and the queue pair needs
/// to hear of that one only.
#[test]
fn tags_of_srv6_name_one_path_when_a_copy_is_exchanged() {
    let entry = |last| ev(&[0x5f, 0, 0, last, 0xaa, last], 1);
    let entries = [entry(1), entry(1), entry(1), entry(2)];
    let mut profiles = profiles(FormatMode::Srv6, &[32, 16, 16, 16, 16], &entries);
    let (mut a, _) = pair(&profiles);
    let tags = |profiles: &Profiles| -> Vec<Ev> {
        let universe = profiles.ev(ID).unwrap().universe(PORTS, EvLayout::FlowHigh);
        universe.iter().map(|path| path.tag).collect()
    };
    let before = tags(&profiles);
    assert!(before[0] == before[1] && before[1] == before[2] && before[2] != before[3]);
    let touched = exchange(&mut profiles, entry(1), entry(3));
    assert_eq!(touched, Touched::Entries(vec![0]));
    tell(&profiles, &touched, &mut a);
    let after = tags(&profiles);
    assert_eq!(after[1..], before[1..], "nobody is told of these");
    assert!(!before.contains(&after[0]), "{after:?} after {before:?}");
    let used: Vec<Ev> = a.qp.ev_states().map(|view| view.entry.ev).collect();
    assert_eq!(used, after);
    let touched = exchange(&mut profiles, entry(3), entry(1));
    tell(&profiles, &touched, &mut a);
    assert_eq!(tags(&profiles), before, "a copy again");
}

/// §7.1, §8.2 (1): what a copy reported is taken back when the controller takes that copy away, and the others are at the floor.
#[test]
fn an_entry_is_not_bad_for_a_copy_that_is_gone() {
    for deny in [true, false] {
        let [one, other, ..] = four();
        let mut profiles = profiles(FormatMode::Stev, &[16, 16], &[one, one]);
        let (mut a, mut b) = pair(&profiles);
        let mut binding = profiles.bind(ID).unwrap();
        ping(&mut a, &mut b, PathVerdict::AlwaysSkip);
        let states: Vec<EvState> = a.qp.ev_states().map(|view| view.state).collect();
        assert_eq!(states, [EvState::AssumedBad, EvState::Skip], "one is at the floor");
        report(&mut profiles, &mut binding, &mut a);
        let state = |profiles: &Profiles| profiles.ev(ID).unwrap().entry(1).1;
        assert_eq!(state(&profiles), Some(EntryState::AssumedBad));
        let touched = if deny {
            set(&mut profiles, one, EntryState::Denied, false)
        } else {
            exchange(&mut profiles, one, other)
        };
        assert_eq!(touched, Touched::Entries(vec![0]));
        tell(&profiles, &touched, &mut a);
        report(&mut profiles, &mut binding, &mut a);
        assert_eq!(state(&profiles), Some(EntryState::Good));
    }
}

/// §7.1: an entry gets another EV under a queue pair that has packets in flight on it, even one of another plane.
#[test]
fn an_entry_is_exchanged_on_a_live_queue_pair() {
    for (num, in_flight) in [(1, true), (2, true), (2, false)] {
        let mut profiles = profiles(FormatMode::Stev, &[16, 16], &four());
        let (mut a, mut b) = pair(&profiles);
        if in_flight {
            a.post(write(0, 16 * 4096, 0));
            assert_eq!(a.poll_all().len(), 16);
        }
        let new = ev(&[0, 9, 0xc0, 9], num);
        let touched = exchange(&mut profiles, four()[0], new);
        tell(&profiles, &touched, &mut a);
        talk(&mut a, &mut b);
        if in_flight {
            // Everything was lost on the way, but nobody is to blame on the new path for what the old one carried.
            a.advance(200_000_000);
            talk(&mut a, &mut b);
        }
        let entry = view(&a, Ev(0x0009_c009)).entry;
        assert_eq!(entry.port, port(num));
        assert!(a.qp.ev_states().all(|view| view.entry.ev != Ev(0x0001_c001)));
        let seen = uses(&mut a, &mut b, 24);
        let active = view(&a, Ev(0x0009_c009)).active;
        assert_eq!(seen.contains_key(&0x0009_c009), active, "{seen:?}");
        assert_eq!(a.cc.inflight_packets(), 0);
        let by_port: u32 = (1..=2).map(|num| u32::from(a.cc.inflight_on(port(num)))).sum();
        assert_eq!(by_port, 0, "what left on one plane was not taken off another");
    }
}

/// §7.1, §9.1: the verdict of a probe is that of the EV that it was sent on.
#[test]
fn an_answer_to_a_probe_says_nothing_of_the_path_in_the_place_of_its_own() {
    let mut profiles = profiles(FormatMode::Stev, &[16, 16], &four());
    let (mut a, mut b) = pair(&profiles);
    let bad = ping(&mut a, &mut b, PathVerdict::AlwaysSkip).sent.ev;
    let probe = loop {
        a.wait_for_timeout();
        if let Some(probe) = a.poll_all().pop() {
            break probe;
        }
    };
    let old = four().into_iter().find(|old| old.value.first_u32() == bad.0).unwrap();
    let touched = exchange(&mut profiles, old, ev(&[0, 9, 0xc0, 9], old.port.get()));
    tell(&profiles, &touched, &mut a);
    let mut back = b.receive_all(&[probe]);
    for wire in &mut back {
        if let Headers::Sack(seth, _) = &mut wire.sent.headers {
            seth.m = PathVerdict::AlwaysSkip;
        }
    }
    a.hear(&back);
    assert_eq!(view(&a, Ev(0x0009_c009)).state, EvState::Good);
}

/// §7.2: SRv6 packets name their path, and the path its outer addresses; the 32-bit tag is what SACKs reflect.
#[test]
fn packets_of_an_srv6_profile_lead_to_their_outer_addresses() {
    let entries = [
        ev(&[0x5f, 0, 0, 1, 0xaa], 1),
        ev(&[0x5f, 0, 0, 2, 0xbb], 1),
        ev(&[0x5f, 0, 0, 3, 0xcc], 2),
        ev(&[0x5f, 0, 0, 4, 0xdd], 2),
    ];
    let profiles = profiles(FormatMode::Srv6, &[32, 16, 16, 16, 16], &entries);
    let (mut a, mut b) = pair(&profiles);
    let mut seen = BTreeMap::new();
    for _ in 0..8 {
        let sent = ping(&mut a, &mut b, PathVerdict::None).sent;
        let outer = a.qp.encap(sent.path).unwrap();
        assert_eq!(outer.srh, None);
        seen.insert(sent.path, outer.destination.octets());
        assert_eq!(a.qp.ev_states().nth(sent.path.into()).unwrap().entry.ev, sent.ev);
    }
    for (path, octets) in seen {
        assert_eq!(octets[..5], entries[usize::from(path)].value.0[..5]);
    }
    assert_eq!(a.qp.encap(4), None);
    assert_eq!(b.qp.encap(0), None, "no profile, no outer addresses");
    assert_eq!(a.qp.stats().sacks_received, 8);
}

/// §2.2: the profile is an attribute of INIT; its paths come before anything is sent, and only then.
#[test]
fn paths_are_exchanged_in_reset_and_init_only() {
    let profiles = profiles(FormatMode::Udp, &[16], &[ev(&[0xc0, 1], 1), ev(&[0xc0, 2], 2)]);
    let config = PathConfig::profile(profiles.ev(ID).unwrap(), PORTS, EvLayout::FlowHigh);
    let (mut a, _) = setup(1, 8, 4, 1).pair();
    let refused = a.qp.handle_universe(&config).unwrap_err();
    assert_eq!(refused, crate::UniverseError::State(crate::QpState::Rts));
    a.cx(crate::Qp::handle_reset);
    a.qp.handle_universe(&config).unwrap();
    let evs: Vec<u32> = a.qp.ev_states().map(|view| view.entry.ev.0).collect();
    assert_eq!(evs, [0xc001, 0xc002]);
    let init = crate::InitAttr {
        p_key: 0xffff,
        remote_write: true,
    };
    a.qp.handle_init(&init).unwrap();
    a.qp.handle_universe(&config).unwrap();
    let nothing = PathConfig::explicit(Vec::new());
    assert!(a.qp.handle_universe(&nothing).is_err());
    assert_eq!(a.qp.ev_states().count(), 2, "as before");
}
