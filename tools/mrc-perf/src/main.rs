//! Bandwidth and latency of MRC writes.

mod bw;
mod cli;
mod control;
mod data;
mod failure;
mod idle;
mod lat;
mod layout;
mod pattern;
mod progress;
mod report;
mod session;
mod setup;
mod stats;
mod stop;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Role};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("MRC_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let outcome = stop::install().and_then(|()| match &cli.role {
        Role::Server(args) => session::server(args),
        Role::Client(args) => session::client(args),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("mrc-perf: {failure}");
            ExitCode::from(failure.status())
        }
    }
}
