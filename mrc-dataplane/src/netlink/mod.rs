//! What the kernel knows of our ports, followed live: links, addresses, routes and neighbours.
//!
//! One thread per engine listens to netlink and writes; everybody else reads snapshots. Its sockets are made by the thread
//! that calls [`Watcher::start`] and so belong to that thread's network namespace.

mod resolve;
mod route;
mod shared;
mod socket;
mod worker;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use mrc_wire::PortNum;

use crate::neigh::{NextHop, NextHops};
use crate::port::LinkState;
use shared::Shared;
use worker::Worker;

/// Following the ports failed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// No interface of that name.
    #[error("unknown interface {name}: `ip link` lists those of this network namespace")]
    UnknownInterface {
        /// The name that was given.
        name: String,
    },
    /// A netlink socket does not do what it should.
    #[error("cannot {what} over netlink: {source}")]
    Netlink {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// How to follow.
#[derive(Debug, Clone, Copy)]
pub struct WatchOptions {
    /// Bytes of events that may wait; when it is too little, everything is read anew.
    pub event_buffer: usize,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { event_buffer: 1 << 20 }
    }
}

/// An address of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddress {
    /// The address.
    pub ip: IpAddr,
    /// Length of its prefix in bits.
    pub prefix_len: u8,
    /// Index of the interface that has it.
    pub ifindex: u32,
    /// The port, if that interface is one.
    pub port: Option<PortNum>,
    /// Whether it is on the loopback interface, as node addresses are.
    pub loopback: bool,
    /// Whether it means the same host everywhere: neither link-local nor of host scope.
    pub global: bool,
}

/// Follows links, addresses and next hops until dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts following these interfaces. All that is known of links and addresses is known when this returns.
    pub fn start(ports: &[(PortNum, String)], options: WatchOptions) -> Result<Self, WatchError> {
        let (worker, shared) = Worker::new(ports, options)?;
        let thread = std::thread::Builder::new()
            .name("mrc-netlink".into())
            .spawn(move || worker.run())
            .map_err(|source| WatchError::Netlink {
                what: "start the thread that listens",
                source,
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The state of a port's link.
    pub fn link(&self, port: PortNum) -> Option<Arc<LinkState>> {
        self.shared
            .ports
            .iter()
            .find(|watched| watched.num == port)
            .map(|watched| Arc::clone(&watched.link))
    }

    /// All addresses of this host.
    pub fn addresses(&self) -> Arc<[HostAddress]> {
        self.shared.addresses()
    }

    /// The addresses that name this host rather than a port: the first global ones on the loopback interface.
    pub fn node_addresses(&self) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let addresses = self.addresses();
        let mut node = addresses
            .iter()
            .filter(|address| address.loopback && address.global)
            .map(|address| address.ip);
        let v6 = node.clone().find_map(|ip| match ip {
            IpAddr::V6(ip) => Some(ip),
            IpAddr::V4(_) => None,
        });
        let v4 = node.find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        (v4, v6)
    }

    /// Polls readable after anything has changed; [`drain`](Self::drain) makes it unreadable again.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.changed.as_fd()
    }

    /// Forgets the changes so far, as far as [`fd`](Self::fd) is concerned.
    pub fn drain(&self) {
        // Nothing to read is as good as having read it.
        let _ = self.shared.changed.read();
    }

    /// How often events were lost and everything was read anew.
    pub fn resyncs(&self) -> u64 {
        self.shared.resyncs()
    }
}

impl NextHops for Watcher {
    fn lookup(&self, port: PortNum, destination: IpAddr) -> NextHop {
        self.shared.lookup(port, destination)
    }

    fn generation(&self) -> u64 {
        self.shared.generation()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported already.
            let _ = thread.join();
        }
    }
}
