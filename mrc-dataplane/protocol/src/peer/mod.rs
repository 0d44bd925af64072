//! What concerns a node and not a queue pair: endpoint requests and their answers, in both directions (protocol.md §9.2,
//! §9.3, §14).

mod answer;
mod doubt;
mod probe;
mod status;
#[cfg(test)]
mod tests;

use mrc_wire::{
    Bth, EndpointOp, Erth, Ev, EvLayout, Headers, Opcode, Packet, PortNum, PortSet, Psn, Qpn, TrafficClass, Tseth,
};

pub use self::answer::{EndpointDrop, EndpointLimits, EndpointReply};
use self::doubt::Doubts;
use self::probe::Probes;
pub use self::probe::{EvProbe, EvProbeAnswer, EvProbeResult, MAX_EV_PROBES};
use self::status::Status;
use crate::limit::TokenBucket;
use crate::profile::Containers;
use crate::time::{Instant, SEC, earlier};

/// A remote node (protocol.md §3): one record for all its addresses.
#[derive(Clone, Debug)]
pub struct Peer {
    answers: TokenBucket,
    ports: PortSet,
    /// When it last said which ports are up.
    told: Instant,
    /// What it is to know of this side's ports.
    status: Status,
    /// Whether what it said is true.
    doubts: Doubts,
}

impl Peer {
    /// A node that has said nothing yet: all its ports count as up, and so do the own ones with it. `own`: all that this
    /// side has.
    pub fn new(limits: &EndpointLimits, own: PortSet) -> Self {
        Self {
            answers: TokenBucket::new(limits.answers_per_s_and_peer, limits.burst),
            ports: PortSet::first(PortNum::MAX),
            told: Instant::ZERO,
            status: Status::new(own),
            doubts: Doubts::default(),
        }
    }

    /// The ports that it said to be reachable: for [`crate::Qp::handle_ports`].
    pub fn ports(&self) -> PortSet {
        self.ports
    }

    /// The own ports that are reachable now. If that is news, the peer is to be told: [`EndpointOps::poll_update`].
    pub fn handle_local_ports(&mut self, reachable: PortSet, now: Instant) {
        self.status.change(reachable, now);
    }

    /// A packet of it arrived on `port`. True if that shows a port to work which it had said not to: tell its queue
    /// pairs. The mask has its way for a second (protocol.md §9.3).
    pub fn handle_arrival(&mut self, port: PortNum, now: Instant) -> bool {
        self.status.heard(now);
        let proven = self.doubts.take_proven().with(port);
        let shown = proven.difference(self.ports);
        if shown.is_empty() || now.since(self.told) < SEC {
            return false;
        }
        self.ports = self.ports.union(shown);
        true
    }

    /// When [`EndpointOps::poll_update`] has something for this peer.
    pub fn next_timeout(&self) -> Option<Instant> {
        earlier(self.status.next_timeout(), self.doubts.next_timeout(self.doubted()))
    }

    /// Up here, and down there as far as it says.
    fn doubted(&self) -> PortSet {
        self.status.mask().difference(self.ports)
    }

    /// Says which of its ports are up: the last one wins (protocol.md §9.3). Is it news?
    fn tell(&mut self, ports: PortSet, now: Instant) -> bool {
        self.told = now;
        self.doubts.told(now);
        core::mem::replace(&mut self.ports, ports) != ports
    }
}

/// The own node's part in endpoint operations.
#[derive(Clone, Debug)]
pub struct EndpointOps {
    answers: TokenBucket,
    ev_layout: EvLayout,
    p_key: u16,
    /// For source ports.
    packets: u16,
    ids: Ids,
    probes: Probes,
}

/// Ids of requests: all different until 2^16 / `step` others were used.
#[derive(Clone, Copy, Debug)]
struct Ids {
    next: u16,
    step: u16,
}

impl Ids {
    fn take(&mut self) -> u16 {
        let id = self.next;
        self.next = self.next.wrapping_add(self.step);
        id
    }
}

/// A request to send to the peer that it is polled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRequest {
    /// Base header.
    pub bth: Bth,
    /// The header after it.
    pub headers: Headers,
    /// The path.
    pub ev: Ev,
    /// Outer addresses of the path, with SRv6 only.
    pub encap: Option<Containers>,
    /// The port that it must leave from.
    pub port: PortNum,
    /// Not-ECT, whatever the class.
    pub class: RequestClass,
}

/// The traffic class of a request (protocol.md §12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// One of MRC's.
    Of(TrafficClass),
    /// A code point of the caller's choice.
    Dscp(u8),
}

