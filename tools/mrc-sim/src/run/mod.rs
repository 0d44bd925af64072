//! Runs scenario files: what is measured, and whether it is what the file demands.

mod criteria;
pub mod file;
mod library;
mod output;
mod plan;
mod report;
mod traffic;

pub use criteria::{METRICS, Verdict};
pub use library::{names, text_of, title_of};
pub use output::{write_plots, write_series};

use crate::fabric::clos::plan::{ClosPlan, Sampling};
use crate::fabric::clos::sampler::Series;
use crate::fabric::clos::topology::Link;
use crate::fabric::fault::Fault;
use crate::fabric::{Fabric, FabricPlan};
use crate::measure::{Watched, peak_memory_bytes};
use crate::oracle::Violation;
use crate::run::criteria::{Criterion, measure};
use crate::run::file::{FileError, Section, set, set_text};
use crate::run::plan::Plan;
use crate::series::{Recorder, Sample};
use crate::trace::Trace;
use crate::world::{Event, Outcome, World};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;
use toml::Table;

/// Links whose queues are sampled, at most.
const SAMPLED_LINKS: usize = 256;

/// How a file is to be run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Instead of the file's seed.
    pub seed: Option<u64>,
    /// Keys and values that replace those of the file.
    pub set: Vec<(String, String)>,
    /// Only the case of this name.
    pub case: Option<String>,
    /// Interval of the time series, if there are to be any, in microseconds; 0: a hundredth of what the run takes.
    pub sample_us: Option<f64>,
}

/// What a file has led to.
#[derive(Debug)]
pub struct FileReport {
    /// The scenario.
    pub name: String,
    /// Its title.
    pub title: String,
    /// By case, in the order of the file.
    pub cases: Vec<CaseReport>,
}

/// What a case has led to.
#[derive(Debug)]
pub struct CaseReport {
    /// Its name, empty if the file has only one.
    pub name: String,
    /// Seed of the run.
    pub seed: u64,
    /// The run, or the promise that was broken.
    pub run: Result<Run, Box<Violation>>,
    /// What was demanded.
    pub verdicts: Vec<Verdict>,
    /// The command that repeats it.
    pub replay: String,
}

/// A run that broke no promise.
#[derive(Debug)]
pub struct Run {
    /// What it met.
    pub outcome: Outcome,
    /// What was measured, by name.
    pub metrics: BTreeMap<&'static str, f64>,
    /// Facts of the plan: idle round trip, capacity, window.
    pub facts: Facts,
    /// What happened when, in microseconds, for pictures.
    pub marks: Vec<(f64, String)>,
    /// Samples of hosts.
    pub samples: Vec<Sample>,
    /// Samples of links.
    pub links: Vec<Series>,
    /// Wall-clock time in seconds.
    pub wall_s: f64,
    /// The most memory that the process had by the end, in bytes.
    pub peak_bytes: Option<u64>,
}

/// Facts of a plan that explain its numbers.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// Hosts.
    pub hosts: usize,
    /// Planes.
    pub planes: u8,
    /// Idle round trip of a full packet, with what hosts take.
    pub base_rtt_ns: u64,
    /// Payload that one host can send on all planes, in bit/s.
    pub capacity_bps: f64,
    /// Window in packets.
    pub window: u32,
}

impl FileReport {
    /// Whether no promise was broken and every demand was met.
    pub fn passed(&self) -> bool {
        self.cases
            .iter()
            .all(|case| case.run.is_ok() && case.verdicts.iter().all(|verdict| verdict.met))
    }
}

/// Plans all cases of a file without running them: whether it says something that makes sense. Returns their number.
pub fn check_file(name: &str, text: &str) -> Result<usize, FileError> {
    let table = file::parse(name, text)?;
    let root = Section::root(name, &table);
    let cases = root.sections("case")?;
    let mut tables = vec![table.clone()];
    for case in &cases {
        let mut changed = table.clone();
        for (key, value) in case.section("set")?.entries() {
            set(&mut changed, key, value.clone())?;
        }
        tables.push(changed);
    }
    for table in &tables {
        let root = Section::root(name, table);
        Criterion::all(&root)?;
        let plan = plan_of(&root, &Options::default())?;
        World::new(plan.scenario, Trace::off(), None).map_err(|violation| FileError {
            file: name.to_owned(),
            what: violation.detail,
        })?;
    }
    Ok(cases.len())
}

