//! Bits indexed by PSN.

use alloc::boxed::Box;
use alloc::vec;

use mrc_wire::Psn;

/// A ring of one bit per PSN. Its size is a power of two that divides 2^24, so that PSNs wrap without a seam; it speaks
/// of any window of at most that many PSNs, and its owner knows which.
#[derive(Clone, Debug)]
pub(crate) struct BitRing {
    words: Box<[u64]>,
    mask: u32,
}

impl BitRing {
    /// Room for at least `psns` PSNs (at most 2^23), all clear.
    pub(crate) fn new(psns: u32) -> Self {
        let bits = ring_size(psns);
        Self {
            words: vec![0; bits as usize / 64].into_boxed_slice(),
            mask: bits - 1,
        }
    }

    fn locate(&self, psn: Psn) -> (usize, u64) {
        let index = psn.get() & self.mask;
        ((index / 64) as usize, 1 << (index % 64))
    }

    pub(crate) fn get(&self, psn: Psn) -> bool {
        let (word, bit) = self.locate(psn);
        self.words[word] & bit != 0
    }

    /// Sets the bit; was it clear?
    pub(crate) fn set(&mut self, psn: Psn) -> bool {
        let (word, bit) = self.locate(psn);
        let was_clear = self.words[word] & bit == 0;
        self.words[word] |= bit;
        was_clear
    }

    /// Clears the bit; was it set?
    pub(crate) fn clear(&mut self, psn: Psn) -> bool {
        let (word, bit) = self.locate(psn);
        let was_set = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        was_set
    }

    pub(crate) fn clear_all(&mut self) {
        self.words.fill(0);
    }

    /// Bits `base` to `base + 63`; bit 0 of the result is `base`.
    pub(crate) fn window(&self, base: Psn) -> u64 {
        let index = base.get() & self.mask;
        let (word, shift) = ((index / 64) as usize, index % 64);
        let low = self.words[word] >> shift;
        if shift == 0 {
            low
        } else {
            low | self.words[(word + 1) % self.words.len()] << (64 - shift)
        }
    }

    /// Clears `base` to `base + 63` where `mask` has a bit. How many were set?
    pub(crate) fn clear_window(&mut self, base: Psn, mask: u64) -> u32 {
        let mut set = self.window(base) & mask;
        let count = set.count_ones();
        while set != 0 {
            self.clear(base.add(set.trailing_zeros()));
            set &= set - 1;
        }
        count
    }

    /// The first PSN of `from..to` whose bit is set.
    pub(crate) fn first_set(&self, from: Psn, to: Psn) -> Option<Psn> {
        let mut at = from;
        loop {
            let left = to.diff(at);
            if left <= 0 {
                return None;
            }
            let found = self.window(at).trailing_zeros();
            if found < 64 {
                return ((found as i32) < left).then(|| at.add(found));
            }
            at = at.add(64);
        }
    }
}

/// The size of a ring for so many PSNs: a power of two, at least one word of bits.
pub(crate) fn ring_size(psns: u32) -> u32 {
    psns.clamp(64, 1 << 23).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn window_is_seamless_where_psns_wrap() {
        let mut ring = BitRing::new(1024);
        for n in [0, 1, 5, 63] {
            assert!(ring.set(Psn::new(0xff_fff0).add(n)));
        }
        assert_eq!(ring.window(Psn::new(0xff_fff0)), 1 | 2 | 1 << 5 | 1 << 63);
        assert!(!ring.set(Psn::new(0xff_fff5)), "second time");
        assert!(ring.clear(Psn::new(0xff_fff5)));
        assert!(!ring.get(Psn::new(0xff_fff5)));
    }

    #[test]
    fn smallest_ring_is_one_word_and_wraps_into_itself() {
        let mut ring = BitRing::new(1);
        ring.set(Psn::new(3));
        assert_eq!(ring.window(Psn::new(2)).trailing_zeros(), 1);
        assert_eq!(ring.window(Psn::new(4)), 1 << 63);
    }

    proptest! {
        #[test]
        fn ring_equals_a_set_over_any_window(
            base in 0_u32..1 << 24,
            size in prop_oneof![Just(128_u32), Just(1024), Just(3 * 128)],
            operations in prop::collection::vec((any::<bool>(), 0_u32..1024), 0..200),
            probe in 0_u32..1024,
        ) {
            let base = Psn::new(base);
            let mut ring = BitRing::new(size);
            let mut model = BTreeSet::new();
            for (set, at) in operations {
                let at = at % size;
                if set {
                    prop_assert_eq!(ring.set(base.add(at)), model.insert(at));
                } else {
                    prop_assert_eq!(ring.clear(base.add(at)), model.remove(&at));
                }
            }
            let all: Vec<u32> = (0..size).filter(|&at| ring.get(base.add(at))).collect();
            prop_assert_eq!(all, model.iter().copied().collect::<Vec<_>>());
            let probe = probe % size;
            prop_assert_eq!(
                ring.first_set(base.add(probe), base.add(size)),
                model.range(probe..).next().map(|&at| base.add(at))
            );
            let seen = ring.window(base.add(probe));
            for i in 0..64.min(size - probe) {
                prop_assert_eq!(seen >> i & 1 != 0, model.contains(&(probe + i)));
            }
        }
    }
}
