//! Collectives: ring all-reduce, ring all-gather, all-to-all, pairs. Every result is checked.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use super::{Failure, Memory, Moved, Mover, Until, pattern};
use crate::agent::{Job, Outcome, SizeTimes, now_ns};
use crate::scenario::Kind;

const NAP: Duration = Duration::from_millis(5);
/// Steps of an iteration, in a tag.
const STEP_BITS: u32 = 10;

/// Runs all iterations of all sizes.
pub(super) fn run(job: &Job, mover: &mut dyn Mover, until: &Until) -> Result<Outcome, Failure> {
    let rank = job.ranks.iter().position(|rank| *rank == job.host);
    let rank = rank.ok_or_else(|| Failure::Other(format!("h{} is no rank of {}", job.host, job.workload.name)))?;
    let mut collective = Collective {
        job,
        mover,
        until,
        memory: Memory::of(job),
        rank,
        arrived: HashSet::new(),
        sending: HashMap::new(),
        moved: Vec::new(),
        outcome: Outcome::default(),
    };
    let mut iteration = 0;
    for size in job.workload.all_sizes() {
        let mut times = SizeTimes {
            size,
            times_ns: Vec::new(),
        };
        for _ in 0..job.workload.repetitions() {
            let started = now_ns();
            let went_on = match job.workload.kind {
                Kind::AllReduce => collective.all_reduce(iteration, size as usize)?,
                Kind::AllGather => collective.all_gather(iteration, size as usize)?,
                _ => collective.exchange(iteration, size as usize)?,
            };
            if !went_on {
                break;
            }
            times.times_ns.push(now_ns() - started);
            collective.outcome.messages += 1;
            iteration += 1;
        }
        collective.outcome.times.push(times);
    }
    collective.settle()?;
    Ok(collective.outcome)
}

struct Collective<'a> {
    job: &'a Job,
    mover: &'a mut dyn Mover,
    until: &'a Until,
    memory: Memory,
    /// Place of this host among the ranks.
    rank: usize,
    /// What has come and was not yet asked for: end, tag.
    arrived: HashSet<(usize, u32)>,
    /// Sources of writes that are outstanding.
    sending: HashMap<(usize, u64), Range<usize>>,
    moved: Vec<Moved>,
    outcome: Outcome,
}

