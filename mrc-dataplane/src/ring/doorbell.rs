//! Doorbells: a bitmap that says which queue pairs of an engine thread have new work, and the way to wake that thread.
//!
//! Ringing sets the queue pair's bit and a bit that summarises 32 of them; the engine takes the summary, then the words that it
//! names. If the engine sleeps, the ringer writes its event fd.
//!
//! # Sleeping without losing a bell
//! The ringer publishes its work, sets the bits, executes a full fence, and looks at `asleep`. The engine sets `asleep`,
//! executes a full fence, and looks at the summary (and at its command queue) once more before it waits. Whichever fence comes
//! first, either the engine sees the bits or the ringer sees that it must write the event fd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::memory::{LINE, RingMemory};
use super::wake::{drain_eventfd, eventfd, write_eventfd};

const ASLEEP: usize = 0;
const SUMMARY: usize = LINE;
/// 32 x 32 words of 32 bits.
const SUMMARIES: usize = 16;
const WORDS: usize = 2 * LINE;
/// Queue pairs that one board serves.
pub const BELLS: u32 = SUMMARIES as u32 * 32 * 32;

/// The bells of one engine thread.
pub struct Board {
    memory: RingMemory,
    wake: OwnedFd,
}

impl Board {
    /// A silent board.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            memory: RingMemory::new(WORDS + SUMMARIES * 32 * 4),
            wake: eventfd()?,
        })
    }

    /// Rings bell `number`, which is less than [`BELLS`].
    pub fn ring(&self, number: u32) {
        let word = (number / 32) as usize;
        self.memory
            .word(WORDS + word * 4)
            .fetch_or(1 << (number % 32), Ordering::Release);
        self.memory
            .word(SUMMARY + word / 32 * 4)
            .fetch_or(1 << (word % 32), Ordering::Release);
        self.wake();
    }

    /// Wakes the engine thread if it sleeps. To be called after whatever it shall find has been published.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        let asleep = self.memory.word(ASLEEP);
        // The swap lets one of many ringers pay for the system call.
        if asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::AcqRel) != 0 {
            write_eventfd(&self.wake);
        }
    }

    /// Calls `each` for every bell that was rung since the last time, and silences it.
    pub fn take(&self, mut each: impl FnMut(u32)) {
        for summary in 0..SUMMARIES {
            let cell = self.memory.word(SUMMARY + summary * 4);
            if cell.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut words = cell.swap(0, Ordering::AcqRel);
            while words != 0 {
                let word = summary * 32 + words.trailing_zeros() as usize;
                words &= words - 1;
                let mut bells = self.memory.word(WORDS + word * 4).swap(0, Ordering::AcqRel);
                while bells != 0 {
                    each(word as u32 * 32 + bells.trailing_zeros());
                    bells &= bells - 1;
                }
            }
        }
    }

    /// True when a bell has been rung and not yet taken.
    pub fn is_ringing(&self) -> bool {
        (0..SUMMARIES).any(|summary| self.memory.word(SUMMARY + summary * 4).load(Ordering::Relaxed) != 0)
    }

    /// The engine is about to sleep: from now on ringers write the event fd. Look for work once more after this.
    pub fn fall_asleep(&self) {
        self.memory.word(ASLEEP).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The engine is awake again.
    pub fn awake(&self) {
        if self.memory.word(ASLEEP).swap(0, Ordering::AcqRel) == 0 {
            // Somebody has written the event fd, or is about to; an event left over makes one sleep short, no more.
            drain_eventfd(&self.wake);
        }
    }
}

impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// The bell of one queue pair.
#[derive(Clone)]
pub struct Doorbell {
    board: Arc<Board>,
    number: u32,
}

impl Doorbell {
    pub(crate) fn new(board: Arc<Board>, number: u32) -> Self {
        assert!(number < BELLS, "bells are handed out by the engine");
        Self { board, number }
    }

    /// There is new work in the queue pair's rings.
    pub fn ring(&self) {
        self.board.ring(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::wake::wait_readable;
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_bell_is_heard_once() {
        let board = Board::new().unwrap();
        let rung = [0, 1, 31, 32, 1023, 1024, BELLS - 1];
        for &number in &rung {
            board.ring(number);
        }
        board.ring(31);
        let mut heard = Vec::new();
        board.take(|number| heard.push(number));
        assert_eq!(heard, rung);
        assert!(!board.is_ringing());
        board.take(|number| panic!("{number} was heard twice"));
    }

    #[test]
    fn the_event_fd_is_written_only_for_a_sleeper() {
        let board = Board::new().unwrap();
        board.ring(3);
        assert!(!drain_eventfd(&board));
        board.fall_asleep();
        assert!(board.is_ringing(), "the engine looks again and does not sleep");
        board.ring(4);
        board.ring(5);
        assert!(drain_eventfd(&board));
        board.awake();
        assert!(!drain_eventfd(&board));
    }

    /// The engine sleeps whenever it hears nothing; the ringer waits until each bell was heard: a lost bell would hang.
    #[test]
    fn no_bell_is_lost_between_two_threads() {
        const COUNT: u32 = if cfg!(miri) { 50 } else { 50_000 };
        let board = Arc::new(Board::new().unwrap());
        let ringer = Doorbell::new(board.clone(), 77);
        let (heard, wait) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            for _ in 0..COUNT {
                ringer.ring();
                wait.recv().unwrap();
            }
        });
        for number in 0..COUNT {
            let mut found = false;
            while !found {
                board.take(|bell| found = bell == 77);
                if found {
                    break;
                }
                board.fall_asleep();
                if !board.is_ringing() {
                    assert!(
                        wait_readable(&*board, Duration::from_secs(20)),
                        "bell {number} was lost"
                    );
                }
                board.awake();
            }
            heard.send(()).unwrap();
        }
        thread.join().unwrap();
    }
}
