//! Copies between private memory and memory that a peer may be writing at this moment.
//!
//! A registered region is shared with the network: a remote write may land in it at any time. Such memory is never seen
//! as `&[u8]`; it is read and written with relaxed atomic accesses, the widest that alignment allows, so that a race gives
//! old or new values and never undefined behaviour. An aligned piece of 2, 4 or 8 bytes moves whole (api.md §3.7).
#![expect(unsafe_code, reason = "accesses memory that is shared with the network")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The widest access that both the alignment of `address` and the `left` bytes allow.
fn step(address: usize, left: usize) -> usize {
    let by_alignment = 1 << address.trailing_zeros().min(3);
    let by_length = match left {
        0..=1 => 1,
        2..=3 => 2,
        4..=7 => 4,
        _ => 8,
    };
    by_length.min(by_alignment)
}

/// Copies `dst.len()` bytes from shared memory at `src`.
///
/// # Safety
/// `src` must be valid for reads of `dst.len()` bytes, and all concurrent accesses to it must be atomic or come from
/// outside the language (another process, a device).
pub(crate) unsafe fn read(src: *const u8, dst: &mut [u8]) {
    let mut at = 0;
    while at < dst.len() {
        let left = dst.len() - at;
        // SAFETY: `at < dst.len()`, inside the range the caller vouches for.
        let from = unsafe { src.add(at) }.cast_mut();
        let width = step(from.addr(), left);
        let to = &mut dst[at..at + width];
        // SAFETY: `step` returns a width that fits what is left and that `from` is aligned to.
        unsafe {
            match width {
                8 => to.copy_from_slice(&AtomicU64::from_ptr(from.cast()).load(Relaxed).to_ne_bytes()),
                4 => to.copy_from_slice(&AtomicU32::from_ptr(from.cast()).load(Relaxed).to_ne_bytes()),
                2 => to.copy_from_slice(&AtomicU16::from_ptr(from.cast()).load(Relaxed).to_ne_bytes()),
                _ => to[0] = AtomicU8::from_ptr(from).load(Relaxed),
            }
        }
        at += width;
    }
}

/// Copies `src` to shared memory at `dst`.
///
/// # Safety
/// `dst` must be valid for writes of `src.len()` bytes, and all concurrent accesses to it must be atomic or come from
/// outside the language (another process, a device).
pub(crate) unsafe fn write(dst: *mut u8, src: &[u8]) {
    let mut at = 0;
    while at < src.len() {
        let left = src.len() - at;
        // SAFETY: `at < src.len()`, inside the range the caller vouches for.
        let to = unsafe { dst.add(at) };
        let width = step(to.addr(), left);
        let mut word = [0_u8; 8];
        word[..width].copy_from_slice(&src[at..at + width]);
        // SAFETY: `step` returns a width that fits what is left and that `to` is aligned to.
        unsafe {
            match width {
                8 => AtomicU64::from_ptr(to.cast()).store(u64::from_ne_bytes(word), Relaxed),
                4 => {
                    let [a, b, c, d, ..] = word;
                    AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes([a, b, c, d]), Relaxed);
                }
                2 => AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes([word[0], word[1]]), Relaxed),
                _ => AtomicU8::from_ptr(to).store(word[0], Relaxed),
            }
        }
        at += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_never_exceeds_alignment_or_length() {
        for address in 0..32_usize {
            for left in 1..32 {
                let width = step(address, left);
                assert!(width <= left && address % width == 0, "{address} {left} {width}");
                assert!(width.is_power_of_two() && width <= 8);
            }
        }
        assert_eq!(
            (step(8, 8), step(8, 9), step(16, 4), step(4, 8), step(6, 8)),
            (8, 8, 4, 4, 2)
        );
    }

    #[test]
    fn copies_are_exact_at_every_offset_and_length_and_touch_nothing_else() {
        for offset in 0..9_usize {
            for len in 0..40_usize {
                let source: Vec<u8> = (0..len as u8).map(|b| b ^ 0x5a).collect();
                let mut memory = vec![0xee_u8; 64];
                let shared = memory.as_mut_ptr();
                let mut back = vec![0; len];
                // SAFETY: offset + len < 64 bytes of a live vector that nobody else uses.
                unsafe {
                    write(shared.add(offset), &source);
                    read(shared.add(offset), &mut back);
                }
                assert_eq!(back, source);
                assert_eq!(&memory[offset..offset + len], &source[..]);
                assert!(
                    memory[..offset]
                        .iter()
                        .chain(&memory[offset + len..])
                        .all(|b| *b == 0xee)
                );
            }
        }
    }
}
