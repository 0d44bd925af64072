//! `results.json`: everything but the series.

use serde::Serialize;

use crate::run::Record;
use crate::scenario::human_bytes;
use crate::verdict::{Verdict, percentile, times_ms};

#[derive(Serialize)]
struct Results<'a> {
    passed: bool,
    verdict: &'a Verdict,
    workloads: Vec<WorkloadResults<'a>>,
    #[serde(flatten)]
    record: &'a Record,
}

#[derive(Serialize)]
struct WorkloadResults<'a> {
    name: &'a str,
    transport: &'static str,
    start: f64,
    end: f64,
    messages: u64,
    goodput_mbps: Vec<f64>,
    times: Vec<Times>,
}

/// The message times of a size.
#[derive(Serialize)]
pub(super) struct Times {
    pub size: String,
    pub count: usize,
    pub mean_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// Of a stream its goodput, the slower way; of a collective bytes per time.
    pub mbps: f64,
}

/// The whole document.
pub(crate) fn json(record: &Record, verdict: &Verdict) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(&results(record, verdict))? + "\n")
}

/// The same in one line.
pub(crate) fn json_line(record: &Record, verdict: &Verdict) -> Result<String, super::ReportError> {
    Ok(serde_json::to_string(&results(record, verdict))? + "\n")
}

/// For a run that did not come to its end.
pub(crate) fn failed_json(name: &str, error: &str) -> String {
    let line = serde_json::json!({ "passed": false, "name": name, "error": error });
    format!("{line}\n")
}

fn results<'a>(record: &'a Record, verdict: &'a Verdict) -> Results<'a> {
    let workloads = record.scenario.workload.iter().enumerate().map(|(place, workload)| {
        let ran = &record.workloads[place];
        let ways = record.ways(place).iter();
        WorkloadResults {
            name: &workload.name,
            transport: workload.transport.label(),
            start: ran.start,
            end: ran.end,
            messages: ran.outcomes.values().map(|outcome| outcome.messages).sum(),
            goodput_mbps: ways
                .map(|way| record.goodput_bps(place, *way, ran.start, ran.end) / 1e6)
                .collect(),
            times: rows(record, place),
        }
    });
    Results {
        passed: verdict.passed,
        verdict,
        workloads: workloads.collect(),
        record,
    }
}

/// A row per size of a workload.
pub(super) fn rows(record: &Record, place: usize) -> Vec<Times> {
    let workload = &record.scenario.workload[place];
    let ran = &record.workloads[place];
    let ways = record.ways(place).iter();
    let goodput = ways.map(|way| record.goodput_bps(place, *way, ran.start, ran.end) / 1e6);
    let goodput = goodput.fold(f64::INFINITY, f64::min);
    let row = |size: u64| {
        let times = times_ms(record, place, Some(size));
        let mean = (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64);
        Times {
            size: human_bytes(size),
            count: times.len(),
            mean_ms: mean,
            p50_ms: percentile(&times, 50.0),
            p99_ms: percentile(&times, 99.0),
            max_ms: percentile(&times, 100.0),
            mbps: match mean {
                Some(mean) if workload.kind.is_collective() => size as f64 * 8.0 / mean / 1e3,
                _ => goodput,
            },
        }
    };
    workload.all_sizes().into_iter().map(row).collect()
}
