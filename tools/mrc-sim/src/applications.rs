//! The applications of a host: they take completions and events, and post work.

use crate::ensure;
use crate::host::Host;
use crate::oracle::completion::{receive_wr_id, send_wr_id};
use crate::oracle::{Breach, Checked, Oracle};
use crate::sabotage::Verdict;
use crate::tap::{self, Seen};
use crate::trace;
use crate::workload::Arrival;
use crate::world::World;
use mrc_protocol::{Completion, Instant, QpEvent, QpState, Queue, SendRequest, Status};
use mrc_wire::Aeth;

impl World {
    /// The applications take completions and events, and post work.
    pub(crate) fn applications(&mut self, index: usize) -> Checked {
        for slot in 0..self.hosts[index].qps.len() {
            self.take_completions(index, slot)?;
            if self.post_work(index, slot)? {
                // Work that was posted to a failed queue pair has ended by now.
                self.take_completions(index, slot)?;
            }
            self.note_end(index, slot);
        }
        Ok(())
    }

    fn take_completions(&mut self, index: usize, slot: usize) -> Checked {
        while let Some(completion) = self.hosts[index].qps[slot].qp.poll_completion() {
            let seen = Seen::Completion(&completion);
            tap::show(&mut self.tap, &self.hosts[index].qps[slot], self.now_ns, &seen);
            match self.saboteur.completion(&completion) {
                Verdict::Keep => self.take_completion(index, slot, &completion)?,
                Verdict::Swallow => {}
                Verdict::Repeat => {
                    self.take_completion(index, slot, &completion)?;
                    self.take_completion(index, slot, &completion)?;
                }
            }
        }
        let place = &mut self.hosts[index].qps[slot];
        let flow = &mut self.flows[place.connection][1 - place.side];
        if place.qp.state() == QpState::Err {
            flow.release_duties();
        } else if let Some(message) = flow.responder.deliverable.front() {
            ensure!(
                false,
                Oracle::Receive,
                "{}: the immediate of message {message} was not delivered in its turn",
                flow.name
            );
        }
        while let Some(event) = place.qp.poll_event() {
            trace!(
                self.trace,
                self.now_ns, "h{index} c{}.{} event {event:?}", place.connection, place.side
            );
            if let QpEvent::EvBad { ev, port, .. } = event {
                let path = (place.connection, place.side, ev.0, port.get());
                self.measure.note_bad(path, self.now_ns);
            }
            let refused = self.flows[place.connection][1 - place.side].responder.refused;
            let as_refused = match event {
                QpEvent::RequestError => refused.is_some_and(|(_, syndrome)| syndrome == Aeth::NAK_INVALID_REQUEST),
                QpEvent::AccessError => refused.is_some_and(|(_, syndrome)| syndrome != Aeth::NAK_INVALID_REQUEST),
                _ => true,
            };
            ensure!(
                as_refused,
                Oracle::State,
                "c{}.{}: {event:?}; refused was {refused:x?}",
                place.connection,
                place.side
            );
            let name = match event {
                QpEvent::Fatal => "queue pairs failed",
                QpEvent::RequestError => "requests refused as invalid",
                QpEvent::AccessError => "accesses refused",
                QpEvent::EvBad { .. } => "paths assumed bad",
                QpEvent::EvGood { .. } => "paths good again",
            };
            self.coverage.event(name, 1);
        }
        Ok(())
    }

