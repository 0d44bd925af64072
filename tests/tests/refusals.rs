//! What cannot work says so in one line: the thing, the limit, the remedy.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::process::Command;

use mrc_ebpf::Passing;
use mrc_tests::{Connection, End, Fabric, Node, Options, Side, connect, until};
use mrc_verbs::{EngineConfig, Gid, QpState, SendRequest, WcStatus};
use netns_lab::{Host, Lab, Topology};

const END_PROGRAM: &str = env!("CARGO_BIN_EXE_mrc-end");

/// Checks that a message is one line that contains all of this.
fn says(message: &str, parts: &[&str]) {
    assert!(!message.contains('\n'), "more than one line: {message}");
    for part in parts {
        assert!(message.contains(part), "no {part:?} in: {message}");
    }
}

fn refused(host: Host<'_>, config: EngineConfig) -> String {
    Node::open_exactly(host, config).expect_err("it started").to_string()
}

fn ip(host: Host<'_>, words: &str) {
    let mut command = Command::new("ip");
    command.args(words.split_whitespace());
    assert!(host.spawn(command).unwrap().wait().unwrap().success(), "ip {words}");
}

/// Starts again until the kernel has given everything back.
fn works_again(lab: &Lab, host: usize) -> Node {
    let mut node = None;
    until("the ports to be free", || {
        node = Node::open(lab.host(host), EngineConfig::default()).ok();
        node.is_some()
    });
    node.unwrap()
}

#[test]
fn an_unknown_interface_or_none_is_named() {
    let lab = Fabric::lab(&Topology::pair(2));
    let message = refused(lab.host(0), EngineConfig::with_ports(["p1", "p9"]));
    says(&message, &["unknown interface p9", "ip link"]);
    let message = refused(lab.host(0), EngineConfig::default());
    says(&message, &["no ports", "name at least one interface"]);
    let message = refused(lab.host(0), EngineConfig::with_ports(["p1", "p2", "p1"]));
    says(&message, &["port p1 is listed twice"]);
    // Nothing was kept of what had been opened before.
    drop(works_again(&lab, 0));
    drop(lab);
}

#[test]
fn a_busy_port_names_the_process_that_has_it() {
    let lab = Fabric::lab(&Topology::pair(2));
    let node = Node::open(lab.host(0), EngineConfig::default()).unwrap();
    let message = refused(lab.host(0), EngineConfig::with_ports(["p2"]));
    says(
        &message,
        &[
            "port p2 is busy",
            &format!("process {} ", std::process::id()),
            "end that process",
        ],
    );
    drop(node);

    let mut end = End::start(lab.host(1), END_PROGRAM, "open", &[]);
    assert_eq!(end.line(), "open");
    let message = refused(lab.host(1), EngineConfig::with_ports(["p1"]));
    // Its number as seen from here, although it lives in a process namespace of its own.
    says(
        &message,
        &[
            "port p1 is busy",
            &format!("process {} (mrc-end)", end.process.id()),
            "end that process",
        ],
    );
    end.kill();
    drop(works_again(&lab, 1));
    drop(lab);
}

#[test]
fn somebody_elses_program_is_left_alone_and_named() {
    let lab = Fabric::lab(&Topology::pair(2));
    let other = lab.host(0).enter(|| Passing::attach("p2").unwrap()).unwrap();
    let message = refused(lab.host(0), EngineConfig::with_ports(["p1", "p2"]));
    says(
        &message,
        &[
            "p2 already carries an XDP program",
            "name pass",
            "remove it with",
            "bpftool",
        ],
    );
    assert!(
        lab.host(0)
            .enter(|| mrc_ebpf::occupant("p2").unwrap())
            .unwrap()
            .is_some()
    );
    drop(other);
    drop(works_again(&lab, 0));
    drop(lab);
}

/// What `mrc-end open` says when it is started by `wrapper`.
fn restricted(wrapper: &[&str]) -> String {
    let lab = Fabric::lab(&Topology::pair(1));
    let mut end = End::start(lab.host(0), END_PROGRAM, "open", wrapper);
    let message = end.line();
    assert!(end.process.wait().unwrap().success());
    drop(works_again(&lab, 0));
    message
}

