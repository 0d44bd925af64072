//! What the watcher's thread writes and everybody reads.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mrc_wire::PortNum;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::HostAddress;
use crate::neigh::{NextHop, Unreachable};
use crate::port::LinkState;

/// How many pairs of port and destination are followed at most.
const MAX_FOLLOWED: usize = 16384;

/// A port that is followed.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) num: PortNum,
    pub(super) ifindex: u32,
    pub(super) link: Arc<LinkState>,
}

/// A port and a destination beyond it.
pub(super) type Target = (PortNum, IpAddr);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ports: Vec<Watched>,
    /// For readers: something is different.
    pub(super) changed: EventFd,
    /// For the thread: somebody wants something.
    pub(super) wake: Arc<EventFd>,
    hops: RwLock<BTreeMap<Target, NextHop>>,
    wanted: Mutex<Vec<Target>>,
    addresses: RwLock<Arc<[HostAddress]>>,
    generation: AtomicU64,
    resyncs: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    pub(super) fn new(ports: Vec<Watched>) -> nix::Result<Self> {
        let eventfd = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let wake = Arc::new(eventfd()?);
        for watched in &ports {
            watched.link.set_follower(Arc::clone(&wake));
        }
        Ok(Self {
            ports,
            changed: eventfd()?,
            wake,
            hops: RwLock::default(),
            wanted: Mutex::default(),
            addresses: RwLock::new(Arc::new([])),
            generation: AtomicU64::new(0),
            resyncs: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    pub(super) fn lookup(&self, port: PortNum, destination: IpAddr) -> NextHop {
        let known = {
            let hops = self.hops.read().unwrap_or_else(PoisonError::into_inner);
            (hops.get(&(port, destination)).copied(), hops.len())
        };
        match known {
            (Some(hop), _) => hop,
            (None, _) if !self.ports.iter().any(|watched| watched.num == port) => {
                NextHop::Unreachable(Unreachable::NoSuchPort)
            }
            (None, followed) => self.want(port, destination, followed),
        }
    }

    fn want(&self, port: PortNum, destination: IpAddr, followed: usize) -> NextHop {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !wanted.contains(&(port, destination)) {
            if followed + wanted.len() >= MAX_FOLLOWED {
                return NextHop::Unreachable(Unreachable::TableFull);
            }
            wanted.push((port, destination));
            self.wake();
        }
        NextHop::Pending
    }

    pub(super) fn take_wanted(&self) -> Vec<Target> {
        std::mem::take(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores an answer; returns whether it is a new one.
    pub(super) fn set_hop(&self, target: Target, hop: NextHop) -> bool {
        self.hops
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(target, hop)
            != Some(hop)
    }

    pub(super) fn addresses(&self) -> Arc<[HostAddress]> {
        Arc::clone(&self.addresses.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores the addresses; returns whether they are others than before.
    pub(super) fn set_addresses(&self, addresses: Vec<HostAddress>) -> bool {
        let mut current = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        let changed = **current != *addresses;
        if changed {
            *current = addresses.into();
        }
        changed
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Tells the readers that something is different. Comes after the difference is stored.
    pub(super) fn announce(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        // A full counter is readable as well.
        let _ = self.changed.write(1);
    }

    pub(super) fn resyncs(&self) -> u64 {
        self.resyncs.load(Ordering::Relaxed)
    }

    pub(super) fn count_resync(&self) {
        self.resyncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn wake(&self) {
        // A full counter wakes as well.
        let _ = self.wake.write(1);
    }
}
