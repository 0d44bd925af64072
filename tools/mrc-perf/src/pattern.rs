//! Pseudo-random data: every byte of a test follows from seed, direction, size, queue pair and slot.

/// A stream of bytes; equal for equal seeds on every machine.
pub(crate) struct Pattern {
    state: u64,
}

impl Pattern {
    /// The stream of one slot.
    pub(crate) fn new(seed: u64, parts: [u64; 4]) -> Pattern {
        let state = parts.iter().fold(mix(seed), |state, part| {
            mix(state ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
        Pattern { state }
    }

    /// Fills `out` with the next bytes. Only the last call of a stream may have a length that is not a multiple of 8.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for piece in out.chunks_mut(8) {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let word = mix(self.state).to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}

/// Spreads every bit of the input over the output (a 64-bit finaliser of the multiply and shift kind).
fn mix(value: u64) -> u64 {
    let a = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: u64, parts: [u64; 4], len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        Pattern::new(seed, parts).fill(&mut out);
        out
    }

    #[test]
    fn a_stream_depends_on_everything_and_on_nothing_else() {
        let base = bytes(1, [0, 64, 0, 0], 64);
        assert_eq!(base, bytes(1, [0, 64, 0, 0], 64));
        for (seed, parts) in [
            (2, [0, 64, 0, 0]),
            (1, [1, 64, 0, 0]),
            (1, [0, 65, 0, 0]),
            (1, [0, 64, 1, 0]),
            (1, [0, 64, 0, 1]),
        ] {
            assert_ne!(base, bytes(seed, parts, 64));
        }
    }

    #[test]
    fn a_stream_may_be_taken_in_pieces() {
        let whole = bytes(7, [1, 2, 3, 4], 1003);
        let mut pieces = vec![0; 1003];
        let mut pattern = Pattern::new(7, [1, 2, 3, 4]);
        for piece in pieces.chunks_mut(256) {
            pattern.fill(piece);
        }
        assert_eq!(whole, pieces);
    }

    #[test]
    fn all_byte_values_occur() {
        let mut seen = [false; 256];
        for byte in bytes(3, [0; 4], 65536) {
            seen[usize::from(byte)] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
