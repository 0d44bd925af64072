//! A peer that lies: what it says is believed as far as it concerns the peer itself, and never further (protocol.md §14).

use std::vec;
use std::vec::Vec;

use mrc_wire::{Aeth, Bth, CcState, Ev, Headers, NackReason, Neth, Opcode, PathVerdict, Psn, Seth, Tick};

use crate::attr::RetryAttr;
use crate::path::EvState;
use crate::qp::QpState;
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::work::{Disposition, DropReason, Queue, Status, Transmit};

fn says(to: &End, opcode: Opcode, about: Psn, headers: Headers) -> Wire {
    let sent = Transmit {
        bth: Bth::new(opcode, to.qp.qpn(), about),
        headers,
        ev: Ev(0x1000),
        path: 0,
        port: port(1),
        class: mrc_wire::TrafficClass::Control,
        ect: false,
        payload: None,
        is_retransmission: false,
    };
    Wire::forged(sent, 0)
}

fn sack(to: &mut End, seth: Seth, state: CcState) -> Disposition {
    let wire = says(to, Opcode::Sack, seth.cack_psn, Headers::Sack(seth, Some(state)));
    let done = to.receive(&wire);
    to.qp.end_of_batch(to.now);
    done
}

fn ack(to: &mut End, about: Psn, syndrome: u8, msn: u32) -> Disposition {
    let wire = says(to, Opcode::Ack, about, Headers::Ack(Aeth { syndrome, msn }));
    to.receive(&wire)
}

fn nack(to: &mut End, about: Psn, reason: NackReason, tx_timestamp: Tick) -> Disposition {
    let neth = Neth {
        reason,
        nack_psn: about,
        tx_timestamp,
        ..Neth::default()
    };
    let wire = says(to, Opcode::Nack, about, Headers::Nack(neth));
    to.receive(&wire)
}

/// 64 PSNs from `base` on were received, it says; everything up to `cack`, too.
fn shows(cack: u32, base: u32, bitmap: u64) -> Seth {
    Seth {
        cack_psn: psn(cack),
        sack_offset: psn(base).diff(psn(cack)) as i16,
        sack_bitmap: bitmap,
        ..Seth::default()
    }
}

/// Serves timers until the queue pair fails; what goes out meanwhile is lost.
fn until_it_fails(a: &mut End) -> Vec<Wire> {
    let mut sent = Vec::new();
    for _ in 0..2000 {
        if a.qp.state() == QpState::Err {
            return sent;
        }
        assert!(a.qp.next_timeout().is_some(), "nothing would ever end this");
        a.wait_for_timeout();
        sent.extend(a.poll_all());
    }
    panic!("{:?}", a.qp.stats());
}

const RETRY: (Queue, u64, Status) = (Queue::Send, 1, Status::RetryExceeded);

// protocol.md §14 "forged SACK": who fakes delivery stops retransmissions, and the missing Transport ACK ends in a retry error. The
// true responder has no part of the message, or only its first packet, and so its own SACKs never become cumulative.
#[test]
fn delivery_that_is_faked_bit_by_bit_ends_in_a_retry_error() {
    for first_arrives in [false, true] {
        let (mut a, _) = flying(&Setup::default(), 20);
        let bits = if first_arrives { 0xf_fffe } else { 0xf_ffff };
        assert_eq!(
            sack(&mut a, shows(9, 10, bits), CcState::default()),
            Disposition::Accepted
        );
        if first_arrives {
            sack(&mut a, shows(10, 11, 0), CcState::default());
        }
        assert_eq!(a.cc.inflight_packets(), 0);
        let sent = until_it_fails(&mut a);
        let again = writes(&sent);
        assert!(!again.is_empty() && again.iter().all(|&again| again == 29), "{again:?}");
        assert_eq!(outcomes(&a.completions()), [RETRY], "and nothing was delivered");
    }
}

// The same where the window is full and more is to be sent.
#[test]
fn window_that_a_liar_keeps_closed_ends_in_a_retry_error() {
    let setup = Setup {
        mpr: 1,
        ..Setup::default()
    };
    let (mut a, _) = setup.pair();
    a.post(write(1, 200 * 4096, 0));
    assert_eq!(a.poll_all().len(), 128);
    for base in [10, 74] {
        sack(&mut a, shows(9, base, u64::MAX), CcState::default());
    }
    assert_eq!(a.cc.inflight_packets(), 0);
    until_it_fails(&mut a);
    assert_eq!(outcomes(&a.completions()), [RETRY]);
}

