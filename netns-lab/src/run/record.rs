//! What was measured in a run: the only source of verdicts and reports.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Machine, MachineSample};
use crate::agent::{Compared, Outcome, Sample};
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
    /// By host, in order of time.
    #[serde(skip)]
    pub samples: Vec<Vec<Sample>>,
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

    /// Payload that a connection had delivered at a time, bytes: between two samples in proportion, so that windows need not
    /// fall on samples.
    pub(crate) fn delivered(&self, place: usize, flow: usize, way: Way, at: f64) -> f64 {
        let Flow { from, to } = self.flows(place)[flow];
        let host = if way == Way::Forward { to } else { from };
        let points = self.samples[host].iter().filter_map(|sample| {
            // Both ends of a connection may be on one host only where two connections are: ends are told apart by host.
            let end = sample.ends.iter().find(|end| end.id == place && end.flow == flow)?;
            Some((self.seconds_of(sample.at_ns), end.delivered_bytes as f64))
        });
        interpolate(points, at)
    }

    /// Payload per second of some connections of a workload in a stretch of time, one way.
    pub(crate) fn goodput_bps(&self, place: usize, way: Way, from: f64, to: f64) -> f64 {
        let bytes: f64 = (0..self.flows(place).len())
            .map(|flow| self.delivered(place, flow, way, to) - self.delivered(place, flow, way, from))
            .sum();
        if to > from { bytes * 8.0 / (to - from) } else { 0.0 }
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
