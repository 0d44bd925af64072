//! What is owed to the peer, and whether what is sent is that (protocol.md §6.4 to §6.8).

use super::Responder;
use mrc_protocol::{Instant, Transmit};
use mrc_wire::{Aeth, CcState, Ev, Headers, NackReason, Neth, Packet, PathVerdict, Psn, Seth, Tick, TrafficClass};

/// How closely SACKs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// One packet a batch, one SACK a packet: the bitmap's base is the one of protocol.md §6.5.
    Exactly,
    /// Batches: any base is right (protocol.md §6.5), and up to so many more SACKs may follow the one that serves all triggers of a
    /// batch, to show more of a window that 64 bits do not cover.
    Batches {
        /// `Tuning::extra_sacks`.
        extra_sacks: u8,
    },
}

/// Is something to be sent?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Duty {
    /// It would be wrong.
    #[default]
    No,
    /// It would be right, and so would be silence.
    May,
    /// Silence would be wrong, unless another SACK is sent: it sets the counter to 0 (protocol.md §6.4).
    Counter,
    /// Silence would be wrong.
    Must,
}

/// What an answer reflects of the packet that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trigger {
    pub(super) psn: Psn,
    pub(super) probe: Option<u16>,
    pub(super) a: bool,
    pub(super) rtx: bool,
    pub(super) ce: bool,
    pub(super) entropy: Ev,
    pub(super) tx_timestamp: Tick,
    /// When it arrived.
    pub(super) at: Instant,
}

impl Trigger {
    pub(super) fn of(packet: &Packet<'_>, probe: Option<u16>, at: Instant) -> Self {
        let tx_timestamp = match packet.headers {
            Headers::Write { tseth: Some(tseth), .. } => tseth.tx_timestamp,
            Headers::Probe(peth) => peth.tx_timestamp,
            _ => Tick(0),
        };
        Self {
            psn: packet.bth.psn,
            probe,
            a: packet.bth.a,
            rtx: packet.bth.rtx,
            ce: packet.ce,
            entropy: packet.ev,
            tx_timestamp,
            at,
        }
    }
}

/// Answers that are due.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Marked packets and probes: a SACK each.
    own: Vec<Trigger>,
    /// One SACK serves them all.
    shared: Vec<(Trigger, Duty)>,
    /// The probe that was answered last in this batch: other parts of the window may follow, with its id.
    probe: Option<Trigger>,
    /// How many SACKs may follow those that are due in this batch.
    extra: u8,
    nacks: Vec<(Trigger, NackReason)>,
    ack: Duty,
    pub(super) nak: Option<(Psn, u8)>,
}

impl Owed {
    pub(super) fn sack(&mut self, trigger: Trigger, duty: Duty) {
        self.shared.push((trigger, duty));
    }

    pub(super) fn sack_of_its_own(&mut self, trigger: Trigger) {
        self.own.push(trigger);
    }

    pub(super) fn nack(&mut self, trigger: Trigger, reason: NackReason) {
        self.nacks.push((trigger, reason));
    }

    pub(super) fn ack(&mut self, duty: Duty) {
        self.ack = self.ack.max(duty);
    }

    fn sack_is_due(&self) -> bool {
        !self.own.is_empty() || self.shared.iter().any(|(_, duty)| *duty >= Duty::Counter)
    }
}

impl Responder {
    /// It sends a control packet.
    pub fn judge(&mut self, now: Instant, sent: &Transmit) -> Result<(), String> {
        let bth = &sent.bth;
        let common = bth.dqp == self.attributes.dest_qpn
            && bth.p_key == self.attributes.p_key
            && !(bth.a || bth.se || bth.m || bth.ts)
            && bth.pad == 0
            && sent.class == TrafficClass::Control
            && !sent.ect
            && sent.payload.is_none();
        if !common {
            return Err(format!("not how an answer looks: {sent:?}"));
        }
        match &sent.headers {
            Headers::Sack(seth, Some(state)) => self.judge_sack(now, sent, seth, state),
            Headers::Nack(neth) => self.judge_nack(sent, neth),
            Headers::Ack(aeth) => self.judge_ack(sent, *aeth),
            other => Err(format!("no answer of a responder: {other:?}")),
        }
    }

