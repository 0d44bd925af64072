//! Rows of the table that no queue pair shows by itself: the controller's, probes', the engine's own absence
//! (protocol.md §5.6, §8.2).

use std::vec::Vec;

use mrc_wire::PortSet;

use super::*;
use crate::path::{Choice, EvIndex, Happening, PathSet};
use crate::time::{Instant, Stall};
use crate::work::{Cx, QpEvent};

const NOW: Instant = Instant::from_ns(1_000_000_000);

fn paths(ports: u8, each: u32, active: u16, min_active: u16) -> PathSet {
    PathSet::new(&setup(ports, each, active, min_active).path, [7; 32]).unwrap()
}

fn happen(paths: &mut PathSet, index: EvIndex, happening: Happening) {
    paths.handle(index, happening, Reason::Controller, NOW, 1_000);
}

fn states(paths: &PathSet) -> Vec<(EvState, bool)> {
    paths.views().map(|view| (view.state, view.active)).collect()
}

fn active(paths: &PathSet) -> Vec<EvIndex> {
    (0..)
        .zip(states(paths))
        .filter(|(_, (_, active))| *active)
        .map(|(index, _)| index)
        .collect()
}

/// §8.2, the controller's rows: DENIED has no automatic way out and knows no floor.
#[test]
fn what_the_controller_denies_is_replaced_and_returns_only_by_its_word() {
    let mut paths = paths(2, 3, 4, 4);
    let denied: Vec<EvIndex> = active(&paths).into_iter().filter(|&index| index < 3).collect();
    assert_eq!(denied.len(), 2);
    happen(&mut paths, denied[0], Happening::Deny);
    assert_eq!(states(&paths)[usize::from(denied[0])], (EvState::Denied, false));
    assert_eq!(active(&paths).len(), 4, "the backup of its plane was promoted");
    // Now there is no backup, and the floor does not help it.
    happen(&mut paths, denied[1], Happening::Deny);
    assert_eq!(active(&paths).len(), 3);
    let automatic = [
        Happening::Delivered,
        Happening::Marked,
        Happening::Verdict,
        Happening::Loss,
        Happening::ProbeDelivered,
        Happening::EvProbeDelivered,
        Happening::PortDown,
        Happening::PortUp,
        Happening::Banish,
    ];
    for happening in &automatic[..8] {
        happen(&mut paths, denied[1], *happening);
        assert_eq!(
            states(&paths)[usize::from(denied[1])].0,
            EvState::Denied,
            "{happening:?}"
        );
    }
    assert_eq!(paths.next_check(), None, "no probes");
    happen(&mut paths, denied[1], Happening::Allow);
    assert_eq!(
        states(&paths)[usize::from(denied[1])],
        (EvState::Good, true),
        "its plane was short"
    );
    happen(&mut paths, denied[0], Happening::Allow);
    assert_eq!(states(&paths)[usize::from(denied[0])], (EvState::Good, false), "backup");
    assert_eq!(paths.poll_event(), None, "DENIED is no event (api.md §4.9)");
}

/// §8.2, api.md §4.8: ASSUMED_BAD by the controller ignores `ev_min_active`; GOOD ends it without a probe.
#[test]
fn the_controllers_verdict_knows_no_floor_and_needs_no_probe() {
    let mut paths = paths(1, 2, 2, 2);
    happen(&mut paths, 0, Happening::Verdict);
    assert_eq!(states(&paths)[0], (EvState::Skip, true), "a responder's verdict does");
    happen(&mut paths, 0, Happening::Allow);
    assert_eq!(states(&paths)[0], (EvState::Good, true));
    happen(&mut paths, 0, Happening::Banish);
    happen(&mut paths, 1, Happening::Banish);
    assert_eq!(states(&paths), [(EvState::AssumedBad, false); 2]);
    assert_eq!(paths.select(ALL, None, NOW, 1), Choice::Wait(None));
    assert!(!paths.any_eligible());
    happen(&mut paths, 1, Happening::Allow);
    assert_eq!(paths.select(ALL, None, NOW, 1), Choice::Path(1));
    let events: Vec<bool> = core::iter::from_fn(|| paths.poll_event())
        .map(|event| matches!(event, QpEvent::EvBad { .. }))
        .collect();
    assert_eq!(events, [true, true, false]);
}

