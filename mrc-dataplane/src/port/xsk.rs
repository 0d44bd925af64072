//! `AF_XDP` sockets over one UMEM: the only place that touches packet memory and rings.
//!
//! Every chunk of the UMEM has one owner at any time: we (in `free`, `held` or `returned`) or the kernel (fill ring to RX
//! ring, TX ring to completion ring). Descriptors are `Copy`, so this ownership is kept here and nowhere else: a descriptor
//! never leaves the module, and each side draws its chunks from a range of its own.

#![expect(unsafe_code, reason = "rings and packet memory shared with the kernel")]

use std::ffi::c_int;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use mrc_wire::Frame;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
use xsk_rs::config::{BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig};
use xsk_rs::umem::frame::FrameDesc;
use xsk_rs::{CompQueue, FillQueue, RxQueue, Socket, TxQueue, Umem};

/// Size of a chunk: the largest that the kernel takes, huge pages or not.
pub(super) const CHUNK_SIZE: usize = 4096;
/// Bytes of a chunk that a frame can use; the rest is headroom that the kernel insists on when it receives.
pub(super) const CHUNK_LEN: usize = CHUNK_SIZE - 256;
/// Descriptors in each ring.
pub(super) const RING_SIZE: u32 = 512;
/// Descriptors taken from a ring at a time.
const BATCH: usize = 64;
const ETHERNET_LEN: usize = 14;

/// There are more frames behind this piece (`XDP_PKT_CONTD`).
const MORE: u32 = 1;
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
const XDP_OPTIONS: c_int = 8;
const XDP_OPTIONS_ZEROCOPY: u32 = 1;

/// Packet memory for all ports of an engine, not given out yet.
pub(super) struct Memory {
    umem: Umem,
    unused: Vec<FrameDesc>,
}

impl Memory {
    /// Allocates `chunks` chunks and registers them with the kernel.
    pub(super) fn new(chunks: u32) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let ring = QueueSize::new(RING_SIZE).map_err(|_| invalid("ring size"))?;
        let config = UmemConfig::builder()
            .frame_size(FrameSize::new(CHUNK_SIZE as u32).map_err(|_| invalid("chunk size"))?)
            .fill_queue_size(ring)
            .comp_queue_size(ring)
            .build()
            .map_err(|_| invalid("UMEM layout"))?;
        let chunks = NonZeroU32::new(chunks).ok_or_else(|| invalid("no chunks"))?;
        let (umem, unused) = Umem::new(config, chunks, false).map_err(|error| os_error(&error))?;
        Ok(Self { umem, unused })
    }

    /// Opens a socket on a queue of an interface, with `rx_chunks` and `tx_chunks` of this memory for its own.
    /// The chunks stay here when it fails, so that it can be tried again.
    pub(super) fn open(&mut self, bind: &Bind<'_>) -> io::Result<(Sender, Receiver)> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let ring = QueueSize::new(RING_SIZE).map_err(|_| invalid("ring size"))?;
        let mut flags = BindFlags::XDP_USE_NEED_WAKEUP;
        flags.set(BindFlags::XDP_USE_SG, bind.multi_buffer);
        flags.set(BindFlags::XDP_COPY, bind.force_copy);
        let config = SocketConfig::builder()
            .rx_queue_size(ring)
            .tx_queue_size(ring)
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(flags)
            .build();
        let interface: Interface = bind.interface.parse().map_err(|_| invalid("interface name"))?;
        // Both counts are at most the ring size, so that neither the fill nor the completion ring can overflow.
        let (rx_chunks, tx_chunks) = (
            bind.rx_chunks.min(RING_SIZE as usize),
            bind.tx_chunks.min(RING_SIZE as usize),
        );
        let keep = self
            .unused
            .len()
            .checked_sub(rx_chunks + tx_chunks)
            .ok_or_else(|| invalid("out of chunks"))?;

        // SAFETY: the flag that inhibits loading a program is set, as this asks for when a queue is shared.
        let (tx, rx, rings) =
            unsafe { Socket::new(config, &self.umem, &interface, bind.queue) }.map_err(|error| os_error(&error))?;
        let (mut fill, completed) = rings.ok_or_else(|| invalid("the queue is already in use by this engine"))?;

        let fd = tx.fd().as_raw_fd();
        let zero_copy = is_zero_copy(fd);
        tune(fd, bind.tx_chunks);
        let tx_descs = self.unused.split_off(keep + rx_chunks);
        let rx_descs = self.unused.split_off(keep);
        // SAFETY: these chunks come from this UMEM and were in no ring, and now belong to the kernel.
        let given = unsafe { fill.produce(&rx_descs) };
        let first = tx_descs.first().map_or(0, FrameDesc::addr) / CHUNK_SIZE;
        let sender = Sender {
            umem: self.umem.clone(),
            ring: tx,
            completed,
            first,
            state: vec![Chunk::Ours; tx_descs.len()],
            all: tx_descs.clone(),
            free: tx_descs,
            done: vec![FrameDesc::default(); BATCH],
            in_flight: 0,
            zero_copy,
        };
        let receiver = Receiver {
            umem: self.umem.clone(),
            ring: rx,
            fill,
            descs: vec![FrameDesc::default(); BATCH],
            held: 0,
            returned: rx_descs.get(given..).map(<[_]>::to_vec).unwrap_or_default(),
        };
        Ok((sender, receiver))
    }
}

