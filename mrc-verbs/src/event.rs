//! Asynchronous events: what happens without a work request (api.md §3.9).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mrc_dataplane::engine::{EngineEvent, EventSink};
use mrc_dataplane::ring::wake::{drain_eventfd, eventfd, wait_readable, write_eventfd};

use crate::error::{Error, Result};

/// Something happened to an object of a [`Context`](crate::Context), or to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The completion queue with this [`id`](crate::CompletionQueue::id) was overrun.
    CqError {
        /// Which.
        cq: u32,
    },
    /// The queue pair was forced to ERR by an internal or completion queue failure.
    QpFatal {
        /// Which.
        qpn: u32,
    },
    /// As responder, the queue pair refused an invalid request.
    QpRequestError {
        /// Which.
        qpn: u32,
    },
    /// As responder, the queue pair refused an access, or had no receive for an immediate.
    QpAccessError {
        /// Which.
        qpn: u32,
    },
    /// A port came up.
    PortActive {
        /// Which, from 1.
        port: u8,
    },
    /// A port went down.
    PortError {
        /// Which, from 1.
        port: u8,
    },
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AsyncEvent::CqError { cq } => write!(f, "completion queue {cq} overrun"),
            AsyncEvent::QpFatal { qpn } => write!(f, "queue pair {qpn:#x} failed"),
            AsyncEvent::QpRequestError { qpn } => write!(f, "queue pair {qpn:#x} refused an invalid request"),
            AsyncEvent::QpAccessError { qpn } => write!(f, "queue pair {qpn:#x} refused an access"),
            AsyncEvent::PortActive { port } => write!(f, "port {port} up"),
            AsyncEvent::PortError { port } => write!(f, "port {port} down"),
        }
    }
}

impl AsyncEvent {
    fn qpn(self) -> Option<u32> {
        match self {
            AsyncEvent::QpFatal { qpn } | AsyncEvent::QpRequestError { qpn } | AsyncEvent::QpAccessError { qpn } => {
                Some(qpn)
            }
            _ => None,
        }
    }
}

/// Events kept for a context that does not fetch them; further ones are lost.
const MAX_WAITING: usize = 4096;

/// The events that wait for one context.
pub(crate) struct EventQueue {
    waiting: Mutex<VecDeque<AsyncEvent>>,
    /// Readable while events wait.
    readable: OwnedFd,
}

impl EventQueue {
    pub(crate) fn new() -> Result<EventQueue> {
        let readable = eventfd().map_err(|source| Error::System {
            what: "cannot make an event fd",
            source,
        })?;
        Ok(EventQueue {
            waiting: Mutex::default(),
            readable,
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<AsyncEvent>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: AsyncEvent) {
        let mut waiting = self.lock();
        if waiting.len() >= MAX_WAITING {
            return;
        }
        waiting.push_back(event);
        if waiting.len() == 1 {
            write_eventfd(&self.readable);
        }
    }

    /// The oldest event, waited for at most `timeout` (`None`: for ever).
    pub(crate) fn next(&self, timeout: Option<Duration>) -> Option<AsyncEvent> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            let left = deadline.map_or(Duration::from_hours(1), |at| {
                at.saturating_duration_since(Instant::now())
            });
            if !wait_readable(&self.readable, left) && deadline.is_some_and(|at| Instant::now() >= at) {
                return self.take();
            }
        }
    }

    fn take(&self) -> Option<AsyncEvent> {
        let mut waiting = self.lock();
        let event = waiting.pop_front();
        if waiting.is_empty() {
            drain_eventfd(&self.readable);
        }
        event
    }

