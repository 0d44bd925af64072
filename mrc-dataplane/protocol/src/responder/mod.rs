//! The side that is written to (protocol.md §6).

mod answers;
mod place;
mod recv;
mod sack;
mod stash;

use alloc::boxed::Box;
use alloc::vec;

use mrc_wire::{Aeth, Bth, Headers, Neth, Opcode, PortNum, PortSet, Psn, TrafficClass};

use self::answers::{Answers, Nack};
use self::recv::RecvQueue;
use self::stash::Stash;
use crate::attr::{QpCreate, Tuning};
use crate::bitmap::BitRing;
use crate::cc::Pressure;
use crate::path::PathSet;
use crate::requestor::Connection;
use crate::stats::QpStats;
use crate::time::{Instant, earlier};
use crate::work::{Completion, Memory, PostError, Transmit};

pub(crate) use self::place::Outcome;

/// Attributes of RTR.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveLimits {
    pub(crate) rq_psn: Psn,
    /// PSNs.
    pub(crate) window: u32,
    pub(crate) max_wimm: u16,
    pub(crate) trim_nack: bool,
    pub(crate) dynamic_mpr: bool,
    pub(crate) svc_time: bool,
}

/// What the responder needs of its surroundings.
pub(crate) struct Env<'a> {
    pub(crate) now: Instant,
    /// The port that the packet arrived on, if that is known.
    pub(crate) port: Option<PortNum>,
    pub(crate) memory: &'a mut dyn Memory,
    pub(crate) stats: &'a mut QpStats,
}

/// The last word of a queue pair that fails.
#[derive(Clone, Copy, Debug)]
enum Parting {
    /// Transport NAK: the request was wrong.
    Nak { psn: Psn, syndrome: u8 },
    /// `UNEXP_EVENT`: this side was (§6.3 step 2).
    Nack(Nack),
}

pub(crate) struct Responder {
    conn: Connection,
    /// `window` is the current one.
    limits: ReceiveLimits,
    /// The largest window that the peer was ever told, in PSNs.
    announced: u32,
    remote_write: bool,
    /// PSNs whose write failed the access check once; `None` = no such patience (P28).
    spared: Option<BitRing>,
    /// Everything up to here was received; `ePSN` is the next.
    cack_psn: Psn,
    max_rcv_psn: Psn,
    /// Per PSN above `cack_psn`: received, ends a message, had its `a` bit set.
    received: BitRing,
    last: BitRing,
    asked: BitRing,
    /// Received, and in no SACK yet.
    unshown: BitRing,
    unshown_count: u32,
    ooo_count: u32,
    rcvd_bytes: u64,
    messages: u32,
    lowest_unsacked_psn: Psn,
    stash: Stash,
    recv: RecvQueue,
    answers: Answers,
    /// How full the receiving side is; `None` = nobody says.
    pressure: Option<Pressure>,
    /// The peer is to be told that its request failed; goes out even in the error state.
    parting: Option<Parting>,
    /// Destroyed by the application: nothing new is taken, what was taken is still acknowledged.
    lingering: bool,
}

impl Responder {
    pub(crate) fn new(create: &QpCreate) -> Self {
        let window = u32::from(create.max_mpr) * 128;
        Self {
            conn: Connection::NONE,
            limits: ReceiveLimits {
                rq_psn: Psn::new(0),
                window,
                max_wimm: create.max_wimm,
                trim_nack: false,
                dynamic_mpr: false,
                svc_time: false,
            },
            announced: window,
            remote_write: false,
            spared: create.tuning.spare_first_violation.then(|| BitRing::new(window)),
            cack_psn: Psn::new(0),
            max_rcv_psn: Psn::new(0),
            received: BitRing::new(window),
            last: BitRing::new(window),
            asked: BitRing::new(window),
            unshown: BitRing::new(window),
            unshown_count: 0,
            ooo_count: 0,
            rcvd_bytes: 0,
            messages: 0,
            lowest_unsacked_psn: Psn::new(0),
            stash: Stash::new(window, create.max_wimm),
            recv: RecvQueue::new(create.rq_depth),
            answers: Answers::new(&create.tuning),
            pressure: None,
            parting: None,
            lingering: false,
        }
    }

    // protocol.md §2.2, Table 7-5
    pub(crate) fn start(&mut self, conn: Connection, limits: ReceiveLimits) {
        self.conn = conn;
        self.limits = limits;
        self.announced = limits.window;
        self.answers.allow_nacks_for(limits.window);
        self.cack_psn = limits.rq_psn.sub(1);
        self.max_rcv_psn = self.cack_psn;
        self.lowest_unsacked_psn = self.cack_psn;
    }

    /// protocol.md §5.4. What was received beyond a shrunk window stays received.
    pub(crate) fn set_window(&mut self, window: u32) {
        self.limits.window = window;
        self.announced = self.announced.max(window);
    }

    pub(crate) fn set_remote_write(&mut self, remote_write: bool) {
        self.remote_write = remote_write;
    }

    pub(crate) fn reset(&mut self, tuning: &Tuning) {
        self.received.clear_all();
        self.last.clear_all();
        self.asked.clear_all();
        self.unshown.clear_all();
        if let Some(spared) = &mut self.spared {
            spared.clear_all();
        }
        self.unshown_count = 0;
        (self.ooo_count, self.rcvd_bytes, self.messages) = (0, 0, 0);
        self.stash.clear();
        self.recv.clear();
        self.answers = Answers::new(tuning);
        self.pressure = None;
        self.parting = None;
        self.lingering = false;
    }

