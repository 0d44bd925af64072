//! Programs in hosts.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use netns_lab::{Lab, Signal, Topology};

use crate::support::privileged;

fn shell(line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

#[test]
fn a_program_finds_itself_in_its_host() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::pair(2)).unwrap();
    let line = "echo $LAB_NODE $MRC_PORTS $H0_GID4 $H0_GID6 $H1_MGMT; cat /proc/sys/kernel/hostname; ls /sys/class/net; readlink /proc/self";
    let run = |host: usize| {
        let output = lab.host(host).spawn(shell(line)).unwrap().wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    for host in 0..2 {
        let text = run(host);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("h{host} p1,p2 10.0.0.1 fd4d:5243::1 172.16.0.2"));
        assert_eq!(lines[1..6], [format!("h{host}").as_str(), "lo", "mgmt", "p1", "p2"]);
        // Its /proc numbers the processes of the lab only.
        assert!(lines[6].parse::<u32>().unwrap() < 100);
    }
}

#[test]
fn the_exit_status_and_the_signal_are_those_of_the_program() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::pair(1)).unwrap();
    assert_eq!(
        lab.host(0).spawn(shell("exit 7")).unwrap().wait().unwrap().code(),
        Some(7)
    );
    let mut process = lab.host(0).spawn(shell("sleep 1000 & echo up; wait")).unwrap();
    let mut out = BufReader::new(process.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    assert!(process.try_wait().unwrap().is_none());
    process.signal(Signal::SIGTERM).unwrap();
    assert_eq!(process.wait().unwrap().signal(), Some(15));
    // The whole group got it: nobody holds the output any more.
    out.read_to_end(&mut Vec::new()).unwrap();
    process.signal(Signal::SIGTERM).unwrap();
    process.kill().unwrap();
}

#[test]
fn a_program_that_is_not_there_is_told() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::pair(1)).unwrap();
    let message = lab
        .host(1)
        .spawn(Command::new("no-such-program"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "cannot start 'no-such-program' on h1: No such file or directory (os error 2)"
    );
}

#[test]
fn everything_that_was_started_ends_with_the_lab() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::leaf(2, 1)).unwrap();
    // Programs that ignore signals, leave their group and their session, or outlive their parent.
    let lines = [
        "trap '' TERM INT HUP; echo up; while :; do sleep 1000; done",
        "setsid sh -c 'trap \"\" TERM; echo up; sleep 1000; sleep 1000'",
        "(setsid sleep 1000 &); echo up",
        "echo up; exec sleep 1000",
    ];
    let mut started = Vec::new();
    for line in lines {
        let mut process = lab.host(0).spawn(shell(line)).unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        started.push((process, out));
    }
    drop(lab);
    for (mut process, mut out) in started {
        // Ends only when the last process that has the pipe has ended.
        out.read_to_end(&mut Vec::new()).unwrap();
        assert!(process.wait().is_ok());
        assert!(process.try_wait().unwrap().is_some());
    }
}

#[test]
fn sockets_and_threads_made_inside_stay_inside() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::pair(1)).unwrap();
    let namespace = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let outside = namespace();
    let (inside, started_inside) = lab
        .host(0)
        .enter(|| (namespace(), std::thread::spawn(namespace).join().unwrap()))
        .unwrap();
    assert_eq!(inside, started_inside);
    assert_ne!(inside, outside);
    assert_eq!(namespace(), outside);
    // A descriptor leads to the same place.
    let via_fd = std::fs::read_link(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&lab.host(0).fd())
    ))
    .unwrap();
    assert_eq!(via_fd, inside);
}
