//! Time series of links, without events of its own: between two steps nothing in the fabric changes, so that samples can be
//! taken late.

use crate::fabric::clos::plan::Sampling;
use crate::fabric::clos::port::Port;
use crate::fabric::clos::topology::{Link, LinkId, Shape};

/// One link over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The link.
    pub link: Link,
    /// Interval. The first sample is of the end of the first interval.
    pub every_ns: u64,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// A link at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Share of the interval before it in which the link was busy, in parts per million.
    pub busy_ppm: u32,
    /// Bytes that wait for the link. What waits in a host for its uplink is the host's.
    pub queue_bytes: u32,
}

#[derive(Debug)]
pub(super) struct Sampler {
    every_ns: u64,
    next_ns: u64,
    links: Vec<Sampled>,
}

#[derive(Debug)]
struct Sampled {
    link: Link,
    id: LinkId,
    busy_ps: u64,
    samples: Vec<Sample>,
}

impl Sampler {
    pub(super) fn new(sampling: Option<&Sampling>, shape: &Shape) -> Sampler {
        let links = sampling.map_or(&[][..], |sampling| &sampling.links);
        let every_ns = sampling.map_or(u64::MAX, |sampling| sampling.every_ns);
        Sampler {
            every_ns,
            next_ns: every_ns,
            links: (links.iter())
                .map(|link| Sampled {
                    link: *link,
                    id: shape.id(*link),
                    busy_ps: 0,
                    samples: Vec::new(),
                })
                .collect(),
        }
    }

    /// Takes the samples of all instants up to `now_ns`, before anything changes at `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64, ports: &[Port]) {
        while self.next_ns <= now_ns {
            for link in &mut self.links {
                let port = &ports[link.id as usize];
                let busy_ps = port.busy_until_ps(self.next_ns);
                // What is left of a picosecond is no reason to go below zero.
                let share = u128::from(busy_ps.saturating_sub(link.busy_ps)) * 1000 / u128::from(self.every_ns);
                link.busy_ps = busy_ps;
                link.samples.push(Sample {
                    busy_ppm: share as u32,
                    queue_bytes: port.waiting_bytes(),
                });
            }
            self.next_ns = self.next_ns.saturating_add(self.every_ns);
            if self.next_ns == u64::MAX {
                break;
            }
        }
    }

    pub(super) fn series(&self) -> impl Iterator<Item = Series> + '_ {
        self.links.iter().map(|link| Series {
            link: link.link,
            every_ns: self.every_ns,
            samples: link.samples.clone(),
        })
    }
}
