//! A network of one queue: N windows share a bottleneck that marks and delays. In simulated time.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::vec::Vec;

use super::{MTU, START};
use crate::cc::{AckSample, Network, Nscc, NsccParams, RttSample};
use crate::time::Instant;

/// What the queue does when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// The sender learns of it two round trips later.
    Drop,
    /// The sender learns of it at once.
    Trim,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    bps: u64,
    flows: usize,
    full: Full,
    /// Flow n begins after n times so many base round trips.
    stagger_rtts: u64,
    /// How long it lasts, and how much of that counts.
    rtts: u64,
    counted_rtts: u64,
    /// All but the first flow end after so many base round trips.
    others_end_rtts: Option<u64>,
}

#[derive(Debug)]
struct Outcome {
    utilisation: f64,
    jain: f64,
    /// Mean queueing delay in units of the target.
    delay: f64,
    queued_packets: f64,
    /// Of the packets that arrived at the queue.
    lost: f64,
}

struct Flow {
    nscc: Nscc,
    inflight: i64,
    /// The own link is busy until then.
    link_free_ns: u64,
    /// Received, and not told yet.
    unsacked: u64,
    sacks: u64,
    delivered: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send {
        flow: usize,
    },
    Queue {
        flow: usize,
        sent_ns: u64,
        ask: bool,
    },
    Received {
        flow: usize,
        sent_ns: u64,
        ask: bool,
        ce: bool,
    },
    /// No SACK since this packet.
    Hold {
        flow: usize,
        sacks: u64,
        sent_ns: u64,
    },
    Sack {
        flow: usize,
        sent_ns: u64,
        ce: bool,
        n: u64,
    },
    Trimmed {
        flow: usize,
    },
    Lost {
        flow: usize,
    },
}

struct Net {
    plan: Plan,
    base_ns: u64,
    /// Of a full packet on one link.
    wire_ns: u64,
    rest_ns: u64,
    queue_free_ns: u64,
    flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    rng: ChaCha8Rng,
    counting_from_ns: u64,
    delay_sum: u128,
    packets: u64,
    lost: u64,
}

impl Net {
    fn new(plan: Plan) -> Self {
        let network = Network {
            trimming: plan.full == Full::Trim,
            ..Network::new(1, plan.bps, MTU)
        };
        let params = NsccParams::new(&network);
        let wire_ns = u64::from(MTU) * 8 * 1_000_000_000 / plan.bps;
        let base_ns = params.config_base_rtt_ns;
        let flows = (0..plan.flows).map(|_| Flow {
            nscc: Nscc::new(params, START),
            inflight: 0,
            link_free_ns: 0,
            unsacked: 0,
            sacks: 0,
            delivered: 0,
        });
        let mut net = Self {
            plan,
            base_ns,
            wire_ns,
            rest_ns: base_ns.saturating_sub(2 * wire_ns),
            queue_free_ns: 0,
            flows: flows.collect(),
            events: BinaryHeap::new(),
            count: 0,
            rng: ChaCha8Rng::seed_from_u64(1),
            counting_from_ns: START.as_ns() + (plan.rtts - plan.counted_rtts) * base_ns,
            delay_sum: 0,
            packets: 0,
            lost: 0,
        };
        for flow in 0..plan.flows {
            let begin_ns = START.as_ns() + flow as u64 * plan.stagger_rtts * base_ns;
            net.at(begin_ns, Event::Send { flow });
        }
        net
    }

