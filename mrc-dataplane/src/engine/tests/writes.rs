//! Writes that succeed.

use mrc_wire::Pmtu;

use super::super::start::{Plumbing, launch};
use super::*;
use crate::port::Fate;

/// Writes every size once and checks what arrives.
fn sizes_arrive(choice: &Choice, sizes: &[usize]) -> Rig {
    let mut rig = Rig::new(choice);
    let target = rig.b.target();
    for (id, &len) in sizes.iter().enumerate() {
        let id = id as u64;
        let bytes = pattern(id + 1, len);
        rig.a.memory.write(0, &bytes);
        rig.b.memory.write(0, &vec![0xee; choice.memory]);
        rig.a.write(id, &target, 0, len);
        let done = rig.a.completion();
        assert_eq!(
            (done.wr_id, done.status, done.byte_len),
            (id, 0, len as u32),
            "{len} bytes: {done:?}"
        );
        assert_eq!(done.src_qp, rig.b.qpn.get());
        assert!(rig.b.memory.read(0, len) == bytes, "{len} bytes arrived otherwise");
        let behind = rig.b.memory.read(len, choice.memory - len);
        assert!(
            behind.iter().all(|&byte| byte == 0xee),
            "{len} bytes: something was written behind them"
        );
    }
    rig
}

#[test]
fn every_size_around_the_pmtu_arrives_over_both_families() {
    for ipv6 in [false, true] {
        for pmtu in Pmtu::ALL {
            let full = pmtu.bytes();
            let sizes = [
                0,
                1,
                full - 1,
                full,
                full + 1,
                2 * full - 1,
                2 * full,
                2 * full + 1,
                50_003,
            ];
            sizes_arrive(
                &Choice {
                    ipv6,
                    pmtu,
                    planes: 2,
                    memory: 1 << 16,
                    ..Choice::default()
                },
                &sizes,
            );
        }
    }
}

#[test]
fn a_long_message_uses_all_planes_alike() {
    let memory = 8 << 20;
    let rig = sizes_arrive(
        &Choice {
            planes: 4,
            memory,
            ..Choice::default()
        },
        &[memory],
    );
    let counters = rig.a.engine.counters();
    for port in &counters.ports {
        let share = port.tx_data_bytes as f64 / memory as f64;
        assert!(
            (0.22..0.28).contains(&share),
            "{} carried {share} of the data",
            port.name
        );
    }
    assert_eq!(rig.b.engine.counters().drops, []);
}