    /// It has nothing more to send: nothing may be owed.
    pub fn judge_silence(&self) -> Result<(), String> {
        let owed = &self.owed;
        if owed.sack_is_due() || !owed.nacks.is_empty() || owed.ack == Duty::Must || owed.nak.is_some() {
            return Err(format!("silent, and owes {owed:?}"));
        }
        Ok(())
    }

    /// A batch is over, or timers were served.
    pub fn end_of_batch(&mut self) {
        self.owed.extra = match self.compare {
            Compare::Exactly => 0,
            Compare::Batches { extra_sacks } => extra_sacks,
        };
    }

    /// Nothing that was due in one batch may be sent in the next, unless it waits for a port.
    pub fn settle(&mut self) {
        self.owed = Owed::default();
    }

    /// protocol.md §6.5
    fn judge_sack(&mut self, now: Instant, sent: &Transmit, seth: &Seth, state: &CcState) -> Result<(), String> {
        let reflects = |trigger: &Trigger| {
            let expected = self.seth(trigger, seth.sack_offset);
            *seth == expected && self.may_reflect(trigger, state.tx_timestamp, now) && sent.bth.rtx == trigger.rtx
        };
        let trigger = if let Some(place) = self.owed.own.iter().position(&reflects) {
            for (_, duty) in self.owed.shared.iter_mut().filter(|(_, duty)| *duty == Duty::Counter) {
                *duty = Duty::May;
            }
            let trigger = self.owed.own.remove(place);
            self.owed.probe = Some(trigger).filter(|trigger| trigger.probe.is_some());
            trigger
        } else if let Some((trigger, _)) = self.owed.shared.iter().rfind(|(trigger, _)| reflects(trigger)) {
            let trigger = *trigger;
            self.owed.shared.clear();
            trigger
        } else if let Some(trigger) = self.last.filter(reflects).or(self.owed.probe.filter(reflects))
            && self.owed.extra > 0
        {
            // It shows what the others had no room for, and reflects the last packet or the last probe.
            self.owed.extra -= 1;
            trigger
        } else {
            let expected = (self.owed.own.iter()).chain(self.owed.shared.iter().map(|(trigger, _)| trigger));
            let expected: Vec<_> = expected
                .map(|t| (t.rtx, t.tx_timestamp, self.seth(t, seth.sack_offset)))
                .collect();
            return Err(format!(
                "rtx {} {:?} {seth:?} answers nothing of {expected:?}, {:?}",
                sent.bth.rtx, state.tx_timestamp, self.owed
            ));
        };
        let expected = CcState {
            ooo_count: self.received.len().min(32767) as u16,
            rcvd_bytes: (((self.rx_rcvd_bytes + 255) >> 8) % (1 << 24)) as u32,
            ..*state
        };
        let pressed =
            self.pressure.penalties().contains(&state.rcv_cwnd_pen) && (!state.rc || self.pressure.may_restore());
        if *state != expected || !pressed || sent.bth.psn != self.cack_psn() {
            return Err(format!("{state:?}, not {expected:?} (penalty {:?})", self.pressure));
        }
        self.judge_base(&trigger, seth)?;
        self.sack_trigger_cnt = 0;
        self.held_since = None;
        Ok(())
    }

    /// The timestamp itself, or later by the delay of this side: whole ticks, rounded either way, and never 0, which would say
    /// that there was none (protocol.md §6.9).
    fn may_reflect(&self, trigger: &Trigger, stamp: Tick, now: Instant) -> bool {
        let sent = trigger.tx_timestamp.0;
        if !self.attributes.svc_time || sent == 0 {
            return stamp.0 == sent;
        }
        let ticks = (now.since(trigger.at) / 128) as u16;
        let exact = [sent.wrapping_add(ticks), sent.wrapping_add(ticks).wrapping_add(1)];
        exact.iter().any(|exact| stamp.0 == (*exact).max(1))
    }

