//! Fields of formats and of profiles, and the checks of either alone (protocol.md §7.2, api.md §4.5).

use alloc::boxed::Box;
use core::fmt;
use core::ops::RangeInclusive;

use super::error::FieldError;
use super::value::{EvValue, low_bits};

/// Fields of a format or profile: each has at least one bit of an EV's 256.
pub const MAX_FIELDS: usize = EvValue::BITS as usize;

/// Bits of one IPv6 address.
pub(super) const CONTAINER_BITS: u32 = 128;

/// Widest field.
pub(super) const MAX_WIDTH: u32 = 32;

/// Where an expanded EV goes in a packet (protocol.md §7.1, wire-format.md §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FormatMode {
    /// Structured EV: IPv6 flow label and UDP source port.
    Stev,
    /// UDP source port only.
    Udp,
    /// Outer IPv6 destination and, beyond 128 bits, the entry of a segment routing header.
    Srv6,
}

impl FormatMode {
    /// Limit on the sum of the format's widths (protocol.md §7.1).
    pub const fn max_bits(self) -> u32 {
        match self {
            Self::Stev => 32,
            Self::Udp => 16,
            Self::Srv6 => 2 * CONTAINER_BITS,
        }
    }
}

impl fmt::Display for FormatMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stev => "STEV",
            Self::Udp => "UDP",
            Self::Srv6 => "SRV6",
        })
    }
}

/// One field of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FormatField {
    /// Bits, 1 to 32.
    pub width: u8,
}

impl FormatField {
    /// A field of so many bits.
    pub const fn new(width: u8) -> Self {
        Self { width }
    }
}

/// A format: mode and fields that fit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    mode: FormatMode,
    fields: Box<[FormatField]>,
    bits: u32,
}

impl Format {
    /// Checks the fields (api.md §4.5).
    pub fn new(mode: FormatMode, fields: &[FormatField]) -> Result<Self, FieldError> {
        if fields.is_empty() {
            return Err(FieldError::NoFormatFields);
        }
        if fields.len() > MAX_FIELDS {
            return Err(FieldError::FormatFields { count: fields.len() });
        }
        let mut bits = 0;
        let mut boundary = false;
        for (field, &FormatField { width }) in fields.iter().enumerate() {
            let width = u32::from(width);
            if width == 0 || width > MAX_WIDTH {
                return Err(FieldError::FormatWidth { field, width });
            }
            bits += width;
            boundary |= bits == CONTAINER_BITS;
        }
        let limit = mode.max_bits();
        if bits > limit {
            return Err(FieldError::FormatBits { mode, bits, limit });
        }
        if bits > CONTAINER_BITS && !boundary {
            return Err(FieldError::NoBoundary);
        }
        Ok(Self {
            mode,
            fields: fields.into(),
            bits,
        })
    }

    /// Its mode.
    pub const fn mode(&self) -> FormatMode {
        self.mode
    }

    /// Its fields, 1 to [`MAX_FIELDS`].
    pub const fn fields(&self) -> &[FormatField] {
        &self.fields
    }

    /// Sum of the widths.
    pub const fn bits(&self) -> u32 {
        self.bits
    }
}

/// One field of an EV profile: fixed bits, and a mask of those that an EV fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProfileField {
    /// Bits, 1 to 32, and at most those of the format field (P18).
    pub width: u32,
    /// The fixed bits; those below the mask are overwritten.
    pub init_val: u32,
    /// Least number that GENERATED puts into the masked bits.
    pub min_val: u32,
    /// Greatest one. Both 0 with a mask: the full range (api.md §4.7).
    pub max_val: u32,
    /// Which bits an EV fills.
    pub mask: u32,
}

impl ProfileField {
    /// All bits come from the EV.
    pub const fn free(width: u8) -> Self {
        Self {
            width: width as u32,
            init_val: 0,
            min_val: 0,
            max_val: 0,
            mask: if width < 32 { (1 << width) - 1 } else { u32::MAX },
        }
    }

    /// No bit comes from the EV.
    pub const fn constant(width: u8, value: u32) -> Self {
        Self {
            width: width as u32,
            init_val: value,
            min_val: 0,
            max_val: 0,
            mask: 0,
        }
    }

    /// How many bits it takes of an EV.
    pub const fn taken(&self) -> u32 {
        self.mask.count_ones()
    }

    /// The numbers that GENERATED puts into the masked bits (api.md §4.7).
    pub(super) fn range(&self) -> RangeInclusive<u32> {
        match (self.min_val, self.max_val) {
            (0, 0) => 0..=low_bits(self.taken()),
            (min, max) => min..=max,
        }
    }

    /// The checks of protocol.md §7.2 that need nothing but the field.
    pub(super) fn check(&self, field: usize) -> Result<(), FieldError> {
        let Self {
            width,
            init_val,
            min_val,
            max_val,
            mask,
        } = *self;
        let beyond = |bits: u32| bits & !low_bits(width) != 0;
        if width == 0 || width > MAX_WIDTH {
            return Err(FieldError::Width { field, width });
        }
        if beyond(init_val) {
            return Err(FieldError::InitVal { field, init_val, width });
        }
        if beyond(mask) {
            return Err(FieldError::Mask { field, mask, width });
        }
        if mask == 0 && (min_val, max_val) != (0, 0) {
            return Err(FieldError::ConstantRange { field });
        }
        if min_val > max_val {
            return Err(FieldError::Range {
                field,
                min_val,
                max_val,
            });
        }
        if max_val & !low_bits(self.taken()) != 0 {
            return Err(FieldError::MaxVal {
                field,
                max_val,
                bits: self.taken(),
            });
        }
        Ok(())
    }
}
