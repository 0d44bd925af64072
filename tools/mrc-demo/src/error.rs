//! What can go wrong.

use std::io;

/// An error of the demo; one line each.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// No lab.
    #[error("cannot build the lab: {0}")]
    Lab(#[from] netns_lab::LabError),
    /// Something of the library.
    #[error(transparent)]
    Verbs(#[from] mrc_verbs::Error),
    /// The hosts do not understand each other.
    #[error(transparent)]
    Incompatible(#[from] mrc_verbs::Incompatible),
    /// Something of the operating system.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The other side said something else than it should.
    #[error("{from} said something unexpected: {line:?}")]
    Unexpected {
        /// Who.
        from: &'static str,
        /// What.
        line: String,
    },
    /// Too little memory.
    #[error("{need_mib} MiB of memory are needed and {free_mib} are free: try --mib {fitting}")]
    Memory {
        /// For both hosts.
        need_mib: u64,
        /// What the kernel says.
        free_mib: u64,
        /// What would fit.
        fitting: u64,
    },
    /// An environment variable of the lab is missing.
    #[error("{0} is not set: this role runs inside a host of the lab, start the demo without one")]
    NotInLab(&'static str),
    /// A write failed.
    #[error("write {index} failed: {status}")]
    Write {
        /// Which one.
        index: u64,
        /// How.
        status: mrc_verbs::WcStatus,
    },
    /// A host's program ended early.
    #[error("the {role} ended before its part was over")]
    Ended {
        /// Which one.
        role: &'static str,
    },
    /// Nothing moved any more.
    #[error("no data has arrived for {seconds} s with {done_mib} MiB moved")]
    Stuck {
        /// How long.
        seconds: u64,
        /// How much had moved.
        done_mib: u64,
    },
}

/// Names what was being done when the system refused.
pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> DemoError {
    move |source| DemoError::Io { what, source }
}
