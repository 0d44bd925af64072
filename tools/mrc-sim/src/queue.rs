//! The event queue: virtual time moves from event to event, and events of one instant come in the order of posting.
//!
//! Most events lie a few microseconds ahead, and a large run has hundreds of thousands of them at a time: a heap would spend
//! its time on cache misses. So there is a wheel with a slot for every nanosecond of the present block, one with a slot for
//! every block of the present span, and a heap only for what lies beyond. A slot is a list in the order of posting. Events
//! come down to the finer wheel before anything is posted there, so that this order lasts.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Slots of a wheel are 2^12: words of 64 bits, and a word that tells which of these are not 0.
const SLOT_BITS: u32 = 12;
const SLOTS: u64 = 1 << SLOT_BITS;
/// Nanoseconds that the coarse wheel spans.
const SPAN_NS: u64 = SLOTS * SLOTS;
/// No node.
const NONE: u32 = u32::MAX;

/// Events in the order of time.
#[derive(Debug)]
pub struct EventQueue<E> {
    nodes: Nodes<E>,
    /// The present block, by nanosecond, and where it begins.
    near: Wheel,
    near_ns: u64,
    /// The other blocks of the present span, and where it begins.
    far: Wheel,
    far_ns: u64,
    /// Behind the span.
    later: BinaryHeap<Reverse<Entry<E>>>,
    /// Before the block: posted for an instant that lies before one that was already looked at.
    early: BinaryHeap<Reverse<Entry<E>>>,
    posted: u64,
}

/// Events in lists, with one list of the nodes that are free.
#[derive(Debug)]
struct Nodes<E> {
    all: Vec<Node<E>>,
    free: u32,
}

#[derive(Debug)]
struct Node<E> {
    at_ns: u64,
    next: u32,
    event: Option<E>,
}

