//! Judges a run by its scenario's criteria, and refuses to judge where the figures cannot be trusted.

mod fabric;
mod measure;
mod trust;

pub(crate) use measure::{percentile, times_ms};

use serde::Serialize;

use crate::run::Record;
use crate::scenario::Criterion;

/// What became of a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    /// All criteria hold, and the figures can be trusted.
    pub passed: bool,
    /// One per criterion of the file, after those that hold for every scenario.
    pub findings: Vec<Finding>,
    /// Why the figures cannot be trusted.
    pub doubts: Vec<String>,
}

/// What became of a criterion.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    /// The criterion, in words.
    pub name: String,
    /// What was demanded.
    pub demand: String,
    /// What was found; none if it could not be measured.
    pub found: Option<f64>,
    /// What it is counted in; nothing for ratios.
    pub unit: &'static str,
    /// Where the figure is from: the worst window, the worst host.
    pub detail: String,
    /// Whether that will do.
    pub holds: bool,
}

/// A figure and where it is from, or why there is none.
type Measured = Result<(f64, String), String>;

/// Judges a run.
pub(crate) fn judge(record: &Record) -> Verdict {
    let mut findings = Vec::new();
    for place in 0..record.workloads.len() {
        findings.extend(soundness(record, place));
    }
    findings.extend(
        record
            .scenario
            .criterion
            .iter()
            .map(|criterion| finding(record, criterion)),
    );
    let reference = record.reference.as_deref();
    if let Some(reference) = reference {
        findings.extend((0..reference.workloads.len()).filter_map(|place| soundness(reference, place)));
    }
    let holds = findings.iter().all(|finding| finding.holds);
    let mut doubts = record.doubts.clone();
    doubts.extend(trust::doubts(record, holds));
    if let Some(reference) = reference {
        let of_reference = trust::doubts(reference, holds);
        doubts.extend(of_reference.into_iter().map(|doubt| format!("the reference: {doubt}")));
    }
    Verdict {
        passed: doubts.is_empty() && holds,
        findings,
        doubts,
    }
}

fn finding(record: &Record, criterion: &Criterion) -> Finding {
    let measured = measure::measure(record, criterion);
    let (found, detail) = match measured {
        Ok((found, detail)) => (found.is_finite().then_some(found), detail),
        Err(why) => (None, format!("not measured: {why}")),
    };
    let holds = found.is_some_and(|found| {
        criterion.at_least.is_none_or(|least| found >= least) && criterion.at_most.is_none_or(|most| found <= most)
    });
    Finding {
        name: criterion.name.clone(),
        demand: criterion.demand(),
        found,
        unit: criterion.measure.unit(criterion.of.is_some()),
        detail,
        holds,
    }
}

/// What must hold of every workload, unless the file has a criterion on errors of its own: it ended, nothing failed, and the data is
/// what was sent.
fn soundness(record: &Record, place: usize) -> Option<Finding> {
    let workload = &record.scenario.workload[place];
    let expected = |criterion: &Criterion| {
        criterion.measure == crate::scenario::Measure::Errors && criterion.workload.as_ref() == Some(&workload.name)
    };
    if record.scenario.criterion.iter().any(expected) {
        return None;
    }
    let (errors, detail) = measure::errors(record, place);
    Some(Finding {
        name: format!("{} ends without an error, and its data is what was sent", workload.name),
        demand: "at most 0".to_owned(),
        found: Some(errors),
        unit: "",
        detail,
        holds: errors == 0.0,
    })
}
