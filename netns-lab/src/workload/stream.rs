//! Writes: a stream of them, bursts, or one at a time.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Failure, Memory, Moved, Mover, Until, pattern};
use crate::agent::{Compared, Job, Outcome, SizeTimes, now_ns};
use crate::scenario::Kind;

/// Longest wait for what is outstanding at the end.
const LATE_NS: u64 = 10_000_000_000;
/// Longest sleep between looks at the clock.
const NAP: Duration = Duration::from_millis(5);

/// A connection that this host writes on.
struct Lane {
    end: usize,
    posted: u64,
    /// When each outstanding message was posted, or was due.
    since: VecDeque<u64>,
}

/// Does this host's part.
pub(super) fn run(job: &Job, mover: &mut dyn Mover, start_ns: u64, until: &Until) -> Result<Outcome, Failure> {
    let memory = Memory::of(job);
    let size = job.workload.all_sizes()[0] as usize;
    let slots = u64::from(job.workload.outstanding());
    let mut lanes = Vec::new();
    for (end, place) in job.ends.iter().enumerate().filter(|(_, place)| place.writes) {
        let mut bytes = vec![0; size];
        for slot in 0..slots as usize {
            pattern::fill(job.seed, place.flow, slot, &mut bytes);
            mover.write(memory.source_of(end) + slot * size, &bytes)?;
        }
        lanes.push(Lane {
            end,
            posted: 0,
            since: VecDeque::new(),
        });
    }
    let burst = job.workload.burst.zip(job.workload.every);
    let mut stream = Stream {
        memory,
        size,
        slots,
        lanes,
        halves: job.workload.kind == Kind::Latency,
        outcome: Outcome {
            times: vec![SizeTimes {
                size: size as u64,
                times_ns: Vec::new(),
            }],
            ..Outcome::default()
        },
        moved: Vec::new(),
    };
    let limit = (job.workload.kind == Kind::Latency).then(|| u64::from(job.workload.repetitions(0)));
    match burst {
        _ if stream.lanes.is_empty() => {
            while !until.is_over() {
                mover.wait(NAP);
            }
        }
        Some((count, every)) => stream.bursts(mover, u64::from(count), (every * 1e9) as u64, start_ns, until)?,
        None => stream.flow(mover, limit, until)?,
    }
    stream.drain(mover)?;
    Ok(stream.outcome)
}

struct Stream {
    memory: Memory,
    size: usize,
    slots: u64,
    lanes: Vec<Lane>,
    /// Half of the time is recorded: there and back.
    halves: bool,
    outcome: Outcome,
    moved: Vec<Moved>,
}

impl Stream {
    /// Keeps every lane full; ends early when all lanes have posted `limit`, or after an error.
    fn flow(&mut self, mover: &mut dyn Mover, limit: Option<u64>, until: &Until) -> Result<(), Failure> {
        while !until.is_over() && self.outcome.errors == 0 {
            let mut more = false;
            for lane in 0..self.lanes.len() {
                while limit.is_none_or(|limit| self.lanes[lane].posted < limit) {
                    more = true;
                    if !self.post(mover, lane, now_ns())? {
                        break;
                    }
                }
            }
            if !more {
                return Ok(());
            }
            if !self.take(mover)? {
                mover.wait(NAP);
            }
        }
        Ok(())
    }

    /// Posts `count` messages on every lane at every tick of the clock that all hosts share. A burst that takes longer than a tick
    /// is waited for.
    fn bursts(
        &mut self,
        mover: &mut dyn Mover,
        count: u64,
        every_ns: u64,
        start_ns: u64,
        until: &Until,
    ) -> Result<(), Failure> {
        let mut due = start_ns;
        while !until.is_over() && self.outcome.errors == 0 {
            while now_ns() < due && !until.is_over() {
                mover.wait(Duration::from_nanos(
                    (due - now_ns().min(due)).min(NAP.as_nanos() as u64),
                ));
            }
            if until.is_over() {
                break;
            }
            for lane in 0..self.lanes.len() {
                for _ in 0..count {
                    self.post(mover, lane, due)?;
                }
            }
            self.drain(mover)?;
            while due <= now_ns() {
                due += every_ns;
            }
        }
        Ok(())
    }

