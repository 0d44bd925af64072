//! What a responder does when its host lacks something (protocol.md §6.3 step 2): nothing of the packet is marked or counted,
//! a NACK names what is missing, and what is beyond repair ends the queue pair.

use crate::ensure;
use crate::oracle::Checked;
use crate::oracle::Oracle::{Memory, State};
use crate::oracle::flow::Flow;
use crate::oracle::responder::{Copy, Handled, Place};
use mrc_protocol::{AccessError, Disposition, DropReason, QpState, Shortage, Status};
use mrc_wire::{Aeth, Headers, NackReason, Packet, Syndrome, Tick};
use std::collections::{BTreeMap, BTreeSet};

/// What was not taken for want of something.
#[derive(Debug, Default)]
pub struct Lacks {
    /// Copies that were not taken this time, and why, by packet.
    pub(super) copies: BTreeMap<i64, Vec<(Copy, NackReason)>>,
    /// Those that are owed a NACK.
    pub(super) due: Vec<i64>,
    /// The packet that the host broke down on.
    broke: Option<(i64, Copy)>,
    /// The peer was told of it.
    told: bool,
    /// Packets of which a part may have been written before that.
    partly: BTreeSet<usize>,
}

/// What a NACK says of a shortage (Table 7-3).
fn reason(shortage: Shortage) -> NackReason {
    match shortage {
        Shortage::Bitmap => NackReason::NO_BITMAP,
        Shortage::PacketBuffer => NackReason::NO_PKT_BUFFER,
        Shortage::Other => NackReason::NO_RESOURCE,
    }
}

/// The rule that a NACK for want of something follows.
pub(super) fn rule(reason: NackReason) -> Option<&'static str> {
    Some(match reason {
        NackReason::NO_BITMAP => "§6.3 2 NO_BITMAP",
        NackReason::NO_PKT_BUFFER => "§6.3 2 NO_PKT_BUFFER",
        NackReason::NO_RESOURCE => "§6.3 2 NO_RESOURCE",
        NackReason::UNEXP_EVENT => "§6.3 2 UNEXP_EVENT",
        _ => return None,
    })
}

/// Whether a packet tells the peer that its request has failed: that is said even in ERR (protocol.md §5.9, §6.3 step 2).
pub(crate) fn is_parting(headers: &Headers) -> bool {
    match headers {
        Headers::Ack(aeth) => aeth.meaning() != Syndrome::Ack,
        Headers::Nack(neth) => neth.reason == NackReason::UNEXP_EVENT,
        _ => false,
    }
}

/// A packet that earned a NACK gets it, or finds the limit of answers reached (protocol.md §14).
fn nacked(disposition: Disposition) -> bool {
    matches!(
        disposition,
        Disposition::Accepted | Disposition::Dropped(DropReason::RateLimited)
    )
}

impl Flow {
    /// A new packet was checked or placed, and the memory said that it could not.
    pub(super) fn judge_trouble(
        &mut self,
        index: usize,
        copy: Copy,
        handled: &Handled<'_>,
        error: AccessError,
    ) -> Checked {
        let name = &self.name;
        let last = handled.accesses.last();
        ensure!(
            last.is_some_and(|access| access.trouble == Some(error)),
            Memory,
            "{name}: packet {index} goes on after {error:?}: {:?}",
            handled.accesses
        );
        let lacks = &mut self.responder.lacks;
        if last.is_some_and(|access| access.placed) {
            lacks.partly.insert(index);
        }
        if let AccessError::Busy(shortage) = error {
            ensure!(
                handled.after == handled.before && nacked(handled.disposition),
                State,
                "{name}: packet {index} meets {error:?}, is {:?}, and leads to {:?}",
                handled.disposition,
                handled.after
            );
            lacks.turn_down(index as i64, copy, reason(shortage), handled.disposition);
        } else {
            ensure!(
                handled.after == QpState::Err && handled.disposition == Disposition::Accepted,
                State,
                "{name}: packet {index} meets {error:?}, is {:?}, and leads to {:?}",
                handled.disposition,
                handled.after
            );
            lacks.broke = Some((index as i64, copy));
        }
        Ok(())
    }

