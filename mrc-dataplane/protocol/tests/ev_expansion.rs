//! EV expansion against the published vectors, and against a second implementation that goes bit by bit
//! (protocol.md §7.2, §7.3, api.md §4.6).

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::fmt::Debug;

use mrc_protocol::profile::{
    ErrorClass, EvValue, Expansion, FieldError, Format, FormatField, FormatMode, ProfileField,
};
use proptest::prelude::*;
use serde_json::Value;

fn file(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn published() -> Value {
    file(include_str!("ev-expansion-vectors.json"))
}

fn number(value: &Value) -> u32 {
    let text = value.as_str().unwrap();
    u32::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap()
}

fn unhex(value: &Value) -> EvValue {
    let mut digits = value.as_str().unwrap().to_owned();
    if digits.len() % 2 == 1 {
        digits.push('0');
    }
    let bytes: Vec<u8> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect();
    EvValue::left_aligned(&bytes).unwrap()
}

fn mode(value: &Value) -> FormatMode {
    match value.as_str().unwrap() {
        "STEV" => FormatMode::Stev,
        "UDP" => FormatMode::Udp,
        "SRV6" => FormatMode::Srv6,
        other => panic!("mode {other}"),
    }
}

fn widths(value: &Value) -> Vec<FormatField> {
    let list = value.as_array().unwrap().iter();
    list.map(|width| FormatField::new(width.as_u64().unwrap() as u8))
        .collect()
}

fn fields(value: &Value) -> Vec<ProfileField> {
    let or_zero = |field: &Value, name: &str| field.get(name).map_or(0, number);
    let list = value.as_array().unwrap().iter();
    list.map(|field| ProfileField {
        width: field["width"].as_u64().unwrap() as u32,
        init_val: number(&field["init_val"]),
        min_val: or_zero(field, "min_val"),
        max_val: or_zero(field, "max_val"),
        mask: number(&field["mask"]),
    })
    .collect()
}

/// Field values before they are aligned, and the expanded bits: literally the steps of protocol.md §7.2.
fn slow(format: &[FormatField], fields: &[ProfileField], ev: &EvValue) -> (Vec<u32>, EvValue) {
    let ev_bits: Vec<bool> =
        ev.0.iter()
            .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1))
            .collect();
    let mut next = ev_bits.into_iter();
    let mut out = Vec::new();
    let mut values = Vec::new();
    for (field, room) in fields.iter().zip(format) {
        let mut value: Vec<bool> = (0..32).map(|bit| field.init_val >> bit & 1 == 1).collect();
        for bit in (0..32).rev() {
            if field.mask >> bit & 1 == 1 {
                value[bit] = next.next().unwrap();
            }
        }
        values.push(value.iter().rev().fold(0, |sum, &bit| sum << 1 | u32::from(bit)));
        out.extend((0..usize::from(room.width)).rev().map(|bit| value[bit]));
    }
    assert!(next.all(|bit| !bit), "bits beyond those taken");
    out.resize(256, false);
    let mut expanded = EvValue::ZERO;
    for (byte, bits) in expanded.0.iter_mut().zip(out.chunks(8)) {
        *byte = bits.iter().fold(0, |sum, &bit| sum << 1 | u8::from(bit));
    }
    (values, expanded)
}

/// The smallest mode that carries the format.
fn format_of(fields: &[FormatField]) -> Format {
    let bits: u32 = fields.iter().map(|field| u32::from(field.width)).sum();
    let mode = match bits {
        0..=16 => FormatMode::Udp,
        17..=32 => FormatMode::Stev,
        _ => FormatMode::Srv6,
    };
    Format::new(mode, fields).unwrap()
}

