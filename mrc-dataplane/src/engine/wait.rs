//! The loop of an engine thread: pass after pass while there is work, polling for a while after, then sleep.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam::channel::Receiver;
use mrc_protocol::Instant;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::clock::Clock;
use super::handover::Inbox;
use super::job::Job;
use super::worker::{Pass, Worker};
use crate::ring::Board;

/// Longest sleep: also bounds how late a lost wake-up would be noticed, which must not happen.
const LONGEST_SLEEP_NS: u64 = 1_000_000_000;
/// Sleep while a transmit ring is full, since nothing wakes us when it drains.
const ROOM_SLEEP_NS: u64 = 50_000;
/// Descriptors that one thread can wait for: its ports and its board.
const MAX_FDS: usize = 32;

/// What the loop shares with the rest of the engine.
pub(super) struct Shared {
    pub(super) worker: Mutex<Worker>,
    pub(super) board: Arc<Board>,
    pub(super) jobs: Receiver<Job>,
    pub(super) inbox: Inbox,
    pub(super) stop: AtomicBool,
    /// How often applications have run the worker themselves.
    pub(super) inline_runs: AtomicU64,
    /// When the thread means to wake up by itself, on the engine's clock.
    pub(super) planned: AtomicU64,
    pub(super) clock: Clock,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the worker once, if nobody else does. True if there was something to do.
    pub(super) fn run_inline(&self) -> bool {
        let Ok(mut worker) = self.worker.try_lock() else {
            // Its thread may have been interrupted in the middle of a pass, on this very core: it cannot go on while we look again
            // and again.
            std::thread::yield_now();
            return false;
        };
        let pass = worker.pass();
        // Before the look at who sleeps: see `sleep`.
        self.inline_runs.fetch_add(1, Ordering::Relaxed);
        drop(worker);
        // What this has started may be due before the thread means to wake up, and the application may never come again.
        let planned = Instant::from_ns(self.planned.load(Ordering::Relaxed));
        if pass.wants_room || pass.deadline.is_some_and(|deadline| deadline < planned) {
            self.board.wake();
        }
        pass.busy
    }
}

/// Tells applications that poll all the time from those that look now and then.
struct Company {
    since: Instant,
    runs: u64,
}

impl Company {
    /// An application that polls comes round more often than this.
    const TURN_NS: u64 = 4_000;

    /// Does an application do the thread's work? Asked again and again; says so once per `period_ns`.
    fn is_busy(&mut self, now: Instant, runs: u64, period_ns: u64) -> bool {
        let elapsed = now.since(self.since);
        if elapsed < period_ns {
            return false;
        }
        let busy = (runs - self.runs).saturating_mul(Self::TURN_NS) >= elapsed;
        *self = Self { since: now, runs };
        busy
    }
}

/// How the loop waits.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) spin_ns: u64,
    pub(super) yield_ns: u64,
}

/// Runs until the engine stops. `fds` become readable when frames arrive.
/// `woken` is called after each sleep.
pub(super) fn run(shared: &Shared, fds: &[OwnedFd], patience: Patience, woken: impl Fn()) {
    let mut idle_since = shared.clock.now();
    let mut company = Company {
        since: idle_since,
        runs: 0,
    };
    while !shared.stop.load(Ordering::Acquire) {
        // An application that polls does the work itself; two would fight for the core. If it stops, we take over. It hears its
        // own bells, so this sleep is a plain one.
        let runs = shared.inline_runs.load(Ordering::Relaxed);
        if company.is_busy(shared.clock.now(), runs, patience.yield_ns) {
            std::thread::sleep(Duration::from_nanos(patience.yield_ns));
            continue;
        }
        let mut worker = shared.lock();
        let pass = worker.pass();
        let now = shared.clock.now();
        let planned = planned(&pass, now);
        shared.planned.store(planned.as_ns(), Ordering::Relaxed);
        let runs = shared.inline_runs.load(Ordering::Relaxed);
        drop(worker);
        if pass.busy {
            idle_since = now;
            continue;
        }
        if now.since(idle_since) < patience.spin_ns {
            // On a crowded machine the core may be worth more to somebody else, the peer perhaps.
            std::thread::yield_now();
            continue;
        }
        if planned > now {
            sleep(shared, fds, planned, now, runs);
            woken();
            shared.lock().slept(Some(planned));
        }
        idle_since = shared.clock.now();
    }
}

fn planned(pass: &Pass, now: Instant) -> Instant {
    let longest = now
        + if pass.wants_room {
            ROOM_SLEEP_NS
        } else {
            LONGEST_SLEEP_NS
        };
    pass.deadline.map_or(longest, |deadline| deadline.min(longest))
}

/// Sleeps until `until`, a frame, a bell, or a job, unless an application has run the worker since it had run it `runs` times:
/// then `until` may be too late. See [`crate::ring::Board`] for the handshake.
fn sleep(shared: &Shared, fds: &[OwnedFd], until: Instant, now: Instant, runs: u64) {
    shared.board.fall_asleep();
    let anything = shared.board.is_ringing()
        || !shared.jobs.is_empty()
        || !shared.inbox.is_empty()
        || shared.inline_runs.load(Ordering::Relaxed) != runs
        || shared.stop.load(Ordering::Acquire);
    if !anything {
        let mut polled = [(); MAX_FDS].map(|()| PollFd::new(shared.board.as_fd(), PollFlags::POLLIN));
        let count = fds.len().min(MAX_FDS - 1);
        for (entry, fd) in polled[1..].iter_mut().zip(fds) {
            *entry = PollFd::new(fd.as_fd(), PollFlags::POLLIN);
        }
        let timeout = TimeSpec::from_duration(Duration::from_nanos(until.since(now)));
        // An interrupted sleep is a short one.
        let _ = ppoll(&mut polled[..=count], Some(timeout), None);
    }
    shared.board.awake();
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 200_000;

    #[test]
    fn an_application_that_polls_all_the_time_is_told_from_one_that_looks_now_and_then() {
        let start = Instant::from_ns(1_000_000);
        let mut company = Company { since: start, runs: 0 };
        assert!(!company.is_busy(start + 1_000, 1_000, PERIOD_NS), "too early to say");
        assert!(company.is_busy(start + PERIOD_NS, 1_000, PERIOD_NS));
        assert!(
            !company.is_busy(start + 2 * PERIOD_NS, 1_010, PERIOD_NS),
            "ten times in 200 us"
        );
        assert!(!company.is_busy(start + 10 * PERIOD_NS, 1_010, PERIOD_NS));
    }
}
