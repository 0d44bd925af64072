//! From a scenario file to a planned run.

use crate::fabric::FabricPlan;
use crate::fabric::clos::plan::{ClosPlan, LinkPlan, Outage, QueuePlan, Routing};
use crate::fabric::clos::topology::Shape;
use crate::fabric::delay::DelayPlan;
use crate::host::explicit_ev;
use crate::run::estimate::Budget;
use crate::run::file::{FileError, Section};
use crate::run::traffic;
use crate::scenario::{Class, ConnectionPlan, Control, Format, Happening, HostPlan, Scenario, Speed};
use crate::workload::Workload;
use mrc_wire::Pmtu;
use std::collections::BTreeSet;

/// What a full packet costs on a wire beside its data: Ethernet with FCS and gap, IPv6, UDP, MRC headers, ICRC.
const FULL_OVERHEAD: u64 = 14 + 24 + 40 + 8 + 12 + 24 + 4;

/// Marks that a picture has room for.
const MARKS: usize = 40;

/// A run that is about to begin.
#[derive(Debug)]
pub(super) struct Plan {
    /// For the world.
    pub scenario: Scenario,
    /// Applications that react.
    pub workload: Option<Box<dyn Workload>>,
    /// Paths that are bad by plan: EV, plane, from when on.
    pub bad_paths: Vec<(u32, u8, u64)>,
    /// Places that die by plan.
    pub outages: Vec<Outage>,
    /// Connections that measure what others do to them.
    pub victims: Vec<usize>,
    /// Idle round trip of a full packet on the shortest path, with what hosts take.
    pub base_rtt_ns: u64,
    /// Payload that one host can send on all planes, in bit/s.
    pub capacity_bps: f64,
    /// When measurements begin.
    pub warm_ns: u64,
    /// Window of every queue pair in packets.
    pub window_packets: u32,
    /// What kind of load it is.
    pub workload_kind: &'static str,
    /// Payload of all flows.
    pub bytes: u64,
}

/// What all connections have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) template: ConnectionPlan,
    pub(super) pmtu: u32,
}

impl Plan {
    /// Plans what a file says.
    pub(super) fn new(root: &Section<'_>, seed: Option<u64>) -> Result<Plan, FileError> {
        let seed = match seed {
            Some(seed) => seed,
            None => root.number("seed", 0..=i64::MAX as u64, 1)?,
        };
        let fabric = root.section("fabric")?;
        let planes = fabric.number("planes", 1..=8, 4)? as u8;
        let host_mbps = fabric.number("host_mbps", 25..=400_000, 10_000)?;
        let qp = root.section("qp")?;
        let pmtu = pmtu(&qp)?;
        let limits = root.section("limits")?;
        let deadline_ns = limits.number("deadline_ms", 1..=10_000_000, 20_000)? * 1_000_000;
        let mut budget = Budget::new(&limits)?;
        limits.finish()?;
        let (network, hosts, wire_rtt_ns, trims) = network(&fabric, planes, host_mbps, pmtu, &mut budget)?;
        fabric.finish()?;
        let section = root.section("hosts")?;
        let mut host = host(&section, host_mbps)?;
        // On the average a host looks after half the delay; two turns lie on the way.
        let base_rtt_ns = wire_rtt_ns + host.poll_delay_ns + 2 * (host.speed.turn_ns + host.speed.packet_ns);
        host.speed.base_rtt_ns = Some(match section.fraction("told_rtt_us", 0.001..=1e6)? {
            Some(told_us) => (told_us * 1000.0) as u64,
            // protocol.md §10.3: on the longest path, and a SACK may come back on the longest too.
            None => base_rtt_ns + 2 * skew_ns(&network),
        });
        section.finish()?;
        host.speed.path_links = if matches!(network, FabricPlan::Clos(_)) { 4 } else { 1 };
        let full = pmtu.bytes() as u64;
        let capacity_bps =
            u64::from(planes) as f64 * host_mbps as f64 * 1e6 * full as f64 / (full + FULL_OVERHEAD) as f64;
        let common = common(&qp, pmtu, trims, capacity_bps, base_rtt_ns)?;
        qp.finish()?;
        let mut scenario = Scenario {
            seed,
            class: Class::Survivable,
            format: Format::Values,
            planes,
            hosts: vec![host; hosts],
            fabric: network,
            faults: Vec::new(),
            happenings: Vec::new(),
            connections: Vec::new(),
            updates: false,
            calm_from_ns: 0,
            deadline_ns,
            packets: 0,
        };
        let section = root.section("workload")?;
        let load = traffic::plan(&section, &mut scenario, &common, &budget)?;
        section.finish()?;
        let measure = root.section("measure")?;
        let warm_ns = measure.number("warmup_rtts", 0..=1_000_000, 20)? * base_rtt_ns;
        measure.finish()?;
        let mut plan = Plan {
            scenario,
            workload: load.workload,
            bad_paths: Vec::new(),
            outages: Vec::new(),
            victims: load.victims,
            workload_kind: load.kind,
            bytes: load.bytes,
            base_rtt_ns,
            capacity_bps,
            warm_ns,
            window_packets: u32::from(common.template.mpr[0]) * 128,
        };
        for section in root.sections("fault")? {
            plan.add_fault(&section, &common.template)?;
            section.finish()?;
        }
        if let FabricPlan::Clos(clos) = &mut plan.scenario.fabric {
            clos.outages.clone_from(&plan.outages);
        }
        Ok(plan)
    }
}

