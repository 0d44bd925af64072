//! The table at the end.

use std::fmt::Write;
use std::time::Duration;

use crate::counts::Counts;

/// What became of all steps.
pub(crate) struct Outcome {
    pub rows: Vec<Row>,
    pub took: Duration,
}

/// What became of one step.
pub(crate) struct Row {
    pub name: &'static str,
    pub verdict: Verdict,
    pub counts: Counts,
    pub took: Duration,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// Not run, and why.
    Skipped(&'static str),
}

impl Row {
    /// The verdict in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Passed => "ok",
            Verdict::Failed => "FAILED",
            Verdict::Skipped(_) => "skipped",
        }
    }
}

impl Outcome {
    /// Whether nothing failed.
    pub(crate) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != Verdict::Failed)
    }

    /// Tests of all steps. A step that failed without a failed test of its own (a lint, a build) counts as one.
    fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        for row in &self.rows {
            totals.add(row.counts);
            match row.verdict {
                Verdict::Failed if row.counts.failed == 0 => totals.failed += 1,
                Verdict::Skipped(_) => totals.skipped += 1,
                _ => {}
            }
        }
        totals
    }
}

/// The table, and the totals as the last line.
pub(crate) fn render(outcome: &Outcome) -> String {
    let mut text = String::from("\n");
    let width = outcome.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    for row in &outcome.rows {
        let detail = match row.verdict {
            Verdict::Skipped(reason) => reason.to_owned(),
            _ if row.counts == Counts::default() => String::new(),
            _ => format!("{} passed, {} failed", row.counts.passed, row.counts.failed),
        };
        let line = format!(
            "{:<width$}  {:<7}  {:>12}  {detail}",
            row.name,
            row.word(),
            human(row.took)
        );
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let skipped: Vec<_> = outcome
        .rows
        .iter()
        .filter(|row| matches!(row.verdict, Verdict::Skipped(_)))
        .map(|row| row.name)
        .collect();
    if !skipped.is_empty() {
        let _ = writeln!(text, "not run: {}", skipped.join(", "));
    }
    let totals = outcome.totals();
    let _ = writeln!(text, "took {}", human(outcome.took));
    let _ = write!(text, "{} passed, {} failed", totals.passed, totals.failed);
    if totals.skipped > 0 {
        let _ = write!(text, ", {} skipped", totals.skipped);
    }
    text.push('\n');
    text
}

/// A duration as people say it.
pub(crate) fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, verdict: Verdict, passed: u64, failed: u64) -> Row {
        Row {
            name,
            verdict,
            counts: Counts {
                passed,
                failed,
                skipped: 0,
            },
            took: Duration::from_millis(1500),
        }
    }

    fn outcome(rows: Vec<Row>) -> Outcome {
        Outcome {
            rows,
            took: Duration::from_secs(125),
        }
    }

    #[test]
    fn the_last_line_has_the_totals() {
        let text = render(&outcome(vec![
            row("core", Verdict::Passed, 10, 0),
            row("unit", Verdict::Passed, 5, 0),
        ]));
        assert_eq!(text.lines().last(), Some("15 passed, 0 failed"));
        assert!(text.contains("took 2 min 05 s"), "{text}");
    }

    #[test]
    fn skipped_steps_are_named_with_their_reason() {
        let text = render(&outcome(vec![
            row("core", Verdict::Passed, 1, 0),
            row("lab", Verdict::Skipped("needs root"), 0, 0),
        ]));
        assert!(text.contains("needs root") && text.contains("not run: lab"), "{text}");
        assert_eq!(text.lines().last(), Some("1 passed, 0 failed, 1 skipped"));
    }

    #[test]
    fn a_failed_step_without_failed_tests_is_a_failure() {
        let failed = outcome(vec![
            row("clippy", Verdict::Failed, 0, 0),
            row("core", Verdict::Failed, 3, 2),
        ]);
        assert!(!failed.passed());
        assert_eq!(render(&failed).lines().last(), Some("3 passed, 3 failed"));
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(human(Duration::from_millis(340)), "0.3 s");
        assert_eq!(human(Duration::from_secs(61)), "1 min 01 s");
    }
}
