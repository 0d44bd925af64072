//! What goes in and out of a queue pair: work requests, completions, packets to send, events, the caller's memory.

use mrc_wire::{Bth, Ev, Headers, NackReason, Payload, PortNum, Qpn, TrafficClass};
use thiserror::Error;

use crate::path::Reason;
use crate::qpcc::Qpcc;
use crate::time::{Instant, Stall};

/// What every `handle_*` and `poll_transmit` may use of the caller's world.
pub struct Cx<'a> {
    /// The caller's clock, never before a previous one.
    pub now: Instant,
    /// Congestion control towards the peer; always the same one for a queue pair between two resets.
    pub cc: &'a mut Qpcc,
    /// Where payload lands. [`NoMemory`] where no packet is handled.
    pub memory: &'a mut dyn Memory,
    /// The caller's last stall, if it had one: losses that overlap it are no path's fault (protocol.md §5.6).
    pub stall: Option<Stall>,
}

impl<'a> Cx<'a> {
    /// Without a stall.
    pub fn new(now: Instant, cc: &'a mut Qpcc, memory: &'a mut dyn Memory) -> Self {
        Self {
            now,
            cc,
            memory,
            stall: None,
        }
    }
}

/// Memory that peers may write to.
pub trait Memory {
    /// May `[va, va + len)` be written with this key? `len` > 0.
    fn check(&mut self, r_key: u32, va: u64, len: u64) -> Result<(), AccessError>;

    /// Writes the payload at `va`, which [`Memory::check`] has just permitted.
    fn place(&mut self, r_key: u32, va: u64, payload: &Payload<'_>) -> Result<(), AccessError>;
}

/// Memory in which nothing may be written.
pub struct NoMemory;

impl Memory for NoMemory {
    fn check(&mut self, _: u32, _: u64, _: u64) -> Result<(), AccessError> {
        Err(AccessError::Key)
    }

    fn place(&mut self, _: u32, _: u64, _: &Payload<'_>) -> Result<(), AccessError> {
        Err(AccessError::Key)
    }
}

/// Why a peer may not write there; the peer learns only that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AccessError {
    /// No such region in the protection domain of the queue pair.
    #[error("no region with this key")]
    Key,
    /// The region does not permit remote writes.
    #[error("region without remote write permission")]
    Permission,
    /// Outside the region.
    #[error("address range outside the region")]
    Bounds,
    /// The memory is gone.
    #[error("memory cannot be accessed")]
    Fault,
    /// It may be written, but not now: the packet is NACKed, and comes again (protocol.md §6.3 step 2).
    #[error("memory is busy")]
    Busy(Shortage),
    /// The caller has failed for good: the peer's request fails, and the queue pair with it (`UNEXP_EVENT`).
    #[error("internal failure")]
    Broken,
}

/// What a packet could not be taken for, this time (protocol.md §6.3 step 2, Table 7-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shortage {
    /// Memory for the bitmap. A queue pair has all of its own from the start; a device that shares it may not.
    Bitmap,
    /// A buffer for the packet: a receive ring that overran.
    PacketBuffer,
    /// Anything else that passes.
    Other,
}

impl Shortage {
    pub(crate) fn reason(self) -> NackReason {
        match self {
            Self::Bitmap => NackReason::NO_BITMAP,
            Self::PacketBuffer => NackReason::NO_PKT_BUFFER,
            Self::Other => NackReason::NO_RESOURCE,
        }
    }
}

/// A write to the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The application's own, given back with the completion.
    pub wr_id: u64,
    /// The caller's name for the source of the data, given back in [`Fragment`] and [`Completion`].
    pub slot: u32,
    /// Bytes, at most 2^31.
    pub len: u32,
    /// Where they go.
    pub remote_addr: u64,
    /// Key of the peer's region.
    pub r_key: u32,
    /// Makes it a WriteIMM: the peer's receive completion carries these bytes.
    pub imm: Option<[u8; 4]>,
    /// The peer's receive completion is a solicited event.
    pub solicited: bool,
    /// A completion is wanted.
    pub signaled: bool,
}

/// Which queue a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// A send request ended.
    Send,
    /// A receive request was consumed, or flushed.
    Recv,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As asked.
    Success,
    /// The own memory could not be read.
    LocalProtection,
    /// The queue pair had failed before, or failed for another request.
    Flushed,
    /// Transport NAK 0x61.
    RemoteInvalidRequest,
    /// Transport NAK 0x62.
    RemoteAccess,
    /// Transport NAK 0x63, an unknown NAK, or a NACK `UNEXP_EVENT`.
    RemoteOperation,
    /// The peer did not answer within the retry budget.
    RetryExceeded,
}

/// The end of a request. Those of one queue come in posting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// As posted.
    pub wr_id: u64,
    /// Send or receive.
    pub queue: Queue,
    /// How it ended.
    pub status: Status,
    /// Receive: bytes the peer wrote with this message. Send: bytes of the request.
    pub byte_len: u32,
    /// The request carried (send) or delivered (receive) an immediate.
    pub imm: Option<[u8; 4]>,
    /// Receive: the peer asked for a solicited event.
    pub solicited: bool,
    /// The peer's queue pair.
    pub src_qp: Qpn,
    /// Send: as posted; else 0.
    pub slot: u32,
    /// `false`: the application asked for no completion; this only says that the slot is free.
    pub signaled: bool,
}

