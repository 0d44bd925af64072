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
