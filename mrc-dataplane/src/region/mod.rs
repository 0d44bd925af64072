//! Memory regions: what peers may write to and sends may read from.
//!
//! Each engine thread has its own table, changed by commands only, so a look-up takes no lock and a region that a command has
//! removed is not in use: threads execute commands between batches. Keys are drawn from the operating system's generator over
//! all 32 bits (protocol.md §14).

#![expect(
    unsafe_code,
    reason = "registered memory is shared with the application and with peers"
)]

pub mod copy;
mod key;

pub(crate) use key::{KeyMap, random_bytes, random_u32};

/// A protection domain: queue pairs and regions meet only inside one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

bitflags::bitflags! {
    /// What a region may be used for; values as `ibv_access_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Access: u32 {
        /// The host may write (not needed for sending).
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 2;
    }
}

/// Memory of the application, by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionMemory {
    addr: u64,
    len: u64,
}

impl RegionMemory {
    /// `len` bytes at `addr`, which must not be null, empty, or reach beyond the address space: then `None`.
    ///
    /// # Safety
    /// The bytes are and stay valid for reads and writes through raw pointers until the region is deregistered, and no
    /// reference to them is held across anything that lets the engine run: peers write them at any time.
    pub unsafe fn new(addr: *mut u8, len: usize) -> Option<Self> {
        let start = addr.expose_provenance();
        if addr.is_null() || len == 0 || isize::try_from(len).is_err() || start.checked_add(len).is_none() {
            return None;
        }
        Some(Self {
            addr: start as u64,
            len: len as u64,
        })
    }

    /// The first byte.
    pub fn addr(self) -> u64 {
        self.addr
    }

    /// Number of bytes.
    pub fn len(self) -> u64 {
        self.len
    }

    /// Never: a region has at least one byte.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The piece `[va, va + len)`, if it lies inside.
    fn piece(self, va: u64, len: u64) -> Option<*mut u8> {
        let offset = va.checked_sub(self.addr)?;
        let room = self.len.checked_sub(offset)?;
        (len <= room).then(|| std::ptr::with_exposed_provenance_mut(va as usize))
    }
}

/// A registered region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) pd: PdId,
    pub(crate) access: Access,
    pub(crate) memory: RegionMemory,
}

/// Why an access was refused. Peers are told one code for all of them (protocol.md §14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegionFault {
    /// No region has this key.
    #[error("no region has this key")]
    UnknownKey,
    /// The region belongs to another protection domain.
    #[error("the region belongs to another protection domain")]
    OtherDomain,
    /// The region does not permit this kind of access.
    #[error("the region does not permit this access")]
    NotPermitted,
    /// The range is not inside the region.
    #[error("the range reaches outside the region")]
    OutOfBounds,
}

/// The regions that one engine thread knows.
#[derive(Default)]
pub(crate) struct RegionTable {
    by_rkey: KeyMap<Region>,
    by_lkey: KeyMap<Region>,
}

impl RegionTable {
    pub(crate) fn insert(&mut self, region: Region) {
        self.by_rkey.insert(region.rkey, region);
        self.by_lkey.insert(region.lkey, region);
    }

    pub(crate) fn remove(&mut self, lkey: u32) {
        if let Some(region) = self.by_lkey.remove(&lkey) {
            self.by_rkey.remove(&region.rkey);
        }
    }

    /// May a peer of a queue pair in `pd` write `[va, va + len)`? (protocol.md §6.3 step 4)
    pub(crate) fn check_remote_write(&self, pd: PdId, rkey: u32, va: u64, len: u64) -> Result<(), RegionFault> {
        self.remote_piece(pd, rkey, va, len).map(|_| ())
    }

    /// Writes a peer's data, piece after piece. All or nothing is written.
    pub(crate) fn write(&self, pd: PdId, rkey: u32, va: u64, pieces: [&[u8]; 2]) -> Result<(), RegionFault> {
        let len = pieces[0].len() + pieces[1].len();
        let to = self.remote_piece(pd, rkey, va, len as u64)?;
        // SAFETY: `to` is valid for `len` bytes: inside a region that is registered (removing it waits for this thread), whose
        // owner promised validity. Frames do not lie in registered memory.
        unsafe {
            copy::store(to, pieces[0]);
            if !pieces[1].is_empty() {
                copy::store(to.add(pieces[0].len()), pieces[1]);
            }
        }
        Ok(())
    }

    fn remote_piece(&self, pd: PdId, rkey: u32, va: u64, len: u64) -> Result<*mut u8, RegionFault> {
        let region = self.by_rkey.get(&rkey).ok_or(RegionFault::UnknownKey)?;
        if region.pd != pd {
            return Err(RegionFault::OtherDomain);
        }
        if !region.access.contains(Access::REMOTE_WRITE) {
            return Err(RegionFault::NotPermitted);
        }
        region.memory.piece(va, len).ok_or(RegionFault::OutOfBounds)
    }

    /// The memory of one piece of a send request.
    pub(crate) fn local(&self, pd: PdId, lkey: u32, addr: u64, len: u64) -> Result<LocalPiece<'_>, RegionFault> {
        let region = self.by_lkey.get(&lkey).ok_or(RegionFault::UnknownKey)?;
        if region.pd != pd {
            return Err(RegionFault::OtherDomain);
        }
        let start = region.memory.piece(addr, len).ok_or(RegionFault::OutOfBounds)?;
        Ok(LocalPiece {
            start,
            len: len as usize,
            _table: std::marker::PhantomData,
        })
    }
}

