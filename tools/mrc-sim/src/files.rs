//! The commands that run and list scenario files.

use crate::say;
use mrc_sim::run::{
    CaseReport, FileReport, METRICS, Options, names, run_file, text_of, title_of, write_plots, write_series,
};
use std::path::Path;
use std::process::ExitCode;

/// A mistake of the person at the keyboard, or of the file.
pub(crate) fn fail(error: &str) -> ExitCode {
    eprintln!("mrc-sim: {error}");
    ExitCode::from(2)
}

/// The text of a scenario: one that comes along, or a file.
fn text(scenario: &str) -> Result<String, String> {
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

pub(crate) fn run(
    scenario: &str,
    options: &Options,
    json: bool,
    series: Option<&Path>,
    plot: Option<&Path>,
) -> ExitCode {
    let text = match text(scenario) {
        Ok(text) => text,
        Err(error) => return fail(&error),
    };
    let report = match run_file(scenario, &text, options) {
        Ok(report) => report,
        Err(error) => return fail(&error.to_string()),
    };
    let mut files = Vec::new();
    for case in &report.cases {
        let tables = series.map_or(Ok(Vec::new()), |directory| write_series(directory, scenario, case));
        let plots = plot.map_or(Ok(Vec::new()), |directory| {
            write_plots(directory, scenario, &report.title, case)
        });
        match (tables, plots) {
            (Ok(tables), Ok(plots)) => files.extend(tables.into_iter().chain(plots)),
            (Err(error), _) | (_, Err(error)) => return fail(&format!("time series cannot be written: {error}")),
        }
    }
    if json {
        say(&format!("{:#}", report.json()));
    } else {
        say(report.table().trim_end_matches('\n'));
        for file in files {
            say(&format!("written: {}", file.display()));
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
        Err(violation) => eprintln!("{name}: oracle violated: {violation}; replay: {}", case.replay),
        Ok(_) => {
            for verdict in case.verdicts.iter().filter(|verdict| !verdict.met) {
                eprintln!(
                    "{name}: missed: {}, found {:.4}; replay: {}",
                    verdict.demand, verdict.found, case.replay
                );
            }
        }
    }
}

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
    let rows: Vec<(String, String)> = if metrics {
        METRICS
            .iter()
            .map(|(name, what)| ((*name).to_owned(), (*what).to_owned()))
            .collect()
    } else {
        names()
            .map(|name| (name.to_owned(), title_of(name).unwrap_or_default()))
            .collect()
    };
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, what) in rows {
        say(&format!("{name:<width$}  {what}"));
    }
    ExitCode::SUCCESS
}
