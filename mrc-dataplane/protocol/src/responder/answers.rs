//! What is owed to the peer, and when it goes out (protocol.md §6.4, §6.7, §6.8, §14).

use mrc_wire::{Ev, NackReason, Packet, PortNum, Psn, Tick};

use super::Ring;
use crate::attr::Tuning;
use crate::limit::TokenBucket;
use crate::time::{Instant, US};

/// Where the bitmap of a SACK begins (§6.5): any base is correct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Base {
    /// Behind `cack_psn`: asked for, repeated, or probed.
    Start,
    /// Where the last scan of the window stopped.
    #[default]
    Scan,
    /// At the first PSN that no SACK has shown.
    News,
    /// Another part of an answer to a probe: [`Answers::part_number`] times 64 PSNs behind `cack_psn`.
    Part,
}

/// The packet or probe that a SACK answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trigger {
    /// Not of a probe.
    pub(super) psn: Psn,
    pub(super) probe_id: Option<u16>,
    pub(super) entropy: Ev,
    pub(super) ce: bool,
    pub(super) rtx: bool,
    pub(super) base: Base,
    pub(super) tx_timestamp: Tick,
    /// When it arrived.
    pub(super) at: Tick,
    /// Where it arrived (§6.10).
    pub(super) arrived: Option<PortNum>,
}

impl Trigger {
    pub(super) fn of_write(packet: &Packet<'_>, arrived: Option<PortNum>, now: Instant) -> Self {
        let bth = &packet.bth;
        Self {
            psn: bth.psn,
            probe_id: None,
            entropy: packet.ev,
            ce: packet.ce,
            rtx: bth.rtx,
            base: if bth.rtx || bth.a { Base::Start } else { Base::Scan },
            tx_timestamp: packet.tx_timestamp(),
            at: now.tick(),
            arrived,
        }
    }

    /// A NACK of the packet (§6.8).
    pub(super) fn nack(&self, reason: NackReason) -> Nack {
        Nack {
            psn: self.psn,
            reason,
            entropy: self.entropy,
            rtx: self.rtx,
            tx_timestamp: self.tx_timestamp,
            arrived: self.arrived,
        }
    }

    /// The timestamp that its SACK reflects: where service time is taken out, later by what passed since its arrival
    /// (protocol.md §6.9, P16). 0 would mean that there was none.
    pub(super) fn stamp(&self, svc_time: bool, now: Instant) -> Tick {
        if !svc_time || self.tx_timestamp == Tick(0) {
            return self.tx_timestamp;
        }
        let ticks = now.tick().0.wrapping_sub(self.at.0);
        Tick(self.tx_timestamp.0.wrapping_add(ticks).max(1))
    }

