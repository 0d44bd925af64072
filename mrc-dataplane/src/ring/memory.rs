//! The bytes under a ring, and the only place that touches them.
//!
//! A ring is a few cache lines of 32-bit words (indices, flags) followed by slots. Today it is a plain allocation; the layout is
//! made for memory that two processes map, so nothing in it is a pointer and everything read from it is plain old data.

#![expect(
    unsafe_code,
    reason = "rings are raw memory that two threads, later two processes, share"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use super::entry::Pod;

/// Words that different sides write are this far apart: two cache lines, because neighbours are prefetched in pairs.
pub(super) const LINE: usize = 128;

/// Zeroed memory, aligned to [`LINE`].
pub(super) struct RingMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned by this value and freed with it; access goes through atomics or through the unsafe slot functions,
// whose callers answer for the absence of races.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// `len` zero bytes, rounded up to whole lines.
    pub(super) fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(LINE);
        let layout = Layout::from_size_align(len, LINE).expect("a ring is far smaller than the address space");
        // SAFETY: the layout is not empty.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        Self { start, layout }
    }

    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    /// The word at `offset`, which is a multiple of 4.
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= self.len(),
            "a ring's words lie inside it"
        );
        // SAFETY: in bounds and aligned (just checked); all words are only ever accessed as atomics, and zero is a valid value.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    fn checked(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len() && len <= self.len() - offset,
            "a ring's slots lie inside it"
        );
        // SAFETY: in bounds, just checked.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Copies a value into a slot.
    ///
    /// # Safety
    /// The caller owns the bytes: by the indices of the ring no other thread reads or writes them until they are published.
    pub(super) unsafe fn store<T: Pod>(&self, offset: usize, value: T) {
        let to = self.checked(offset, size_of::<T>());
        // SAFETY: in bounds; unaligned writes are allowed for; exclusive by the caller's promise.
        unsafe { to.cast::<T>().write_unaligned(value) }
    }

    /// Copies a value out of a slot.
    ///
    /// # Safety
    /// The caller owns the bytes: the other side has published them and does not touch them until they are handed back.
    pub(super) unsafe fn load<T: Pod>(&self, offset: usize) -> T {
        let from = self.checked(offset, size_of::<T>());
        // SAFETY: in bounds; any bit pattern is a `T`; not written meanwhile by the caller's promise.
        unsafe { from.cast::<T>().read_unaligned() }
    }

    /// Copies bytes into a slot.
    ///
    /// # Safety
    /// As for [`RingMemory::store`].
    pub(super) unsafe fn store_bytes(&self, offset: usize, bytes: &[u8]) {
        let to = self.checked(offset, bytes.len());
        // SAFETY: in bounds; the source is a live slice; a private ring does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies bytes out of a slot.
    ///
    /// # Safety
    /// As for [`RingMemory::load`].
    pub(super) unsafe fn load_bytes(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.checked(offset, bytes.len());
        // SAFETY: in bounds; the destination is a live exclusive slice.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::RecvEntry;
    use super::*;

    #[test]
    fn memory_is_zero_and_aligned() {
        let memory = RingMemory::new(1000);
        assert_eq!(memory.len(), 1024);
        assert!((memory.start.as_ptr() as usize).is_multiple_of(LINE));
        // SAFETY: nobody else has this memory.
        assert_eq!(unsafe { memory.load::<RecvEntry>(1016) }, RecvEntry { wr_id: 0 });
    }

    #[test]
    #[should_panic(expected = "inside it")]
    fn a_slot_beyond_the_end_is_refused() {
        let memory = RingMemory::new(128);
        // SAFETY: nobody else has this memory.
        unsafe { memory.store(124, RecvEntry { wr_id: 1 }) }
    }
}
