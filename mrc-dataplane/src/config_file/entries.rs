//! EV profiles of a file: fields, and EVs in the forms in which people have them.

use std::net::Ipv6Addr;

use mrc_protocol::profile::{
    EntryState, EvMode, EvValue, Expansion, FieldError, Format, FormatMode, PortEv, ProfileField,
};
use mrc_wire::PortNum;

use super::schema::{self, EntryTable, EvTable, FieldTable};
use crate::profile::{EntryStart, EvStart, FormatStart, ProfileFault, ProfileId};

/// How EVs are written to packets: what is needed to take them back from there.
struct Encoding {
    mode: FormatMode,
    expansion: Expansion,
}

/// The profile of a table. `format` finds a format of the same file.
pub(super) fn ev_profile<'f>(
    table: EvTable,
    at: ProfileId,
    format: &dyn Fn(&str, &str) -> Result<&'f FormatStart, ProfileFault>,
) -> Result<EvStart, ProfileFault> {
    let what = format!("ev_profile {:?}", table.name);
    let refuse = |reason: &str| ProfileFault::new(what.clone(), reason);
    let mode = match table.mode {
        schema::EvMode::Auto => EvMode::Auto,
        schema::EvMode::Explicit => EvMode::Explicit,
        schema::EvMode::Generated => EvMode::Generated,
    };
    if mode == EvMode::Auto && (table.format.is_some() || table.fields.is_some()) {
        return Err(refuse(
            "mode AUTO makes random source ports: leave format and fields out",
        ));
    }
    if mode == EvMode::Explicit && table.count.is_some() {
        return Err(refuse("mode EXPLICIT has as many EVs as it lists: leave count out"));
    }
    if mode == EvMode::Generated && (table.count.is_none() || table.fields.is_none()) {
        return Err(refuse(
            "mode GENERATED needs count and fields: how many EVs, and from which ranges",
        ));
    }
    let format = match (&table.format, mode) {
        (Some(name), _) => Some(format(name, &what)?),
        (None, EvMode::Auto) => None,
        (None, _) => return Err(refuse("format is missing: name an ev_format_profile of the same file")),
    };
    let fields: Option<Vec<ProfileField>> = table.fields.as_ref().map(|fields| fields.iter().map(field).collect());
    let encoding = encoding(format, fields.as_deref()).map_err(|error| ProfileFault::new(what.clone(), error))?;
    if table.outer_source.is_some() && encoding.mode != FormatMode::Srv6 {
        return Err(refuse("outer_source goes with formats of mode SRV6 only: leave it out"));
    }
    let planes = table.fields.iter().flatten().enumerate();
    let mut entries = Vec::new();
    for (at, entry) in table.evs.into_iter().enumerate() {
        let what = format!("{what}: evs[{at}]");
        let weight = entry.weight.unwrap_or(1);
        if weight == 0 || weight > 1 && mode != EvMode::Explicit {
            return Err(ProfileFault::new(
                what,
                format!("weight {weight}: EVs of mode EXPLICIT stand in the array once or more often"),
            ));
        }
        let entry = explicit(entry, &encoding).map_err(|reason| ProfileFault::new(what, reason))?;
        entries.extend(std::iter::repeat_n(entry, weight.into()));
    }
    if mode == EvMode::Explicit && entries.is_empty() {
        return Err(refuse("mode EXPLICIT without EVs: list them in [[ev_profile.evs]]"));
    }
    Ok(EvStart {
        id: table.id.unwrap_or(at),
        name: table.name,
        mode,
        format: format.map(|format| format.id),
        count: table.count,
        plane_fields: planes
            .filter(|(_, field)| field.plane)
            .map(|(at, _)| at as u16)
            .collect(),
        fields,
        min_active: table.ev_min_active,
        active: table.active,
        outer_source: table.outer_source,
        entries,
    })
}

fn field(table: &FieldTable) -> ProfileField {
    ProfileField {
        width: table.width,
        init_val: table.init,
        min_val: table.min,
        max_val: table.max,
        mask: table.mask,
    }
}

