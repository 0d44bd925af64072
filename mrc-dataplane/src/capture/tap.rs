//! The tap: a port around a port.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mrc_capture::{Direction, Request};
use mrc_wire::{Frame, PortNum};

use super::session::Session;
use super::{CaptureError, Interface, Reading};
use crate::port::{LinkState, Port, PortCounters, PortMode, TxResult};

/// Sessions at a time.
const MOST: usize = 4;

/// The sessions of an engine, as its ports find them.
pub(super) struct Taps {
    reading: Reading,
    interfaces: Vec<Interface>,
    /// Changes with `sessions`.
    epoch: AtomicU64,
    sessions: Mutex<Vec<Arc<Session>>>,
}

impl Taps {
    pub(super) fn new(reading: Reading, interfaces: Vec<Interface>) -> Self {
        Self {
            reading,
            interfaces,
            epoch: AtomicU64::new(0),
            sessions: Mutex::new(Vec::new()),
        }
    }

    /// Starts a session: ports offer it frames from their next one on.
    pub(super) fn open(&self, request: &Request) -> Result<Arc<Session>, CaptureError> {
        let mut sessions = self.lock();
        if sessions.len() == MOST {
            return Err(CaptureError::Busy(MOST));
        }
        let session = Arc::new(Session::new(request, self.interfaces.clone(), self.reading.clone()));
        sessions.push(session.clone());
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(session)
    }

    /// Ends a session: ports offer it nothing more once they have noticed.
    pub(super) fn close(&self, session: &Arc<Session>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, session));
        self.epoch.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port whose frames can be captured.
pub(super) struct TappedPort {
    inner: Box<dyn Port>,
    taps: Arc<Taps>,
    sessions: Vec<Arc<Session>>,
    /// The epoch of `sessions`.
    epoch: u64,
    /// The epoch in which there is nothing to do: that of `sessions` if there are none, else none.
    quiet: u64,
}

/// Is never reached.
const NEVER: u64 = u64::MAX;

impl TappedPort {
    pub(super) fn new(inner: Box<dyn Port>, taps: Arc<Taps>) -> Self {
        Self {
            inner,
            taps,
            sessions: Vec::new(),
            epoch: 0,
            quiet: 0,
        }
    }

    /// The only cost while nobody captures.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.taps.epoch.load(Ordering::Relaxed) == self.quiet
    }

    /// Finds the sessions again after they have changed.
    #[cold]
    fn follow(&mut self) {
        let epoch = self.taps.epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.sessions.clone_from(&self.taps.lock());
            self.epoch = epoch;
            self.quiet = if self.sessions.is_empty() { epoch } else { NEVER };
        }
    }
}

impl Port for TappedPort {
    fn num(&self) -> PortNum {
        self.inner.num()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn link(&self) -> &LinkState {
        self.inner.link()
    }

    fn link_speed_bps(&self) -> Option<u64> {
        self.inner.link_speed_bps()
    }

    fn mode(&self) -> &PortMode {
        self.inner.mode()
    }

    fn tx_room(&self) -> usize {
        self.inner.tx_room()
    }

    fn tx_frame(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8], &mut [u8]) -> bool) -> TxResult {
        if self.is_quiet() {
            return self.inner.tx_frame(len, fill);
        }
        self.follow();
        let (num, sessions) = (self.inner.num(), &self.sessions);
        self.inner.tx_frame(len, &mut |head, tail| {
            let is_filled = fill(head, tail);
            if is_filled {
                // What is filled is queued.
                for session in sessions {
                    session.offer(Frame { head, tail }, num, Direction::Tx);
                }
            }
            is_filled
        })
    }

    fn tx_flush(&mut self) -> io::Result<()> {
        self.inner.tx_flush()
    }

    fn rx_batch(&mut self, max: usize, each: &mut dyn FnMut(Frame<'_>)) -> usize {
        if self.is_quiet() {
            return self.inner.rx_batch(max, each);
        }
        self.follow();
        let (num, sessions) = (self.inner.num(), &self.sessions);
        self.inner.rx_batch(max, &mut |frame| {
            for session in sessions {
                session.offer(frame, num, Direction::Rx);
            }
            each(frame);
        })
    }

    fn tx_pending(&self) -> bool {
        self.inner.tx_pending()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn chunk_len(&self) -> usize {
        self.inner.chunk_len()
    }

    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }
}
