//! What the two models have in common: the faces of their two ends.

use crate::baseline::segment::Answer;

/// The sending end of a connection.
pub(super) trait Sender {
    /// Packets below `end` may be sent from now on.
    fn post(&mut self, end: u64);
    /// Whether [`Sender::poll`] has something.
    fn is_ready(&self) -> bool;
    /// The packet that goes next.
    fn poll(&mut self) -> Option<Sent>;
    /// An answer has come. Returns whether it tells anything new.
    fn answer(&mut self, answer: &Answer) -> bool;
    /// Nothing new for the length of a timeout.
    fn timeout(&mut self);
    /// Everything below is acknowledged.
    fn acked(&self) -> u64;
    /// Whether something is not acknowledged.
    fn is_waiting(&self) -> bool;
}

/// A packet that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) psn: u64,
    pub(super) order: u64,
    pub(super) again: bool,
}

/// The receiving end of a connection.
pub(super) trait Receiver {
    /// A packet has come: `place` is called if its data is taken. The answer goes back.
    fn receive(&mut self, psn: u64, order: u64, place: &mut dyn FnMut(u64)) -> Option<Answer>;
    /// Everything below has been delivered in order.
    fn expected(&self) -> u64;
}
