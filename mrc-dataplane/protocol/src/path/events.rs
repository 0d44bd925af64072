//! Path events for the controller: bounded, and what was dropped is counted (protocol.md §8.1, P20).

use alloc::collections::VecDeque;

use crate::work::QpEvent;

const CAPACITY: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Events {
    queue: VecDeque<QpEvent>,
    lost: u32,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::with_capacity(CAPACITY),
            lost: 0,
        }
    }

    pub(super) fn push(&mut self, mut event: QpEvent) {
        if self.queue.len() == CAPACITY {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        if let QpEvent::EvBad { lost_before, .. } | QpEvent::EvGood { lost_before, .. } = &mut event {
            *lost_before = core::mem::take(&mut self.lost);
        }
        self.queue.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<QpEvent> {
        self.queue.pop_front()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.lost = 0;
    }
}
