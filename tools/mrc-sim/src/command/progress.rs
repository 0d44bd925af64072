//! A line on standard error that says how far it is: often on a terminal, now and then elsewhere, never if nobody wants it.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The line.
pub(crate) struct Line {
    quiet: bool,
    terminal: bool,
    begun: Instant,
    shown: Mutex<Instant>,
}

impl Line {
    /// On a terminal, the line covers what was there.
    const WIDTH: usize = 100;

    pub(crate) fn new(quiet: bool) -> Line {
        let now = Instant::now();
        Line {
            quiet,
            terminal: std::io::stderr().is_terminal(),
            begun: now,
            shown: Mutex::new(now),
        }
    }

    /// Since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Shows what `text` says, if it is time.
    pub(crate) fn show(&self, text: impl FnOnce() -> String) {
        let pause = Duration::from_millis(if self.terminal { 200 } else { 10_000 });
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if self.quiet || shown.elapsed() < pause {
            return;
        }
        *shown = Instant::now();
        let width = Line::WIDTH;
        let line = if self.terminal {
            format!("\r{:<width$.width$}", text())
        } else {
            format!("{}\n", text())
        };
        let mut out = std::io::stderr().lock();
        // Nothing is lost when nobody reads the progress.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }

    /// Makes room for what comes after.
    pub(crate) fn end(&self) {
        if self.terminal && !self.quiet {
            let _ = write!(std::io::stderr(), "\r{:width$}\r", "", width = Line::WIDTH);
        }
    }
}
