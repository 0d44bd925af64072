//! MRC beside the baselines: the same fabric, load, faults and seed, one condition after the other.
//!
//! MRC runs as `mrc-sim run` runs it, with its hosts' delays and all oracles; the baselines are the models of
//! [`baseline`](crate::baseline), striped over all planes and without host delays. So the factors are about loss, dead paths
//! and queues, not about the number of ports.

use crate::baseline::workload::{Transfer, Workload};
use crate::baseline::{self, BaselineError, BaselineReport, Kind};
use crate::run::file::FileError;
use crate::run::{Load, Options, load_of, run_file};
use serde_json::{Value, json};
use std::fmt::Write as _;
use thiserror::Error;

/// A baseline that is not complete after so many times what MRC took is not waited for any longer.
const PATIENCE: u64 = 20;

const ONE_PATH: &str = "one path dies";
const ONE_PLANE: &str = "one plane dies";

const PAIR: &str = "
title = \"comparison\"
[fabric]
planes = 4
leaves = 2
spines = 4
hosts_per_leaf = 1
[workload]
kind = \"bulk\"
from = 0
to = 1
bytes = 67_108_864
";

const INCAST: &str = "
title = \"comparison\"
[fabric]
planes = 4
leaves = 4
spines = 4
hosts_per_leaf = 4
[workload]
kind = \"incast\"
senders = 7
bytes = 16_777_216
";

/// Why a comparison cannot be made.
#[derive(Debug, Error)]
pub enum CompareError {
    /// The scenario cannot be.
    #[error(transparent)]
    File(#[from] FileError),
    /// The baselines cannot run it.
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    /// MRC broke a promise.
    #[error("{condition}: oracle violated: {detail}; repeat with --seed {seed}")]
    Violation {
        /// In which condition.
        condition: String,
        /// Which one.
        detail: String,
        /// Seed of the run.
        seed: u64,
    },
}

/// All conditions.
#[derive(Debug)]
pub struct Comparison {
    /// Seed of all runs.
    pub seed: u64,
    /// One after the other.
    pub rows: Vec<Row>,
    /// What the fabric makes of the conditions, if it is not what their names say.
    pub notes: Vec<String>,
}

/// One condition.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub condition: String,
    /// MRC.
    pub mrc: Measured,
    /// The baselines, with how many times as long as MRC they took; a lower limit, if they were not complete.
    pub baselines: Vec<(Kind, Measured, f64)>,
}

/// What a transport achieved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Payload per time in Gb/s.
    pub goodput_gbps: f64,
    /// From the first post to the last byte placed; `None`: not everything arrived in time.
    pub completion_us: Option<f64>,
    /// Repetitions among all data packets sent.
    pub repeated_share: f64,
}

/// Runs all conditions. `options` are those of `mrc-sim run`; keys are set in every condition.
pub fn compare(options: &Options) -> Result<Comparison, CompareError> {
    let load = load_of("compare", PAIR, options)?;
    let mut rows = vec![row("no loss", PAIR, options)?];
    let mut notes = Vec::new();
    for percent in ["0.01", "0.1", "1"] {
        let text = with_fault(PAIR, &format!("kind = \"loss\"\npercent = {percent}"));
        rows.push(row(&format!("{percent} % loss"), &text, options)?);
    }
    // In the middle of the first quarter, when all are at full speed.
    let from_us = rows[0].mrc.completion_us.unwrap_or(0.0) / 8.0;
    let path = baseline::first_path(&load.clos, &workload(&load, u64::MAX), load.seed)?;
    match path.and_then(|path| path.spine()) {
        Some(spine) => {
            let dead = format!("kind = \"spine_down\"\nplane = 1\nswitch = {spine}\nfrom_us = {from_us}");
            rows.push(row(ONE_PATH, &with_fault(PAIR, &dead), options)?);
            if load.clos.shape.spines == 1 {
                notes.push(format!(
                    "\"{ONE_PATH}\": with fabric.spines = 1, that path is all of its plane."
                ));
            }
        }
        None => notes.push(format!(
            "\"{ONE_PATH}\" is left out: below one switch (fabric.leaves = {}), a plane has no other path.",
            load.clos.shape.leaves
        )),
    }
    let dead = format!("kind = \"blackhole\"\nplane = 1\nfrom_us = {from_us}");
    rows.push(row(ONE_PLANE, &with_fault(PAIR, &dead), options)?);
    if load.clos.shape.planes == 1 {
        notes.push(format!(
            "\"{ONE_PLANE}\": with fabric.planes = 1, that plane is all there is."
        ));
    }
    rows.push(row("incast", INCAST, options)?);
    Ok(Comparison {
        seed: load.seed,
        rows,
        notes,
    })
}

fn with_fault(text: &str, fault: &str) -> String {
    format!("{text}[[fault]]\n{fault}\n")
}

