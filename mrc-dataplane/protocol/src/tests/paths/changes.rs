//! What a controller changes under a queue pair at work, and what has to survive that or must not (protocol.md §7.1, §8.2,
//! §8.3, §9.3).

use std::vec::Vec;

use mrc_wire::{Ev, PortSet};

use super::*;
use crate::attr::Universe;
use crate::path::{Choice, Happening, PathSet};
use crate::profile::{EntryState, ProfileEv};
use crate::time::{Instant, MS};

const NOW: Instant = Instant::from_ns(1_000_000_000);

fn path(entry: u32, num: u8, state: EntryState) -> ProfileEv {
    ProfileEv {
        tag: Ev(0xc000 + entry),
        port: port(num),
        encap: None,
        entry,
        state,
    }
}

/// Paths of a profile on these ports, in this order.
fn paths(ports: &[u8], active: u16) -> PathSet {
    let entries = (0..).zip(ports).map(|(entry, &num)| path(entry, num, EntryState::Good));
    let config = PathConfig {
        universe: Universe::Profile(entries.collect()),
        ..setup(1, 1, active, 1).path
    };
    PathSet::new(&config, [7; 32]).unwrap()
}

fn active(paths: &PathSet, num: u8) -> usize {
    paths
        .views()
        .filter(|view| view.active && view.entry.port == port(num))
        .count()
}

/// On which of two ports most control packets leave; `None`: on both alike.
fn preferred(paths: &mut PathSet, now: Instant) -> Option<u8> {
    let mut is_on_two = || {
        let index = paths.control(ALL, None, now)?;
        Some(paths.entry(index).port == port(2))
    };
    let on_two = (0..400).filter(|_| is_on_two() == Some(true)).count();
    match on_two {
        320.. => Some(2),
        160..=240 => None,
        ..=80 => Some(1),
        _ => panic!("{on_two} of 400"),
    }
}

// protocol.md §8.2 (2)
#[test]
fn new_paths_are_judged_like_the_old_ones() {
    let mut paths = paths(&[1, 1, 1], 2);
    paths.set_loss_condemns(true);
    paths.exchange(self::paths(&[1, 1, 1], 2), NOW);
    paths.handle(0, Happening::Loss, Reason::Lost, NOW, 1_000);
    assert_eq!(paths.views().next().unwrap().state, EvState::AssumedBad, "one loss");
}

// protocol.md §6.10, P17: lately = within 100 ms of the latest.
#[test]
fn where_the_peer_was_heard_outlives_an_exchange_of_paths() {
    for (after_ns, wanted) in [(100 * MS - 1, None), (100 * MS, Some(2))] {
        let mut paths = paths(&[1, 1, 2, 2], 4);
        paths.heard(port(1), NOW);
        paths.heard(port(2), NOW + after_ns);
        let now = NOW + after_ns;
        assert_eq!(preferred(&mut paths, now), wanted, "before");
        paths.exchange(self::paths(&[1, 1, 2, 2], 4), now);
        assert_eq!(preferred(&mut paths, now), wanted, "after");
    }
}

// protocol.md §5.6, §7.1: from the very moment on in which a port is up again, or a path has its EV, losses are the path's.
#[test]
fn losses_are_excused_up_to_the_moment_of_a_change() {
    let mut paths = paths(&[1, 1, 2, 2], 4);
    let up = NOW + 10;
    paths.set_ports(PortSet::EMPTY.with(port(2)), ALL, NOW);
    assert!(paths.was_down_since(0, up + 1_000), "it still is");
    paths.set_ports(ALL, ALL, up);
    assert!(paths.was_down_since(0, NOW - 1) && paths.was_down_since(0, up - 1));
    assert!(!paths.was_down_since(0, up) && !paths.was_down_since(2, NOW - 1));
    let changed = NOW + 100;
    paths.replace(2, &path(2, 2, EntryState::Good), changed);
    assert!(paths.was_down_since(2, changed - 1));
    assert!(!paths.was_down_since(2, changed) && !paths.was_down_since(3, changed - 1));
    let exchanged = NOW + 200;
    paths.exchange(self::paths(&[1, 2], 2), exchanged);
    assert!(paths.was_down_since(1, exchanged - 1) && !paths.was_down_since(1, exchanged));
}

