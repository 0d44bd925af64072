//! Command line of the simulator.

use clap::{Parser, Subcommand};
use mrc_sim::harness::{Harness, Report, replay_command, run_scenario};
use mrc_sim::scenario::Scenario;
use mrc_sim::trace::Trace;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

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
        } => harness(
            &Harness {
                start,
                seeds,
                jobs,
                max_failures,
            },
            json,
        ),
        Command::Replay { seed, trace } => replay(seed, trace),
    }
}

fn harness(harness: &Harness, json: bool) -> ExitCode {
    // A panic of the protocol is reported as a failure with its seed; its backtrace would only tear the output.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let progress = Progress::new(harness.seeds);
    let report = harness.run(&|done| progress.show(done));
    progress.end();
    let wall = begun.elapsed();
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
    if report.failures.is_empty() {
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

/// A line on standard error that says how far it is: often on a terminal, now and then elsewhere.
struct Progress {
    seeds: u64,
    terminal: bool,
    begun: Instant,
    shown: Mutex<Instant>,
}

impl Progress {
    fn new(seeds: u64) -> Progress {
        let now = Instant::now();
        Progress {
            seeds,
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
        let rate = done as f64 / self.begun.elapsed().as_secs_f64();
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
