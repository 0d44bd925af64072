//! Endpoint operations: packets to queue pair 2, between nodes rather than queue pairs (protocol.md §9.2).
//!
//! Only EV probes are answered so far, and only to nodes that a queue pair of this engine talks to, within limits (§14).

use mrc_protocol::Instant;
use mrc_wire::{
    Bth, Dscps, Ecn, Eeth, EndpointOp, Ev, FrameWriter, Headers, Opcode, Outgoing, Packet, PortNum, Psn, Qpn,
    TrafficClass, frame_len,
};

use super::core::Core;
use super::counters::EngineDrop;
use crate::port::{Port, TxResult};

/// Answers that wait for a transmit ring; more are dropped.
pub(super) const BACKLOG: usize = 64;
/// protocol.md §14: 1000 answers a second and peer.
const NS_PER_ANSWER: u64 = 1_000_000;
/// So many may come at once.
const BURST_NS: u64 = 64 * NS_PER_ANSWER;

/// An answer that is to leave.
#[derive(Clone, Copy)]
pub(super) struct Response {
    peer: u32,
    port: PortNum,
    id: Psn,
    eeth: Eeth,
}

/// Limits the answers to one peer.
#[derive(Default, Clone, Copy)]
pub(super) struct AnswerLimit {
    /// The time up to which its allowance is used up.
    used_up_to: u64,
}

impl AnswerLimit {
    fn allows(&mut self, now: Instant) -> bool {
        let start = self.used_up_to.max(now.as_ns().saturating_sub(BURST_NS));
        let allowed = start + NS_PER_ANSWER <= now.as_ns();
        if allowed {
            self.used_up_to = start + NS_PER_ANSWER;
        }
        allowed
    }
}

impl Core {
    pub(super) fn handle_endpoint(&mut self, packet: &Packet<'_>, port: PortNum, now: Instant) {
        let Some(index) = self.peers.find(packet.src) else {
            return self.drop_packet(EngineDrop::UnknownPeer);
        };
        let Some(peer) = self.peers.get_mut(index) else { return };
        if packet.dst != peer.local {
            return self.drop_packet(EngineDrop::WrongDestination);
        }
        let Headers::EndpointRequest(erth) = packet.headers else {
            return self.drop_packet(EngineDrop::EndpointOp);
        };
        if erth.op != EndpointOp::EV_PROBE || self.responses.len() >= BACKLOG || !peer.answers.allows(now) {
            return self.drop_packet(EngineDrop::EndpointOp);
        }
        // The id goes back unchanged; bits 23:16 are not part of it (wire-format.md §8).
        let id = Psn::new(packet.bth.psn.get() & 0xffff);
        let eeth = Eeth {
            op: erth.op,
            tx_timestamp: erth.tx_timestamp,
        };
        self.responses.push_back(Response {
            peer: index,
            port,
            id,
            eeth,
        });
    }

    /// Sends the answers that are due; those whose port has no room are lost, as any packet may be. True if any went out.
    pub(super) fn send_responses(&mut self, ports: &mut [Box<dyn Port>]) -> bool {
        let mut any = false;
        while let Some(response) = self.responses.pop_front() {
            any |= self.send_response(ports, response).is_some();
        }
        any
    }

    fn send_response(&mut self, ports: &mut [Box<dyn Port>], response: Response) -> Option<()> {
        let template = self.peers.get(response.peer)?.template(response.port)?;
        let port = ports.get_mut(response.port.index())?;
        let headers = Headers::EndpointResponse(response.eeth);
        let dscps: &Dscps = &self.config.dscps;
        let outgoing = Outgoing {
            bth: Bth::new(Opcode::EndpointResponse, Qpn::ENDPOINT, response.id),
            headers,
            // Any path will do; the id spreads the answers of a batch (wire-format.md W6: ports from 0xC000).
            ev: Ev(0xc000 | response.id.get() & 0x3fff),
            ev_layout: mrc_wire::EvLayout::FlowHigh,
            dscp: dscps.of(TrafficClass::Control),
            ecn: Ecn::NotEct,
            payload_len: 0,
        };
        let len = frame_len(template, &headers, 0);
        let result = port.tx_frame(len, &mut |head, tail| {
            FrameWriter::start(head, tail, template, &outgoing)
                .and_then(FrameWriter::finish)
                .is_ok()
        });
        if result != TxResult::Queued {
            return None;
        }
        let cells = self.cells.port(response.port);
        cells.tx_packets.add(1);
        cells.tx_bytes.add(len as u64);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_limited_to_a_burst_and_then_to_a_rate() {
        let mut limit = AnswerLimit::default();
        let second = Instant::from_ns(1_000_000_000);
        let at_once = (0..1000).filter(|_| limit.allows(second)).count();
        assert_eq!(at_once, 64);
        let later = (0..1000).filter(|_| limit.allows(second + 10_000_000)).count();
        assert_eq!(later, 10);
    }
}
