//! Adding up.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use mrc_wire::{Opcode, PathVerdict, Qpn};
use serde::Serialize;

use super::facts::{Facts, Report, Says};
use crate::input::CapturedFrame;

/// The sums of a capture.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// From the first to the last packet.
    pub(super) seconds: f64,
    pub(super) not_mrc: u64,
    /// By the capture, for want of buffers.
    pub(super) dropped_by_capture: u64,
    /// By name; where a capture tells.
    pub(super) interfaces: BTreeMap<String, Ways>,
    pub(super) flows: Vec<Flow>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Ways {
    pub(super) tx: u64,
    pub(super) rx: u64,
    pub(super) unknown: u64,
}

/// What was sent to one queue pair from one address.
#[derive(Debug, Serialize)]
pub(super) struct Flow {
    /// The same for both directions of a connection.
    pub(super) connection: usize,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) qp: String,
    /// The sender's own queue pair, if something was seen to go back to it.
    pub(super) from_qp: Option<String>,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) nack_reasons: BTreeMap<String, u64>,
    pub(super) evs: Vec<EvCounts>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) data_bytes: u64,
    pub(super) writes: u64,
    pub(super) retransmitted: u64,
    pub(super) acks: u64,
    pub(super) naks: u64,
    pub(super) sacks: u64,
    pub(super) nacks: u64,
    pub(super) probes: u64,
    pub(super) endpoint: u64,
    pub(super) trimmed: u64,
    pub(super) ce: u64,
    pub(super) bad: u64,
}

/// One path of a flow: what was sent on it, and what the receiver reported of it.
#[derive(Debug, Default, Serialize)]
pub(super) struct EvCounts {
    pub(super) ev: String,
    pub(super) interfaces: Vec<String>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) retransmitted: u64,
    pub(super) trimmed: u64,
    pub(super) ce: u64,
    #[serde(flatten)]
    pub(super) reports: Reports,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Reports {
    pub(super) sacked: u64,
    pub(super) skip_once: u64,
    pub(super) always_skip: u64,
    pub(super) nacked: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    from: IpAddr,
    to: IpAddr,
    qp: Qpn,
}

struct Adding {
    key: Key,
    counts: Counts,
    nack_reasons: BTreeMap<String, u64>,
    evs: BTreeMap<u32, EvCounts>,
    /// Low bits of the sender's own queue pair.
    sender: Option<u16>,
}

/// From an address to an address, and the low bits of the queue pair there.
type Towards = (IpAddr, IpAddr, u16);

/// A summary in the making.
#[derive(Default)]
pub(super) struct Table {
    summary: Summary,
    first: Option<Duration>,
    last: Duration,
    /// In the order of their first packets.
    flows: Vec<Adding>,
    by_key: HashMap<Key, usize>,
    /// What receivers say of paths towards them: their SACKs and NACKs may be captured before the first write is.
    reports: HashMap<Towards, BTreeMap<u32, Reports>>,
    pub(super) dropped_by_capture: u64,
}

impl Table {
    pub(super) fn add(&mut self, frame: &CapturedFrame, facts: Option<&Facts>) {
        let bytes = frame.wire_len() as u64;
        self.summary.packets += 1;
        self.summary.bytes += bytes;
        if let Some(time) = frame.time {
            self.first.get_or_insert(time);
            self.last = self.last.max(time);
        }
        let interface = frame.place.as_ref().map(|place| match &place.name {
            Some(name) => name.to_string(),
            None => place.number.to_string(),
        });
        if let Some(name) = &interface {
            let ways = self.summary.interfaces.entry(name.clone()).or_default();
            match frame.direction {
                Some(mrc_capture::Direction::Tx) => ways.tx += 1,
                Some(mrc_capture::Direction::Rx) => ways.rx += 1,
                None => ways.unknown += 1,
            }
        }
        let Some(facts) = facts else {
            self.summary.not_mrc += 1;
            return;
        };
        if let (Some(report), Some(sender)) = (facts.report, facts.sender) {
            let towards = self.reports.entry((facts.dst, facts.src, sender)).or_default();
            towards.entry(report.entropy.0).or_default().add(report);
        }
        self.flow(facts).add(facts, bytes, interface);
    }

    fn flow(&mut self, facts: &Facts) -> &mut Adding {
        let key = Key {
            from: facts.src,
            to: facts.dst,
            qp: facts.qp,
        };
        let at = *self.by_key.entry(key).or_insert_with(|| {
            self.flows.push(Adding {
                key,
                counts: Counts::default(),
                nack_reasons: BTreeMap::new(),
                evs: BTreeMap::new(),
                sender: None,
            });
            self.flows.len() - 1
        });
        &mut self.flows[at]
    }