#[test]
fn missing_privilege_names_what_is_missing() {
    let message = restricted(&["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    says(&message, &["CAP_NET_ADMIN", "CAP_BPF", "CAP_NET_RAW", "run as root"]);
}

#[test]
fn too_few_locked_bytes_names_need_limit_and_remedy() {
    let message = restricted(&[
        "prlimit",
        "--memlock=65536:65536",
        "setpriv",
        "--bounding-set=-ipc_lock",
        "--inh-caps=-ipc_lock",
    ]);
    says(
        &message,
        &[
            "bytes of locked memory",
            "65536",
            "RLIMIT_MEMLOCK",
            "ulimit -l",
            "CAP_IPC_LOCK",
        ],
    );
}

#[test]
fn a_host_without_node_address_is_told_how_to_have_one() {
    let lab = Fabric::lab(&Topology::pair(1));
    ip(lab.host(0), "addr flush dev lo scope global");
    let message = refused(lab.host(0), EngineConfig::with_ports(["p1"]));
    says(&message, &["no node address", "ip addr add", "dev lo"]);
}

#[test]
fn a_pmtu_that_the_ports_cannot_carry_names_the_port_and_the_mtu() {
    let fabric = Fabric::new(&Topology::pair(2));
    ip(fabric.lab.host(0), "link set p2 mtu 1500");
    ip(fabric.lab.host(1), "link set p2 mtu 1500");
    let node = &fabric.a;
    until("the engine to see the new MTU", || {
        node.device.limits().active_pmtu == 1024
    });
    let options = Options {
        pmtu: Some(4096),
        ..Options::default()
    };
    let (a, b) = (Side::new(&fabric.a, &options), Side::new(&fabric.b, &options));
    let message = connect(&a.qp, a.offer(&options), b.offer(&options), &options)
        .unwrap_err()
        .to_string();
    says(&message, &["4096", "p2", "1500", "mtu 4188", "1024"]);
    assert_eq!(a.qp.state().unwrap(), QpState::Reset);
    Connection::open(&fabric, &Options::default()).write_and_compare(10_000, 3, 1);
}

#[test]
fn a_peer_that_is_set_up_differently_is_refused_before_the_first_packet() {
    let lab = Fabric::lab(&Topology::pair(1));
    let a = Node::open(lab.host(0), EngineConfig::default()).unwrap();
    let config = EngineConfig {
        udp_port: 5_000,
        ..EngineConfig::default()
    };
    let b = Node::open(lab.host(1), config).unwrap();
    let options = Options::default();
    let (of_a, of_b) = (Side::new(&a, &options), Side::new(&b, &options));
    let message = connect(&of_a.qp, of_a.offer(&options), of_b.offer(&options), &options)
        .unwrap_err()
        .to_string();
    says(&message, &["UDP", "4791", "5000"]);
    drop((of_a, of_b, a, b));
    drop(lab);
}

const NOWHERE: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);

/// A queue pair of host 0, connected to a node that does not exist, or not.
fn to_nowhere(fabric: &Fabric) -> Result<Side, String> {
    let options = Options::default();
    let (a, b) = (Side::new(&fabric.a, &options), Side::new(&fabric.b, &options));
    let mut theirs = b.offer(&options);
    theirs.gids = vec![Gid::from(NOWHERE)];
    connect(&a.qp, a.offer(&options), theirs, &options).map_err(|error| error.to_string())?;
    Ok(a)
}

#[test]
fn a_peer_without_route_is_refused_and_named() {
    let fabric = Fabric::new(&Topology::pair(2));
    let message = to_nowhere(&fabric).unwrap_err();
    says(&message, &["route", "2001:db8::9", "p1", "p2"]);
    Connection::open(&fabric, &Options::default()).write_and_compare(10_000, 3, 1);
}

#[test]
fn a_peer_whose_next_hop_does_not_answer_fails_and_the_queue_pair_says_why() {
    let fabric = Fabric::new(&Topology::pair(2));
    for plane in 1..=2 {
        // A next hop that would be on the link, and that nobody has.
        ip(
            fabric.lab.host(0),
            &format!("addr add fd99:{plane}::1/64 dev p{plane} nodad"),
        );
        ip(
            fabric.lab.host(0),
            &format!("route add {NOWHERE}/128 via fd99:{plane}::99 dev p{plane} metric 5{plane}"),
        );
    }
    let a = to_nowhere(&fabric).unwrap();
    a.give_up_soon();
    let piece = a.region.slice(0..10_000).unwrap();
    a.qp.post_write(&SendRequest::write(1, piece, a.region.remote()))
        .unwrap();
    assert_eq!(a.completion().result, Err(WcStatus::RetryExcErr));
    let mut reasons = Vec::new();
    until("the kernel to give up too", || {
        reasons = a.qp.query().unwrap().unreachable;
        reasons.len() == 2
    });
    for ((port, why), plane) in reasons.iter().zip(1..) {
        assert_eq!(*port, plane);
        says(why, &[&format!("fd99:{plane}::99"), "does not answer"]);
    }
    Connection::open(&fabric, &Options::default()).write_and_compare(10_000, 3, 1);
}