    /// Posts one message; false if the lane is full.
    fn post(&mut self, mover: &mut dyn Mover, lane: usize, since: u64) -> Result<bool, Failure> {
        let lane = &mut self.lanes[lane];
        if lane.since.len() as u64 >= self.slots {
            return Ok(false);
        }
        let slot = (lane.posted % self.slots) as usize * self.size;
        let from = self.memory.source_of(lane.end) + slot;
        if !mover.post(lane.end, lane.posted, from..from + self.size, slot, false)? {
            return Ok(false);
        }
        lane.posted += 1;
        lane.since.push_back(since);
        Ok(true)
    }

    /// Takes completions, which come in order. True if there were any.
    fn take(&mut self, mover: &mut dyn Mover) -> Result<bool, Failure> {
        self.moved.clear();
        mover.poll(&mut self.moved)?;
        let now = now_ns();
        for moved in &self.moved {
            match *moved {
                Moved::Sent { end, .. } => {
                    let lane = self.lanes.iter_mut().find(|lane| lane.end == end);
                    if let Some(since) = lane.and_then(|lane| lane.since.pop_front()) {
                        let time = now.saturating_sub(since);
                        self.outcome.times[0]
                            .times_ns
                            .push(if self.halves { time / 2 } else { time });
                        self.outcome.messages += 1;
                    }
                }
                Moved::Failed { end } => {
                    self.outcome.errors += 1;
                    if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.end == end) {
                        lane.since.pop_front();
                    }
                }
                Moved::Received { .. } => {}
            }
        }
        Ok(!self.moved.is_empty())
    }

    /// Waits for what is outstanding.
    fn drain(&mut self, mover: &mut dyn Mover) -> Result<(), Failure> {
        let latest = now_ns() + LATE_NS;
        while self.lanes.iter().any(|lane| !lane.since.is_empty()) {
            if now_ns() > latest {
                let left: usize = self.lanes.iter().map(|lane| lane.since.len()).sum();
                self.outcome.errors += left as u64;
                self.outcome.problem = Some(format!(
                    "{left} writes are outstanding {} s after the last was posted",
                    LATE_NS / 1_000_000_000
                ));
                self.lanes.iter_mut().for_each(|lane| lane.since.clear());
                break;
            }
            if !self.take(mover)? {
                mover.wait(NAP);
            }
        }
        Ok(())
    }
}

/// Compares what has arrived on the connections that peers wrote on: every slot is whole, or was never written.
pub(super) fn compare(job: &Job, mover: &dyn Mover) -> Result<Compared, Failure> {
    let memory = Memory::of(job);
    let size = job.workload.all_sizes()[0] as usize;
    let mut compared = Compared::default();
    let (mut expected, mut found) = (vec![0; size], vec![0; size]);
    for (end, place) in job.ends.iter().enumerate() {
        if place.writes && !job.workload.both {
            continue;
        }
        for slot in 0..job.workload.outstanding() as usize {
            mover.read(memory.target_of(end) + slot * size, &mut found)?;
            if found.iter().all(|byte| *byte == 0) {
                continue;
            }
            pattern::fill(job.seed, place.flow, slot, &mut expected);
            compared.bytes += size as u64;
            if compared.difference.is_none()
                && let Some(at) = expected.iter().zip(&found).position(|(a, b)| a != b)
            {
                compared.difference = Some(format!(
                    "connection {} from h{}, slot {slot}: byte {at} is {:#04x}, not {:#04x}",
                    place.flow, place.peer, found[at], expected[at]
                ));
            }
        }
    }
    Ok(compared)
}
