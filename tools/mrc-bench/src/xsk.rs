//! The AF_XDP socket of the bare loops: as little code as gets frames out and in, independent of the engine.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use xsk_rs::config::{BindFlags, FrameSize, LibxdpFlags, QueueSize, SocketConfig, UmemConfig};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem};

use crate::error::BenchError;

/// Frames for each direction. More than any window in use, little enough to stay in the cache.
const FRAMES: u32 = 512;
/// What the kernel keeps free at the start of each chunk.
const XDP_HEADROOM: usize = 256;
/// The flag of a descriptor that the frame goes on in the next one.
const MORE_FRAMES: u32 = 1;
/// A queue stays busy for some 50 ms after its last socket was closed.
const BIND_PATIENCE: Duration = Duration::from_secs(2);

/// One socket on queue 0 of an interface, with a UMEM of its own.
pub(crate) struct Xsk {
    umem: Umem,
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    completion: CompQueue,
    /// Chunks that nobody uses.
    free: Vec<FrameDesc>,
    /// Room for a batch that is being sent.
    batch: Vec<FrameDesc>,
    /// Room for a batch that was received or completed.
    back: Vec<FrameDesc>,
    chunk: usize,
}

impl Xsk {
    /// Opens the socket in the network namespace of the calling thread. `largest` is the largest frame to come.
    #[expect(unsafe_code, reason = "the rings of AF_XDP")]
    pub(crate) fn open(interface: &str, largest: usize) -> Result<Xsk, BenchError> {
        let chunk = if largest <= 2048 - XDP_HEADROOM { 2048 } else { 4096 };
        let config = umem_config(chunk).map_err(|error| BenchError::socket(interface, error))?;
        let (umem, chunks) = Umem::new(config, NON_ZERO_FRAMES, false)
            .map_err(|error| BenchError::socket(interface, format!("no memory for its frames: {error}")))?;
        let name = interface
            .parse()
            .map_err(|error| BenchError::socket(interface, error))?;
        let socket = socket_config().map_err(|error| BenchError::socket(interface, error))?;
        let deadline = Instant::now() + BIND_PATIENCE;
        let (tx, rx, queues) = loop {
            // SAFETY: the UMEM has no other socket, so its fill and completion rings are new.
            match unsafe { Socket::new(socket, &umem, &name, 0) } {
                Ok(parts) => break parts,
                Err(error) if Instant::now() >= deadline => return Err(BenchError::socket(interface, error)),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        };
        let (mut fill, completion) =
            queues.ok_or_else(|| BenchError::socket(interface, "it has no fill and completion ring"))?;
        let (for_receive, for_send) = chunks.split_at(FRAMES as usize);
        // SAFETY: these chunks belong to this UMEM and to nobody else.
        unsafe { fill.produce(for_receive) };
        Ok(Xsk {
            umem,
            tx,
            rx,
            fill,
            completion,
            free: for_send.to_vec(),
            batch: Vec::with_capacity(FRAMES as usize),
            back: vec![FrameDesc::default(); FRAMES as usize],
            chunk: chunk as usize - XDP_HEADROOM,
        })
    }

    /// How many frames of `len` bytes can be queued now.
    pub(crate) fn room(&mut self, len: usize) -> usize {
        self.reclaim();
        self.free.len() / self.pieces(len)
    }

    fn pieces(&self, len: usize) -> usize {
        len.div_ceil(self.chunk).max(1)
    }

    /// Takes back the chunks that the kernel has sent.
    #[expect(unsafe_code, reason = "the rings of AF_XDP")]
    fn reclaim(&mut self) {
        // SAFETY: `back` has no live descriptors between calls.
        let done = unsafe { self.completion.consume(&mut self.back) };
        self.free.extend_from_slice(&self.back[..done]);
    }

    /// Queues `count` frames of `len` bytes, which `fill` writes piece by piece (the second is empty unless the frame is
    /// larger than a chunk), and kicks once. Returns how many were queued.
    #[expect(unsafe_code, reason = "the rings of AF_XDP")]
    pub(crate) fn send(
        &mut self,
        len: usize,
        count: usize,
        mut fill: impl FnMut(&mut [u8], &mut [u8]),
    ) -> io::Result<usize> {
        let pieces = self.pieces(len);
        let count = count.min(self.room(len));
        self.batch.clear();
        for _ in 0..count {
            let Some(mut head) = self.free.pop() else { break };
            let mut tail = (pieces > 1).then(|| self.free.pop()).flatten();
            let head_len = len.min(self.chunk);
            // SAFETY: both chunks came from the free list, so only this call uses them.
            let mut head_data = unsafe { self.umem.data_mut(&mut head) };
            head_data.cursor().set_pos(head_len);
            if let Some(tail) = &mut tail {
                // SAFETY: as above.
                let mut tail_data = unsafe { self.umem.data_mut(tail) };
                tail_data.cursor().set_pos(len - head_len);
                fill(head_data.contents_mut(), tail_data.contents_mut());
                tail.set_options(0);
                head.set_options(MORE_FRAMES);
            } else {
                fill(head_data.contents_mut(), &mut []);
                head.set_options(0);
            }
            self.batch.push(head);
            self.batch.extend(tail);
        }
        // SAFETY: the batch was filled above, and its chunks are not in the free list any more.
        let queued = unsafe { self.tx.produce(&self.batch) };
        if queued < self.batch.len() {
            // The ring takes all or nothing.
            self.free.extend_from_slice(&self.batch[queued..]);
        }
        self.tx.wakeup()?;
        Ok(queued / pieces)
    }

    /// Kicks the kernel if it has frames of ours that it has not sent: one kick moves 32 at most.
    pub(crate) fn kick(&mut self) -> io::Result<()> {
        self.reclaim();
        if self.free.len() < FRAMES as usize {
            self.tx.wakeup()
        } else {
            Ok(())
        }
    }

    /// Hands up to 64 received frames to `each` in pieces, and gives their chunks back. Returns how many chunks came.
    #[expect(unsafe_code, reason = "the rings of AF_XDP")]
    pub(crate) fn receive(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> usize {
        let budget = 64.min(self.back.len());
        // SAFETY: `back` has no live descriptors between calls.
        let count = unsafe { self.rx.consume(&mut self.back[..budget]) };
        let mut index = 0;
        while index < count {
            let head = &self.back[index];
            // SAFETY: the kernel has handed this chunk to us.
            let head_data = unsafe { self.umem.data(head) };
            if head.has_more_frames() && index + 1 < count {
                // SAFETY: as above.
                let tail_data = unsafe { self.umem.data(&self.back[index + 1]) };
                each(&head_data, &tail_data);
                index += 2;
            } else {
                each(&head_data, &[]);
                index += 1;
            }
        }
        for desc in &mut self.back[..count] {
            // A received descriptor keeps its flags; a stale one would glue two frames together.
            desc.set_options(0);
        }
        if count > 0 {
            // SAFETY: the data was read above; the chunks go back where they came from, so there is room for them.
            unsafe { self.fill.produce(&self.back[..count]) };
        }
        count
    }
}

impl AsRawFd for Xsk {
    fn as_raw_fd(&self) -> RawFd {
        self.rx.fd().as_raw_fd()
    }
}

const NON_ZERO_FRAMES: std::num::NonZeroU32 = match std::num::NonZeroU32::new(2 * FRAMES) {
    Some(frames) => frames,
    None => panic!("FRAMES is not 0"),
};

fn umem_config(chunk: u32) -> Result<UmemConfig, Box<dyn std::error::Error>> {
    Ok(UmemConfig::builder()
        .frame_size(FrameSize::new(chunk)?)
        .fill_queue_size(QueueSize::new(FRAMES)?)
        .comp_queue_size(QueueSize::new(FRAMES)?)
        .build()?)
}

fn socket_config() -> Result<SocketConfig, Box<dyn std::error::Error>> {
    Ok(SocketConfig::builder()
        .rx_queue_size(QueueSize::new(FRAMES)?)
        .tx_queue_size(QueueSize::new(FRAMES)?)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(BindFlags::XDP_USE_NEED_WAKEUP | BindFlags::XDP_USE_SG)
        .build())
}
