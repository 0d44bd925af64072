//! Both sides of port status updates and EV probes (protocol.md §9.2, §9.3).

use std::net::{IpAddr, Ipv4Addr};
use std::vec::Vec;

use mrc_wire::{Condition, Eeth, EndpointOp, Payload, Tick};

use super::*;
use crate::time::MS;

const NOW: Instant = Instant::from_ns(7 * SEC);
const PORTS: PortSet = PortSet::first(4);

fn port(num: u8) -> PortNum {
    PortNum::new(num).unwrap()
}

fn without(num: u8) -> PortSet {
    PORTS.difference(PortSet::EMPTY.with(port(num)))
}

fn ops() -> EndpointOps {
    EndpointOps::new(&EndpointLimits::default(), EvLayout::FlowHigh)
}

fn peer() -> Peer {
    Peer::new(&EndpointLimits::default(), PORTS)
}

fn packet(bth: Bth, headers: Headers, ev: Ev) -> Packet<'static> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Packet {
        bth,
        headers,
        payload: Payload::EMPTY,
        condition: Condition::Whole,
        ev,
        ce: false,
        dscp: 0,
        udp_len: 40,
        src: here,
        dst: here,
    }
}

fn arriving(request: &EndpointRequest) -> Packet<'static> {
    packet(request.bth, request.headers, request.ev)
}

/// The answer to this id.
fn answer(id: u32, op: EndpointOp, tx_timestamp: Tick) -> Packet<'static> {
    let bth = Bth::new(Opcode::EndpointResponse, Qpn::ENDPOINT, Psn::new(id));
    packet(bth, Headers::EndpointResponse(Eeth { op, tx_timestamp }), Ev(1))
}

/// Everything that is due until `until`, with its time.
fn updates(ops: &mut EndpointOps, peer: &mut Peer, until: Instant) -> Vec<(u64, EndpointRequest)> {
    let mut sent = Vec::new();
    while let Some(due) = peer.next_timeout().filter(|&due| due <= until) {
        let due = due.max(NOW);
        while let Some(request) = ops.poll_update(peer, PORTS, due) {
            sent.push((due.since(NOW), request));
        }
        assert!(peer.next_timeout().is_none_or(|next| next > due), "timer storm");
    }
    sent
}

