//! Completion channels: sleeping until a completion queue has news (api.md §3.8).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mrc_dataplane::ring::wake::{drain_eventfd, wait_readable};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::context::{Context, ContextInner};
use crate::cq::{CompletionQueue, CqInner};
use crate::error::{Error, Result};

/// Tells when an armed completion queue has a new completion. Several queues may share one channel.
///
/// The file descriptor is readable while at least one event is pending, so a channel can stand in `poll` or `epoll` beside
/// sockets; then fetch with [`try_next`](Self::try_next).
///
/// The order that loses nothing: [`arm`](CompletionQueue::arm) the queue, poll it once more, and only then wait.
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<ChannelInner>,
}

pub(crate) struct ChannelInner {
    context: Arc<ContextInner>,
    /// A semaphore: one read takes one event.
    fd: Arc<OwnedFd>,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    queues: Vec<Member>,
    turn: usize,
}

struct Member {
    queue: Weak<CqInner>,
    id: u32,
    /// Events of this queue that were fetched, modulo 2^32.
    seen: u32,
    watch: mrc_dataplane::ring::CompletionWatch,
}

impl CompletionChannel {
    /// A channel for completion queues of `context`.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no file descriptors left.
    pub fn new(context: &Context) -> Result<CompletionChannel> {
        let flags = EfdFlags::EFD_SEMAPHORE | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let fd = EventFd::from_value_and_flags(0, flags).map_err(|errno| Error::System {
            what: "cannot make an event fd",
            source: errno.into(),
        })?;
        let inner = ChannelInner {
            context: Arc::clone(context.inner()),
            fd: Arc::new(fd.into()),
            members: Mutex::default(),
        };
        Ok(CompletionChannel { inner: Arc::new(inner) })
    }

    /// Waits for an event and returns the queue that it came from, which may be empty by now; `None` after the time-out.
    pub fn next(&self, timeout: Duration) -> Option<CompletionQueue> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(queue) = self.try_next() {
                return Some(queue);
            }
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            wait_readable(&*self.inner.fd, left);
        }
    }

    /// An event that is pending, if there is one.
    pub fn try_next(&self) -> Option<CompletionQueue> {
        while drain_eventfd(&*self.inner.fd) {
            if let Some(queue) = self.inner.find() {
                return Some(CompletionQueue::from_inner(queue));
            }
        }
        None
    }

    pub(crate) fn inner(&self) -> &Arc<ChannelInner> {
        &self.inner
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionChannel({:?})", self.inner.fd)
    }
}

impl ChannelInner {
    pub(crate) fn context(&self) -> &Arc<ContextInner> {
        &self.context
    }

    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(&self, queue: &Arc<CqInner>) {
        let watch = queue.watch().clone();
        let member = Member {
            queue: Arc::downgrade(queue),
            id: queue.id(),
            seen: watch.events(),
            watch,
        };
        self.lock().queues.push(member);
    }

    /// The queue is gone, and the engine knows it: its events that nobody has fetched go too.
    pub(crate) fn leave(&self, id: u32) {
        let mut members = self.lock();
        if let Some(at) = members.queues.iter().position(|member| member.id == id) {
            let member = members.queues.swap_remove(at);
            for _ in 0..member.watch.events().wrapping_sub(member.seen) {
                drain_eventfd(&*self.fd);
            }
        }
    }

    /// The next queue, in turn, with an event that was not fetched yet.
    fn find(&self) -> Option<Arc<CqInner>> {
        let mut members = self.lock();
        let count = members.queues.len();
        for step in 0..count {
            let at = (members.turn + step) % count;
            let Some(member) = members.queues.get_mut(at) else {
                continue;
            };
            if member.watch.events() == member.seen {
                continue;
            }
            member.seen = member.seen.wrapping_add(1);
            let queue = member.queue.upgrade();
            members.turn = at + 1;
            // Without an upgrade the queue is just being dropped; its event is taken, as it would have been.
            return queue;
        }
        None
    }
}