// protocol.md §5.4: after a shrink nothing goes out beyond the window, the repetition that asks for a Transport ACK included.
#[test]
fn repetition_for_the_transport_ack_stays_inside_a_shrunk_window() {
    let setup = Setup {
        mpr: 4,
        dynamic_mpr: true,
        cc: Qpcc::fixed(2000),
        region: 4 << 20,
        ..Setup::default()
    };
    let (mut a, _) = flying(&setup, 300);
    for base in (10..310).step_by(64) {
        let bits = if base + 64 > 310 {
            (1 << (310 - base)) - 1
        } else {
            u64::MAX
        };
        let seth = Seth {
            mpr: 1,
            ..shows(9, base, bits)
        };
        assert_eq!(sack(&mut a, seth, CcState::default()), Disposition::Accepted);
    }
    assert_eq!(a.cc.inflight_packets(), 0);
    let sent = writes(&until_it_fails(&mut a));
    assert!(!sent.is_empty() && sent.iter().all(|&psn| psn == 9 + 128), "{sent:?}");
}

// protocol.md §5.4: at most the own limit, whatever is announced; 0 says nothing; and a window that opens and closes all the time
// lets nothing out twice.
#[test]
fn window_that_opens_and_closes_is_never_larger_than_the_own_limit() {
    let setup = Setup {
        mpr: 2,
        dynamic_mpr: true,
        cc: Qpcc::fixed(2000),
        region: 4 << 20,
        ..Setup::default()
    };
    let (mut a, _) = setup.pair();
    a.post(write(1, 1000 * 4096, 0));
    let mut sent = writes(&a.poll_all());
    for (n, mpr) in [255, 0, 1, 255, 2, 1, 0, 200].into_iter().enumerate() {
        let cack = 9 + 50 * n as u32;
        let seth = Seth {
            mpr,
            ..shows(cack, cack + 1, 0)
        };
        assert_eq!(sack(&mut a, seth, CcState::default()), Disposition::Accepted);
        sent.extend(writes(&a.poll_all()));
        let last = *sent.last().unwrap();
        assert!(last <= cack + 256, "{last} after {cack}");
        assert_eq!(a.cc.inflight_packets(), last - cack, "mpr {mpr}");
    }
    let in_order: Vec<u32> = (10..10 + sent.len() as u32).collect();
    assert_eq!(sent, in_order);
}

// protocol.md §5.5 steps 1 and 2, §5.8: facts are permanent, and nobody can take them back.
#[test]
fn acknowledgements_that_go_backwards_change_nothing() {
    let (mut a, _) = flying(&Setup::default(), 20);
    sack(&mut a, shows(19, 20, 0), CcState::default());
    for cack in [18, 9, 0] {
        sack(&mut a, shows(cack, cack + 1, 0), CcState::default());
        assert_eq!((a.qp.unack_psn(), a.cc.inflight_packets()), (psn(19), 10));
    }
    assert_eq!(ack(&mut a, psn(25), Aeth::ACK, 0), Disposition::Accepted);
    for earlier in [24, 10, 9, 1] {
        assert_eq!(ack(&mut a, psn(earlier), Aeth::ACK, 7), Disposition::Accepted);
        assert_eq!((a.qp.unack_psn(), a.cc.inflight_packets()), (psn(25), 4));
    }
    assert_eq!(a.completions(), vec![]);
    // AETH.msn is informative.
    ack(&mut a, psn(29), Aeth::ACK, 0xff_ffff);
    ack(&mut a, psn(29), Aeth::ACK, 3);
    assert_eq!(outcomes(&a.completions()), [(Queue::Send, 1, Status::Success)]);
    assert_eq!(a.qp.next_timeout(), None);
}

