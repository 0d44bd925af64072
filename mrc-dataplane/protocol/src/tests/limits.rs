//! Limits of answers: storms are held back, an honest incast is not (protocol.md §14, §6.2 P11, §6.8).

use std::vec::Vec;

use mrc_wire::{Headers, NackReason};

use crate::qpcc::Qpcc;
use crate::testing::*;

fn setup() -> Setup {
    Setup {
        trimming: true,
        sq_depth: 2048,
        region: 8 << 20,
        cc: Qpcc::fixed(2000),
        ..Setup::default()
    }
}

fn nacked(wires: &[Wire]) -> Vec<u32> {
    let nack = |wire: &Wire| match wire.sent.headers {
        Headers::Nack(neth) if neth.reason == NackReason::TRIMMED_LASTHOP => Some(neth.nack_psn.get()),
        _ => None,
    };
    wires.iter().filter_map(nack).collect()
}

/// Hears them in rounds of 64, as engines do, and says what that calls for.
fn cut(b: &mut End, wires: &[Wire]) -> Vec<u32> {
    let cut: Vec<Wire> = wires.iter().map(|wire| wire.clone().trimmed(true)).collect();
    cut.chunks(64).flat_map(|round| nacked(&b.receive_all(round))).collect()
}

// protocol.md §14: a whole window may be cut before the first packet arrives.
#[test]
fn first_window_of_an_incast_is_nacked_packet_by_packet() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 4096 * 1024, 0));
    let sent = a.poll_writes();
    assert_eq!(sent.len(), 1024);
    assert_eq!(cut(&mut b, &sent), (10..10 + 1024).collect::<Vec<_>>());
    assert_eq!(b.qp.stats().answers_suppressed, 0);
}

// protocol.md §14: what arrives pays for what is cut; here 15 of 16, for 200 ms of a link of 10 Gbit/s (40 000 packets).
#[test]
fn incast_that_goes_on_is_answered_as_long_as_something_arrives() {
    let (mut a, mut b) = setup().pair();
    let mut arrived = 0_u64;
    let mut suppressed = 0;
    let mut posted = 0;
    while arrived < 2500 {
        while a.qp.sq_outstanding() < 16 {
            a.post(write(posted, 4096 * 64, 0));
            posted += 1;
        }
        let sent: Vec<Wire> = (0..64).map_while(|_| a.poll()).collect();
        let data: Vec<Wire> = sent.iter().filter(|w| w.sent.bth.opcode.is_write()).cloned().collect();
        let (whole, lost) = data.split_at(data.len().div_ceil(16));
        arrived += whole.len() as u64;
        let cut: Vec<Wire> = lost.iter().map(|wire| wire.clone().trimmed(true)).collect();
        let back = b.receive_all(whole.iter().chain(&cut));
        suppressed += cut.len() - nacked(&back).len();
        for end in [&mut a, &mut b] {
            end.advance(5_000 * 64);
        }
        a.hear(&back);
        a.completions();
    }
    assert_eq!(suppressed, 0);
    assert_eq!(b.qp.stats().answers_suppressed, 0);
    assert_eq!(a.qp.state(), crate::QpState::Rts);
}

// protocol.md §14: but without progress it is a storm: a window of answers, then 1000 per second.
#[test]
fn storm_of_cut_packets_without_progress_is_held_back() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 4096 * 1024, 0));
    let sent = a.poll_writes();
    let mut answers = 0;
    for _ in 0..50 {
        answers += cut(&mut b, &sent).len();
        b.advance(20_000_000);
    }
    // One second.
    assert!((1024 + 900..=1024 + 1000).contains(&answers), "{answers}");
    assert_eq!(b.qp.stats().answers_suppressed, 50 * 1024 - answers as u64);
}

// protocol.md §6.8: one NACK per PSN and 10 us, however many other PSNs come between.
#[test]
fn copies_of_one_cut_packet_are_nacked_once_per_10_us() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 4096 * 32, 0));
    let sent = a.poll_writes();
    assert_eq!(cut(&mut b, &sent).len(), 32);
    assert_eq!(cut(&mut b, &sent), [] as [u32; 0]);
    b.advance(9_999);
    assert_eq!(cut(&mut b, &sent), [] as [u32; 0]);
    b.advance(1);
    assert_eq!(cut(&mut b, &sent).len(), 32);
}

// protocol.md §6.8: on fast links a packet can be cut, sent again and cut again within 10 us. Each copy is NACKed, or the
// requestor would take the second one for being under way until a probe says otherwise.
#[test]
fn copy_that_is_cut_within_10_us_of_the_first_is_nacked_too() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 4096 * 32, 0));
    let mut sent = a.poll_writes();
    for round in 0..4 {
        assert_eq!(sent.len(), 32, "round {round}");
        let cut: Vec<Wire> = sent.iter().map(|wire| wire.clone().trimmed(true)).collect();
        let back = b.receive_all(&cut);
        assert_eq!(nacked(&back).len(), 32, "round {round}");
        for end in [&mut a, &mut b] {
            end.advance(3_000);
        }
        a.hear(&back);
        // One retransmission per round trip (§14).
        a.advance(25_000 * u64::from(round > 0));
        sent = a.poll_writes();
    }
    assert_eq!(b.qp.stats().answers_suppressed, 0);
}

// protocol.md §14 (P29): a new packet earns 16 NACKs, exactly.
#[test]
fn packet_that_arrives_pays_for_sixteen_nacks() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 4096 * 1024, 0));
    let sent = a.poll_writes();
    assert_eq!(cut(&mut b, &sent).len(), 1024);
    assert_eq!(cut(&mut b, &sent[100..200]), [] as [u32; 0]);
    for wire in &sent[..2] {
        b.receive(wire);
        assert_eq!(cut(&mut b, &sent[100..200]).len(), 16);
    }
}
