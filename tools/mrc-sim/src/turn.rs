//! One turn of a host's engine, in the order of a real one: receive a batch, timers, applications, transmit.

use crate::ensure;
use crate::fabric::frame::Frame;
use crate::host::{Host, QpSlot};
use crate::meter::without_allocation;
use crate::oracle::responder::Handled;
use crate::oracle::{Breach, Checked, Oracle};
use crate::rules;
use crate::sabotage::Sabotage;
use crate::shortage::note_trouble;
use crate::tap::{self, Seen};
use crate::trace;
use crate::world::World;
use mrc_protocol::{Cx, Disposition, Instant, NoMemory, QpState};
use mrc_wire::{Headers, Packet, PortNum, Qpn, Tick};

/// Turns in a row that achieve nothing although time hardly moves. Each outstanding packet may time out at an instant of
/// its own; more is a storm of timers.
const MAX_IDLE_TURNS: u32 = 5000;

impl World {
    pub(crate) fn turn(&mut self, host: usize) -> Checked {
        self.turns += 1;
        self.hosts[host].effort.turns += 1;
        let received = self.receive(host)?;
        self.timers(host)?;
        self.endpoint_timers(host)?;
        self.applications(host)?;
        let told = self.transmit_endpoint(host)?;
        let (sent, all_sent) = self.transmit(host)?;
        self.applications(host)?;
        self.hear_paths(host)?;
        if all_sent {
            self.judge_duties(host)?;
        }
        self.judge_inflight(host)?;
        let effort = &mut self.hosts[host].effort;
        effort.causes += (received + sent) as u64;
        effort.judge(host)?;
        self.plan_next_turn(host, received + told + sent, all_sent)
    }

    /// Takes a batch from the ports.
    fn receive(&mut self, index: usize) -> Result<usize, Breach> {
        let limit = self.rng.range(1, self.hosts[index].plan.rx_batch) as usize;
        let batch: Vec<Box<Frame>> = {
            let waiting = &mut self.hosts[index].received;
            let count = limit.min(waiting.len());
            waiting.drain(..count).collect()
        };
        let waiting = self.hosts[index].received.len() + batch.len();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut touched = Vec::new();
        for frame in &batch {
            let Some(packet) = self.codec.unpack(frame, &mut scratch)? else {
                trace!(self.trace, self.now_ns, "h{index} drops #{} (damaged)", frame.id);
                self.coverage.event("damaged frames dropped", 1);
                continue;
            };
            if packet.bth.dqp == Qpn::ENDPOINT {
                self.deliver_endpoint(index, frame, &packet)?;
                self.hear_peer(index, frame, &packet)?;
                continue;
            }
            let Some(&slot) = self.hosts[index].by_qpn.get(&packet.bth.dqp.get()) else {
                continue;
            };
            if packet.src != self.codec.address(self.hosts[index].qps[slot].peer) {
                continue;
            }
            if self.refuses(index, slot, frame, &packet)? {
                continue;
            }
            self.press(index, slot, waiting);
            if !self.lacks_buffer(index, slot, frame, &packet)? {
                self.deliver(index, slot, frame, &packet)?;
            }
            self.hear_peer(index, frame, &packet)?;
            if !touched.contains(&slot) {
                touched.push(slot);
            }
        }
        self.scratch = scratch;
        for at in touched {
            let host = &mut self.hosts[index];
            let now = Instant(host.mood.clock_ns(self.now_ns));
            let slot = &mut host.qps[at];
            without_allocation(|| slot.qp.end_of_batch(now))?;
            tap::show(&mut self.tap, slot, now.as_ns(), &Seen::EndOfBatch);
            self.probe_reverse(index, at)?;
        }
        Ok(batch.len())
    }

