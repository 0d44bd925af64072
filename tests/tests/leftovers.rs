//! Whatever is killed in the middle of traffic: no namespace, no XDP program and no process stays behind.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use mrc_tests::{Traces, built, children, has_packets, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// `netns-lab exec` with an `mrc-perf` server and client that would go on for a minute.
struct Run {
    lab: Child,
    server: u32,
    client: u32,
    traces: Traces,
}

impl Run {
    /// Returns when thousands of packets have been sent.
    fn start(topology: &str) -> Run {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test needs root: it builds a lab"
        );
        let perf = built("mrc-perf");
        let perf = perf.display();
        let lab = Command::new(built("netns-lab"))
            .args(["exec", topology, "--planes", "2", "--"])
            .arg(format!("h0:exec {perf} server"))
            .arg(format!("h1:exec {perf} client $H0_MGMT --seconds 600 --qps 2"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut server, mut client) = (0, 0);
        until("both programs", || {
            let role = |role| {
                children(lab.id())
                    .into_iter()
                    .find(|&pid| arguments(pid).get(1).is_some_and(|word| word == role))
            };
            (server, client) = (role("server").unwrap_or(0), role("client").unwrap_or(0));
            server != 0 && client != 0
        });
        until("traffic", || {
            has_packets(client, "p1", 5_000) && has_packets(client, "p2", 5_000)
        });
        let traces = Traces::of(lab.id());
        let run = Run {
            lab,
            server,
            client,
            traces,
        };
        // Or what follows would prove nothing.
        let left = run.traces.left();
        assert!(left.processes.len() >= 4 && left.namespaces.len() >= 3, "{left:?}");
        // One on each of the four ports, and one that all ports of the switches share.
        let expected = if topology == "leaf" { 5 } else { 4 };
        assert_eq!(left.programs.len(), expected, "{left:?}");
        run
    }

    /// Waits for the lab's end and for nothing to be left; returns what the commands said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.lab.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = self.lab.wait().unwrap();
        until("everything to be gone", || self.traces.left().is_empty());
        (status.code(), said)
    }
}

fn kill_9(pid: u32) {
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
}

impl Drop for Run {
    fn drop(&mut self) {
        // Also when an assertion has failed.
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

fn arguments(pid: u32) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.split('\0').map(str::to_owned).collect()
}

#[test]
fn a_killed_client_takes_its_server_along_and_leaves_nothing() {
    let run = Run::start("leaf");
    kill_9(run.client);
    let (status, said) = run.end();
    assert_eq!(status, Some(128 + 9), "{said}");
    assert!(said.contains("h0| mrc-perf: "), "the server says why it ends: {said}");
}

#[test]
fn a_killed_server_takes_its_client_along_and_leaves_nothing() {
    let run = Run::start("pair");
    kill_9(run.server);
    let (status, said) = run.end();
    assert_eq!(status, Some(128 + 9), "{said}");
    assert!(said.contains("h1| mrc-perf: "), "the client says why it ends: {said}");
}

#[test]
fn a_killed_lab_leaves_nothing() {
    for topology in ["pair", "leaf"] {
        let run = Run::start(topology);
        kill_9(run.lab.id());
        assert_eq!(run.end().0, None);
    }
}

#[test]
fn everything_killed_at_once_leaves_nothing() {
    let run = Run::start("leaf");
    for pid in [run.client, run.server, run.lab.id()] {
        kill_9(pid);
    }
    assert_eq!(run.end().0, None);
}
