//! From the EV of a profile to the wire value, and back (protocol.md §7.2).

use alloc::boxed::Box;

use super::error::FieldError;
use super::field::{CONTAINER_BITS, Format, FormatMode, MAX_FIELDS, ProfileField};
use super::output::{Containers, Output};
use super::value::{EvValue, deposit, extract};

/// Fields that fit a format: what it takes to expand EVs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion {
    mode: FormatMode,
    /// Bits of the format.
    bits: u32,
    /// Bits of an EV that the masks take.
    taken: u32,
    parts: Box<[Part]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// Of the format field: where the field's value is right-aligned.
    width: u32,
    fixed: u32,
    mask: u32,
}

impl Expansion {
    /// Checks the fields against the format (protocol.md §7.2).
    pub fn new(format: &Format, fields: &[ProfileField]) -> Result<Self, FieldError> {
        if fields.is_empty() {
            return Err(FieldError::NoFields);
        }
        let limit = format.fields().len();
        if fields.len() > limit {
            return Err(FieldError::Fields {
                count: fields.len(),
                limit,
            });
        }
        debug_assert!(fields.len() <= MAX_FIELDS);
        for (field, part) in fields.iter().enumerate() {
            part.check(field)?;
        }
        let bits = fields.iter().map(|field| field.width).sum();
        if bits > format.bits() {
            return Err(FieldError::Bits {
                bits,
                limit: format.bits(),
            });
        }
        let pairs = || fields.iter().zip(format.fields());
        if let Some((field, (part, room))) = pairs()
            .enumerate()
            .find(|(_, (part, room))| part.width > room.width.into())
        {
            return Err(FieldError::WiderThanFormat {
                field,
                width: part.width,
                limit: room.width.into(),
            });
        }
        Ok(Self {
            mode: format.mode(),
            bits: format.bits(),
            taken: fields.iter().map(ProfileField::taken).sum(),
            parts: pairs()
                .map(|(part, room)| Part {
                    width: room.width.into(),
                    fixed: part.init_val & !part.mask,
                    mask: part.mask,
                })
                .collect(),
        })
    }

    /// Mode of the format.
    pub const fn mode(&self) -> FormatMode {
        self.mode
    }

    /// How many bits of an EV count; those that follow must be zero.
    pub const fn taken_bits(&self) -> u32 {
        self.taken
    }

    /// Is this an EV for these fields? Bits beyond those taken must be zero (protocol.md §7.2).
    pub fn check(&self, ev: &EvValue) -> Result<(), FieldError> {
        match ev.used_bits().checked_sub(1) {
            Some(bit) if bit >= self.taken => Err(FieldError::Excess { bit, taken: self.taken }),
            _ => Ok(()),
        }
    }

    /// The wire value: for each field the fixed bits, overlaid with the next bits of the EV from the top of the mask
    /// down, right-aligned in the width of the *format* field; then zeros (protocol.md §7.2).
    pub fn expand(&self, ev: &EvValue) -> Result<EvValue, FieldError> {
        self.check(ev)?;
        let mut expanded = EvValue::ZERO;
        let (mut from, mut to) = (0, 0);
        for part in &self.parts {
            let count = part.mask.count_ones();
            let value = part.fixed | deposit(ev.bits(from, count), part.mask);
            expanded.or_bits(to, part.width, value);
            from += count;
            to += part.width;
        }
        Ok(expanded)
    }

    /// The EV that expands to this wire value, if one does.
    pub fn compress(&self, expanded: &EvValue) -> Result<EvValue, FieldError> {
        let mut ev = EvValue::ZERO;
        let (mut from, mut to) = (0, 0);
        for part in &self.parts {
            let value = expanded.bits(from, part.width);
            if value & !part.mask != part.fixed {
                return Err(FieldError::NotExpanded {
                    at: from,
                    end: from + part.width - 1,
                });
            }
            ev.or_bits(to, part.mask.count_ones(), extract(value, part.mask));
            from += part.width;
            to += part.mask.count_ones();
        }
        if expanded.used_bits() > from {
            return Err(FieldError::NotExpanded {
                at: from,
                end: EvValue::BITS - 1,
            });
        }
        Ok(ev)
    }

    /// Where the wire value goes in a packet (protocol.md §7.2): an SRH exists only if the format is wider than one
    /// container.
    pub fn output(&self, ev: &EvValue) -> Result<Output, FieldError> {
        let expanded = self.expand(ev)?;
        Ok(match Output::of(self.mode, &expanded) {
            Output::Srv6(containers) if self.bits <= CONTAINER_BITS => Output::Srv6(Containers {
                srh: None,
                ..containers
            }),
            output => output,
        })
    }
}
