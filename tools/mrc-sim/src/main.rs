//! Command line of the simulator.

mod command;

use clap::{Parser, Subcommand};
use command::harness::Wish;
use command::out;
use mrc_sim::harness::Harness;
use mrc_sim::run::Options;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "Examples:
  mrc-sim list
  mrc-sim run bulk --case 10G
  mrc-sim run incast --case 10G --plot /tmp/incast
  mrc-sim compare
  mrc-sim harness --seeds 500

Exit status: 0, all criteria are met; 1, a criterion is missed or a promise broken; 2, a mistake in the command or a file,
or output that cannot be written.";

const RUN_EXAMPLES: &str = "Examples:
  mrc-sim run bulk
  mrc-sim run loss --case 10G --set fault.0.percent=2
  mrc-sim run incast --plot /tmp/incast --series /tmp/incast
  mrc-sim list --show bulk > mine.toml && mrc-sim run mine.toml --json

The keys of a scenario file: tools/mrc-sim/README.md.";

const COMPARE_EXAMPLES: &str = "Examples:
  mrc-sim compare
  mrc-sim compare --seed 7 --set fabric.host_mbps=100000 --set hosts.packet_ns=20 --json";

const LIST_EXAMPLES: &str = "Examples:
  mrc-sim list
  mrc-sim list --metrics
  mrc-sim list --show incast > mine.toml";

const HARNESS_EXAMPLES: &str = "Examples:
  mrc-sim harness --seeds 5000
  mrc-sim harness --seeds 100000 --resume long-run.json    (Ctrl-C, then the same again)
  mrc-sim harness --start 1918 --seeds 1";

const REPLAY_EXAMPLES: &str = "Examples:
  mrc-sim replay 1918
  mrc-sim replay 1918 --trace | less";

/// MRC endpoints in a simulated network with virtual time
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
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
        /// Interval of time series in microseconds of virtual time [default: ten idle round trips]
        #[arg(long, value_name = "US")]
        sample_us: Option<f64>,
        /// Do not tell how far it is
        #[arg(long)]
        quiet: bool,
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
        /// Do not tell how far it is
        #[arg(long)]
        quiet: bool,
    },
    /// List the scenarios that come along
    #[command(after_help = LIST_EXAMPLES)]
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
    #[command(after_help = HARNESS_EXAMPLES)]
    Harness {
        /// How many seeds
        #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// First seed
        #[arg(long, default_value_t = 0)]
        start: u64,
        /// Threads
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
        jobs: u16,
        /// Stop after so many failures
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        max_failures: u32,
        /// Print the summary as JSON
        #[arg(long)]
        json: bool,
        /// Keep what was done in FILE, and go on from there after an interruption
        #[arg(long, value_name = "FILE")]
        resume: Option<PathBuf>,
        /// Do not tell how far it is
        #[arg(long)]
        quiet: bool,
    },
    /// Run one seed again
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay {
        /// The seed
        seed: u64,
        /// Print what the seed gives, and every event
        #[arg(long)]
        trace: bool,
    },
}

fn main() -> ExitCode {
    let code = match Arguments::try_parse() {
        Ok(arguments) => arguments.command.execute(),
        Err(error) if error.use_stderr() => error.exit(),
        Err(text) => out::help(&text),
    };
    out::end(code)
}

impl Command {
    fn execute(self) -> ExitCode {
        match self {
            Command::Run {
                scenario,
                case,
                seed,
                set,
                json,
                series,
                plot,
                sample_us,
                quiet,
            } => {
                let set = match pairs(set) {
                    Ok(set) => set,
                    Err(error) => return out::fail(&error),
                };
                let places = command::run::Places { series, plot };
                let sample_us = match places.interval_us(sample_us) {
                    Ok(sample_us) => sample_us,
                    Err(error) => return out::fail(&error),
                };
                let options = Options {
                    seed,
                    set,
                    case,
                    sample_us,
                    ..Options::default()
                };
                command::run::run(&scenario, options, json, &places, quiet)
            }
            Command::Compare { seed, set, json, quiet } => match pairs(set) {
                Ok(set) => command::compare::compare(seed, set, json, quiet),
                Err(error) => out::fail(&error),
            },
            Command::List { metrics, show } => command::list::list(metrics, show.as_deref()),
            Command::Harness {
                seeds,
                start,
                jobs,
                max_failures,
                json,
                resume,
                quiet,
            } => command::harness::harness(Wish {
                harness: Harness {
                    start,
                    seeds,
                    jobs: jobs.into(),
                    max_failures: max_failures as usize,
                },
                json,
                resume,
                quiet,
            }),
            Command::Replay { seed, trace } => command::replay::replay(seed, trace),
        }
    }
}

/// Keys and values of `--set`.
fn pairs(set: Vec<String>) -> Result<Vec<(String, String)>, String> {
    let pairs = set.into_iter().map(|pair| match pair.split_once('=') {
        Some((key, _)) if key.trim().is_empty() => {
            Err(format!("--set {pair}: there is no key before \"=\": write KEY=VALUE"))
        }
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(format!("--set {pair}: there is no \"=\": write KEY=VALUE")),
    });
    pairs.collect()
}
