//! Endpoint operations between hosts: port status updates and EV probes, as packets that meet what all packets meet
//! (protocol.md §9.2, §9.3).

use crate::codec::Route;
use crate::ensure;
use crate::fabric::frame::{Data, Frame};
use crate::host::Host;
use crate::meter::without_allocation;
use crate::oracle::ports::{PortTalk, judge_reply, request_id};
use crate::oracle::probes::Probing;
use crate::oracle::{Breach, Checked, Oracle};
use crate::scenario::Scenario;
use crate::trace;
use crate::world::{Event, World};
use mrc_protocol::{
    EndpointDrop, EndpointLimits, EndpointOps, EndpointReply, EndpointRequest, Instant, Peer, RequestClass, Transmit,
};
use mrc_wire::{Bth, EndpointOp, EvLayout, Headers, Packet, PortNum, PortSet, TrafficClass};
use std::collections::{BTreeMap, VecDeque};

/// Hosts that do not agree have something to say to each other so often, until they do.
const CONVERSE_NS: u64 = 120_000_000;
/// By then they agree, once faults have stopped.
const AGREE_WITHIN_NS: u64 = 30_000_000_000;

/// What a host has for endpoint operations.
#[derive(Debug)]
pub struct Node {
    pub(crate) ops: EndpointOps,
    pub(crate) peers: BTreeMap<usize, Acquaintance>,
    /// Answers that wait for room on their port, and whom they are for.
    answers: VecDeque<(usize, EndpointReply)>,
    pub(crate) probing: Probing,
}

/// A peer: the protocol's record, and the oracle's.
#[derive(Debug)]
pub struct Acquaintance {
    record: Peer,
    pub(crate) talk: PortTalk,
    /// When a queue pair last sent an EV probe there.
    pub(crate) probed_ns: Option<u64>,
}

impl Node {
    /// Each host's, with the peers that its connections lead to.
    pub(crate) fn of(scenario: &Scenario, host: usize) -> Node {
        let limits = EndpointLimits::default();
        let own = PortSet::first(scenario.planes);
        let ends = scenario.connections.iter().map(|plan| plan.hosts);
        let peers = ends.filter_map(|hosts| match hosts {
            [one, other] if one == host => Some(other),
            [one, other] if other == host => Some(one),
            _ => None,
        });
        let acquaintance = |peer| {
            let known = Acquaintance {
                record: Peer::new(&limits, own),
                talk: PortTalk::new(own),
                probed_ns: None,
            };
            (peer, known)
        };
        Node {
            ops: EndpointOps::new(&limits, EvLayout::FlowHigh),
            peers: peers.map(acquaintance).collect(),
            answers: VecDeque::new(),
            probing: Probing::default(),
        }
    }

    /// When it has something to do, by the host's clock.
    pub fn next_timeout(&self) -> Option<Instant> {
        let updates = self.peers.values().filter_map(|peer| peer.record.next_timeout());
        updates.chain(self.ops.next_timeout()).min()
    }

    /// What it said to each peer and heard from it.
    pub(crate) fn talks(&self) -> impl Iterator<Item = &PortTalk> {
        self.peers.values().map(|peer| &peer.talk)
    }

    /// Something waits for room on a port.
    pub fn has_packets(&self) -> bool {
        !self.answers.is_empty() || self.probing.waits()
    }
}

impl World {
    /// The ports of a host have changed: its peers are to be told.
    pub(crate) fn announce(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let now_ns = host.mood.clock_ns(self.now_ns);
        let Some(node) = &mut host.node else { return };
        for peer in node.peers.values_mut() {
            peer.record.handle_local_ports(host.local_up, Instant(now_ns));
            peer.talk.change(host.local_up, now_ns);
        }
    }

