//! Send requests, and the queue that keeps their memory alive.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use mrc_dataplane::ring::{PushError, SendData, SendEntry, SendProducer, Sge};

use crate::error::{Error, Result};
use crate::memory::{RegionInner, RegionSlice, RemoteAddress};

/// A write to be posted.
///
/// ```no_run
/// # fn f(region: &mrc_verbs::MemoryRegion, remote: mrc_verbs::RemoteRegion) -> mrc_verbs::Result<()> {
/// use mrc_verbs::SendRequest;
/// let all = SendRequest::write(1, region.into(), remote);
/// let pieces = [region.slice(0..64)?, region.slice(4096..8192)?];
/// let gathered = SendRequest::write_pieces(2, &pieces, remote).with_imm(7_u32.to_be_bytes()).solicited();
/// let quiet = SendRequest::inline(3, b"hello", remote.at(4096)).unsignaled();
/// # Ok(()) }
/// ```
///
/// Memory that is not registered cannot be posted:
/// ```compile_fail
/// # fn f(remote: mrc_verbs::RemoteRegion) {
/// let bytes = vec![0_u8; 64];
/// mrc_verbs::SendRequest::write(1, bytes.as_slice().into(), remote);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    wr_id: u64,
    data: Data<'a>,
    remote: RemoteAddress,
    imm: Option<[u8; 4]>,
    signaled: bool,
    solicited: bool,
}

#[derive(Clone, Copy, Debug)]
enum Data<'a> {
    Piece(RegionSlice<'a>),
    Pieces(&'a [RegionSlice<'a>]),
    Inline(&'a [u8]),
}

impl<'a> SendRequest<'a> {
    fn new(wr_id: u64, data: Data<'a>, remote: RemoteAddress) -> SendRequest<'a> {
        SendRequest {
            wr_id,
            data,
            remote,
            imm: None,
            signaled: true,
            solicited: false,
        }
    }

    /// Writes `piece` to `remote`. The memory is read while the write is carried out: leave it alone until it has completed.
    pub fn write(wr_id: u64, piece: RegionSlice<'a>, remote: impl Into<RemoteAddress>) -> SendRequest<'a> {
        SendRequest::new(wr_id, Data::Piece(piece), remote.into())
    }

    /// Writes several pieces, one behind the other, to `remote`.
    pub fn write_pieces(
        wr_id: u64,
        pieces: &'a [RegionSlice<'a>],
        remote: impl Into<RemoteAddress>,
    ) -> SendRequest<'a> {
        SendRequest::new(wr_id, Data::Pieces(pieces), remote.into())
    }

    /// Writes `bytes`, which are copied when the request is posted.
    pub fn inline(wr_id: u64, bytes: &'a [u8], remote: impl Into<RemoteAddress>) -> SendRequest<'a> {
        SendRequest::new(wr_id, Data::Inline(bytes), remote.into())
    }

    /// Delivers four bytes, as they stand, with a receive completion at the peer, after the data of this and all earlier
    /// writes of the queue pair. The peer must have posted a receive.
    #[must_use]
    pub fn with_imm(mut self, imm: [u8; 4]) -> SendRequest<'a> {
        self.imm = Some(imm);
        self
    }

    /// No completion on success. Failures always complete.
    #[must_use]
    pub fn unsignaled(mut self) -> SendRequest<'a> {
        self.signaled = false;
        self
    }

    /// The peer's receive completion is a solicited event. Matters only with an immediate.
    #[must_use]
    pub fn solicited(mut self) -> SendRequest<'a> {
        self.solicited = true;
        self
    }

    /// True with an immediate.
    pub(crate) fn has_imm(&self) -> bool {
        self.imm.is_some()
    }

    /// The regions that the request reads.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Arc<RegionInner>> {
        self.pieces().iter().map(|piece| piece.region().inner())
    }

    fn pieces(&self) -> &[RegionSlice<'a>] {
        match &self.data {
            Data::Piece(piece) => std::slice::from_ref(piece),
            Data::Pieces(pieces) => pieces,
            Data::Inline(_) => &[],
        }
    }

    fn entry(&self) -> SendEntry {
        SendEntry {
            wr_id: self.wr_id,
            remote_addr: self.remote.addr,
            rkey: self.remote.rkey,
            opcode: if self.imm.is_some() {
                SendEntry::WRITE_WITH_IMM
            } else {
                SendEntry::WRITE
            },
            flags: if self.signaled { SendEntry::SIGNALED } else { 0 }
                | if self.solicited { SendEntry::SOLICITED } else { 0 },
            imm: self.imm.unwrap_or_default(),
            ..SendEntry::default()
        }
    }
}