#[derive(Debug)]
struct Wheel {
    /// First and last node of every slot.
    slots: Box<[(u32, u32)]>,
    words: [u64; 64],
    summary: u64,
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
            nodes: Nodes {
                all: Vec::new(),
                free: NONE,
            },
            near: Wheel::new(),
            near_ns: 0,
            far: Wheel::new(),
            far_ns: 0,
            later: BinaryHeap::new(),
            early: BinaryHeap::new(),
            posted: 0,
        }
    }

    /// Posts `event` for the instant `at_ns`.
    pub fn post(&mut self, at_ns: u64, event: E) {
        let order = self.posted;
        self.posted += 1;
        if at_ns < self.near_ns {
            self.early.push(Reverse(Entry { at_ns, order, event }));
        } else if at_ns - self.far_ns >= SPAN_NS {
            self.later.push(Reverse(Entry { at_ns, order, event }));
        } else {
            let node = self.nodes.insert(at_ns, event);
            self.place(node, at_ns);
        }
    }

    /// The next event and its instant.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        if let Some(Reverse(entry)) = self.early.pop() {
            return Some((entry.at_ns, entry.event));
        }
        loop {
            if let Some(slot) = self.near.first() {
                let node = self.near.slots[slot].0;
                let next = self.nodes.all[node as usize].next;
                self.near.set_first(slot, next);
                return self.nodes.remove(node);
            }
            if let Some(block) = self.far.first() {
                self.near_ns = self.far_ns + (block as u64) * SLOTS;
                let mut node = self.far.slots[block].0;
                self.far.set_first(block, NONE);
                while node != NONE {
                    let Node { at_ns, next, .. } = self.nodes.all[node as usize];
                    self.place(node, at_ns);
                    node = next;
                }
            } else {
                self.begin_span()?;
            }
        }
    }

    /// Both wheels are empty: they move to the next event of all.
    fn begin_span(&mut self) -> Option<()> {
        let Reverse(first) = self.later.peek()?;
        self.far_ns = first.at_ns / SPAN_NS * SPAN_NS;
        self.near_ns = self.far_ns;
        while self
            .later
            .peek()
            .is_some_and(|Reverse(entry)| entry.at_ns - self.far_ns < SPAN_NS)
        {
            let Reverse(Entry { at_ns, event, .. }) = self.later.pop()?;
            let node = self.nodes.insert(at_ns, event);
            self.place(node, at_ns);
        }
        Some(())
    }

    /// Puts a node into the finest wheel that reaches its instant.
    fn place(&mut self, node: u32, at_ns: u64) {
        let (wheel, slot) = if at_ns - self.near_ns < SLOTS {
            (&mut self.near, at_ns - self.near_ns)
        } else {
            (&mut self.far, (at_ns - self.far_ns) >> SLOT_BITS)
        };
        wheel.append(slot as usize, node, &mut self.nodes);
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

impl<E> Nodes<E> {
    fn insert(&mut self, at_ns: u64, event: E) -> u32 {
        let node = Node {
            at_ns,
            next: NONE,
            event: Some(event),
        };
        if let Some(place) = self.all.get_mut(self.free as usize) {
            let taken = self.free;
            self.free = place.next;
            *place = node;
            return taken;
        }
        self.all.push(node);
        (self.all.len() - 1) as u32
    }

    fn remove(&mut self, index: u32) -> Option<(u64, E)> {
        let node = &mut self.all[index as usize];
        node.next = self.free;
        self.free = index;
        let at_ns = node.at_ns;
        node.event.take().map(|event| (at_ns, event))
    }
}

impl Wheel {
    fn new() -> Wheel {
        Wheel {
            slots: vec![(NONE, NONE); SLOTS as usize].into(),
            words: [0; 64],
            summary: 0,
        }
    }

    /// The first slot that holds something.
    fn first(&self) -> Option<usize> {
        let word = self.summary.trailing_zeros() as usize;
        let bits = self.words.get(word)?;
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn append<E>(&mut self, slot: usize, node: u32, nodes: &mut Nodes<E>) {
        nodes.all[node as usize].next = NONE;
        let (first, last) = &mut self.slots[slot];
        if *first == NONE {
            *first = node;
            self.words[slot / 64] |= 1 << (slot % 64);
            self.summary |= 1 << (slot / 64);
        } else {
            nodes.all[*last as usize].next = node;
        }
        *last = node;
    }

    /// Another node, or none, is the first one of a slot.
    fn set_first(&mut self, slot: usize, node: u32) {
        self.slots[slot].0 = node;
        if node == NONE {
            self.words[slot / 64] &= !(1 << (slot % 64));
            self.summary &= !(u64::from(self.words[slot / 64] == 0) << (slot / 64));
        }
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
    use crate::rng::Rng;

    #[test]
    fn events_come_in_the_order_of_time_then_of_posting() {
        let mut queue = EventQueue::new();
        for (at_ns, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.post(at_ns, event);
        }
        let order: Vec<char> = std::iter::from_fn(|| queue.pop().map(|(_, event)| event)).collect();
        assert_eq!(order, ['a', 'b', 'c', 'd']);
    }

    #[test]
    fn whatever_the_distances_the_order_is_that_of_a_heap() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed, "queue");
            let (mut queue, mut heap) = (EventQueue::new(), BinaryHeap::new());
            let (mut now_ns, mut event) = (0u64, 0u64);
            for _ in 0..20_000 {
                for _ in 0..rng.below(4) {
                    let reach = rng.pick(&[1, 10, 3000, 5000, 1 << 20, SPAN_NS, 3 * SPAN_NS, 1 << 40]);
                    // Now and then for an instant before the last one.
                    let at_ns = if rng.one_in(50) {
                        now_ns.saturating_sub(rng.below(reach))
                    } else {
                        now_ns + rng.below(reach)
                    };
                    queue.post(at_ns, event);
                    heap.push(Reverse((at_ns, event)));
                    event += 1;
                }
                if let Some(Reverse((at_ns, event))) = heap.pop() {
                    assert_eq!(queue.pop(), Some((at_ns, event)), "seed {seed}");
                    now_ns = at_ns;
                }
            }
            while let Some(Reverse(expected)) = heap.pop() {
                assert_eq!(queue.pop(), Some(expected), "seed {seed}");
            }
            assert_eq!((queue.pop(), queue.posted()), (None, event));
        }
    }

    #[test]
    fn memory_is_that_of_the_most_events_at_a_time() {
        let mut queue = EventQueue::new();
        for at_ns in 0..100_000 {
            queue.post(at_ns * 100, ());
            queue.post(at_ns * 100 + 70_000, ());
            assert!(queue.pop().is_some() && (at_ns < 700 || queue.pop().is_some()));
        }
        assert!(queue.nodes.all.len() < 2000, "{} nodes", queue.nodes.all.len());
    }

    #[test]
    fn the_end_of_time_is_an_instant_too() {
        let mut queue = EventQueue::new();
        queue.post(u64::MAX, 'z');
        queue.post(u64::MAX - 1, 'y');
        assert_eq!(queue.pop(), Some((u64::MAX - 1, 'y')));
        queue.post(7, 'a');
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some((7, 'a')), Some((u64::MAX, 'z')), None]
        );
    }
}
