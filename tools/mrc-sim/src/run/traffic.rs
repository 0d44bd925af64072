//! What the hosts of a scenario file send.

use crate::rng::{Rng, mix};
use crate::run::estimate::{Budget, Volume};
use crate::run::file::{FileError, Section};
use crate::run::plan::Common;
use crate::scenario::{ConnectionPlan, FlowPlan, MessagePlan, RegionPlan, Scenario};
use crate::workload::Workload;
use crate::workload::exchange::{Call, Exchange};
use crate::workload::ring::Ring;
use crate::workload::turns::Turns;

const KINDS: [&str; 7] = [
    "bulk",
    "ping_pong",
    "ring_all_reduce",
    "all_to_all",
    "incast",
    "mixed",
    "exchange",
];
/// Bytes of nothing around each region.
const GUARD: u64 = 64;
const MIB: u64 = 1 << 20;

/// The longest message.
const LONGEST: u64 = 1 << 30;

/// What is to be sent.
pub(super) struct Load {
    /// Its kind.
    pub(super) kind: &'static str,
    /// Applications that react.
    pub(super) workload: Option<Box<dyn Workload>>,
    /// Connections that measure what others do to them.
    pub(super) victims: Vec<usize>,
    /// Payload in all.
    pub(super) bytes: u64,
}

/// Plans the connections and the applications.
pub(super) fn plan(
    section: &Section<'_>,
    scenario: &mut Scenario,
    common: &Common,
    budget: &Budget,
) -> Result<Load, FileError> {
    let kind = section.word("kind", &KINDS)?;
    let bytes = section.number("bytes", 1..=1 << 36, 16 * MIB)?;
    let mut build = Builder {
        hosts: scenario.hosts.len() as u64,
        scenario,
        common,
        section,
        budget,
        message: 0,
    };
    let mut load = Load {
        kind,
        workload: None,
        victims: Vec::new(),
        bytes: 0,
    };
    match kind {
        "bulk" => build.bulk_load(bytes)?,
        "incast" => load.victims = build.incast(bytes)?,
        "all_to_all" => build.all_to_all(bytes)?,
        "mixed" => build.mixed(bytes)?,
        "ping_pong" => load.workload = Some(Box::new(build.ping_pong(bytes)?)),
        "ring_all_reduce" => load.workload = Some(Box::new(build.ring(bytes)?)),
        _ => {
            load.workload = Some(Box::new(build.exchange(bytes)?));
            load.bytes = build.hosts * (build.hosts - 1) * bytes;
        }
    }
    let flows = scenario.connections.iter().flat_map(|plan| &plan.flows);
    load.bytes += flows.map(FlowPlan::bytes).sum::<u64>();
    Ok(load)
}

struct Builder<'a> {
    hosts: u64,
    scenario: &'a mut Scenario,
    common: &'a Common,
    section: &'a Section<'a>,
    budget: &'a Budget,
    /// Bytes of a message, of loads that are not made of messages.
    message: u64,
}

