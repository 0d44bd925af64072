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

/// Element `index` of a rank's contribution to a reduction: small enough that sums of all ranks are exact.
pub(crate) fn element(seed: u64, rank: usize, iteration: u32, index: usize) -> f32 {
    let mixed = (index as u64)
        .wrapping_mul(2_654_435_761)
        .wrapping_add(rank as u64 * 7919)
        .wrapping_add(u64::from(iteration) * 104_729)
        .wrapping_add(seed);
    (mixed % 1000) as f32
}

#[cfg(test)]
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
        let sum: f32 = (0..64).map(|rank| element(1, rank, 3, 17)).sum();
        let exact: u64 = (0..64).map(|rank| element(1, rank, 3, 17) as u64).sum();
        assert_eq!(sum as u64, exact);
    }
}