    fn at(&mut self, ns: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((ns, self.count, event)));
    }

    fn run(mut self) -> Outcome {
        let end_ns = START.as_ns() + self.plan.rtts * self.base_ns;
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > end_ns {
                break;
            }
            self.handle(now, event);
        }
        let delivered: Vec<f64> = self.flows.iter().map(|flow| flow.delivered as f64).collect();
        let sum: f64 = delivered.iter().sum();
        let squares: f64 = delivered.iter().map(|x| x * x).sum();
        let capacity = self.plan.bps as f64 / 8e9 * (self.plan.counted_rtts * self.base_ns) as f64;
        let target = self.flows[0].nscc.params().target_qdelay_ns as f64;
        let mean_delay = self.delay_sum as f64 / self.packets as f64;
        Outcome {
            utilisation: sum / capacity,
            jain: sum * sum / (self.plan.flows as f64 * squares),
            delay: mean_delay / target,
            queued_packets: mean_delay / self.wire_ns as f64,
            lost: self.lost as f64 / self.packets as f64,
        }
    }

    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Send { flow } => self.send(now, flow),
            Event::Queue { flow, sent_ns, ask } => self.queue(now, flow, sent_ns, ask),
            Event::Received { flow, sent_ns, ask, ce } => {
                let it = &mut self.flows[flow];
                it.unsacked += u64::from(MTU);
                if now >= self.counting_from_ns {
                    it.delivered += u64::from(MTU);
                }
                if ce || ask || it.unsacked >= SACK_BYTES {
                    it.sacks += 1;
                    let n = std::mem::take(&mut it.unsacked);
                    let jitter_ns = u64::from(self.rng.next_u32()) % (self.base_ns / 16).max(1);
                    self.at(now + self.rest_ns / 2 + jitter_ns, Event::Sack { flow, sent_ns, ce, n });
                } else {
                    let sacks = it.sacks;
                    self.at(now + 20_000, Event::Hold { flow, sacks, sent_ns });
                }
            }
            Event::Hold { flow, sacks, sent_ns } => {
                let it = &mut self.flows[flow];
                if it.sacks == sacks {
                    it.sacks += 1;
                    let n = std::mem::take(&mut it.unsacked);
                    self.at(
                        now + self.rest_ns / 2,
                        Event::Sack {
                            flow,
                            sent_ns,
                            ce: false,
                            n,
                        },
                    );
                }
            }
            Event::Sack { flow, sent_ns, ce, n } => {
                let it = &mut self.flows[flow];
                it.inflight -= n as i64;
                let sample = AckSample {
                    ce,
                    rtt: Some(RttSample {
                        ns: now - sent_ns,
                        bytes: MTU,
                    }),
                    ..AckSample::new(Instant::from_ns(now), n)
                };
                it.nscc.on_ack(&sample, it.inflight);
                self.send(now, flow);
            }
            Event::Trimmed { flow } => {
                let it = &mut self.flows[flow];
                it.inflight -= i64::from(MTU);
                it.nscc.on_nack(Instant::from_ns(now), MTU, None, true, it.inflight);
                self.send(now, flow);
            }
            Event::Lost { flow } => {
                let it = &mut self.flows[flow];
                it.inflight -= i64::from(MTU);
                it.nscc.on_inferred_loss(MTU);
                self.send(now, flow);
            }
        }
        self.check();
    }

    fn check(&self) {
        for flow in &self.flows {
            assert!(flow.inflight >= 0);
            assert!((u64::from(MTU)..=flow.nscc.max_wnd_bytes()).contains(&flow.nscc.cwnd_bytes()));
        }
    }

    /// As much as the window permits, onto the own link.
    fn send(&mut self, now: u64, flow: usize) {
        let end_ns = self
            .plan
            .others_end_rtts
            .map_or(u64::MAX, |rtts| START.as_ns() + rtts * self.base_ns);
        if flow > 0 && now >= end_ns {
            return;
        }
        while self.flows[flow].nscc.can_send(self.flows[flow].inflight) {
            let it = &mut self.flows[flow];
            it.inflight += i64::from(MTU);
            it.link_free_ns = it.link_free_ns.max(now) + self.wire_ns;
            // Stamped when it goes onto the link: a queue in the own host is not the network's.
            let arrival_ns = it.link_free_ns;
            let sent_ns = arrival_ns - self.wire_ns;
            let ask = self.flows[flow]
                .nscc
                .nearly_closed(self.flows[flow].inflight, SACK_BYTES as u32);
            self.at(arrival_ns, Event::Queue { flow, sent_ns, ask });
        }
    }

    fn queue(&mut self, now: u64, flow: usize, sent_ns: u64, ask: bool) {
        let wait_ns = self.queue_free_ns.saturating_sub(now);
        if now >= self.counting_from_ns {
            self.packets += 1;
            self.delay_sum += u128::from(wait_ns);
        }
        // protocol.md §12: trim at one bandwidth-delay product, drop at five.
        let limit_rtts = if self.plan.full == Full::Trim { 1 } else { 5 };
        if wait_ns > limit_rtts * self.base_ns.max(16 * self.wire_ns) {
            if now >= self.counting_from_ns {
                self.lost += 1;
            }
            match self.plan.full {
                Full::Trim => self.at(now + self.rest_ns, Event::Trimmed { flow }),
                Full::Drop => self.at(now + 2 * (self.base_ns + wait_ns), Event::Lost { flow }),
            }
            return;
        }
        // Marked with a probability that rises from 0.2 to 0.8 of the product.
        let permille = (wait_ns * 1000 / self.base_ns).saturating_sub(200) * 1000 / 600;
        let ce = u64::from(self.rng.next_u32() % 1000) < permille;
        self.queue_free_ns = self.queue_free_ns.max(now) + self.wire_ns;
        self.at(
            self.queue_free_ns + self.rest_ns / 2,
            Event::Received { flow, sent_ns, ask, ce },
        );
    }
}

