//! Frames as hex digits.

use super::{CapturedFrame, InputError, Item};

/// Could this be a frame? What is wrong with it in detail is said by [`frame`].
pub(super) fn looks_like_hex(text: &str) -> bool {
    let text = without_prefix(text);
    text.chars().all(|c| c.is_ascii_hexdigit() || is_separator(c)) && text.chars().any(|c| c.is_ascii_hexdigit())
}

/// Digits may be written as a number in C is.
fn without_prefix(text: &str) -> &str {
    let text = text.trim_start();
    text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text)
}

/// One frame per line; empty lines are skipped.
pub(super) fn each_line<E: From<InputError>>(
    name: &str,
    text: &str,
    each: &mut impl FnMut(Item) -> Result<(), E>,
) -> Result<(), E> {
    let mut number = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        number += 1;
        each(Item::Frame(frame(name, line, number)?))?;
    }
    if number == 0 {
        return Err(InputError::Empty { name: name.to_owned() }.into());
    }
    Ok(())
}

/// The frame that these digits spell.
pub(super) fn frame(name: &str, text: &str, number: u64) -> Result<CapturedFrame, InputError> {
    let name = || name.to_owned();
    let mut digits = Vec::new();
    for c in without_prefix(text).chars().filter(|c| !is_separator(*c)) {
        let digit = c
            .to_digit(16)
            .ok_or_else(|| InputError::NotHex { name: name(), found: c })?;
        digits.push(digit as u8);
    }
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(InputError::OddHex {
            name: name(),
            digits: digits.len(),
        });
    }
    let bytes = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    Ok(CapturedFrame {
        number,
        time: None,
        bytes,
        cut_from: None,
        cooked: None,
        place: None,
        direction: None,
    })
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || c == ':'
}
