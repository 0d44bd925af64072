//! Many seeds, on several threads, with a summary of what they met.

use crate::coverage::{Count, Coverage};
use crate::oracle::{Oracle, Violation};
use crate::outline::words;
use crate::progress::Progress;
use crate::rules::RULES;
use crate::scenario::{Class, MIN_PACKETS, Scenario};
use crate::trace::Trace;
use crate::world::{Outcome, RunResult, World};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Which seeds to run, and how.
#[derive(Debug, Clone, Copy)]
pub struct Harness {
    /// First seed.
    pub start: u64,
    /// How many.
    pub seeds: u64,
    /// Threads.
    pub jobs: usize,
    /// Go on after a failure, and report up to so many.
    pub max_failures: usize,
}

/// What the seeds gave.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Seeds that ran to the end.
    pub passed: u64,
    /// What they met.
    pub coverage: Coverage,
    /// Packets that they sent.
    pub packets: u64,
    /// Turns of their engines.
    pub turns: u64,
    /// Virtual time that passed, in seconds.
    pub virtual_s: f64,
    /// Broken promises by seed.
    pub failures: Vec<(u64, Violation)>,
}

/// Runs one seed.
pub fn run_seed(seed: u64) -> RunResult {
    run_scenario(Scenario::from_seed(seed), Trace::off())
}

/// Runs one scenario; a panic of the protocol is a violation like others.
pub fn run_scenario(scenario: Scenario, trace: Trace) -> RunResult {
    let (planned, class) = (scenario.packets, scenario.class);
    let run = AssertUnwindSafe(|| {
        let outcome = World::new(scenario, trace, None)?.run()?;
        judge_worth(planned, class, &outcome)?;
        Ok(outcome)
    });
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or(panic.downcast_ref::<&str>().copied());
        let detail = text.unwrap_or("without a message").to_owned();
        Err(Box::new(Violation {
            oracle: Oracle::Panic,
            at_ns: 0,
            detail,
        }))
    })
}

/// A seeded run is worth something: enough packets to send, all of them sent where all must succeed, and a fault that acted.
fn judge_worth(planned: u64, class: Class, outcome: &Outcome) -> Result<(), Box<Violation>> {
    let sent = outcome.data_packets;
    let enough = planned >= MIN_PACKETS && (sent >= MIN_PACKETS || !class.must_succeed());
    if enough && !outcome.coverage.faults.is_empty() {
        return Ok(());
    }
    let faults = outcome.coverage.faults.len();
    Err(Box::new(Violation {
        oracle: Oracle::Worth,
        at_ns: outcome.ended_ns,
        detail: format!(
            "{planned} packets planned, {sent} sent, of at least {MIN_PACKETS}; {faults} kinds of faults acted"
        ),
    }))
}

/// The command that replays a seed.
pub fn replay_command(seed: u64) -> String {
    format!("cargo run -p mrc-sim -- replay {seed} --trace")
}

impl Harness {
    /// Runs the seeds. `progress` is told how many are done, now and then.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Report {
        self.go_on(Progress::new(self), progress, &|_| {})
    }

    /// Runs the seeds that are not done yet. `keep` is given the state of things after each seed, to put it into a file now
    /// and then.
    pub fn go_on(&self, begun: Progress, progress: &(dyn Fn(u64) + Sync), keep: &(dyn Fn(&Progress) + Sync)) -> Report {
        let next = AtomicU64::new(0);
        let enough = AtomicBool::new(begun.report.failures.len() >= self.max_failures);
        let state = Mutex::new(begun);
        let lock = || state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while !enough.load(Ordering::Relaxed) {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= self.seeds {
                            break;
                        }
                        if lock().has(index) {
                            continue;
                        }
                        // Behind the last seed comes the first.
                        let seed = self.start.wrapping_add(index);
                        let result = run_seed(seed);
                        let mut state = lock();
                        state.report.take(seed, result);
                        state.finish(index);
                        if state.report.failures.len() >= self.max_failures {
                            enough.store(true, Ordering::Relaxed);
                        }
                        keep(&state);
                        progress(state.done());
                    }
                });
            }
        });
        let mut report = state
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .report;
        report.failures.sort_by_key(|(seed, _)| *seed);
        report
    }
}

impl Report {
    /// So many seeds must have exercised every rule.
    pub const SEEDS_FOR_ALL_RULES: u64 = 5000;

    /// Rules that none of a large number of seeds has exercised.
    pub fn untouched(&self) -> Vec<&'static str> {
        if self.passed < Report::SEEDS_FOR_ALL_RULES {
            return Vec::new();
        }
        self.coverage.untouched()
    }

    fn take(&mut self, seed: u64, result: RunResult) {
        match result {
            Ok(outcome) => {
                self.passed += 1;
                self.packets += outcome.packets;
                self.turns += outcome.turns;
                self.virtual_s += outcome.ended_ns as f64 / 1e9;
                self.coverage.merge(&outcome.coverage);
            }
            Err(violation) => self.failures.push((seed, *violation)),
        }
    }

    /// The summary as a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut section = |title: &str, rows: Vec<(String, Count)>| {
            let _ = writeln!(text, "{title:<50} {:>8} {:>12}", "seeds", "times");
            for (name, count) in rows {
                let _ = writeln!(text, "  {name:<48} {:>8} {:>12}", count.seeds, count.times);
            }
        };
        section(
            "Faults",
            self.coverage
                .faults
                .iter()
                .map(|(tag, count)| (words(&format!("{tag:?}")), *count))
                .collect(),
        );
        section(
            "Events",
            self.coverage
                .events
                .iter()
                .map(|(name, count)| (name.clone().into_owned(), *count))
                .collect(),
        );
        section(
            "Rules",
            RULES
                .iter()
                .map(|rule| {
                    (
                        (*rule).to_owned(),
                        self.coverage.rules.get(*rule).copied().unwrap_or_default(),
                    )
                })
                .collect(),
        );
        text
    }

    /// The summary as JSON.
    pub fn json(&self) -> serde_json::Value {
        let count = |count: &Count| serde_json::json!({ "seeds": count.seeds, "times": count.times });
        let faults: serde_json::Map<_, _> = self
            .coverage
            .faults
            .iter()
            .map(|(tag, seen)| (words(&format!("{tag:?}")), count(seen)))
            .collect();
        let events: serde_json::Map<_, _> = self
            .coverage
            .events
            .iter()
            .map(|(name, seen)| (name.clone().into_owned(), count(seen)))
            .collect();
        let rules: serde_json::Map<_, _> = RULES
            .iter()
            .map(|rule| {
                (
                    (*rule).to_owned(),
                    count(&self.coverage.rules.get(*rule).copied().unwrap_or_default()),
                )
            })
            .collect();
        let failures: Vec<_> = (self.failures.iter())
            .map(|(seed, violation)| {
                serde_json::json!({
                    "seed": seed,
                    "oracle": violation.oracle.to_string(),
                    "at_ns": violation.at_ns,
                    "detail": violation.detail,
                    "replay": replay_command(*seed),
                })
            })
            .collect();
        serde_json::json!({
            "passed": self.passed,
            "packets": self.packets,
            "turns": self.turns,
            "virtual_s": self.virtual_s,
            "faults": faults,
            "events": events,
            "rules": rules,
            "untouched": self.untouched(),
            "failures": failures,
        })
    }
}