/// Part of a send request's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Of the send request.
    pub slot: u32,
    /// First byte, counted from the start of the request's data.
    pub offset: u32,
    /// Bytes; may be 0.
    pub len: u32,
}

/// A packet to send. `tx_timestamp` is already set from `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Base header; `pad` is left to the builder.
    pub bth: Bth,
    /// The headers after it.
    pub headers: Headers,
    /// The path: goes into source port and flow label.
    pub ev: Ev,
    /// Which path of the universe that is, from 0: for a header template per path; [`crate::Qp::encap`] has its outer
    /// addresses.
    pub path: u16,
    /// The port that it must leave from.
    pub port: PortNum,
    /// DSCP.
    pub class: TrafficClass,
    /// ECN-capable; else Not-ECT.
    pub ect: bool,
    /// The data of a write.
    pub payload: Option<Fragment>,
    /// A write whose PSN was sent before.
    pub is_retransmission: bool,
}

/// What became of an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Processed, duplicates included.
    Accepted,
    /// No effect.
    Dropped(DropReason),
}

/// Why a packet that parsed had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The queue pair is in a state that does not take this packet (protocol.md §2.2).
    State,
    /// `P_Key` mismatch.
    PKey,
    /// Not a packet for a queue pair.
    NotForQp,
    /// PSN beyond the window (protocol.md §6.2).
    OutOfWindow,
    /// Trimmed, and nothing to say about it (protocol.md §6.3 step 1).
    Trimmed,
    /// A SACK, NACK or ACK that speaks of a PSN never sent (protocol.md §5.5 step 1, §5.8).
    Implausible,
    /// A NACK or NAK about a packet that is not outstanding (protocol.md §5.6, §5.8).
    NotOutstanding,
    /// A syndrome that MRC does not use (wire-format.md §7.6).
    Syndrome,
    /// The limit of protocol.md §14 left it without an answer.
    RateLimited,
    /// A write that the peer may not do, spared once (protocol.md §14, P28).
    Access,
}

impl DropReason {
    /// How many reasons there are: the size of a table indexed by `reason as usize`.
    pub const COUNT: usize = Self::Access as usize + 1;
}

/// Something the application or the controller should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The queue pair failed as requestor, or for a local reason.
    Fatal,
    /// This side refused a request of the peer as invalid; the queue pair failed.
    RequestError,
    /// This side refused a write of the peer; the queue pair failed.
    AccessError,
    /// A path left the active set.
    EvBad {
        /// The path.
        ev: Ev,
        /// Its port.
        port: PortNum,
        /// Why.
        reason: Reason,
        /// Events of this kind that were dropped before this one because nobody polled.
        lost_before: u32,
    },
    /// A path came back.
    EvGood {
        /// The path.
        ev: Ev,
        /// Its port.
        port: PortNum,
        /// As above.
        lost_before: u32,
    },
}

/// Why a queue pair cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CreateError {
    /// Send queue depth.
    #[error("send queue depth {0} is outside 1 to 32768")]
    SqDepth(u32),
    /// Receive queue depth.
    #[error("receive queue depth {0} is above 2^24")]
    RqDepth(u32),
    /// `max_mpr` or `max_wimm` is 0.
    #[error("max_mpr and max_wimm must be at least 1")]
    Limit,
    /// No EV, or too many for the mode.
    #[error("{0} entropy values: need 1 to 16384")]
    Universe(usize),
    /// A tuning value out of range.
    #[error("tuning: sack_gen_threshold_bytes must be at most 65536, sack_hold_ns at most 1 ms")]
    Tuning,
}

/// Why a queue pair cannot get other paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UniverseError {
    /// Neither in RESET nor in INIT.
    #[error("queue pair in state {0:?}: its paths can be exchanged in RESET and INIT only")]
    State(crate::QpState),
    /// Not between INIT and RESET.
    #[error("queue pair in RESET, or destroyed: its paths are exchanged with its attributes")]
    NotLive,
    /// The paths themselves.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// Why attributes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// There is no such transition.
    #[error("queue pair in state {0:?}: no transition to {1:?}")]
    Transition(crate::QpState, crate::QpState),
    /// A window of 0 or above what was announced at creation.
    #[error("{name} {value} is outside 1 to {max}, the limit set at creation")]
    Limit {
        /// Which attribute.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The limit.
        max: u32,
    },
    /// The window cannot change.
    #[error("the window is fixed: set dynamic_mpr on both sides at RTR to change it later")]
    FixedWindow,
    /// Timeout or retry counts.
    #[error("timeout must be at most 24, linear_cnt at most 7, exp_cnt at most 25")]
    Retry,
}

/// Why a request cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostError {
    /// Not in this state.
    #[error("cannot post in state {0:?}")]
    State(crate::QpState),
    /// All slots of the queue are taken.
    #[error("queue full")]
    Full,
    /// Longer than 2^31 bytes.
    #[error("length {0} is above 2^31")]
    TooLong(u32),
}
