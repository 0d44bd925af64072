//! Send rings: the application writes work requests, the engine takes copies of them.
//!
//! Slots have one stride, fixed at creation: a [`SendEntry`] and room for the SGEs or the inline data of the largest request.
//! The engine copies a request before it looks at it, so a slot is free as soon as it is fetched; how many requests may be
//! outstanding is a matter of `done`, the count of requests that have ended (with or without a completion entry).

#![expect(unsafe_code, reason = "slots of a ring are raw memory")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::entry::{SendEntry, Sge};
use super::index::{Consuming, INDEX_BYTES, Producing, RingCorrupt, capacity_for};
use super::memory::{LINE, RingMemory};

const DONE: usize = INDEX_BYTES;
const SLOTS: usize = INDEX_BYTES + LINE;
const ENTRY: usize = size_of::<SendEntry>();
const SGE: usize = size_of::<Sge>();

/// Why a request did not get into the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// As many requests are outstanding as the queue was made for.
    #[error("send queue full: {0} requests outstanding; poll the completion queue or create a deeper queue")]
    Full(u32),
    /// More pieces than the queue was made for.
    #[error("{count} pieces in one request, the queue pair was created for {max}")]
    TooManySges {
        /// Pieces in the request.
        count: usize,
        /// What the queue was made for.
        max: u32,
    },
    /// More inline data than the queue was made for.
    #[error("{len} bytes inline, the queue pair was created for {max}")]
    InlineTooLong {
        /// Bytes in the request.
        len: usize,
        /// What the queue was made for.
        max: u32,
    },
}

