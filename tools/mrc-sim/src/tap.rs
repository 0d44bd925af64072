//! A view of a run from outside: everything that goes into and comes out of its queue pairs, in order.

use crate::host::QpSlot;
use crate::memory::{Access, HostMemory};
use crate::scenario::ConnectionPlan;
use mrc_protocol::{Completion, Disposition, Instant, QpState, Shortage, Transmit};
use mrc_wire::Packet;

/// Where and when something was seen.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Index of the connection.
    pub connection: usize,
    /// Side of the connection.
    pub side: usize,
    /// Virtual time.
    pub now: Instant,
    /// State of the queue pair afterwards.
    pub state: QpState,
}

/// What went into a queue pair, or came out of it.
#[derive(Debug)]
pub enum Seen<'a> {
    /// It went to RTR and RTS.
    Connected(&'a ConnectionPlan),
    /// A packet was handed to it.
    Packet {
        /// As parsed.
        packet: &'a Packet<'a>,
        /// What it said.
        disposition: Disposition,
        /// What it asked of the memory.
        accesses: &'a [Access],
        /// The memory afterwards.
        memory: &'a HostMemory,
    },
    /// A write could not be kept, and it was told so.
    Refused {
        /// As parsed.
        packet: &'a Packet<'a>,
        /// What was lacking.
        why: Shortage,
        /// What it said.
        disposition: Disposition,
    },
    /// It went to RESET, or was made anew.
    Reset,
    /// It was told how full the receiving side is: places taken, and all places.
    Pressure(u32, u32),
    /// It was given another window as a responder, in units of 128 PSNs.
    Window(u8),
    /// The batch is over.
    EndOfBatch,
    /// Its timers were served.
    Timeout,
    /// It sends a packet.
    Transmit(&'a Transmit),
    /// It had nothing more to send, at least not on the ports with room.
    Silent {
        /// An answer waits for a port.
        answers_wait: bool,
    },
    /// A receive request was posted.
    Receive(u64),
    /// It gave a completion.
    Completion(&'a Completion),
}

/// Something that looks on.
pub type Tap = Box<dyn FnMut(Place, &Seen<'_>)>;

/// Tells the tap, if there is one, of something at a queue pair.
pub(crate) fn show(tap: &mut Option<Tap>, slot: &QpSlot, now_ns: u64, seen: &Seen<'_>) {
    if let Some(tap) = tap {
        let place = Place {
            connection: slot.connection,
            side: slot.side,
            now: Instant(now_ns),
            state: slot.qp.state(),
        };
        tap(place, seen);
    }
}
