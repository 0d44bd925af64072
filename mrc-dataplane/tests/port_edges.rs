//! Ports that are busy, occupied, down, deleted, unprivileged or killed: a clear error, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use common::{Netns, exchange, mrc_frame, open_port, privileged, spec, try_open, wait_until};
use mrc_dataplane::netlink::{WatchOptions, Watcher};
use mrc_dataplane::port::{LinkState, Port, PortOptions, TxResult, open_ports, require_pmtu};
use mrc_ebpf::Passing;
use mrc_wire::{Encap, Pmtu};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const CHILD: &str = "MRC_TEST_CHILD";

/// Another process that opens `p1` in `netns`, says how that went in one line, and holds it until it is killed.
fn child_engine(netns: &Netns, prepare: impl FnOnce(&mut Command) + Send + 'static) -> (Child, String) {
    let mut child = netns.run(move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--nocapture", "--quiet"])
            .env(CHILD, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        command.spawn().unwrap()
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines
        .find_map(|line| line.unwrap().strip_prefix("child: ").map(ToOwned::to_owned))
        .unwrap();
    (child, said)
}

/// Not a test: what [`child_engine`] runs.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let opened = open_ports(&[spec(1500)], &PortOptions::default());
    match &opened {
        Ok(_) => println!("\nchild: open"),
        Err(error) => println!("\nchild: {error}"),
    }
    // Until the parent kills us or dies.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn end(mut child: Child) {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
}

fn pair(mtu: u32) -> (Netns, Netns) {
    let (a, b) = (Netns::new(), Netns::new());
    a.join(&b, "p1", 1, mtu);
    (a, b)
}

fn occupied(netns: &Netns) -> bool {
    netns.run(|| mrc_ebpf::occupant("p1").unwrap().is_some())
}

fn send(port: &mut dyn Port, frame: &[u8]) -> TxResult {
    port.tx_frame(frame.len(), &mut |head, tail| {
        let (first, second) = frame.split_at(head.len());
        head.copy_from_slice(first);
        tail.copy_from_slice(second);
        true
    })
}

#[test]
fn a_busy_port_names_its_owner_and_is_free_when_that_is_killed() {
    if !privileged("a_busy_port_names_its_owner_and_is_free_when_that_is_killed") {
        return;
    }
    let (a, _b) = pair(1500);
    let (child, said) = child_engine(&a, |_| {});
    assert_eq!(said, "open");
    let pid = child.id();
    let refused = try_open(&a, 1500).unwrap_err().to_string();
    assert!(
        refused.starts_with(&format!("port p1 is busy: process {pid} (port_edges")),
        "{refused}"
    );
    assert!(occupied(&a));
    end(child);
    wait_until("the program has gone with its owner", || !occupied(&a));
    drop(open_port(&a, 1500));
    wait_until("the program has gone with the port", || !occupied(&a));
}

#[test]
fn somebody_elses_program_is_refused_and_named() {
    if !privileged("somebody_elses_program_is_refused_and_named") {
        return;
    }
    let (a, _b) = pair(1500);
    let other = a.run(|| Passing::attach("p1").unwrap());
    let occupant = a.run(|| mrc_ebpf::occupant("p1").unwrap().unwrap());
    assert_eq!(
        try_open(&a, 1500).unwrap_err().to_string(),
        format!(
            "p1 already carries an XDP program (id {}, name pass), which MRC will not replace; remove it with: bpftool link detach id {}",
            occupant.id,
            occupant.link.unwrap()
        )
    );
    drop(other);
    wait_until("the other program is gone", || !occupied(&a));
    drop(open_port(&a, 1500));
}

#[test]
fn an_unknown_interface_is_named() {
    if !privileged("an_unknown_interface_is_named") {
        return;
    }
    let netns = Netns::new();
    assert_eq!(
        try_open(&netns, 1500).unwrap_err().to_string(),
        "unknown interface p1: `ip link` lists those of this network namespace"
    );
}

#[test]
fn missing_privilege_and_too_little_locked_memory_say_what_helps() {
    if !privileged("missing_privilege_and_too_little_locked_memory_say_what_helps") {
        return;
    }
    let (a, _b) = pair(1500);
    let (child, said) = child_engine(&a, |command| {
        // The program itself may lie where nobody else may look.
        let program = command.get_program().to_owned();
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = Command::new("setpriv");
        command
            .args(["--bounding-set=-all", "--inh-caps=-all"])
            .arg(program)
            .args(args);
        command.env(CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    });
    end(child);
    assert!(
        said.contains("CAP_NET_ADMIN") && said.contains("CAP_BPF") && said.contains("run as root"),
        "{said}"
    );

    let (child, said) = child_engine(&a, |command| {
        let program = command.get_program().to_owned();
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = Command::new("prlimit");
        command.args([
            "--memlock=65536:65536",
            "setpriv",
            "--bounding-set=-ipc_lock",
            "--inh-caps=-ipc_lock",
        ]);
        command.arg(program).args(args);
        command.env(CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    });
    end(child);
    assert!(said.contains("needs 2883584 bytes of locked memory"), "{said}");
    assert!(said.contains("is 65536") && said.contains("ulimit -l 2816"), "{said}");
}

#[test]
fn a_child_that_was_started_meanwhile_does_not_keep_the_port() {
    if !privileged("a_child_that_was_started_meanwhile_does_not_keep_the_port") {
        return;
    }
    let (a, _b) = pair(1500);
    let port = open_port(&a, 1500);
    let mut sleeper = a.run(|| Command::new("sleep").arg("60").process_group(0).spawn().unwrap());
    drop(port);
    wait_until("the program is gone", || !occupied(&a));
    drop(open_port(&a, 1500));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn ports_survive_their_link_bouncing() {
    if !privileged("ports_survive_their_link_bouncing") {
        return;
    }
    let (a, b) = pair(9000);
    let (mut left, mut right) = (open_port(&a, 9000), open_port(&b, 9000));
    let frames: Vec<_> = (0..500)
        .map(|seed| mrc_frame(if seed % 3 == 0 { 4210 } else { 200 }, seed))
        .collect();
    exchange(&mut left, &mut right, &frames);
    for side in [&a, &b] {
        side.ip("link set p1 down");
        side.ip("link set p1 up");
        exchange(&mut left, &mut right, &frames);
        exchange(&mut right, &mut left, &frames);
    }
}

#[test]
fn a_port_whose_link_is_down_opens_and_works_when_it_comes_up() {
    if !privileged("a_port_whose_link_is_down_opens_and_works_when_it_comes_up") {
        return;
    }
    let (a, b) = pair(9000);
    a.ip("link set p1 down");
    let (mut left, mut right) = (open_port(&a, 9000), open_port(&b, 9000));
    a.ip("link set p1 up");
    let frames: Vec<_> = (0..300)
        .map(|seed| mrc_frame(if seed % 3 == 0 { 4210 } else { 200 }, seed))
        .collect();
    exchange(&mut left, &mut right, &frames);
    exchange(&mut right, &mut left, &frames);
}

#[test]
fn frames_that_waited_for_a_link_that_was_down_are_not_delivered_late() {
    if !privileged("frames_that_waited_for_a_link_that_was_down_are_not_delivered_late") {
        return;
    }
    let (a, b) = pair(1500);
    let link = Arc::new(LinkState::new(true, 1500, [2, 0, 0, 0, 1, 1]));
    let mut left = {
        let spec = common::PortSpec {
            link: Arc::clone(&link),
            ..spec(1500)
        };
        a.run(move || open_ports(&[spec], &PortOptions::default()).unwrap().pop().unwrap())
    };
    let mut right = open_port(&b, 1500);
    a.ip("link set p1 down");
    // Netlink has not told yet.
    while left.tx_room() > 0 {
        assert_eq!(send(&mut left, &mrc_frame(200, 1)), TxResult::Queued);
    }
    left.tx_flush().unwrap();
    assert!(left.tx_pending());
    link.set_up(false);
    left.tx_flush().unwrap();
    assert_eq!(left.counters().tx_stale, 192);
    assert_eq!((left.tx_room(), left.tx_pending()), (0, false));
    assert_eq!(send(&mut left, &mrc_frame(200, 1)), TxResult::NoRoom);
    a.ip("link set p1 up");
    link.set_up(true);
    wait_until("the old frames are out of the way", || {
        left.tx_flush().unwrap();
        left.tx_room() == 192
    });
    // The first that arrives is a fresh one.
    exchange(&mut left, &mut right, &[mrc_frame(200, 2)]);
}

#[test]
fn a_deleted_interface_ends_the_port_with_an_error() {
    if !privileged("a_deleted_interface_ends_the_port_with_an_error") {
        return;
    }
    let (a, b) = pair(1500);
    let mut port = open_port(&a, 1500);
    b.ip("link del p1");
    let frame = mrc_frame(200, 1);
    wait_until("the port is lost", || {
        let _ = send(&mut port, &frame);
        port.tx_flush().is_err()
    });
    drop(port);

    // As the watcher sees it, without anything to send.
    a.join(&b, "p1", 1, 1500);
    let watcher = a.run(|| Watcher::start(&[(spec(0).num, "p1".into())], WatchOptions::default()).unwrap());
    let spec = common::PortSpec {
        link: watcher.link(spec(0).num).unwrap(),
        ..spec(1500)
    };
    let mut port = a.run(move || open_ports(&[spec], &PortOptions::default()).unwrap().pop().unwrap());
    b.ip("link del p1");
    wait_until("the port is lost", || port.tx_flush().is_err());
    assert!(port.tx_flush().unwrap_err().to_string().contains("p1"));
}

/// What the kernel says it has dropped on transmission of `p1`.
fn tx_dropped(netns: &Netns) -> u64 {
    let text = netns.ip("-s link show p1");
    let numbers = text.lines().skip_while(|line| !line.contains("TX:")).nth(1).unwrap();
    numbers.split_whitespace().nth(3).unwrap().parse().unwrap()
}

#[test]
fn transmission_never_overflows_the_ring_of_a_veth() {
    if !privileged("transmission_never_overflows_the_ring_of_a_veth") {
        return;
    }
    let (a, b) = pair(9000);
    let (mut left, mut right) = (open_port(&a, 9000), open_port(&b, 9000));
    let frame = mrc_frame(4210, 7);
    let dropped_before = tx_dropped(&a);
    let mut sent = 0;
    wait_until("enough is sent", || {
        // The receiver looks only now and then.
        while left.tx_room() > 0 {
            assert!(left.tx_room() <= 192);
            assert_eq!(send(&mut left, &frame), TxResult::Queued);
            sent += 1;
        }
        left.tx_flush().unwrap();
        if sent % 1000 < 100 {
            right.rx_batch(64, &mut |received| assert_eq!(received.len(), frame.len()));
        }
        sent > 20_000
    });
    assert_eq!(left.counters().tx_busy, 0);
    assert_eq!(tx_dropped(&a), dropped_before);
}

#[test]
fn generic_mode_works_when_asked_for_and_says_why() {
    if !privileged("generic_mode_works_when_asked_for_and_says_why") {
        return;
    }
    let (a, b) = pair(1500);
    let options = PortOptions {
        force_generic: true,
        ..PortOptions::default()
    };
    let [mut left, mut right] = [&a, &b].map(|netns| {
        let options = options.clone();
        netns.run(move || open_ports(&[spec(1500)], &options).unwrap().pop().unwrap())
    });
    assert_eq!(
        left.mode().to_string(),
        "generic, copy; generic mode: native mode was not asked for; the driver has no zero-copy"
    );
    let frames: Vec<_> = (0..300).map(|seed| mrc_frame(100 + seed as usize, seed)).collect();
    exchange(&mut left, &mut right, &frames);
}

#[test]
fn an_abandoned_frame_costs_nothing() {
    if !privileged("an_abandoned_frame_costs_nothing") {
        return;
    }
    let (a, b) = pair(9000);
    let (mut left, mut right) = (open_port(&a, 9000), open_port(&b, 9000));
    for len in [100, 4210] {
        for _ in 0..1000 {
            assert_eq!(left.tx_frame(len, &mut |_, _| false), TxResult::Abandoned);
        }
    }
    assert_eq!(left.tx_room(), 192);
    assert_eq!(left.tx_frame(9019, &mut |_, _| true), TxResult::BadLength);
    assert_eq!(left.tx_frame(7681, &mut |_, _| true), TxResult::BadLength);
    assert_eq!(left.tx_frame(0, &mut |_, _| true), TxResult::BadLength);
    exchange(&mut left, &mut right, &[mrc_frame(4210, 1), mrc_frame(100, 2)]);
}

#[test]
fn what_is_not_mrc_reaches_the_kernel_while_the_port_is_open() {
    if !privileged("what_is_not_mrc_reaches_the_kernel_while_the_port_is_open") {
        return;
    }
    let (a, b) = pair(1500);
    let mut port = open_port(&b, 1500);
    let listener = b.run(|| std::net::UdpSocket::bind("10.9.1.2:4791").unwrap());
    listener
        .set_read_timeout(Some(std::time::Duration::from_secs(10)))
        .unwrap();
    let sender = a.run(|| std::net::UdpSocket::bind("10.9.1.1:50000").unwrap());
    let mrc = [&[0xca][..], &[0; 99]].concat();
    let plain = [&[0x04][..], &[7; 99]].concat();
    let long = [&[0xca][..], &[0; 2999]].concat();
    for payload in [&mrc, &plain, &long, &plain] {
        sender.send_to(payload, "10.9.1.2:4791").unwrap();
    }
    let mut buffer = [0; 4096];
    // Plain RoCEv2 and what came in fragments, but not the MRC packet before them.
    for expected in [&plain, &long, &plain] {
        let (len, _) = listener.recv_from(&mut buffer).unwrap();
        assert!(buffer[..len] == expected[..]);
    }
    let mut received = Vec::new();
    wait_until("the MRC packet is here", || {
        port.rx_batch(64, &mut |frame| received.push(frame.len()));
        !received.is_empty()
    });
    assert_eq!(received, [14 + 20 + 8 + 100]);
    for words in [
        "-c 1 -W 5 10.9.1.2",
        "-c 1 -W 5 -s 4000 10.9.1.2",
        "-c 1 -W 5 fd09:1::2",
    ] {
        a.command("ping", words);
    }
    let counts = port.verdicts().unwrap();
    assert_eq!(counts.of(mrc_ebpf::Verdict::Steered), 1);
    assert_eq!(counts.of(mrc_ebpf::Verdict::OtherOpcode), 2);
    assert!(counts.of(mrc_ebpf::Verdict::Fragment) >= 2);
}

#[test]
fn several_ports_share_one_memory() {
    if !privileged("several_ports_share_one_memory") {
        return;
    }
    let (a, b) = pair(9000);
    a.join(&b, "p2", 2, 1500);
    let [mut left, mut right] = [&a, &b].map(|netns| {
        netns.run(|| {
            let second = common::PortSpec {
                name: "p2".into(),
                num: mrc_wire::PortNum::new(2).unwrap(),
                ..spec(1500)
            };
            open_ports(&[spec(9000), second], &PortOptions::default()).unwrap()
        })
    });
    let long: Vec<_> = (0..600).map(|seed| mrc_frame(4210, seed)).collect();
    let short: Vec<_> = (0..600).map(|seed| mrc_frame(1138, !seed)).collect();
    for _ in 0..3 {
        for (plane, frames) in [(0, &long), (1, &short)] {
            exchange(&mut left[plane], &mut right[plane], frames);
            exchange(&mut right[plane], &mut left[plane], frames);
        }
    }
    // Either may go first.
    drop(left.remove(0));
    exchange(&mut right[1], &mut left[0], &short);
}

#[test]
fn a_queue_that_does_not_exist_is_named() {
    if !privileged("a_queue_that_does_not_exist_is_named") {
        return;
    }
    let (a, _b) = pair(9000);
    let refused = a.run(|| open_ports(&[common::PortSpec { queue: 5, ..spec(9000) }], &PortOptions::default()));
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.starts_with("cannot open an AF_XDP socket on queue 5 of p1") && refused.contains("ethtool -l"),
        "{refused}"
    );
    drop(open_port(&a, 9000));
}

#[test]
fn a_pmtu_that_does_not_fit_is_refused_with_one_that_does() {
    if !privileged("a_pmtu_that_does_not_fit_is_refused_with_one_that_does") {
        return;
    }
    let (a, b) = pair(1500);
    let port = open_port(&a, 1500);
    require_pmtu(&port, Pmtu::B1024, Encap::Ipv6).unwrap();
    let refused = require_pmtu(&port, Pmtu::B4096, Encap::Ipv6).unwrap_err().to_string();
    assert!(
        refused.contains("p1 (MTU 1500)") && refused.ends_with("use a PMTU of at most 1024"),
        "{refused}"
    );
    drop(port);

    // As on a kernel that has no multi-buffer.
    for side in [&a, &b] {
        side.ip("link set p1 mtu 9000");
    }
    let options = PortOptions {
        multi_buffer: false,
        ..PortOptions::default()
    };
    let [mut left, mut right] = [&a, &b].map(|netns| {
        let options = options.clone();
        netns.run(move || open_ports(&[spec(9000)], &options).unwrap().pop().unwrap())
    });
    require_pmtu(&left, Pmtu::B2048, Encap::Srv6Srh).unwrap();
    let refused = require_pmtu(&left, Pmtu::B4096, Encap::Ipv4).unwrap_err().to_string();
    assert!(
        refused.contains("no multi-buffer") && refused.ends_with("use a PMTU of at most 2048"),
        "{refused}"
    );
    exchange(&mut left, &mut right, &[mrc_frame(3840, 1), mrc_frame(100, 2)]);
    assert_eq!(send(&mut left, &mrc_frame(3841, 3)), TxResult::BadLength);
}
