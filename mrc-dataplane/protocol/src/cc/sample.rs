//! What SACKs say to congestion control.

use crate::time::Instant;

/// A valid round trip (protocol.md §10.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttSample {
    /// How long it took.
    pub ns: u64,
    /// Nominal size of the packet that made it.
    pub bytes: u32,
}

/// What a SACK says to congestion control (protocol.md §10.4 OnACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSample {
    /// When it arrived.
    pub now: Instant,
    /// Nominal bytes newly acknowledged (P26).
    pub newly_acked_bytes: u64,
    /// Nominal bytes of packets that had been declared lost and were acknowledged now: they are not in flight any more,
    /// but count as progress (protocol.md §10.5).
    pub late_bytes: u64,
    /// The trigger was CE-marked.
    pub ce: bool,
    /// The trigger's round trip, if it is valid.
    pub rtt: Option<RttSample>,
    /// Flow control by the responder; `None` = this acknowledgement says nothing about it, or it is switched off.
    pub penalty: Option<Penalty>,
}

/// How much less the responder asks for (protocol.md §11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Penalty {
    /// 0 = nothing, 127 = all but one packet per round trip.
    pub rcv_cwnd_pen: u8,
    /// The window is to come back afterwards.
    pub rc: bool,
}

impl AckSample {
    /// So many bytes were received, and nothing else is known.
    pub const fn new(now: Instant, newly_acked_bytes: u64) -> Self {
        Self {
            now,
            newly_acked_bytes,
            late_bytes: 0,
            ce: false,
            rtt: None,
            penalty: None,
        }
    }
}
