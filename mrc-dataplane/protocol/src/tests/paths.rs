//! Rotation, SKIP, ASSUMED_BAD, backup, floor, and the way back (protocol.md §8, §9.1).

use std::collections::BTreeMap;
use std::vec::Vec;

use mrc_wire::{Ev, Headers, Opcode, PathVerdict, PortSet};

use crate::attr::{EvEntry, PathConfig};
use crate::path::{Choice, EvState, EvView, Happening, PathSet, Reason};
use crate::testing::*;
use crate::time::Instant;
use crate::work::QpEvent;

/// One packet there and back; what the responder thinks of its path.
fn ping(a: &mut End, b: &mut End, m: PathVerdict) -> Wire {
    a.post(write(0, 1, 0));
    let sent = a.poll_all();
    let mut back = b.receive_all(&sent);
    for wire in &mut back {
        if let Headers::Sack(seth, _) = &mut wire.sent.headers {
            seth.m = m;
        }
    }
    a.hear(&back);
    a.completions();
    sent.into_iter().find(|wire| wire.sent.bth.opcode.is_write()).unwrap()
}

fn view(a: &End, ev: Ev) -> EvView {
    a.qp.ev_states().find(|view| view.entry.ev == ev).unwrap()
}

fn active_on(a: &End, num: u8) -> usize {
    a.qp.ev_states()
        .filter(|view| view.active && view.entry.port == port(num))
        .count()
}

