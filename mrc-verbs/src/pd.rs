//! Protection domains: regions and queue pairs meet only inside one.

use std::sync::Arc;

use mrc_dataplane::region::{PdId, RegionMemory};

use crate::access::Access;
use crate::device::{DeviceContext, DeviceInner};
use crate::error::{Error, Result};
use crate::memory::MemoryRegion;

/// A protection domain of a device.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<PdInner>,
}

#[derive(Debug)]
pub(crate) struct PdInner {
    device: Arc<DeviceInner>,
    id: PdId,
}

impl ProtectionDomain {
    /// A new, empty domain.
    ///
    /// # Errors
    /// When the engine has no more of them, or has ended.
    pub fn new(device: &DeviceContext) -> Result<ProtectionDomain> {
        let device = Arc::clone(device.inner());
        let id = device.create_pd()?;
        Ok(ProtectionDomain {
            inner: Arc::new(PdInner { device, id }),
        })
    }

    /// Allocates `len` zeroed bytes, page aligned, and registers them. The safe way to have a region.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no bytes or flags that do not go together, [`Error::Memory`].
    pub fn register_owned(&self, len: usize, access: Access) -> Result<MemoryRegion> {
        MemoryRegion::owned(&self.inner, len, access)
    }

    /// Registers the bytes of a box (or of a `Vec` by `into_boxed_slice`), which the region owns from now on;
    /// [`MemoryRegion::into_box`] gives them back.
    ///
    /// There is no safe registration of borrowed memory: a region that is leaked would outlive the borrow.
    ///
    /// # Errors
    /// As [`register_owned`](Self::register_owned), with the box.
    pub fn register_box(&self, bytes: Box<[u8]>, access: Access) -> Result<MemoryRegion, (Error, Box<[u8]>)> {
        MemoryRegion::boxed(&self.inner, bytes, access)
    }

    /// Registers any memory of this process.
    ///
    /// # Safety
    /// Until the region and all its clones are dropped and no write that uses it is outstanding,
    /// `[start, start + len)` must stay mapped (readable, and writable with [`Access::LOCAL_WRITE`]), and nobody may hold a
    /// reference to it: all accesses go through raw pointers, atomics, or the region's own methods.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a null or empty range or flags that do not go together.
    #[expect(unsafe_code, reason = "the caller vouches for the memory")]
    pub unsafe fn register_raw(&self, start: *mut u8, len: usize, access: Access) -> Result<MemoryRegion> {
        // SAFETY: the caller's promise is the same.
        unsafe { MemoryRegion::raw(&self.inner, start, len, access) }
    }

    pub(crate) fn inner(&self) -> &Arc<PdInner> {
        &self.inner
    }
}

impl PdInner {
    pub(crate) fn id(&self) -> PdId {
        self.id
    }

    pub(crate) fn device(&self) -> &Arc<DeviceInner> {
        &self.device
    }

    pub(crate) fn register(&self, memory: RegionMemory, access: Access) -> Result<(u32, u32)> {
        self.device.register(self.id, memory, access)
    }

    pub(crate) fn deregister(&self, lkey: u32) {
        self.device.deregister(lkey);
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        self.device.destroy_pd(self.id);
    }
}
