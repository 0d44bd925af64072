//! Faults of a lab that is up: made, combined, healed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::delay::Delay;
use crate::fault::{AtPorts, Effect, Fault, Flap, merge};
use crate::plan::End;
use crate::switch::PortFault;
use crate::wiring::Wiring;
use crate::{Lab, LabError};

/// What is broken now.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    effects: Vec<(Fault, Effect)>,
    /// What the switch programs were told, by port and direction.
    at_ports: AtPorts,
    flapping: Vec<(Fault, FlapThread)>,
    late: BTreeMap<Key, (u32, Delay)>,
}

impl Lab {
    /// Breaks something, in addition to what is broken already; returns when it is. What the fault names and cannot be is an error, and
    /// nothing changes.
    pub fn fault(&self, fault: &Fault) -> Result<(), LabError> {
        let mut broken = self.broken();
        if broken.effects.iter().any(|(known, _)| known == fault) {
            return Ok(());
        }
        let mut faults: Vec<Fault> = broken.effects.iter().map(|(f, _)| f.clone()).collect();
        faults.push(fault.clone());
        self.change(&mut broken, faults)
    }

    /// Takes a fault back, as it was given; what other faults do stays. Returns when links are up again and nothing is missing.
    pub fn heal(&self, fault: &Fault) -> Result<(), LabError> {
        let mut broken = self.broken();
        let mut faults: Vec<Fault> = broken.effects.iter().map(|(f, _)| f.clone()).collect();
        let before = faults.len();
        faults.retain(|known| known != fault);
        if faults.len() == before {
            return Err(LabError::Fault {
                fault: fault.to_string(),
                why: "there is no such fault to heal".to_owned(),
            });
        }
        self.change(&mut broken, faults)
    }

    /// Takes all faults back.
    pub fn heal_all(&self) -> Result<(), LabError> {
        self.change(&mut self.broken(), Vec::new())
    }

    /// What is broken now, in the order in which it broke.
    pub fn faults(&self) -> Vec<Fault> {
        self.broken().effects.iter().map(|(f, _)| f.clone()).collect()
    }

    fn broken(&self) -> MutexGuard<'_, Broken> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, broken: &mut Broken, faults: Vec<Fault>) -> Result<(), LabError> {
        let wiring = &self.wiring;
        let effects = faults.into_iter().map(|f| {
            let effect = f.effect(&wiring.plan)?;
            Ok((f, effect))
        });
        let effects: Vec<(Fault, Effect)> = effects.collect::<Result<_, LabError>>()?;
        let seed = wiring.plan.topology.fabric.as_ref().map_or(1, |spec| spec.seed);
        let at_ports = merge(&effects, seed)?;
        // From here on everything has been understood; whatever the kernel refuses now leaves the list as what was wanted.
        let before = std::mem::replace(&mut broken.effects, effects);
        let now = &broken.effects;

        broken.flapping.retain(|(fault, _)| now.iter().any(|(f, _)| f == fault));
        let (was_down, is_down) = (down(&before), down(now));
        for &(end, other) in is_down.difference(&was_down) {
            wiring.set_end(end.into(), other.into(), false)?;
        }
        for &(end, other) in was_down.difference(&is_down) {
            wiring.set_end(end.into(), other.into(), true)?;
        }
        if let Some(switches) = &self.switches {
            for (key, (end, direction, _)) in &broken.at_ports {
                if !at_ports.contains_key(key) {
                    switches.set_fault(wiring.index(*end), *direction, &PortFault::default())?;
                }
            }
            for (key, (end, direction, fault)) in &at_ports {
                if broken.at_ports.get(key).is_none_or(|(_, _, old)| old != fault) {
                    switches.set_fault(wiring.index(*end), *direction, fault)?;
                }
            }
        }
        broken.at_ports = at_ports;
        let (was_slow, is_slow) = (slow(&before), slow(now));
        for (end, percent) in was_slow
            .keys()
            .map(|end| (end, 100))
            .chain(is_slow.iter().map(|(e, p)| (e, *p)))
        {
            let end = End::from(*end);
            if let Some(rate) = wiring.plan.interface(end).rate_bps {
                let mut rtnl = wiring.namespaces[end.node].rtnl();
                rtnl.set_switch_rate(wiring.index(end), rate * u64::from(percent) / 100)?;
                rtnl.flush()?;
            }
        }
        if let Some(switches) = &self.switches {
            let is_late = late(now);
            let ended = broken.late.extract_if(.., |end, (us, _)| is_late.get(end) != Some(us));
            let ended: Vec<Delay> = ended.map(|(_, (_, delay))| delay).collect();
            ended.into_iter().try_for_each(|delay| delay.end(wiring, switches))?;
            for (end, us) in is_late {
                if let Entry::Vacant(place) = broken.late.entry(end) {
                    let time = Duration::from_micros(us.into());
                    place.insert((us, Delay::start(wiring, switches, end.into(), time)?));
                }
            }
        }
        for (fault, effect) in now {
            if let Fault::LinkFlap(flap) = fault
                && !broken.flapping.iter().any(|(known, _)| known == fault)
            {
                let thread = FlapThread::start(Arc::clone(wiring), flap, effect.flapping.clone());
                broken.flapping.push((fault.clone(), thread));
            }
        }
        Ok(())
    }
}

/// An end as something that can be sorted.
type Key = (usize, usize);

impl From<Key> for End {
    fn from((node, interface): Key) -> Self {
        Self { node, interface }
    }
}

fn down(effects: &[(Fault, Effect)]) -> BTreeSet<(Key, Key)> {
    let ends = effects.iter().flat_map(|(_, effect)| &effect.down);
    ends.map(|(a, b)| ((a.node, a.interface), (b.node, b.interface)))
        .collect()
}

fn slow(effects: &[(Fault, Effect)]) -> BTreeMap<Key, u32> {
    let mut slow = BTreeMap::new();
    for (end, percent) in effects.iter().flat_map(|(_, effect)| &effect.slow) {
        let least = slow.entry((end.node, end.interface)).or_insert(*percent);
        *least = (*least).min(*percent);
    }
    slow
}

/// Delays of one host add up.
fn late(effects: &[(Fault, Effect)]) -> BTreeMap<Key, u32> {
    let mut late = BTreeMap::new();
    for (end, us) in effects.iter().flat_map(|(_, effect)| &effect.late) {
        *late.entry((end.node, end.interface)).or_insert(0) += us;
    }
    late
}

/// Sets links down and up until dropped, and leaves them up.
#[derive(Debug)]
struct FlapThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FlapThread {
    fn start(wiring: Arc<Wiring>, flap: &Flap, ends: Vec<(End, End)>) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let [down, up] = [flap.down_ms, flap.up_ms].map(|ms| Duration::from_millis(ms.into()));
        let thread = thread::spawn(move || {
            // A link that does not come up in time is what a flapping link is like; the next round tries again.
            let set = |up| {
                for &(end, other) in &ends {
                    let _ = wiring.set_end(end, other, up);
                }
            };
            for (state, time) in [(false, down), (true, up)].into_iter().cycle() {
                set(state);
                if stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
                    if !state {
                        set(true);
                    }
                    return;
                }
            }
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for FlapThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
