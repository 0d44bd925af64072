//! The network between the hosts: planes that share nothing, many paths in each, and faults on the way.
//!
//! Two kinds. [`delay`] has paths with a delay and nothing else, for runs in which everything that can go wrong is a fault.
//! [`clos`] has switches with real queues, for runs in which the packets themselves are what goes wrong.

pub mod clos;
pub mod delay;
pub mod fault;
pub mod frame;

use crate::coverage::Coverage;
use crate::fabric::clos::plan::{ClosPlan, PlanError};
use crate::fabric::clos::sampler::Series;
use crate::fabric::clos::{Clos, Step};
use crate::fabric::delay::{DelayFabric, DelayPlan};
use crate::fabric::fault::Fault;
use crate::fabric::frame::Frame;

/// What the fabric is like without faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FabricPlan {
    /// Planes with delays, without queues.
    Delay(DelayPlan),
    /// Leaf and spine switches with queues.
    Clos(ClosPlan),
}

/// The network.
#[derive(Debug)]
pub enum Fabric {
    /// Planes with delays, without queues.
    Delay(Box<DelayFabric>),
    /// Leaf and spine switches with queues.
    Clos(Box<Clos>),
}

/// What comes of a step of the fabric, later.
#[derive(Debug)]
pub enum Next {
    /// The frame reaches its host at this instant.
    Arrive(u64, Box<Frame>),
    /// The fabric wants [`Fabric::step`] called with this step at this instant. Steps of one instant are to be taken in the
    /// order in which they were emitted.
    Step(u64, Step),
}

impl Fabric {
    /// A fabric as planned. Fails if the plan contradicts itself or a fault names a place that it does not have.
    pub fn new(plan: FabricPlan, faults: &[Fault], seed: u64) -> Result<Fabric, PlanError> {
        Ok(match plan {
            FabricPlan::Delay(plan) => Fabric::Delay(Box::new(DelayFabric::new(plan, faults, seed))),
            FabricPlan::Clos(plan) => Fabric::Clos(Box::new(Clos::new(plan, faults, seed)?)),
        })
    }

    /// Emits the steps that are planned from the beginning. Call it once, before anything is sent.
    pub fn start(&mut self, emit: impl FnMut(Next)) {
        if let Fabric::Clos(clos) = self {
            clos.start(emit);
        }
    }

    /// Takes `frame`, whose last bit leaves the host at `leaves_ns`, which may lie ahead.
    pub fn send(&mut self, frame: Box<Frame>, leaves_ns: u64, coverage: &mut Coverage, mut emit: impl FnMut(Next)) {
        match self {
            Fabric::Delay(delay) => delay.send(frame, leaves_ns, coverage, |at_ns, frame| {
                emit(Next::Arrive(at_ns, frame));
            }),
            Fabric::Clos(clos) => clos.send(frame, leaves_ns, coverage, emit),
        }
    }

    /// Takes a step that is due at `now_ns`.
    pub fn step(&mut self, step: Step, now_ns: u64, coverage: &mut Coverage, emit: impl FnMut(Next)) {
        match self {
            // It emits none.
            Fabric::Delay(_) => {}
            Fabric::Clos(clos) => clos.step(step, now_ns, coverage, emit),
        }
    }

    /// The fabric with switches, if it is one, for its paths and counters.
    pub fn clos(&self) -> Option<&Clos> {
        match self {
            Fabric::Delay(_) => None,
            Fabric::Clos(clos) => Some(clos),
        }
    }

    /// Takes the samples up to `now_ns` and returns all time series; none without switches.
    pub fn series(&mut self, now_ns: u64) -> Vec<Series> {
        match self {
            Fabric::Delay(_) => Vec::new(),
            Fabric::Clos(clos) => clos.series(now_ns),
        }
    }
}