// protocol.md §8.1: what was found out about an EV is about that one.
#[test]
fn a_new_ev_inherits_neither_losses_nor_the_trust_in_the_old_one() {
    let mut paths = paths(&[1, 1, 1, 1], 4);
    // Two of the three losses that condemn where congestion loses packets, too.
    for _ in 0..2 {
        paths.handle(0, Happening::Loss, Reason::Lost, NOW, 1_000);
    }
    paths.handle(0, Happening::Marked, Reason::Marked, NOW, 1_000);
    paths.confirm(0, NOW);
    let by_answer = |paths: &mut PathSet| -> Vec<u16> {
        let chosen = (0..80).filter_map(|_| paths.control(ALL, Some(port(1)), NOW));
        chosen.collect()
    };
    let to_zero = |chosen: &[u16]| chosen.iter().filter(|&&index| index == 0).count();
    assert!(
        to_zero(&by_answer(&mut paths)) > 60,
        "it is the reverse EV of its plane"
    );
    paths.replace(
        0,
        &ProfileEv {
            tag: Ev(0xd000),
            ..path(0, 1, EntryState::Good)
        },
        NOW,
    );
    let view = paths.views().next().unwrap();
    assert_eq!((view.losses, view.marks, view.state), (0, 0, EvState::Good));
    assert!(to_zero(&by_answer(&mut paths)) < 40, "one of four");
    paths.handle(0, Happening::Loss, Reason::Lost, NOW, 1_000);
    assert_ne!(
        paths.views().next().unwrap().state,
        EvState::AssumedBad,
        "its first loss"
    );
}

// protocol.md §9.1: first probe 1 ms after the verdict, whoever gave it.
#[test]
fn a_path_that_begins_as_bad_is_probed_a_millisecond_later() {
    let mut paths = paths(&[1, 1], 1);
    paths.replace(0, &path(0, 1, EntryState::AssumedBad), NOW);
    paths.handle_check_timeout(NOW + MS - 1);
    assert!(!paths.has_checks());
    paths.handle_check_timeout(NOW + MS);
    assert_eq!(paths.poll_check(ALL, NOW + MS), Some(0));
}

// protocol.md §7.4, §8.3: the same number of active EVs in every plane that has any.
#[test]
fn planes_have_equal_shares_again_when_a_path_changes_its_plane() {
    let mut paths = paths(&[1, 1, 1, 1, 2], 4);
    assert_eq!((active(&paths, 1), active(&paths, 2)), (2, 1));
    // The last one of plane 2 moves: plane 1 is alone.
    paths.replace(4, &path(4, 1, EntryState::Good), NOW);
    assert_eq!((active(&paths, 1), active(&paths, 2)), (4, 0));
    // And one moves back.
    paths.replace(0, &path(0, 2, EntryState::Good), NOW);
    assert_eq!((active(&paths, 1), active(&paths, 2)), (2, 1));
    let used: Vec<Choice> = (0..30).map(|_| paths.select(ALL, None, NOW, 1_000)).collect();
    let on_two = used.iter().filter(|&&choice| choice == Choice::Path(0)).count();
    assert_eq!(on_two, 10, "one turn in three");
}

// protocol.md §9.3, P24: "keep the last usable port in use".
#[test]
fn the_port_that_was_usable_last_stays_in_use_when_the_peer_names_none() {
    let mut paths = paths(&[1, 2, 3, 4], 4);
    let three = PortSet::EMPTY.with(port(3));
    paths.set_ports(ALL, three, NOW);
    paths.set_ports(ALL, PortSet::EMPTY, NOW);
    assert_eq!(paths.usable(), three);
    // Unless it is down here.
    paths.set_ports(PortSet::first(2), PortSet::EMPTY, NOW);
    assert_eq!(paths.usable(), PortSet::first(1));
    paths.set_ports(PortSet::EMPTY, ALL, NOW);
    assert_eq!(paths.usable(), PortSet::EMPTY);
}

// protocol.md §6.10, P17: planes in turn, the one first that has gone longest without a confirmation.
#[test]
fn the_plane_that_was_confirmed_longest_ago_is_probed_first() {
    let mut paths = paths(&[1, 2, 3], 3);
    for (index, at) in [(2, 0), (0, 1), (1, 2)] {
        paths.confirm(index, NOW + at);
    }
    let mut now = NOW + 100 * MS + 1;
    paths.note_inbound();
    assert_eq!(
        paths.poll_reverse_probe(now, 1_000),
        None,
        "SACKs for own data told within 100 ms"
    );
    now = now + 1;
    let mut probed = Vec::new();
    for _ in 0..3 {
        paths.note_inbound();
        probed.extend(paths.poll_reverse_probe(now, 1_000));
        paths.note_inbound();
        assert_eq!(
            paths.poll_reverse_probe(now + 5 * MS - 1, 1_000),
            None,
            "every 5 ms at most"
        );
        now = now + 5 * MS;
    }
    assert_eq!(probed, [2, 0, 1]);
}