/// What a socket is to be bound to, and how.
pub(super) struct Bind<'a> {
    pub(super) interface: &'a str,
    pub(super) queue: u32,
    pub(super) multi_buffer: bool,
    pub(super) force_copy: bool,
    pub(super) rx_chunks: usize,
    pub(super) tx_chunks: usize,
}

/// Where a chunk for transmission is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In `free`.
    Ours,
    /// With the kernel: the only piece of a frame.
    Whole,
    /// With the kernel: the first of two pieces.
    First,
    /// With the kernel: the last of two pieces.
    Last,
}

/// The transmitting half of a socket.
pub(super) struct Sender {
    umem: Umem,
    ring: TxQueue,
    completed: CompQueue,
    /// Number of the first chunk of this port in the UMEM.
    first: usize,
    state: Vec<Chunk>,
    all: Vec<FrameDesc>,
    /// Last in, first out: what was used last is still in the cache.
    free: Vec<FrameDesc>,
    done: Vec<FrameDesc>,
    in_flight: usize,
    zero_copy: bool,
}

impl Sender {
    /// Frames with the kernel.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Chunks that can be filled.
    pub(super) fn free_chunks(&self) -> usize {
        self.free.len()
    }

    /// Whether the driver reads our chunks itself.
    pub(super) fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Fills one or two chunks and puts them into the TX ring. `None`: no chunk or no room in the ring.
    /// `Some(false)`: `fill` gave up. `len` is at most twice [`CHUNK_LEN`].
    pub(super) fn queue(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8], &mut [u8]) -> bool) -> Option<bool> {
        let head_len = len.min(CHUNK_LEN);
        let tail_len = len - head_len;
        let mut head = self.free.pop()?;
        // Recycled descriptors keep what they last said; a stale flag would glue two frames together.
        head.set_options(if tail_len > 0 { MORE } else { 0 });
        if tail_len == 0 {
            // SAFETY: the chunk was in `free`, hence is ours, and the descriptor came from this UMEM.
            let filled = unsafe { with_data(&self.umem, &mut head, head_len, |head| fill(head, &mut [])) };
            // SAFETY: as above; when the ring takes the chunk, it belongs to the kernel and is noted as such.
            if !filled || unsafe { self.ring.produce_one(&head) } == 0 {
                self.free.push(head);
                return (!filled).then_some(false);
            }
            self.note(&head, Chunk::Whole);
        } else {
            let Some(mut tail) = self.free.pop() else {
                self.free.push(head);
                return None;
            };
            tail.set_options(0);
            // SAFETY: both chunks were in `free`, hence are ours and distinct, and both descriptors came from this UMEM.
            let filled = unsafe {
                with_data(&self.umem, &mut head, head_len, |head| {
                    with_data(&self.umem, &mut tail, tail_len, |tail| fill(head, tail))
                })
            };
            // SAFETY: as above; the ring takes both or none.
            if !filled || unsafe { self.ring.produce(&[head, tail]) } == 0 {
                self.free.push(tail);
                self.free.push(head);
                return (!filled).then_some(false);
            }
            self.note(&head, Chunk::First);
            self.note(&tail, Chunk::Last);
        }
        self.in_flight += 1;
        Some(true)
    }

    /// Takes back what the kernel is done with. Without this transmission stops when the completion ring is full.
    pub(super) fn reclaim(&mut self) {
        loop {
            // SAFETY: `done` holds no descriptor of a chunk that is in use; it is overwritten before it is read.
            let count = unsafe { self.completed.consume(&mut self.done) };
            for index in 0..count {
                let Some(number) = self.done.get(index).map(|desc| self.number(desc)) else {
                    break;
                };
                let (Some(state), Some(desc)) = (self.state.get_mut(number), self.all.get(number)) else {
                    continue;
                };
                match std::mem::replace(state, Chunk::Ours) {
                    // Not with the kernel: it cannot come back from there.
                    Chunk::Ours => continue,
                    Chunk::First => {}
                    Chunk::Whole | Chunk::Last => self.in_flight = self.in_flight.saturating_sub(1),
                }
                self.free.push(*desc);
            }
            if count < self.done.len() {
                return;
            }
        }
    }

    /// Makes every frame that is with the kernel one that no receiver takes: it has waited for a link that was down, and
    /// its timestamp would lie. Returns how many they were. Nothing in zero-copy mode, where drivers drop such frames.
    pub(super) fn spoil(&mut self) -> usize {
        if self.zero_copy {
            return 0;
        }
        let mut spoilt = 0;
        for (state, desc) in self.state.iter().zip(&mut self.all) {
            if matches!(state, Chunk::Whole | Chunk::First) {
                // SAFETY: the descriptor is of this UMEM, and the kernel, which has the chunk, only copies from it: it
                // sends the old header, the new one or a mix, and each of them is harmless.
                unsafe { with_data(&self.umem, desc, ETHERNET_LEN, |header| header.fill(0)) };
                spoilt += 1;
            }
        }
        spoilt
    }

    /// Whether a system call is needed for the kernel to look at the TX ring. In copy mode it always is.
    pub(super) fn needs_kick(&self) -> bool {
        !self.zero_copy || self.ring.needs_wakeup()
    }

    /// Lets the kernel transmit.
    pub(super) fn kick(&self) -> nix::Result<()> {
        send(self.ring.fd().as_raw_fd(), &[], MsgFlags::MSG_DONTWAIT).map(drop)
    }

    fn note(&mut self, desc: &FrameDesc, to: Chunk) {
        let number = self.number(desc);
        if let Some(state) = self.state.get_mut(number) {
            *state = to;
        }
    }

    /// Position of a chunk among those of this port.
    fn number(&self, desc: &FrameDesc) -> usize {
        (desc.addr() / CHUNK_SIZE).wrapping_sub(self.first)
    }
}

