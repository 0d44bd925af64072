//! `mrc-sim run`.

use crate::command::out::{fail, say, tell};
use crate::command::progress::Line;
use mrc_sim::run::{
    CaseReport, FileReport, Onlooker, Options, Sight, names, run_file, text_of, write_plots, write_series,
};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Fewer make no picture.
const FEW_SAMPLES: usize = 10;

/// Directories for time series.
pub(crate) struct Places {
    pub(crate) series: Option<PathBuf>,
    pub(crate) plot: Option<PathBuf>,
}

impl Places {
    /// The interval of time series, if there are to be any.
    pub(crate) fn interval_us(&self, asked: Option<f64>) -> Result<Option<f64>, String> {
        if self.series.is_none() && self.plot.is_none() {
            return match asked {
                None => Ok(None),
                Some(us) => Err(format!(
                    "--sample-us {us} is for time series: give --series DIR or --plot DIR too"
                )),
            };
        }
        match asked {
            Some(us) if !(0.001..=1e9).contains(&us) => Err(format!(
                "--sample-us {us}: give a number from 0.001 to 1000000000, or leave it out"
            )),
            _ => Ok(Some(asked.unwrap_or(0.0))),
        }
    }
}

/// The text of a scenario: one that comes along, or a file.
pub(crate) fn text(scenario: &str) -> Result<String, String> {
    if let Some(text) = text_of(scenario) {
        return Ok(text.to_owned());
    }
    if !scenario.contains(['.', '/']) {
        let known: Vec<_> = names().collect();
        return Err(format!(
            "there is no scenario \"{scenario}\": choose one of {}, or give a file",
            known.join(", ")
        ));
    }
    std::fs::read_to_string(scenario).map_err(|error| format!("{scenario} cannot be read: {error}"))
}

/// A line that tells of runs.
pub(crate) fn watcher(quiet: bool) -> (Arc<Line>, Onlooker) {
    let line = Arc::new(Line::new(quiet));
    let told = Arc::clone(&line);
    let tell = move |sight: &Sight| {
        told.show(|| {
            let percent = 100.0 * sight.placed_bytes as f64 / sight.planned_bytes.max(1) as f64;
            format!(
                "{}: {percent:.1} % of {:.1} MiB written, {} packets, {:.3} ms of virtual time, {:.0} s",
                sight.what,
                sight.planned_bytes as f64 / f64::from(1 << 20),
                sight.packets,
                sight.now_ns as f64 / 1e6,
                told.elapsed().as_secs_f64()
            )
        });
    };
    (line, Onlooker::new(tell))
}

pub(crate) fn run(scenario: &str, options: Options, json: bool, places: &Places, quiet: bool) -> ExitCode {
    let text = match text(scenario) {
        Ok(text) => text,
        Err(error) => return fail(&error),
    };
    let (line, onlooker) = watcher(quiet);
    let options = Options {
        onlooker: Some(onlooker),
        ..options
    };
    let report = run_file(scenario, &text, &options);
    line.end();
    let report = match report {
        Ok(report) => report,
        Err(error) => return fail(&error.to_string()),
    };
    let mut files = Vec::new();
    for case in &report.cases {
        let tables = (places.series.as_deref()).map_or(Ok(Vec::new()), |place| write_series(place, scenario, case));
        let plots = (places.plot.as_deref()).map_or(Ok(Vec::new()), |place| {
            write_plots(place, scenario, &report.title, case)
        });
        match (tables, plots) {
            (Ok(tables), Ok(plots)) => files.extend(tables.into_iter().chain(plots)),
            (Err(error), _) | (_, Err(error)) => return fail(&error.to_string()),
        }
    }
    if json {
        say(&format!("{:#}", report.json()));
    } else {
        say(report.table().trim_end_matches('\n'));
        for file in files {
            say(&format!("written: {}", file.display()));
        }
        for run in report.cases.iter().filter_map(|case| case.run.as_ref().ok()) {
            let (samples, ended_us) = (run.samples.len(), run.outcome.ended_ns as f64 / 1000.0);
            if options.sample_us.is_some() && samples < FEW_SAMPLES {
                say(&format!(
                    "only {samples} samples in {ended_us:.1} us: --sample-us {:.3} takes a hundred",
                    ended_us / 100.0
                ));
            }
        }
    }
    for case in &report.cases {
        complain(&report, case);
    }
    if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn complain(report: &FileReport, case: &CaseReport) {
    let name = report.name_of(case);
    match &case.run {
        Err(violation) => tell(&format!(
            "{name}: oracle violated: {violation}; replay: {}",
            case.replay
        )),
        Ok(_) => {
            for verdict in case.verdicts.iter().filter(|verdict| !verdict.met) {
                tell(&format!(
                    "{name}: missed: {}, found {}; replay: {}",
                    verdict.demand,
                    verdict.found_text(),
                    case.replay
                ));
            }
        }
    }
}
