//! What is seen while a scenario runs.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Lines on standard error: one that is rewritten on a terminal, else a new one every few seconds.
#[derive(Debug)]
pub(crate) struct Progress {
    name: String,
    terminal: bool,
    silent: bool,
    shown: Option<Instant>,
    /// Something stands on the present line.
    dirty: bool,
}

impl Progress {
    /// For a scenario of this name.
    pub(crate) fn new(name: &str, silent: bool) -> Progress {
        Progress {
            name: name.to_owned(),
            terminal: std::io::stderr().is_terminal(),
            silent,
            shown: None,
            dirty: false,
        }
    }

    /// How far it is; often called, seldom shown.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let pause = if self.terminal {
            Duration::from_millis(200)
        } else {
            Duration::from_secs(2)
        };
        if self.silent || self.shown.is_some_and(|shown| shown.elapsed() < pause) {
            return;
        }
        self.shown = Some(Instant::now());
        let mut err = std::io::stderr().lock();
        // Where nobody looks, nothing is lost.
        let _ = if self.terminal {
            self.dirty = true;
            write!(err, "\r\x1b[K{}: {}", self.name, line()).and_then(|()| err.flush())
        } else {
            writeln!(err, "{}: {}", self.name, line())
        };
    }

    /// Something that stays to be read.
    pub(crate) fn say(&mut self, line: &str) {
        if self.silent {
            return;
        }
        let mut err = std::io::stderr().lock();
        let clear = if std::mem::take(&mut self.dirty) {
            "\r\x1b[K"
        } else {
            ""
        };
        let _ = writeln!(err, "{clear}{}: {line}", self.name);
    }

    /// Leaves a clean line.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.dirty) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
