//! The run itself: a loop over what agents say and what the clock says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use netns_lab::Lab;

use super::RunError;
use super::agents::{Agents, News};
use super::fabric::{capture, shape};
use super::machine::{Machine, Processors};
use super::progress::Progress;
use super::record::{Happened, Ran, Record};
use crate::agent::{End, Order, Report, now_ns};
use crate::scenario::{Denial, Scenario};

/// How long agents may take to answer an order, seconds.
pub(super) const ANSWER_S: u64 = 30;
/// How long workloads may take that end by themselves, seconds.
pub(super) const COLLECTIVE_S: u64 = 120;
/// From "all are connected" to the start, so that the order is there before the time is.
pub(super) const LEAD_NS: u64 = 50_000_000;
/// From one reading of the switches' counters to the next.
const SWITCHES_NS: u64 = 200_000_000;
/// Longest sleep.
const NAP: Duration = Duration::from_millis(100);

/// How to run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Nothing on standard error.
    pub silent: bool,
    /// Instead of the scenario's seed.
    pub seed: Option<u64>,
    /// Where to record packets.
    pub captures: Option<PathBuf>,
}

/// Where a workload is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Waits for another's end.
    Waiting,
    Preparing {
        missing: BTreeSet<usize>,
        ends: BTreeMap<usize, Vec<End>>,
    },
    Connecting {
        missing: BTreeSet<usize>,
    },
    Connected,
    Running {
        missing: BTreeSet<usize>,
        stopped: bool,
    },
    Finishing {
        missing: BTreeSet<usize>,
    },
    Finished,
}

pub(super) struct Play<'a> {
    pub(super) scenario: &'a Scenario,
    lab: &'a Lab,
    pub(super) agents: Agents,
    news: &'a Receiver<News>,
    progress: Progress,
    pub(super) record: Record,
    pub(super) phases: Vec<Phase>,
    /// Moments of the timeline that are still to come.
    moments: Vec<usize>,
    /// The common start, once there is one.
    started: bool,
    /// When a phase must be over, ns.
    pub(super) deadlines: Vec<u64>,
    processors: Option<(Processors, u64)>,
    /// When switches are read next.
    read_at: u64,
}

/// Runs a scenario from its fabric to its record.
pub(crate) fn play(
    name: &str,
    scenario: &Scenario,
    options: &Options,
    news: (&Sender<News>, &Receiver<News>),
) -> Result<Record, RunError> {
    let mut scenario = scenario.clone();
    if let Some(reference) = scenario.reference.take() {
        let before = Scenario {
            topology: reference.topology.clone(),
            ..scenario.clone()
        };
        let without_captures = Options {
            captures: None,
            ..options.clone()
        };
        let before = play(&format!("{name} (reference)"), &before, &without_captures, news)?;
        let mut record = play(name, &scenario, options, news)?;
        record.reference = Some(Box::new(before));
        record.scenario.reference = Some(reference);
        return Ok(record);
    }
    let (news_in, news) = news;
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    let mut progress = Progress::new(name, options.silent);
    progress.note(|| "builds the fabric".to_owned());
    let topology = scenario.topology.topology(scenario.seed);
    let lab = Lab::build(&topology)?;
    let captures = options
        .captures
        .as_deref()
        .map_or_else(|| Ok(Vec::new()), |directory| capture(&lab, directory))?;
    let agents = Agents::start(&lab, scenario.sample_ms, news_in)?;
    let record = Record {
        name: name.to_owned(),
        scenario: scenario.clone(),
        start_ns: now_ns(),
        seconds: 0.0,
        hosts: topology.hosts,
        planes: topology.planes,
        shape: shape(&lab, &scenario),
        samples: vec![Vec::new(); topology.hosts],
        arrived: BTreeMap::new(),
        switches: Vec::new(),
        happened: Vec::new(),
        workloads: vec![Ran::default(); scenario.workload.len()],
        machine: Machine::this(),
        processors: Vec::new(),
        doubts: Vec::new(),
        reference: None,
    };
    let mut play = Play {
        scenario: &scenario,
        lab: &lab,
        agents,
        news,
        progress,
        record,
        phases: scenario.workload.iter().map(|_| Phase::Waiting).collect(),
        moments: (0..scenario.timeline.len()).collect(),
        started: false,
        deadlines: vec![u64::MAX; scenario.workload.len()],
        processors: None,
        read_at: 0,
    };
    play.wait_for_agents()?;
    play.run()?;
    play.progress.end();
    play.agents.quit();
    for late in news.try_iter() {
        if let News::Signal(signal) = late {
            return Err(RunError::Signal(signal));
        }
    }
    let mut record = play.record;
    for capture in captures {
        let captured = capture.stop()?;
        if captured.dropped > 0 {
            record
                .doubts
                .push(format!("the captures lost {} packets", captured.dropped));
        }
    }
    Ok(record)
}

