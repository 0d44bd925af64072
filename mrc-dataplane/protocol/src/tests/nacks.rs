//! NACKs (protocol.md §5.6, Table 7-3; §14).

use std::vec::Vec;

use mrc_wire::{Bth, Headers, NackReason, Neth, Opcode, Tick};

use crate::attr::{PathConfig, RetryAttr};
use crate::path::{EvState, Happening};
use crate::qp::QpState;
use crate::testing::*;
use crate::work::{Disposition, DropReason};

pub(super) fn nack(to: &mut End, about: &Wire, reason: NackReason) -> Disposition {
    let mut wire = about.clone();
    wire.sent.bth = Bth::new(Opcode::Nack, to.qp.qpn(), psn(about.psn()));
    wire.sent.headers = Headers::Nack(Neth {
        reason,
        entropy: about.sent.ev,
        nack_psn: psn(about.psn()),
        tx_timestamp: about.packet().tx_timestamp(),
        ..Neth::default()
    });
    to.receive(&wire)
}

fn flying() -> (End, Vec<Wire>) {
    let retry = RetryAttr {
        timeout: 14,
        linear_cnt: 3,
        exp_cnt: 5,
    };
    let (mut a, _) = Setup {
        retry,
        ..Setup::default()
    }
    .pair();
    a.post(write(1, 4096, 0));
    let sent = a.poll_all();
    a.advance(60_000);
    (a, sent)
}

fn bad_or_skipped(a: &End) -> usize {
    a.qp.ev_states().filter(|view| view.state != EvState::Good).count()
}

/// How often paths met this (protocol.md §8.2).
fn counted(a: &End, what: Happening) -> u64 {
    let cells = a.qp.path_happenings().filter(|(happening, ..)| *happening == what);
    cells.map(|(.., times)| times).sum()
}

#[test]
fn trims_and_out_of_range_are_resent_at_once() {
    for (reason, skipped) in [
        (NackReason::TRIMMED, 1),
        (NackReason::TRIMMED_LASTHOP, 0),
        (NackReason::PSN_OOR_WINDOW, 0),
    ] {
        let (mut a, sent) = flying();
        assert_eq!(nack(&mut a, &sent[0], reason), Disposition::Accepted);
        assert_eq!(a.cc.inflight_packets(), 0);
        assert_eq!(writes(&a.poll_all()), [10]);
        assert_eq!(bad_or_skipped(&a), skipped, "{reason}");
        assert_eq!(counted(&a, Happening::Trimmed), skipped as u64, "{reason}");
        assert_eq!(counted(&a, Happening::Refused), 1 - skipped as u64, "{reason}");
        assert_eq!(a.qp.retries(), 0, "the first one is free");
    }
}

#[test]
fn resource_nacks_are_resent_after_a_delay_that_doubles() {
    for reason in [
        NackReason::NO_BITMAP,
        NackReason::NO_PKT_BUFFER,
        NackReason::NO_RESOURCE,
        NackReason(0x33),
    ] {
        let (mut a, mut sent) = flying();
        let mut delays = Vec::new();
        for _ in 0..6 {
            nack(&mut a, &sent[0], reason);
            assert_eq!(a.poll_all(), []);
            let from = a.now;
            a.wait_for_timeout();
            sent = a.poll_all();
            assert_eq!(writes(&sent), [10]);
            delays.push(a.now.since(from));
            a.advance(60_000);
        }
        for (n, &delay) in delays.iter().enumerate() {
            // No round trip was measured: 50 us.
            assert!(delay.abs_diff(50_000 << n) < 1024, "{reason}: {delays:?}");
        }
        assert_eq!(bad_or_skipped(&a), 0);
    }
}

#[test]
fn repeated_nacks_use_up_the_retry_budget_but_at_most_one_per_timeout() {
    let (mut a, mut sent) = flying();
    let start = a.now;
    while a.qp.state() == QpState::Rts {
        if let Some(write) = sent.iter().find(|w| w.sent.bth.opcode.is_write()) {
            a.advance(60_000);
            nack(&mut a, write, NackReason::NO_RESOURCE);
        } else {
            a.wait_for_timeout();
        }
        sent = a.poll_all();
    }
    assert!(a.now.since(start) >= 7 * 16_777_216, "{}", a.now.since(start));
}

