//! The paths of a queue pair: which EV each packet takes (protocol.md §8).

mod check;
mod events;
mod rotation;
mod state;
mod universe;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use mrc_wire::{Ev, PortNum, PortSet};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use self::check::Checks;
use self::events::Events;
pub(crate) use self::rotation::Choice;
use self::rotation::Rotation;
pub(crate) use self::state::Happening;
use self::state::Step;
pub use self::state::{EvState, Reason};
use crate::attr::{EvEntry, PathConfig};
use crate::time::{Instant, MS};
use crate::work::{CreateError, QpEvent};

/// Index of an EV in its universe.
pub(crate) type EvIndex = u16;

/// What a getter tells about one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvView {
    /// The path.
    pub entry: EvEntry,
    /// Its state.
    pub state: EvState,
    /// Why.
    pub reason: Reason,
    /// Since when.
    pub since: Instant,
    /// Does it take part in the rotation? Else it is backup, bad or denied.
    pub active: bool,
    /// Is its port up at both ends?
    pub eligible: bool,
}

/// How often paths of one port left the active set or the backup as ASSUMED_BAD, and came back, since creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathCounts {
    /// The port.
    pub port: PortNum,
    /// ASSUMED_BAD.
    pub withdrawn: u32,
    /// GOOD again.
    pub returned: u32,
}

#[derive(Clone, Debug)]
struct Path {
    entry: EvEntry,
    state: EvState,
    reason: Reason,
    since: Instant,
    /// Place in the rotation.
    slot: Option<u16>,
    /// Kept in the active set although it looks bad, because too few are left (P23): not used before this time. Zero: as
    /// good as any.
    floor: Instant,
    /// The last 16 outcomes, newest in bit 0; 1 = lost (P21).
    outcomes: u16,
    /// When a loss last spoke against it.
    blamed_at: Instant,
    check: check::Check,
}

#[derive(Clone, Debug, Default)]
struct Plane {
    /// All its EVs.
    members: Box<[EvIndex]>,
    /// Those that are neither active nor bad nor denied.
    backup: Vec<EvIndex>,
    /// How many should be active, and are.
    share: usize,
    active: usize,
    /// Where the next control packet begins to look.
    control_cursor: usize,
    withdrawn: u32,
    returned: u32,
}

/// All paths of a queue pair.
pub(crate) struct PathSet {
    paths: Box<[Path]>,
    /// Reflected entropy (masked) to path, sorted.
    by_entropy: Box<[(u32, EvIndex)]>,
    ev_mask: u32,
    /// Some value stands in the universe more than once: feedback concerns all copies (§7.1).
    weighted: bool,
    /// By port number.
    planes: Box<[Plane]>,
    rotation: Rotation,
    min_active: usize,
    revive_config: Option<u8>,
    revive_after: u8,
    /// A loss without NACK condemns at once: congestion would have trimmed (§8.2 (2)).
    loss_condemns: bool,
    local_up: PortSet,
    usable: PortSet,
    /// Ports with an active EV.
    active_ports: PortSet,
    /// End of each port's last time down, by port number; the end of time while it is down.
    down_until: Box<[Instant]>,
    /// When a packet of the peer last arrived on each port, by port number.
    heard_at: Box<[Instant]>,
    /// When one last arrived at all.
    heard_last: Instant,
    /// Ports that have not carried a control packet in this pass.
    control_turns: PortSet,
    checks: Checks,
    events: Events,
    rng: ChaCha8Rng,
}

/// A random number below `n`; 0 if `n` is 0.
fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    ((u64::from(rng.next_u32()) * n as u64) >> 32) as usize
}

