//! The two indices of a single-producer single-consumer ring.
//!
//! Both are 32-bit counters that only grow (modulo 2^32); the slot is `index & (capacity - 1)`. The producer publishes with a
//! release store of the tail, the consumer hands back with a release store of the head, and each side keeps a private copy of
//! what it wrote and of what it last saw, so that the other side's cache line is touched only when the copy says "full" or "empty".

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memory::{LINE, RingMemory};

/// Bytes of the header that the indices take: the tail's line and the head's line.
pub(super) const INDEX_BYTES: usize = 2 * LINE;

const TAIL: usize = 0;
const HEAD: usize = LINE;

/// The other side has written an index that cannot be: the ring's memory is damaged, or a process lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ring indices {distance} apart in a ring of {capacity}: its memory was overwritten")]
pub struct RingCorrupt {
    /// Tail minus head.
    pub distance: u32,
    /// Number of slots.
    pub capacity: u32,
}

/// Capacity for at least `depth` entries.
pub(super) fn capacity_for(depth: u32) -> u32 {
    depth.clamp(1, 1 << 30).next_power_of_two()
}

/// The producer's view.
pub(super) struct Producing {
    memory: Arc<RingMemory>,
    base: usize,
    capacity: u32,
    next: u32,
    published: u32,
    head_seen: u32,
}

impl Producing {
    pub(super) fn new(memory: Arc<RingMemory>, base: usize, capacity: u32) -> Self {
        Self {
            memory,
            base,
            capacity,
            next: 0,
            published: 0,
            head_seen: 0,
        }
    }

    pub(super) fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// Index of the next entry, if it has room.
    pub(super) fn reserve(&mut self) -> Option<u32> {
        if self.next.wrapping_sub(self.head_seen) >= self.capacity {
            self.head_seen = self.memory.word(self.base + HEAD).load(Ordering::Acquire);
            // A head from the future (a damaged ring) reads as "full": nothing is overwritten.
            if self.next.wrapping_sub(self.head_seen) >= self.capacity {
                return None;
            }
        }
        Some(self.next)
    }

    /// The entry at `reserve()`'s index has been written.
    pub(super) fn commit(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Index that the next entry will have.
    pub(super) fn next_index(&self) -> u32 {
        self.next
    }

    /// Makes everything committed visible; false when there was nothing new.
    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        self.memory.word(self.base + TAIL).store(self.next, Ordering::Release);
        true
    }

    pub(super) fn slot(&self, index: u32) -> u32 {
        index & (self.capacity - 1)
    }
}

/// The consumer's view.
pub(super) struct Consuming {
    memory: Arc<RingMemory>,
    base: usize,
    capacity: u32,
    next: u32,
    tail_seen: u32,
}

impl Consuming {
    pub(super) fn new(memory: Arc<RingMemory>, base: usize, capacity: u32) -> Self {
        Self {
            memory,
            base,
            capacity,
            next: 0,
            tail_seen: 0,
        }
    }

    pub(super) fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// Index of the oldest entry, if there is one.
    pub(super) fn peek(&mut self) -> Result<Option<u32>, RingCorrupt> {
        if self.next == self.tail_seen && self.refresh()? == 0 {
            return Ok(None);
        }
        Ok(Some(self.next))
    }

    /// Looks at the producer's index again; number of entries that can be taken.
    pub(super) fn refresh(&mut self) -> Result<u32, RingCorrupt> {
        let tail = self.memory.word(self.base + TAIL).load(Ordering::Acquire);
        let distance = tail.wrapping_sub(self.next);
        if distance > self.capacity {
            return Err(RingCorrupt {
                distance,
                capacity: self.capacity,
            });
        }
        self.tail_seen = tail;
        Ok(distance)
    }

    /// Takes the entry at `peek()`'s index; its slot belongs to the producer after `release`.
    pub(super) fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Index of the entry that comes next, whether or not it is there.
    pub(super) fn next_index(&self) -> u32 {
        self.next
    }

    /// Hands back everything taken.
    pub(super) fn release(&self) {
        self.memory.word(self.base + HEAD).store(self.next, Ordering::Release);
    }

    pub(super) fn slot(&self, index: u32) -> u32 {
        index & (self.capacity - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_further_than_the_capacity_is_corruption() {
        let memory = Arc::new(RingMemory::new(INDEX_BYTES));
        let mut consuming = Consuming::new(memory.clone(), 0, 8);
        memory.word(TAIL).store(9, Ordering::Release);
        assert_eq!(
            consuming.peek(),
            Err(RingCorrupt {
                distance: 9,
                capacity: 8
            })
        );
        memory.word(TAIL).store(u32::MAX, Ordering::Release);
        assert!(consuming.peek().is_err());
    }

    #[test]
    fn a_head_from_the_future_reads_as_full() {
        let memory = Arc::new(RingMemory::new(INDEX_BYTES));
        let mut producing = Producing::new(memory.clone(), 0, 2);
        producing.commit();
        producing.commit();
        memory.word(HEAD).store(77, Ordering::Release);
        assert_eq!(producing.reserve(), None);
    }

    #[test]
    fn capacities_are_powers_of_two() {
        assert_eq!([0, 1, 3, 128, 129].map(capacity_for), [1, 1, 4, 128, 256]);
    }
}