#[test]
fn every_published_vector_expands_and_compresses() {
    let published = published();
    let mut count = 0;
    for case in published["cases"].as_array().unwrap() {
        let (widths, fields) = (widths(&case["format_field_widths"]), fields(&case["fields"]));
        let format = Format::new(mode(&case["format_mode"]), &widths).unwrap();
        let expansion = Expansion::new(&format, &fields).unwrap();
        assert_eq!(
            u64::from(expansion.taken_bits()),
            case["ev_bits_consumed"],
            "{}",
            case["name"]
        );
        for vector in case["vectors"].as_array().unwrap() {
            let (ev, expanded) = (unhex(&vector["ev"]), unhex(&vector["expanded"]));
            assert_eq!(expansion.expand(&ev), Ok(expanded), "{}", case["name"]);
            assert_eq!(expansion.compress(&expanded), Ok(ev), "{}", case["name"]);
            let (values, by_bits) = slow(&widths, &fields, &ev);
            assert_eq!(by_bits, expanded, "{}", case["name"]);
            let listed: Vec<u32> = vector["field_values"].as_array().unwrap().iter().map(number).collect();
            assert_eq!(values, listed, "{}", case["name"]);
            count += 1;
        }
    }
    assert_eq!(count, 105);
}

#[test]
fn every_published_reject_is_refused_for_its_reason() {
    let published = published();
    let rejects = published["invalid"].as_array().unwrap();
    assert_eq!(rejects.len(), 10);
    for reject in rejects {
        let format = format_of(&widths(&reject["format_field_widths"]));
        let expansion = Expansion::new(&format, &fields(&reject["fields"]));
        let error = match reject["ev"] {
            Value::Null => expansion.unwrap_err(),
            ref ev => expansion.unwrap().expand(&unhex(ev)).unwrap_err(),
        };
        let expected = match reject["name"].as_str().unwrap() {
            "more-fields-than-format" => FieldError::Fields { count: 3, limit: 2 },
            "field-widths-exceed-format-total" => FieldError::Bits { bits: 24, limit: 16 },
            "init-wider-than-field" => FieldError::InitVal {
                field: 0,
                init_val: 0x100,
                width: 8,
            },
            "mask-outside-field" => FieldError::Mask {
                field: 0,
                mask: 0x1ff,
                width: 8,
            },
            "max-wider-than-mask" => FieldError::MaxVal {
                field: 0,
                max_val: 16,
                bits: 4,
            },
            "field-wider-than-its-format-field" => FieldError::WiderThanFormat {
                field: 0,
                width: 16,
                limit: 8,
            },
            "zero-width-field" => FieldError::Width { field: 0, width: 0 },
            "min-above-max" => FieldError::Range {
                field: 0,
                min_val: 9,
                max_val: 5,
            },
            "fixed-field-with-range" => FieldError::ConstantRange { field: 0 },
            "ev-bits-beyond-consumed" => FieldError::Excess { bit: 23, taken: 16 },
            other => panic!("unknown reject {other}"),
        };
        assert_eq!(error, expected);
        assert_eq!(reject["errno"], "EINVAL");
        assert_eq!(error.class(), ErrorClass::Invalid);
    }
}

#[test]
fn the_examples_of_the_specification_expand() {
    let examples = file(include_str!("../../wire/tests/vectors.json"));
    let examples = examples["ev_expansion"].as_array().unwrap();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let format = Format::new(mode(&example["mode"]), &widths(&example["fmt_fields"])).unwrap();
        let expansion = Expansion::new(&format, &fields(&example["fields"])).unwrap();
        assert_eq!(u64::from(expansion.taken_bits()), example["ev_bits_used"]);
        assert_eq!(u64::from(format.bits()), example["expanded_bits"]);
        let ev = unhex(&example["ev"]);
        assert_eq!(
            expansion.expand(&ev),
            Ok(unhex(&example["expanded"])),
            "{}",
            example["name"]
        );
    }
}