#[test]
fn loss_repetition_and_reordering_change_nothing() {
    let choice = Choice {
        planes: 3,
        memory: 4 << 20,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    for (number, link) in rig.links.iter().enumerate() {
        for end in 0..2 {
            let mut count = number * 7 + end * 3;
            link.judge(end, move |_| {
                count += 1;
                match count % 100 {
                    17 => Fate::Drop,
                    31 => Fate::Twice,
                    50 | 77 => Fate::Late,
                    _ => Fate::Deliver,
                }
            });
        }
    }
    let bytes = pattern(3, choice.memory);
    rig.a.memory.write(0, &bytes);
    let target = rig.b.target();
    let piece = 64 << 10;
    for (id, offset) in (0..choice.memory).step_by(piece).enumerate() {
        rig.a.write(id as u64, &target, offset, piece);
    }
    for id in 0..choice.memory / piece {
        let done = rig.a.completion();
        assert_eq!((done.wr_id, done.status), (id as u64, 0));
    }
    assert!(rig.b.memory.read(0, choice.memory) == bytes);
    assert!(rig.a.engine.counters().retransmissions() > 0);
}

#[test]
fn both_directions_at_once() {
    let choice = Choice {
        planes: 2,
        memory: 2 << 20,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    let half = choice.memory / 2;
    let (first, second) = (pattern(1, half), pattern(2, half));
    rig.a.memory.write(0, &first);
    rig.b.memory.write(half, &second);
    let (to_a, to_b) = (rig.a.target(), rig.b.target());
    rig.a.write(1, &to_b, 0, half);
    rig.b.write(2, &to_a, half, half);
    assert_eq!(rig.a.completion().status, 0);
    assert_eq!(rig.b.completion().status, 0);
    assert!(rig.b.memory.read(0, half) == first);
    assert!(rig.a.memory.read(half, half) == second);
}

#[test]
fn immediates_arrive_in_order_after_their_data_while_packets_overtake() {
    const COUNT: u64 = 200;
    let choice = Choice {
        planes: 3,
        depth: 256,
        cq_depth: 1024,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    for link in &rig.links {
        let mut count = 0;
        link.judge(0, move |_| {
            count += 1;
            if count % 3 == 0 { Fate::Late } else { Fate::Deliver }
        });
    }
    let target = rig.b.target();
    let len = 5000;
    for id in 0..COUNT {
        rig.b.post_recv(1000 + id);
    }
    for id in 0..COUNT {
        let offset = id as usize * len;
        rig.a.memory.write(offset, &pattern(id + 1, len));
        let entry = SendEntry {
            wr_id: id,
            remote_addr: target.0 + offset as u64,
            rkey: target.1,
            opcode: SendEntry::WRITE_WITH_IMM,
            flags: SendEntry::SIGNALED | if id % 2 == 0 { SendEntry::SOLICITED } else { 0 },
            imm: (id as u32).to_be_bytes(),
            ..SendEntry::default()
        };
        rig.a.post(entry, offset, len);
    }
    for id in 0..COUNT {
        let got = rig.b.completion();
        assert_eq!((got.wr_id, got.status, got.byte_len), (1000 + id, 0, len as u32));
        assert_eq!(got.imm, (id as u32).to_be_bytes());
        assert_eq!(got.opcode, CompletionEntry::RECV_RDMA_WITH_IMM);
        assert_eq!(got.solicited, u8::from(id % 2 == 0));
        assert!(
            rig.b.memory.read(id as usize * len, len) == pattern(id + 1, len),
            "immediate {id} before its data"
        );
    }
    for id in 0..COUNT {
        assert_eq!(rig.a.completion().wr_id, id);
    }
}

#[test]
fn inline_data_and_several_pieces_are_gathered() {
    let mut rig = Rig::new(&Choice::default());
    let target = rig.b.target();
    let entry = SendEntry {
        remote_addr: target.0,
        rkey: target.1,
        flags: SendEntry::SIGNALED,
        ..SendEntry::default()
    };
    rig.a
        .rings
        .send
        .push(SendEntry { wr_id: 1, ..entry }, SendData::Inline(b"inline data"))
        .unwrap();
    let bytes = pattern(9, 20_000);
    rig.a.memory.write(0, &bytes);
    let piece = |offset: u64, length| Sge {
        addr: rig.a.memory.addr() + offset,
        length,
        lkey: rig.a.lkey,
    };
    let pieces = [piece(10_000, 6001), piece(5, 0), piece(0, 4097), piece(19_999, 1)];
    let gathered = SendEntry {
        wr_id: 2,
        remote_addr: target.0 + 100,
        ..entry
    };
    rig.a.rings.send.push(gathered, SendData::Sges(&pieces)).unwrap();
    rig.a.rings.send.publish();
    rig.a.rings.doorbell.ring();
    assert_eq!((rig.a.completion().wr_id, rig.a.completion().wr_id), (1, 2));
    assert_eq!(rig.b.memory.read(0, 11), b"inline data");
    let expected = [&bytes[10_000..16_001], &bytes[..4097], &bytes[19_999..]].concat();
    assert!(rig.b.memory.read(100, expected.len()) == expected);
}

#[test]
fn unsignaled_writes_free_their_slots_without_completions() {
    let choice = Choice {
        depth: 4,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    let target = rig.b.target();
    for id in 0..50 {
        let entry = SendEntry {
            wr_id: id,
            remote_addr: target.0,
            rkey: target.1,
            ..SendEntry::default()
        };
        wait_for("a free slot", || (rig.a.rings.send.outstanding() < 4).then_some(()));
        rig.a.post(entry, 0, 100);
    }
    wait_for("the last one to end", || {
        (rig.a.rings.send.outstanding() == 0).then_some(())
    });
    assert_eq!(rig.a.completions.pop(), Ok(None));
}

#[test]
fn many_queue_pairs_share_the_window_to_one_peer() {
    const PAIRS: usize = 40;
    let choice = Choice {
        memory: PAIRS << 16,
        cq_depth: 4096,
        ..Choice::default()
    };
    let mut rig = Rig::new(&choice);
    let bytes = pattern(5, choice.memory);
    rig.a.memory.write(0, &bytes);
    let target = rig.b.target();
    let mut senders = Vec::new();
    for number in 0..PAIRS {
        let create = |end: &End| create_qp(&end.engine, CreateQp::new(end.pd, end.cq, end.cq, 16));
        let ((at_a, mut rings), (at_b, _)) = (create(&rig.a), create(&rig.b));
        for (end, own, peer, remote) in [(&rig.a, at_a, at_b, rig.b.address), (&rig.b, at_b, at_a, rig.a.address)] {
            for change in steps(end, peer, remote, &choice) {
                end.engine.command(Command::ModifyQp { qpn: own, change }).unwrap();
            }
        }
        let offset = number << 16;
        let sge = Sge {
            addr: rig.a.memory.addr() + offset as u64,
            length: 1 << 16,
            lkey: rig.a.lkey,
        };
        let entry = SendEntry {
            wr_id: number as u64,
            remote_addr: target.0 + offset as u64,
            rkey: target.1,
            flags: SendEntry::SIGNALED,
            ..SendEntry::default()
        };
        rings.send.push(entry, SendData::Sges(&[sge])).unwrap();
        senders.push(rings);
    }
    for rings in &mut senders {
        rings.send.publish();
        rings.doorbell.ring();
    }
    let mut done: Vec<u64> = (0..PAIRS)
        .map(|_| rig.a.completion())
        .map(|entry| entry.wr_id)
        .collect();
    done.sort_unstable();
    assert_eq!(done, (0..PAIRS as u64).collect::<Vec<_>>());
    assert!(rig.b.memory.read(0, choice.memory) == bytes);
}

#[test]
fn an_application_that_polls_can_run_both_engines_itself() {
    // Engine threads that never look by themselves while somebody else runs them.
    let config = EngineConfig {
        yield_ns: 100_000_000,
        ..EngineConfig::default()
    };
    let mut rig = Rig::new(&Choice {
        config,
        ..Choice::default()
    });
    let target = rig.b.target();
    let bytes = pattern(8, 100_000);
    rig.a.memory.write(0, &bytes);
    rig.a.write(1, &target, 0, bytes.len());
    let done = wait_for("a completion", || {
        rig.a.engine.run_once();
        rig.b.engine.run_once();
        rig.a.completions.pop().unwrap()
    });
    assert_eq!(done.status, 0);
    assert!(rig.b.memory.read(0, bytes.len()) == bytes);
}

/// Two threads a side, each with a port of its own for the one plane; what is sent on a thread's port arrives at the other
/// side's thread of the same number, wherever the queue pair lives.
#[test]
fn frames_for_a_queue_pair_of_another_thread_are_handed_over() {
    let choice = Choice::default();
    let config = EngineConfig {
        threads: 2,
        ..EngineConfig::default()
    };
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let port = PortNum::new(1).unwrap();
    for _ in 0..2 {
        let (a, b, _link) = MemoryPort::pair(port, MemoryPortConfig::default()).unwrap();
        left.push(vec![Box::new(a) as Box<dyn Port>]);
        right.push(vec![Box::new(b) as Box<dyn Port>]);
    }
    let [mut a, mut b] = [(1, left), (2, right)].map(|(number, ports)| {
        let config = EngineConfig {
            address_v4: Some([10, 0, 0, number].into()),
            ..config.clone()
        };
        let next_hops = Arc::new(FixedNextHops::one_peer_each([(port, [2; 6])]));
        let plumbing = Plumbing {
            ports,
            next_hops,
            news: None,
        };
        End::new(launch(config, plumbing).unwrap(), &choice)
    });
    // The first queue pair of an engine lives on thread 0, the second on thread 1.
    let (qpn, rings) = create_qp(&b.engine, CreateQp::new(b.pd, b.cq, b.cq, 64));
    assert_eq!((a.qpn.get() & 1, b.qpn.get() & 1, qpn.get() & 1), (0, 0, 1));
    (b.qpn, b.rings) = (qpn, rings);
    connect(&a, &b, &choice);
    connect(&b, &a, &choice);
    let bytes = pattern(7, choice.memory);
    a.memory.write(0, &bytes);
    let (to_a, to_b) = (a.target(), b.target());
    a.write(1, &to_b, 0, choice.memory);
    assert_eq!(a.completion().status, 0);
    assert!(b.memory.read(0, choice.memory) == bytes);
    b.write(2, &to_a, 0, 100_000);
    assert_eq!(b.completion().status, 0);
    let counters = b.engine.counters();
    assert!(counters.handovers > 256, "{counters:?}");
}

#[test]
fn engines_run_by_hand_do_nothing_by_themselves_and_go_on_when_released() {
    let mut rig = Rig::new(&Choice::default());
    let target = rig.b.target();
    let bytes = pattern(6, 100_000);
    rig.a.memory.write(0, &bytes);
    let (a, b) = (rig.a.engine.clone(), rig.b.engine.clone());
    let mut hands = [a.by_hand(), b.by_hand()];
    let passes = a.counters().passes;
    rig.a.write(1, &target, 0, bytes.len());
    let mut rounds = 0;
    let done = loop {
        // Two engine threads that ran as well would make more passes than these.
        assert_eq!(a.counters().passes, passes + rounds);
        rounds += 1;
        for hand in &mut hands {
            hand.pass(rounds * 10_000);
        }
        if let Some(done) = rig.a.completions.pop().unwrap() {
            break done;
        }
        assert!(rounds < 1000, "no completion: {:?}", a.counters());
    };
    assert_eq!(done.status, 0);
    assert!(rig.b.memory.read(0, bytes.len()) == bytes);
    drop(hands);
    rig.a.write(2, &target, 0, bytes.len());
    assert_eq!(rig.a.completion().status, 0);
}