    /// A packet for a node, not for a queue pair.
    pub(crate) fn deliver_endpoint(&mut self, index: usize, frame: &Frame, packet: &Packet<'_>) -> Checked {
        let Some(port) = PortNum::new(frame.plane) else {
            return Ok(());
        };
        let from = self.sender(frame, packet);
        let host = &mut self.hosts[index];
        let now = Instant(host.mood.clock_ns(self.now_ns));
        let Some(node) = &mut host.node else { return Ok(()) };
        trace!(
            self.trace,
            self.now_ns,
            "h{index} takes #{} {:?} id {} of h{} on port {}",
            frame.id,
            packet.headers,
            request_id(&packet.bth),
            frame.src,
            port.get()
        );
        let peer = from.and_then(|from| node.peers.get_mut(&from).map(|peer| (from, peer)));
        if matches!(packet.headers, Headers::EndpointResponse(_)) {
            return self.hear_response(index, from, packet, port, now);
        }
        let Headers::EndpointRequest(erth) = &packet.headers else {
            return Ok(());
        };
        let (from, peer) = match peer {
            Some((from, peer)) => (Some(from), Some(peer)),
            None => (None, None),
        };
        let (record, talk) = match peer {
            Some(peer) => (Some(&mut peer.record), Some(&mut peer.talk)),
            None => (None, None),
        };
        let (ops, known_before) = (&mut node.ops, talk.as_ref().map(|talk| talk.known()));
        let reply = without_allocation(|| ops.handle_request(record, packet, port, now))?;
        let name = format!("h{index}");
        let reply = match reply {
            Ok(reply) => reply,
            Err(why) => {
                let (fair, rule) = match why {
                    EndpointDrop::UnknownPeer => (talk.is_none(), "§14 endpoint request of a stranger"),
                    EndpointDrop::PKey => {
                        let other = (packet.bth.p_key ^ Bth::DEFAULT_P_KEY) & 0x7fff != 0;
                        (other, "§14 endpoint request of another partition")
                    }
                    EndpointDrop::RateLimited => (talk.is_some(), "§14 endpoint request above the rate"),
                    EndpointDrop::NotEndpoint | EndpointDrop::UnknownId | EndpointDrop::Operation => {
                        (false, "§9.2 EV probe is answered")
                    }
                };
                ensure!(fair, Oracle::Ports, "{name}: {packet:?} is dropped: {why:?}");
                self.coverage.rule(rule, 1);
                return Ok(());
            }
        };
        judge_reply(&name, packet, port, &reply)?;
        let (Some(from), Some(talk)) = (from, talk) else {
            return Err(Breach(Oracle::Ports, format!("{name}: a stranger gets {reply:?}")));
        };
        let is_update = erth.op == EndpointOp::PORT_STATUS_UPDATE;
        let changes = is_update && known_before != Some(erth.ports());
        ensure!(
            reply.ports_changed == changes,
            Oracle::Ports,
            "{name}: {erth:?} changes what was {known_before:?}: {}",
            reply.ports_changed
        );
        if is_update {
            talk.hear_update(erth.ports(), host.local_up, now.as_ns());
        } else {
            self.coverage.rule("§9.2 EV probe is answered", 1);
        }
        node.answers.push_back((from, reply));
        self.learn_peer(index, from)
    }

    fn hear_response(
        &mut self,
        index: usize,
        from: Option<usize>,
        packet: &Packet<'_>,
        port: PortNum,
        now: Instant,
    ) -> Checked {
        let host = &mut self.hosts[index];
        let Some(node) = &mut host.node else { return Ok(()) };
        let id = request_id(&packet.bth);
        let name = from.map_or(u32::MAX, |from| from as u32);
        let peer = from.and_then(|from| node.peers.get_mut(&from));
        let (record, mut talk) = match peer {
            Some(peer) => (Some(&mut peer.record), Some(&mut peer.talk)),
            None => (None, None),
        };
        let ops = &mut node.ops;
        let heard = without_allocation(|| ops.handle_response(name, record, packet, port, now))?;
        let probe = node.probing.hear(name, id, packet, now.as_ns());
        let update = talk.as_mut().map_or(Some(false), |talk| talk.hear_answer(id));
        let expected = match (probe, update) {
            (true, _) => Some(true),
            (false, update) => update,
        };
        ensure!(
            expected.is_none_or(|expected| heard.is_ok() == (expected && packet.bth.p_key & 0x7fff == 0x7fff)),
            Oracle::Ports,
            "h{index}: the answer {packet:?} of h{name} comes to {heard:?}"
        );
        Ok(())
    }

    /// A packet of a peer has arrived, whatever it was.
    pub(crate) fn hear_peer(&mut self, index: usize, frame: &Frame, packet: &Packet<'_>) -> Checked {
        let (Some(port), Some(from)) = (PortNum::new(frame.plane), self.sender(frame, packet)) else {
            return Ok(());
        };
        let host = &mut self.hosts[index];
        let now = Instant(host.mood.clock_ns(self.now_ns));
        let Some(node) = &mut host.node else { return Ok(()) };
        let Some(peer) = node.peers.get_mut(&from) else {
            return Ok(());
        };
        let shown = peer.record.handle_arrival(port, now);
        let expected = peer.talk.hear(port, now.as_ns());
        ensure!(
            shown == expected,
            Oracle::Ports,
            "h{index}: a packet of h{from} on port {} shows it to work: {shown}",
            port.get()
        );
        if shown {
            return self.learn_peer(index, from);
        }
        Ok(())
    }

