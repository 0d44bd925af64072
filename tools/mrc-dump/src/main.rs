//! `mrc-dump`: shows MRC packets field by field, sums captures up, and captures from engines.

mod args;
mod decode;
mod fields;
mod input;
mod json;
mod live;
mod show;
mod summary;
mod text;
mod verdict;

use std::io;
use std::process::ExitCode;

use args::{Args, Command, DecodeArgs};
use clap::Parser;
use input::{InputError, Item};
use show::Show;

/// At least one packet would be dropped, or is cut.
const DROPPED: u8 = 1;
/// Nothing, or not all, could be read.
const BAD_INPUT: u8 = 2;

/// Why the run ended early.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Dscp(#[from] mrc_wire::DscpError),
    #[error(transparent)]
    Live(#[from] live::LiveError),
    #[error("cannot write the result: {0}: check where standard output goes")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let result = match &args.command {
        Command::Decode(args) => decode(args),
        Command::Summary(args) => summary::run(args).map(|()| false),
        Command::Live(args) => live::run(args).map(|()| false),
    };
    match result {
        Ok(any_bad) => ExitCode::from(if any_bad { DROPPED } else { 0 }),
        // Someone like `head` has seen enough.
        Err(RunError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mrc-dump: {error}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Help goes out as it is; a mistake becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(BAD_INPUT),
        };
    }
    let rendered = error.to_string();
    let what: Vec<&str> = rendered
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let what = what.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    if what.starts_with("Usage") || what.contains("Usage:") || what.is_empty() {
        eprintln!("mrc-dump: no command given: try `mrc-dump decode --help`");
    } else {
        eprintln!("mrc-dump: {what}: see `mrc-dump decode --help`");
    }
    ExitCode::from(BAD_INPUT)
}

/// Shows every packet; true if one of them would be dropped, or is cut.
fn decode(args: &DecodeArgs) -> Result<bool, RunError> {
    let mut show = Show::new(&args.receiver, args.receiver.filter.clone(), &args.show)?;
    let result = input::each_item(&args.input, &mut |item| -> Result<(), RunError> {
        if let Item::Frame(frame) = item {
            show.frame(&frame)?;
        }
        Ok(())
    });
    // What was decoded before an error is shown before it.
    show.flush()?;
    result.map(|()| show.any_bad)
}
