//! Many queue pairs between the same two engines.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use mrc_tests::{Connection, Fabric, Options, noise, until};
use mrc_verbs::AddressFamily;
use netns_lab::Topology;

const PAIRS: usize = 64;
const WRITES: u64 = 12;
const SIZE: usize = 20_011;

#[test]
fn sixty_four_queue_pairs_write_in_both_directions_at_once() {
    let fabric = Fabric::new(&Topology::pair(4));
    let connections: Vec<_> = (0..PAIRS)
        .map(|pair| {
            let family = if pair % 2 == 0 {
                AddressFamily::V4
            } else {
                AddressFamily::V6
            };
            let options = Options {
                family,
                pmtu: [None, Some(1024), Some(256)][pair % 3],
                region: 2 * SIZE,
                ..Options::default()
            };
            Connection::open(&fabric, &options)
        })
        .collect();
    // The second half of each region is the source, the first half the target.
    let data = |pair: usize, from_a: bool| noise(SIZE, pair as u64 * 2 + u64::from(from_a));
    for (pair, connection) in connections.iter().enumerate() {
        let Connection { a, b, .. } = connection;
        for (from, to, from_a) in [(a, b, true), (b, a, false)] {
            from.region.write_at(SIZE, &data(pair, from_a)).unwrap();
            for wr_id in 0..WRITES {
                from.write(wr_id, SIZE..2 * SIZE, to, 0);
            }
        }
    }
    let mut done = [[0; 2]; PAIRS];
    until("all writes", || {
        for (connection, done) in connections.iter().zip(&mut done) {
            for (side, done) in [&connection.a, &connection.b].into_iter().zip(done) {
                while let Some(completion) = side.cq.poll_one().unwrap() {
                    assert!(completion.is_ok(), "{completion:?}");
                    assert_eq!((completion.wr_id, completion.qpn), (*done, side.qp.qpn()));
                    *done += 1;
                }
            }
        }
        done.as_flattened().iter().all(|&done| done == WRITES)
    });
    for (pair, connection) in connections.iter().enumerate() {
        for (side, from_a) in [(&connection.b, true), (&connection.a, false)] {
            let found = side.region.to_vec(0, SIZE).unwrap();
            assert!(found == data(pair, from_a), "pair {pair}, written by A: {from_a}");
        }
    }
}

#[test]
fn queue_pairs_come_and_go_while_others_write() {
    let fabric = Fabric::new(&Topology::pair(2));
    let steady = Connection::open(&fabric, &Options::default());
    for seed in 1..=40 {
        let passing = Connection::open(&fabric, &Options::default());
        steady.a.write(seed, 0..200_000, &steady.b, 0);
        passing.write_and_compare(30_000, 11, seed);
        drop(passing);
        assert!(steady.a.completion().is_ok());
    }
}
