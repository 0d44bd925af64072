//! Labs that are really built. Needs root; without it every test says that it was skipped.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "lab/capture.rs"]
mod capture;
#[path = "lab/command.rs"]
mod command;
#[path = "lab/fabric.rs"]
mod fabric;
#[path = "lab/faults.rs"]
mod faults;
#[path = "lab/leaf_spine.rs"]
mod leaf_spine;
#[path = "lab/links.rs"]
mod links;
#[path = "lab/mrc.rs"]
mod mrc;
#[path = "lab/paths.rs"]
mod paths;
#[path = "lab/processes.rs"]
mod processes;
#[path = "lab/queue.rs"]
mod queue;
#[path = "lab/scenarios.rs"]
mod scenarios;
#[path = "lab/support.rs"]
mod support;
