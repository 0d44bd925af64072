//! A run: hosts, the fabric between them, and the loop that moves virtual time from event to event.

use crate::codec::Codec;
use crate::coverage::{Coverage, FaultTag};
use crate::endpoint::Node;
use crate::fabric::clos::Step;
use crate::fabric::clos::plan::PlanError;
use crate::fabric::frame::Frame;
use crate::fabric::{Fabric, Next};
use crate::host::Host;
use crate::measure::Measure;
use crate::memory::HostMemory;
use crate::onlooker::Watch;
use crate::oracle::flow::Flow;
use crate::oracle::{Breach, Oracle, Violation};
use crate::queue::EventQueue;
use crate::rng::Rng;
use crate::sabotage::{Sabotage, Saboteur};
use crate::scenario::upset::Upset;
use crate::scenario::{Happening, Scenario};
use crate::series::Recorder;
use crate::tap::{self, Seen, Tap};
use crate::trace;
use crate::trace::Trace;
use crate::workload::{Deed, Workload};
use mrc_protocol::{Instant, QpState, Stall};

/// What can happen at an instant.
#[derive(Debug)]
pub(crate) enum Event {
    /// A host's engine has a turn.
    Turn { host: usize },
    /// A frame reaches the other end.
    Arrive(Box<Frame>),
    /// Something happens inside the fabric.
    Step(Step),
    /// A host's applications have something to do.
    Wake { host: usize },
    /// Planned for this run.
    Happen(Happening),
    /// A host learns of a port that went up or down.
    LinkNews { told: usize, about: usize, plane: u8 },
    /// Hosts that do not agree on their ports say something.
    Converse,
    /// A queue pair goes to RTR and RTS.
    Ready { connection: usize, side: usize },
    /// The second end of a restarted connection begins anew too.
    Reconnect(Upset),
    /// The warm-up is over.
    Warm,
    /// A sample of the time series is due.
    Sample,
}

impl EventQueue<Event> {
    /// Posts what a step of the fabric has led to.
    pub(crate) fn post_next(&mut self, next: Next) {
        match next {
            Next::Arrive(at_ns, frame) => self.post(at_ns, Event::Arrive(frame)),
            Next::Step(at_ns, step) => self.post(at_ns, Event::Step(step)),
        }
    }
}

/// A run in progress.
pub struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now_ns: u64,
    pub(crate) events: EventQueue<Event>,
    pub(crate) fabric: Fabric,
    pub(crate) codec: Codec,
    pub(crate) hosts: Vec<Host>,
    /// By connection and sending side.
    pub(crate) flows: Vec<[Flow; 2]>,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Trace,
    pub(crate) saboteur: Saboteur,
    pub(crate) rng: Rng,
    pub(crate) sent: u64,
    pub(crate) turns: u64,
    pub(crate) idle_turns: u32,
    pub(crate) scratch: Vec<u8>,
    pub(crate) accesses: Vec<crate::memory::Access>,
    pub(crate) tap: Option<Tap>,
    pub(crate) workload: Option<Box<dyn Workload>>,
    /// What the workload wants and has not got yet.
    pub(crate) deeds: Vec<Deed>,
    /// Queue pairs of living hosts that have something to do.
    pub(crate) unended: usize,
    pub(crate) measure: Measure,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) watch: Option<Watch>,
    /// When all had ended, but not everybody agreed on which ports are up.
    pub(crate) ended_ns: Option<u64>,
    pub(crate) conversing: bool,
}

/// What a run that broke no promise has to tell.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What it met.
    pub coverage: Coverage,
    /// Virtual time at the end.
    pub ended_ns: u64,
    /// Packets sent, of all kinds.
    pub packets: u64,
    /// Data packets sent, each counted once.
    pub data_packets: u64,
    /// Turns of all engines.
    pub turns: u64,
    /// Whether the saboteur, if any, has struck.
    pub sabotaged: bool,
}

/// How a run ended, with the coverage in either case.
pub type RunResult = Result<Outcome, Box<Violation>>;