    /// The host that a packet comes from, if its address is true.
    fn sender(&self, frame: &Frame, packet: &Packet<'_>) -> Option<usize> {
        (packet.src == self.codec.address(frame.src)).then_some(frame.src)
    }

    /// Queue pairs learn what their host has heard of a peer's ports.
    fn learn_peer(&mut self, index: usize, from: usize) -> Checked {
        let host = &mut self.hosts[index];
        let Some(peer) = host.node.as_ref().and_then(|node| node.peers.get(&from)) else {
            return Ok(());
        };
        let (said, known) = (peer.record.ports(), peer.talk.known());
        ensure!(
            said == known,
            Oracle::Ports,
            "h{index}: it takes {said:?} of h{from} for up, and was told {known:?}"
        );
        if host.peer_up.of(from) != known {
            host.peer_up.learn(from, known);
            host.effort.causes += 1;
            self.ports_changed(index);
        }
        Ok(())
    }

    /// Probes that nobody answered are given up; queue pairs hear what became of theirs.
    pub(crate) fn endpoint_timers(&mut self, index: usize) -> Checked {
        let host = &mut self.hosts[index];
        let now = Instant(host.mood.clock_ns(self.now_ns));
        let Some(node) = &mut host.node else { return Ok(()) };
        let ops = &mut node.ops;
        if ops.next_timeout().is_some_and(|at| at <= now) {
            host.effort.causes += 1;
            without_allocation(|| ops.handle_timeout(now))?;
        }
        while let Some(result) = self.hosts[index].node.as_mut().and_then(|node| node.ops.poll_result()) {
            self.take_probe_result(index, &result, now)?;
        }
        Ok(())
    }

    /// Sends answers, updates and probes. Returns how many.
    pub(crate) fn transmit_endpoint(&mut self, index: usize) -> Result<usize, Breach> {
        if self.hosts[index].node.is_none() {
            return Ok(0);
        }
        let before = self.sent;
        self.send_answers(index)?;
        self.send_updates(index)?;
        self.send_probes(index)?;
        let sent = (self.sent - before) as usize;
        self.hosts[index].effort.causes += sent as u64;
        Ok(sent)
    }

    fn send_answers(&mut self, index: usize) -> Checked {
        let count = self.hosts[index].node.as_ref().map_or(0, |node| node.answers.len());
        for _ in 0..count {
            let host = &mut self.hosts[index];
            let room = host.room(self.now_ns);
            let Some((peer, reply)) = host.node.as_mut().and_then(|node| node.answers.pop_front()) else {
                break;
            };
            if !host.local_up.contains(reply.port) {
                // It cannot go back where the request came from.
                continue;
            }
            if !room.contains(reply.port) {
                if let Some(node) = &mut host.node {
                    node.answers.push_back((peer, reply));
                }
                continue;
            }
            let request = EndpointRequest {
                bth: reply.bth,
                headers: reply.headers,
                ev: reply.ev,
                encap: None,
                port: reply.port,
                class: RequestClass::Of(reply.class),
            };
            self.send_parcel(index, peer, &request)?;
        }
        Ok(())
    }

    fn send_updates(&mut self, index: usize) -> Checked {
        let peers: Vec<usize> = match &self.hosts[index].node {
            Some(node) => node.peers.keys().copied().collect(),
            None => return Ok(()),
        };
        for peer in peers {
            let host = &mut self.hosts[index];
            let room = host.room(self.now_ns);
            let now = Instant(host.mood.clock_ns(self.now_ns));
            let Some(node) = &mut host.node else { return Ok(()) };
            let Some(known) = node.peers.get_mut(&peer) else {
                continue;
            };
            let (ops, record) = (&mut node.ops, &mut known.record);
            let update = without_allocation(|| ops.poll_update(record, room, now))?;
            let name = format!("h{index} to h{peer}");
            let Some(update) = update else {
                let due = known.record.next_timeout();
                ensure!(
                    due.is_none_or(|due| due > now),
                    Oracle::Ports,
                    "{name}: an update was due at {due:?} and did not leave; {room:?} have room"
                );
                continue;
            };
            known.talk.judge_update(&name, &update, room, now.as_ns())?;
            self.send_parcel(index, peer, &update)?;
        }
        Ok(())
    }

