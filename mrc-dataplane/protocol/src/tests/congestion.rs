//! Queue pairs under congestion control (protocol.md §10, §11). 10 Gbit/s and 51.2 us (400 ticks): `max_wnd` is 96000 bytes, 23
//! packets of 4184 bytes begin below it.

use std::vec::Vec;

use mrc_wire::{Headers, PortSet, TrafficClass};

use crate::attr::Tuning;
use crate::cc::{Algorithm, CcChange, CcProfiles, Network, NsccParams, SchedulerState};
use crate::profile::ProfileState;
use crate::qpcc::Qpcc;
use crate::testing::*;
use crate::time::Instant;
use crate::work::Status;

const WAY_NS: u64 = 25_600;
const MAX_WND: u64 = 96_000;

fn network() -> Network {
    Network {
        base_rtt_ns: Some(2 * WAY_NS),
        ..Network::new(2, 5_000_000_000, 4184)
    }
}

fn setup() -> Setup {
    Setup {
        cc: Qpcc::nscc(NsccParams::new(&network()), 192, Instant::from_ns(1_000_000_000)),
        region: 1 << 21,
        ..Setup::default()
    }
}

fn cwnd(end: &End) -> u64 {
    end.cc.cwnd_bytes().unwrap()
}

/// B hears these and answers; A hears the answers. All this much later.
fn round_trip(a: &mut End, b: &mut End, sent: &[Wire], extra_ns: u64) -> Vec<Wire> {
    a.advance(WAY_NS + extra_ns);
    b.advance(WAY_NS + extra_ns);
    let back = b.receive_all(sent);
    a.advance(WAY_NS);
    b.advance(WAY_NS);
    a.receive_all(&back)
}

/// Until all is done, beginning with these packets of A.
fn finish(a: &mut End, b: &mut End, mut sent: Vec<Wire>) {
    while !sent.is_empty() {
        sent = round_trip(a, b, &sent, 0);
    }
    talk(a, b);
}

fn is_base_probe(wire: &Wire) -> bool {
    matches!(wire.sent.headers, Headers::Probe(_)) && wire.sent.class == TrafficClass::Control
}

// protocol.md §10.6: recomputed after every event.
#[test]
fn scheduler_state_follows_data_window_and_what_is_in_flight() {
    let (mut a, mut b) = setup().pair();
    let state = |a: &End| a.cc.scheduler_state(a.qp.has_data());
    assert_eq!(state(&a), SchedulerState::Idle);
    a.post(write(1, 4096, 0));
    assert_eq!(state(&a), SchedulerState::Ready);
    let sent = a.poll_all();
    assert_eq!(state(&a), SchedulerState::Pending, "all of it is under way");
    let more = round_trip(&mut a, &mut b, &sent, 0);
    finish(&mut a, &mut b, more);
    assert_eq!(state(&a), SchedulerState::Idle);
    // More than a window of it.
    a.post(write(2, 1 << 20, 0));
    let sent = a.poll_all();
    assert_eq!(state(&a), SchedulerState::Active, "the window is closed");
    // The answer opens it.
    a.advance(WAY_NS);
    b.advance(WAY_NS);
    let back = b.receive_all(&sent);
    a.advance(WAY_NS);
    b.advance(WAY_NS);
    a.hear(&back);
    assert_eq!(state(&a), SchedulerState::Ready);
    let sent = a.poll_all();
    assert_eq!(state(&a), SchedulerState::Active);
    finish(&mut a, &mut b, sent);
    assert_eq!(state(&a), SchedulerState::Idle);
}

// protocol.md §10.5, P26.
#[test]
fn peer_that_counts_more_than_it_acknowledges_is_counted() {
    for (extra_per_packet, overcounted) in [(0_u32, false), (2, true)] {
        let (mut a, mut b) = setup().pair();
        a.post(write(1, 1 << 20, 0));
        let mut sent = a.poll_all();
        let mut packets = 0;
        while !sent.is_empty() {
            packets += sent.len() as u32;
            a.advance(WAY_NS);
            b.advance(WAY_NS);
            let mut back = b.receive_all(&sent);
            for wire in &mut back {
                if let Headers::Sack(_, Some(state)) = &mut wire.sent.headers {
                    state.rcvd_bytes += packets * extra_per_packet;
                }
            }
            a.advance(WAY_NS);
            b.advance(WAY_NS);
            sent = a.receive_all(&back);
        }
        assert!(packets >= 256, "{packets}");
        let bytes = a.qp.stats().bytes_overcounted;
        assert_eq!(bytes > 0, overcounted, "{bytes}");
        assert!(bytes <= u64::from((packets * extra_per_packet + 1) * 256), "{bytes}");
    }
}

