//! The story of a run, line by line, for whoever replays it.

use std::fmt;
use std::io::Write;

/// Where the lines go, if anywhere.
#[derive(Default)]
pub struct Trace(Option<Box<dyn Write>>);

impl Trace {
    /// No trace.
    pub fn off() -> Trace {
        Trace(None)
    }

    /// A trace into `sink`.
    pub fn to(sink: impl Write + 'static) -> Trace {
        Trace(Some(Box::new(sink)))
    }

    /// Whether anybody reads it.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// One line. Use [`trace!`](crate::trace!) where the arguments cost something.
    pub fn line(&mut self, at_ns: u64, line: fmt::Arguments<'_>) {
        if let Some(sink) = &mut self.0 {
            // A closed pipe (`| head`) ends the trace, not the run.
            if writeln!(sink, "{:>12.3} us  {line}", at_ns as f64 / 1000.0).is_err() {
                self.0 = None;
            }
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trace").field(&self.is_on()).finish()
    }
}

/// Writes a line if the trace is on.
#[macro_export]
macro_rules! trace {
    ($trace:expr, $at_ns:expr, $($arg:tt)*) => {
        if $trace.is_on() {
            $trace.line($at_ns, format_args!($($arg)*));
        }
    };
}
