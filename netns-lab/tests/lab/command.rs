//! The program `netns-lab`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{privileged, wait_until};

fn netns_lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netns-lab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    netns_lab(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn exec_prefixes_every_line_and_ends_with_the_worst_status() {
    if !privileged() {
        return;
    }
    let output = run(&[
        "exec",
        "leaf",
        "--planes",
        "2",
        "--",
        "h0:echo one; echo two >&2; exit 3",
        "h1:echo $H0_GID4; exit 5",
        "t0.p2:echo three",
    ]);
    assert_eq!(output.status.code(), Some(5));
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["h0| one", "h1| 10.0.0.1", "t0.p2| three"]);
    let errors = text(&output.stderr);
    assert!(errors.lines().any(|l| l == "h0| two"), "{errors}");
    assert!(errors.lines().any(|l| l == "netns-lab: h1: exit status 5"), "{errors}");
}

#[test]
fn exec_can_stop_all_when_one_fails() {
    if !privileged() {
        return;
    }
    let output = run(&[
        "exec",
        "pair",
        "--stop-on-failure",
        "--",
        "h0:exec sleep 1000",
        "h1:exit 4",
    ]);
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn exec_says_what_is_wrong_with_its_arguments() {
    let message = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(125));
        assert!(output.stdout.is_empty());
        text(&output.stderr)
    };
    let exec = |arguments: &[&str]| message(&[&["exec"], arguments, &["--", "h0:true", "h5:true"]].concat());
    assert_eq!(
        exec(&["torus"]),
        "netns-lab: unknown topology 'torus': known are pair, leaf, fabric\n"
    );
    assert_eq!(exec(&["pair"]), "netns-lab: no 'h5' in this lab: it has h0, h1, mgmt\n");
    let planes = "netns-lab: the number of planes is 99: topology 'leaf' takes 1 to 16\n";
    assert_eq!(exec(&["leaf", "--planes", "99"]), planes);
    assert_eq!(
        exec(&["pair", "--mtu", "100"]),
        "netns-lab: the MTU is 100: topology 'pair' takes 1280 to 65535\n"
    );
}

#[test]
fn without_privilege_one_line_names_what_is_missing() {
    // As root, the program is copied to where another user can run it.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("netns-lab");
    fs::copy(env!("CARGO_BIN_EXE_netns-lab"), &program).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command.args(["exec", "pair", "--", "h0:true"]).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let message = text(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(
        message.contains("CAP_SYS_ADMIN") && message.contains("sudo"),
        "{message}"
    );
}

#[test]
fn show_prints_the_plan_without_privilege() {
    let output = run(&["show", "leaf", "--hosts", "3", "--planes", "1"]);
    assert!(output.status.success());
    let plan = text(&output.stdout);
    for part in [
        "h2 (host)",
        "t0.p1 (switch)",
        "10.1.3.1/30",
        "fd4d:5243:1:3::1/64",
        "H2_GID6=fd4d:5243::3",
    ] {
        assert!(plan.contains(part), "{part} is missing in\n{plan}");
    }
}

/// A lab whose commands stay, with the identity of every namespace that they live in.
struct Running {
    program: Child,
    out: BufReader<ChildStdout>,
    /// Such as `net:[4026532999]`.
    namespaces: Vec<String>,
}

impl Running {
    fn start(topology: &str, switch: &str) -> Self {
        // What is hard to end: a command that ignores signals, with a child in a session of its own.
        let stay = "readlink /proc/self/ns/net /proc/self/ns/pid /proc/self/ns/mnt; setsid sleep 1000 & trap '' INT TERM; while :; do sleep 1000; done";
        let (h0, h1, t0) = (format!("h0:{stay}"), format!("h1:{stay}"), format!("{switch}:{stay}"));
        let mut command = netns_lab(&["exec", topology, "--planes", "1", "--", &h0, &h1, &t0]);
        let mut program = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(program.stdout.take().unwrap());
        let mut namespaces = Vec::new();
        while namespaces.len() < 9 {
            let mut line = String::new();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "the lab ended early");
            namespaces.push(line.trim_end().split_once("| ").unwrap().1.to_owned());
        }
        let running = Self {
            program,
            out,
            namespaces,
        };
        // Or the check below would prove nothing.
        assert!(!running.left().is_empty());
        running
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.program.id() as i32), signal).unwrap();
    }

    /// Whether the program has ended, its output is closed (so no process of the lab has it), and nobody is in its namespaces or holds
    /// them.
    fn check_gone(mut self) -> Option<i32> {
        let status = self.program.wait().unwrap();
        self.out.read_to_end(&mut Vec::new()).unwrap();
        wait_until("nobody is in the lab's namespaces", || self.left().is_empty());
        status.code()
    }

    /// The processes that are in one of the namespaces or hold one.
    fn left(&self) -> BTreeMap<String, String> {
        let mut left = BTreeMap::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            // A process may end while it is looked at.
            for directory in ["ns", "fd"] {
                for entry in fs::read_dir(process.path().join(directory))
                    .into_iter()
                    .flatten()
                    .flatten()
                {
                    let Ok(link) = fs::read_link(entry.path()) else {
                        continue;
                    };
                    let link = link.to_string_lossy().into_owned();
                    if self.namespaces.contains(&link) {
                        left.insert(entry.path().to_string_lossy().into_owned(), link);
                    }
                }
            }
        }
        left
    }
}