impl Play<'_> {
    fn wait_for_agents(&mut self) -> Result<(), RunError> {
        let mut missing: BTreeSet<usize> = (0..self.record.hosts).collect();
        let late = now_ns() + ANSWER_S * 1_000_000_000;
        while !missing.is_empty() {
            let count = missing.len();
            self.progress.note(|| format!("waits for {count} engines"));
            if let Some((host, Report::Ready)) = self.next_report(NAP)? {
                missing.remove(&host);
            }
            if now_ns() > late {
                return Err(RunError::Late {
                    what: format!("the engine of h{}", missing.iter().next().unwrap_or(&0)),
                    seconds: ANSWER_S,
                });
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), RunError> {
        let before: Vec<usize> = self
            .moments
            .iter()
            .copied()
            .filter(|m| self.scenario.timeline[*m].at < 0.0)
            .collect();
        for moment in before {
            self.moments.retain(|other| *other != moment);
            self.change(moment)?;
        }
        for place in 0..self.phases.len() {
            if self.scenario.workload[place].after.is_none() {
                self.prepare(place)?;
            }
        }
        while !self.is_over() {
            if let Some((host, report)) = self.next_report(self.patience())? {
                self.hear(host, report)?;
            }
            self.start_if_connected()?;
            self.look_at_the_clock()?;
        }
        self.record.seconds = self.record.seconds_of(now_ns());
        // What was counted in the end.
        self.read_at = 0;
        self.read_switches()
    }

    fn is_over(&self) -> bool {
        self.started
            && self.moments.is_empty()
            && self.phases.iter().all(|phase| matches!(phase, Phase::Finished))
            && self.record.seconds_of(now_ns()) >= self.scenario.seconds
    }

    /// The next word of an agent, unless none comes in time.
    fn next_report(&mut self, patience: Duration) -> Result<Option<(usize, Report)>, RunError> {
        match self.news.recv_timeout(patience) {
            Ok(News::Said(host, Report::Failed { message }) | News::Gone(host, message)) => Err(RunError::Agent {
                host: format!("h{host}"),
                message,
            }),
            Ok(News::Said(host, report)) => Ok(Some((host, report))),
            Ok(News::Signal(signal)) => Err(RunError::Signal(signal)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// How long nothing is due.
    fn patience(&self) -> Duration {
        let due = self.moments.iter().filter_map(|moment| self.due(*moment));
        let next = due.fold(f64::INFINITY, f64::min) - self.record.seconds_of(now_ns());
        if self.started && next < NAP.as_secs_f64() {
            return Duration::from_secs_f64(next.max(0.0));
        }
        NAP
    }

    /// When a moment of the timeline comes, if that is known yet.
    fn due(&self, moment: usize) -> Option<f64> {
        let moment = &self.scenario.timeline[moment];
        Some(moment.at + self.base(moment.after.as_deref())?)
    }

    /// From where times after `after` count.
    pub(super) fn base(&self, after: Option<&str>) -> Option<f64> {
        let Some(after) = after else {
            return self.started.then_some(0.0);
        };
        let place = self.scenario.place(after)?;
        matches!(self.phases[place], Phase::Finished).then_some(self.record.workloads[place].end)
    }

    fn hear(&mut self, host: usize, report: Report) -> Result<(), RunError> {
        match report {
            Report::Sample(sample) => self.record.take(host, *sample),
            Report::Prepared { id, ends: of_host } => {
                if let Phase::Preparing { missing, ends } = &mut self.phases[id] {
                    missing.remove(&host);
                    ends.insert(host, of_host);
                    if missing.is_empty() {
                        let ends = std::mem::take(ends);
                        self.connect(id, &ends)?;
                    }
                }
            }
            Report::Connected { id } => {
                if let Phase::Connecting { missing } = &mut self.phases[id] {
                    missing.remove(&host);
                    if missing.is_empty() {
                        self.phases[id] = Phase::Connected;
                        self.deadlines[id] = u64::MAX;
                    }
                }
            }
            Report::Done { id, outcome } => {
                let ended = self.record.seconds_of(outcome.ended_ns);
                let ran = &mut self.record.workloads[id];
                ran.end = ran.end.max(ended);
                let failed = outcome.errors > 0;
                ran.outcomes.insert(host, *outcome);
                if let Phase::Running { missing, .. } = &mut self.phases[id] {
                    missing.remove(&host);
                }
                // A rank that gave up keeps all others waiting.
                if failed && self.scenario.workload[id].kind.is_collective() {
                    self.stop(id)?;
                }
                self.after_done(id)?;
            }
            Report::Finished { id, compared } => {
                self.record.workloads[id].compared.insert(host, compared);
                if let Phase::Finishing { missing } = &mut self.phases[id] {
                    missing.remove(&host);
                    if missing.is_empty() {
                        self.finished(id)?;
                    }
                }
            }
            Report::Ready | Report::Failed { .. } => {}
        }
        Ok(())
    }

    /// Starts everything that is connected, once what starts first is.
    fn start_if_connected(&mut self) -> Result<(), RunError> {
        let first = |place: usize| self.scenario.workload[place].after.is_none();
        let connected = |phase: &Phase| matches!(phase, Phase::Connected);
        if !self.started {
            let mut firsts = (0..self.phases.len()).filter(|place| first(*place));
            if !firsts.all(|place| connected(&self.phases[place])) {
                return Ok(());
            }
            self.started = true;
            self.record.start_ns = now_ns() + LEAD_NS;
            self.processors = Processors::now().map(|processors| (processors, now_ns()));
        }
        for place in 0..self.phases.len() {
            if connected(&self.phases[place]) {
                self.start(place)?;
            }
        }
        Ok(())
    }

    /// When all who write are done, those who only receive are told so; when all are done, what has arrived is compared.
    fn after_done(&mut self, place: usize) -> Result<(), RunError> {
        let Phase::Running { missing, stopped } = &self.phases[place] else {
            return Ok(());
        };
        let (missing, stopped) = (missing.clone(), *stopped);
        if missing.is_empty() {
            let hosts = self.hosts_of(place);
            for &host in &hosts {
                self.agents.tell(host, &Order::Finish { id: place })?;
            }
            self.phases[place] = Phase::Finishing { missing: hosts };
            self.deadlines[place] = now_ns() + ANSWER_S * 1_000_000_000;
            return Ok(());
        }
        let writes = |host: &usize| self.ends_of(place, *host).iter().any(|end| end.writes);
        if !stopped && !missing.iter().any(writes) {
            self.stop(place)?;
        }
        Ok(())
    }

    fn finished(&mut self, place: usize) -> Result<(), RunError> {
        self.phases[place] = Phase::Finished;
        self.deadlines[place] = u64::MAX;
        self.record.workloads[place].finished = true;
        // Times after a workload count from when its hosts have given everything back.
        let now = self.record.seconds_of(now_ns());
        let ran = &mut self.record.workloads[place];
        ran.end = if ran.end > 0.0 { ran.end } else { now };
        let name = &self.scenario.workload[place].name;
        for next in 0..self.phases.len() {
            if self.scenario.workload[next].after.as_ref() == Some(name) {
                self.prepare(next)?;
            }
        }
        Ok(())
    }

    fn look_at_the_clock(&mut self) -> Result<(), RunError> {
        let now = now_ns();
        for place in 0..self.phases.len() {
            if now <= self.deadlines[place] {
                continue;
            }
            let name = &self.scenario.workload[place].name;
            if matches!(self.phases[place], Phase::Running { stopped: false, .. }) {
                self.progress.say(&format!("{name} takes too long and is stopped"));
                self.deadlines[place] = now + ANSWER_S * 1_000_000_000;
                self.stop(place)?;
            } else {
                let what = format!("the hosts of workload {name} ({:?})", self.phases[place]);
                return Err(RunError::Late {
                    what,
                    seconds: ANSWER_S,
                });
            }
        }
        self.account_for_processors();
        self.read_switches()?;
        self.show_progress();
        let at = self.record.seconds_of(now);
        let due: Vec<usize> = self
            .moments
            .iter()
            .copied()
            .filter(|m| self.due(*m).is_some_and(|due| due <= at))
            .collect();
        for moment in due {
            self.moments.retain(|other| *other != moment);
            self.change(moment)?;
        }
        Ok(())
    }

    fn change(&mut self, moment: usize) -> Result<(), RunError> {
        let moment = &self.scenario.timeline[moment];
        self.record.happened.push(Happened {
            at: self.record.seconds_of(now_ns()),
            what: moment.describe(),
            broke: moment.breaks(),
        });
        self.progress.say(&format!(
            "{:.1} s: {}",
            self.record.seconds_of(now_ns()),
            moment.describe()
        ));
        // What breaks anew in the same moment stays broken.
        if moment.heal_all {
            self.lab.heal_all()?;
        }
        for fault in &moment.heal {
            self.lab.heal(fault)?;
        }
        for fault in &moment.fault {
            self.lab.fault(fault)?;
        }
        for (denials, denied) in [(&moment.deny, true), (&moment.allow, false)] {
            for denial in denials {
                self.deny(denial, denied)?;
            }
        }
        Ok(())
    }

    fn deny(&mut self, denial: &Denial, denied: bool) -> Result<(), RunError> {
        let number = |name: &str| name.strip_prefix('h').and_then(|n| n.parse().ok()).unwrap_or(0);
        let order = Order::Deny {
            profile: self.scenario.topology.ev_profile(number(&denial.to)),
            plane: denial.plane.map(|plane| plane as u8),
            path: denial.path.clone(),
            denied,
        };
        self.agents.tell(number(&denial.host), &order)
    }

    fn read_switches(&mut self) -> Result<(), RunError> {
        let now = now_ns();
        if self.started && now >= self.read_at {
            self.read_at = now + SWITCHES_NS;
            let at = self.record.seconds_of(now);
            self.record.switches.push((at, self.lab.switch_ports()?));
        }
        Ok(())
    }

    fn account_for_processors(&mut self) {
        let now = now_ns();
        let Some((before, since)) = self.processors else { return };
        if now < since + self.scenario.sample_ms * 2_000_000 {
            return;
        }
        if let Some(processors) = Processors::now() {
            let at = self.record.seconds_of(now);
            self.record.processors.extend(processors.since(before, at));
            self.processors = Some((processors, now));
        }
    }

    fn show_progress(&mut self) {
        let (record, phases) = (&self.record, &self.phases);
        let scenario = self.scenario;
        self.progress.note(|| {
            let at = record.seconds_of(now_ns()).max(0.0);
            let mut line = format!("{at:.1} of {:.0} s", scenario.seconds);
            for (place, phase) in phases.iter().enumerate() {
                if !matches!(phase, Phase::Running { .. }) {
                    continue;
                }
                let ways = record.ways(place).iter();
                let bps: f64 = ways
                    .map(|way| record.goodput_bps(place, *way, at - 0.5, at - 0.1))
                    .sum();
                let _ = write!(line, "  {} {:.0} Mbit/s", scenario.workload[place].name, bps / 1e6);
            }
            if let Some(last) = record.processors.last() {
                let _ = write!(line, "  CPU {:.0} %", 100.0 * (1.0 - last.idle));
            }
            line
        });
    }
}
