//! What an engine sends in its turn, judged packet by packet.

use crate::codec::Route;
use crate::ensure;
use crate::fabric::frame::{Data, Frame};
use crate::host::{Host, QpSlot};
use crate::meter::without_allocation;
use crate::oracle::path::{Exits, judge_path};
use crate::oracle::shortage::is_parting;
use crate::oracle::{Breach, Oracle};
use crate::sabotage::{Sabotage, Verdict};
use crate::tap::{self, Seen};
use crate::trace::describe;
use crate::verdict::tolerance;
use crate::world::World;
use mrc_protocol::{Cx, Instant, NoMemory, QpState};
use mrc_wire::{Headers, PathVerdict, PortNum, TrafficClass};

impl World {
    /// Sends what the queue pairs have, as far as the ports take it. Returns how much, and whether that was all.
    pub(crate) fn transmit(&mut self, index: usize) -> Result<(usize, bool), Breach> {
        let budget = self.hosts[index].plan.tx_batch as usize;
        let count = self.hosts[index].qps.len();
        let first = self.turns as usize;
        let (mut sent, mut idle) = (0, 0);
        let mut at = 0;
        while sent < budget && idle < count {
            let slot = (first + at) % count;
            at += 1;
            if self.transmit_one(index, slot)? {
                sent += 1;
                idle = 0;
            } else {
                idle += 1;
            }
        }
        Ok((sent, idle >= count))
    }