/// Bound of the exhaustive comparison: every format of up to `fields` fields of up to `width` bits, with every profile
/// field that fits (every width, init value and mask), and every EV.
fn compare_all(fields: usize, width: u8) -> usize {
    let choices = |room: u8| {
        let of_width = |width: u8| {
            let values = 1u32 << width;
            (0..values).flat_map(move |init_val| {
                (0..values).map(move |mask| ProfileField {
                    width: width.into(),
                    init_val,
                    min_val: 0,
                    max_val: 0,
                    mask,
                })
            })
        };
        (1..=room).flat_map(of_width).collect::<Vec<_>>()
    };
    let choices: Vec<Vec<ProfileField>> = (1..=width).map(choices).collect();
    let mut compared = 0;
    let mut formats = vec![vec![]];
    for _ in 0..fields {
        formats = formats
            .iter()
            .flat_map(|format: &Vec<FormatField>| {
                (1..=width).map(|width| [format.as_slice(), &[FormatField::new(width)]].concat())
            })
            .collect();
        for format in &formats {
            let checked = format_of(format);
            let sizes: Vec<usize> = format
                .iter()
                .map(|field| choices[usize::from(field.width) - 1].len())
                .collect();
            for pick in 0..sizes.iter().product() {
                let mut rest = pick;
                let mut chosen = Vec::with_capacity(format.len());
                for (field, size) in format.iter().zip(&sizes) {
                    chosen.push(choices[usize::from(field.width) - 1][rest % size]);
                    rest /= size;
                }
                let expansion = Expansion::new(&checked, &chosen).unwrap();
                let taken = expansion.taken_bits();
                for bits in 0..1u32 << taken {
                    let ev = EvValue::left_aligned(&(bits << (31 - taken) << 1).to_be_bytes()).unwrap();
                    let expanded = expansion.expand(&ev).unwrap();
                    assert_eq!(expanded, slow(format, &chosen, &ev).1, "{format:?} {chosen:?} {ev}");
                    assert_eq!(expansion.compress(&expanded), Ok(ev));
                    compared += 1;
                }
            }
        }
    }
    compared
}

#[test]
fn all_expansions_of_up_to_two_fields_of_three_bits_agree() {
    let one = (1..=3usize).map(|room| (1..=room).map(|w| (1 << w) * 3usize.pow(w as u32)).sum::<usize>());
    let one: usize = one.sum();
    assert_eq!(compare_all(2, 3), one + one * one);
}

#[test]
fn all_expansions_of_up_to_three_fields_of_two_bits_agree() {
    assert_eq!(compare_all(3, 2), 48 + 48 * 48 + 48 * 48 * 48);
}

#[test]
fn all_expansions_of_one_field_of_six_bits_agree() {
    assert!(compare_all(1, 6) > 50_000);
}

#[test]
fn any_bit_beyond_those_taken_is_refused_in_every_position() {
    for taken in [1, 7, 8, 31, 32] {
        let format = Format::new(FormatMode::Stev, &[FormatField::new(32)]).unwrap();
        let field = ProfileField {
            width: 32,
            init_val: 0,
            min_val: 0,
            max_val: 0,
            mask: u32::MAX >> (32 - taken),
        };
        let expansion = Expansion::new(&format, &[field]).unwrap();
        for bit in 0..EvValue::BITS {
            let mut ev = EvValue::ZERO;
            ev.0[(bit / 8) as usize] = 0x80 >> (bit % 8);
            let expected = (bit >= taken).then_some(FieldError::Excess { bit, taken });
            assert_eq!(expansion.expand(&ev).err(), expected);
        }
    }
}

#[test]
fn formats_are_limited_by_their_mode() {
    let repeat = |width: u8, count: usize| vec![FormatField::new(width); count];
    for (mode, limit, fits, too_wide) in [
        (FormatMode::Udp, 16, repeat(8, 2), repeat(17, 1)),
        (FormatMode::Stev, 32, repeat(1, 32), repeat(11, 3)),
        (
            FormatMode::Srv6,
            256,
            repeat(1, 256),
            [repeat(32, 8), repeat(1, 1)].concat(),
        ),
    ] {
        assert_eq!(Format::new(mode, &fits).unwrap().bits(), limit);
        let error = Format::new(mode, &too_wide).unwrap_err();
        assert!(
            matches!(error, FieldError::FormatBits { limit: of, .. } if of == limit),
            "{error}"
        );
        assert_eq!(error.class(), ErrorClass::TooBig);
    }
    assert_eq!(Format::new(FormatMode::Stev, &[]), Err(FieldError::NoFormatFields));
    for width in [0, 33, 255] {
        let error = FieldError::FormatWidth {
            field: 1,
            width: width.into(),
        };
        let fields = [FormatField::new(1), FormatField::new(width)];
        assert_eq!(Format::new(FormatMode::Srv6, &fields), Err(error));
    }
    let error = Format::new(FormatMode::Srv6, &repeat(1, 257)).unwrap_err();
    assert_eq!(error, FieldError::FormatFields { count: 257 });
    assert_eq!(error.class(), ErrorClass::TooBig);
}

