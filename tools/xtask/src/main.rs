//! The project's chores: `cargo xtask demo`, `test`, `lint`, `spec`, `fuzz`, `guard`, `bench`, `setup`.
//!
//! Each command brings what it needs: a fresh Debian or Ubuntu with Rust, the C linker that Rust needs, and root or sudo
//! is enough.

mod citations;
mod counts;
mod fuzz;
mod guard;
mod packages;
mod privilege;
mod purity;
mod run;
mod sources;
mod spec;
mod steps;
mod summary;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use packages::{Purpose, SetupError};
use privilege::Privilege;

/// Set-up, demo, tests and benchmarks of MRC as software.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, about, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

const EXAMPLES: &str = "Examples:
  cargo xtask demo
  cargo xtask test
  cargo xtask test --only spec --no-setup";

const SPEC_EXAMPLES: &str = "Examples:
  cargo xtask spec
  cargo xtask spec --api";

const FUZZ_EXAMPLES: &str = "Examples:
  cargo xtask fuzz pair --seconds 600
  cargo xtask fuzz frames --seconds 60 --keep";

#[derive(Subcommand)]
enum Chore {
    /// Two hosts, four planes, one of which dies and comes back while a gibibyte moves (needs root or sudo)
    Demo {
        /// Trust that the system packages are there
        #[arg(long)]
        no_setup: bool,
        /// Handed on to the demo; `-- --help` lists them
        #[arg(last = true)]
        demo_arguments: Vec<String>,
    },
    /// Every test; without root those that need none
    Test {
        /// The long version, about an hour: more seeds, more cases
        #[arg(long)]
        full: bool,
        /// Trust that the system packages are there
        #[arg(long)]
        no_setup: bool,
        /// Only the steps of these names (see `--list`)
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// Print the steps and stop
        #[arg(long)]
        list: bool,
    },
    /// Formatting and lints, as the tests check them
    Lint,
    /// Which sections of the protocol no code cites, and which no test
    #[command(after_help = SPEC_EXAMPLES)]
    Spec {
        /// The programming interface too
        #[arg(long)]
        api: bool,
    },
    /// A fuzz target under libFuzzer for a while (needs a C++ compiler)
    #[command(after_help = FUZZ_EXAMPLES)]
    Fuzz {
        /// Name of the target: a directory of fuzz/corpus
        target: String,
        /// How long
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
        /// Then make the fewest inputs that reach as much its stored corpus
        #[arg(long)]
        keep: bool,
    },
    /// Whether the work per packet has grown: instruction counts against those in the repository (needs valgrind)
    Guard {
        /// Write the counts of now into the repository
        #[arg(long)]
        update: bool,
    },
    /// Speed beside bare `AF_XDP` loops and the kernel's sockets in the same run (needs root or sudo)
    Bench {
        /// Handed on to the benchmark; `-- --help` lists them
        #[arg(last = true)]
        bench_arguments: Vec<String>,
    },
    /// Only install the system packages
    Setup {
        /// What for
        #[arg(long = "for", value_enum, default_value_t = SetupFor::Test)]
        purpose: SetupFor,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum SetupFor {
    /// To build everything, and to run the demo
    Build,
    /// To build and test everything
    Test,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Demo {
            no_setup,
            demo_arguments,
        } => lab_program(&DEMO, &demo_arguments, no_setup),
        Chore::Bench { bench_arguments } => lab_program(&BENCH, &bench_arguments, false),
        Chore::Test {
            full,
            no_setup,
            only,
            list,
        } => {
            let selection = steps::Selection { full, only };
            if list {
                list_steps(&selection)
            } else {
                test(&selection, no_setup)
            }
        }
        Chore::Lint => test(
            &steps::Selection {
                full: false,
                only: vec!["format".to_owned(), "clippy".to_owned()],
            },
            false,
        ),
        Chore::Fuzz { target, seconds, keep } => fuzz::Fuzz { target, seconds, keep }.run(),
        Chore::Guard { update } => guard::guard(update),
        Chore::Spec { api } => specification(api),
        Chore::Setup { purpose } => {
            let purpose = match purpose {
                SetupFor::Build => Purpose::Build,
                SetupFor::Test => Purpose::Test,
            };
            packages::install_missing(purpose, Privilege::find())
                .map_err(|e| e.to_string())
                .map(|()| ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|message| {
        eprintln!("error: {message}");
        ExitCode::FAILURE
    })
}

/// A program of ours that needs the lab, hence root.
struct LabProgram {
    name: &'static str,
    cargo: &'static [&'static str],
    needs: Purpose,
}

const DEMO: LabProgram = LabProgram {
    name: "the demo",
    cargo: &["run", "--release", "--locked", "-p", "mrc-demo", "--"],
    needs: Purpose::Build,
};
const BENCH: LabProgram = LabProgram {
    name: "the benchmark",
    cargo: &["run", "--release", "--locked", "-p", "mrc-bench", "--", "compare"],
    // `ip` takes segmentation offload away.
    needs: Purpose::Test,
};

fn lab_program(program: &LabProgram, arguments: &[String], no_setup: bool) -> Result<ExitCode, String> {
    let privilege = Privilege::find();
    if let Some(lack) = privilege.lack() {
        return Err(format!(
            "{} builds network namespaces and AF_XDP sockets: {lack}",
            program.name
        ));
    }
    if !no_setup {
        packages::install_missing(program.needs, privilege).map_err(|e| e.to_string())?;
    }
    println!("building {} (the first time takes minutes)", program.name);
    let mut command = run::cargo(program.cargo, privilege, true);
    command.args(arguments);
    let status = command.status().map_err(|e| format!("cargo did not start: {e}"))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn specification(api: bool) -> Result<ExitCode, String> {
    let notes = if api {
        &citations::NOTES[..]
    } else {
        &citations::NOTES[..2]
    };
    let (report, lacking) = spec::report(&run::workspace(), notes)?;
    print!("{report}");
    Ok(if lacking == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn list_steps(selection: &steps::Selection) -> Result<ExitCode, String> {
    for step in selection.steps()? {
        let needs = if step.needs.root { "root" } else { "-" };
        println!("{:<12} {:<5} {}", step.name, needs, step.what);
    }
    Ok(ExitCode::SUCCESS)
}

fn test(selection: &steps::Selection, no_setup: bool) -> Result<ExitCode, String> {
    let steps = selection.steps()?;
    let privilege = Privilege::find();
    let mut have_packages = true;
    if !no_setup && steps.iter().any(|step| step.needs.packages) {
        match packages::install_missing(Purpose::Test, privilege) {
            Ok(()) => {}
            // Nobody here may install them: test what builds without.
            Err(error @ SetupError::NotAllowed { .. }) => {
                eprintln!("warning: {error}");
                have_packages = packages::can_build();
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    let outcome = run::all(&steps, privilege, have_packages);
    print!("{}", summary::render(&outcome));
    Ok(if outcome.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