// protocol.md §5.6, §5.8: only what is outstanding can be refused or acknowledged; here PSNs 10 and 11, over the whole space.
#[test]
fn answers_about_what_was_never_sent_are_dropped() {
    let (mut a, _) = flying(&Setup::default(), 2);
    let near = (0..10).chain(12..40);
    let far = (0..1 << 24)
        .step_by(65_521)
        .chain([0x7f_fff5, 0x80_0009, 0x80_000a, 0x80_000b, 0xff_ffff]);
    for about in near.chain(far).filter(|about| !(10..12).contains(about)) {
        let dropped = Disposition::Dropped(DropReason::NotOutstanding);
        for reason in [
            NackReason::TRIMMED,
            NackReason::NO_RESOURCE,
            NackReason::UNEXP_EVENT,
            NackReason(200),
        ] {
            assert_eq!(nack(&mut a, psn(about), reason, Tick(0)), dropped, "{about}");
        }
        for syndrome in [0x61, 0x62, 0x63, 0x7f] {
            assert_eq!(ack(&mut a, psn(about), syndrome, 0), dropped, "{about}");
        }
        ack(&mut a, psn(about), Aeth::ACK, 0);
        sack(&mut a, shows(about, about + 1, 0), CcState::default());
        // Without a trigger that could give it away.
        let seth = Seth {
            pr: true,
            ..shows(about, about + 1, 0)
        };
        sack(&mut a, seth, CcState::default());
        assert_eq!((a.qp.state(), a.qp.unack_psn()), (QpState::Rts, psn(9)));
    }
    assert_eq!((a.cc.inflight_packets(), a.completions()), (2, vec![]));
}

// protocol.md §5.5 step 8, §9.1: ids that nobody asked with measure nothing, and prove no path.
#[test]
fn answers_to_probes_that_were_never_sent_say_nothing() {
    let (mut a, _) = flying(&Setup::default(), 8);
    a.advance(10_000);
    for probe_id in 0..=u16::MAX {
        let seth = Seth {
            pr: true,
            ack_psn_offset_or_probe_id: probe_id,
            entropy: Ev(0x1000),
            ..shows(9, 10, 0)
        };
        let state = CcState {
            tx_timestamp: a.now.tick(),
            ..CcState::default()
        };
        assert_eq!(sack(&mut a, seth, state), Disposition::Accepted);
    }
    assert_eq!((a.qp.rtt_ns(), a.qp.stats().losses_unseen), ((0, 0), 0));
    assert_eq!(a.cc.inflight_packets(), 8);
}

// protocol.md §9.1: one probe, one round trip. An answer after its time is one too: it tells how long they have become.
#[test]
fn second_answers_to_a_probe_are_no_round_trips_and_late_ones_are() {
    for late in [false, true] {
        let (mut a, mut b) = Setup::default().pair();
        a.post(write(1, 4096, 0));
        let sent = a.poll_all();
        a.advance(20_000);
        let back = b.receive_all(&sent);
        a.hear(&back);
        a.post(write(2, 4096, 0));
        a.poll_all();
        let probe = loop {
            a.wait_for_timeout();
            b.now = a.now;
            if let [probe] = &a.poll_all()[..] {
                break probe.clone();
            }
        };
        let answer = b.receive_all([&probe]);
        if late {
            // max(4 srtt, 200 us)
            a.advance(200_000);
        } else {
            a.advance(30_000);
        }
        let before = a.qp.rtt_ns();
        a.hear(&answer);
        assert_ne!(a.qp.rtt_ns(), before, "late: {late}");
        let once = a.qp.rtt_ns();
        a.advance(1_000_000);
        a.hear(&answer);
        assert_eq!(a.qp.rtt_ns(), once);
    }
}

// protocol.md §14 "forged m = 10": ev_min_active stays, and sending goes on.
#[test]
fn verdicts_against_every_path_leave_enough_to_send_on() {
    let (mut a, _) = flying(&Setup::default(), 8);
    for _ in 0..3 {
        for ev in evs(2, 8) {
            let seth = Seth {
                m: PathVerdict::AlwaysSkip,
                entropy: ev.ev,
                ..shows(9, 10, 0)
            };
            assert_eq!(sack(&mut a, seth, CcState::default()), Disposition::Accepted);
        }
    }
    let usable =
        a.qp.ev_states()
            .filter(|view| view.active && view.state != EvState::AssumedBad);
    assert_eq!(usable.count(), 2, "a quarter of the active ones");
    // Each of them once per round trip (§8.3, P23).
    a.advance(100_000);
    a.post(write(2, 4096, 0));
    assert_eq!(writes(&a.poll_all()), [18]);
}