impl Builder<'_> {
    /// Refuses what is too large; the connections are all of the load, and carry so many bytes and messages each.
    fn check(&self, connections: u64, bytes: u64, messages: u64) -> Result<(), FileError> {
        self.check_volume(Volume {
            connections: connections as f64,
            bytes: connections as f64 * bytes as f64,
            messages: connections as f64 * messages as f64,
            stays: 0.0,
        })
    }

    fn check_volume(&self, volume: Volume) -> Result<(), FileError> {
        let template = &self.common.template;
        self.budget
            .check_load(self.section, self.scenario.planes, template, volume)
    }

    fn take_message(&mut self) -> Result<(), FileError> {
        self.message = self.section.number("message_bytes", 1..=LONGEST, MIB)?;
        Ok(())
    }

    fn messages_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.message)
    }

    fn ends(&self) -> Result<(usize, usize), FileError> {
        let from = self.section.number("from", 0..=self.hosts - 1, 0)? as usize;
        let to = self.section.number("to", 0..=self.hosts - 1, self.hosts - 1)? as usize;
        if from == to {
            let what = format_args!("= {to} is where it comes from: name another host");
            return Err(self.section.error("to", what));
        }
        Ok((from, to))
    }

    /// A load whose messages have `bytes` each.
    fn no_longer_than_a_message(&self, bytes: u64) -> Result<(), FileError> {
        if bytes > LONGEST {
            let what = format_args!("= {bytes} is more than a message of this load has: give at most {LONGEST}");
            return Err(self.section.error("bytes", what));
        }
        Ok(())
    }

    fn bulk_load(&mut self, bytes: u64) -> Result<(), FileError> {
        self.take_message()?;
        let (from, to) = self.ends()?;
        let qps = self.section.number("qps", 1..=4096, 1)?;
        if bytes < qps {
            let what = format_args!("= {bytes} is less than a byte for each of {qps} queue pairs: give more");
            return Err(self.section.error("bytes", what));
        }
        let ways = 1 + u64::from(self.section.flag("both_ways", false)?);
        self.check(qps, bytes / qps * ways, ways * self.messages_of(bytes / qps))?;
        for number in 0..qps {
            let part = bytes / qps + u64::from(number < bytes % qps);
            self.bulk(from, to, part, if ways > 1 { part } else { 0 });
        }
        Ok(())
    }

    fn all_to_all(&mut self, bytes: u64) -> Result<(), FileError> {
        self.take_message()?;
        let hosts = self.hosts;
        self.check(hosts * (hosts - 1) / 2, 2 * bytes, 2 * self.messages_of(bytes))?;
        for (from, to) in (0..hosts).flat_map(|from| (from + 1..hosts).map(move |to| (from, to))) {
            self.bulk(from as usize, to as usize, bytes, bytes);
        }
        Ok(())
    }

    /// Host 0 is where all go; host 1, below the same switch if there is room, is the victim's target.
    fn incast(&mut self, bytes: u64) -> Result<Vec<usize>, FileError> {
        self.take_message()?;
        let hosts = self.hosts;
        if hosts < 4 {
            let what = format_args!("= \"incast\" needs 4 hosts, not {hosts}: make the fabric larger");
            return Err(self.section.error("kind", what));
        }
        let senders = self.section.number("senders", 0..=hosts - 3, 7.min(hosts - 3))?;
        let victim_bytes = self.section.number("victim_bytes", 0..=1 << 36, 0)?;
        if senders == 0 && victim_bytes == 0 {
            let what = "= 0 and no victim: nobody sends anything: give senders or victim_bytes";
            return Err(self.section.error("senders", what));
        }
        let each = (senders * bytes + victim_bytes) / (senders + 1);
        self.check(senders + 1, each, self.messages_of(each))?;
        let last = hosts as usize - 1;
        for sender in 0..senders as usize {
            self.bulk(last - 1 - sender, 0, bytes, 0);
        }
        let mut victims = Vec::new();
        if victim_bytes > 0 {
            victims.push(self.scenario.connections.len());
            self.bulk(last, 1, victim_bytes, 0);
        }
        Ok(victims)
    }

    fn mixed(&mut self, bytes: u64) -> Result<(), FileError> {
        self.no_longer_than_a_message(bytes)?;
        let least = self.section.number("least_bytes", 0..=LONGEST, 1)?;
        if least > bytes {
            let what = format_args!("= {least} is above bytes = {bytes}, the largest message: give less");
            return Err(self.section.error("least_bytes", what));
        }
        let count = self.section.number("messages", 1..=100_000, 200)?;
        let span = (bytes.max(least + 1) as f64 / least.max(1) as f64).ln();
        // The mean of sizes that are even on a logarithmic scale.
        let mean = (bytes - least) as f64 / span.max(1.0) + least as f64;
        self.check(self.hosts, (mean * count as f64) as u64, count)?;
        let mut rng = Rng::new(self.scenario.seed, "sizes");
        for from in 0..self.hosts {
            // Small ones are as frequent as large ones: sizes are even on a logarithmic scale.
            let sizes = (0..count).map(|_| {
                let part = rng.below(1 << 32) as f64 / f64::from(u32::MAX);
                (least.max(1) as f64 * (span * part).exp()) as u32
            });
            let sizes: Vec<u32> = sizes.collect();
            let to = (from + 1) % self.hosts;
            self.connect(from as usize, to as usize, [&sizes, &[]], [0, 0], false);
        }
        Ok(())
    }

    fn ping_pong(&mut self, bytes: u64) -> Result<Turns, FileError> {
        self.no_longer_than_a_message(bytes)?;
        let rounds = self.section.number("rounds", 1..=100_000, 100)?;
        let (from, to) = self.ends()?;
        let qps = self.section.number("qps", 1..=4096, 1)?;
        self.check(qps, 2 * rounds * bytes, 2 * rounds)?;
        let (qps, rounds) = (qps as usize, rounds as usize);
        let sizes = vec![bytes as u32; rounds];
        for _ in 0..qps {
            self.connect(from, to, [&sizes, &sizes], [rounds; 2], true);
        }
        Ok(Turns::new(qps, rounds))
    }

    fn ring(&mut self, bytes: u64) -> Result<Ring, FileError> {
        let part = bytes / self.hosts;
        if part > LONGEST {
            let what = format_args!("= {bytes} makes parts of {part}, and a message has {LONGEST} at most: give less");
            return Err(self.section.error("bytes", what));
        }
        let steps = 2 * (self.hosts - 1);
        self.check_volume(Volume {
            connections: self.hosts as f64,
            bytes: self.hosts as f64 * steps as f64 * part as f64,
            messages: self.hosts as f64 * steps as f64,
            stays: self.hosts as f64 * bytes as f64,
        })?;
        let ring = Ring::new(self.scenario.seed, self.hosts as usize, bytes);
        let sizes = vec![ring.part_bytes(); ring.steps()];
        for from in 0..self.hosts as usize {
            let to = (from + 1) % self.hosts as usize;
            self.connect(from, to, [&sizes, &[]], [ring.steps(), 0], true);
        }
        Ok(ring)
    }

    /// Bytes both ways, in messages of the usual size.
    fn bulk(&mut self, from: usize, to: usize, forth: u64, back: u64) {
        let message = self.message;
        let sizes = |bytes: u64| -> Vec<u32> {
            let parts = bytes.div_ceil(message);
            (0..parts)
                .map(|part| (bytes - part * message).min(message) as u32)
                .collect()
        };
        self.connect(from, to, [&sizes(forth), &sizes(back)], [0, 0], false);
    }

    /// A connection with these messages, the last `held` of which wait; `tell`: arrivals are told to the application.
    fn connect(&mut self, from: usize, to: usize, sizes: [&[u32]; 2], held: [usize; 2], tell: bool) {
        let number = self.scenario.connections.len() as u32;
        let hosts = [from, to];
        let mut plan = numbered(self.scenario.seed, &self.common.template, hosts, u64::from(number));
        for side in 0..2 {
            let target = &mut self.scenario.hosts[hosts[1 - side]];
            let region = target.regions.len();
            let len = sizes[side].iter().map(|size| u64::from(*size)).sum();
            target.regions.push(RegionPlan {
                rkey: 0x100 + number * 2 + side as u32,
                len,
                guard: GUARD,
                remote_write: true,
            });
            plan.flows[side] = messages(sizes[side], region, tell, plan.max_wimm[1 - side]);
            plan.flows[side].held = held[side];
            self.scenario.packets += packets(&plan.flows[side], self.common.pmtu);
        }
        self.scenario.connections.push(plan);
    }

    /// Every lane has regions of its own, for calls and for being called.
    fn exchange(&mut self, bytes: u64) -> Result<Exchange, FileError> {
        self.take_message()?;
        let lanes = self.section.number("lanes", 1..=64, 4)? as usize;
        let hosts = self.hosts as usize;
        let lanes = lanes.clamp(1, Exchange::most_lanes(hosts));
        self.check(self.hosts * lanes as u64, 2 * bytes, 2 * self.messages_of(bytes))?;
        for (number, host) in self.scenario.hosts.iter_mut().enumerate() {
            for region in 0..2 * lanes {
                host.regions.push(RegionPlan {
                    rkey: mix(number as u64, region as u64) as u32,
                    len: bytes,
                    guard: GUARD,
                    remote_write: true,
                });
            }
        }
        let (seed, template, message) = (self.scenario.seed, self.common.template.clone(), self.message);
        let planner = move |call: Call| {
            let mut plan = numbered(seed, &template, [call.from, call.to], call.number);
            let parts = bytes.div_ceil(message);
            let sizes: Vec<u32> = (0..parts)
                .map(|part| (bytes - part * message).min(message) as u32)
                .collect();
            // Side 0 calls and writes where the other one is called.
            for (side, region) in [lanes + call.lane, call.lane].into_iter().enumerate() {
                plan.flows[side] = messages(&sizes, region, false, 0);
            }
            plan
        };
        Ok(Exchange::new(hosts, lanes, Box::new(planner)))
    }
}

