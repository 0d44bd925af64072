//! What a run is measured by, and what a file may demand of it.

use crate::fabric::FabricPlan;
use crate::measure::{FlowPath, jain};
use crate::run::file::{FileError, Section};
use crate::run::plan::Plan;
use crate::world::World;
use mrc_protocol::EvState;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name in files and reports.
    pub name: &'static str,
    /// Its unit, empty for a share.
    pub unit: &'static str,
    /// What it is.
    pub what: &'static str,
    /// It is a number of things.
    pub counts: bool,
}

/// All metrics.
pub const METRICS: [Metric; 22] = [
    Metric::value(
        "goodput_gbps",
        "Gb/s",
        "payload of all flows per time, from the first post to the last byte placed",
    ),
    Metric::value(
        "goodput_share",
        "",
        "the same as share of what all planes of one host can carry after headers",
    ),
    Metric::value("steady_share", "", "the same, but from the end of the warm-up on"),
    Metric::value("victim_gbps", "Gb/s", "goodput of the victim flows alone"),
    Metric::value("completion_us", "us", "from the first post to the last byte placed"),
    Metric::value(
        "jain",
        "",
        "fairness among the flows that are no victims, when the first flow ends: 1 if all have the same",
    ),
    Metric::value(
        "plane_spread",
        "",
        "payload of the fullest plane less that of the emptiest, as share of their mean",
    ),
    Metric::value("retransmitted_share", "", "repetitions among all writes sent"),
    Metric::value("retransmitted_share_warm", "", "the same after the warm-up"),
    Metric::value(
        "spurious_share",
        "",
        "repetitions that were not needed among all writes sent",
    ),
    Metric::value("spurious_share_warm", "", "the same after the warm-up"),
    Metric::count("timeouts", "packets", "what was repeated because of a timeout"),
    Metric::count("bad_paths_used", "paths", "bad paths that writes were sent on"),
    Metric::count(
        "bad_path_packets",
        "packets",
        "most writes sent on a bad path before it left the active set",
    ),
    Metric::count(
        "bad_paths_kept",
        "paths",
        "bad paths that writes were sent on and that never left the active set",
    ),
    Metric::value(
        "bypass_rtts",
        "idle round trips",
        "longest time that a bad path was used after its first loss was repaired",
    ),
    Metric::count("trimmed", "frames", "what switches have cut"),
    Metric::count("dropped", "frames", "what switches have dropped"),
    Metric::count(
        "exchanged",
        "pairs",
        "pairs of hosts that have exchanged their messages",
    ),
    Metric::count("packets", "packets", "packets of all kinds"),
    Metric::count("qps_live", "queue pairs", "most queue pairs that a host had at a time"),
    Metric::count("qps_made", "queue pairs", "queue pairs made in all"),
];

impl Metric {
    const fn value(name: &'static str, unit: &'static str, what: &'static str) -> Metric {
        Metric {
            name,
            unit,
            what,
            counts: false,
        }
    }

    const fn count(name: &'static str, unit: &'static str, what: &'static str) -> Metric {
        Metric {
            counts: true,
            ..Metric::value(name, unit, what)
        }
    }

    /// The metric of this name.
    pub fn named(name: &str) -> Option<Metric> {
        METRICS.into_iter().find(|metric| metric.name == name)
    }

    /// What a run of this plan would need for the metric to be there.
    fn lack(self, plan: &Plan) -> Option<&'static str> {
        match self.name {
            "victim_gbps" if plan.victims.is_empty() => {
                Some("a victim: set workload.kind = \"incast\" and workload.victim_bytes")
            }
            "exchanged" if plan.workload_kind != "exchange" => Some("workload.kind = \"exchange\""),
            "trimmed" | "dropped" if !matches!(plan.scenario.fabric, FabricPlan::Clos(_)) => {
                Some("switches: set fabric.kind = \"clos\"")
            }
            "bad_paths_used" | "bad_path_packets" | "bad_paths_kept" | "bypass_rtts" if !plan.has_bad_paths() => {
                Some("bad paths: add a fault with paths or paths_per_plane, or a spine_down, leaf_down or link_down")
            }
            "steady_share" | "retransmitted_share_warm" | "spurious_share_warm" if plan.warm_ns == 0 => {
                Some("a warm-up: set measure.warmup_rtts above 0")
            }
            _ => None,
        }
    }
}

/// A value as JSON: counts are whole numbers, what could not be measured is null.
pub(super) fn json_of(value: f64, counts: bool) -> serde_json::Value {
    if counts && value >= 0.0 {
        (value as u64).into()
    } else {
        value.into()
    }
}

/// A value with its unit, in words.
pub(super) fn text_of(value: f64, unit: &str, counts: bool) -> String {
    let number = match value {
        _ if value.is_nan() => return "not measured".to_owned(),
        _ if counts => format!("{value:.0}"),
        _ => format!("{value:.5}"),
    };
    format!("{number} {unit}").trim_end().to_owned()
}

