//! The responder's window, fixed and changing, at both ends (protocol.md §5.3 rule 3, §5.4, §6.2).

use std::vec::Vec;

use mrc_wire::{Headers, NackReason, PortSet};

use crate::qp::QpState;
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::work::{Disposition, DropReason, Shortage, StateError};

fn setup() -> Setup {
    Setup {
        mpr: 4,
        dynamic_mpr: true,
        sq_depth: 1024,
        cc: Qpcc::fixed(2000),
        ..Setup::default()
    }
}

/// A pair whose responder announced 4 * 128 PSNs, and `count` packets of one byte from PSN 10 on.
fn flying(count: u32) -> (End, End, Vec<Wire>) {
    let (mut a, b) = setup().pair();
    for n in 0..u64::from(count) {
        a.post(write(n, 1, n));
    }
    let sent = a.poll_writes();
    (a, b, sent)
}

fn reasons(wires: &[Wire]) -> Vec<(u32, NackReason)> {
    let nack = |wire: &Wire| match wire.sent.headers {
        Headers::Nack(neth) => Some((neth.nack_psn.get(), neth.reason)),
        _ => None,
    };
    wires.iter().filter_map(nack).collect()
}

/// A SACK that a responder with this window would send.
fn sack_with(to: &mut End, mut wire: Wire, mpr: u8, cack: u32, rcvd: u32) {
    let Headers::Sack(seth, Some(state)) = &mut wire.sent.headers else {
        panic!("no SACK")
    };
    wire.sent.bth.psn = psn(cack);
    seth.cack_psn = psn(cack);
    seth.mpr = mpr;
    seth.sack_bitmap = 0;
    seth.ack_psn_offset_or_probe_id = 0;
    state.rcvd_bytes = rcvd;
    assert_eq!(to.receive(&wire), Disposition::Accepted);
}

// protocol.md §6.2: in the window when d < W, with d counted from ePSN; one more is out. At every place of the window, and
// across the seam of the PSN space.
#[test]
fn last_psn_of_the_window_is_taken_and_the_next_one_is_not() {
    for (first_psn, mpr) in [(10, 1), (10, 4), (0xff_ff80, 1), (0xff_fffe, 2)] {
        let setup = Setup {
            mpr,
            first_psn,
            ..setup()
        };
        // A requestor with a larger window than the responder offered: a peer that breaks the rules.
        let wide = Setup {
            mpr: 8,
            ..setup.clone()
        };
        let (mut a, _) = wide.pair();
        let (_, mut b) = setup.pair();
        let window = u32::from(mpr) * 128;
        for n in 0..u64::from(window) + 2 {
            a.post(write(n, 1, n));
        }
        let sent = a.poll_writes();
        let dropped = Disposition::Dropped(DropReason::OutOfWindow);
        assert_eq!(b.receive(&sent[window as usize]), dropped);
        assert_eq!(b.region.placed, 0);
        assert_eq!(b.receive(&sent[window as usize - 1]), Disposition::Accepted);
        assert_eq!(b.region.placed, 1, "the last one inside");
        // The window moves with ePSN: by one packet, one more place.
        assert_eq!(b.receive(&sent[0]), Disposition::Accepted);
        assert_eq!(b.receive(&sent[window as usize + 1]), dropped);
        assert_eq!(b.receive(&sent[window as usize]), Disposition::Accepted);
        assert_eq!(b.region.placed, 3);
    }
}

// protocol.md §5.3 rule 3 at the other end: exactly as many as the window holds, the last one with `a`.
#[test]
fn requestor_fills_the_window_and_stops() {
    let (_, _, sent) = flying(600);
    assert_eq!(writes(&sent), (10..10 + 512).collect::<Vec<_>>());
    assert!(sent.last().unwrap().sent.bth.a);
}

// protocol.md §5.4: without the feature SACK.mpr is ignored; of SACKs that are equally new the last one counts.
#[test]
fn window_that_was_not_agreed_on_does_not_change() {
    for (dynamic_mpr, mprs, last) in [
        (false, &[1][..], 522),
        (true, &[1], 521),
        (true, &[1, 2], 521),
        (true, &[1, 4], 522),
    ] {
        let setup = Setup { dynamic_mpr, ..setup() };
        let (mut a, mut b) = setup.pair();
        for n in 0..600 {
            a.post(write(n, 1, n));
        }
        let sent = a.poll_writes();
        assert_eq!(sent.len(), 512);
        let back = b.receive_all(&sent[..1]);
        let sack = back.iter().find(|wire| matches!(wire.sent.headers, Headers::Sack(..)));
        for &mpr in mprs {
            sack_with(&mut a, sack.unwrap().clone(), mpr, 10, 5);
        }
        // One more, where the window is as large as before.
        a.poll_writes();
        assert_eq!(a.qp.next_psn(), psn(last + 1), "{dynamic_mpr} {mprs:?}");
    }
}

