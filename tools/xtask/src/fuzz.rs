//! A fuzz target under libFuzzer, which follows coverage, on the stable toolchain.
//!
//! The flags are those that `cargo fuzz --sanitizer none` uses. They count edges and compare operands; there is no
//! address sanitizer, which safe code needs least.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::privilege::{Privilege, in_path};
use crate::run;

const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // One module: several would each bring the same constructor.
    "-Ccodegen-units=1",
];

/// What is asked for.
pub(crate) struct Fuzz {
    /// Name of the target, which is also that of its corpus.
    pub target: String,
    pub seconds: u32,
    /// Put what it finds into the stored corpus.
    pub keep: bool,
}

/// Inputs with this prefix once found a fault. They stay whatever they cover.
const FAULT: &str = "found-";

impl Fuzz {
    /// Builds, fuzzes, and says where an input that failed lies.
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        let root = run::workspace();
        let corpora = root.join("fuzz/corpus");
        known(&corpora, &self.target)?;
        compiler(std::env::var_os("CXX").is_some(), in_path("c++").is_some())?;
        let program = build(&root)?;
        let work = root.join("target/fuzz").join(&self.target);
        let found = root.join("fuzz-failures");
        for directory in [&work, &found] {
            fs::create_dir_all(directory).map_err(|e| format!("cannot make {}: {e}", directory.display()))?;
        }
        let corpus = corpora.join(&self.target);
        let prefix = format!("{}/{}-", found.display(), self.target);
        let mut command = self.libfuzzer(&program);
        command
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(format!("-artifact_prefix={prefix}"))
            .args(["-timeout=10", "-print_final_stats=1"])
            .args([&work, &corpus]);
        let status = command.status().map_err(|e| cannot_start(&program, &e))?;
        if !status.success() {
            return Err(format!(
                "{} failed; its input is {prefix}...; replay it: cargo run -p mrc-fuzz -- {} --input FILE",
                self.target, self.target
            ));
        }
        if self.keep {
            self.minimise(&program, &corpus, &work)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn libfuzzer(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("MRC_FUZZ_TARGET", &self.target)
            .env("RUST_BACKTRACE", "0")
            .arg("-max_len=2048");
        command
    }

    /// The fewest inputs that reach every edge that any of them reaches become the corpus.
    fn minimise(&self, program: &Path, corpus: &Path, work: &Path) -> Result<(), String> {
        let fresh = work.with_extension("minimal");
        match fs::remove_dir_all(&fresh) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("cannot empty {}: {e}", fresh.display()));
            }
            _ => fs::create_dir_all(&fresh).map_err(|e| format!("cannot make {}: {e}", fresh.display()))?,
        }
        let mut command = self.libfuzzer(program);
        // Without counters an input counts for the edges that it reaches, not for how often.
        command
            .args(["-set_cover_merge=1", "-use_counters=0"])
            .args([fresh.as_path(), corpus, work]);
        let status = command.status().map_err(|e| cannot_start(program, &e))?;
        if !status.success() {
            return Err(format!("libFuzzer did not minimise {}: {status}", corpus.display()));
        }
        let kept = replace(corpus, &fresh).map_err(|e| format!("cannot replace {}: {e}", corpus.display()))?;
        println!("{}: {kept} inputs", corpus.display());
        Ok(())
    }
}

fn cannot_start(program: &Path, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}", program.display())
}

/// Is there such a target?
fn known(corpora: &Path, target: &str) -> Result<(), String> {
    let entries = fs::read_dir(corpora).map_err(|e| format!("cannot read {}: {e}", corpora.display()))?;
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    if names.iter().any(|name| name == target) {
        return Ok(());
    }
    Err(format!(
        "no fuzz target is called {target:?}; there are {}",
        names.join(", ")
    ))
}

/// libFuzzer comes as C++ with its crate.
fn compiler(named: bool, found: bool) -> Result<(), String> {
    if named || found {
        return Ok(());
    }
    Err(
        "libFuzzer needs a C++ compiler: apt-get install g++, or fuzz without coverage: cargo run -p mrc-fuzz -- --all"
            .to_owned(),
    )
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let triple = run::host_triple();
    let mut command = run::cargo(&["build", "--release"], Privilege::None, false);
    // With a target named, the flags are not those of build scripts, which could not be linked.
    let status = command
        .args(["--target", &triple])
        .current_dir(root.join("fuzz/libfuzzer"))
        .env("CARGO_TARGET_DIR", root.join("target/libfuzzer"))
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .map_err(|e| format!("cargo did not start: {e}"))?;
    if !status.success() {
        return Err(
            "fuzz/libfuzzer does not build, see above; without coverage: cargo run -p mrc-fuzz -- --all".to_owned(),
        );
    }
    Ok(root.join("target/libfuzzer").join(triple).join("release/mrc-libfuzzer"))
}

/// The corpus becomes what is in `fresh`, and what once found a fault. Returns how many inputs that is.
fn replace(corpus: &Path, fresh: &Path) -> std::io::Result<usize> {
    for entry in fs::read_dir(corpus)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(FAULT) {
            fs::remove_file(entry.path())?;
        }
    }
    for entry in fs::read_dir(fresh)? {
        let entry = entry?;
        fs::copy(entry.path(), corpus.join(entry.file_name()))?;
    }
    Ok(fs::read_dir(corpus)?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that goes away with its owner.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mrc-xtask-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn directory(&self, name: &str, files: &[&str]) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(&path).unwrap();
            for file in files {
                fs::write(path.join(file), file).unwrap();
            }
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn inputs_that_found_a_fault_survive_minimisation_and_others_only_if_chosen() {
        let scratch = Scratch::new("replace");
        let corpus = scratch.directory("corpus", &["found-1", "old", "both"]);
        let fresh = scratch.directory("fresh", &["both", "new"]);
        assert_eq!(replace(&corpus, &fresh).unwrap(), 3);
        let mut names: Vec<_> = fs::read_dir(&corpus).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["both", "found-1", "new"]);
    }

    #[test]
    fn an_unknown_target_is_an_error_that_lists_the_known_ones() {
        let error = known(&run::workspace().join("fuzz/corpus"), "nosuch").unwrap_err();
        assert!(
            error.contains("nosuch") && error.contains("frames, headers") && !error.contains('\n'),
            "{error}"
        );
        assert_eq!(known(&run::workspace().join("fuzz/corpus"), "pair"), Ok(()));
    }

    #[test]
    fn a_missing_compiler_is_an_error_that_names_the_package_and_another_way() {
        assert!(compiler(true, false).is_ok() && compiler(false, true).is_ok());
        let error = compiler(false, false).unwrap_err();
        assert!(error.contains("g++") && error.contains("mrc-fuzz") && !error.contains('\n'));
    }
}