#[test]
fn window_closes_and_opens_again() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 1 << 20, 0));
    assert_eq!(a.cc.scheduler_state(a.qp.has_data()), SchedulerState::Ready);
    let sent = a.poll_all();
    assert_eq!(sent.len(), 23, "22 * 4184 < 96000 < 23 * 4184");
    assert_eq!(a.cc.inflight_bytes(), 23 * 4184);
    assert_eq!(a.cc.scheduler_state(a.qp.has_data()), SchedulerState::Active);
    let asked: Vec<bool> = sent.iter().map(|wire| wire.sent.bth.a).collect();
    assert!(
        asked[22],
        "the packet that closes the window asks for an acknowledgement"
    );
    assert!(!asked[..21].contains(&true));
    let more = round_trip(&mut a, &mut b, &sent, 0);
    assert_eq!(writes(&more).len(), 23);
    finish(&mut a, &mut b, more);
    assert_eq!(a.completions().len(), 1);
    assert_eq!(b.region.bytes[..1 << 20], a.sources[0]);
    assert_eq!((a.cc.inflight_bytes(), a.cc.inflight_packets()), (0, 0));
    assert_eq!(a.cc.scheduler_state(a.qp.has_data()), SchedulerState::Idle);
}

#[test]
fn nothing_is_sent_while_as_much_as_the_window_is_in_flight() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 1 << 20, 0));
    let mut flying: Vec<Wire> = Vec::new();
    for _ in 0..2000 {
        let before = a.cc.inflight_bytes();
        let open = before < cwnd(&a).cast_signed();
        match a.poll() {
            Some(wire) if wire.sent.bth.opcode.is_write() => {
                assert!(open);
                flying.push(wire);
            }
            Some(wire) => flying.push(wire),
            None => {
                // One packet arrives, and is answered.
                if flying.is_empty() {
                    break;
                }
                let wire = flying.remove(0);
                flying.extend(round_trip(&mut a, &mut b, &[wire.marked()], 60_000));
            }
        }
    }
    assert_eq!(a.completions().len(), 1);
    assert!(cwnd(&a) < 30_000, "marked and late throughout: {}", cwnd(&a));
}

#[test]
fn port_limit_holds_beside_the_window() {
    let (mut a, _) = Setup {
        cc: Qpcc::nscc(NsccParams::new(&network()), 5, Instant::from_ns(1_000_000_000)),
        region: 1 << 21,
        ..Setup::default()
    }
    .pair();
    a.post(write(1, 1 << 20, 0));
    assert_eq!(a.poll_all().len(), 10);
    for num in 1..=2 {
        assert_eq!(a.cc.inflight_on(port(num)), 5);
    }
}

#[test]
fn one_probe_measures_the_way_after_the_first_answer() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 200_000, 0));
    let mut sent = a.poll_all();
    assert!(!sent.iter().any(is_base_probe));
    sent = round_trip(&mut a, &mut b, &sent, 15_000);
    assert_eq!(sent.iter().filter(|wire| is_base_probe(wire)).count(), 1);
    finish(&mut a, &mut b, sent);
    assert_eq!((a.completions().len(), a.qp.stats().probes_sent), (1, 1));
}

#[test]
fn probe_that_is_fast_lowers_the_base() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 50_000, 0));
    let sent = a.poll_all();
    let more = round_trip(&mut a, &mut b, &sent, 0);
    let probes: Vec<Wire> = more.into_iter().filter(is_base_probe).collect();
    let before = a.qp.rtt_ns();
    a.advance(10_240);
    b.advance(10_240);
    let back = b.receive_all(&probes);
    a.advance(10_240);
    a.hear(&back);
    // 20480 ns + 13133 ns for 4104 missing bytes of 3.2 ns, give or take a tick.
    let base_ns = a.cc.base_rtt_ns();
    assert!((33_485..=33_741).contains(&base_ns), "{base_ns}");
    assert_eq!(
        cwnd(&a),
        a.cc.as_nscc().unwrap().max_wnd_bytes(),
        "and the largest window"
    );
    assert_eq!(a.qp.rtt_ns(), before, "it is no round trip of data");
}

#[test]
fn known_base_needs_no_probe() {
    let mut setup = setup();
    setup.cc = setup.cc.with_known_base();
    let (mut a, mut b) = setup.pair();
    a.post(write(1, 200_000, 0));
    talk(&mut a, &mut b);
    assert_eq!((a.completions().len(), a.qp.stats().probes_sent), (1, 0));
}

