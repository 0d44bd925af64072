//! What is built carries packets the way the plan says.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use netns_lab::{Lab, Topology};

use crate::support::{check_planes, ping, privileged, wait_until};

#[test]
fn a_packet_sent_by_a_port_comes_by_the_same_port_of_the_peer() {
    if !privileged() {
        return;
    }
    for planes in 1..=8 {
        for topology in [Topology::pair(planes), Topology::leaf(2, planes)] {
            let start = Instant::now();
            let lab = Lab::build(&topology).unwrap();
            println!(
                "{} with {planes} planes is up after {:?}",
                topology.shape.name(),
                start.elapsed()
            );
            check_planes(&lab, 0, 1, 1..=planes);
        }
    }
}

#[test]
fn every_host_of_a_leaf_reaches_every_other() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::leaf(4, 2)).unwrap();
    for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        check_planes(&lab, a, b, 1..=2);
    }
}

#[test]
fn permanent_neighbours_carry_packets_too() {
    if !privileged() {
        return;
    }
    for topology in [Topology::pair(2), Topology::leaf(2, 2)] {
        let lab = Lab::build(&topology.static_neighbours(true)).unwrap();
        let table = lab
            .host(0)
            .enter(|| fs::read_to_string("/proc/thread-self/net/arp").unwrap())
            .unwrap();
        // 0x6: complete and permanent.
        assert_eq!(
            table
                .lines()
                .filter(|l| l.split_whitespace().nth(2) == Some("0x6"))
                .count(),
            2,
            "{table}"
        );
        check_planes(&lab, 0, 1, 1..=2);
    }
}

#[test]
fn the_kernels_own_traffic_works_beside() {
    if !privileged() {
        return;
    }
    for topology in [Topology::pair(2), Topology::leaf(2, 2)] {
        let lab = Lab::build(&topology).unwrap();
        for (a, b) in [(0, 1), (1, 0)] {
            ping(&lab.host(a), lab.host(b).gid_v4().into());
            ping(&lab.host(a), lab.host(b).gid_v6().into());
        }
    }
}

#[test]
fn sockets_meet_in_the_management_network() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::leaf(3, 1)).unwrap();
    let address = lab.host(2).mgmt();
    let listener = lab.host(2).enter(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    for host in 0..2 {
        let source = lab.host(host).mgmt();
        let mut client = lab.host(host).enter(move || TcpStream::connect(to).unwrap()).unwrap();
        let (mut server, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), source);
        client.write_all(b"hello").unwrap();
        drop(client);
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }
}

#[test]
fn sys_and_the_ports_are_those_of_the_namespace() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::leaf(2, 3).mtu(4200)).unwrap();
    let names = |node: &str| {
        let list = || {
            fs::read_dir("/sys/class/net")
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
        };
        let mut names: Vec<String> = lab.node(node).unwrap().enter(|| list().collect()).unwrap();
        names.sort();
        names
    };
    assert_eq!(names("h0"), ["lo", "mgmt", "p1", "p2", "p3"]);
    assert_eq!(names("t0.p2"), ["h0", "h1", "lo"]);
    assert_eq!(lab.host(0).port_names(), ["p1", "p2", "p3"]);
    for (node, port) in [("h0", "p1"), ("t0.p3", "h1")] {
        let read = || fs::read_to_string(format!("/sys/class/net/{port}/mtu")).unwrap();
        assert_eq!(lab.node(node).unwrap().enter(read).unwrap().trim(), "4200");
    }
}

#[test]
fn the_largest_packet_passes_in_one_piece() {
    if !privileged() {
        return;
    }
    for topology in [Topology::pair(1), Topology::leaf(2, 1)] {
        let lab = Lab::build(&topology).unwrap();
        check_planes(&lab, 0, 1, 1..=1);
        let (sender, to) = (lab.host(0), SocketAddr::new(lab.host(1).gid_v4().into(), 9));
        let before = lab.far_counters(0, 1).unwrap();
        // What the kernel itself sent while the far end was still coming up may be lost.
        let lost_before = lab.counters(0, 1).unwrap().tx_dropped;
        let payload = vec![0; 9000 - 28];
        let send = move || {
            std::net::UdpSocket::bind("0.0.0.0:0")
                .unwrap()
                .send_to(&payload, to)
                .unwrap()
        };
        sender.enter(send).unwrap();
        let frame = 9000 + 14;
        wait_until("the frame is counted", || {
            let now = lab.far_counters(0, 1).unwrap();
            now.rx_bytes - before.rx_bytes >= frame
        });
        assert_eq!(lab.counters(0, 1).unwrap().tx_dropped, lost_before);
    }
}

#[test]
fn two_labs_at_once_do_not_disturb_each_other() {
    if !privileged() {
        return;
    }
    let index = |lab: &Lab| {
        lab.host(0)
            .enter(|| nix::net::if_::if_nametoindex("p1").unwrap())
            .unwrap()
    };
    let first = Lab::build(&Topology::leaf(2, 2)).unwrap();
    let second = Lab::build(&Topology::leaf(2, 2)).unwrap();
    assert_ne!(index(&first), index(&second));
    first.set_link(0, 1, false).unwrap();
    check_planes(&second, 0, 1, 1..=2);
    drop(first);
    check_planes(&second, 0, 1, 1..=2);
}
