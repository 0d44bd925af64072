//! Memory regions: memory that the engine may read and that peers may be allowed to write.

mod copy;
mod mapping;
mod region;
mod remote;

pub use region::{MemoryRegion, RegionSlice};
pub use remote::{RemoteAddress, RemoteRegion};

pub(crate) use region::RegionInner;
