//! A line on standard error while a run takes long.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shows how far a step is; nothing at all in the first seconds.
pub(crate) struct Progress {
    quiet: bool,
    is_terminal: bool,
    started: Instant,
    shown: Option<Instant>,
    last: (Instant, u64),
}

const FIRST: Duration = Duration::from_secs(2);

impl Progress {
    pub(crate) fn new(quiet: bool) -> Progress {
        let now = Instant::now();
        Progress {
            quiet,
            is_terminal: std::io::stderr().is_terminal(),
            started: now,
            shown: None,
            last: (now, 0),
        }
    }

    /// `messages` of `size` bytes are done, of `total` if known.
    pub(crate) fn note(&mut self, size: u64, messages: u64, total: Option<u64>) {
        let now = Instant::now();
        let every = if self.is_terminal {
            Duration::from_secs(1)
        } else {
            Duration::from_secs(10)
        };
        let due = self
            .shown
            .map_or(now - self.started >= FIRST, |shown| now - shown >= every);
        if self.quiet || !due {
            return;
        }
        let (then, before) = self.last;
        let rate = (messages.saturating_sub(before)) as f64 * size as f64 / (now - then).as_secs_f64().max(1e-9);
        self.last = (now, messages);
        self.shown = Some(now);
        let share = total
            .map(|total| format!(" ({} %)", 100 * messages / total.max(1)))
            .unwrap_or_default();
        let seconds = (now - self.started).as_secs();
        let line = format!(
            "{size} B: {messages} messages{share}, {:.1} MB/sec, {seconds} s",
            rate / f64::from(1 << 20)
        );
        let mut err = std::io::stderr().lock();
        let _ = if self.is_terminal {
            write!(err, "\r\x1b[K{line}")
        } else {
            writeln!(err, "{line}")
        };
        let _ = err.flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() && self.is_terminal {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