    fn deliver(&mut self, index: usize, slot: usize, frame: &Frame, packet: &Packet<'_>) -> Checked {
        let Some(port) = PortNum::new(frame.plane) else {
            return Ok(());
        };
        let now = Instant(self.hosts[index].mood.clock_ns(self.now_ns));
        let clock_ns = self.hosts[index].mood.steady_ns(self.now_ns);
        let write = matches!(packet.headers, Headers::Write { .. });
        let spoil = if write { self.saboteur.placement() } else { None };
        let misheard = self.saboteur.mishear(packet);
        let trouble = self.draw_trouble(index, packet);
        let deaf = trouble.is_some() && self.saboteur.goes_on(Sabotage::IgnoreTrouble);
        let host = &mut self.hosts[index];
        let Host {
            qps,
            qpccs,
            memory,
            stall,
            ..
        } = host;
        memory.spoil_next = memory.spoil_next.or(spoil);
        (memory.trouble, memory.unheard) = (trouble, deaf);
        let QpSlot {
            connection,
            side,
            qp,
            qpcc,
            work,
            pace,
            ..
        } = &mut qps[slot];
        pace.packets += 1;
        let before = qp.state();
        let mut cx = Cx {
            now,
            cc: &mut qpccs[*qpcc],
            memory,
            stall: *stall,
        };
        let wasteful = self.saboteur.goes_on(Sabotage::Allocate);
        let disposition = without_allocation(|| {
            if wasteful {
                std::hint::black_box(vec![0u8; 16]);
            }
            qp.handle_packet(&mut cx, misheard.as_ref().unwrap_or(packet), port)
        })?;
        memory.trouble = None;
        memory.take_accesses(&mut self.accesses);
        rules::arrived(&mut self.coverage, packet, disposition);
        note_trouble(&mut self.coverage, &self.accesses);
        let (state, receives) = (qp.state(), work.receives.len());
        let (connection, side) = (*connection, *side);
        trace!(
            self.trace,
            self.now_ns,
            "h{index} c{connection}.{side} takes #{} {:?} psn {} on port {}: {disposition:?}",
            frame.id,
            packet.bth.opcode,
            packet.bth.psn.get(),
            frame.plane
        );
        let seen = Seen::Packet {
            packet,
            disposition,
            accesses: &self.accesses,
            memory,
        };
        tap::show(&mut self.tap, &qps[slot], clock_ns, &seen);
        let sending = before == QpState::Rts;
        match &packet.headers {
            Headers::Write { .. } => {
                let handled = Handled {
                    at_ns: clock_ns,
                    disposition,
                    before,
                    after: state,
                    accesses: &self.accesses,
                    receives,
                };
                let flow = &mut self.flows[connection][1 - side];
                let before_bytes = flow.responder.placed_bytes;
                flow.judge_arrival(packet, &handled)?;
                let new_bytes = flow.responder.placed_bytes - before_bytes;
                if new_bytes > 0 {
                    flow.progress.placed_ns = self.now_ns;
                    self.measure.placed_ns = self.now_ns;
                    self.measure.plane_bytes[port.index()] += new_bytes;
                }
                self.judge_placed(index, connection, side, packet)?;
            }
            Headers::Probe(peth) => self.flows[connection][1 - side].note_probe(packet, peth, Tick::from_ns(clock_ns)),
            Headers::Sack(seth, cc) if sending => {
                self.flows[connection][side].learn_sack(seth, cc.as_ref(), clock_ns);
            }
            Headers::Ack(aeth) if sending => self.flows[connection][side].learn_ack(packet.bth.psn, aeth, clock_ns),
            Headers::Nack(neth) if sending && disposition == Disposition::Accepted => {
                let flow = &mut self.flows[connection][side];
                flow.flight.refused(flow.index_of(neth.nack_psn), neth, clock_ns);
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets everything happen that is due.
    fn timers(&mut self, index: usize) -> Checked {
        let now = Instant(self.hosts[index].mood.clock_ns(self.now_ns));
        let Host {
            qps,
            qpccs,
            stall,
            effort,
            ..
        } = &mut self.hosts[index];
        for slot in qps {
            if slot.qp.next_timeout().is_some_and(|at| at <= now) {
                let mut cx = Cx {
                    now,
                    cc: &mut qpccs[slot.qpcc],
                    memory: &mut NoMemory,
                    stall: *stall,
                };
                without_allocation(|| slot.qp.handle_timeout(&mut cx))?;
                slot.pace.timers += 1;
                effort.causes += 1;
                let flow = &self.flows[slot.connection][slot.side];
                // A clock that leaps brings the timers of all that time at once, but no more of them.
                slot.pace
                    .judge(&flow.name, now.as_ns(), flow.flight.shortest_timer_ns())?;
                tap::show(&mut self.tap, slot, now.as_ns(), &Seen::Timeout);
                let next = slot.qp.next_timeout();
                ensure!(
                    next.is_none_or(|at| at > now),
                    Oracle::Timer,
                    "c{}.{}: next timeout {next:?} after handling those of {now:?}",
                    slot.connection,
                    slot.side
                );
                trace!(
                    self.trace,
                    now.as_ns(),
                    "h{index} c{}.{} timeout handled, next {next:?}",
                    slot.connection,
                    slot.side
                );
            }
        }
        Ok(())
    }

    fn plan_next_turn(&mut self, index: usize, achieved: usize, all_sent: bool) -> Checked {
        let host = &self.hosts[index];
        let busy = !host.received.is_empty() || !all_sent;
        let pause_ns = host.plan.speed.turn_ns + host.plan.speed.packet_ns * achieved as u64;
        let mut next_ns = busy.then_some(self.now_ns + pause_ns);
        let mut consider = |at_ns: Option<u64>| {
            next_ns = match (next_ns, at_ns) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        };
        if host.qps.iter().any(|slot| slot.qp.has_data() || slot.qp.has_answers()) {
            consider(host.next_room_ns());
        }
        if let Some(node) = &host.node {
            consider(if node.has_packets() { host.next_room_ns() } else { None });
            consider(node.next_timeout().map(|at| host.mood.world_ns(at.as_ns())));
        }
        for slot in &host.qps {
            let flow = &self.flows[slot.connection][slot.side];
            let depth = self.scenario.connections[slot.connection].sq_depth as usize;
            if flow.requestor.posted < flow.released && slot.work.sends.len() < depth && slot.qp.state() == QpState::Rts
            {
                consider(Some(slot.next_post_ns));
            }
            // The application finds out about the failure, and goes on posting: all is flushed.
            if flow.requestor.posted < flow.messages.len() && slot.qp.state() == QpState::Err {
                consider(Some(self.now_ns + 1_000));
            }
            consider(slot.qp.next_timeout().map(|at| host.mood.world_ns(at.as_ns())));
        }
        if self.saboteur.goes_on(Sabotage::Restless) {
            consider(Some(self.now_ns + 1_000));
        }
        // A turn that is due at once comes in the next nanosecond, and must not come to nothing for ever.
        let storming = achieved == 0 && next_ns.is_some_and(|at_ns| at_ns <= self.now_ns + 100);
        self.idle_turns = if storming { self.idle_turns + 1 } else { 0 };
        ensure!(
            self.idle_turns < MAX_IDLE_TURNS,
            Oracle::Timer,
            "h{index}: {} turns in a row came to nothing",
            self.idle_turns
        );
        if let Some(at_ns) = next_ns {
            self.wake(index, at_ns.max(self.now_ns + 1));
        }
        Ok(())
    }

    pub(crate) fn give_up(&mut self, index: usize, connection: usize, side: usize) {
        let now = Instant(self.hosts[index].mood.clock_ns(self.now_ns));
        let Host {
            qps,
            qpccs,
            memory,
            stall,
            ..
        } = &mut self.hosts[index];
        for slot in qps
            .iter_mut()
            .filter(|slot| (slot.connection, slot.side) == (connection, side))
        {
            let mut cx = Cx {
                now,
                cc: &mut qpccs[slot.qpcc],
                memory,
                stall: *stall,
            };
            slot.qp.handle_error(&mut cx);
        }
    }
}