/// Memory that a send reads; lives while the table is not changed.
#[derive(Clone, Copy)]
pub(crate) struct LocalPiece<'a> {
    start: *const u8,
    len: usize,
    _table: std::marker::PhantomData<&'a RegionTable>,
}

impl LocalPiece<'_> {
    /// Copies `[offset, offset + to.len())` of the piece; what lies behind its end is not copied. Returns the bytes copied.
    pub(crate) fn read(self, offset: usize, to: &mut [u8]) -> usize {
        let len = to.len().min(self.len.saturating_sub(offset));
        // SAFETY: inside a registered region by `RegionTable::local` and the line above; `to` is private memory of the engine.
        unsafe { copy::load(self.start.add(offset.min(self.len)), &mut to[..len]) };
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);

    fn table(memory: &mut [u8], access: Access) -> RegionTable {
        let mut table = RegionTable::default();
        // SAFETY: the tests touch `memory` only while the table does not.
        let memory = unsafe { RegionMemory::new(memory.as_mut_ptr(), memory.len()) }.unwrap();
        table.insert(Region {
            lkey: 10,
            rkey: 20,
            pd: PD,
            access,
            memory,
        });
        table
    }

    #[test]
    fn a_write_lands_in_both_pieces_and_nowhere_else() {
        let mut memory = [0_u8; 16];
        let va = memory.as_ptr() as u64 + 3;
        table(&mut memory, Access::REMOTE_WRITE)
            .write(PD, 20, va, [b"abc", b"de"])
            .unwrap();
        assert_eq!(&memory, b"\0\0\0abcde\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn what_is_outside_by_one_byte_is_refused() {
        let mut memory = [0_u8; 16];
        let start = memory.as_ptr() as u64;
        let table = table(&mut memory, Access::REMOTE_WRITE);
        let check = |va, len| table.check_remote_write(PD, 20, va, len);
        assert_eq!(check(start, 16), Ok(()));
        assert_eq!(check(start + 16, 0), Ok(()));
        assert_eq!(check(start, 17), Err(RegionFault::OutOfBounds));
        assert_eq!(check(start + 1, 16), Err(RegionFault::OutOfBounds));
        assert_eq!(check(start - 1, 1), Err(RegionFault::OutOfBounds));
        assert_eq!(check(start + 17, 0), Err(RegionFault::OutOfBounds));
        assert_eq!(
            table.write(PD, 20, start + 15, [b"a", b"b"]),
            Err(RegionFault::OutOfBounds)
        );
        assert_eq!(memory, [0; 16]);
    }

    #[test]
    fn sums_that_overflow_are_refused() {
        let mut memory = [0_u8; 16];
        let start = memory.as_ptr() as u64;
        let table = table(&mut memory, Access::REMOTE_WRITE);
        for (va, len) in [
            (u64::MAX, 1),
            (u64::MAX, 2),
            (start, u64::MAX),
            (start + 8, u64::MAX - 4),
            (0, u64::MAX),
        ] {
            assert_eq!(
                table.check_remote_write(PD, 20, va, len),
                Err(RegionFault::OutOfBounds),
                "{va:#x} {len:#x}"
            );
        }
    }

    #[test]
    fn key_domain_and_permission_are_checked() {
        let mut memory = [0_u8; 16];
        let va = memory.as_ptr() as u64;
        let table = table(&mut memory, Access::LOCAL_WRITE);
        assert_eq!(table.check_remote_write(PD, 20, va, 1), Err(RegionFault::NotPermitted));
        assert_eq!(
            table.check_remote_write(PdId(2), 20, va, 1),
            Err(RegionFault::OtherDomain)
        );
        assert_eq!(
            table.check_remote_write(PD, 10, va, 1),
            Err(RegionFault::UnknownKey),
            "an lkey is no rkey"
        );
        assert!(table.local(PD, 10, va, 16).is_ok());
        assert!(table.local(PdId(2), 10, va, 16).is_err());
        assert!(table.local(PD, 20, va, 16).is_err());
        assert!(table.local(PD, 10, va + 1, 16).is_err());
    }

    #[test]
    fn a_removed_region_is_gone_under_both_keys() {
        let mut memory = [0_u8; 16];
        let va = memory.as_ptr() as u64;
        let mut table = table(&mut memory, Access::REMOTE_WRITE);
        table.remove(10);
        assert_eq!(table.check_remote_write(PD, 20, va, 1), Err(RegionFault::UnknownKey));
        assert!(table.local(PD, 10, va, 1).is_err());
    }

    #[test]
    fn impossible_memory_is_refused() {
        let mut byte = 0_u8;
        // SAFETY: nothing is registered.
        unsafe {
            assert!(RegionMemory::new(std::ptr::null_mut(), 8).is_none());
            assert!(RegionMemory::new(&raw mut byte, 0).is_none());
            assert!(RegionMemory::new(&raw mut byte, usize::MAX).is_none());
        }
    }

    #[test]
    fn reads_stop_at_the_end_of_the_piece() {
        let mut memory = *b"0123456789";
        let va = memory.as_ptr() as u64;
        let table = table(&mut memory, Access::empty());
        let piece = table.local(PD, 10, va + 2, 5).unwrap();
        let mut to = [b'x'; 8];
        assert_eq!(piece.read(1, &mut to), 4);
        assert_eq!(&to, b"3456xxxx");
        assert_eq!(piece.read(9, &mut to), 0);
    }
}
