//! One JSON object per packet and line, its keys in the order of the wire.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};

use mrc_capture::Direction;

use crate::decode::Decoded;
use crate::fields::Section;

pub(crate) fn write(out: &mut impl Write, packet: &Decoded, show_data: bool) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Object { packet, show_data })?;
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

struct Object<'a> {
    packet: &'a Decoded,
    show_data: bool,
}

pub(crate) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Tx => "tx",
        Direction::Rx => "rx",
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let packet = self.packet;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("number", &packet.number)?;
        let time = packet
            .time
            .map(|time| format!("{}.{:09}", time.as_secs(), time.subsec_nanos()));
        map.serialize_entry("time", &time)?;
        map.serialize_entry("captured_len", &packet.captured_len)?;
        map.serialize_entry("wire_len", &packet.cut_from.unwrap_or(packet.captured_len))?;
        let interface = packet.place.as_ref().and_then(|place| place.name.as_deref());
        map.serialize_entry("interface", &interface)?;
        map.serialize_entry("direction", &packet.direction.map(direction))?;
        map.serialize_entry("opcode", &packet.opcode)?;
        for section in &packet.sections {
            map.serialize_entry(section.name, section)?;
        }
        map.serialize_entry("ev", &packet.ev.map(|ev| ev.to_string()))?;
        map.serialize_entry("dscp", &packet.dscp)?;
        map.serialize_entry("ecn", &packet.ecn)?;
        map.serialize_entry("payload_len", &packet.payload.len())?;
        if self.show_data {
            map.serialize_entry("payload", &hex(&packet.payload))?;
        }
        map.serialize_entry("trimmed", &packet.trimmed)?;
        map.serialize_entry("icrc", &packet.icrc.map(|icrc| hex(&icrc.found)))?;
        map.serialize_entry("icrc_expected", &packet.icrc.map(|icrc| hex(&icrc.expected)))?;
        map.serialize_entry("icrc_ok", &packet.icrc.map(|icrc| icrc.is_right()))?;
        map.serialize_entry("verdict", packet.verdict.name())?;
        map.serialize_entry("reason", &packet.verdict.reason())?;
        map.serialize_entry("detail", &packet.verdict.detail())?;
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
