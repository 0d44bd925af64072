//! What was measured in a run: the only source of verdicts and reports.

use std::collections::BTreeMap;

use netns_lab::SwitchPort;
use serde::Serialize;

use super::{Machine, MachineSample};
use crate::agent::{Compared, Outcome, PortSample, Sample};
use crate::scenario::{Flow, Kind, Scenario};

/// Everything that is known about a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Record {
    /// The scenario's name.
    pub name: String,
    /// The scenario, as it was run.
    pub scenario: Scenario,
    /// Zero of all times, on the monotonic clock.
    #[serde(skip)]
    pub start_ns: u64,
    /// Length of the run, seconds.
    pub seconds: f64,
    /// Number of hosts.
    pub hosts: usize,
    /// Number of planes.
    pub planes: usize,
    /// What was built, as a drawing needs it.
    #[serde(skip)]
    pub shape: Shape,
    /// By host, in order of time.
    #[serde(skip)]
    pub samples: Vec<Vec<Sample>>,
    /// Payload that has arrived, by workload, connection and receiving host: time in ns, bytes; in order of time.
    #[serde(skip)]
    pub arrived: BTreeMap<(usize, usize, usize), Vec<(u64, u64)>>,
    /// What the ports of the switches have counted, by time.
    #[serde(skip)]
    pub switches: Vec<(f64, Vec<SwitchPort>)>,
    /// What happened when.
    pub happened: Vec<Happened>,
    /// In the scenario's order.
    #[serde(skip)]
    pub workloads: Vec<Ran>,
    /// What it ran on.
    pub machine: Machine,
    /// Processor time.
    #[serde(skip)]
    pub processors: Vec<MachineSample>,
    /// Why figures of this run cannot be trusted.
    pub doubts: Vec<String>,
    /// The same over the fabric of `[reference]`.
    #[serde(skip)]
    pub reference: Option<Box<Record>>,
}

/// Nodes and links of a fabric.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// Names of hosts and switches.
    pub nodes: Vec<String>,
    /// What joins them.
    pub links: Vec<Cable>,
    /// Switches that the timeline breaks.
    pub broken_nodes: Vec<String>,
    /// Paths from a host to another by name: the ports of switches that send packets on it, as switch and link.
    pub paths: BTreeMap<(usize, usize), BTreeMap<String, Vec<Hop>>>,
}

/// A port of a switch on a path: the switch, and the link that it sends into.
pub(crate) type Hop = (String, String);

/// A link of a fabric.
#[derive(Debug, Clone)]
pub(crate) struct Cable {
    /// Names of its nodes.
    pub ends: [String; 2],
    /// From 1.
    pub plane: usize,
    /// The timeline breaks it.
    pub broke: bool,
}

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Happened {
    /// Seconds from the start.
    pub at: f64,
    /// What.
    pub what: String,
    /// Something broke (or else became whole, or began).
    pub broke: bool,
}

/// A workload that was run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ran {
    /// Its start, seconds.
    pub start: f64,
    /// Its end, seconds.
    pub end: f64,
    /// By host.
    pub outcomes: BTreeMap<usize, Outcome>,
    /// By host.
    pub compared: BTreeMap<usize, Compared>,
    /// Whether it came to its end.
    pub finished: bool,
}

/// Which way of a workload's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the first host to the second.
    Forward,
    /// Back.
    Back,
}

impl Way {
    /// For people.
    pub(crate) fn arrow(self) -> &'static str {
        match self {
            Way::Forward => "there",
            Way::Back => "back",
        }
    }
}

/// What has arrived on a workload's connections, by time.
pub(crate) struct Arrivals<'a> {
    record: &'a Record,
    place: usize,
    flows: Vec<Flow>,
}

