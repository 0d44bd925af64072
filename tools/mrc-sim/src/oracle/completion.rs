//! What applications are told: exactly one end for every request, in posting order, and true (protocol.md §5.8, §5.9, §6.6).

use crate::ensure;
use crate::oracle::Checked;
use crate::oracle::Oracle::{Completion as Exact, Receive};
use crate::oracle::flow::Flow;
use crate::scenario::{Class, Wrong};
use mrc_protocol::{Completion, QpState, Status};
use std::collections::VecDeque;

/// Work queues of one queue pair, as the application knows them.
#[derive(Debug, Default)]
pub struct WorkModel {
    /// Send requests posted and not completed: message numbers and slots.
    pub sends: VecDeque<(usize, u32)>,
    /// Receive requests posted and not completed.
    pub receives: VecDeque<u64>,
    /// Receives posted in all.
    pub receives_posted: u64,
    /// The first end of a send that was not a success.
    pub failure: Option<Status>,
    causes: u32,
    /// Requests that ended well.
    pub succeeded: usize,
    /// Requests that ended otherwise.
    pub failed: usize,
}

/// `wr_id` of a send request.
pub fn send_wr_id(message: usize) -> u64 {
    0x5E4D_0000_0000 + message as u64
}

/// `wr_id` of the n-th receive.
pub fn receive_wr_id(number: u64) -> u64 {
    0x4EC1_0000_0000 + number
}

/// Whether a class of scenarios may end a send request like this.
pub fn legal(class: Class, status: Status) -> bool {
    match status {
        Status::Success => true,
        Status::Flushed | Status::RetryExceeded => !class.must_succeed(),
        Status::RemoteOperation => matches!(class, Class::TooFewReceives | Class::MemoryBreaks),
        Status::RemoteAccess => class == Class::BadAccess,
        Status::RemoteInvalidRequest => class == Class::TooManyImmediates,
        Status::LocalProtection => false,
    }
}

impl WorkModel {
    /// Slot of a posted message.
    pub fn slot_of(&self, message: usize) -> Option<u32> {
        self.sends
            .iter()
            .find(|(posted, _)| *posted == message)
            .map(|(_, slot)| *slot)
    }

    /// Judges the end of a send request of `flow`. Returns the message.
    pub fn judge_send(
        &mut self,
        flow: &Flow,
        completion: &Completion,
        state: QpState,
        class: Class,
        peer_qpn: u32,
    ) -> Result<usize, crate::oracle::Breach> {
        let name = &flow.name;
        let Some((number, slot)) = self.sends.pop_front() else {
            return Err(crate::oracle::Breach(
                Exact,
                format!("{name}: {completion:?} for nothing"),
            ));
        };
        let message = &flow.messages[number];
        let status = completion.status;
        let as_posted = completion.wr_id == send_wr_id(number)
            && completion.slot == slot
            && completion.byte_len == message.len
            // A queue pair that fails before RTR knows no peer.
            && (completion.src_qp.get() == peer_qpn || (status == Status::Flushed && completion.src_qp.get() == 0));
        ensure!(
            as_posted,
            Exact,
            "{name}: {completion:?}; in turn was message {number} in slot {slot}: {message:?}"
        );
        ensure!(
            completion.signaled == (message.signaled || status != Status::Success),
            Exact,
            "{name}: {completion:?}; message {number} signaled: {}",
            message.signaled
        );
        ensure!(
            legal(class, status),
            Exact,
            "{name}: message {number} ends with {status:?} in a run of {class:?}"
        );
        if status == Status::Success {
            ensure!(
                self.failure.is_none(),
                Exact,
                "{name}: message {number} succeeds after {:?}",
                self.failure
            );
            let last = message.first + message.packets - 1;
            ensure!(
                flow.requestor.transport_acked >= last as i64,
                Exact,
                "{name}: message {number} completes, Transport ACK has come up to {} of {last}",
                flow.requestor.transport_acked
            );
            ensure!(
                flow.responder.cack >= last as i64,
                Exact,
                "{name}: message {number} completes, the peer has {} of {last}",
                flow.responder.cack
            );
            let refused = message.wrong.is_some_and(|wrong: Wrong| {
                let _ = wrong;
                message.len > 0
            });
            ensure!(
                !refused,
                Exact,
                "{name}: message {number} should have been refused and succeeds"
            );
            self.succeeded += 1;
        } else {
            ensure!(
                state == QpState::Err,
                Exact,
                "{name}: message {number} ends with {status:?} in state {state:?}"
            );
            self.causes += u32::from(status != Status::Flushed);
            ensure!(
                self.causes <= 1,
                Exact,
                "{name}: message {number} ends with {status:?}, a second cause"
            );
            if matches!(
                status,
                Status::RemoteOperation | Status::RemoteAccess | Status::RemoteInvalidRequest
            ) {
                // protocol.md §5.8, §5.6 (UNEXP_EVENT): the owner of the packet that was refused.
                ensure!(
                    flow.refusal() == Some((number, status)),
                    Exact,
                    "{name}: message {number} ends with {status:?}; refused was {:?}",
                    flow.refusal()
                );
            }
            if status == Status::RetryExceeded {
                // protocol.md §5.7: the oldest request gets it.
                ensure!(
                    self.failure.is_none(),
                    Exact,
                    "{name}: message {number} is not the oldest to end with {status:?}"
                );
            }
            self.failure.get_or_insert(status);
            self.failed += 1;
        }
        Ok(number)
    }

    /// Judges the end of a receive request; `flow` is the one that arrives here.
    pub fn judge_receive(
        &mut self,
        flow: &mut Flow,
        completion: &Completion,
        state: QpState,
        peer_qpn: u32,
    ) -> Checked {
        let name = flow.name.clone();
        let Some(wr_id) = self.receives.pop_front() else {
            ensure!(false, Receive, "{name}: {completion:?} for nothing");
            return Ok(());
        };
        ensure!(
            completion.wr_id == wr_id,
            Receive,
            "{name}: {completion:?}; in turn was {wr_id:#x}"
        );
        if completion.status == Status::Flushed {
            ensure!(
                state == QpState::Err,
                Receive,
                "{name}: {completion:?} in state {state:?}"
            );
            ensure!(
                self.sends.is_empty(),
                Receive,
                "{name}: a receive is flushed before send {:?}",
                self.sends.front()
            );
            return Ok(());
        }
        ensure!(completion.status == Status::Success, Receive, "{name}: {completion:?}");
        let Some(number) = flow.responder.deliverable.pop_front() else {
            ensure!(
                false,
                Receive,
                "{name}: {completion:?} before its turn (in order up to {})",
                flow.responder.cack
            );
            return Ok(());
        };
        let message = &flow.messages[number];
        let as_sent = completion.imm == message.imm
            && completion.byte_len == message.len
            && completion.solicited == message.solicited
            && completion.src_qp.get() == peer_qpn
            && completion.signaled;
        ensure!(
            as_sent,
            Receive,
            "{name}: {completion:?}; in turn was message {number}: {message:?}"
        );
        Ok(())
    }
}
