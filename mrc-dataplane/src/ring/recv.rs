//! Receive rings: the application posts work requests that immediates will consume.

#![expect(unsafe_code, reason = "slots of a ring are raw memory")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::entry::RecvEntry;
use super::index::{Consuming, INDEX_BYTES, Producing, RingCorrupt, capacity_for};
use super::memory::{LINE, RingMemory};

const DONE: usize = INDEX_BYTES;
const SLOTS: usize = INDEX_BYTES + LINE;
const ENTRY: usize = size_of::<RecvEntry>();

/// The receive queue holds as many requests as it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("receive queue full: {depth} requests outstanding; poll the completion queue or create a deeper queue")]
pub struct RecvQueueFull {
    /// Requests that may be outstanding.
    pub depth: u32,
}

/// A receive ring for `depth` requests.
pub fn recv_ring(depth: u32) -> (RecvProducer, RecvConsumer) {
    let capacity = capacity_for(depth);
    let memory = Arc::new(RingMemory::new(SLOTS + capacity as usize * ENTRY));
    let producer = RecvProducer {
        ring: Producing::new(memory.clone(), 0, capacity),
        depth,
    };
    (
        producer,
        RecvConsumer {
            ring: Consuming::new(memory, 0, capacity),
            depth,
        },
    )
}

/// The application's end.
pub struct RecvProducer {
    ring: Producing,
    depth: u32,
}

impl RecvProducer {
    /// Writes a request; it becomes visible with [`RecvProducer::publish`]. Returns its index, the `wqe` of its completion.
    pub fn push(&mut self, entry: RecvEntry) -> Result<u32, RecvQueueFull> {
        if self.outstanding() >= self.depth {
            return Err(RecvQueueFull { depth: self.depth });
        }
        let index = self.ring.reserve().ok_or(RecvQueueFull { depth: self.depth })?;
        let at = SLOTS + self.ring.slot(index) as usize * ENTRY;
        // SAFETY: `reserve` gave this slot to the producer, of whom there is one; it is published later.
        unsafe { self.ring.memory().store(at, entry) };
        self.ring.commit();
        Ok(index)
    }

    /// Makes the requests written so far visible to the engine. True if there were new ones: then ring the doorbell (a queue
    /// pair in error flushes them).
    pub fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Requests written and not yet ended.
    pub fn outstanding(&self) -> u32 {
        self.ring.next_index().wrapping_sub(self.done())
    }

    /// Number of requests that have ended, modulo 2^32.
    pub fn done(&self) -> u32 {
        self.ring.memory().word(DONE).load(Ordering::Acquire)
    }

    /// Requests that may be outstanding.
    pub fn depth(&self) -> u32 {
        self.depth
    }
}

/// The engine's end.
pub struct RecvConsumer {
    ring: Consuming,
    depth: u32,
}

impl RecvConsumer {
    /// Takes the oldest request.
    pub fn fetch(&mut self) -> Result<Option<RecvEntry>, RingCorrupt> {
        let Some(index) = self.ring.peek()? else {
            return Ok(None);
        };
        // SAFETY: published by the producer and not handed back yet; any bytes are a `RecvEntry`.
        let entry = unsafe { self.ring.memory().load(SLOTS + self.ring.slot(index) as usize * ENTRY) };
        self.ring.advance();
        self.ring.release();
        Ok(Some(entry))
    }

    /// Requests up to and without this index have ended.
    pub fn complete(&self, done: u32) {
        self.ring.memory().word(DONE).store(done, Ordering::Release);
    }

    /// Drops everything that was posted; returns the index that the next request will have.
    pub fn discard(&mut self) -> Result<u32, RingCorrupt> {
        while self.ring.peek()?.is_some() {
            self.ring.advance();
        }
        self.ring.release();
        let next = self.ring.next_index();
        self.complete(next);
        Ok(next)
    }

    /// Requests that may be outstanding.
    pub fn depth(&self) -> u32 {
        self.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_out_in_order_and_free_their_place_when_done() {
        let (mut tx, mut rx) = recv_ring(2);
        assert_eq!(tx.push(RecvEntry { wr_id: 10 }), Ok(0));
        assert_eq!(tx.push(RecvEntry { wr_id: 11 }), Ok(1));
        assert_eq!(tx.push(RecvEntry { wr_id: 12 }), Err(RecvQueueFull { depth: 2 }));
        tx.publish();
        assert_eq!(rx.fetch(), Ok(Some(RecvEntry { wr_id: 10 })));
        rx.complete(1);
        assert_eq!(tx.push(RecvEntry { wr_id: 12 }), Ok(2));
        tx.publish();
        assert_eq!(rx.fetch(), Ok(Some(RecvEntry { wr_id: 11 })));
        assert_eq!(rx.fetch(), Ok(Some(RecvEntry { wr_id: 12 })));
        assert_eq!(rx.fetch(), Ok(None));
    }

    #[test]
    fn discard_empties_the_queue() {
        let (mut tx, mut rx) = recv_ring(4);
        for wr_id in 0..4 {
            tx.push(RecvEntry { wr_id }).unwrap();
        }
        tx.publish();
        rx.discard().unwrap();
        assert_eq!(tx.outstanding(), 0);
        assert_eq!(rx.fetch(), Ok(None));
    }
}
