//! EV values as bit strings (protocol.md §7.2): the most significant bit of byte 0 is bit 0, and nothing is ever
//! byte-swapped (P18).

use core::fmt;

/// A string of 256 bits: an EV of a profile, or the wire value that it expands to.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EvValue(
    /// Bits 0 to 7 are in byte 0, from the most significant one down.
    pub [u8; EvValue::LEN],
);

impl EvValue {
    /// Bytes.
    pub const LEN: usize = 32;
    /// Bits.
    pub const BITS: u32 = 256;
    /// No bit set.
    pub const ZERO: Self = Self([0; Self::LEN]);

    /// These bytes, then zeros; `None` if there are more than 32.
    pub fn left_aligned(bytes: &[u8]) -> Option<Self> {
        let mut value = Self::ZERO;
        value.0.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(value)
    }

    /// The shortest length that loses no set bit: one more than the position of the last one.
    pub fn used_bits(&self) -> u32 {
        let last = self.0.iter().rposition(|&byte| byte != 0);
        last.map_or(0, |at| 8 * (at as u32 + 1) - self.0[at].trailing_zeros())
    }

    /// Bits 0 to 31 as a number.
    pub fn first_u32(&self) -> u32 {
        self.bits(0, 32)
    }

    /// Bits `at` to `at + count - 1` as a number, `count` at most 32; bits beyond the end are zero.
    pub(super) fn bits(&self, at: u32, count: u32) -> u32 {
        let (byte, shift) = Self::window(at, count);
        let mut window = 0u64;
        for offset in 0..5 {
            window = window << 8 | u64::from(self.0.get(byte + offset).copied().unwrap_or(0));
        }
        (window >> shift) as u32 & low_bits(count)
    }

    /// Writes `count` bits (at most 32) at `at`, where only zeros have been; bits beyond the end are dropped.
    pub(super) fn or_bits(&mut self, at: u32, count: u32, bits: u32) {
        let (byte, shift) = Self::window(at, count);
        let window = u64::from(bits & low_bits(count)) << shift;
        for offset in 0..5 {
            if let Some(byte) = self.0.get_mut(byte + offset) {
                *byte |= (window >> (32 - 8 * offset)) as u8;
            }
        }
    }

    /// 32 bits touch at most five bytes. The first of these, and how far the bits are from the end of the fifth.
    fn window(at: u32, count: u32) -> (usize, u32) {
        ((at / 8) as usize, 40 - at % 8 - count.min(32))
    }
}

impl fmt::Display for EvValue {
    /// Hexadecimal bytes up to the last one that is not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.used_bits().div_ceil(8).max(1) as usize;
        self.0.iter().take(len).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for EvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EvValue({self})")
    }
}

/// A word with the low `count` bits set.
pub(super) fn low_bits(count: u32) -> u32 {
    u32::MAX.checked_shr(32 - count.min(32)).unwrap_or(0)
}

/// Spreads as many low bits as `mask` has over the set bits of `mask`, keeping their order.
pub(super) fn deposit(bits: u32, mask: u32) -> u32 {
    let (mut rest, mut left, mut spread) = (bits, mask, 0);
    while left != 0 {
        if rest & 1 != 0 {
            spread |= left & left.wrapping_neg();
        }
        rest >>= 1;
        left &= left - 1;
    }
    spread
}

/// The inverse of [`deposit`]: collects the bits at the set bits of `mask`.
pub(super) fn extract(spread: u32, mask: u32) -> u32 {
    let (mut left, mut bits, mut next) = (mask, 0, 1u32);
    while left != 0 {
        if spread & left & left.wrapping_neg() != 0 {
            bits |= next;
        }
        next = next.wrapping_shl(1);
        left &= left - 1;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn bits_are_counted_from_the_top_of_byte_zero() {
        let mut value = EvValue::ZERO;
        value.or_bits(0, 1, 1);
        assert_eq!(value.0[0], 0x80);
        value.or_bits(255, 1, 1);
        assert_eq!(value.0[31], 1);
        assert_eq!(value.used_bits(), 256);
        assert_eq!(EvValue::ZERO.used_bits(), 0);
        assert_eq!(EvValue::left_aligned(&[0, 0x40]).unwrap().used_bits(), 10);
    }

    #[test]
    fn what_is_written_anywhere_is_read_there_and_nowhere_else() {
        for at in 0..EvValue::BITS {
            for count in 1..=32.min(EvValue::BITS - at) {
                let mut value = EvValue::ZERO;
                value.or_bits(at, count, u32::MAX);
                assert_eq!(value.bits(at, count), low_bits(count), "{at} {count}");
                let set: u32 = value.0.iter().map(|byte| byte.count_ones()).sum();
                assert_eq!(set, count, "{at} {count}");
            }
        }
    }

    #[test]
    fn beyond_the_end_there_are_zeros() {
        let mut value = EvValue([0xff; 32]);
        assert_eq!(value.bits(250, 32), 0xfc00_0000);
        assert_eq!(value.bits(256, 32), 0);
        assert_eq!(value.bits(u32::MAX, 32), 0);
        value.or_bits(250, 32, u32::MAX);
        assert_eq!(value, EvValue([0xff; 32]));
    }

    #[test]
    fn extract_undoes_deposit_for_every_mask_of_ten_bits() {
        for mask in 0..1u32 << 10 {
            for shift in [0, 11, 22] {
                let mask = mask << shift;
                for bits in 0..1u32 << mask.count_ones() {
                    assert_eq!(extract(deposit(bits, mask), mask), bits);
                }
            }
        }
        assert_eq!(deposit(u32::MAX, u32::MAX), u32::MAX);
        assert_eq!(extract(u32::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn values_print_without_their_trailing_zeros() {
        assert_eq!(EvValue::ZERO.to_string(), "00");
        assert_eq!(EvValue::left_aligned(&[0xa5, 0x0c]).unwrap().to_string(), "a50c");
        assert_eq!(EvValue::left_aligned(&[0; 33]), None);
    }
}
