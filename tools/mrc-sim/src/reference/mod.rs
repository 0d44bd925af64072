//! A second responder, written from the specification alone (protocol.md §6) and without any cleverness: every PSN that
//! was received is an entry in a map, and every answer that is due stands in a list. Tests feed it what the shipped one
//! is fed and compare what both say.
//!
//! Positions are counted from the peer's initial PSN and never wrap: position `n` is the PSN `rq_psn + n`.

mod answers;
mod limits;

pub use answers::Compare;

use answers::{Duty, Owed, Trigger};
use limits::{Bucket, Pressure};
use mrc_protocol::{Completion, Disposition, DropReason, Instant, Queue, Status};
use mrc_wire::{Aeth, Condition, Headers, NackReason, Opcode, Packet, Psn, Qpn, Tick};
use std::collections::{BTreeMap, VecDeque};

/// What a responder is told before it starts.
#[derive(Debug, Clone)]
pub struct Attributes {
    /// Own number.
    pub qpn: Qpn,
    /// The peer's.
    pub dest_qpn: Qpn,
    /// Partition.
    pub p_key: u16,
    /// The peer's initial PSN.
    pub rq_psn: Psn,
    /// Bytes of a full packet.
    pub pmtu: usize,
    /// Window in PSNs.
    pub window: u64,
    /// Immediates that may wait.
    pub max_wimm: usize,
    /// SACKs say the window, and it may change (protocol.md §5.4).
    pub dynamic_mpr: bool,
    /// Reflected timestamps leave this side's delay out (protocol.md §6.9).
    pub svc_time: bool,
    /// Trimmed packets are answered.
    pub trim_nack: bool,
    /// The peer may write.
    pub remote_write: bool,
    /// Bytes between two SACKs (protocol.md §6.4).
    pub sack_gen_threshold: u64,
    /// Longest time without one, in ns; 0 = off.
    pub sack_hold_ns: u64,
    /// Answers of one kind per second, and in one burst (protocol.md §14).
    pub answers_per_s: u64,
    /// See above.
    pub answers_burst: u64,
}

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

/// A packet above the cumulative acknowledgement (protocol.md §6.1).
#[derive(Debug, Clone, Copy)]
struct Received {
    is_last: bool,
    a: bool,
}

/// An immediate that waits for its turn (protocol.md §6.6).
#[derive(Debug, Clone, Copy)]
struct Waiting {
    imm: [u8; 4],
    se: bool,
    dmalen: u32,
}

/// The responder.
#[derive(Debug)]
pub struct Responder {
    attributes: Attributes,
    compare: Compare,
    /// The largest window ever announced, in PSNs.
    announced: u64,
    /// Positions below this were all received: `cack_psn` is the one before.
    next: u64,
    received: BTreeMap<u64, Received>,
    /// One more than the highest position received.
    end: u64,
    rx_rcvd_bytes: u64,
    sack_trigger_cnt: u64,
    /// Position at which the next bitmap begins.
    lowest_unsacked: u64,
    messages: u32,
    waiting: BTreeMap<u64, Waiting>,
    receives: VecDeque<u64>,
    delivered: VecDeque<Completion>,
    failed: bool,
    owed: Owed,
    /// The last packet that counted, for the hold timer.
    last: Option<Trigger>,
    held_since: Option<Instant>,
    duplicate_answered: Option<Instant>,
    /// A duplicate whose answer has to wait, whether a Transport ACK belongs to it, and until when.
    deferred: Option<(Trigger, bool, Instant)>,
    /// The latest NACK of each group of PSNs with the same last five bits: PSN and stamp of the copy (protocol.md §6.8).
    nacked: BTreeMap<u32, (Psn, Tick, Instant)>,
    nacks: Bucket,
    probes: Bucket,
    duplicates: Bucket,
    pressure: Pressure,
}

/// The shortest time between two answers to duplicates, and between two NACKs of one copy (protocol.md §6.2, §6.8).
const ANSWER_NS: u64 = 10_000;

impl Responder {
    /// In RTR (protocol.md §2.2).
    pub fn new(attributes: Attributes, compare: Compare) -> Self {
        let bucket = Bucket::new(attributes.answers_per_s, attributes.answers_burst);
        // A requestor may have a whole window cut before anything of it arrives (P29).
        let nacks = Bucket::new(
            attributes.answers_per_s,
            attributes.answers_burst.max(attributes.window),
        );
        Self {
            announced: attributes.window,
            attributes,
            compare,
            next: 0,
            received: BTreeMap::new(),
            end: 0,
            rx_rcvd_bytes: 0,
            sack_trigger_cnt: 0,
            lowest_unsacked: 0,
            messages: 0,
            waiting: BTreeMap::new(),
            receives: VecDeque::new(),
            delivered: VecDeque::new(),
            failed: false,
            owed: Owed::default(),
            last: None,
            held_since: None,
            duplicate_answered: None,
            deferred: None,
            nacked: BTreeMap::new(),
            nacks,
            probes: bucket,
            duplicates: bucket,
            pressure: Pressure::default(),
        }
    }