fn setup(ports: u8, each: u32, active: u16, min_active: u16) -> Setup {
    let path = PathConfig {
        active: Some(active),
        min_active: Some(min_active),
        ..PathConfig::explicit(evs(ports, each))
    };
    Setup {
        path,
        trimming: true,
        ..Setup::default()
    }
}

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
fn condemned_path_is_replaced_by_a_backup_of_the_same_plane_only() {
    let (mut a, mut b) = setup(2, 4, 4, 1).pair();
    // Plane 1 loses all its paths, one by one.
    let mut condemned = Vec::new();
    while condemned.len() < 4 {
        a.post(write(0, 1, 0));
        let sent = a.poll_all();
        let bad = sent[0].sent.port == port(1);
        let mut back = b.receive_all(&sent);
        for wire in &mut back {
            if let Headers::Sack(seth, _) = &mut wire.sent.headers
                && bad
            {
                seth.m = PathVerdict::AlwaysSkip;
            }
        }
        a.hear(&back);
        a.completions();
        if bad {
            condemned.push(sent[0].sent.ev);
            assert_eq!(active_on(&a, 1), (4 - condemned.len()).min(2));
        }
        assert_eq!(active_on(&a, 2), 2, "never of another plane");
    }
    let bad: Vec<Ev> = a
        .events()
        .iter()
        .filter_map(|e| {
            if let QpEvent::EvBad { ev, .. } = e {
                Some(*ev)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(bad, condemned);
    for _ in 0..10 {
        assert_eq!(ping(&mut a, &mut b, PathVerdict::None).sent.port, port(2));
    }
}

#[test]
fn floor_keeps_paths_but_uses_them_once_per_round_trip() {
    let (mut a, mut b) = setup(1, 3, 3, 3).pair();
    for _ in 0..3 {
        ping(&mut a, &mut b, PathVerdict::AlwaysSkip);
    }
    assert!(a.qp.ev_states().all(|view| view.active && view.state == EvState::Skip));
    assert_eq!(a.events(), []);
    // Nothing may go until a round trip has passed; then each may go once.
    a.post(write(0, 10 * 4096, 0));
    assert_eq!(a.poll_all(), []);
    let due = a.qp.next_timeout().expect("it knows when");
    assert!(due > a.now);
    let mut sent = Vec::new();
    for _ in 0..1000 {
        a.wait_for_timeout();
        sent.extend(a.poll_all());
        if sent.len() >= 3 {
            break;
        }
    }
    let mut used: Vec<Ev> = sent.iter().map(|w| w.sent.ev).collect();
    used.dedup();
    assert!(used.len() >= 2);
    // What delivers is as good as any other again.
    let back = b.receive_all(&sent);
    a.hear(&back);
    let (mut a2, mut b2) = (a, b);
    talk(&mut a2, &mut b2);
    assert_eq!(a2.completions().len(), 1);
    assert!(a2.qp.ev_states().any(|view| view.state == EvState::Good));
}

#[test]
fn without_trimming_three_losses_of_sixteen_condemn() {
    let path = PathConfig {
        active: Some(1),
        min_active: Some(1),
        ..PathConfig::explicit(evs(1, 2))
    };
    let (mut a, mut b) = Setup {
        path,
        ..Setup::default()
    }
    .pair();
    let mut losses = 0;
    let first = ping(&mut a, &mut b, PathVerdict::None).sent.ev;
    loop {
        // Every other packet is lost, and declared so by rule B.
        a.post(write(0, 1, 0));
        let lost = a.poll_all();
        assert_eq!(lost[0].sent.ev, first);
        a.advance(200_000);
        ping(&mut a, &mut b, PathVerdict::None);
        a.advance(200_000);
        let again = a.poll_all();
        losses += 1;
        if view(&a, first).state == EvState::AssumedBad {
            break;
        }
        let back = b.receive_all(&again);
        a.hear(&back);
        a.completions();
    }
    assert_eq!(losses, 3);
}

#[test]
fn probes_bring_a_path_back() {
    for (trimming, answers) in [(true, 1), (false, 5)] {
        let (mut a, mut b) = Setup {
            trimming,
            ..setup(1, 4, 2, 1)
        }
        .pair();
        let bad = ping(&mut a, &mut b, PathVerdict::AlwaysSkip).sent.ev;
        let start = a.now;
        assert_eq!(
            (view(&a, bad).state, view(&a, bad).reason),
            (EvState::AssumedBad, Reason::Verdict)
        );
        a.events();
        let mut probes = 0;
        while view(&a, bad).state == EvState::AssumedBad {
            a.wait_for_timeout();
            let sent = a.poll_all();
            for wire in &sent {
                assert_eq!((wire.sent.bth.opcode, wire.sent.ev), (Opcode::Probe, bad));
                probes += 1;
            }
            let back = b.receive_all(&sent);
            a.hear(&back);
        }
        assert_eq!(probes, answers);
        assert!(a.now.since(start) >= 1_000_000, "1 ms after the verdict");
        assert_eq!(view(&a, bad).state, EvState::Good);
        assert!(!view(&a, bad).active, "its place is taken: backup");
        let counts = crate::PathCounts {
            port: port(1),
            withdrawn: 1,
            returned: 1,
        };
        assert_eq!(a.qp.path_counts().collect::<Vec<_>>(), [counts]);
        assert_eq!(a.events().len(), 1);
    }
}

#[test]
fn unanswered_probes_back_off_to_a_second() {
    let (mut a, mut b) = setup(1, 4, 2, 1).pair();
    ping(&mut a, &mut b, PathVerdict::AlwaysSkip);
    let mut last = a.now;
    let mut gaps = Vec::new();
    while gaps.len() < 14 {
        a.wait_for_timeout();
        for wire in a.poll_all() {
            assert_eq!(wire.sent.bth.opcode, Opcode::Probe);
            gaps.push(a.now.since(last));
            last = a.now;
        }
    }
    assert_eq!(gaps[0], 1_000_000);
    for (n, &gap) in gaps.iter().enumerate().skip(1) {
        // The wait begins when the probe is given up, 200 us after it was sent.
        assert_eq!(gap, (1_000_000 << n).min(1_000_000_000) + 200_000);
    }
}

#[test]
fn port_that_returns_has_its_bad_paths_probed_at_once() {
    let (mut a, mut b) = setup(2, 4, 4, 1).pair();
    let bad = loop {
        let sent = ping(&mut a, &mut b, PathVerdict::None).sent;
        if sent.port == port(1) {
            break ping_until(&mut a, &mut b, port(1));
        }
    };
    a.advance(600_000);
    let without = ALL.difference(PortSet::EMPTY.with(port(1)));
    a.handle_ports(without, ALL);
    a.advance(10_000_000);
    assert_eq!(a.poll_all(), [], "no probes while it is down");
    assert_eq!(a.qp.next_timeout(), None);
    a.handle_ports(ALL, ALL);
    a.advance(0);
    let sent = a.poll_all();
    assert_eq!((sent.len(), sent[0].sent.ev), (1, bad));
}

/// Condemns the next path on this port.
fn ping_until(a: &mut End, b: &mut End, on: mrc_wire::PortNum) -> Ev {
    loop {
        a.post(write(0, 1, 0));
        let sent = a.poll_all();
        let bad = sent[0].sent.port == on;
        let mut back = b.receive_all(&sent);
        for wire in &mut back {
            if let Headers::Sack(seth, _) = &mut wire.sent.headers
                && bad
            {
                seth.m = PathVerdict::AlwaysSkip;
            }
        }
        a.hear(&back);
        a.completions();
        if bad {
            return sent[0].sent.ev;
        }
    }
}

#[test]
fn peer_that_names_no_usable_port_does_not_silence_us() {
    let (mut a, _) = setup(2, 4, 4, 1).pair();
    a.handle_ports(ALL, PortSet::EMPTY);
    a.post(write(0, 4 * 4096, 0));
    let sent = a.poll_all();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|w| w.sent.port == sent[0].sent.port), "the last one");
    a.handle_ports(ALL, PortSet::EMPTY.with(port(2)));
    a.post(write(0, 4 * 4096, 0));
    assert!(a.poll_all().iter().all(|w| w.sent.port == port(2)));
}

#[test]
fn deadlock_guard_lets_retransmissions_out_on_the_path_blamed_longest_ago() {
    // Port 1 alone keeps the floor; port 2's paths are all bad; then port 1 goes.
    let mut entries = evs(2, 2);
    entries.retain(|entry| entry.port == port(2) || entry.ev == Ev(0x1000));
    let path = PathConfig {
        active: Some(4),
        min_active: Some(1),
        ..PathConfig::explicit(entries)
    };
    let (mut a, mut b) = Setup {
        path,
        trimming: true,
        ..Setup::default()
    }
    .pair();
    let first = ping_until(&mut a, &mut b, port(2));
    a.advance(1000);
    let second = ping_until(&mut a, &mut b, port(2));
    a.post(write(0, 4096, 0));
    assert_eq!(a.poll_all()[0].sent.port, port(1));
    a.handle_ports(PortSet::EMPTY.with(port(2)), ALL);
    a.post(write(0, 4096, 0));
    let start = a.now;
    let mut sent = Vec::new();
    while sent.len() < 2 {
        a.wait_for_timeout();
        sent.extend(
            a.poll_all()
                .into_iter()
                .filter(|w| w.sent.bth.opcode.is_write())
                .map(|w| (a.now.since(start), w)),
        );
    }
    assert_eq!(sent[0].0, 16_777_216 / 2, "after T0 / 2");
    assert_eq!((sent[0].1.sent.ev, sent[1].1.sent.ev), (first, second));
    assert!(
        sent.iter().all(|(_, w)| w.sent.is_retransmission),
        "the new one has to wait"
    );
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
        .filter(|_| paths.control(PortSet::EMPTY.with(port(2))).is_some())
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
    let tries = (0..160).filter(|_| paths.control(ALL) == Some(0)).count();
    assert!((3..40).contains(&tries), "{tries} of 160");
}
