//! Baselines: two simple models of single-path transports, to set MRC against on the same fabric.
//!
//! They are **models, not products**. Both send each connection over one port and one path for good, as RDMA NICs without
//! multipath do, with a fixed window of one bandwidth-delay product of the plane and an answer to every packet:
//!
//! * [`Kind::GoBackN`]: the reliable connection of RoCEv2 in its classic form. The receiver takes packets only in order, and
//!   says so once with a NAK; the sender goes back to the missing packet and sends everything from there again.
//! * [`Kind::SelectiveRepeat`]: the receiver keeps what comes out of order and answers with a bitmap; the sender repeats
//!   only what is missing, and only what is in flight counts for its window. It even learns which transmission of a packet
//!   an answer belongs to.
//!
//! What is left out on purpose: congestion control (there is no DCQCN: the window is fixed, frames are not ECN-capable), PFC
//! (the fabric is lossy), trimming (frames may not be trimmed; what faults trim all the same is thrown away), retry limits
//! (they try until the deadline), connection setup, and host delays (MRC's hosts have some). Connections are spread over the
//! planes in turn, which is the best that a bond of ports could do.
//!
//! ```
//! use mrc_sim::baseline::{self, Kind, workload::Workload};
//! use mrc_sim::fabric::clos::plan::{ClosPlan, LinkPlan};
//! use mrc_sim::fabric::clos::topology::Shape;
//!
//! let shape = Shape { planes: 2, leaves: 2, spines: 2, hosts_per_leaf: 4 };
//! let plan = ClosPlan::new(shape, LinkPlan { rate_mbps: 100_000, delay_ns: 1000 });
//! let report = baseline::run(Kind::GoBackN, &plan, &Workload::incast(3, 0, 1 << 20), &[], 1)?;
//! assert!(report.is_complete());
//! # Ok::<(), mrc_sim::baseline::BaselineError>(())
//! ```

mod connection;
mod go_back_n;
mod nic;
mod report;
pub mod segment;
mod selective;
mod simulation;
mod transport;
pub mod workload;

pub use report::BaselineReport;

use crate::baseline::simulation::Simulation;
use crate::baseline::workload::Workload;
use crate::fabric::clos::Path;
use crate::fabric::clos::plan::{ClosPlan, PlanError};
use crate::fabric::fault::Fault;
use std::fmt;
use thiserror::Error;

/// Which model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Go-back-N on one path.
    GoBackN,
    /// Selective repeat on one path.
    SelectiveRepeat,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::GoBackN, Kind::SelectiveRepeat];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::GoBackN => "go-back-N",
            Kind::SelectiveRepeat => "selective repeat",
        })
    }
}

/// Why a baseline cannot run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BaselineError {
    /// The fabric cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A transfer from or to a host that is not there.
    #[error(
        "transfer {index} is from host {src} to host {dst}, but the fabric has {hosts} hosts: use two different ones below {hosts}"
    )]
    Host {
        /// Index of the transfer.
        index: usize,
        /// Its source.
        src: usize,
        /// Its destination.
        dst: usize,
        /// Hosts of the fabric.
        hosts: usize,
    },
    /// Nothing to send over.
    #[error("the workload has 0 connections from a host to another: use 1, or as many as there are planes")]
    Stripes,
    /// Packets that no fabric carries.
    #[error("the path MTU is {pmtu} bytes: use 256 to 4096, and at most {most} on this fabric")]
    Pmtu {
        /// As planned.
        pmtu: u32,
        /// What the fabric carries.
        most: u32,
    },
}

/// Runs `workload` over a fabric as planned, with faults, until all transfers are complete or the workload's deadline has come.
pub fn run(
    kind: Kind,
    plan: &ClosPlan,
    workload: &Workload,
    faults: &[Fault],
    seed: u64,
) -> Result<BaselineReport, BaselineError> {
    Ok(Simulation::new(kind, plan, workload, faults, seed)?.run())
}

/// The links that the first connection of a workload takes while nothing reroutes it: to let them fail. `None` if there is no
/// connection.
pub fn first_path(plan: &ClosPlan, workload: &Workload, seed: u64) -> Result<Option<Path>, BaselineError> {
    Ok(Simulation::new(Kind::GoBackN, plan, workload, &[], seed)?.first_path())
}
