//! The language of scenarios: a TOML file that says what is built, what is sent, what breaks when, and what must hold.
//!
//! A file is read whole or refused whole, with one line that names the file, the key, the value and the limit. `netns-lab/README.md`
//! teaches the language.

mod check;
mod criterion;
mod file;
mod library;
mod timeline;
mod topology;
mod units;
mod workload;

pub(crate) use criterion::{Criterion, Measure};
pub(crate) use file::{FileError, load};
pub(crate) use library::NAMES;
pub(crate) use timeline::{Denial, Moment};
pub(crate) use topology::Fabric;
pub(crate) use units::human_bytes;
pub(crate) use workload::{Flow, Kind, Workload};

use serde::{Deserialize, Serialize};

/// Longest run of a scenario: `run --all` should end within a coffee break.
pub(crate) const MAX_SECONDS: f64 = 600.0;

/// A scenario file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// One line for `list` and the head of the report.
    pub title: String,
    /// What it shows and why, for the report; Markdown's paragraphs, nothing else of it.
    #[serde(default)]
    pub about: String,
    /// Which figure or section of the paper it redraws.
    #[serde(default)]
    pub paper: Option<String>,
    /// How long it runs at least, from the start of the first workload. Workloads and timeline may prolong it.
    #[serde(default)]
    pub seconds: f64,
    /// Seed of whatever is drawn: data, and the fabric's losses.
    #[serde(default = "one")]
    pub seed: u64,
    /// How often what the hosts know is recorded.
    #[serde(default = "default_sample_ms")]
    pub sample_ms: u64,
    /// What is built.
    pub topology: Fabric,
    /// The same is run over this fabric before, for `of = "reference"`.
    #[serde(default)]
    pub reference: Option<Reference>,
    /// What is sent, in the order of the file.
    #[serde(default)]
    pub workload: Vec<Workload>,
    /// What breaks and heals.
    #[serde(default)]
    pub timeline: Vec<Moment>,
    /// What must hold.
    #[serde(default)]
    pub criterion: Vec<Criterion>,
}

/// The table `[reference]`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    /// What is different: a whole fabric.
    pub topology: Fabric,
}

fn one() -> u64 {
    1
}

fn default_sample_ms() -> u64 {
    50
}

impl Scenario {
    /// A workload by its name.
    pub(crate) fn workload(&self, name: &str) -> Option<&Workload> {
        self.workload.iter().find(|workload| workload.name == name)
    }

    /// Its place in the file, by which agents know it.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.workload.iter().position(|workload| workload.name == name)
    }
}

/// Whether a text is that of a pattern in which `*` stands for anything.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text
            .strip_prefix(head)
            .is_some_and(|tail| (0..=tail.len()).any(|at| tail.get(at..).is_some_and(|tail| matches(rest, tail)))),
    }
}
