//! Data: sizes, pieces, families, order, several queue pairs, several threads.

use super::*;
use crate::{AddressFamily, SendRequest};
use mrc_dataplane::port::Fate;

#[test]
fn every_size_arrives_and_nothing_outside_is_written() {
    let fabric = Fabric::new(3);
    for pmtu in [256, 4096] {
        for family in [AddressFamily::V4, AddressFamily::V6] {
            let (a, b) = (fabric.a.qp(), fabric.b.qp());
            let offer = |qp: &QueuePair| {
                let mut info = qp.offer().unwrap().only(family).unwrap();
                info.pmtu = pmtu;
                info
            };
            a.connect(&QpConfig::new(offer(&a), offer(&b))).unwrap();
            b.connect(&QpConfig::new(offer(&b), offer(&a))).unwrap();
            let pmtu = pmtu as usize;
            for size in [
                0,
                1,
                3,
                pmtu - 1,
                pmtu,
                pmtu + 1,
                2 * pmtu - 1,
                2 * pmtu,
                2 * pmtu + 1,
                300_003,
            ] {
                let data = noise(size, size as u64);
                fabric.a.region.write_at(5, &data).unwrap();
                fabric.b.region.fill(0, REGION, 0xcc).unwrap();
                let piece = fabric.a.region.slice(5..5 + size).unwrap();
                a.post_write(&SendRequest::write(1, piece, fabric.b.region.remote().at(1003)))
                    .unwrap();
                let wc = fabric.a.completion();
                assert!(wc.is_ok(), "{size}: {wc:?}");
                assert_eq!(wc.byte_len as usize, size);
                let all = fabric.b.region.to_vec(0, REGION).unwrap();
                assert!(
                    all[1003..1003 + size] == data[..],
                    "{size} bytes with PMTU {pmtu} over {family}"
                );
                assert!(
                    all[..1003].iter().chain(&all[1003 + size..]).all(|byte| *byte == 0xcc),
                    "{size}"
                );
            }
        }
    }
}

#[test]
fn pieces_are_gathered_and_inline_data_may_be_overwritten_at_once() {
    let fabric = Fabric::new(2);
    let (a, _b) = fabric.connected();
    let data = noise(20_000, 1);
    fabric.a.region.write_at(0, &data).unwrap();
    let region = &fabric.a.region;
    let pieces = [
        region.slice(0..1).unwrap(),
        region.slice(100..100).unwrap(),
        region.slice(5000..14_999).unwrap(),
    ];
    a.post_write(&SendRequest::write_pieces(1, &pieces, fabric.b.region.remote()))
        .unwrap();
    let mut inline = *b"now";
    a.post_write(&SendRequest::inline(2, &inline, fabric.b.region.remote().at(50_000)))
        .unwrap();
    inline.fill(0);
    assert!(fabric.a.completions(2).iter().all(WorkCompletion::is_ok));
    let expected: Vec<u8> = data[0..1].iter().chain(&data[5000..14_999]).copied().collect();
    assert_eq!(fabric.b.region.to_vec(0, 10_000).unwrap(), expected);
    assert_eq!(fabric.b.region.to_vec(50_000, 3).unwrap(), b"now");
    assert_eq!(inline, [0; 3]);
}

#[test]
fn zero_length_writes_need_no_key_and_with_immediate_still_take_a_receive() {
    let fabric = Fabric::new(1);
    let (a, b) = fabric.connected();
    let nowhere = crate::RemoteAddress {
        addr: 0xdead_beef,
        rkey: 0,
    };
    b.post_recv(5).unwrap();
    a.post_write(&SendRequest::inline(1, b"", nowhere)).unwrap();
    a.post_write(&SendRequest::write_pieces(2, &[], nowhere).with_imm(*b"imm!"))
        .unwrap();
    let wc = fabric.b.completion();
    assert_eq!((wc.wr_id, wc.byte_len, wc.imm), (5, 0, Some(*b"imm!")));
    assert!(fabric.a.completions(2).iter().all(WorkCompletion::is_ok));
}

