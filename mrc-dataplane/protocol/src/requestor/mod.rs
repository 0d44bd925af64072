//! The side that writes: from work requests to packets, and from SACKs, NACKs and Transport ACKs to completions
//! (protocol.md §5).

mod ack;
mod loss;
mod nack;
mod probe;
mod queue;
mod sack;
mod segment;
mod table;
mod tail;
mod timeout;
mod window;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use mrc_wire::{PortSet, Psn, Qpn};

use self::loss::Lane;
use self::probe::Probes;
use self::queue::SendQueue;
use self::table::{State, Table};
use self::tail::Tail;
use self::timeout::Waits;
use self::window::WindowNews;
use crate::attr::{QpCreate, RetryAttr, Tuning};
use crate::cc::ReceivedCount;
use crate::path::{EvIndex, PathSet};
use crate::qpcc::Qpcc;
use crate::rtt::{Reordering, Rtt};
use crate::stall::Stalls;
use crate::stats::QpStats;
use crate::time::{BACKOFF_CLASSES, Instant};
use crate::work::{Completion, PostError, SendRequest, Status};

/// What the requestor needs of its surroundings.
pub(crate) struct Env<'a> {
    pub(crate) now: Instant,
    pub(crate) cc: &'a mut Qpcc,
    pub(crate) paths: &'a mut PathSet,
    pub(crate) stalls: &'a Stalls,
    pub(crate) stats: &'a mut QpStats,
}

/// The queue pair must go to ERR; this request ends with this status (protocol.md §5.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// `None`: no request is to blame, all are flushed.
    culprit: Option<(u32, Status)>,
}

impl Failure {
    /// No request of this side is to blame.
    pub(crate) const FLUSH: Self = Self { culprit: None };
}

/// What all packets of a connection have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) qpn: Qpn,
    pub(crate) dest_qpn: Qpn,
    pub(crate) p_key: u16,
    pub(crate) pmtu: u32,
    /// Writes may be trimmed: the fabric does it, and the peer answers.
    pub(crate) trimmable: bool,
    /// SACKs may change the window (protocol.md §5.4).
    pub(crate) dynamic_mpr: bool,
    /// Reflected timestamps may be later than they were sent (protocol.md §6.9).
    pub(crate) peer_svc_time: bool,
}

impl Connection {
    /// Before RTR.
    pub(crate) const NONE: Self = Self {
        qpn: Qpn::new(0),
        dest_qpn: Qpn::new(0),
        p_key: 0,
        pmtu: 256,
        trimmable: false,
        dynamic_mpr: false,
        peer_svc_time: false,
    };
}

/// Attributes of RTS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendLimits {
    pub(crate) sq_psn: Psn,
    /// PSNs.
    pub(crate) window: u32,
    pub(crate) max_wimm: u16,
    pub(crate) retry: RetryAttr,
}

pub(crate) struct Requestor {
    conn: Connection,
    limits: SendLimits,
    /// The own limit of the window, in PSNs.
    max_window: u32,
    window_news: Option<WindowNews>,
    sack_gen_threshold_bytes: u32,
    flow_control: bool,
    queue: SendQueue,
    table: Table,
    lanes: Vec<Lane>,
    /// Paths with a mark (rule A), in the order of their time.
    marks: VecDeque<EvIndex>,
    next_psn: Psn,
    /// Everything up to here was received by the peer.
    unack_psn: Psn,
    /// Everything up to here was carried out by the peer.
    tack_psn: Psn,
    /// Cross-check of the peer's count (protocol.md §10.5, P26).
    received: ReceivedCount,
    rtt: Rtt,
    reo: Reordering,
    /// Send time of the newest copy that was acknowledged (rule B).
    newest_acked: Option<Instant>,
    probes: Probes,
    tail: Tail,
    /// The retry counter R, and when it last grew.
    retries: u32,
    retried_at: Option<Instant>,
    waits: Waits,
}

