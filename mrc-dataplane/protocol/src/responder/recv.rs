//! The receive queue: each delivered immediate consumes a request (protocol.md §6.6).

use alloc::boxed::Box;
use alloc::vec;

use mrc_wire::Qpn;

use super::stash::Immediate;
use crate::work::{Completion, PostError, Queue, Status};

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    wr_id: u64,
    delivered: Immediate,
}

/// Requests by rising counters: `head <= delivered <= tail`.
pub(super) struct RecvQueue {
    ring: Box<[Entry]>,
    mask: u32,
    depth: u32,
    head: u32,
    delivered: u32,
    tail: u32,
    failed: bool,
}

impl RecvQueue {
    pub(super) fn new(depth: u32) -> Self {
        let size = depth.max(1).next_power_of_two();
        Self {
            ring: vec![Entry::default(); size as usize].into_boxed_slice(),
            mask: size - 1,
            depth,
            head: 0,
            delivered: 0,
            tail: 0,
            failed: false,
        }
    }

    pub(super) fn clear(&mut self) {
        (self.head, self.delivered, self.tail, self.failed) = (0, 0, 0, false);
    }

    fn at(&mut self, counter: u32) -> &mut Entry {
        &mut self.ring[(counter & self.mask) as usize]
    }

    pub(super) fn post(&mut self, wr_id: u64) -> Result<(), PostError> {
        if self.tail.wrapping_sub(self.head) >= self.depth {
            return Err(PostError::Full);
        }
        self.at(self.tail).wr_id = wr_id;
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// False if there is no request left.
    pub(super) fn deliver(&mut self, immediate: Immediate) -> bool {
        if self.delivered == self.tail {
            return false;
        }
        self.at(self.delivered).delivered = immediate;
        self.delivered = self.delivered.wrapping_add(1);
        true
    }

    /// What was not delivered is flushed from now on (protocol.md §5.9).
    pub(super) fn fail(&mut self) {
        self.failed = true;
    }

    pub(super) fn poll_delivered(&mut self, peer: Qpn) -> Option<Completion> {
        (self.head != self.delivered).then(|| self.pop(peer, Status::Success))
    }

    pub(super) fn poll_flushed(&mut self, peer: Qpn) -> Option<Completion> {
        if !self.failed || self.head == self.tail || self.head != self.delivered {
            return None;
        }
        self.at(self.head).delivered = Immediate::default();
        self.delivered = self.delivered.wrapping_add(1);
        Some(self.pop(peer, Status::Flushed))
    }

    fn pop(&mut self, peer: Qpn, status: Status) -> Completion {
        let Entry { wr_id, delivered } = *self.at(self.head);
        self.head = self.head.wrapping_add(1);
        Completion {
            wr_id,
            queue: Queue::Recv,
            status,
            byte_len: delivered.dmalen,
            imm: (status == Status::Success).then_some(delivered.imm),
            solicited: delivered.solicited,
            src_qp: peer,
            slot: 0,
            signaled: true,
        }
    }
}
