//! Registered memory of this process.
#![expect(unsafe_code, reason = "reads and writes memory that is shared with the network")]

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use mrc_dataplane::region::RegionMemory;
use mrc_dataplane::ring::Sge;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::pd::PdInner;

use super::mapping::Mapping;
use super::remote::RemoteRegion;
use super::{RemoteAddress, copy};

/// Memory that the engine knows: local pieces of writes come from it, and with [`Access::REMOTE_WRITE`] peers write into it.
///
/// Peers may write at any time, so the bytes are never lent as `&[u8]`; they are copied in and out
/// ([`write_at`](Self::write_at), [`read_at`](Self::read_at)) or taken as atomic words ([`load_u64`](Self::load_u64), ...),
/// with which a program may also wait for a peer's write without any call into the library.
///
/// A `MemoryRegion` is a cheap handle; the registration ends, and the memory is given back, when the last clone is gone and
/// no posted write needs it any more. A peer that writes later is refused.
///
/// ```compile_fail
/// # fn f(region: mrc_verbs::MemoryRegion) {
/// let bytes: &[u8] = region.as_ref(); // a peer may be writing: there is no such view
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryRegion {
    inner: Arc<RegionInner>,
}

pub(crate) struct RegionInner {
    pd: Arc<PdInner>,
    start: NonNull<u8>,
    len: usize,
    lkey: u32,
    rkey: u32,
    access: Access,
    /// Dropped after the region is deregistered.
    backing: Backing,
}

/// Who owns the bytes.
enum Backing {
    /// Our own mapping.
    Mapping { _mapping: Mapping },
    /// A box that was handed over; only a raw pointer to it is kept, since peers write behind its back.
    Boxed,
    /// The caller of `register_raw`.
    Caller,
}

// SAFETY: all accesses to the memory go through atomics or raw copies; the pointer has no thread affinity.
unsafe impl Send for RegionInner {}
// SAFETY: as above.
unsafe impl Sync for RegionInner {}

impl MemoryRegion {
    pub(crate) fn owned(pd: &Arc<PdInner>, len: usize, access: Access) -> Result<MemoryRegion> {
        let access = access.for_region()?;
        let size = NonZeroUsize::new(len).ok_or_else(empty)?;
        let mapping = Mapping::new(size).map_err(|errno| Error::Memory {
            what: "memory region",
            bytes: len,
            source: errno.into(),
        })?;
        let start = mapping.start();
        // SAFETY: the mapping lives in the region until after its deregistration and is never referenced.
        unsafe { MemoryRegion::register(pd, start, len, access, Backing::Mapping { _mapping: mapping }) }
    }

    pub(crate) fn boxed(
        pd: &Arc<PdInner>,
        bytes: Box<[u8]>,
        access: Access,
    ) -> Result<MemoryRegion, (Error, Box<[u8]>)> {
        let access = match access.for_region() {
            Ok(access) => access,
            Err(error) => return Err((error, bytes)),
        };
        let len = bytes.len();
        if len == 0 {
            return Err((empty(), bytes));
        }
        let raw = Box::into_raw(bytes);
        let Some(start) = NonNull::new(raw.cast::<u8>()) else {
            unreachable!("a box is not null")
        };
        // SAFETY: the box is ours until after the deregistration; only the raw pointer is kept.
        match unsafe { MemoryRegion::register(pd, start, len, access, Backing::Boxed) } {
            Ok(region) => Ok(region),
            // SAFETY: the pointer came from `Box::into_raw`, and nothing was registered.
            Err(error) => Err((error, unsafe { Box::from_raw(raw) })),
        }
    }

    /// # Safety
    /// As [`ProtectionDomain::register_raw`](crate::ProtectionDomain::register_raw).
    pub(crate) unsafe fn raw(pd: &Arc<PdInner>, start: *mut u8, len: usize, access: Access) -> Result<MemoryRegion> {
        let access = access.for_region()?;
        let start = NonNull::new(start).ok_or_else(|| Error::Invalid {
            what: "region address",
            value: "null".into(),
            limit: "it must point to memory of this process",
        })?;
        // SAFETY: the caller's promise.
        unsafe { MemoryRegion::register(pd, start, len, access, Backing::Caller) }
    }