/// AUTO has a format of its own: the source port.
fn encoding(format: Option<&FormatStart>, fields: Option<&[ProfileField]>) -> Result<Encoding, FieldError> {
    let format = match format {
        Some(start) => Format::new(start.mode, &start.fields)?,
        None => Format::new(FormatMode::Udp, &[mrc_protocol::profile::FormatField::new(16)])?,
    };
    let free: Vec<ProfileField>;
    let fields = if let Some(fields) = fields {
        fields
    } else {
        // api.md §4.7: one full-mask field per format field.
        let widths = format.fields().iter();
        free = widths.map(|field| ProfileField::free(field.width)).collect();
        &free
    };
    Ok(Encoding {
        mode: format.mode(),
        expansion: Expansion::new(&format, fields)?,
    })
}

fn explicit(table: EntryTable, encoding: &Encoding) -> Result<EntryStart, String> {
    let port = PortNum::new(table.port)
        .ok_or_else(|| format!("port = {}: ports are numbered from 1 to {}", table.port, PortNum::MAX))?;
    let value = match (&table.ev, wire_value(&table, encoding.mode)?) {
        (Some(_), Some(_)) => return Err("ev and a wire value: give one of them".into()),
        (Some(text), None) => hexadecimal(text)?,
        (None, Some(wire)) => encoding.expansion.compress(&wire).map_err(|error| error.to_string())?,
        (None, None) => return Err(format!("no value: give ev, or {}", keys(encoding.mode))),
    };
    encoding.expansion.check(&value).map_err(|error| error.to_string())?;
    Ok(EntryStart {
        ev: PortEv { value, port },
        state: match table.state {
            schema::EntryState::Good => EntryState::Good,
            schema::EntryState::AssumedBad => EntryState::AssumedBad,
            schema::EntryState::Denied => EntryState::Denied,
        },
        name: table.name,
    })
}

/// The value as it stands in packets, if the table has it so (protocol.md §7.2).
fn wire_value(table: &EntryTable, mode: FormatMode) -> Result<Option<EvValue>, String> {
    let given = [
        ("flow_label", table.flow_label.is_some(), mode == FormatMode::Stev),
        ("source_port", table.source_port.is_some(), mode != FormatMode::Srv6),
        ("dst", table.dst.is_some(), mode == FormatMode::Srv6),
        ("srh", table.srh.is_some(), mode == FormatMode::Srv6),
    ];
    if let Some((key, ..)) = given.iter().find(|(_, given, fits)| *given && !fits) {
        return Err(format!(
            "{key} has no place in a format of mode {mode}: use {}",
            keys(mode)
        ));
    }
    let bytes: Vec<u8> = match (mode, table.flow_label, table.source_port, table.dst) {
        (FormatMode::Stev, None, None, _) | (FormatMode::Udp, _, None, _) => return Ok(None),
        (FormatMode::Stev, label, port, _) => {
            let words = [label.unwrap_or(0), port.unwrap_or(0)];
            words.into_iter().flat_map(u16::to_be_bytes).collect()
        }
        (FormatMode::Udp, _, Some(port), _) => port.to_be_bytes().to_vec(),
        (FormatMode::Srv6, .., None) if table.srh.is_some() => {
            return Err("srh without dst: the first container is dst".into());
        }
        (FormatMode::Srv6, .., None) => return Ok(None),
        (FormatMode::Srv6, .., Some(dst)) => {
            let srh = table.srh.unwrap_or(Ipv6Addr::UNSPECIFIED);
            [dst.octets(), srh.octets()].concat()
        }
    };
    Ok(EvValue::left_aligned(&bytes))
}

fn keys(mode: FormatMode) -> &'static str {
    match mode {
        FormatMode::Stev => "flow_label and source_port",
        FormatMode::Udp => "source_port",
        FormatMode::Srv6 => "dst, and srh if the format has a second container",
    }
}

/// Bits from the first one on, four a digit.
fn hexadecimal(text: &str) -> Result<EvValue, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let wrong = || format!("ev = {text:?}: give 1 to 64 hexadecimal digits, the first bit of the EV first");
    if digits.is_empty() || digits.len() > 2 * EvValue::LEN {
        return Err(wrong());
    }
    let mut value = EvValue::ZERO;
    for (at, digit) in digits.chars().enumerate() {
        let digit = digit.to_digit(16).ok_or_else(wrong)? as u8;
        value.0[at / 2] |= if at % 2 == 0 { digit << 4 } else { digit };
    }
    Ok(value)
}
