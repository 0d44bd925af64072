//! Speed of MRC as software beside bare AF_XDP loops in the same run.
//!
//! `mrc-bench bare` measures what the machine can do: two loops with a core each, and no protocol. `mrc-bench compare` sets
//! the engine beside it and beside what else a user may pick, in interleaved rounds, so that a noisy machine disturbs all alike.

mod bare;
mod contest;
mod error;
mod frame;
mod idle;
mod kernel;
mod ours;
mod pingpong;
mod report;
mod rows;
mod xsk;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use bare::{Bare, Mode};
use contest::Effort;
use error::BenchError;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Two bare AF_XDP loops over a veth pair
    Bare {
        /// Bytes of a frame, Ethernet header included
        #[arg(long, default_value_t = 1024 + frame::WRITE_OVERHEAD)]
        frame: usize,
        /// How long each round lasts
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// How many rounds; medians are printed
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// MTU of the link; up to 3506 a frame is one buffer
        #[arg(long, default_value_t = 9000)]
        mtu: u32,
        /// Only these loops
        #[arg(long, value_enum)]
        mode: Vec<Mode>,
        /// One JSON object instead of the table
        #[arg(long)]
        json: bool,
    },
    /// The engine beside the bare loops and the kernel's sockets, row by row
    Compare {
        /// How long each measurement lasts
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// How many rounds; medians are printed
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Three rounds of 0.3 s: a first look
        #[arg(long, conflicts_with_all = ["seconds", "rounds"])]
        quick: bool,
        /// Only these rows (see `--list`)
        #[arg(long, value_name = "ROW")]
        only: Vec<String>,
        /// Print the rows and stop
        #[arg(long)]
        list: bool,
        /// How many seconds to wait for an idle machine before each round
        #[arg(long, default_value_t = 60)]
        patience: u64,
        /// JSON instead of the table
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Bare {
            frame,
            seconds,
            rounds,
            mtu,
            mode,
            json,
        } => {
            let modes = if mode.is_empty() {
                vec![Mode::OneWay, Mode::Bare, Mode::Fair]
            } else {
                mode
            };
            bare_rounds(frame, seconds, rounds, mtu, &modes, json)
        }
        Command::Compare { list: true, .. } => {
            for row in rows::ROWS {
                println!("{:<10} {}", row.name, row.what);
            }
            Ok(())
        }
        Command::Compare {
            seconds,
            rounds,
            quick,
            only,
            patience,
            json,
            ..
        } => {
            let effort = if quick {
                Effort {
                    rounds: 3,
                    seconds: 0.3,
                }
            } else {
                Effort { rounds, seconds }
            };
            compare(&only, effort, Duration::from_secs(patience), json)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bare_rounds(
    frame: usize,
    seconds: f64,
    rounds: usize,
    mtu: u32,
    modes: &[Mode],
    json: bool,
) -> Result<(), BenchError> {
    let mut bare = Bare::build(mtu)?;
    let mut runs: Vec<Vec<bare::Speed>> = vec![Vec::new(); modes.len()];
    for _ in 0..rounds.max(1) {
        for (mode, speeds) in modes.iter().zip(&mut runs) {
            speeds.push(bare.run(*mode, frame, seconds)?);
        }
    }
    let rows: Vec<_> = modes
        .iter()
        .zip(&runs)
        .map(|(mode, speeds)| report::BareRow::new(*mode, frame, speeds))
        .collect();
    if json {
        println!("{}", report::json(&rows));
    } else {
        print!("{}", report::bare_table(frame, mtu, rounds, &rows));
    }
    Ok(())
}

fn compare(only: &[String], effort: Effort, patience: Duration, json: bool) -> Result<(), BenchError> {
    let rows = rows::chosen(only)?;
    let mut busiest: f64 = 0.0;
    let mut lines = Vec::new();
    for row in rows {
        lines.extend(row.run(effort, &mut |round| {
            let busy = idle::wait(patience);
            busiest = busiest.max(busy);
            eprintln!(
                "{}, round {} of {}, machine {:.0} % busy with other things",
                row.name,
                round + 1,
                effort.rounds,
                busy * 100.0
            );
        })?);
    }
    if json {
        let comparison = report::Comparison {
            rounds: effort.rounds,
            seconds: effort.seconds,
            busiest,
            lines: &lines,
        };
        println!("{}", report::json(&comparison));
        return Ok(());
    }
    print!("{}", report::table(effort, &lines));
    if idle::is_noisy(busiest) {
        println!(
            "the machine was up to {:.0} % busy with other things: these figures mean little",
            busiest * 100.0
        );
    }
    Ok(())
}