impl World {
    /// A run of `scenario` before its first event.
    pub fn new(scenario: Scenario, trace: Trace, sabotage: Option<(Sabotage, u32)>) -> Result<World, Box<Violation>> {
        let seed = scenario.seed;
        let mut rng = Rng::new(seed, "world");
        let mut hosts: Vec<Host> = scenario
            .hosts
            .iter()
            .map(|plan| Host::new(plan.clone(), scenario.planes))
            .collect();
        let (what, wait) = sabotage.map_or((None, 0), |(what, wait)| (Some(what), wait));
        let mut saboteur = Saboteur::new(what, wait);
        for (index, host) in hosts.iter_mut().enumerate().filter(|_| scenario.updates) {
            host.node = Some(Node::of(&scenario, index));
        }
        let mut events = EventQueue::new();
        let (mut flows, mut measure) = (Vec::new(), Measure::default());
        for (connection, plan) in scenario.connections.iter().enumerate() {
            for side in 0..2 {
                let made_of = saboteur.create(plan);
                let host = &mut hosts[plan.hosts[side]];
                let made = host.add_qp(
                    &scenario,
                    made_of.as_ref().unwrap_or(plan),
                    (connection, side),
                    rng.seed(),
                    Instant(0),
                );
                made.map_err(|detail| Violation {
                    oracle: Oracle::State,
                    at_ns: 0,
                    detail,
                })?;
                measure.note_qp(hosts[plan.hosts[side]].qps.len());
                events.post(0, Event::Wake { host: plan.hosts[side] });
                events.post(plan.ready_ns[side], Event::Ready { connection, side });
            }
            flows.push(flows_of(&scenario, connection, &hosts));
        }
        for (at_ns, happening) in &scenario.happenings {
            events.post(*at_ns, Event::Happen(*happening));
        }
        let unfit = |error: PlanError| Violation {
            oracle: Oracle::State,
            at_ns: 0,
            detail: error.to_string(),
        };
        let mut fabric = Fabric::new(scenario.fabric.clone(), &scenario.faults, seed).map_err(unfit)?;
        fabric.start(|next| events.post_next(next));
        let mut coverage = Coverage::default();
        crate::tally::note_planned_faults(&scenario, &mut coverage);
        Ok(World {
            now_ns: 0,
            events,
            fabric,
            codec: Codec::new(scenario.format),
            hosts,
            flows,
            coverage,
            trace,
            saboteur,
            rng,
            sent: 0,
            turns: 0,
            idle_turns: 0,
            scratch: Vec::new(),
            accesses: Vec::new(),
            tap: None,
            workload: None,
            deeds: Vec::new(),
            unended: 0,
            measure,
            recorder: None,
            watch: None,
            ended_ns: None,
            conversing: false,
            scenario,
        })
    }

    /// Lets `tap` see what goes into and comes out of the queue pairs.
    #[must_use]
    pub fn tapped(mut self, tap: Tap) -> World {
        self.tap = Some(tap);
        self
    }

    /// Lets applications react to what happens.
    #[must_use]
    pub fn with_workload(mut self, mut workload: Box<dyn Workload>) -> World {
        workload.begin(&mut self.deeds);
        self.workload = Some(workload);
        self
    }

    /// Runs to the end.
    pub fn run(mut self) -> RunResult {
        self.drive()?;
        Ok(self.outcome())
    }

    /// Runs to the end, and leaves everything as it is then.
    pub(crate) fn drive(&mut self) -> Result<(), Box<Violation>> {
        let result = self.run_events().and_then(|()| self.judge_end());
        self.count_events();
        self.count_rules();
        result.map_err(|Breach(oracle, detail)| {
            Box::new(Violation {
                oracle,
                at_ns: self.now_ns,
                detail,
            })
        })
    }

