//! When an ASSUMED_BAD path is probed, to the nanosecond and to the packet (protocol.md §8.2, §9.1, P22).

use mrc_wire::PortSet;

use super::*;
use crate::path::{EvIndex, Happening, PathSet};
use crate::time::{Instant, MS};

const NOW: Instant = Instant::from_ns(1_000_000_000);

/// Without trimming, so that five answers in a row are needed.
fn paths(each: u32) -> PathSet {
    PathSet::new(&setup(1, each, 1, 1).path, [7; 32]).unwrap()
}

fn happen(paths: &mut PathSet, index: EvIndex, happening: Happening, now: Instant) {
    paths.handle(index, happening, Reason::Controller, now, 1_000);
}

fn is_due(paths: &mut PathSet, now: Instant) -> bool {
    paths.handle_check_timeout(now);
    paths.has_checks()
}

/// The path is probed after exactly this time, and the probe leaves.
fn probed_after(paths: &mut PathSet, from: Instant, wait_ns: u64) -> Instant {
    if wait_ns > 0 {
        assert!(!is_due(paths, from + (wait_ns - 1)), "not before {wait_ns} ns");
    }
    let at = from + wait_ns;
    assert!(is_due(paths, at), "after {wait_ns} ns");
    assert!(paths.poll_check(ALL, at).is_some());
    at
}

// protocol.md §9.1, P22
#[test]
fn waits_double_from_one_millisecond_to_exactly_a_second() {
    let mut paths = paths(2);
    happen(&mut paths, 0, Happening::Banish, NOW);
    let mut now = probed_after(&mut paths, NOW, MS);
    for doublings in 1..14 {
        happen(&mut paths, 0, Happening::ProbeLost, now);
        now = probed_after(&mut paths, now, (MS << doublings).min(1_000 * MS));
    }
}

// protocol.md §9.1, §14 (P29)
#[test]
fn an_answer_is_followed_at_once_unless_failures_have_ended_rows_of_answers() {
    let mut paths = paths(2);
    happen(&mut paths, 0, Happening::Banish, NOW);
    // Failures before the first answer end no row.
    for _ in 0..3 {
        happen(&mut paths, 0, Happening::ProbeLost, NOW);
    }
    happen(&mut paths, 0, Happening::ProbeDelivered, NOW);
    let mut now = probed_after(&mut paths, NOW, 0);
    for ended in 1..=9 {
        happen(&mut paths, 0, Happening::ProbeLost, now);
        // Only the first of several does.
        happen(&mut paths, 0, Happening::ProbeLost, now);
        happen(&mut paths, 0, Happening::ProbeDelivered, now);
        now = probed_after(&mut paths, now, (MS << ended).min(128 * MS));
    }
}

// protocol.md §9.1: "at most one probe in flight per EV".
#[test]
fn a_path_has_one_probe_in_flight_whatever_else_happens() {
    let mut paths = paths(4);
    happen(&mut paths, 0, Happening::Banish, NOW);
    happen(&mut paths, 1, Happening::Banish, NOW + MS);
    assert!(is_due(&mut paths, NOW + MS));
    assert_eq!(paths.poll_check(ALL, NOW + MS), Some(0));
    let now = NOW + 2 * MS;
    assert!(is_due(&mut paths, now));
    assert_eq!(paths.poll_check(ALL, now), Some(1));
    assert!(!is_due(&mut paths, now + MS), "both are in flight");
    // Nor does a port that returns, which makes its bad paths due.
    paths.set_ports(PortSet::EMPTY, ALL, now);
    paths.set_ports(ALL, ALL, now);
    assert!(!is_due(&mut paths, now + MS));
    happen(&mut paths, 0, Happening::ProbeLost, now);
    assert!(is_due(&mut paths, now + 2 * MS), "what is given up may be probed again");
}

// protocol.md §8.2: "same, no probes".
#[test]
fn a_bad_path_of_a_port_that_is_down_is_not_even_due() {
    let mut paths = paths(2);
    happen(&mut paths, 0, Happening::Banish, NOW);
    paths.set_ports(PortSet::EMPTY, ALL, NOW);
    assert!(!is_due(&mut paths, NOW + MS));
    assert_eq!(paths.next_check(), None);
    paths.set_ports(ALL, ALL, NOW + 5 * MS);
    assert!(is_due(&mut paths, NOW + 5 * MS), "at once");
}

// protocol.md §9.1: max(1, 10 %) of the data packets; without data one a millisecond.
#[test]
fn the_tenth_packet_pays_for_a_probe_and_eight_are_paid_in_advance_at_most() {
    let mut paths = paths(40);
    for index in 0..30 {
        happen(&mut paths, index, Happening::Banish, NOW);
    }
    let now = NOW + MS;
    assert!(is_due(&mut paths, now));
    assert!(paths.poll_check(ALL, now).is_some(), "one in any case");
    for _ in 0..9 {
        paths.pay_for_checks();
    }
    assert_eq!(paths.poll_check(ALL, now), None, "nine have not paid");
    paths.pay_for_checks();
    assert!(paths.poll_check(ALL, now).is_some(), "ten have");
    assert_eq!(paths.poll_check(ALL, now), None);
    for _ in 0..1000 {
        paths.pay_for_checks();
    }
    assert_eq!((0..30).filter(|_| paths.poll_check(ALL, now).is_some()).count(), 8);
    assert_eq!(paths.poll_check(ALL, now + MS - 1), None);
    assert!(paths.poll_check(ALL, now + MS).is_some());
}