fn pmtu(qp: &Section<'_>) -> Result<Pmtu, FileError> {
    let bytes = qp.number("pmtu", 256..=4096, 4096)?;
    let all = [Pmtu::B256, Pmtu::B512, Pmtu::B1024, Pmtu::B2048, Pmtu::B4096];
    let found = all.into_iter().find(|pmtu| pmtu.bytes() as u64 == bytes);
    found.ok_or_else(|| qp.error("pmtu", format_args!("= {bytes}: give 256, 512, 1024, 2048 or 4096")))
}

/// The fabric, its hosts, the idle round trip on its wires, and whether it trims.
fn network(
    section: &Section<'_>,
    planes: u8,
    host_mbps: u64,
    pmtu: Pmtu,
    budget: &mut Budget,
) -> Result<(FabricPlan, usize, u64, bool), FileError> {
    let kind = section.word("kind", &["clos", "delay"])?;
    let delay_ns = section.number("delay_ns", 1..=100_000_000, 500)?;
    let frame = pmtu.bytes() as u64 + FULL_OVERHEAD;
    if kind == "delay" {
        let skew_ns = (section.fraction("skew_us", 0.0..=1e6)?.unwrap_or(0.0) * 1000.0) as u64;
        let noise_ns = section.number("noise_ns", 1..=1_000_000_000, 1)?;
        let hosts = section.number("hosts", 2..=250, 2)? as usize;
        let plan = DelayPlan {
            delay_ns: vec![delay_ns; planes.into()],
            skew_ns,
            noise_ns,
        };
        let rtt_ns = 2 * delay_ns + (frame + 150) * 8000 / host_mbps;
        return Ok((FabricPlan::Delay(plan), hosts, rtt_ns, false));
    }
    let leaves = section.number("leaves", 1..=4096, 2)? as usize;
    let shape = Shape {
        planes,
        leaves,
        spines: section.number("spines", u64::from(leaves > 1)..=128, 4)? as usize,
        hosts_per_leaf: section.number("hosts_per_leaf", 1..=1024, 1)? as usize,
    };
    if shape.hosts() < 2 {
        return Err(section.error("hosts_per_leaf", "makes one host in all: have at least 2"));
    }
    budget.check_fabric(section, &shape)?;
    let link = |rate_mbps: u64| LinkPlan {
        rate_mbps: rate_mbps as u32,
        delay_ns,
    };
    let mut clos = ClosPlan::new(shape, link(host_mbps));
    clos.spine_link = link(section.number("spine_mbps", 25..=400_000, host_mbps)?);
    if section.word("routing", &["ecmp", "structured"])? == "structured" {
        clos.routing = Routing::Structured { low_bit: 0, bits: 8 };
    }
    // What a plane holds in flight is what thresholds of queues are shares of, unless switches have more.
    let bdp_kib = u64::from(clos.bdp_bytes()).div_ceil(1024);
    let queue_kib = section.number("queue_kib", 17..=1 << 20, bdp_kib.clamp(17, 1 << 20))?;
    clos.queues = QueuePlan::of_bdp((queue_kib * 1024) as u32);
    let trims = section.flag("trim", true)?;
    if !trims {
        clos.queues = clos.queues.without_trimming();
    }
    if !section.flag("ecn", true)? {
        clos.queues.ecn = None;
    }
    let rtt_ns = clos.base_rtt_ns();
    Ok((FabricPlan::Clos(clos), shape.hosts(), rtt_ns, trims))
}

/// How much longer the longest path is than the shortest.
fn skew_ns(network: &FabricPlan) -> u64 {
    match network {
        FabricPlan::Delay(plan) => plan.skew_ns + plan.noise_ns - 1,
        FabricPlan::Clos(_) => 0,
    }
}

