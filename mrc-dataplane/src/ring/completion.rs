//! Completion queues: engine threads write completions, the application takes them.
//!
//! A queue holds one single-producer ring per engine thread, because nothing is written by two threads on the hot path; the
//! completions of one queue pair come from one thread, and so in order. Beside the rings stand three words:
//!
//! * `armed`: 0 not, 1 for solicited completions and errors, 2 for any. Set by the application, taken by the engine.
//! * `events`: notifications given so far. The engine adds one *before* it writes the event fd, so that a channel with several
//!   queues can be searched for the one that has news.
//! * `error`: not 0 after an overrun.
//!
//! # Arming without losing a wake-up
//! The application arms, executes a full fence, and polls once more before it sleeps. The engine publishes, executes a full
//! fence, and looks at `armed`. Whichever fence comes first, either the application sees the completion or the engine sees the
//! arming (store-buffering litmus test; acquire and release alone do not forbid that both miss).

#![expect(unsafe_code, reason = "slots of a ring are raw memory")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::entry::CompletionEntry;
use super::index::{Consuming, INDEX_BYTES, Producing, RingCorrupt, capacity_for};
use super::memory::{LINE, RingMemory};
use super::wake::write_eventfd;

const ARMED: usize = 0;
const EVENTS: usize = LINE;
const ERROR: usize = LINE + 4;
const RINGS: usize = 2 * LINE;
const ENTRY: usize = size_of::<CompletionEntry>();

const NOT_ARMED: u32 = 0;
const ARMED_SOLICITED: u32 = 1;
const ARMED_ANY: u32 = 2;

/// A completion queue of at least `depth` entries for each of `threads` engine threads; `channel` is the event fd to notify.
pub fn completion_queue(
    depth: u32,
    threads: usize,
    channel: Option<&Arc<OwnedFd>>,
) -> (CompletionConsumer, Vec<CompletionProducer>) {
    let capacity = capacity_for(depth);
    let ring_bytes = (INDEX_BYTES + capacity as usize * ENTRY).next_multiple_of(LINE);
    let memory = Arc::new(RingMemory::new(RINGS + threads.max(1) * ring_bytes));
    let base = |thread: usize| RINGS + thread * ring_bytes;
    let producers = (0..threads.max(1))
        .map(|thread| CompletionProducer {
            ring: Producing::new(memory.clone(), base(thread), capacity),
            base: base(thread),
            news: News::default(),
            channel: channel.cloned(),
        })
        .collect();
    let rings = (0..threads.max(1))
        .map(|thread| Consuming::new(memory.clone(), base(thread), capacity))
        .collect();
    (
        CompletionConsumer {
            rings,
            memory,
            ring_bytes,
            turn: 0,
            capacity,
        },
        producers,
    )
}

#[derive(Default, Clone, Copy)]
struct News {
    any: bool,
    solicited: bool,
}

/// The ring was full: the queue is in error and stays so (api.md §3.7, overrun).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("completion queue overrun: poll it more often or create it deeper")]
pub struct Overrun;

/// One engine thread's end.
pub struct CompletionProducer {
    ring: Producing,
    base: usize,
    news: News,
    channel: Option<Arc<OwnedFd>>,
}

impl CompletionProducer {
    /// Writes a completion; it becomes visible with [`CompletionProducer::publish`].
    pub fn push(&mut self, entry: CompletionEntry) -> Result<(), Overrun> {
        let Some(index) = self.ring.reserve() else {
            self.ring.memory().word(ERROR).store(1, Ordering::Release);
            return Err(Overrun);
        };
        let at = self.base + INDEX_BYTES + self.ring.slot(index) as usize * ENTRY;
        // SAFETY: `reserve` gave this slot to the producer, of whom there is one; it is published later.
        unsafe { self.ring.memory().store(at, entry) };
        self.ring.commit();
        self.news.any = true;
        self.news.solicited |= entry.solicited != 0 || entry.status != 0;
        Ok(())
    }

    /// Makes the completions written so far visible, and notifies the channel if the application asked for it.
    pub fn publish(&mut self) {
        if !self.ring.publish() {
            return;
        }
        let news = std::mem::take(&mut self.news);
        fence(Ordering::SeqCst);
        let memory = self.ring.memory();
        let armed = memory.word(ARMED);
        let due = match armed.load(Ordering::Relaxed) {
            NOT_ARMED => false,
            ARMED_SOLICITED => news.solicited,
            _ => news.any,
        };
        // Taken by one producer only: one arming gives one event.
        if due && armed.swap(NOT_ARMED, Ordering::AcqRel) != NOT_ARMED {
            self.notify();
        }
    }

