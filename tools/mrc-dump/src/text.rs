//! For people: a line that sums the packet up, then a line or two per header.

use std::io::{self, Write};

use serde_json::Value;

use crate::decode::Decoded;
use crate::json::{direction, hex};

const WIDTH: usize = 116;
/// Data bytes that are shown unless all are asked for.
const DATA_SHOWN: usize = 32;
const DATA_PER_LINE: usize = 32;

pub(crate) fn write(out: &mut impl Write, packet: &Decoded, show_data: bool) -> io::Result<()> {
    headline(out, packet)?;
    for section in &packet.sections {
        let fields = section
            .fields
            .iter()
            .map(|(name, value)| format!("{name}={}", plain(value)));
        wrapped(out, section.name, fields)?;
    }
    if !packet.payload.is_empty() {
        data(out, packet, show_data)?;
    }
    if let Some(icrc) = packet.icrc {
        let judgement = if icrc.is_right() {
            "right".to_owned()
        } else {
            format!("WRONG, expected {}", hex(&icrc.expected))
        };
        writeln!(out, "  {:<9}{} {judgement}", "icrc", hex(&icrc.found))?;
    }
    writeln!(out)
}

fn headline(out: &mut impl Write, packet: &Decoded) -> io::Result<()> {
    write!(out, "#{}", packet.number)?;
    if let Some(time) = packet.time {
        write!(out, "  {}.{:09}", time.as_secs(), time.subsec_nanos())?;
    }
    match (
        packet.place.as_ref().and_then(|place| place.name.as_deref()),
        packet.direction,
    ) {
        (Some(name), Some(way)) => write!(out, "  {name} {}", direction(way))?,
        (Some(name), None) => write!(out, "  {name}")?,
        (None, Some(way)) => write!(out, "  {}", direction(way))?,
        (None, None) => {}
    }
    match packet.cut_from {
        Some(wire_len) => write!(out, "  {} of {wire_len} bytes", packet.captured_len)?,
        None => write!(out, "  {} bytes", packet.captured_len)?,
    }
    if let Some(opcode) = &packet.opcode {
        write!(out, "  {opcode}")?;
    }
    if let Some(ev) = packet.ev {
        write!(out, "  ev={ev}")?;
    }
    if let (Some(dscp), Some(ecn)) = (packet.dscp, packet.ecn) {
        write!(out, "  dscp={dscp}  ecn={ecn}")?;
    }
    if packet.opcode.is_some() {
        write!(out, "  payload_len={}", packet.payload.len())?;
    }
    if packet.trimmed {
        write!(out, "  trimmed")?;
    }
    write!(out, "  {}", packet.verdict.name())?;
    match (packet.verdict.reason(), packet.verdict.detail()) {
        (Some(reason), Some(detail)) => writeln!(out, " {reason}: {detail}"),
        _ => writeln!(out),
    }
}

fn data(out: &mut impl Write, packet: &Decoded, show_data: bool) -> io::Result<()> {
    let shown = if show_data {
        packet.payload.len()
    } else {
        packet.payload.len().min(DATA_SHOWN)
    };
    for (at, line) in packet.payload[..shown].chunks(DATA_PER_LINE).enumerate() {
        let name = if at == 0 { "data" } else { "" };
        let more = packet.payload.len() - shown;
        let rest = if more > 0 {
            format!(" and {more} more bytes")
        } else {
            String::new()
        };
        writeln!(out, "  {name:<9}{}{rest}", hex(line))?;
    }
    Ok(())
}

/// `name` and the fields behind it, on as many lines as they need.
fn wrapped(out: &mut impl Write, name: &str, fields: impl Iterator<Item = String>) -> io::Result<()> {
    let mut line = format!("  {name:<8}");
    for field in fields {
        if line.len() + 1 + field.len() > WIDTH && line.len() > 10 {
            writeln!(out, "{line}")?;
            line = " ".repeat(10);
        }
        line.push(' ');
        line.push_str(&field);
    }
    writeln!(out, "{line}")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