    /// Has it refused a packet, or been told to fail?
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// The queue pair failed for another reason: nothing is said any more, and what was owed is forgotten.
    pub fn fail(&mut self) {
        if !self.failed {
            self.failed = true;
            self.owed = Owed::default();
        }
    }

    /// A receive request was posted.
    pub fn post(&mut self, wr_id: u64) {
        self.receives.push_back(wr_id);
    }

    /// May the peer write?
    pub fn set_remote_write(&mut self, remote_write: bool) {
        self.attributes.remote_write = remote_write;
    }

    /// Changes the window, in PSNs (protocol.md §5.4).
    pub fn set_window(&mut self, window: u64) {
        self.attributes.window = window;
        self.announced = self.announced.max(window);
    }

    /// How full the receive ring is (protocol.md §11).
    pub fn set_pressure(&mut self, used: u32, capacity: u32) {
        self.pressure.set(used, capacity);
    }

    /// When it wants to be woken: by the hold timer (protocol.md §6.4), or for a duplicate (protocol.md §6.2).
    pub fn next_timeout(&self) -> Option<Instant> {
        let hold_ns = self.attributes.sack_hold_ns;
        let hold = self.held_since.filter(|_| hold_ns > 0).map(|since| since + hold_ns);
        let duplicate = self.deferred.map(|(_, _, at)| at);
        let times = [hold, duplicate].into_iter().flatten();
        times.min().filter(|_| !self.failed)
    }

    /// Time has come to `now`.
    pub fn timeout(&mut self, now: Instant) {
        if self.failed {
            return;
        }
        self.end_of_batch();
        let hold_ns = self.attributes.sack_hold_ns;
        if let Some(since) = self.held_since
            && let Some(trigger) = self.last
            && hold_ns > 0
            && since + hold_ns <= now
        {
            self.held_since = None;
            self.owed.sack(trigger, Duty::Counter);
        }
        if let Some((trigger, below, at)) = self.deferred
            && at <= now
        {
            let next = self.next_duplicate(now);
            if next <= now {
                self.deferred = None;
                self.answer_duplicate(now, trigger, below);
            } else {
                self.deferred = Some((trigger, below, next));
            }
        }
    }