// protocol.md §2.1: both must agree. SACK.mpr is 0 without (§5.4).
#[test]
fn window_is_fixed_unless_both_agreed() {
    let (mut a, mut b) = Setup::default().pair();
    assert_eq!(b.qp.handle_window(2), Err(StateError::FixedWindow));
    a.post(write(1, 1, 0));
    let sent = a.poll_all();
    let back = b.receive_all(&sent);
    assert_eq!(sacks(&back)[0].1.mpr, 0);
    // A responder that speaks of it all the same is not believed.
    for n in 0..1000 {
        a.post(write(n, 1, 0));
        if n >= 60 {
            break;
        }
    }
    a.hear(&back);
    let sent = a.poll_writes();
    let more = b.receive_all(&sent);
    let sack = more.iter().find(|wire| matches!(wire.sent.headers, Headers::Sack(..)));
    sack_with(&mut a, sack.unwrap().clone(), 1, 10, 5);
    assert_eq!(a.qp.stats().sacks_received, 2);
}

#[test]
fn window_changes_within_the_limits_of_creation_and_in_live_states_only() {
    let (_, mut b) = setup().pair();
    for mpr in [0, 5] {
        let refused = b.qp.handle_window(mpr);
        assert!(matches!(refused, Err(StateError::Limit { max: 4, .. })), "{refused:?}");
    }
    assert_eq!(b.qp.handle_window(1), Ok(()));
    b.cx(crate::Qp::handle_error);
    let err = StateError::Transition(QpState::Err, QpState::Err);
    assert_eq!(b.qp.handle_window(1), Err(err));
}

// protocol.md §5.4, §6.5: the next SACK says it; growth counts at once.
#[test]
fn growth_lets_the_requestor_go_on_at_once() {
    let (mut a, mut b, sent) = flying(600);
    b.qp.handle_window(1).unwrap();
    // PSN 10 is missing: the window stays where it is.
    let back = b.receive_all(&sent[1..100]);
    assert!(sacks(&back).iter().all(|(_, seth, _)| seth.mpr == 1));
    a.hear(&back);
    assert_eq!(writes(&a.poll_all()), [] as [u32; 0], "512 had been sent");
    b.qp.handle_window(4).unwrap();
    let back = b.receive_all(&sent[..1]);
    assert_eq!(sacks(&back)[0].1.mpr, 4);
    a.hear(&back);
    assert_eq!(writes(&a.poll_all()).len(), 88, "600 in all");
}

// protocol.md §5.4: after a shrink nothing beyond it, new or repeated, until cack_psn moves; what is out stays out.
#[test]
fn shrink_holds_back_new_packets_and_retransmissions() {
    let (mut a, mut b, sent) = flying(512);
    b.qp.handle_window(1).unwrap();
    a.post(write(1000, 1, 0));
    // A SACK for PSN 11: 10 and 12 to 521 are missing.
    let back = b.receive_all(&sent[1..2]);
    let in_flight = a.cc.inflight_packets();
    a.hear(&back);
    assert_eq!(a.cc.inflight_packets(), in_flight - 1, "what is out stays outstanding");
    // A port goes down, and what was on it is taken back. Only what the shrunk window holds comes again: up to 9 + 128.
    a.handle_ports(PortSet::EMPTY.with(port(2)), ALL);
    let again = writes(&a.poll_writes());
    assert!((40..=128).contains(&again.len()), "{again:?}");
    assert!(again.iter().all(|&psn| psn <= 9 + 128), "{again:?}");
    // The front moves on, and with it the window: 10 and 11 are there.
    let back = b.receive_all(&sent[..1]);
    a.hear(&back);
    let next = writes(&a.poll_writes());
    assert!(
        next.iter().all(|psn| (9 + 128 + 1..=11 + 128).contains(psn)),
        "{next:?}"
    );
    // All of it, in the end.
    b.qp.handle_window(4).unwrap();
    let rest: Vec<Wire> = sent[2..].to_vec();
    let back = b.receive_all(&rest);
    a.hear(&back);
    assert_eq!(writes(&a.poll_writes()), [522], "the new one");
}