#[test]
fn marks_with_delay_shrink_the_window() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 1 << 20, 0));
    let mut sent = a.poll_all();
    for _ in 0..3 {
        let marked: Vec<Wire> = sent.drain(..).map(Wire::marked).collect();
        sent = round_trip(&mut a, &mut b, &marked, 100_000);
    }
    assert!(cwnd(&a) < MAX_WND / 3, "{}", cwnd(&a));
    finish(&mut a, &mut b, sent);
    assert_eq!(a.completions().len(), 1);
}

#[test]
fn trimmed_packets_leave_the_window() {
    let (mut a, mut b) = Setup {
        trimming: true,
        ..setup()
    }
    .pair();
    a.post(write(1, 1 << 20, 0));
    let mut sent = a.poll_all();
    for wire in sent.iter_mut().skip(20) {
        *wire = wire.clone().trimmed(false);
    }
    let sent = round_trip(&mut a, &mut b, &sent, 0);
    assert_eq!(cwnd(&a), MAX_WND - 3 * 4184);
    finish(&mut a, &mut b, sent);
    assert_eq!(a.completions().len(), 1);
}

#[test]
fn lost_packets_leave_the_window() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 80_000, 0));
    let sent = a.poll_all();
    let more = round_trip(&mut a, &mut b, &sent[..sent.len() - 1], 0);
    finish(&mut a, &mut b, more);
    a.wait_for_timeout();
    let again = a.poll_all();
    finish(&mut a, &mut b, again);
    assert_eq!(a.completions()[0].status, Status::Success);
    assert_eq!(a.qp.stats().losses_inferred + a.qp.stats().timeouts, 1);
    assert!(cwnd(&a) < MAX_WND, "{}", cwnd(&a));
    assert_eq!(a.cc.inflight_bytes(), 0);
}

#[test]
fn responder_under_pressure_is_given_less_and_gives_it_back() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 1 << 20, 0));
    let mut sent = a.poll_all();
    let full = cwnd(&a);
    b.qp.handle_pressure(100, 100);
    for _ in 0..2 {
        sent = round_trip(&mut a, &mut b, &sent, 0);
    }
    assert_eq!(cwnd(&a), 4184, "one packet per round trip");
    assert!(a.cc.as_nscc().unwrap().is_limited());
    b.qp.handle_pressure(0, 100);
    let sent = round_trip(&mut a, &mut b, &sent, 0);
    assert_eq!(cwnd(&a), full);
    finish(&mut a, &mut b, sent);
    assert_eq!(a.completions().len(), 1);
}

#[test]
fn sacks_of_a_responder_that_says_nothing_carry_no_penalty() {
    let (mut a, mut b) = setup().pair();
    a.post(write(1, 100_000, 0));
    let sent = a.poll_all();
    b.advance(WAY_NS);
    let back = b.receive_all(&sent);
    assert!(
        sacks(&back)
            .iter()
            .all(|(_, _, state)| state.rcv_cwnd_pen == 0 && !state.rc)
    );
    b.qp.handle_pressure(70, 100);
    a.advance(2 * WAY_NS);
    a.hear(&back);
    let sent = a.poll_all();
    let back = b.receive_all(&sent);
    assert!(
        sacks(&back)
            .iter()
            .all(|(_, _, state)| state.rcv_cwnd_pen == 56 && state.rc)
    );
}

#[test]
fn flow_control_can_be_switched_off() {
    let (mut a, mut b) = Setup {
        tuning: Tuning {
            flow_control: false,
            ..Tuning::default()
        },
        ..setup()
    }
    .pair();
    a.post(write(1, 1 << 20, 0));
    let mut sent = a.poll_all();
    b.qp.handle_pressure(100, 100);
    for _ in 0..2 {
        sent = round_trip(&mut a, &mut b, &sent, 0);
    }
    assert_eq!(cwnd(&a), MAX_WND);
}

#[test]
fn windows_without_control_stay_at_their_maximum() {
    let (mut a, mut b) = Setup {
        cc: Qpcc::uncontrolled(NsccParams::new(&network()), 192),
        ..setup()
    }
    .pair();
    a.post(write(1, 1 << 20, 0));
    let mut sent = a.poll_all();
    assert_eq!(sent.len(), 23);
    for _ in 0..3 {
        let marked: Vec<Wire> = sent.drain(..).map(Wire::marked).collect();
        sent = round_trip(&mut a, &mut b, &marked, 100_000);
        assert_eq!(cwnd(&a), MAX_WND);
    }
    a.cc.set_link_bps(5_000_000_000);
    assert_eq!(cwnd(&a), MAX_WND / 2, "but it follows the links");
    finish(&mut a, &mut b, sent);
    assert_eq!(a.completions().len(), 1);
}

