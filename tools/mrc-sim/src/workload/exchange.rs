//! Everybody exchanges a message with everybody, with few connections at a time: for each pair a connection is made, used
//! both ways, and closed.
//!
//! In round r, host i exchanges with host i + r. A host calls others on so many lanes and is called on as many; the rounds of
//! a lane follow each other, and a call waits until the lane at the other end is free.

use crate::ensure;
use crate::oracle::{Checked, Oracle};
use crate::scenario::ConnectionPlan;
use crate::workload::{Arrival, Deed, Workload};
use std::collections::VecDeque;
use std::fmt;

/// Plans the connection from a host to another, on a lane.
pub type Planner = Box<dyn Fn(Call) -> ConnectionPlan + Send>;

/// A pair that exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Host that calls.
    pub from: usize,
    /// Host that is called.
    pub to: usize,
    /// Lane at both.
    pub lane: usize,
    /// Number of the call.
    pub number: u64,
}

/// All pairs of some hosts.
pub struct Exchange {
    hosts: usize,
    lanes: usize,
    planner: Planner,
    /// Next round of a caller's lane, by host and lane.
    next_round: Vec<usize>,
    /// Whether a lane is being called, by host and lane.
    called: Vec<bool>,
    /// Callers that wait for a lane, by host and lane that they wait for.
    waiting: Vec<VecDeque<usize>>,
    /// The call that a connection serves.
    calls: Vec<Option<Call>>,
    begun: u64,
    /// Pairs that are done.
    exchanged: u64,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange({} hosts, {} lanes)", self.hosts, self.lanes)
    }
}

impl Exchange {
    /// All pairs of `hosts` hosts, each of which calls on `lanes` lanes and is called on as many.
    pub fn new(hosts: usize, lanes: usize, planner: Planner) -> Exchange {
        let lanes = lanes.clamp(1, Exchange::most_lanes(hosts));
        let count = hosts * lanes;
        Exchange {
            hosts,
            lanes,
            planner,
            next_round: (0..count).map(|at| at % lanes + 1).collect(),
            called: vec![false; count],
            waiting: vec![VecDeque::new(); count],
            calls: vec![None; count],
            begun: 0,
            exchanged: 0,
        }
    }

    /// Every lane has a first round of its own, in which every host calls: the last round of an even number of hosts has only
    /// half as many calls.
    pub fn most_lanes(hosts: usize) -> usize {
        (hosts.saturating_sub(1) / 2).max(1)
    }

    /// Lanes of a host in each direction.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Pairs in all.
    pub fn pairs(&self) -> u64 {
        (self.hosts * (self.hosts - 1) / 2) as u64
    }

    /// The caller's lane begins its next round, or waits. `at`: host times lanes plus lane.
    fn call(&mut self, at: usize, deeds: &mut Vec<Deed>) {
        let (from, lane) = (at / self.lanes, at % self.lanes);
        let round = self.next_round[at];
        // With an even number of hosts, the last round has each pair twice.
        if 2 * round > self.hosts || (2 * round == self.hosts && 2 * from >= self.hosts) {
            return;
        }
        let to = (from + round) % self.hosts;
        let there = to * self.lanes + lane;
        if self.called[there] {
            self.waiting[there].push_back(at);
            return;
        }
        self.called[there] = true;
        self.next_round[at] = round + self.lanes;
        let call = Call {
            from,
            to,
            lane,
            number: self.begun,
        };
        self.begun += 1;
        self.calls[at] = Some(call);
        deeds.push(Deed::Open {
            connection: at,
            plan: Box::new((self.planner)(call)),
        });
    }
}

impl Workload for Exchange {
    fn begin(&mut self, deeds: &mut Vec<Deed>) {
        for at in 0..self.calls.len() {
            self.call(at, deeds);
        }
    }

    fn arrived(&mut self, _: &Arrival<'_>, _: &mut Vec<Deed>) {}

    fn ended(&mut self, connection: usize, deeds: &mut Vec<Deed>) {
        let Some(call) = self.calls[connection].take() else {
            return;
        };
        self.exchanged += 1;
        deeds.push(Deed::Close { connection });
        let there = call.to * self.lanes + call.lane;
        self.called[there] = false;
        if let Some(caller) = self.waiting[there].pop_front() {
            self.call(caller, deeds);
        }
        self.call(connection, deeds);
    }

    fn is_done(&self) -> bool {
        self.exchanged == self.pairs()
    }

    fn exchanged(&self) -> Option<u64> {
        Some(self.exchanged)
    }

    fn judge(&self) -> Checked {
        ensure!(
            self.is_done(),
            Oracle::Liveness,
            "{} of {} pairs have exchanged",
            self.exchanged,
            self.pairs()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use mrc_wire::Pmtu;
    use std::collections::BTreeSet;

    #[test]
    fn every_pair_meets_once_and_no_lane_is_used_twice_at_a_time() {
        for hosts in [2, 3, 7, 8, 16] {
            let mut rng = Rng::new(hosts as u64, "order");
            let mut exchange = Exchange::new(
                hosts,
                4,
                Box::new(|call| ConnectionPlan::new([call.from, call.to], [1, 2], Pmtu::B1024)),
            );
            let (mut met, mut open) = (BTreeSet::new(), Vec::new());
            let mut deeds = Vec::new();
            exchange.begin(&mut deeds);
            loop {
                for deed in deeds.drain(..) {
                    match deed {
                        Deed::Open { connection, .. } => {
                            let call = exchange.calls[connection].expect("it is open");
                            let pair = [call.from.min(call.to), call.from.max(call.to)];
                            assert!(met.insert(pair), "{hosts} hosts: {call:?} again");
                            open.push((connection, call));
                        }
                        Deed::Close { connection } => open.retain(|(other, _)| *other != connection),
                        Deed::Release { .. } => panic!("nothing is held back"),
                    }
                }
                for host in 0..hosts {
                    let live = open.iter().filter(|(_, call)| call.from == host || call.to == host);
                    assert!(live.count() <= 2 * exchange.lanes(), "{hosts} hosts");
                }
                if open.is_empty() {
                    break;
                }
                let (connection, _) = open[rng.below(open.len() as u64) as usize];
                exchange.ended(connection, &mut deeds);
            }
            assert_eq!(exchange.judge(), Ok(()));
            assert_eq!(met.len() as u64, exchange.pairs());
        }
    }
}
