//! What an engine tells without being asked.

use mrc_wire::{PortNum, Qpn};

use super::command::CqId;

/// Asynchronous events (api.md §3.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineEvent {
    /// The queue pair failed as requestor or for a local reason.
    QpFatal(Qpn),
    /// This side refused an invalid request of the peer; the queue pair failed.
    QpRequestError(Qpn),
    /// This side refused a write of the peer, or had no receive request for it; the queue pair failed.
    QpAccessError(Qpn),
    /// The completion queue overran.
    CqError(CqId),
    /// The port's link came up.
    PortActive(PortNum),
    /// The port's link went down.
    PortError(PortNum),
    /// The port's interface is gone.
    PortGone(PortNum),
}

/// Takes events on an engine thread: must not block, and must not call the engine.
pub trait EventSink: Send + Sync {
    /// Something happened.
    fn event(&self, event: EngineEvent);
}

impl EventSink for std::sync::mpsc::Sender<EngineEvent> {
    fn event(&self, event: EngineEvent) {
        // Nobody listens any more: then nobody misses it.
        let _ = self.send(event);
    }
}
