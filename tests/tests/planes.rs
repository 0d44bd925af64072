//! What the planes carry.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use mrc_tests::{Connection, Fabric, Options, Stream};
use netns_lab::Topology;

/// Checks that what each plane carried is within 10 % of an equal share.
fn check_shares(what: &str, carried: &[u64]) {
    let fair = carried.iter().sum::<u64>() as f64 / carried.len() as f64;
    for (at, &bytes) in carried.iter().enumerate() {
        let share = bytes as f64 / fair;
        assert!(
            (0.9..=1.1).contains(&share),
            "{what}: plane {} has {share:.3} of its share of {carried:?}",
            at + 1
        );
    }
}

#[test]
fn each_plane_carries_its_share() {
    for topology in [
        Topology::pair(2),
        Topology::pair(3),
        Topology::leaf(2, 4),
        Topology::pair(8),
    ] {
        let fabric = Fabric::new(&topology);
        let options = Options {
            region: 4 << 20,
            ..Options::default()
        };
        let connection = Connection::open(&fabric, &options);
        let far = || -> Vec<u64> {
            (1..=topology.planes)
                .map(|plane| fabric.lab.far_counters(0, plane).unwrap().rx_bytes)
                .collect()
        };
        let before = far();
        let mut stream = Stream::new(&connection, 256 << 10);
        stream.pump(64);
        stream.finish();
        // By the kernel's count at the other end of each cable, and by the engine's own.
        let carried: Vec<u64> = far().iter().zip(before).map(|(now, then)| now - then).collect();
        check_shares(&format!("{topology:?}, far ends"), &carried);
        let counters = fabric.a.device.counters();
        let sent: Vec<u64> = counters.ports.iter().map(|port| port.tx_data_bytes).collect();
        check_shares(&format!("{topology:?}, engine"), &sent);
        let total: u64 = sent.iter().sum();
        assert!(total >= 16 << 20, "{total} bytes for 16 MiB");
        assert_eq!(counters.completion_errors, 0);
    }
}

#[test]
fn answers_are_spread_over_the_planes_too() {
    let topology = Topology::leaf(2, 4);
    let fabric = Fabric::new(&topology);
    let connection = Connection::open(&fabric, &Options::default());
    let mut stream = Stream::new(&connection, 16 << 10);
    stream.pump(500);
    stream.finish();
    let answers: Vec<u64> = fabric
        .b
        .device
        .counters()
        .ports
        .iter()
        .map(|port| port.tx_packets)
        .collect();
    let all: u64 = answers.iter().sum();
    // Which plane an answer takes may depend on where the peer was heard last, so this is looser than for data.
    assert!(answers.iter().all(|&packets| packets * 16 > all), "{answers:?}");
}
