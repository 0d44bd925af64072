//! The numbers of the protocol, each as a type of its own: their widths, their wrapping arithmetic, their reserved values.

use core::fmt;

const MASK24: u32 = 0x00ff_ffff;

/// Packet sequence number: 24 bits that wrap.
///
/// It has no `Ord`: order is only defined by [`Psn::diff`] (protocol.md §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK24)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// `self + n`, modulo 2^24.
    #[inline]
    #[must_use]
    pub const fn add(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// `self - n`, modulo 2^24.
    #[inline]
    #[must_use]
    pub const fn sub(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// `self + n` for a signed distance, modulo 2^24: the inverse of [`Psn::diff`].
    #[inline]
    #[must_use]
    pub const fn offset(self, n: i32) -> Self {
        Self::new(self.0.wrapping_add_signed(n))
    }

    /// The next packet's number.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// `self - other` as a signed distance in `[-2^23, 2^23)`; negative when `self` is before `other` (protocol.md §4).
    #[inline]
    pub const fn diff(self, other: Self) -> i32 {
        // The difference moved to the top of the word, so that an arithmetic shift extends its sign.
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    pub(crate) const fn to_bytes(self) -> [u8; 3] {
        bytes24(self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// Queue pair number: 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// The destination of endpoint requests and responses (wire-format.md §8).
    pub const ENDPOINT: Self = Self(2);
    /// The lowest number of a user's queue pair: 0, 1 and 2 are reserved.
    pub const FIRST_USER: Self = Self(3);

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK24)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The low 16 bits, as `spdcid` and `dpdcid` carry them (W19).
    #[inline]
    pub const fn low16(self) -> u16 {
        self.0 as u16
    }

    pub(crate) const fn to_bytes(self) -> [u8; 3] {
        bytes24(self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// Entropy value, the name of a path: 32 bits on the wire (wire-format.md §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ev(pub u32);

impl fmt::Display for Ev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

/// Number of a port (a plane), counted from 1 to [`PortNum::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNum(u8);

impl PortNum {
    /// The highest port number that a port status mask can name (W20: bit N = port N, bit 0 unused).
    pub const MAX: u8 = 31;

    /// `None` for 0 and for numbers above [`PortNum::MAX`].
    #[inline]
    pub const fn new(num: u8) -> Option<Self> {
        if num == 0 || num > Self::MAX {
            None
        } else {
            Some(Self(num))
        }
    }

    /// The number, 1 to 31.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Position in a table of ports that starts with port 1.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }
}

impl fmt::Display for PortNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of ports; bit N stands for port N as in `ERTH.port_status_mask` (W20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortSet(u32);

impl PortSet {
    /// No port.
    pub const EMPTY: Self = Self(0);

    /// Ports 1 to `count` (at most 31).
    pub const fn first(count: u8) -> Self {
        if count >= PortNum::MAX {
            Self(!1)
        } else {
            Self(((1 << count) - 1) << 1)
        }
    }

    /// From a `port_status_mask`; the unused bit 0 is dropped.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & !1)
    }

    /// As a `port_status_mask`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Is the port in the set?
    #[inline]
    pub const fn contains(self, port: PortNum) -> bool {
        self.0 & (1 << port.0) != 0
    }

    /// Adds a port.
    #[inline]
    pub const fn insert(&mut self, port: PortNum) {
        self.0 |= 1 << port.0;
    }

    /// Takes a port out.
    #[inline]
    pub const fn remove(&mut self, port: PortNum) {
        self.0 &= !(1 << port.0);
    }

    /// The set with one more port.
    #[must_use]
    pub const fn with(mut self, port: PortNum) -> Self {
        self.insert(port);
        self
    }

    /// Ports in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Ports in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Ports of `self` that are not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// How many ports.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Is there no port?
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The ports in rising order.
    pub fn iter(self) -> impl Iterator<Item = PortNum> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let num = rest.trailing_zeros() as u8;
            rest &= rest - 1;
            Some(PortNum(num))
        })
    }
}

impl FromIterator<PortNum> for PortSet {
    fn from_iter<I: IntoIterator<Item = PortNum>>(ports: I) -> Self {
        ports.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// A packet's timestamp: 16 bits in units of 128 ns that wrap every 8.388608 ms (wire-format.md §7.3, `tsr` = 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tick(pub u16);

impl Tick {
    /// Nanoseconds in one tick.
    pub const NS: u64 = 128;

    /// The stamp of a clock that reads `now_ns`.
    #[inline]
    pub const fn from_ns(now_ns: u64) -> Self {
        Self((now_ns / Self::NS) as u16)
    }

    /// Nanoseconds from this stamp to `now`, if that is less than one wrap.
    #[inline]
    pub const fn elapsed_ns(self, now: Self) -> u32 {
        now.0.wrapping_sub(self.0) as u32 * Self::NS as u32
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

const fn bytes24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}

pub(crate) const fn read24(a: u8, b: u8, c: u8) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}