    pub(super) fn finish(mut self) -> Summary {
        let partners: Vec<Option<usize>> = self.flows.iter().map(|flow| self.partner(flow)).collect();
        let mut connections: Vec<Option<usize>> = vec![None; self.flows.len()];
        let mut next = 1;
        for at in 0..self.flows.len() {
            // Only one of two need know the other: who only writes does not say from which queue pair.
            let other = partners[at].or_else(|| partners.iter().position(|partner| *partner == Some(at)));
            let known = connections[at].or_else(|| connections[other?]);
            let number = known.unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            connections[at] = Some(number);
            if let Some(other) = other {
                connections[other].get_or_insert(number);
            }
        }
        let own: Vec<Option<String>> = (0..self.flows.len())
            .map(|at| {
                let other = partners[at].or_else(|| partners.iter().position(|partner| *partner == Some(at)))?;
                Some(self.flows[other].key.qp.to_string())
            })
            .collect();
        let mut flows: Vec<Flow> = Vec::with_capacity(self.flows.len());
        for (at, mut flow) in std::mem::take(&mut self.flows).into_iter().enumerate() {
            let Key { from, to, qp } = flow.key;
            if let Some(reports) = self.reports.remove(&(from, to, qp.get() as u16)) {
                for (ev, reports) in reports {
                    // A path that is reported on and was not seen is worth a line, too.
                    flow.evs.entry(ev).or_default().reports = reports;
                }
            }
            let mut evs: Vec<EvCounts> = flow
                .evs
                .into_iter()
                .map(|(ev, counts)| EvCounts {
                    ev: mrc_wire::Ev(ev).to_string(),
                    ..counts
                })
                .collect();
            evs.sort_by_key(|ev| std::cmp::Reverse(ev.packets));
            flows.push(Flow {
                connection: connections[at].unwrap_or_default(),
                from,
                to,
                qp: qp.to_string(),
                from_qp: own[at].clone(),
                counts: flow.counts,
                nack_reasons: flow.nack_reasons,
                evs,
            });
        }
        flows.sort_by_key(|flow| flow.connection);
        let first = self.first.unwrap_or_default();
        Summary {
            seconds: self.last.saturating_sub(first).as_secs_f64(),
            dropped_by_capture: self.dropped_by_capture,
            flows,
            ..self.summary
        }
    }

    /// The flow that goes back to the queue pair which this one comes from.
    fn partner(&self, flow: &Adding) -> Option<usize> {
        let sender = flow.sender?;
        self.flows.iter().position(|other| {
            other.key.from == flow.key.to && other.key.to == flow.key.from && other.key.qp.get() as u16 == sender
        })
    }
}

impl Adding {
    fn add(&mut self, facts: &Facts, bytes: u64, interface: Option<String>) {
        let counts = &mut self.counts;
        counts.packets += 1;
        counts.bytes += bytes;
        counts.data_bytes += facts.data_len as u64;
        let is_write = facts.opcode.is_some_and(Opcode::is_write);
        let is_retransmission = is_write && facts.is_retransmission;
        counts.writes += u64::from(is_write);
        counts.retransmitted += u64::from(is_retransmission);
        counts.trimmed += u64::from(facts.is_trimmed);
        counts.ce += u64::from(facts.is_marked);
        counts.bad += u64::from(facts.is_bad);
        match facts.opcode {
            Some(Opcode::Ack) if facts.is_nak => counts.naks += 1,
            Some(Opcode::Ack) => counts.acks += 1,
            Some(Opcode::Sack) => counts.sacks += 1,
            Some(Opcode::Nack) => counts.nacks += 1,
            Some(Opcode::Probe) => counts.probes += 1,
            Some(Opcode::EndpointRequest | Opcode::EndpointResponse) => counts.endpoint += 1,
            _ => {}
        }
        if let Some(Report {
            says: Says::Nack(reason),
            ..
        }) = facts.report
        {
            let name = reason
                .name()
                .map_or_else(|| format!("{:#04x}", reason.0), str::to_owned);
            *self.nack_reasons.entry(name).or_default() += 1;
        }
        self.sender = facts.sender.or(self.sender);
        let ev = self.evs.entry(facts.ev.0).or_default();
        ev.packets += 1;
        ev.bytes += bytes;
        ev.retransmitted += u64::from(is_retransmission);
        ev.trimmed += u64::from(facts.is_trimmed);
        ev.ce += u64::from(facts.is_marked);
        if let Some(name) = interface
            && !ev.interfaces.contains(&name)
        {
            ev.interfaces.push(name);
        }
    }
}

impl Reports {
    fn add(&mut self, report: Report) {
        match report.says {
            Says::Sack(verdict) => {
                self.sacked += 1;
                self.skip_once += u64::from(verdict == PathVerdict::SkipOnce);
                self.always_skip += u64::from(verdict == PathVerdict::AlwaysSkip);
            }
            Says::Nack(_) => self.nacked += 1,
        }
    }
}
