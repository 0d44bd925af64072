//! Page-aligned anonymous memory for regions that own their bytes.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// An anonymous private mapping, zeroed, page aligned, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: NonZeroUsize,
}

// SAFETY: a mapping is plain memory without thread affinity; what is done to its bytes is the user's affair.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives only the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` bytes, all of them present: a peer's write to a page that is not would cost the engine's thread a page fault.
    pub(crate) fn new(len: NonZeroUsize) -> nix::Result<Mapping> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                None,
                len,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE,
            )?
        };
        Ok(Mapping {
            start: start.cast(),
            len,
        })
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; the region was deregistered first, so nobody uses it.
        let unmapped = unsafe { munmap(self.start.cast(), self.len.get()) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping failed: {unmapped:?}");
    }
}