    /// What a SACK with this base says.
    fn seth(&self, trigger: &Trigger, sack_offset: i16) -> Seth {
        let cack = self.cack_psn();
        let offset = (i64::from(trigger.psn.get()) - i64::from(cack.get()) + (1 << 23)).rem_euclid(1 << 24) - (1 << 23);
        let offset = i16::try_from(offset).unwrap_or(0).cast_unsigned();
        let base = i128::from(self.next) - 1 + i128::from(sack_offset);
        let bits = (0..64).filter(|bit| self.has(base + bit)).map(|bit| 1u64 << bit).sum();
        Seth {
            m: if trigger.ce {
                PathVerdict::SkipOnce
            } else {
                PathVerdict::None
            },
            pr: trigger.probe.is_some(),
            ack_psn_offset_or_probe_id: trigger.probe.unwrap_or(offset),
            entropy: trigger.entropy,
            spdcid: (self.attributes.qpn.get() & 0xffff) as u16,
            dpdcid: (self.attributes.dest_qpn.get() & 0xffff) as u16,
            cack_psn: cack,
            cc_type: 0,
            cc_fl: 0,
            // protocol.md §5.4
            mpr: if self.attributes.dynamic_mpr {
                (self.attributes.window / 128) as u8
            } else {
                0
            },
            sack_offset,
            sack_bitmap: bits,
        }
    }

    /// protocol.md §6.5, the base
    fn judge_base(&mut self, trigger: &Trigger, seth: &Seth) -> Result<(), String> {
        let first = self.next;
        // `end` is max_rcv_psn + 1, `first` is cack_psn + 1.
        let from_first = self.end.saturating_sub(first) <= 64 || trigger.rtx || trigger.a || trigger.probe.is_some();
        let base = if from_first {
            first
        } else {
            self.lowest_unsacked.max(first).min(self.end - 64)
        };
        self.lowest_unsacked = if base + 64 < self.end { base + 64 } else { first };
        let offset = (base + 1 - first) as i64;
        if self.compare == Compare::Exactly && i64::from(seth.sack_offset) != offset {
            return Err(format!("sack_offset {}, not {offset}", seth.sack_offset));
        }
        Ok(())
    }

    /// protocol.md §6.8
    fn judge_nack(&mut self, sent: &Transmit, neth: &Neth) -> Result<(), String> {
        let expected = |trigger: &Trigger, reason: NackReason| Neth {
            reason,
            vendor_info: 0,
            entropy: trigger.entropy,
            spdcid: (self.attributes.qpn.get() & 0xffff) as u16,
            dpdcid: (self.attributes.dest_qpn.get() & 0xffff) as u16,
            nack_psn: trigger.psn,
            tx_timestamp: trigger.tx_timestamp,
        };
        let place = self.owed.nacks.iter().position(|(trigger, reason)| {
            *neth == expected(trigger, *reason) && sent.bth.psn == trigger.psn && sent.bth.rtx == trigger.rtx
        });
        match place {
            Some(place) => {
                self.owed.nacks.remove(place);
                Ok(())
            }
            None => Err(format!("{neth:?} is none of {:?}", self.owed.nacks)),
        }
    }

    /// protocol.md §6.7
    fn judge_ack(&mut self, sent: &Transmit, aeth: Aeth) -> Result<(), String> {
        let said = (sent.bth.psn, aeth.syndrome, aeth.msn);
        let messages = self.messages % (1 << 24);
        if let Some((psn, syndrome)) = self.owed.nak.take() {
            let expected = (psn, syndrome, messages);
            return if said == expected && !sent.bth.rtx {
                Ok(())
            } else {
                Err(format!("NAK {said:?}, not {expected:?}"))
            };
        }
        let expected = (self.cack_psn(), Aeth::ACK, messages);
        if said != expected || self.owed.ack == Duty::No || sent.bth.rtx {
            return Err(format!("ACK {said:?}, not {expected:?}, {:?}", self.owed));
        }
        // protocol.md §6.4: SACK before Transport ACK.
        if self.owed.sack_is_due() {
            return Err(format!("Transport ACK before SACK: {:?}", self.owed));
        }
        self.owed.ack = Duty::No;
        Ok(())
    }
}