/// What a file demands.
#[derive(Debug, Clone)]
pub(super) struct Criterion {
    metric: Metric,
    of_reference: bool,
    least: Option<f64>,
    most: Option<f64>,
}

/// Whether a demand was met.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// What was demanded, in words.
    pub demand: String,
    /// What was measured; NaN if it could not be.
    pub found: f64,
    /// Of what was measured.
    pub(super) unit: &'static str,
    /// It is a number of things.
    pub(super) counts: bool,
    /// Whether it is enough.
    pub met: bool,
}

impl Verdict {
    /// What was measured, in words.
    pub fn found_text(&self) -> String {
        text_of(self.found, self.unit, self.counts)
    }

    /// What was measured: a whole number if it counts, null if it could not be measured.
    pub(super) fn json(&self) -> serde_json::Value {
        json_of(self.found, self.counts)
    }
}

impl Criterion {
    /// The demands of a file: what they speak of must be there in a run of `plan`, and of `reference` if they compare.
    pub(super) fn all(root: &Section<'_>, plan: &Plan, reference: Option<&Plan>) -> Result<Vec<Criterion>, FileError> {
        let sections = root.sections("criterion")?;
        let criteria = sections.iter().map(|section| Criterion::new(section, plan, reference));
        criteria.collect()
    }

    fn new(section: &Section<'_>, plan: &Plan, reference: Option<&Plan>) -> Result<Criterion, FileError> {
        let names = METRICS.map(|metric| metric.name);
        if !section.has("metric") {
            return Err(section.error("metric", "is missing: `mrc-sim list --metrics` names them"));
        }
        let metric = METRICS[section.place("metric", &names)?];
        let of_reference = section.word("of", &["itself", "reference"])? == "reference";
        let least = section.fraction("min", f64::MIN..=f64::MAX)?;
        let most = section.fraction("max", f64::MIN..=f64::MAX)?;
        section.finish()?;
        match (least, most) {
            (None, None) => return Err(section.error("min", "is missing, and so is max: give one of them")),
            (Some(least), Some(most)) if least > most => {
                return Err(section.error(
                    "min",
                    format_args!("= {least} is above max = {most}: nothing meets both"),
                ));
            }
            _ => {}
        }
        if of_reference && reference.is_none() {
            return Err(section.error(
                "of",
                "= \"reference\" compares with a run that is not there: add [reference] with the keys to change",
            ));
        }
        let plans = [Some(plan), reference.filter(|_| of_reference)];
        if let Some(lack) = plans.into_iter().flatten().find_map(|plan| metric.lack(plan)) {
            return Err(section.error("metric", format_args!("= \"{}\" needs {lack}", metric.name)));
        }
        Ok(Criterion {
            metric,
            of_reference,
            least,
            most,
        })
    }

    pub(super) fn judge(
        &self,
        metrics: &BTreeMap<&'static str, f64>,
        reference: Option<&BTreeMap<&'static str, f64>>,
    ) -> Verdict {
        let value = |metrics: &BTreeMap<&'static str, f64>| metrics.get(self.metric.name).copied().unwrap_or(f64::NAN);
        let mut found = value(metrics);
        let mut demand = self.metric.name.to_owned();
        if self.of_reference {
            found /= reference.map_or(f64::NAN, value);
            demand += " / reference";
        }
        if let Some(least) = self.least {
            let _ = write!(demand, " >= {least}");
        }
        if let Some(most) = self.most {
            let _ = write!(demand, " <= {most}");
        }
        // What could not be measured meets nothing.
        let met = self.least.is_none_or(|least| found >= least) && self.most.is_none_or(|most| found <= most);
        Verdict {
            demand,
            found,
            unit: if self.of_reference { "" } else { self.metric.unit },
            counts: self.metric.counts && !self.of_reference,
            met: met && !found.is_nan(),
        }
    }
}

