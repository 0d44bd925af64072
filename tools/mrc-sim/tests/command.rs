//! The command as a person uses it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut replay = Command::new(env!("CARGO_BIN_EXE_mrc-sim"))
        .args(["replay", "7", "--trace"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the simulator starts");
    let mut first = String::new();
    let mut stdout = BufReader::new(replay.stdout.take().expect("it is a pipe"));
    stdout.read_line(&mut first).expect("a line of the trace");
    drop(stdout);
    let output = replay.wait_with_output().expect("it ends");
    assert!(!first.is_empty());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{:?}", output.status);
}

#[test]
fn as_many_seeds_run_as_were_asked_for_wherever_they_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_mrc-sim"))
        .args(["harness", "--seeds", "3", "--start", "18446744073709551614"])
        .output()
        .expect("the simulator runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.lines().last(), Some("3 passed, 0 failed"));
}

#[test]
fn a_run_that_was_stopped_goes_on_and_gives_the_same_summary() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run.json");
    let harness = |seeds: &str, file: Option<&std::path::Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mrc-sim"));
        command.args(["harness", "--seeds", seeds, "--json"]);
        if let Some(file) = file {
            command.arg("--resume").arg(file);
        }
        command
    };
    let summary = |command: &mut Command| {
        let output = command.output().expect("the simulator runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // Times differ, and the order in which they are added up.
        for key in ["wall_s", "virtual_s"] {
            summary[key] = serde_json::Value::Null;
        }
        summary
    };
    let mut stopped = harness("150", Some(&file))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the simulator starts");
    // It is stopped the hard way as soon as it has written something, wherever it is by then.
    while !file.exists() && stopped.try_wait().expect("it can be asked").is_none() {
        std::thread::yield_now();
    }
    let _ = stopped.kill();
    stopped.wait().expect("it ends");
    assert!(file.exists());
    assert_eq!(
        summary(&mut harness("150", Some(&file))),
        summary(&mut harness("150", None))
    );

    let other = harness("151", Some(&file)).output().expect("the simulator runs");
    let complaint = String::from_utf8_lossy(&other.stderr);
    assert!(
        complaint.contains("--seeds 150") && complaint.lines().count() == 1,
        "{complaint}"
    );
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn a_file_of_something_else_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("notes.txt");
    std::fs::write(&file, "milk, bread\n").expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_mrc-sim"))
        .args(["harness", "--seeds", "2", "--resume"])
        .arg(&file)
        .output()
        .expect("the simulator runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        complaint.contains("notes.txt is not the progress of a harness run"),
        "{complaint}"
    );
    assert_eq!(complaint.lines().count(), 1);
    assert_eq!(
        std::fs::read_to_string(&file).expect("it is still there"),
        "milk, bread\n"
    );
}

fn mrc_sim(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mrc-sim"))
        .args(arguments)
        .output()
        .expect("the simulator runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn mistakes_are_told_in_one_line_that_says_what_would_be_right() {
    for (arguments, expected) in [
        (
            &["run", "bulk", "--set", "fabric.planes=9"][..],
            "mrc-sim: bulk: fabric.planes = 9: give a whole number from 1 to 8\n",
        ),
        (
            &["run", "bulk", "--set", "fabric.plane=2"],
            "mrc-sim: bulk: fabric.plane is not a key: use one of ",
        ),
        (
            &["run", "bluk"],
            "mrc-sim: there is no scenario \"bluk\": choose one of ",
        ),
        (&["run", "none.toml"], "mrc-sim: none.toml cannot be read: "),
        (
            &["run", "bulk", "--case", "1T"],
            "mrc-sim: bulk: there is no case \"1T\": choose one of 100M, 10G, 400G\n",
        ),
        (
            &["run", "bulk", "--set", "seed"],
            "mrc-sim: --set seed: there is no \"=\": write KEY=VALUE\n",
        ),
    ] {
        let (code, stdout, stderr) = mrc_sim(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr.starts_with(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn what_is_listed_can_be_shown_and_is_what_runs() {
    let (code, list, _) = mrc_sim(&["list"]);
    assert_eq!(code, Some(0));
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"bulk") && names.contains(&"exchange"), "{list}");
    let (code, shown, _) = mrc_sim(&["list", "--show", "bulk"]);
    assert_eq!(code, Some(0));
    assert!(shown.contains("[workload]\nkind = \"bulk\""), "{shown}");
}

#[test]
fn a_run_reports_as_json_and_writes_its_series() {
    let directory = std::env::temp_dir().join(format!("mrc-sim-series-{}", std::process::id()));
    let place = directory.to_str().expect("a path in UTF-8");
    let arguments = [
        "run",
        "dead_path",
        "--case",
        "10G",
        "--set",
        "workload.bytes=16777216",
        "--json",
    ];
    let (code, stdout, stderr) = mrc_sim(&[&arguments[..], &["--series", place, "--plot", place]].concat());
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(report["passed"], true);
    assert!(report["cases"][0]["run"]["metrics"]["bad_paths_used"].as_f64() > Some(0.0));
    for table in ["planes", "window", "rtt", "paths", "queues"] {
        let stem = directory.join(format!("dead_path-10G-{table}"));
        let csv = std::fs::read_to_string(stem.with_extension("csv")).expect("a table");
        let columns = csv.lines().next().expect("a header").split(',').count();
        assert!(csv.lines().count() > 5 && columns > 1, "{csv}");
        assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
        let svg = std::fs::read_to_string(stem.with_extension("svg")).expect("a picture");
        assert!(svg.contains("time (us)"), "{table} has no axis of time");
    }
    std::fs::remove_dir_all(&directory).expect("it was made here");
}