#[test]
fn a_second_container_begins_at_a_field_boundary() {
    let straddling = [30, 30, 30, 30, 30].map(FormatField::new);
    assert_eq!(Format::new(FormatMode::Srv6, &straddling), Err(FieldError::NoBoundary));
    // One bit beyond the first container is enough, and none is not.
    let past_the_end = [32, 32, 32, 31, 2].map(FormatField::new);
    assert_eq!(
        Format::new(FormatMode::Srv6, &past_the_end),
        Err(FieldError::NoBoundary)
    );
    assert!(Format::new(FormatMode::Srv6, &[32, 32, 32, 31, 1].map(FormatField::new)).is_ok());
    let meeting = [32, 32, 32, 32, 1].map(FormatField::new);
    assert!(Format::new(FormatMode::Srv6, &meeting).is_ok());
    let one_container = [30, 30, 30, 30, 8].map(FormatField::new);
    assert!(Format::new(FormatMode::Srv6, &one_container).is_ok());
}

#[test]
fn errors_are_one_line_and_name_what_to_do() {
    let format = Format::new(FormatMode::Udp, &[FormatField::new(8), FormatField::new(8)]).unwrap();
    let wide = ProfileField::free(9);
    let narrow = ProfileField::free(4);
    let error = Expansion::new(&format, &[narrow, wide]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "field 1: width 9 is above the 8 bits of its format field: narrow it or widen the format"
    );
    let error = Expansion::new(&format, &[]).unwrap_err();
    assert_eq!(error, FieldError::NoFields);
    let error = Expansion::new(&format, &[ProfileField::free(4)]).unwrap();
    let error = error.expand(&EvValue([0xff; 32])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "bit 255 of the EV is set, the fields take 4 bits: clear what follows"
    );
}

#[test]
fn what_no_ev_expands_to_does_not_compress() {
    let format = Format::new(FormatMode::Stev, &[FormatField::new(8), FormatField::new(16)]).unwrap();
    let fields = [ProfileField::constant(8, 0xab), ProfileField::free(12)];
    let expansion = Expansion::new(&format, &fields).unwrap();
    let compress = |bytes: &[u8]| expansion.compress(&EvValue::left_aligned(bytes).unwrap());
    assert!(compress(&[0xab, 0x0f, 0xff]).is_ok());
    assert_eq!(compress(&[0xaa]), Err(FieldError::NotExpanded { at: 0, end: 7 }));
    assert_eq!(compress(&[0xab, 0x10]), Err(FieldError::NotExpanded { at: 8, end: 23 }));
    assert_eq!(
        compress(&[0xab, 0, 0, 1]),
        Err(FieldError::NotExpanded { at: 24, end: 255 })
    );
}

