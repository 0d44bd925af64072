//! What the runs have met: faults of the network and events of the protocol, counted per run and summed over seeds.

use crate::rules::RULES;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Kinds of faults, as the summary names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FaultTag {
    /// Single losses.
    Loss,
    /// Losses of answers only.
    ControlLoss,
    /// Losses on some paths only.
    PathLoss,
    /// Losses in bursts.
    BurstLoss,
    /// Copies shortly after the original.
    Duplicate,
    /// Copies long after the original.
    LateDuplicate,
    /// Frames overtaking each other on one path.
    Reorder,
    /// Flipped bits.
    BitFlip,
    /// Paths that swallow everything.
    PathBlackhole,
    /// A plane that swallows everything.
    PlaneBlackhole,
    /// One direction of a plane swallows everything.
    OneWayBlackhole,
    /// All planes swallow everything.
    Partition,
    /// Congestion marks.
    CeMark,
    /// Frames cut inside the fabric.
    Trim,
    /// Frames cut at the last hop.
    TrimLastHop,
    /// A port's link goes down and both ends are told.
    PortDown,
    /// All ports of a host go down.
    AllPortsDown,
    /// A host that does nothing for a while.
    Stall,
    /// A host that stops for ever.
    PeerVanishes,
    /// PSNs that pass 2^24.
    PsnWrap,
    /// Packets that nobody sent.
    Forgery,
    /// Too few receives posted.
    TooFewReceives,
    /// A write that the peer must refuse.
    BadAccess,
    /// More `WriteIMM` in flight than the peer can hold.
    TooManyImmediates,
    /// The application moves a queue pair to ERR or RESET.
    LocalError,
    /// A receive ring that is full.
    RingOverrun,
    /// A host's clock leaps forward.
    ClockLeap,
    /// A host's clock runs backwards.
    ClockBack,
    /// New packets that a host cannot take, and says so itself.
    Refusal,
    /// A memory that cannot be written for a while.
    MemoryBusy,
    /// A memory that cannot be written any more.
    MemoryBroken,
    /// Writes that a host cannot keep, and tells its queue pair.
    NoBuffer,
    /// Packets that a host cannot send, and tells its queue pair.
    Unsent,
    /// Other limits of answers than the default.
    AnswerLimit,
    /// Retry attributes changed while live.
    RetryChanged,
    /// A responder announces another window.
    WindowChanged,
    /// One end of a connection starts anew.
    Restart,
}

/// Counts of one run, or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Seeds that met the fault, and how often it acted in all.
    pub faults: BTreeMap<FaultTag, Count>,
    /// Protocol events by name.
    pub events: BTreeMap<Cow<'static, str>, Count>,
    /// Rules of the protocol by name ([`RULES`]).
    pub rules: BTreeMap<Cow<'static, str>, Count>,
}

/// How many runs saw it, and how often in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Runs.
    pub seeds: u64,
    /// Occurrences.
    pub times: u64,
}

impl Coverage {
    /// A fault has acted.
    pub fn fault(&mut self, tag: FaultTag) {
        self.faults.entry(tag).or_default().add(1);
    }

    /// A protocol event has happened `times` times.
    pub fn event(&mut self, name: &'static str, times: u64) {
        count(&mut self.events, name, times);
    }

    /// A rule of the protocol was exercised `times` times.
    pub fn rule(&mut self, name: &'static str, times: u64) {
        if count(&mut self.rules, name, times) {
            debug_assert!(RULES.contains(&name), "{name}");
        }
    }

    /// Rules that no run has exercised.
    pub fn untouched(&self) -> Vec<&'static str> {
        let untouched = RULES.iter().filter(|rule| !self.rules.contains_key(**rule));
        untouched.copied().collect()
    }

    /// Adds the counts of another run or group of runs.
    pub fn merge(&mut self, other: &Coverage) {
        for (tag, count) in &other.faults {
            self.faults.entry(*tag).or_default().merge(*count);
        }
        for (name, count) in &other.events {
            self.events.entry(name.clone()).or_default().merge(*count);
        }
        for (name, count) in &other.rules {
            self.rules.entry(name.clone()).or_default().merge(*count);
        }
    }
}

/// Adds to a count; returns whether it is the first time.
fn count(counts: &mut BTreeMap<Cow<'static, str>, Count>, name: &'static str, times: u64) -> bool {
    if times == 0 {
        return false;
    }
    if let Some(count) = counts.get_mut(name) {
        count.add(times);
        return false;
    }
    counts.entry(name.into()).or_default().add(times);
    true
}

impl Count {
    fn add(&mut self, times: u64) {
        self.seeds = 1;
        self.times += times;
    }

    fn merge(&mut self, other: Count) {
        self.seeds += other.seeds;
        self.times += other.times;
    }
}