    fn take_completion(&mut self, index: usize, slot: usize, completion: &Completion) -> Checked {
        let place = &mut self.hosts[index].qps[slot];
        let (connection, side, peer) = (place.connection, place.side, place.peer);
        let state = place.qp.state();
        let peer_qpn = self.scenario.connections[connection].qpn[1 - side];
        trace!(
            self.trace,
            self.now_ns,
            "h{index} c{connection}.{side} {:?} {:#x} ends: {:?}",
            completion.queue,
            completion.wr_id,
            completion.status
        );
        // What broke down says so by a NACK.
        let by_nack =
            completion.status == Status::RemoteOperation && self.flows[connection][side].responder.lacks.broke();
        if let Some(rule) = ended(completion.status).filter(|_| !by_nack) {
            self.coverage.rule(rule, 1);
        }
        match completion.queue {
            Queue::Recv => {
                let flow = &mut self.flows[connection][1 - side];
                let message = flow.responder.deliverable.front().copied();
                place.work.judge_receive(flow, completion, state, peer_qpn)?;
                if let Some(workload) = &mut self.workload
                    && completion.status == Status::Success
                    && let Some(message) = message
                {
                    let facts = &self.flows[connection][1 - side].messages[message];
                    let bytes = self.hosts[index].memory.bytes(facts.va, facts.len.into());
                    let arrival = Arrival {
                        connection,
                        side: 1 - side,
                        message,
                        bytes: bytes.unwrap_or_default(),
                    };
                    workload.arrived(&arrival, &mut self.deeds);
                }
                Ok(())
            }
            Queue::Send => {
                let flow = &self.flows[connection][side];
                let message = place
                    .work
                    .judge_send(flow, completion, state, self.scenario.class, peer_qpn)?;
                let facts = &flow.messages[message];
                if completion.status == Status::Success && facts.len > 0 {
                    let there = self.hosts[peer].memory.bytes(facts.va, facts.len.into());
                    ensure!(
                        there == Some(flow.data(message)),
                        Oracle::Data,
                        "{}: message {message} completes, the peer's memory differs",
                        flow.name
                    );
                }
                Ok(())
            }
        }
    }

    /// Posts what may be posted. Returns whether that was anything.
    fn post_work(&mut self, index: usize, slot: usize) -> Result<bool, Breach> {
        let Host { qps, effort, mood, .. } = &mut self.hosts[index];
        let now = Instant(mood.clock_ns(self.now_ns));
        let (place, causes) = (&mut qps[slot], &mut effort.causes);
        let (connection, side) = (place.connection, place.side);
        let plan = &self.scenario.connections[connection];
        let name = &self.flows[connection][side].name;
        let arriving = &plan.flows[1 - side];
        let before = *causes;
        while (place.work.receives.len() as u32) < arriving.receive_depth
            && place.work.receives_posted < u64::from(arriving.receives)
            && place.qp.state() != QpState::Reset
        {
            let wr_id = receive_wr_id(place.work.receives_posted);
            let posted = place.qp.handle_recv(wr_id);
            posted.map_err(|error| Breach(Oracle::State, format!("{name}: receive refused: {error}")))?;
            place.work.receives.push_back(wr_id);
            place.work.receives_posted += 1;
            tap::show(&mut self.tap, place, now.as_ns(), &Seen::Receive(wr_id));
            *causes += 1;
            if place.qp.state() == QpState::Err {
                return Ok(true); // It is flushed at once; the next ones later, so that this comes to an end.
            }
        }
        let flow = &mut self.flows[connection][side];
        let may_post = if place.qp.state() == QpState::Err {
            flow.messages.len()
        } else {
            flow.released
        };
        while flow.requestor.posted < may_post
            && (place.work.sends.len() as u32) < plan.sq_depth
            && (place.next_post_ns <= self.now_ns || place.qp.state() == QpState::Err)
            && matches!(place.qp.state(), QpState::Rts | QpState::Err)
        {
            let number = flow.requestor.posted;
            let message = &flow.messages[number];
            let request = SendRequest {
                wr_id: send_wr_id(number),
                slot: number as u32 % plan.sq_depth,
                len: message.len,
                remote_addr: message.va,
                r_key: message.rkey,
                imm: message.imm,
                solicited: message.solicited,
                signaled: message.signaled,
            };
            let posted = place.qp.handle_send(&request, now);
            posted.map_err(|error| {
                Breach(
                    Oracle::State,
                    format!("{}: message {number} refused: {error}", flow.name),
                )
            })?;
            place.work.sends.push_back((number, request.slot));
            flow.requestor.posted += 1;
            flow.progress.begun_ns.get_or_insert(self.now_ns);
            self.measure.begun_ns.get_or_insert(self.now_ns);
            *causes += 1;
            let gap_ns = plan.flows[side].gap_ns;
            place.next_post_ns = place.next_post_ns.max(self.now_ns) + self.rng.below(2 * gap_ns + 1);
        }
        Ok(*causes > before)
    }
}

/// The rule that ended a request otherwise than well.
fn ended(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::Flushed => "§5.9 requests flushed",
        Status::RetryExceeded => "§5.7 retry budget is spent",
        Status::RemoteInvalidRequest => "§5.8 NAK 0x61",
        Status::RemoteAccess => "§5.8 NAK 0x62",
        Status::RemoteOperation => "§5.8 NAK 0x63",
        Status::Success | Status::LocalProtection => return None,
    })
}
