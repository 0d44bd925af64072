//! Why a run ended early, and the exit status for it.

/// One line for people, one number for scripts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Wrong data, or a write that failed.
    #[error("{0}")]
    Test(String),
    /// The options do not go together.
    #[error("{0}")]
    Usage(String),
    /// This host is not set up for it.
    #[error("{0}")]
    Setup(String),
    /// The peer is lost, does not answer, or does not fit.
    #[error("{0}")]
    Peer(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    /// The process's exit status; `--help` lists them.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Test(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Setup(_) => 3,
            Failure::Peer(_) => 4,
            Failure::Interrupted => 130,
        }
    }
}

impl From<mrc_verbs::Error> for Failure {
    fn from(error: mrc_verbs::Error) -> Failure {
        match error {
            mrc_verbs::Error::Incompatible(what) => Failure::Peer(what.to_string()),
            error => Failure::Setup(error.to_string()),
        }
    }
}