    /// A packet arrived. `permits` says whether the memory may be written: key, address, length.
    pub fn take(&mut self, now: Instant, packet: &Packet<'_>, permits: impl Fn(u32, u64, u64) -> bool) -> Took {
        // protocol.md §2.2
        if self.failed {
            return dropped(DropReason::State);
        }
        // wire-format.md §7.1: the low 15 bits
        if packet.bth.p_key & 0x7fff != self.attributes.p_key & 0x7fff {
            return dropped(DropReason::PKey);
        }
        match packet.headers {
            Headers::Probe(peth) => self.probe(now, packet, peth.probe_id),
            Headers::Write { .. } => self.write(now, packet, permits),
            // It has sent nothing that these could answer.
            _ => dropped(DropReason::State),
        }
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
    fn write(&mut self, now: Instant, packet: &Packet<'_>, permits: impl Fn(u32, u64, u64) -> bool) -> Took {
        let ahead = (u64::from(packet.bth.psn.get()) + (1 << 24) - u64::from(self.psn(self.next).get())) % (1 << 24);
        let at = self.next + ahead;
        let below = ahead >= 1 << 23;
        let trimmed = match packet.condition {
            Condition::Whole => None,
            Condition::Trimmed { last_hop } => Some(last_hop),
        };
        // Wherever it belongs, nothing is said of it.
        if trimmed.is_some() && !self.attributes.trim_nack {
            return dropped(DropReason::Trimmed);
        }
        // [decision] of protocol.md §6.2: what was received stays received when the window shrinks.
        if below || self.received.contains_key(&at) {
            return self.duplicate(now, packet, below);
        }
        if ahead >= self.attributes.window {
            return match trimmed {
                Some(_) => dropped(DropReason::Trimmed),
                // P10: a peer that had not heard of the shrink may have sent it.
                None if ahead < self.announced => self.nack(now, packet, NackReason::PSN_OOR_WINDOW),
                None => dropped(DropReason::OutOfWindow),
            };
        }
        match trimmed {
            // protocol.md §6.3 step 1
            Some(true) => self.nack(now, packet, NackReason::TRIMMED_LASTHOP),
            Some(false) => self.nack(now, packet, NackReason::TRIMMED),
            None => self.fresh(now, packet, at, permits),
        }
    }

    /// protocol.md §6.2, P11: at once, or when the time has come.
    fn duplicate(&mut self, now: Instant, packet: &Packet<'_>, below: bool) -> Took {
        let trimmed = packet.is_trimmed();
        let trigger = Trigger {
            // protocol.md §6.3 step 1: the mark of a trimmed packet is not reported.
            ce: packet.ce && !trimmed,
            ..Trigger::of(packet, None, now)
        };
        if !trimmed {
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
        if trimmed {
            return dropped(DropReason::RateLimited);
        }
        accepted()
    }

    fn next_duplicate(&self, now: Instant) -> Instant {
        let spaced = self.duplicate_answered.map_or(now, |at| at + ANSWER_NS);
        spaced.max(self.duplicates.next(now)).max(now)
    }

    fn answer_duplicate(&mut self, now: Instant, trigger: Trigger, below: bool) {
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
        let early = latest.is_some_and(|(nacked, of, at)| (*nacked, *of) == (psn, stamp) && now.since(*at) < ANSWER_NS);
        if early || !self.nacks.take(now) {
            return dropped(DropReason::RateLimited);
        }
        self.nacked.insert(psn.get() % 32, (psn, stamp, now));
        self.owed.nack(Trigger::of(packet, None, now), reason);
        accepted()
    }

    /// protocol.md §6.3 from step 3 on
    fn fresh(&mut self, now: Instant, packet: &Packet<'_>, at: u64, permits: impl Fn(u32, u64, u64) -> bool) -> Took {
        let Headers::Write { reth, imm, .. } = packet.headers else {
            return dropped(DropReason::NotForQp);
        };
        let (opcode, len) = (packet.bth.opcode, packet.payload.len());
        if !lengths_are_right(opcode, len, packet.bth.pad, reth.dmalen, self.attributes.pmtu) {
            return self.refuse(packet.bth.psn, Aeth::NAK_INVALID_REQUEST, None);
        }
        if len > 0 {
            let whole = opcode != Opcode::WriteFirst || permits(reth.r_key, reth.va, reth.dmalen.into());
            if !self.attributes.remote_write || !permits(reth.r_key, reth.va, len as u64) || !whole {
                return self.refuse(packet.bth.psn, Aeth::NAK_REMOTE_ACCESS, None);
            }
        }
        let placed = (len > 0).then_some((reth.r_key, reth.va, len as u64));
        if let Some(imm) = imm {
            // protocol.md §6.6: an immediate whose turn has come waits for nothing.
            if at != self.next && self.waiting.len() >= self.attributes.max_wimm {
                return self.refuse(packet.bth.psn, Aeth::NAK_INVALID_REQUEST, placed);
            }
            let se = packet.bth.se;
            self.waiting.insert(
                at,
                Waiting {
                    imm: imm.0,
                    se,
                    dmalen: reth.dmalen,
                },
            );
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

    /// It gave a completion of a receive request.
    pub fn judge_completion(&mut self, completion: &Completion) -> Result<(), String> {
        if let Some(expected) = self.delivered.pop_front() {
            return if *completion == expected {
                Ok(())
            } else {
                Err(format!("completion {completion:?}, not {expected:?}"))
            };
        }
        match self.receives.pop_front() {
            Some(wr_id) if self.failed && completion.wr_id == wr_id && completion.status == Status::Flushed => Ok(()),
            other => Err(format!(
                "completion {completion:?}; next receive {other:?}, failed: {}",
                self.failed
            )),
        }
    }

    /// It gave no completion: none may be due.
    pub fn judge_no_completion(&self) -> Result<(), String> {
        match (self.delivered.front(), self.receives.front()) {
            (Some(due), _) => Err(format!("{due:?} is due")),
            (_, Some(wr_id)) if self.failed => Err(format!("receive {wr_id} was not flushed")),
            _ => Ok(()),
        }
    }

    /// Packets received above `cack_psn`.
    pub fn ooo_count(&self) -> u32 {
        self.received.len() as u32
    }

    fn psn(&self, at: u64) -> Psn {
        Psn::new(((u64::from(self.attributes.rq_psn.get()) + at) % (1 << 24)) as u32)
    }

    /// Everything up to here was received.
    pub fn cack_psn(&self) -> Psn {
        self.psn(self.next + (1 << 24) - 1)
    }

    fn has(&self, at: i128) -> bool {
        at < i128::from(self.next) || u64::try_from(at).is_ok_and(|at| self.received.contains_key(&at))
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
