//! What is judged of a host after each of its turns, with the oracles' own accounts, and of its memory at the end.

use crate::ensure;
use crate::oracle::flight::{Flight, Load, Tolerance, judge_account};
use crate::oracle::flow::Flow;
use crate::oracle::{Breach, Checked, Oracle};
use crate::world::World;
use mrc_protocol::{EvState, QpState, Qpcc};
use mrc_wire::{Packet, PortSet};

impl World {
    /// The bytes of a packet that counts as received are in memory, right now.
    pub(crate) fn judge_placed(&self, index: usize, connection: usize, side: usize, packet: &Packet<'_>) -> Checked {
        let flow = &self.flows[connection][1 - side];
        let at = flow.index_of(packet.bth.psn);
        let Some(at) = usize::try_from(at)
            .ok()
            .filter(|at| *at < flow.packets.len() && flow.responder.has(*at))
        else {
            return Ok(());
        };
        let facts = flow.packets[at];
        if facts.len == 0 {
            return Ok(());
        }
        let va = flow.messages[facts.message].va + u64::from(facts.offset);
        let placed = self.hosts[index].memory.bytes(va, facts.len.into());
        ensure!(
            placed == Some(flow.packet_data(at)),
            Oracle::Data,
            "{}: packet {at} is not what was sent",
            flow.name
        );
        Ok(())
    }

    /// At the end: memory holds what was received, and nothing else.
    pub(crate) fn judge_memory(&self, index: usize) -> Checked {
        let connections = self.scenario.connections.iter().zip(&self.flows);
        let arriving = connections
            .flat_map(|(plan, flows)| {
                flows
                    .iter()
                    .enumerate()
                    .filter(move |(side, _)| plan.hosts[1 - side] == index)
            })
            .map(|(_, flow)| flow)
            .filter(|flow| !flow.closed);
        let loose = arriving.clone().flat_map(Flow::written_in_part);
        let written = arriving.flat_map(|flow| {
            (0..flow.packets.len())
                .filter(|at| flow.responder.has(*at))
                .map(move |at| {
                    let packet = flow.packets[at];
                    (
                        flow.messages[packet.message].va + u64::from(packet.offset),
                        flow.packet_data(at),
                    )
                })
        });
        let written = written.filter(|(_, bytes)| !bytes.is_empty());
        match self.hosts[index].memory.first_difference(loose, written) {
            None => Ok(()),
            Some(va) => Err(Breach(
                Oracle::Memory,
                format!("h{index}: byte at {va:#x} is not what it should be"),
            )),
        }
    }

    /// Answers that are due were sent, unless nothing could leave.
    pub(crate) fn judge_duties(&mut self, index: usize) -> Checked {
        let host = &self.hosts[index];
        for slot in &host.qps {
            let blocked = host.local_up.intersection(host.peer_up.of(slot.peer)).is_empty();
            let forbidden = slot.control.is_some()
                && (slot.qp.ev_states()).all(|path| path.state == EvState::Denied || !path.eligible);
            let full = host
                .ports
                .iter()
                .any(|port| port.departures_ns.len() as u64 >= host.plan.tx_queue);
            let flow = &self.flows[slot.connection][1 - slot.side];
            match slot.qp.state() {
                _ if blocked || full || forbidden || host.local_up.is_empty() => {}
                QpState::Err => flow.judge_parting()?,
                _ => flow.judge_duties()?,
            }
        }
        Ok(())
    }

    /// Congestion controllers count what is in flight, and no port has more than its limit.
    pub(crate) fn judge_inflight(&self, index: usize) -> Checked {
        let host = &self.hosts[index];
        for (number, qpcc) in host.qpccs.iter().enumerate() {
            let slots = host.qps.iter().filter(|slot| slot.qpcc == number);
            let alive = slots.filter(|slot| slot.qp.state() == QpState::Rts);
            let flights = alive.map(|slot| &self.flows[slot.connection][slot.side].flight);
            let counted = Load {
                packets: qpcc.inflight_packets(),
                bytes: qpcc.inflight_bytes(),
            };
            let possible = flights.clone().map(Flight::possible).fold(Load::default(), Load::and);
            if counted != possible {
                let tolerance = tolerance(qpcc, host.mood.steady_ns(self.now_ns));
                let certain = flights
                    .map(|flight| flight.certain(tolerance))
                    .fold(Load::default(), Load::and);
                judge_account(&format!("h{index}"), certain, possible, counted)?;
            }
            for port in PortSet::first(self.scenario.planes).iter() {
                ensure!(
                    qpcc.inflight_on(port) <= host.plan.cwnd_packets,
                    Oracle::Inflight,
                    "h{index}: {} packets in flight on port {}, limit {}",
                    qpcc.inflight_on(port),
                    port.get(),
                    host.plan.cwnd_packets
                );
            }
        }
        Ok(())
    }
}

/// The limits of the loss rules as the host's measurements have them.
pub(crate) fn tolerance(qpcc: &Qpcc, now_ns: u64) -> Tolerance {
    Tolerance::new(now_ns, qpcc.base_rtt_ns(), qpcc.target_qdelay_ns())
}
