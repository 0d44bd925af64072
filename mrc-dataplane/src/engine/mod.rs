//! The engine: everything that a NIC for MRC would do, in one object.
//!
//! It lives inside a process. Applications reach it through commands ([`Engine::command`]) and through rings
//! ([`crate::ring`]); the state machines are those of `mrc-protocol`, and frames come and go through [`crate::port`].
//!
//! One thread per configured core serves a queue of every port. A queue pair belongs to one thread for life, and its number
//! says which in its low bits.

mod by_hand;
mod check;
mod clock;
mod collect;
mod command;
mod config;
mod control;
mod core;
mod counters;
mod endpoint;
mod error;
mod event;
mod flow;
mod handover;
mod job;
mod pace;
mod peer;
mod ports;
mod profiles;
mod qp;
mod ready;
mod rx;
mod start;
mod threads;
mod timer;
mod tx;
mod wait;
mod wiring;
mod worker;

#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

pub use by_hand::ByHand;
pub use command::{
    Command, CqId, CreateQp, EvEntryInfo, EvProfileInfo, EvSelection, Outcome, PathInfo, QpChange, QpInfo, QpRings,
    Reply, Rings, WindowInfo,
};
pub use config::{EngineConfig, PortConfig};
pub use control::{MAX_CQE, MAX_DEPTH, MAX_INLINE, MAX_SGE};
pub use counters::{EngineDrop, PortSnapshot, Snapshot};
pub use error::{CommandError, EngineError};
pub use event::{EngineEvent, EventSink};
pub use ports::{EngineAttributes, PortAttributes};
pub use qp::MAX_MESSAGE;

use crate::capture::Capture;
use control::Control;
use counters::Cells;
use job::Task;
use ports::PortFacts;
use threads::Threads;

/// An engine. Clones are the same one; the last to go stops it: acknowledgements that are owed go out, the threads end, the
/// ports are given back.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    config: EngineConfig,
    control: Mutex<Control>,
    threads: Threads,
    shared: Vec<Arc<wait::Shared>>,
    cells: Vec<Arc<Cells>>,
    facts: Arc<Vec<PortFacts>>,
    /// How the largest packets are carried, if an EV profile has tunnels.
    tunnel: Option<mrc_wire::Encap>,
    /// Last: what the threads did at their end is captured, too.
    _capture: Option<Capture>,
}

impl Engine {
    /// Carries out a command that makes no completion queue with a channel.
    pub fn command(&self, command: Command) -> Result<Outcome, CommandError> {
        self.command_with(command, None)
    }

    /// Carries out a command. `channel` is the event fd that a new completion queue notifies once per event; several queues
    /// may share one.
    #[expect(clippy::needless_pass_by_value, reason = "the queue keeps it; None needs no type")]
    pub fn command_with(&self, command: Command, channel: Option<Arc<OwnedFd>>) -> Result<Outcome, CommandError> {
        let mut control = self.0.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.execute(command, channel.as_ref(), &self.0.threads, &self.0.facts)
    }

    /// From now on `sink` gets every event of the engine.
    pub fn subscribe(&self, sink: &Arc<dyn EventSink>) -> Result<(), CommandError> {
        // Queue pairs report on their own thread, ports on the first.
        self.0.threads.all(|| Task::Subscribe(sink.clone()))
    }

    /// Runs the engine on the calling thread, if no other runs it at the moment. For applications that poll: they do the work
    /// themselves instead of waiting for an engine thread to get the core. True if there was something to do.
    pub fn run_once(&self) -> bool {
        self.0
            .shared
            .iter()
            .fold(false, |busy, shared| shared.run_inline() | busy)
    }

    /// What has happened since the start; stops nobody.
    pub fn counters(&self) -> Snapshot {
        let cells: Vec<&Cells> = self.0.cells.iter().map(|cells| &**cells).collect();
        let names: Vec<String> = self.0.facts.iter().map(|port| port.name.clone()).collect();
        Snapshot::gather(&cells, &names)
    }

    /// What the engine is and can.
    pub fn attributes(&self) -> EngineAttributes {
        let config = &self.0.config;
        let ports = self.0.facts.iter().enumerate();
        EngineAttributes {
            ports: ports
                .filter_map(|(at, port)| Some(port.attributes(control::port_num(at)?)))
                .collect(),
            address_v4: config.address_v4,
            address_v6: config.address_v6,
            udp_port: config.udp_port,
            dscps: config.dscps,
            ev_layout: config.ev_layout,
            fabric_trims: config.fabric_trims,
            tunnel: self.0.tunnel,
            threads: config.threads,
            max_qps: config.max_qps,
            max_depth: MAX_DEPTH,
            max_cqe: MAX_CQE,
            max_sge: MAX_SGE,
            max_inline: MAX_INLINE,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for shared in &self.shared {
            shared.stop.store(true, Ordering::Release);
            shared.board.wake();
        }
        for thread in &mut self.threads.0 {
            if let Some(join) = thread.join.take() {
                // A thread that panicked has said so.
                let _ = join.join();
            }
        }
        for shared in &self.shared {
            shared.lock().shut_down();
        }
    }
}
