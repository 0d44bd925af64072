//! `mrc-sim list`.

use crate::command::out::{fail, say};
use crate::command::run::text;
use mrc_sim::run::{METRICS, names, text_of, title_of};
use std::process::ExitCode;

pub(crate) fn list(metrics: bool, show: Option<&str>) -> ExitCode {
    if let Some(name) = show {
        return match text_of(name) {
            Some(text) => {
                say(text.trim_end_matches('\n'));
                ExitCode::SUCCESS
            }
            None => fail(&text(name).err().unwrap_or_else(|| format!("{name} is a file already"))),
        };
    }
    let rows: Vec<[String; 3]> = if metrics {
        METRICS
            .iter()
            .map(|metric| [metric.name.to_owned(), metric.unit.to_owned(), metric.what.to_owned()])
            .collect()
    } else {
        names()
            .map(|name| [name.to_owned(), String::new(), title_of(name).unwrap_or_default()])
            .collect()
    };
    let widest = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let (first, second) = (widest(0), widest(1));
    for [name, unit, what] in &rows {
        if second == 0 {
            say(&format!("{name:<first$}  {what}"));
        } else {
            say(&format!("{name:<first$}  {unit:<second$}  {what}"));
        }
    }
    ExitCode::SUCCESS
}
