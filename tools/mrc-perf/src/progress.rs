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
        let share = total
            .map(|total| format!(" ({} %)", 100 * messages / total.max(1)))
            .unwrap_or_default();
        self.show(messages * size, |rate, seconds| {
            format!("{size} B: {messages} messages{share}, {rate:.1} MB/sec, {seconds} s")
        });
    }

    /// The peer works: `bytes` have come so far.
    pub(crate) fn note_incoming(&mut self, size: u64, bytes: u64) {
        self.show(bytes, |rate, seconds| {
            format!("{size} B: receiving, {rate:.1} MB/sec, {seconds} s")
        });
    }

    fn show(&mut self, bytes: u64, line: impl FnOnce(f64, u64) -> String) {
        let now = Instant::now();
        let every = Duration::from_secs(if self.is_terminal { 1 } else { 10 });
        let due = self
            .shown
            .map_or(now - self.started >= FIRST, |shown| now - shown >= every);
        if self.quiet || !due {
            return;
        }
        let (then, before) = self.last;
        let rate = bytes.saturating_sub(before) as f64 / (now - then).as_secs_f64().max(1e-9) / f64::from(1 << 20);
        self.last = (now, bytes);
        self.shown = Some(now);
        let line = line(rate, (now - self.started).as_secs());
        let mut err = std::io::stderr().lock();
        // A closed standard error is no reason to stop measuring.
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