/// §9.3: the mask of all reachable ports, over a port that is up; new ids after 1, 2, 4 and 8 ms, other planes, five in all.
#[test]
fn a_lost_port_is_told_until_it_is_answered_but_five_times_at_most() {
    let (mut ops, mut peer) = (ops(), peer());
    assert_eq!(peer.next_timeout(), None, "all ports up is what a peer believes anyway");
    peer.handle_local_ports(without(2), NOW);
    let sent = updates(&mut ops, &mut peer, NOW + SEC);
    let times: Vec<u64> = sent.iter().map(|(at, _)| at / MS).collect();
    assert_eq!(times, [0, 1, 3, 7, 15]);
    let mut ids: Vec<u32> = sent.iter().map(|(_, request)| request.bth.psn.get()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    let ports: Vec<u8> = sent.iter().map(|(_, request)| request.port.get()).collect();
    assert_eq!(ports[..3], [1, 3, 4], "over other planes while there are any");
    assert!(!ports.contains(&2));
    for (_, request) in &sent {
        let Headers::EndpointRequest(erth) = request.headers else {
            panic!("{request:?}")
        };
        assert_eq!((erth.op, erth.ports()), (EndpointOp::PORT_STATUS_UPDATE, without(2)));
        assert_eq!(request.class, RequestClass::Of(TrafficClass::Control));
    }
    // An answer to any of them would have been enough.
    peer.handle_local_ports(PORTS, NOW + SEC);
    let first = ops.poll_update(&mut peer, PORTS, NOW + SEC).unwrap();
    let second = ops.poll_update(&mut peer, PORTS, NOW + SEC + MS).unwrap();
    let late = answer(first.bth.psn.get(), EndpointOp::PORT_STATUS_UPDATE, Tick(0));
    assert_eq!(ops.handle_response(0, Some(&mut peer), &late, port(1), NOW), Ok(()));
    assert_eq!(peer.next_timeout(), None);
    assert_ne!(first.bth.psn, second.bth.psn);
}

/// §9.3: flaps within 1 ms coalesce; one that ends before anything was said is not told at all.
#[test]
fn flaps_are_coalesced() {
    let (mut ops, mut peer) = (ops(), peer());
    peer.handle_local_ports(without(1), NOW);
    peer.handle_local_ports(PORTS, NOW);
    assert_eq!(updates(&mut ops, &mut peer, NOW + SEC), []);
    peer.handle_local_ports(without(1), NOW);
    assert!(
        ops.poll_update(&mut peer, PORTS, NOW).is_some(),
        "the first one at once"
    );
    let masks = [PORTS, without(3), without(4)];
    for (n, mask) in (1..).zip(masks) {
        peer.handle_local_ports(mask, NOW + 100 * n);
        assert_eq!(ops.poll_update(&mut peer, PORTS, NOW + 100 * n), None);
    }
    let sent = updates(&mut ops, &mut peer, NOW + MS);
    let Headers::EndpointRequest(erth) = sent[0].1.headers else {
        panic!("{sent:?}")
    };
    assert_eq!((sent.len(), sent[0].0, erth.ports()), (1, MS, without(4)));
}

/// An answer to an older mask does not settle a newer one.
#[test]
fn answers_to_what_is_out_of_date_settle_nothing() {
    let (mut ops, mut peer) = (ops(), peer());
    peer.handle_local_ports(without(1), NOW);
    let old = ops.poll_update(&mut peer, PORTS, NOW).unwrap();
    peer.handle_local_ports(without(2), NOW);
    let late = answer(old.bth.psn.get(), EndpointOp::PORT_STATUS_UPDATE, Tick(0));
    assert_eq!(ops.handle_response(0, Some(&mut peer), &late, port(3), NOW), Ok(()));
    assert_eq!(updates(&mut ops, &mut peer, NOW + SEC).len(), 5);
}

/// §9.3: the last mask wins, and a copy of an old one may be the last. Its answer gives it away.
#[test]
fn a_peer_that_was_told_what_is_out_of_date_is_told_again() {
    let (mut ops, mut us, mut them) = (ops(), peer(), peer());
    let mut theirs = super::tests::ops();
    us.handle_local_ports(without(1), NOW);
    let down = ops.poll_update(&mut us, PORTS, NOW).unwrap();
    us.handle_local_ports(PORTS, NOW + MS);
    let up = ops.poll_update(&mut us, PORTS, NOW + MS).unwrap();
    let mut tell = |update: &EndpointRequest| {
        let reply = theirs.handle_request(Some(&mut them), &arriving(update), port(2), NOW);
        let reply = reply.unwrap();
        (packet(reply.bth, reply.headers, reply.ev), them.ports())
    };
    let hear = |us: &mut Peer, ops: &mut EndpointOps, back: &Packet<'_>| {
        assert_eq!(ops.handle_response(0, Some(us), back, port(2), NOW + 2 * MS), Ok(()));
    };
    let (answer, _) = tell(&up);
    hear(&mut us, &mut ops, &answer);
    assert_eq!(us.next_timeout(), None, "settled");
    // The first one took its time, or was copied on the way.
    let (answer, known) = tell(&down);
    assert_eq!(known, without(1));
    hear(&mut us, &mut ops, &answer);
    let again = ops.poll_update(&mut us, PORTS, NOW + 2 * MS).unwrap();
    let (answer, known) = tell(&again);
    assert_eq!(known, PORTS);
    hear(&mut us, &mut ops, &answer);
    assert_eq!(us.next_timeout(), None, "settled again");
    // Other copies of what is true change nothing.
    let (answer, _) = tell(&up);
    hear(&mut us, &mut ops, &answer);
    assert_eq!(us.next_timeout(), None);
}

