//! What can go wrong with a BPF program, said in one line.

use std::error::Error as _;
use std::io;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;

use crate::occupant::Occupant;
use crate::steering::SettingsError;

/// Loading or attaching a program failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process may not do this.
    #[error(
        "loading a BPF program for {interface} needs the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON \
         (and CAP_NET_RAW for AF_XDP): run as root or grant them, e.g. with AmbientCapabilities= in a systemd unit"
    )]
    NoPrivilege {
        /// The interface that was to be used.
        interface: String,
    },
    /// There is no such interface.
    #[error("unknown interface {interface}: `ip link` lists those of this network namespace")]
    UnknownInterface {
        /// The name that was given.
        interface: String,
    },
    /// Somebody else's program is attached.
    #[error("{interface} already carries an XDP program ({occupant}), which MRC will not replace; remove it with: {}", occupant.removal(interface))]
    Occupied {
        /// The interface.
        interface: String,
        /// The program that is there.
        occupant: Occupant,
    },
    /// Neither native nor generic XDP works.
    #[error("{interface} takes no XDP program: native mode: {native}; generic mode: {generic}")]
    NotAttachable {
        /// The interface.
        interface: String,
        /// What the kernel said to native mode.
        native: String,
        /// What the kernel said to generic mode.
        generic: String,
    },
    /// The kernel has no BPF link for XDP.
    #[error("this kernel cannot attach XDP programs by a BPF link, which needs Linux 5.9 (MRC as a whole: 6.1)")]
    NoLink,
    /// The kernel refused the program.
    #[error("the kernel refused the BPF program for {interface}: {}; MRC needs Linux 6.1 with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS", explain(.source))]
    Load {
        /// The interface.
        interface: String,
        /// What the loader said.
        #[source]
        source: Box<EbpfError>,
    },
    /// A map could not be read or written.
    #[error("a map of the steering program could not be used: {}", explain(.0))]
    Map(#[from] MapError),
    /// The settings are not usable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Asking the kernel about an interface failed.
    #[error("cannot ask the kernel about {interface} over netlink: {source}")]
    Netlink {
        /// The interface.
        interface: String,
        /// The socket's error.
        #[source]
        source: io::Error,
    },
}

impl From<LinkError> for Error {
    fn from(_: LinkError) -> Self {
        Self::NoLink
    }
}

/// An error with all its causes in one line.
pub fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text.lines().next().unwrap_or_default().to_owned()
}

/// The error number at the bottom of a loader's error, if there is one.
pub(crate) fn errno(error: &ProgramError) -> Option<i32> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = error.source();
    if let ProgramError::SyscallError(call) = error {
        return call.io_error.raw_os_error();
    }
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        next = cause.source();
    }
    None
}

/// Turns a failure to load into the error that helps most.
pub(crate) fn load_error(interface: &str, source: impl Into<EbpfError>) -> Error {
    let source = source.into();
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&source);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && matches!(io.raw_os_error(), Some(libc::EPERM | libc::EACCES))
            && !may_load()
        {
            return Error::NoPrivilege {
                interface: interface.to_owned(),
            };
        }
        next = cause.source();
    }
    Error::Load {
        interface: interface.to_owned(),
        source: Box::new(source),
    }
}

/// Whether this process has what loading needs; EPERM and EACCES also come from the verifier.
fn may_load() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_BPF: u32 = 39;
    let Ok(status) = std::fs::read_to_string("/proc/thread-self/status") else {
        return false;
    };
    let Some(effective) = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
    else {
        return false;
    };
    let has = |cap: u32| effective >> cap & 1 == 1;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_NET_ADMIN))
}
