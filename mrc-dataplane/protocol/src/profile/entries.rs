//! The array of an EV profile: entries, their states, and how they are found (protocol.md §7.1, api.md §4.8).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use mrc_wire::PortNum;

use super::error::ProfileError;
use super::value::EvValue;

/// An EV of a profile and the port that its packets leave from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortEv {
    /// The value as the controller knows it, not expanded.
    pub value: EvValue,
    /// Egress port.
    pub port: PortNum,
}

impl PortEv {
    /// From the 33 bytes of the C interface. All zero is an entry that is not populated, `None`; value 0 on a port is an
    /// EV like any other (api.md §4.7).
    pub fn parse(value: [u8; EvValue::LEN], port: u8) -> Result<Option<Self>, ProfileError> {
        let value = EvValue(value);
        match PortNum::new(port) {
            Some(port) => Ok(Some(Self { value, port })),
            None if port == 0 && value == EvValue::ZERO => Ok(None),
            None => Err(ProfileError::Port(port)),
        }
    }
}

/// The state of an entry as a controller sees it. Skipping is over too soon to be shown (protocol.md §7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EntryState {
    /// Usable.
    #[default]
    Good,
    /// Its path failed.
    AssumedBad,
    /// Forbidden by the controller: never used, and no queue pair's experience changes that (protocol.md §8.1).
    Denied,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    ev: Option<PortEv>,
    /// A number that it shares with its copies and with no other EV, for as long as it has this EV.
    tag: u32,
    /// What the controller set last: where new queue pairs begin (api.md §4.7).
    set: EntryState,
    /// Queue pairs whose path of this name failed.
    bad_qps: u32,
    /// Which life of the entry it is. A queue pair's report about an earlier life is worth nothing.
    era: u32,
}

/// All entries, each at its index for as long as the configuration stays.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    list: Box<[Entry]>,
    /// Indices by EV, then index: controllers fill large arrays one entry a call, so that finding must not be linear.
    order: Vec<u32>,
    era: u32,
    /// This tag and those after it were never used.
    next_tag: u32,
}

impl Entries {
    pub(super) fn unpopulated(count: u32) -> Self {
        Self::new(vec![None; count as usize])
    }

    pub(super) fn of(evs: Vec<PortEv>) -> Self {
        Self::new(evs.into_iter().map(Some).collect())
    }

    fn new(evs: Vec<Option<PortEv>>) -> Self {
        let mut entries = Self {
            order: (0..evs.len() as u32).collect(),
            next_tag: evs.len() as u32,
            list: (0..)
                .zip(evs)
                .map(|(tag, ev)| Entry {
                    ev,
                    tag,
                    set: EntryState::Good,
                    bad_qps: 0,
                    era: 1,
                })
                .collect(),
            era: 1,
        };
        entries.sort();
        for index in 0..entries.len() {
            if let Some(first) = entries.ev(index).and_then(|ev| entries.find(Some(ev))) {
                entries.list[index as usize].tag = first;
            }
        }
        entries
    }

    pub(super) fn len(&self) -> u32 {
        self.list.len() as u32
    }

    pub(super) fn ev(&self, index: u32) -> Option<PortEv> {
        self.entry(index)?.ev
    }

    /// What feedback about an entry and its copies is told by, where its own bits are too many (wire-format.md §3, W5).
    pub(super) fn tag(&self, index: u32) -> Option<u32> {
        self.entry(index).map(|entry| entry.tag)
    }

