//! A write or a probe arrives: checked, placed, marked, in this order (protocol.md §6.2, §6.3).

use mrc_wire::{Aeth, Condition, Headers, NackReason, Opcode, Packet, Psn, Reth};

use super::answers::{Base, Trigger};
use super::stash::Immediate;
use super::{Env, Parting, Responder};
use crate::work::{AccessError, DropReason, QpEvent, Shortage};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    Dropped(DropReason),
    /// A Transport NAK is due, and the queue pair must go to ERR.
    Refused(Refusal),
}

/// Why a request is refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Length rules, or more immediates than offered.
    Invalid,
    /// The peer may not write there.
    Access,
    /// No receive request was posted.
    NoReceive,
    /// This side cannot go on (§6.3 step 2).
    Broken,
}

impl Refusal {
    fn syndrome(self) -> u8 {
        match self {
            Self::Invalid => Aeth::NAK_INVALID_REQUEST,
            Self::Access => Aeth::NAK_REMOTE_ACCESS,
            Self::NoReceive | Self::Broken => Aeth::NAK_REMOTE_OPERATIONAL,
        }
    }

    pub(crate) fn event(self) -> QpEvent {
        match self {
            Self::Invalid => QpEvent::RequestError,
            // api.md §3.9: a missing receive counts as a refused access.
            Self::Access | Self::NoReceive => QpEvent::AccessError,
            Self::Broken => QpEvent::Fatal,
        }
    }
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rejection {
    /// Never.
    Final(Refusal),
    /// Not now (step 2).
    ForNow(Shortage),
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        Self::Final(refusal)
    }
}

impl From<AccessError> for Rejection {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Busy(shortage) => Self::ForNow(shortage),
            AccessError::Broken => Self::Final(Refusal::Broken),
            _ => Self::Final(Refusal::Access),
        }
    }
}

/// protocol.md §6.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    New,
    DuplicateAbove,
    DuplicateBelow,
    /// Beyond the window, but inside one that was announced before it shrank.
    Withdrawn,
    OutOfWindow,
}

impl Responder {
    pub(super) fn classify(&self, psn: Psn) -> Class {
        let ahead = psn.diff(self.cack_psn.next());
        if ahead < 0 {
            Class::DuplicateBelow
        } else if ahead >= self.announced as i32 {
            Class::OutOfWindow
        } else if self.received.get(psn) {
            Class::DuplicateAbove
        } else if ahead >= self.limits.window as i32 {
            Class::Withdrawn
        } else {
            Class::New
        }
    }

    pub(crate) fn on_write(&mut self, packet: &Packet<'_>, env: &mut Env<'_>) -> Outcome {
        let Headers::Write { reth, imm, .. } = &packet.headers else {
            return Outcome::Dropped(DropReason::NotForQp);
        };
        let bth = &packet.bth;
        let psn = bth.psn;
        let class = self.classify(psn);
        let trigger = Trigger::of_write(packet, env.port, env.now);
        if let Condition::Trimmed { last_hop } = packet.condition {
            env.stats.trims_received += 1;
            return self.on_trimmed(class, trigger, last_hop, env);
        }
        match class {
            // P10: nobody can have believed that this PSN was inside.
            Class::OutOfWindow => return Outcome::Dropped(DropReason::OutOfWindow),
            // P10: the peer may not have known better.
            Class::Withdrawn => return self.refuse_for_now(&trigger, NackReason::PSN_OOR_WINDOW, env),
            Class::DuplicateAbove | Class::DuplicateBelow => {
                env.stats.duplicates_received += 1;
                let below = class == Class::DuplicateBelow;
                if self
                    .answers
                    .duplicate(trigger, below, Some(packet.nominal_size()), env.now)
                {
                    env.stats.answers_suppressed += 1;
                }
                return Outcome::Accepted;
            }
            // The application is gone, and so may be its memory.
            Class::New if self.lingering => return Outcome::Dropped(DropReason::State),
            Class::New => {}
        }

        let immediate = imm.map(|imm| Immediate {
            imm: imm.0,
            solicited: bth.se,
            dmalen: reth.dmalen,
        });
        match self.check_and_place(packet, reth, immediate, env) {
            Ok(()) => {}
            Err(Rejection::Final(Refusal::Broken)) => {
                self.parting = Some(Parting::Nack(trigger.nack(NackReason::UNEXP_EVENT)));
                return Outcome::Refused(Refusal::Broken);
            }
            Err(Rejection::Final(Refusal::Access)) if self.spare(psn) => return Outcome::Dropped(DropReason::Access),
            Err(Rejection::Final(refusal)) => return self.refuse(psn, refusal),
            Err(Rejection::ForNow(shortage)) => return self.refuse_for_now(&trigger, shortage.reason(), env),
        }
        // Step 6.
        if psn.diff(self.max_rcv_psn) > 0 {
            self.max_rcv_psn = psn;
        }
        self.rcvd_bytes = self.rcvd_bytes.wrapping_add(u64::from(packet.nominal_size()));
        self.received.set(psn);
        if let Some(spared) = &mut self.spared {
            spared.clear(psn);
        }
        self.unshown.set(psn);
        self.unshown_count += 1;
        if bth.opcode.is_last() {
            self.last.set(psn);
        }
        if bth.a {
            self.asked.set(psn);
        }
        self.ooo_count += 1;
        env.stats.packets_placed += 1;
        env.stats.payload_bytes_placed += packet.payload.len() as u64;
        env.stats.packets_out_of_order += u64::from(psn != self.cack_psn.next());
        if let Err((failed, refusal)) = self.advance(immediate) {
            return self.refuse(failed, refusal);
        }
        // Step 7.
        self.answers.accepted(trigger, bth.a, packet.nominal_size(), env.now);
        Outcome::Accepted
    }

