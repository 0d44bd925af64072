//! Equal load on all planes and paths (protocol.md §8.3).
//!
//! *Shares.* A plane never has more active paths than its share, and less only when it has no GOOD backup left.
//!
//! *Turns.* While nothing disturbs the rotation, each active path has one turn per pass. A stretch of sends begins and ends
//! inside a pass, so the numbers of turns of any two active paths differ by at most 2, and those of planes with n active
//! paths each by at most 2n. A stretch ends when the active set changes, when an active path is not GOOD or had to lose a
//! turn, when a packet is sent again (it avoids the path of its lost copy) or a probe is sent (it prefers a plane), and when a
//! port with active paths is down, has no transmit room, or has no room in the window of its congestion controller.

use crate::ensure;
use crate::oracle::Checked;
use crate::oracle::Oracle::Balance as Uneven;
use mrc_protocol::{EvState, EvView, Reason};
use mrc_wire::{PortNum, PortSet};
use std::collections::BTreeMap;

/// What the paths of a queue pair look like at a send.
#[derive(Debug, Clone, Default)]
pub struct Census {
    /// Active paths by port number.
    active: [u16; PortNum::MAX as usize + 1],
    /// GOOD paths by port number that are not active.
    backup: [u16; PortNum::MAX as usize + 1],
    /// All of them.
    members: [u16; PortNum::MAX as usize + 1],
    active_ports: PortSet,
    /// All active paths are GOOD, and none had to lose a turn since the start.
    steady: bool,
    /// Which paths are active.
    fingerprint: u64,
    /// The path that was chosen is one of them.
    pub chose_active: bool,
    /// A bad path was chosen, since there is no other.
    pub guarded: bool,
}

impl Census {
    /// Of no path yet.
    pub fn new() -> Census {
        Census {
            steady: true,
            ..Census::default()
        }
    }

    /// Takes one path in.
    pub fn add(&mut self, view: &EvView) {
        let port = usize::from(view.entry.port.get());
        self.members[port] += 1;
        if view.active {
            self.active[port] += 1;
            self.active_ports.insert(view.entry.port);
            self.steady &= view.state == EvState::Good && view.reason != Reason::Turn;
            let path = u64::from(view.entry.ev.0) << 8 | u64::from(view.entry.port.get());
            // In no order, and yet not linear: of EVs in a row, many pairs have one sum.
            let print = scramble(scramble(path) ^ view.since.as_ns());
            self.fingerprint = self.fingerprint.wrapping_add(print);
        } else if view.state == EvState::Good {
            self.backup[port] += 1;
        }
    }

    /// Judges the shares of all planes.
    pub fn judge_shares(&self, name: &str, active: u16) -> Checked {
        let planes = self.members.iter().filter(|members| **members > 0).count() as u16;
        let equal = (active / planes.max(1)).max(1);
        for port in 1..self.active.len() {
            let share = equal.min(self.members[port]);
            let (active, backup) = (self.active[port], self.backup[port]);
            ensure!(
                active <= share && (active == share || backup == 0),
                Uneven,
                "{name}: {active} of {share} paths of plane {port} are active, {backup} good ones are not"
            );
        }
        Ok(())
    }
}

/// Every bit of the input changes about half of the output: the multipliers are those of 64-bit murmur.
fn scramble(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    word ^= word >> 33;
    word = word.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    word ^ word >> 33
}

/// The turns of a stretch.
#[derive(Debug, Default)]
pub struct Balance {
    turns: BTreeMap<(u32, u8), u32>,
    fingerprint: u64,
    paths: usize,
    fewest: u32,
    given_up: bool,
    /// Sends that were judged with a stretch of more than one pass behind them.
    pub judged: u64,
}

impl Balance {
    /// A controller has changed the paths: turns are not counted any more.
    pub fn give_up(&mut self) {
        self.given_up = true;
    }

