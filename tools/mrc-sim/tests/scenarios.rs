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
    assert!(names().count() >= 15);
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
    passes("dead_plane", None, &[]);
    passes("dead_at_start", None, &[]);
    passes("flapping", None, &[]);
}

#[test]
fn reordering_alone_repeats_next_to_nothing() {
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
fn few_hosts_with_many_lanes_exchange_too() {
    for hosts in ["1", "2", "3", "4", "5"] {
        let set = [
            ("fabric.leaves", "2"),
            ("fabric.hosts_per_leaf", hosts),
            ("fabric.planes", "2"),
            ("workload.lanes", "64"),
            ("workload.bytes", "5000"),
            ("criterion", "[]"),
        ];
        passes("exchange", None, &set);
    }
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
    // The spine dies when all is done: no path was bypassed.
    let set = [("fault.0.from_us", "900_000_000"), ("workload.bytes", "1048576")];
    let report = run("dead_path", Some("10G"), &set);
    assert!(!report.passed());
    assert!(
        report.table().contains("MISSED  bypass_rtts <= 1     not measured"),
        "{}",
        report.table()
    );
}

#[test]
fn tables_have_units_and_json_has_whole_numbers() {
    let report = run("ping_pong", None, &[("workload.rounds", "3")]);
    let table = report.table();
    for expected in [
        "goodput_gbps",
        " Gb/s\n",
        " us\n",
        "timeouts             0 packets\n",
        "1 queue pairs\n",
    ] {
        assert!(table.contains(expected), "no {expected:?} in {table}");
    }
    let json = report.json();
    assert!(json["cases"][0]["case"].is_null());
    assert_eq!(json["cases"][0]["run"]["metrics"]["qps_made"].as_u64(), Some(2));
    assert_eq!(json["cases"][0]["criteria"][0]["met"], true);
}

#[test]
fn files_that_make_no_sense_are_refused_before_they_run() {
    let minimal = "title = \"t\"\n[workload]\nkind = \"bulk\"\n";
    let case = |name: &str| format!("{minimal}[[case]]\nname = \"{name}\"\n");
    for (text, expected) in [
        (String::new(), "f: workload.kind is missing: a scenario begins with "),
        (
            "[workload]\nkind = \"bulk\"\n".to_owned(),
            "f: title is missing: a scenario begins with ",
        ),
        (case("../x"), "f: case.0.name = \"../x\" names files too: "),
        (case("..."), "f: case.0.name = \"...\" names files too: "),
        (case(""), "f: case.0.name is missing: "),
        (
            format!("{}[[case]]\nname = \"a\"\n", case("a")),
            "f: case.1.name = \"a\" is there twice: ",
        ),
        (
            format!(
                "{minimal}[[case]]\nname = \"a\"\n[case.set]\n\"fault.0.percent\" = 1\n[[fault]]\nkind = \"loss\"\n[[case]]\nname = \"b\"\n[case.set]\n\"fault.7.percent\" = 1\n"
            ),
            "f: set fault.7.percent: give a number from 0 to 0, not \"7\"",
        ),
        (
            format!("{minimal}[[criterion]]\nmetric = \"jain\"\nmin = 2\nmax = 1\n"),
            "f: criterion.0.min = 2 is above max = 1: ",
        ),
        (
            format!("{minimal}[[criterion]]\nmetric = \"victim_gbps\"\nmin = 2\n"),
            "f: criterion.0.metric = \"victim_gbps\" needs a victim: ",
        ),
        (
            format!("{minimal}[[criterion]]\nmetric = \"bypass_rtts\"\nmax = 2\n"),
            "f: criterion.0.metric = \"bypass_rtts\" needs bad paths: ",
        ),
        (
            format!("{minimal}[[criterion]]\nmetric = \"jain\"\nof = \"reference\"\nmin = 1\n"),
            "f: criterion.0.of = \"reference\" compares with a run that is not there: ",
        ),
        (
            format!("{minimal}[[criterion]]\nmetric = \"jain\"\nmin = \"x\"\n"),
            "f: criterion.0.min = \"x\": give a number",
        ),
        (
            format!(
                "{minimal}[reference]\n\"fabric.planes\" = 9\n[[criterion]]\nmetric = \"jain\"\nof = \"reference\"\nmin = 1\n"
            ),
            "f, reference: fabric.planes = 9: give a whole number from 1 to 8",
        ),
        (
            format!("{minimal}bytes = 1\nqps = 2\n"),
            "f: workload.bytes = 1 is less than a byte for each of 2 queue pairs",
        ),
        (
            minimal.replace("bulk", "ping_pong") + "bytes = 4_294_967_296\n",
            "f: workload.bytes = 4294967296 is more than a message of this load has: ",
        ),
    ] {
        let error = check_file("f", &text).expect_err(&text).to_string();
        assert!(
            error.starts_with(expected) && !error.contains('\n'),
            "{error}, not {expected}"
        );
    }
}

#[test]
fn delays_that_make_queues_larger_than_a_number_leave_them_large() {
    // A hundredth of a second at 400 Gb/s is more than 4 GiB: thresholds stay at the largest.
    let slow = [
        ("fabric.delay_ns", "100_000_000"),
        ("workload.bytes", "1048576"),
        ("criterion", "[]"),
    ];
    assert!(run("bulk", Some("400G"), &slow).passed());
}
