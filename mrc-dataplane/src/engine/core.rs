//! Everything of an engine thread but its ports: queue pairs, peers, regions, completion queues, timers, and the lists that say
//! who is to be served.

use std::collections::VecDeque;
use std::sync::Arc;

use mrc_protocol::{AccessError, Cx, EndpointLimits, EndpointOps, Instant, Memory, QpState, Qpcc, Stall};
use mrc_wire::{Payload, PortNum, PortSet};

use super::collect::CqSlot;
use super::command::CqId;
use super::config::EngineConfig;
use super::control::thread_bits;
use super::counters::{Cells, EngineDrop};
use super::endpoint::{BACKLOG, Parcel};
use super::event::{EngineEvent, EventSink};
use super::flow::{Flows, Speeds};
use super::handover::Handover;
use super::peer::Peers;
use super::qp::{Connection, QpSlot};
use super::ready::Ready;
use super::timer::Timers;
use crate::port::Port;
use crate::region::{KeyMap, PdId, RegionFault, RegionTable};
use crate::ring::RingCorrupt;

/// How long a destroyed queue pair answers duplicates (api.md D11).
const LINGER_NS: u64 = 1_000_000_000;

/// Requests taken from one send ring before others get their turn.
const FETCH_BURST: usize = 64;

/// See the module.
pub(super) struct Core {
    pub(super) config: Arc<EngineConfig>,
    pub(super) cells: Arc<Cells>,
    pub(super) regions: RegionTable,
    pub(super) peers: Peers,
    pub(super) flows: Flows,
    /// Of the own links.
    pub(super) speeds: Speeds,
    pub(super) qps: Vec<Option<Box<QpSlot>>>,
    pub(super) by_qpn: KeyMap<u32>,
    pub(super) cqs: Vec<Option<CqSlot>>,
    pub(super) timers: Timers,
    pub(super) sinks: Vec<Arc<dyn EventSink>>,
    /// To be asked for packets.
    pub(super) ready: Ready,
    /// Had packets in this batch.
    pub(super) touched: Vec<u32>,
    /// Owe answers to these packets, which leave before anything else does.
    pub(super) owing: Vec<u32>,
    /// Such answers stand in a transmit ring that was not flushed since.
    pub(super) answered: bool,
    /// To be asked for completions, events and deadlines.
    pub(super) dirty: Vec<u32>,
    pub(super) dirty_cqs: Vec<CqId>,
    pub(super) waiting_for_room: VecDeque<u32>,
    lingering: VecDeque<(Instant, u32)>,
    /// The own node's part in endpoint operations.
    pub(super) endpoint: EndpointOps,
    pub(super) answers: VecDeque<Parcel>,
    /// When a peer is to be told of the own ports.
    pub(super) next_update: Option<Instant>,
    /// A peer has said that other ports are up at its end.
    pub(super) peer_ports_changed: bool,
    pub(super) handover: Handover,
    /// The low bits of a QPN that name its thread.
    pub(super) thread_mask: u32,
    pub(super) index: usize,
    /// Ports whose link is up.
    pub(super) up: PortSet,
    /// MTUs by port number.
    pub(super) mtus: [u32; PortNum::MAX as usize + 1],
    pub(super) stall: Option<Stall>,
    /// Of queue pairs that have no peer: nothing is in flight there.
    lonely: Qpcc,
}

impl Core {
    pub(super) fn new(
        index: usize,
        config: Arc<EngineConfig>,
        cells: Arc<Cells>,
        peers: Peers,
        handover: Handover,
        speeds: Speeds,
    ) -> Self {
        let bits = thread_bits(handover.threads() as u8);
        let endpoint =
            EndpointOps::new(&EndpointLimits::default(), config.ev_layout).with_ids(index as u16, bits as u8);
        Self {
            config,
            cells,
            regions: RegionTable::default(),
            peers,
            flows: Flows::default(),
            speeds,
            qps: Vec::new(),
            by_qpn: KeyMap::default(),
            cqs: Vec::new(),
            timers: Timers::default(),
            sinks: Vec::new(),
            ready: Ready::default(),
            touched: Vec::new(),
            owing: Vec::new(),
            answered: false,
            dirty: Vec::new(),
            dirty_cqs: Vec::new(),
            waiting_for_room: VecDeque::new(),
            lingering: VecDeque::new(),
            endpoint,
            answers: VecDeque::with_capacity(BACKLOG),
            next_update: None,
            peer_ports_changed: false,
            thread_mask: (1 << bits) - 1,
            handover,
            index,
            up: PortSet::EMPTY,
            mtus: [0; PortNum::MAX as usize + 1],
            stall: None,
            lonely: Qpcc::fixed(1),
        }
    }