    /// A packet took `path`, one of the rotation. `open`: ports that were open to it; `strays`: it had reasons of its own to pass
    /// over some paths.
    pub fn judge_turn(&mut self, name: &str, census: &Census, open: PortSet, path: (u32, u8), strays: bool) -> Checked {
        let disturbed = self.given_up || strays || !census.steady || !census.active_ports.difference(open).is_empty();
        if disturbed || census.fingerprint != self.fingerprint {
            self.turns.clear();
            self.fewest = 0;
            self.fingerprint = census.fingerprint;
            self.paths = census.active.iter().map(|count| usize::from(*count)).sum();
        }
        if disturbed {
            return Ok(());
        }
        let turns = self.turns.entry(path).or_default();
        *turns += 1;
        let turns = *turns;
        if turns > self.fewest + 2 {
            let fewest = self.turns.values().min().copied().unwrap_or(0);
            self.fewest = if self.turns.len() < self.paths { 0 } else { fewest };
        }
        ensure!(
            turns <= self.fewest + 2,
            Uneven,
            "{name}: path {path:x?} has turn {turns}, another active one has had {} of {:?}",
            self.fewest,
            self.turns
        );
        self.judged += u64::from(self.turns.len() == self.paths && self.paths > 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mrc_protocol::{EvEntry, Instant};
    use mrc_wire::Ev;

    fn view(ev: u32, port: u8, state: EvState, active: bool) -> EvView {
        let port = PortNum::new(port).expect("a port");
        EvView {
            entry: EvEntry { ev: Ev(ev), port },
            state,
            reason: Reason::Initial,
            since: Instant(0),
            active,
            eligible: true,
            losses: 0,
            marks: 0,
        }
    }

    fn census(paths: &[EvView]) -> Census {
        let mut census = Census::new();
        for path in paths {
            census.add(path);
        }
        census
    }

    #[test]
    fn a_path_that_takes_the_turns_of_another_is_noticed() {
        let census = census(&[view(1, 1, EvState::Good, true), view(2, 2, EvState::Good, true)]);
        let mut balance = Balance::default();
        let open = PortSet::first(2);
        for _ in 0..2 {
            assert!(balance.judge_turn("q", &census, open, (1, 1), false).is_ok());
        }
        assert!(balance.judge_turn("q", &census, open, (1, 1), false).is_err());
    }

    #[test]
    fn a_port_without_room_excuses_what_passes_it_over() {
        let census = census(&[view(1, 1, EvState::Good, true), view(2, 2, EvState::Good, true)]);
        let mut balance = Balance::default();
        for _ in 0..9 {
            let open = PortSet::first(1);
            assert!(balance.judge_turn("q", &census, open, (1, 1), false).is_ok());
        }
    }

    #[test]
    fn a_stretch_ends_when_two_paths_leave_for_two_with_the_same_sum() {
        let steady = [view(1, 1, EvState::Good, true), view(9, 3, EvState::Good, true)];
        let before = [view(8, 3, EvState::Good, true), view(6, 2, EvState::Good, true)];
        let after = [view(10, 3, EvState::Good, true), view(4, 2, EvState::Good, true)];
        let before = census(&[steady, before].concat());
        let after = census(&[steady, after].concat());
        let mut balance = Balance::default();
        let open = PortSet::first(3);
        // Two of the four have had a turn when the others leave.
        for path in [(1, 1), (9, 3)] {
            assert!(balance.judge_turn("q", &before, open, path, false).is_ok());
        }
        for path in [(1, 1), (9, 3), (10, 3), (4, 2), (9, 3)] {
            assert!(balance.judge_turn("q", &after, open, path, false).is_ok());
        }
    }

    #[test]
    fn a_plane_without_its_share_must_have_no_good_path_left() {
        let short = census(&[view(1, 1, EvState::Good, true), view(2, 1, EvState::AssumedBad, false)]);
        assert!(short.judge_shares("q", 2).is_ok());
        let idle = census(&[view(1, 1, EvState::Good, true), view(2, 1, EvState::Good, false)]);
        assert!(idle.judge_shares("q", 2).is_err());
        assert!(idle.judge_shares("q", 1).is_ok());
    }
}
