//! Losses that are counted, the floor, and turns: to the packet and to the nanosecond (protocol.md §8.2 (1)(2), §8.3, P21, P23).

use std::vec::Vec;

use super::*;
use crate::path::{Choice, EvIndex, Happening, PathSet};
use crate::time::Instant;

const NOW: Instant = Instant::from_ns(1_000_000_000);
const RTT_NS: u64 = 10_000;

fn paths(each: u32, active: u16, min_active: u16) -> PathSet {
    PathSet::new(&setup(1, each, active, min_active).path, [7; 32]).unwrap()
}

fn happen(paths: &mut PathSet, index: EvIndex, happening: Happening) {
    paths.handle(index, happening, Reason::Controller, NOW, RTT_NS);
}

fn state(paths: &PathSet, index: EvIndex) -> EvState {
    paths.views().nth(usize::from(index)).unwrap().state
}

// protocol.md §8.2 (2), P21: 3 of the last 16 packets.
#[test]
fn a_third_loss_condemns_if_the_first_is_among_the_last_sixteen() {
    for (delivered, expected) in [(13, EvState::AssumedBad), (14, EvState::Skip)] {
        let mut paths = paths(4, 2, 1);
        happen(&mut paths, 0, Happening::Loss);
        happen(&mut paths, 0, Happening::Loss);
        for _ in 0..delivered {
            happen(&mut paths, 0, Happening::Delivered);
        }
        happen(&mut paths, 0, Happening::Loss);
        assert_eq!(state(&paths, 0), expected, "{delivered} between them");
    }
}

// protocol.md §8.2: GOOD by the controller is a new beginning.
#[test]
fn losses_before_the_controllers_good_do_not_count() {
    let mut paths = paths(4, 2, 1);
    for _ in 0..2 {
        happen(&mut paths, 0, Happening::Loss);
        happen(&mut paths, 0, Happening::Loss);
        assert_eq!(state(&paths, 0), EvState::Skip);
        happen(&mut paths, 0, Happening::Allow);
        assert_eq!(state(&paths, 0), EvState::Good);
    }
    for _ in 0..3 {
        happen(&mut paths, 0, Happening::Loss);
    }
    assert_eq!(state(&paths, 0), EvState::AssumedBad);
}

// protocol.md §8.2 (1), P23: at most once per round trip until it delivers.
#[test]
fn a_path_at_the_floor_is_used_once_in_exactly_one_round_trip() {
    let mut paths = paths(1, 1, 1);
    happen(&mut paths, 0, Happening::Verdict);
    let mut free = NOW + RTT_NS;
    for _ in 0..3 {
        let wait = Choice::Wait(Some(free));
        assert_eq!(paths.select(ALL, None, free - RTT_NS, RTT_NS), wait);
        assert_eq!(paths.select(ALL, None, free - 1, RTT_NS), wait);
        assert_eq!(paths.select(ALL, None, free, RTT_NS), Choice::Path(0));
        free = free + RTT_NS;
    }
    happen(&mut paths, 0, Happening::Delivered);
    for _ in 0..3 {
        assert_eq!(paths.select(ALL, None, free, RTT_NS), Choice::Path(0), "it delivers");
    }
}

// protocol.md §8.2 (1)
#[test]
fn the_controllers_good_takes_a_path_off_the_floor() {
    let mut paths = paths(1, 1, 1);
    happen(&mut paths, 0, Happening::Verdict);
    happen(&mut paths, 0, Happening::Allow);
    for _ in 0..3 {
        assert_eq!(paths.select(ALL, None, NOW, RTT_NS), Choice::Path(0));
    }
}

// protocol.md §6.10, P17: a confirmation counts from the end of the path's time at the floor on.
#[test]
fn a_path_at_the_floor_is_a_reverse_ev_again_when_it_is_confirmed_after_that() {
    let chosen = |confirmed: Instant| {
        let mut paths = paths(2, 2, 2);
        happen(&mut paths, 0, Happening::Verdict);
        paths.confirm(0, confirmed);
        let answers = (0..80).filter_map(|_| paths.control(ALL, Some(port(1)), confirmed));
        answers.filter(|&index| index == 0).count()
    };
    assert!(chosen(NOW + RTT_NS) > 60);
    assert!(chosen(NOW + RTT_NS - 1) < 40);
}

// protocol.md §8.3: "pass over the EV of the lost copy while others remain", be they only restored.
#[test]
fn a_retransmission_takes_a_path_that_lost_its_turn_rather_than_the_one_that_lost_the_packet() {
    let mut paths = paths(2, 2, 1);
    happen(&mut paths, 1, Happening::Marked);
    assert_eq!(paths.select(ALL, Some(0), NOW, RTT_NS), Choice::Path(1));
}

// protocol.md §8.3, §15: re-drawn after so many passes, each time.
#[test]
fn the_order_stays_for_as_many_passes_as_configured() {
    const PASSES: usize = 4;
    let config = PathConfig {
        reshuffle_passes: PASSES as u16,
        ..setup(1, 16, 16, 1).path
    };
    let mut paths = PathSet::new(&config, [7; 32]).unwrap();
    let mut pass = || -> Vec<Choice> { (0..16).map(|_| paths.select(ALL, None, NOW, RTT_NS)).collect() };
    let mut orders = Vec::new();
    for _ in 0..5 {
        let order = pass();
        for _ in 1..PASSES {
            assert_eq!(pass(), order);
        }
        assert!(!orders.contains(&order), "a new one");
        orders.push(order);
    }
}
