//! Ports: where frames enter and leave the engine.
//!
//! [`Port`] is all that the engine knows of a network interface. The real one drives an AF_XDP socket, [`MemoryPort`] joins two
//! engines in one process without any privilege. A port is served by one engine thread; nothing here locks.

mod afxdp;
mod error;
mod ethtool;
mod link;
mod memory;
mod open;
mod owner;
mod xsk;

use std::io;
use std::os::fd::BorrowedFd;

use mrc_wire::{Frame, PortNum};

pub use afxdp::AfXdpPort;
pub use error::PortError;
pub use link::LinkState;
pub use memory::{Fate, MemoryLink, MemoryPort, MemoryPortConfig};
pub use open::{PortOptions, PortSpec, largest_frame, largest_pmtu, open_ports, require_pmtu};

/// One network interface (and queue of it) as the engine sees it.
///
/// The order of calls in one turn of the engine: [`rx_batch`](Port::rx_batch), then [`tx_frame`](Port::tx_frame) as often as
/// there is something to send and [`tx_room`](Port::tx_room) for it, then [`tx_flush`](Port::tx_flush) once. `tx_flush`
/// should also be called now and then while nothing is sent, since it takes back the frames that the kernel is done with.
pub trait Port: Send {
    /// The number of this port, from 1.
    fn num(&self) -> PortNum;

    /// The name of the interface.
    fn name(&self) -> &str;

    /// What is known of the link, followed live.
    fn link(&self) -> &LinkState;

    /// How the port is driven, and why so.
    fn mode(&self) -> &PortMode;

    /// How many frames of any size can be queued now. 0 while the link is down.
    fn tx_room(&self) -> usize;

    /// Queues one frame of `len` bytes, Ethernet header included.
    ///
    /// `fill` is called at most once with the two pieces of the frame, which together are `len` bytes long; the second one
    /// is empty unless the frame is larger than [`chunk_len`](Port::chunk_len). Their former contents are undefined and
    /// every byte has to be written. When it returns `false` the frame is given up.
    fn tx_frame(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8], &mut [u8]) -> bool) -> TxResult;

    /// Hands the queued frames to the kernel with one kick and takes finished ones back.
    ///
    /// A link that is down is no error. An error says that the port is lost for good (its interface was deleted).
    fn tx_flush(&mut self) -> io::Result<()>;

    /// Hands up to `max` received frames to `each`, then gives their memory back to the kernel. Returns how many they were.
    fn rx_batch(&mut self, max: usize, each: &mut dyn FnMut(Frame<'_>)) -> usize;

    /// Whether the kernel has yet to take queued frames although the link is up: do not sleep, flush again soon.
    fn tx_pending(&self) -> bool;

    /// A descriptor that polls readable while frames wait.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The largest length of the first piece in [`tx_frame`](Port::tx_frame).
    fn chunk_len(&self) -> usize;

    /// What the port has counted.
    fn counters(&self) -> PortCounters;

    /// Largest IP packet in bytes.
    fn mtu(&self) -> u32 {
        self.link().mtu()
    }

    /// MAC address of the interface.
    fn mac(&self) -> [u8; 6] {
        self.link().mac()
    }

    /// Speed of the link in bit/s as the interface knew it when the port was opened; `None` if it did not, or has none of its own.
    fn link_speed_bps(&self) -> Option<u64> {
        None
    }

    /// Whether frames can pass: the interface is up and has a carrier.
    fn link_up(&self) -> bool {
        self.link().is_up()
    }
}

/// What became of a frame given to [`Port::tx_frame`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum TxResult {
    /// It goes out with the next flush.
    Queued,
    /// There was no room, or the link is down; `fill` was not called.
    NoRoom,
    /// `fill` returned `false`; nothing was queued.
    Abandoned,
    /// The frame is longer than the port can ever send, or shorter than a header; `fill` was not called.
    BadLength,
}

/// How a port is driven; shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMode {
    /// Where the steering program runs.
    pub attach: AttachMode,
    /// Whether the driver reads and writes our frames itself.
    pub zero_copy: bool,
    /// Whether a frame may span several chunks.
    pub multi_buffer: bool,
    /// Why not the faster choice, one sentence each; empty when everything is as fast as can be.
    pub reasons: Vec<String>,
}

/// Where the steering program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver.
    Native,
    /// In the kernel's generic receive path: correct, slow.
    Generic,
    /// Nowhere: the port is in memory.
    Memory,
}

impl std::fmt::Display for PortMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.attach {
            AttachMode::Native => "native",
            AttachMode::Generic => "generic",
            AttachMode::Memory => "memory",
        })?;
        f.write_str(if self.zero_copy { ", zero-copy" } else { ", copy" })?;
        if self.multi_buffer {
            f.write_str(", multi-buffer")?;
        }
        for reason in &self.reasons {
            write!(f, "; {reason}")?;
        }
        Ok(())
    }
}

/// Plain counters of one port, from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames queued for transmission.
    pub tx_frames: u64,
    /// Bytes of those.
    pub tx_bytes: u64,
    /// Kicks, i.e. system calls made to transmit.
    pub tx_kicks: u64,
    /// Kicks which the kernel answered with "busy", to be repeated.
    pub tx_busy: u64,
    /// Frames neutralised because the interface went down before the kernel had taken them.
    pub tx_stale: u64,
    /// Frames handed to the engine.
    pub rx_frames: u64,
    /// Bytes of those.
    pub rx_bytes: u64,
    /// Frames in more than two pieces: longer than anything the port should receive.
    pub rx_too_long: u64,
    /// Frames that the kernel dropped since we were too slow: no free memory or no room in the ring.
    pub rx_dropped: u64,
}
