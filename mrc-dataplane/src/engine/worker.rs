//! One pass of an engine thread, and the jobs between two passes.

use std::net::IpAddr;
use std::sync::Arc;

use crossbeam::channel::Receiver;
use mrc_protocol::{Instant, Stall};

use super::clock::Clock;
use super::command::{PathInfo, QpChange, QpInfo, WindowInfo};
use super::core::Core;
use super::error::CommandError;
use super::event::EngineEvent;
use super::job::{Answer, Job, Task, Wiring};
use super::pace::Pacer;
use super::peer::Hop;
use super::ports::PortFacts;
use super::qp::{Connection, QpSlot};
use super::{rx, tx};
use crate::port::Port;
use crate::ring::Board;

/// Longer without a pass than this is a stall: losses that overlap it are no path's fault (protocol.md §5.6). Engines share
/// their cores, so that shorter pauses are everyday; if they counted, no path would ever be found dead on a busy machine.
const STALL_NS: u64 = 4_000_000;

/// How often ports are flushed although nothing was sent, to take finished frames back, and asked for their counters.
const TIDY_NS: u64 = 10_000_000;

/// Everything that an engine thread owns. Whoever holds its lock may run it.
pub(super) struct Worker {
    pub(super) core: Core,
    pub(super) ports: Vec<Box<dyn Port>>,
    seen: Vec<Seen>,
    room: tx::Room,
    jobs: Receiver<Job>,
    board: Arc<Board>,
    facts: Arc<Vec<PortFacts>>,
    clock: Clock,
    index: usize,
    /// Last time at which it was alive, or asleep with good reason.
    alive: Instant,
    tidied: Instant,
    /// Bells of queue pairs with more requests than one turn takes.
    again: Vec<u32>,
    bells: Vec<u32>,
}

/// What was last seen of a port.
struct Seen {
    changes: u32,
    up: bool,
    lost: bool,
}

/// What a pass came to.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    /// Something was done, or is to be done at once.
    pub(super) busy: bool,
    /// When there will be something to do, unless something happens before.
    pub(super) deadline: Option<Instant>,
    /// A transmit ring was full, or not emptied yet: nobody says when that changes.
    pub(super) wants_room: bool,
}

impl Worker {
    pub(super) fn new(
        index: usize,
        core: Core,
        ports: Vec<Box<dyn Port>>,
        jobs: Receiver<Job>,
        board: Arc<Board>,
        facts: Arc<Vec<PortFacts>>,
        clock: Clock,
    ) -> Self {
        let now = clock.now();
        let seen = ports
            .iter()
            .map(|_| Seen {
                changes: u32::MAX,
                up: false,
                lost: false,
            })
            .collect();
        let mut worker = Self {
            core,
            ports,
            seen,
            room: tx::Room::default(),
            jobs,
            board,
            facts,
            clock,
            index,
            alive: now,
            tidied: now,
            again: Vec::new(),
            bells: Vec::new(),
        };
        worker.follow_links(true);
        worker
    }

    /// Sends no faster than these links.
    pub(super) fn paced(mut self, pacer: Pacer) -> Self {
        self.room = tx::Room::new(pacer);
        self
    }

    /// Does everything that can be done now.
    pub(super) fn pass(&mut self) -> Pass {
        let start = self.clock.now();
        self.note_stall(start);
        self.core.cells.passes.add(1);
        let mut busy = self.run_jobs();
        busy |= self.follow_links(false);
        busy |= self.hear_bells(start);
        busy |= self.receive();
        let now = self.clock.now();
        if std::mem::take(&mut self.core.peer_ports_changed) {
            self.core.tell_all_ports(now);
        }
        busy |= self.core.run_timers(now);
        self.core.take_probe_results(now);
        let clock = self.clock;
        let mut sent = self.core.send_endpoint_packets(&mut self.ports, &mut self.room, now);
        sent |= std::mem::take(&mut self.core.answered);
        sent |= tx::transmit(&mut self.core, &mut self.ports, &mut self.room, || clock.now());
        let pending = self.ports.iter().any(|port| port.tx_pending());
        let tidy = now.since(self.tidied) > TIDY_NS;
        if tidy {
            self.tidied = now;
            self.note_port_counters();
        }
        if tidy || sent || pending || self.core.waits_for_room() {
            self.flush();
        }
        self.core.collect(now);
        self.alive = now;
        let waits = self.core.waits_for_room();
        let more = !self.core.ready.is_empty() && self.room.is_open();
        let opens = if waits { self.room.opens() } else { None };
        Pass {
            busy: busy || sent || more || !self.again.is_empty(),
            deadline: [self.core.next_deadline(), opens].into_iter().flatten().min(),
            wants_room: pending || waits && self.room.is_full(self.core.up),
        }
    }

