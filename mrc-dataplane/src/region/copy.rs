//! Copies into and out of registered memory, which others may read and write at any time.
//!
//! Such memory is never seen as a reference, only through raw pointers. An aligned piece of 1, 2, 4 or 8 bytes is moved in one
//! access, so that a thread that spins on a word never sees half of it (api.md §3.7); longer pieces tear at any byte.

#![expect(
    unsafe_code,
    reason = "registered memory is shared with the application and with peers"
)]
#![expect(
    clippy::cast_ptr_alignment,
    reason = "every cast is followed by a check of the alignment"
)]

/// Copies `from` to registered memory.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes and does not overlap `from`.
pub unsafe fn store(to: *mut u8, from: &[u8]) {
    macro_rules! whole {
        ($word:ty) => {
            if let Ok(bytes) = from.try_into()
                && to.cast::<$word>().is_aligned()
            {
                // SAFETY: valid by the caller's promise, aligned by the check.
                unsafe { to.cast::<$word>().write_volatile(<$word>::from_ne_bytes(bytes)) };
                return;
            }
        };
    }
    match from.len() {
        1 => whole!(u8),
        2 => whole!(u16),
        4 => whole!(u32),
        8 => whole!(u64),
        _ => {}
    }
    // SAFETY: valid and disjoint by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
}

/// Copies registered memory to `to`.
///
/// # Safety
/// `from` is valid for reads of `to.len()` bytes and does not overlap `to`.
pub unsafe fn load(from: *const u8, to: &mut [u8]) {
    macro_rules! whole {
        ($word:ty) => {
            if from.cast::<$word>().is_aligned() {
                // SAFETY: valid by the caller's promise, aligned by the check.
                to.copy_from_slice(&unsafe { from.cast::<$word>().read_volatile() }.to_ne_bytes());
                return;
            }
        };
    }
    match to.len() {
        1 => whole!(u8),
        2 => whole!(u16),
        4 => whole!(u32),
        8 => whole!(u64),
        _ => {}
    }
    // SAFETY: valid and disjoint by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        for len in 0..40 {
            for offset in 0..9 {
                let from: Vec<u8> = (0..len).map(|byte| byte as u8 + 1).collect();
                let mut memory = [0_u8; 64];
                // SAFETY: 9 + 40 bytes fit.
                unsafe { store(memory.as_mut_ptr().add(offset), &from) };
                assert!(memory[..offset].iter().all(|&byte| byte == 0));
                assert_eq!(&memory[offset..offset + len], from);
                assert!(memory[offset + len..].iter().all(|&byte| byte == 0));
                let mut back = vec![0; len];
                // SAFETY: as above.
                unsafe { load(memory.as_ptr().add(offset), &mut back) };
                assert_eq!(back, from);
            }
        }
    }
}
