//! The loop: connections, ports and the fabric between them.

use crate::baseline::connection::{Connection, connections, frame, parts};
use crate::baseline::nic::Nic;
use crate::baseline::report::BaselineReport;
use crate::baseline::segment::{ACK, Answer, BITMAP, DATA_HEADERS, RETH, Segment};
use crate::baseline::workload::{Transfer, Workload};
use crate::baseline::{BaselineError, Kind};
use crate::coverage::Coverage;
use crate::fabric::Next;
use crate::fabric::clos::plan::ClosPlan;
use crate::fabric::clos::{Clos, Path, Step};
use crate::fabric::fault::Fault;
use crate::fabric::frame::{Body, Frame};
use crate::queue::EventQueue;
use crate::rng::mix;

/// The timeout in base RTTs: longer than any queue of the fabric takes to drain. It doubles up to this many times in a row.
const TIMEOUT_RTTS: u64 = 20;
const MAX_BACKOFF: u32 = 6;

pub(super) struct Simulation {
    kind: Kind,
    clos: Clos,
    events: EventQueue<Event>,
    connections: Vec<Connection>,
    /// By host, then plane.
    nics: Vec<Nic>,
    planes: usize,
    pmtu: u32,
    timeout_ns: u64,
    deadline_ns: u64,
    now_ns: u64,
    /// For each transfer, the parts that are not complete, and the transfers of which there are any.
    parts: Vec<usize>,
    incomplete: usize,
    coverage: Coverage,
    report: BaselineReport,
}

#[derive(Debug)]
enum Event {
    Step(Step),
    Arrive(Box<Frame>),
    /// A message is posted.
    Post {
        connection: u32,
    },
    /// A port's link is free.
    Free {
        nic: u32,
    },
    /// A connection has perhaps been silent for too long.
    Timeout {
        connection: u32,
    },
}

impl Simulation {
    pub(super) fn new(
        kind: Kind,
        plan: &ClosPlan,
        workload: &Workload,
        faults: &[Fault],
        seed: u64,
    ) -> Result<Simulation, BaselineError> {
        let clos = Clos::new(plan.clone(), faults, seed)?;
        check(plan, workload)?;
        let (hosts, planes) = (plan.shape.hosts(), usize::from(plan.shape.planes));
        // One BDP, and the packet that is just being answered.
        let window = u64::from(plan.bdp_bytes() / (workload.pmtu + DATA_HEADERS)) + 2;
        let mut simulation = Simulation {
            kind,
            clos,
            events: EventQueue::new(),
            connections: connections(kind, workload, plan.shape.planes, window, seed),
            nics: (0..hosts * planes).map(|_| Nic::new(plan.host_link)).collect(),
            planes,
            pmtu: workload.pmtu,
            timeout_ns: TIMEOUT_RTTS * plan.base_rtt_ns(),
            deadline_ns: workload.deadline_ns,
            now_ns: 0,
            parts: parts(workload),
            incomplete: workload.transfers.len(),
            coverage: Coverage::default(),
            report: BaselineReport {
                kind,
                completions_ns: vec![None; workload.transfers.len()],
                delivered_bytes: 0,
                span_ns: 0,
                placed_ns: 0,
                packets: 0,
                repeated: 0,
                timeouts: 0,
                naks: 0,
                misplaced: 0,
                frames: crate::fabric::clos::Totals::default(),
            },
        };
        let Simulation {
            clos,
            events,
            connections,
            ..
        } = &mut simulation;
        clos.start(|next| events.post_fabric(next));
        for (connection, of) in connections.iter().enumerate() {
            let connection = connection as u32;
            for message in &of.messages {
                events.post(message.start_ns, Event::Post { connection });
            }
        }
        Ok(simulation)
    }

    pub(super) fn run(mut self) -> BaselineReport {
        while self.incomplete > 0
            && let Some((at_ns, event)) = self.events.pop()
        {
            if at_ns > self.deadline_ns {
                break;
            }
            self.now_ns = at_ns;
            match event {
                Event::Step(step) => {
                    let events = &mut self.events;
                    self.clos
                        .step(step, at_ns, &mut self.coverage, |next| events.post_fabric(next));
                }
                Event::Arrive(frame) => self.arrive(&frame),
                Event::Post { connection } => self.post(connection),
                Event::Free { nic } => {
                    self.nics[nic as usize].clocked = false;
                    self.transmit(nic);
                }
                Event::Timeout { connection } => self.timeout(connection),
            }
        }
        self.finish()
    }

