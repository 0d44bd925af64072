//! Samples of what the host knows, at equal distances of time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mrc_verbs::DeviceContext;
use nix::sys::resource::{UsageWho, getrusage};

use super::serve::Outbox;
use super::{PortSample, Report, Sample, now_ns};
use crate::workload::Probe;

/// The probes of all workloads that are connected, by their numbers.
pub(super) type Probes = Arc<Mutex<BTreeMap<usize, Box<dyn Probe>>>>;

/// Starts the thread that samples; it ends with the process.
pub(super) fn start(device: DeviceContext, probes: Probes, outbox: Outbox, every: Duration) {
    thread::spawn(move || {
        let every = every.as_nanos() as u64;
        loop {
            // The same moments at all hosts: multiples of the interval on their common clock.
            let now = now_ns();
            thread::sleep(Duration::from_nanos(every - now % every));
            if !outbox.send(&Report::Sample(Box::new(sample(&device, &probes)))) {
                return;
            }
        }
    });
}

/// The probes, whatever has become of a thread that had them.
pub(super) fn lock(probes: &Probes) -> MutexGuard<'_, BTreeMap<usize, Box<dyn Probe>>> {
    probes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known now.
pub(super) fn sample(device: &DeviceContext, probes: &Probes) -> Sample {
    let at_ns = now_ns();
    let counters = device.counters();
    let ports = counters.ports.iter().map(|port| PortSample {
        tx_data_bytes: port.tx_data_bytes,
        rx_data_bytes: port.rx_data_bytes,
        tx_packets: port.tx_packets,
        retransmissions: port.retransmissions,
    });
    let mut probes = lock(probes);
    let ends = probes.iter_mut().flat_map(|(id, probe)| probe.sample(*id)).collect();
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
    let cpu_s = usage.map_or(0.0, |usage| {
        [usage.user_time(), usage.system_time()]
            .iter()
            .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
            .sum()
    });
    Sample {
        at_ns,
        ports: ports.collect(),
        ends,
        cpu_s,
        lost_here: counters.ports.iter().map(|port| port.rx_missed + port.tx_busy).sum(),
        stalls: counters.stalls,
    }
}
