//! `mrc-dump`: shows MRC packets field by field, and what a receiver would do with them.

mod args;
mod decode;
mod fields;
mod input;
mod json;
mod text;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use args::{Args, Command, DecodeArgs};
use clap::Parser;
use input::InputError;

/// At least one packet would be dropped.
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
    #[error("cannot write the result: {0}: check where standard output goes")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let Command::Decode(decode) = args.command;
    match run(&decode) {
        Ok(any_dropped) => ExitCode::from(if any_dropped { DROPPED } else { 0 }),
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

/// Shows every packet; true if one of them would be dropped.
fn run(args: &DecodeArgs) -> Result<bool, RunError> {
    let settings = args.settings()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut any_dropped = false;
    let result = input::each_frame(&args.input, &mut |frame| -> Result<(), RunError> {
        let packet = decode::decode(&frame, &settings);
        any_dropped |= packet.verdict.is_drop();
        if args.json {
            json::write(&mut out, &packet)?;
        } else {
            text::write(&mut out, &packet)?;
        }
        Ok(())
    });
    // What was decoded before an error is shown before it.
    out.flush()?;
    result.map(|()| any_dropped)
}