#[test]
fn profile_chooses_the_algorithm() {
    let now = Instant::from_ns(1);
    let mut profiles = CcProfiles::new(4, true);
    let off = CcChange {
        state: Some(ProfileState::Offline),
        algorithm: Some(Algorithm::Off),
        ..CcChange::default()
    };
    profiles.modify(1, &off).unwrap();
    let online = CcChange {
        state: Some(ProfileState::Online),
        ..CcChange::default()
    };
    profiles.modify(1, &online).unwrap();
    let cc = Qpcc::of_profile(profiles.bind(0).unwrap(), &network(), 10, now);
    assert_eq!((cc.as_nscc().is_some(), cc.cwnd_bytes()), (true, Some(MAX_WND)));
    let cc = Qpcc::of_profile(profiles.bind(1).unwrap(), &network(), 10, now);
    assert_eq!((cc.as_nscc().is_some(), cc.cwnd_bytes()), (false, Some(MAX_WND)));
}

#[test]
fn changed_profile_takes_effect_on_live_windows() {
    let now = Instant::from_ns(1);
    let mut config = NsccParams::new(&network()).config();
    let mut cc = Qpcc::nscc(NsccParams::new(&network()), 10, now);
    config.max_cwnd_bytes = 50_000;
    cc.set_params(NsccParams::with_config(&config, &network()));
    assert_eq!(cc.cwnd_bytes(), Some(50_000));
}

#[test]
fn small_packets_of_slow_links_do_not_make_the_way_look_short() {
    // 50 Mbit/s: a full packet needs 670 us on each link, a small one 16 us.
    let network = Network::new(2, 50_000_000, 4184);
    let base_ns = network.config_base_rtt_ns();
    let (mut a, mut b) = Setup {
        cc: Qpcc::nscc(NsccParams::new(&network), 192, Instant::from_ns(1_000_000_000)).with_known_base(),
        ..setup()
    }
    .pair();
    for n in 0..4 {
        a.post(write(n, 8, 0));
        let sent = a.poll_all();
        // 100 us of hosts, and the links.
        round_trip(&mut a, &mut b, &sent, 82_000);
    }
    assert_eq!(a.completions().len(), 4);
    assert_eq!(a.cc.base_rtt_ns(), base_ns);
}

#[test]
fn window_in_packets_only_has_no_bytes() {
    let mut cc = Qpcc::fixed(2);
    assert_eq!((cc.cwnd_bytes(), cc.as_nscc().is_none()), (None, true));
    cc.on_send(port(1), 1_000_000);
    assert!(cc.can_send(PortSet::first(1)));
    cc.on_send(port(1), 1_000_000);
    assert!(!cc.can_send(PortSet::first(1)) && cc.can_send(PortSet::first(2)));
    cc.set_link_bps(1);
    assert!(cc.can_send(PortSet::first(2)));
}

// protocol.md §5.3, P5: a window without algorithm asks too when less than another packet fits.
#[test]
fn last_packet_before_a_window_without_control_closes_asks() {
    let (mut a, _) = Setup {
        cc: Qpcc::uncontrolled(NsccParams::new(&network()), 192),
        ..setup()
    }
    .pair();
    a.post(write(1, 4096 * 40, 0));
    let sent = a.poll_writes();
    assert_eq!(sent.len() as u64, MAX_WND.div_ceil(4184));
    let asks: Vec<bool> = sent.iter().map(|wire| wire.sent.bth.a).collect();
    let first = asks.iter().position(|&asks| asks);
    assert_eq!(first, Some((MAX_WND / 4184) as usize - 1), "4184 bytes no longer fit");
}

// protocol.md §5.3: "cwnd - inflight < MTU", whatever was sent last; and a window below the peer's threshold asks each time.
#[test]
fn window_without_control_is_nearly_closed_when_no_full_packet_fits() {
    let params = NsccParams::new(&Network::new(2, 1_000_000_000, 4184));
    let mut cc = Qpcc::uncontrolled(params, 1000);
    let cwnd = cc.cwnd_bytes().unwrap();
    assert!(!cc.nearly_closed(ALL, cwnd as u32));
    assert!(cc.nearly_closed(ALL, cwnd as u32 + 1));
    cc.on_send(port(1), cwnd as u32 - 4184);
    assert!(!cc.nearly_closed(ALL, 0));
    cc.on_send(port(1), 1);
    assert!(cc.nearly_closed(ALL, 0));
    cc.on_send(port(1), 4182);
    assert!(cc.can_send(ALL), "one byte below");
    cc.on_send(port(1), 1);
    assert!(!cc.can_send(ALL), "cwnd > inflight");
}