    /// Takes what has arrived, round by round, and queues the answers to each.
    fn receive(&mut self) -> bool {
        /// Rounds in a pass, so that what is to be sent does not wait for long.
        const ROUNDS: usize = 2;
        let clock = self.clock;
        let mut any = false;
        for _ in 0..ROUNDS {
            let round = rx::receive(&mut self.core, &mut self.ports, || clock.now());
            let now = clock.now();
            let handed_over = self.core.take_handed_over(now);
            self.core.handover.wake();
            if round.taken == 0 && !handed_over {
                break;
            }
            any = true;
            self.core.end_batch(now);
            tx::answer(&mut self.core, &mut self.ports, &mut self.room, || clock.now());
            if !round.more {
                break;
            }
        }
        any
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Its clock stands still from now on, at a time that may lie ahead: that jump is no stall.
    pub(super) fn hold(&mut self, now: Instant) {
        self.set_time(now);
        self.alive = now;
    }

    /// The time on a clock that stands still.
    pub(super) fn set_time(&mut self, now: Instant) {
        self.clock = self.clock.held(now);
    }

    /// Its clock goes on by itself. Time by hand may be ahead of it, and is waited for.
    pub(super) fn release(&mut self) {
        self.clock = self.clock.released();
    }

    /// The thread slept until now; `planned` is when it wanted to wake up by itself.
    pub(super) fn slept(&mut self, planned: Option<Instant>) {
        let now = self.clock.now();
        self.core.cells.sleeps.add(1);
        self.alive = planned.map_or(now, |planned| planned.min(now));
    }

    fn note_stall(&mut self, now: Instant) {
        if now.since(self.alive) > STALL_NS {
            self.core.stall = Some(Stall {
                from: self.alive,
                to: now,
            });
            self.core.cells.stalls.add(1);
        }
    }

    fn hear_bells(&mut self, now: Instant) -> bool {
        self.bells.append(&mut self.again);
        self.board.take(|key| self.bells.push(key));
        let any = !self.bells.is_empty();
        for key in self.bells.drain(..) {
            if self.core.fetch(key, now) {
                self.again.push(key);
            }
        }
        any
    }

    /// Follows links, MTUs, MAC addresses and next hops. True if something changed.
    fn follow_links(&mut self, first: bool) -> bool {
        let mut changed = false;
        for (port, seen) in self.ports.iter().zip(&mut self.seen) {
            let changes = port.link().changes();
            if changes == seen.changes {
                continue;
            }
            seen.changes = changes;
            changed = true;
            self.core.follow_mtu(&**port);
            let up = port.link_up() && !seen.lost;
            if up != seen.up {
                seen.up = up;
                if up {
                    self.core.up.insert(port.num());
                } else {
                    self.core.up.remove(port.num());
                }
                if self.index == 0 && !first {
                    tracing::info!(port = port.name(), up, "link");
                    let num = port.num();
                    self.core.tell(if up {
                        EngineEvent::PortActive(num)
                    } else {
                        EngineEvent::PortError(num)
                    });
                }
            }
            if self.index == 0
                && let Some(facts) = self.facts.get(port.num().index())
            {
                facts.follow(&**port);
            }
        }
        let now = self.clock.now();
        let mut hops = false;
        let config = self.core.config.clone();
        self.core.peers.follow(changed, &self.ports, &config, |_| hops = true);
        if changed || hops {
            self.core.announce_ports(now);
            self.core.tell_all_ports(now);
        }
        changed || hops
    }

    /// What the ports count themselves.
    fn note_port_counters(&self) {
        for port in &self.ports {
            let counted = port.counters();
            let cells = self.core.cells.port(port.num());
            cells.tx_kicks.set(counted.tx_kicks);
            cells.tx_busy.set(counted.tx_busy);
            cells.rx_missed.set(counted.rx_dropped + counted.rx_too_long);
        }
    }

    fn flush(&mut self) {
        for (port, seen) in self.ports.iter_mut().zip(&mut self.seen) {
            if seen.lost {
                continue;
            }
            if let Err(error) = port.tx_flush() {
                tracing::error!(port = port.name(), "port lost: {error}");
                seen.lost = true;
                seen.up = false;
                // Looked at in the next pass.
                seen.changes = seen.changes.wrapping_sub(1);
                self.core.up.remove(port.num());
                if self.index == 0 {
                    self.core.tell(EngineEvent::PortGone(port.num()));
                }
            }
        }
    }

    fn run_jobs(&mut self) -> bool {
        let mut any = false;
        while let Ok(Job { task, reply }) = self.jobs.try_recv() {
            any = true;
            let answer = self.run(task);
            // What the job has changed is visible before its answer: no completion of a queue pair that was destroyed.
            self.core.collect(self.clock.now());
            // Whoever asked may have gone.
            let _ = reply.send(answer);
        }
        any
    }

    fn run(&mut self, task: Task) -> Result<Answer, CommandError> {
        let now = self.clock.now();
        match task {
            Task::AddRegion(region) => self.core.regions.insert(region),
            Task::RemoveRegion { lkey } => self.core.regions.remove(lkey),
            Task::AddCq { cq, producer } => self.core.add_cq(cq, producer),
            Task::RemoveCq { cq } => self.core.remove_cq(cq),
            Task::AddQp(new) => self.core.add_qp(new.key, QpSlot::new(*new), now),
            Task::Modify { key, change, wiring } => self.modify(key, change, wiring.as_deref(), now)?,
            Task::Entries { key, entries } => self.core.change_entries(key, &entries, now),
            Task::PathReports { keys } => return Ok(Answer::PathReports(self.core.path_reports(&keys))),
            Task::Query { key } => return Ok(self.info(key).map_or(Answer::Done, |info| Answer::Info(Box::new(info)))),
            Task::QueryPaths { key } => return Ok(Answer::Paths(self.paths(key))),
            Task::RemoveQp { key } => self.remove_qp(key, now),
            Task::NotePeer { remote, local, joined } => self.note_peer(remote, local, joined),
            Task::Subscribe(sink) => self.core.sinks.push(sink),
        }
        Ok(Answer::Done)
    }

    fn note_peer(&mut self, remote: IpAddr, local: IpAddr, joined: bool) {
        if joined {
            let config = self.core.config.clone();
            self.core.peers.join(remote, local, &self.ports, &config);
            self.core.announce_ports(self.clock.now());
        } else if let Some(index) = self.core.peers.find(remote) {
            self.core.peers.leave(index);
        }
    }

    fn modify(
        &mut self,
        key: u32,
        change: QpChange,
        wiring: Option<&Wiring>,
        now: Instant,
    ) -> Result<(), CommandError> {
        let core = &mut self.core;
        if let Some(wiring) = wiring
            && let Some(path) = &wiring.path
            && let Some(Some(slot)) = core.qps.get_mut(key as usize)
        {
            slot.set_paths(path, wiring.outer_source).map_err(CommandError::Paths)?;
        }
        let done = match change {
            QpChange::ToInit(attr) => core.with_qp(key, now, |slot, _| slot.qp.handle_init(&attr)),
            QpChange::ToRtr { attr, local, remote } => {
                let done = core.with_qp(key, now, |slot, _| slot.qp.handle_rtr(&attr, now));
                if let (Some(Ok(())), Some(wiring)) = (done, wiring) {
                    let peer = core.peers.join(remote, local, &self.ports, &core.config.clone());
                    let connection = Connection {
                        peer,
                        flow: core.join_flow(peer, key, &attr, &wiring.cc, now),
                        local,
                        remote,
                        dest_qpn: attr.dest_qpn,
                        pmtu: attr.pmtu,
                        encap: wiring.encap,
                    };
                    core.connect(key, connection, wiring, now);
                }
                done
            }
            QpChange::ToRts(attr) => core.with_qp(key, now, |slot, _| slot.qp.handle_rts(&attr, now)),
            QpChange::ToErr => core.with_qp(key, now, |slot, cx| {
                slot.qp.handle_error(cx);
                Ok(())
            }),
            QpChange::ToReset => {
                core.disconnect(key, now);
                core.with_qp(key, now, |slot, _| {
                    if let Err(corrupt) = slot.discard() {
                        tracing::error!(qpn = %slot.qpn, "rings cannot be emptied: {corrupt}");
                    }
                    Ok(())
                })
            }
            QpChange::Adjust(attr) => core.with_qp(key, now, |slot, _| slot.qp.handle_modify(&attr)),
            QpChange::Window(mpr) => core.with_qp(key, now, |slot, _| slot.qp.handle_window(mpr)),
        };
        // What was posted before the state permitted it (receives in INIT, flushes in ERR).
        core.fetch(key, now);
        done.unwrap_or(Ok(())).map_err(CommandError::State)
    }

    /// Lets owed acknowledgements go, then keeps only what answers duplicates (api.md D11).
    fn remove_qp(&mut self, key: u32, now: Instant) {
        self.core.visit(key, now, |slot, _| slot.qp.end_of_batch(now));
        self.core.collect(now);
        self.core.linger(key, now);
        self.send_owed();
    }

    /// Transmits until nobody has anything more, or the rings stay full.
    fn send_owed(&mut self) {
        const ROUNDS: usize = 64;
        for _ in 0..ROUNDS {
            let clock = self.clock;
            let sent = tx::transmit(&mut self.core, &mut self.ports, &mut self.room, || clock.now());
            self.flush();
            if !sent && !self.core.waits_for_room() {
                break;
            }
        }
    }

    /// The engine ends: what is owed goes out, nothing more is started.
    pub(super) fn shut_down(&mut self) {
        let now = self.clock.now();
        for key in 0..self.core.qps.len() as u32 {
            self.core.with_qp(key, now, |slot, cx| {
                slot.qp.end_of_batch(now);
                slot.lingering = true;
                slot.qp.handle_linger(cx);
            });
        }
        self.send_owed();
        for key in 0..self.core.qps.len() as u32 {
            self.core.remove(key, now);
        }
    }

    fn info(&self, key: u32) -> Option<QpInfo> {
        let slot = self.core.slot(key)?;
        let connection = slot.connection;
        let peer = connection.and_then(|connection| self.core.peers.get(connection.peer));
        let unreachable = peer.into_iter().flat_map(|peer| self.ports.iter().zip(&peer.hops));
        Some(QpInfo {
            state: slot.qp.state(),
            local: connection.map(|connection| connection.local),
            remote: connection.map(|connection| connection.remote),
            dest_qpn: connection.map(|connection| connection.dest_qpn),
            pmtu: connection.map(|connection| connection.pmtu),
            unack_psn: slot.qp.unack_psn(),
            stats: *slot.qp.stats(),
            rtt_ns: slot.qp.rtt_ns(),
            window: connection
                .and_then(|connection| self.core.flows.get(connection.flow))
                .map(|flow| WindowInfo::of(&flow.cc, flow.state(slot.qp.has_data()))),
            ev_profile: String::new(),
            cc_profile: String::new(),
            unreachable: unreachable
                .filter_map(|(port, hop)| match hop {
                    Hop::Template(_) => None,
                    Hop::Pending => Some((port.num(), "next hop is being resolved".to_owned())),
                    Hop::Unreachable(why) => Some((port.num(), why.clone())),
                })
                .collect(),
        })
    }

    fn paths(&self, key: u32) -> Vec<PathInfo> {
        let Some(slot) = self.core.slot(key) else {
            return Vec::new();
        };
        slot.qp
            .ev_states()
            .zip(&slot.path_packets)
            .map(|(view, packets)| PathInfo {
                name: None,
                value: None,
                packets: *packets,
                losses: view.losses,
                marks: view.marks,
                ev: view.entry.ev,
                port: view.entry.port,
                state: view.state,
                why: view.reason,
                since_ns: view.since.as_ns(),
                active: view.active,
                eligible: view.eligible,
            })
            .collect()
    }
}
