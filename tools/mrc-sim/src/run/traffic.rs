//! What the hosts of a scenario file send.

use crate::rng::{Rng, mix};
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

type Planned = (Option<Box<dyn Workload>>, Vec<usize>);

/// Plans the connections and the applications. Returns the latter and the connections that are victims.
pub(super) fn plan(section: &Section<'_>, scenario: &mut Scenario, common: &Common) -> Result<Planned, FileError> {
    let kind = section.word("kind", &KINDS)?;
    let hosts = scenario.hosts.len() as u64;
    let bytes = section.number("bytes", 1..=1 << 36, 16 * MIB)?;
    let message = section.number("message_bytes", 1..=1 << 30, MIB)?;
    let mut build = Builder {
        scenario,
        common,
        message,
    };
    match kind {
        "bulk" => {
            let from = section.number("from", 0..=hosts - 1, 0)? as usize;
            let to = section.number("to", 0..=hosts - 1, hosts - 1)? as usize;
            distinct(section, from, to)?;
            let qps = section.number("qps", 1..=4096, 1)?;
            let both = section.flag("both_ways", false)?;
            for _ in 0..qps {
                build.bulk(from, to, bytes / qps, if both { bytes / qps } else { 0 });
            }
        }
        "incast" => return incast(section, &mut build, bytes),
        "all_to_all" => {
            for (from, to) in (0..hosts).flat_map(|from| (from + 1..hosts).map(move |to| (from, to))) {
                build.bulk(from as usize, to as usize, bytes, bytes);
            }
        }
        "mixed" => {
            let least = section.number("least_bytes", 0..=1 << 30, 1)?;
            let count = section.number("messages", 1..=100_000, 200)?;
            let mut rng = Rng::new(build.scenario.seed, "sizes");
            let ends: Vec<_> = (0..hosts)
                .map(|from| (from as usize, ((from + 1) % hosts) as usize))
                .collect();
            for (from, to) in ends {
                // Small ones are as frequent as large ones: sizes are even on a logarithmic scale.
                let span = (bytes.max(least + 1) as f64 / least.max(1) as f64).ln();
                let sizes = (0..count).map(|_| {
                    let part = rng.below(1 << 32) as f64 / f64::from(u32::MAX);
                    (least.max(1) as f64 * (span * part).exp()) as u32
                });
                let sizes: Vec<u32> = sizes.collect();
                build.connect(from, to, [&sizes, &[]], [0, 0], false);
            }
        }
        "ping_pong" => {
            let rounds = section.number("rounds", 1..=100_000, 100)? as usize;
            let from = section.number("from", 0..=hosts - 1, 0)? as usize;
            let to = section.number("to", 0..=hosts - 1, hosts - 1)? as usize;
            distinct(section, from, to)?;
            let qps = section.number("qps", 1..=4096, 1)? as usize;
            let sizes = vec![bytes as u32; rounds];
            for _ in 0..qps {
                build.connect(from, to, [&sizes, &sizes], [rounds; 2], true);
            }
            return Ok((Some(Box::new(Turns::new(qps, rounds))), Vec::new()));
        }
        "ring_all_reduce" => {
            let ring = Ring::new(build.scenario.seed, hosts as usize, bytes);
            let sizes = vec![ring.part_bytes(); ring.steps()];
            for from in 0..hosts as usize {
                let to = (from + 1) % hosts as usize;
                build.connect(from, to, [&sizes, &[]], [ring.steps(), 0], true);
            }
            return Ok((Some(Box::new(ring)), Vec::new()));
        }
        _ => {
            let lanes = section.number("lanes", 1..=64, 4)? as usize;
            return Ok((Some(Box::new(build.exchange(lanes, bytes))), Vec::new()));
        }
    }
    Ok((None, Vec::new()))
}

fn distinct(section: &Section<'_>, from: usize, to: usize) -> Result<(), FileError> {
    if from == to {
        return Err(section.error("to", format_args!("= {to} is where it comes from: name another host")));
    }
    Ok(())
}

/// Host 0 is where all go; host 1, below the same switch if there is room, is the victim's target.
fn incast(section: &Section<'_>, build: &mut Builder<'_>, bytes: u64) -> Result<Planned, FileError> {
    let hosts = build.scenario.hosts.len() as u64;
    if hosts < 4 {
        return Err(section.error(
            "kind",
            format_args!("= \"incast\" needs 4 hosts, not {hosts}: make the fabric larger"),
        ));
    }
    let senders = section.number("senders", 0..=hosts - 3, 7.min(hosts - 3))? as usize;
    let victim_bytes = section.number("victim_bytes", 0..=1 << 36, 0)?;
    let last = hosts as usize - 1;
    for sender in 0..senders {
        build.bulk(last - 1 - sender, 0, bytes, 0);
    }
    let mut victims = Vec::new();
    if victim_bytes > 0 {
        victims.push(build.scenario.connections.len());
        build.bulk(last, 1, victim_bytes, 0);
    }
    Ok((None, victims))
}

struct Builder<'a> {
    scenario: &'a mut Scenario,
    common: &'a Common,
    message: u64,
}

impl Builder<'_> {
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
    fn exchange(&mut self, lanes: usize, bytes: u64) -> Exchange {
        let hosts = self.scenario.hosts.len();
        let lanes = lanes.clamp(1, (hosts / 2).max(1));
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
        Exchange::new(hosts, lanes, Box::new(planner))
    }
}

/// A connection with numbers of its own, and PSNs that begin anywhere.
fn numbered(seed: u64, template: &ConnectionPlan, hosts: [usize; 2], number: u64) -> ConnectionPlan {
    let psn = |side: u64| (mix(seed ^ 0x9521, 2 * number + side) & 0x00ff_ffff) as u32;
    ConnectionPlan {
        hosts,
        // 0 and 1 are not for queue pairs; numbers come again after 2^24.
        qpn: [0, 1].map(|side| (2 + (2 * number + side) % ((1 << 24) - 2)) as u32),
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