/// §9.3: a flap does not bring the repetition of what the peer is being told forward, nor does it add one.
#[test]
fn a_flap_between_repetitions_leaves_them_where_they_were() {
    let (mut ops, mut peer) = (ops(), peer());
    peer.handle_local_ports(without(1), NOW);
    assert_eq!(updates(&mut ops, &mut peer, NOW + 3 * MS).len(), 3);
    let flap = |peer: &mut Peer, at| {
        peer.handle_local_ports(PORTS, at);
        peer.handle_local_ports(without(1), at);
    };
    flap(&mut peer, NOW + 3 * MS + 1);
    assert_eq!(peer.next_timeout(), Some(NOW + 7 * MS));
    assert_eq!(updates(&mut ops, &mut peer, NOW + SEC).len(), 2);
    flap(&mut peer, NOW + SEC);
    assert_eq!(peer.next_timeout(), None);
}

/// A node that knew nothing of us when it was told is told again once it is heard.
#[test]
fn a_peer_that_answered_nothing_is_told_again_when_it_is_heard() {
    let (mut ops, mut peer) = (ops(), peer());
    peer.handle_local_ports(without(1), NOW);
    assert_eq!(updates(&mut ops, &mut peer, NOW + SEC).len(), 5);
    peer.handle_arrival(port(2), NOW + 50 * MS);
    assert_eq!(peer.next_timeout(), None);
    peer.handle_arrival(port(2), NOW + 200 * MS);
    let again = ops.poll_update(&mut peer, PORTS, NOW + 200 * MS).unwrap();
    let heard = answer(again.bth.psn.get(), EndpointOp::PORT_STATUS_UPDATE, Tick(0));
    assert_eq!(ops.handle_response(0, Some(&mut peer), &heard, port(2), NOW), Ok(()));
    peer.handle_arrival(port(2), NOW + 900 * MS);
    assert_eq!(peer.next_timeout(), None);
}

/// Without any port nothing can be said, and no timer runs.
#[test]
fn a_node_without_ports_is_silent_until_one_returns() {
    let (mut ops, mut peer) = (ops(), peer());
    peer.handle_local_ports(PortSet::EMPTY, NOW);
    assert_eq!(
        (peer.next_timeout(), ops.poll_update(&mut peer, PORTS, NOW)),
        (None, None)
    );
    peer.handle_local_ports(without(4), NOW + 10 * MS);
    assert!(ops.poll_update(&mut peer, PORTS, NOW + 10 * MS).is_some());
    // Nor where no next hop is known: it is tried again a little later.
    let mut peer = super::Peer::new(&EndpointLimits::default(), PORTS);
    peer.handle_local_ports(without(4), NOW);
    assert_eq!(ops.poll_update(&mut peer, PortSet::EMPTY, NOW), None);
    assert_eq!(peer.next_timeout(), Some(NOW + MS));
}

/// §9.3: traffic shows that a port works, but does not override the mask for 1 s.
#[test]
fn traffic_overrides_the_mask_after_a_second() {
    let (mut ops, mut us) = (ops(), peer());
    let mut them = peer();
    us.handle_local_ports(without(2), NOW);
    let update = ops.poll_update(&mut us, PORTS, NOW).unwrap();
    let mut theirs = super::tests::ops();
    let reply = theirs
        .handle_request(Some(&mut them), &arriving(&update), port(1), NOW)
        .unwrap();
    assert!(reply.ports_changed);
    assert_eq!(them.ports(), without(2));
    assert!(!them.handle_arrival(port(2), NOW + SEC - 1));
    assert_eq!(them.ports(), without(2));
    assert!(them.handle_arrival(port(2), NOW + SEC));
    assert!(!them.handle_arrival(port(2), NOW + SEC), "said once");
    assert_eq!(them.ports(), PORTS);
    // Its answer ends the repetitions.
    let back = packet(reply.bth, reply.headers, reply.ev);
    assert_eq!(ops.handle_response(0, Some(&mut us), &back, port(1), NOW), Ok(()));
    assert_eq!(us.next_timeout(), None);
}

