//! The memory of a host: regions in one address space, with guard bands between them that nobody may touch.

use crate::meter::unmetered;
use mrc_protocol::{AccessError, Memory};
use mrc_wire::Payload;
use std::collections::BTreeMap;

/// Address of the first byte of the arena in the simulated address space.
const BASE_VA: u64 = 0x0000_7f00_1234_0000;
/// What unwritten memory looks like.
const BACKGROUND: u8 = 0xA5;

/// A registered region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Remote key.
    pub rkey: u32,
    /// First address.
    pub va: u64,
    /// Length in bytes.
    pub len: u64,
    /// Whether peers may write.
    pub remote_write: bool,
}

/// A host's memory, and the record of what the protocol does to it.
#[derive(Debug)]
pub struct HostMemory {
    arena: Vec<u8>,
    regions: Vec<Region>,
    by_rkey: BTreeMap<u32, usize>,
    /// Accesses since the last [`HostMemory::take_accesses`], for the oracles.
    accesses: Vec<Access>,
    /// A test may spoil the next placement, to see that the oracles notice.
    pub spoil_next: Option<Spoil>,
    /// What it says instead of granting an access.
    pub trouble: Option<Trouble>,
    /// A test may have the protocol not hear that, to see that the oracles notice.
    pub unheard: bool,
}

/// What a memory says instead of granting an access (protocol.md §6.3 step 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// When.
    pub when: When,
    /// What.
    pub error: AccessError,
}

/// When a memory says that it cannot do what it permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// When it is asked.
    Asked,
    /// When data is to be written.
    Written,
    /// When half of it has been written.
    WrittenInPart,
}

impl When {
    /// Whether it says so of an access: one that places data, or one that asks.
    fn is_at(self, placed: bool) -> bool {
        placed == (self != When::Asked)
    }
}

/// How a test may spoil a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoil {
    /// A wrong byte.
    Data,
    /// A byte of a guard band changes too.
    Stray,
}

/// One access that the protocol asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Placed, in contrast to checked.
    pub placed: bool,
    /// Region key.
    pub rkey: u32,
    /// First address.
    pub va: u64,
    /// Bytes.
    pub len: u64,
    /// Whether the region permitted it, and nothing stood in the way.
    pub granted: bool,
    /// What stood in the way of what the region permitted.
    pub trouble: Option<AccessError>,
}

impl HostMemory {
    /// Memory without regions.
    pub fn new() -> HostMemory {
        HostMemory {
            arena: Vec::new(),
            regions: Vec::new(),
            by_rkey: BTreeMap::new(),
            accesses: Vec::new(),
            spoil_next: None,
            trouble: None,
            unheard: false,
        }
    }

    /// Adds a region of `len` bytes behind `guard` bytes of nothing.
    pub fn add_region(&mut self, rkey: u32, len: u64, guard: u64, remote_write: bool) -> Region {
        let va = BASE_VA + self.arena.len() as u64 + guard;
        let region = Region {
            rkey,
            va,
            len,
            remote_write,
        };
        self.arena
            .resize(self.arena.len() + (2 * guard + len) as usize, BACKGROUND);
        // Where two have the same key, the first one has it.
        self.by_rkey.entry(rkey).or_insert(self.regions.len());
        self.regions.push(region);
        region
    }

    /// Makes a stretch look unwritten again.
    pub fn clear(&mut self, va: u64, len: u64) {
        let start = (va - BASE_VA) as usize;
        self.arena[start..start + len as usize].fill(BACKGROUND);
    }

    /// The regions in the order of creation.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The bytes of `[va, va + len)`; nothing if they are not inside the arena.
    pub fn bytes(&self, va: u64, len: u64) -> Option<&[u8]> {
        let start = usize::try_from(va.checked_sub(BASE_VA)?).ok()?;
        self.arena.get(start..start.checked_add(usize::try_from(len).ok()?)?)
    }

    /// The accesses since the last call.
    pub fn take_accesses(&mut self, into: &mut Vec<Access>) {
        into.clear();
        into.append(&mut self.accesses);
    }

    /// Compares all memory with what it should be: background, and the bytes that `written` yields as (address, bytes). In
    /// the stretches of `loose`, as (address, length), anything may stand beneath those. Returns the first address that differs.
    pub fn first_difference<'a>(
        &self,
        loose: impl Iterator<Item = (u64, u64)>,
        written: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Option<u64> {
        let mut expected = vec![BACKGROUND; self.arena.len()];
        for (va, len) in loose {
            let start = (va - BASE_VA) as usize;
            let stretch = start..start + len as usize;
            expected[stretch.clone()].copy_from_slice(&self.arena[stretch]);
        }
        for (va, bytes) in written {
            let start = (va - BASE_VA) as usize;
            expected[start..start + bytes.len()].copy_from_slice(bytes);
        }
        if expected == self.arena {
            return None;
        }
        let position = expected
            .iter()
            .zip(&self.arena)
            .position(|(expected, found)| expected != found);
        position.map(|position| BASE_VA + position as u64)
    }

    fn permits(&self, rkey: u32, va: u64, len: u64) -> bool {
        let region = self.by_rkey.get(&rkey).map(|at| &self.regions[*at]);
        region.is_some_and(|region| {
            let inside = va.checked_sub(region.va).and_then(|offset| offset.checked_add(len));
            region.remote_write && inside.is_some_and(|end| end <= region.len)
        })
    }

    fn record(&mut self, placed: bool, rkey: u32, va: u64, len: u64) -> Result<(), AccessError> {
        let permitted = self.permits(rkey, va, len);
        let trouble = self.trouble.filter(|trouble| permitted && trouble.when.is_at(placed));
        let trouble = trouble.map(|trouble| trouble.error);
        let access = Access {
            placed,
            rkey,
            va,
            len,
            granted: permitted && trouble.is_none(),
            trouble,
        };
        unmetered(|| self.accesses.push(access));
        match trouble {
            Some(error) if !self.unheard => Err(error),
            _ if permitted => Ok(()),
            _ => Err(AccessError::Bounds),
        }
    }

    /// Writes the first half of what is permitted.
    fn place_half(&mut self, va: u64, payload: &Payload<'_>) {
        let start = (va - BASE_VA) as usize;
        let target = &mut self.arena[start..start + payload.len()];
        unmetered(|| {
            let before = target[payload.len() / 2..].to_vec();
            payload.copy_to(target);
            target[payload.len() / 2..].copy_from_slice(&before);
        });
    }
}

impl Default for HostMemory {
    fn default() -> Self {
        HostMemory::new()
    }
}

impl Memory for HostMemory {
    fn check(&mut self, rkey: u32, va: u64, len: u64) -> Result<(), AccessError> {
        self.record(false, rkey, va, len)
    }

    fn place(&mut self, rkey: u32, va: u64, payload: &Payload<'_>) -> Result<(), AccessError> {
        if let Err(error) = self.record(true, rkey, va, payload.len() as u64) {
            if self
                .trouble
                .is_some_and(|trouble| trouble.when == When::WrittenInPart && trouble.error == error)
            {
                self.place_half(va, payload);
            }
            return Err(error);
        }
        let start = (va - BASE_VA) as usize;
        let target = &mut self.arena[start..start + payload.len()];
        payload.copy_to(target);
        match self.spoil_next.take() {
            Some(Spoil::Data) if !payload.is_empty() => target[0] ^= 0x40,
            Some(Spoil::Stray) => self.arena[0] ^= 0x40,
            kept => self.spoil_next = kept,
        }
        Ok(())
    }
}
