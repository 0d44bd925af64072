use std::vec;
use std::vec::Vec;

use mrc_wire::{Opcode, Pmtu};

use crate::qp::QpState;
use crate::testing::*;
use crate::work::Queue;
use crate::work::Status;

#[test]
fn writes_of_all_sizes_arrive_and_complete_in_order() {
    let (mut a, mut b) = Setup {
        region: 1 << 21,
        ..Setup::default()
    }
    .pair();
    let sizes = [0, 1, 4095, 4096, 4097, 8191, 8192, 8193, (1 << 20) + 3];
    let mut offset = 0;
    let mut places = Vec::new();
    for (n, &len) in sizes.iter().enumerate() {
        a.post(write(n as u64, len, offset));
        places.push(offset as usize);
        offset += u64::from(len) + 1;
    }
    talk(&mut a, &mut b);
    let done = a.completions();
    assert_eq!(
        done.iter().map(|c| c.wr_id).collect::<Vec<_>>(),
        (0..sizes.len() as u64).collect::<Vec<_>>()
    );
    assert!(
        done.iter()
            .all(|c| c.status == Status::Success && c.queue == Queue::Send && c.signaled)
    );
    for (n, &place) in places.iter().enumerate() {
        let len = sizes[n] as usize;
        assert_eq!(b.region.bytes[place..place + len], a.sources[n], "size {len}");
        assert_eq!(b.region.bytes[place + len], 0, "nothing behind");
    }
    assert_eq!(a.cc.inflight_bytes(), 0);
    assert_eq!(a.cc.inflight_packets(), 0);
    assert_eq!(a.qp.next_timeout(), None, "nothing left to wait for");
    assert_eq!(b.qp.next_timeout(), None);
    assert_eq!(a.qp.stats().packets_retransmitted, 0);
}

#[test]
fn psns_wrap() {
    for first_psn in [0xff_ffff, 0xff_fff0, 0, 0x7f_ffff, 0x80_0000] {
        let setup = Setup {
            first_psn,
            pmtu: Pmtu::B256,
            ..Setup::default()
        };
        let (mut a, mut b) = setup.pair();
        a.post(write(1, 256 * 3000, 0));
        talk(&mut a, &mut b);
        assert_eq!(a.completions().len(), 1);
        assert_eq!(b.region.bytes[..256 * 3000], a.sources[0]);
    }
}

#[test]
fn first_middle_and_last_packets_follow_the_table() {
    let (mut a, _) = Setup::default().pair();
    a.post(write(1, 4096 * 2 + 5, 0));
    a.post(write(2, 0, 0));
    let sent = a.poll_all();
    let opcodes: Vec<_> = sent.iter().map(|w| w.sent.bth.opcode).collect();
    assert_eq!(
        opcodes,
        vec![
            Opcode::WriteFirst,
            Opcode::WriteMiddle,
            Opcode::WriteLast,
            Opcode::WriteOnly
        ]
    );
    assert_eq!(sent.iter().map(|w| w.sent.bth.pad).collect::<Vec<_>>(), [0, 0, 3, 0]);
}

/// protocol.md §6.7: a write that asked gets its Transport ACK too, not only the last one of a message.
#[test]
fn transport_ack_follows_a_write_that_asked_in_the_middle_of_a_message() {
    for asks in [false, true] {
        let (mut a, mut b) = Setup::default().pair();
        a.post(write(1, 3 * 4096, 0));
        let mut sent = a.poll_all();
        sent[0].sent.bth.a = asks;
        let acks = b
            .receive_all(&sent[..1])
            .iter()
            .filter(|wire| wire.sent.bth.opcode == Opcode::Ack)
            .count();
        assert_eq!(acks, usize::from(asks));
    }
}

/// protocol.md §6.3 step 3: the last packet of a message is never empty.
#[test]
fn empty_last_packet_is_an_invalid_request() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 2 * 4096, 0));
    let sent = a.poll_all();
    b.receive(&Wire::forged(sent[1].sent, 0));
    assert_eq!(b.qp.state(), QpState::Err);
}