fn probe(token: u64, num: u8) -> EvProbe {
    EvProbe {
        peer: 5,
        token,
        ev: Ev(0xc000 + u32::from(num)),
        encap: None,
        port: port(num),
        class: RequestClass::Dscp(10),
        timeout_ns: 20 * MS,
    }
}

/// §9.2: a batch; answers by id and peer, in the order in which they come, with round trip and port of arrival.
#[test]
fn a_batch_of_ev_probes_is_matched_by_id_and_peer() {
    let mut ops = ops();
    for token in 0..3 {
        assert!(ops.handle_probe(&probe(token, token as u8 + 1), NOW));
    }
    let open = PortSet::first(2);
    let sent: Vec<(u32, EndpointRequest)> = core::iter::from_fn(|| ops.poll_probe(open, NOW)).collect();
    assert_eq!(sent.len(), 2, "the third waits for its port");
    assert_eq!(
        (sent[1].0, sent[1].1.ev, sent[1].1.port, sent[1].1.class),
        (5, Ev(0xc002), port(2), RequestClass::Dscp(10))
    );
    let stamp = NOW.tick();
    let id = |n: usize| sent[n].1.bth.psn.get();
    let back = |id| answer(id, EndpointOp::EV_PROBE, stamp);
    let now = NOW + 50_000;
    // From another peer, and with an id that nobody has.
    assert_eq!(
        ops.handle_response(6, None, &back(id(0)), port(4), now),
        Err(EndpointDrop::UnknownId)
    );
    assert_eq!(
        ops.handle_response(5, None, &back(0x7777), port(4), now),
        Err(EndpointDrop::UnknownId)
    );
    assert_eq!(ops.handle_response(5, None, &back(id(1)), port(4), now), Ok(()));
    assert_eq!(
        ops.handle_response(5, None, &back(id(1)), port(4), now),
        Err(EndpointDrop::UnknownId)
    );
    // This responder took 10 us off: §6.9.
    let shifted = answer(id(0), EndpointOp::EV_PROBE, Tick(stamp.0.wrapping_add(80)));
    assert_eq!(ops.handle_response(5, None, &shifted, port(3), now), Ok(()));
    let results: Vec<_> = core::iter::from_fn(|| ops.poll_result())
        .map(|result| (result.probe.token, result.answer.unwrap()))
        .collect();
    let result = |port, rtt_ns, service_time_removed| EvProbeAnswer {
        port,
        rtt_ns,
        service_time_removed,
    };
    assert_eq!(
        results,
        [
            (1, result(port(4), 50_000, false)),
            (0, result(port(3), 50_000 - 80 * 128, true))
        ]
    );
    // The third is given up in time, sent or not.
    assert_eq!(ops.next_timeout(), Some(NOW + 20 * MS));
    ops.handle_timeout(NOW + 20 * MS - 1);
    assert_eq!(ops.poll_result(), None);
    ops.handle_timeout(NOW + 20 * MS);
    let result = ops.poll_result().unwrap();
    assert_eq!((result.probe.token, result.answer), (2, None));
    assert_eq!((ops.next_timeout(), ops.poll_probe(PORTS, NOW)), (None, None));
}

#[test]
fn probes_beyond_the_limit_are_refused_until_results_are_taken() {
    let mut ops = ops();
    let started = (0..1000)
        .filter(|&token| ops.handle_probe(&probe(token, 1), NOW))
        .count();
    assert_eq!(started, MAX_EV_PROBES);
    ops.handle_timeout(NOW + SEC);
    assert!(!ops.handle_probe(&probe(0, 1), NOW + SEC));
    assert_eq!(core::iter::from_fn(|| ops.poll_result()).count(), MAX_EV_PROBES);
    assert!(ops.handle_probe(&probe(0, 1), NOW + SEC));
}

