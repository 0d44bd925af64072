//! `netns-lab list` and `run`.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::support::privileged;

fn netns_lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netns-lab"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const SHORT: &str = r#"
title = "Everything in little"
seconds = 1
[topology]
shape = "leaf"
hosts = 3
planes = 2
[[workload]]
name = "stream"
kind = "write"
from = "h0"
to = ["h1", "h2"]
both = true
size = "16 KiB"
[[workload]]
name = "ping"
kind = "latency"
from = "h1"
to = "h2"
size = 2
iterations = 20
[[workload]]
name = "sum"
kind = "all-reduce"
after = "stream"
sizes = [12, "12 KiB", "768 KiB"]
iterations = 2
[[workload]]
name = "gather"
kind = "all-gather"
after = "sum"
size = "48 KiB"
[[workload]]
name = "all"
kind = "all-to-all"
after = "gather"
size = "48 KiB"
iterations = 3
[[workload]]
name = "pairs"
kind = "pairs"
after = "all"
hosts = ["h2", "h0"]
size = "48 KiB"
iterations = 3
[[workload]]
name = "tcp"
kind = "all-reduce"
transport = "tcp-cubic"
after = "pairs"
sizes = [12, "768 KiB"]
[[workload]]
name = "tcp-stream"
kind = "write"
transport = "tcp-cubic"
after = "tcp"
from = "h1"
to = "h2"
seconds = 0.3
[[timeline]]
at = 0.3
fault = [{ link-down = "h0-t0.p2" }]
[[timeline]]
at = 0.6
heal_all = true
[[criterion]]
name = "the stream flows"
measure = "goodput"
workload = "stream"
at_least = 0.001
[[criterion]]
name = "a sum takes a time"
measure = "time"
workload = "sum"
size = "768 KiB"
at_least = 0.001
[[criterion]]
name = "nobody is as fast as this"
measure = "goodput"
workload = "stream"
at_least = 1e9
"#;

#[test]
fn a_scenario_of_all_kinds_runs_and_leaves_a_report() {
    if !privileged() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("short.toml");
    fs::write(&file, SHORT).unwrap();
    let reports = directory.path().join("reports");
    let output = netns_lab(&[
        "run",
        file.to_str().unwrap(),
        "--report",
        reports.to_str().unwrap(),
        "--json",
        "--quiet",
    ]);
    // One criterion cannot hold.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = results["verdict"]["findings"].as_array().unwrap();
    for finding in findings {
        let impossible = finding["name"] == "nobody is as fast as this";
        assert_eq!(finding["holds"], !impossible, "{finding}");
    }
    assert_eq!(
        findings.len(),
        8 + 3,
        "an unwritten criterion per workload, and those of the file"
    );
    for (place, messages) in [(1, 20), (2, 18), (3, 3), (4, 9), (5, 6), (6, 6)] {
        assert_eq!(
            results["workloads"][place]["messages"], messages,
            "{}",
            results["workloads"][place]
        );
    }
    assert_eq!(results["happened"].as_array().unwrap().len(), 2);
    for (name, part) in [
        ("results.json", "\"findings\""),
        ("series.csv", ",h2,connection,stream.1,"),
        ("messages.csv", "tcp,TCP (cubic),768 KiB,"),
    ] {
        let text = fs::read_to_string(reports.join("short").join(name)).unwrap();
        assert!(text.contains(part), "{name} has no {part}");
    }
}

#[test]
fn scenarios_are_listed_and_wrong_ones_refused_without_privilege() {
    let output = netns_lab(&["list"]);
    assert!(output.status.success());
    assert!(
        text(&output.stdout).contains("allreduce-loss"),
        "{}",
        text(&output.stdout)
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wrong.toml");
    fs::write(&file, SHORT.replace("planes = 2", "planes = 99")).unwrap();
    for (name, part) in [
        (
            file.to_str().unwrap(),
            "wrong.toml: topology: the number of planes is 99",
        ),
        ("torus", "torus: no scenario of this name"),
        ("./none.toml", "./none.toml: cannot be read"),
    ] {
        // The good one before it is not run either.
        let output = netns_lab(&["run", "allreduce-loss", name]);
        assert_eq!(output.status.code(), Some(125));
        let message = text(&output.stderr);
        assert!(message.lines().count() == 1 && message.contains(part), "{message}");
    }
}
