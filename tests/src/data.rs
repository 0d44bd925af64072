//! Bytes that are different everywhere.

/// `len` bytes that depend on `seed` and on their place.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    noise_into(&mut bytes, seed);
    bytes
}

/// As [`noise`], into memory that is there already.
pub fn noise_into(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}