    /// This trigger, in a SACK that stands for an unsent one too.
    fn after(self, unsent: Option<Self>) -> Self {
        let from_start = unsent.is_some_and(|unsent| unsent.base == Base::Start);
        Self {
            base: if from_start { Base::Start } else { self.base },
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nack {
    pub(super) psn: Psn,
    pub(super) reason: NackReason,
    pub(super) entropy: Ev,
    pub(super) rtx: bool,
    pub(super) tx_timestamp: Tick,
    /// Where it arrived (§6.10).
    pub(super) arrived: Option<PortNum>,
}

/// Answers to CE-marked packets and probes that may wait to be sent.
const OWN_SACKS: usize = 64;
const NACKS: usize = 64;
/// Least time between two answers to duplicates (P11), and between two NACKs of one copy of a packet (§6.8).
const SPACING_NS: u64 = 10 * US;
/// Copies that are remembered for the latter, by the last bits of their PSNs.
const RECENT_NACKS: usize = 32;
/// NACKs that each packet received pays for. In an incast of many requestors most of what arrives may be cut, honestly: one
/// packet each from 1000 of them, where a round trip holds 150, is 6 to 1 (§14).
const NACKS_PER_PACKET: u32 = 16;

#[derive(Clone, Debug)]
pub(super) struct Answers {
    threshold_bytes: u32,
    hold_ns: u64,
    /// `sack_trigger_cnt`.
    count_bytes: u32,
    /// The last packet, for the hold timer and for SACKs that only show more.
    latest: Trigger,
    hold_until: Option<Instant>,
    /// Called for in this batch: one SACK, one ACK.
    batch_sack: Option<Trigger>,
    batch_ack: bool,
    /// The next part of the answer to a probe.
    part: Option<Trigger>,
    pub(super) part_number: u8,
    /// To be sent.
    own_sacks: Ring<Trigger>,
    sack: Option<Trigger>,
    /// SACKs that may follow in this batch to show what the others had no room for.
    extra_sacks: u8,
    extra_sacks_left: u8,
    more: bool,
    ack: bool,
    nacks: Ring<Nack>,
    /// Limits.
    duplicates: Limit,
    /// A duplicate that waits for its answer: trigger, and whether a Transport ACK is due too.
    duplicate: Option<(Trigger, bool, Instant)>,
    rate_per_s: u32,
    burst: u32,
    probe_bucket: TokenBucket,
    nack_bucket: TokenBucket,
    /// The stamp tells the copies of a PSN apart.
    recent_nacks: [(Psn, Tick, Instant); RECENT_NACKS],
}

#[derive(Clone, Debug)]
struct Limit {
    bucket: TokenBucket,
    last: Option<Instant>,
}

impl Limit {
    fn next(&self, now: Instant) -> Instant {
        let spaced = self.last.map_or(now, |last| (last + SPACING_NS).max(now));
        spaced.max(self.bucket.next(now))
    }

    fn take(&mut self, now: Instant) -> bool {
        if self.next(now) > now {
            return false;
        }
        self.last = Some(now);
        self.bucket.take(now)
    }
}

impl Answers {
    pub(super) fn new(tuning: &Tuning) -> Self {
        let bucket = TokenBucket::new(tuning.answers_per_s, tuning.answers_burst);
        Self {
            threshold_bytes: tuning.sack_gen_threshold_bytes,
            hold_ns: tuning.sack_hold_ns,
            count_bytes: 0,
            latest: Trigger::default(),
            hold_until: None,
            batch_sack: None,
            batch_ack: false,
            part: None,
            part_number: 0,
            own_sacks: Ring::new(OWN_SACKS),
            sack: None,
            extra_sacks: tuning.extra_sacks,
            extra_sacks_left: 0,
            more: false,
            ack: false,
            nacks: Ring::new(NACKS),
            duplicates: Limit {
                bucket: bucket.clone(),
                last: None,
            },
            duplicate: None,
            rate_per_s: tuning.answers_per_s,
            burst: tuning.answers_burst,
            probe_bucket: bucket.clone(),
            nack_bucket: bucket,
            recent_nacks: [(Psn::new(0), Tick(0), Instant::ZERO); RECENT_NACKS],
        }
    }

    /// A requestor may have a whole window cut before anything of it arrives (§14).
    pub(super) fn allow_nacks_for(&mut self, window: u32) {
        self.nack_bucket = TokenBucket::new(self.rate_per_s, self.burst.max(window));
    }

    pub(super) fn clear(&mut self) {
        self.count_bytes = 0;
        self.hold_until = None;
        self.batch_sack = None;
        self.batch_ack = false;
        self.part = None;
        self.own_sacks.clear();
        self.sack = None;
        self.more = false;
        self.ack = false;
        self.nacks.clear();
        self.duplicate = None;
    }

    pub(super) fn any(&self) -> bool {
        self.part.is_some()
            || !self.own_sacks.is_empty()
            || self.sack.is_some()
            || self.more
            || self.ack
            || !self.nacks.is_empty()
    }

    fn count(&mut self, nominal_bytes: u32) {
        /// Least count of a packet (§6.4).
        const MIN_BYTES: u32 = 1024;
        self.count_bytes = self.count_bytes.saturating_add(nominal_bytes.max(MIN_BYTES));
    }

    fn sacked(&mut self) {
        self.count_bytes = 0;
        self.hold_until = None;
    }

    /// A new packet was accepted: the table of §6.4. `asked`: its `a` bit.
    pub(super) fn accepted(&mut self, trigger: Trigger, asked: bool, nominal_bytes: u32, now: Instant) {
        self.count(nominal_bytes);
        // §14: who delivers earns answers.
        self.nack_bucket.earn(NACKS_PER_PACKET);
        self.probe_bucket.earn(1);
        self.duplicates.bucket.earn(1);
        self.latest = trigger;
        if trigger.ce && self.own_sacks.push(trigger) {
            // `m` speaks of one packet.
            self.sacked();
        } else if trigger.ce || asked || trigger.rtx || self.count_bytes >= self.threshold_bytes {
            self.merge(trigger);
        } else if self.hold_until.is_none() && self.hold_ns > 0 {
            self.hold_until = Some(now + self.hold_ns);
        }
    }

    /// All triggers of a batch share one SACK.
    fn merge(&mut self, trigger: Trigger) {
        self.batch_sack = Some(trigger.after(self.batch_sack));
        self.sacked();
    }

    /// A packet that had been received before (P11). `below`: at or below `cack_psn`. `nominal_bytes`: `None` for a
    /// trimmed one, which is not counted (§6.3 step 1). True if the answer has to wait.
    pub(super) fn duplicate(
        &mut self,
        trigger: Trigger,
        below: bool,
        nominal_bytes: Option<u32>,
        now: Instant,
    ) -> bool {
        if let Some(nominal_bytes) = nominal_bytes {
            self.count(nominal_bytes);
        }
        if self.duplicates.take(now) {
            self.answer_duplicate(trigger, below);
            return false;
        }
        let (earlier_below, at) = self
            .duplicate
            .map_or((false, self.duplicates.next(now)), |(_, below, at)| (below, at));
        self.duplicate = Some((trigger, below || earlier_below, at));
        true
    }

    fn answer_duplicate(&mut self, trigger: Trigger, below: bool) {
        if trigger.ce && self.own_sacks.push(trigger) {
            self.sacked();
        } else {
            self.merge(trigger);
        }
        // §6.7
        self.batch_ack |= below;
    }

    /// A reliability probe; false if it gets no answer (§14).
    pub(super) fn probed(&mut self, trigger: Trigger, now: Instant) -> bool {
        if !self.probe_bucket.take(now) || !self.own_sacks.push(trigger) {
            return false;
        }
        self.sacked();
        // P9
        self.batch_ack = true;
        true
    }

    /// A Transport ACK is due (§6.7).
    pub(super) fn processed(&mut self) {
        self.batch_ack = true;
    }

    /// False if it gets no answer (§6.8, §14).
    pub(super) fn nack(&mut self, nack: Nack, now: Instant) -> bool {
        let recent = &mut self.recent_nacks[nack.psn.get() as usize % RECENT_NACKS];
        let (psn, stamp, at) = *recent;
        // On fast links a packet is NACKed, sent again and cut again within the spacing: that copy was not answered yet.
        let same_copy = psn == nack.psn && stamp == nack.tx_timestamp;
        let is_recent = same_copy && at > Instant::ZERO && now.since(at) < SPACING_NS;
        if is_recent || !self.nack_bucket.take(now) || !self.nacks.push(nack) {
            return false;
        }
        *recent = (nack.psn, nack.tx_timestamp, now);
        true
    }

    pub(super) fn end_of_batch(&mut self) {
        self.extra_sacks_left = self.extra_sacks;
        if let Some(trigger) = self.batch_sack.take() {
            // An unsent one is replaced: the newer one says more.
            self.sack = Some(trigger.after(self.sack));
        }
        self.ack |= core::mem::take(&mut self.batch_ack);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.hold_until.is_some_and(|at| at <= now) {
            self.merge(self.latest);
        }
        if let Some((trigger, below, at)) = self.duplicate
            && at <= now
        {
            if self.duplicates.take(now) {
                self.duplicate = None;
                self.answer_duplicate(trigger, below);
            } else {
                self.duplicate = Some((trigger, below, self.duplicates.next(now)));
            }
        }
        self.end_of_batch();
    }

    pub(super) fn hold_until(&self) -> Option<Instant> {
        self.hold_until
    }

    pub(super) fn duplicate_at(&self) -> Option<Instant> {
        self.duplicate.map(|(_, _, at)| at)
    }

    /// Where the trigger of the next answer arrived: a SACK's own, a NACK's if nothing else is due.
    pub(super) fn next_arrived(&self) -> Option<PortNum> {
        let sack = self.part.or(self.own_sacks.first()).or(self.sack);
        match (sack, self.nacks.first()) {
            (Some(trigger), _) => trigger.arrived,
            (None, Some(nack)) if !self.more && !self.ack => nack.arrived,
            _ => self.latest.arrived,
        }
    }

    pub(super) fn take_sack(&mut self) -> Option<Trigger> {
        let part = self.part.take();
        let called_for = part.or_else(|| self.own_sacks.pop()).or_else(|| self.sack.take());
        if called_for.is_some() || !self.more {
            return called_for;
        }
        self.extra_sacks_left -= 1;
        Some(Trigger {
            base: Base::News,
            ..self.latest
        })
    }

    /// A SACK was built, and speaks of all that was counted until now (§6.4). One shows 64 PSNs; when a batch brought news from
    /// further apart (`more_news`), others follow.
    pub(super) fn sack_built(&mut self, more_news: bool) {
        self.sacked();
        self.more = more_news && self.extra_sacks_left > 0;
    }

    /// The answer to this probe has not shown the end of the window. Its requestor has heard nothing, so it does not know what the
    /// SACKs before said: it is told everything, as far as there are SACKs left.
    pub(super) fn continue_probe(&mut self, trigger: Trigger) {
        let first = trigger.base != Base::Part;
        if self.extra_sacks_left > 0 {
            self.extra_sacks_left -= 1;
            self.part = Some(Trigger {
                base: Base::Part,
                ..trigger
            });
            self.part_number = if first { 1 } else { self.part_number.saturating_add(1) };
        }
    }

    pub(super) fn take_ack(&mut self) -> bool {
        core::mem::take(&mut self.ack)
    }

    pub(super) fn take_nack(&mut self) -> Option<Nack> {
        self.nacks.pop()
    }
}
