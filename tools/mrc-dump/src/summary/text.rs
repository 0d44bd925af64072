//! For people: a line for the capture, a table of its flows, and one of the EVs of each.

use std::io::{self, Write};

use super::table::{EvCounts, Flow, Summary, Ways};

pub(super) fn write(out: &mut impl Write, summary: &Summary, evs: usize) -> io::Result<()> {
    write!(
        out,
        "{} packets, {} bytes in {:.6} s",
        summary.packets, summary.bytes, summary.seconds
    )?;
    writeln!(
        out,
        "; {} not MRC, {} dropped by the capture",
        summary.not_mrc, summary.dropped_by_capture
    )?;
    for (name, Ways { tx, rx, unknown }) in &summary.interfaces {
        if *unknown > 0 {
            writeln!(out, "  {name}: {} packets", tx + rx + unknown)?;
        } else {
            writeln!(out, "  {name}: {tx} sent, {rx} received")?;
        }
    }
    if summary.flows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    table(out, &HEAD, summary.flows.iter().map(row).collect())?;
    for flow in &summary.flows {
        writeln!(out)?;
        let evs_in_words = match flow.evs.len() {
            1 => "1 EV".to_owned(),
            several => format!("{several} EVs"),
        };
        writeln!(out, "{} {} > {}: {evs_in_words}", flow.qp, flow.from, flow.to)?;
        if !flow.nack_reasons.is_empty() {
            let reasons = flow.nack_reasons.iter().map(|(name, count)| format!("{count} {name}"));
            writeln!(out, "  NACKs: {}", reasons.collect::<Vec<_>>().join(", "))?;
        }
        let shown = flow.evs.iter().take(evs).map(ev_row).collect();
        table(out, &EV_HEAD, shown)?;
        if flow.evs.len() > evs {
            writeln!(out, "  and {} more: --evs {}", flow.evs.len() - evs, flow.evs.len())?;
        }
    }
    Ok(())
}

const HEAD: [&str; 18] = [
    "#",
    "QP",
    "FROM QP",
    "PACKETS",
    "BYTES",
    "DATA",
    "WRITES",
    "RTX",
    "ACK",
    "NAK",
    "SACK",
    "NACK",
    "PROBE",
    "EP",
    "TRIM",
    "CE",
    "BAD",
    "ADDRESSES",
];

fn row(flow: &Flow) -> [String; 18] {
    let counts = &flow.counts;
    let count = |count: u64| count.to_string();
    [
        flow.connection.to_string(),
        flow.qp.clone(),
        flow.from_qp.clone().unwrap_or_else(|| "-".into()),
        count(counts.packets),
        count(counts.bytes),
        count(counts.data_bytes),
        count(counts.writes),
        count(counts.retransmitted),
        count(counts.acks),
        count(counts.naks),
        count(counts.sacks),
        count(counts.nacks),
        count(counts.probes),
        count(counts.endpoint),
        count(counts.trimmed),
        count(counts.ce),
        count(counts.bad),
        format!("{} > {}", flow.from, flow.to),
    ]
}

/// The four on the right are what the receiver said.
const EV_HEAD: [&str; 11] = [
    "EV",
    "PACKETS",
    "BYTES",
    "RTX",
    "CE",
    "TRIM",
    "SACKED",
    "SKIP_ONCE",
    "ALWAYS_SKIP",
    "NACKED",
    "PORT",
];

fn ev_row(ev: &EvCounts) -> [String; 11] {
    let count = |count: u64| count.to_string();
    [
        ev.ev.clone(),
        count(ev.packets),
        count(ev.bytes),
        count(ev.retransmitted),
        count(ev.ce),
        count(ev.trimmed),
        count(ev.reports.sacked),
        count(ev.reports.skip_once),
        count(ev.reports.always_skip),
        count(ev.reports.nacked),
        if ev.interfaces.is_empty() {
            "-".into()
        } else {
            ev.interfaces.join(",")
        },
    ]
}

/// Columns as wide as they need to be, to the right but for the last one.
fn table<const N: usize>(out: &mut impl Write, head: &[&str; N], rows: Vec<[String; N]>) -> io::Result<()> {
    let mut widths = head.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    for row in std::iter::once(head.map(str::to_owned)).chain(rows) {
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            if at + 1 == N {
                writeln!(out, "  {cell}")?;
            } else {
                write!(out, "  {cell:>width$}")?;
            }
        }
    }
    Ok(())
}