/// Several engines of one node share its ids: an answer's low bits name the one that asked.
#[test]
fn ids_keep_their_low_bits() {
    let mut ops = ops().with_ids(3, 2);
    for token in 0..200 {
        assert!(ops.handle_probe(&probe(token, 1), NOW));
        let (_, request) = ops.poll_probe(PORTS, NOW).unwrap();
        assert_eq!(request.bth.psn.get() & 3, 3);
    }
}

/// Says to `peer` that these ports of it are up.
fn said(ops: &mut EndpointOps, peer: &mut Peer, mask: PortSet, now: Instant) {
    let mut bth = Bth::new(Opcode::EndpointRequest, Qpn::ENDPOINT, Psn::new(1));
    bth.p_key = Bth::DEFAULT_P_KEY;
    let headers = Headers::EndpointRequest(Erth {
        op: EndpointOp::PORT_STATUS_UPDATE,
        port_status_mask: mask.bits(),
        tx_timestamp: Tick(1),
        ftype: 1,
    });
    ops.handle_request(Some(peer), &packet(bth, headers, Ev(1)), port(1), now)
        .unwrap();
}

/// §14 "verify by probes", §9.3: a mask that anybody may have forged is found out after its second.
#[test]
fn port_that_is_said_to_be_down_is_probed_and_comes_back_with_the_answer() {
    let (mut ops, mut peer) = (ops(), peer());
    said(&mut ops, &mut peer, without(2), NOW);
    assert_eq!(peer.next_timeout(), Some(NOW + SEC));
    assert_eq!(ops.poll_update(&mut peer, PORTS, NOW + SEC - 1), None);
    let probe = ops.poll_update(&mut peer, PORTS, NOW + SEC).unwrap();
    let Headers::EndpointRequest(erth) = probe.headers else {
        panic!("{probe:?}")
    };
    assert_eq!((erth.op, probe.port), (EndpointOp::EV_PROBE, port(2)));
    assert_eq!(probe.class, RequestClass::Of(TrafficClass::NoTrim));
    // Somebody else's answer says nothing.
    let now = NOW + SEC + MS;
    let wrong = answer(probe.bth.psn.get() + 1, EndpointOp::EV_PROBE, Tick(0));
    let refused = ops.handle_response(0, Some(&mut peer), &wrong, port(1), now);
    assert_eq!(refused, Err(EndpointDrop::UnknownId));
    assert!(!peer.handle_arrival(port(1), now));
    // The answer came another way, and speaks of the way there.
    let right = answer(probe.bth.psn.get(), EndpointOp::EV_PROBE, Tick(0));
    assert_eq!(ops.handle_response(0, Some(&mut peer), &right, port(1), now), Ok(()));
    assert!(peer.handle_arrival(port(1), now), "its queue pairs are to be told");
    assert_eq!(peer.ports(), PORTS);
    assert_eq!(peer.next_timeout(), None, "nothing is doubted any more");
    assert_eq!(
        ops.handle_response(0, Some(&mut peer), &right, port(1), now),
        Err(EndpointDrop::UnknownId),
        "once"
    );
}

