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
    /// When an application last ran the worker itself, on the engine's clock.
    pub(super) inline_at: AtomicU64,
    pub(super) clock: Clock,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the worker once, if nobody else does. True if there was something to do.
    pub(super) fn run_inline(&self) -> bool {
        let Ok(mut worker) = self.worker.try_lock() else {
            return false;
        };
        let pass = worker.pass();
        drop(worker);
        self.inline_at.store(self.clock.now().as_ns(), Ordering::Relaxed);
        pass.busy
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
    while !shared.stop.load(Ordering::Acquire) {
        let now = shared.clock.now();
        // An application that polls does the work itself; two would fight for the core. If it stops, we take over. It hears its
        // own bells, so this sleep is a plain one.
        let inline_at = Instant::from_ns(shared.inline_at.load(Ordering::Relaxed));
        if inline_at > Instant::ZERO && now.since(inline_at) < patience.yield_ns {
            std::thread::sleep(Duration::from_nanos(patience.yield_ns));
            continue;
        }
        let pass = shared.lock().pass();
        if pass.busy {
            idle_since = shared.clock.now();
            continue;
        }
        let now = shared.clock.now();
        if now.since(idle_since) < patience.spin_ns {
            // On a crowded machine the core may be worth more to somebody else, the peer perhaps.
            std::thread::yield_now();
            continue;
        }
        let planned = planned(&pass, now);
        if planned > now {
            sleep(shared, fds, planned, now);
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

/// Sleeps until `until`, a frame, a bell, or a job. See [`crate::ring::Board`] for the handshake.
fn sleep(shared: &Shared, fds: &[OwnedFd], until: Instant, now: Instant) {
    shared.board.fall_asleep();
    let anything = shared.board.is_ringing()
        || !shared.jobs.is_empty()
        || !shared.inbox.is_empty()
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
