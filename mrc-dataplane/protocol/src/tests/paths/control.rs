//! Where control packets leave (protocol.md §6.10).

use std::collections::BTreeMap;
use std::vec::Vec;

use mrc_wire::{PathVerdict, PortSet};

use super::*;
use crate::path::{Happening, PathSet};
use crate::time::Instant;

#[test]
fn control_packets_rotate_over_the_ports_that_are_up() {
    let (mut a, mut b) = setup(4, 4, 16, 4).pair();
    let mut ports = BTreeMap::new();
    for n in 0..40 {
        if n == 20 {
            b.handle_ports(ALL.difference(PortSet::EMPTY.with(port(3))), ALL);
            ports.clear();
        }
        a.post(write(0, 1, 0));
        let sent = a.poll_all();
        let back = b.receive_all(&sent);
        for wire in &back {
            *ports.entry(wire.sent.port.get()).or_insert(0) += 1;
        }
        a.hear(&back);
        a.completions();
    }
    assert_eq!(ports.keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
    assert!(ports.values().all(|&count| (13..=14).contains(&count)), "{ports:?}");
}

#[test]
fn pairs_of_control_packets_do_not_take_the_same_ports_for_ever() {
    let (mut a, mut b) = setup(2, 4, 8, 2).pair();
    let mut orders = BTreeMap::new();
    for _ in 0..40 {
        a.post(write(0, 1, 0));
        let sent = a.poll_all();
        let back = b.receive_all(&sent);
        let order: Vec<u8> = back.iter().map(|wire| wire.sent.port.get()).collect();
        *orders.entry(order).or_insert(0) += 1;
        a.hear(&back);
        a.completions();
    }
    // The Transport ACK takes one port as often as the other, whatever the SACK before it took.
    for last in [1, 2] {
        let count: u32 = orders
            .iter()
            .filter(|(order, _)| order[1] == last)
            .map(|(_, count)| count)
            .sum();
        assert!(count > 10, "{orders:?}");
    }
}

#[test]
fn control_packets_prefer_ports_on_which_the_peer_was_heard() {
    let (mut a, mut b) = setup(2, 4, 8, 2).pair();
    // A's port 2 is cut off beyond the switch: B's own port 2 is still up.
    a.handle_ports(PortSet::EMPTY.with(port(1)), ALL);
    let ask = |a: &mut End, b: &mut End| {
        a.post(write(0, 1, 0));
        let sent = a.poll_all();
        let back = b.receive_all(&sent);
        a.hear(&back);
        a.completions();
        back.iter().map(|wire| wire.sent.port).collect::<Vec<_>>()
    };
    b.handle_ports(ALL, ALL);
    ask(&mut a, &mut b);
    b.advance(100_000_000);
    a.advance(100_000_000);
    let heard = (0..40)
        .flat_map(|_| ask(&mut a, &mut b))
        .filter(|&used| used == port(1))
        .count();
    assert!((60..80).contains(&heard), "most of 80, but not all: {heard}");
    // Heard again, used again.
    a.handle_ports(ALL, ALL);
    let ports: Vec<_> = (0..20).flat_map(|_| ask(&mut a, &mut b)).collect();
    assert!(ports.contains(&port(2)));
    // One that goes down here is out, heard or not.
    b.handle_ports(PortSet::EMPTY.with(port(2)), ALL);
    assert!((0..10).all(|_| ask(&mut a, &mut b) == [port(2), port(2)]));
}

#[test]
fn an_answer_waits_for_the_port_where_the_peer_is_heard_even_if_every_path_is_at_the_floor() {
    let config = PathConfig {
        active: Some(2),
        min_active: Some(2),
        ..PathConfig::explicit(evs(2, 1))
    };
    let mut paths = PathSet::new(&config, [7; 32]).unwrap();
    let now = Instant::from_ns(1_000_000_000);
    for index in 0..2 {
        paths.handle(index, Happening::Verdict, Reason::Verdict, now, 1_000);
    }
    paths.heard(port(1), now);
    // Port 1 is full: but for a few tries anywhere, the answer waits.
    let hasty = (0..80)
        .filter(|_| paths.control(PortSet::EMPTY.with(port(2)), None, now).is_some())
        .count();
    assert!((1..30).contains(&hasty), "{hasty} of 80");
}

#[test]
fn answers_try_a_path_at_the_floor_now_and_then() {
    // Port 1's only path was blamed long ago, and no data goes there to acquit it; port 2's never answers.
    let config = PathConfig {
        active: Some(2),
        min_active: Some(2),
        ..PathConfig::explicit(evs(2, 1))
    };
    let mut paths = PathSet::new(&config, [7; 32]).unwrap();
    paths.handle(0, Happening::Verdict, Reason::Verdict, Instant::from_ns(1_000), 1_000);
    let tries = (0..160)
        .filter(|_| paths.control(ALL, None, Instant::ZERO) == Some(0))
        .count();
    assert!((3..40).contains(&tries), "{tries} of 160");
}

/// §6.10, P17: a SACK for own data names the plane's reverse EV; answers go there, on the plane of their trigger, for 100 ms.
#[test]
fn answers_take_the_path_that_a_sack_has_confirmed_on_the_plane_of_their_trigger() {
    let (mut a, mut b) = setup(2, 4, 8, 2).pair();
    // Both sides send, so that both know where their own packets arrive.
    let mut confirmed = BTreeMap::new();
    for _ in 0..8 {
        let sent = ping(&mut b, &mut a, PathVerdict::None).sent;
        confirmed.insert(sent.port, sent.ev);
    }
    let answers = |a: &mut End, b: &mut End| {
        let mut seen = Vec::new();
        for _ in 0..40 {
            a.post(write(0, 1, 0));
            let sent = a.poll_all();
            let back = b.receive_all(&sent);
            for wire in &back {
                seen.push((sent[0].sent.port, wire.sent.port, wire.sent.ev));
            }
            a.hear(&back);
            a.completions();
        }
        seen
    };
    let seen = answers(&mut a, &mut b);
    let home = seen
        .iter()
        .filter(|(from, to, ev)| from == to && confirmed[to] == *ev)
        .count();
    assert!(
        home >= seen.len() * 7 / 10,
        "all but a few tries elsewhere: {home} of {}",
        seen.len()
    );
    // Too old to be preferred.
    a.advance(100_000_000);
    b.advance(100_000_000);
    let seen = answers(&mut a, &mut b);
    let home = seen
        .iter()
        .filter(|(from, to, ev)| from == to && confirmed[to] == *ev)
        .count();
    assert!(home < seen.len() / 2, "{home} of {}", seen.len());
}

/// §6.10: one that only receives finds out by EV probes: with inbound traffic, once per round trip or 5 ms, planes in turn.
#[test]
fn a_receiver_probes_its_planes_in_turn_while_packets_come() {
    let (mut a, mut b) = setup(4, 4, 16, 4).pair();
    let poll = |b: &mut End| b.cx(|qp, cx| qp.poll_ev_probe(cx));
    assert_eq!(poll(&mut b), None, "nothing came");
    assert_eq!(a.cx(|qp, cx| qp.poll_ev_probe(cx)), None, "nor at the side that sends");
    let mut planes = Vec::new();
    for _ in 0..8 {
        ping(&mut a, &mut b, PathVerdict::None);
        let path = poll(&mut b).expect("packets came");
        planes.push(path.port.get());
        b.cx(|qp, cx| qp.handle_ev_probe(cx, path, true));
        ping(&mut a, &mut b, PathVerdict::None);
        assert_eq!(poll(&mut b), None, "too early");
        b.advance(5_000_000);
        a.advance(5_000_000);
    }
    planes[..4].sort_unstable();
    planes[4..].sort_unstable();
    assert_eq!(planes, [1, 2, 3, 4, 1, 2, 3, 4]);
    b.advance(5_000_000);
    poll(&mut b).expect("the last ping");
    b.advance(5_000_000);
    assert_eq!(poll(&mut b), None, "nothing came since");
    // SACKs for own data tell it without probes.
    ping(&mut b, &mut a, PathVerdict::None);
    ping(&mut a, &mut b, PathVerdict::None);
    assert_eq!(poll(&mut b), None);
}

/// §6.10, §8.2: what was confirmed is not trusted once something spoke against it.
#[test]
fn a_confirmed_path_that_fails_carries_no_answers() {
    let mut paths = PathSet::new(&setup(1, 4, 2, 1).path, [7; 32]).unwrap();
    let now = Instant::from_ns(1_000_000_000);
    paths.confirm(2, now);
    let here = Some(port(1));
    let on_it = |paths: &mut PathSet| (0..80).filter(|_| paths.control(ALL, here, now) == Some(2)).count();
    assert!(on_it(&mut paths) > 60);
    paths.handle(2, Happening::Verdict, Reason::Verdict, now, 1_000);
    assert_eq!(on_it(&mut paths), 0);
}

/// §6.10: an EV probe that is not answered casts doubt on what was confirmed on its plane.
#[test]
fn a_plane_whose_probe_fails_is_not_preferred_any_more() {
    let mut paths = PathSet::new(&setup(2, 4, 8, 2).path, [7; 32]).unwrap();
    let now = Instant::from_ns(1_000_000_000);
    paths.confirm(1, now);
    let confirmed = paths.entry(1).port;
    let other = (0..8)
        .find(|&index| index != 1 && paths.entry(index).port == confirmed)
        .unwrap();
    let there = |paths: &mut PathSet| {
        let ports = (0..160).filter_map(|_| paths.control(ALL, None, now));
        ports
            .collect::<Vec<_>>()
            .into_iter()
            .filter(|&index| paths.entry(index).port == confirmed)
            .count()
    };
    assert!(there(&mut paths) > 120);
    paths.handle_ev_probe(other, false, now, 1_000);
    let after = there(&mut paths);
    assert!(
        (40..120).contains(&after),
        "as often as the other plane: {after} of 160"
    );
}
