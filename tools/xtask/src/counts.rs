//! Reads how many tests passed from what cargo prints.

/// Tests that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Counts {
    /// Adds what one line of output says, if it says anything.
    ///
    /// Known are the last line of a test program (`test result: ok. 3 passed; 0 failed; 1 ignored; ...`) and a line of
    /// its own of the form `5000 passed, 0 failed`, with which our own programs end, or of the form `5 of 6 runs passed`, as
    /// `netns-lab run` says it.
    pub(crate) fn read_line(&mut self, line: &str) {
        let line = line.trim();
        if let Some((passed, all)) = runs(line) {
            self.passed += passed;
            self.failed += all.saturating_sub(passed);
            return;
        }
        let groups = match line.strip_prefix("test result: ") {
            Some(result) => result.split_once(". ").map(|(_, groups)| (groups, ';')),
            None => is_plain(line).then_some((line, ',')),
        };
        let Some((groups, separator)) = groups else { return };
        for group in groups.split(separator) {
            if let Some((number, word)) = number_and_word(group) {
                match word {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" | "skipped" => self.skipped += number,
                    _ => {}
                }
            }
        }
    }

    /// Adds the counts of another step.
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

fn runs(line: &str) -> Option<(u64, u64)> {
    let (passed, all) = line.split_once(" runs passed")?.0.split_once(" of ")?;
    Some((passed.parse().ok()?, all.parse().ok()?))
}

fn is_plain(line: &str) -> bool {
    let mut groups = line.split(',').map(number_and_word);
    groups.next().flatten().is_some_and(|(_, word)| word == "passed")
        && groups.next().flatten().is_some_and(|(_, word)| word == "failed")
        && groups.all(|group| group.is_some())
}

fn number_and_word(group: &str) -> Option<(u64, &str)> {
    let (number, word) = group.trim().split_once(' ')?;
    Some((number.parse().ok()?, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Counts {
        let mut counts = Counts::default();
        text.lines().for_each(|line| counts.read_line(line));
        counts
    }

    #[test]
    fn several_test_programs_add_up() {
        let text = "running 3 tests\n\
            test a ... ok\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.30s\n";
        assert_eq!(
            read(text),
            Counts {
                passed: 13,
                failed: 2,
                skipped: 1
            }
        );
    }

    #[test]
    fn our_own_closing_line_counts() {
        assert_eq!(
            read("5000 passed, 0 failed"),
            Counts {
                passed: 5000,
                failed: 0,
                skipped: 0
            }
        );
        assert_eq!(
            read("7 passed, 1 failed, 2 skipped"),
            Counts {
                passed: 7,
                failed: 1,
                skipped: 2
            }
        );
    }

    #[test]
    fn runs_of_scenarios_count() {
        assert_eq!(
            read("6 of 6 runs passed\n5 of 6 runs passed; failed: t1-down"),
            Counts {
                passed: 11,
                failed: 1,
                skipped: 0
            }
        );
    }

    #[test]
    fn prose_does_not_count() {
        for line in [
            "3 passed",
            "all 3 passed, 0 failed",
            "3 passed, then some",
            "test result: ok",
            "passed, failed",
            "most of 6 runs passed",
            "",
        ] {
            assert_eq!(read(line), Counts::default(), "{line}");
        }
    }
}
