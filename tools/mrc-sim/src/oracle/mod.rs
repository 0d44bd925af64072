//! The oracles: what must hold after every step, written from the specification and not from the implementation.
//!
//! Each flow (one direction of a connection) has its own plain model of both ends: [`flow`] numbers the packets,
//! [`requestor`] judges what is sent, [`responder`] what becomes of what arrives and what is answered, [`completion`] what applications are told.

mod answers;
pub mod balance;
mod budget;
pub mod completion;
pub mod flight;
pub mod flow;
pub mod pace;
pub mod path;
pub mod ports;
pub mod probes;
pub mod requestor;
pub mod responder;
pub mod shortage;

use serde::{Deserialize, Serialize};
use std::fmt;

/// Which promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Oracle {
    /// Bytes at the destination are those of the source.
    Data,
    /// Memory changes only where and when a packet says so.
    Memory,
    /// Completions: exact, once, in posting order, true.
    Completion,
    /// Receive completions: in send order, after all earlier data.
    Receive,
    /// Segmentation, numbering and flags of writes.
    Segmentation,
    /// The responder's window bounds what is outstanding.
    Window,
    /// Limit of `WriteIMM` messages in flight.
    WriteImm,
    /// Only eligible paths carry packets.
    Path,
    /// Hosts tell each other which ports are up, and agree in the end; EV probes do no harm.
    Ports,
    /// Equal load on planes and paths.
    Balance,
    /// Retransmissions are needed and take a fresh path.
    Retransmission,
    /// SACKs say what was received, no more and no less.
    Sack,
    /// NACKs speak of packets that earned them.
    Nack,
    /// Transport ACKs and NAKs.
    TransportAck,
    /// What is due is sent.
    Duty,
    /// Queue pair states and what they permit.
    State,
    /// Congestion accounting.
    Inflight,
    /// Timers move on.
    Timer,
    /// No memory after creation.
    Allocation,
    /// Everything ends, and does not take for ever.
    Liveness,
    /// Damaged packets die at the ICRC.
    Icrc,
    /// Serialised packets read back as what was sent.
    Wire,
    /// The run itself is worth something: enough packets, and a fault that acted.
    Worth,
    /// The protocol does not panic.
    Panic,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Which.
    pub oracle: Oracle,
    /// When.
    pub at_ns: u64,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {:.3} us: {}",
            self.oracle,
            self.at_ns as f64 / 1000.0,
            self.detail
        )
    }
}

/// What a check returns; the world adds the instant.
pub type Checked = Result<(), Breach>;

/// A violation without its instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach(pub Oracle, pub String);

/// Returns a [`Breach`] of the oracle unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $oracle:expr, $($arg:tt)*) => {
        if !$condition {
            return Err($crate::oracle::Breach($oracle, format!($($arg)*)));
        }
    };
}
