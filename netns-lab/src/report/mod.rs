//! What a run leaves to be read: a text, JSON, CSV, and one page of HTML.

mod csv;
mod curves;
mod draw;
mod page;
mod plot;
mod results;

use std::fmt::Write as _;
use std::path::Path;

use crate::run::Record;
use crate::verdict::{Finding, Verdict};

pub(crate) use results::{failed_json, json_line};

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    /// The disk refused.
    #[error("cannot write {file}: {source}")]
    Write {
        /// Which file.
        file: String,
        /// What the kernel answered.
        source: std::io::Error,
    },
    /// A value without a form in JSON.
    #[error("results cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Makes a report's directory.
pub(crate) fn make_directory(directory: &Path) -> Result<(), ReportError> {
    std::fs::create_dir_all(directory).map_err(|source| ReportError::Write {
        file: directory.display().to_string(),
        source,
    })
}

/// Writes all files of a report.
pub(crate) fn write(directory: &Path, record: &Record, verdict: &Verdict) -> Result<(), ReportError> {
    let put = |name: &str, text: &str| {
        let file = directory.join(name);
        std::fs::write(&file, text).map_err(|source| ReportError::Write {
            file: file.display().to_string(),
            source,
        })
    };
    put("results.json", &results::json(record, verdict)?)?;
    put("series.csv", &csv::series(record))?;
    put("messages.csv", &csv::messages(record))?;
    put("report.html", &page::html(record, verdict))
}

/// The verdicts for a terminal.
pub(crate) fn text(record: &Record, verdict: &Verdict) -> String {
    let word = if verdict.passed { "passed" } else { "FAILED" };
    let mut text = format!(
        "{}: {word} ({}, {:.1} s)\n",
        record.name, record.scenario.title, record.seconds
    );
    for doubt in &verdict.doubts {
        let _ = writeln!(text, "  FAILED  {doubt}");
    }
    for finding in &verdict.findings {
        let word = if finding.holds { "ok    " } else { "FAILED" };
        let _ = writeln!(
            text,
            "  {word}  {}: {} ({})",
            finding.name,
            figure(finding),
            finding.detail
        );
    }
    text
}

/// What was found and what was demanded.
pub(crate) fn figure(finding: &Finding) -> String {
    let unit = if finding.unit.is_empty() {
        String::new()
    } else {
        format!(" {}", finding.unit)
    };
    match finding.found {
        Some(found) => format!("{}{unit}, {} demanded", number(found), finding.demand),
        None => format!("no figure, {} demanded", finding.demand),
    }
}

/// As many digits as say something.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v == 0.0 || (v.fract() == 0.0) => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 => 3,
        _ => 5,
    };
    format!("{value:.digits$}")
}
