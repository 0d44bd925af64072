//! From a scenario file to a planned run.

use crate::fabric::FabricPlan;
use crate::fabric::clos::plan::{ClosPlan, LinkPlan, Outage, QueuePlan, Routing};
use crate::fabric::clos::topology::{Place, Shape, Switch};
use crate::fabric::delay::DelayPlan;
use crate::fabric::fault::{Fault, Kind, Scope};
use crate::host::explicit_ev;
use crate::rng::Rng;
use crate::run::file::{FileError, Section};
use crate::run::traffic;
use crate::scenario::{Class, ConnectionPlan, Control, Format, Happening, HostPlan, Scenario, Speed};
use crate::workload::Workload;
use mrc_wire::Pmtu;

/// What a full packet costs on a wire beside its data: Ethernet with FCS and gap, IPv6, UDP, MRC headers, ICRC.
const FULL_OVERHEAD: u64 = 14 + 24 + 40 + 8 + 12 + 24 + 4;

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
    /// Idle round trip of a full packet, with what hosts take.
    pub base_rtt_ns: u64,
    /// Payload that one host can send on all planes, in bit/s.
    pub capacity_bps: f64,
    /// When measurements begin.
    pub warm_ns: u64,
    /// Window of every queue pair in packets.
    pub window_packets: u32,
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
        let (network, hosts, wire_rtt_ns, trims) = network(&fabric, planes, host_mbps, pmtu)?;
        fabric.finish()?;
        let section = root.section("hosts")?;
        let mut host = host(&section, host_mbps)?;
        section.finish()?;
        // On the average a host looks after half the delay; two turns lie on the way.
        let base_rtt_ns = wire_rtt_ns + host.poll_delay_ns + 2 * (host.speed.turn_ns + host.speed.packet_ns);
        host.speed.base_rtt_ns = Some(base_rtt_ns);
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
            calm_from_ns: 0,
            deadline_ns: 0,
            packets: 0,
        };
        let section = root.section("workload")?;
        let (workload, victims) = traffic::plan(&section, &mut scenario, &common)?;
        section.finish()?;
        let limits = root.section("limits")?;
        scenario.deadline_ns = limits.number("deadline_ms", 1..=10_000_000, 20_000)? * 1_000_000;
        limits.finish()?;
        let measure = root.section("measure")?;
        let warm_ns = measure.number("warmup_rtts", 0..=1_000_000, 20)? * base_rtt_ns;
        measure.finish()?;
        let mut plan = Plan {
            scenario,
            workload,
            bad_paths: Vec::new(),
            outages: Vec::new(),
            victims,
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

    fn add_fault(&mut self, section: &Section<'_>, template: &ConnectionPlan) -> Result<(), FileError> {
        let kinds = [
            "loss",
            "burst",
            "duplicate",
            "reorder",
            "blackhole",
            "ce",
            "trim",
            "port_down",
            "spine_down",
            "leaf_down",
            "stall",
        ];
        if !section.has("kind") {
            return Err(section.error("kind", format_args!("is missing: give one of {}", kinds.join(", "))));
        }
        let kind = section.word("kind", &kinds)?;
        let (from_ns, until_ns) = window(section)?;
        let planes = u64::from(self.scenario.planes);
        let plane = section.number("plane", 1..=planes, 1)? as u8;
        let on_plane = section.has("plane").then_some(plane);
        let last = self.scenario.hosts.len() as u64 - 1;
        match kind {
            "port_down" => {
                let host = section.number("host", 0..=last, 0)? as usize;
                let own_ns = section.number("own_us", 0..=10_000_000, 10)? * 1000;
                let peer_ns = section.number("peer_us", 0..=10_000_000, 100)? * 1000;
                for (at_ns, up) in [(from_ns, false), (until_ns, true)] {
                    let happening = Happening::Link {
                        host,
                        plane,
                        up,
                        own_ns,
                        peer_ns,
                    };
                    if at_ns < u64::MAX {
                        self.scenario.happenings.push((at_ns, happening));
                    }
                }
                return Ok(());
            }
            "stall" => {
                let host = section.number("host", 0..=last, 0)? as usize;
                let for_ns = until_ns.saturating_sub(from_ns).min(1_000_000_000);
                self.scenario
                    .happenings
                    .push((from_ns, Happening::Stall { host, for_ns }));
                return Ok(());
            }
            "spine_down" | "leaf_down" => {
                let FabricPlan::Clos(clos) = &self.scenario.fabric else {
                    return Err(section.error("kind", "needs switches: set fabric.kind = \"clos\""));
                };
                let Shape { leaves, spines, .. } = clos.shape;
                let most = (if kind == "leaf_down" { leaves } else { spines.max(1) }) as u64 - 1;
                let number = section.number("switch", 0..=most, 0)? as usize;
                let switch = if kind == "leaf_down" {
                    Switch::Leaf { plane, leaf: number }
                } else {
                    Switch::Spine { plane, spine: number }
                };
                let reroute = section.has("reroute_us");
                let reroute_ns = section.number("reroute_us", 0..=100_000_000, 0)? * 1000;
                self.outages.push(Outage {
                    place: Place::Switch(switch),
                    from_ns,
                    until_ns,
                    reroute_ns: reroute.then_some(reroute_ns),
                });
                return Ok(());
            }
            _ => {}
        }
        let ppm = section
            .fraction("percent", 0.0..=100.0)?
            .map_or(1_000_000, |percent| (percent * 10_000.0).round() as u32);
        let within_ns = (section.fraction("within_us", 0.0..=1e6)?.unwrap_or(10.0) * 1000.0) as u64;
        let fault_kind = match kind {
            "loss" => Kind::Loss { ppm },
            "burst" => Kind::Burst {
                enter_ppm: ppm,
                within_ns,
            },
            "duplicate" => Kind::Duplicate { ppm, within_ns },
            "reorder" => Kind::Jitter { ppm, within_ns },
            "ce" => Kind::CeMark { ppm },
            "trim" => Kind::Trim {
                ppm,
                last_hop: section.flag("last_hop", false)?,
            },
            _ => Kind::Blackhole,
        };
        let end = |key| Ok(section.has(key).then_some(section.number(key, 0..=last, 0)? as usize));
        let scope = Scope {
            plane: on_plane,
            src: end("from_host")?,
            dst: end("to_host")?,
            data: match section.word("packets", &["all", "data", "control"])? {
                "data" => Some(true),
                "control" => Some(false),
                _ => None,
            },
            ..Scope::default()
        };
        let fault = |scope| Fault {
            kind: fault_kind,
            scope,
            from_ns,
            until_ns,
        };
        let share = section.fraction("paths", 0.0..=1.0)?;
        let each = section.number("paths_per_plane", 0..=template.evs_per_plane.into(), 0)?;
        let count = match share {
            Some(share) => (share * f64::from(template.evs_per_plane)).round() as u64,
            None => each,
        };
        if count == 0 {
            self.scenario.faults.push(fault(scope));
            return Ok(());
        }
        let mut rng = Rng::new(self.scenario.seed, "bad paths");
        for plane in on_plane.map_or(1..=planes as u8, |plane| plane..=plane) {
            let mut indices: Vec<u16> = (0..template.evs_per_plane).collect();
            for _ in 0..count {
                let index = indices.swap_remove(rng.below(indices.len() as u64) as usize);
                let ev = explicit_ev(self.scenario.format, plane, index);
                self.bad_paths.push((ev, plane, from_ns));
                self.scenario.faults.push(fault(Scope {
                    ev: Some(ev),
                    plane: Some(plane),
                    ..scope
                }));
            }
        }
        Ok(())
    }
}

