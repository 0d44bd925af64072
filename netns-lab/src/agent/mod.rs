//! The agent: a process in each host's namespace that holds the host's engine and does the host's part of every workload.
//!
//! The runner starts it (this program with a hidden command), writes [`Order`]s to its standard input and reads [`Report`]s from its
//! standard output, one line of JSON each. Both share the machine's monotonic clock, so that times of all hosts can be compared.

mod sampler;
mod serve;

use mrc_verbs::{ConnectionInfo, RemoteRegion};
use serde::{Deserialize, Serialize};

pub(crate) use serve::main;

use crate::scenario::Workload;

/// Nanoseconds of the machine's monotonic clock, the same in every process.
pub(crate) fn now_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// What the runner tells an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Make what workload `id` needs, and say where it is.
    Prepare { id: usize, job: Box<Job> },
    /// What the peers of all connections have said, in the job's order.
    Connect { id: usize, peers: Vec<End> },
    /// Begin at that time.
    Start { id: usize, at_ns: u64 },
    /// Begin nothing new, and end what is outstanding.
    Stop { id: usize },
    /// All hosts are done: compare what has arrived, and give everything back.
    Finish { id: usize },
    /// Forbid all paths of a profile in a plane, or one by its name, or allow them again.
    Deny {
        profile: String,
        plane: Option<u8>,
        path: Option<String>,
        denied: bool,
    },
    /// End.
    Quit,
}

/// A host's part of a workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The workload, as it stands in the file.
    pub workload: Workload,
    /// Seed of its data.
    pub seed: u64,
    /// This host.
    pub host: usize,
    /// All ranks, if it is a collective.
    pub ranks: Vec<usize>,
    /// This host's ends of the workload's connections.
    pub ends: Vec<EndOfFlow>,
    /// The planes that TCP puts a connection on each.
    pub planes: usize,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct EndOfFlow {
    /// Number of the connection in the workload.
    pub flow: usize,
    /// The host at the other end.
    pub peer: usize,
    /// This end writes.
    pub writes: bool,
    /// This end is the connection's first.
    pub first: bool,
}

/// What the two ends of a connection tell each other through the runner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct End {
    /// The queue pair; none with TCP.
    pub info: Option<ConnectionInfo>,
    /// Where the peer may write.
    pub region: Option<RemoteRegion>,
    /// First byte of the region that is meant for this connection.
    pub offset: u64,
    /// Where TCP listens, if this end does: a socket per plane.
    #[serde(default)]
    pub listens: Vec<std::net::SocketAddr>,
}

/// What an agent tells the runner.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The engine is up.
    Ready,
    /// The answer to [`Order::Prepare`].
    Prepared { id: usize, ends: Vec<End> },
    /// The answer to [`Order::Connect`].
    Connected { id: usize },
    /// What is known now.
    Sample(Box<Sample>),
    /// A workload's part has ended.
    Done { id: usize, outcome: Box<Outcome> },
    /// The answer to [`Order::Finish`].
    Finished { id: usize, compared: Compared },
    /// The agent cannot go on.
    Failed { message: String },
}

/// What a host knows at a time. All figures count from the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// When.
    pub at_ns: u64,
    /// By plane.
    pub ports: Vec<PortSample>,
    /// Of every end of every running workload.
    pub ends: Vec<EndSample>,
    /// Processor time of this process, seconds.
    pub cpu_s: f64,
    /// Frames that the kernel or the interface threw away because this host was too slow.
    pub lost_here: u64,
    /// How often the engine did not run although it should have.
    pub stalls: u64,
}

/// A port's counters.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct PortSample {
    /// Message data sent, repetitions included.
    pub tx_data_bytes: u64,
    /// Message data received, duplicates included.
    pub rx_data_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Writes sent again.
    pub retransmissions: u64,
}

/// An end of a connection.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct EndSample {
    /// Number of the workload.
    pub id: usize,
    /// Number of the connection in it.
    pub flow: usize,
    /// Payload that arrived here.
    pub delivered_bytes: u64,
    /// Data packets sent, repetitions included.
    pub packets_sent: u64,
    /// Data packets sent again.
    pub packets_again: u64,
    /// Paths by plane and state, if this end has paths.
    pub paths: Vec<PathCounts>,
    /// Paths that came to be taken for bad, or left the active set, or came back, since the last sample.
    pub changes: Vec<PathChange>,
    /// Packets sent on paths that have names.
    #[serde(default)]
    pub named: Vec<(String, u64)>,
    /// Congestion window, bytes.
    pub cwnd_bytes: Option<u64>,
    /// Smoothed round trip, ns; 0 before the first.
    pub rtt_ns: u64,
}

/// The paths of one end in one plane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathCounts {
    /// In the rotation.
    pub active: u32,
    /// Of the active ones, congested.
    pub skip: u32,
    /// Taken for bad.
    pub bad: u32,
    /// Forbidden.
    pub denied: u32,
    /// Ready to take the place of a bad one.
    pub backup: u32,
}

/// A path that left or came back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PathChange {
    /// Its plane.
    pub plane: u8,
    /// Its name, or its entropy value as the engine prints it.
    pub ev: String,
    /// Packets sent on it so far.
    pub packets: u64,
    /// Bad from now on, or good again.
    pub bad: bool,
    /// Why.
    pub why: String,
}

/// How a workload's part ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// When the last of its work was done.
    pub ended_ns: u64,
    /// Message times in nanoseconds, by size; one per message or iteration.
    pub times: Vec<SizeTimes>,
    /// Messages or iterations done.
    pub messages: u64,
    /// Work that completed with an error, and the first of these errors.
    pub errors: u64,
    /// The first error or difference, in words.
    pub problem: Option<String>,
    /// The runner ended it before its end.
    pub stopped: bool,
    /// Bytes compared with what they should be.
    pub compared_bytes: u64,
    /// The paths of its connections, at the end.
    pub paths: Vec<PathDetail>,
}

/// What is known of a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PathDetail {
    /// Number of the connection.
    pub flow: usize,
    /// Its plane.
    pub plane: u8,
    /// Its entropy value.
    pub ev: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What is thought of it at the end.
    pub state: String,
    /// Data packets sent on it.
    pub packets: u64,
    /// Of these, lost.
    pub losses: u32,
}

impl PathDetail {
    /// For people.
    pub(crate) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.ev)
    }
}

/// What was compared after a workload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Compared {
    /// Bytes.
    pub bytes: u64,
    /// The first difference, in words.
    pub difference: Option<String>,
}

/// The message times of one size.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct SizeTimes {
    /// Bytes.
    pub size: u64,
    /// Nanoseconds.
    pub times_ns: Vec<u64>,
}
