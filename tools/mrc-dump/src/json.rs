//! One JSON object per packet and line, its keys in the order of the wire.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::decode::Decoded;
use crate::fields::Section;

pub(crate) fn write(out: &mut impl Write, packet: &Decoded) -> io::Result<()> {
    serde_json::to_writer(&mut *out, packet)?;
    out.write_all(b"\n")
}

impl Serialize for Section {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Immediate data is a header of one field without a name.
        if let ("immdt", [(_, value)]) = (self.name, self.fields.as_slice()) {
            return value.serialize(serializer);
        }
        serializer.collect_map(self.fields.iter().map(|(name, value)| (name, value)))
    }
}

impl Serialize for Decoded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("number", &self.number)?;
        let time = self
            .time
            .map(|time| format!("{}.{:09}", time.as_secs(), time.subsec_nanos()));
        map.serialize_entry("time", &time)?;
        map.serialize_entry("captured_len", &self.captured_len)?;
        map.serialize_entry("wire_len", &self.cut_from.unwrap_or(self.captured_len))?;
        map.serialize_entry("opcode", &self.opcode)?;
        for section in &self.sections {
            map.serialize_entry(section.name, section)?;
        }
        map.serialize_entry("ev", &self.ev.map(|ev| ev.to_string()))?;
        map.serialize_entry("dscp", &self.dscp)?;
        map.serialize_entry("ecn", &self.ecn)?;
        map.serialize_entry("payload_len", &self.payload.len())?;
        if self.show_data {
            map.serialize_entry("payload", &hex(&self.payload))?;
        }
        map.serialize_entry("trimmed", &self.trimmed)?;
        map.serialize_entry("icrc", &self.icrc.map(|icrc| hex(&icrc.found)))?;
        map.serialize_entry("icrc_expected", &self.icrc.map(|icrc| hex(&icrc.expected)))?;
        map.serialize_entry("icrc_ok", &self.icrc.map(|icrc| icrc.is_right()))?;
        map.serialize_entry("verdict", self.verdict.name())?;
        map.serialize_entry("reason", &self.verdict.reason())?;
        map.serialize_entry("detail", &self.verdict.detail())?;
        map.end()
    }
}

/// Bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}
