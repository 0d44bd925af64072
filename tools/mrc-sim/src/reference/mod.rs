//! A second responder, written from the specification alone (protocol.md §6) and without any cleverness: every PSN that
//! was received is an entry in a map, and every answer that is due stands in a list. Tests feed it what the shipped one
//! is fed and compare what both say.
//!
//! Positions are counted from the peer's initial PSN and never wrap: position `n` is the PSN `rq_psn + n`.

mod answers;
mod arrival;
mod limits;

pub use answers::Compare;
pub use arrival::{Ground, Took};

use answers::{Duty, Owed, Trigger};
use limits::{Bucket, Pressure};
use mrc_protocol::{Completion, Instant, Status};
use mrc_wire::{Psn, Qpn, Tick};
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