// protocol.md §14 "forged NACK": at most one retransmission per PSN and round trip, for any reason and any number of NACKs.
#[test]
fn flood_of_nacks_repeats_each_packet_once_per_round_trip() {
    let reasons = [
        NackReason::TRIMMED,
        NackReason::TRIMMED_LASTHOP,
        NackReason::PSN_OOR_WINDOW,
        NackReason::NO_BITMAP,
        NackReason::NO_PKT_BUFFER,
        NackReason::NO_RESOURCE,
        NackReason(99),
    ];
    let setup = Setup {
        retry: RetryAttr {
            exp_cnt: 25,
            ..RetryAttr::default()
        },
        ..Setup::default()
    };
    let (mut a, _) = flying(&setup, 64);
    let rtt_ns = a.cc.base_rtt_ns();
    let mut sent = vec![Vec::new(); 64];
    let start = a.now;
    while a.now.since(start) < 20 * rtt_ns {
        for about in 0..64 {
            for reason in reasons {
                nack(&mut a, psn(10 + about), reason, Tick(0));
            }
        }
        for wire in a.poll_writes() {
            sent[wire.psn() as usize - 10].push(a.now);
        }
        assert!(a.cc.inflight_packets() <= 64);
        a.advance(rtt_ns / 7);
    }
    for times in &sent {
        assert!((2..=21).contains(&times.len()), "{}", times.len());
        // The first is answered at once.
        let spaced = times.windows(2).all(|pair| pair[1].since(pair[0]) + 1024 >= rtt_ns);
        assert!(spaced, "{times:?}");
    }
    assert_eq!(a.qp.state(), QpState::Rts);
}

// protocol.md §10.5 (P26), §11: counts, penalties and marks of a liar may close the window down to one packet, and no further.
#[test]
fn counts_of_a_liar_cannot_stop_a_queue_pair() {
    use crate::cc::{Network, NsccParams};
    let params = NsccParams::new(&Network::new(2, 1_000_000_000, 4184));
    let setup = Setup {
        cc: Qpcc::nscc(params, 64, crate::time::Instant::from_ns(1_000_000_000)),
        ..Setup::default()
    };
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 100 * 4096, 0));
    a.poll_all();
    for n in 0..2000_u32 {
        a.advance(3000);
        let seth = Seth {
            m: PathVerdict::SkipOnce,
            entropy: Ev(0x1000 + n % 8),
            ..shows(9, 10, 0)
        };
        let state = CcState {
            tx_timestamp: Tick(n as u16),
            ooo_count: CcState::MAX_OOO_COUNT,
            rc: n % 5 == 0,
            rcv_cwnd_pen: 127,
            rcvd_bytes: n.wrapping_mul(0x6f_4321) & 0xff_ffff,
        };
        sack(&mut a, seth, state);
        a.poll_all();
        let nscc = a.cc.as_nscc().unwrap();
        assert!((4184..=nscc.max_wnd_bytes()).contains(&nscc.cwnd_bytes()));
    }
    // An honest one comes back.
    for _ in 0..3000 {
        if a.qp.sq_outstanding() == 0 {
            break;
        }
        a.advance(100_000);
        b.now = a.now;
        let there = a.poll_all();
        let back = b.receive_all(&there);
        a.hear(&back);
        assert!(a.completions().iter().all(|done| done.status == Status::Success));
    }
    assert_eq!((a.qp.state(), a.qp.sq_outstanding()), (QpState::Rts, 0));
}

// protocol.md §9.1, §14: a flood of probes is answered as far as the bucket goes, and each probe by no more than the parts that
// show the window.
#[test]
fn flood_of_probes_draws_a_bounded_number_of_answers() {
    let (mut a, mut b) = Setup::default().pair();
    a.post(write(1, 100 * 4096, 0));
    let sent = a.poll_all();
    // All but the first: two parts show it.
    let _ = b.receive_all(&sent[1..]);
    b.advance(1_000_000);
    b.poll_all();
    let mut answers = 0;
    for probe_id in 0..5000 {
        let peth = mrc_wire::Peth {
            probe_id,
            ..mrc_wire::Peth::default()
        };
        let probe = says(&b, Opcode::Probe, psn(0), Headers::Probe(peth));
        b.receive(&probe);
        b.qp.end_of_batch(b.now);
        answers += sacks(&b.poll_all()).len();
    }
    assert!((256..=2 * (256 + 100)).contains(&answers), "{answers}");
    assert!(b.qp.stats().answers_suppressed >= 5000 - 356);
}
