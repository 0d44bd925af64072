//! What can go wrong before anything is measured.

use std::fmt::Display;

/// An error of the benchmark; one line each.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// No lab.
    #[error("cannot build the lab: {0}")]
    Lab(#[from] netns_lab::LabError),
    /// No steering program.
    #[error(transparent)]
    Steering(#[from] mrc_ebpf::Error),
    /// No socket.
    #[error("cannot open an AF_XDP socket on {interface}: {reason}")]
    Socket {
        /// Which interface.
        interface: String,
        /// Why not.
        reason: String,
    },
    /// A frame size out of range.
    #[error("a frame of {frame} bytes: give {smallest} to {largest}")]
    FrameSize {
        /// What was asked for.
        frame: usize,
        /// The smallest that holds the headers.
        smallest: usize,
        /// The largest that the lab's MTU holds.
        largest: usize,
    },
    /// Nothing arrived, so there is nothing to compare with.
    #[error("{what}: no frame arrived within {seconds} s")]
    Silence {
        /// Which loop.
        what: &'static str,
        /// How long it ran.
        seconds: f64,
    },
    /// Something of the library.
    #[error(transparent)]
    Verbs(#[from] mrc_verbs::Error),
    /// The two ends do not understand each other.
    #[error(transparent)]
    Incompatible(#[from] mrc_verbs::Incompatible),
    /// The link does not hold the PMTU.
    #[error("PMTU {pmtu}: the link carries {active} at most, raise its MTU")]
    Pmtu {
        /// Wanted.
        pmtu: u32,
        /// Largest.
        active: u32,
    },
    /// No connection was made for it.
    #[error("there is no connection with PMTU {pmtu}")]
    NoConnection {
        /// Wanted.
        pmtu: u32,
    },
    /// No such row.
    #[error("no row is called {name:?}; there are {known}")]
    Row {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A write failed.
    #[error("a write failed: {status}")]
    Write {
        /// How.
        status: mrc_verbs::WcStatus,
    },
    /// Something of the operating system failed in a loop.
    #[error("{what}: {source}")]
    Io {
        /// Which step.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl BenchError {
    /// A socket on `interface` cannot be had.
    pub(crate) fn socket(interface: &str, reason: impl Display) -> Self {
        Self::Socket {
            interface: interface.to_owned(),
            reason: reason.to_string(),
        }
    }
}