    pub(super) fn first_path(&self) -> Option<Path> {
        let first = self.connections.first()?;
        self.clos.path_of(first.src, first.dst, first.plane, first.ev)
    }

    fn post(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let message = connection.messages[connection.posted];
        connection.posted += 1;
        connection.sender.post(message.end);
        self.list(index);
    }

    /// Puts a connection into its port's list, if it has something to send.
    fn list(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if connection.listed || !connection.sender.is_ready() {
            return;
        }
        connection.listed = true;
        let nic = self.nic_of(self.connections[index as usize].src, index);
        self.nics[nic as usize].ready.push_back(index);
        self.clock(nic);
    }

    fn nic_of(&self, host: usize, connection: u32) -> u32 {
        let plane = usize::from(self.connections[connection as usize].plane) - 1;
        (host * self.planes + plane) as u32
    }

    /// The port sends when its link is free.
    fn clock(&mut self, index: u32) {
        let nic = &mut self.nics[index as usize];
        if !nic.clocked && nic.has_work() {
            nic.clocked = true;
            let free_ns = nic.free_ns(self.now_ns);
            self.events.post(free_ns, Event::Free { nic: index });
        }
    }

    fn transmit(&mut self, index: u32) {
        let nic = &mut self.nics[index as usize];
        let frame = match nic.answers.pop_front() {
            Some(frame) => Some(frame),
            None => nic.ready.pop_front().and_then(|connection| self.next_data(connection)),
        };
        if let Some(frame) = frame {
            let leaves_ns = self.nics[index as usize].send(frame.size, self.now_ns);
            let events = &mut self.events;
            self.clos
                .send(frame, leaves_ns, &mut self.coverage, |next| events.post_fabric(next));
        }
        self.clock(index);
    }

    fn next_data(&mut self, index: u32) -> Option<Box<Frame>> {
        let connection = &mut self.connections[index as usize];
        connection.listed = false;
        let idle = !connection.sender.is_waiting();
        let sent = connection.sender.poll();
        if sent.is_some() {
            if idle {
                connection.heard_ns = self.now_ns;
            }
            if !connection.timed {
                connection.timed = true;
                let at_ns = self.now_ns + self.timeout_ns;
                self.events.post(at_ns, Event::Timeout { connection: index });
            }
        }
        self.list(index);
        let sent = sent?;
        let connection = &self.connections[index as usize];
        self.report.packets += 1;
        self.report.repeated += u64::from(sent.again);
        let message = connection.message_of(sent.psn);
        let payload = message.payload(sent.psn, self.pmtu);
        let reth = if sent.psn == message.first { RETH } else { 0 };
        let word = mix(connection.salt, sent.psn);
        let segment = Segment::Data {
            connection: index,
            psn: sent.psn,
            order: sent.order,
            word,
        };
        let ends = [connection.src, connection.dst];
        Some(frame(connection, ends, DATA_HEADERS + reth + payload, segment))
    }

    fn arrive(&mut self, frame: &Frame) {
        let Body::Baseline(segment) = frame.body else { return };
        // The ICRC finds flipped bits; nobody here knows what a trimmed packet is.
        if !frame.flips.is_empty() || frame.trim.is_some() {
            return;
        }
        match segment {
            Segment::Data {
                connection,
                psn,
                order,
                word,
            } => self.receive(connection, psn, order, word),
            Segment::Answer { connection, answer } => self.answered(connection, &answer),
        }
    }