impl Requestor {
    pub(crate) fn new(create: &QpCreate, paths: usize) -> Self {
        let window = u32::from(create.max_mpr) * 128;
        Self {
            conn: Connection::NONE,
            limits: SendLimits {
                sq_psn: Psn::new(0),
                window,
                max_wimm: 1,
                retry: RetryAttr::default(),
            },
            max_window: window,
            window_news: None,
            sack_gen_threshold_bytes: create.tuning.sack_gen_threshold_bytes,
            flow_control: create.tuning.flow_control,
            queue: SendQueue::new(create.sq_depth, create.sq_sig_all),
            table: Table::new(window, paths),
            lanes: vec![Lane::default(); paths],
            marks: VecDeque::with_capacity(paths),
            next_psn: Psn::new(0),
            unack_psn: Psn::new(0),
            tack_psn: Psn::new(0),
            received: ReceivedCount::default(),
            rtt: Rtt::default(),
            reo: Reordering::new(create.tuning.reo_min_ns),
            newest_acked: None,
            probes: Probes::default(),
            tail: Tail::default(),
            retries: 0,
            retried_at: None,
            waits: Waits::default(),
        }
    }

    // protocol.md §2.2, Table 7-4
    pub(crate) fn start(&mut self, conn: Connection, limits: SendLimits) {
        self.conn = conn;
        self.limits = limits;
        self.window_news = None;
        self.next_psn = limits.sq_psn;
        self.unack_psn = limits.sq_psn.sub(1);
        self.tack_psn = self.unack_psn;
    }

    pub(crate) fn set_retry(&mut self, retry: RetryAttr) {
        self.limits.retry = retry;
        self.waits.caution = None;
    }

    pub(crate) fn post(&mut self, request: &SendRequest) -> Result<(), PostError> {
        self.queue.post(request)
    }

    /// protocol.md §5.9: stop; the culprit fails, the rest is flushed.
    pub(crate) fn fail(&mut self, failure: Failure, env: &mut Env<'_>) {
        self.queue.fail(failure.culprit);
        self.abandon(env);
    }

    /// All state and all posted work discarded, without completions.
    pub(crate) fn reset(&mut self, tuning: &Tuning, env: &mut Env<'_>) {
        self.abandon(env);
        self.queue.clear();
        self.received = ReceivedCount::default();
        self.rtt = Rtt::default();
        self.reo = Reordering::new(tuning.reo_min_ns);
        self.retries = 0;
        self.retried_at = None;
    }

    /// The application is gone: nothing is sent any more, and nothing completes.
    pub(crate) fn discard(&mut self, env: &mut Env<'_>) {
        self.abandon(env);
        self.queue.clear();
    }

    fn abandon(&mut self, env: &mut Env<'_>) {
        for class in 0..BACKOFF_CLASSES {
            while let Some(psn) = self.table.oldest_of(class, self.unack_psn) {
                self.leave(psn, env);
                self.table.detach(psn);
            }
        }
        self.table.clear();
        self.lanes.fill(Lane::default());
        self.marks.clear();
        self.newest_acked = None;
        self.probes.clear();
        self.tail = Tail::default();
        self.waits = Waits::default();
    }

    /// The request in this slot cannot be sent.
    pub(crate) fn local_fault(&self, slot: u32, status: Status) -> Failure {
        Failure {
            culprit: self.queue.with_slot(slot).map(|counter| (counter, status)),
        }
    }

    pub(crate) fn poll_completion(&mut self, peer: Qpn) -> Option<Completion> {
        self.queue.poll(peer)
    }

    // ---- getters

    pub(crate) fn max_psn_sent(&self) -> Psn {
        self.next_psn.sub(1)
    }

    pub(crate) fn next_psn(&self) -> Psn {
        self.next_psn
    }

    pub(crate) fn unack_psn(&self) -> Psn {
        self.unack_psn
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.queue.outstanding()
    }

    pub(crate) fn has_data(&self) -> bool {
        self.table.lost_count() > 0 || self.queue.has_unsent() || self.waits.detection
    }

    pub(crate) fn rtt_ns(&self) -> (u64, u64) {
        self.rtt.measured_ns()
    }

    /// Smoothed; before the first sample the base round trip.
    pub(crate) fn srtt_ns(&self, cc: &Qpcc) -> u64 {
        self.rtt.srtt_ns(cc)
    }

