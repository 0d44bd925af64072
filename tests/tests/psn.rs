//! Packet sequence numbers wrap at 2^24.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use mrc_tests::{Connection, Fabric, Options, Stream};
use mrc_verbs::AddressFamily;
use netns_lab::Topology;

const END: u32 = 1 << 24;

fn options(psn: u32) -> Options {
    Options {
        family: AddressFamily::V4,
        pmtu: Some(256),
        psn: Some(psn),
        region: 2 << 20,
        ..Options::default()
    }
}

#[test]
fn thousands_of_packets_go_over_the_wrap_in_both_directions() {
    let fabric = Fabric::new(&Topology::pair(3));
    for before in [1, 3_000, 4_500] {
        let connection = Connection::open(&fabric, &options(END - before));
        // 4,097 packets, then 4,100.
        connection.write_and_compare((1 << 20) + 3, 5_001, 1);
        connection.write_and_compare((1 << 20) + 999, 9, 2);
        let connection = connection.turned();
        connection.write_and_compare((1 << 20) + 3, 5_001, 3);
        connection.write_and_compare((1 << 20) + 999, 9, 4);
    }
}

#[test]
fn every_start_around_the_wrap_works() {
    let fabric = Fabric::new(&Topology::pair(2));
    for psn in [0, 1, END - 2, END - 1, END / 2 - 3, END / 2, END - 1_024, END - 1_023] {
        let connection = Connection::open(&fabric, &options(psn));
        for seed in 1..=8 {
            connection.write_and_compare(256 * seed as usize, 1_000, seed);
        }
    }
}

#[test]
fn a_plane_may_fail_at_the_wrap() {
    let fabric = Fabric::new(&Topology::leaf(2, 2));
    let connection = Connection::open(&fabric, &options(END - 6_000));
    let mut stream = Stream::new(&connection, 32 << 10);
    // 128 packets each: the wrap comes while the plane is away.
    stream.pump(30);
    stream.pump_during(|| fabric.lab.set_link(0, 1, false).unwrap());
    stream.pump(60);
    stream.pump_during(|| fabric.lab.set_link(0, 1, true).unwrap());
    stream.pump(30);
    assert!(stream.finish() >= 120);
}
