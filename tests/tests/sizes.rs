//! Every size, PMTU and family, over one to eight planes: all bytes are right, and nothing else is written.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use mrc_tests::{Connection, Fabric, Options, completions, noise};
use mrc_verbs::{AddressFamily, EngineConfig, QpSizes, SendRequest, WorkCompletion};
use netns_lab::Topology;

const FAMILIES: [AddressFamily; 2] = [AddressFamily::V4, AddressFamily::V6];
const MIB: usize = 1 << 20;

fn sizes(pmtu: usize) -> [usize; 9] {
    [
        0,
        1,
        pmtu - 1,
        pmtu,
        pmtu + 1,
        2 * pmtu - 1,
        2 * pmtu,
        2 * pmtu + 1,
        MIB + 3,
    ]
}

/// Every size over a new connection for each PMTU and family.
fn check(topology: &Topology, pmtus: &[u32], families: &[AddressFamily]) {
    let fabric = Fabric::new(topology);
    for &family in families {
        for &pmtu in pmtus {
            let connection = Connection::open(
                &fabric,
                &Options {
                    family,
                    pmtu: Some(pmtu),
                    region: MIB + 3 + 16_000,
                    ..Options::default()
                },
            );
            assert_eq!(connection.pmtu, pmtu as usize);
            for (seed, size) in (1..).zip(sizes(pmtu as usize)) {
                connection.write_and_compare(size, 1_003 * seed as usize, seed);
            }
        }
    }
}

#[test]
fn every_size_with_every_pmtu_and_family_over_two_planes() {
    check(&Topology::pair(2), &[256, 512, 1024, 2048, 4096], &FAMILIES);
}

#[test]
fn every_size_over_a_single_plane() {
    check(&Topology::pair(1), &[256, 4096], &FAMILIES);
}

#[test]
fn every_size_over_three_to_eight_planes() {
    for (planes, pmtu, family) in [
        (3, 1024, AddressFamily::V4),
        (4, 4096, AddressFamily::V6),
        (5, 512, AddressFamily::V6),
        (6, 2048, AddressFamily::V4),
        (7, 256, AddressFamily::V6),
        (8, 4096, AddressFamily::V4),
    ] {
        check(&Topology::pair(planes), &[pmtu], &[family]);
    }
}

#[test]
fn every_size_through_switches() {
    check(&Topology::leaf(2, 4), &[4096], &FAMILIES);
    check(&Topology::leaf(3, 8), &[1024], &[AddressFamily::V6]);
}

#[test]
fn the_pmtu_follows_the_mtu_of_the_ports() {
    for (mtu, pmtu) in [(1280, 1024), (1500, 1024), (2200, 2048), (4200, 4096)] {
        let fabric = Fabric::new(&Topology::pair(2).mtu(mtu));
        let connection = Connection::open(&fabric, &Options::default());
        assert_eq!(connection.pmtu, pmtu, "MTU {mtu}");
        connection.write_and_compare(100_003, 77, 1);
    }
}

#[test]
fn sixty_four_mebibytes_in_one_message() {
    for (topology, family) in [
        (Topology::pair(4), AddressFamily::V6),
        (Topology::leaf(2, 2).mtu(1500), AddressFamily::V4),
    ] {
        let fabric = Fabric::new(&topology);
        let options = Options {
            family,
            region: 64 * MIB + 10_000,
            ..Options::default()
        };
        Connection::open(&fabric, &options).write_and_compare(64 * MIB, 4_321, 9);
    }
}

#[test]
fn pieces_are_gathered_and_inline_data_is_copied_at_once() {
    let fabric = Fabric::new(&Topology::pair(2));
    let connection = Connection::open(&fabric, &Options::default());
    let (a, b) = (&connection.a, &connection.b);
    let data = noise(40_000, 3);
    a.region.write_at(0, &data).unwrap();
    b.region.fill(0, MIB, 0x5a).unwrap();
    let pieces = [17..18, 100..100, 5_000..14_999, 15_000..36_789].map(|range| a.region.slice(range).unwrap());
    a.qp.post_write(&SendRequest::write_pieces(1, &pieces, b.region.remote().at(1)))
        .unwrap();
    let mut inline = *b"copied when it is posted";
    a.qp.post_write(&SendRequest::inline(2, &inline, b.region.remote().at(500_000)))
        .unwrap();
    inline.fill(b'x');
    assert!(completions(&a.cq, 2).iter().all(WorkCompletion::is_ok));

    let mut expected = vec![0x5a; MIB];
    let gathered = [&data[17..18], &data[5_000..14_999], &data[15_000..36_789]].concat();
    expected[1..=gathered.len()].copy_from_slice(&gathered);
    expected[500_000..500_024].copy_from_slice(b"copied when it is posted");
    assert!(b.region.to_vec(0, MIB).unwrap() == expected);
}

#[test]
fn another_udp_port_ev_layout_and_hop_limit_work() {
    let config = EngineConfig {
        udp_port: 5_000,
        ev_layout: mrc_wire::EvLayout::PortHigh,
        hop_limit: 3,
        ..EngineConfig::default()
    };
    let fabric = Fabric::with(&Topology::leaf(2, 2), &config);
    let sizes = QpSizes {
        max_send_wr: 4,
        ..QpSizes::default()
    };
    let connection = Connection::open(
        &fabric,
        &Options {
            sizes,
            ..Options::default()
        },
    );
    for seed in 1..20 {
        connection.write_and_compare(12_345 * seed as usize, seed as usize, seed);
    }
}
