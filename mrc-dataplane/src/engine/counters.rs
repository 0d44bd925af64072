//! Counters: plain integers of one writing thread, read by anyone at any time without stopping it.

use std::sync::atomic::{AtomicU64, Ordering};

use mrc_wire::{DropReason, NotMrc, PortNum};

/// A number that one thread counts up and everybody may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Only the owning thread may call this (or whoever holds its lock): there is no atomic addition, so it costs as much as
    /// a plain one.
    pub(crate) fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// As `add`: replaces the number by one that somebody else counts.
    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why the engine itself dropped a packet that parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EngineDrop {
    /// No queue pair has this number.
    UnknownQp,
    /// The source is not the peer of the queue pair.
    WrongSource,
    /// The destination is not the address that the queue pair uses.
    WrongDestination,
    /// The queue pair is not connected.
    NotConnected,
    /// An endpoint request from an address that is no peer's.
    UnknownPeer,
    /// An endpoint response or request that nobody waits for, or whose kind is not supported.
    EndpointOp,
    /// It arrived on another thread's queue, and that thread has no room for it.
    Handover,
}

impl EngineDrop {
    /// How many reasons there are.
    pub const COUNT: usize = Self::Handover as usize + 1;

    const CODES: [&str; Self::COUNT] = [
        "unknown_qp",
        "wrong_source",
        "wrong_destination",
        "not_connected",
        "unknown_peer",
        "endpoint_op",
        "handover",
    ];
}

const PROTOCOL_CODES: [&str; mrc_protocol::DropReason::COUNT] = [
    "state",
    "p_key",
    "not_for_qp",
    "out_of_window",
    "trimmed",
    "implausible",
    "not_outstanding",
    "syndrome",
    "rate_limited",
    "access",
];

/// What one thread counts on one port.
#[derive(Debug, Default)]
pub(crate) struct PortCells {
    pub(crate) tx_packets: Counter,
    pub(crate) tx_bytes: Counter,
    pub(crate) tx_data_bytes: Counter,
    pub(crate) rx_packets: Counter,
    pub(crate) rx_bytes: Counter,
    pub(crate) rx_data_bytes: Counter,
    pub(crate) retransmissions: Counter,
    pub(crate) evs_withdrawn: Counter,
    pub(crate) evs_returned: Counter,
    pub(crate) tx_kicks: Counter,
    pub(crate) tx_busy: Counter,
    pub(crate) rx_missed: Counter,
}

/// What one thread counts.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) ports: Vec<PortCells>,
    pub(crate) not_mrc: [Counter; NotMrc::COUNT],
    pub(crate) malformed: [Counter; DropReason::COUNT],
    pub(crate) protocol: [Counter; mrc_protocol::DropReason::COUNT],
    pub(crate) engine: [Counter; EngineDrop::COUNT],
    pub(crate) completions: Counter,
    pub(crate) completion_errors: Counter,
    pub(crate) handovers: Counter,
    pub(crate) passes: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) stalls: Counter,
    pub(crate) unsent: Counter,
}

impl Cells {
    pub(crate) fn new(ports: usize) -> Self {
        Self {
            ports: (0..ports).map(|_| PortCells::default()).collect(),
            not_mrc: Default::default(),
            malformed: Default::default(),
            protocol: Default::default(),
            engine: Default::default(),
            completions: Counter::default(),
            completion_errors: Counter::default(),
            handovers: Counter::default(),
            passes: Counter::default(),
            sleeps: Counter::default(),
            stalls: Counter::default(),
            unsent: Counter::default(),
        }
    }

    pub(crate) fn port(&self, num: PortNum) -> &PortCells {
        // Ports are numbered densely from 1 by the engine itself.
        &self.ports[num.index()]
    }

    pub(crate) fn count_drop(&self, reason: EngineDrop) {
        self.engine[reason as usize].add(1);
    }
}

/// What has happened on one port since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortSnapshot {
    /// Number.
    pub num: u8,
    /// Interface.
    pub name: String,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent, from the Ethernet header on.
    pub tx_bytes: u64,
    /// Message data sent, repetitions included.
    pub tx_data_bytes: u64,
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received, from the Ethernet header on.
    pub rx_bytes: u64,
    /// Message data received, duplicates included.
    pub rx_data_bytes: u64,
    /// Writes sent again.
    pub retransmissions: u64,
    /// Paths that left the active set.
    pub evs_withdrawn: u64,
    /// Paths that came back.
    pub evs_returned: u64,
    /// System calls made to transmit.
    pub tx_kicks: u64,
    /// Frames that the interface threw away because its own queue was full.
    pub tx_busy: u64,
    /// Frames that the kernel threw away because the engine was too slow to take them.
    pub rx_missed: u64,
}

