//! Instruction counts of fixed packet sequences, against those in the repository: work per packet does not grow unnoticed.
//!
//! The sequences are those of `mrc-instructions` (tools/mrc-bench), built in the dev profile, which the tests have built anyway,
//! and run under callgrind. Counts do not depend on the machine: valgrind shows every program the same processor, apart from
//! AVX2, on which none of the counted code depends but the C library's copies. They do depend on what made the code: compiler,
//! C library, valgrind. With those of the file a count may grow by [`TOLERANCE_PERCENT`]. Others move counts by some per cent
//! through no fault of anybody's, so that they are held to [`FOREIGN_TOLERANCE_PERCENT`]: one copy, one allocation or one look-up
//! too many per packet is still seen, and nobody is kept from a newer compiler.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::privilege::Privilege;
use crate::run;

/// The counts, from the workspace.
const FILE: &str = "tools/mrc-bench/instructions.toml";
/// With the tools that counted the file.
const TOLERANCE_PERCENT: f64 = 3.0;
/// With others.
const FOREIGN_TOLERANCE_PERCENT: f64 = 20.0;
const REMEDY: &str = "if that is meant, run `cargo xtask guard --update` and commit the file with the change";
const CALLGRIND: &str =
    "valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=mrc_instructions::measured*";
/// Long copies are loops of instructions, and not one instruction that valgrind counts byte by byte, on every machine.
const COPIES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=0x10000000");

/// Counts and compares, or counts and writes the file.
pub(crate) fn guard(update: bool) -> Result<ExitCode, String> {
    let root = run::workspace();
    if update {
        let counted = Counted::now()?;
        let path = root.join(FILE);
        fs::write(&path, counted.render()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        println!("{} sequences counted into {FILE}", counted.instructions.len());
        return Ok(ExitCode::SUCCESS);
    }
    let faults = check(&root)?;
    for fault in &faults {
        println!("{fault}");
    }
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the comparison, and returns what has grown too much.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}; {REMEDY}", path.display()))?;
    let before = Counted::parse(&text)?;
    let now = Counted::now()?;
    let tolerance = if before.with == now.with {
        TOLERANCE_PERCENT
    } else {
        println!(
            "warning: {FILE} was counted with {}, this is {}: only growth above {FOREIGN_TOLERANCE_PERCENT} % counts",
            before.with, now.with
        );
        FOREIGN_TOLERANCE_PERCENT
    };
    for (name, count) in &now.instructions {
        let change = before.instructions.get(name).map(|old| growth_percent(*old, *count));
        let change = change.map_or("new".to_owned(), |percent| format!("{percent:+.1} %"));
        println!("{name:<20} {count:>12} instructions {change:>8}");
    }
    Ok(compare(&before, &now, tolerance))
}

fn compare(before: &Counted, now: &Counted, tolerance: f64) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, count) in &now.instructions {
        match before.instructions.get(name) {
            None => faults.push(format!("{name}: not in {FILE}; run `cargo xtask guard --update`")),
            Some(old) => {
                let percent = growth_percent(*old, *count);
                if percent > tolerance {
                    faults.push(format!(
                        "{name}: {old} instructions became {count}, {percent:.1} % more and {tolerance} % are allowed; {REMEDY}"
                    ));
                }
            }
        }
    }
    for name in before.instructions.keys() {
        if !now.instructions.contains_key(name) {
            faults.push(format!(
                "{name}: in {FILE}, and there is no such sequence; run `cargo xtask guard --update`"
            ));
        }
    }
    faults
}

fn growth_percent(before: u64, now: u64) -> f64 {
    (now as f64 - before as f64) * 100.0 / before.max(1) as f64
}

/// Counts, and with what they were counted.
struct Counted {
    with: String,
    instructions: BTreeMap<String, u64>,
}

impl Counted {
    fn now() -> Result<Self, String> {
        let names = output(&mut sequence("list"))?.0;
        let mut instructions = BTreeMap::new();
        for name in names.lines() {
            instructions.insert(name.to_owned(), count(name)?);
        }
        if instructions.is_empty() {
            return Err("mrc-instructions lists no sequences".to_owned());
        }
        Ok(Self {
            with: tools()?,
            instructions,
        })
    }

