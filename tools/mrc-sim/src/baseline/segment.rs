//! The packets of the baselines, as values.

/// Headers of a data packet: Ethernet, IPv6, UDP, BTH, ICRC.
pub(super) const DATA_HEADERS: u32 = 14 + 40 + 8 + 12 + 4;
/// Address, key and length, on the first packet of a message.
pub(super) const RETH: u32 = 16;
/// An acknowledgement: the same with an AETH.
pub(super) const ACK: u32 = DATA_HEADERS + 4;
/// Offset and bitmap of a selective acknowledgement.
pub(super) const BITMAP: u32 = 24;

/// A packet of a baseline. Sequence numbers do not wrap: one simplification more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// From the sender to the receiver.
    Data {
        /// Index of the connection.
        connection: u32,
        /// Sequence number.
        psn: u64,
        /// Number of the transmission, over all packets of the connection.
        order: u64,
        /// What stands for the payload: memory is checked by it.
        word: u64,
    },
    /// Back.
    Answer {
        /// Index of the connection.
        connection: u32,
        /// What it says.
        answer: Answer,
    },
}

/// What a receiver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Everything below has arrived.
    pub expected: u64,
    /// This one is missing (go-back-N).
    pub nak: bool,
    /// The transmission that is answered (selective repeat).
    pub order: u64,
    /// First packet of the bitmap (selective repeat).
    pub base: u64,
    /// Arrived, from `base` on.
    pub bits: [u64; 2],
}
