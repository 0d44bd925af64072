//! A write or a probe arrives, or one that could not be kept: where it belongs, what becomes of it, and what is owed for it
//! (protocol.md §6.2, §6.3).

use super::answers::{Duty, Trigger};
use super::{Received, Responder, Waiting};
use crate::memory::{Trouble, When};
use mrc_protocol::{AccessError, Completion, Disposition, DropReason, Instant, Queue, Shortage, Status};
use mrc_wire::{Aeth, Condition, Headers, NackReason, Opcode, Packet, Psn, Reth};

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    /// What the responder is to say of it.
    pub disposition: Disposition,
    /// Key, address and length of the bytes that are to be in memory now.
    pub placed: Option<(u32, u64, u64)>,
    /// The specification does not say whether they are: the packet is refused after all.
    pub either: bool,
}

/// The memory under a packet.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// What may be written: key, address, length.
    pub permits: &'a dyn Fn(u32, u64, u64) -> bool,
    /// What it says of all that it permits, when it comes to it.
    pub trouble: Option<Trouble>,
}

impl Ground<'_> {
    fn may(&self, key: u32, va: u64, len: u64) -> Result<(), AccessError> {
        if !(self.permits)(key, va, len) {
            return Err(AccessError::Bounds);
        }
        self.says(|when| when == When::Asked)
    }

    fn write(&self) -> Result<(), AccessError> {
        self.says(|when| when != When::Asked)
    }

    fn says(&self, now: impl Fn(When) -> bool) -> Result<(), AccessError> {
        match self.trouble {
            Some(trouble) if now(trouble.when) => Err(trouble.error),
            _ => Ok(()),
        }
    }
}

/// protocol.md §6.2, with the position of what is new.
enum Class {
    New(u64),
    Duplicate { below: bool },
    Withdrawn,
    OutOfWindow,
}

impl Responder {
    /// A packet arrived.
    pub fn take(&mut self, now: Instant, packet: &Packet<'_>, ground: Ground<'_>) -> Took {
        if let Some(reason) = self.turns_away(packet) {
            return dropped(reason);
        }
        match packet.headers {
            Headers::Probe(peth) => self.probe(now, packet, peth.probe_id),
            Headers::Write { .. } => self.write(now, packet, ground),
            // It has sent nothing that these could answer.
            _ => dropped(DropReason::State),
        }
    }

    /// A packet arrived for which there was no room.
    pub fn lack_buffer(&mut self, now: Instant, packet: &Packet<'_>, why: Shortage) -> Took {
        if let Some(reason) = self.turns_away(packet) {
            return dropped(reason);
        }
        if !packet.bth.opcode.is_write() {
            return dropped(DropReason::NotForQp);
        }
        match self.classify(packet.bth.psn) {
            Class::New(_) => self.nack(now, packet, reason(why)),
            // protocol.md §6.3 step 2: it needs no NACK.
            Class::Duplicate { below } => self.duplicate(now, packet, below, true),
            Class::Withdrawn => self.nack(now, packet, NackReason::PSN_OOR_WINDOW),
            Class::OutOfWindow => dropped(DropReason::OutOfWindow),
        }
    }

    fn turns_away(&self, packet: &Packet<'_>) -> Option<DropReason> {
        // protocol.md §2.2
        if self.failed {
            return Some(DropReason::State);
        }
        // wire-format.md §7.1: the low 15 bits
        (packet.bth.p_key & 0x7fff != self.attributes.p_key & 0x7fff).then_some(DropReason::PKey)
    }

    /// protocol.md §9.1
    fn probe(&mut self, now: Instant, packet: &Packet<'_>, probe_id: u16) -> Took {
        // wire-format.md §10: trimmed probes are dropped
        if packet.is_trimmed() {
            return dropped(DropReason::Trimmed);
        }
        if !self.probes.take(now) {
            return dropped(DropReason::RateLimited);
        }
        self.owed.sack_of_its_own(Trigger::of(packet, Some(probe_id), now));
        self.owed.ack(Duty::Must);
        accepted()
    }

    /// protocol.md §6.2
    fn classify(&self, psn: Psn) -> Class {
        let ahead = (u64::from(psn.get()) + (1 << 24) - u64::from(self.psn(self.next).get())) % (1 << 24);
        let at = self.next + ahead;
        let below = ahead >= 1 << 23;
        // [decision] of protocol.md §6.2: what was received stays received when the window shrinks.
        if below || self.received.contains_key(&at) {
            Class::Duplicate { below }
        } else if ahead < self.attributes.window {
            Class::New(at)
        } else if ahead < self.announced {
            // P10: a peer that had not heard of the shrink may have sent it.
            Class::Withdrawn
        } else {
            Class::OutOfWindow
        }
    }

