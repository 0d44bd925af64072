//! Next hops: which MAC address a packet to some destination gets on some port.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use mrc_wire::PortNum;

/// What is known of the next hop towards a destination on one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// Frames go to this MAC address.
    Resolved([u8; 6]),
    /// The kernel is being asked; packets wait, bounded, and look again when [`NextHops::generation`] moves.
    Pending,
    /// Nothing can be sent there on this port, for this reason, until something changes.
    Unreachable(Unreachable),
}

/// Why a destination cannot be reached on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// The kernel has no route to it over this port.
    NoRoute,
    /// The next hop does not answer ARP or neighbour solicitations.
    NeighbourFailed {
        /// The next hop that was asked.
        gateway: IpAddr,
    },
    /// The link is down or the interface gone.
    LinkDown,
    /// The engine has no port of this number.
    NoSuchPort,
    /// Too many destinations are followed already.
    TableFull,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute => f.write_str("no route over this port; add one: ip route add DESTINATION dev PORT"),
            Self::NeighbourFailed { gateway } => write!(f, "next hop {gateway} does not answer"),
            Self::LinkDown => f.write_str("link down"),
            Self::NoSuchPort => f.write_str("no such port"),
            Self::TableFull => f.write_str("too many destinations are followed; raise the limit of next hops"),
        }
    }
}

/// Answers for next hops. Called per path template, not per packet, but cheap enough for every batch.
pub trait NextHops: Send + Sync {
    /// The next hop towards `destination` on `port`. The first call for a pair starts following it.
    fn lookup(&self, port: PortNum, destination: IpAddr) -> NextHop;

    /// Moves whenever an answer of `lookup` may have changed.
    fn generation(&self) -> u64;
}

/// A fixed table, for engines whose ports are in memory.
#[derive(Debug, Default)]
pub struct FixedNextHops {
    table: RwLock<BTreeMap<(PortNum, IpAddr), NextHop>>,
    default: BTreeMap<PortNum, [u8; 6]>,
    generation: AtomicU64,
}

impl FixedNextHops {
    /// Everything on a port goes to one MAC address, since the port has only one peer.
    pub fn one_peer_each(peers: impl IntoIterator<Item = (PortNum, [u8; 6])>) -> Self {
        Self {
            default: peers.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Sets the answer for one pair.
    pub fn set(&self, port: PortNum, destination: IpAddr, hop: NextHop) {
        self.table
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((port, destination), hop);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl NextHops for FixedNextHops {
    fn lookup(&self, port: PortNum, destination: IpAddr) -> NextHop {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&(port, destination)).copied().unwrap_or_else(|| {
            self.default
                .get(&port)
                .map_or(NextHop::Unreachable(Unreachable::NoSuchPort), |mac| {
                    NextHop::Resolved(*mac)
                })
        })
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}
