//! `list` and `run`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;

use clap::Args;
use netns_lab::LabError;

use super::{output, signals};
use crate::report;
use crate::run::{self, News, RunError};
use crate::scenario::{self, Scenario};
use crate::verdict;

/// Exit status where a criterion does not hold, or the figures cannot be trusted.
const FAILED: u8 = 1;

/// What to run, and what to write.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Scenarios by name (`netns-lab list`), or files
    #[arg(value_name = "NAME|FILE", required_unless_present = "all")]
    scenarios: Vec<String>,
    /// All scenarios that come with the program
    #[arg(long, conflicts_with = "scenarios")]
    all: bool,
    /// Results as JSON on standard output, a line per run
    #[arg(long)]
    json: bool,
    /// Write report.html, results.json, series.csv and messages.csv into DIR/NAME
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Record what passes the fabric's ports of host 0 into DIR/NAME (needs tcpdump; costs processor time)
    #[arg(long, requires = "report")]
    pcap: bool,
    /// Run each so many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Run a scenario again, at most so many times, whose figures could not be trusted: the machine had no processor time to spare
    #[arg(long, value_name = "N", default_value_t = 0)]
    retry: u32,
    /// Seed of data and losses, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Nothing on standard error while it runs
    #[arg(long)]
    quiet: bool,
}

/// Why the command could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    File(#[from] scenario::FileError),
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error(transparent)]
    Report(#[from] report::ReportError),
}

/// Prints the names and titles of the scenarios.
pub(crate) fn list() -> Result<u8, CommandError> {
    let mut text = String::new();
    let width = scenario::NAMES.iter().map(|name| name.len()).max().unwrap_or(0);
    for name in scenario::NAMES {
        let (_, scenario) = scenario::load(name)?;
        let paper = scenario.paper.map_or_else(String::new, |paper| format!(" ({paper})"));
        let _ = writeln!(text, "{name:<width$}  {}{paper}", scenario.title);
    }
    output::print(&text);
    Ok(0)
}

/// Runs scenarios, one after the other.
pub(crate) fn run(args: &RunArgs) -> Result<u8, CommandError> {
    let names: Vec<&str> = if args.all {
        scenario::NAMES.to_vec()
    } else {
        args.scenarios.iter().map(String::as_str).collect()
    };
    // All of them before the first: a mistake in the last should cost no run.
    let scenarios = names
        .iter()
        .map(|name| scenario::load(name))
        .collect::<Result<Vec<_>, _>>()?;
    let (news, inbox) = mpsc::channel();
    let asked = news.clone();
    signals::watch(move |signal| {
        let _ = asked.send(News::Signal(signal));
    })?;
    let mut failed = Vec::new();
    let mut runs = 0;
    for (name, scenario) in &scenarios {
        for round in 1..=args.repeat {
            runs += 1;
            let title = if args.repeat > 1 {
                format!("{name} {round}/{}", args.repeat)
            } else {
                name.clone()
            };
            match run_until_trusted(args, name, scenario, round, (&news, &inbox)) {
                Ok(true) => {}
                Ok(false) => failed.push(title),
                Err(Ended::Signal(signal)) => return Ok(128 + signal as u8),
                Err(Ended::Command(error)) => return Err(error),
            }
        }
    }
    if runs > 1 && !args.json {
        let tail = if failed.is_empty() {
            String::new()
        } else {
            format!("; failed: {}", failed.join(", "))
        };
        output::print(&format!("{} of {runs} runs passed{tail}\n", runs - failed.len()));
    }
    Ok(if failed.is_empty() { 0 } else { FAILED })
}

enum Ended {
    Signal(netns_lab::Signal),
    Command(CommandError),
}

impl<E: Into<CommandError>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Command(error.into())
    }
}

/// Runs one scenario, and again while its figures cannot be trusted, as often as is allowed; true if it passed.
fn run_until_trusted(
    args: &RunArgs,
    name: &str,
    scenario: &Scenario,
    round: u32,
    (news, inbox): (&mpsc::Sender<News>, &mpsc::Receiver<News>),
) -> Result<bool, Ended> {
    let mut left = args.retry;
    loop {
        let outcome = run_one(args, name, scenario, round, (news, inbox))?;
        // What agents of this run said last is not about the next one.
        for late in inbox.try_iter() {
            if let News::Signal(signal) = late {
                return Err(Ended::Signal(signal));
            }
        }
        if outcome != Outcome::Doubtful || left == 0 {
            return Ok(outcome == Outcome::Passed);
        }
        left -= 1;
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// The machine spoiled it: nothing is known.
    Doubtful,
}

/// Runs one scenario once.
fn run_one(
    args: &RunArgs,
    name: &str,
    scenario: &Scenario,
    round: u32,
    news: (&mpsc::Sender<News>, &mpsc::Receiver<News>),
) -> Result<Outcome, Ended> {
    let directory = args.report.as_deref().map(|top| {
        let name = if args.repeat > 1 {
            format!("{name}.{round}")
        } else {
            name.to_owned()
        };
        top.join(name)
    });
    let options = run::Options {
        silent: args.quiet,
        seed: args.seed,
        captures: directory.clone().filter(|_| args.pcap),
    };
    if let Some(directory) = &directory {
        report::make_directory(directory)?;
    }
    let record = match run::play(name, scenario, &options, news) {
        Ok(record) => record,
        Err(RunError::Signal(signal)) => return Err(Ended::Signal(signal)),
        Err(RunError::Lab(error @ (LabError::Privilege | LabError::Program { .. }))) => return Err(error.into()),
        Err(error) => {
            let line = if args.json {
                report::failed_json(name, &error.to_string())
            } else {
                format!("{name}: FAILED: {error}\n")
            };
            output::print(&line);
            return Ok(Outcome::Failed);
        }
    };
    let verdict = verdict::judge(&record);
    if args.json {
        output::print(&report::json_line(&record, &verdict)?);
    } else {
        output::print(&report::text(&record, &verdict));
    }
    if let Some(directory) = directory {
        report::write(&directory, &record, &verdict)?;
        if !args.json {
            output::print(&format!("  report: {}\n", directory.join("report.html").display()));
        }
    }
    Ok(match (verdict.passed, verdict.doubts.is_empty()) {
        (true, _) => Outcome::Passed,
        (false, true) => Outcome::Failed,
        (false, false) => Outcome::Doubtful,
    })
}