/// Everything that can be measured of a run at its end.
pub(super) fn measure(world: &World, plan: &Plan) -> BTreeMap<&'static str, f64> {
    let mut metrics = BTreeMap::new();
    let flows = || {
        (world.flows.iter().enumerate())
            .flat_map(|(connection, flows)| flows.iter().map(move |flow| (connection, flow)))
            .filter(|(_, flow)| flow.progress.begun_ns.is_some())
    };
    let begun_ns = world.measure.begun_ns.unwrap_or(0);
    let placed_ns = world.measure.placed_ns;
    let closed = world.measure.closed_bytes;
    let live: u64 = flows()
        .filter(|(_, flow)| !flow.closed)
        .map(|(_, flow)| flow.responder.placed_bytes)
        .sum();
    let elapsed_ns = placed_ns.saturating_sub(begun_ns).max(1);
    let gbps = |bytes: u64, ns: u64| bytes as f64 * 8.0 / ns.max(1) as f64;
    let goodput = gbps(closed + live, elapsed_ns);
    metrics.insert("goodput_gbps", goodput);
    metrics.insert("goodput_share", goodput * 1e9 / plan.capacity_bps);
    metrics.insert("completion_us", elapsed_ns as f64 / 1000.0);
    if let Some(warm) = &world.measure.warm {
        let before: u64 = warm.placed_bytes.iter().sum();
        if placed_ns > warm.at_ns {
            let since = (closed + live).saturating_sub(warm.closed_bytes + before);
            let steady = gbps(since, placed_ns - warm.at_ns);
            metrics.insert("steady_share", steady * 1e9 / plan.capacity_bps);
        }
    }
    for (_, flow) in flows().filter(|(connection, _)| plan.victims.contains(connection)) {
        let begun_ns = flow.progress.begun_ns.unwrap_or(0);
        let rate = gbps(
            flow.responder.placed_bytes,
            flow.progress.placed_ns.saturating_sub(begun_ns),
        );
        *metrics.entry("victim_gbps").or_insert(0.0) += rate;
    }
    if let Some(first) = &world.measure.first_end {
        // While all of them compete: from the end of the warm-up, if there is one, to the first end.
        let before = |at: usize| {
            let warm = world.measure.warm.as_ref().filter(|warm| warm.at_ns < first.at_ns);
            warm.and_then(|warm| warm.placed_bytes.get(at)).copied().unwrap_or(0)
        };
        let shares: Vec<f64> = (first.placed_bytes.iter().enumerate())
            .filter(|(at, _)| !plan.victims.contains(&(at / 2)) && !world.flows[at / 2][at % 2].messages.is_empty())
            .map(|(at, bytes)| bytes.saturating_sub(before(at)) as f64)
            .collect();
        metrics.insert("jain", jain(&shares));
    }
    let planes = &world.measure.plane_bytes[..plan.scenario.planes.into()];
    let mean = planes.iter().sum::<u64>() as f64 / planes.len() as f64;
    let most = planes.iter().max().copied().unwrap_or(0) as f64;
    let least = planes.iter().min().copied().unwrap_or(0) as f64;
    metrics.insert("plane_spread", (most - least) / mean.max(1.0));
    let sums = world.sums();
    let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
    metrics.insert("retransmitted_share", share(sums.resent, sums.sent));
    metrics.insert("spurious_share", share(sums.spurious, sums.sent));
    if let Some(warm) = &world.measure.warm {
        let (spurious, sent) = (sums.spurious - warm.sums.spurious, sums.sent - warm.sums.sent);
        metrics.insert("spurious_share_warm", share(spurious, sent));
        metrics.insert("retransmitted_share_warm", share(sums.resent - warm.sums.resent, sent));
    }
    metrics.insert("timeouts", sums.timeouts as f64);
    metrics.insert("packets", world.sent as f64);
    metrics.insert("qps_live", world.measure.qps_live as f64);
    metrics.insert("qps_made", world.measure.qps_made as f64);
    if let Some(pairs) = world.workload.as_ref().and_then(|workload| workload.exchanged()) {
        metrics.insert("exchanged", pairs as f64);
    }
    measure_paths(world, plan, &mut metrics);
    if let Some(clos) = world.fabric.clos() {
        let (trimmed, dropped) = clos.all_counters().fold((0, 0), |(trimmed, dropped), (_, port)| {
            (trimmed + port.trimmed, dropped + port.dropped)
        });
        metrics.insert("trimmed", trimmed as f64);
        metrics.insert("dropped", dropped as f64);
    }
    metrics
}

fn measure_paths(world: &World, plan: &Plan, metrics: &mut BTreeMap<&'static str, f64>) {
    let used = || world.measure.watched.values().filter(|path| path.sent > 0);
    if !plan.has_bad_paths() {
        return;
    }
    metrics.insert("bad_paths_used", used().count() as f64);
    let most = used().map(|path| path.sent).max().unwrap_or(0);
    metrics.insert("bad_path_packets", most.into());
    // When many leave at once, some events are lost, and counted as lost (§8.2): the queue pair knows its paths all the same.
    let has_left = |&(connection, side, ev, port): &FlowPath| {
        let places = world.hosts.iter().flat_map(|host| host.qps.iter());
        let states = places
            .filter(|place| (place.connection, place.side) == (connection, side))
            .flat_map(|place| place.qp.ev_states());
        states
            .filter(|view| (view.entry.ev.0, view.entry.port.get()) == (ev, port))
            .any(|view| view.state == EvState::AssumedBad)
    };
    let kept = (world.measure.watched.iter())
        .filter(|(name, path)| path.sent > 0 && path.left_ns.is_none() && !has_left(name))
        .count();
    metrics.insert("bad_paths_kept", kept as f64);
    let late = used().filter_map(|path| {
        path.noticed_ns
            .map(|noticed_ns| path.last_ns.saturating_sub(noticed_ns))
    });
    if let Some(late_ns) = late.max() {
        metrics.insert("bypass_rtts", late_ns as f64 / plan.base_rtt_ns as f64);
    }
}
