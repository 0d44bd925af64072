//! Ring all-reduce: every host has a vector, and in the end the sum of all of them.
//!
//! With n hosts the vectors fall into n parts. Connection i goes from host i to the next one. In the first n - 1 steps, each
//! host passes on the part that it has just added to; in the next n - 1, the parts that are complete go around.

use crate::ensure;
use crate::oracle::{Checked, Oracle};
use crate::rng::mix;
use crate::workload::{Arrival, Deed, Workload};

/// A ring of hosts that reduce.
#[derive(Debug)]
pub struct Ring {
    seed: u64,
    words: usize,
    /// The vectors, host after host. They are of integers, whose sum does not depend on the order.
    vectors: Vec<Vec<u64>>,
    arrived: usize,
}

impl Ring {
    /// A ring of `hosts` hosts with vectors of about `bytes` bytes. Each flow has [`Ring::steps`] messages, all held back, of
    /// [`Ring::part_bytes`] each.
    pub fn new(seed: u64, hosts: usize, bytes: u64) -> Ring {
        let words = (bytes / 8 / hosts as u64).max(1) as usize;
        let vectors = (0..hosts)
            .map(|host| (0..words * hosts).map(|at| element(seed, host, at)).collect())
            .collect();
        Ring {
            seed,
            words,
            vectors,
            arrived: 0,
        }
    }

    /// Steps of the ring.
    pub fn steps(&self) -> usize {
        2 * (self.vectors.len() - 1)
    }

    /// Bytes of a message.
    pub fn part_bytes(&self) -> u32 {
        (self.words * 8) as u32
    }

    /// The part that `host` sends in a step, or, with the host before it, receives.
    fn part(&self, host: usize, step: usize) -> std::ops::Range<usize> {
        let hosts = self.vectors.len();
        // In the second half everybody begins with the part that is complete: that after its own.
        let first = if step < hosts - 1 { host } else { host + 1 };
        let part = (first + 2 * hosts - step % (hosts - 1)) % hosts;
        part * self.words..(part + 1) * self.words
    }

    fn release(&self, host: usize, step: usize) -> Deed {
        let words = &self.vectors[host][self.part(host, step)];
        Deed::Release {
            connection: host,
            side: 0,
            data: Some(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
        }
    }
}

fn element(seed: u64, host: usize, at: usize) -> u64 {
    mix(seed ^ (host as u64) << 40, at as u64)
}

impl Workload for Ring {
    fn begin(&mut self, deeds: &mut Vec<Deed>) {
        deeds.extend((0..self.vectors.len()).map(|host| self.release(host, 0)));
    }

    fn arrived(&mut self, arrival: &Arrival<'_>, deeds: &mut Vec<Deed>) {
        self.arrived += 1;
        let (hosts, step) = (self.vectors.len(), arrival.message);
        let host = (arrival.connection + 1) % hosts;
        let part = self.part(arrival.connection, step);
        for (word, bytes) in self.vectors[host][part].iter_mut().zip(arrival.bytes.chunks_exact(8)) {
            let heard = bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            *word = if step < hosts - 1 {
                word.wrapping_add(heard)
            } else {
                heard
            };
        }
        if step + 1 < self.steps() {
            deeds.push(self.release(host, step + 1));
        }
    }

    fn ended(&mut self, _: usize, _: &mut Vec<Deed>) {}

    fn is_done(&self) -> bool {
        self.arrived == self.steps() * self.vectors.len()
    }

    fn judge(&self) -> Checked {
        let hosts = self.vectors.len();
        for at in 0..self.words * hosts {
            let sum = (0..hosts).fold(0u64, |sum, host| sum.wrapping_add(element(self.seed, host, at)));
            let wrong = (0..hosts).find(|host| self.vectors[*host][at] != sum);
            ensure!(
                wrong.is_none(),
                Oracle::Data,
                "element {at} of the reduced vector is not the sum at host {wrong:?}"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Passes every message on at once; `spoil` may change one.
    fn reduce(hosts: usize, spoil: impl Fn(usize, usize, &mut Vec<u8>)) -> Ring {
        let mut ring = Ring::new(5, hosts, 1000);
        let mut deeds = Vec::new();
        let mut steps = vec![0; hosts];
        ring.begin(&mut deeds);
        let mut queue: VecDeque<Deed> = deeds.into();
        while let Some(Deed::Release { connection, data, .. }) = queue.pop_front() {
            let mut bytes = data.expect("parts are known when they are sent");
            let message = steps[connection];
            steps[connection] += 1;
            spoil(connection, message, &mut bytes);
            let arrival = Arrival {
                connection,
                side: 0,
                message,
                bytes: &bytes,
            };
            let mut deeds = Vec::new();
            ring.arrived(&arrival, &mut deeds);
            queue.extend(deeds);
        }
        ring
    }

    #[test]
    fn all_hosts_end_with_the_sum() {
        for hosts in 2..6 {
            let ring = reduce(hosts, |_, _, _| {});
            assert!(ring.is_done(), "{hosts} hosts");
            assert_eq!(ring.judge(), Ok(()), "{hosts} hosts");
        }
    }

    #[test]
    fn a_wrong_byte_on_the_way_is_a_wrong_sum() {
        let ring = reduce(4, |connection, message, bytes| {
            if (connection, message) == (1, 2) {
                bytes[3] ^= 1;
            }
        });
        assert!(ring.judge().is_err());
    }
}