    /// Step 1. No ICRC vouches for the packet: nothing changes but the answer.
    fn on_trimmed(&mut self, class: Class, trigger: Trigger, last_hop: bool, env: &mut Env<'_>) -> Outcome {
        if !self.limits.trim_nack {
            return Outcome::Dropped(DropReason::Trimmed);
        }
        let reason = if last_hop {
            NackReason::TRIMMED_LASTHOP
        } else {
            NackReason::TRIMMED
        };
        self.answer_unplaced(class, trigger, reason, DropReason::Trimmed, env)
    }

    /// Step 2, for a packet that the caller could not keep.
    pub(crate) fn on_shortage(&mut self, packet: &Packet<'_>, why: Shortage, env: &mut Env<'_>) -> Outcome {
        if !matches!(packet.headers, Headers::Write { .. }) {
            return Outcome::Dropped(DropReason::NotForQp);
        }
        let class = self.classify(packet.bth.psn);
        let trigger = Trigger::of_write(packet, env.port, env.now);
        // §6.2 comes first: whatever is lacking, it would not be taken (P10).
        if class == Class::Withdrawn {
            return self.refuse_for_now(&trigger, NackReason::PSN_OOR_WINDOW, env);
        }
        self.answer_unplaced(class, trigger, why.reason(), DropReason::OutOfWindow, env)
    }

    /// A packet without its data: if it is new it is NACKed, if it is not it needs none.
    fn answer_unplaced(
        &mut self,
        class: Class,
        trigger: Trigger,
        reason: NackReason,
        otherwise: DropReason,
        env: &mut Env<'_>,
    ) -> Outcome {
        match class {
            Class::New if !self.lingering => return self.refuse_for_now(&trigger, reason, env),
            Class::DuplicateAbove | Class::DuplicateBelow => {
                // A mark on it says nothing that its switch has not said more clearly.
                let trigger = Trigger { ce: false, ..trigger };
                if !self
                    .answers
                    .duplicate(trigger, class == Class::DuplicateBelow, None, env.now)
                {
                    return Outcome::Accepted;
                }
            }
            _ => return Outcome::Dropped(otherwise),
        }
        env.stats.answers_suppressed += 1;
        Outcome::Dropped(DropReason::RateLimited)
    }

    /// A NACK: the packet was not taken, and may come again (§6.8).
    fn refuse_for_now(&mut self, trigger: &Trigger, reason: NackReason, env: &mut Env<'_>) -> Outcome {
        if self.answers.nack(trigger.nack(reason), env.now) {
            return Outcome::Accepted;
        }
        env.stats.answers_suppressed += 1;
        Outcome::Dropped(DropReason::RateLimited)
    }