/// What has happened since the start, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By port.
    pub ports: Vec<PortSnapshot>,
    /// Dropped packets by reason; only reasons that occurred. The prefix says who dropped: `not_mrc.` steering should have
    /// kept it, `malformed.` the parser, `protocol.` the queue pair, `engine.` the rest.
    pub drops: Vec<(String, u64)>,
    /// Completions written.
    pub completions: u64,
    /// Those with an error status.
    pub completion_errors: u64,
    /// Packets that arrived on another thread's queue.
    pub handovers: u64,
    /// Turns of the engine threads' loops.
    pub passes: u64,
    /// How often an engine thread went to sleep.
    pub sleeps: u64,
    /// How often an engine thread did not run although it should have.
    pub stalls: u64,
    /// Packets that the protocol made and a port did not take.
    pub unsent: u64,
}

impl Snapshot {
    /// Writes sent again, on all ports.
    pub fn retransmissions(&self) -> u64 {
        self.ports.iter().map(|port| port.retransmissions).sum()
    }

    /// Paths that left the active set, on all ports.
    pub fn evs_withdrawn(&self) -> u64 {
        self.ports.iter().map(|port| port.evs_withdrawn).sum()
    }

    /// Paths that came back, on all ports.
    pub fn evs_returned(&self) -> u64 {
        self.ports.iter().map(|port| port.evs_returned).sum()
    }

    /// Drops for one reason, as it stands in `drops`.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.drops
            .iter()
            .find(|(name, _)| name == reason)
            .map_or(0, |(_, count)| *count)
    }

    /// The sum over all threads.
    pub(crate) fn gather(threads: &[&Cells], names: &[String]) -> Self {
        let sum = |pick: &dyn Fn(&Cells) -> &Counter| threads.iter().map(|cells| pick(cells).get()).sum::<u64>();
        let ports = names.iter().enumerate().map(|(at, name)| {
            let sum = |pick: &dyn Fn(&PortCells) -> &Counter| {
                threads
                    .iter()
                    .filter_map(|cells| cells.ports.get(at))
                    .map(|port| pick(port).get())
                    .sum()
            };
            PortSnapshot {
                num: at as u8 + 1,
                name: name.clone(),
                tx_packets: sum(&|port| &port.tx_packets),
                tx_bytes: sum(&|port| &port.tx_bytes),
                tx_data_bytes: sum(&|port| &port.tx_data_bytes),
                rx_packets: sum(&|port| &port.rx_packets),
                rx_bytes: sum(&|port| &port.rx_bytes),
                rx_data_bytes: sum(&|port| &port.rx_data_bytes),
                retransmissions: sum(&|port| &port.retransmissions),
                evs_withdrawn: sum(&|port| &port.evs_withdrawn),
                evs_returned: sum(&|port| &port.evs_returned),
                tx_kicks: sum(&|port| &port.tx_kicks),
                tx_busy: sum(&|port| &port.tx_busy),
                rx_missed: sum(&|port| &port.rx_missed),
            }
        });
        let mut drops = Vec::new();
        let mut collect = |prefix: &str, code: &str, count: u64| {
            if count > 0 {
                drops.push((format!("{prefix}.{code}"), count));
            }
        };
        for reason in NotMrc::ALL {
            collect("not_mrc", reason.code(), sum(&|cells| &cells.not_mrc[reason.index()]));
        }
        for reason in DropReason::ALL {
            collect(
                "malformed",
                reason.code(),
                sum(&|cells| &cells.malformed[reason.index()]),
            );
        }
        for (at, code) in PROTOCOL_CODES.into_iter().enumerate() {
            collect("protocol", code, sum(&|cells| &cells.protocol[at]));
        }
        for (at, code) in EngineDrop::CODES.into_iter().enumerate() {
            collect("engine", code, sum(&|cells| &cells.engine[at]));
        }
        Self {
            ports: ports.collect(),
            drops,
            completions: sum(&|cells| &cells.completions),
            completion_errors: sum(&|cells| &cells.completion_errors),
            handovers: sum(&|cells| &cells.handovers),
            passes: sum(&|cells| &cells.passes),
            sleeps: sum(&|cells| &cells.sleeps),
            stalls: sum(&|cells| &cells.stalls),
            unsent: sum(&|cells| &cells.unsent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_adds_up_the_threads_and_names_what_was_dropped() {
        let threads = [Cells::new(2), Cells::new(2)];
        threads[0].ports[1].tx_bytes.add(5);
        threads[1].ports[1].tx_bytes.add(7);
        threads[1].count_drop(EngineDrop::UnknownQp);
        threads[0].malformed[DropReason::Icrc.index()].add(2);
        let snapshot = Snapshot::gather(&[&threads[0], &threads[1]], &["p1".into(), "p2".into()]);
        assert_eq!(snapshot.ports[1].tx_bytes, 12);
        assert_eq!(
            snapshot.drops,
            [("malformed.icrc".into(), 2), ("engine.unknown_qp".into(), 1)]
        );
        assert_eq!(snapshot.dropped("engine.unknown_qp"), 1);
        assert_eq!(snapshot.dropped("engine.handover"), 0);
    }
}
