//! A long run of seeds that can be stopped and continued: what was done so far, in a file.

use crate::harness::{Harness, Report};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Changes when the same seed gives another run, or the file another form.
const FORMAT: u32 = 1;

/// What was done so far.
#[derive(Debug, Serialize, Deserialize)]
pub struct Progress {
    format: u32,
    version: String,
    start: u64,
    seeds: u64,
    /// All seeds before the one with this index are done.
    floor: u64,
    /// Indices of others that are done.
    ahead: BTreeSet<u64>,
    /// What they gave.
    pub report: Report,
}

/// Why a run cannot be continued, or its progress not kept.
#[derive(Debug, Error)]
pub enum ProgressError {
    /// The file cannot be read or written.
    #[error("{path} cannot keep progress: {error}: give another file")]
    File {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The file is something else.
    #[error("{path} is not the progress of a harness run ({error}); give another file")]
    Content {
        /// The file.
        path: String,
        /// Why.
        error: serde_json::Error,
    },
    /// The file belongs to another run.
    #[error("{path} belongs to a run with {theirs}, not {ours}; give the same parameters, or another file")]
    Other {
        /// The file.
        path: String,
        /// Parameters in the file.
        theirs: String,
        /// Parameters now.
        ours: String,
    },
}

impl Progress {
    /// Nothing done yet.
    pub fn new(harness: &Harness) -> Progress {
        Progress {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start: harness.start,
            seeds: harness.seeds,
            floor: 0,
            ahead: BTreeSet::new(),
            report: Report::default(),
        }
    }

    /// What `path` says of this run; nothing done if there is no such file.
    pub fn load(path: &Path, harness: &Harness) -> Result<Progress, ProgressError> {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Progress::new(harness)),
            Err(error) => return Err(ProgressError::File { path: name, error }),
        };
        let found: Progress = serde_json::from_str(&text).map_err(|error| ProgressError::Content {
            path: name.clone(),
            error,
        })?;
        let (theirs, ours) = (found.parameters(), Progress::new(harness).parameters());
        if theirs == ours {
            Ok(found)
        } else {
            Err(ProgressError::Other {
                path: name,
                theirs,
                ours,
            })
        }
    }

    fn parameters(&self) -> String {
        let Progress {
            format,
            version,
            start,
            seeds,
            ..
        } = self;
        format!("--start {start} --seeds {seeds} (version {version}, format {format})")
    }

    /// Whether the seed with this index was run.
    pub fn has(&self, index: u64) -> bool {
        index < self.floor || self.ahead.contains(&index)
    }

    /// The seed with this index was run.
    pub fn finish(&mut self, index: u64) {
        self.ahead.insert(index);
        while self.ahead.remove(&self.floor) {
            self.floor += 1;
        }
    }

    /// How many seeds were run.
    pub fn done(&self) -> u64 {
        self.floor + self.ahead.len() as u64
    }

    /// Whether all of them were.
    pub fn is_complete(&self) -> bool {
        self.done() >= self.seeds
    }

    /// How many of them failed.
    pub fn failed(&self) -> usize {
        self.report.failures.len()
    }

    /// Puts it into a file, which is whole at every instant.
    pub fn save(&self, path: &Path) -> Result<(), ProgressError> {
        let draft = PathBuf::from(format!("{}.partial", path.display()));
        let write = || {
            let mut file = File::create(&draft)?;
            serde_json::to_writer(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&draft, path)
        };
        write().map_err(|error| ProgressError::File {
            path: path.display().to_string(),
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARNESS: Harness = Harness {
        start: 7,
        seeds: 10,
        jobs: 1,
        max_failures: 1,
    };

    #[test]
    fn seeds_that_end_out_of_order_are_known() {
        let mut progress = Progress::new(&HARNESS);
        for index in [2, 0, 5, 1] {
            progress.finish(index);
        }
        assert_eq!((progress.floor, progress.done()), (3, 4));
        assert!(progress.has(5) && !progress.has(4) && progress.has(2));
    }
}