    /// Lets `f` do something to a queue pair, which may have packets to send afterwards.
    pub(super) fn with_qp<R>(
        &mut self,
        key: u32,
        now: Instant,
        f: impl FnOnce(&mut QpSlot, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let result = self.visit(key, now, f);
        self.make_ready(key);
        result
    }

    /// Lets `f` do something to a queue pair, whose completions, events and deadline are looked at afterwards.
    pub(super) fn visit<R>(
        &mut self,
        key: u32,
        now: Instant,
        f: impl FnOnce(&mut QpSlot, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let slot = self.qps.get_mut(key as usize)?.as_deref_mut()?;
        let flow = slot
            .connection
            .and_then(|connection| self.flows.get_mut(connection.flow));
        let cc = flow.map_or(&mut self.lonely, |flow| &mut flow.cc);
        let mut memory = QpMemory {
            regions: &self.regions,
            pd: slot.pd,
        };
        let mut cx = Cx {
            now,
            cc,
            memory: &mut memory,
            stall: self.stall,
        };
        let result = f(slot, &mut cx);
        if !std::mem::replace(&mut slot.lists.dirty, true) {
            self.dirty.push(key);
        }
        Some(result)
    }

    pub(super) fn slot(&self, key: u32) -> Option<&QpSlot> {
        self.qps.get(key as usize)?.as_deref()
    }

    /// It may have packets to send.
    pub(super) fn make_ready(&mut self, key: u32) {
        let Some(Some(slot)) = self.qps.get_mut(key as usize) else {
            return;
        };
        if slot.qp.has_answers() && !std::mem::replace(&mut slot.lists.owes, true) {
            self.owing.push(key);
        }
        if !std::mem::replace(&mut slot.lists.ready, true) {
            self.ready.push(key, slot.connection.map(|connection| connection.flow));
        }
    }

    /// Somebody waits for a transmit ring, or for a link.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.waiting_for_room.is_empty() || !self.ready.is_empty()
    }

    /// The bell of a queue pair was heard: takes what was posted. True if there is more.
    pub(super) fn fetch(&mut self, key: u32, now: Instant) -> bool {
        let fetched = self.with_qp(key, now, |slot, cx| {
            slot.fetch_recvs()?;
            slot.fetch_sends(now, FETCH_BURST, |qp, slot| {
                qp.handle_local_fault(cx, slot, mrc_protocol::Status::LocalProtection);
            })
        });
        match fetched {
            Some(Ok(more)) => more,
            Some(Err(corrupt)) => {
                self.condemn(key, now, corrupt);
                false
            }
            None => false,
        }
    }

    /// A ring was overwritten: its queue pair cannot go on.
    pub(super) fn condemn(&mut self, key: u32, now: Instant, corrupt: RingCorrupt) {
        let Some(qpn) = self.slot(key).map(|slot| slot.qpn) else {
            return;
        };
        tracing::error!(%qpn, "queue pair fails: {corrupt}");
        self.fail(key, now);
    }

    /// To ERR for a local reason.
    pub(super) fn fail(&mut self, key: u32, now: Instant) {
        let qpn = self.with_qp(key, now, |slot, cx| {
            let live = !matches!(slot.qp.state(), QpState::Err | QpState::Reset);
            slot.qp.handle_error(cx);
            live.then_some(slot.qpn)
        });
        if let Some(Some(qpn)) = qpn {
            self.tell(EngineEvent::QpFatal(qpn));
        }
    }

    pub(super) fn tell(&self, event: EngineEvent) {
        for sink in &self.sinks {
            sink.event(event);
        }
    }

    /// Deadlines that have come.
    pub(super) fn run_timers(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(key) = self.timers.pop_due(now) {
            any = true;
            self.with_qp(key, now, |slot, cx| slot.qp.handle_timeout(cx));
        }
        while let Some(&(until, key)) = self.lingering.front()
            && until <= now
        {
            self.lingering.pop_front();
            if self.slot(key).is_some_and(|slot| slot.lingering) {
                self.remove(key, now);
            }
        }
        any
    }

    /// When something will be due.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let linger = self.lingering.front().map(|&(until, _)| until);
        let due = [self.timers.next(), linger, self.next_endpoint_deadline()];
        due.into_iter().flatten().min()
    }

