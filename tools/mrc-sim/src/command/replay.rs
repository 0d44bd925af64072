//! `mrc-sim replay`.

use crate::command::out::{Stdout, say, tell};
use mrc_sim::harness::{replay_command, run_scenario};
use mrc_sim::outline::outline;
use mrc_sim::scenario::Scenario;
use mrc_sim::trace::Trace;
use std::io::BufWriter;
use std::process::ExitCode;

pub(crate) fn replay(seed: u64, trace: bool) -> ExitCode {
    let scenario = Scenario::from_seed(seed);
    let sink = if trace {
        say(outline(&scenario).trim_end_matches('\n'));
        Trace::to(BufWriter::new(Stdout))
    } else {
        Trace::off()
    };
    match run_scenario(scenario, sink) {
        Ok(outcome) => {
            say(&format!(
                "seed {seed} passed: {} packets, {:.3} ms of virtual time",
                outcome.packets,
                outcome.ended_ns as f64 / 1e6
            ));
            ExitCode::SUCCESS
        }
        Err(violation) => {
            tell(&format!(
                "oracle violated: {violation}; seed {seed}; replay: {}",
                replay_command(seed)
            ));
            ExitCode::FAILURE
        }
    }
}
