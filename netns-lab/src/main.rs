//! The command line of the lab, and the scenarios that it runs.

mod agent;
mod cli;
mod report;
mod run;
mod scenario;
mod verdict;
mod workload;

fn main() -> std::process::ExitCode {
    cli::run()
}
