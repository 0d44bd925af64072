//! Sizes as people write them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes: a number, or a text such as `"64 KiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bytes(pub u64);

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// The size in the largest unit that divides it.
pub(crate) fn human_bytes(bytes: u64) -> String {
    let whole = |unit: &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(unit.1);
    let (name, size) = UNITS.iter().find(whole).unwrap_or(&("B", 1));
    format!("{} {name}", bytes / size)
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = if unit.trim().is_empty() { "B" } else { unit.trim() };
    let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*size)
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size, as in 4096 or \"64 KiB\" (B, KiB, MiB, GiB)")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => parse(&text).map(Self).ok_or_else(|| {
                serde::de::Error::custom(format!(
                    "'{text}' is no size: write 4096 or \"64 KiB\" (B, KiB, MiB, GiB)"
                ))
            }),
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [
            ("64 KiB", 65536),
            ("1MiB", 1 << 20),
            ("7", 7),
            ("2 GiB", 2 << 30),
            ("0 B", 0),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "1 kB", "1.5 MiB", "-1", "99999999999 GiB"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_told_in_the_largest_unit_that_divides_them() {
        assert_eq!(human_bytes(65536), "64 KiB");
        assert_eq!(human_bytes(1000), "1000 B");
        assert_eq!(human_bytes(0), "0 B");
        assert_eq!(human_bytes(3 << 20), "3 MiB");
    }
}