#[test]
fn nack_storm_about_one_psn_resends_once_per_round_trip() {
    let (mut a, mut sent) = flying();
    let start = a.now;
    let mut resent = 0;
    while a.now.since(start) < 1_000_000 {
        if let Some(write) = sent.first() {
            nack(&mut a, write, NackReason::TRIMMED_LASTHOP);
        }
        sent = a.poll_all();
        resent += sent.len();
        a.advance(1_000);
    }
    assert!(
        (30..=41).contains(&resent),
        "{resent} in 1 ms with a base round trip of 25 us"
    );
}

#[test]
fn nacks_about_other_copies_and_other_packets_change_no_packet() {
    let (mut a, sent) = flying();
    let mut stale = sent[0].clone();
    let Headers::Write { tseth: Some(tseth), .. } = &mut stale.sent.headers else {
        panic!()
    };
    tseth.tx_timestamp = Tick(tseth.tx_timestamp.0 - 1);
    assert_eq!(nack(&mut a, &stale, NackReason::TRIMMED), Disposition::Accepted);
    assert_eq!(a.poll_all(), [], "not resent");
    assert_eq!(bad_or_skipped(&a), 1, "but the path is congested");
    for n in [9, 11, 1000] {
        let mut other = sent[0].clone();
        other.sent.bth.psn = psn(n);
        assert_eq!(
            nack(&mut a, &other, NackReason::TRIMMED),
            Disposition::Dropped(DropReason::NotOutstanding)
        );
    }
    nack(&mut a, &sent[0], NackReason::NO_RESOURCE);
    let again = nack(&mut a, &sent[0], NackReason::NO_RESOURCE);
    assert_eq!(
        again,
        Disposition::Dropped(DropReason::NotOutstanding),
        "already queued"
    );
    // Copies that differ are dropped (wire-format.md §8).
    let mut wire = sent[0].clone();
    wire.sent.headers = Headers::Nack(Neth {
        nack_psn: psn(11),
        ..Neth::default()
    });
    assert_eq!(a.receive(&wire), Disposition::Dropped(DropReason::Implausible));
}

#[test]
fn delayed_packet_that_arrives_after_all_is_not_sent_again() {
    let (mut a, sent) = flying();
    let (_, mut b) = Setup::default().pair();
    nack(&mut a, &sent[0], NackReason::NO_RESOURCE);
    let back = b.receive_all(&sent);
    a.hear(&back);
    assert_eq!(a.completions().len(), 1);
    a.advance(10_000_000);
    assert_eq!((a.poll_all(), a.qp.next_timeout()), (Vec::new(), None));
}

/// §5.6: the copy after a NACK takes another path, even where the turn is that of the one it was refused on.
#[test]
fn refused_packet_goes_again_on_another_path() {
    let (mut a, _) = Setup {
        path: PathConfig {
            active: Some(2),
            ..PathConfig::explicit(evs(1, 2))
        },
        ..Setup::default()
    }
    .pair();
    for round in 0..8 {
        a.post(write(round, 2 * 4096, 0));
        let sent = a.poll_writes();
        assert_eq!(sent.len(), 2);
        assert_eq!(
            nack(&mut a, &sent[0], NackReason::PSN_OOR_WINDOW),
            Disposition::Accepted
        );
        let again = a.poll_writes();
        assert_eq!(writes(&again), [sent[0].psn()]);
        assert_ne!(again[0].sent.ev, sent[0].sent.ev);
    }
}

/// P7: the delay doubles up to T0, so that a shortage that is over costs no more than a timeout.
#[test]
fn delay_after_resource_nacks_ends_at_the_local_ack_timeout() {
    let (mut a, mut sent) = flying();
    let mut last = 0;
    for _ in 0..12 {
        nack(&mut a, &sent[0], NackReason::NO_RESOURCE);
        let from = a.now;
        a.wait_for_timeout();
        sent = a.poll_writes();
        assert_eq!(writes(&sent), [10]);
        last = a.now.since(from);
        a.advance(60_000);
    }
    assert!(last.abs_diff(1024 << 14) < 1024, "{last}");
}
