//! Does what a workload wants: releases messages, makes connections, closes them.

use crate::ensure;
use crate::host::QpSlot;
use crate::oracle::{Breach, Checked, Oracle};
use crate::scenario::ConnectionPlan;
use crate::trace;
use crate::workload::Deed;
use crate::world::{Event, World, flows_of};
use mrc_protocol::{Cx, Instant, NoMemory, QpState};

impl World {
    /// Does everything that the workload wants by now.
    pub(crate) fn do_deeds(&mut self) -> Checked {
        while !self.deeds.is_empty() {
            for deed in std::mem::take(&mut self.deeds) {
                match deed {
                    Deed::Release { connection, side, data } => self.release(connection, side, data)?,
                    Deed::Open { connection, plan } => self.open(connection, *plan)?,
                    Deed::Close { connection } => self.close(connection)?,
                }
            }
        }
        Ok(())
    }

    fn release(&mut self, connection: usize, side: usize, data: Option<Vec<u8>>) -> Checked {
        let flow = &mut self.flows[connection][side];
        let Some(message) = flow.messages.get(flow.released) else {
            return Err(Breach(Oracle::State, format!("{}: no message is held back", flow.name)));
        };
        if let Some(data) = data {
            ensure!(
                data.len() == message.len as usize,
                Oracle::State,
                "{}: {} bytes for a message of {}",
                flow.name,
                data.len(),
                message.len
            );
            flow.say(flow.released, &data);
        }
        flow.released += 1;
        let host = self.scenario.connections[connection].hosts[side];
        self.hosts[host].effort.causes += 1;
        self.wake(host, self.now_ns);
        Ok(())
    }

    fn open(&mut self, connection: usize, plan: ConnectionPlan) -> Checked {
        let hosts = plan.hosts;
        if let Some(place) = self.scenario.connections.get_mut(connection) {
            *place = plan;
        } else {
            ensure!(
                connection == self.scenario.connections.len(),
                Oracle::State,
                "connection {connection} is not the next one"
            );
            self.scenario.connections.push(plan);
        }
        for (side, host) in hosts.into_iter().enumerate() {
            let seed = self.rng.seed();
            let plan = &self.scenario.connections[connection];
            let made = self.hosts[host].add_qp(&self.scenario, plan, (connection, side), seed, Instant(self.now_ns));
            made.map_err(|detail| Breach(Oracle::State, detail))?;
            self.measure.note_qp(self.hosts[host].qps.len());
            self.events.post(self.now_ns, Event::Ready { connection, side });
        }
        let flows = flows_of(&self.scenario, connection, &self.hosts);
        if let Some(place) = self.flows.get_mut(connection) {
            *place = flows;
        } else {
            self.flows.push(flows);
        }
        for (side, host) in hosts.into_iter().enumerate() {
            self.hosts[host].effort.causes += 1;
            if let Some(slot) = self.hosts[host].qps.last_mut() {
                slot.ended = self.flows[connection][side].messages.is_empty();
                self.unended += usize::from(!slot.ended);
            }
        }
        trace!(self.trace, self.now_ns, "c{connection} is made between {hosts:?}");
        Ok(())
    }

    /// Everything has arrived and is known to have: judges the memory, which others may use from now on.
    fn close(&mut self, connection: usize) -> Checked {
        let hosts = self.scenario.connections[connection].hosts;
        for (side, host) in hosts.into_iter().enumerate() {
            let Some(slot) = self.hosts[host].remove_qp(connection, side) else {
                continue;
            };
            slot.count_events(&mut self.coverage);
            self.measure.gone.add(slot.qp.stats());
            self.destroy(host, slot)?;
            let target = &mut self.hosts[hosts[1 - side]].memory;
            let flow = &mut self.flows[connection][side];
            for (number, message) in flow.messages.iter().enumerate() {
                ensure!(
                    target.bytes(message.va, message.len.into()) == Some(flow.data(number)),
                    Oracle::Memory,
                    "{}: message {number} is not what was sent when the connection is closed",
                    flow.name
                );
                target.clear(message.va, message.len.into());
            }
            self.measure.closed_bytes += flow.responder.placed_bytes;
            flow.count_events(&mut self.coverage);
            flow.count_rules(&mut self.coverage);
            flow.close();
        }
        trace!(self.trace, self.now_ns, "c{connection} is closed");
        Ok(())
    }

    /// A queue pair goes to RESET, owes nothing then, and ends.
    fn destroy(&mut self, index: usize, mut slot: QpSlot) -> Checked {
        let host = &mut self.hosts[index];
        let mut cx = Cx {
            now: Instant(host.mood.clock_ns(self.now_ns)),
            cc: &mut host.qpccs[slot.qpcc],
            memory: &mut NoMemory,
            stall: host.stall,
        };
        slot.qp.handle_reset(&mut cx);
        ensure!(
            slot.qp.state() == QpState::Reset && slot.qp.poll_completion().is_none(),
            Oracle::State,
            "c{}.{}: {:?} after a reset, or something completes",
            slot.connection,
            slot.side,
            slot.qp.state()
        );
        let (packets, bytes) = (cx.cc.inflight_packets(), cx.cc.inflight_bytes());
        let shared = host.qps.iter().any(|other| other.qpcc == slot.qpcc);
        ensure!(
            shared || (packets, bytes) == (0, 0),
            Oracle::Inflight,
            "h{index}: {packets} packets, {bytes} bytes remain of c{}.{}",
            slot.connection,
            slot.side
        );
        Ok(())
    }

    /// Notes whether a queue pair has anything left to do.
    pub(crate) fn note_end(&mut self, index: usize, slot: usize) {
        if self.hosts[index].gone {
            return; // It is not counted, whatever it still does.
        }
        let slot = &mut self.hosts[index].qps[slot];
        let (connection, side) = (slot.connection, slot.side);
        let flow = &mut self.flows[connection][side];
        let ended = flow.requestor.posted == flow.messages.len() && slot.work.sends.is_empty();
        if ended == slot.ended {
            return;
        }
        slot.ended = ended;
        if !ended {
            self.unended += 1;
            flow.progress.ended_ns = None;
            return;
        }
        self.unended -= 1;
        flow.progress.ended_ns = Some(self.now_ns);
        if let Some(workload) = &mut self.workload {
            let other = &self.flows[connection][1 - side];
            if other.messages.is_empty() || other.progress.ended_ns.is_some() {
                workload.ended(connection, &mut self.deeds);
            }
        } else if self.measure.first_end.is_none() {
            self.measure.first_end = Some(self.snapshot());
        }
    }

    /// Counts anew who has something to do: hosts have gone, or begin anew.
    pub(crate) fn recount(&mut self) {
        self.unended = 0;
        for host in &mut self.hosts {
            for slot in &mut host.qps {
                let flow = &self.flows[slot.connection][slot.side];
                slot.ended = flow.requestor.posted == flow.messages.len() && slot.work.sends.is_empty();
                self.unended += usize::from(!slot.ended && !host.gone);
            }
        }
    }
}