/// A format of any mode, fields that fit it, and an EV for them.
fn fitting() -> impl Strategy<Value = (Vec<FormatField>, Vec<ProfileField>, EvValue)> {
    let one = (1u8..=32).prop_flat_map(|room| {
        (Just(room), 1..=room, any::<u32>(), any::<u32>()).prop_map(|(room, width, init, mask)| {
            let low = u32::MAX >> (32 - width);
            let field = ProfileField {
                width: width.into(),
                init_val: init & low,
                min_val: 0,
                max_val: 0,
                mask: mask & low,
            };
            (FormatField::new(room), field)
        })
    });
    (proptest::collection::vec(one, 1..=8), any::<[u8; 32]>(), 0..8usize).prop_map(|(pairs, bytes, spare)| {
        let (mut format, mut fields): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        fields.truncate((fields.len() - spare % fields.len()).max(1));
        if format.iter().map(|field| u32::from(field.width)).sum::<u32>() > 128 {
            // Keep to one container, so that any widths are a format.
            while format.iter().map(|field| u32::from(field.width)).sum::<u32>() > 128 {
                format.pop();
            }
            fields.truncate(format.len());
        }
        let taken: u32 = fields.iter().map(ProfileField::taken).sum();
        let mut ev = EvValue(bytes);
        for (index, byte) in (0u32..).zip(&mut ev.0) {
            let keep = taken.saturating_sub(8 * index).min(8);
            *byte &= (0xff00u16 >> keep) as u8;
        }
        (format, fields, ev)
    })
}

fn is_fine(result: &Result<impl Debug, FieldError>) {
    if let Err(error) = result {
        assert!(!error.to_string().contains('\n'));
    }
}

proptest! {
    #[test]
    fn expansion_agrees_with_the_slow_one_and_is_undone((format, fields, ev) in fitting()) {
        let expansion = Expansion::new(&format_of(&format), &fields).unwrap();
        let expanded = expansion.expand(&ev).unwrap();
        prop_assert_eq!(expanded, slow(&format, &fields, &ev).1);
        prop_assert_eq!(expansion.compress(&expanded), Ok(ev));
    }

    #[test]
    fn what_compresses_is_what_expands((format, fields, _) in fitting(), bytes: [u8; 32], keep in 0..32usize) {
        let expansion = Expansion::new(&format_of(&format), &fields).unwrap();
        let mut value = EvValue(bytes);
        value.0[keep..].fill(0);
        if let Ok(ev) = expansion.compress(&value) {
            prop_assert_eq!(expansion.expand(&ev), Ok(value));
        }
    }

    #[test]
    fn a_set_bit_beyond_those_taken_is_always_refused((format, fields, ev) in fitting(), at in 0u32..256) {
        let expansion = Expansion::new(&format_of(&format), &fields).unwrap();
        let bit = expansion.taken_bits() + at;
        if bit < 256 {
            let mut ev = ev;
            ev.0[(bit / 8) as usize] |= 0x80 >> (bit % 8);
            prop_assert_eq!(
                expansion.expand(&ev),
                Err(FieldError::Excess { bit, taken: expansion.taken_bits() })
            );
        }
    }

    #[test]
    fn nothing_panics_whatever_the_fields(
        mode in prop_oneof![Just(FormatMode::Stev), Just(FormatMode::Udp), Just(FormatMode::Srv6)],
        widths in proptest::collection::vec(0u8..40, 0..12),
        fields in proptest::collection::vec((0u32..40, any::<[u32; 4]>(), 0u32..4), 0..12),
        bytes: [u8; 32],
    ) {
        let widths: Vec<_> = widths.into_iter().map(FormatField::new).collect();
        let fields: Vec<_> = fields
            .into_iter()
            .map(|(width, [init_val, min_val, max_val, mask], tame)| {
                // Some fields nearly right, some anything.
                let low = if tame == 0 { u32::MAX } else { u32::MAX >> (32 - width.clamp(1, 32)) };
                ProfileField {
                    width,
                    init_val: init_val & low,
                    min_val: if tame > 1 { 0 } else { min_val },
                    max_val: if tame > 1 { 0 } else { max_val },
                    mask: mask & low,
                }
            })
            .collect();
        match Format::new(mode, &widths) {
            Err(error) => is_fine(&Err::<(), _>(error)),
            Ok(format) => match Expansion::new(&format, &fields) {
                Err(error) => is_fine(&Err::<(), _>(error)),
                Ok(expansion) => {
                    is_fine(&expansion.expand(&EvValue(bytes)));
                    is_fine(&expansion.compress(&EvValue(bytes)));
                    is_fine(&expansion.output(&EvValue(bytes)));
                }
            },
        }
    }
}
