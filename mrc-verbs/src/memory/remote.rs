//! Memory of a peer, as this side addresses it.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A region of a peer: what the peer tells us so that we may write into it. Serialisable; travels beside
/// [`ConnectionInfo`](crate::ConnectionInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemoteRegion {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Key.
    pub rkey: u32,
}

/// Where a write goes at the peer. Its range is checked by the peer, not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteAddress {
    /// Address of the first byte.
    pub addr: u64,
    /// Key of the region.
    pub rkey: u32,
}

impl RemoteRegion {
    /// The part `[offset, offset + len)`.
    ///
    /// # Errors
    /// [`Error::OutOfRegion`] if it reaches outside.
    pub fn slice(self, offset: u64, len: u64) -> Result<RemoteRegion> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(RemoteRegion {
                addr: self.addr.wrapping_add(offset),
                len,
                ..self
            }),
            _ => Err(Error::OutOfRegion {
                offset: offset as usize,
                len: len as usize,
                region: self.len as usize,
            }),
        }
    }

    /// The address `offset` bytes behind the start, unchecked.
    pub fn at(self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            addr: self.addr.wrapping_add(offset),
            rkey: self.rkey,
        }
    }
}

impl From<RemoteRegion> for RemoteAddress {
    fn from(region: RemoteRegion) -> RemoteAddress {
        region.at(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_inside() {
        let region = RemoteRegion {
            addr: 1000,
            len: 100,
            rkey: 7,
        };
        assert_eq!(
            region.slice(10, 20).unwrap(),
            RemoteRegion {
                addr: 1010,
                len: 20,
                rkey: 7
            }
        );
        assert!(region.slice(100, 0).is_ok());
        for (offset, len) in [(0, 101), (101, 0), (50, 51), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(region.slice(offset, len).is_err(), "{offset}+{len}");
        }
    }
}
