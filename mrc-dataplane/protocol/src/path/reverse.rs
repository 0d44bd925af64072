//! Reverse EVs: on which paths control packets leave (protocol.md §6.10, P17).
//!
//! A confirmed EV is one of this queue pair's own universe: with its state, its outer addresses, and what the controller
//! denies. So it is kept here and not in the record of the peer, whose queue pairs may have other profiles.

use alloc::boxed::Box;
use alloc::vec;

use mrc_wire::{PortNum, PortSet};

use super::state::{EvState, Happening, Reason};
use super::{EvIndex, PathSet, below};
use crate::time::{Instant, MS};

/// How long a plane's reverse EV is preferred after it was confirmed (P17).
const FRESH_NS: u64 = 100 * MS;
/// [decision] Least time between two EV probes of a queue pair that only receives. A round trip in a data centre is far less,
/// but a peer answers 1000 requests a second (§14), and within the time above 20 probes confirm more planes than hosts have.
const PROBE_INTERVAL_NS: u64 = 5 * MS;

#[derive(Clone, Debug)]
pub(super) struct Reverse {
    /// By port number.
    confirmed: Box<[Option<(EvIndex, Instant)>]>,
    /// When a SACK for own data last confirmed any.
    acked: Option<Instant>,
    /// Requests have arrived since the last probe.
    inbound: bool,
    probed: Option<Instant>,
}

impl Reverse {
    pub(super) fn new(planes: usize) -> Self {
        Self {
            confirmed: vec![None; planes].into_boxed_slice(),
            acked: None,
            inbound: false,
            probed: None,
        }
    }

    pub(super) fn clear(&mut self) {
        self.confirmed.fill(None);
        self.acked = None;
        self.inbound = false;
        self.probed = None;
    }

    pub(super) fn forget(&mut self, index: EvIndex) {
        for confirmed in &mut self.confirmed {
            confirmed.take_if(|(other, _)| *other == index);
        }
    }

    fn forget_plane(&mut self, port: PortNum) {
        if let Some(confirmed) = self.confirmed.get_mut(usize::from(port.get())) {
            *confirmed = None;
        }
    }

    pub(super) fn grow(&mut self, planes: usize) {
        let mut confirmed = core::mem::take(&mut self.confirmed).into_vec();
        confirmed.resize(planes, None);
        self.confirmed = confirmed.into_boxed_slice();
    }
}

impl PathSet {
    /// A SACK for own data names this path: its plane's reverse EV from now on.
    pub(crate) fn confirm(&mut self, index: EvIndex, now: Instant) {
        self.reverse.acked = Some(now);
        self.set_reverse(index, now);
    }

    fn set_reverse(&mut self, index: EvIndex, now: Instant) {
        let port = self.entry(index).port;
        if let Some(place) = self.reverse.confirmed.get_mut(usize::from(port.get())) {
            *place = Some((index, now));
        }
    }

    /// A write or a probe of the peer arrived.
    pub(crate) fn note_inbound(&mut self) {
        self.reverse.inbound = true;
    }

    /// The path to send an EV probe on now: once per round trip with inbound traffic, if no SACKs for own data tell.
    /// Planes in turn, the one first that has gone longest without a confirmation; within it, any.
    pub(crate) fn poll_reverse_probe(&mut self, now: Instant, rtt_ns: u64) -> Option<EvIndex> {
        let interval_ns = rtt_ns.max(PROBE_INTERVAL_NS);
        let is_early = |at: Option<Instant>, ns| at.is_some_and(|at| now.since(at) < ns);
        if !self.reverse.inbound || is_early(self.reverse.probed, interval_ns) || is_early(self.reverse.acked, FRESH_NS)
        {
            return None;
        }
        let age = |port: &PortNum| self.reverse.confirmed[usize::from(port.get())].map(|(_, at)| at);
        let tried = self.usable.intersection(self.reverse_turns);
        let turns = if tried.is_empty() { self.usable } else { tried };
        self.reverse_turns = turns;
        let port = turns.iter().min_by_key(age)?;
        self.reverse_turns.remove(port);
        self.reverse.inbound = false;
        self.reverse.probed = Some(now);
        let members = &self.planes[usize::from(port.get())].members;
        let start = below(&mut self.rng, members.len());
        let mut order = members.iter().skip(start).chain(members.iter().take(start));
        order
            .find(|&&index| {
                let state = self.paths[usize::from(index)].state;
                matches!(state, EvState::Good | EvState::Skip)
            })
            .copied()
    }

    /// What became of an EV probe on this path.
    pub(crate) fn handle_ev_probe(&mut self, index: EvIndex, answered: bool, now: Instant, rtt_ns: u64) {
        if answered {
            self.set_reverse(index, now);
            self.handle(index, Happening::EvProbeDelivered, Reason::Probed, now, rtt_ns);
        } else {
            // What was confirmed before on this plane is in doubt, too.
            self.reverse.forget_plane(self.entry(index).port);
            self.handle(index, Happening::ProbeLost, Reason::Lost, now, rtt_ns);
        }
    }

    /// The plane's reverse EV, if it was confirmed lately and nothing has spoken against it since.
    pub(super) fn reverse_ev(&self, port: PortNum, now: Instant) -> Option<EvIndex> {
        let &(index, at) = self.reverse.confirmed.get(usize::from(port.get()))?.as_ref()?;
        let path = &self.paths[usize::from(index)];
        let trusted = matches!(path.state, EvState::Good | EvState::Skip) && path.floor <= at;
        (trusted && now.since(at) < FRESH_NS).then_some(index)
    }

    /// Planes with one that are up at both ends.
    pub(super) fn confirmed(&self, now: Instant) -> PortSet {
        let ports = self.usable.iter();
        ports.filter(|&port| self.reverse_ev(port, now).is_some()).collect()
    }
}
