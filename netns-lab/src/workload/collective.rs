//! Collectives: ring all-reduce, ring all-gather, all-to-all, pairs. Every result is checked.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use zerocopy::IntoBytes as _;

use super::{Failure, Memory, Moved, Mover, Until, pattern};
use crate::agent::{Job, Outcome, SizeTimes, now_ns};
use crate::scenario::Kind;

const NAP: Duration = Duration::from_millis(5);
/// Steps of an iteration, in a tag.
const STEP_BITS: u32 = 10;
/// Slices of a part, in a tag.
const SLICE_BITS: u32 = 4;

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
        buffers: Buffers::default(),
        outcome: Outcome::default(),
    };
    let mut iteration = 0;
    for (place, size) in job.workload.all_sizes().into_iter().enumerate() {
        let mut times = SizeTimes {
            size,
            times_ns: Vec::new(),
        };
        for _ in 0..job.workload.repetitions(place) {
            let mut buffers = std::mem::take(&mut collective.buffers);
            let took_ns = match job.workload.kind {
                Kind::AllReduce => collective.all_reduce(iteration, size as usize, &mut buffers)?,
                Kind::AllGather => collective.all_gather(iteration, size as usize, &mut buffers)?,
                _ => collective.exchange(iteration, size as usize, &mut buffers)?,
            };
            collective.buffers = buffers;
            let Some(took_ns) = took_ns else { break };
            times.times_ns.push(took_ns);
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
    /// Lent to the iteration that runs.
    buffers: Buffers,
    outcome: Outcome,
}

/// Room that every iteration uses again: fresh pages for each would cost the machine more than the moving.
#[derive(Default)]
struct Buffers {
    floats: Vec<f32>,
    part: Vec<f32>,
    bytes: Vec<u8>,
    wanted: Vec<u8>,
}

impl Collective<'_> {
    /// A ring all-reduce of `size` bytes of floats: the sum of all ranks' data, at all ranks. How long it took, from the first word sent
    /// to the last sum made; nothing if it was stopped.
    fn all_reduce(&mut self, iteration: u32, size: usize, buffers: &mut Buffers) -> Result<Option<u64>, Failure> {
        let ranks = self.job.ranks.len();
        let part = size / 4 / ranks;
        let Buffers {
            floats, part: other, ..
        } = buffers;
        let own = pattern::Elements::of_rank(self.job.seed, iteration, self.rank);
        floats.clear();
        floats.extend((0..size / 4).map(|index| own.at(index)));
        other.resize(part, 0.0);
        let started = now_ns();
        let steps = 2 * (ranks - 1);
        let part_of = |index: usize, slice: &Slice| {
            let first = index * part;
            first + slice.bytes.start / 4..first + slice.bytes.end / 4
        };
        for slice in slices(part * 4) {
            let bytes = floats[part_of(self.rank, &slice)].as_bytes();
            if !self.pass_on(iteration, 0, self.rank, &slice, bytes)? {
                return Ok(None);
            }
        }
        for step in 0..steps {
            // Scatter with addition, then gather: in step s, rank r receives part r - s - 1, and passes it on in the next step, slice by
            // slice, so that no link is idle while it adds. All hosts are this machine, so floats go as they lie in memory.
            let index = (self.rank + 2 * ranks - step - 1) % ranks;
            for slice in slices(part * 4) {
                let target = &mut floats[part_of(index, &slice)];
                let others = &mut other[part_of(0, &slice)];
                let adds = step < ranks - 1;
                let into = if adds { &mut *others } else { &mut *target };
                if !self.receive(iteration, step, &slice, into.as_mut_bytes())? {
                    return Ok(None);
                }
                if adds {
                    target.iter_mut().zip(others).for_each(|(sum, float)| *sum += *float);
                }
                if step + 1 < steps && !self.pass_on(iteration, step + 1, index, &slice, target.as_bytes())? {
                    return Ok(None);
                }
            }
        }
        let took_ns = now_ns() - started;
        let sums = pattern::Elements::sum(self.job.seed, iteration, ranks);
        // The sums are of whole numbers below 2^24, so exact in any order.
        #[expect(clippy::float_cmp, reason = "whole numbers")]
        let wrong = floats
            .iter()
            .enumerate()
            .find(|(index, found)| **found != sums.at(*index));
        if let Some((index, found)) = wrong {
            let wanted = sums.at(index);
            self.differs(format!("iteration {iteration}: sum {index} is {found}, not {wanted}"));
        }
        self.outcome.compared_bytes += size as u64;
        Ok(Some(took_ns))
    }

    /// A ring all-gather: `size` bytes in all, a part from each rank, at all ranks.
    fn all_gather(&mut self, iteration: u32, size: usize, buffers: &mut Buffers) -> Result<Option<u64>, Failure> {
        let ranks = self.job.ranks.len();
        let part = size / ranks;
        let Buffers { bytes, wanted, .. } = buffers;
        bytes.resize(size, 0);
        self.fill(iteration, self.rank, 0, &mut bytes[self.rank * part..][..part]);
        let started = now_ns();
        for slice in slices(part) {
            let own = &bytes[self.rank * part..][slice.bytes.clone()];
            if !self.pass_on(iteration, 0, self.rank, &slice, own)? {
                return Ok(None);
            }
        }
        for step in 0..ranks - 1 {
            let from = (self.rank + ranks - step - 1) % ranks;
            for slice in slices(part) {
                let target = &mut bytes[from * part..][slice.bytes.clone()];
                if !self.receive(iteration, step, &slice, target)?
                    || (step + 2 < ranks && !self.pass_on(iteration, step + 1, from, &slice, target)?)
                {
                    return Ok(None);
                }
            }
        }
        let took_ns = now_ns() - started;
        wanted.resize(part, 0);
        for step in 1..ranks {
            let from = (self.rank + step) % ranks;
            self.check(iteration, from, 0, &bytes[from * part..][..part], wanted);
        }
        Ok(Some(took_ns))
    }

    /// Sends every peer that there is a connection to a part of its own, and receives one from each: all-to-all and pairs.
    fn exchange(&mut self, iteration: u32, size: usize, buffers: &mut Buffers) -> Result<Option<u64>, Failure> {
        let part = match self.job.workload.kind {
            Kind::AllToAll => size / self.job.ranks.len(),
            _ => size,
        };
        // Two sets in turn, at places that do not depend on the size: a peer may be one iteration ahead, and at the next size.
        let set = (iteration as usize % 2) * (self.memory.target / 2);
        let peers: Vec<usize> = self.job.ends.iter().map(|end| end.peer).collect();
        let Buffers { bytes, wanted, .. } = buffers;
        bytes.resize(peers.len() * part, 0);
        wanted.resize(part, 0);
        for (end, &peer) in peers.iter().enumerate() {
            self.fill(
                iteration,
                self.rank,
                self.rank_of(peer),
                &mut bytes[end * part..][..part],
            );
        }
        let started = now_ns();
        for end in 0..peers.len() {
            let piece = &bytes[end * part..][..part];
            if !self.send(end, tag(iteration, 0, 0), self.memory.source_of(end), piece, set)? {
                return Ok(None);
            }
        }
        for end in 0..peers.len() {
            if !self.await_arrival(end, tag(iteration, 0, 0))? {
                return Ok(None);
            }
        }
        let took_ns = now_ns() - started;
        for (end, &peer) in peers.iter().enumerate() {
            let found = &mut bytes[..part];
            self.mover.read(self.memory.target_of(end) + set, found)?;
            self.check(iteration, self.rank_of(peer), self.rank, found, wanted);
        }
        Ok(Some(took_ns))
    }

    fn rank_of(&self, host: usize) -> usize {
        self.job.ranks.iter().position(|rank| *rank == host).unwrap_or(0)
    }

    /// The bytes that rank `from` sends to rank `to`.
    fn fill(&self, iteration: u32, from: usize, to: usize, bytes: &mut [u8]) {
        pattern::fill(self.job.seed, from << 8 | to, iteration as usize, bytes);
    }

    /// Compares; `wanted` is room for what should be there.
    fn check(&mut self, iteration: u32, from: usize, to: usize, found: &[u8], wanted: &mut [u8]) {
        self.fill(iteration, from, to, wanted);
        if found != wanted {
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

    /// Sends `bytes`, a slice of part `part` of the data, to the next rank.
    fn pass_on(
        &mut self,
        iteration: u32,
        step: usize,
        part: usize,
        slice: &Slice,
        bytes: &[u8],
    ) -> Result<bool, Failure> {
        let end = self.ring_end(true);
        let source = self.memory.source_of(end) + part * slice.of + slice.bytes.start;
        let to = self.ring_slot(iteration, step, slice);
        self.send(end, tag(iteration, step, slice.number), source, bytes, to)
    }

    /// The slice that the rank before has sent in this step. False if it was stopped.
    fn receive(&mut self, iteration: u32, step: usize, slice: &Slice, bytes: &mut [u8]) -> Result<bool, Failure> {
        let end = self.ring_end(false);
        if !self.await_arrival(end, tag(iteration, step, slice.number))? {
            return Ok(false);
        }
        let at = self.memory.target_of(end) + self.ring_slot(iteration, step, slice);
        self.mover.read(at, bytes)?;
        Ok(true)
    }

    /// Where a step's slice goes: iterations use two sets in turn, because a neighbour may be one iteration ahead, but not two.
    fn ring_slot(&self, iteration: u32, step: usize, slice: &Slice) -> usize {
        (iteration as usize % 2) * (self.memory.target / 2) + step * slice.of + slice.bytes.start
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

/// A slice of a part, which moves by itself.
struct Slice {
    number: usize,
    /// In the part.
    bytes: Range<usize>,
    /// Bytes of the part.
    of: usize,
}

/// Small parts move whole. Of others there are few slices, since a neighbour may be ahead by all that a ring has under way, and needs a
/// receive for each.
fn slices(part: usize) -> impl Iterator<Item = Slice> {
    const SMALLEST: usize = 128 << 10;
    const MOST: usize = 8;
    let len = part.div_ceil(MOST).next_multiple_of(4).max(SMALLEST);
    (0..part).step_by(len).enumerate().map(move |(number, start)| Slice {
        number,
        bytes: start..part.min(start + len),
        of: part,
    })
}

/// Tells what is under way apart.
fn tag(iteration: u32, step: usize, slice: usize) -> u32 {
    iteration << (STEP_BITS + SLICE_BITS) | (step as u32) << SLICE_BITS | slice as u32
}
