//! Every kind of fault that a scenario file can have does what the file says.

use mrc_sim::run::{FileReport, Options, check_file, run_file};

const PAIR: &str = "
title = \"faults\"
[fabric]
planes = 2
leaves = 2
spines = 4
hosts_per_leaf = 1
[workload]
kind = \"bulk\"
bytes = 8_388_608
";

fn run(fault: &str) -> FileReport {
    let text = format!("{PAIR}[[fault]]\n{fault}\n");
    let report = run_file("faults", &text, &Options::default()).unwrap_or_else(|error| panic!("{fault}: {error}"));
    assert!(report.passed(), "{fault}: {}", report.table());
    report
}

fn metric(report: &FileReport, name: &str) -> f64 {
    let run = report.cases[0].run.as_ref().expect("no promise is broken");
    run.metrics
        .get(name)
        .copied()
        .unwrap_or_else(|| panic!("no {name}: {}", report.table()))
}

/// Writes that were sent more than once.
fn repeated(fault: &str) -> u64 {
    let report = run(fault);
    // 2,048 writes, and those that were repeated.
    let share = metric(&report, "retransmitted_share");
    (2048.0 * share / (1.0 - share)).round() as u64
}

fn refused(fault: &str) -> String {
    let text = format!("{PAIR}[[fault]]\n{fault}\n");
    let error = check_file("faults", &text).expect_err(fault).to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn packets_by_number_are_lost_and_no_others() {
    let packets = "packets = \"data\"\nfrom_host = 0";
    assert_eq!(
        repeated(&format!("kind = \"loss\"\nnth = 300\ncount = 5\n{packets}")),
        5
    );
    assert_eq!(repeated(&format!("kind = \"loss\"\nnth = 300\n{packets}")), 1);
    assert_eq!(repeated(&format!("kind = \"loss\"\nnth = 1_000_000\n{packets}")), 0);
}

#[test]
fn one_direction_of_a_link_is_dead_and_the_other_lives() {
    // Writes climb to the spines of plane 1; answers come down from them.
    for (way, used) in [("up", true), ("down", false)] {
        let report = run(&format!(
            "kind = \"link_down\"\nplane = 1\nleaf = 0\nspine = 2\nway = \"{way}\"\nfrom_us = 300"
        ));
        assert_eq!(
            metric(&report, "bad_paths_used") > 0.0,
            used,
            "{way}: {}",
            report.table()
        );
        assert!(metric(&report, "bad_paths_kept") < 1.0, "{way}: {}", report.table());
    }
}

#[test]
fn a_dead_cable_is_dead_both_ways_and_routing_can_go_around_it() {
    let cable = "kind = \"link_down\"\nplane = 1\nleaf = 1\nspine = 0\nfrom_us = 300";
    assert!(metric(&run(cable), "retransmitted_share") > 0.0);
    let around = run(&format!("{cable}\nreroute_us = 0"));
    // What was on the cable is lost, and nothing after.
    assert!(metric(&around, "retransmitted_share") < metric(&run(cable), "retransmitted_share"));
}

#[test]
fn the_cable_of_a_host_is_its_plane() {
    let report = run("kind = \"link_down\"\nplane = 2\nhost = 1\nfrom_us = 300");
    assert!(metric(&report, "bad_paths_kept") < 1.0, "{}", report.table());
    assert!(metric(&report, "plane_spread") > 0.5, "{}", report.table());
}

#[test]
fn a_flapping_port_costs_more_than_one_that_goes_down_once() {
    let down = "kind = \"port_down\"\nhost = 1\nplane = 1\nfrom_us = 200\nuntil_us = 300\nown_us = 0\npeer_us = 50";
    let once = metric(&run(down), "completion_us");
    let often = metric(&run(&format!("{down}\nevery_us = 200\ntimes = 8")), "completion_us");
    assert!(often > once, "{often} and {once} us");
}

#[test]
fn a_cable_that_flaps_is_dead_again_and_again() {
    let flap = "kind = \"link_down\"\nplane = 1\nleaf = 0\nspine = 1\nfrom_us = 200\nuntil_us = 260";
    let once = metric(&run(flap), "retransmitted_share");
    let often = metric(
        &run(&format!("{flap}\nevery_us = 150\ntimes = 20")),
        "retransmitted_share",
    );
    assert!(often > once, "{often} and {once}");
}

#[test]
fn a_lossy_cable_loses_what_passes_it_and_spares_other_spines() {
    let at_all = repeated("kind = \"loss\"\npercent = 5\nfrom_host = 0\npackets = \"data\"");
    let at_one = repeated("kind = \"loss\"\npercent = 5\nleaf = 0\nspine = 1\nway = \"up\"\npackets = \"data\"");
    let at_switch = repeated("kind = \"loss\"\npercent = 5\nspine = 1\npackets = \"data\"");
    assert!(at_one > 0 && 2 * at_one < at_all, "{at_one} and {at_all}");
    assert!(at_switch > 0 && 2 * at_switch < at_all, "{at_switch} and {at_all}");
}

#[test]
fn keys_that_make_no_sense_together_are_refused() {
    for (fault, expected) in [
        (
            "kind = \"link_down\"",
            "faults: fault.0.kind = \"link_down\" needs a link: give host, or leaf and spine",
        ),
        (
            "kind = \"link_down\"\nleaf = 0",
            "faults: fault.0.kind = \"link_down\" needs a link: give host, or leaf and spine",
        ),
        (
            "kind = \"link_down\"\nhost = 0\nspine = 1",
            "faults: fault.0.host names a link by itself: leave leaf and spine out",
        ),
        (
            "kind = \"loss\"\nspine = 1\nway = \"up\"",
            "faults: fault.0.way is a way of a link: give host, or leaf and spine",
        ),
        (
            "kind = \"loss\"\ncount = 3",
            "faults: fault.0.count counts from the packet nth on: give nth too",
        ),
        (
            "kind = \"loss\"\ntimes = 3",
            "faults: fault.0.times is of what comes again: give every_us too",
        ),
        (
            "kind = \"loss\"\nevery_us = 3",
            "faults: fault.0.until_us is missing: what comes again (every_us) has to end first",
        ),
        (
            "kind = \"loss\"\nuntil_us = 5\nevery_us = 3",
            "faults: fault.0.every_us is not more than the 5 us that it lasts: give more",
        ),
        (
            "kind = \"stall\"\nhost = 0",
            "faults: fault.0.until_us must be there, and at most 1000000 after from_us: a stall ends",
        ),
        (
            "kind = \"loss\"\npaths_per_plane = 0",
            "faults: fault.0.paths_per_plane leaves no path: give more, or leave it out for all paths",
        ),
        (
            "kind = \"loss\"\npaths = 1\nuntil_us = 1\nevery_us = 2\ntimes = 10_000",
            "faults: fault.0.kind makes it 640000 faults of single paths and times, of 8192 at most: take fewer paths or times",
        ),
    ] {
        assert_eq!(refused(fault), expected, "{fault}");
    }
    let delay = PAIR.replace("planes = 2", "kind = \"delay\"\nplanes = 2");
    let delay = delay
        .lines()
        .filter(|line| !line.starts_with("leaves") && !line.starts_with("spines"));
    let delay = delay
        .filter(|line| !line.starts_with("hosts_per_leaf"))
        .collect::<Vec<_>>()
        .join("\n");
    let text = format!("{delay}\n[[fault]]\nkind = \"loss\"\nhost = 0\n");
    let error = check_file("faults", &text).expect_err("no switches").to_string();
    assert_eq!(error, "faults: fault.0.host needs switches: set fabric.kind = \"clos\"");
}
