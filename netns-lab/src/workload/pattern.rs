//! Data that says where it belongs.

/// Fills `bytes` with data that depends on the seed, the connection and the place.
pub(crate) fn fill(seed: u64, flow: usize, slot: usize, bytes: &mut [u8]) {
    let mut state = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add((flow as u64) << 32 | slot as u64);
    for piece in bytes.chunks_mut(8) {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}

/// What ranks contribute to a reduction: a number per element that all have in common, and one of the rank's own. So the sum needs no
/// rank's data, and is wrong when a rank is missing, comes twice, or has sent another element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements {
    start: u32,
    /// How often the common number is in it.
    times: u32,
    own: u32,
}

impl Elements {
    /// The contribution of one rank.
    pub(crate) fn of_rank(seed: u64, iteration: u32, rank: usize) -> Elements {
        let mixed = seed
            .wrapping_add(u64::from(iteration))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Elements {
            start: (mixed >> 32) as u32,
            times: 1,
            own: (rank * rank) as u32,
        }
    }

    /// The sum of the contributions of that many ranks: a whole number below 2^24 for up to 64.
    pub(crate) fn sum(seed: u64, iteration: u32, ranks: usize) -> Elements {
        Elements {
            times: ranks as u32,
            own: (0..ranks).map(|rank| (rank * rank) as u32).sum(),
            ..Elements::of_rank(seed, iteration, 0)
        }
    }

    /// Element `index`.
    pub(crate) fn at(&self, index: usize) -> f32 {
        // Multiplicative hashing: ten bits that neighbours do not share.
        let common = self.start.wrapping_add(index as u32).wrapping_mul(2_654_435_761) >> 22;
        (self.times * common + self.own) as f32
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "whole numbers")]
mod tests {
    use super::*;

    #[test]
    fn data_tells_seeds_connections_and_places_apart() {
        let data = |seed, flow, slot| {
            let mut bytes = [0; 100];
            fill(seed, flow, slot, &mut bytes);
            bytes
        };
        assert_eq!(data(1, 2, 3), data(1, 2, 3));
        for other in [data(2, 2, 3), data(1, 3, 3), data(1, 2, 4)] {
            assert_ne!(data(1, 2, 3), other);
        }
    }

    #[test]
    fn sums_of_all_ranks_are_exact() {
        for index in [0, 1, 17, 4_000_000] {
            let sum: f32 = (0..64).map(|rank| Elements::of_rank(1, 3, rank).at(index)).sum();
            assert_eq!(sum, Elements::sum(1, 3, 64).at(index));
        }
    }

    #[test]
    fn a_sum_is_wrong_when_a_rank_is_missing_twice_or_shifted() {
        let of = |rank, index| Elements::of_rank(1, 3, rank).at(index);
        let right = Elements::sum(1, 3, 4).at(9);
        let without_2: f32 = [0, 1, 3].map(|rank| of(rank, 9)).iter().sum();
        assert_ne!(without_2, right);
        assert_ne!(without_2 + of(1, 9), right, "rank 1 twice in the place of rank 2");
        assert_ne!(without_2 + of(2, 10), right, "rank 2 shifted by one");
        let before = Elements::of_rank(1, 2, 2).at(9);
        assert_ne!(without_2 + before, right, "rank 2 of the iteration before");
    }
}