    pub(crate) fn retries(&self) -> u32 {
        self.retries
    }

    /// How long the own engine must have been away for that to explain losses (protocol.md §5.6). Round trips as they are,
    /// not as they could be: on a host that is always busy, short absences are part of them.
    pub(crate) fn stall_ns(&self, cc: &Qpcc) -> u64 {
        let rtt_ns = cc.base_rtt_ns().max(self.rtt.srtt_ns(cc));
        (4 * rtt_ns).min(self.configured_t0_ns().map_or(u64::MAX, |t0_ns| t0_ns / 2))
    }

    /// Nominal bytes of a sent packet.
    fn nominal_bytes(&self, psn: Psn) -> u32 {
        self.queue
            .by_place(self.table.record(psn).wr)
            .segment(psn, self.conn.pmtu)
            .nominal_bytes()
    }

    /// A packet in flight leaves the network.
    fn leave(&self, psn: Psn, env: &mut Env<'_>) -> u32 {
        let record = self.table.record(psn);
        let bytes = self.nominal_bytes(psn);
        if record.state == State::InFlight {
            env.cc.on_leave(env.paths.entry(record.ev).port, bytes);
        }
        bytes
    }

    /// Packets in flight on ports that went down here go elsewhere at once: nobody is blamed, nothing is counted
    /// (protocol.md §5.6; MRC 1.0 §7.4.8 leaves it to rules A to C, but a link that is known to be down needs no guess).
    pub(crate) fn withdraw(&mut self, ports: PortSet, env: &mut Env<'_>) {
        if ports.is_empty() {
            return;
        }
        for index in 0..self.lanes.len() as EvIndex {
            if !ports.contains(env.paths.entry(index).port) {
                continue;
            }
            self.withdraw_lane(index, env);
        }
        // Nothing is to wait for what will not come.
        self.waits.caution = None;
    }

    /// The same for one path, whose EV is replaced: its records would speak of the new one.
    pub(crate) fn withdraw_lane(&mut self, index: EvIndex, env: &mut Env<'_>) {
        while let Some(psn) = self.table.lane_head(index, self.unack_psn) {
            self.leave(psn, env);
            self.table.detach(psn);
            self.table.lose(psn);
            self.table.record_mut(psn).timeouts = 0;
            env.stats.packets_withdrawn += 1;
        }
        if let Some(lane) = self.lanes.get_mut(usize::from(index)) {
            *lane = Lane::default();
        }
        self.marks.retain(|&other| other != index);
    }

    /// What becomes of probes on this path speaks of no path any more: its EV is replaced.
    pub(crate) fn forget_path(&mut self, index: EvIndex) {
        self.probes.forget_path(index);
    }

    /// Every path is about to be exchanged: packets in flight go elsewhere, and answers to probes say nothing any more.
    pub(crate) fn withdraw_all(&mut self, env: &mut Env<'_>) {
        for index in 0..self.lanes.len() as EvIndex {
            self.withdraw_lane(index, env);
        }
        self.probes.clear();
        self.tail.forget_path();
        self.waits.caution = None;
    }

    /// Another number of paths, while nothing is in flight.
    pub(crate) fn set_paths(&mut self, paths: usize) {
        self.table.set_paths(paths);
        self.lanes = vec![Lane::default(); paths];
        self.marks = VecDeque::with_capacity(paths);
    }

    /// A write that was polled did not go out after all.
    pub(crate) fn unsent(&mut self, psn: Psn, env: &mut Env<'_>) {
        if self.is_outstanding(psn) && self.table.record(psn).state == State::InFlight {
            self.leave(psn, env);
            self.table.detach(psn);
            self.table.lose(psn);
            self.waits.caution = self.waits.caution.map(|packets| packets + 1);
        }
    }

    /// Sent, and not ACKED.
    fn is_outstanding(&self, psn: Psn) -> bool {
        psn.diff(self.unack_psn) > 0 && psn.diff(self.max_psn_sent()) <= 0 && self.table.is_open(psn)
    }
}
