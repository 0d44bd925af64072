//! Command line of the simulator.

use clap::{Parser, Subcommand};
use mrc_sim::compare::CompareError;
use mrc_sim::harness::{Harness, Report, replay_command, run_scenario};
use mrc_sim::progress::{Progress as Kept, ProgressError};
use mrc_sim::run::Options;
use mrc_sim::scenario::Scenario;
use mrc_sim::trace::Trace;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

mod files;

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
    /// Run a scenario and judge it by its criteria
    #[command(after_help = RUN_EXAMPLES)]
    Run {
        /// Name of a scenario that comes along (see `mrc-sim list`), or a TOML file
        scenario: String,
        /// Only this case of the scenario
        #[arg(long)]
        case: Option<String>,
        /// Another seed than the file's
        #[arg(long)]
        seed: Option<u64>,
        /// Replace a value of the file, such as fabric.planes=2 or fault.0.percent=5; may be given again
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
        /// Write time series as CSV into this directory
        #[arg(long, value_name = "DIR")]
        series: Option<PathBuf>,
        /// Draw time series as SVG into this directory
        #[arg(long, value_name = "DIR")]
        plot: Option<PathBuf>,
        /// Interval of time series in microseconds [default: ten idle round trips]
        #[arg(long, value_name = "US")]
        sample_us: Option<f64>,
    },
    /// Run MRC and two single-path models over the same fabric, load and faults, and compare
    ///
    /// The models are go-back-N and selective repeat with fixed windows, one connection for each plane; they are no products.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare {
        /// Seed of all runs [default: 1]
        #[arg(long)]
        seed: Option<u64>,
        /// Replace a value of the scenarios, such as `fabric.host_mbps=100000`; may be given again
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print the comparison as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the scenarios that come along
    List {
        /// List what criteria may speak of instead
        #[arg(long)]
        metrics: bool,
        /// Print a scenario's file, to begin one's own with
        #[arg(long, value_name = "SCENARIO", conflicts_with = "metrics")]
        show: Option<String>,
    },
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

const RUN_EXAMPLES: &str = "Examples:
  mrc-sim run bulk
  mrc-sim run loss --case 10G --set fault.0.percent=2
  mrc-sim run incast --plot /tmp/incast --series /tmp/incast
  mrc-sim list --show bulk > mine.toml && mrc-sim run mine.toml --json";

const COMPARE_EXAMPLES: &str = "Examples:
  mrc-sim compare
  mrc-sim compare --seed 7 --set fabric.host_mbps=100000 --set hosts.packet_ns=20 --json";

/// Keys and values of `--set`.
fn pairs(set: Vec<String>) -> Result<Vec<(String, String)>, String> {
    let pairs = set.into_iter().map(|pair| match pair.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(format!("--set {pair}: there is no \"=\": write KEY=VALUE")),
    });
    pairs.collect()
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run {
            scenario,
            case,
            seed,
            set,
            json,
            series,
            plot,
            sample_us,
        } => {
            let set = match pairs(set) {
                Ok(set) => set,
                Err(error) => return files::fail(&error),
            };
            let wanted = series.is_some() || plot.is_some() || sample_us.is_some();
            let options = Options {
                seed,
                set,
                case,
                sample_us: wanted.then_some(sample_us.unwrap_or(0.0)),
            };
            files::run(&scenario, &options, json, series.as_deref(), plot.as_deref())
        }
        Command::Compare { seed, set, json } => match pairs(set) {
            Ok(set) => compare(seed, set, json),
            Err(error) => files::fail(&error),
        },
        Command::List { metrics, show } => files::list(metrics, show.as_deref()),
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

fn compare(seed: Option<u64>, set: Vec<(String, String)>, json: bool) -> ExitCode {
    let options = Options {
        seed,
        set,
        ..Options::default()
    };
    match mrc_sim::compare::compare(&options) {
        Ok(comparison) if json => say(&format!("{:#}", comparison.json())),
        Ok(comparison) => say(comparison.table().trim_end_matches('\n')),
        Err(error @ CompareError::Violation { .. }) => {
            eprintln!("mrc-sim: {error}");
            return ExitCode::FAILURE;
        }
        Err(error) => return files::fail(&error.to_string()),
    }
    ExitCode::SUCCESS
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
pub(crate) fn say(line: &str) {
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
