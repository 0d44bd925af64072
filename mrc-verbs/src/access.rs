//! Access flags of regions and queue pairs.

use bitflags::bitflags;

use crate::error::{Error, Result};

bitflags! {
    /// What may be done to a memory region, or through a queue pair. Values are those of libibverbs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// This host's engine may write the region. Required for [`Access::REMOTE_WRITE`].
        const LOCAL_WRITE = 1;
        /// Peers may write the region.
        const REMOTE_WRITE = 1 << 1;
        /// Accepted without effect: MRC has no reads.
        const REMOTE_READ = 1 << 2;
        /// Accepted without effect: MRC has no atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Accepted without effect.
        const MW_BIND = 1 << 4;
        /// Refused: addresses always start at the region's own address.
        const ZERO_BASED = 1 << 5;
        /// Refused: there is no on-demand paging.
        const ON_DEMAND = 1 << 6;
        /// Accepted without effect.
        const HUGETLB = 1 << 7;
        /// Accepted without effect: placement is relaxed anyway. First of the bits that a provider may ignore.
        const RELAXED_ORDERING = 1 << 20;

        // Bits from other versions of the interface are kept and judged by `for_region`.
        const _ = !0;
    }
}

/// Bits from here on are optional: a provider that does not know one ignores it.
const OPTIONAL_FROM: u32 = 1 << 20;
const OPTIONAL_TO: u32 = 1 << 29;

impl Access {
    /// What a region to be written by peers needs.
    pub const PEER_WRITABLE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

    /// Checks the flags for a registration (api.md §1.5).
    pub(crate) fn for_region(self) -> Result<Access> {
        let optional = (OPTIONAL_TO | (OPTIONAL_TO - 1)) & !(OPTIONAL_FROM - 1);
        let known = 0xff | optional;
        if self.intersects(Access::ZERO_BASED | Access::ON_DEMAND) {
            return Err(Error::Unsupported {
                what: "access flags ZERO_BASED and ON_DEMAND",
                remedy: "register without them; addresses of a region are those of the process",
            });
        }
        if self.bits() & !known != 0 {
            return Err(Error::Invalid {
                what: "access flags",
                value: format!("{:#x}", self.bits()),
                limit: "the bits of `Access`",
            });
        }
        if self.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) && !self.contains(Access::LOCAL_WRITE) {
            return Err(Error::Invalid {
                what: "access flags",
                value: format!("{self:?}"),
                limit: "REMOTE_WRITE needs LOCAL_WRITE as well",
            });
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_needs_local_write() {
        assert!(Access::REMOTE_WRITE.for_region().is_err());
        assert!(Access::REMOTE_ATOMIC.for_region().is_err());
        assert!(Access::PEER_WRITABLE.for_region().is_ok());
        assert!(Access::empty().for_region().is_ok());
    }

    #[test]
    fn flags_without_effect_and_unknown_optional_bits_are_accepted_others_refused() {
        for ok in [4, 0x10, 0x80, 1 << 20, 1 << 29] {
            assert!(Access::from_bits_retain(ok).for_region().is_ok(), "{ok:#x}");
        }
        for bad in [0x20, 0x40, 0x100, 1 << 19, 1 << 30] {
            assert!(Access::from_bits_retain(bad).for_region().is_err(), "{bad:#x}");
        }
    }
}
