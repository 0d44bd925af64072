//! `netns-lab list`, `run`, `exec`, `up` and `show`.

mod control;
mod exec;
mod output;
mod scenarios;
mod signals;
mod topology;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use netns_lab::plan::Plan;
use netns_lab::{LabError, Topology};

use control::Request;
use topology::TopologyArgs;

/// Exit status for a command line that cannot be carried out, and for a lab that cannot be built.
const FAILURE: u8 = 125;

const NOTES: &str = "\
Topologies:
  pair    two hosts, port n joined to port n: no switch
  leaf    two or more hosts, one T0 switch per plane
  fabric  T0 and T1 switches with queues: --t0, --t1, --hosts-per-t0, --routing, --host-link, --fabric-link, --overflow, --seed
  FILE    the [topology] of a TOML file, as in the README

Examples:
  netns-lab show leaf --hosts 3 --planes 8
  netns-lab exec pair -- h0:'ping -c 1 $H1_GID4'
  netns-lab exec leaf --planes 2 -- h1:'mrc-perf server' h0:'mrc-perf client $H1_MGMT'
  netns-lab exec leaf -- t0.p1:'timeout 5 tcpdump -ni h1' h0:'ping -c 3 $H1_GID6'
  netns-lab up leaf --hosts 4
  netns-lab up fabric --planes 2 --t0 2 --t1 4 --routing srv6
  netns-lab show my-fabric.toml
  netns-lab fault 'blackhole = \"t1.0.p1\"'
  netns-lab list
  netns-lab run nic-link-down --report reports

Nothing is left behind, however a command ends: the namespaces have no names and end with it.
Everything but `show` and `list` needs root.";

#[derive(Debug, Parser)]
#[command(version, about = "Multi-path fabrics in network namespaces on one machine", after_help = NOTES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenarios and judge them by their criteria; 0 if all hold, 1 if not
    ///
    /// A scenario is a TOML file: a fabric, workloads, a timeline of faults, criteria. `netns-lab list` names those that come with
    /// the program; netns-lab/README.md teaches the language.
    Run(scenarios::RunArgs),
    /// Name the scenarios that come with the program
    List,
    /// Run commands inside the hosts; ends with the worst exit status of them all
    ///
    /// Each command is given as NODE:COMMAND and run by `sh -c`; all start at once, in the order given. Every line of output is
    /// prefixed with the node's name. The lab ends when all commands have ended, or by Ctrl-C.
    ///
    /// In its environment a command finds `MRC_PORTS` (its ports), `LAB_NODE` (its node's name), and for every host n: `Hn_MGMT`
    /// (management address, for sockets), `Hn_GID4` and `Hn_GID6` (node addresses). In a fabric `MRC_CONFIG` names the file that tells
    /// the host's engine the speeds of its links and the EVs of all paths.
    #[command(after_help = NOTES)]
    Exec {
        #[command(flatten)]
        topology: TopologyArgs,
        /// Terminate the other commands as soon as one fails
        #[arg(long)]
        stop_on_failure: bool,
        /// What to run where, for example h0:'ip addr'
        #[arg(last = true, required = true, value_name = "NODE:COMMAND")]
        commands: Vec<exec::NodeCommand>,
    },
    /// Build a lab that stays until Ctrl-C, and print how to enter it
    Up {
        #[command(flatten)]
        topology: TopologyArgs,
        /// What `fault`, `heal` and `counters` call it [default: lab, or lab2, lab3, ... if that is taken]
        #[arg(long)]
        name: Option<String>,
    },
    /// Break something in a lab that is up
    Fault {
        #[command(flatten)]
        lab: LabArg,
        /// What breaks, as one line of TOML: 'link-down = "h0-t0.0.p1"', 'loss = { link = "h*", percent = 1.0 }'
        #[arg(value_parser = control::fault)]
        fault: netns_lab::Fault,
    },
    /// Take a fault back, or all of them
    Heal {
        #[command(flatten)]
        lab: LabArg,
        /// The fault as it was given [default: all]
        #[arg(value_parser = control::fault)]
        fault: Option<netns_lab::Fault>,
    },
    /// Tell what is broken in a lab that is up, and what the ports of its switches have counted
    Counters {
        #[command(flatten)]
        lab: LabArg,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the addresses that a topology would have
    Show {
        #[command(flatten)]
        topology: TopologyArgs,
    },
    /// What `run` starts in each host
    #[command(name = crate::run::AGENT_COMMAND, hide = true)]
    Agent {
        /// Milliseconds between two samples
        sample_ms: u64,
    },
}

#[derive(Debug, clap::Args)]
struct LabArg {
    /// The lab's name, as `up --name` gave it
    #[arg(long, value_name = "NAME", default_value = control::DEFAULT_NAME)]
    lab: String,
}

/// Runs the program's command line.
pub(crate) fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Agent { sample_ms } => return crate::agent::main(sample_ms),
        Command::Run(args) => return end(scenarios::run(&args)),
        Command::List => return end(scenarios::list()),
        Command::Exec {
            topology,
            stop_on_failure,
            commands,
        } => topology
            .topology()
            .and_then(|t| exec::run(&t, &commands, stop_on_failure)),
        Command::Up { topology, name } => topology.topology().and_then(|t| up::run(&t, name.as_deref())),
        Command::Fault { lab, fault } => change(&lab.lab, &Request::Fault(fault)),
        Command::Heal { lab, fault } => change(&lab.lab, &Request::Heal(fault)),
        Command::Counters { lab, json } => counters(&lab.lab, json),
        Command::Show { topology } => topology.topology().and_then(|t| show(&t)),
    };
    end(result)
}

fn end(result: Result<u8, impl std::fmt::Display>) -> ExitCode {
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("netns-lab: {error}");
            ExitCode::from(FAILURE)
        }
    }
}

fn change(lab: &str, request: &Request) -> Result<u8, LabError> {
    output::print(&control::faults(&control::ask(lab, request)?));
    Ok(0)
}

fn counters(lab: &str, json: bool) -> Result<u8, LabError> {
    let state = control::ask(lab, &Request::Tell)?;
    if json {
        let text = serde_json::to_string_pretty(&state).map_err(|e| LabError::Usage {
            message: format!("cannot write the counters as JSON: {e}"),
        })?;
        output::print(&format!("{text}\n"));
    } else {
        output::print(&(control::faults(&state) + &control::table(&state)));
    }
    Ok(0)
}

fn show(topology: &Topology) -> Result<u8, LabError> {
    output::print(&Plan::new(topology)?.to_string());
    Ok(0)
}
