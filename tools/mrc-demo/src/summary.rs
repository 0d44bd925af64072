//! What came of it.

use std::fmt::Write;

use crate::event::{Finished, Verdict};

/// Times that the stage took, nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) down_ns: u64,
    pub(crate) up_ns: u64,
}

/// A pause between two completions: when it ended, and how long it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) end_ns: u64,
    pub(crate) length_ns: u64,
}

/// Everything there is to say.
pub(crate) struct Summary {
    pub(crate) finished: Finished,
    pub(crate) verdict: Verdict,
    pub(crate) plane: usize,
    pub(crate) times: Times,
    pub(crate) pauses: Vec<Pause>,
    /// Bytes of data that have arrived on each plane.
    pub(crate) arrived: Vec<u64>,
    /// The plane carried data again.
    pub(crate) plane_returned: bool,
}

impl Summary {
    /// Whether everything went as it should.
    pub(crate) fn ok(&self) -> bool {
        self.errors() == 0 && self.plane_returned
    }

    /// Failed writes, wrong data, data where none belongs.
    fn errors(&self) -> u64 {
        self.finished.errors + u64::from(!self.verdict.equal) + u64::from(!self.verdict.surroundings_untouched)
    }

    /// How long the application saw nothing complete because of the failure: the longest pause that ended while the plane was
    /// down. Nothing to see is 0.
    fn interruption_ns(&self) -> u64 {
        self.longest(|pause| pause.end_ns >= self.times.down_ns && pause.end_ns - pause.length_ns <= self.times.up_ns)
    }

    fn longest_otherwise_ns(&self) -> u64 {
        self.longest(|pause| pause.end_ns < self.times.down_ns)
    }

    fn longest(&self, wanted: impl Fn(&Pause) -> bool) -> u64 {
        self.pauses
            .iter()
            .filter(|pause| wanted(pause))
            .map(|pause| pause.length_ns)
            .max()
            .unwrap_or(0)
    }
}

/// The lines that end the show.
pub(crate) fn render(summary: &Summary) -> String {
    let finished = &summary.finished;
    let seconds = finished.elapsed_ns as f64 / 1e9;
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<22} {value}");
    };
    row(
        "moved",
        format!(
            "{:.2} GiB with one queue pair in {seconds:.2} s",
            finished.bytes as f64 / f64::from(1 << 30)
        ),
    );
    row(
        "goodput",
        format!(
            "{:.2} Gb/s",
            finished.bytes as f64 * 8.0 / finished.elapsed_ns.max(1) as f64
        ),
    );
    row(
        "plane down",
        format!(
            "plane {}, for {:.2} s; {}",
            summary.plane,
            summary.times.up_ns.saturating_sub(summary.times.down_ns) as f64 / 1e9,
            if summary.plane_returned {
                "it carries data again"
            } else {
                "IT DID NOT COME BACK"
            }
        ),
    );
    row(
        "interruption",
        format!(
            "{} (longest wait for a completion)",
            milliseconds(summary.interruption_ns())
        ),
    );
    row("  before the failure", milliseconds(summary.longest_otherwise_ns()));
    row("retransmissions", finished.retransmissions.to_string());
    row("EVs", evs(finished, summary.plane));
    row("arrived per plane", gibibytes(&summary.arrived));
    row(
        "sha256",
        format!(
            "{}… {}",
            summary.verdict.sha256.get(..16).unwrap_or_default(),
            if summary.verdict.equal { "equal" } else { "DIFFERENT" }
        ),
    );
    if !summary.verdict.surroundings_untouched {
        row("memory around it", "WAS WRITTEN TO".to_owned());
    }
    let _ = writeln!(text, "{} errors", summary.errors());
    text
}

/// Withdrawn and returned, and how many of them were of the plane that died.
fn evs(finished: &Finished, plane: usize) -> String {
    let of_it = |counts: &[u64]| counts.get(plane - 1).copied().unwrap_or(0);
    format!(
        "{} withdrawn ({} of plane {plane}), {} returned ({})",
        finished.evs_withdrawn.iter().sum::<u64>(),
        of_it(&finished.evs_withdrawn),
        finished.evs_returned.iter().sum::<u64>(),
        of_it(&finished.evs_returned)
    )
}

fn gibibytes(bytes: &[u64]) -> String {
    let parts: Vec<_> = bytes
        .iter()
        .map(|bytes| format!("{:.2}", *bytes as f64 / f64::from(1 << 30)))
        .collect();
    format!("{} GiB", parts.join(" + "))
}

fn milliseconds(ns: u64) -> String {
    if ns == 0 {
        "below 1 ms".to_owned()
    } else {
        format!("{:.1} ms", ns as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            finished: Finished {
                bytes: 1 << 30,
                elapsed_ns: 2_000_000_000,
                retransmissions: 3,
                evs_withdrawn: vec![1, 16],
                evs_returned: vec![1, 15],
                ..Finished::default()
            },
            verdict: Verdict {
                sha256: "0123456789abcdef0123".to_owned(),
                equal: true,
                surroundings_untouched: true,
            },
            plane: 2,
            times: Times {
                down_ns: 1_000_000_000,
                up_ns: 1_500_000_000,
            },
            pauses: vec![
                Pause {
                    end_ns: 500_000_000,
                    length_ns: 2_000_000,
                },
                Pause {
                    end_ns: 1_010_000_000,
                    length_ns: 12_000_000,
                },
                Pause {
                    end_ns: 1_900_000_000,
                    length_ns: 90_000_000,
                },
            ],
            arrived: vec![1 << 29, 0, 1 << 28],
            plane_returned: true,
        }
    }

    #[test]
    fn a_good_run_ends_with_0_errors() {
        let text = render(&summary());
        assert!(summary().ok());
        assert_eq!(text.lines().last(), Some("0 errors"));
        assert!(
            text.contains("17 withdrawn (16 of plane 2), 16 returned (15)"),
            "{text}"
        );
        assert!(text.contains("0.50 + 0.00 + 0.25 GiB"), "{text}");
        assert!(text.contains("4.29 Gb/s") && text.contains("1.00 GiB"), "{text}");
    }

    #[test]
    fn the_interruption_is_the_pause_that_the_failure_made() {
        assert_eq!(summary().interruption_ns(), 12_000_000);
        assert_eq!(summary().longest_otherwise_ns(), 2_000_000);
    }

    #[test]
    fn wrong_data_is_an_error() {
        let mut bad = summary();
        bad.verdict.equal = false;
        bad.verdict.surroundings_untouched = false;
        assert!(!bad.ok());
        assert_eq!(render(&bad).lines().last(), Some("2 errors"));
    }

    #[test]
    fn a_plane_that_stays_away_is_a_failure() {
        let bad = Summary {
            plane_returned: false,
            ..summary()
        };
        assert!(!bad.ok() && render(&bad).contains("DID NOT COME BACK"));
    }
}
