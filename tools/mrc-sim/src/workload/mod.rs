//! What applications do when it depends on what has happened: messages that wait for others, connections that come and go.

pub mod exchange;
pub mod ring;
pub mod turns;

use crate::oracle::Checked;
use crate::scenario::ConnectionPlan;
use std::fmt::Debug;

/// A message with an immediate has arrived and its receive request was completed.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Index of the connection.
    pub connection: usize,
    /// Side that sent it.
    pub side: usize,
    /// Number of the message in its flow.
    pub message: usize,
    /// What it brought, as it stands in the memory of the receiver.
    pub bytes: &'a [u8],
}

/// What the applications want.
#[derive(Debug)]
pub enum Deed {
    /// The next message of a flow that was held back may be posted.
    Release {
        /// Index of the connection.
        connection: usize,
        /// Side that sends.
        side: usize,
        /// What it says, if that is known only now: as many bytes as planned.
        data: Option<Vec<u8>>,
    },
    /// A connection is made. Its index is new, or that of a connection that was closed.
    Open {
        /// Index of the connection.
        connection: usize,
        /// Both ends.
        plan: Box<ConnectionPlan>,
    },
    /// A connection is not needed any more: its queue pairs go.
    Close {
        /// Index of the connection.
        connection: usize,
    },
}

/// Applications that react.
pub trait Workload: Debug + Send {
    /// What they do at first.
    fn begin(&mut self, deeds: &mut Vec<Deed>);

    /// What they do when a message has arrived.
    fn arrived(&mut self, arrival: &Arrival<'_>, deeds: &mut Vec<Deed>);

    /// What they do when all requests of both sides of a connection have ended.
    fn ended(&mut self, connection: usize, deeds: &mut Vec<Deed>);

    /// Whether more is to come although nothing is on its way.
    fn is_done(&self) -> bool;

    /// Pairs of hosts that have exchanged their messages, if that is what they do.
    fn exchanged(&self) -> Option<u64> {
        None
    }

    /// Whether the result is right.
    fn judge(&self) -> Checked;
}
