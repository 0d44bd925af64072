//! Endpoint operations: packets to queue pair 2, between nodes rather than queue pairs (protocol.md §6.10, §9.2, §9.3).
//!
//! Requests of nodes that a queue pair of this engine talks to are answered, within limits (§14). Thread 0 tells every peer
//! which ports are up; each thread sends the EV probes of its own queue pairs. The low bits of an id name the thread that
//! asked.

use mrc_protocol::profile::Containers;
use mrc_protocol::{Cx, EndpointDrop, EvEntry, EvProbe, EvProbeResult, Instant, Qp, RequestClass};
use mrc_wire::{Bth, Ecn, Ev, FrameWriter, Headers, Outgoing, Packet, PortNum, Qpn, TrafficClass, frame_len};

use super::core::Core;
use super::counters::EngineDrop;
use super::tx::Room;
use crate::port::{Port, TxResult};

/// Answers that wait for a transmit ring; more are dropped.
pub(super) const BACKLOG: usize = 64;

/// How long the answer to an EV probe is waited for.
const EV_PROBE_TIMEOUT_NS: u64 = 20_000_000;
/// Least time between two EV probes to a peer, over all queue pairs: it answers 1000 requests a second (§14).
const EV_PROBE_PACE_NS: u64 = 2_000_000;

/// A packet that is to leave.
#[derive(Clone, Copy)]
pub(super) struct Parcel {
    peer: u32,
    bth: Bth,
    headers: Headers,
    ev: Ev,
    /// Outer addresses that `ev` goes with.
    encap: Option<Containers>,
    port: PortNum,
    class: RequestClass,
    /// This path, and no other: it is the one to be probed.
    exactly: bool,
}

impl Core {
    /// `answer`: this thread has received it; the others only take note of what it says.
    pub(super) fn handle_endpoint(&mut self, packet: &Packet<'_>, port: PortNum, now: Instant, answer: bool) {
        let index = self.peers.find(packet.src);
        let peer = index.and_then(|index| self.peers.get_mut(index));
        if peer.as_ref().is_some_and(|peer| packet.dst != peer.local) {
            return self.drop_packet(EngineDrop::WrongDestination);
        }
        let node = peer.map(|peer| &mut peer.node);
        if let Headers::EndpointResponse(_) = packet.headers {
            let Some(index) = index else {
                return self.drop_packet(EngineDrop::UnknownPeer);
            };
            let taken = self.endpoint.handle_response(index, node, packet, port, now);
            if taken.is_err() {
                self.drop_packet(EngineDrop::EndpointOp);
            }
            self.hear_peer(index, port, now);
            return;
        }
        let reply = match self.endpoint.handle_request(node, packet, port, now) {
            Ok(reply) => reply,
            Err(EndpointDrop::UnknownPeer) => return self.drop_packet(EngineDrop::UnknownPeer),
            Err(_) => return self.drop_packet(EngineDrop::EndpointOp),
        };
        if reply.ports_changed {
            self.peer_ports_changed = true;
        }
        if let Some(index) = index {
            self.hear_peer(index, port, now);
        }
        match index {
            Some(peer) if answer && self.answers.len() < BACKLOG => self.answers.push_back(Parcel {
                peer,
                bth: reply.bth,
                headers: reply.headers,
                ev: reply.ev,
                encap: None,
                port: reply.port,
                class: RequestClass::Of(reply.class),
                exactly: false,
            }),
            _ => {}
        }
    }

