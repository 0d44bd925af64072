//! Out of the active set: ASSUMED_BAD, backup, floor and deadlock guard (protocol.md §8.2, §8.3).

use std::vec::Vec;

use mrc_wire::{Ev, Headers, PathVerdict, PortSet};

use super::*;
use crate::work::QpEvent;

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
