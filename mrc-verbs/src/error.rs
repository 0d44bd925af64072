//! One error for the crate's face. Every message is one line that names the thing, the limit and the remedy.

use mrc_dataplane::config_file::ConfigFileError;
use mrc_dataplane::engine::{CommandError, EngineError};

use crate::connection::Incompatible;
use crate::qp::QpState;

/// Result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a verb failed. Failures of work requests are not here: they come as [`WcStatus`](crate::WcStatus) in a completion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is outside its range.
    #[error("{what} {value} is invalid: {limit}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What was given.
        value: String,
        /// What would be accepted.
        limit: &'static str,
    },
    /// A feature that MRC or this device does not have.
    #[error("{what} not supported: {remedy}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The queue pair's state machine has no such transition (api.md §3.4).
    #[error(
        "queue pair cannot go from {from} to {to}: the order is RESET, INIT, RTR, RTS; ERR and RESET are open from anywhere"
    )]
    Transition {
        /// Present state.
        from: QpState,
        /// Requested state.
        to: QpState,
    },
    /// The caller's idea of the present state is wrong.
    #[error("queue pair is in {actual}, not in {asserted} as the caller stated")]
    CurrentState {
        /// What the caller stated.
        asserted: QpState,
        /// The present state.
        actual: QpState,
    },
    /// An attribute came with a transition that does not take it.
    #[error("attribute {attribute} cannot be set on the way to {to}: {accepted}")]
    AttributeState {
        /// The attribute.
        attribute: &'static str,
        /// Requested state.
        to: QpState,
        /// Where it is accepted.
        accepted: &'static str,
    },
    /// A required attribute is missing.
    #[error("attribute {attribute} is required before RTR: take it from the peer's ConnectionInfo")]
    MissingAttribute {
        /// The attribute.
        attribute: &'static str,
    },
    /// The two ends cannot talk to each other as they are configured.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// Objects of different contexts, devices or protection domains were mixed.
    #[error("{what} belongs to another {scope}: create both from the same one")]
    Foreign {
        /// The object.
        what: &'static str,
        /// What the two should share.
        scope: &'static str,
    },
    /// A posting call in a state that does not take it.
    #[error("cannot post a {what} in state {state}: {remedy}")]
    PostState {
        /// Send or receive.
        what: &'static str,
        /// Present state.
        state: QpState,
        /// The remedy.
        remedy: &'static str,
    },
    /// No room in the queue (ENOMEM of verbs).
    #[error(
        "{queue} queue is full: all {depth} entries are outstanding; poll completions, or create the queue pair with a larger {cap}"
    )]
    QueueFull {
        /// Send or receive.
        queue: &'static str,
        /// Its capacity.
        depth: u32,
        /// The capability that sizes it.
        cap: &'static str,
    },
    /// The completion queue was overrun and is of no further use.
    #[error(
        "completion queue overrun: more than {depth} completions were waiting; create it at least as deep as all queues that feed it"
    )]
    CqOverrun {
        /// Its capacity.
        depth: u32,
    },
    /// The range is not inside the memory region.
    #[error("range {offset}+{len} is outside a memory region of {region} bytes")]
    OutOfRegion {
        /// Start of the range.
        offset: usize,
        /// Length of the range.
        len: usize,
        /// Length of the region.
        region: usize,
    },
    /// Memory could not be had.
    #[error("cannot allocate {bytes} bytes of {what}: {source}; free memory or ask for less")]
    Memory {
        /// What for.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An environment variable or setting has no usable value.
    #[error("{name}={value:?}: {problem}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The configuration file cannot be used.
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
    /// A system call of the library failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The engine could not be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The engine refused a command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The engine broke off.
    #[error("the engine has ended: open the device again")]
    Closed,
}

impl Error {
    /// The errno that the C interface reports for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Unsupported { .. } => libc::EOPNOTSUPP,
            Error::QueueFull { .. } | Error::Memory { .. } | Error::Command(CommandError::Limit { .. }) => libc::ENOMEM,
            Error::CqOverrun { .. } | Error::Command(CommandError::Os { .. }) => libc::EIO,
            Error::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Error::Engine(EngineError::Os { error, .. }) => error.raw_os_error().unwrap_or(libc::EIO),
            Error::Closed | Error::Engine(_) | Error::Command(CommandError::Stopped) => libc::ENODEV,
            Error::Command(CommandError::Busy { .. }) => libc::EBUSY,
            Error::Command(_)
            | Error::Invalid { .. }
            | Error::Transition { .. }
            | Error::CurrentState { .. }
            | Error::AttributeState { .. }
            | Error::MissingAttribute { .. }
            | Error::Incompatible(_)
            | Error::Foreign { .. }
            | Error::PostState { .. }
            | Error::OutOfRegion { .. }
            | Error::ConfigFile(_)
            | Error::Setting { .. } => libc::EINVAL,
        }
    }
}