/// Default of `sack_gen_threshold` (P13).
const SACK_BYTES: u64 = 16_384;
const GIGABIT: u64 = 1_000_000_000;

fn plan(bps: u64, flows: usize, full: Full) -> Plan {
    Plan {
        bps,
        flows,
        full,
        stagger_rtts: 0,
        rtts: 600,
        counted_rtts: 300,
        others_end_rtts: None,
    }
}

const RATES: [u64; 4] = [GIGABIT / 40, GIGABIT / 20, 10 * GIGABIT, 400 * GIGABIT];

#[test]
fn one_window_fills_the_link_and_no_queue() {
    for bps in RATES {
        for full in [Full::Drop, Full::Trim] {
            let outcome = Net::new(plan(bps, 1, full)).run();
            assert!(outcome.utilisation > 0.99, "{bps} {full:?} {outcome:?}");
            assert!(
                outcome.delay < 0.01 && outcome.lost == 0.0,
                "{bps} {full:?} {outcome:?}"
            );
        }
    }
}

#[test]
fn several_windows_share_the_link_equally_at_the_target() {
    for bps in RATES {
        for full in [Full::Drop, Full::Trim] {
            for flows in [2, 4, 8] {
                let outcome = Net::new(plan(bps, flows, full)).run();
                assert!(outcome.utilisation > 0.99, "{bps} {full:?} {outcome:?}");
                assert!(outcome.jain > 0.97, "{bps} {full:?} {outcome:?}");
                assert!(outcome.lost < 0.03, "{bps} {full:?} {outcome:?}");
                // Where the link holds two packets, windows of one or two packets each are the least there can be.
                if bps >= GIGABIT {
                    assert!((0.8..1.2).contains(&outcome.delay), "{bps} {full:?} {outcome:?}");
                } else {
                    assert!(
                        outcome.queued_packets <= 2.0 * flows as f64,
                        "{bps} {full:?} {outcome:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn late_comers_get_their_share() {
    for bps in RATES {
        for full in [Full::Drop, Full::Trim] {
            let late = Plan {
                stagger_rtts: 100,
                rtts: 1000,
                ..plan(bps, 4, full)
            };
            let outcome = Net::new(late).run();
            assert!(outcome.utilisation > 0.99, "{bps} {full:?} {outcome:?}");
            assert!(outcome.jain > 0.97, "{bps} {full:?} {outcome:?}");
        }
    }
}

#[test]
fn window_takes_what_others_leave() {
    for bps in RATES {
        for full in [Full::Drop, Full::Trim] {
            let leaving = Plan {
                others_end_rtts: Some(290),
                ..plan(bps, 8, full)
            };
            let outcome = Net::new(leaving).run();
            // 10 round trips to find out.
            assert!(outcome.utilisation > 0.98, "{bps} {full:?} {outcome:?}");
        }
    }
}

#[test]
fn incast_of_many_is_calmed() {
    for bps in [10 * GIGABIT, 400 * GIGABIT] {
        for full in [Full::Drop, Full::Trim] {
            let outcome = Net::new(plan(bps, 16, full)).run();
            assert!(outcome.utilisation > 0.99, "{bps} {full:?} {outcome:?}");
            assert!(outcome.jain > 0.95, "{bps} {full:?} {outcome:?}");
            assert!(outcome.lost < 0.1, "{bps} {full:?} {outcome:?}");
        }
    }
}