    fn send_probes(&mut self, index: usize) -> Checked {
        loop {
            let host = &mut self.hosts[index];
            let room = host.room(self.now_ns).intersection(host.local_up);
            let now = Instant(host.mood.clock_ns(self.now_ns));
            let Some(node) = &mut host.node else { return Ok(()) };
            let ops = &mut node.ops;
            let Some((peer, request)) = without_allocation(|| ops.poll_probe(room, now))? else {
                return Ok(());
            };
            node.probing
                .judge_sent(&format!("h{index}"), peer, &request, now.as_ns())?;
            self.send_parcel(index, peer as usize, &request)?;
        }
    }

    fn send_parcel(&mut self, index: usize, peer: usize, request: &EndpointRequest) -> Checked {
        let transmit = Transmit {
            bth: request.bth,
            headers: request.headers,
            ev: request.ev,
            path: 0,
            port: request.port,
            class: match request.class {
                RequestClass::Of(class) => class,
                RequestClass::Dscp(_) => TrafficClass::NoTrim,
            },
            ect: false,
            payload: None,
            is_retransmission: false,
        };
        let route = Route {
            src: index,
            dst: peer,
            id: self.sent,
        };
        trace!(
            self.trace,
            self.now_ns,
            "h{index} -> #{} {:?} id {} to h{peer} on ev {:#x} port {}",
            self.sent,
            request.headers,
            request_id(&request.bth),
            request.ev.0,
            request.port.get()
        );
        let frame = self.codec.pack(route, &transmit, Data::default())?;
        self.sent += 1;
        self.send(index, request.port, frame);
        Ok(())
    }

    /// Pairs of hosts of which the first one believes something of the other's ports that is not so.
    fn disagreements(&self) -> Vec<(usize, usize)> {
        let all = PortSet::first(self.scenario.planes);
        let hosts = self.hosts.iter().enumerate().filter(|(_, host)| !host.gone);
        let pairs = hosts.flat_map(|(index, host)| {
            let peers = host.node.iter().flat_map(|node| node.peers.iter());
            peers.map(move |(peer, known)| (index, *peer, known.talk.known()))
        });
        let wrong = pairs.filter(|(_, peer, known)| {
            let peer: &Host = &self.hosts[*peer];
            // One without ports can say nothing, one that is gone or cut off will not.
            !peer.gone && !peer.local_up.is_empty() && known.intersection(all) != peer.local_up
        });
        wrong.map(|(index, peer, _)| (index, peer)).collect()
    }

    /// Whether all hosts agree on which ports are up. Where they do not, something is said soon, for only who is heard is told
    /// again (protocol.md §9.3); and that must not go on for ever.
    pub(crate) fn agrees(&mut self) -> Result<bool, Breach> {
        if !self.scenario.updates || self.scenario.class == crate::scenario::Class::Partition {
            return Ok(true);
        }
        let wrong = self.disagreements();
        if wrong.is_empty() {
            return Ok(true);
        }
        let since_ns = *self.ended_ns.get_or_insert(self.now_ns);
        if !self.conversing {
            self.conversing = true;
            self.coverage.event("hosts that disagree at the end", 1);
            self.events.post(self.now_ns + CONVERSE_NS, Event::Converse);
        }
        ensure!(
            self.now_ns < since_ns + AGREE_WITHIN_NS,
            Oracle::Ports,
            "{:?}: the first ones are wrong about the ports of the others, long after all faults",
            wrong
        );
        Ok(false)
    }

    /// Hosts probe each other, so that they are heard.
    pub(crate) fn converse(&mut self) -> Checked {
        self.conversing = false;
        for (one, other) in self.disagreements() {
            for (from, to) in [(one, other), (other, one)] {
                let up = self.hosts[from].local_up;
                let some = self.rng.below(up.len() as u64) as usize;
                for port in up.iter().skip(some).take(1) {
                    let ev = mrc_wire::Ev(0xC000 + self.rng.below(0x4000) as u32);
                    self.start_probe(from, to, ev, port, crate::oracle::probes::NOBODY);
                }
                self.wake(from, self.now_ns);
            }
        }
        if self.all_ended() {
            self.agrees()?;
        }
        Ok(())
    }
}
