//! The event queue: virtual time moves from event to event, and events of one instant come in the order of posting.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events in the order of time.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    posted: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at_ns: u64,
    order: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// An empty queue.
    pub fn new() -> EventQueue<E> {
        EventQueue {
            heap: BinaryHeap::new(),
            posted: 0,
        }
    }

    /// Posts `event` for the instant `at_ns`.
    pub fn post(&mut self, at_ns: u64, event: E) {
        self.heap.push(Reverse(Entry {
            at_ns,
            order: self.posted,
            event,
        }));
        self.posted += 1;
    }

    /// The next event and its instant.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at_ns, entry.event))
    }

    /// Events posted in all.
    pub fn posted(&self) -> u64 {
        self.posted
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue::new()
    }
}

impl<E> Entry<E> {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.order)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_then_of_posting() {
        let mut queue = EventQueue::new();
        for (at_ns, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.post(at_ns, event);
        }
        let order: Vec<char> = std::iter::from_fn(|| queue.pop().map(|(_, event)| event)).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }
}