    /// What [`render`](Self::render) wrote.
    fn parse(text: &str) -> Result<Self, String> {
        let mut counted = Self {
            with: String::new(),
            instructions: BTreeMap::new(),
        };
        for line in text.lines().filter(|line| !line.starts_with(['#', '['])) {
            let Some((key, value)) = line.split_once(" = ") else {
                continue;
            };
            if key == "with" {
                value.trim_matches('"').clone_into(&mut counted.with);
            } else {
                let count = value
                    .parse()
                    .map_err(|e| format!("{FILE}: {key} is no count: {e}; run `cargo xtask guard --update`"))?;
                counted.instructions.insert(key.to_owned(), count);
            }
        }
        Ok(counted)
    }

    fn render(&self) -> String {
        let mut text = format!(
            "# Instructions of fixed packet sequences, dev profile, counted by callgrind.\n\
             # Written by `cargo xtask guard --update`; `cargo xtask guard` compares, and so do the tests.\n\
             with = \"{}\"\n\n[instructions]\n",
            self.with
        );
        for (name, count) in &self.instructions {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} = {count}");
        }
        text
    }
}

/// Builds the sequences where need be, and runs one of them.
fn sequence(name: &str) -> Command {
    let program = [
        "run",
        "--locked",
        "--quiet",
        "-p",
        "mrc-bench",
        "--bin",
        "mrc-instructions",
        "--",
    ];
    let mut command = run::cargo(&program, Privilege::None, false);
    command.arg(name);
    command
}

fn count(name: &str) -> Result<u64, String> {
    let mut command = sequence(name);
    command
        .env(run::runner_variable(&run::host_triple()), CALLGRIND)
        .env(COPIES.0, COPIES.1);
    let (_, errors) = output(&mut command)?;
    parse_collected(&errors)
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("callgrind counted nothing for {name}: {}", errors.trim_end()))
}

/// The line `==123== Collected : 4567`.
fn parse_collected(errors: &str) -> Option<u64> {
    let (_, count) = errors.lines().find_map(|line| line.split_once("Collected : "))?;
    count.trim().parse().ok()
}

/// Everything besides the sources that counts depend on.
fn tools() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut all = Vec::new();
    for command in [
        Command::new(rustc).arg("--version"),
        Command::new("valgrind").arg("--version"),
        Command::new("getconf").arg("GNU_LIBC_VERSION"),
    ] {
        all.push(output(command)?.0.trim().to_owned());
    }
    all.push(run::host_triple());
    Ok(all.join(", "))
}

/// Standard output and standard error of a command that has to succeed.
fn output(command: &mut Command) -> Result<(String, String), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|e| format!("{name} did not start: {e}; `cargo xtask setup` installs what is missing"))?;
    let [out, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() {
        Ok((out, errors))
    } else {
        Err(format!("{name} failed: {}", errors.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &[(&str, u64)]) -> Counted {
        Counted {
            with: "rustc 1, valgrind-3".to_owned(),
            instructions: counts
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect(),
        }
    }

    #[test]
    fn growth_beyond_the_tolerance_is_a_fault_that_names_the_remedy() {
        let (before, now) = (
            counted(&[("a", 1000), ("b", 1000)]),
            counted(&[("a", 1030), ("b", 1031)]),
        );
        let faults = compare(&before, &now, 3.0);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(
            faults[0].starts_with("b: ") && faults[0].contains("guard --update"),
            "{faults:?}"
        );
        assert!(!faults[0].contains('\n'));
        assert!(compare(&before, &counted(&[("a", 1), ("b", 1)]), 3.0).is_empty());
    }

    #[test]
    fn sequences_come_and_go_only_with_the_file() {
        let faults = compare(&counted(&[("old", 1)]), &counted(&[("new", 1)]), 3.0);
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    #[test]
    fn what_is_written_is_read() {
        let written = counted(&[("wire-build-64", 348_078), ("z", 1)]);
        let read = Counted::parse(&written.render()).unwrap();
        assert_eq!((read.with, read.instructions), (written.with, written.instructions));
        assert!(Counted::parse("a = x\n").is_err());
    }

    #[test]
    fn the_count_is_found_in_what_callgrind_says() {
        assert_eq!(
            parse_collected("==1== Events    : Ir\n==1== Collected : 348078\n==1==\n"),
            Some(348_078)
        );
        assert_eq!(parse_collected("==1== Events    : Ir\n"), None);
    }
}
