//! Command line of the simulator.

use clap::{Parser, Subcommand};
use mrc_sim::harness::{Harness, Report, replay_command, run_scenario};
use mrc_sim::progress::{Progress as Kept, ProgressError};
use mrc_sim::scenario::Scenario;
use mrc_sim::trace::Trace;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "Examples:
  mrc-sim harness --seeds 5000
  mrc-sim harness --seeds 100000 --resume long-run.json    (Ctrl-C, then the same again)
  mrc-sim replay 1918 --trace";

/// MRC endpoints in a simulated network with virtual time
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds: hostile networks, every step judged by oracles
    ///
    /// Fails when a seed breaks a promise of the protocol, and, with 5000 seeds or more, when none of them exercised a rule.
    #[command(after_help = EXAMPLES)]
    Harness {
        /// How many seeds
        #[arg(long, default_value_t = 5000)]
        seeds: u64,
        /// First seed
        #[arg(long, default_value_t = 0)]
        start: u64,
        /// Threads
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Stop after so many failures
        #[arg(long, default_value_t = 1)]
        max_failures: usize,
        /// Print the summary as JSON
        #[arg(long)]
        json: bool,
        /// Keep what was done in FILE, and go on from there after an interruption
        #[arg(long, value_name = "FILE")]
        resume: Option<PathBuf>,
    },
    /// Run one seed again
    Replay {
        /// The seed
        seed: u64,
        /// Print every event
        #[arg(long)]
        trace: bool,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Harness {
            seeds,
            start,
            jobs,
            max_failures,
            json,
            resume,
        } => harness(
            &Harness {
                start,
                seeds,
                jobs,
                max_failures,
            },
            json,
            resume.as_deref(),
        ),
        Command::Replay { seed, trace } => replay(seed, trace),
    }
}

fn harness(harness: &Harness, json: bool, resume: Option<&Path>) -> ExitCode {
    let begun = match resume.map_or_else(|| Ok(Kept::new(harness)), |path| Kept::load(path, harness)) {
        Ok(begun) => begun,
        Err(error) => {
            eprintln!("mrc-sim: {error}");
            return ExitCode::from(2);
        }
    };
    // A panic of the protocol is reported as a failure with its seed; its backtrace would only tear the output.
    std::panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let progress = Progress::new(harness.seeds, begun.done());
    let keeper = Keeper::new(resume);
    let report = harness.go_on(begun, &|done| progress.show(done), &|state| keeper.keep(state));
    progress.end();
    if let Some(error) = keeper.end() {
        eprintln!("mrc-sim: {error}");
        return ExitCode::from(2);
    }
    let wall = start.elapsed();
    if json {
        let mut value = report.json();
        value["wall_s"] = wall.as_secs_f64().into();
        say(&format!("{value:#}"));
    } else {
        say(report.table().trim_end_matches('\n'));
        say(&format!(
            "{} seeds passed in {:.1} s: {} packets, {} engine turns, {:.1} s of virtual time",
            report.passed,
            wall.as_secs_f64(),
            report.packets,
            report.turns,
            report.virtual_s
        ));
        say(&format!("{} passed, {} failed", report.passed, report.failures.len()));
    }
    verdict(&report)
}

/// A line of output. When the reader has gone (`| head`), the verdict still counts, but nobody reads it.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn verdict(report: &Report) -> ExitCode {
    for (seed, violation) in &report.failures {
        eprintln!(
            "oracle violated: {violation}; seed {seed}; replay: {}",
            replay_command(*seed)
        );
    }
    let untouched = report.untouched();
    for rule in &untouched {
        eprintln!("rule never exercised: {rule}; {} seeds should meet it", report.passed);
    }
    if report.failures.is_empty() && untouched.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn replay(seed: u64, trace: bool) -> ExitCode {
    let scenario = Scenario::from_seed(seed);
    let sink = if trace {
        say(&outline(&scenario));
        Trace::to(std::io::BufWriter::new(std::io::stdout()))
    } else {
        Trace::off()
    };
    match run_scenario(scenario, sink) {
        Ok(outcome) => {
            say(&format!(
                "seed {seed} passed: {} packets, {:.3} ms of virtual time",
                outcome.packets,
                outcome.ended_ns as f64 / 1e6
            ));
            ExitCode::SUCCESS
        }
        Err(violation) => {
            eprintln!(
                "oracle violated: {violation}; seed {seed}; replay: {}",
                replay_command(seed)
            );
            ExitCode::FAILURE
        }
    }
}

/// The scenario without its messages.
fn outline(scenario: &Scenario) -> String {
    let mut short = scenario.clone();
    for flow in short
        .connections
        .iter_mut()
        .flat_map(|connection| &mut connection.flows)
    {
        flow.messages.clear();
    }
    format!("{short:#?}")
}

/// Puts the state of a long run into its file, now and then.
struct Keeper<'a> {
    path: Option<&'a Path>,
    last: Mutex<(Option<Instant>, Option<ProgressError>)>,
}

impl<'a> Keeper<'a> {
    const PAUSE: Duration = Duration::from_secs(2);

    fn new(path: Option<&'a Path>) -> Keeper<'a> {
        Keeper {
            path,
            last: Mutex::new((None, None)),
        }
    }

    fn keep(&self, state: &Kept) {
        let (Some(path), Ok(mut last)) = (self.path, self.last.lock()) else {
            return;
        };
        if last.0.is_none_or(|saved| saved.elapsed() >= Keeper::PAUSE) || state.is_complete() {
            let failed = state.save(path).err();
            *last = (Some(Instant::now()), failed);
        }
    }

    /// The last failure to keep anything.
    fn end(self) -> Option<ProgressError> {
        self.last.into_inner().ok().and_then(|(_, error)| error)
    }
}

/// A line on standard error that says how far it is: often on a terminal, now and then elsewhere.
struct Progress {
    seeds: u64,
    /// Done in earlier runs.
    before: u64,
    terminal: bool,
    begun: Instant,
    shown: Mutex<Instant>,
}

impl Progress {
    fn new(seeds: u64, before: u64) -> Progress {
        let now = Instant::now();
        Progress {
            seeds,
            before,
            terminal: std::io::stderr().is_terminal(),
            begun: now,
            shown: Mutex::new(now),
        }
    }

    fn show(&self, done: u64) {
        let pause = Duration::from_millis(if self.terminal { 200 } else { 10_000 });
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if shown.elapsed() < pause {
            return;
        }
        *shown = Instant::now();
        let rate = (done - self.before) as f64 / self.begun.elapsed().as_secs_f64();
        let mut out = std::io::stderr().lock();
        let (start, end) = if self.terminal { ("\r", "") } else { ("", "\n") };
        // Nothing is lost when nobody reads the progress.
        let _ = write!(out, "{start}{done} of {} seeds, {rate:.0} a second {end}", self.seeds);
        let _ = out.flush();
    }

    fn end(&self) {
        if self.terminal {
            eprint!("\r{:60}\r", "");
        }
    }
}
