//! The story of a run, line by line, for whoever replays it.

use mrc_protocol::Transmit;
use mrc_wire::Headers;
use std::fmt;
use std::fmt::Write as _;
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

/// A packet on its way out, in one line.
pub(crate) fn describe(name: &str, sent: &Transmit, id: u64) -> String {
    let mut line = format!("{name} -> #{id} {:?} psn {}", sent.bth.opcode, sent.bth.psn.get());
    let flags = [(sent.bth.a, " a"), (sent.bth.rtx, " rtx")];
    for (_, flag) in flags.iter().filter(|(set, _)| *set) {
        line.push_str(flag);
    }
    let detail = match &sent.headers {
        Headers::Sack(seth, _) => {
            write!(
                line,
                " {} offset {} bits {:#x}",
                seth.trigger_psn().map_or_else(
                    || format!("probe {:?}", seth.probe_id()),
                    |psn| format!("of {}", psn.get())
                ),
                seth.sack_offset,
                seth.sack_bitmap
            )
        }
        Headers::Ack(aeth) => write!(line, " syndrome {:#x}", aeth.syndrome),
        Headers::Nack(neth) => write!(line, " {}", neth.reason),
        Headers::Probe(peth) => write!(line, " id {}", peth.probe_id),
        _ => Ok(()),
    };
    debug_assert!(detail.is_ok(), "a string takes everything");
    let _ = write!(line, " on ev {:#x} port {}", sent.ev.0, sent.port.get());
    line
}
