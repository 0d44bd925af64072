//! The paths of a queue pair: which EV each packet takes (protocol.md §8).

mod check;
mod events;
mod live;
mod ports;
mod reverse;
mod rotation;
mod state;
mod transition;
mod universe;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use mrc_wire::{Ev, PortNum, PortSet};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use self::check::Checks;
use self::events::Events;
use self::reverse::Reverse;
pub(crate) use self::rotation::Choice;
use self::rotation::Rotation;
pub use self::state::Happening;
use self::state::Met;
pub use self::state::{EvState, Reason};
use crate::attr::{EvEntry, PathConfig, Universe};
use crate::profile::{Containers, EntryState, ProfileEv};
use crate::time::Instant;
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
    /// Packets that were lost on it, as far as nothing else explains the loss.
    pub losses: u32,
    /// Marks (CE) that SACKs reported of it.
    pub marks: u32,
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
    ev: Ev,
    port: PortNum,
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
    /// When its next probe is due.
    check_at: Instant,
    losses: u32,
    marks: u32,
}

/// The controller's word on a path of a profile.
#[derive(Clone, Copy, Debug)]
struct Word {
    /// Name in the profile; they rise.
    name: u32,
    /// Outer addresses, if there are any.
    encap: Option<Containers>,
    /// What was set last: where it begins.
    set: EntryState,
    /// Since when it has this EV: what was sent before was sent on another one.
    born: Instant,
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
    /// Paths in the order of their masked entropy.
    by_entropy: Box<[EvIndex]>,
    ev_mask: u32,
    /// By path; empty without a profile.
    words: Box<[Word]>,
    /// Since when this is the universe: what was sent before was sent on another one.
    born: Instant,
    /// Paths whose failure or return the profile has not heard of.
    unreported: check::Bits,
    /// As configured.
    active: Option<u16>,
    min_active_config: Option<u16>,
    /// What [`PathSet::set_ports`] was told last.
    told_ports: (PortSet, PortSet),
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
    reverse: Reverse,
    /// Ports that have not carried an EV probe of a receiver in this pass.
    reverse_turns: PortSet,
    checks: Checks,
    events: Events,
    met: Met,
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
        let (shares, min_active) = universe::shares(config.active, config.min_active, &counts);
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
        let ports: PortSet = entries.iter().map(|entry| entry.port).collect();
        let mut set = Self {
            weighted: false,
            by_entropy: (0..entries.len() as EvIndex).collect(),
            ev_mask: config.ev_mask,
            words: match config.universe {
                Universe::Profile(_) => entries.iter().map(Word::new).collect(),
                _ => Box::default(),
            },
            born: Instant::ZERO,
            unreported: check::Bits::new(entries.len()),
            active: config.active,
            min_active_config: config.min_active,
            told_ports: (PortSet::first(PortNum::MAX), PortSet::first(PortNum::MAX)),
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
            reverse: Reverse::new(counts.len()),
            reverse_turns: PortSet::EMPTY,
            checks: Checks::new(entries.len()),
            events: Events::new(),
            met: Met::NONE,
            paths: entries
                .into_iter()
                .map(|path| {
                    let (ev, port) = (path.tag, path.port);
                    Path::new(EvEntry { ev, port })
                })
                .collect(),
            rng,
        };
        set.index_entropy();
        set.set_loss_condemns(false);
        set.fill();
        Ok(set)
    }

    /// As at the start, but for the ports, which are the world's and not the queue pair's.
    pub(crate) fn reset(&mut self) {
        for path in &mut self.paths {
            *path = Path::new(path.entry());
        }
        self.rotation.clear();
        for plane in &mut self.planes {
            plane.active = 0;
            plane.backup.clear();
        }
        self.active_ports = PortSet::EMPTY;
        self.reverse.clear();
        self.checks.clear();
        self.events.clear();
        self.unreported.clear_all();
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
                self.begin(index);
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

    /// For a set in the place of this one.
    pub(crate) fn draw_seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        seed
    }

    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn entry(&self, index: EvIndex) -> EvEntry {
        self.paths[usize::from(index)].entry()
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = EvView> + '_ {
        self.paths.iter().map(|path| EvView {
            entry: path.entry(),
            state: path.state,
            reason: path.reason,
            since: path.since,
            active: path.slot.is_some(),
            eligible: self.usable.contains(path.port),
            losses: path.losses,
            marks: path.marks,
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

    /// How often each cell of the table of transitions was met.
    pub(crate) fn met(&self) -> impl Iterator<Item = (Happening, EvState, u64)> + '_ {
        self.met.iter()
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
        self.with_entropy(value).first().copied()
    }

    /// The path with this EV on this port.
    pub(crate) fn find(&self, entry: EvEntry) -> Option<EvIndex> {
        let value = entry.ev.0 & self.ev_mask;
        let same = self.with_entropy(value).iter().copied();
        same.into_iter().find(|&index| self.entry(index) == entry)
    }

    /// Masked.
    fn entropy(&self, index: EvIndex) -> u32 {
        self.entry(index).ev.0 & self.ev_mask
    }

    /// All paths with this masked entropy, in the order of the universe.
    fn with_entropy(&self, value: u32) -> &[EvIndex] {
        let from = self.by_entropy.partition_point(|&index| self.entropy(index) < value);
        let rest = self.by_entropy.get(from..).unwrap_or_default();
        let count = rest.iter().take_while(|&&index| self.entropy(index) == value).count();
        rest.get(..count).unwrap_or_default()
    }

    pub(crate) fn poll_event(&mut self) -> Option<QpEvent> {
        self.events.pop()
    }
}

impl Word {
    fn new(path: &ProfileEv) -> Self {
        Self {
            name: path.entry,
            encap: path.encap,
            set: path.state,
            born: Instant::ZERO,
        }
    }
}

impl Path {
    fn entry(&self) -> EvEntry {
        let (ev, port) = (self.ev, self.port);
        EvEntry { ev, port }
    }

    fn new(entry: EvEntry) -> Self {
        Self {
            ev: entry.ev,
            port: entry.port,
            state: EvState::Good,
            reason: Reason::Initial,
            since: Instant::ZERO,
            slot: None,
            floor: Instant::ZERO,
            outcomes: 0,
            blamed_at: Instant::ZERO,
            check: check::Check::default(),
            check_at: Instant::ZERO,
            losses: 0,
            marks: 0,
        }
    }

    fn enter(&mut self, state: EvState, reason: Reason, now: Instant) {
        self.state = state;
        self.reason = reason;
        self.since = now;
    }
}
