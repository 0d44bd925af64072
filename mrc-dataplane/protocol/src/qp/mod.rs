//! One queue pair: the two roles, the paths, and the state that says which of them is at work.

mod absence;
mod attributes;
mod ends;
mod state;

use alloc::collections::VecDeque;

use mrc_wire::{Headers, Packet, PortNum, PortSet, Psn, Qpn};

use crate::attr::{EvEntry, QpCreate, Tuning};
use crate::path::{EvState, EvView, Happening, PathCounts, PathSet};
use crate::requestor::{Connection, Env, Failure, Requestor};
use crate::responder::{self, Outcome, Responder};
use crate::stall::Stalls;
use crate::stats::QpStats;
use crate::time::{Instant, earlier};
use crate::work::{
    Completion, CreateError, Cx, Disposition, DropReason, NoMemory, PostError, QpEvent, SendRequest, Shortage, Status,
    Transmit,
};

pub use self::state::QpState;

/// A queue pair: requestor, responder and path set, with all their memory.
///
/// Order of calls. `handle_packet` for each packet of a batch, then [`Qp::end_of_batch`]; [`Qp::handle_timeout`] once
/// [`Qp::next_timeout`] has come; `handle_send` and `handle_recv` as work is posted. After any of them:
/// [`Qp::poll_transmit`] until `None`, [`Qp::poll_completion`] until `None`, [`Qp::poll_event`] until `None`, and look
/// at [`Qp::next_timeout`] again. When `Cx::cc` is shared, what one queue pair hears may open the window for another:
/// those with [`Qp::has_data`] are to be polled too.
pub struct Qp {
    state: QpState,
    qpn: Qpn,
    tuning: Tuning,
    /// Limits of creation.
    max_mpr: u8,
    max_wimm: u16,
    fabric_trims: bool,
    conn: Connection,
    requestor: Requestor,
    responder: Responder,
    paths: PathSet,
    events: VecDeque<QpEvent>,
    stats: QpStats,
    /// When this engine was away.
    stalls: Stalls,
    now: Instant,
    lingering: bool,
}

const EVENTS: usize = 4;

impl Qp {
    /// A queue pair in RESET. Every port of its universe counts as up until [`Qp::handle_ports`] says otherwise.
    pub fn new(create: QpCreate) -> Result<Self, CreateError> {
        if !(1..=32768).contains(&create.sq_depth) {
            return Err(CreateError::SqDepth(create.sq_depth));
        }
        if create.rq_depth > 1 << 24 {
            return Err(CreateError::RqDepth(create.rq_depth));
        }
        if create.max_mpr == 0 || create.max_wimm == 0 {
            return Err(CreateError::Limit);
        }
        if create.tuning.sack_gen_threshold_bytes > Tuning::MAX_SACK_GEN_THRESHOLD
            || create.tuning.sack_hold_ns > Tuning::MAX_SACK_HOLD_NS
        {
            return Err(CreateError::Tuning);
        }
        let paths = PathSet::new(&create.path, create.seed)?;
        Ok(Self {
            state: QpState::Reset,
            qpn: create.qpn,
            max_mpr: create.max_mpr,
            max_wimm: create.max_wimm,
            fabric_trims: create.path.fabric_trims,
            conn: Connection::NONE,
            requestor: Requestor::new(&create, paths.len()),
            responder: Responder::new(&create),
            paths,
            events: VecDeque::with_capacity(EVENTS),
            stats: QpStats::default(),
            stalls: Stalls::default(),
            now: Instant::ZERO,
            lingering: false,
            tuning: create.tuning,
        })
    }

    // ---- getters

    /// The state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Own number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The peer's, from RTR on.
    pub fn dest_qpn(&self) -> Qpn {
        self.conn.dest_qpn
    }

    /// Counters since creation.
    pub fn stats(&self) -> &QpStats {
        &self.stats
    }

