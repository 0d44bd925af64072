//! A seed is a whole run: it gives the same one again, whatever ran before.

use mrc_sim::harness::Harness;
use mrc_sim::run_seed;

#[test]
fn a_seed_replays_to_the_nanosecond() {
    for seed in 0..40 {
        let (first, second) = (run_seed(seed), run_seed(seed));
        let story = |result: mrc_sim::world::RunResult| match result {
            Ok(outcome) => (outcome.ended_ns, outcome.packets, outcome.turns, outcome.coverage),
            Err(violation) => panic!("seed {seed}: {violation}"),
        };
        assert_eq!(story(first), story(second), "seed {seed}");
    }
}

#[test]
fn threads_change_nothing_but_the_order_of_seeds() {
    let run = |jobs| {
        let harness = Harness {
            start: 500,
            seeds: 60,
            jobs,
            max_failures: 1,
        };
        harness.run(&|_| {})
    };
    let (one, three) = (run(1), run(3));
    assert!(one.failures.is_empty(), "{:?}", one.failures);
    assert_eq!(
        (one.passed, one.packets, one.coverage),
        (60, three.packets, three.coverage)
    );
}

#[test]
fn a_host_that_stands_still_is_not_ready_before_its_receives_are_posted() {
    // It is restarted while it stands still, and what waits for it then needs receives.
    let outcome = mrc_sim::run_seed(51_357);
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[test]
fn one_that_was_restarted_before_it_was_ready_rests_all_the_same() {
    // It was to get ready while packets of its peer's former life were on their way: protocol.md §2.2.
    let outcome = mrc_sim::run_seed(53_977);
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[test]
fn window_that_grows_while_a_forgery_is_on_its_way_does_not_reach_it() {
    // A forged write was inside what was announced when it arrived, and answered as one that came too late: protocol.md §6.2.
    let outcome = mrc_sim::run_seed(1_001_317);
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[test]
fn only_paths_come_back_although_round_trips_are_longer_than_their_probes_wait_at_first() {
    // Late answers were not taken for round trips, and so every other probe waited too short a time too: protocol.md §9.1, §10.5.
    for seed in [300_464, 339_814] {
        let outcome = mrc_sim::run_seed(seed);
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[test]
fn cut_packet_that_was_damaged_may_be_refused_as_one_that_was_never_sent() {
    // It has no ICRC that would show it, and the responder does not know what was sent: wire-format.md §10.
    let outcome = mrc_sim::run_seed(398_452);
    assert!(outcome.is_ok(), "{outcome:?}");
}
