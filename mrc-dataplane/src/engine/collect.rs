//! What queue pairs have to say after a pass: completions, events, deadlines.

use mrc_protocol::{Instant, QpEvent, Queue};
use mrc_wire::Qpn;

use super::command::CqId;
use super::core::Core;
use super::event::EngineEvent;
use crate::ring::CompletionProducer;

/// A completion queue as one engine thread sees it.
pub(super) struct CqSlot {
    producer: CompletionProducer,
    dirty: bool,
    overrun: bool,
}

impl Core {
    /// Collects what the queue pairs of this pass have to say: completions go to their queues, which are published together.
    /// Called after the port rings were flushed, so that an acknowledgement is under way before the application learns what
    /// it acknowledges (api.md D11).
    pub(super) fn collect(&mut self, now: Instant) {
        // Failing queue pairs make others dirty: until nobody is left.
        while !self.dirty.is_empty() {
            let mut dirty = std::mem::take(&mut self.dirty);
            for &key in &dirty {
                self.collect_one(key, now);
            }
            dirty.clear();
            if self.dirty.is_empty() {
                // Keep the allocation.
                self.dirty = dirty;
            }
        }
        while let Some(cq) = self.dirty_cqs.pop() {
            if let Some(Some(slot)) = self.cqs.get_mut(cq.0 as usize) {
                slot.dirty = false;
                slot.producer.publish();
            }
        }
    }

    fn collect_one(&mut self, key: u32, now: Instant) {
        let Some(Some(slot)) = self.qps.get_mut(key as usize) else {
            return;
        };
        slot.lists.dirty = false;
        self.timers.set(key, slot.qp.next_timeout());
        let mut overrun = None;
        while let Some(completion) = slot.qp.poll_completion() {
            let cq = if completion.queue == Queue::Send {
                slot.send_cq
            } else {
                slot.recv_cq
            };
            let Some(entry) = slot.completion(&completion) else {
                continue;
            };
            if slot.lingering {
                continue;
            }
            self.cells.completions.add(1);
            if entry.status != 0 {
                self.cells.completion_errors.add(1);
            }
            let Some(Some(queue)) = self.cqs.get_mut(cq.0 as usize) else {
                continue;
            };
            if queue.overrun {
                continue;
            }
            if queue.producer.push(entry).is_err() {
                queue.overrun = true;
                overrun = Some(cq);
            } else if !std::mem::replace(&mut queue.dirty, true) {
                self.dirty_cqs.push(cq);
            }
        }
        slot.tell_progress();
        let (qpn, silent) = (slot.qpn, slot.lingering);
        slot.count_paths(|port, withdrawn, returned| {
            let cells = self.cells.port(port);
            cells.evs_withdrawn.add(withdrawn.into());
            cells.evs_returned.add(returned.into());
        });
        while let Some(Some(event)) = self
            .qps
            .get_mut(key as usize)
            .map(|slot| slot.as_mut().and_then(|slot| slot.qp.poll_event()))
        {
            self.qp_event(qpn, event, silent);
        }
        if let Some(cq) = overrun {
            self.overrun(cq, now);
        }
    }

    fn qp_event(&self, qpn: Qpn, event: QpEvent, silent: bool) {
        match event {
            QpEvent::EvBad { ev, port, reason, .. } => {
                tracing::debug!(%qpn, %ev, %port, ?reason, "path withdrawn");
            }
            QpEvent::EvGood { ev, port, .. } => {
                tracing::debug!(%qpn, %ev, %port, "path returned");
            }
            _ if silent => {}
            // What a completion reports raises no event (api.md §3.7).
            QpEvent::Fatal => tracing::debug!(%qpn, "queue pair failed"),
            QpEvent::RequestError => self.tell(EngineEvent::QpRequestError(qpn)),
            QpEvent::AccessError => self.tell(EngineEvent::QpAccessError(qpn)),
        }
    }

    /// api.md §3.7: the queue is in error for good, and the queue pairs that use it fail.
    fn overrun(&mut self, cq: CqId, now: Instant) {
        if let Some(Some(slot)) = self.cqs.get_mut(cq.0 as usize) {
            slot.producer.publish();
            slot.producer.notify_error();
        }
        tracing::warn!(
            cq = cq.0,
            "completion queue overrun: its queue pairs fail; create it deeper or poll it more often"
        );
        self.tell(EngineEvent::CqError(cq));
        for key in 0..self.qps.len() as u32 {
            if self
                .slot(key)
                .is_some_and(|slot| slot.send_cq == cq || slot.recv_cq == cq)
            {
                self.fail(key, now);
            }
        }
    }

    pub(super) fn add_cq(&mut self, cq: CqId, producer: CompletionProducer) {
        let at = cq.0 as usize;
        if self.cqs.len() <= at {
            self.cqs.resize_with(at + 1, || None);
        }
        self.cqs[at] = Some(CqSlot {
            producer,
            dirty: false,
            overrun: false,
        });
    }

    pub(super) fn remove_cq(&mut self, cq: CqId) {
        if let Some(slot) = self.cqs.get_mut(cq.0 as usize) {
            *slot = None;
        }
    }
}
