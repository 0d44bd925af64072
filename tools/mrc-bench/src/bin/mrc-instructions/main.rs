//! Fixed packet sequences, to be counted in instructions: `cargo xtask guard` runs each under callgrind and compares.
//!
//! What is counted is inside [`measured`]; how many packets went through it is printed, so that a count can be shared out.

mod engine;
mod protocol;
mod wire;

use std::process::ExitCode;

/// What can go wrong; a sequence is fixed, so that any of it is a fault of the code.
type Fault = Box<dyn std::error::Error>;

/// One sequence. It returns how many packets it counted.
struct Sequence {
    name: &'static str,
    run: fn() -> Result<u64, Fault>,
}

const fn sequence(name: &'static str, run: fn() -> Result<u64, Fault>) -> Sequence {
    Sequence { name, run }
}

const SEQUENCES: &[Sequence] = &[
    sequence("wire-build-64", || wire::build(64)),
    sequence("wire-build-1024", || wire::build(1024)),
    sequence("wire-build-2048", || wire::build(2048)),
    sequence("wire-build-4096", || wire::build(4096)),
    sequence("wire-parse-64", || wire::parse(64)),
    sequence("wire-parse-1024", || wire::parse(1024)),
    sequence("wire-parse-2048", || wire::parse(2048)),
    sequence("wire-parse-4096", || wire::parse(4096)),
    sequence("protocol-lossless", || protocol::exchange(None)),
    sequence("protocol-loss", || protocol::exchange(Some(50))),
    sequence("engine-64", || engine::writes(1024, 64, None)),
    sequence("engine-1024", || engine::writes(1024, 1 << 16, None)),
    sequence("engine-4096", || engine::writes(4096, 1 << 16, None)),
    sequence("engine-loss", || engine::writes(1024, 1 << 16, Some(50))),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if wanted == "list" {
        for sequence in SEQUENCES {
            println!("{}", sequence.name);
        }
        return ExitCode::SUCCESS;
    }
    let Some(sequence) = SEQUENCES.iter().find(|sequence| sequence.name == wanted) else {
        eprintln!("error: no sequence is called {wanted:?}; `mrc-instructions list` prints their names");
        return ExitCode::FAILURE;
    };
    match (sequence.run)() {
        Ok(packets) => {
            println!("{packets}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("error: {}: {fault}", sequence.name);
            ExitCode::FAILURE
        }
    }
}

/// What is counted. It is found by its name, hence neither generic nor inlined.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}