/// Runs all cases of a file, or the one that was asked for.
pub fn run_file(name: &str, text: &str, options: &Options) -> Result<FileReport, FileError> {
    let table = file::parse(name, text)?;
    let root = Section::root(name, &table);
    let title = root.text("title")?.to_owned();
    let cases = root.sections("case")?;
    let mut names = Vec::new();
    let mut reports = Vec::new();
    for case in &cases {
        let case_name = case.text("name")?;
        let changes = case.section("set")?;
        case.finish()?;
        names.push(case_name.to_owned());
        if options.case.as_deref().is_none_or(|asked| asked == case_name) {
            let mut changed = table.clone();
            for (key, value) in changes.entries() {
                set(&mut changed, key, value.clone())?;
            }
            reports.push(run_case(name, case_name, changed, options)?);
        }
    }
    if let Some(asked) = options.case.as_ref().filter(|asked| !names.contains(asked)) {
        return Err(FileError {
            file: name.to_owned(),
            what: format!("there is no case \"{asked}\": choose one of {}", names.join(", ")),
        });
    }
    if cases.is_empty() {
        reports.push(run_case(name, "", table.clone(), options)?);
    }
    Ok(FileReport {
        name: name.to_owned(),
        title,
        cases: reports,
    })
}

fn run_case(name: &str, case: &str, mut table: Table, options: &Options) -> Result<CaseReport, FileError> {
    for (key, value) in &options.set {
        set_text(&mut table, key, value)?;
    }
    let root = Section::root(name, &table);
    let criteria = Criterion::all(&root)?;
    let plan = plan_of(&root, options)?;
    let seed = plan.scenario.seed;
    let sample_ns = options.sample_us.map(|us| match us {
        us if us > 0.0 => (us * 1000.0) as u64,
        _ => 10 * plan.base_rtt_ns,
    });
    let run = execute(plan, sample_ns);
    let mut verdicts = Vec::new();
    if let Ok(run) = &run {
        let reference = if criteria.iter().any(Criterion::needs_reference) {
            Some(reference(name, &table, options)?)
        } else {
            None
        };
        verdicts = criteria
            .iter()
            .map(|criterion| criterion.judge(&run.metrics, reference.as_ref()))
            .collect();
    }
    let mut replay = format!("cargo run --release -p mrc-sim -- run {name} --seed {seed}");
    if !case.is_empty() {
        let _ = write!(replay, " --case {case}");
    }
    for (key, value) in &options.set {
        let _ = write!(replay, " --set '{key}={value}'");
    }
    Ok(CaseReport {
        name: case.to_owned(),
        seed,
        run,
        verdicts,
        replay,
    })
}

/// The metrics of the run that others are compared with.
fn reference(name: &str, table: &Table, options: &Options) -> Result<BTreeMap<&'static str, f64>, FileError> {
    let mut changed = table.clone();
    let root = Section::root(name, table);
    for (key, value) in root.section("reference")?.entries() {
        set(&mut changed, key, value.clone())?;
    }
    let run = execute(plan_of(&Section::root(name, &changed), options)?, None);
    run.map(|run| run.metrics).map_err(|violation| FileError {
        file: format!("{name}, the run for reference"),
        what: violation.to_string(),
    })
}

/// What another transport needs to run the same.
#[derive(Debug)]
pub(crate) struct Load {
    /// The fabric, with its outages.
    pub(crate) clos: ClosPlan,
    /// Faults of frames.
    pub(crate) faults: Vec<Fault>,
    /// What every connection sends, per direction: source, destination, bytes.
    pub(crate) flows: Vec<(usize, usize, u64)>,
    /// Payload of a full packet.
    pub(crate) pmtu: u32,
    /// Of the run.
    pub(crate) seed: u64,
}

