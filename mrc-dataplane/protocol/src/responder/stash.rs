//! Immediates that wait for their turn (protocol.md §6.6).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use mrc_wire::Psn;

use crate::bitmap::ring_size;

/// What a WriteIMM delivers besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Immediate {
    pub(super) imm: [u8; 4],
    pub(super) solicited: bool,
    pub(super) dmalen: u32,
}

const NONE: u16 = u16::MAX;

/// Immediates by PSN: found in O(1), and exactly as many as were offered.
pub(super) struct Stash {
    /// Entry of each PSN of the window.
    places: Box<[u16]>,
    mask: u32,
    entries: Box<[Immediate]>,
    free: Vec<u16>,
}

impl Stash {
    pub(super) fn new(window: u32, max_wimm: u16) -> Self {
        let size = ring_size(window);
        // An index is never NONE; and no more can wait than the window has PSNs.
        let capacity = u32::from(max_wimm).min(window).min(u32::from(NONE)) as u16;
        Self {
            places: vec![NONE; size as usize].into_boxed_slice(),
            mask: size - 1,
            entries: vec![Immediate::default(); usize::from(capacity)].into_boxed_slice(),
            free: (0..capacity).collect(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.places.fill(NONE);
        self.free.clear();
        self.free.extend(0..self.entries.len() as u16);
    }

    /// May one more wait, of at most so many?
    pub(super) fn has_room(&self, max_wimm: u16) -> bool {
        !self.free.is_empty() && self.entries.len() - self.free.len() < usize::from(max_wimm)
    }

    /// There must be room.
    pub(super) fn put(&mut self, psn: Psn, immediate: Immediate) {
        if let Some(entry) = self.free.pop() {
            self.entries[usize::from(entry)] = immediate;
            self.places[(psn.get() & self.mask) as usize] = entry;
        }
    }

    pub(super) fn take(&mut self, psn: Psn) -> Option<Immediate> {
        let place = &mut self.places[(psn.get() & self.mask) as usize];
        let entry = core::mem::replace(place, NONE);
        if entry == NONE {
            return None;
        }
        self.free.push(entry);
        Some(self.entries[usize::from(entry)])
    }
}
