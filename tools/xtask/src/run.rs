//! Runs the steps, one after the other, and shows what they print as they print it.

use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::counts::Counts;
use crate::privilege::{Privilege, in_path};
use crate::steps::{Action, Step};
use crate::summary::{Outcome, Row, Verdict, human};

/// A look at the sources is one test.
const ONE_CHECK: Counts = Counts {
    passed: 1,
    failed: 0,
    skipped: 0,
};

/// Runs all steps, whatever fails.
pub(crate) fn all(steps: &[Step], privilege: Privilege, have_packages: bool) -> Outcome {
    let started = Instant::now();
    let mut rows = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        heading(&format!("{}/{} {}: {}", index + 1, steps.len(), step.name, step.what));
        let started = Instant::now();
        let (verdict, counts) = match reason_to_skip(step, privilege, have_packages) {
            Some(reason) => (Verdict::Skipped(reason), Counts::default()),
            None => run(step, privilege),
        };
        let row = Row {
            name: step.name,
            verdict,
            counts,
            took: started.elapsed(),
        };
        println!("{} {}", row.word(), human(row.took));
        rows.push(row);
    }
    Outcome {
        rows,
        took: started.elapsed(),
    }
}

fn heading(text: &str) {
    if io::stdout().is_terminal() {
        println!("\n\x1b[1m== {text}\x1b[0m");
    } else {
        println!("\n== {text}");
    }
}

fn reason_to_skip(step: &Step, privilege: Privilege, have_packages: bool) -> Option<&'static str> {
    if step.needs.root && privilege.lack().is_some() {
        return Some(if privilege == Privilege::Confined {
            "root lacks capabilities"
        } else {
            "needs root"
        });
    }
    if step.needs.packages && !have_packages {
        return Some("needs system packages");
    }
    (step.needs.valgrind && in_path("valgrind").is_none()).then_some("needs valgrind")
}

fn run(step: &Step, privilege: Privilege) -> (Verdict, Counts) {
    match step.action {
        Action::Look(check) => match check(&workspace()) {
            Ok(faults) if faults.is_empty() => (Verdict::Passed, ONE_CHECK),
            Ok(faults) => {
                for fault in faults {
                    println!("{fault}");
                }
                (Verdict::Failed, Counts::default())
            }
            Err(error) => {
                println!("{error}");
                (Verdict::Failed, Counts::default())
            }
        },
        Action::Cargo(arguments, environment) => {
            let mut command = cargo(arguments, privilege, step.needs.root);
            command.envs(environment.iter().copied());
            println!("   cargo {}", arguments.join(" "));
            match watch(&mut command, &mut io::stdout().lock()) {
                Ok((true, counts)) if counts.failed == 0 => (Verdict::Passed, counts),
                Ok((_, counts)) => (Verdict::Failed, counts),
                Err(error) => {
                    println!("cargo did not start: {error}");
                    (Verdict::Failed, Counts::default())
                }
            }
        }
    }
}

/// A cargo that works on this workspace. What it starts runs as root when asked for; cargo itself never needs to.
pub(crate) fn cargo(arguments: &[&str], privilege: Privilege, as_root: bool) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace());
    if as_root && privilege == Privilege::Sudo {
        command.env(runner_variable(&host_triple()), "sudo --preserve-env");
    }
    command
}

/// The name of the variable that puts a program before everything that cargo runs.
pub(crate) fn runner_variable(triple: &str) -> String {
    format!("CARGO_TARGET_{}_RUNNER", triple.to_uppercase().replace(['-', '.'], "_"))
}

pub(crate) fn host_triple() -> String {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    parse_host(&text).unwrap_or("x86_64-unknown-linux-gnu").to_owned()
}

fn parse_host(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("host: "))
}

pub(crate) fn workspace() -> PathBuf {
    // Where xtask was built is where it is run from: it is never installed.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// Runs a command, passes its output on, and reads the counts in it. Standard error goes through as it is.
fn watch(command: &mut Command, to: &mut impl Write) -> io::Result<(bool, Counts)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut counts = Counts::default();
    if let Some(output) = child.stdout.take() {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            to.write_all(&line)?;
            to.flush()?;
            counts.read_line(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    Ok((child.wait()?.success(), counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::STEPS;

    fn step(name: &str) -> &'static Step {
        STEPS.iter().find(|step| step.name == name).unwrap()
    }

    #[test]
    fn without_root_only_what_needs_it_is_skipped() {
        assert_eq!(
            reason_to_skip(step("end-to-end"), Privilege::None, true),
            Some("needs root")
        );
        assert_eq!(
            reason_to_skip(step("end-to-end"), Privilege::Confined, true),
            Some("root lacks capabilities")
        );
        assert_eq!(reason_to_skip(step("end-to-end"), Privilege::Sudo, true), None);
        assert_eq!(reason_to_skip(step("clippy"), Privilege::None, true), None);
    }

    #[test]
    fn without_packages_the_core_is_still_tested() {
        assert_eq!(
            reason_to_skip(step("clippy"), Privilege::None, false),
            Some("needs system packages")
        );
        for name in ["format", "purity", "citations", "core", "harness"] {
            assert_eq!(reason_to_skip(step(name), Privilege::None, false), None, "{name}");
        }
    }

    #[test]
    fn the_runner_is_named_after_the_host() {
        assert_eq!(
            parse_host("rustc 1.95.0\nbinary: rustc\nhost: aarch64-unknown-linux-gnu\n"),
            Some("aarch64-unknown-linux-gnu")
        );
        assert_eq!(
            runner_variable("aarch64-unknown-linux-gnu"),
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER"
        );
    }

    #[test]
    fn only_with_sudo_a_runner_is_set() {
        let has_runner = |privilege: Privilege, as_root| {
            cargo(&["test"], privilege, as_root)
                .get_envs()
                .any(|(name, _)| name.to_string_lossy().ends_with("_RUNNER"))
        };
        assert!(has_runner(Privilege::Sudo, true));
        assert!(!has_runner(Privilege::Sudo, false));
        assert!(!has_runner(Privilege::Root, true));
    }

    #[test]
    fn output_is_counted_and_the_exit_status_kept() {
        let script = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 3";
        let mut shown = Vec::new();
        let (success, counts) = watch(Command::new("sh").args(["-c", script]), &mut shown).unwrap();
        assert!(!success);
        assert_eq!(counts.passed, 2);
        assert_eq!(shown, b"test result: ok. 2 passed; 0 failed; 0 ignored\n");
    }

    #[test]
    fn the_workspace_is_found() {
        assert!(workspace().join("tools/xtask/Cargo.toml").is_file());
    }
}
