//! A controller gives a profile new fields while queue pairs use it (protocol.md §7.1, api.md §4.7).

use std::collections::BTreeSet;
use std::vec::Vec;

use mrc_wire::{Ev, EvLayout, PathVerdict, PortSet};

use super::*;
use crate::UniverseError;
use crate::attr::PathConfig;
use crate::profile::*;
use crate::qp::{Qp, QpState};

const ID: u64 = 7;
const PORTS: PortSet = PortSet::first(2);

/// The second half of the EV is a source port below this one, from `count` values.
fn fields(first: u32, count: u32) -> [ProfileField; 2] {
    let port = ProfileField {
        width: 16,
        init_val: first,
        min_val: 0,
        max_val: count - 1,
        mask: 0xff,
    };
    [ProfileField::constant(16, 0), port]
}

fn profiles(count: u32) -> Profiles {
    let mut profiles = Profiles::new(Limits::new(PORTS), [5; 32]);
    let widths = [FormatField::new(16), FormatField::new(16)];
    let format = FormatChange {
        state: Some(ProfileState::Offline),
        mode: Some(FormatMode::Stev),
        fields: Some(&widths),
        ..FormatChange::default()
    };
    profiles.modify_format(1, &format).unwrap();
    let online = FormatChange {
        state: Some(ProfileState::Online),
        ..FormatChange::default()
    };
    profiles.modify_format(1, &online).unwrap();
    let change = EvChange {
        state: Some(ProfileState::Offline),
        mode: Some(EvMode::Generated),
        format_id: Some(1),
        count: Some(count),
        fields: Some(&fields(0xc000, 64)),
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

fn config(profiles: &Profiles) -> PathConfig {
    PathConfig::profile(profiles.ev(ID).unwrap(), PORTS, EvLayout::FlowHigh)
}

fn pair(profiles: &Profiles) -> (End, End) {
    let with = Setup {
        path: config(profiles),
        trimming: true,
        ..Setup::default()
    };
    let (a, _) = with.pair();
    let (_, b) = setup(2, 4, 8, 2).pair();
    (a, b)
}

/// New fields for the profile and its queue pair.
fn regenerate(profiles: &mut Profiles, a: &mut End, first: u32, count: u32) {
    let change = EvChange {
        fields: Some(&fields(first, count)),
        ..EvChange::default()
    };
    assert_eq!(profiles.modify(ID, &change), Ok(Touched::All));
    let config = config(profiles);
    a.cx(|qp, cx| qp.handle_regenerated(cx, &config)).unwrap();
}

fn universe(a: &End) -> BTreeSet<u32> {
    a.qp.ev_states().map(|view| view.entry.ev.0).collect()
}

// protocol.md §7.1
#[test]
fn what_is_in_flight_goes_on_over_the_new_evs_and_nobody_is_blamed() {
    let mut profiles = profiles(32);
    let (mut a, mut b) = pair(&profiles);
    a.post(write(1, 40 * 4096, 0));
    let old = a.poll_all();
    // Some of it has arrived, and its SACKs are on their way.
    let back = b.receive_all(&old[10..20]);
    regenerate(&mut profiles, &mut a, 0xd000, 64);
    assert_eq!((universe(&a).len(), a.cc.inflight_packets()), (32, 0));
    assert!(universe(&a).iter().all(|&ev| ev >> 8 == 0xd0));
    // They speak of EVs that are no more.
    a.hear(&back);
    talk(&mut a, &mut b);
    assert_eq!(outcomes(&a.completions()).len(), 1);
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Good));
    assert_eq!((a.qp.stats().losses_inferred, a.qp.stats().timeouts), (0, 0));
    assert_eq!(a.cc.inflight_packets(), 0);
}

// protocol.md §7.1: as many as the ranges have, on each port.
#[test]
fn universe_may_shrink_and_grow() {
    let mut profiles = profiles(32);
    let (mut a, mut b) = pair(&profiles);
    for (first, count, size) in [(0xd000, 4, 8), (0xe000, 2, 4), (0xc000, 64, 32)] {
        a.post(write(1, 12 * 4096, 0));
        a.poll_all();
        regenerate(&mut profiles, &mut a, first, count);
        assert_eq!(a.qp.ev_states().count(), size);
        a.poll_all();
        // All copies are lost on the way, old ones and new ones.
        a.advance(30_000_000);
        talk(&mut a, &mut b);
        assert_eq!(outcomes(&a.completions()).len(), 1);
        let used: BTreeSet<u32> = (0..100)
            .map(|_| ping(&mut a, &mut b, PathVerdict::None).sent.ev.0)
            .collect();
        assert!(used.is_subset(&universe(&a)));
    }
}

// protocol.md §8.1, §8.2
#[test]
fn what_was_learned_of_old_evs_does_not_count_for_new_ones_but_ports_stay_as_they_are() {
    let mut profiles = profiles(16);
    let (mut a, mut b) = pair(&profiles);
    a.handle_ports(PortSet::EMPTY.with(port(2)), ALL);
    let bad = ping(&mut a, &mut b, PathVerdict::AlwaysSkip).sent;
    assert_eq!(view(&a, bad.ev).state, EvState::AssumedBad);
    // A probe of it is on its way.
    a.advance(2_000_000);
    let probe = a.poll_all();
    assert_eq!(probe.len(), 1);
    regenerate(&mut profiles, &mut a, 0xd000, 64);
    assert_eq!(a.events().len(), 1, "the event is not lost");
    let back = b.receive_all(&probe);
    a.hear(&back);
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Good));
    for _ in 0..20 {
        assert_eq!(
            ping(&mut a, &mut b, PathVerdict::None).sent.port,
            port(2),
            "port 1 is down"
        );
    }
    let withdrawn: u32 = a.qp.path_counts().map(|counts| counts.withdrawn).sum();
    assert_eq!(withdrawn, 1, "counters go on");
}

// protocol.md §2.2
#[test]
fn before_init_paths_come_with_the_attributes() {
    let profiles = profiles(16);
    let config = config(&profiles);
    let (mut a, _) = pair(&profiles);
    a.cx(Qp::handle_reset);
    let refused = a.cx(|qp, cx| qp.handle_regenerated(cx, &config));
    assert_eq!(refused, Err(UniverseError::NotLive));
    a.qp.handle_universe(&config).unwrap();
    assert_eq!(a.qp.state(), QpState::Reset);
    let nothing = PathConfig::explicit(Vec::new());
    let (mut a, mut b) = pair(&profiles);
    assert!(a.cx(|qp, cx| qp.handle_regenerated(cx, &nothing)).is_err());
    let sent = ping(&mut a, &mut b, PathVerdict::None).sent;
    assert!(universe(&a).contains(&sent.ev.0), "as before");
    assert_ne!(sent.ev, Ev(0));
}
