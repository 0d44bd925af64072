//! The MRC state machines, without input or output.
//!
//! Time, randomness, packets and memory are arguments; nothing here knows an operating system. There are four families
//! of methods and nothing else: getters; `handle_*` (something happened); `poll_*` (what should go out);
//! `next_timeout()`. All memory of a [`Qp`] is allocated when it is made.

#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod addr;
mod attr;
mod bitmap;
pub mod cc;
mod limit;
mod path;
mod peer;
pub mod profile;
mod qp;
mod qpcc;
mod requestor;
mod responder;
mod rtt;
mod stall;
mod stats;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod time;
mod work;

pub use addr::{AddrError, AddressMap, NodeAddrs};
pub use attr::{
    EvEntry, InitAttr, ModifyAttr, PathConfig, PeerCaps, QpCreate, RetryAttr, RtrAttr, RtsAttr, Tuning, Universe,
};
pub use path::{EvState, EvView, Happening, PathCounts, Reason};
pub use peer::{
    EndpointDrop, EndpointLimits, EndpointOps, EndpointReply, EndpointRequest, EvProbe, EvProbeAnswer, EvProbeResult,
    MAX_EV_PROBES, Peer, RequestClass,
};
pub use qp::{Qp, QpState};
pub use qpcc::Qpcc;
pub use stats::QpStats;
pub use time::{Instant, Stall, ack_timeout_ns};
pub use work::{
    AccessError, Completion, CreateError, Cx, Disposition, DropReason, Fragment, Memory, NoMemory, PostError, QpEvent,
    Queue, SendRequest, Shortage, StateError, Status, Transmit, UniverseError,
};