impl EndpointOps {
    /// In the default partition.
    pub fn new(limits: &EndpointLimits, ev_layout: EvLayout) -> Self {
        Self {
            answers: TokenBucket::new(limits.answers_per_s, limits.burst),
            ev_layout,
            p_key: Bth::DEFAULT_P_KEY,
            packets: 0,
            ids: Ids { next: 0, step: 1 },
            probes: Probes::default(),
        }
    }

    /// Only ids whose low `bits` bits are `low`: several of these may share a node, and answers say which one asked.
    #[must_use]
    pub fn with_ids(mut self, low: u16, bits: u8) -> Self {
        let step = 1_u16.checked_shl(bits.into()).unwrap_or(0).max(1);
        self.ids = Ids {
            next: low & (step - 1),
            step,
        };
        self
    }

    /// The port status update that is due to this peer, over one of the ports of `room` (those that lead to it and have a
    /// free transmit slot); or a probe of a port that it says is down (protocol.md §14).
    pub fn poll_update(&mut self, peer: &mut Peer, room: PortSet, now: Instant) -> Option<EndpointRequest> {
        let Some(port) = peer.status.next_port(room, peer.ports, now) else {
            return self.poll_doubt(peer, room, now);
        };
        let id = self.ids.take();
        peer.status.sent(id, port, now);
        let (bth, headers) = self.request(id, EndpointOp::PORT_STATUS_UPDATE, peer.status.mask(), now);
        Some(EndpointRequest {
            bth,
            headers,
            ev: self.any_ev(),
            encap: None,
            port,
            class: RequestClass::Of(TrafficClass::Control),
        })
    }

    fn poll_doubt(&mut self, peer: &mut Peer, room: PortSet, now: Instant) -> Option<EndpointRequest> {
        let port = peer.doubts.next_port(peer.doubted(), room, now)?;
        let id = self.ids.take();
        peer.doubts.sent(id, port, now);
        let (bth, headers) = self.request(id, EndpointOp::EV_PROBE, PortSet::EMPTY, now);
        Some(EndpointRequest {
            bth,
            headers,
            ev: self.any_ev(),
            encap: None,
            port,
            // protocol.md §12: that of data.
            class: RequestClass::Of(TrafficClass::NoTrim),
        })
    }

    /// An answer for this side arrived on `port`; [`Peer::handle_arrival`] is to be called too, afterwards. `name` and `peer`: the caller's name of the node that its source address
    /// belongs to, and its record.
    pub fn handle_response(
        &mut self,
        name: u32,
        peer: Option<&mut Peer>,
        packet: &Packet<'_>,
        port: PortNum,
        now: Instant,
    ) -> Result<(), EndpointDrop> {
        let Headers::EndpointResponse(eeth) = &packet.headers else {
            return Err(EndpointDrop::NotEndpoint);
        };
        if (packet.bth.p_key ^ self.p_key) & 0x7fff != 0 {
            return Err(EndpointDrop::PKey);
        }
        // wire-format.md §8, W21: by id, not by operation.
        let id = (packet.bth.psn.get() & 0xffff) as u16;
        if self.probes.answered(name, id, eeth.tx_timestamp, port, now)
            || peer.is_some_and(|peer| peer.status.answered(id) || peer.doubts.answered(id))
        {
            Ok(())
        } else {
            Err(EndpointDrop::UnknownId)
        }
    }

    /// When [`EndpointOps::handle_timeout`] wants to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.probes.next_timeout()
    }

    /// Gives up what was not answered in time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.probes.expire(now);
    }

    /// What a request says; its PSN is its id (wire-format.md §8). `ports` is for updates, and empty in probes.
    fn request(&self, id: u16, op: EndpointOp, ports: PortSet, now: Instant) -> (Bth, Headers) {
        let bth = Bth {
            p_key: self.p_key,
            ..Bth::new(Opcode::EndpointRequest, Qpn::ENDPOINT, Psn::new(id.into()))
        };
        let headers = Headers::EndpointRequest(Erth {
            op,
            port_status_mask: ports.bits(),
            tx_timestamp: now.tick(),
            ftype: Tseth::FTYPE_PRESENT,
        });
        (bth, headers)
    }

    /// Any path will do; a new source port each time.
    fn any_ev(&mut self) -> Ev {
        self.packets = self.packets.wrapping_add(1);
        let source_port = u32::from(0xc000 | self.packets & 0x3fff);
        match self.ev_layout {
            EvLayout::FlowHigh => Ev(source_port),
            EvLayout::PortHigh => Ev(source_port << 16),
        }
    }
}
