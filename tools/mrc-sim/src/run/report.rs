//! What a person or a program reads of a run.

use crate::run::criteria::{json_of, text_of};
use crate::run::{CaseReport, FileReport, Metric, Run};
use serde_json::{Value, json};
use std::fmt::Write as _;

impl FileReport {
    /// Scenario and case in one word.
    pub fn name_of(&self, case: &CaseReport) -> String {
        if case.name.is_empty() {
            self.name.clone()
        } else {
            format!("{} {}", self.name, case.name)
        }
    }

    /// The report as a table.
    pub fn table(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.title);
        for case in &self.cases {
            let name = if case.name.is_empty() { "run" } else { &case.name };
            let _ = match &case.run {
                Ok(run) => writeln!(text, "\n{name}, seed {}\n{}", case.seed, run.summary()),
                Err(violation) => writeln!(text, "\n{name}, seed {}\n  BROKEN  {violation}", case.seed),
            };
            let width = case
                .verdicts
                .iter()
                .map(|verdict| verdict.demand.len())
                .max()
                .unwrap_or(0);
            for verdict in &case.verdicts {
                let word = if verdict.met { "met   " } else { "MISSED" };
                let _ = writeln!(text, "  {word}  {:<width$}  {}", verdict.demand, verdict.found_text());
            }
        }
        text
    }

    /// The report as JSON. All but `wall_s`, `packets_per_s`, `virtual_s_per_s` and `peak_bytes` follow from the seed.
    pub fn json(&self) -> Value {
        json!({
            "scenario": self.name,
            "title": self.title,
            "passed": self.passed(),
            "cases": self.cases.iter().map(CaseReport::json).collect::<Vec<_>>(),
        })
    }
}

impl CaseReport {
    fn json(&self) -> Value {
        let verdicts: Vec<Value> = (self.verdicts.iter())
            .map(|verdict| json!({ "demand": verdict.demand, "found": verdict.json(), "met": verdict.met }))
            .collect();
        let mut value = json!({
            "case": Some(&self.name).filter(|name| !name.is_empty()),
            "seed": self.seed,
            "replay": self.replay,
            "criteria": verdicts,
        });
        match &self.run {
            Ok(run) => value["run"] = run.json(),
            Err(violation) => {
                value["violation"] = json!({
                    "oracle": violation.oracle.to_string(),
                    "at_ns": violation.at_ns,
                    "detail": violation.detail,
                });
            }
        }
        value
    }
}

impl Run {
    fn summary(&self) -> String {
        let facts = &self.facts;
        let mut text = format!(
            "  {} hosts, {} planes, {:.3} Gb/s of payload a host, idle round trip {:.2} us, window {} packets\n",
            facts.hosts,
            facts.planes,
            facts.capacity_bps / 1e9,
            facts.base_rtt_ns as f64 / 1000.0,
            facts.window
        );
        let virtual_s = self.outcome.ended_ns as f64 / 1e9;
        let _ = write!(
            text,
            "  {} packets in {:.3} ms of virtual time; it took {:.1} s: {:.0} packets a second, {:.3} s for 1 ms of virtual time",
            self.outcome.packets,
            virtual_s * 1000.0,
            self.wall_s,
            self.per_s(self.outcome.packets as f64),
            self.wall_s / (virtual_s * 1000.0).max(1e-9)
        );
        if let Some(bytes) = self.peak_bytes {
            let _ = write!(text, "; memory {} MiB at most", bytes >> 20);
        }
        text.push('\n');
        let width = self.metrics.keys().map(|name| name.len()).max().unwrap_or(0);
        for (name, value) in &self.metrics {
            let (unit, counts) = Metric::named(name).map_or(("", false), |metric| (metric.unit, metric.counts));
            let _ = writeln!(text, "  {name:<width$}  {}", text_of(*value, unit, counts));
        }
        text.pop();
        text
    }

    /// So much for each second of this machine's.
    fn per_s(&self, what: f64) -> f64 {
        what / self.wall_s.max(1e-9)
    }

    fn json(&self) -> Value {
        let metrics = self.metrics.iter().map(|(name, value)| {
            let counts = Metric::named(name).is_some_and(|metric| metric.counts);
            ((*name).to_owned(), json_of(*value, counts))
        });
        json!({
            "hosts": self.facts.hosts,
            "planes": self.facts.planes,
            "base_rtt_ns": self.facts.base_rtt_ns,
            "capacity_bps": self.facts.capacity_bps,
            "window_packets": self.facts.window,
            "virtual_ns": self.outcome.ended_ns,
            "turns": self.outcome.turns,
            "wall_s": self.wall_s,
            "packets_per_s": self.per_s(self.outcome.packets as f64),
            "virtual_s_per_s": self.per_s(self.outcome.ended_ns as f64 / 1e9),
            "peak_bytes": self.peak_bytes,
            "metrics": metrics.collect::<serde_json::Map<_, _>>(),
        })
    }
}
