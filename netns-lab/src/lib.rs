//! Multi-path fabrics in network namespaces on one machine.
//!
//! [`Lab::build`] turns a [`Topology`] into namespaces joined by veth pairs, with addresses, routes and a management network; see
//! [`plan`] for the scheme. Hosts run closures ([`Namespace::enter`]) and programs ([`Namespace::spawn`]). The namespaces have no names:
//! only this process holds them, so nothing is left of them or of the programs in them when it ends, even by `kill -9`.

mod broken;
mod capture;
mod config;
mod delay;
mod error;
pub mod fabric;
pub mod fault;
mod lab;
mod namespace;
mod netlink;
pub mod plan;
mod process;
mod switch;
mod topology;
mod wiring;

pub use capture::{Capture, Captured};
pub use error::LabError;
pub use fabric::{FabricSpec, Overflow, QueueSpec, Routing};
pub use fault::Fault;
pub use lab::{Counters, Host, Lab, Namespace, PortCounters, SwitchPort};
pub use nix::sys::signal::Signal;
pub use plan::{Path, PathEv};
pub use process::{Process, ProcessGroup};
pub use topology::{MAX_HOSTS, MAX_MTU, MAX_PLANES, MIN_MTU, NAMES, Shape, Topology};

/// The examples of the README, as a test that they compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