#[test]
fn nothing_is_left_after_ctrl_c() {
    if !privileged() {
        return;
    }
    let running = Running::start("leaf", "t0.p1");
    running.signal(Signal::SIGINT);
    // The second time there is no grace for commands that do not listen.
    running.signal(Signal::SIGTERM);
    assert_eq!(running.check_gone().map(|code| code > 128), Some(true));
}

#[test]
fn nothing_is_left_after_kill_9() {
    if !privileged() {
        return;
    }
    for (topology, switch) in [("leaf", "t0.p1"), ("fabric", "t1.1.p1")] {
        let running = Running::start(topology, switch);
        running.signal(Signal::SIGKILL);
        assert_eq!(running.check_gone(), None);
    }
}

#[test]
fn up_says_how_to_enter_and_ends_by_a_signal() {
    if !privileged() {
        return;
    }
    let mut program = netns_lab(&["up", "leaf", "--planes", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap());
    let mut holder = None;
    let mut line = String::new();
    while !line.contains("Ctrl-C") {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "the lab ended early");
        if line.trim_start().starts_with("h1 ") && line.contains("nsenter") {
            holder = line.split_whitespace().nth(3).map(str::to_owned);
        }
    }
    let holder = format!("/proc/{}/ns/net", holder.expect("a line on how to enter h1"));
    assert_ne!(
        fs::read_link(&holder).unwrap(),
        fs::read_link("/proc/self/ns/net").unwrap()
    );
    kill(Pid::from_raw(program.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(0));
    wait_until("the process that held h1 has ended", || fs::read_link(&holder).is_err());
}

#[test]
fn a_reader_that_goes_ends_the_commands() {
    if !privileged() {
        return;
    }
    let mut program = netns_lab(&["exec", "pair", "--planes", "1", "--", "h0:exec yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "h0| y\n");
    drop(out);
    assert_eq!(program.wait().unwrap().code(), Some(128 + Signal::SIGPIPE as i32));
}

#[test]
fn a_lab_that_is_up_can_be_broken_and_healed_by_hand() {
    if !privileged() {
        return;
    }
    let name = format!("test-{}", std::process::id());
    let mut program = netns_lab(&["up", "fabric", "--planes", "1", "--name", &name])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("Ctrl-C") {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "the lab ended early");
    }
    let ask = |arguments: &[&str]| {
        let output = run(&[&arguments[..1], &["--lab", &name], &arguments[1..]].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    assert_eq!(ask(&["heal"]), (Some(0), "nothing is broken\n".to_owned()));
    let broken = (Some(0), "broken: t1.1.p1 blackholes\n".to_owned());
    assert_eq!(ask(&["fault", "blackhole = \"t1.1.p1\""]), broken);
    let (status, refusal) = ask(&["fault", "dead = \"t9.p1\""]);
    assert_eq!(status, Some(125));
    assert!(refusal.starts_with("netns-lab: no 't9.p1' in this lab"), "{refusal}");
    let (_, counters) = ask(&["counters"]);
    assert!(
        counters.starts_with(&broken.1) && counters.contains("\nt1.1.p1   t0.0.p1-t1.1.p1"),
        "{counters}"
    );
    let (_, json) = ask(&["counters", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ports"].as_array().unwrap().len(), 10);
    assert_eq!(ask(&["heal", "blackhole = \"t1.1.p1\""]).1, "nothing is broken\n");
    kill(Pid::from_raw(program.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(0));
    let (status, gone) = ask(&["counters"]);
    assert_eq!(status, Some(125));
    assert!(gone.contains(&format!("cannot reach lab '{name}'")), "{gone}");
}