    fn write(&mut self, now: Instant, packet: &Packet<'_>, ground: Ground<'_>) -> Took {
        let class = self.classify(packet.bth.psn);
        let Condition::Trimmed { last_hop } = packet.condition else {
            return match class {
                Class::New(at) => self.fresh(now, packet, at, ground),
                Class::Duplicate { below } => self.duplicate(now, packet, below, false),
                Class::Withdrawn => self.nack(now, packet, NackReason::PSN_OOR_WINDOW),
                Class::OutOfWindow => dropped(DropReason::OutOfWindow),
            };
        };
        // protocol.md §6.3 step 1. Without trim_nack nothing is said of it, wherever it belongs.
        match class {
            Class::New(_) if self.attributes.trim_nack && last_hop => {
                self.nack(now, packet, NackReason::TRIMMED_LASTHOP)
            }
            Class::New(_) if self.attributes.trim_nack => self.nack(now, packet, NackReason::TRIMMED),
            Class::Duplicate { below } if self.attributes.trim_nack => self.duplicate(now, packet, below, true),
            _ => dropped(DropReason::Trimmed),
        }
    }

    /// protocol.md §6.2, P11: at once, or when the time has come. `unplaced`: its data is missing, and was not needed.
    fn duplicate(&mut self, now: Instant, packet: &Packet<'_>, below: bool, unplaced: bool) -> Took {
        let trigger = Trigger {
            // protocol.md §6.3 step 1: the mark of a trimmed packet is not reported.
            ce: packet.ce && !unplaced,
            ..Trigger::of(packet, None, now)
        };
        if !unplaced {
            self.count(packet);
        }
        if self.next_duplicate(now) <= now {
            self.answer_duplicate(now, trigger, below);
            return accepted();
        }
        let (earlier_below, at) = self
            .deferred
            .map_or((false, self.next_duplicate(now)), |(_, below, at)| (below, at));
        self.deferred = Some((trigger, below || earlier_below, at));
        if unplaced {
            return dropped(DropReason::RateLimited);
        }
        accepted()
    }

    pub(super) fn next_duplicate(&self, now: Instant) -> Instant {
        let spaced = self.duplicate_answered.map_or(now, |at| at + super::ANSWER_NS);
        spaced.max(self.duplicates.next(now)).max(now)
    }

    pub(super) fn answer_duplicate(&mut self, now: Instant, trigger: Trigger, below: bool) {
        self.duplicates.take(now);
        self.duplicate_answered = Some(now);
        self.answer(trigger);
        if below {
            self.owed.ack(Duty::Must);
        }
    }

    /// protocol.md §6.8
    fn nack(&mut self, now: Instant, packet: &Packet<'_>, reason: NackReason) -> Took {
        let psn = packet.bth.psn;
        let latest = self.nacked.get(&(psn.get() % 32));
        let stamp = packet.tx_timestamp();
        let early =
            latest.is_some_and(|(nacked, of, at)| (*nacked, *of) == (psn, stamp) && now.since(*at) < super::ANSWER_NS);
        if early || !self.nacks.take(now) {
            return dropped(DropReason::RateLimited);
        }
        self.nacked.insert(psn.get() % 32, (psn, stamp, now));
        self.owed.nack(Trigger::of(packet, None, now), reason);
        accepted()
    }

    /// protocol.md §6.3 from step 2 on
    fn fresh(&mut self, now: Instant, packet: &Packet<'_>, at: u64, ground: Ground<'_>) -> Took {
        let Headers::Write { reth, imm, .. } = packet.headers else {
            return dropped(DropReason::NotForQp);
        };
        let (opcode, len) = (packet.bth.opcode, packet.payload.len());
        if !lengths_are_right(opcode, len, packet.bth.pad, reth.dmalen, self.attributes.pmtu) {
            return self.refuse(packet.bth.psn, Aeth::NAK_INVALID_REQUEST, None);
        }
        if len > 0
            && let Err(error) = self.access(opcode, &reth, len as u64, ground)
        {
            return self.turn_down(now, packet, error);
        }
        let placed = (len > 0).then_some((reth.r_key, reth.va, len as u64));
        // protocol.md §6.6: an immediate whose turn has come waits for nothing.
        if imm.is_some() && at != self.next && self.waiting.len() >= self.attributes.max_wimm {
            return self.refuse(packet.bth.psn, Aeth::NAK_INVALID_REQUEST, placed);
        }
        // What runs out while data is written is found out last; then nothing is marked, nor does an immediate wait.
        if len > 0
            && let Err(error) = ground.write()
        {
            return self.turn_down(now, packet, error);
        }
        if let Some(imm) = imm {
            let waiting = Waiting {
                imm: imm.0,
                se: packet.bth.se,
                dmalen: reth.dmalen,
            };
            self.waiting.insert(at, waiting);
        }
        let (is_last, a) = (opcode.is_last(), packet.bth.a);
        self.received.insert(at, Received { is_last, a });
        self.end = self.end.max(at + 1);
        self.rx_rcvd_bytes += u64::from(packet.udp_len) + 40;
        while let Some(received) = self.received.remove(&self.next) {
            let position = self.next;
            if let Some(waiting) = self.waiting.remove(&position) {
                // No receive is posted: never RNR (P15).
                let Some(wr_id) = self.receives.pop_front() else {
                    return self.refuse(self.psn(position), Aeth::NAK_REMOTE_OPERATIONAL, placed);
                };
                self.delivered.push_back(self.delivery(wr_id, waiting));
            }
            self.next += 1;
            self.messages += u32::from(received.is_last);
            // protocol.md §6.7
            if received.a || received.is_last {
                self.owed.ack(Duty::Must);
            }
        }
        // P29
        self.nacks.earn(now, 16);
        self.probes.earn(now, 1);
        self.duplicates.earn(now, 1);
        self.count(packet);
        let trigger = Trigger::of(packet, None, now);
        self.last = Some(trigger);
        self.held_since = self.held_since.or(Some(now));
        if packet.ce || packet.bth.a || packet.bth.rtx {
            self.answer(trigger);
        } else if self.sack_trigger_cnt >= self.attributes.sack_gen_threshold {
            self.owed.sack(trigger, Duty::Counter);
        }
        Took { placed, ..accepted() }
    }

