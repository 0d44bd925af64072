//! On which paths packets may leave (protocol.md §8).

use crate::ensure;
use crate::oracle::Breach;
use crate::oracle::Oracle::{Path, Retransmission};
use crate::oracle::balance::Census;
use mrc_protocol::{EvState, Qp, Reason, Transmit};
use mrc_wire::{Headers, PortSet};

/// What the host knows when it lets a packet go.
#[derive(Debug, Clone, Copy)]
pub struct Exits {
    /// Ports with transmit room.
    pub room: PortSet,
    /// Ports up here, as the queue pair was told.
    pub local_up: PortSet,
    /// Ports up at the peer, as the queue pair was told.
    pub peer_up: PortSet,
}

impl Exits {
    /// Ports that are up at both ends; none if the last one is in use only because nothing else is left.
    fn both_up(&self) -> PortSet {
        self.local_up.intersection(self.peer_up)
    }

    /// No port is up at both ends.
    pub fn none_usable(&self) -> bool {
        self.both_up().is_empty()
    }

    /// Ports on which a packet may leave now. If none is up at both ends, the peer does not talk us out of the last one
    /// (protocol.md §9.3).
    pub fn open(&self) -> PortSet {
        let both = self.both_up();
        self.room
            .intersection(if both.is_empty() { self.local_up } else { both })
    }
}

/// Judges the path of a packet, and the shares of all planes. `before` is the path of the previous copy of a write that is
/// sent again, `active` the number of active paths that the planes should share. Returns what the paths look like.
pub fn judge_path(
    name: &str,
    qp: &Qp,
    sent: &Transmit,
    exits: Exits,
    before: Option<(u32, u8)>,
    cc_room: PortSet,
    active: u16,
) -> Result<Census, Breach> {
    let path = (sent.ev.0, sent.port.get());
    ensure!(
        exits.open().contains(sent.port),
        Path,
        "{name}: {:?} on port {}; {exits:?}",
        sent.bth.opcode,
        sent.port.get()
    );
    let mut state = None;
    let mut good_elsewhere = None;
    let mut good = 0;
    // Answers take their paths elsewhere.
    let request = matches!(sent.headers, Headers::Write { .. } | Headers::Probe(_));
    let mut census = Census::new();
    let both_up = exits.both_up();
    let mut eligible = PortSet::EMPTY;
    let usable_ports = exits.open().intersection(cc_room);
    for (at, view) in qp.ev_states().enumerate() {
        if request {
            census.add(&view);
        }
        if view.eligible {
            eligible.insert(view.entry.port);
        }
        let other = (view.entry.ev.0, view.entry.port.get());
        // An EV may stand in a profile more than once: this is the copy.
        if other == path && at == usize::from(sent.path) {
            census.chose_active |= view.active;
            state = Some(view.state);
        }
        ensure!(
            both_up.is_empty() || view.eligible == both_up.contains(view.entry.port),
            Path,
            "{name}: {view:?} while these ports are up: {exits:?}"
        );
        let usable = view.state == EvState::Good && view.active && view.eligible;
        if usable && usable_ports.contains(view.entry.port) {
            good += 1;
            // A path at the floor of the active set rests between its turns (protocol.md §8.2 (1)).
            if Some(other) != before && view.reason != Reason::Turn {
                good_elsewhere = Some(other);
            }
        }
    }
    // protocol.md §9.3: a mask without a usable port leaves one in use.
    ensure!(
        !both_up.is_empty()
            || eligible.len() == 1 && exits.local_up.contains(sent.port) && eligible.contains(sent.port),
        Path,
        "{name}: {:?} on port {} while {eligible:?} are in use: {exits:?}",
        sent.bth.opcode,
        sent.port.get()
    );
    let Some(state) = state else {
        ensure!(
            false,
            Path,
            "{name}: {:?} on {path:x?}, which the queue pair does not have",
            sent.bth.opcode
        );
        return Ok(census);
    };
    ensure!(
        state != EvState::Denied,
        Path,
        "{name}: {:?} on denied {path:x?}",
        sent.bth.opcode
    );
    if matches!(sent.headers, Headers::Write { .. }) {
        census.guarded = state == EvState::AssumedBad;
        // protocol.md §8.3: the deadlock guard permits retransmissions when nothing else is left.
        ensure!(
            state != EvState::AssumedBad || (sent.is_retransmission && good == 0),
            Path,
            "{name}: packet on {path:x?}, which is {state:?}, while {good} good paths are open"
        );
        ensure!(
            before != Some(path) || good_elsewhere.is_none(),
            Retransmission,
            "{name}: {:?} is repeated on {path:x?} like its lost copy; {good_elsewhere:x?} was open",
            sent.bth.psn
        );
    }
    census.judge_shares(name, active)?;
    Ok(census)
}