    /// Gives an event for the queue's own error, armed or not.
    pub fn notify_error(&mut self) {
        self.ring.memory().word(ERROR).store(1, Ordering::Release);
        if self.ring.memory().word(ARMED).swap(NOT_ARMED, Ordering::AcqRel) != NOT_ARMED {
            self.notify();
        }
    }

    fn notify(&self) {
        self.ring.memory().word(EVENTS).fetch_add(1, Ordering::Release);
        if let Some(fd) = &self.channel {
            write_eventfd(fd);
        }
    }
}

/// The application's end.
pub struct CompletionConsumer {
    rings: Vec<Consuming>,
    memory: Arc<RingMemory>,
    ring_bytes: usize,
    turn: usize,
    capacity: u32,
}

/// Why a completion queue cannot be polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CqError {
    /// More completions than it has room for.
    #[error(transparent)]
    Overrun(#[from] Overrun),
    /// Its memory was overwritten.
    #[error(transparent)]
    Corrupt(#[from] RingCorrupt),
}

impl CompletionConsumer {
    /// Takes the oldest completion.
    pub fn pop(&mut self) -> Result<Option<CompletionEntry>, CqError> {
        for _ in 0..self.rings.len() {
            let base = RINGS + self.turn * self.ring_bytes;
            let ring = &mut self.rings[self.turn];
            while let Some(index) = ring.peek()? {
                let at = base + INDEX_BYTES + ring.slot(index) as usize * ENTRY;
                // SAFETY: published by the producer and not handed back yet; any bytes are a `CompletionEntry`.
                let entry: CompletionEntry = unsafe { self.memory.load(at) };
                ring.advance();
                ring.release();
                if entry.status != CompletionEntry::VOID {
                    return Ok(Some(entry));
                }
            }
            self.turn = (self.turn + 1) % self.rings.len();
        }
        if self.in_error() { Err(Overrun.into()) } else { Ok(None) }
    }

    /// Removes what a destroyed queue pair has left (api.md §3.3, `mrc_destroy_qp`).
    pub fn discard(&mut self, qpn: u32) -> Result<(), RingCorrupt> {
        for (number, ring) in self.rings.iter_mut().enumerate() {
            let base = RINGS + number * self.ring_bytes;
            let waiting = ring.refresh()?;
            for ahead in 0..waiting {
                let index = ring.next_index().wrapping_add(ahead);
                let at = base + INDEX_BYTES + ring.slot(index) as usize * ENTRY;
                // SAFETY: between head and tail the slots belong to the consumer, of whom there is one.
                unsafe {
                    let mut entry: CompletionEntry = self.memory.load(at);
                    if entry.qpn == qpn {
                        entry.status = CompletionEntry::VOID;
                        self.memory.store(at, entry);
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks for one event: for the next completion, or for the next solicited one or error. Poll once more afterwards and
    /// before sleeping. Arming twice keeps the wider condition (api.md §3.8).
    pub fn arm(&self, solicited_only: bool) {
        let want = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.memory.word(ARMED).fetch_max(want, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Notifications given so far, modulo 2^32.
    pub fn events(&self) -> u32 {
        self.memory.word(EVENTS).load(Ordering::Acquire)
    }

    /// True after an overrun.
    pub fn in_error(&self) -> bool {
        self.memory.word(ERROR).load(Ordering::Acquire) != 0
    }

    /// A view for others: the words without the entries.
    pub fn watch(&self) -> CompletionWatch {
        CompletionWatch {
            memory: self.memory.clone(),
        }
    }

    /// Entries that fit, at least what was asked for.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
}

/// Arms a queue and reads its words without owning its consumer; any thread.
#[derive(Clone)]
pub struct CompletionWatch {
    memory: Arc<RingMemory>,
}

impl CompletionWatch {
    /// As [`CompletionConsumer::arm`].
    pub fn arm(&self, solicited_only: bool) {
        let want = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.memory.word(ARMED).fetch_max(want, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// As [`CompletionConsumer::events`].
    pub fn events(&self) -> u32 {
        self.memory.word(EVENTS).load(Ordering::Acquire)
    }

    /// As [`CompletionConsumer::in_error`].
    pub fn in_error(&self) -> bool {
        self.memory.word(ERROR).load(Ordering::Acquire) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::wake::{drain_eventfd, eventfd, wait_readable};
    use super::*;

    fn entry(wr_id: u64) -> CompletionEntry {
        CompletionEntry {
            wr_id,
            qpn: 5,
            ..CompletionEntry::default()
        }
    }

    fn queue(depth: u32) -> (CompletionConsumer, CompletionProducer, Arc<OwnedFd>) {
        let fd = Arc::new(eventfd().unwrap());
        let (rx, mut tx) = completion_queue(depth, 1, Some(&fd));
        (rx, tx.remove(0), fd)
    }

    #[test]
    fn completions_come_out_in_order_after_they_are_published() {
        let (mut rx, mut tx, _fd) = queue(8);
        tx.push(entry(1)).unwrap();
        tx.push(entry(2)).unwrap();
        assert_eq!(rx.pop(), Ok(None));
        tx.publish();
        assert_eq!(rx.pop().unwrap().unwrap().wr_id, 1);
        assert_eq!(rx.pop().unwrap().unwrap().wr_id, 2);
        assert_eq!(rx.pop(), Ok(None));
    }

    #[test]
    fn an_overrun_is_an_error_that_stays() {
        let (mut rx, mut tx, _fd) = queue(2);
        tx.push(entry(1)).unwrap();
        tx.push(entry(2)).unwrap();
        assert_eq!(tx.push(entry(3)), Err(Overrun));
        tx.publish();
        assert_eq!(rx.pop().unwrap().unwrap().wr_id, 1);
        assert_eq!(rx.pop().unwrap().unwrap().wr_id, 2);
        assert_eq!(rx.pop(), Err(CqError::Overrun(Overrun)));
        assert!(rx.in_error());
    }

    #[test]
    fn only_an_armed_queue_gives_an_event_and_only_one() {
        let (rx, mut tx, fd) = queue(8);
        tx.push(entry(1)).unwrap();
        tx.publish();
        assert!(!drain_eventfd(&fd));
        rx.arm(false);
        tx.push(entry(2)).unwrap();
        tx.publish();
        tx.push(entry(3)).unwrap();
        tx.publish();
        assert!(drain_eventfd(&fd));
        assert!(!drain_eventfd(&fd));
        assert_eq!(rx.events(), 1);
    }

    #[test]
    fn solicited_arming_waits_for_a_solicited_completion_or_an_error() {
        let (rx, mut tx, fd) = queue(8);
        rx.arm(true);
        tx.push(entry(1)).unwrap();
        tx.publish();
        assert!(!drain_eventfd(&fd));
        tx.push(CompletionEntry { status: 12, ..entry(2) }).unwrap();
        tx.publish();
        assert!(drain_eventfd(&fd));
        rx.arm(true);
        rx.arm(false);
        rx.arm(true);
        tx.push(entry(3)).unwrap();
        tx.publish();
        assert!(drain_eventfd(&fd), "the wider condition stays");
    }

    #[test]
    fn a_destroyed_queue_pair_takes_its_completions_along() {
        let (mut rx, mut tx, _fd) = queue(8);
        tx.push(entry(1)).unwrap();
        tx.push(CompletionEntry { qpn: 6, ..entry(2) }).unwrap();
        tx.push(entry(3)).unwrap();
        tx.publish();
        rx.discard(5).unwrap();
        assert_eq!(rx.pop().unwrap().unwrap().wr_id, 2);
        assert_eq!(rx.pop(), Ok(None));
    }

    #[test]
    fn several_producers_share_a_queue() {
        let (mut rx, mut tx) = completion_queue(4, 3, None);
        for (number, producer) in tx.iter_mut().enumerate() {
            producer.push(entry(number as u64)).unwrap();
            producer.publish();
        }
        let mut seen: Vec<_> = (0..3).map(|_| rx.pop().unwrap().unwrap().wr_id).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
    }

    /// One side arms and sleeps whenever the queue is empty, the other publishes one at a time: a lost wake-up would hang.
    #[test]
    fn no_wake_up_is_lost_between_two_threads() {
        const COUNT: u64 = if cfg!(miri) { 50 } else { 50_000 };
        let (mut rx, mut tx, fd) = queue(64);
        let (returned, room) = std::sync::mpsc::sync_channel::<()>(32);
        let writer = std::thread::spawn(move || {
            for id in 0..COUNT {
                returned.send(()).unwrap();
                tx.push(entry(id)).unwrap();
                tx.publish();
            }
        });
        for id in 0..COUNT {
            let got = loop {
                if let Some(got) = rx.pop().unwrap() {
                    break got;
                }
                rx.arm(false);
                if let Some(got) = rx.pop().unwrap() {
                    break got;
                }
                assert!(
                    wait_readable(&fd, std::time::Duration::from_secs(20)),
                    "a wake-up was lost at {id}"
                );
                drain_eventfd(&fd);
            };
            assert_eq!(got.wr_id, id);
            room.recv().unwrap();
        }
        writer.join().unwrap();
    }
}