    /// # Safety
    /// `[start, start + len)` stays valid until the region is dropped and is accessed only by atomics or raw copies.
    unsafe fn register(
        pd: &Arc<PdInner>,
        start: NonNull<u8>,
        len: usize,
        access: Access,
        backing: Backing,
    ) -> Result<MemoryRegion> {
        // SAFETY: the caller's promise; `RegionInner::drop` deregisters before the memory goes.
        let memory = unsafe { RegionMemory::new(start.as_ptr(), len) }.ok_or_else(|| Error::Invalid {
            what: "region range",
            value: format!("{:#x}+{len}", start.addr()),
            limit: "at least one byte, not beyond the address space",
        })?;
        let (lkey, rkey) = pd.register(memory, access)?;
        let inner = RegionInner {
            pd: Arc::clone(pd),
            start,
            len,
            lkey,
            rkey,
            access,
            backing,
        };
        Ok(MemoryRegion { inner: Arc::new(inner) })
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region has at least one byte")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Address of the first byte, as peers use it.
    pub fn addr(&self) -> u64 {
        self.inner.start.addr().get() as u64
    }

    /// The first byte. Accesses through this pointer must allow for peers that write at the same time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.start.as_ptr()
    }

    /// Key for local pieces.
    pub fn lkey(&self) -> u32 {
        self.inner.lkey
    }

    /// Key for peers.
    pub fn rkey(&self) -> u32 {
        self.inner.rkey
    }