    pub(super) fn add_qp(&mut self, key: u32, slot: QpSlot, now: Instant) {
        self.remove(key, now);
        let at = key as usize;
        if self.qps.len() <= at {
            self.qps.resize_with(at + 1, || None);
        }
        // Every list holds a queue pair at most once, so this is all that they ever need.
        let count = self.qps.len();
        self.ready.make_places(count);
        self.waiting_for_room
            .reserve(count.saturating_sub(self.waiting_for_room.len()));
        for list in [&mut self.touched, &mut self.owing, &mut self.dirty] {
            list.reserve(count.saturating_sub(list.len()));
        }
        self.dirty_cqs
            .reserve(self.cqs.len().saturating_sub(self.dirty_cqs.len()));
        self.timers.make_place(key);
        self.by_qpn.insert(slot.qpn.get(), key);
        self.qps[at] = Some(Box::new(slot));
    }

    /// The application has destroyed it: answers duplicates for a while, then goes.
    pub(super) fn linger(&mut self, key: u32, now: Instant) {
        let connected = self.with_qp(key, now, |slot, cx| {
            slot.lingering = true;
            slot.qp.handle_linger(cx);
            slot.connection.is_some() && matches!(slot.qp.state(), QpState::Rtr | QpState::Rts)
        });
        if connected == Some(true) {
            self.lingering.push_back((now + LINGER_NS, key));
        } else {
            self.remove(key, now);
        }
    }

    /// Ends a queue pair.
    pub(super) fn remove(&mut self, key: u32, now: Instant) {
        self.disconnect(key, now);
        self.timers.set(key, None);
        let Some(slot) = self.qps.get_mut(key as usize).and_then(Option::take) else {
            return;
        };
        self.by_qpn.remove(&slot.qpn.get());
        // The next one at this place starts on no list.
        if slot.lists.ready {
            self.ready.remove(key);
        }
        self.waiting_for_room.retain(|&other| other != key);
        self.touched.retain(|&other| other != key);
        self.owing.retain(|&other| other != key);
        self.dirty.retain(|&other| other != key);
    }

    /// To RESET; gives the window and the peer's record back.
    pub(super) fn disconnect(&mut self, key: u32, now: Instant) {
        let connection = self.with_qp(key, now, |slot, cx| {
            slot.qp.handle_reset(cx);
            slot.connection.take()
        });
        if let Some(Some(connection)) = connection {
            if let Some(Some(slot)) = self.qps.get_mut(key as usize) {
                slot.lists.waits_for_window = false;
            }
            self.flows.leave(connection.flow, key);
            self.wake_waiting(connection.flow);
            self.peers.leave(connection.peer);
        }
    }

    /// A window may have opened: the one that has waited longest tries. When it has had its turn, this is called again, so that the window is
    /// filled; who was acknowledged has no precedence.
    pub(super) fn wake_waiting(&mut self, index: u32) {
        let Some(flow) = self.flows.get(index) else { return };
        let Some(peer) = self.peers.get(flow.peer) else { return };
        if !flow.cc.can_send(peer.resolved) {
            return;
        }
        if let Some(key) = self.flows.get_mut(index).and_then(|flow| flow.waiting.pop_front()) {
            if let Some(Some(slot)) = self.qps.get_mut(key as usize) {
                slot.lists.waits_for_window = false;
            }
            self.make_ready(key);
        }
    }

