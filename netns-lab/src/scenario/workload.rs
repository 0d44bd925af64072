//! What is sent.

use serde::{Deserialize, Serialize};

use super::units::Bytes;

/// One workload of a scenario; several may run at once.
///
/// It is one struct for all kinds, because files are read by people: a key that its kind has no use for is refused by name, which an
/// enum of structs would not do.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    /// By which criteria and other workloads call it.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// What carries it.
    #[serde(default)]
    pub transport: Transport,
    /// `write`, `latency`: hosts that write.
    #[serde(default)]
    pub from: Option<Hosts>,
    /// `write`, `latency`: hosts that are written to.
    #[serde(default)]
    pub to: Option<Hosts>,
    /// `write`: the targets write back as much.
    #[serde(default)]
    pub both: bool,
    /// Collectives: the ranks in their order; default: all hosts.
    #[serde(default)]
    pub hosts: Option<Hosts>,
    /// Bytes of a message, or of each rank's data.
    #[serde(default)]
    pub size: Option<Bytes>,
    /// Collectives: several sizes, one after the other.
    #[serde(default)]
    pub sizes: Vec<Bytes>,
    /// Queue pairs per pair of hosts.
    #[serde(default)]
    pub qps: Option<usize>,
    /// `write`: messages outstanding per queue pair.
    #[serde(default)]
    pub depth: Option<u32>,
    /// Collectives: how often each size, or a number for each of `sizes`; `latency`: how many messages.
    #[serde(default)]
    pub iterations: Option<Iterations>,
    /// `write`: instead of a stream, so many messages per queue pair at a time ...
    #[serde(default)]
    pub burst: Option<u32>,
    /// ... every so many seconds, at all senders at once.
    #[serde(default)]
    pub every: Option<f64>,
    /// Starts after the end of that workload instead of at the beginning.
    #[serde(default)]
    pub after: Option<String>,
    /// Seconds from there to its start.
    #[serde(default)]
    pub start: f64,
    /// How many seconds it runs; default: to the end of the scenario. Collectives end by themselves.
    #[serde(default)]
    pub seconds: Option<f64>,
}

/// How often.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "a whole number, or a list of them")]
pub(crate) enum Iterations {
    /// The same for all sizes.
    Each(u32),
    /// By place in `sizes`.
    BySize(Vec<u32>),
}

impl Iterations {
    /// All numbers that it names.
    pub(crate) fn all(&self) -> &[u32] {
        match self {
            Iterations::Each(count) => std::slice::from_ref(count),
            Iterations::BySize(counts) => counts,
        }
    }
}

/// What a workload does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Writes, as many outstanding as `depth` says, or in bursts.
    Write,
    /// One write at a time; half of the time to its completion is recorded.
    Latency,
    /// A ring all-reduce: scatter with addition, then gather. The sums are checked.
    AllReduce,
    /// A ring all-gather.
    AllGather,
    /// Every rank sends a part to every other rank.
    AllToAll,
    /// Ranks 0 and 1, 2 and 3, ... send each other their data.
    Pairs,
}

impl Kind {
    /// Ends by itself, and its messages are its iterations.
    pub(crate) fn is_collective(self) -> bool {
        !matches!(self, Self::Write | Self::Latency)
    }

    /// As in a file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Latency => "latency",
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::AllToAll => "all-to-all",
            Self::Pairs => "pairs",
        }
    }
}

/// What carries a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    /// Queue pairs of mrc-verbs.
    #[default]
    Mrc,
    /// Kernel TCP with CUBIC, a connection per plane.
    TcpCubic,
    /// Kernel TCP with BBR, a connection per plane.
    TcpBbr,
}

impl Transport {
    /// As the kernel calls the congestion control; `None` for MRC.
    pub(crate) fn congestion_control(self) -> Option<&'static str> {
        match self {
            Self::Mrc => None,
            Self::TcpCubic => Some("cubic"),
            Self::TcpBbr => Some("bbr"),
        }
    }

    /// For people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Mrc => "MRC",
            Self::TcpCubic => "TCP (cubic)",
            Self::TcpBbr => "TCP (bbr)",
        }
    }
}

/// A host or several: `"h0"` or `["h0", "h1"]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "a host, as in \"h0\", or a list of hosts")]
pub(crate) enum Hosts {
    One(String),
    Many(Vec<String>),
}

impl Hosts {
    /// Their names.
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }

    /// Their numbers; names are checked when the file is read.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.names().iter().filter_map(|name| host_number(name)).collect()
    }
}

/// `h3` is host 3.
pub(crate) fn host_number(name: &str) -> Option<usize> {
    name.strip_prefix('h')?.parse().ok()
}

/// A connection of a workload, between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The host that writes, or the smaller of two that both do.
    pub from: usize,
    /// The other.
    pub to: usize,
}

impl Workload {
    /// Ranks of a collective, in order.
    pub(crate) fn ranks(&self, hosts: usize) -> Vec<usize> {
        self.hosts.as_ref().map_or_else(|| (0..hosts).collect(), Hosts::numbers)
    }

    /// Its connections, in an order that all its hosts know.
    pub(crate) fn flows(&self, hosts: usize) -> Vec<Flow> {
        let per_pair = self.qps.unwrap_or(1);
        let mut flows = Vec::new();
        let mut add = |from: usize, to: usize| flows.extend(std::iter::repeat_n(Flow { from, to }, per_pair));
        let ranks = self.ranks(hosts);
        match self.kind {
            Kind::Write | Kind::Latency => {
                let numbers = |hosts: &Option<Hosts>| hosts.as_ref().map_or_else(Vec::new, Hosts::numbers);
                for &from in &numbers(&self.from) {
                    for &to in numbers(&self.to).iter().filter(|to| **to != from) {
                        add(from, to);
                    }
                }
            }
            Kind::AllReduce | Kind::AllGather => {
                for (place, &rank) in ranks.iter().enumerate() {
                    add(rank, ranks[(place + 1) % ranks.len()]);
                }
            }
            Kind::AllToAll => {
                for (place, &rank) in ranks.iter().enumerate() {
                    ranks[place + 1..].iter().for_each(|&other| add(rank, other));
                }
            }
            Kind::Pairs => ranks.chunks_exact(2).for_each(|pair| add(pair[0], pair[1])),
        }
        flows
    }

    /// Sizes that it goes through, at least one.
    pub(crate) fn all_sizes(&self) -> Vec<u64> {
        let one = self.size.map_or(DEFAULT_SIZE, |size| size.0);
        if self.sizes.is_empty() {
            vec![one]
        } else {
            self.sizes.iter().map(|size| size.0).collect()
        }
    }

    /// How often the size at that place of `all_sizes`, or how many messages.
    pub(crate) fn repetitions(&self, place: usize) -> u32 {
        let default = match self.kind {
            Kind::Latency => 1000,
            _ => 1,
        };
        match &self.iterations {
            Some(Iterations::Each(count)) => *count,
            Some(Iterations::BySize(counts)) => counts.get(place).copied().unwrap_or(default),
            None => default,
        }
    }

    /// Messages outstanding per queue pair.
    pub(crate) fn outstanding(&self) -> u32 {
        match self.kind {
            Kind::Latency => 1,
            _ => self.burst.unwrap_or_else(|| self.depth.unwrap_or(DEFAULT_DEPTH)),
        }
    }
}

const DEFAULT_SIZE: u64 = 64 << 10;
const DEFAULT_DEPTH: u32 = 8;
