//! The real port: an `AF_XDP` socket on one queue of an interface.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use mrc_ebpf::{Settings, Steering, VerdictCounts};
use mrc_wire::{Frame, PortNum};
use nix::errno::Errno;

use super::owner::Ownership;
use super::xsk::{CHUNK_LEN, Receiver, Sender};
use super::{LinkState, Port, PortCounters, PortMode, TxResult};

/// How often one flush kicks while the kernel says "again".
const MAX_KICKS: usize = 8;

/// An interface that is driven through `AF_XDP`. Made by [`open_ports`](super::open_ports).
pub struct AfXdpPort {
    pub(super) num: PortNum,
    pub(super) name: String,
    pub(super) mode: PortMode,
    pub(super) link: Arc<LinkState>,
    pub(super) link_speed_bps: Option<u64>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) window: usize,
    pub(super) chunks_per_frame: usize,
    pub(super) kick_due: bool,
    pub(super) spoilt: bool,
    pub(super) counters: PortCounters,
    // After the socket, so that the program goes before the port is free for the next owner.
    pub(super) hold: Arc<Hold>,
}

/// What all queues of one interface share.
pub(super) struct Hold {
    pub(super) steering: Mutex<Steering>,
    pub(super) _ownership: Ownership,
}

impl std::fmt::Debug for AfXdpPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AfXdpPort")
            .field("num", &self.num)
            .field("name", &self.name)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl AfXdpPort {
    /// What the steering program of this interface has counted.
    pub fn verdicts(&self) -> Result<VerdictCounts, mrc_ebpf::Error> {
        self.hold
            .steering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .counts()
    }

    /// Changes what the steering program of this interface takes for MRC.
    pub fn set_steering(&self, settings: &Settings) -> Result<(), mrc_ebpf::Error> {
        self.hold
            .steering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .set(settings)
    }

    /// The longest frame that can be sent now.
    fn max_frame(&self) -> usize {
        super::largest_frame(self.link.mtu()).min(self.chunks_per_frame * CHUNK_LEN)
    }
}

impl Port for AfXdpPort {
    fn num(&self) -> PortNum {
        self.num
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> &LinkState {
        &self.link
    }

    fn link_speed_bps(&self) -> Option<u64> {
        self.link_speed_bps
    }

    fn mode(&self) -> &PortMode {
        &self.mode
    }

    fn tx_room(&self) -> usize {
        if !self.link.is_up() {
            return 0;
        }
        let window = self.window.saturating_sub(self.sender.in_flight());
        window.min(self.sender.free_chunks() / self.chunks_per_frame)
    }

    fn tx_frame(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8], &mut [u8]) -> bool) -> TxResult {
        if len < 14 || len > self.max_frame() {
            return TxResult::BadLength;
        }
        if self.tx_room() == 0 {
            return TxResult::NoRoom;
        }
        match self.sender.queue(len, fill) {
            None => TxResult::NoRoom,
            Some(false) => TxResult::Abandoned,
            Some(true) => {
                self.kick_due = true;
                self.counters.tx_frames += 1;
                self.counters.tx_bytes += len as u64;
                TxResult::Queued
            }
        }
    }

    fn tx_flush(&mut self) -> io::Result<()> {
        self.sender.reclaim();
        if !self.link.is_present() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("interface {} was deleted", self.name),
            ));
        }
        if !self.link.is_up() {
            // The kernel takes nothing now. Whatever waits in the ring goes out when the link is back, long resent on
            // other ports: as nothing that anybody would read.
            if self.kick_due && !self.spoilt {
                self.counters.tx_stale += self.sender.spoil() as u64;
                self.spoilt = true;
            }
            return Ok(());
        }
        self.spoilt = false;
        if self.kick_due {
            self.kick()?;
            self.sender.reclaim();
        }
        Ok(())
    }

    fn tx_pending(&self) -> bool {
        self.kick_due && self.link.is_up()
    }

    fn rx_batch(&mut self, max: usize, each: &mut dyn FnMut(Frame<'_>)) -> usize {
        let batch = self.receiver.batch(max, each);
        if self.sender.zero_copy() {
            self.receiver.wake_driver();
        }
        self.counters.rx_frames += batch.frames as u64;
        self.counters.rx_bytes += batch.bytes;
        self.counters.rx_too_long += batch.too_long;
        batch.frames
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.fd())
    }

    fn chunk_len(&self) -> usize {
        CHUNK_LEN
    }

    fn counters(&self) -> PortCounters {
        PortCounters {
            rx_dropped: self.receiver.dropped(),
            ..self.counters
        }
    }
}

impl AfXdpPort {
    fn kick(&mut self) -> io::Result<()> {
        for _ in 0..MAX_KICKS {
            if !self.sender.needs_kick() {
                self.kick_due = false;
                return Ok(());
            }
            self.counters.tx_kicks += 1;
            match self.sender.kick() {
                Ok(()) => {
                    self.kick_due = false;
                    return Ok(());
                }
                // More to do than one call does, or the completion ring was full.
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => self.sender.reclaim(),
                // The interface dropped a frame; the rest is still to be taken.
                Err(Errno::EBUSY) => {
                    self.counters.tx_busy += 1;
                    self.link.doubt();
                }
                // Down, and netlink has not told yet.
                Err(Errno::ENETDOWN) => {
                    self.link.doubt();
                    return Ok(());
                }
                // The interface is gone, and the socket with it.
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