    fn run_events(&mut self) -> Result<(), Breach> {
        self.do_deeds()?;
        self.recount();
        while let Some((at_ns, event)) = self.events.pop() {
            self.show_onlooker();
            if at_ns > self.scenario.deadline_ns && self.ended_ns.is_none() {
                return Err(Breach(Oracle::Liveness, self.unfinished()));
            }
            debug_assert!(at_ns >= self.now_ns);
            self.now_ns = at_ns;
            match event {
                Event::Turn { host } => {
                    if self.hosts[host].turn_at_ns == Some(at_ns) {
                        self.hosts[host].turn_at_ns = None;
                        self.turn(host)?;
                        self.do_deeds()?;
                        // All faults have done their work; probes may go on for ever.
                        if self.now_ns >= self.scenario.calm_from_ns && self.all_ended() && self.agrees()? {
                            break;
                        }
                    }
                }
                Event::Wake { host } => self.wake(host, at_ns),
                Event::Arrive(frame) => self.arrive(frame),
                Event::Step(step) => {
                    let events = &mut self.events;
                    self.fabric
                        .step(step, at_ns, &mut self.coverage, |next| events.post_next(next));
                }
                Event::Happen(happening) => self.happen(happening)?,
                Event::LinkNews { told, about, plane } => self.hear(told, about, plane),
                Event::Converse => self.converse()?,
                Event::Ready { connection, side } => self.ready(connection, side)?,
                Event::Reconnect(upset) => {
                    self.reconnect(upset)?;
                    self.recount();
                }
                Event::Warm => self.measure.warm = Some(self.snapshot()),
                Event::Sample if self.sample() => break,
                Event::Sample => {}
            }
        }
        Ok(())
    }

    fn arrive(&mut self, frame: Box<Frame>) {
        let (dst, plane) = (frame.dst, usize::from(frame.plane) - 1);
        let host = &mut self.hosts[dst];
        if host.gone || !host.ports[plane].link_up {
            return;
        }
        if host.mood.overruns(self.now_ns, host.received.len()) {
            self.coverage.fault(FaultTag::RingOverrun);
            return;
        }
        host.received.push_back(frame);
        let longest_ns = host.mood.poll_ns(self.now_ns, host.plan.poll_delay_ns);
        let poll_ns = self.rng.below(longest_ns + 1);
        self.wake(dst, self.now_ns + poll_ns);
    }