impl PathSet {
    pub(crate) fn new(config: &PathConfig, seed: [u8; 32]) -> Result<Self, CreateError> {
        let mut rng = ChaCha8Rng::from_seed(seed);
        let entries = universe::entries(config, &mut rng)?;
        let counts = universe::counts(&entries);
        let (shares, min_active) = universe::shares(config, &counts);
        let planes = (0..counts.len())
            .map(|port| Plane {
                members: (0..entries.len() as EvIndex)
                    .filter(|&index| usize::from(entries[usize::from(index)].port.get()) == port)
                    .collect(),
                backup: Vec::with_capacity(counts[port]),
                share: shares[port],
                ..Plane::default()
            })
            .collect();
        let mut by_entropy: Vec<(u32, EvIndex)> = entries
            .iter()
            .enumerate()
            .map(|(i, e)| (e.ev.0 & config.ev_mask, i as EvIndex))
            .collect();
        by_entropy.sort_unstable();
        let ports: PortSet = entries.iter().map(|entry| entry.port).collect();
        let mut set = Self {
            weighted: by_entropy.windows(2).any(|pair| pair[0].0 == pair[1].0),
            by_entropy: by_entropy.into_boxed_slice(),
            ev_mask: config.ev_mask,
            planes,
            rotation: Rotation::new(entries.len(), config.reshuffle_passes),
            min_active,
            revive_config: config.revive_after,
            revive_after: 1,
            loss_condemns: false,
            local_up: ports,
            usable: ports,
            active_ports: PortSet::EMPTY,
            down_until: vec![Instant::ZERO; counts.len()].into_boxed_slice(),
            heard_at: vec![Instant::ZERO; counts.len()].into_boxed_slice(),
            heard_last: Instant::ZERO,
            control_turns: PortSet::EMPTY,
            checks: Checks::new(entries.len()),
            events: Events::new(),
            paths: entries.into_iter().map(Path::new).collect(),
            rng,
        };
        set.set_loss_condemns(false);
        set.fill();
        Ok(set)
    }

    /// As at the start, but for the ports, which are the world's and not the queue pair's.
    pub(crate) fn reset(&mut self) {
        for path in &mut self.paths {
            *path = Path::new(path.entry);
        }
        self.rotation.clear();
        for plane in &mut self.planes {
            plane.active = 0;
            plane.backup.clear();
        }
        self.active_ports = PortSet::EMPTY;
        self.checks.clear();
        self.events.clear();
        self.fill();
    }

    /// Deals the EVs of each plane out, at random: its share to the rotation, the rest to the backup.
    fn fill(&mut self) {
        for port in 0..self.planes.len() {
            let mut members = self.planes[port].members.clone();
            for at in (1..members.len()).rev() {
                members.swap(at, below(&mut self.rng, at + 1));
            }
            for index in members {
                self.join(index);
            }
        }
        self.shuffle();
    }

    /// Does a loss without NACK mean a broken path? Only if congestion trims (§8.2 (2), P21, P22).
    pub(crate) fn set_loss_condemns(&mut self, loss_condemns: bool) {
        self.loss_condemns = loss_condemns;
        self.revive_after = self
            .revive_config
            .unwrap_or(if loss_condemns { 1 } else { 5 })
            .clamp(1, 5);
    }

    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn entry(&self, index: EvIndex) -> EvEntry {
        self.paths[usize::from(index)].entry
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = EvView> + '_ {
        self.paths.iter().map(|path| EvView {
            entry: path.entry,
            state: path.state,
            reason: path.reason,
            since: path.since,
            active: path.slot.is_some(),
            eligible: self.usable.contains(path.entry.port),
        })
    }

