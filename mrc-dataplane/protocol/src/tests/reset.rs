//! A queue pair after RESET is as good as a new one (protocol.md §2.2).

use std::vec::Vec;

use mrc_wire::{Headers, PathVerdict};

use crate::path::EvState;
use crate::qp::{Qp, QpState};
use crate::testing::*;
use crate::time::Stall;

fn setup() -> Setup {
    Setup {
        trimming: true,
        dynamic_mpr: true,
        mpr: 4,
        max_wimm: 2,
        sq_depth: 512,
        ..Setup::default()
    }
}

/// Leaves traces in every part of both: holes, immediates that wait, suspicions, timeouts, spurious losses, verdicts, stalls,
/// penalties, answers that were not sent.
fn live(a: &mut End, b: &mut End) {
    for n in 0..4 {
        b.qp.handle_recv(n).unwrap();
    }
    a.post(write(1, 4096 * 40, 0));
    let sent = a.poll_all();
    a.advance(3_000_000);
    b.qp.handle_pressure(95, 100);
    let mut back = b.receive_all(sent.iter().skip(1));
    for wire in &mut back {
        if let Headers::Sack(seth, _) = &mut wire.sent.headers {
            seth.m = PathVerdict::AlwaysSkip;
        }
    }
    a.hear(&back);
    a.wait_for_loss();
    a.poll_all();
    a.hear(&b.receive_all(&sent[..1]));
    a.completions();
    // In the middle of something, at both ends.
    a.post(write(2, 4096, 0));
    for n in 0..2 {
        a.post(write_imm(3 + n, 5, 0, [7; 4]));
    }
    a.post(write(5, 4096 * 300, 0));
    b.post(write(6, 4096 * 3, 0));
    let sent = a.poll_all();
    b.poll_all();
    b.qp.handle_window(2).unwrap();
    b.hear(sent.iter().skip(1).filter(|wire| wire.psn() % 7 != 0));
    b.receive(&sent[2].clone().marked());
    b.receive(&sent[4].clone().trimmed(false));
    let now = a.now;
    a.cx(|qp, cx| {
        cx.stall = Some(Stall {
            from: now,
            to: now + 100_000_000,
        });
        qp.handle_error(cx);
    });
    a.events();
}

/// A transfer with a loss in it: all that either side sends, and what the paths are like in the end.
fn trace(a: &mut End, b: &mut End) -> Vec<(u32, Headers)> {
    for n in 0..3 {
        b.qp.handle_recv(n).unwrap();
    }
    a.post(write_imm(1, 4096 * 70, 0, [1; 4]));
    a.post(write(2, 4096 * 3, 0));
    let mut seen = Vec::new();
    let mut note = |wires: &[Wire]| seen.extend(wires.iter().map(|w| (w.psn(), w.sent.headers)));
    for round in 0..6 {
        let sent = a.poll_all();
        note(&sent);
        let back = b.receive_all(sent.iter().filter(|wire| round > 0 || wire.psn() != 12));
        note(&back);
        a.hear(&back);
        for end in [&mut *a, &mut *b] {
            end.advance(200_000);
        }
    }
    assert_eq!((a.completions().len(), b.completions().len()), (2, 1));
    assert!(a.qp.ev_states().all(|view| view.state != EvState::Denied));
    seen
}

fn connect(end: &mut End, peer: u32) {
    let (init, rtr, rts) = setup().attrs(peer);
    end.qp.handle_init(&init).unwrap();
    end.qp.handle_rtr(&rtr, end.now).unwrap();
    end.qp.handle_rts(&rts, end.now).unwrap();
}

// protocol.md §2.2: all state discarded, without completions; then Tables 7-4 and 7-5.
#[test]
fn transfer_after_a_reset_is_that_of_new_queue_pairs() {
    let (mut a, mut b) = setup().pair();
    live(&mut a, &mut b);
    for (end, peer) in [(&mut a, 0xb), (&mut b, 0xa)] {
        end.cx(Qp::handle_reset);
        assert_eq!(end.qp.state(), QpState::Reset);
        assert_eq!((end.completions(), end.events()), (Vec::new(), Vec::new()));
        assert_eq!((end.poll_all(), end.qp.next_timeout()), (Vec::new(), None));
        assert_eq!(end.cc.inflight_packets(), 0);
        assert!(end.qp.ev_states().all(|view| view.state == EvState::Good));
        assert_eq!((end.qp.retries(), end.qp.rtt_ns()), (0, (0, 0)));
        end.now = end.now.max(crate::Instant::from_ns(3_000_000_000));
        end.cc = setup().cc;
        connect(end, peer);
    }
    let (mut c, mut d) = setup().pair();
    for end in [&mut c, &mut d] {
        end.now = crate::Instant::from_ns(3_000_000_000);
        end.cx(Qp::handle_timeout);
    }
    assert_eq!(a.now, c.now);
    let (again, fresh) = (trace(&mut a, &mut b), trace(&mut c, &mut d));
    // Which paths they take is drawn, and ids of probes go on; what is said of packets is the same.
    let plain = |trace: Vec<(u32, Headers)>| -> Vec<(u32, Headers)> {
        let blind = |(psn, mut headers)| {
            match &mut headers {
                Headers::Sack(seth, _) => {
                    seth.entropy = mrc_wire::Ev(0);
                    if seth.pr {
                        seth.ack_psn_offset_or_probe_id = 0;
                    }
                }
                Headers::Nack(neth) => neth.entropy = mrc_wire::Ev(0),
                Headers::Probe(peth) => peth.probe_id = 0,
                _ => {}
            }
            (psn, headers)
        };
        trace.into_iter().map(blind).collect()
    };
    let (again, fresh) = (plain(again), plain(fresh));
    for (again, fresh) in again.iter().zip(&fresh) {
        assert_eq!(again, fresh);
    }
    assert_eq!(again.len(), fresh.len());
}

// protocol.md §2.2: a queue pair that lingered may be used again.
#[test]
fn lingering_ends_with_a_reset() {
    let (mut a, mut b) = setup().pair();
    b.cx(Qp::handle_linger);
    b.cx(Qp::handle_reset);
    connect(&mut b, 0xa);
    a.post(write(1, 4096, 0));
    talk(&mut a, &mut b);
    assert_eq!(a.completions().len(), 1);
}