/// A send request whose local pieces are named by address and key, for layers that pass them on (the C interface). Nothing
/// keeps their regions registered; a piece that no region covers fails with
/// [`WcStatus::LocProtErr`](crate::WcStatus::LocProtErr).
#[derive(Clone, Copy, Debug)]
pub struct RawSendRequest<'a> {
    /// Handed back in the completion.
    pub wr_id: u64,
    /// Local pieces.
    pub pieces: &'a [RawPiece],
    /// Where to.
    pub remote: RemoteAddress,
    /// Immediate.
    pub imm: Option<[u8; 4]>,
    /// Completion on success.
    pub signaled: bool,
    /// Solicited event at the peer.
    pub solicited: bool,
}

/// A local piece by address and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPiece {
    /// Address in this process.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key of the region.
    pub lkey: u32,
}

/// Most local pieces that a request can have.
pub(crate) const MAX_PIECES: usize = 16;

/// The application's side of a send queue: the ring, and what its requests hold on to.
pub(crate) struct SendQueue {
    /// Index behind the last request whose completion was taken, modulo 2^32.
    polled: AtomicU32,
    posted: Mutex<Posted>,
}

pub(crate) struct Posted {
    ring: SendProducer,
    max_message: u32,
    signal_all: bool,
    /// Oldest request whose slot is not free.
    oldest: u32,
    slots: Vec<Slot>,
}

#[derive(Default, Clone)]
struct Slot {
    signaled: bool,
    regions: [Option<Arc<RegionInner>>; INLINE_REGIONS],
    more: Vec<Arc<RegionInner>>,
}

/// Regions of a request that are kept without touching the heap.
const INLINE_REGIONS: usize = 2;

impl Slot {
    fn keep(&mut self, regions: impl Iterator<Item = Arc<RegionInner>>) {
        for (number, region) in regions.enumerate() {
            match self.regions.get_mut(number) {
                Some(place) => *place = Some(region),
                None => self.more.push(region),
            }
        }
    }

    fn release(&mut self) {
        self.regions = [const { None }; INLINE_REGIONS];
        self.more.clear();
    }
}

