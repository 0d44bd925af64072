//! Endpoint operations: packets to queue pair 2, between nodes rather than queue pairs (protocol.md §9.2, §9.3).
//!
//! Requests of nodes that a queue pair of this engine talks to are answered, within limits (§14); this side sends none yet.

use mrc_protocol::{EndpointDrop, EndpointReply, Instant};
use mrc_wire::{Ecn, FrameWriter, Outgoing, Packet, PortNum, frame_len};

use super::core::Core;
use super::counters::EngineDrop;
use crate::port::{Port, TxResult};

/// Answers that wait for a transmit ring; more are dropped.
pub(super) const BACKLOG: usize = 64;

/// An answer that is to leave.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    peer: u32,
    reply: EndpointReply,
}

impl Core {
    /// `answer`: this thread has received it; the others only take note of what it says.
    pub(super) fn handle_endpoint(&mut self, packet: &Packet<'_>, port: PortNum, now: Instant, answer: bool) {
        let index = self.peers.find(packet.src);
        let peer = index.and_then(|index| self.peers.get_mut(index));
        if peer.as_ref().is_some_and(|peer| packet.dst != peer.local) {
            return self.drop_packet(EngineDrop::WrongDestination);
        }
        let peer = peer.map(|peer| &mut peer.node);
        let reply = match self.endpoint.handle_request(peer, packet, port, now) {
            Ok(reply) => reply,
            Err(EndpointDrop::UnknownPeer) => return self.drop_packet(EngineDrop::UnknownPeer),
            Err(_) => return self.drop_packet(EngineDrop::EndpointOp),
        };
        if reply.ports_changed {
            self.peer_ports_changed = true;
        }
        match index {
            Some(peer) if answer && self.answers.len() < BACKLOG => self.answers.push_back(Answer { peer, reply }),
            _ => {}
        }
    }

    /// Sends the answers that are due; those whose port has no room are lost, as any packet may be. True if any went out.
    pub(super) fn send_answers(&mut self, ports: &mut [Box<dyn Port>]) -> bool {
        let mut any = false;
        while let Some(answer) = self.answers.pop_front() {
            any |= self.send_answer(ports, &answer).is_some();
        }
        any
    }

    fn send_answer(&mut self, ports: &mut [Box<dyn Port>], answer: &Answer) -> Option<()> {
        let reply = &answer.reply;
        let template = self.peers.get(answer.peer)?.template(reply.port)?;
        let port = ports.get_mut(reply.port.index())?;
        let outgoing = Outgoing {
            bth: reply.bth,
            headers: reply.headers,
            ev: reply.ev,
            ev_layout: self.config.ev_layout,
            dscp: self.config.dscps.of(reply.class),
            ecn: Ecn::NotEct,
            payload_len: 0,
        };
        let len = frame_len(template, &reply.headers, 0);
        let result = port.tx_frame(len, &mut |head, tail| {
            let frame = FrameWriter::start(head, tail, template, &outgoing);
            frame.and_then(FrameWriter::finish).is_ok()
        });
        if result != TxResult::Queued {
            return None;
        }
        let cells = self.cells.port(reply.port);
        cells.tx_packets.add(1);
        cells.tx_bytes.add(len as u64);
        Some(())
    }
}
