//! The way back: probes of ASSUMED_BAD paths, and ports that return (protocol.md §8.2, §9.1, §9.3).

use std::vec::Vec;

use mrc_wire::{Opcode, PathVerdict, PortSet};

use super::*;

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

// protocol.md §8.2: a probe without answer resets the count of successes (P21: five in a row).
#[test]
fn successes_before_a_failure_do_not_count() {
    let (mut a, mut b) = Setup {
        trimming: false,
        ..setup(1, 4, 2, 1)
    }
    .pair();
    let bad = ping(&mut a, &mut b, PathVerdict::AlwaysSkip).sent.ev;
    let mut probes = 0;
    while view(&a, bad).state == EvState::AssumedBad {
        a.wait_for_timeout();
        for wire in a.poll_all() {
            probes += 1;
            if probes != 5 {
                let back = b.receive_all(&[wire]);
                a.hear(&back);
            }
        }
    }
    assert_eq!(probes, 4 + 1 + 5);
}

// protocol.md §9.1, §14 (P29): a peer that answers only so many probes a second must not keep a path bad for ever.
#[test]
fn a_path_comes_back_although_the_peer_limits_its_answers() {
    let (mut a, mut b) = Setup {
        trimming: false,
        ..setup(1, 4, 2, 1)
    }
    .pair();
    let bad = ping(&mut a, &mut b, PathVerdict::AlwaysSkip).sent.ev;
    // At most one answer in 10 ms: of probes that follow one another at once, it leaves out nine of ten.
    let (mut quiet_until, mut probes) = (a.now, 0);
    while view(&a, bad).state == EvState::AssumedBad {
        a.wait_for_timeout();
        for wire in a.poll_all() {
            probes += 1;
            assert!(probes < 100, "it never comes back");
            if a.now >= quiet_until {
                quiet_until = a.now + 10_000_000;
                let back = b.receive_all(&[wire]);
                a.hear(&back);
            }
        }
    }
}

// protocol.md §9.1: at most max(1, 10 %) of the data packets; without data one a millisecond.
#[test]
fn probes_of_many_bad_paths_keep_to_a_tenth_of_the_data() {
    let (mut a, mut b) = setup(1, 40, 20, 1).pair();
    for _ in 0..12 {
        ping(&mut a, &mut b, PathVerdict::AlwaysSkip);
    }
    let probes = |wires: &[Wire]| wires.iter().filter(|w| w.sent.bth.opcode == Opcode::Probe).count();
    a.advance(1_000_000);
    assert_eq!(probes(&a.poll_all()), 1, "12 packets have paid for one");
    for _ in 0..3 {
        a.post(write(0, 4096 * 20, 0));
        let sent = a.poll_all();
        assert_eq!(probes(&sent), 2);
        let back = b.receive_all(sent.iter().filter(|wire| wire.sent.bth.opcode != Opcode::Probe));
        a.hear(&back);
        a.completions();
    }
    a.advance(999_999);
    assert_eq!(probes(&a.poll_all()), 0);
    a.advance(1);
    assert_eq!(probes(&a.poll_all()), 1);
}

// protocol.md §9.1, §10.5: a probe is lost after max(4 srtt, 200 us). Where nothing but probes measures how long round trips have
// become, late answers are all that makes the next probe wait for its own.
#[test]
fn a_path_comes_back_although_round_trips_are_longer_than_the_first_probe_waits() {
    let (mut a, mut b) = setup(1, 4, 2, 1).pair();
    let bad = ping(&mut a, &mut b, PathVerdict::AlwaysSkip).sent.ev;
    let mut probes = 0;
    while view(&a, bad).state == EvState::AssumedBad {
        a.wait_for_timeout();
        let sent = a.poll_all();
        probes += sent.len();
        assert!(probes < 10, "it never comes back");
        let back = b.receive_all(&sent);
        if !back.is_empty() {
            a.advance(390_000);
            a.hear(&back);
        }
    }
    assert!(probes > 1, "a late answer is no success");
}