impl SendQueue {
    pub(crate) fn new(ring: SendProducer, signal_all: bool, max_message: u32) -> SendQueue {
        let slots = vec![Slot::default(); ring.depth().next_power_of_two() as usize];
        let posted = Posted {
            oldest: ring.next_index(),
            ring,
            max_message,
            signal_all,
            slots,
        };
        SendQueue {
            polled: AtomicU32::new(posted.oldest),
            posted: Mutex::new(posted),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The completion of request `index` was taken.
    pub(crate) fn polled(&self, index: u32) {
        self.polled.store(index.wrapping_add(1), Ordering::Release);
    }

    /// Gives back what completed requests held, unless someone is posting: then that one will.
    pub(crate) fn reclaim(&self) {
        match self.posted.try_lock() {
            Ok(mut posted) => self.free_slots(&mut posted),
            Err(TryLockError::Poisoned(posted)) => self.free_slots(&mut posted.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn free_slots(&self, posted: &mut Posted) {
        let polled = self.polled.load(Ordering::Acquire);
        posted.reclaim(polled);
        // Keep the two within half of the index space, also for a sender that never signals.
        if (polled.wrapping_sub(posted.oldest) as i32) < 0 {
            let _ = self
                .polled
                .compare_exchange(polled, posted.oldest, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Everything posted is gone: after RESET, and when the queue pair ends.
    pub(crate) fn forget(&self, posted: &mut Posted) {
        posted.slots.iter_mut().for_each(Slot::release);
        posted.oldest = posted.ring.next_index();
        self.polled.store(posted.oldest, Ordering::Release);
    }

    /// Writes a request into the ring; it becomes visible with [`Posted::publish`].
    pub(crate) fn push(&self, posted: &mut Posted, request: &SendRequest<'_>) -> Result<()> {
        let mut sges = [Sge::default(); MAX_PIECES];
        let data = match request.data {
            Data::Inline(bytes) => SendData::Inline(bytes),
            _ => SendData::Sges(gather(&mut sges, request.pieces().iter().map(RegionSlice::sge))?),
        };
        let slot = self.push_entry(posted, request.entry(), data)?;
        slot.keep(request.regions().cloned());
        Ok(())
    }

    /// As [`push`](Self::push), by address and key.
    pub(crate) fn push_raw(&self, posted: &mut Posted, request: &RawSendRequest<'_>) -> Result<()> {
        let mut sges = [Sge::default(); MAX_PIECES];
        let pieces = request.pieces.iter().map(|p| Sge {
            addr: p.addr,
            length: p.length,
            lkey: p.lkey,
        });
        let data = SendData::Sges(gather(&mut sges, pieces)?);
        let RawSendRequest {
            wr_id,
            remote,
            imm,
            signaled,
            solicited,
            ..
        } = *request;
        let shape = SendRequest {
            wr_id,
            data: Data::Inline(&[]),
            remote,
            imm,
            signaled,
            solicited,
        };
        self.push_entry(posted, shape.entry(), data).map(|_| ())
    }

    fn push_entry<'p>(&self, posted: &'p mut Posted, mut entry: SendEntry, data: SendData<'_>) -> Result<&'p mut Slot> {
        let length = match data {
            SendData::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            SendData::Inline(bytes) => bytes.len() as u64,
        };
        if length > posted.max_message.into() {
            return Err(Error::Invalid {
                what: "message length",
                value: length.to_string(),
                limit: "at most 1 GiB",
            });
        }
        if posted.signal_all {
            entry.flags |= SendEntry::SIGNALED;
        }
        self.free_slots(posted);
        let depth = posted.ring.depth();
        // D15: a signaled request occupies its slot until its completion is taken, which the ring does not know.
        if posted.ring.next_index().wrapping_sub(posted.oldest) >= depth {
            return Err(full(depth));
        }
        let index = posted.ring.push(entry, data).map_err(|error| refused(error, depth))?;
        let mask = posted.slots.len() - 1;
        let slot = &mut posted.slots[index as usize & mask];
        slot.signaled = entry.flags & SendEntry::SIGNALED != 0;
        Ok(slot)
    }
}

impl Posted {
    /// Makes what was pushed visible to the engine; true if there was something.
    pub(crate) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Frees the slots of all requests that have ended and, if signaled, whose completions were taken (api.md D15).
    fn reclaim(&mut self, polled: u32) {
        let mask = self.slots.len() - 1;
        let done = self.ring.done();
        while self.oldest != done {
            let slot = &mut self.slots[self.oldest as usize & mask];
            let taken = polled.wrapping_sub(self.oldest) as i32 > 0;
            if slot.signaled && !taken {
                break;
            }
            slot.release();
            self.oldest = self.oldest.wrapping_add(1);
        }
    }
}

fn gather(sges: &mut [Sge; MAX_PIECES], pieces: impl ExactSizeIterator<Item = Sge>) -> Result<&[Sge]> {
    let count = pieces.len();
    let Some(used) = sges.get_mut(..count) else {
        return Err(too_many(count));
    };
    used.iter_mut().zip(pieces).for_each(|(place, piece)| *place = piece);
    Ok(used)
}

fn refused(error: PushError, depth: u32) -> Error {
    match error {
        PushError::Full(_) => full(depth),
        PushError::TooManySges { count, .. } => too_many(count),
        PushError::InlineTooLong { len, .. } => Error::Invalid {
            what: "inline length",
            value: len.to_string(),
            limit: "at most the queue pair's max_inline; create it with more, or write from a region",
        },
    }
}

fn too_many(count: usize) -> Error {
    Error::Invalid {
        what: "number of pieces",
        value: count.to_string(),
        limit: "at most the queue pair's max_send_sge; create it with more",
    }
}

fn full(depth: u32) -> Error {
    Error::QueueFull {
        queue: "send",
        depth,
        cap: "max_send_wr",
    }
}
