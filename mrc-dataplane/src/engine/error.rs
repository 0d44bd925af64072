//! What can go wrong, in one line each: the thing, the limit, the remedy.

use std::io;
use std::net::IpAddr;

use mrc_protocol::{CreateError, StateError, UniverseError};
use mrc_wire::Qpn;

use super::command::CqId;
use crate::capture::CaptureError;
use crate::netlink::WatchError;
use crate::port::PortError;
use crate::profile::ProfileFault;
use crate::region::PdId;

/// Why an engine cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A value of the configuration.
    #[error("{0}")]
    Config(String),
    /// No port was named.
    #[error("no ports: name at least one interface")]
    NoPorts,
    /// No node address.
    #[error(
        "no node address: lo has no global address; add one: ip addr add 192.0.2.1/32 dev lo (or set address_v4 / address_v6)"
    )]
    NoAddress,
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Links and routes cannot be followed.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A capture that was asked for.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The operating system refused something.
    #[error("cannot {what}: {error}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What it answered.
        error: io::Error,
    },
}

impl EngineError {
    pub(crate) fn os(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Os { what, error }
    }
}

/// Why a command was refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no such queue pair.
    #[error("no queue pair {0}")]
    NoSuchQp(Qpn),
    /// There is no such protection domain.
    #[error("no protection domain {}", .0.0)]
    NoSuchPd(PdId),
    /// There is no such completion queue.
    #[error("no completion queue {}", .0.0)]
    NoSuchCq(CqId),
    /// There is no such region.
    #[error("no memory region with lkey {0:#x}")]
    NoSuchRegion(u32),
    /// The object is still in use.
    #[error("{what} is in use by {users}: destroy them first")]
    Busy {
        /// The object.
        what: &'static str,
        /// Its users.
        users: &'static str,
    },
    /// A value out of range.
    #[error("{what} is {value}: give {least} to {most}")]
    OutOfRange {
        /// Which value.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// Smallest.
        least: u64,
        /// Largest.
        most: u64,
    },
    /// The engine is full.
    #[error("{what}: the limit of {limit} is reached; raise {setting}")]
    Limit {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: u64,
        /// Where the limit comes from.
        setting: &'static str,
    },
    /// The packets would not fit (api.md D6).
    #[error(
        "path MTU {pmtu} needs an MTU of {needed} on {port}, which has {mtu}: ip link set {port} mtu {needed}, or use path MTU {usable}"
    )]
    PmtuTooLarge {
        /// What was asked for.
        pmtu: usize,
        /// The first interface that is too small.
        port: String,
        /// What it has.
        mtu: u32,
        /// What it needs.
        needed: usize,
        /// The largest that all interfaces carry; 0: none.
        usable: usize,
    },
    /// The packets would need frames of several buffers.
    #[error(
        "path MTU {pmtu} needs frames of several buffers, which {port} does not have ({reason}); use path MTU {usable}"
    )]
    PmtuNeedsMultiBuffer {
        /// What was asked for.
        pmtu: usize,
        /// The first interface that cannot.
        port: String,
        /// Why it cannot.
        reason: String,
        /// The largest that all interfaces carry; 0: none.
        usable: usize,
    },
    /// The source address is not an address of this node.
    #[error("{0} is not an address of this node")]
    NotOurAddress(IpAddr),
    /// The peer's address is of the other family, or no unicast address.
    #[error("peer address {0} cannot be used: give a unicast address of the family of the own one")]
    PeerAddress(IpAddr),
    /// The kernel has no route to the peer over any port.
    #[error(
        "peer {peer}: no route over {ports}; add one per port: ip route add {peer} via NEXT_HOP dev PORT metric NUMBER"
    )]
    NoRoute {
        /// The peer's node address.
        peer: IpAddr,
        /// The ports that were tried.
        ports: String,
    },
    /// The state machine refused.
    #[error(transparent)]
    State(#[from] StateError),
    /// The creation parameters are impossible.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A profile that is not there, or does not fit.
    #[error(transparent)]
    Profile(#[from] ProfileFault),
    /// The paths of the profile cannot be used.
    #[error(transparent)]
    Paths(UniverseError),
    /// The operating system refused something.
    #[error("cannot {what}: {error}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What it answered.
        error: String,
    },
    /// The engine has been stopped, or one of its threads has died.
    #[error("the engine has stopped")]
    Stopped,
}
