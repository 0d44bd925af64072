//! Frames out: windows and their queue pairs in turn, headers from the template of the path, data from the region into the frame with the ICRC in
//! the same pass.

use mrc_protocol::{Instant, Transmit};
use mrc_wire::{BuildError, Ecn, FrameWriter, L3Template, Outgoing, PortNum, PortSet, frame_len};

use super::core::Core;
use super::pace::Pacer;
use super::qp::Data;
use crate::port::{Port, TxResult};
use crate::region::RegionFault;

/// Packets that a queue pair may send before the next window has its turn, with one reading of the clock.
const BURST: usize = 16;
/// Packets in one pass, so that arriving ones do not wait for long, and so that the planes, which are flushed one after the
/// other, do not get far out of step.
const BUDGET: usize = 64;

/// Where packets may go: free places in the transmit rings, and links that are not behind with what they were given.
#[derive(Default)]
pub(super) struct Room {
    left: Vec<usize>,
    /// Ports with a free place.
    places: PortSet,
    pacer: Pacer,
}

impl Room {
    pub(super) fn new(pacer: Pacer) -> Self {
        Self {
            pacer,
            ..Self::default()
        }
    }

    /// Looks at rings and links. Returns the ports that have room now and had none.
    fn refresh(&mut self, ports: &[Box<dyn Port>], now: Instant) -> PortSet {
        let before = self.ports();
        self.places = PortSet::EMPTY;
        self.left.clear();
        for port in ports {
            let left = if port.link_up() { port.tx_room() } else { 0 };
            self.left.push(left);
            if left > 0 {
                self.places.insert(port.num());
            }
        }
        self.pacer.refresh(now);
        self.ports().difference(before)
    }

    /// Ports that take data now.
    fn ports(&self) -> PortSet {
        self.places.intersection(self.pacer.open())
    }

    /// Does any port take data now?
    pub(super) fn is_open(&self) -> bool {
        !self.ports().is_empty()
    }

    /// When a port takes data again that is only behind with what it was given.
    pub(super) fn opens(&self) -> Option<Instant> {
        self.pacer.opens(self.places)
    }

    /// Is a ring full that somebody may wait for? Nobody says when it is emptied.
    pub(super) fn is_full(&self, up: PortSet) -> bool {
        !up.difference(self.places).is_empty()
    }

    fn take(&mut self, port: PortNum, len: usize, now: Instant) {
        self.pacer.charge(port, len, now);
        if let Some(left) = self.left.get_mut(port.index()) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.places.remove(port);
            }
        }
    }

    /// A frame left without a queue pair.
    pub(super) fn charge(&mut self, port: PortNum, len: usize, now: Instant) {
        self.pacer.charge(port, len, now);
    }

    fn close(&mut self, port: PortNum) {
        if let Some(left) = self.left.get_mut(port.index()) {
            *left = 0;
        }
        self.places.remove(port);
    }
}

/// Why a frame could not be filled.
enum Fault {
    Region(RegionFault),
    Build(BuildError),
}

impl From<RegionFault> for Fault {
    fn from(fault: RegionFault) -> Self {
        Self::Region(fault)
    }
}