    /// Every path, in the order of the universe.
    pub fn ev_states(&self) -> impl Iterator<Item = EvView> + '_ {
        self.paths.views()
    }

    /// Paths withdrawn and returned, by port. Unlike events, none of these is lost when nobody polls; they wrap.
    pub fn path_counts(&self) -> impl Iterator<Item = PathCounts> + '_ {
        self.paths.counts()
    }

    /// What happened to paths in which state, and how often, since creation: the cells of the table of protocol.md §8.2.
    pub fn path_happenings(&self) -> impl Iterator<Item = (Happening, EvState, u64)> + '_ {
        self.paths.met()
    }

    /// Send requests whose completion was not polled.
    pub fn sq_outstanding(&self) -> u32 {
        self.requestor.outstanding()
    }

    /// Is there data that waits for the window, a port or a path?
    pub fn has_data(&self) -> bool {
        self.state == QpState::Rts && self.requestor.has_data()
    }

    /// Is there an answer to the peer that waits for a port?
    pub fn has_answers(&self) -> bool {
        self.responder.has_answers()
    }

    /// Requestor: the PSN of the next packet that was never sent.
    pub fn next_psn(&self) -> Psn {
        self.requestor.next_psn()
    }

    /// Requestor: everything up to here was received by the peer.
    pub fn unack_psn(&self) -> Psn {
        self.requestor.unack_psn()
    }

    /// Responder: everything up to here was received.
    pub fn cack_psn(&self) -> Psn {
        self.responder.cack_psn()
    }

    /// Responder: packets received above [`Qp::cack_psn`].
    pub fn ooo_count(&self) -> u32 {
        self.responder.ooo_count()
    }

    /// Smoothed round trip and its variation in ns; 0 before the first sample.
    pub fn rtt_ns(&self) -> (u64, u64) {
        self.requestor.rtt_ns()
    }

    /// The retry counter R (protocol.md §5.7).
    pub fn retries(&self) -> u32 {
        self.requestor.retries()
    }

    /// When [`Qp::handle_timeout`] wants to be called. Changes with every other call.
    pub fn next_timeout(&self) -> Option<Instant> {
        let send = match self.state {
            QpState::Rts if !self.lingering => self.requestor.next_timeout(&self.paths, self.now),
            _ => None,
        };
        let receive = if self.state.permits().requests {
            self.responder.next_timeout()
        } else {
            None
        };
        earlier(send, receive)
    }

    // ---- work

    /// Posts a write. RTS, or ERR (flushed at once).
    pub fn handle_send(&mut self, request: &SendRequest, now: Instant) -> Result<(), PostError> {
        if !self.state.permits().post_send || self.lingering {
            return Err(PostError::State(self.state));
        }
        self.requestor.post(request)?;
        if self.state == QpState::Rts {
            let now = self.clock(now);
            self.requestor.review_paths(&self.paths, now, &mut self.stats);
        }
        Ok(())
    }

    /// Posts a receive request. INIT, RTR, RTS, or ERR (flushed at once).
    pub fn handle_recv(&mut self, wr_id: u64) -> Result<(), PostError> {
        if !self.state.permits().post_recv || self.lingering {
            return Err(PostError::State(self.state));
        }
        self.responder.post(wr_id)
    }

    /// The next completion. Those of one queue come in posting order.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        if let Some(completion) = self.responder.poll_delivered() {
            return Some(completion);
        }
        // protocol.md §5.9: sends, then receives.
        self.requestor
            .poll_completion(self.conn.dest_qpn)
            .or_else(|| self.responder.poll_flushed())
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        self.events.pop_front().or_else(|| self.paths.poll_event())
    }

    // ---- network

    /// A packet for this queue pair arrived on `port`, from one of the peer's addresses to one of the own (the caller
    /// has checked both, protocol.md §3).
    pub fn handle_packet(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, port: PortNum) -> Disposition {
        self.notice_absence(cx);
        let permits = self.state.permits();
        let request = matches!(packet.headers, Headers::Write { .. } | Headers::Probe(_));
        // protocol.md §2.2
        if !(if request {
            permits.requests
        } else {
            permits.responses && !self.lingering
        }) {
            return Disposition::Dropped(DropReason::State);
        }
        // wire-format.md §7.1
        if (packet.bth.p_key ^ self.conn.p_key) & 0x7fff != 0 {
            return Disposition::Dropped(DropReason::PKey);
        }
        self.paths.heard(port, self.now);
        if request {
            self.paths.note_inbound();
            self.handle_request(cx, packet, port)
        } else {
            self.handle_response(cx, packet)
        }
    }

    fn handle_request(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, port: PortNum) -> Disposition {
        let mut env = responder::Env {
            now: self.now,
            port: Some(port),
            memory: cx.memory,
            stats: &mut self.stats,
        };
        let outcome = match packet.headers {
            Headers::Probe(_) => self.responder.on_probe(packet, &mut env),
            _ => self.responder.on_write(packet, &mut env),
        };
        match outcome {
            Outcome::Accepted => Disposition::Accepted,
            Outcome::Dropped(reason) => Disposition::Dropped(reason),
            Outcome::Refused(refusal) => {
                // The NAK is owed; everything else ends (protocol.md §5.9).
                self.fail(Failure::FLUSH, Some(refusal.event()), cx);
                Disposition::Accepted
            }
        }
    }

    /// A write for this queue pair arrived that cannot be taken this time, although its headers could be read: there was no
    /// buffer for it, or something else that the caller has too little of. The peer is told, and sends it again later
    /// (protocol.md §6.3 step 2). As [`Qp::handle_packet`] for everything else.
    pub fn handle_refused(&mut self, now: Instant, packet: &Packet<'_>, why: Shortage) -> Disposition {
        self.clock(now);
        if !self.state.permits().requests {
            return Disposition::Dropped(DropReason::State);
        }
        if (packet.bth.p_key ^ self.conn.p_key) & 0x7fff != 0 {
            return Disposition::Dropped(DropReason::PKey);
        }
        let mut env = responder::Env {
            now: self.now,
            port: None,
            memory: &mut NoMemory,
            stats: &mut self.stats,
        };
        match self.responder.on_shortage(packet, why, &mut env) {
            Outcome::Dropped(reason) => Disposition::Dropped(reason),
            Outcome::Accepted | Outcome::Refused(_) => Disposition::Accepted,
        }
    }

    fn handle_response(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Disposition {
        let (requestor, mut env) = self.sending(cx);
        let psn = packet.bth.psn;
        let result = match &packet.headers {
            // wire-format.md §8: the copies agree.
            Headers::Sack(seth, _) if seth.cack_psn != psn => Err(DropReason::Implausible),
            Headers::Nack(neth) if neth.nack_psn != psn => Err(DropReason::Implausible),
            Headers::Sack(seth, state) => requestor
                .on_sack(packet.bth.rtx, seth, state.as_ref(), &mut env)
                .map(|()| None),
            Headers::Nack(neth) => requestor.on_nack(neth, &mut env),
            Headers::Ack(aeth) => requestor.on_ack(psn, *aeth, &mut env),
            _ => Err(DropReason::NotForQp),
        };
        match result {
            Ok(None) => Disposition::Accepted,
            Ok(Some(failure)) => {
                self.fail(failure, Some(QpEvent::Fatal), cx);
                Disposition::Accepted
            }
            Err(reason) => Disposition::Dropped(reason),
        }
    }

    /// How full the queue is that this queue pair's packets come from: `used` of `capacity` places of the receive ring, or of
    /// what waits for placement. From half on, its SACKs ask the peer for less (protocol.md §11, P27). Without a call they
    /// never do.
    pub fn handle_pressure(&mut self, used: u32, capacity: u32) {
        self.responder.set_pressure(used, capacity);
    }

    /// All packets that were at hand have been handled: what they call for is answered now (protocol.md §6.4).
    pub fn end_of_batch(&mut self, now: Instant) {
        self.clock(now);
        self.responder.end_of_batch();
    }

    /// The next packet to send, on one of the ports of `room` (those with a free transmit slot): control packets, then
    /// retransmissions, then probes, then new data.
    pub fn poll_transmit(&mut self, cx: &mut Cx<'_>, room: PortSet) -> Option<Transmit> {
        self.clock(cx.now);
        let control = self
            .responder
            .poll_control(&mut self.paths, room, self.now, &mut self.stats);
        if let Some(control) = control {
            return Some(control);
        }
        if self.state != QpState::Rts || self.lingering {
            return None;
        }
        let (requestor, mut env) = self.sending(cx);
        requestor
            .poll_retransmission(&mut env, room)
            .or_else(|| requestor.poll_probe(&mut env, room))
            .or_else(|| requestor.poll_new(&mut env, room))
    }

    /// A packet from `poll_transmit` could not be sent after all.
    pub fn handle_unsent(&mut self, cx: &mut Cx<'_>, transmit: &Transmit) {
        self.clock(cx.now);
        if self.state == QpState::Rts && transmit.bth.opcode.is_write() {
            let (requestor, mut env) = self.sending(cx);
            requestor.unsent(transmit.bth.psn, &mut env);
        }
        // A lost control packet or probe is no disaster: the protocol knows how to do without.
    }

    /// Does what is due. Afterwards [`Qp::next_timeout`] is later than `cx.now`.
    pub fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.notice_absence(cx);
        let now = self.now;
        if self.state.permits().requests {
            self.responder.handle_timeout(now);
        }
        if self.state != QpState::Rts || self.lingering {
            return;
        }
        let (requestor, mut env) = self.sending(cx);
        if let Some(failure) = requestor.handle_timeout(&mut env) {
            self.fail(failure, Some(QpEvent::Fatal), cx);
        }
    }

    /// The ports that are up here, and those that the peer says are up at its end ([`PortSet::first`]`(31)` if it has
    /// said nothing).
    pub fn handle_ports(&mut self, cx: &mut Cx<'_>, local_up: PortSet, peer_up: PortSet) {
        let now = self.clock(cx.now);
        let lost_here = self.paths.set_ports(local_up, peer_up, now);
        if self.state == QpState::Rts && !self.lingering {
            let (requestor, mut env) = self.sending(cx);
            requestor.withdraw(lost_here, &mut env);
            requestor.review_paths(env.paths, now, env.stats);
        }
    }

    /// A path to send an EV probe on now, to learn where answers may go: only a queue pair that receives and sends no data
    /// has one, at most once per round trip (protocol.md §6.10). Say what became of it: [`Qp::handle_ev_probe`].
    pub fn poll_ev_probe(&mut self, cx: &Cx<'_>) -> Option<EvEntry> {
        let now = self.clock(cx.now);
        if !self.state.permits().requests {
            return None;
        }
        let rtt_ns = self.requestor.srtt_ns(cx.cc);
        let index = self.paths.poll_reverse_probe(now, rtt_ns)?;
        Some(self.paths.entry(index))
    }

    /// An EV probe on this path was answered, or not in time (protocol.md §8.2).
    pub fn handle_ev_probe(&mut self, cx: &Cx<'_>, path: EvEntry, answered: bool) {
        let now = self.clock(cx.now);
        let rtt_ns = self.requestor.srtt_ns(cx.cc);
        if let Some(index) = self.paths.find(path) {
            self.paths.handle_ev_probe(index, answered, now, rtt_ns);
        }
    }

    /// The data of the request in `slot` cannot be read: it fails with `status`, and the queue pair with it. One that lingers has
    /// no requests any more, and goes on acknowledging.
    pub fn handle_local_fault(&mut self, cx: &mut Cx<'_>, slot: u32, status: Status) {
        if self.state == QpState::Rts && !self.lingering {
            let failure = self.requestor.local_fault(slot, status);
            self.fail(failure, Some(QpEvent::Fatal), cx);
        }
    }

    // ---- parts

    /// The caller's clock; should it run backwards, it stands still here.
    fn clock(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    fn sending<'a>(&'a mut self, cx: &'a mut Cx<'_>) -> (&'a mut Requestor, Env<'a>) {
        if let Some(stall) = cx.stall {
            self.note_stall(stall, cx.cc);
        }
        let env = Env {
            now: self.now,
            cc: cx.cc,
            paths: &mut self.paths,
            stalls: &self.stalls,
            stats: &mut self.stats,
        };
        (&mut self.requestor, env)
    }
}
