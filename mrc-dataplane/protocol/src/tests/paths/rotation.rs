//! Turns: the rotation, SKIP, and weights (protocol.md §8.2, §8.3).

use std::collections::BTreeMap;
use std::vec::Vec;

use mrc_wire::{Ev, PathVerdict, PortSet};

use super::*;
use crate::path::{Choice, PathSet};
use crate::time::Instant;

#[test]
fn every_active_path_has_one_turn_per_pass_and_the_order_changes() {
    let (mut a, mut b) = setup(4, 8, 16, 4).pair();
    let mut orders = Vec::new();
    for _ in 0..9 {
        let pass: Vec<u32> = (0..16)
            .map(|_| ping(&mut a, &mut b, PathVerdict::None).sent.ev.0)
            .collect();
        let mut sorted = pass.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 16);
        orders.push(pass);
    }
    assert!(orders[..7].windows(2).all(|pair| pair[0] == pair[1]));
    assert_ne!(orders[0], orders[8], "drawn anew after 8 passes");
    for num in 1..=4 {
        assert_eq!(active_on(&a, num), 4);
    }
}

#[test]
fn queue_pairs_do_not_march_in_step() {
    let order = |qpn: u32| {
        let (a, b) = setup(4, 8, 32, 4).pair();
        let mut end = if qpn == 0xa { a } else { b };
        end.post(write(0, 32 * 4096, 0));
        end.poll_all().iter().map(|w| w.sent.ev).collect::<Vec<_>>()
    };
    assert_ne!(order(0xa), order(0xb));
}

#[test]
fn skip_loses_one_turn_and_does_not_accumulate() {
    let (mut a, mut b) = setup(1, 4, 4, 1).pair();
    let marked = ping(&mut a, &mut b, PathVerdict::SkipOnce).sent.ev;
    assert_eq!(
        (view(&a, marked).state, view(&a, marked).reason),
        (EvState::Skip, Reason::Marked)
    );
    let used: Vec<Ev> = (0..10)
        .map(|_| ping(&mut a, &mut b, PathVerdict::None).sent.ev)
        .collect();
    let turns: Vec<usize> = (0..10).filter(|&n| used[n] == marked).collect();
    // Three others, then its lost turn, then three others, then itself.
    assert_eq!(turns, [6]);
    assert_eq!(view(&a, marked).state, EvState::Good);
}

#[test]
fn when_all_are_skipped_one_packet_restores_one() {
    let (mut a, mut b) = setup(1, 4, 4, 1).pair();
    for _ in 0..4 {
        ping(&mut a, &mut b, PathVerdict::SkipOnce);
    }
    assert!(a.qp.ev_states().all(|view| view.state == EvState::Skip));
    a.post(write(0, 1, 0));
    assert_eq!(a.poll_all().len(), 1);
    assert_eq!(a.qp.ev_states().filter(|view| view.state == EvState::Good).count(), 1);
}

#[test]
fn feedback_concerns_all_copies_of_a_weighted_path() {
    let twice = EvEntry {
        ev: Ev(7),
        port: port(1),
    };
    let once = EvEntry {
        ev: Ev(8),
        port: port(1),
    };
    let path = PathConfig {
        active: Some(3),
        ..PathConfig::explicit([twice, twice, once].to_vec())
    };
    let (mut a, mut b) = Setup {
        path,
        ..Setup::default()
    }
    .pair();
    let marked = ping(&mut a, &mut b, PathVerdict::SkipOnce).sent.ev;
    let expected = if marked == Ev(7) { 2 } else { 1 };
    assert_eq!(a.qp.ev_states().filter(|v| v.state == EvState::Skip).count(), expected);
    let mut uses = BTreeMap::new();
    for _ in 0..30 {
        *uses
            .entry(ping(&mut a, &mut b, PathVerdict::None).sent.ev.0)
            .or_insert(0) += 1;
    }
    assert!(uses[&7] > uses[&8]);
}

#[test]
fn a_walk_that_ends_a_pass_still_meets_every_path() {
    let config = PathConfig {
        reshuffle_passes: 1,
        active: Some(8),
        ..PathConfig::explicit(evs(4, 2))
    };
    let mut paths = PathSet::new(&config, [7; 32]).unwrap();
    let room = PortSet::EMPTY.with(port(2));
    let mut before = None;
    for _ in 0..200 {
        let Choice::Path(index) = paths.select(room, before, Instant::ZERO, 1) else {
            panic!("no path, although two are open");
        };
        assert_ne!(Some(index), before, "the path to avoid, although another is open");
        before = Some(index);
    }
}

/// §8.3: a retransmission avoids the EV of its lost copy, however often that stands in the universe.
#[test]
fn a_retransmission_avoids_all_copies_of_the_path_that_lost_it() {
    let entry = |ev| EvEntry {
        ev: Ev(ev),
        port: port(1),
    };
    let config = PathConfig {
        active: Some(4),
        ..PathConfig::explicit([entry(7), entry(7), entry(7), entry(8)].to_vec())
    };
    let mut paths = PathSet::new(&config, [7; 32]).unwrap();
    for _ in 0..20 {
        for lost in 0..3 {
            let choice = paths.select(PortSet::first(1), Some(lost), Instant::ZERO, 1);
            assert_eq!(choice, Choice::Path(3));
        }
    }
    let alone = PathConfig::explicit([entry(7), entry(7)].to_vec());
    let mut paths = PathSet::new(&alone, [7; 32]).unwrap();
    let choice = paths.select(PortSet::first(1), Some(0), Instant::ZERO, 1);
    assert!(matches!(choice, Choice::Path(_)), "there is no other: {choice:?}");
}
