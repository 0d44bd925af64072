//! A network without switches: paths of different delay in each plane, and faults on the way.

use crate::coverage::Coverage;
use crate::fabric::fault::{Fault, FaultNode, Outcome};
use crate::fabric::frame::Frame;
use crate::rng::{Rng, mix};

/// The delays of a network without faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayPlan {
    /// Delay of each plane.
    pub delay_ns: Vec<u64>,
    /// Paths of a plane differ by up to this much.
    pub skew_ns: u64,
    /// Random delay of every frame on top. Frames of one path stay in order.
    pub noise_ns: u64,
}

/// The network.
#[derive(Debug)]
pub struct DelayFabric {
    plan: DelayPlan,
    salt: u64,
    faults: Vec<FaultNode>,
    rng: Rng,
    /// Latest regular arrival per path: one path keeps its order.
    last_arrival_ns: std::collections::BTreeMap<(usize, usize, u8, u32), u64>,
}

impl DelayFabric {
    /// A fabric as planned.
    pub fn new(plan: DelayPlan, faults: &[Fault], seed: u64) -> DelayFabric {
        let mut rng = Rng::new(seed, "fabric");
        let salt = rng.word();
        let faults = faults.iter().map(|fault| FaultNode::new(*fault, rng.word())).collect();
        DelayFabric {
            plan,
            salt,
            faults,
            rng,
            last_arrival_ns: std::collections::BTreeMap::new(),
        }
    }

    /// Sends `frame`, whose last bit leaves at `now_ns`. Calls `arrive` for each copy that reaches the other end.
    pub fn send(
        &mut self,
        frame: Box<Frame>,
        now_ns: u64,
        coverage: &mut Coverage,
        mut arrive: impl FnMut(u64, Box<Frame>),
    ) {
        let regular_ns = self.regular_arrival_ns(&frame, now_ns);
        let mut pending = vec![(frame, regular_ns, 0)];
        while let Some((mut frame, mut arrives_ns, first)) = pending.pop() {
            let mut lost = false;
            for index in first..self.faults.len() {
                let node = &mut self.faults[index];
                let (outcome, acted) = node.pass(&mut frame, &mut arrives_ns, now_ns, &mut self.rng);
                if acted {
                    coverage.fault(node.tag());
                }
                match outcome {
                    Outcome::Pass => {}
                    Outcome::Lost => {
                        lost = true;
                        break;
                    }
                    Outcome::Twice { after_ns } => pending.push((frame.clone(), arrives_ns + after_ns, index + 1)),
                }
            }
            if !lost {
                arrive(arrives_ns, frame);
            }
        }
    }

    fn regular_arrival_ns(&mut self, frame: &Frame, now_ns: u64) -> u64 {
        let plane = usize::from(frame.plane.saturating_sub(1));
        let skew = match self.plan.skew_ns {
            0 => 0,
            skew => mix(self.salt ^ u64::from(frame.plane), frame.ev.into()) % skew,
        };
        let delay = self.plan.delay_ns.get(plane).copied().unwrap_or(1000) + skew + self.rng.below(self.plan.noise_ns);
        let last = self
            .last_arrival_ns
            .entry((frame.src, frame.dst, frame.plane, frame.ev))
            .or_default();
        *last = (now_ns + delay).max(*last + 1);
        *last
    }
}
