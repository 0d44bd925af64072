//! Labs that are really built. Needs root; without it every test says that it was skipped.

#[path = "lab/support.rs"]
mod support;

#[path = "lab/fabric.rs"]
mod fabric;
