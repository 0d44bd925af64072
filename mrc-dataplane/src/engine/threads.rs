//! The engine threads as the rest of the process sees them: a queue of jobs and a board of bells each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{RecvTimeoutError, Sender, bounded};

use super::error::CommandError;
use super::job::{Answer, Job, Task};
use crate::ring::Board;

/// One engine thread.
pub(super) struct Thread {
    pub(super) jobs: Sender<Job>,
    pub(super) board: Arc<Board>,
    pub(super) dead: Arc<AtomicBool>,
    pub(super) join: Option<JoinHandle<()>>,
}

/// All of them.
pub(super) struct Threads(pub(super) Vec<Thread>);

impl Threads {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn board(&self, thread: usize) -> Arc<Board> {
        self.0[thread].board.clone()
    }

    /// Lets one thread do something.
    pub(super) fn one(&self, thread: usize, task: Task) -> Result<Answer, CommandError> {
        let thread = &self.0[thread];
        let (reply, answer) = bounded(1);
        thread
            .jobs
            .send(Job { task, reply })
            .map_err(|_| CommandError::Stopped)?;
        thread.board.wake();
        loop {
            match answer.recv_timeout(Duration::from_millis(100)) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if !thread.dead.load(Ordering::Acquire) => {}
                Err(_) => return Err(CommandError::Stopped),
            }
        }
    }

    /// Lets every thread do the same.
    pub(super) fn all(&self, mut task: impl FnMut() -> Task) -> Result<(), CommandError> {
        self.each(|_| Some(task()))
    }

    /// Lets each thread do what `task` says, if anything.
    pub(super) fn each(&self, mut task: impl FnMut(usize) -> Option<Task>) -> Result<(), CommandError> {
        for thread in 0..self.count() {
            if let Some(task) = task(thread) {
                self.one(thread, task)?;
            }
        }
        Ok(())
    }
}