fn window(section: &Section<'_>) -> Result<(u64, u64), FileError> {
    let from_ns = (section.fraction("from_us", 0.0..=1e9)?.unwrap_or(0.0) * 1000.0) as u64;
    let until_ns = match section.fraction("until_us", 0.0..=1e9)? {
        Some(until_us) => (until_us * 1000.0) as u64,
        None => u64::MAX,
    };
    if until_ns <= from_ns {
        return Err(section.error("until_us", "is not after from_us: give a later instant, or none"));
    }
    Ok((from_ns, until_ns))
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
    let queue_kib = section.number("queue_kib", 17..=1 << 20, bdp_kib.max(17))?;
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

    /// What happens when by plan, in microseconds, if it happens in the middle of things.
    pub(super) fn marks(&self) -> Vec<(f64, String)> {
        let mut marks = Vec::new();
        let mut mark = |at_ns: u64, text: String| {
            if at_ns > 0 && at_ns < u64::MAX {
                marks.push((at_ns as f64 / 1000.0, text));
            }
        };
        for outage in &self.outages {
            let name = match outage.place {
                Place::Switch(switch) => switch.to_string(),
                place => format!("{place:?}"),
            };
            mark(outage.from_ns, format!("{name} dies"));
            mark(outage.until_ns, format!("{name} is back"));
        }
        for (at_ns, happening) in &self.scenario.happenings {
            if let Happening::Link { host, plane, up, .. } = happening {
                let what = if *up { "up" } else { "down" };
                mark(*at_ns, format!("host {host} port {plane} {what}"));
            }
        }
        for fault in self.scenario.faults.iter().take(4) {
            mark(fault.from_ns, format!("{:?} begins", fault.kind));
            mark(fault.until_ns, format!("{:?} ends", fault.kind));
        }
        marks
    }
}
