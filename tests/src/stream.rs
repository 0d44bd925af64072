//! Traffic that goes on while a test does something else, every byte of it checked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::wait::until;
use crate::{Connection, noise_into};

/// Writes from A to B, one after the other, with several outstanding. Each has its own data, which is compared at B when the
/// write has completed; any error fails the test.
#[derive(Debug)]
pub struct Stream<'c> {
    connection: &'c Connection,
    piece: usize,
    slots: u64,
    posted: u64,
    done: u64,
    sent: Vec<u8>,
    found: Vec<u8>,
}

impl<'c> Stream<'c> {
    /// Writes of `piece` bytes; as many outstanding as fit the regions, at most 64.
    pub fn new(connection: &'c Connection, piece: usize) -> Stream<'c> {
        Stream {
            connection,
            piece,
            slots: (connection.a.region.len() / piece).min(64) as u64,
            posted: 0,
            done: 0,
            sent: vec![0; piece],
            found: vec![0; piece],
        }
    }

    /// Writes that have completed and were right.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Completes at least `count` more writes, and keeps the queue full.
    ///
    /// # Panics
    /// If a write fails or its data is wrong.
    pub fn pump(&mut self, count: u64) {
        let goal = self.done + count;
        while self.done < goal {
            self.post();
            self.take();
        }
    }

    /// Pumps until `reached`.
    ///
    /// # Panics
    /// As [`pump`](Self::pump), and if it is never reached.
    pub fn pump_until(&mut self, what: &str, mut reached: impl FnMut() -> bool) {
        until(what, || {
            self.pump(1);
            reached()
        });
    }

    /// Does `work` under load, and returns what it returns.
    ///
    /// # Panics
    /// As [`pump`](Self::pump).
    pub fn pump_during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let result = work();
                ended.store(true, Ordering::Release);
                result
            });
            while !ended.load(Ordering::Acquire) && !worker.is_finished() {
                self.pump(1);
            }
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Waits for what is outstanding.
    ///
    /// # Panics
    /// As [`pump`](Self::pump).
    pub fn finish(mut self) -> u64 {
        while self.done < self.posted {
            self.take();
        }
        self.done
    }

    fn place(&self, number: u64) -> usize {
        (number % self.slots) as usize * self.piece
    }

    fn post(&mut self) {
        while self.posted - self.done < self.slots {
            let at = self.place(self.posted);
            noise_into(&mut self.sent, self.posted);
            let Connection { a, b, .. } = self.connection;
            a.region.write_at(at, &self.sent).expect("inside the region");
            a.write(self.posted, at..at + self.piece, b, at);
            self.posted += 1;
        }
    }

    fn take(&mut self) {
        let done = self.connection.a.completion();
        assert!(
            done.is_ok(),
            "write {} of {}: {done:?}, {:?}",
            self.done,
            self.posted,
            self.connection.a.qp.query()
        );
        assert_eq!(done.wr_id, self.done, "writes complete in posting order");
        noise_into(&mut self.sent, self.done);
        let at = self.place(self.done);
        self.connection
            .b
            .region
            .read_at(at, &mut self.found)
            .expect("inside the region");
        assert!(self.found == self.sent, "write {} has other bytes", self.done);
        self.done += 1;
    }
}