const ROUNDS: usize = 60;
const SIZE: usize = 12_345;

#[test]
fn an_immediate_tells_that_all_earlier_data_is_there_under_reordering_and_loss() {
    let fabric = Fabric::new(4);
    for (number, link) in fabric.links.iter().enumerate() {
        for side in 0..2 {
            let mut count = number as u32;
            link.judge(side, move |_| {
                count = count.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                match count >> 24 {
                    0..=7 => Fate::Drop,
                    8..=60 => Fate::Late,
                    61..=70 => Fate::Twice,
                    _ => Fate::Deliver,
                }
            });
        }
    }
    let (a, b) = fabric.connected();
    let data: Vec<_> = (0..ROUNDS).map(|round| noise(SIZE, round as u64 + 1)).collect();
    for (round, bytes) in data.iter().enumerate() {
        b.post_recv(round as u64).unwrap();
        fabric.a.region.write_at(round * SIZE, bytes).unwrap();
    }
    for round in 0..ROUNDS {
        let piece = fabric.a.region.slice(round * SIZE..(round + 1) * SIZE).unwrap();
        let request = SendRequest::write(round as u64, piece, fabric.b.region.remote().at((round * SIZE) as u64));
        a.post_write(&if round % 3 == 2 {
            request.with_imm((round as u32).to_be_bytes())
        } else {
            request
        })
        .unwrap();
    }
    for number in 0..ROUNDS / 3 {
        let wc = fabric.b.completion();
        let round = 3 * number + 2;
        assert_eq!((wc.wr_id, wc.imm), (number as u64, Some((round as u32).to_be_bytes())));
        for (earlier, expected) in data.iter().enumerate().take(round + 1) {
            assert!(
                fabric.b.region.to_vec(earlier * SIZE, SIZE).unwrap() == *expected,
                "write {earlier} at {round}"
            );
        }
    }
    let ids: Vec<u64> = fabric.a.completions(ROUNDS).iter().map(|wc| wc.wr_id).collect();
    assert!(
        ids.iter().copied().eq(0..ROUNDS as u64),
        "sends complete in posting order: {ids:?}"
    );
}

#[test]
fn a_target_that_never_calls_sees_the_data_in_its_memory() {
    let fabric = Fabric::new(1);
    let (a, _b) = fabric.connected();
    for value in 1..=200_u64 {
        a.post_write(&SendRequest::inline(
            value,
            &value.to_ne_bytes(),
            fabric.b.region.remote().at(64),
        ))
        .unwrap();
        until("the word", || fabric.b.region.load_u64(64).unwrap() == value);
        assert!(fabric.a.completion().is_ok());
    }
}

#[test]
fn both_directions_and_many_queue_pairs_at_once_from_several_threads() {
    let fabric = Fabric::new(2);
    let pairs: Vec<_> = (0..6).map(|_| fabric.connected()).collect();
    let size = 40_000;
    std::thread::scope(|scope| {
        for (number, (a, b)) in pairs.iter().enumerate() {
            let fabric = &fabric;
            for (from, to, qp, seed) in [(&fabric.a, &fabric.b, a, 1), (&fabric.b, &fabric.a, b, 2)] {
                scope.spawn(move || {
                    let source = from.pd.register_owned(size, Access::empty()).unwrap();
                    source.write_at(0, &noise(size, number as u64 * 2 + seed)).unwrap();
                    for wr_id in 0..20 {
                        let at = to.region.remote().at((number * size) as u64);
                        qp.post_write(&SendRequest::write(wr_id, (&source).into(), at)).unwrap();
                    }
                });
            }
        }
        for host in [&fabric.a, &fabric.b] {
            scope.spawn(|| assert!(host.completions(6 * 20).iter().all(WorkCompletion::is_ok)));
        }
    });
    for number in 0..pairs.len() {
        for (host, seed) in [(&fabric.b, 1), (&fabric.a, 2)] {
            let got = host.region.to_vec(number * size, size).unwrap();
            assert!(got == noise(size, number as u64 * 2 + seed), "pair {number}");
        }
    }
}