impl Arrivals<'_> {
    /// Payload of one connection up to a time, bytes: between two samples in proportion, so that windows need not fall on samples.
    pub(crate) fn of(&self, flow: usize, way: Way, at: f64) -> f64 {
        let Flow { from, to } = self.flows[flow];
        let host = if way == Way::Forward { to } else { from };
        let Some(points) = self.record.arrived.get(&(self.place, flow, host)) else {
            return 0.0;
        };
        let after = points.partition_point(|(ns, _)| self.record.seconds_of(*ns) < at);
        let around = &points[after.saturating_sub(1)..(after + 1).min(points.len())];
        interpolate(
            around
                .iter()
                .map(|(ns, bytes)| (self.record.seconds_of(*ns), *bytes as f64)),
            at,
        )
    }

    /// Payload of all its connections up to a time, bytes.
    pub(crate) fn all(&self, way: Way, at: f64) -> f64 {
        (0..self.flows.len()).map(|flow| self.of(flow, way, at)).sum()
    }
}

impl Record {
    /// Seconds from the start.
    pub(crate) fn seconds_of(&self, ns: u64) -> f64 {
        (ns as f64 - self.start_ns as f64) / 1e9
    }

    /// A workload's connections.
    pub(crate) fn flows(&self, place: usize) -> Vec<Flow> {
        self.scenario.workload[place].flows(self.hosts)
    }

    /// The ways in which a workload moves data.
    pub(crate) fn ways(&self, place: usize) -> &'static [Way] {
        let workload = &self.scenario.workload[place];
        match workload.kind {
            Kind::AllToAll | Kind::Pairs => &[Way::Forward, Way::Back],
            Kind::Write if workload.both => &[Way::Forward, Way::Back],
            _ => &[Way::Forward],
        }
    }

    /// Takes a sample in.
    pub(crate) fn take(&mut self, host: usize, sample: Sample) {
        for end in &sample.ends {
            let points = self.arrived.entry((end.id, end.flow, host)).or_default();
            // The last sample of a workload is made by another thread than the others.
            if points.last().is_none_or(|(ns, _)| *ns < sample.at_ns) {
                points.push((sample.at_ns, end.delivered_bytes));
            }
        }
        self.samples[host].push(sample);
    }

    /// What has arrived on a workload's connections.
    pub(crate) fn arrivals(&self, place: usize) -> Arrivals<'_> {
        Arrivals {
            record: self,
            place,
            flows: self.flows(place),
        }
    }

    /// Payload per second of a workload in a stretch of time, one way.
    pub(crate) fn goodput_bps(&self, place: usize, way: Way, from: f64, to: f64) -> f64 {
        let arrivals = self.arrivals(place);
        let bytes = arrivals.all(way, to) - arrivals.all(way, from);
        if to > from { bytes * 8.0 / (to - from) } else { 0.0 }
    }

    /// A figure of a host's ports, as it was sampled over time.
    pub(crate) fn of_ports(&self, host: usize, pick: impl Fn(&[PortSample]) -> f64) -> Vec<(f64, f64)> {
        let samples = self.samples[host].iter();
        samples
            .map(|sample| (self.seconds_of(sample.at_ns), pick(&sample.ports)))
            .collect()
    }

    /// The moments at which a host was sampled, seconds.
    pub(crate) fn moments(&self, host: usize) -> Vec<f64> {
        self.samples[host]
            .iter()
            .map(|sample| self.seconds_of(sample.at_ns))
            .collect()
    }
}

/// The value at `at` between points in order; constant outside of them, zero without any.
pub(crate) fn interpolate(points: impl Iterator<Item = (f64, f64)>, at: f64) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    for (x, y) in points {
        if x >= at {
            return match before {
                Some((x0, y0)) if x > x0 => y0 + (y - y0) * (at - x0) / (x - x0),
                _ => y,
            };
        }
        before = Some((x, y));
    }
    before.map_or(0.0, |(_, y)| y)
}

#[cfg(test)]
mod tests {
    use super::interpolate;

    #[test]
    fn values_between_samples_are_in_proportion() {
        let at = |x| interpolate([(1.0, 10.0), (2.0, 30.0)].into_iter(), x);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(at(0.0), 10.0) && near(at(1.5), 20.0) && near(at(2.0), 30.0) && near(at(9.0), 30.0));
        assert!(near(interpolate(std::iter::empty(), 1.0), 0.0));
    }
}