/// The data of a send request.
#[derive(Debug, Clone, Copy)]
pub enum SendData<'a> {
    /// Pieces of registered memory, read while the request is carried out.
    Sges(&'a [Sge]),
    /// Bytes, copied now.
    Inline(&'a [u8]),
}

#[derive(Clone, Copy)]
struct Shape {
    depth: u32,
    stride: usize,
    max_sge: u32,
    max_inline: u32,
}

/// A send ring for `depth` requests with up to `max_sge` pieces or `max_inline` bytes of inline data.
pub fn send_ring(depth: u32, max_sge: u32, max_inline: u32) -> (SendProducer, SendConsumer) {
    let stride = (ENTRY + (max_sge as usize * SGE).max(max_inline as usize)).next_multiple_of(32);
    let capacity = capacity_for(depth);
    let shape = Shape {
        depth: depth.max(1),
        stride,
        max_sge,
        max_inline,
    };
    let memory = Arc::new(RingMemory::new(SLOTS + capacity as usize * stride));
    let producer = SendProducer {
        ring: Producing::new(memory.clone(), 0, capacity),
        shape,
    };
    (
        producer,
        SendConsumer {
            ring: Consuming::new(memory, 0, capacity),
            shape,
        },
    )
}

/// The application's end.
pub struct SendProducer {
    ring: Producing,
    shape: Shape,
}

impl SendProducer {
    /// Writes a request; it becomes visible with [`SendProducer::publish`]. Returns its index, the `wqe` of its completion.
    /// `num_sge`, `length` and the inline flag of `entry` are filled in from `data`, whose total the caller has checked
    /// against the largest message.
    pub fn push(&mut self, mut entry: SendEntry, data: SendData<'_>) -> Result<u32, PushError> {
        match data {
            SendData::Sges(sges) => {
                if sges.len() > self.shape.max_sge.min(u8::MAX.into()) as usize {
                    return Err(PushError::TooManySges {
                        count: sges.len(),
                        max: self.shape.max_sge,
                    });
                }
                entry.num_sge = sges.len() as u8;
                entry.flags &= !SendEntry::INLINE;
                entry.length = sges.iter().fold(0, |sum: u32, sge| sum.saturating_add(sge.length));
            }
            SendData::Inline(bytes) => {
                if bytes.len() > self.shape.max_inline as usize {
                    return Err(PushError::InlineTooLong {
                        len: bytes.len(),
                        max: self.shape.max_inline,
                    });
                }
                entry.num_sge = 0;
                entry.flags |= SendEntry::INLINE;
                entry.length = bytes.len() as u32;
            }
        }
        if self.outstanding() >= self.shape.depth {
            return Err(PushError::Full(self.shape.depth));
        }
        let index = self.ring.reserve().ok_or(PushError::Full(self.shape.depth))?;
        let at = SLOTS + self.ring.slot(index) as usize * self.shape.stride;
        let memory = self.ring.memory();
        // SAFETY: `reserve` gave this slot to the producer, of whom there is one; it is published later.
        unsafe {
            memory.store(at, entry);
            match data {
                SendData::Sges(sges) => {
                    for (number, sge) in sges.iter().enumerate() {
                        memory.store(at + ENTRY + number * SGE, *sge);
                    }
                }
                SendData::Inline(bytes) => memory.store_bytes(at + ENTRY, bytes),
            }
        }
        self.ring.commit();
        Ok(index)
    }

    /// Makes the requests written so far visible to the engine. True if there were new ones: then ring the doorbell.
    pub fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Requests written and not yet ended.
    pub fn outstanding(&self) -> u32 {
        self.ring.next_index().wrapping_sub(self.done())
    }

    /// Number of requests that have ended, modulo 2^32: the index of the oldest one that has not.
    pub fn done(&self) -> u32 {
        self.ring.memory().word(DONE).load(Ordering::Acquire)
    }

    /// Index that the next request will get.
    pub fn next_index(&self) -> u32 {
        self.ring.next_index()
    }

    /// Requests that may be outstanding.
    pub fn depth(&self) -> u32 {
        self.shape.depth
    }
}

/// The engine's end.
pub struct SendConsumer {
    ring: Consuming,
    shape: Shape,
}

impl SendConsumer {
    /// Takes the oldest request: the entry as it stands in the ring, its pieces into `sges` or its data into `inline`, whose
    /// lengths are those that the ring was made for. What does not fit the ring's own limits comes out as `num_sge` or
    /// `length` beyond them, with nothing copied; the caller refuses such a request.
    pub fn fetch(&mut self, sges: &mut [Sge], inline: &mut [u8]) -> Result<Option<SendEntry>, RingCorrupt> {
        let Some(index) = self.ring.peek()? else {
            return Ok(None);
        };
        let at = SLOTS + self.ring.slot(index) as usize * self.shape.stride;
        let memory = self.ring.memory();
        // SAFETY: published by the producer and not handed back yet. A lying process may still write here; then the copy has
        // some value, and only the copy is used.
        let entry = unsafe { memory.load::<SendEntry>(at) };
        if entry.flags & SendEntry::INLINE == 0 {
            if u32::from(entry.num_sge) <= self.shape.max_sge {
                for (number, sge) in sges.iter_mut().take(entry.num_sge.into()).enumerate() {
                    // SAFETY: as above; inside the slot by the check.
                    *sge = unsafe { memory.load(at + ENTRY + number * SGE) };
                }
            }
        } else if entry.length <= self.shape.max_inline
            && let Some(bytes) = inline.get_mut(..entry.length as usize)
        {
            // SAFETY: as above; inside the slot by the check.
            unsafe { memory.load_bytes(at + ENTRY, bytes) };
        }
        self.ring.advance();
        self.ring.release();
        Ok(Some(entry))
    }

    /// Index that the next request fetched has.
    pub fn next_index(&mut self) -> Result<Option<u32>, RingCorrupt> {
        self.ring.peek()
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
        self.shape.depth
    }

    /// Pieces that one request may have.
    pub fn max_sge(&self) -> u32 {
        self.shape.max_sge
    }

    /// Bytes of inline data that one request may have.
    pub fn max_inline(&self) -> u32 {
        self.shape.max_inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(wr_id: u64) -> SendEntry {
        SendEntry {
            wr_id,
            ..SendEntry::default()
        }
    }

    #[test]
    fn pieces_and_inline_data_come_out_as_they_went_in() {
        let (mut tx, mut rx) = send_ring(4, 3, 100);
        let pieces = [
            Sge {
                addr: 1,
                length: 2,
                lkey: 3,
            },
            Sge {
                addr: 4,
                length: 5,
                lkey: 6,
            },
        ];
        assert_eq!(tx.push(write(7), SendData::Sges(&pieces)), Ok(0));
        assert_eq!(tx.push(write(8), SendData::Inline(b"hello")), Ok(1));
        let (mut sges, mut inline) = ([Sge::default(); 3], [0; 100]);
        assert_eq!(
            rx.fetch(&mut sges, &mut inline),
            Ok(None),
            "nothing is visible before it is published"
        );
        assert!(tx.publish());
        assert!(!tx.publish());
        let first = rx.fetch(&mut sges, &mut inline).unwrap().unwrap();
        assert_eq!((first.wr_id, first.num_sge, first.length), (7, 2, 7));
        assert_eq!(sges[..2], pieces);
        let second = rx.fetch(&mut sges, &mut inline).unwrap().unwrap();
        assert_eq!((second.wr_id, second.length, second.flags), (8, 5, SendEntry::INLINE));
        assert_eq!(&inline[..5], b"hello");
    }

    #[test]
    fn the_queue_is_full_until_requests_have_ended() {
        let (mut tx, mut rx) = send_ring(3, 1, 0);
        for id in 0..3 {
            tx.push(write(id), SendData::Sges(&[])).unwrap();
        }
        assert_eq!(tx.push(write(3), SendData::Sges(&[])), Err(PushError::Full(3)));
        tx.publish();
        while rx.fetch(&mut [], &mut []).unwrap().is_some() {}
        assert_eq!(
            tx.push(write(3), SendData::Sges(&[])),
            Err(PushError::Full(3)),
            "fetched is not ended"
        );
        rx.complete(1);
        assert_eq!(tx.push(write(3), SendData::Sges(&[])), Ok(3));
    }

    #[test]
    fn a_request_larger_than_the_slot_is_refused() {
        let (mut tx, _rx) = send_ring(4, 1, 8);
        let piece = Sge::default();
        assert_eq!(
            tx.push(write(0), SendData::Sges(&[piece, piece])),
            Err(PushError::TooManySges { count: 2, max: 1 })
        );
        assert_eq!(
            tx.push(write(0), SendData::Inline(&[0; 9])),
            Err(PushError::InlineTooLong { len: 9, max: 8 })
        );
    }

    #[test]
    fn a_lying_producer_cannot_make_the_engine_read_beyond_the_slot() {
        let (mut tx, mut rx) = send_ring(4, 1, 8);
        tx.push(write(0), SendData::Inline(&[1; 8])).unwrap();
        let lie = SendEntry {
            num_sge: 200,
            length: 7,
            ..SendEntry::default()
        };
        // SAFETY: the slot is the producer's until it is published.
        unsafe { tx.ring.memory().store(SLOTS, lie) };
        tx.publish();
        let mut sges = [Sge::default(); 1];
        assert_eq!(rx.fetch(&mut sges, &mut [0; 8]), Ok(Some(lie)));
        assert_eq!(sges[0], Sge::default());
    }

    #[test]
    fn two_threads_pass_a_million_requests_in_order() {
        const COUNT: u64 = if cfg!(miri) { 300 } else { 1_000_000 };
        let (mut tx, mut rx) = send_ring(64, 2, 0);
        let writer = std::thread::spawn(move || {
            for id in 0..COUNT {
                let piece = Sge {
                    addr: id * 3,
                    length: id as u32,
                    lkey: !(id as u32),
                };
                while tx.push(write(id), SendData::Sges(&[piece])).is_err() {
                    tx.publish();
                    std::thread::yield_now();
                }
                if id % 5 == 0 {
                    tx.publish();
                }
            }
            tx.publish();
        });
        let mut sges = [Sge::default(); 2];
        for id in 0..COUNT {
            let entry = loop {
                match rx.fetch(&mut sges, &mut []).unwrap() {
                    Some(entry) => break entry,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!((entry.wr_id, sges[0].addr, sges[0].lkey), (id, id * 3, !(id as u32)));
            rx.complete((id + 1) as u32);
        }
        writer.join().unwrap();
    }
}