/// The network and the load of a file without cases, on a fabric with switches.
pub(crate) fn load_of(name: &str, text: &str, options: &Options) -> Result<Load, FileError> {
    let mut table = file::parse(name, text)?;
    for (key, value) in &options.set {
        set_text(&mut table, key, value)?;
    }
    let root = Section::root(name, &table);
    Criterion::all(&root)?;
    let scenario = plan_of(&root, options)?.scenario;
    let FabricPlan::Clos(clos) = scenario.fabric else {
        return Err(root.error("fabric.kind", "must be \"clos\": only switches have queues"));
    };
    let flows = (scenario.connections.iter())
        .flat_map(|plan| [0, 1].map(|side| (plan.hosts[side], plan.hosts[1 - side], plan.flows[side].bytes())))
        .filter(|(_, _, bytes)| *bytes > 0);
    Ok(Load {
        clos,
        faults: scenario.faults,
        flows: flows.collect(),
        pmtu: scenario
            .connections
            .first()
            .map_or(4096, |plan| plan.pmtu.bytes() as u32),
        seed: scenario.seed,
    })
}

fn plan_of(root: &Section<'_>, options: &Options) -> Result<Plan, FileError> {
    let plan = Plan::new(root, options.seed)?;
    for key in ["title", "about"] {
        root.text(key)?;
    }
    root.section("reference")?;
    root.sections("case")?;
    root.sections("criterion")?;
    root.number("seed", 0..=i64::MAX as u64, 1)?;
    root.finish()?;
    Ok(plan)
}

fn execute(mut plan: Plan, sample_ns: Option<u64>) -> Result<Run, Box<Violation>> {
    let begun = Instant::now();
    let facts = Facts {
        hosts: plan.scenario.hosts.len(),
        planes: plan.scenario.planes,
        base_rtt_ns: plan.base_rtt_ns,
        capacity_bps: plan.capacity_bps,
        window: plan.window_packets,
    };
    if let (Some(every_ns), FabricPlan::Clos(clos)) = (sample_ns, &mut plan.scenario.fabric) {
        let queues = clos.shape.links().filter(|link| !matches!(link, Link::HostUp { .. }));
        clos.sampling = Some(Sampling {
            every_ns,
            links: queues.take(SAMPLED_LINKS).collect(),
        });
    }
    let mut world = World::new(plan.scenario.clone(), Trace::off(), None)?;
    if let Some(workload) = plan.workload.take() {
        world = world.with_workload(workload);
    }
    watch(&mut world, &plan);
    if plan.warm_ns > 0 {
        world.events.post(plan.warm_ns, Event::Warm);
    }
    if let Some(every_ns) = sample_ns {
        world.recorder = Some(Recorder::new(every_ns));
        world.events.post(every_ns, Event::Sample);
    }
    world.drive()?;
    let metrics = measure(&world, &plan);
    let samples = world
        .recorder
        .take()
        .map(|recorder| recorder.samples)
        .unwrap_or_default();
    let now_ns = world.now_ns;
    let links = match &mut world.fabric {
        Fabric::Clos(clos) => clos.series(now_ns),
        Fabric::Delay(_) => Vec::new(),
    };
    Ok(Run {
        outcome: world.outcome(),
        metrics,
        facts,
        marks: plan.marks(),
        samples,
        links,
        wall_s: begun.elapsed().as_secs_f64(),
        peak_bytes: peak_memory_bytes(),
    })
}

/// Watches the paths that are bad by plan, and those that lead over places that die.
fn watch(world: &mut World, plan: &Plan) {
    let mut watched = BTreeMap::new();
    for (connection, facts) in plan.scenario.connections.iter().enumerate() {
        for side in (0..2).filter(|side| !facts.flows[*side].messages.is_empty()) {
            let mut add = |ev, plane, bad_from_ns| {
                let bad = Watched {
                    bad_from_ns,
                    ..Watched::default()
                };
                watched.insert((connection, side, ev, plane), bad);
            };
            for (ev, plane, from_ns) in &plan.bad_paths {
                add(*ev, *plane, *from_ns);
            }
            let Some(clos) = world.fabric.clos() else { continue };
            let [src, dst] = [facts.hosts[side], facts.hosts[1 - side]];
            for outage in &plan.outages {
                let dead = clos.plan().shape.links_of(outage.place).unwrap_or_default();
                for (ev, plane) in plan.universe() {
                    let path = clos.path_of(src, dst, plane, ev);
                    if path.is_some_and(|path| path.links().iter().any(|link| dead.contains(link))) {
                        add(ev, plane, outage.from_ns);
                    }
                }
            }
        }
    }
    world.measure.watched = watched;
}
