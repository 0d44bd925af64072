//! Seeded randomness: everything random in a run comes from here, so that a seed replays it.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// A million: chances are given in parts per million.
pub const PPM: u32 = 1_000_000;

/// A `ChaCha8` stream with the few draws that the simulator needs.
#[derive(Debug, Clone)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream `label` of `seed`. Streams of one seed are independent, so that a change in the workload does not
    /// reshuffle the network.
    pub fn new(seed: u64, label: &str) -> Rng {
        let mut bytes = [0u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        for (place, byte) in bytes[8..].iter_mut().zip(label.bytes()) {
            *place = byte;
        }
        Rng(ChaCha8Rng::from_seed(bytes))
    }

    /// Uniform over all 64-bit values.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of the multiplication is below bound / 2^64: nothing to a simulator.
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True with `ppm` parts per million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(u64::from(PPM)) < u64::from(ppm)
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `items`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// 32 random bytes, to seed something else.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

/// A well-mixed hash of two numbers: properties of a path that must not depend on the order of draws.
pub fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_label_draw_the_same_and_another_label_does_not() {
        let draw = |seed, label| {
            let mut rng = Rng::new(seed, label);
            [rng.word(), rng.word()]
        };
        assert_eq!(draw(7, "network"), draw(7, "network"));
        assert_ne!(draw(7, "network"), draw(7, "hosts"));
        assert_ne!(draw(7, "network"), draw(8, "network"));
    }

    #[test]
    fn draws_stay_inside_their_bounds() {
        let mut rng = Rng::new(1, "bounds");
        for _ in 0..1000 {
            assert!(rng.below(3) < 3);
            assert!((5..=9).contains(&rng.range(5, 9)));
        }
        assert_eq!(rng.below(0), 0);
        assert!(!rng.chance(0));
        assert!(rng.chance(PPM));
    }
}