impl Collective<'_> {
    /// A ring all-reduce of `size` bytes of floats: the sum of all ranks' data, at all ranks. False if it was stopped.
    fn all_reduce(&mut self, iteration: u32, size: usize) -> Result<bool, Failure> {
        let ranks = self.job.ranks.len();
        let part = size / 4 / ranks;
        let own = |index| pattern::element(self.job.seed, self.rank, iteration, index);
        let mut data: Vec<f32> = (0..size / 4).map(own).collect();
        for step in 0..2 * (ranks - 1) {
            // Scatter with addition, then gather: in step s, rank r sends part r - s, and receives part r - s - 1.
            let send = (self.rank + 2 * ranks - step) % ranks;
            let receive = (self.rank + 2 * ranks - step - 1) % ranks;
            let bytes: Vec<u8> = data[send * part..(send + 1) * part]
                .iter()
                .flat_map(|float| float.to_le_bytes())
                .collect();
            if !self.pass_on(iteration, step, send, &bytes)? {
                return Ok(false);
            }
            let Some(bytes) = self.receive(iteration, step, part * 4)? else {
                return Ok(false);
            };
            let target = &mut data[receive * part..(receive + 1) * part];
            for (place, bytes) in target.iter_mut().zip(bytes.chunks_exact(4)) {
                let float = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                *place = if step < ranks - 1 { *place + float } else { float };
            }
        }
        let sum = |index| -> f32 {
            (0..ranks)
                .map(|rank| pattern::element(self.job.seed, rank, iteration, index))
                .sum()
        };
        // The sums are of whole numbers below 2^24, so exact in any order.
        #[expect(clippy::float_cmp, reason = "whole numbers")]
        let wrong = data.iter().enumerate().find(|(index, found)| **found != sum(*index));
        if let Some((index, found)) = wrong {
            let wanted = sum(index);
            self.differs(format!("iteration {iteration}: sum {index} is {found}, not {wanted}"));
        }
        self.outcome.compared_bytes += size as u64;
        Ok(true)
    }

    /// A ring all-gather: `size` bytes in all, a part from each rank, at all ranks.
    fn all_gather(&mut self, iteration: u32, size: usize) -> Result<bool, Failure> {
        let ranks = self.job.ranks.len();
        let part = size / ranks;
        let mut bytes = self.data(iteration, self.rank, 0, part);
        for step in 0..ranks - 1 {
            let send = (self.rank + ranks - step) % ranks;
            if !self.pass_on(iteration, step, send, &bytes)? {
                return Ok(false);
            }
            let Some(received) = self.receive(iteration, step, part)? else {
                return Ok(false);
            };
            let from = (self.rank + ranks - step - 1) % ranks;
            self.check(iteration, from, 0, &received);
            bytes = received;
        }
        Ok(true)
    }

    /// Sends every peer that there is a connection to a part of its own, and receives one from each: all-to-all and pairs.
    fn exchange(&mut self, iteration: u32, size: usize) -> Result<bool, Failure> {
        let part = match self.job.workload.kind {
            Kind::AllToAll => size / self.job.ranks.len(),
            _ => size,
        };
        // Two sets in turn, at places that do not depend on the size: a peer may be one iteration ahead, and at the next size.
        let set = (iteration as usize % 2) * (self.memory.target / 2);
        let peers: Vec<usize> = self.job.ends.iter().map(|end| end.peer).collect();
        for (end, &peer) in peers.iter().enumerate() {
            let to = self.rank_of(peer);
            let bytes = self.data(iteration, self.rank, to, part);
            if !self.send(end, tag(iteration, 0), self.memory.source_of(end), &bytes, set)? {
                return Ok(false);
            }
        }
        for (end, &peer) in peers.iter().enumerate() {
            if !self.await_arrival(end, tag(iteration, 0))? {
                return Ok(false);
            }
            let mut bytes = vec![0; part];
            self.mover.read(self.memory.target_of(end) + set, &mut bytes)?;
            let from = self.rank_of(peer);
            self.check(iteration, from, self.rank, &bytes);
        }
        Ok(true)
    }

    fn rank_of(&self, host: usize) -> usize {
        self.job.ranks.iter().position(|rank| *rank == host).unwrap_or(0)
    }

    /// The bytes that rank `from` sends to rank `to`.
    fn data(&self, iteration: u32, from: usize, to: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        pattern::fill(self.job.seed, from << 8 | to, iteration as usize, &mut bytes);
        bytes
    }

    fn check(&mut self, iteration: u32, from: usize, to: usize, found: &[u8]) {
        if found != self.data(iteration, from, to, found.len()) {
            self.differs(format!(
                "iteration {iteration}: the data of rank {from} is not what it sent"
            ));
        }
        self.outcome.compared_bytes += found.len() as u64;
    }

    fn differs(&mut self, what: String) {
        self.outcome.errors += 1;
        self.outcome.problem.get_or_insert(what);
    }

    /// The end that leads to the next rank of the ring (`first`), or from the one before.
    fn ring_end(&self, first: bool) -> usize {
        let end = self.job.ends.iter().position(|end| end.first == first);
        // A ring gives each rank both.
        end.unwrap_or(0)
    }

    /// Sends `bytes`, which are part `part` of the data, to the next rank.
    fn pass_on(&mut self, iteration: u32, step: usize, part: usize, bytes: &[u8]) -> Result<bool, Failure> {
        let end = self.ring_end(true);
        let source = self.memory.source_of(end) + part * bytes.len();
        let to = self.ring_slot(iteration, step, bytes.len());
        self.send(end, tag(iteration, step), source, bytes, to)
    }

    /// The part that the rank before has sent in this step.
    fn receive(&mut self, iteration: u32, step: usize, len: usize) -> Result<Option<Vec<u8>>, Failure> {
        let end = self.ring_end(false);
        if !self.await_arrival(end, tag(iteration, step))? {
            return Ok(None);
        }
        let at = self.memory.target_of(end) + self.ring_slot(iteration, step, len);
        let mut bytes = vec![0; len];
        self.mover.read(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Where a step's part goes: iterations use two sets in turn, because a neighbour may be one iteration ahead, but not two.
    fn ring_slot(&self, iteration: u32, step: usize, part: usize) -> usize {
        (iteration as usize % 2) * (self.memory.target / 2) + step * part
    }

    fn send(&mut self, end: usize, tag: u32, source: usize, bytes: &[u8], to: usize) -> Result<bool, Failure> {
        // What is still being sent from there stays as it is.
        let place = source..source + bytes.len();
        let overlaps = |busy: &Range<usize>| busy.start < place.end && place.start < busy.end;
        while self.sending.values().any(overlaps) {
            if !self.turn()? {
                return Ok(false);
            }
        }
        self.mover.write(source, bytes)?;
        let tag = u64::from(tag);
        while !self.mover.post(end, tag, place.clone(), to, true)? {
            if !self.turn()? {
                return Ok(false);
            }
        }
        self.sending.insert((end, tag), place);
        Ok(true)
    }

    fn await_arrival(&mut self, end: usize, tag: u32) -> Result<bool, Failure> {
        while !self.arrived.remove(&(end, tag)) {
            if !self.turn()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes what has happened, or waits for something to happen. False if it is over.
    fn turn(&mut self) -> Result<bool, Failure> {
        self.moved.clear();
        self.mover.poll(&mut self.moved)?;
        for moved in &self.moved {
            match *moved {
                Moved::Sent { end, tag } => {
                    self.sending.remove(&(end, tag));
                }
                Moved::Received { end, tag } => {
                    self.arrived.insert((end, tag));
                }
                Moved::Failed { .. } => self.outcome.errors += 1,
            }
        }
        if self.moved.is_empty() {
            self.mover.wait(NAP);
        }
        if self.until.is_stopped() {
            if self.outcome.problem.is_none() {
                let done = self.outcome.messages;
                let why = format!("stopped after {done} iterations: it took too long, or another rank failed");
                self.outcome.problem = Some(why);
                self.outcome.stopped = true;
                self.outcome.errors += 1;
            }
            return Ok(false);
        }
        Ok(self.outcome.errors == 0)
    }

    /// Waits for what is outstanding: peers still need it.
    fn settle(&mut self) -> Result<(), Failure> {
        while !self.sending.is_empty() && self.turn()? {}
        Ok(())
    }
}

fn tag(iteration: u32, step: usize) -> u32 {
    iteration << STEP_BITS | step as u32
}
