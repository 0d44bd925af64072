//! Runs a scenario: builds its fabric, starts an agent in each host, lets them do their parts, breaks what the timeline breaks, and
//! records what everybody says.

mod agents;
mod fabric;
mod machine;
mod play;
mod progress;
mod record;
mod steps;

pub(crate) use agents::{COMMAND as AGENT_COMMAND, News};
pub(crate) use machine::{Machine, MachineSample};
pub(crate) use play::{Options, play};
pub(crate) use record::{Record, Shape, Way, interpolate};

use netns_lab::LabError;

/// Why a scenario could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The fabric could not be built or changed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// An agent said why it cannot go on, or went without a word.
    #[error("{host}: {message}")]
    Agent {
        /// Which host's.
        host: String,
        /// In its words.
        message: String,
    },
    /// Something did not happen in time.
    #[error("waited {seconds} s in vain for {what}; see the machine's load")]
    Late {
        /// What.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// Ctrl-C.
    #[error("ended by {0}")]
    Signal(netns_lab::Signal),
}