impl From<BuildError> for Fault {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

/// Queues the acknowledgements that a round of packets calls for.
pub(super) fn answer(core: &mut Core, ports: &mut [Box<dyn Port>], room: &mut Room, clock: impl Fn() -> Instant) {
    if core.owing.is_empty() {
        return;
    }
    if !room.refresh(ports, clock()).is_empty() {
        wake_waiting_for_room(core);
    }
    while let Some(key) = core.owing.pop() {
        if let Some(Some(slot)) = core.qps.get_mut(key as usize) {
            slot.lists.owes = false;
        }
        let served = serve(core, ports, room, key, clock(), What::Answers);
        core.answered |= served.packets > 0;
    }
}

/// Serves the queue pairs that may have something to send. True if anything was sent.
pub(super) fn transmit(
    core: &mut Core,
    ports: &mut [Box<dyn Port>],
    room: &mut Room,
    clock: impl Fn() -> Instant,
) -> bool {
    if !room.refresh(ports, clock()).is_empty() {
        wake_waiting_for_room(core);
    }
    answer(core, ports, room, &clock);
    let mut sent = 0;
    // Where there is no room for data they keep their places.
    while sent < BUDGET && room.is_open() {
        let Some(turn) = core.ready.next() else { break };
        let mut served = Served::default();
        if let Some(Some(slot)) = core.qps.get_mut(turn.key as usize) {
            slot.lists.ready = false;
            served = serve(core, ports, room, turn.key, clock(), What::Everything);
            if served.more {
                core.make_ready(turn.key);
            }
        }
        core.ready.end_turn(&turn, served.bytes);
        sent += served.packets;
    }
    sent > 0 || std::mem::take(&mut core.answered)
}

fn wake_waiting_for_room(core: &mut Core) {
    while let Some(key) = core.waiting_for_room.pop_front() {
        if let Some(Some(slot)) = core.qps.get_mut(key as usize) {
            slot.lists.waits_for_room = false;
        }
        core.make_ready(key);
    }
}

/// What a queue pair may send in a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Acknowledgements that are due; the protocol hands them out first.
    Answers,
    Everything,
}

/// What a queue pair did in a turn.
#[derive(Clone, Copy, Default)]
struct Served {
    packets: usize,
    /// Of their frames.
    bytes: u64,
    /// It may have more.
    more: bool,
}

/// One turn of one queue pair.
fn serve(core: &mut Core, ports: &mut [Box<dyn Port>], room: &mut Room, key: u32, now: Instant, what: What) -> Served {
    let mut served = Served::default();
    let Some(slot) = core.slot(key) else { return served };
    let Some(connection) = slot.connection else {
        return served;
    };
    while served.packets < BURST {
        let answers = core.slot(key).is_some_and(|slot| slot.qp.has_answers());
        if what == What::Answers && !answers {
            return Served { more: true, ..served };
        }
        // Answers are small, and the peer waits for them: they do not wait for the link.
        let takes = if answers { room.places } else { room.ports() };
        let Some(peer) = core.peers.get(connection.peer) else {
            return served;
        };
        let usable = takes.intersection(peer.resolved);
        let next = core.visit(key, now, |slot, cx| slot.qp.poll_transmit(cx, usable));
        let Some(Some(transmit)) = next else {
            // One that waits again at the end of the queue, and has sent nothing, ends it: else all would ask for ever.
            let waits = core.park(key, connection.peer, connection.flow, takes);
            if !waits || served.packets > 0 {
                core.wake_waiting(connection.flow);
            }
            return served;
        };
        let Some(len) = send(core, ports, room, key, connection.peer, &transmit, now) else {
            return Served { more: true, ..served };
        };
        served.packets += 1;
        served.bytes += len as u64;
    }
    Served { more: true, ..served }
}

/// Puts one packet into its port's ring: the length of its frame; nothing if that did not work.
fn send(
    core: &mut Core,
    ports: &mut [Box<dyn Port>],
    room: &mut Room,
    key: u32,
    peer: u32,
    transmit: &Transmit,
    now: Instant,
) -> Option<usize> {
    let fault = match fill_frame(core, ports, key, peer, transmit) {
        Some((TxResult::Queued, len)) => {
            room.take(transmit.port, len, now);
            count(core, key, transmit, len);
            return Some(len);
        }
        Some((TxResult::Abandoned, _)) => transmit.payload,
        Some((TxResult::NoRoom | TxResult::BadLength, _)) | None => None,
    };
    core.cells.unsent.add(1);
    if let Some(fragment) = fault {
        core.with_qp(key, now, |slot, cx| {
            slot.qp.handle_unsent(cx, transmit);
            slot.qp
                .handle_local_fault(cx, fragment.slot, mrc_protocol::Status::LocalProtection);
        });
    } else {
        room.close(transmit.port);
        core.with_qp(key, now, |slot, cx| slot.qp.handle_unsent(cx, transmit));
    }
    None
}

