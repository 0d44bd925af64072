//! Copies between private memory and memory that a peer may be writing at this moment.
//!
//! A registered region is shared with the network: a remote write may land in it at any time. Such memory is never seen
//! as `&[u8]`; it is read and written with relaxed atomic accesses, the widest that alignment allows, so that a race gives
//! old or new values and never undefined behaviour. An aligned piece of 2, 4 or 8 bytes moves whole (api.md §3.7).
#![expect(unsafe_code, reason = "accesses memory that is shared with the network")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();

/// The widest access below a word that both the alignment of `address` and the `left` bytes allow.
fn step(address: usize, left: usize) -> usize {
    let by_alignment = 1 << address.trailing_zeros().min(2);
    let by_length = match left {
        0..=1 => 1,
        2..=3 => 2,
        _ => 4,
    };
    by_length.min(by_alignment)
}

/// Bytes in front of the first word of eight, at most `len`.
fn in_front(address: usize, len: usize) -> usize {
    (address.wrapping_neg() % WORD).min(len)
}

/// Copies `dst.len()` bytes from shared memory at `src`.
///
/// # Safety
/// `src` must be valid for reads of `dst.len()` bytes, and all concurrent accesses to it must be atomic or come from
/// outside the language (another process, a device).
pub(crate) unsafe fn read(src: *const u8, dst: &mut [u8]) {
    let front = in_front(src.addr(), dst.len());
    let (front, rest) = dst.split_at_mut(front);
    let (words, end) = rest.as_chunks_mut::<WORD>();
    // SAFETY: the three parts are the caller's range in its order, and the words begin at a multiple of their size.
    unsafe {
        read_edge(src, front);
        let src = src.add(front.len());
        for (place, word) in words.iter_mut().enumerate() {
            let from = AtomicU64::from_ptr(src.add(place * WORD).cast_mut().cast());
            *word = from.load(Relaxed).to_ne_bytes();
        }
        read_edge(src.add(words.len() * WORD), end);
    }
}

/// Copies `src` to shared memory at `dst`.
///
/// # Safety
/// `dst` must be valid for writes of `src.len()` bytes, and all concurrent accesses to it must be atomic or come from
/// outside the language (another process, a device).
pub(crate) unsafe fn write(dst: *mut u8, src: &[u8]) {
    let (front, rest) = src.split_at(in_front(dst.addr(), src.len()));
    let (words, end) = rest.as_chunks::<WORD>();
    // SAFETY: the three parts are the caller's range in its order, and the words begin at a multiple of their size.
    unsafe {
        write_edge(dst, front);
        let dst = dst.add(front.len());
        for (place, word) in words.iter().enumerate() {
            AtomicU64::from_ptr(dst.add(place * WORD).cast()).store(u64::from_ne_bytes(*word), Relaxed);
        }
        write_edge(dst.add(words.len() * WORD), end);
    }
}

/// As [`read`], of less than a word on each side of a word's boundary.
///
/// # Safety
/// As for [`read`].
unsafe fn read_edge(src: *const u8, dst: &mut [u8]) {
    let mut at = 0;
    while at < dst.len() {
        // SAFETY: `at < dst.len()`, inside the range the caller vouches for.
        let from = unsafe { src.add(at) }.cast_mut();
        let width = step(from.addr(), dst.len() - at);
        let to = &mut dst[at..at + width];
        // SAFETY: `step` returns a width that fits what is left and that `from` is aligned to.
        unsafe {
            match width {
                4 => to.copy_from_slice(&AtomicU32::from_ptr(from.cast()).load(Relaxed).to_ne_bytes()),
                2 => to.copy_from_slice(&AtomicU16::from_ptr(from.cast()).load(Relaxed).to_ne_bytes()),
                _ => to[0] = AtomicU8::from_ptr(from).load(Relaxed),
            }
        }
        at += width;
    }
}

/// As [`write`], of less than a word on each side of a word's boundary.
///
/// # Safety
/// As for [`write`].
unsafe fn write_edge(dst: *mut u8, src: &[u8]) {
    let mut at = 0;
    while at < src.len() {
        // SAFETY: `at < src.len()`, inside the range the caller vouches for.
        let to = unsafe { dst.add(at) };
        let from = &src[at..];
        let width = step(to.addr(), from.len());
        // SAFETY: `step` returns a width that fits what is left and that `to` is aligned to.
        unsafe {
            match (width, from) {
                (4, &[a, b, c, d, ..]) => {
                    AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes([a, b, c, d]), Relaxed);
                }
                (2, &[a, b, ..]) => AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes([a, b]), Relaxed),
                _ => AtomicU8::from_ptr(to).store(from[0], Relaxed),
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
                assert!(width.is_power_of_two() && width <= 4);
            }
        }
        assert_eq!(
            (step(8, 3), step(8, 7), step(16, 4), step(4, 8), step(6, 8)),
            (2, 4, 4, 4, 2)
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