    /// The host gets a turn at `at_ns`, or earlier if one is planned.
    pub(crate) fn wake(&mut self, host: usize, at_ns: u64) {
        let index = host;
        let host = &mut self.hosts[host];
        let at_ns = at_ns.max(host.stalled_until_ns).max(self.now_ns);
        if host.turn_at_ns.is_none_or(|planned_ns| planned_ns > at_ns) {
            host.turn_at_ns = Some(at_ns);
            self.events.post(at_ns, Event::Turn { host: index });
        }
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Breach> {
        trace!(self.trace, self.now_ns, "** {happening}");
        match happening {
            Happening::Link {
                host,
                plane,
                up,
                own_ns,
                peer_ns,
            } => {
                self.hosts[host].ports[usize::from(plane) - 1].link_up = up;
                self.events.post(
                    self.now_ns + own_ns,
                    Event::LinkNews {
                        told: host,
                        about: host,
                        plane,
                    },
                );
                // Others are told by packets, or hear of it somehow.
                let tells = self.scenario.updates;
                for told in (0..self.hosts.len()).filter(|told| !tells && *told != host) {
                    self.events.post(
                        self.now_ns + peer_ns,
                        Event::LinkNews {
                            told,
                            about: host,
                            plane,
                        },
                    );
                }
            }
            Happening::Stall { host, for_ns } => {
                let until_ns = self.now_ns + for_ns;
                let stalled = &mut self.hosts[host];
                stalled.stalled_until_ns = until_ns;
                stalled.stall = Some(Stall {
                    from: Instant(stalled.mood.clock_ns(self.now_ns)),
                    to: Instant(stalled.mood.clock_ns(until_ns)),
                });
                if stalled.turn_at_ns.take().is_some() {
                    self.wake(host, until_ns);
                }
            }
            Happening::Vanish { host } => {
                let gone = &mut self.hosts[host];
                gone.gone = true;
                gone.turn_at_ns = None;
                gone.received.clear();
                self.recount();
            }
            Happening::Forge {
                connection,
                side,
                forgery,
            } => return self.forge(connection, side, forgery),
            Happening::Control {
                connection,
                side,
                command,
            } => return self.control(connection, side, command),
            Happening::ForgeNode { from, to, forgery } => return self.forge_node(from, to, forgery),
            Happening::Upset(upset) => return self.upset(upset),
            Happening::GiveUp { connection, side } => {
                let host = self.scenario.connections[connection].hosts[side];
                self.give_up(host, connection, side);
                self.wake(host, self.now_ns);
            }
        }
        Ok(())
    }

    fn ready(&mut self, connection: usize, side: usize) -> Result<(), Breach> {
        let plan = &self.scenario.connections[connection];
        let host = plan.hosts[side];
        if self.hosts[host].gone {
            return Ok(());
        }
        let stalled_until_ns = self.hosts[host].stalled_until_ns;
        if stalled_until_ns > self.now_ns {
            // Its application cannot have posted receives either: that comes first, when the host goes on.
            let event = Event::Ready { connection, side };
            self.events.post(stalled_until_ns + 1, event);
            return Ok(());
        }
        let now = Instant(self.hosts[host].mood.clock_ns(self.now_ns));
        if let Some(slot) = self.hosts[host]
            .qps
            .iter_mut()
            .find(|slot| (slot.connection, slot.side) == (connection, side))
            && slot.qp.state() == QpState::Init
            && slot.rests_until_ns <= self.now_ns
        {
            let wide = self.saboteur.goes_on(Sabotage::WideWindow);
            let connected = slot.connect(plan, now, if wide { 2 } else { 1 });
            connected.map_err(|error| Breach(Oracle::State, format!("c{connection}.{side}: {error}")))?;
            slot.next_post_ns = self.now_ns;
            tap::show(&mut self.tap, slot, now.as_ns(), &Seen::Connected(plan));
            trace!(self.trace, self.now_ns, "c{connection}.{side} is ready");
        }
        self.ports_changed(host);
        self.wake(host, self.now_ns);
        Ok(())
    }

    /// Every request of every living host has ended, and nobody owes anything.
    pub(crate) fn all_ended(&self) -> bool {
        self.unended == 0 && self.workload.as_ref().is_none_or(|workload| workload.is_done())
    }

    /// What has not ended, for the report.
    fn unfinished(&self) -> String {
        let mut lines = Vec::new();
        for (host, slot) in self
            .hosts
            .iter()
            .flat_map(|host| host.qps.iter().map(move |slot| (host, slot)))
        {
            let flow = &self.flows[slot.connection][slot.side];
            if !host.gone && (flow.requestor.posted < flow.messages.len() || !slot.work.sends.is_empty()) {
                lines.push(format!(
                    "{} in {:?}: {} of {} messages posted, {} outstanding, {} of {} packets sent, cack {}, unack {}",
                    flow.name,
                    slot.qp.state(),
                    flow.requestor.posted,
                    flow.messages.len(),
                    slot.work.sends.len(),
                    flow.requestor.sent,
                    flow.packets.len(),
                    flow.responder.cack,
                    flow.requestor.unack,
                ));
            }
        }
        format!("not ended: {}", lines.join("; "))
    }

    /// What must hold when nothing happens any more.
    fn judge_end(&mut self) -> Result<(), Breach> {
        if !self.all_ended() {
            return Err(Breach(
                Oracle::Liveness,
                format!("nothing happens any more; {}", self.unfinished()),
            ));
        }
        if let Some(workload) = &self.workload {
            workload.judge()?;
        }
        for index in 0..self.hosts.len() {
            self.judge_memory(index)?;
            let host = &self.hosts[index];
            for qpcc in host.qpccs.iter().filter(|_| !host.gone) {
                let (packets, bytes) = (qpcc.inflight_packets(), qpcc.inflight_bytes());
                if (packets, bytes) != (0, 0) {
                    return Err(Breach(
                        Oracle::Inflight,
                        format!("h{index}: {packets} packets, {bytes} bytes remain"),
                    ));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn outcome(self) -> Outcome {
        Outcome {
            coverage: self.coverage,
            ended_ns: self.now_ns,
            packets: self.sent,
            data_packets: self.flows.iter().flatten().map(|flow| flow.requestor.sent as u64).sum(),
            turns: self.turns,
            sabotaged: self.saboteur.struck,
        }
    }

    /// Memory of a host, for tests.
    pub fn memory(&self, host: usize) -> &HostMemory {
        &self.hosts[host].memory
    }
}

/// Both directions of a connection, before anything was sent.
pub(crate) fn flows_of(scenario: &Scenario, connection: usize, hosts: &[Host]) -> [Flow; 2] {
    let plan = &scenario.connections[connection];
    [0, 1].map(|side| {
        let target = hosts[plan.hosts[1 - side]].memory.regions();
        let name = format!("c{connection}.{side}");
        Flow::new(scenario.seed, name, plan, side, |region| {
            (target[region].va, target[region].rkey)
        })
    })
}