fn host(section: &Section<'_>, rate_mbps: u64) -> Result<HostPlan, FileError> {
    let control = match section.word("control", &["nscc", "ports", "off"])? {
        "nscc" => Control::Nscc,
        "ports" => Control::Ports,
        _ => Control::Off,
    };
    Ok(HostPlan {
        poll_delay_ns: section.number("poll_delay_ns", 0..=100_000_000, 1000)?,
        rx_batch: section.number("rx_batch", 1..=4096, 64)?,
        tx_batch: section.number("tx_batch", 1..=4096, 32)?,
        rate_mbps,
        tx_queue: section.number("tx_queue", 1..=65_536, 16)?,
        cwnd_packets: section.number("port_packets", 1..=65_535, 4096)? as u16,
        control,
        shared_qpcc: section.flag("shared_window", true)?,
        regions: Vec::new(),
        speed: Speed {
            turn_ns: section.number("turn_ns", 0..=1_000_000, 200)?,
            packet_ns: section.number("packet_ns", 1..=1_000_000, 60)?,
            max_cwnd_percent: section.number("max_cwnd_percent", 10..=1000, 100)? as u16,
            ..Speed::default()
        },
    })
}

/// `mpr`, if it is not given: what a host sends in four idle round trips and twice the time after which rule A calls a packet
/// lost, so that a lost packet does not stop the others.
fn common(qp: &Section<'_>, pmtu: Pmtu, trims: bool, capacity_bps: f64, base_rtt_ns: u64) -> Result<Common, FileError> {
    let reo_min_ns = qp.number("reo_min_us", 0..=1_000_000, 50)? * 1000;
    let recovery_ns = 4 * base_rtt_ns + 2 * reo_min_ns;
    let packets = capacity_bps * recovery_ns as f64 / 8e9 / pmtu.bytes() as f64;
    let enough = ((packets / 128.0).ceil() as u64).clamp(1, 127);
    let mpr = qp.number("mpr", 1..=127, enough)? as u8;
    let evs = qp.number("evs_per_plane", 1..=512, 32)?;
    let active = qp.number("active_per_plane", 1..=evs, evs.div_ceil(2))?;
    let floor = qp.number("min_active_per_plane", 1..=active, active.div_ceil(4))?;
    let wimm = qp.number("max_wimm", 1..=4096, 128)? as u16;
    let template = ConnectionPlan {
        mpr: [mpr; 2],
        max_wimm: [wimm; 2],
        believed_wimm: [wimm; 2],
        timeout: qp.number("timeout", 1..=24, 14)? as u8,
        linear_cnt: qp.number("linear_cnt", 0..=7, 7)? as u8,
        exp_cnt: qp.number("exp_cnt", 0..=25, 25)? as u8,
        evs_per_plane: evs as u16,
        active_per_plane: active as u16,
        ev_min_active: floor as u16,
        trim_nack: [trims; 2],
        fabric_trims: trims,
        reo_min_ns,
        sack_gen_threshold: qp.number("sack_bytes", 0..=65_536, 16_384)? as u32,
        sq_depth: qp.number("sq_depth", 1..=32_768, 128)? as u32,
        ..ConnectionPlan::new([0, 1], [0, 0], pmtu)
    };
    Ok(Common {
        template,
        pmtu: pmtu.bytes() as u32,
    })
}

impl Plan {
    /// All paths of a queue pair: EV and plane.
    pub(super) fn universe(&self) -> Vec<(u32, u8)> {
        let per_plane = self.scenario.connections.first().map_or(0, |plan| plan.evs_per_plane);
        let format = self.scenario.format;
        (1..=self.scenario.planes)
            .flat_map(|plane| (0..per_plane).map(move |index| (explicit_ev(format, plane, index), plane)))
            .collect()
    }

    /// Whether paths are bad by plan, or lead over places that die.
    pub(super) fn has_bad_paths(&self) -> bool {
        !self.bad_paths.is_empty() || !self.outages.is_empty()
    }

    /// What happens when by plan, in microseconds, if it happens in the middle of things; without a text, what has happened before.
    pub(super) fn marks(&self) -> Vec<(f64, String)> {
        let mut marks = Vec::new();
        let mut mark = |at_ns: u64, text: String| {
            if at_ns > 0 && at_ns < u64::MAX {
                marks.push((at_ns as f64 / 1000.0, text));
            }
        };
        for outage in &self.outages {
            mark(outage.from_ns, format!("{} dies", outage.place));
            mark(outage.until_ns, format!("{} is back", outage.place));
        }
        for (at_ns, happening) in &self.scenario.happenings {
            if let Happening::Link { host, plane, up, .. } = happening {
                let what = if *up { "up" } else { "down" };
                mark(*at_ns, format!("host {host} port {plane} {what}"));
            }
        }
        for fault in &self.scenario.faults {
            mark(fault.from_ns, format!("{} begins", fault.kind));
            mark(fault.until_ns, format!("{} ends", fault.kind));
        }
        // Faults of many paths begin at the same time, and what comes again and again would cover the curves.
        marks.sort_by(|one, other| one.0.total_cmp(&other.0));
        marks.dedup();
        marks.truncate(MARKS);
        let mut told = BTreeSet::new();
        for (_, text) in &mut marks {
            if !told.insert(text.clone()) {
                text.clear();
            }
        }
        marks
    }
}
