//! Speed of MRC as software beside bare AF_XDP loops in the same run.
//!
//! `mrc-bench bare` measures what the machine can do: two loops with a core each, and no protocol. `mrc-bench ratio` sets
//! the engine beside it, in interleaved rounds, so that a noisy machine disturbs both alike.

mod bare;
mod error;
mod frame;
mod idle;
mod ours;
mod ratio;
mod report;
mod xsk;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use bare::{Bare, Mode};
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
    /// The engine beside the bare loops: goodput of large writes, rate of small ones
    Ratio {
        /// How long each measurement lasts
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// How many rounds; medians are printed
        #[arg(long, default_value_t = 5)]
        rounds: usize,
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
        Command::Ratio {
            seconds,
            rounds,
            patience,
            json,
        } => ratio_rounds(seconds, rounds, patience, json),
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

fn ratio_rounds(seconds: f64, rounds: usize, patience: u64, json: bool) -> Result<(), BenchError> {
    let mut busiest: f64 = 0.0;
    let rows = ratio::run(rounds, seconds, |round| {
        let busy = idle::wait(Duration::from_secs(patience));
        busiest = busiest.max(busy);
        eprintln!(
            "round {} of {rounds}, machine {:.0} % busy with other things",
            round + 1,
            busy * 100.0
        );
    })?;
    if json {
        println!(
            "{}",
            report::json(&report::Comparison {
                rounds,
                busiest,
                rows: &rows
            })
        );
    } else {
        print!("{}", report::ratio_table(rounds, &rows));
        if idle::is_noisy(busiest) {
            println!(
                "the machine was up to {:.0} % busy with other things: these figures mean little",
                busiest * 100.0
            );
        }
    }
    Ok(())
}
