//! What a run is measured by, and what a file may demand of it.

use crate::measure::jain;
use crate::run::file::{FileError, Section};
use crate::run::plan::Plan;
use crate::world::World;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Metrics by name, with their units.
pub const METRICS: [(&str, &str); 22] = [
    (
        "goodput_gbps",
        "payload of all flows per time, from the first post to the last byte placed, Gb/s",
    ),
    (
        "goodput_share",
        "the same as share of what all planes of one host can carry after headers",
    ),
    ("steady_share", "the same, but from the end of the warm-up on"),
    ("victim_gbps", "the same of the victim flows alone, Gb/s"),
    (
        "completion_us",
        "from the first post to the last byte placed, microseconds",
    ),
    (
        "jain",
        "fairness among the flows that are no victims, when the first flow ends",
    ),
    (
        "plane_spread",
        "payload of the fullest plane less that of the emptiest, as share of their mean",
    ),
    ("retransmitted_share", "repetitions among all writes sent"),
    ("retransmitted_share_warm", "the same after the warm-up"),
    (
        "spurious_share",
        "repetitions that were not needed among all writes sent",
    ),
    ("spurious_share_warm", "the same after the warm-up"),
    ("timeouts", "packets that were repeated because of a timeout"),
    ("bad_paths_used", "bad paths that writes were sent on"),
    (
        "bad_path_packets",
        "most writes sent on a bad path before it left the active set",
    ),
    (
        "bad_paths_kept",
        "bad paths that writes were sent on and that never left the active set",
    ),
    (
        "bypass_rtts",
        "longest time that a bad path was used after its first loss was repaired, in idle round trips",
    ),
    ("trimmed", "frames that switches have cut"),
    ("dropped", "frames that switches have dropped"),
    ("exchanged", "pairs of hosts that have exchanged their messages"),
    ("packets", "packets of all kinds"),
    ("qps_live", "most queue pairs that a host had at a time"),
    ("qps_made", "queue pairs made in all"),
];

/// What a file demands.
#[derive(Debug, Clone)]
pub(super) struct Criterion {
    metric: &'static str,
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
    /// Whether it is enough.
    pub met: bool,
}

impl Criterion {
    pub(super) fn all(root: &Section<'_>) -> Result<Vec<Criterion>, FileError> {
        root.sections("criterion")?.iter().map(Criterion::new).collect()
    }

    fn new(section: &Section<'_>) -> Result<Criterion, FileError> {
        let names = METRICS.map(|(name, _)| name);
        if !section.has("metric") {
            return Err(section.error("metric", "is missing: `mrc-sim list --metrics` names them"));
        }
        let metric = section.word("metric", &names)?;
        let of_reference = section.word("of", &["itself", "reference"])? == "reference";
        let least = section.fraction("min", f64::MIN..=f64::MAX)?;
        let most = section.fraction("max", f64::MIN..=f64::MAX)?;
        if least.is_none() && most.is_none() {
            return Err(section.error("min", "is missing, and so is max: give one of them"));
        }
        section.finish()?;
        Ok(Criterion {
            metric,
            of_reference,
            least,
            most,
        })
    }

    pub(super) fn needs_reference(&self) -> bool {
        self.of_reference
    }

    pub(super) fn judge(
        &self,
        metrics: &BTreeMap<&'static str, f64>,
        reference: Option<&BTreeMap<&'static str, f64>>,
    ) -> Verdict {
        let value = |metrics: &BTreeMap<&'static str, f64>| metrics.get(self.metric).copied().unwrap_or(f64::NAN);
        let mut found = value(metrics);
        let mut demand = self.metric.to_owned();
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
    for (connection, flow) in flows().filter(|(connection, _)| plan.victims.contains(connection)) {
        let _ = connection;
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
    if world.measure.watched.is_empty() {
        return;
    }
    metrics.insert("bad_paths_used", used().count() as f64);
    let most = used().map(|path| path.sent).max().unwrap_or(0);
    metrics.insert("bad_path_packets", most.into());
    let kept = used().filter(|path| path.left_ns.is_none()).count();
    metrics.insert("bad_paths_kept", kept as f64);
    let late = used().filter_map(|path| {
        path.noticed_ns
            .map(|noticed_ns| path.last_ns.saturating_sub(noticed_ns))
    });
    if let Some(late_ns) = late.max() {
        metrics.insert("bypass_rtts", late_ns as f64 / plan.base_rtt_ns as f64);
    }
}