/// §8.2 (4): a lost tail probe is a loss where congestion loses packets; where it trims, it says nothing.
#[test]
fn lost_tail_probes_count_as_losses_only_without_trimming() {
    for (trimming, expected) in [(false, EvState::AssumedBad), (true, EvState::Good)] {
        let mut paths = paths(1, 3, 2, 1);
        paths.set_loss_condemns(trimming);
        let probed = active(&paths)[0];
        for _ in 0..3 {
            happen(&mut paths, probed, Happening::TailProbeLost);
        }
        assert_eq!(states(&paths)[usize::from(probed)].0, expected);
    }
}

/// §8.2: the answer to an EV probe counts like that to a reliability probe without mark; (3), P22: as often as configured.
#[test]
fn answered_ev_probes_bring_a_path_back_after_one_to_five() {
    for wanted in 1..=5 {
        let config = PathConfig {
            revive_after: Some(wanted),
            ..setup(1, 3, 2, 1).path
        };
        let mut paths = PathSet::new(&config, [7; 32]).unwrap();
        happen(&mut paths, 0, Happening::Verdict);
        for answered in 1..=wanted {
            assert_eq!(states(&paths)[0].0, EvState::AssumedBad, "{answered} of {wanted}");
            happen(&mut paths, 0, Happening::EvProbeDelivered);
        }
        assert_eq!(states(&paths)[0].0, EvState::Good);
    }
}

/// §8.3: in the backup no turn comes that SKIP could lose.
#[test]
fn a_skipped_backup_is_promoted_when_no_good_one_is_left_and_loses_its_turn_then() {
    let mut paths = paths(1, 3, 2, 1);
    let backup = (0..3).find(|index| !active(&paths).contains(index)).unwrap();
    happen(&mut paths, backup, Happening::Trimmed);
    let [bad, other] = active(&paths)[..] else {
        panic!("two are active")
    };
    happen(&mut paths, bad, Happening::Verdict);
    assert_eq!(states(&paths)[usize::from(backup)], (EvState::Skip, true));
    let used: Vec<Choice> = (0..3).map(|_| paths.select(ALL, None, NOW, 1)).collect();
    let first_turn = used.iter().position(|&choice| choice == Choice::Path(backup)).unwrap();
    assert!(first_turn > 0 && used[0] == Choice::Path(other));
}

/// §8.3: one plane's paths never stand in for another's, whatever is asked of them.
#[test]
fn a_plane_that_runs_dry_takes_nothing_from_the_others() {
    let mut paths = paths(2, 2, 2, 1);
    for index in 0..2 {
        happen(&mut paths, index, Happening::Deny);
    }
    assert_eq!(active(&paths).len(), 1);
    assert_eq!(
        paths.select(PortSet::EMPTY.with(port(1)), None, NOW, 1),
        Choice::Wait(None)
    );
}

/// §5.6: on a busy host one long wait is made of several absences; each alone explains less than half of it.
#[test]
fn absences_of_the_own_engine_add_up() {
    for (absences, blamed) in [(3, false), (1, true)] {
        let setup = Setup {
            trimming: true,
            ..Setup::default()
        };
        let (mut a, _) = flying(&setup, 16);
        let start = a.now;
        // T0 / 2 = 8.4 ms is long for one absence, so round trips decide: 4 of them, 400 us.
        for n in 0..absences {
            let from = start + n * 5_000_000 + 100_000;
            a.advance(from.since(a.now));
            a.now = from + 4_000_000;
            let stall = Some(Stall { from, to: a.now });
            let mut cx = Cx {
                stall,
                ..Cx::new(a.now, &mut a.cc, &mut a.region)
            };
            a.qp.handle_timeout(&mut cx);
        }
        a.advance((start + (1024 << 14)).since(a.now));
        a.poll_all();
        assert!(a.qp.stats().timeouts > 0);
        let any_bad = a.qp.ev_states().any(|view| view.state == EvState::AssumedBad);
        assert_eq!(any_bad, blamed, "{absences} absences");
    }
}