    /// A write could not be kept by the host, and the queue pair was told so.
    pub fn judge_refused(
        &mut self,
        packet: &Packet<'_>,
        shortage: Shortage,
        disposition: Disposition,
        state: QpState,
        at: Tick,
    ) -> Checked {
        let index = self.index_of(packet.bth.psn);
        let place = self.responder.place_of(index);
        let copy = Copy::of(packet, at);
        let model = &mut self.responder;
        let right = if !matches!(state, QpState::Rtr | QpState::Rts) {
            disposition == Disposition::Dropped(DropReason::State)
        } else if packet.bth.p_key & 0x7fff != 0x7fff {
            disposition == Disposition::Dropped(DropReason::PKey)
        } else {
            match place {
                Place::New => {
                    model.lacks.turn_down(index, copy, reason(shortage), disposition);
                    nacked(disposition)
                }
                Place::Withdrawn => {
                    model.withdrawn.entry(index).or_default().push(copy);
                    nacked(disposition)
                }
                Place::DuplicateAbove | Place::DuplicateBelow => {
                    // It needs no buffer: what a mark on it means is left open.
                    let copies = model.copies.entry(index).or_default();
                    copies.extend([copy, Copy { ce: false, ..copy }]);
                    *model
                        .exercised
                        .entry("§6.3 2 duplicate that could not be kept")
                        .or_default() += 1;
                    nacked(disposition)
                }
                Place::OutOfWindow => disposition == Disposition::Dropped(DropReason::OutOfWindow),
            }
        };
        ensure!(
            right,
            State,
            "{}: packet {index}, {place:?}, could not be kept in {state:?}, and is {disposition:?}",
            self.name
        );
        Ok(())
    }

    /// Stretches of memory that hold a part of a packet that has not arrived.
    pub fn written_in_part(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.responder.lacks.partly.iter().map(|at| {
            let packet = self.packets[*at];
            let va = self.messages[packet.message].va + u64::from(packet.offset);
            (va, packet.len.into())
        })
    }

    /// The message that its target has refused for good, and how that ends it here.
    pub fn refusal(&self) -> Option<(usize, Status)> {
        let refused = self.responder.refused.map(|(index, syndrome)| {
            let status = match syndrome {
                Aeth::NAK_INVALID_REQUEST => Status::RemoteInvalidRequest,
                Aeth::NAK_REMOTE_ACCESS => Status::RemoteAccess,
                _ => Status::RemoteOperation,
            };
            (index, status)
        });
        let broke = self.responder.lacks.broke;
        let (index, status) = refused.or(broke.map(|(index, _)| (index, Status::RemoteOperation)))?;
        Some((self.packets[index as usize].message, status))
    }
}

impl Lacks {
    fn turn_down(&mut self, index: i64, copy: Copy, reason: NackReason, disposition: Disposition) {
        self.copies.entry(index).or_default().push((copy, reason));
        if disposition == Disposition::Accepted {
            self.due.push(index);
        }
    }

    /// A NACK of the packet was sent.
    pub(super) fn answered(&mut self, index: i64) {
        if let Some(at) = self.due.iter().position(|due| *due == index) {
            self.due.swap_remove(at);
        }
    }

    /// Whether the host broke down.
    pub fn broke(&self) -> bool {
        self.broke.is_some()
    }

    /// The copy that `UNEXP_EVENT` may speak of: the peer is told once.
    pub(super) fn tell(&mut self, index: i64) -> Option<Copy> {
        let told = std::mem::replace(&mut self.told, true);
        let broke = self.broke.filter(|(of, _)| *of == index && !told);
        broke.map(|(_, copy)| copy)
    }
}
