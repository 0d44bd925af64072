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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Reason;
    use mrc_wire::{Ev, PortNum};

    // protocol.md §8.1, P20
    #[test]
    fn each_lost_event_is_told_of_once() {
        let Some(port) = PortNum::new(1) else { panic!() };
        let bad = |n| QpEvent::EvBad {
            ev: Ev(n),
            port,
            reason: Reason::Lost,
            lost_before: 0,
        };
        let told = |events: &mut Events| match events.pop() {
            Some(QpEvent::EvBad { ev, lost_before, .. }) => Some((ev.0, lost_before)),
            _ => None,
        };
        let mut events = Events::new();
        for n in 0..CAPACITY as u32 + 2 {
            events.push(bad(n));
        }
        for n in 0..CAPACITY as u32 {
            assert_eq!(told(&mut events), Some((n, 0)));
        }
        assert_eq!(told(&mut events), None);
        events.push(bad(90));
        events.push(bad(91));
        assert_eq!((told(&mut events), told(&mut events)), (Some((90, 2)), Some((91, 0))));
    }
}