    fn receive(&mut self, index: u32, psn: u64, order: u64, word: u64) {
        let connection = &mut self.connections[index as usize];
        let memory = &mut connection.memory;
        let placed_ns = &mut self.report.placed_ns;
        let now_ns = self.now_ns;
        let answer = connection.receiver.receive(psn, order, &mut |psn| {
            let place = &mut memory[psn as usize];
            *place = (word, place.1 + 1);
            *placed_ns = now_ns;
        });
        let Some(answer) = answer else { return };
        let connection = &self.connections[index as usize];
        let size = match self.kind {
            Kind::GoBackN => ACK,
            Kind::SelectiveRepeat => ACK + BITMAP,
        };
        let segment = Segment::Answer {
            connection: index,
            answer,
        };
        let ends = [connection.dst, connection.src];
        let mut back = frame(connection, ends, size, segment);
        (back.data, back.control) = (false, true);
        let nic = self.nic_of(back.src, index);
        self.nics[nic as usize].answers.push_back(back);
        self.clock(nic);
    }

    fn answered(&mut self, index: u32, answer: &Answer) {
        let connection = &mut self.connections[index as usize];
        self.report.naks += u64::from(answer.nak);
        if connection.sender.answer(answer) {
            connection.heard_ns = self.now_ns;
            connection.backoff = 0;
        }
        let acked = connection.sender.acked();
        while let Some(message) = connection.messages.get(connection.completed)
            && message.end <= acked
        {
            connection.completed += 1;
            let left = &mut self.parts[message.transfer];
            *left -= 1;
            if *left == 0 {
                self.report.completions_ns[message.transfer] = Some(self.now_ns - message.start_ns);
                self.incomplete -= 1;
            }
        }
        self.list(index);
    }

    fn timeout(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if !connection.sender.is_waiting() {
            connection.timed = false;
            return;
        }
        let mut due_ns = connection.heard_ns + (self.timeout_ns << connection.backoff);
        if due_ns <= self.now_ns {
            self.report.timeouts += 1;
            connection.sender.timeout();
            connection.backoff = (connection.backoff + 1).min(MAX_BACKOFF);
            connection.heard_ns = self.now_ns;
            due_ns = self.now_ns + (self.timeout_ns << connection.backoff);
        }
        self.events.post(due_ns, Event::Timeout { connection: index });
        self.list(index);
    }

    fn finish(self) -> BaselineReport {
        let mut report = self.report;
        let starts = self
            .connections
            .iter()
            .filter_map(|connection| connection.messages.first());
        let first_ns = starts.map(|message| message.start_ns).min().unwrap_or(0);
        let end_ns = if self.incomplete > 0 {
            self.deadline_ns
        } else {
            self.now_ns
        };
        report.span_ns = end_ns.saturating_sub(first_ns);
        report.placed_ns = report.placed_ns.saturating_sub(first_ns);
        report.frames = self.clos.totals();
        for connection in &self.connections {
            let expected = connection.receiver.expected();
            let delivered = connection.memory.iter().take(expected as usize).enumerate();
            report.misplaced += delivered
                .filter(|(psn, place)| **place != (mix(connection.salt, *psn as u64), 1))
                .count() as u64;
            let bytes = connection.messages.iter().map(|message| {
                let end = message.end.min(expected);
                let packets = end.saturating_sub(message.first);
                (packets * u64::from(self.pmtu)).min(message.bytes)
            });
            report.delivered_bytes += bytes.sum::<u64>();
        }
        report
    }
}

impl EventQueue<Event> {
    fn post_fabric(&mut self, next: Next) {
        match next {
            Next::Arrive(at_ns, frame) => self.post(at_ns, Event::Arrive(frame)),
            Next::Step(at_ns, step) => self.post(at_ns, Event::Step(step)),
        }
    }
}

fn check(plan: &ClosPlan, workload: &Workload) -> Result<(), BaselineError> {
    let hosts = plan.shape.hosts();
    for (index, Transfer { src, dst, .. }) in workload.transfers.iter().enumerate() {
        let (src, dst) = (*src, *dst);
        if src >= hosts || dst >= hosts || src == dst {
            return Err(BaselineError::Host { index, src, dst, hosts });
        }
    }
    if workload.stripes == 0 {
        return Err(BaselineError::Stripes);
    }
    let most = plan.mtu_bytes.saturating_sub(DATA_HEADERS + RETH).min(4096);
    if !(256..=most).contains(&workload.pmtu) {
        let pmtu = workload.pmtu;
        return Err(BaselineError::Pmtu { pmtu, most });
    }
    Ok(())
}
