//! `mrc-sim compare`.

use crate::command::out::{fail, say, tell};
use crate::command::run::watcher;
use mrc_sim::compare::CompareError;
use mrc_sim::run::Options;
use std::process::ExitCode;

pub(crate) fn compare(seed: Option<u64>, set: Vec<(String, String)>, json: bool, quiet: bool) -> ExitCode {
    let (line, onlooker) = watcher(quiet);
    let options = Options {
        seed,
        set,
        onlooker: Some(onlooker),
        ..Options::default()
    };
    let compared = mrc_sim::compare::compare(&options);
    line.end();
    match compared {
        Ok(comparison) if json => say(&format!("{:#}", comparison.json())),
        Ok(comparison) => say(comparison.table().trim_end_matches('\n')),
        Err(error @ CompareError::Violation { .. }) => {
            tell(&format!("mrc-sim: {error}"));
            return ExitCode::FAILURE;
        }
        Err(error) => return fail(&error.to_string()),
    }
    ExitCode::SUCCESS
}
