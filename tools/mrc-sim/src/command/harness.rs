//! `mrc-sim harness`.

use crate::command::out::{fail, say, tell};
use crate::command::progress::Line;
use mrc_sim::harness::{Harness, Report, replay_command};
use mrc_sim::progress::{Progress, ProgressError};
use mrc_sim::shell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the person wants.
pub(crate) struct Wish {
    pub(crate) harness: Harness,
    pub(crate) json: bool,
    pub(crate) resume: Option<PathBuf>,
    pub(crate) quiet: bool,
}

/// Ends like a program that SIGINT has ended.
const INTERRUPTED: i32 = 130;

pub(crate) fn harness(wish: Wish) -> ExitCode {
    let harness = wish.harness;
    if harness.start.checked_add(harness.seeds - 1).is_none() {
        return fail(&format!(
            "--start {} --seeds {}: the last seed is {}: start earlier, or run fewer",
            harness.start,
            harness.seeds,
            u64::MAX
        ));
    }
    let begun = wish
        .resume
        .as_deref()
        .map_or_else(|| Ok(Progress::new(&harness)), |path| Progress::load(path, &harness));
    let begun = match begun {
        Ok(begun) => begun,
        Err(error) => return fail(&error.to_string()),
    };
    let before = begun.done();
    let line = Arc::new(Line::new(wish.quiet));
    let keeper = Arc::new(Keeper::new(wish.resume, harness.seeds, before, Arc::clone(&line)));
    // A place where nothing can be kept is better known now than after an hour.
    keeper.keep(&begun);
    if let Some(error) = keeper.failure() {
        return fail(&error);
    }
    let of_signal = Arc::clone(&keeper);
    if let Err(error) = ctrlc::set_handler(move || of_signal.ask_to_stop()) {
        return fail(&format!("signals cannot be caught: {error}"));
    }
    // A panic of the protocol is reported as a failure with its seed; its backtrace would only tear the output.
    std::panic::set_hook(Box::new(|_| {}));
    let show = |done: u64| {
        line.show(|| {
            let rate = (done - before) as f64 / line.elapsed().as_secs_f64();
            format!("{done} of {} seeds, {rate:.0} a second", harness.seeds)
        });
    };
    let report = harness.go_on(begun, &show, &|state| keeper.keep(state));
    line.end();
    if let Some(error) = keeper.failure() {
        return fail(&error);
    }
    let wall = line.elapsed();
    if wish.json {
        let mut value = report.json();
        value["wall_s"] = wall.as_secs_f64().into();
        say(&format!("{value:#}"));
    } else {
        say(report.table().trim_end_matches('\n'));
        say(&format!(
            "{} seeds passed in {:.1} s: {} packets, {} engine turns, {:.1} s of virtual time",
            report.passed,
            wall.as_secs_f64(),
            report.packets,
            report.turns,
            report.virtual_s
        ));
        say(&format!("{} passed, {} failed", report.passed, report.failures.len()));
    }
    verdict(&report)
}

fn verdict(report: &Report) -> ExitCode {
    for (seed, violation) in &report.failures {
        tell(&format!(
            "oracle violated: {violation}; seed {seed}; replay: {}",
            replay_command(*seed)
        ));
    }
    let untouched = report.untouched();
    for rule in &untouched {
        tell(&format!(
            "rule never exercised: {rule}; {} seeds should meet it",
            report.passed
        ));
    }
    if report.failures.is_empty() && untouched.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Puts the state of a long run into its file, now and then and when it is stopped.
struct Keeper {
    path: Option<PathBuf>,
    seeds: u64,
    line: Arc<Line>,
    /// A signal has come: the next one who knows the state keeps it, and ends the program.
    stopping: AtomicBool,
    kept: Mutex<Kept>,
}

struct Kept {
    /// Seeds that were done when it was told last.
    done: u64,
    /// Of these, seeds that the file has.
    saved: u64,
    /// Failures that the file has. Another one is kept at once: it may be the last that is waited for.
    failed: usize,
    at: Option<Instant>,
    failure: Option<ProgressError>,
}

impl Keeper {
    const PAUSE: Duration = Duration::from_secs(2);

    fn new(path: Option<PathBuf>, seeds: u64, done: u64, line: Arc<Line>) -> Keeper {
        let kept = Kept {
            done,
            saved: done,
            failed: 0,
            at: None,
            failure: None,
        };
        Keeper {
            path,
            seeds,
            line,
            stopping: AtomicBool::new(false),
            kept: Mutex::new(kept),
        }
    }

    fn keep(&self, state: &Progress) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.done = state.done();
        let stopping = self.stopping.load(Ordering::Relaxed);
        let due = kept.at.is_none_or(|at| at.elapsed() >= Keeper::PAUSE)
            || state.is_complete()
            || state.failed() > kept.failed;
        if let Some(path) = self.path.as_ref().filter(|_| due || stopping) {
            kept.failure = state.save(path).err();
            if kept.failure.is_none() {
                kept.saved = kept.done;
                kept.failed = state.failed();
            }
            kept.at = Some(Instant::now());
        }
        if stopping && kept.done < self.seeds {
            self.stop(&kept);
        }
    }

    /// The last failure to keep anything.
    fn failure(&self) -> Option<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.failure.as_ref().map(ToString::to_string)
    }

    /// Ctrl-C or SIGTERM. A second one does not wait for the seeds that are running.
    fn ask_to_stop(&self) {
        if self.stopping.swap(true, Ordering::Relaxed) {
            // Whoever writes the file has written it then.
            self.stop(&self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Ends the program, and says how it goes on.
    fn stop(&self, kept: &Kept) {
        self.line.end();
        let (done, seeds) = (kept.done, self.seeds);
        let words: Vec<String> = std::env::args().collect();
        let again = shell::line(words.iter().map(String::as_str));
        if let Some(error) = &kept.failure {
            tell(&format!("mrc-sim: {error}"));
        }
        tell(&match &self.path {
            Some(path) => format!(
                "mrc-sim: interrupted: {} has {} of {seeds} seeds; go on with: {again}",
                path.display(),
                kept.saved
            ),
            None => format!(
                "mrc-sim: interrupted after {done} of {seeds} seeds, which are lost: with --resume FILE they are kept"
            ),
        });
        std::process::exit(INTERRUPTED);
    }
}