fn workload(load: &Load, deadline_ns: u64) -> Workload {
    let transfer = |(src, dst, bytes): &(usize, usize, u64)| Transfer {
        src: *src,
        dst: *dst,
        bytes: *bytes,
        start_ns: 0,
    };
    Workload {
        transfers: load.flows.iter().map(transfer).collect(),
        stripes: load.clos.shape.planes.into(),
        pmtu: load.pmtu,
        deadline_ns,
    }
}

fn row(condition: &str, text: &str, options: &Options) -> Result<Row, CompareError> {
    let load = load_of("compare", text, options)?;
    let options = &Options {
        onlooker: options.onlooker.as_ref().map(|onlooker| onlooker.named(condition)),
        ..options.clone()
    };
    let report = run_file("compare", text, options)?;
    let run = report.cases.into_iter().next().map(|case| case.run);
    let run = match run {
        Some(Ok(run)) => run,
        other => {
            let detail = other.and_then(Result::err).map(|violation| violation.to_string());
            return Err(CompareError::Violation {
                condition: condition.to_owned(),
                detail: detail.unwrap_or_default(),
                seed: load.seed,
            });
        }
    };
    let metric = |name| run.metrics.get(name).copied().unwrap_or(f64::NAN);
    let took_us = metric("completion_us");
    let mrc = Measured {
        goodput_gbps: metric("goodput_gbps"),
        completion_us: Some(took_us),
        repeated_share: metric("retransmitted_share"),
    };
    let workload = workload(&load, (took_us * 1000.0) as u64 * PATIENCE);
    let mut baselines = Vec::new();
    for kind in Kind::ALL {
        let report = baseline::run(kind, &load.clos, &workload, &load.faults, load.seed)?;
        let measured = Measured::from(&report);
        let factor = measured.completion_us.map_or(PATIENCE as f64, |us| us / took_us);
        baselines.push((kind, measured, factor));
    }
    Ok(Row {
        condition: condition.to_owned(),
        mrc,
        baselines,
    })
}

impl From<&BaselineReport> for Measured {
    fn from(report: &BaselineReport) -> Measured {
        let complete = report.is_complete();
        let span_ns = if complete { report.placed_ns } else { report.span_ns };
        Measured {
            goodput_gbps: report.delivered_bytes as f64 * 8.0 / span_ns.max(1) as f64,
            completion_us: complete.then_some(report.placed_ns as f64 / 1000.0),
            repeated_share: report.repeated as f64 / report.packets.max(1) as f64,
        }
    }
}

impl Comparison {
    /// As a table.
    pub fn table(&self) -> String {
        let mut text = format!("{:<16}{:>20}", "", "MRC");
        for kind in Kind::ALL {
            let _ = write!(text, "{:>30}", format!("{kind} (model)"));
        }
        let _ = write!(text, "\n{:<16}{:>9}{:>11}", "condition", "Gb/s", "ms");
        for _ in Kind::ALL {
            let _ = write!(text, "{:>10}{:>11}{:>9}", "Gb/s", "ms", "factor");
        }
        text.push('\n');
        for row in &self.rows {
            let _ = write!(
                text,
                "{:<16}{:>9.2}{:>11}",
                row.condition,
                row.mrc.goodput_gbps,
                row.mrc.time()
            );
            for (_, measured, factor) in &row.baselines {
                let limit = if measured.completion_us.is_none() { ">" } else { "" };
                let factor = format!("{limit}{factor:.2}");
                let _ = write!(
                    text,
                    "{:>10.2}{:>11}{factor:>9}",
                    measured.goodput_gbps,
                    measured.time()
                );
            }
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "\nTimes are from the first post to the last byte placed; factors are times of MRC's. \"never\": not complete after\n\
             {PATIENCE} times MRC's time; its goodput is what was delivered until then. The baselines are models without congestion control,\n\
             with one connection for each plane. Seed {}.",
            self.seed
        );
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let baselines = row.baselines.iter().map(|(kind, measured, factor)| {
                let mut value = measured.json();
                value["transport"] = kind.to_string().into();
                value["model"] = true.into();
                value["factor"] = (*factor).into();
                value["factor_is_lower_limit"] = measured.completion_us.is_none().into();
                value
            });
            json!({
                "condition": row.condition,
                "mrc": row.mrc.json(),
                "baselines": baselines.collect::<Vec<_>>(),
            })
        };
        json!({
            "seed": self.seed,
            "conditions": self.rows.iter().map(row).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

impl Measured {
    fn time(&self) -> String {
        self.completion_us
            .map_or_else(|| "never".to_owned(), |us| format!("{:.3}", us / 1000.0))
    }

    fn json(&self) -> Value {
        json!({
            "goodput_gbps": self.goodput_gbps,
            "completion_us": self.completion_us,
            "repeated_share": self.repeated_share,
        })
    }
}