    /// Steps 3 to 5: nothing is written before everything was checked.
    fn check_and_place(
        &mut self,
        packet: &Packet<'_>,
        reth: &Reth,
        immediate: Option<Immediate>,
        env: &mut Env<'_>,
    ) -> Result<(), Rejection> {
        let opcode = packet.bth.opcode;
        let len = packet.payload.len() as u64;
        check_length(opcode, len, packet.bth.pad, reth.dmalen, u64::from(self.conn.pmtu))?;
        if len > 0 {
            if !self.remote_write || reth.va.checked_add(len - 1).is_none() {
                return Err(Refusal::Access.into());
            }
            env.memory.check(reth.r_key, reth.va, len)?;
        }
        if opcode == Opcode::WriteFirst {
            let whole = u64::from(reth.dmalen);
            if reth.va.checked_add(whole - 1).is_none() {
                return Err(Refusal::Access.into());
            }
            env.memory.check(reth.r_key, reth.va, whole)?;
        }
        // §6.6 Limit (P15). One whose turn has come needs no place.
        let psn = packet.bth.psn;
        let stashed = immediate.filter(|_| psn != self.cack_psn.next());
        if stashed.is_some() && !self.stash.has_room(self.limits.max_wimm) {
            return Err(Refusal::Invalid.into());
        }
        if len > 0 {
            env.memory.place(reth.r_key, reth.va, &packet.payload)?;
        }
        if let Some(immediate) = stashed {
            self.stash.put(psn, immediate);
        }
        Ok(())
    }

    /// Step 6, second half, and the semantic layer: PSNs in order. `direct`: the immediate of `ePSN`, if it has one and it
    /// has just arrived.
    fn advance(&mut self, mut direct: Option<Immediate>) -> Result<(), (Psn, Refusal)> {
        let mut psn = self.cack_psn.next();
        if !self.received.get(psn) {
            return Ok(());
        }
        while self.received.clear(psn) {
            self.ooo_count -= 1;
            self.unshown_count -= u32::from(self.unshown.clear(psn));
            self.cack_psn = psn;
            // `direct` belongs to the first PSN of this run: only its arrival can have started it.
            if let Some(immediate) = direct.take().or_else(|| self.stash.take(psn))
                && !self.recv.deliver(immediate)
            {
                return Err((psn, Refusal::NoReceive));
            }
            let last = self.last.clear(psn);
            if last {
                self.messages = (self.messages + 1) & 0x00ff_ffff;
            }
            // §6.7
            if self.asked.clear(psn) || last {
                self.answers.processed();
            }
            psn = psn.next();
        }
        Ok(())
    }

    /// P28: is this the first write with this PSN that fails the access check, and are those spared?
    fn spare(&mut self, psn: Psn) -> bool {
        self.spared.as_mut().is_some_and(|spared| spared.set(psn))
    }

    fn refuse(&mut self, psn: Psn, refusal: Refusal) -> Outcome {
        self.parting = Some(Parting::Nak {
            psn,
            syndrome: refusal.syndrome(),
        });
        Outcome::Refused(refusal)
    }

    /// protocol.md §9.1: answered at once; changes nothing.
    pub(crate) fn on_probe(&mut self, packet: &Packet<'_>, env: &mut Env<'_>) -> Outcome {
        let Headers::Probe(peth) = &packet.headers else {
            return Outcome::Dropped(DropReason::NotForQp);
        };
        let trigger = Trigger {
            psn: self.cack_psn,
            probe_id: Some(peth.probe_id),
            entropy: packet.ev,
            ce: packet.ce,
            rtx: packet.bth.rtx,
            base: Base::Start,
            tx_timestamp: peth.tx_timestamp,
            arrived: env.port,
            at: env.now.tick(),
        };
        if self.answers.probed(trigger, env.now) {
            return Outcome::Accepted;
        }
        env.stats.answers_suppressed += 1;
        Outcome::Dropped(DropReason::RateLimited)
    }
}

/// Step 3.
fn check_length(opcode: Opcode, len: u64, pad: u8, dmalen: u32, pmtu: u64) -> Result<(), Refusal> {
    let dmalen = u64::from(dmalen);
    let fits = match opcode {
        Opcode::WriteFirst => len == pmtu && pad == 0 && dmalen > pmtu,
        Opcode::WriteMiddle => len == pmtu && pad == 0,
        Opcode::WriteLast | Opcode::WriteLastImm => (1..=pmtu).contains(&len),
        Opcode::WriteOnly | Opcode::WriteOnlyImm => len <= pmtu && len == dmalen,
        _ => false,
    };
    if fits && dmalen <= 1 << 31 {
        Ok(())
    } else {
        Err(Refusal::Invalid)
    }
}
