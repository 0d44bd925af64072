//! The steps of a workload, as orders to the agents of its hosts: prepare, connect, start, stop.

use std::collections::{BTreeMap, BTreeSet};

use super::RunError;
use super::play::{ANSWER_S, COLLECTIVE_S, LEAD_NS, Phase, Play};
use crate::agent::{End, EndOfFlow, Job, Order, now_ns};
use crate::scenario::Kind;

impl Play<'_> {
    pub(super) fn hosts_of(&self, place: usize) -> BTreeSet<usize> {
        let flows = self.record.flows(place);
        flows.iter().flat_map(|flow| [flow.from, flow.to]).collect()
    }

    pub(super) fn ends_of(&self, place: usize, host: usize) -> Vec<EndOfFlow> {
        let workload = &self.scenario.workload[place];
        let both = workload.both || workload.kind.is_collective();
        let mut ends = Vec::new();
        for (number, flow) in self.record.flows(place).iter().enumerate() {
            let first = flow.from == host;
            if first || flow.to == host {
                ends.push(EndOfFlow {
                    flow: number,
                    peer: if first { flow.to } else { flow.from },
                    writes: first || both,
                    first,
                });
            }
        }
        ends
    }

    pub(super) fn prepare(&mut self, place: usize) -> Result<(), RunError> {
        let hosts = self.hosts_of(place);
        let mut workload = self.scenario.workload[place].clone();
        if workload.kind == Kind::Write && workload.seconds.is_none() {
            workload.seconds = Some(self.scenario.seconds - workload.start);
        }
        for &host in &hosts {
            let job = Job {
                workload: workload.clone(),
                seed: self.scenario.seed,
                host,
                ranks: workload.ranks(self.record.hosts),
                ends: self.ends_of(place, host),
                planes: self.record.planes,
            };
            self.agents.tell(
                host,
                &Order::Prepare {
                    id: place,
                    job: Box::new(job),
                },
            )?;
        }
        self.phases[place] = Phase::Preparing {
            missing: hosts,
            ends: BTreeMap::new(),
        };
        self.deadlines[place] = now_ns() + ANSWER_S * 1_000_000_000;
        Ok(())
    }

    /// Tells each end of each connection what its other end has said.
    pub(super) fn connect(&mut self, place: usize, ends: &BTreeMap<usize, Vec<End>>) -> Result<(), RunError> {
        let hosts = self.hosts_of(place);
        for &host in &hosts {
            let mut peers = Vec::new();
            for end in self.ends_of(place, host) {
                let theirs = self.ends_of(place, end.peer);
                let at = theirs.iter().position(|other| other.flow == end.flow);
                let peer = at.and_then(|at| ends.get(&end.peer)?.get(at));
                peers.extend(peer.cloned());
            }
            self.agents.tell(host, &Order::Connect { id: place, peers })?;
        }
        self.phases[place] = Phase::Connecting { missing: hosts };
        Ok(())
    }

    pub(super) fn start(&mut self, place: usize) -> Result<(), RunError> {
        let workload = &self.scenario.workload[place];
        let base = self.base(workload.after.as_deref()).unwrap_or(0.0);
        let at_ns = self.record.start_ns + ((base + workload.start) * 1e9) as u64;
        let at_ns = at_ns.max(now_ns() + LEAD_NS / 5);
        let hosts = self.hosts_of(place);
        for &host in &hosts {
            self.agents.tell(host, &Order::Start { id: place, at_ns })?;
        }
        let seconds = workload.seconds.unwrap_or(self.scenario.seconds) as u64;
        self.deadlines[place] = at_ns + (COLLECTIVE_S + seconds) * 1_000_000_000;
        self.record.workloads[place].start = self.record.seconds_of(at_ns);
        self.phases[place] = Phase::Running {
            missing: hosts,
            stopped: false,
        };
        Ok(())
    }

    pub(super) fn stop(&mut self, place: usize) -> Result<(), RunError> {
        for host in self.hosts_of(place) {
            self.agents.tell(host, &Order::Stop { id: place })?;
        }
        if let Phase::Running { stopped, .. } = &mut self.phases[place] {
            *stopped = true;
        }
        Ok(())
    }
}
