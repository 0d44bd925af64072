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
fn seeds_end_where_numbers_end() {
    let (code, stdout, stderr) = mrc_sim(&["harness", "--seeds", "3", "--start", "18446744073709551614"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_eq!(
        stderr,
        "mrc-sim: --start 18446744073709551614 --seeds 3: the last seed is 18446744073709551615: start earlier, or run fewer\n"
    );
    let (_, stdout, _) = mrc_sim(&["harness", "--seeds", "2", "--start", "18446744073709551614"]);
    assert_eq!(stdout.lines().last(), Some("2 passed, 0 failed"));
}

#[test]
fn a_harness_that_would_do_nothing_or_too_much_is_refused() {
    for arguments in [
        ["--seeds", "0"],
        ["--max-failures", "0"],
        ["--jobs", "0"],
        ["--jobs", "100000"],
    ] {
        let (code, stdout, _) = mrc_sim(&[&["harness"], &arguments[..]].concat());
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
    }
}

#[test]
fn output_that_cannot_be_written_fails_in_one_line() {
    for arguments in [
        &["list"][..],
        &["--help"],
        &["list", "--show", "bulk"],
        &["replay", "3"],
        &["replay", "3", "--trace"],
        &["harness", "--seeds", "1"],
        &["run", "ping_pong", "--set", "workload.rounds=2", "--json"],
    ] {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("a device that is full");
        let output = Command::new(env!("CARGO_BIN_EXE_mrc-sim"))
            .args(arguments)
            .stdout(full)
            .output()
            .expect("the simulator runs");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(
            complaint.starts_with("mrc-sim: standard output cannot be written: ") && complaint.lines().count() == 1,
            "{arguments:?}: {complaint}"
        );
    }
}

#[test]
fn a_complaint_that_nobody_can_read_is_no_panic() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("a device that is full");
    let status = Command::new(env!("CARGO_BIN_EXE_mrc-sim"))
        .args(["run", "none.toml"])
        .stderr(full)
        .status()
        .expect("the simulator runs");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn an_interrupted_harness_says_how_it_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("long run.json");
    let mut harness = Command::new(env!("CARGO_BIN_EXE_mrc-sim"))
        .args(["harness", "--seeds", "1000000", "--quiet", "--resume"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the simulator starts");
    while !file.exists() && harness.try_wait().expect("it can be asked").is_none() {
        std::thread::yield_now();
    }
    // The handler is there soon after the file.
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", harness.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 2 != 0))
    };
    while !caught() && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-INT", &harness.id().to_string()]).status();
    assert!(killed.expect("a signal is sent").success());
    let output = harness.wait_with_output().expect("it ends");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{complaint}");
    assert!(
        complaint.contains("go on with: ") && complaint.contains("harness --seeds 1000000"),
        "{complaint}"
    );
    assert!(complaint.contains("long run.json'"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
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
            "mrc-sim: bulk: there is no case \"1T\": choose one of 25M, 100M, 10G, 400G\n",
        ),
        (
            &["run", "bulk", "--set", "seed"],
            "mrc-sim: --set seed: there is no \"=\": write KEY=VALUE\n",
        ),
        (
            &["run", "bulk", "--set", "=seed"],
            "mrc-sim: --set =seed: there is no key before \"=\": write KEY=VALUE\n",
        ),
        (
            &["run", "mixed", "--case", "10G"],
            "mrc-sim: mixed: there is no case \"10G\", and no other: leave --case out\n",
        ),
        (
            &["run", "bulk", "--set", "workload.bytes=9223372036854775808"],
            "mrc-sim: set workload.bytes: \"9223372036854775808\" is not a number that TOML has (",
        ),
        (
            &[
                "run",
                "bulk",
                "--set",
                "workload.bytes=68719476736",
                "--set",
                "limits.memory_mib=1000",
            ],
            "mrc-sim: bulk: workload.bytes makes 64.0 GiB of payload: the run would take about 19",
        ),
        (
            &[
                "run",
                "bulk",
                "--set",
                "fabric.leaves=4096",
                "--set",
                "fabric.hosts_per_leaf=1024",
                "--set",
                "limits.memory_mib=1000",
            ],
            "mrc-sim: bulk: fabric.leaves with planes, spines and hosts_per_leaf: the run would take about ",
        ),
        (
            &[
                "run",
                "all_to_all",
                "--set",
                "fabric.leaves=512",
                "--set",
                "workload.bytes=1",
                "--set",
                "limits.memory_mib=1000",
            ],
            "mrc-sim: all_to_all: workload.kind makes 4192256 queue pairs, with qp.mpr, qp.sq_depth and qp.evs_per_plane: the run would",
        ),
        (
            &[
                "run",
                "bulk",
                "--set",
                "workload.message_bytes=1",
                "--set",
                "limits.memory_mib=1000",
            ],
            "mrc-sim: bulk: workload.message_bytes makes 4.194e6 messages: the run would",
        ),
        (
            &["run", "bulk", "--sample-us", "0.000001", "--series", "/tmp"],
            "mrc-sim: --sample-us 0.000001: give a number from 0.001 to 1000000000, or leave it out\n",
        ),
        (
            &["run", "bulk", "--sample-us", "1"],
            "mrc-sim: --sample-us 1 is for time series: give --series DIR or --plot DIR too\n",
        ),
        (
            &[
                "run",
                "bulk",
                "--case",
                "100M",
                "--sample-us",
                "0.001",
                "--series",
                "/tmp",
                "--quiet",
            ],
            "mrc-sim: bulk: time series would have more than 100000 samples: one in 0.001 us, and ",
        ),
        (
            &["run", "ping_pong", "--series", "/dev/null/x", "--quiet"],
            "mrc-sim: /dev/null/x cannot be written: ",
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
    let (code, stdout, stderr) = mrc_sim(&[&arguments[..], &["--quiet", "--series", place, "--plot", place]].concat());
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(report["passed"], true);
    let metrics = &report["cases"][0]["run"]["metrics"];
    assert!(
        metrics["bad_paths_used"].as_u64() > Some(0),
        "a count is a whole number: {metrics}"
    );
    assert_eq!(metrics["timeouts"].as_f64(), Some(0.0));
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
