//! The README speaks of the scenario language as it is.

use mrc_sim::run::{METRICS, check_file, names};

const README: &str = include_str!("../README.md");
const WORKLOADS: [&str; 7] = [
    "bulk",
    "ping_pong",
    "ring_all_reduce",
    "all_to_all",
    "incast",
    "mixed",
    "exchange",
];
const FAULTS: [&str; 12] = [
    "loss",
    "burst",
    "duplicate",
    "reorder",
    "ce",
    "trim",
    "blackhole",
    "port_down",
    "link_down",
    "spine_down",
    "leaf_down",
    "stall",
];

/// Keys that a section of a file can have, as the refusal of another one names them.
fn keys(text: &str) -> Vec<String> {
    let error = check_file("f", text).expect_err(text).to_string();
    let (_, keys) = error
        .split_once("is not a key: use one of ")
        .unwrap_or_else(|| panic!("{text}: {error}"));
    keys.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_example_is_a_scenario() {
    let from = README.find("```toml\n").expect("an example") + "```toml\n".len();
    let text = &README[from..];
    let text = &text[..text.find("```").expect("its end")];
    assert_eq!(check_file("README.md", text), Ok(2));
}

#[test]
fn every_key_is_in_a_table() {
    let plain = "title = \"t\"\n[workload]\nkind = \"bulk\"\n";
    let mut texts = vec![
        format!("nonsense = 1\n{plain}"),
        format!("{plain}[fabric]\nkind = \"delay\"\nnonsense = 1\n"),
        format!("{plain}[[case]]\nname = \"a\"\nnonsense = 1\n"),
        format!("{plain}[[criterion]]\nmetric = \"jain\"\nmin = 0\nnonsense = 1\n"),
    ];
    texts.extend(
        ["fabric", "hosts", "qp", "measure", "limits"].map(|section| format!("{plain}[{section}]\nnonsense = 1\n")),
    );
    let workload = |kind| {
        format!(
            "title = \"t\"\n[fabric]\nhosts_per_leaf = 4\n[workload]\nkind = \"{kind}\"\nbytes = 1000\nnonsense = 1\n"
        )
    };
    texts.extend(WORKLOADS.map(workload));
    let fault =
        |kind| format!("{plain}[[fault]]\nkind = \"{kind}\"\nleaf = 0\nspine = 0\nuntil_us = 1\nnonsense = 1\n");
    let switch = |kind: &&str| kind.ends_with("_down") && **kind != *"link_down" || **kind == *"stall";
    texts.extend(FAULTS.iter().filter(|kind| !switch(kind)).map(fault));
    let alone = |kind: &&str| format!("{plain}[[fault]]\nkind = \"{kind}\"\nuntil_us = 1\nnonsense = 1\n");
    texts.extend(FAULTS.iter().filter(|kind| switch(kind)).map(alone));
    for text in texts {
        for key in keys(&text) {
            assert!(
                README.contains(&format!("`{key}`")) || README.contains(&format!("[{key}]")),
                "no {key} of {text}"
            );
        }
    }
}

#[test]
fn every_kind_of_workload_and_fault_is_in_a_table() {
    for kind in WORKLOADS.iter().chain(&FAULTS) {
        assert!(README.contains(&format!("`\"{kind}\"`")), "{kind}");
    }
    let unknown = |section: &str| {
        let text = format!("title = \"t\"\n[workload]\nkind = \"bulk\"\n{section}");
        let error = check_file("f", &text).expect_err(section).to_string();
        error
            .rsplit_once("give one of ")
            .map(|(_, kinds)| kinds.split(", ").count())
    };
    assert_eq!(unknown("[[fault]]\nkind = \"x\"\n"), Some(FAULTS.len()));
    assert_eq!(unknown("[fabric]\nkind = \"x\"\n"), Some(2));
    let text = "title = \"t\"\n[workload]\nkind = \"x\"\n";
    let error = check_file("f", text).expect_err("no such workload").to_string();
    assert_eq!(
        error,
        format!("f: workload.kind = \"x\": give one of {}", WORKLOADS.join(", "))
    );
}

#[test]
fn what_it_runs_is_there() {
    for line in README.lines().filter(|line| line.starts_with("    ")) {
        let Some((_, rest)) = line.split_once("run ") else {
            continue;
        };
        let scenario = rest
            .trim_start_matches("--release -p mrc-sim -- run ")
            .split_whitespace()
            .next();
        let Some(scenario) = scenario.filter(|name| !name.starts_with('-') && !name.contains('.')) else {
            continue;
        };
        assert!(names().any(|name| name == scenario), "{line}");
    }
    assert!(METRICS.iter().all(|metric| !metric.what.is_empty()));
}
