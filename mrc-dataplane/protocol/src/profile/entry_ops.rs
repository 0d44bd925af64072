//! What happens to the entries of an EV profile: a controller's operations, and what queue pairs report (api.md §4.8,
//! §4.9).

use alloc::vec::Vec;

use super::config::{EvMode, EvOp, Replace, SetState};
use super::entries::{EntryState, PortEv};
use super::error::ProfileError;
use super::ev::{Env, EvProfile, Touched};
use super::state::{Attr, ProfileState};

impl EvProfile {
    /// Applies operations in order, up to the first that fails (api.md §4.8).
    pub(super) fn operate(
        &mut self,
        op: EvOp<'_>,
        env: &Env<'_>,
        event: &mut dyn FnMut(PortEv, EntryState),
        touched: &mut Touched,
    ) -> Result<(), ProfileError> {
        match op {
            EvOp::Replace(list) => list.iter().try_for_each(|one| self.replace(one, env, event, touched)),
            EvOp::SetState(list) => list.iter().try_for_each(|one| self.set_state(one, event, touched)),
        }
    }

    fn replace(
        &mut self,
        one: &Replace,
        env: &Env<'_>,
        event: &mut dyn FnMut(PortEv, EntryState),
        touched: &mut Touched,
    ) -> Result<(), ProfileError> {
        if let Some(mode) = self.config.mode.filter(|&mode| mode != EvMode::Explicit) {
            let attr = Attr::ReplaceEv;
            return Err(ProfileError::NotInMode { attr, mode });
        }
        match one.new {
            Some(ev) => {
                if !env.room.ports.contains(ev.port) {
                    return Err(ProfileError::Port(ev.port.get()));
                }
                if let Some(expansion) = &self.expansion {
                    expansion.check(&ev.value)?;
                }
                self.config.check_plane_of(env.format(&self.config), &ev)?;
            }
            None if self.state == ProfileState::Online => return Err(ProfileError::Unpopulated),
            None => {}
        }
        let copies = self.chosen(one.old, one.all_copies)?;
        let before: Vec<_> = copies.iter().map(|&index| self.entries.state(index)).collect();
        if let [index] = copies[..] {
            self.entries.replace(index, one.new, one.state);
        } else {
            self.entries.replace_all(&copies, one.new, one.state);
        }
        for (&index, before) in copies.iter().zip(before) {
            self.tell(index, before, event);
        }
        touched.add(&copies, self.entries.len());
        Ok(())
    }

    fn set_state(
        &mut self,
        one: &SetState,
        event: &mut dyn FnMut(PortEv, EntryState),
        touched: &mut Touched,
    ) -> Result<(), ProfileError> {
        let copies = self.chosen(Some(one.ev), one.all_copies)?;
        for &index in &copies {
            let before = self.entries.state(index);
            self.entries.set_state(index, one.state);
            self.tell(index, before, event);
        }
        touched.add(&copies, self.entries.len());
        Ok(())
    }

    /// All copies, or the one with the lowest index (api.md §4.8).
    fn chosen(&self, ev: Option<PortEv>, all: bool) -> Result<Vec<u32>, ProfileError> {
        let copies = self.entries.copies(ev);
        match copies.first() {
            None => Err(ProfileError::NotFound),
            Some(_) if all => Ok(copies.to_vec()),
            Some(&first) => Ok([first].to_vec()),
        }
    }

    /// One event per entry whose state changes to one in the mask, whoever changed it (api.md §4.9). Before ONLINE
    /// nothing is in use that could be worth telling.
    fn tell(&self, index: u32, before: Option<EntryState>, event: &mut dyn FnMut(PortEv, EntryState)) {
        let (ev, state) = self.entry(index);
        if let (Some(ev), Some(state)) = (ev, state)
            && self.state == ProfileState::Online
            && before != Some(state)
            && self.config.event_mask.includes(state)
        {
            event(ev, state);
        }
    }

    /// A queue pair's word about a path, which is about all copies of it (protocol.md §7.1). `marks` is what the queue
    /// pair said before, by entry.
    pub(super) fn report(
        &mut self,
        marks: &mut Vec<u32>,
        index: u32,
        bad: bool,
        event: &mut dyn FnMut(PortEv, EntryState),
    ) {
        let Some(ev) = self.entries.ev(index) else { return };
        if marks.len() < self.entries.len() as usize {
            // The array was replaced by a longer one meanwhile.
            marks.resize(self.entries.len() as usize, 0);
        }
        for nth in 0.. {
            let Some(&index) = self.entries.copies(Some(ev)).get(nth) else {
                return;
            };
            let before = self.entries.state(index);
            if let Some(mark) = marks.get_mut(index as usize) {
                self.entries.report(index, mark, bad);
            }
            self.tell(index, before, event);
        }
    }

    pub(super) fn bind(&mut self) {
        self.bound += 1;
    }

    /// A queue pair is gone, and with it what it thought of the paths.
    pub(super) fn unbind(&mut self, marks: &mut [u32], event: &mut dyn FnMut(PortEv, EntryState)) {
        self.bound = self.bound.saturating_sub(1);
        for (index, mark) in (0..).zip(marks).filter(|(_, mark)| **mark != 0) {
            let before = self.entries.state(index);
            self.entries.report(index, mark, false);
            self.tell(index, before, event);
        }
    }
}

impl Touched {
    fn add(&mut self, indices: &[u32], count: u32) {
        let list = match self {
            Self::All => return,
            Self::Entries(list) => list,
            Self::Nothing => {
                *self = Self::Entries(Vec::new());
                return self.add(indices, count);
            }
        };
        list.extend_from_slice(indices);
        if list.len() > count as usize {
            // So many that the list need not grow any further.
            *self = Self::All;
        }
    }
}
