//! Medians, tables and JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::bare::{Mode, Speed};
use crate::contest::{Effort, Line};
use crate::frame::WRITE_OVERHEAD;

/// The middle of some measurements, and how far they spread.
#[expect(clippy::struct_field_names, reason = "the value and the type are the same thing")]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Median {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Median {
    /// Of at least one value; of none it is 0.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Median {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) && middle > 0 {
            f64::midpoint(at(middle - 1), at(middle))
        } else {
            at(middle)
        };
        Median {
            median,
            lowest: at(0),
            highest: at(values.len().saturating_sub(1)),
        }
    }

    /// Lowest to highest, as a share of the median in per cent.
    pub(crate) fn spread_percent(&self) -> f64 {
        if self.median > 0.0 {
            (self.highest - self.lowest) / self.median * 100.0
        } else {
            0.0
        }
    }
}

/// One loop.
#[derive(Serialize)]
pub(crate) struct BareRow {
    mode: Mode,
    frame_bytes: usize,
    data_bytes: usize,
    frame_gbps: Median,
    data_gbps: Median,
    mpps: Median,
    lost_per_mille: Median,
}

impl BareRow {
    pub(crate) fn new(mode: Mode, frame_bytes: usize, speeds: &[Speed]) -> BareRow {
        let data_bytes = frame_bytes - WRITE_OVERHEAD;
        BareRow {
            mode,
            frame_bytes,
            data_bytes,
            frame_gbps: Median::of(speeds.iter().map(|speed| speed.gbps(frame_bytes))),
            data_gbps: Median::of(speeds.iter().map(|speed| speed.gbps(data_bytes))),
            mpps: Median::of(speeds.iter().map(Speed::mpps)),
            lost_per_mille: Median::of(speeds.iter().map(|speed| speed.lost_per_mille)),
        }
    }
}

/// Any rows as one line of JSON.
pub(crate) fn json(rows: &impl Serialize) -> String {
    // Plain numbers and strings only, so there is nothing that it could refuse.
    serde_json::to_string(rows).unwrap_or_default()
}

/// The table of the bare loops.
pub(crate) fn bare_table(frame: usize, mtu: u32, rounds: usize, rows: &[BareRow]) -> String {
    let mut text = format!("frames of {frame} bytes, MTU {mtu}, {rounds} rounds, medians\n");
    text.push_str("loop       frame Gb/s   data Gb/s      Mpps   lost 1/1000   spread\n");
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<10} {:>10.2} {:>11.2} {:>9.3} {:>13.2} {:>6.0} %",
            row.mode.name(),
            row.frame_gbps.median,
            row.data_gbps.median,
            row.mpps.median,
            row.lost_per_mille.median,
            row.mpps.spread_percent()
        );
    }
    text
}

/// The comparison, for JSON.
#[derive(Serialize)]
pub(crate) struct Comparison<'a> {
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// The largest share of its time that the machine was busy with other things before a round.
    pub(crate) busiest: f64,
    pub(crate) lines: &'a [Line],
}

/// The table of the comparison.
pub(crate) fn table(effort: Effort, lines: &[Line]) -> String {
    let mut text = format!(
        "one plane, a core a host; {} interleaved rounds of {} s, medians\n",
        effort.rounds, effort.seconds
    );
    text.push_str(
        "row        case                    unit     ours  beside            theirs    ratio    spread  goal\n",
    );
    for line in lines {
        for (at, beside) in line.beside.iter().enumerate() {
            let (row, label, unit) = if at == 0 {
                (line.row, line.label.as_str(), line.unit)
            } else {
                ("", "", "")
            };
            let ours = if at == 0 {
                format!("{:.3}", line.ours.median)
            } else {
                String::new()
            };
            let verdict = match beside.holds {
                Some(true) => format!("{} holds", beside.goal),
                Some(false) => format!("{} NOT MET", beside.goal),
                None => String::new(),
            };
            let noise = if beside.noisy { " (noisy)" } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{row:<10} {label:<23} {unit:<5} {ours:>7}  {:<14} {:>9.3} {:>8.2} {:>7.0} %  {verdict}{noise}",
                beside.name,
                beside.value.median,
                beside.ratio.median,
                beside.ratio.spread_percent()
            );
        }
    }
    text
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these sums are exact")]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(
            Median::of([3.0, 1.0, 2.0]),
            Median {
                median: 2.0,
                lowest: 1.0,
                highest: 3.0
            }
        );
        assert_eq!(Median::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Median::of([]).median, 0.0);
    }

    #[test]
    fn the_spread_is_relative() {
        assert_eq!(Median::of([90.0, 100.0, 120.0]).spread_percent(), 30.0);
    }

    #[test]
    fn goodput_counts_the_data_only() {
        let speed = Speed {
            frames_per_second: 1e6,
            lost_per_mille: 0.0,
        };
        let row = BareRow::new(Mode::Bare, 1000 + WRITE_OVERHEAD, &[speed]);
        assert_eq!(row.data_gbps.median, 8.0);
        assert_eq!(row.mpps.median, 1.0);
    }
}