/// The receiving half of a socket.
pub(super) struct Receiver {
    umem: Umem,
    ring: RxQueue,
    fill: FillQueue,
    descs: Vec<FrameDesc>,
    /// How many at the front of `descs` are the beginning of a frame whose end has not come yet.
    held: usize,
    /// What the fill ring had no room for. Empty as long as the ring is not smaller than our share of chunks.
    returned: Vec<FrameDesc>,
}

/// What one call of [`Receiver::batch`] did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Batch {
    pub(super) frames: usize,
    pub(super) bytes: u64,
    pub(super) too_long: u64,
}

impl Receiver {
    /// Hands up to `max` frames to `each`, then returns their chunks to the kernel.
    pub(super) fn batch(&mut self, max: usize, each: &mut dyn FnMut(Frame<'_>)) -> Batch {
        let mut batch = Batch::default();
        while batch.frames < max {
            let end = self.descs.len().min(self.held + (max - batch.frames));
            let Some(room) = self.descs.get_mut(self.held..end) else {
                break;
            };
            // SAFETY: the descriptors in `room` are of no chunk that is in use; they are overwritten before they are read.
            let count = unsafe { self.ring.consume(room) };
            if count == 0 {
                break;
            }
            let total = self.held + count;
            let used = self.hand_out(total, &mut batch, each);
            self.give_back(used);
            self.descs.copy_within(used..total, 0);
            self.held = total - used;
        }
        batch
    }

    /// Frames among the first `total` descriptors; returns how many descriptors these frames have.
    fn hand_out(&mut self, total: usize, batch: &mut Batch, each: &mut dyn FnMut(Frame<'_>)) -> usize {
        let descs = self.descs.get(..total).unwrap_or_default();
        let mut used = 0;
        for pieces in descs.split_inclusive(|desc| !desc.has_more_frames()) {
            if pieces.last().is_none_or(FrameDesc::has_more_frames) {
                // Unfinished. A frame that fills the whole batch is none that anybody sent.
                return if pieces.len() == self.descs.len() { total } else { used };
            }
            used += pieces.len();
            // SAFETY: both came out of the RX ring, so the chunks are ours until they are given back, which is after the
            // use of these slices; the kernel says how long they are.
            let data = |desc: &FrameDesc| unsafe { self.umem.data(desc) }.contents();
            let frame = match pieces {
                [only] => Frame {
                    head: data(only),
                    tail: &[],
                },
                [head, tail] => Frame {
                    head: data(head),
                    tail: data(tail),
                },
                _ => {
                    batch.too_long += 1;
                    continue;
                }
            };
            batch.frames += 1;
            batch.bytes += frame.len() as u64;
            each(frame);
        }
        used
    }

    /// Returns the first `count` chunks to the fill ring.
    fn give_back(&mut self, count: usize) {
        let descs = self.descs.get(..count).unwrap_or_default();
        if !self.returned.is_empty() {
            // SAFETY: these chunks were received and are in no ring.
            let taken = unsafe { self.fill.produce(&self.returned) };
            self.returned.drain(..taken);
        }
        // SAFETY: these chunks came out of the RX ring and nobody has a slice of them any more.
        if unsafe { self.fill.produce(descs) } == 0 {
            self.returned.extend_from_slice(descs);
        }
    }

    /// Wakes a driver that waits for chunks; never needed in copy mode.
    pub(super) fn wake_driver(&mut self) {
        if self.fill.needs_wakeup() {
            // Failing to poll our own descriptor leaves the driver asleep until the next turn.
            let _ = self.ring.poll(0);
        }
    }

    /// The socket's descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the queue is, which outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.fd().as_raw_fd()) }
    }

    /// Frames that were dropped because we were too slow, and frames that the kernel could not use.
    pub(super) fn dropped(&self) -> u64 {
        self.ring.fd().xdp_statistics().map_or(0, |stats| {
            stats.rx_dropped() + stats.rx_ring_full() + stats.rx_fill_ring_empty_descs()
        })
    }
}

/// Calls `f` with the first `len` bytes of a chunk.
///
/// # Safety
///
/// `desc` is of `umem`, and nobody else reads or writes its chunk meanwhile.
unsafe fn with_data<R>(umem: &Umem, desc: &mut FrameDesc, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
    // SAFETY: passed on to our caller.
    let mut data = unsafe { umem.data_mut(desc) };
    data.cursor().set_pos(len);
    f(data.contents_mut())
}

/// Options that make the socket faster or steadier; a kernel without one of them still works.
fn tune(fd: RawFd, tx_chunks: usize) {
    // SAFETY: the descriptor is that of a socket that outlives this call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // libxdp leaves it open across exec, and a program that the application starts would keep the queue busy.
    let _ = fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    // Buffers on their way are charged to the socket, with overhead: the default would stop us at a third of our window.
    let send_buffer = tx_chunks * 4 * CHUNK_SIZE;
    if setsockopt(&fd, sockopt::SndBufForce, &send_buffer).is_err() {
        let _ = setsockopt(&fd, sockopt::SndBuf, &send_buffer);
    }
    // One kick moves 32 packets unless told otherwise.
    let budget = RING_SIZE;
    // SAFETY: the value is an integer of the size given, alive during the call.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            XDP_MAX_TX_SKB_BUDGET,
            (&raw const budget).cast(),
            size_of_val(&budget) as libc::socklen_t,
        )
    };
}

fn is_zero_copy(fd: RawFd) -> bool {
    let mut options = 0u32;
    let mut len = size_of_val(&options) as libc::socklen_t;
    // SAFETY: both pointers are to variables that live during the call, and `len` is the size of the first.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_XDP, XDP_OPTIONS, (&raw mut options).cast(), &raw mut len) };
    result == 0 && options & XDP_OPTIONS_ZEROCOPY != 0
}

/// The operating system's error in an error of xsk-rs.
fn os_error(error: &dyn std::error::Error) -> io::Error {
    match error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error)
    {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(error.to_string()),
    }
}