    /// The flags it was registered with.
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// What a peer needs in order to write into it.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            addr: self.addr(),
            len: self.inner.len as u64,
            rkey: self.inner.rkey,
        }
    }

    /// A part of the region, for the local side of a write. It borrows the region; a posted write keeps the region
    /// registered by itself until it has completed.
    ///
    /// ```compile_fail
    /// # fn f(region: mrc_verbs::MemoryRegion) {
    /// let piece = region.slice(0..64).unwrap();
    /// drop(region);
    /// let length = piece.len(); // the region is gone
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRegion`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<RegionSlice<'_>> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.inner.len,
        };
        let len = end.checked_sub(start).ok_or(self.outside(start, 0))?;
        self.check(start, len)?;
        let length = u32::try_from(len).map_err(|_| Error::Invalid {
            what: "slice length",
            value: len.to_string(),
            limit: "a piece of a write has less than 4 GiB",
        })?;
        Ok(RegionSlice {
            region: self,
            offset: start,
            length,
        })
    }

    /// Copies `bytes` into the region at `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`].
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        // SAFETY: inside the region by the check; peers and other threads access it atomically or from outside.
        unsafe { copy::write(self.at(offset), bytes) };
        Ok(())
    }

    /// Copies from the region at `offset` into `bytes`.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`].
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        // SAFETY: as in `write_at`.
        unsafe { copy::read(self.at(offset), bytes) };
        Ok(())
    }

    /// A copy of `[offset, offset + len)`.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`].
    pub fn to_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        self.check(offset, len)?;
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Sets `[offset, offset + len)` to `byte`.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`].
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result<()> {
        self.check(offset, len)?;
        let piece = [byte; 4096];
        for at in (0..len).step_by(piece.len()) {
            self.write_at(offset + at, &piece[..piece.len().min(len - at)])?;
        }
        Ok(())
    }

    /// Ends the registration and gives the box back that [`register_box`](crate::ProtectionDomain::register_box) took.
    ///
    /// # Errors
    /// The region itself, if it was not made from a box, or if a clone or a posted write still needs it.
    pub fn into_box(self) -> std::result::Result<Box<[u8]>, MemoryRegion> {
        if !matches!(self.inner.backing, Backing::Boxed) {
            return Err(self);
        }
        let mut inner = Arc::try_unwrap(self.inner).map_err(|inner| MemoryRegion { inner })?;
        let raw = std::ptr::slice_from_raw_parts_mut(inner.start.as_ptr(), inner.len);
        inner.backing = Backing::Caller;
        drop(inner);
        // SAFETY: the pointer and length came from `Box::into_raw`; the region is deregistered, so nobody else writes, and
        // its drop left the memory alone.
        Ok(unsafe { Box::from_raw(raw) })
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.inner.start.as_ptr().wrapping_add(offset)
    }

    fn outside(&self, offset: usize, len: usize) -> Error {
        Error::OutOfRegion {
            offset,
            len,
            region: self.inner.len,
        }
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.inner.len => Ok(()),
            _ => Err(self.outside(offset, len)),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<RegionInner> {
        &self.inner
    }
}

macro_rules! words {
    ($($word:ty, $atomic:ty, $load:ident, $store:ident;)*) => {
        impl MemoryRegion {
            $(
                #[doc = concat!("Reads an aligned `", stringify!($word), "` whole; what a peer or thread wrote before it is seen as well.")]
                ///
                /// # Errors
                /// [`Error::OutOfRegion`]; [`Error::Invalid`] if the address is not aligned.
                pub fn $load(&self, offset: usize) -> Result<$word> {
                    Ok(self.word::<$atomic>(offset, size_of::<$word>())?.load(Ordering::Acquire))
                }

                #[doc = concat!("Writes an aligned `", stringify!($word), "` whole.")]
                ///
                /// # Errors
                /// [`Error::OutOfRegion`]; [`Error::Invalid`] if the address is not aligned.
                pub fn $store(&self, offset: usize, value: $word) -> Result<()> {
                    self.word::<$atomic>(offset, size_of::<$word>())?.store(value, Ordering::Release);
                    Ok(())
                }
            )*
        }
    };
}

words! {
    u8, AtomicU8, load_u8, store_u8;
    u16, AtomicU16, load_u16, store_u16;
    u32, AtomicU32, load_u32, store_u32;
    u64, AtomicU64, load_u64, store_u64;
}

impl MemoryRegion {
    /// An atomic view of one word. `A` is one of the standard atomics, of `size` bytes.
    fn word<A>(&self, offset: usize, size: usize) -> Result<&A> {
        self.check(offset, size)?;
        let at = self.at(offset).cast::<A>();
        if !at.is_aligned() {
            return Err(Error::Invalid {
                what: "word address",
                value: format!("{at:p}"),
                limit: "it must be a multiple of the word's size",
            });
        }
        // SAFETY: inside the region, aligned, of the layout of the plain integer, and every integer is a value. All other
        // accesses are atomic or come from outside the language.
        Ok(unsafe { &*at })
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RegionInner {
            start,
            len,
            lkey,
            rkey,
            access,
            ..
        } = &*self.inner;
        write!(
            f,
            "MemoryRegion({start:p}+{len}, lkey {lkey:#x}, rkey {rkey:#x}, {access:?})"
        )
    }
}

impl RegionInner {
    pub(crate) fn pd(&self) -> &Arc<PdInner> {
        &self.pd
    }
}

impl Drop for RegionInner {
    fn drop(&mut self) {
        self.pd.deregister(self.lkey);
        if matches!(self.backing, Backing::Boxed) {
            let raw = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
            // SAFETY: pointer and length came from `Box::into_raw`; the engine no longer knows the memory.
            drop(unsafe { Box::from_raw(raw) });
        }
    }
}

/// A part of a [`MemoryRegion`], the local piece of a write.
#[derive(Clone, Copy, Debug)]
pub struct RegionSlice<'r> {
    region: &'r MemoryRegion,
    offset: usize,
    length: u32,
}

impl<'r> RegionSlice<'r> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// True for a piece of no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The region that it is a part of.
    pub fn region(&self) -> &'r MemoryRegion {
        self.region
    }

    /// Its first byte, as a peer addresses it.
    pub fn remote(&self) -> RemoteAddress {
        self.region.remote().at(self.offset as u64)
    }

    pub(crate) fn sge(&self) -> Sge {
        Sge {
            addr: self.region.addr() + self.offset as u64,
            length: self.length,
            lkey: self.region.lkey(),
        }
    }
}

impl<'r> From<&'r MemoryRegion> for RegionSlice<'r> {
    /// The whole region; of a region of 4 GiB and more its first 4 GiB less one byte.
    fn from(region: &'r MemoryRegion) -> RegionSlice<'r> {
        RegionSlice {
            region,
            offset: 0,
            length: u32::try_from(region.len()).unwrap_or(u32::MAX),
        }
    }
}

fn empty() -> Error {
    Error::Invalid {
        what: "region length",
        value: "0".into(),
        limit: "at least one byte",
    }
}
