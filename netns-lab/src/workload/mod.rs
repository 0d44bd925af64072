//! What hosts do in a workload: the same code over queue pairs and over kernel TCP.

mod collective;
mod mrc;
mod pattern;
mod stream;
mod tcp;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::agent::{Compared, End, EndSample, Job, Outcome, PathDetail, now_ns};
use crate::scenario::Kind;

pub(crate) use mrc::{Device, Queues};
pub(crate) use tcp::Sockets;

/// Why a workload cannot go on: one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The engine or the library refused.
    #[error(transparent)]
    Verbs(#[from] mrc_verbs::Error),
    /// A socket failed.
    #[error("{what}: {source}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// What the kernel answered.
        source: std::io::Error,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// Something that has happened to data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// What this side posted is at the peer.
    Sent { end: usize, tag: u64 },
    /// What the peer posted with `notify` is here.
    Received { end: usize, tag: u32 },
    /// What this side posted has failed.
    Failed { end: usize },
}

/// Moves data between the memories of hosts: connections to peers, and one memory that they write into.
pub(crate) trait Mover: Send {
    /// Writes `from` of the own memory to offset `to` of the part of the peer's memory that belongs to this connection. `tag` comes back
    /// with [`Moved::Sent`], and with `notify` its low half at the peer. False if the queue is full.
    fn post(&mut self, end: usize, tag: u64, from: Range<usize>, to: usize, notify: bool) -> Result<bool, Failure>;

    /// Adds what has happened.
    fn poll(&mut self, moved: &mut Vec<Moved>) -> Result<(), Failure>;

    /// Waits until something may have happened, at most so long.
    fn wait(&mut self, at_most: Duration);

    /// Copies into the own memory.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Failure>;

    /// Copies from the own memory.
    fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), Failure>;

    /// What went wrong first, if work has failed.
    fn problem(&self) -> Option<String>;
}

/// Tells what the sampler wants to know of a workload's ends.
pub(crate) trait Probe: Send {
    /// One sample per end.
    fn sample(&mut self, id: usize) -> Vec<EndSample>;

    /// Every path of every end, where there are paths.
    fn paths(&self) -> Vec<PathDetail> {
        Vec::new()
    }
}

/// Where data lies in a host's memory: sources first, then what peers write, a part per connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Bytes of the source of one connection.
    pub source: usize,
    /// Bytes that one connection's peer may write.
    pub target: usize,
    /// Connections of this host that need parts of their own.
    pub ends: usize,
}

impl Memory {
    /// What a job needs.
    pub(crate) fn of(job: &Job) -> Memory {
        let largest = job.workload.all_sizes().into_iter().max().unwrap_or(1) as usize;
        // In a ring one end sends and the other receives: each has its part to itself.
        let ends = match job.workload.kind {
            Kind::AllReduce | Kind::AllGather => 1,
            _ => job.ends.len().max(1),
        };
        let ranks = job.ranks.len();
        let (source, target) = match job.workload.kind {
            Kind::Write | Kind::Latency => {
                let slots = job.workload.outstanding() as usize;
                (largest * slots, largest * slots)
            }
            // A source per step and a target per step, in two sets: a neighbour may be one iteration ahead.
            Kind::AllReduce => (largest, 2 * 2 * largest),
            Kind::AllToAll => (largest.div_ceil(ranks.max(1)), 2 * largest.div_ceil(ranks.max(1))),
            Kind::AllGather | Kind::Pairs => (largest, 2 * largest),
        };
        Memory { source, target, ends }
    }

    /// Bytes in all.
    pub(crate) fn len(&self) -> usize {
        (self.ends * (self.source + self.target)).max(1)
    }

    /// First byte of an end's source.
    pub(crate) fn source_of(&self, end: usize) -> usize {
        end % self.ends * self.source
    }

    /// First byte of what an end's peer writes.
    pub(crate) fn target_of(&self, end: usize) -> usize {
        self.ends * self.source + end % self.ends * self.target
    }
}

/// A workload's part that is prepared but not connected.
pub(crate) enum Prepared {
    /// Over queue pairs.
    Queues(Queues),
    /// Over kernel TCP.
    Sockets(Sockets),
}

impl Prepared {
    /// Makes everything that a job needs.
    pub(crate) fn new(job: Job, device: &Device) -> Result<Prepared, Failure> {
        if let Some(congestion_control) = job.workload.transport.congestion_control() {
            return Sockets::new(job, congestion_control).map(Prepared::Sockets);
        }
        Queues::new(job, device).map(Prepared::Queues)
    }

    /// What the peers need to know, per end.
    pub(crate) fn ends(&self) -> Result<Vec<End>, Failure> {
        match self {
            Prepared::Queues(queues) => Ok(queues.ends()),
            Prepared::Sockets(sockets) => sockets.ends(),
        }
    }

    /// Connects.
    pub(crate) fn connect(self, peers: &[End]) -> Result<Ready, Failure> {
        match self {
            Prepared::Queues(queues) => queues.connect(peers),
            Prepared::Sockets(sockets) => sockets.connect(peers),
        }
    }
}

/// A workload's part that is connected.
pub(crate) struct Ready {
    /// The job.
    pub job: Job,
    /// Its data.
    pub mover: Box<dyn Mover>,
    /// For the sampler.
    pub probe: Box<dyn Probe>,
}

/// When a running part ends: at the runner's word, or at that time.
#[derive(Debug, Clone)]
pub(crate) struct Until {
    stop: Arc<AtomicBool>,
    end_ns: Option<u64>,
}

impl Until {
    /// From the job's start.
    pub(crate) fn new(stop: Arc<AtomicBool>, start_ns: u64, seconds: Option<f64>) -> Until {
        let end_ns = seconds.map(|seconds| start_ns + (seconds * 1e9) as u64);
        Until { stop, end_ns }
    }

    /// Nothing new is to be begun.
    pub(crate) fn is_over(&self) -> bool {
        self.is_stopped() || self.end_ns.is_some_and(|end| now_ns() >= end)
    }

    /// The runner said so, which ends collectives too.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Does a host's part, from its start to its end.
pub(crate) fn run(job: &Job, mover: &mut dyn Mover, start_ns: u64, until: &Until) -> Result<Outcome, Failure> {
    while now_ns() < start_ns {
        mover.wait(Duration::from_nanos((start_ns - now_ns().min(start_ns)).min(1_000_000)));
    }
    let mut outcome = match job.workload.kind {
        Kind::Write | Kind::Latency => stream::run(job, mover, start_ns, until)?,
        Kind::AllReduce | Kind::AllGather | Kind::AllToAll | Kind::Pairs => collective::run(job, mover, until)?,
    };
    outcome.ended_ns = now_ns();
    // What failed first says more than what came of it.
    outcome.problem = mover.problem().or(outcome.problem);
    Ok(outcome)
}

/// Compares what has arrived, when all hosts are done. Collectives have compared on their way.
pub(crate) fn compare(job: &Job, mover: &dyn Mover) -> Result<Compared, Failure> {
    match job.workload.kind {
        Kind::Write | Kind::Latency => stream::compare(job, mover),
        _ => Ok(Compared::default()),
    }
}