#[test]
fn an_aligned_word_is_never_seen_in_halves() {
    let fabric = Fabric::new(1);
    let (a, _b) = fabric.connected();
    let words = [0x1111_1111_1111_1111_u64, 0x2222_2222_2222_2222];
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            until("the end", || {
                let word = fabric.b.region.load_u64(0).unwrap();
                assert!(word == 0 || word == u64::MAX || words.contains(&word), "{word:#x}");
                word == u64::MAX
            });
        });
        for round in 0..500 {
            a.post_write(&SendRequest::inline(
                0,
                &words[round % 2].to_ne_bytes(),
                fabric.b.region.remote(),
            ))
            .unwrap();
            assert!(fabric.a.completion().is_ok());
        }
        a.post_write(&SendRequest::inline(
            0,
            &u64::MAX.to_ne_bytes(),
            fabric.b.region.remote(),
        ))
        .unwrap();
        assert!(fabric.a.completion().is_ok());
        watcher.join().unwrap();
    });
}

#[test]
fn a_queue_pair_may_be_destroyed_right_after_its_last_receive() {
    for _ in 0..20 {
        let fabric = Fabric::new(1);
        let (a, b) = fabric.connected();
        b.post_recv(1).unwrap();
        a.post_write(&SendRequest::inline(1, b"last words", fabric.b.region.remote()).with_imm([0; 4]))
            .unwrap();
        assert!(fabric.b.completion().is_ok());
        drop(b);
        let wc = fabric.a.completion();
        assert!(wc.is_ok(), "the acknowledgement that was owed went out: {wc:?}");
    }
}

#[test]
fn a_plane_that_goes_and_comes_back_costs_no_error() {
    let fabric = Fabric::new(3);
    let (a, _b) = fabric.connected();
    let data = noise(200_000, 3);
    fabric.a.region.write_at(0, &data).unwrap();
    for round in 0..30 {
        if round % 10 == 3 {
            fabric.links[round / 10].set_up(false);
        }
        if round % 10 == 7 {
            fabric.links[round / 10].set_up(true);
        }
        let piece = fabric.a.region.slice(0..data.len()).unwrap();
        a.post_write(&SendRequest::write(round as u64, piece, fabric.b.region.remote()))
            .unwrap();
        assert!(fabric.a.completion().is_ok(), "round {round}");
    }
    assert_eq!(fabric.b.region.to_vec(0, data.len()).unwrap(), data);
}

// protocol.md §10.6: acknowledgements open the window that all share, and not only for whom they acknowledge.
#[test]
fn queue_pairs_that_share_a_small_window_share_it_evenly() {
    const WRITES: u64 = 40;
    const LEN: usize = 1 << 18;
    let narrow = EngineConfig {
        window_packets: 8,
        ..config(1)
    };
    let fabric = Fabric::with_configs(1, 9000, [narrow, config(2)]);
    let qps: Vec<_> = (0..4).map(|_| fabric.connected()).collect();
    let piece = fabric.a.region.slice(0..LEN).unwrap();
    // The first has the whole window before the others begin.
    for (number, (qp, _)) in (0..).zip(&qps) {
        for _ in 0..WRITES {
            qp.post_write(&SendRequest::write(number, piece, fabric.b.region.remote()))
                .unwrap();
        }
    }
    let mut done = [0; 4];
    while done[0] < WRITES {
        let wc = fabric.a.completion();
        assert!(wc.is_ok(), "{wc:?}");
        done[wc.wr_id as usize] += 1;
    }
    assert!(done.iter().all(|writes| *writes > WRITES / 4), "{done:?}");
}