    /// Of each port that has paths.
    pub(crate) fn counts(&self) -> impl Iterator<Item = PathCounts> + '_ {
        let ports = (0..).zip(&self.planes).filter(|(_, plane)| !plane.members.is_empty());
        ports.filter_map(|(num, plane)| {
            let (withdrawn, returned) = (plane.withdrawn, plane.returned);
            PortNum::new(num).map(|port| PathCounts {
                port,
                withdrawn,
                returned,
            })
        })
    }

    /// Ports that are up at both ends.
    pub(crate) fn usable(&self) -> PortSet {
        self.usable
    }

    /// Is there any EV that new data may use now or soon (§8.3)?
    pub(crate) fn any_eligible(&self) -> bool {
        !self.usable.intersection(self.active_ports).is_empty()
    }

    /// The path that a reflected entropy names (§5.5 step 5): `hint`, the path of the packet's record, if it agrees.
    pub(crate) fn lookup(&self, entropy: Ev, hint: Option<EvIndex>) -> Option<EvIndex> {
        let value = entropy.0 & self.ev_mask;
        if let Some(index) = hint
            && self.entry(index).ev.0 & self.ev_mask == value
        {
            return hint;
        }
        let at = self.by_entropy.partition_point(|&(known, _)| known < value);
        self.by_entropy
            .get(at)
            .filter(|(known, _)| *known == value)
            .map(|&(_, index)| index)
    }

    /// Something happened to a path, and so to all its copies.
    pub(crate) fn handle(&mut self, index: EvIndex, happening: Happening, reason: Reason, now: Instant, rtt_ns: u64) {
        if !self.weighted {
            self.handle_one(index, happening, reason, now, rtt_ns);
            return;
        }
        let EvEntry { ev, port } = self.entry(index);
        let value = ev.0 & self.ev_mask;
        let from = self.by_entropy.partition_point(|&(known, _)| known < value);
        for at in from..self.by_entropy.len() {
            let (known, copy) = self.by_entropy[at];
            if known != value {
                break;
            }
            if self.entry(copy).port == port {
                self.handle_one(copy, happening, reason, now, rtt_ns);
            }
        }
    }

    fn handle_one(&mut self, index: EvIndex, happening: Happening, reason: Reason, now: Instant, rtt_ns: u64) {
        let path = &mut self.paths[usize::from(index)];
        match path.state.on(happening) {
            Step::Stay | Step::Use => {}
            Step::CountDelivery => {
                path.outcomes <<= 1;
                path.floor = Instant::ZERO;
            }
            Step::Skip => path.enter(EvState::Skip, reason, now),
            Step::LoseTurn => path.enter(EvState::Good, reason, now),
            Step::Condemn => self.condemn(index, reason, now, rtt_ns),
            Step::CountLoss => {
                path.outcomes = path.outcomes << 1 | 1;
                path.blamed_at = now;
                // (2), P21: 3 of the last 16.
                if self.loss_condemns || path.outcomes.count_ones() >= 3 {
                    self.condemn(index, reason, now, rtt_ns);
                } else {
                    path.enter(EvState::Skip, reason, now);
                }
            }
            Step::CountToGood => self.count_success(index, EvState::Good, now),
            Step::CountToSkip => self.count_success(index, EvState::Skip, now),
            Step::BackOff => {
                path.check.back_off(now);
                self.checks.schedule(path.check.due());
            }
            Step::Probe => {
                path.check.at_once(now);
                self.checks.schedule(path.check.due());
            }
        }
    }

    /// Out of the active set, and a backup of the same plane into its place (§8.3).
    fn condemn(&mut self, index: EvIndex, reason: Reason, now: Instant, rtt_ns: u64) {
        let port = self.paths[usize::from(index)].entry.port;
        let plane = &mut self.planes[usize::from(port.get())];
        if let Some(slot) = self.paths[usize::from(index)].slot {
            if let Some(substitute) = take_good(&mut plane.backup, &self.paths, &mut self.rng) {
                self.rotation.replace(slot, substitute);
                self.paths[usize::from(substitute)].slot = Some(slot);
            } else if self.rotation.len() <= self.min_active {
                // (1), P23: the floor. Better a bad path now and then than none.
                let path = &mut self.paths[usize::from(index)];
                path.enter(EvState::Skip, reason, now);
                path.floor = now + rtt_ns.max(1);
                return;
            } else {
                if let Some(moved) = self.rotation.remove(slot) {
                    self.paths[usize::from(moved)].slot = Some(slot);
                }
                plane.active -= 1;
                if plane.active == 0 {
                    self.active_ports.remove(port);
                }
            }
        } else if let Some(at) = plane.backup.iter().position(|&other| other == index) {
            plane.backup.swap_remove(at);
        }
        let path = &mut self.paths[usize::from(index)];
        path.slot = None;
        path.floor = Instant::ZERO;
        path.outcomes = 0;
        path.blamed_at = now;
        path.enter(EvState::AssumedBad, reason, now);
        path.check.start(now);
        self.checks.add(index, path.check.due());
        let plane = &mut self.planes[usize::from(port.get())];
        plane.withdrawn = plane.withdrawn.wrapping_add(1);
        self.events.push(QpEvent::EvBad {
            ev: path.entry.ev,
            port,
            reason,
            lost_before: 0,
        });
    }

    fn count_success(&mut self, index: EvIndex, state: EvState, now: Instant) {
        let path = &mut self.paths[usize::from(index)];
        if path.check.succeed(now) < self.revive_after {
            self.checks.schedule(path.check.due());
            return;
        }
        path.outcomes = 0;
        path.enter(state, Reason::Probed, now);
        let EvEntry { ev, port } = path.entry;
        self.checks.remove(index);
        self.join(index);
        let plane = &mut self.planes[usize::from(port.get())];
        plane.returned = plane.returned.wrapping_add(1);
        self.events.push(QpEvent::EvGood {
            ev,
            port,
            lost_before: 0,
        });
    }

    /// Into the active set if the plane is below its share, else to its backup (§8.3 Recovery).
    fn join(&mut self, index: EvIndex) {
        let port = self.paths[usize::from(index)].entry.port;
        let plane = &mut self.planes[usize::from(port.get())];
        if plane.active >= plane.share {
            plane.backup.push(index);
            return;
        }
        plane.active += 1;
        self.active_ports.insert(port);
        let slot = below(&mut self.rng, self.rotation.len() + 1) as u16;
        if let Some((moved, to)) = self.rotation.insert(slot, index) {
            self.paths[usize::from(moved)].slot = Some(to);
        }
        self.paths[usize::from(index)].slot = Some(slot);
    }

    /// The ports that are up here and at the peer. Returns those that went down here.
    pub(crate) fn set_ports(&mut self, local_up: PortSet, peer_up: PortSet, now: Instant) -> PortSet {
        let own: PortSet = (1..self.planes.len())
            .filter(|&port| !self.planes[port].members.is_empty())
            .filter_map(|port| PortNum::new(port as u8))
            .collect();
        let local_up = local_up.intersection(own);
        let lost_here = self.local_up.difference(local_up);
        let mut usable = local_up.intersection(peer_up);
        if usable.is_empty() {
            // P24: a peer cannot talk us out of the last port; the lowest is as good as any.
            let last = local_up
                .intersection(self.usable)
                .iter()
                .next()
                .or(local_up.iter().next());
            usable = last.map_or(PortSet::EMPTY, |port| PortSet::EMPTY.with(port));
        }
        for port in self.usable.difference(usable).iter() {
            self.down_until[usize::from(port.get())] = Instant(u64::MAX);
        }
        let returned = usable.difference(self.usable);
        self.local_up = local_up;
        self.usable = usable;
        for port in returned.iter() {
            self.down_until[usize::from(port.get())] = now;
            for at in 0..self.planes[usize::from(port.get())].members.len() {
                let index = self.planes[usize::from(port.get())].members[at];
                self.handle_one(index, Happening::PortUp, Reason::Initial, now, 0);
            }
        }
        lost_here
    }

    /// Was the port of this path down at some time since `sent`? Then a loss is not the path's fault (§5.6).
    pub(crate) fn was_down_since(&self, index: EvIndex, sent: Instant) -> bool {
        self.down_until[usize::from(self.entry(index).port.get())] > sent
    }

    /// A packet of the peer arrived on this port: so that path works, and the way back along it probably too.
    pub(crate) fn heard(&mut self, port: PortNum, now: Instant) {
        if let Some(at) = self.heard_at.get_mut(usize::from(port.get())) {
            *at = now;
            self.heard_last = now;
        }
    }

    /// The ports on which the peer was heard lately, as long as it was heard (P17); all if it never was.
    fn heard_lately(&self) -> PortSet {
        const LATELY_NS: u64 = 100 * MS;
        let lately = |port: &PortNum| self.heard_at[usize::from(port.get())] + LATELY_NS > self.heard_last;
        self.usable.iter().filter(lately).collect()
    }

    pub(crate) fn poll_event(&mut self) -> Option<QpEvent> {
        self.events.pop()
    }
}

/// A GOOD one, at random.
fn take_good(backup: &mut Vec<EvIndex>, paths: &[Path], rng: &mut ChaCha8Rng) -> Option<EvIndex> {
    let start = below(rng, backup.len());
    let at = (0..backup.len())
        .map(|step| (start + step) % backup.len())
        .find(|&at| paths[usize::from(backup[at])].state == EvState::Good)?;
    Some(backup.swap_remove(at))
}

impl Path {
    fn new(entry: EvEntry) -> Self {
        Self {
            entry,
            state: EvState::Good,
            reason: Reason::Initial,
            since: Instant::ZERO,
            slot: None,
            floor: Instant::ZERO,
            outcomes: 0,
            blamed_at: Instant::ZERO,
            check: check::Check::default(),
        }
    }

    fn enter(&mut self, state: EvState, reason: Reason, now: Instant) {
        self.state = state;
        self.reason = reason;
        self.since = now;
    }
}