/// A connection with numbers of its own, and PSNs that begin anywhere.
fn numbered(seed: u64, template: &ConnectionPlan, hosts: [usize; 2], number: u64) -> ConnectionPlan {
    let psn = |side: u64| (mix(seed ^ 0x9521, 2 * number + side) & 0x00ff_ffff) as u32;
    ConnectionPlan {
        hosts,
        // 0 to 2 are not for queue pairs (wire-format.md §8); numbers come again after 2^24.
        qpn: [0, 1].map(|side| (3 + (2 * number + side) % ((1 << 24) - 3)) as u32),
        psn: [psn(0), psn(1)],
        ..template.clone()
    }
}

fn messages(sizes: &[u32], region: usize, tell: bool, depth: u16) -> FlowPlan {
    let mut offset = 0;
    let messages: Vec<MessagePlan> = (sizes.iter().enumerate())
        .map(|(number, len)| {
            let message = MessagePlan {
                len: *len,
                imm: tell.then_some((number as u32).to_be_bytes()),
                solicited: false,
                signaled: true,
                region,
                offset,
                wrong: None,
            };
            offset += u64::from(*len);
            message
        })
        .collect();
    let receives = if tell { messages.len() as u32 } else { 0 };
    FlowPlan {
        receive_depth: receives.min(depth.into()),
        receives,
        messages,
        ..FlowPlan::default()
    }
}

fn packets(flow: &FlowPlan, pmtu: u32) -> u64 {
    flow.messages
        .iter()
        .map(|message| u64::from(message.packets(pmtu)))
        .sum()
}