    /// The tag of an entry that is to have `ev`: that of its copies, or else a new one. The old one may go on naming copies,
    /// and packets in flight, and is not to be taken for another path.
    fn tag_for(&mut self, index: u32, ev: Option<PortEv>) -> u32 {
        let copy = ev.and_then(|ev| self.find(Some(ev)));
        if let Some(tag) = copy.and_then(|copy| self.tag(copy)) {
            return tag;
        }
        if let Some(Entry { ev: None, tag, .. }) = self.entry(index) {
            return *tag;
        }
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);
        tag
    }

    /// The state of the entry: DENIED, or else ASSUMED_BAD if the controller or any queue pair says so (api.md §4.7).
    /// `None`: not populated.
    pub(super) fn state(&self, index: u32) -> Option<EntryState> {
        let entry = self.entry(index)?;
        entry.ev?;
        Some(match entry.set {
            EntryState::Good if entry.bad_qps > 0 => EntryState::AssumedBad,
            set => set,
        })
    }

    /// What the controller set last.
    pub(super) fn set_by_controller(&self, index: u32) -> EntryState {
        self.entry(index).map_or(EntryState::Good, |entry| entry.set)
    }

    /// Indices of all entries equal to `ev`, in rising order.
    pub(super) fn copies(&self, ev: Option<PortEv>) -> &[u32] {
        self.order.get(self.positions(ev)).unwrap_or(&[])
    }

    /// The lowest index of an entry equal to `ev`.
    pub(super) fn find(&self, ev: Option<PortEv>) -> Option<u32> {
        self.copies(ev).first().copied()
    }

    /// EVs in rising order of value, then port; copies side by side.
    pub(super) fn sorted(&self) -> impl Iterator<Item = PortEv> {
        self.order.iter().filter_map(|&index| self.ev(index))
    }

    /// Puts an EV with a state in place of another one.
    pub(super) fn replace(&mut self, index: u32, ev: Option<PortEv>, state: EntryState) {
        let tag = self.tag_for(index, ev);
        let old = self.positions(self.ev(index));
        let place = self
            .order
            .get(old.clone())
            .and_then(|copies| copies.binary_search(&index).ok());
        let Some(place) = place.map(|place| old.start + place) else {
            return;
        };
        self.order.remove(place);
        let at = self
            .order
            .partition_point(|&other| (self.ev(other), other) < (ev, index));
        self.order.insert(at, index);
        let era = self.next_era();
        if let Some(entry) = self.list.get_mut(index as usize) {
            *entry = Entry {
                ev,
                tag,
                set: state,
                bad_qps: 0,
                era,
            };
        }
    }

    /// Replaces all copies at once: sorting is cheaper than moving them one by one.
    pub(super) fn replace_all(&mut self, copies: &[u32], ev: Option<PortEv>, state: EntryState) {
        let shared = copies.first().map(|&first| self.tag_for(first, ev));
        for &index in copies {
            let era = self.next_era();
            // Entries that are not populated have nothing in common.
            let tag = match (shared, ev) {
                (Some(tag), Some(_)) => tag,
                _ => self.tag_for(index, ev),
            };
            if let Some(entry) = self.list.get_mut(index as usize) {
                *entry = Entry {
                    ev,
                    tag,
                    set: state,
                    bad_qps: 0,
                    era,
                };
            }
        }
        self.sort();
    }

    /// The controller's word. GOOD also forgets what queue pairs found: they are told the same.
    pub(super) fn set_state(&mut self, index: u32, state: EntryState) {
        let era = self.next_era();
        if let Some(entry) = self.list.get_mut(index as usize) {
            entry.set = state;
            if state == EntryState::Good {
                entry.bad_qps = 0;
                entry.era = era;
            }
        }
    }

    /// A queue pair found its path bad, or good again. `mark` is what it said before, kept by the caller, 0 at first.
    pub(super) fn report(&mut self, index: u32, mark: &mut u32, bad: bool) {
        let Some(entry) = self.list.get_mut(index as usize) else {
            return;
        };
        match (*mark == entry.era, bad) {
            (false, true) => entry.bad_qps = entry.bad_qps.saturating_add(1),
            (true, false) => entry.bad_qps = entry.bad_qps.saturating_sub(1),
            _ => {}
        }
        *mark = if bad { entry.era } else { 0 };
    }

    fn entry(&self, index: u32) -> Option<&Entry> {
        self.list.get(index as usize)
    }

    fn positions(&self, ev: Option<PortEv>) -> Range<usize> {
        let start = self.order.partition_point(|&index| self.ev(index) < ev);
        let end = self.order.partition_point(|&index| self.ev(index) <= ev);
        start..end
    }

    fn sort(&mut self) {
        let list = &self.list;
        self.order
            .sort_unstable_by_key(|&index| (list.get(index as usize).and_then(|entry| entry.ev), index));
    }

    /// Never 0, which is the mark of a queue pair that has nothing to say.
    fn next_era(&mut self) -> u32 {
        self.era = self.era.checked_add(1).unwrap_or(1);
        self.era
    }

    /// A later array goes on counting, so that marks and tags of this one mean nothing there.
    #[must_use]
    pub(super) fn after(mut self, old: &Self) -> Self {
        self.next_tag = self.next_tag.wrapping_add(old.next_tag);
        for entry in &mut self.list {
            entry.tag = entry.tag.wrapping_add(old.next_tag);
        }
        self.era = old.era;
        let era = self.next_era();
        for entry in &mut self.list {
            entry.era = era;
        }
        self
    }
}
