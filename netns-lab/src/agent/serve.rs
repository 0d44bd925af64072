//! The agent's main loop.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::sampler::{self, Probes};
use super::{Job, Order, Report};
use mrc_verbs::{EntryState, EvSelection, PortNum};

use crate::workload::{self, Device, Failure, Mover, Prepared, Until};

/// Standard output, a line at a time, from any thread.
#[derive(Clone, Default)]
pub(super) struct Outbox {
    lock: Arc<Mutex<()>>,
}

impl Outbox {
    /// False if nobody reads any more.
    pub(super) fn send(&self, report: &Report) -> bool {
        let Ok(mut line) = serde_json::to_string(report) else {
            return false;
        };
        line.push('\n');
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_ok()
    }
}

/// A workload's part in its states.
enum Part {
    Prepared(Box<Prepared>),
    Connected { job: Job, mover: Box<dyn Mover> },
    Running { stop: Arc<AtomicBool> },
    Done { job: Job, mover: Box<dyn Mover> },
}

type Parts = Arc<Mutex<HashMap<usize, Part>>>;

struct Agent {
    device: Device,
    parts: Parts,
    probes: Probes,
    outbox: Outbox,
}

/// Runs until the runner says so, or has gone.
pub(crate) fn main(sample_ms: u64) -> ExitCode {
    let outbox = Outbox::default();
    let device = match Device::open() {
        Ok(device) => device,
        Err(error) => {
            outbox.send(&Report::Failed {
                message: error.to_string(),
            });
            return ExitCode::FAILURE;
        }
    };
    let agent = Agent {
        probes: Probes::default(),
        parts: Parts::default(),
        outbox: outbox.clone(),
        device,
    };
    outbox.send(&Report::Ready);
    let every = Duration::from_millis(sample_ms.max(1));
    sampler::start(
        agent.device.open.clone(),
        Arc::clone(&agent.probes),
        outbox.clone(),
        every,
    );
    for line in std::io::stdin().lock().lines() {
        let order = line.map_err(|e| e.to_string());
        let order = order.and_then(|line| serde_json::from_str::<Order>(&line).map_err(|e| e.to_string()));
        let done = match order {
            Ok(Order::Quit) => break,
            Ok(order) => agent.carry_out(order).map_err(|e| e.to_string()),
            Err(error) => Err(error),
        };
        if let Err(message) = done {
            outbox.send(&Report::Failed { message });
        }
    }
    ExitCode::SUCCESS
}

impl Agent {
    fn carry_out(&self, order: Order) -> Result<(), Failure> {
        match order {
            Order::Prepare { id, job } => {
                let prepared = Prepared::new(*job, &self.device)?;
                let ends = prepared.ends()?;
                self.put(id, Part::Prepared(Box::new(prepared)));
                self.outbox.send(&Report::Prepared { id, ends });
            }
            Order::Connect { id, peers } => {
                let Some(Part::Prepared(prepared)) = self.take(id) else {
                    return Err(out_of_turn(id, "connect"));
                };
                let ready = prepared.connect(&peers)?;
                self.probes().insert(id, ready.probe);
                let (job, mover) = (ready.job, ready.mover);
                self.put(id, Part::Connected { job, mover });
                self.outbox.send(&Report::Connected { id });
            }
            Order::Start { id, at_ns } => {
                let Some(Part::Connected { job, mover }) = self.take(id) else {
                    return Err(out_of_turn(id, "start"));
                };
                let stop = Arc::new(AtomicBool::new(false));
                let until = Until::new(Arc::clone(&stop), at_ns, job.workload.seconds);
                self.put(id, Part::Running { stop });
                self.start(id, job, mover, at_ns, until);
            }
            Order::Stop { id } => {
                if let Some(Part::Running { stop }) = lock(&self.parts).get(&id) {
                    stop.store(true, Ordering::Release);
                }
            }
            Order::Finish { id } => {
                let Some(Part::Done { job, mover }) = self.take(id) else {
                    return Err(out_of_turn(id, "finish"));
                };
                let compared = workload::compare(&job, &*mover)?;
                self.probes().remove(&id);
                self.outbox.send(&Report::Finished { id, compared });
            }
            Order::Deny {
                profile,
                plane,
                path,
                denied,
            } => {
                let state = if denied { EntryState::Denied } else { EntryState::Good };
                let evs = match (path, plane.and_then(PortNum::new)) {
                    (Some(path), _) => EvSelection::Named(path),
                    (None, Some(port)) => EvSelection::OnPort(port),
                    (None, None) => return Err(Failure::Other("neither a plane nor a path is named".to_owned())),
                };
                self.device.open.set_ev_state(&profile, evs, state)?;
            }
            Order::Quit => {}
        }
        Ok(())
    }

    fn start(&self, id: usize, job: Job, mut mover: Box<dyn Mover>, at_ns: u64, until: Until) {
        let (parts, probes) = (Arc::clone(&self.parts), Arc::clone(&self.probes));
        let (outbox, device) = (self.outbox.clone(), self.device.open.clone());
        thread::spawn(move || {
            let mut ran = workload::run(&job, &mut *mover, at_ns, &until);
            if let (Ok(outcome), Some(probe)) = (&mut ran, sampler::lock(&probes).get(&id)) {
                outcome.paths = probe.paths();
            }
            lock(&parts).insert(id, Part::Done { job, mover });
            // The series ends with what there was in the end.
            outbox.send(&Report::Sample(Box::new(sampler::sample(&device, &probes))));
            outbox.send(&match ran {
                Ok(outcome) => Report::Done {
                    id,
                    outcome: Box::new(outcome),
                },
                Err(error) => Report::Failed {
                    message: error.to_string(),
                },
            });
        });
    }

    fn probes(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<usize, Box<dyn workload::Probe>>> {
        sampler::lock(&self.probes)
    }

    fn put(&self, id: usize, part: Part) {
        lock(&self.parts).insert(id, part);
    }

    fn take(&self, id: usize) -> Option<Part> {
        lock(&self.parts).remove(&id)
    }
}

fn lock(parts: &Parts) -> std::sync::MutexGuard<'_, HashMap<usize, Part>> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn out_of_turn(id: usize, what: &str) -> Failure {
    Failure::Other(format!("workload {id} is not in the state to {what}"))
}