    fn forget(&self, is_gone: impl Fn(&AsyncEvent) -> bool) {
        let mut waiting = self.lock();
        waiting.retain(|event| !is_gone(event));
        if waiting.is_empty() {
            drain_eventfd(&self.readable);
        }
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

/// Brings the engine's events to the contexts that they concern (api.md D18).
#[derive(Default)]
pub(crate) struct Router {
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct Routes {
    contexts: Vec<Weak<EventQueue>>,
    qps: HashMap<u32, Weak<EventQueue>>,
    cqs: HashMap<u32, Weak<EventQueue>>,
}

impl Router {
    fn lock(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_context(&self, queue: &Arc<EventQueue>) {
        let mut routes = self.lock();
        routes.contexts.retain(|known| known.strong_count() > 0);
        routes.contexts.push(Arc::downgrade(queue));
    }

    pub(crate) fn add_qp(&self, qpn: u32, queue: &Arc<EventQueue>) {
        self.lock().qps.insert(qpn, Arc::downgrade(queue));
    }

    pub(crate) fn add_cq(&self, cq: u32, queue: &Arc<EventQueue>) {
        self.lock().cqs.insert(cq, Arc::downgrade(queue));
    }

    /// The queue pair is gone: so are its events that nobody has fetched.
    pub(crate) fn remove_qp(&self, qpn: u32) {
        let queue = self.lock().qps.remove(&qpn);
        if let Some(queue) = queue.and_then(|queue| queue.upgrade()) {
            queue.forget(|event| event.qpn() == Some(qpn));
        }
    }

    pub(crate) fn remove_cq(&self, cq: u32) {
        let queue = self.lock().cqs.remove(&cq);
        if let Some(queue) = queue.and_then(|queue| queue.upgrade()) {
            queue.forget(|event| *event == AsyncEvent::CqError { cq });
        }
    }
}

impl EventSink for Router {
    fn event(&self, event: EngineEvent) {
        let routes = self.lock();
        let of_qp = |qpn: mrc_wire::Qpn| routes.qps.get(&qpn.get());
        let (queue, event) = match event {
            EngineEvent::QpFatal(qpn) => (of_qp(qpn), AsyncEvent::QpFatal { qpn: qpn.get() }),
            EngineEvent::QpRequestError(qpn) => (of_qp(qpn), AsyncEvent::QpRequestError { qpn: qpn.get() }),
            EngineEvent::QpAccessError(qpn) => (of_qp(qpn), AsyncEvent::QpAccessError { qpn: qpn.get() }),
            EngineEvent::CqError(cq) => (routes.cqs.get(&cq.0), AsyncEvent::CqError { cq: cq.0 }),
            EngineEvent::PortActive(port) => return to_all(&routes, AsyncEvent::PortActive { port: port.get() }),
            EngineEvent::PortError(port) | EngineEvent::PortGone(port) => {
                return to_all(&routes, AsyncEvent::PortError { port: port.get() });
            }
            _ => return,
        };
        if let Some(queue) = queue.and_then(Weak::upgrade) {
            queue.push(event);
        }
    }
}

fn to_all(routes: &Routes, event: AsyncEvent) {
    routes
        .contexts
        .iter()
        .filter_map(Weak::upgrade)
        .for_each(|queue| queue.push(event));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn events_of_a_queue_pair_reach_its_context_only_and_port_events_reach_all() {
        let router = Router::default();
        let [ours, theirs] = [(); 2].map(|()| Arc::new(EventQueue::new().unwrap()));
        router.add_context(&ours);
        router.add_context(&theirs);
        router.add_qp(77, &ours);
        router.event(EngineEvent::QpFatal(mrc_wire::Qpn::new(77)));
        router.event(EngineEvent::QpFatal(mrc_wire::Qpn::new(78)));
        router.event(EngineEvent::PortError(mrc_wire::PortNum::new(2).unwrap()));
        assert_eq!(ours.next(NOW), Some(AsyncEvent::QpFatal { qpn: 77 }));
        assert_eq!(ours.next(NOW), Some(AsyncEvent::PortError { port: 2 }));
        assert_eq!(ours.next(NOW), None);
        assert_eq!(theirs.next(NOW), Some(AsyncEvent::PortError { port: 2 }));
        assert_eq!(theirs.next(NOW), None);
    }

    #[test]
    fn the_fd_is_readable_while_events_wait() {
        let queue = EventQueue::new().unwrap();
        assert!(!wait_readable(&queue, Duration::ZERO));
        queue.push(AsyncEvent::PortActive { port: 1 });
        queue.push(AsyncEvent::PortActive { port: 2 });
        assert!(wait_readable(&queue, Duration::ZERO));
        queue.next(NOW).unwrap();
        assert!(wait_readable(&queue, Duration::ZERO));
        queue.next(NOW).unwrap();
        assert!(!wait_readable(&queue, Duration::ZERO));
    }

    #[test]
    fn a_queue_pair_that_is_gone_takes_its_events_along() {
        let router = Router::default();
        let queue = Arc::new(EventQueue::new().unwrap());
        router.add_context(&queue);
        router.add_qp(5, &queue);
        router.event(EngineEvent::QpAccessError(mrc_wire::Qpn::new(5)));
        router.remove_qp(5);
        router.event(EngineEvent::QpAccessError(mrc_wire::Qpn::new(5)));
        assert_eq!(queue.next(NOW), None);
    }

    #[test]
    fn a_waiter_is_woken() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let waiter = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || queue.next(Some(Duration::from_secs(20))))
        };
        queue.push(AsyncEvent::PortActive { port: 3 });
        assert_eq!(waiter.join().unwrap(), Some(AsyncEvent::PortActive { port: 3 }));
    }
}
