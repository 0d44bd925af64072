//! One queue pair.

use mrc_wire::{Packet, PortNum, PortSet, Psn, Qpn};

use crate::attr::{InitAttr, ModifyAttr, QpCreate, RtrAttr, RtsAttr};
use crate::time::Instant;
use crate::work::{
    Completion, CreateError, Cx, Disposition, Drop, PostError, QpEvent, SendRequest, StateError, Status, Transmit,
};

/// The states of a queue pair (protocol.md §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// New, or emptied.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to receive and send.
    Rts,
    /// Failed: everything posted is flushed.
    Err,
}

/// A queue pair: requestor, responder and path set, with all their memory.
///
/// Order of calls. `handle_packet` for each packet of a batch, then [`Qp::end_of_batch`]; [`Qp::handle_timeout`] once
/// [`Qp::next_timeout`] has come; `handle_send` and `handle_recv` as work is posted. After any of them:
/// [`Qp::poll_transmit`] until `None`, [`Qp::poll_completion`] until `None`, [`Qp::poll_event`] until `None`, and look
/// at [`Qp::next_timeout`] again.
pub struct Qp {
    state: QpState,
    qpn: Qpn,
}

impl Qp {
    /// A queue pair in RESET. Every port of its universe counts as up until [`Qp::handle_ports`] says otherwise.
    pub fn new(create: QpCreate) -> Result<Self, CreateError> {
        Ok(Self {
            state: QpState::Reset,
            qpn: create.qpn,
        })
    }
    /// The state.
    pub fn state(&self) -> QpState {
        self.state
    }
    /// Own number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }
    /// RESET to INIT.
    pub fn handle_init(&mut self, _attr: &InitAttr) -> Result<(), StateError> {
        Ok(())
    }
    /// INIT to RTR.
    pub fn handle_rtr(&mut self, _attr: &RtrAttr, _now: Instant) -> Result<(), StateError> {
        Ok(())
    }
    /// RTR to RTS.
    pub fn handle_rts(&mut self, _attr: &RtsAttr, _now: Instant) -> Result<(), StateError> {
        Ok(())
    }
    /// Changes what may be changed in the present state.
    pub fn handle_modify(&mut self, _attr: &ModifyAttr) -> Result<(), StateError> {
        Ok(())
    }
    /// The application moves the queue pair to ERR: what is posted is flushed.
    pub fn handle_error(&mut self, _cx: &mut Cx<'_>) {}
    /// To RESET: everything is discarded without completions. Also to be called before a queue pair is dropped, so that
    /// `cx.cc` forgets its packets in flight.
    pub fn handle_reset(&mut self, _cx: &mut Cx<'_>) {}
    /// Posts a write. RTS, or ERR (flushed at once).
    pub fn handle_send(&mut self, _wr: &SendRequest, _now: Instant) -> Result<(), PostError> {
        Ok(())
    }
    /// Posts a receive request. INIT, RTR, RTS, or ERR (flushed at once).
    pub fn handle_recv(&mut self, _wr_id: u64) -> Result<(), PostError> {
        Ok(())
    }
    /// A packet for this queue pair arrived on `port`, from one of the peer's addresses to one of the own (the caller
    /// has checked both).
    pub fn handle_packet(&mut self, _cx: &mut Cx<'_>, _pkt: &Packet<'_>, _port: PortNum) -> Disposition {
        Disposition::Dropped(Drop::State)
    }
    /// All packets that were at hand have been handled: what they call for is answered now (protocol.md §6.4).
    pub fn end_of_batch(&mut self, _now: Instant) {}
    /// Does what is due. Afterwards [`Qp::next_timeout`] is later than `cx.now`.
    pub fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}
    /// The ports that are up here, and those that the peer says are up at its end ([`PortSet::first`]`(31)` if it has
    /// said nothing).
    pub fn handle_ports(&mut self, _cx: &mut Cx<'_>, _local_up: PortSet, _peer_up: PortSet) {}
    /// A packet from `poll_transmit` could not be sent after all.
    pub fn handle_unsent(&mut self, _cx: &mut Cx<'_>, _transmit: &Transmit) {}
    /// The data of the request in `slot` cannot be read: it fails with `status`, and the queue pair with it.
    pub fn handle_local_fault(&mut self, _cx: &mut Cx<'_>, _slot: u32, _status: Status) {}
    /// The next packet to send, on one of the ports of `room` (those with a free transmit slot): control packets, then
    /// retransmissions, then probes, then new data.
    pub fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _room: PortSet) -> Option<Transmit> {
        None
    }
    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        None
    }
    /// The next event.
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        None
    }
    /// When [`Qp::handle_timeout`] wants to be called. Changes with every other call.
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }
    /// Is there data that waits for the window, a port or a path?
    pub fn has_data(&self) -> bool {
        false
    }
    /// Everything up to here was received by the peer (requestor's view).
    pub fn unack_psn(&self) -> Psn {
        Psn::new(0)
    }
}
