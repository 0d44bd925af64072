//! Scenario files, run to the end and judged. Those that take long are made smaller here; their criteria stay.

use mrc_sim::run::{FileReport, Options, check_file, names, run_file, text_of};

/// Runs a scenario that comes along, with some values changed.
fn run(name: &str, case: Option<&str>, set: &[(&str, &str)]) -> FileReport {
    let text = text_of(name).expect("a scenario that comes along");
    let options = Options {
        case: case.map(str::to_owned),
        set: set
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..Options::default()
    };
    run_file(name, text, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn passes(name: &str, case: Option<&str>, set: &[(&str, &str)]) {
    let report = run(name, case, set);
    assert!(!report.cases.is_empty());
    assert!(report.passed(), "{}", report.table());
}

#[test]
fn every_scenario_that_comes_along_makes_sense() {
    assert!(names().count() >= 14);
    for name in names() {
        check_file(name, text_of(name).expect("it comes along")).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn one_queue_pair_fills_all_planes_at_every_speed() {
    passes("bulk", None, &[]);
}

#[test]
fn small_loss_costs_little_and_heavy_loss_keeps_most() {
    for case in ["100M", "10G", "400G"] {
        passes("loss", Some(case), &[]);
        passes("heavy_loss", Some(case), &[]);
    }
}

#[test]
fn bad_paths_are_found_with_few_losses_and_bypassed() {
    passes("lossy_paths", None, &[]);
    passes("dead_path", None, &[]);
    passes("dead_at_start", None, &[]);
}

#[test]
fn reordering_alone_repeats_nothing() {
    passes("reordering", None, &[]);
}

#[test]
fn incast_is_fair_and_spares_the_neighbour() {
    passes("incast", Some("10G"), &[]);
}

#[test]
fn applications_that_depend_on_arrivals_come_to_an_end() {
    passes("ring", None, &[("workload.bytes", "2097152")]);
    passes("ping_pong", None, &[]);
    passes("all_to_all", None, &[("workload.bytes", "131072")]);
    passes("mixed", None, &[]);
    passes("many_qps", None, &[]);
}

/// What a report says, but for what depends on the machine.
fn of_the_seed(mut json: serde_json::Value) -> serde_json::Value {
    for of_the_machine in ["wall_s", "packets_per_s", "virtual_s_per_s", "peak_bytes"] {
        let value = json["cases"][0]["run"][of_the_machine].take();
        assert!(!value.is_null(), "{of_the_machine} is told");
    }
    json
}

/// Everybody exchanges with everybody: `leaves` switches with 16 hosts each.
fn exchange(leaves: u64) -> serde_json::Value {
    let hosts = 16 * leaves;
    let pairs = (hosts * (hosts - 1) / 2).to_string();
    let leaves = leaves.to_string();
    let small = [
        ("fabric.leaves", leaves.as_str()),
        ("fabric.spines", "4"),
        ("fabric.hosts_per_leaf", "16"),
        ("criterion.0.min", &pairs),
    ];
    let report = run("exchange", None, &small);
    assert!(report.passed(), "{}", report.table());
    let metrics = &report.json()["cases"][0]["run"]["metrics"];
    let two_each_way = (hosts * (hosts - 1)) as f64;
    assert_eq!(metrics["qps_made"], two_each_way, "{}", report.table());
    // Four lanes for calls and four for being called, all of them in use.
    assert_eq!(metrics["qps_live"], 8.0, "{}", report.table());
    of_the_seed(report.json())
}

#[test]
fn thirty_two_hosts_exchange_with_each_other_over_queue_pairs_that_come_and_go() {
    assert_eq!(exchange(2), exchange(2), "one seed gives one report");
}

#[test]
fn sixty_four_hosts_exchange_with_each_other() {
    exchange(4);
}

#[test]
fn a_seed_gives_one_report_and_another_seed_another() {
    let report = |seed: &str| {
        let mut json = run("mixed", None, &[("seed", seed), ("workload.messages", "20")]).json();
        json["cases"][0]["replay"] = serde_json::Value::Null;
        of_the_seed(json)
    };
    assert_eq!(report("3"), report("3"));
    assert_ne!(report("3"), report("4"));
}

#[test]
fn a_demand_that_is_not_met_is_told() {
    let report = run(
        "bulk",
        Some("100M"),
        &[("criterion.0.min", "1.01"), ("workload.bytes", "1048576")],
    );
    assert!(!report.passed());
    assert!(
        report.table().contains("MISSED  goodput_share >= 1.01"),
        "{}",
        report.table()
    );
}

#[test]
fn a_metric_that_was_not_measured_meets_no_demand() {
    let set = [
        ("criterion.0.metric", "victim_gbps"),
        ("criterion.0.min", "0"),
        ("workload.bytes", "1048576"),
    ];
    assert!(!run("bulk", Some("100M"), &set).passed());
}
