//! The command line of the lab.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