    fn transmit_one(&mut self, index: usize, slot: usize) -> Result<bool, Breach> {
        let now = Instant(self.hosts[index].mood.clock_ns(self.now_ns));
        let clock_ns = self.hosts[index].mood.steady_ns(self.now_ns);
        let host = &mut self.hosts[index];
        let room = host.room(self.now_ns).intersection(host.local_up);
        let Host {
            qps,
            qpccs,
            stall,
            peer_up,
            local_up,
            ..
        } = host;
        let QpSlot {
            connection,
            side,
            qp,
            qpcc,
            peer,
            pace,
            control,
            ..
        } = &mut qps[slot];
        let cc_room = qpccs[*qpcc].room();
        let mut cx = Cx {
            now,
            cc: &mut qpccs[*qpcc],
            memory: &mut NoMemory,
            stall: *stall,
        };
        let polled = match self.saboteur.take_again(index, slot, clock_ns) {
            Some(again) => Some(again),
            None => without_allocation(|| qp.poll_transmit(&mut cx, room))?,
        };
        let Some(mut transmit) = polled else {
            let answers_wait = qp.has_answers();
            self.flows[*connection][1 - *side].responder.in_burst &= answers_wait;
            tap::show(&mut self.tap, &qps[slot], clock_ns, &Seen::Silent { answers_wait });
            return Ok(false);
        };
        self.saboteur.divert(index, slot, &mut transmit);
        pace.packets += 1;
        let (cwnd, inflight) = (qpccs[*qpcc].cwnd_bytes(), qpccs[*qpcc].inflight_bytes());
        let exits = Exits {
            room,
            // Those that its paths leave on: a controller may have moved them all.
            local_up: match control {
                Some(_) => local_up.intersection(qp.ev_states().map(|path| path.entry.port).collect()),
                None => *local_up,
            },
            peer_up: peer_up.of(*peer),
        };
        let (connection, side, peer) = (*connection, *side, *peer);
        let flows = &mut self.flows[connection];
        let before = match &transmit.headers {
            Headers::Write { .. } => {
                let at = usize::try_from(flows[side].index_of(transmit.bth.psn)).ok();
                let record = at
                    .filter(|at| *at < flows[side].requestor.sent)
                    .map(|at| flows[side].requestor.packet(at));
                // A copy that arrived does not speak against its path.
                let record = record.filter(|record| !record.acked).map(|record| record.path);
                // Nor does one that was taken back.
                record.filter(|_| at.is_none_or(|at| !flows[side].flight.is_withdrawn(at as i64)))
            }
            _ => None,
        };
        let max_rcv_psn = flows[1 - side].max_rcv_psn();
        if self.saboteur.transmit(&mut transmit, before, max_rcv_psn) == Verdict::Swallow {
            return Ok(true);
        }
        let state = qp.state();
        tap::show(&mut self.tap, &qps[slot], clock_ns, &Seen::Transmit(&transmit));
        let QpSlot {
            qp,
            qpcc,
            work,
            balance,
            ..
        } = &mut qps[slot];
        if self.trace.is_on() {
            let line = describe(&flows[side].name, &transmit, self.sent);
            self.trace.line(self.now_ns, format_args!("h{index} {line}"));
        }
        ensure!(
            matches!(state, QpState::Rtr | QpState::Rts) || (state == QpState::Err && is_parting(&transmit.headers)),
            Oracle::State,
            "{} sends {:?} in {state:?}",
            flows[side].name,
            transmit.bth.opcode
        );
        flows[side].judge_class(&transmit)?;
        let active = self.scenario.connections[connection].active_per_plane * u16::from(self.scenario.planes);
        if transmit.payload.is_some() && self.saboteur.goes_on(Sabotage::ForgetFlight) {
            // As if it had been acknowledged.
            qpccs[*qpcc].on_leave(transmit.port, 0);
        }
        let census = judge_path(&flows[side].name, qp, &transmit, exits, before, cc_room, active)?;
        let tolerance = tolerance(&qpccs[*qpcc], clock_ns);
        let rotates = matches!(transmit.headers, Headers::Write { .. } | Headers::Probe(_));
        if rotates && census.chose_active {
            // Copies of an EV have a turn each.
            let path = (transmit.path.into(), transmit.port.get());
            let open = exits.open().intersection(cc_room);
            let strays = transmit.is_retransmission || transmit.payload.is_none() || exits.none_usable();
            balance.judge_turn(&flows[side].name, &census, open, path, strays)?;
        }
        match &transmit.headers {
            Headers::Write { .. } => {
                let path = (transmit.ev.0, transmit.port.get());
                self.measure.note_write(connection, side, path, before, self.now_ns);
                let at = flows[side].index_of(transmit.bth.psn);
                let message = usize::try_from(at)
                    .ok()
                    .and_then(|at| flows[side].packets.get(at))
                    .map(|p| p.message);
                let slot = message.and_then(|message| work.slot_of(message));
                flows[side].judge_write(&transmit, slot, tolerance)?;
            }
            Headers::Probe(peth) => flows[side].judge_probe(&transmit.bth, peth.probe_id, clock_ns)?,
            Headers::Sack(seth, cc) => {
                flows[1 - side].judge_sack(&transmit.bth, seth, cc.as_ref(), clock_ns)?;
            }
            Headers::Ack(aeth) => flows[1 - side].judge_ack(&transmit.bth, aeth)?,
            Headers::Nack(neth) => flows[1 - side].judge_nack(&transmit.bth, neth, clock_ns)?,
            Headers::EndpointRequest(_) | Headers::EndpointResponse(_) => {}
        }
        let ppm = self.scenario.connections[connection].verdict_ppm;
        if let Headers::Sack(seth, _) = &mut transmit.headers
            && ppm > 0
            && self.rng.chance(ppm)
        {
            // A responder may judge a path; this one never does (protocol.md §6.5, P14).
            seth.m = PathVerdict::AlwaysSkip;
        }
        let payload = if transmit.payload.is_some() {
            flows[side].packet_payload(flows[side].index_of(transmit.bth.psn) as usize)
        } else {
            Data::default()
        };
        let frame = self.codec.pack(
            Route {
                src: index,
                dst: peer,
                id: self.sent,
            },
            &transmit,
            payload,
        )?;
        let before_bytes = inflight - i64::from(frame.nominal_size());
        ensure!(
            !frame.data || transmit.payload.is_none() || cwnd.is_none_or(|cwnd| before_bytes < cwnd as i64),
            Oracle::Inflight,
            "{}: {:?} sent with {before_bytes} bytes in flight, window {cwnd:?}",
            flows[side].name,
            transmit.bth.psn
        );
        let closes = transmit.payload.is_some() && cwnd.is_some_and(|cwnd| inflight >= cwnd as i64);
        let base_probe = matches!(transmit.headers, Headers::Probe(_)) && transmit.class == TrafficClass::Control;
        self.coverage.rule("§5.3 2 window in bytes closes", closes.into());
        self.coverage.rule("§9.1 probe of the control class", base_probe.into());
        self.coverage.rule("§8.3 deadlock guard", census.guarded.into());
        self.coverage
            .rule("§9.3 no usable port left", exits.none_usable().into());
        self.sent += 1;
        if !self.leaves_unsent(index, slot, &transmit)? {
            self.send(index, transmit.port, frame);
        }
        Ok(true)
    }

    /// Puts a frame on the wire.
    pub(crate) fn send(&mut self, index: usize, port: PortNum, frame: Frame) {
        let host = &mut self.hosts[index];
        let side = &mut host.ports[port.index()];
        let leaves_ns = side.queue(self.now_ns, frame.size, host.plan.rate_mbps);
        if !side.link_up {
            return;
        }
        let events = &mut self.events;
        self.fabric
            .send(Box::new(frame), leaves_ns, &mut self.coverage, |next| {
                events.post_next(next);
            });
    }
}
