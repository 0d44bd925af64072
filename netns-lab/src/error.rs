//! What can go wrong, each with its remedy.

use std::io;

use crate::topology;

/// Why a lab could not be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// No such topology.
    #[error("unknown topology '{name}': known are {}", topology::NAMES.join(", "))]
    UnknownTopology {
        /// What was asked for.
        name: String,
    },
    /// Arguments that do not go together.
    #[error("{message}")]
    Usage {
        /// What is wrong, and what to do.
        message: String,
    },
    /// A figure of the topology is out of its range.
    #[error("{what} is {value}: topology '{topology}' takes {low} to {high}")]
    OutOfRange {
        /// Which figure.
        what: &'static str,
        /// What was asked for.
        value: usize,
        /// The topology's name.
        topology: &'static str,
        /// Smallest allowed.
        low: usize,
        /// Largest allowed.
        high: usize,
    },
    /// A file of a topology that cannot be understood.
    #[error("{file}:{line}: {message}")]
    File {
        /// Which file.
        file: String,
        /// Where in it.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Namespaces need privilege.
    #[error(
        "cannot create network namespaces: CAP_SYS_ADMIN is missing; run as root (sudo) or with --privileged in a container"
    )]
    Privilege,
    /// A node of the lab that does not exist.
    #[error("no '{name}' in this lab: it has {known}")]
    UnknownNode {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A link that does not exist.
    #[error("no link '{name}' in this lab: `netns-lab show` lists them, for example {example}")]
    UnknownLink {
        /// What was asked for.
        name: String,
        /// One that there is.
        example: String,
    },
    /// Not a port of a fabric's switch.
    #[error(
        "'{switch}' is no switch of a fabric at link '{link}': such ports are at one of the link's ends, as `netns-lab show` lists them"
    )]
    NoSwitchPort {
        /// The node.
        switch: String,
        /// The link.
        link: String,
    },
    /// A fault that cannot be.
    #[error("{fault}: {why}")]
    Fault {
        /// What was to break or heal.
        fault: String,
        /// Why it does not.
        why: String,
    },
    /// A plane that does not exist.
    #[error("no plane {plane} in this lab: planes are 1 to {planes}")]
    UnknownPlane {
        /// What was asked for.
        plane: usize,
        /// How many there are.
        planes: usize,
    },
    /// The kernel refused something.
    #[error("cannot {action}: {source}")]
    Kernel {
        /// What was tried.
        action: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// No XDP program on a switch's port.
    #[error("cannot prepare the ports of switch '{node}' for AF_XDP: {source}")]
    Xdp {
        /// Which switch.
        node: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel refused the switch programs.
    #[error(
        "cannot load the switch programs: {message}; they need root, Linux 6.1 and its type information (CONFIG_DEBUG_INFO_BTF)"
    )]
    SwitchPrograms {
        /// Why.
        message: String,
    },
    /// A link did not come up or go down in time.
    #[error("link {link} is not {state} after {waited_ms} ms; see `dmesg` and the machine's load")]
    LinkTimeout {
        /// Which link.
        link: String,
        /// `up`, `down` or `receiving`.
        state: &'static str,
        /// How long it was waited for.
        waited_ms: u128,
    },
    /// A program of the system is missing.
    #[error("cannot run '{program}': {source}; install it (apt-get install {package})")]
    Program {
        /// The program's name.
        program: String,
        /// The Debian package that has it.
        package: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// A capture that ended before it began.
    #[error("tcpdump on '{node}' did not start: {message}")]
    Capture {
        /// Where it should have listened.
        node: String,
        /// What it said.
        message: String,
    },
}

impl LabError {
    /// Wraps what the kernel answered to `action`; a lack of privilege is told as such.
    pub(crate) fn kernel(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Kernel {
            action: action.into(),
            source: source.into(),
        }
    }
}
