//! What must hold.

use serde::{Deserialize, Serialize};

use super::units::Bytes;

/// One criterion: a measure of a workload, and its limit.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Criterion {
    /// In words, for the verdict and the report.
    pub name: String,
    /// What is measured.
    pub measure: Measure,
    /// Of which workload.
    #[serde(default)]
    pub workload: Option<String>,
    /// What it is set in relation to: `capacity` (payload that the links of the hosts can carry), or a workload's name.
    #[serde(default)]
    pub of: Option<String>,
    /// Times which that counts: 0.75 of the capacity where one of four planes is down.
    #[serde(default)]
    pub share: Option<f64>,
    /// From which second of the scenario; default: the workload's start.
    #[serde(default)]
    pub from: Option<f64>,
    /// Up to which; default: the workload's end.
    #[serde(default)]
    pub to: Option<f64>,
    /// Seconds that a workload has to settle, where `from` is not given.
    #[serde(default)]
    pub settle: Option<f64>,
    /// The same for what it is set in relation to.
    #[serde(default)]
    pub of_from: Option<f64>,
    /// The same for what it is set in relation to.
    #[serde(default)]
    pub of_to: Option<f64>,
    /// `goodput`: the worst window of so many seconds counts, not the mean. `recovery`: the window.
    #[serde(default)]
    pub window: Option<f64>,
    /// `recovery`: the share that has to be reached.
    #[serde(default)]
    pub reaches: Option<f64>,
    /// `time`, `extra-time`: which percentile; default 50.
    #[serde(default)]
    pub percentile: Option<f64>,
    /// Collectives: only this size; default: the worst of all.
    #[serde(default)]
    pub size: Option<Bytes>,
    /// A host, where the measure is about one.
    #[serde(default)]
    pub host: Option<String>,
    /// A plane, where the measure is about one.
    #[serde(default)]
    pub plane: Option<usize>,
    /// Links by name, `*` stands for anything, where the measure is about links.
    #[serde(default)]
    pub links: Option<String>,
    /// The switch that sends into them; default: at both ends.
    #[serde(default)]
    pub switch: Option<String>,
    /// A path by name, where the measure is about paths.
    #[serde(default)]
    pub path: Option<String>,
    /// Only paths that left for this reason: Lost, Timeout, Trimmed, Marked, Verdict.
    #[serde(default)]
    pub why: Option<String>,
    /// `extra-time`: what is taken off the time of `workload`, ...
    #[serde(default)]
    pub minus: Option<String>,
    /// ... and off that of `of`.
    #[serde(default)]
    pub of_minus: Option<String>,
    /// The least that will do.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// The most that will do.
    #[serde(default)]
    pub at_most: Option<f64>,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Payload per second as the targets receive it, the worse direction; Mbit/s, or a ratio with `of`.
    Goodput,
    /// The longest time in which nothing arrived at one of the targets, seconds.
    Interruption,
    /// Seconds from `from` until a window has `reaches` of `of`.
    Recovery,
    /// Jain's index over the connections: 1 is even.
    Jain,
    /// Message time: a percentile, milliseconds, or a ratio with `of`.
    Time,
    /// How many times as fast as `of` its mean message is.
    Speed,
    /// Work that completed with an error.
    Errors,
    /// Share of data packets that were sent again.
    Retransmissions,
    /// Seconds from `from` until `host` sends no data on `plane` any more.
    PlaneLeft,
    /// Paths that were taken for bad at the end, among all.
    BadPaths,
    /// How often a path came to be taken for bad.
    Blamed,
    /// Packets that `path` carried from `from` until it was taken for bad.
    PacketsUntilLeft,
    /// Most losses of one path.
    PathLosses,
    /// Share of the losses that lie on paths of `plane`.
    PlaneBlame,
    /// Worst difference between what was sent on paths and what switches counted on their links, as a share.
    PathsTaken,
    /// The least used of `links`: its share of their mean.
    LinkSpread,
    /// How much of its speed the least busy of `links` carried.
    LinkBusy,
    /// Packets that switches have cut.
    Trimmed,
    /// Packets that switches have dropped because a queue was full.
    Dropped,
    /// What `workload` takes longer than `minus`, in relation to what `of` takes longer than `of_minus`; medians.
    ExtraTime,
}

impl Measure {
    /// Is about a workload, which then has to be named.
    pub(crate) fn is_of_workload(self) -> bool {
        !matches!(
            self,
            Self::PlaneLeft | Self::LinkSpread | Self::LinkBusy | Self::Trimmed | Self::Dropped
        )
    }

    /// What its figure is counted in; ratios have none.
    pub(crate) fn unit(self, ratio: bool) -> &'static str {
        match self {
            _ if ratio => "",
            Self::Goodput => "Mbit/s",
            Self::Interruption | Self::Recovery | Self::PlaneLeft => "s",
            Self::Time => "ms",
            Self::PacketsUntilLeft | Self::Trimmed | Self::Dropped => "packets",
            _ => "",
        }
    }
}

impl Criterion {
    /// The limit in words.
    pub(crate) fn demand(&self) -> String {
        let unit = self.measure.unit(self.of.is_some());
        let unit = if unit.is_empty() {
            String::new()
        } else {
            format!(" {unit}")
        };
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => format!("{least} to {most}{unit}"),
            (Some(least), None) => format!("at least {least}{unit}"),
            (None, Some(most)) => format!("at most {most}{unit}"),
            (None, None) => String::new(),
        }
    }
}