    /// A packet of this peer arrived on `port` (protocol.md §9.3).
    pub(super) fn hear_peer(&mut self, index: u32, port: PortNum, now: Instant) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        if peer.node.handle_arrival(port, now) {
            self.peer_ports_changed = true;
        }
        if let Some(due) = peer.node.next_timeout() {
            self.next_update = Some(self.next_update.map_or(due, |other| other.min(due)));
        }
    }

    /// The own ports have changed, or a peer is new: thread 0 tells those that do not know.
    pub(super) fn announce_ports(&mut self, now: Instant) {
        if self.index != 0 {
            return;
        }
        let up = self.up;
        for peer in self.peers.iter_mut() {
            peer.node.handle_local_ports(up, now);
        }
        self.plan_updates();
    }

    fn plan_updates(&mut self) {
        self.next_update = self.peers.iter_mut().filter_map(|peer| peer.node.next_timeout()).min();
    }

    /// When an update or a probe is due, or given up.
    pub(super) fn next_endpoint_deadline(&self) -> Option<Instant> {
        match (self.next_update, self.endpoint.next_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sends answers, updates and probes that are due. Those whose port has no room are lost, as any packet may be: updates
    /// repeat. True if any went out.
    pub(super) fn send_endpoint_packets(&mut self, ports: &mut [Box<dyn Port>], room: &mut Room, now: Instant) -> bool {
        let mut any = false;
        while let Some(answer) = self.answers.pop_front() {
            any |= self.send_parcel(ports, room, &answer, now).is_some();
        }
        if self.next_update.is_some_and(|due| due <= now) {
            any |= self.send_updates(ports, room, now);
        }
        while let Some((peer, request)) = self.endpoint.poll_probe(self.up, now) {
            let parcel = Parcel {
                peer,
                bth: request.bth,
                headers: request.headers,
                ev: request.ev,
                encap: request.encap,
                port: request.port,
                class: request.class,
                exactly: true,
            };
            any |= self.send_parcel(ports, room, &parcel, now).is_some();
        }
        any
    }

    fn send_updates(&mut self, ports: &mut [Box<dyn Port>], room: &mut Room, now: Instant) -> bool {
        let mut any = false;
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers.get_mut(index) else {
                continue;
            };
            let Some(request) = self.endpoint.poll_update(&mut peer.node, peer.resolved, now) else {
                continue;
            };
            let parcel = Parcel {
                peer: index,
                bth: request.bth,
                headers: request.headers,
                ev: request.ev,
                encap: request.encap,
                port: request.port,
                class: request.class,
                exactly: false,
            };
            any |= self.send_parcel(ports, room, &parcel, now).is_some();
        }
        self.plan_updates();
        any
    }

    fn send_parcel(
        &mut self,
        ports: &mut [Box<dyn Port>],
        room: &mut Room,
        parcel: &Parcel,
        now: Instant,
    ) -> Option<()> {
        let peer = self.peers.get_mut(parcel.peer)?;
        let way = if parcel.exactly {
            None
        } else {
            peer.next_way(parcel.port)
        };
        let tunnel = match (way, parcel.encap) {
            (Some(way), _) => way.tunnel,
            (None, Some(encap)) => Some(encap.tunnel(peer.outer_source?)),
            (None, None) => None,
        };
        let tunnelled = match tunnel {
            Some(tunnel) => Some(peer.tunnelled(parcel.port, &tunnel, &self.config)?),
            None => None,
        };
        let template = tunnelled.as_ref().or_else(|| peer.template(parcel.port))?;
        let port = ports.get_mut(parcel.port.index())?;
        let outgoing = Outgoing {
            bth: parcel.bth,
            headers: parcel.headers,
            ev: way.map_or(parcel.ev, |way| way.ev),
            ev_layout: self.config.ev_layout,
            dscp: match parcel.class {
                RequestClass::Of(class) => self.config.dscps.of(class),
                RequestClass::Dscp(dscp) => dscp,
            },
            ecn: Ecn::NotEct,
            payload_len: 0,
        };
        let len = frame_len(template, &parcel.headers, 0);
        let result = port.tx_frame(len, &mut |head, tail| {
            let frame = FrameWriter::start(head, tail, template, &outgoing);
            frame.and_then(FrameWriter::finish).is_ok()
        });
        if result != TxResult::Queued {
            return None;
        }
        room.charge(parcel.port, len, now);
        let cells = self.cells.port(parcel.port);
        cells.tx_packets.add(1);
        cells.tx_bytes.add(len as u64);
        Some(())
    }

    /// Had packets: if it only receives, it may want to know where its answers arrive (protocol.md §6.10).
    pub(super) fn probe_reverse(&mut self, key: u32, peer: u32, now: Instant) {
        let is_early = |at: Option<Instant>| at.is_some_and(|at| now.since(at) < EV_PROBE_PACE_NS);
        if self.peers.get(peer).is_none_or(|peer| is_early(peer.probed)) {
            return;
        }
        let wanted = self.visit(key, now, |slot, cx| {
            let path = slot.qp.poll_ev_probe(cx)?;
            Some((path, slot.encap_of(path), slot.qpn))
        });
        let Some(Some((EvEntry { ev, port }, encap, qpn))) = wanted else {
            return;
        };
        let probe = EvProbe {
            peer,
            token: u64::from(qpn.get()),
            ev,
            encap,
            port,
            class: RequestClass::Of(TrafficClass::NoTrim),
            timeout_ns: EV_PROBE_TIMEOUT_NS,
        };
        if self.endpoint.handle_probe(&probe, now)
            && let Some(peer) = self.peers.get_mut(peer)
        {
            peer.probed = Some(now);
        }
    }

    /// Tells queue pairs what became of their EV probes.
    pub(super) fn take_probe_results(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        while let Some(EvProbeResult { probe, answer }) = self.endpoint.poll_result() {
            let path = EvEntry {
                ev: probe.ev,
                port: probe.port,
            };
            let tell = |qp: &mut Qp, cx: &mut Cx<'_>| qp.handle_ev_probe(cx, path, answer.is_some());
            if let Some(&key) = self.by_qpn.get(&(probe.token as u32)) {
                self.visit(key, now, |slot, cx| tell(&mut slot.qp, cx));
            }
        }
    }

    /// Does another thread wait for this answer?
    pub(super) fn asked_elsewhere(&self, packet: &Packet<'_>) -> Option<usize> {
        let thread = packet.bth.psn.get() & self.thread_mask;
        let answers = matches!(packet.headers, Headers::EndpointResponse(_)) && packet.bth.dqp == Qpn::ENDPOINT;
        (answers && thread != self.index as u32).then_some(thread as usize)
    }
}