fn fill_frame(
    core: &mut Core,
    ports: &mut [Box<dyn Port>],
    key: u32,
    peer: u32,
    transmit: &Transmit,
) -> Option<(TxResult, usize)> {
    let config = &core.config;
    let peer = core.peers.get(peer)?;
    let slot = core.qps.get_mut(key as usize)?.as_deref_mut()?;
    slot.refresh_tunnel(transmit.path, transmit.port, peer, config);
    let slot = &*slot;
    let template = slot.template(transmit.path, transmit.port, peer)?;
    let port = ports.get_mut(transmit.port.index())?;
    let data = transmit
        .payload
        .map(|part| slot.data(&core.regions, part.slot, part.offset, part.len));
    let outgoing = Outgoing {
        bth: transmit.bth,
        headers: transmit.headers,
        ev: transmit.ev,
        ev_layout: config.ev_layout,
        dscp: config.dscps.of(transmit.class),
        ecn: if transmit.ect { Ecn::Ect0 } else { Ecn::NotEct },
        payload_len: data.as_ref().map_or(0, Data::len),
    };
    let len = frame_len(template, &transmit.headers, outgoing.payload_len);
    let qpn = slot.qpn;
    let result = port.tx_frame(
        len,
        &mut |head, tail| match write_frame(head, tail, template, &outgoing, data.as_ref()) {
            Ok(()) => true,
            Err(Fault::Region(fault)) => {
                tracing::debug!(%qpn, "send request fails: {fault}");
                false
            }
            Err(Fault::Build(error)) => {
                tracing::error!(%qpn, "packet cannot be built: {error}");
                false
            }
        },
    );
    Some((result, len))
}

fn write_frame(
    head: &mut [u8],
    tail: &mut [u8],
    template: &L3Template,
    outgoing: &Outgoing,
    data: Option<&Data<'_>>,
) -> Result<(), Fault> {
    let mut frame = FrameWriter::start(head, tail, template, outgoing)?;
    if let Some(data) = data {
        data.pieces::<Fault>(|len, read| {
            let mut at = 0;
            frame.fill(len, |to| -> Result<(), Fault> {
                read(at, to);
                at += to.len();
                Ok(())
            })
        })?;
    }
    frame.finish()?;
    Ok(())
}

fn count(core: &mut Core, key: u32, transmit: &Transmit, len: usize) {
    if transmit.payload.is_some()
        && let Some(Some(slot)) = core.qps.get_mut(key as usize)
        && let Some(packets) = slot.path_packets.get_mut(usize::from(transmit.path))
    {
        *packets += 1;
    }
    let cells = core.cells.port(transmit.port);
    cells.tx_packets.add(1);
    cells.tx_bytes.add(len as u64);
    if let Some(fragment) = transmit.payload {
        cells.tx_data_bytes.add(fragment.len.into());
    }
    if transmit.is_retransmission {
        cells.retransmissions.add(1);
    }
}

impl Core {
    /// It has nothing to send now: notes what it may be waiting for. True if that is the window.
    fn park(&mut self, key: u32, peer: u32, flow: u32, with_room: PortSet) -> bool {
        let Some(Some(slot)) = self.qps.get_mut(key as usize) else {
            return false;
        };
        let (Some(peer), Some(flow)) = (self.peers.get(peer), self.flows.get_mut(flow)) else {
            return false;
        };
        let usable = self.up.intersection(peer.resolved);
        // Control packets wait for room, too.
        if !usable.difference(with_room).is_empty() && !std::mem::replace(&mut slot.lists.waits_for_room, true) {
            self.waiting_for_room.push_back(key);
        }
        let waits = slot.qp.has_data() && !usable.difference(flow.cc.room()).is_empty();
        if waits && !std::mem::replace(&mut slot.lists.waits_for_window, true) {
            flow.waiting.push_back(key);
        }
        waits
    }
}