/// §14: ports that are down indeed cost less and less.
#[test]
fn ports_that_stay_down_are_probed_ever_more_seldom() {
    let (mut ops, mut peer) = (ops(), peer());
    said(&mut ops, &mut peer, PORTS.difference(without(2)), NOW);
    let sent = updates(&mut ops, &mut peer, NOW + 300 * SEC);
    let seconds: Vec<(u64, u8)> = sent
        .iter()
        .map(|(at, request)| (at / SEC, request.port.get()))
        .collect();
    let rounds: Vec<u64> = seconds.iter().step_by(3).map(|&(at, _)| at).collect();
    assert_eq!(rounds, [1, 2, 4, 8, 16, 32, 64, 128, 192, 256]);
    assert!(
        seconds
            .chunks(3)
            .all(|round| round.iter().map(|&(_, port)| port).eq([1, 3, 4]))
    );
    // A new word stands for a second, and begins anew.
    let later = NOW + 300 * SEC;
    said(&mut ops, &mut peer, without(3), later);
    assert_eq!(peer.next_timeout(), Some(later + SEC));
    // Own ports that are down are nobody's to probe.
    peer.handle_local_ports(without(3), later);
    while let Some(request) = ops.poll_update(&mut peer, PORTS, later) {
        let settled = answer(request.bth.psn.get(), EndpointOp::PORT_STATUS_UPDATE, Tick(0));
        assert_eq!(
            ops.handle_response(0, Some(&mut peer), &settled, port(1), later),
            Ok(())
        );
    }
    assert_eq!(peer.next_timeout(), None);
}

/// §9.3: a silent peer is told again when it is heard, but not within 100 ms of the last try.
#[test]
fn a_silent_peer_is_told_again_after_exactly_100_ms() {
    for (wait_ns, told) in [(100 * MS - 1, false), (100 * MS, true)] {
        let (mut ops, mut peer) = (ops(), peer());
        peer.handle_local_ports(without(1), NOW);
        let last = updates(&mut ops, &mut peer, NOW + SEC).last().unwrap().0;
        let now = NOW + last + wait_ns;
        peer.handle_arrival(port(2), now);
        assert_eq!(ops.poll_update(&mut peer, PORTS, now).is_some(), told, "{wait_ns}");
    }
}

/// §9.3: "over a port that is up", preferably at both ends, or nobody hears it.
#[test]
fn updates_leave_over_ports_that_are_up_at_both_ends_first() {
    let (mut ops, mut peer) = (ops(), peer());
    let theirs = PORTS.difference(PortSet::first(2));
    said(&mut ops, &mut peer, theirs, NOW);
    peer.handle_local_ports(without(4), NOW);
    let ports: Vec<u8> = updates(&mut ops, &mut peer, NOW + 20 * MS)
        .iter()
        .map(|(_, request)| request.port.get())
        .collect();
    assert_eq!(ports[..3], [3, 1, 2]);
}

/// §9.2: below 8 ms a stamp that was moved on tells of service time; from there on it has wrapped.
#[test]
fn service_time_is_taken_off_round_trips_below_eight_milliseconds() {
    for (age_ns, expected) in [(8 * MS - 1, (8 * MS - 1 - 1280, true)), (8 * MS, (8 * MS, false))] {
        let mut ops = ops();
        assert!(ops.handle_probe(&probe(1, 1), NOW));
        let (_, request) = ops.poll_probe(PORTS, NOW).unwrap();
        let moved = Tick(NOW.tick().0.wrapping_add(10));
        let back = answer(request.bth.psn.get(), EndpointOp::EV_PROBE, moved);
        assert_eq!(ops.handle_response(5, None, &back, port(1), NOW + age_ns), Ok(()));
        let told = ops.poll_result().unwrap().answer.unwrap();
        assert_eq!((told.rtt_ns, told.service_time_removed), expected);
    }
}

/// §14: probes of ports that are said to be down are a millisecond apart, to the nanosecond.
#[test]
fn probes_of_doubted_ports_are_a_millisecond_apart() {
    let (mut ops, mut peer) = (ops(), peer());
    said(&mut ops, &mut peer, PORTS.difference(PortSet::first(2)), NOW);
    let start = NOW + SEC;
    assert_eq!(ops.poll_update(&mut peer, PORTS, start).unwrap().port, port(1));
    assert_eq!(peer.next_timeout(), Some(start + MS));
    assert_eq!(ops.poll_update(&mut peer, PORTS, start + MS - 1), None);
    assert_eq!(ops.poll_update(&mut peer, PORTS, start + MS).unwrap().port, port(2));
}
