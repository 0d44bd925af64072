//! Frames in: parse, find the queue pair, check the addresses, let the protocol decide.

use mrc_protocol::{Disposition, Instant};
use mrc_wire::{EndpointOp, Frame, Headers, Packet, PortNum, Qpn, ReceiveRules, Reject, parse};

use super::core::Core;
use super::counters::EngineDrop;
use crate::port::Port;

/// Frames handled with one reading of the clock (design: RTT samples steer congestion control).
const BATCH: usize = 16;
/// Frames after which acknowledgements are decided: as many as the bitmap of a SACK shows.
const ROUND: usize = 64;

/// Takes one round of what has arrived: a little from each port in turn, since packets that were sent one after the other over
/// different planes would otherwise seem to be far out of order. A round that is not full has emptied the ports.
pub(super) fn receive(core: &mut Core, ports: &mut [Box<dyn Port>], clock: impl Fn() -> Instant) -> Round {
    let share = (ROUND / ports.len().max(1)).clamp(4, BATCH);
    let mut taken = 0;
    loop {
        let mut full = false;
        for port in &mut *ports {
            let (num, now) = (port.num(), clock());
            let count = port.rx_batch(share, &mut |frame| core.handle_frame(frame, num, now));
            taken += count;
            full |= count == share;
        }
        if !full {
            return Round { taken, more: false };
        }
        if taken >= ROUND {
            return Round { taken, more: true };
        }
    }
}

/// What [`receive`] took.
pub(super) struct Round {
    pub(super) taken: usize,
    pub(super) more: bool,
}

impl Core {
    pub(super) fn handle_frame(&mut self, frame: Frame<'_>, port: PortNum, now: Instant) {
        let cells = self.cells.port(port);
        cells.rx_packets.add(1);
        cells.rx_bytes.add(frame.len() as u64);
        let config = &*self.config;
        let rules = ReceiveRules {
            udp_ports: &[config.udp_port],
            dscps: &config.dscps,
            ev_layout: config.ev_layout,
        };
        match parse(frame, &rules) {
            Ok(packet) if self.is_elsewhere(packet.bth.dqp) => self.hand_over(frame, packet.bth.dqp, port),
            Ok(packet) if let Some(thread) = self.asked_elsewhere(&packet) => {
                self.hand_over_to(thread, frame, port);
            }
            Ok(packet) if packet.bth.dqp == Qpn::ENDPOINT => {
                self.tell_other_threads(frame, &packet, port);
                self.handle_endpoint(&packet, port, now, true);
            }
            Ok(packet) => self.handle_packet(&packet, port, now),
            Err(Reject::NotMrc(reason)) => self.cells.not_mrc[reason.index()].add(1),
            Err(Reject::Drop(reason)) => self.cells.malformed[reason.index()].add(1),
        }
    }

    /// Does this queue pair live on another thread?
    fn is_elsewhere(&self, qpn: Qpn) -> bool {
        self.thread_mask != 0 && qpn != Qpn::ENDPOINT && qpn.get() & self.thread_mask != self.index as u32
    }

    fn hand_over(&mut self, frame: Frame<'_>, qpn: Qpn, port: PortNum) {
        self.hand_over_to((qpn.get() & self.thread_mask) as usize, frame, port);
    }

    fn hand_over_to(&mut self, thread: usize, frame: Frame<'_>, port: PortNum) {
        if thread >= self.handover.threads() {
            self.drop_packet(EngineDrop::UnknownQp);
        } else if self.handover.send(thread, frame, port) {
            self.cells.handovers.add(1);
        } else {
            self.drop_packet(EngineDrop::Handover);
        }
    }

    /// What other threads have received for this one.
    pub(super) fn take_handed_over(&mut self, now: Instant) -> bool {
        if self.thread_mask == 0 {
            return false;
        }
        // Taken out for the time being, so that frames can be handled while it is read.
        let handover = std::mem::take(&mut self.handover);
        let any = handover.receive(|frame, port| self.handle_handed_over(frame, port, now));
        self.handover = handover;
        any
    }

    fn handle_handed_over(&mut self, frame: Frame<'_>, port: PortNum, now: Instant) {
        let config = &*self.config;
        let rules = ReceiveRules {
            udp_ports: &[config.udp_port],
            dscps: &config.dscps,
            ev_layout: config.ev_layout,
        };
        // It parsed on the other thread, where it was counted as received.
        match parse(frame, &rules) {
            Ok(packet) if packet.bth.dqp == Qpn::ENDPOINT => self.handle_endpoint(&packet, port, now, false),
            Ok(packet) => self.handle_packet(&packet, port, now),
            Err(_) => {}
        }
    }

    /// What a peer says of its ports concerns the queue pairs of all threads.
    fn tell_other_threads(&mut self, frame: Frame<'_>, packet: &Packet<'_>, port: PortNum) {
        if self.thread_mask != 0
            && let Headers::EndpointRequest(erth) = packet.headers
            && erth.op == EndpointOp::PORT_STATUS_UPDATE
            && self.peers.find(packet.src).is_some()
        {
            for thread in 0..self.handover.threads() {
                // One that is too far behind will hear the repetition, or not: as with any packet that is lost.
                let _ = self.handover.send(thread, frame, port);
            }
        }
    }

    /// wire-format.md §11 step 7, as far as it does not need the queue pair's state.
    fn handle_packet(&mut self, packet: &Packet<'_>, port: PortNum, now: Instant) {
        let Some(&key) = self.by_qpn.get(&packet.bth.dqp.get()) else {
            return self.drop_packet(EngineDrop::UnknownQp);
        };
        let Some(connection) = self.slot(key).and_then(|slot| slot.connection) else {
            return self.drop_packet(EngineDrop::NotConnected);
        };
        if packet.src != connection.remote {
            return self.drop_packet(EngineDrop::WrongSource);
        }
        if packet.dst != connection.local {
            return self.drop_packet(EngineDrop::WrongDestination);
        }
        self.hear_peer(connection.peer, port, now);
        let is_write = matches!(packet.headers, Headers::Write { .. });
        if is_write {
            self.cells.port(port).rx_data_bytes.add(packet.payload.len() as u64);
        }
        let handled = self.visit(key, now, |slot, cx| {
            if is_write {
                // A receive posted before its peer was told to write must be there, bell or not.
                slot.fetch_recvs()?;
            }
            Ok(slot.qp.handle_packet(cx, packet, port))
        });
        match handled {
            Some(Ok(Disposition::Accepted)) | None => {}
            Some(Ok(Disposition::Dropped(reason))) => self.cells.protocol[reason as usize].add(1),
            Some(Err(corrupt)) => self.condemn(key, now, corrupt),
        }
        self.touch(key);
    }

    fn touch(&mut self, key: u32) {
        if let Some(Some(slot)) = self.qps.get_mut(key as usize)
            && !std::mem::replace(&mut slot.lists.touched, true)
        {
            self.touched.push(key);
        }
    }

    /// Everything at hand has been handled: acknowledgements are decided, and windows may have opened.
    pub(super) fn end_batch(&mut self, now: Instant) {
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let after = self.visit(key, now, |slot, _| {
                slot.lists.touched = false;
                slot.qp.end_of_batch(now);
                slot.connection
            });
            // Those that wait for the window come first: it is the acknowledged one that would have all of it, again and again.
            if let Some(Some(connection)) = after {
                self.wake_waiting(connection.flow);
                self.probe_reverse(key, connection.peer, now);
            }
            self.make_ready(key);
        }
        self.touched = touched;
    }
}
