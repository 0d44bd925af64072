//! Fixed point: the factors of NSCC reach from millionths to millions (protocol.md §10.5: at least 16 fraction bits).

/// A number that is not negative, in units of 2^-32. Arithmetic rounds down and stops at the ends of the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fixed(u64);

const FRACTION_BITS: u32 = 32;
/// 2^32.
const SCALE: f64 = 4_294_967_296.0;

impl Fixed {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One.
    pub const ONE: Self = Self(1 << FRACTION_BITS);
    /// Almost 2^32.
    pub const MAX: Self = Self(u64::MAX);

    /// A whole number.
    pub const fn whole(number: u32) -> Self {
        Self((number as u64) << FRACTION_BITS)
    }

    /// `numerator / denominator`; the largest there is when it is too large, or when the denominator is 0.
    pub const fn ratio(numerator: u128, denominator: u128) -> Self {
        // From 2^96 on there is no room for the fraction beside the number: both lose bits, the number only unimportant ones.
        let excess = FRACTION_BITS.saturating_sub(numerator.leading_zeros());
        let denominator = denominator >> excess;
        if denominator == 0 {
            return Self::MAX;
        }
        clamp((numerator >> excess << FRACTION_BITS) / denominator)
    }

    /// `numerator / denominator`; the largest there is when it is too large, or when the denominator is 0.
    pub const fn quotient(numerator: u64, denominator: Self) -> Self {
        if denominator.0 == 0 {
            return Self::MAX;
        }
        clamp(((numerator as u128) << (2 * FRACTION_BITS)) / denominator.0 as u128)
    }

    /// From a parameter of the C interface. What is negative or no number counts as 0.
    pub fn from_f32(number: f32) -> Self {
        // Exact: `f64` holds every `f32` times a power of two, and casts stop at the ends.
        Self((f64::from(number) * SCALE) as u64)
    }

    /// The nearest number of the C interface.
    pub fn to_f32(self) -> f32 {
        (self.0 as f64 / SCALE) as f32
    }

    /// The whole part.
    pub const fn floor(self) -> u64 {
        self.0 >> FRACTION_BITS
    }

    /// The nearest whole number.
    pub const fn round(self) -> u64 {
        self.plus(Self(1 << (FRACTION_BITS - 1))).floor()
    }

    /// `self * factor`, rounded down to a whole number.
    pub const fn of(self, factor: u64) -> u64 {
        clamp((self.0 as u128 * factor as u128) >> FRACTION_BITS).0
    }

    /// `self * factor`.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        clamp(self.0 as u128 * factor as u128)
    }

    /// `self * other`.
    #[must_use]
    pub const fn mul(self, other: Self) -> Self {
        clamp((self.0 as u128 * other.0 as u128) >> FRACTION_BITS)
    }

    /// `self + other`.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, or 0.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

const fn clamp(raw: u128) -> Fixed {
    if raw > u64::MAX as u128 {
        Fixed::MAX
    } else {
        Fixed(raw as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_rounds_down_and_stops_at_the_ends() {
        let third = Fixed::ratio(1, 3);
        assert_eq!((third.of(3), third.of(4)), (0, 1));
        assert_eq!(third.times(6).floor(), 1);
        assert_eq!(Fixed::ratio(7, 2).mul(Fixed::ratio(1, 2)), Fixed::ratio(7, 4));
        assert_eq!(Fixed::ratio(u128::MAX, 1), Fixed::MAX);
        assert_eq!(Fixed::ratio(u128::MAX, 1 << 126), Fixed::whole(4).minus(Fixed(1)));
        assert_eq!(Fixed::ratio(1, 0), Fixed::MAX);
        assert_eq!(Fixed::quotient(1, Fixed::ZERO), Fixed::MAX);
        assert_eq!(Fixed::quotient(u64::MAX, Fixed::ONE), Fixed::MAX);
        assert_eq!(Fixed::quotient(7, Fixed::whole(2)), Fixed::ratio(7, 2));
        assert_eq!(Fixed::MAX.plus(Fixed::ONE), Fixed::MAX);
        assert_eq!(Fixed::ONE.minus(Fixed::MAX), Fixed::ZERO);
        assert_eq!((Fixed::MAX.of(u64::MAX), Fixed::MAX.times(2)), (u64::MAX, Fixed::MAX));
    }

    #[test]
    fn floats_come_back() {
        for number in [0.0, 0.25, 0.8, 1.0, 627.6, 20_920.0, 1.0e-6] {
            let back = Fixed::from_f32(number).to_f32();
            assert!((back - number).abs() <= number * 1.0e-3, "{number} {back}");
        }
        assert_eq!(Fixed::from_f32(-1.0), Fixed::ZERO);
        assert_eq!(Fixed::from_f32(f32::NAN), Fixed::ZERO);
        assert_eq!(Fixed::from_f32(f32::INFINITY), Fixed::MAX);
    }
}
