//! Command line of the runner.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{ArgGroup, Parser};
use mrc_fuzz::run::{Failure, corpora, corpus, mutate, try_input};
use mrc_fuzz::{TARGETS, Target, target};

const EXAMPLES: &str = "Examples:
  mrc-fuzz --list
  mrc-fuzz frames --iterations 1000000 --seed 7
  mrc-fuzz --all
  mrc-fuzz pair --input fuzz-failures/pair-0123456789abcdef    (replay one input)";

/// Replay the corpora of fuzz targets and mutate them; no coverage, any toolchain
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
#[command(group = ArgGroup::new("what").required(true).args(["target", "all", "list"]))]
struct Arguments {
    /// Name of the target
    target: Option<String>,
    /// All targets
    #[arg(long)]
    all: bool,
    /// List the targets
    #[arg(long)]
    list: bool,
    /// How many mutated inputs follow the corpus, per target
    #[arg(long, default_value_t = 20_000)]
    iterations: u64,
    /// Another seed makes other mutations
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only this input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "list", "iterations", "seed"])]
    input: Option<PathBuf>,
    /// Directory with a corpus for each target [default: that of the source tree]
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Where an input that fails is written
    #[arg(long, value_name = "DIR", default_value = "fuzz-failures")]
    failures: PathBuf,
    /// Add the target's own first inputs to this directory, and stop
    #[arg(long, value_name = "DIR", conflicts_with_all = ["all", "list", "input"])]
    write_seeds: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.list {
        for target in TARGETS {
            println!("{:<10} {}", target.name, target.what);
        }
        return Ok(());
    }
    let targets = chosen(arguments)?;
    for target in targets {
        if let Some(directory) = &arguments.write_seeds {
            write_seeds(target, directory)?;
        } else if let Some(path) = &arguments.input {
            let data = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            try_input(target, &data).map_err(|failure| format!("{} fails on {failure}", target.name))?;
            println!("{:<10} {} passes", target.name, path.display());
        } else {
            exercise(target, arguments)?;
        }
    }
    Ok(())
}

fn chosen(arguments: &Arguments) -> Result<Vec<&'static Target>, String> {
    let Some(name) = &arguments.target else {
        return Ok(TARGETS.iter().collect());
    };
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    let found = target(name).ok_or_else(|| format!("no target is called {name:?}; there are {}", names()))?;
    Ok(vec![found])
}

/// The corpus first, then what is near it.
fn exercise(target: &Target, arguments: &Arguments) -> Result<(), String> {
    let begin = Instant::now();
    let directory = arguments.corpus.clone().unwrap_or_else(corpora).join(target.name);
    let inputs = corpus(&directory).map_err(|e| format!("cannot read the corpus {}: {e}", directory.display()))?;
    for input in &inputs {
        try_input(target, &input.data).map_err(|failure| report(target, &failure, Some(&input.path), arguments))?;
    }
    let mut known: Vec<_> = inputs.into_iter().map(|input| input.data).collect();
    let stored = known.len();
    known.extend(target.seeds.map_or_else(Vec::new, |seeds| seeds()));
    mutate(target, &known, arguments.iterations, arguments.seed)
        .map_err(|failure| report(target, &failure, None, arguments))?;
    let seconds = begin.elapsed().as_secs_f64();
    let iterations = arguments.iterations;
    println!(
        "{:<10} {stored:>4} inputs, {iterations:>8} mutations, {seconds:>6.1} s: ok",
        target.name
    );
    Ok(())
}

/// Keeps the input, unless it is kept already, and says how to see the failure again.
fn report(target: &Target, failure: &Failure, kept: Option<&Path>, arguments: &Arguments) -> String {
    let path = match kept.map_or_else(
        || keep(target, failure, &arguments.failures),
        |path| Ok(path.to_owned()),
    ) {
        Ok(path) => path,
        Err(e) => return format!("{} fails on {failure}; and {e}", target.name),
    };
    format!(
        "{} fails on {failure}\nreplay: cargo run -p mrc-fuzz -- {} --input {}",
        target.name,
        target.name,
        path.display()
    )
}

fn keep(target: &Target, failure: &Failure, directory: &Path) -> Result<PathBuf, String> {
    let path = directory.join(file_name(target, &failure.input));
    write(&path, &failure.input)?;
    Ok(path)
}

fn write_seeds(target: &Target, directory: &Path) -> Result<(), String> {
    let seeds = target.seeds.map_or_else(Vec::new, |seeds| seeds());
    for seed in &seeds {
        write(&directory.join(file_name(target, seed)), seed)?;
    }
    println!(
        "{:<10} {} inputs written to {}",
        target.name,
        seeds.len(),
        directory.display()
    );
    Ok(())
}

fn write(path: &Path, data: &[u8]) -> Result<(), String> {
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(path, data))
        .map_err(|e| {
            format!(
                "cannot write {}: {e}; --failures names another directory",
                path.display()
            )
        })
}

/// The same input has the same name: FNV-1a, which no version of the standard library changes.
fn file_name(target: &Target, data: &[u8]) -> String {
    let hash = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}-{hash:016x}", target.name)
}