    /// Tells a queue pair which ports it may use: those with a link that lead to its peer and carry its packets.
    pub(super) fn tell_ports(&mut self, key: u32, now: Instant) {
        let Some(slot) = self.slot(key) else { return };
        let Some(connection) = slot.connection else { return };
        let Some(peer) = self.peers.get(connection.peer) else {
            return;
        };
        let own = self
            .up
            .intersection(peer.hopeful)
            .intersection(self.carrying(connection));
        // A mask that leaves nothing keeps the last port in use: the queue pair sees to that (protocol.md §9.3, P24).
        let theirs = peer.node.ports();
        if (own, theirs) == slot.ports {
            // Resolved by now, perhaps: it may be able to send.
            self.make_ready(key);
            return;
        }
        self.with_qp(key, now, |slot, cx| {
            slot.ports = (own, theirs);
            slot.qp.handle_ports(cx, own, theirs);
        });
    }

    /// Notes the MTU of a port, and says so if it has shrunk below what a queue pair of this thread needs.
    pub(super) fn follow_mtu(&mut self, port: &dyn Port) {
        let (mtu, at) = (port.mtu(), usize::from(port.num().get()));
        let before = std::mem::replace(&mut self.mtus[at], mtu);
        let narrow = self
            .qps
            .iter()
            .flatten()
            .filter_map(|slot| slot.connection)
            .map(needed_mtu);
        let Some(needed) = narrow
            .filter(|needed| (mtu as usize) < *needed && *needed <= before as usize)
            .max()
        else {
            return;
        };
        tracing::warn!(
            port = port.name(),
            mtu,
            needed,
            "MTU too small for connected queue pairs: not used until it is raised again"
        );
    }

    /// Ports whose MTU holds the largest packets of a connection. An MTU may be lowered at any time; such a port is as good as
    /// down, since MRC packets are never fragmented (api.md D6).
    fn carrying(&self, connection: Connection) -> PortSet {
        let needed = needed_mtu(connection);
        let mut carrying = PortSet::first(PortNum::MAX);
        for port in carrying.iter() {
            if (self.mtus[usize::from(port.get())] as usize) < needed {
                carrying.remove(port);
            }
        }
        carrying
    }

    /// Links or next hops have changed.
    pub(super) fn tell_all_ports(&mut self, now: Instant) {
        let (up, peers) = (self.up, &self.peers);
        self.flows.follow_ports(&self.speeds, |peer| {
            peers
                .get(peer)
                .map_or(PortSet::EMPTY, |peer| up.intersection(peer.hopeful))
        });
        for key in 0..self.qps.len() as u32 {
            self.tell_ports(key, now);
        }
    }

    pub(super) fn drop_packet(&self, reason: EngineDrop) {
        self.cells.count_drop(reason);
    }
}

/// The memory that packets for one queue pair may reach.
pub(super) struct QpMemory<'a> {
    pub(super) regions: &'a RegionTable,
    pub(super) pd: PdId,
}

impl Memory for QpMemory<'_> {
    fn check(&mut self, r_key: u32, va: u64, len: u64) -> Result<(), AccessError> {
        self.regions
            .check_remote_write(self.pd, r_key, va, len)
            .map_err(access_error)
    }

    fn place(&mut self, r_key: u32, va: u64, payload: &Payload<'_>) -> Result<(), AccessError> {
        self.regions
            .write(self.pd, r_key, va, [payload.head, payload.tail])
            .map_err(access_error)
    }
}

fn access_error(fault: RegionFault) -> AccessError {
    match fault {
        RegionFault::UnknownKey | RegionFault::OtherDomain => AccessError::Key,
        RegionFault::NotPermitted => AccessError::Permission,
        RegionFault::OutOfBounds => AccessError::Bounds,
    }
}

/// The IP MTU that a full packet of a connection needs.
fn needed_mtu(connection: Connection) -> usize {
    connection.pmtu.min_ip_mtu(connection.encap)
}
