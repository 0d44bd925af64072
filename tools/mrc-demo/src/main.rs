//! Two hosts, four planes, a T0 switch each. One queue pair moves a gibibyte of random data from one host to the other; midway a
//! plane dies and comes back. At the end the target compares hashes.
//!
//! Three processes: the stage (this program as it is called) builds the lab, breaks the plane and draws; the source and the
//! target run inside the two hosts and know nothing but each other's management address, as two programs on two machines
//! would.

mod error;
mod event;
mod rendezvous;
mod screen;
mod source;
mod stage;
mod summary;
mod target;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Two hosts, four planes, one of which dies and comes back while data moves.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Mebibytes to move at least; either host needs as much memory
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=65536))]
    mib: u32,
    /// Seed of the random data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of planes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=8))]
    planes: u8,
    /// MTU of the links
    #[arg(long, default_value_t = 9000)]
    mtu: u32,
    /// Lines instead of bars even on a terminal
    #[arg(long)]
    plain: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// Inside the first host: writes
    #[command(hide = true)]
    Source,
    /// Inside the second host: is written to
    #[command(hide = true)]
    Target,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let size = arguments.mib as usize * (1 << 20);
    let outcome = match arguments.role {
        Some(Role::Source) => source::run(size, arguments.seed).map(|()| true),
        Some(Role::Target) => target::run(size).map(|()| true),
        None => stage::run(&stage::Play {
            size,
            seed: arguments.seed,
            planes: arguments.planes.into(),
            mtu: arguments.mtu,
            plain: arguments.plain,
        }),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