    /// protocol.md §6.3 step 4. What is lacking (step 2) says more than what is forbidden.
    fn access(&self, opcode: Opcode, reth: &Reth, len: u64, ground: Ground<'_>) -> Result<(), AccessError> {
        if !self.attributes.remote_write {
            return Err(AccessError::Permission);
        }
        let whole = match opcode {
            Opcode::WriteFirst => ground.may(reth.r_key, reth.va, reth.dmalen.into()),
            _ => Ok(()),
        };
        let part = ground.may(reth.r_key, reth.va, len);
        part.and(whole)
    }

    /// protocol.md §6.3 steps 2 and 4
    fn turn_down(&mut self, now: Instant, packet: &Packet<'_>, error: AccessError) -> Took {
        match error {
            AccessError::Busy(shortage) => self.nack(now, packet, reason(shortage)),
            AccessError::Broken => {
                self.fail();
                self.owed.nack(Trigger::of(packet, None, now), NackReason::UNEXP_EVENT);
                accepted()
            }
            _ => self.refuse(packet.bth.psn, Aeth::NAK_REMOTE_ACCESS, None),
        }
    }

    /// protocol.md §6.4: every accepted or duplicate packet counts.
    fn count(&mut self, packet: &Packet<'_>) {
        self.sack_trigger_cnt += (u64::from(packet.udp_len) + 40).max(1024);
    }

    /// A SACK is due; a marked packet has one of its own (protocol.md §6.4).
    fn answer(&mut self, trigger: Trigger) {
        if trigger.ce {
            self.owed.sack_of_its_own(trigger);
        } else {
            self.owed.sack(trigger, Duty::Must);
        }
    }

    fn delivery(&self, wr_id: u64, waiting: Waiting) -> Completion {
        Completion {
            wr_id,
            queue: Queue::Recv,
            status: Status::Success,
            byte_len: waiting.dmalen,
            imm: Some(waiting.imm),
            solicited: waiting.se,
            src_qp: self.attributes.dest_qpn,
            slot: 0,
            signaled: true,
        }
    }

    /// protocol.md §5.9, §6.7: the NAK is owed, nothing else any more.
    fn refuse(&mut self, psn: Psn, syndrome: u8, placed: Option<(u32, u64, u64)>) -> Took {
        self.fail();
        self.owed.nak = Some((psn, syndrome));
        Took {
            placed,
            either: true,
            ..accepted()
        }
    }
}

/// Table 7-3
fn reason(shortage: Shortage) -> NackReason {
    match shortage {
        Shortage::Bitmap => NackReason::NO_BITMAP,
        Shortage::PacketBuffer => NackReason::NO_PKT_BUFFER,
        Shortage::Other => NackReason::NO_RESOURCE,
    }
}

/// protocol.md §6.3 step 3
fn lengths_are_right(opcode: Opcode, len: usize, pad: u8, dmalen: u32, pmtu: usize) -> bool {
    let fits = match opcode {
        Opcode::WriteFirst => len == pmtu && pad == 0 && dmalen as usize > pmtu,
        Opcode::WriteMiddle => len == pmtu && pad == 0,
        Opcode::WriteLast | Opcode::WriteLastImm => (1..=pmtu).contains(&len),
        _ => len <= pmtu && len == dmalen as usize,
    };
    fits && dmalen <= 1 << 31
}

const fn accepted() -> Took {
    Took {
        disposition: Disposition::Accepted,
        placed: None,
        either: false,
    }
}

const fn dropped(reason: DropReason) -> Took {
    Took {
        disposition: Disposition::Dropped(reason),
        placed: None,
        either: false,
    }
}
