//! What a run measures beside its verdicts: who got how much when, and how soon bad paths were left.

use crate::oracle::flow::Flow;
use crate::world::World;
use mrc_protocol::QpStats;
use std::collections::BTreeMap;

/// A path of a flow: connection, sending side, EV, port.
pub type FlowPath = (usize, usize, u32, u8);

/// Measurements of a run in progress.
#[derive(Debug, Default)]
pub struct Measure {
    /// Paths that are bad, and what was sent on them.
    pub watched: BTreeMap<FlowPath, Watched>,
    /// Sums over queue pairs that are gone.
    pub gone: Sums,
    /// After the warm-up.
    pub warm: Option<Snapshot>,
    /// When the first flow had nothing more to do.
    pub first_end: Option<Snapshot>,
    /// Payload that arrived by plane, again and again if it did.
    pub plane_bytes: [u64; 9],
    /// Bytes of flows that were closed.
    pub closed_bytes: u64,
    /// Queue pairs made in all.
    pub qps_made: u64,
    /// Most queue pairs that a host had at a time.
    pub qps_live: usize,
    /// When the first message of all was posted.
    pub begun_ns: Option<u64>,
    /// When the last data was placed.
    pub placed_ns: u64,
}

/// A bad path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Watched {
    /// From when on it is bad.
    pub bad_from_ns: u64,
    /// Writes sent on it since, until it left the active set for the first time.
    pub sent: u32,
    /// When it left.
    pub left_ns: Option<u64>,
    /// When a packet that was lost on it was sent again for the first time.
    pub noticed_ns: Option<u64>,
    /// Last new write on it before that, or soon after.
    pub last_ns: u64,
}

/// Sums over queue pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Writes sent, with repetitions.
    pub sent: u64,
    /// Repetitions.
    pub resent: u64,
    /// Losses that were none.
    pub spurious: u64,
    /// Timeouts.
    pub timeouts: u64,
}

/// Sums at an instant.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When.
    pub at_ns: u64,
    /// Sums.
    pub sums: Sums,
    /// Payload placed by flow, connection times two plus side: 0 of those that are closed.
    pub placed_bytes: Vec<u64>,
    /// Payload of those that are closed.
    pub closed_bytes: u64,
}

impl Sums {
    /// Adds a queue pair.
    pub fn add(&mut self, stats: &QpStats) {
        self.sent += stats.packets_sent;
        self.resent += stats.packets_retransmitted;
        self.spurious += stats.losses_spurious;
        self.timeouts += stats.timeouts;
    }
}

impl Measure {
    /// A write leaves. `before`: path of its lost copy.
    pub(crate) fn note_write(
        &mut self,
        connection: usize,
        side: usize,
        path: (u32, u8),
        before: Option<(u32, u8)>,
        now_ns: u64,
    ) {
        if self.watched.is_empty() {
            return;
        }
        if let Some((ev, port)) = before
            && let Some(lost) = self.watched.get_mut(&(connection, side, ev, port))
            && now_ns >= lost.bad_from_ns
        {
            lost.noticed_ns.get_or_insert(now_ns);
        }
        if let Some(bad) = self.watched.get_mut(&(connection, side, path.0, path.1))
            && now_ns >= bad.bad_from_ns
            && bad.left_ns.is_none()
        {
            bad.sent += 1;
            bad.last_ns = now_ns;
        }
    }

    /// A host has got another queue pair; `live`: how many it has now.
    pub(crate) fn note_qp(&mut self, live: usize) {
        self.qps_made += 1;
        self.qps_live = self.qps_live.max(live);
    }

    /// A path is assumed bad.
    pub(crate) fn note_bad(&mut self, path: FlowPath, now_ns: u64) {
        if let Some(bad) = self.watched.get_mut(&path)
            && now_ns >= bad.bad_from_ns
        {
            bad.left_ns.get_or_insert(now_ns);
        }
    }
}

impl World {
    /// Sums over all queue pairs, those that are gone included.
    pub(crate) fn sums(&self) -> Sums {
        let mut sums = self.measure.gone;
        for slot in self.hosts.iter().flat_map(|host| &host.qps) {
            sums.add(slot.qp.stats());
        }
        sums
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            at_ns: self.now_ns,
            sums: self.sums(),
            placed_bytes: (self.flows.iter().flatten())
                .map(|flow: &Flow| if flow.closed { 0 } else { flow.responder.placed_bytes })
                .collect(),
            closed_bytes: self.measure.closed_bytes,
        }
    }
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 {
        sum * sum / (shares.len() as f64 * squares)
    } else {
        0.0
    }
}

/// The most memory that this process ever held, in bytes; `None` where the system does not tell.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_among_equals_and_small_where_one_has_all() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[3.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert!(jain(&[]).abs() < 1e-12);
    }

    #[test]
    fn packets_count_against_a_bad_path_until_it_is_left() {
        let path = (0, 0, 7, 1);
        let mut measure = Measure::default();
        measure.watched.insert(
            path,
            Watched {
                bad_from_ns: 10,
                ..Watched::default()
            },
        );
        for now_ns in [5, 10, 11] {
            measure.note_write(0, 0, (7, 1), None, now_ns);
        }
        measure.note_write(0, 0, (8, 1), Some((7, 1)), 20);
        measure.note_bad(path, 21);
        measure.note_write(0, 0, (7, 1), None, 30);
        let bad = measure.watched[&path];
        assert_eq!(
            (bad.sent, bad.noticed_ns, bad.left_ns, bad.last_ns),
            (2, Some(20), Some(21), 11)
        );
    }
}