// protocol.md §5.4: the newest SACK, by cack_psn, then by rcvd_bytes.
#[test]
fn window_of_an_older_sack_is_ignored() {
    let (mut a, mut b, sent) = flying(300);
    let back = b.receive_all(&sent[1..3]);
    let sack = back.iter().find(|wire| matches!(wire.sent.headers, Headers::Sack(..)));
    let sack = sack.unwrap().clone();
    let room = |a: &mut End| {
        a.post(write(2000, 1, 0));
        writes(&a.poll_writes()).len()
    };
    sack_with(&mut a, sack.clone(), 1, 12, 40);
    assert_eq!(room(&mut a), 0, "309 is beyond 12 + 128");
    sack_with(&mut a, sack.clone(), 4, 11, 50);
    assert_eq!(room(&mut a), 0, "an older cack_psn");
    sack_with(&mut a, sack.clone(), 4, 12, 39);
    assert_eq!(room(&mut a), 0, "an older count");
    sack_with(&mut a, sack.clone(), 0, 12, 41);
    assert_eq!(room(&mut a), 0, "0 says nothing");
    sack_with(&mut a, sack.clone(), 4, 12, 41);
    assert_eq!(room(&mut a), 5);
    sack_with(&mut a, sack, 200, 12, 42);
    for n in 0..300 {
        a.post(write(n, 1, 0));
    }
    a.poll_writes();
    assert_eq!(a.qp.next_psn().get(), 12 + 512 + 1, "not beyond the own limit");
}

// protocol.md §6.2, P10: NACK inside what was announced, silence beyond; nothing is placed.
#[test]
fn packet_beyond_a_shrunk_window_is_nacked_and_comes_again() {
    let (mut a, mut b, sent) = flying(512);
    // Received before the shrink: it stays received, and its duplicate is one.
    let _ = b.receive_all(&sent[300..301]);
    b.qp.handle_window(1).unwrap();
    let back = b.receive_all(&sent[127..130]);
    assert_eq!(
        reasons(&back),
        [(138, NackReason::PSN_OOR_WINDOW), (139, NackReason::PSN_OOR_WINDOW)]
    );
    assert_eq!(b.region.placed, 2);
    b.advance(1_000_000);
    let duplicate = b.receive_all(&sent[300..301]);
    assert_eq!((reasons(&duplicate), sacks(&duplicate).len()), (Vec::new(), 1));
    // Trimmed, it is only dropped (§6.3 step 1: in the window).
    let cut = sent[200].clone().trimmed(false);
    assert_eq!(b.receive(&cut), Disposition::Dropped(DropReason::Trimmed));

    // The requestor waits until they are inside; then they go at once.
    a.hear(&back);
    assert_eq!(a.qp.stats().nacks_received, 2);
    assert_eq!(writes(&a.poll_writes()), [] as [u32; 0]);
    let back = b.receive_all(&sent[..2]);
    a.hear(&back);
    assert_eq!(writes(&a.poll_writes()), [138, 139], "11 + 128");
    assert_eq!(a.qp.retries(), 0);
}

// protocol.md §6.2, P10: for want of a buffer nothing else is said than with one.
#[test]
fn packet_beyond_a_shrunk_window_that_finds_no_buffer_is_nacked_as_out_of_the_window() {
    let (_, mut b, sent) = flying(512);
    b.qp.handle_window(1).unwrap();
    let said = b.qp.handle_refused(b.now, &sent[128].packet(), Shortage::PacketBuffer);
    assert_eq!(said, Disposition::Accepted);
    b.qp.end_of_batch(b.now);
    assert_eq!(reasons(&b.poll_all()), [(138, NackReason::PSN_OOR_WINDOW)]);
}

// protocol.md §5.6: a SACK drops the request to resend.
#[test]
fn nacked_packet_that_is_acknowledged_meanwhile_is_not_resent() {
    let (mut a, mut b, sent) = flying(512);
    b.qp.handle_window(1).unwrap();
    let back = b.receive_all(&sent[128..129]);
    a.hear(&back);
    b.qp.handle_window(4).unwrap();
    let back = b.receive_all(&sent);
    a.hear(&back);
    assert_eq!(writes(&a.poll_writes()), [] as [u32; 0]);
    assert_eq!(a.qp.stats().packets_retransmitted, 0);
}

// protocol.md §5.4: everything arrives whatever the window does.
#[test]
fn transfer_survives_a_window_that_changes_all_the_time() {
    let (mut a, mut b) = setup().pair();
    for n in 0..900 {
        a.post(write(n, 4096, n * 64));
    }
    for step in 0_u32..4000 {
        b.qp.handle_window((step * 7 % 4 + 1) as u8).unwrap();
        let there: Vec<Wire> = (0..16).map_while(|_| a.poll()).collect();
        a.advance(10_000);
        b.advance(10_000);
        let back = b.receive_all(&there);
        a.hear(&back);
    }
    assert_eq!(a.completions().len(), 900);
}

// protocol.md §5.4: only SACK.mpr > 0 is a window.
#[test]
fn mpr_zero_leaves_the_window_as_it_is() {
    let (mut a, mut b, sent) = flying(600);
    assert_eq!(sent.len(), 512);
    let back = b.receive_all(&sent[..1]);
    let sack = back
        .into_iter()
        .find(|wire| matches!(wire.sent.headers, Headers::Sack(..)));
    sack_with(&mut a, sack.unwrap(), 0, 10, 5);
    a.qp.end_of_batch(a.now);
    assert_eq!(writes(&a.poll_writes()), [522]);
}