    /// protocol.md §5.9: nothing but a NAK goes out; stashed immediates are discarded.
    pub(crate) fn fail(&mut self) {
        self.answers.clear();
        self.stash.clear();
        self.recv.fail();
    }

    /// protocol.md §11, P27
    pub(crate) fn set_pressure(&mut self, used: u32, capacity: u32) {
        self.pressure.get_or_insert_default().observe(used, capacity);
    }

    pub(crate) fn linger(&mut self) {
        self.lingering = true;
        self.recv.clear();
    }

    pub(crate) fn post(&mut self, wr_id: u64) -> Result<(), PostError> {
        self.recv.post(wr_id)
    }

    pub(crate) fn poll_delivered(&mut self) -> Option<Completion> {
        self.recv.poll_delivered(self.conn.dest_qpn)
    }

    pub(crate) fn poll_flushed(&mut self) -> Option<Completion> {
        self.recv.poll_flushed(self.conn.dest_qpn)
    }

    pub(crate) fn cack_psn(&self) -> Psn {
        self.cack_psn
    }

    pub(crate) fn ooo_count(&self) -> u32 {
        self.ooo_count
    }

    /// Is there an answer to send?
    pub(crate) fn has_answers(&self) -> bool {
        self.parting.is_some() || self.answers.any()
    }

    pub(crate) fn end_of_batch(&mut self) {
        self.answers.end_of_batch();
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.answers.handle_timeout(now);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        earlier(self.answers.hold_until(), self.answers.duplicate_at())
    }

    /// The next answer, on a path of this side's choice.
    pub(crate) fn poll_control(
        &mut self,
        paths: &mut PathSet,
        room: PortSet,
        now: Instant,
        stats: &mut QpStats,
    ) -> Option<Transmit> {
        if !self.has_answers() {
            return None;
        }
        let ev = paths.control(room, self.answers.next_arrived(), now)?;
        let entry = paths.entry(ev);
        let (bth, headers) = self.next_answer(now, stats)?;
        Some(Transmit {
            bth: Bth {
                p_key: self.conn.p_key,
                ..bth
            },
            headers,
            ev: entry.ev,
            path: ev,
            port: entry.port,
            class: TrafficClass::Control,
            ect: false,
            payload: None,
            is_retransmission: false,
        })
    }

    fn next_answer(&mut self, now: Instant, stats: &mut QpStats) -> Option<(Bth, Headers)> {
        let dqp = self.conn.dest_qpn;
        match self.parting.take() {
            Some(Parting::Nak { psn, syndrome }) => {
                stats.acks_sent += 1;
                let aeth = Aeth {
                    syndrome,
                    msn: self.messages,
                };
                return Some((Bth::new(Opcode::Ack, dqp, psn), Headers::Ack(aeth)));
            }
            Some(Parting::Nack(nack)) => {
                stats.nacks_sent += 1;
                return Some(self.write_nack(&nack));
            }
            None => {}
        }
        // §6.4: SACK before Transport ACK.
        if let Some(trigger) = self.answers.take_sack() {
            stats.sacks_sent += 1;
            let (seth, state) = self.build_sack(&trigger, now);
            let next = seth.bitmap_base().add(64);
            if trigger.probe_id.is_some() && next.diff(self.max_rcv_psn) <= 0 {
                self.answers.continue_probe(trigger);
            }
            self.answers.sack_built(self.unshown_count > 0);
            let bth = Bth {
                rtx: trigger.rtx,
                ..Bth::new(Opcode::Sack, dqp, self.cack_psn)
            };
            return Some((bth, Headers::Sack(seth, Some(state))));
        }
        if self.answers.take_ack() {
            // §6.7: everything up to cack_psn was processed.
            stats.acks_sent += 1;
            let aeth = Aeth {
                syndrome: Aeth::ACK,
                msn: self.messages,
            };
            return Some((Bth::new(Opcode::Ack, dqp, self.cack_psn), Headers::Ack(aeth)));
        }
        let nack = self.answers.take_nack()?;
        stats.nacks_sent += 1;
        Some(self.write_nack(&nack))
    }

    /// §6.8
    fn write_nack(&self, nack: &Nack) -> (Bth, Headers) {
        let dqp = self.conn.dest_qpn;
        let neth = Neth {
            reason: nack.reason,
            vendor_info: 0,
            entropy: nack.entropy,
            spdcid: self.conn.qpn.low16(),
            dpdcid: dqp.low16(),
            nack_psn: nack.psn,
            tx_timestamp: nack.tx_timestamp,
        };
        let bth = Bth {
            rtx: nack.rtx,
            ..Bth::new(Opcode::Nack, dqp, nack.psn)
        };
        (bth, Headers::Nack(neth))
    }
}

/// A ring without allocation after its creation.
#[derive(Clone, Debug)]
struct Ring<T> {
    slots: Box<[T]>,
    head: usize,
    len: usize,
}

impl<T: Copy + Default> Ring<T> {
    fn new(capacity: usize) -> Self {
        Self {
            slots: vec![T::default(); capacity].into_boxed_slice(),
            head: 0,
            len: 0,
        }
    }

    /// False if full.
    fn push(&mut self, value: T) -> bool {
        if self.len == self.slots.len() {
            return false;
        }
        let at = (self.head + self.len) % self.slots.len();
        self.slots[at] = value;
        self.len += 1;
        true
    }

    fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let value = self.slots[self.head];
        self.head = (self.head + 1) % self.slots.len();
        self.len -= 1;
        Some(value)
    }

    fn first(&self) -> Option<T> {
        (self.len > 0).then(|| self.slots[self.head])
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}
