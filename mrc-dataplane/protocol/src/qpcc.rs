//! Congestion control towards one destination (protocol.md §10); for now a fixed window.

use mrc_wire::{PortNum, PortSet};

use crate::time::Instant;

/// What a SACK says to congestion control (protocol.md §10.4 OnACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSample {
    /// When.
    pub now: Instant,
    /// Nominal bytes newly acknowledged (P26).
    pub newly_acked_bytes: u64,
    /// Nominal bytes of packets that had been declared lost and were acknowledged now: they are not in flight any more,
    /// but count as progress (protocol.md §10.5).
    pub late_bytes: u64,
    /// The trigger was CE-marked.
    pub ce: bool,
    /// A valid round trip.
    pub rtt_ns: Option<u64>,
    /// The responder's penalty, 0-127.
    pub rcv_cwnd_pen: u8,
    /// The responder asks for the window back afterwards.
    pub rc: bool,
}

/// Congestion control of all queue pairs that share it: normally those towards one peer.
///
/// Two kinds of calls. *Accounting*: [`Qpcc::on_send`] and [`Qpcc::on_leave`], once per packet that enters or leaves the
/// network; the sum is `inflight`. *Verdicts*: [`Qpcc::on_ack`], [`Qpcc::on_nack`], [`Qpcc::on_inferred_loss`], after
/// the accounting of the packets they speak of.
#[derive(Clone, Debug)]
pub struct Qpcc {
    packets_per_port: u16,
    inflight_bytes: i64,
    inflight_packets: u32,
    /// Packets in flight by port number.
    by_port: [u16; PortNum::MAX as usize + 1],
    /// Ports below their limit.
    open: PortSet,
    base_rtt_ns: u64,
    config_base_rtt_ns: u64,
    trimming: bool,
}

impl Qpcc {
    /// Default of `config_base_rtt` in software (protocol.md §10.3).
    pub const DEFAULT_BASE_RTT_NS: u64 = 50_000;

    /// A window of so many packets on each port, whatever happens.
    pub fn fixed(packets_per_port: u16) -> Self {
        Self {
            packets_per_port: packets_per_port.max(1),
            inflight_bytes: 0,
            inflight_packets: 0,
            by_port: [0; PortNum::MAX as usize + 1],
            open: PortSet::first(PortNum::MAX),
            base_rtt_ns: Self::DEFAULT_BASE_RTT_NS,
            config_base_rtt_ns: Self::DEFAULT_BASE_RTT_NS,
            trimming: false,
        }
    }

    /// Sets `config_base_rtt`: the idle round trip of a full packet.
    #[must_use]
    pub fn with_base_rtt(mut self, ns: u64) -> Self {
        self.config_base_rtt_ns = ns.max(1);
        self.base_rtt_ns = self.config_base_rtt_ns;
        self
    }

    /// The fabric trims: queues are kept shorter (protocol.md §10.3 `target_qdelay`).
    #[must_use]
    pub fn with_trimming(mut self, trimming: bool) -> Self {
        self.trimming = trimming;
        self
    }

    /// Bytes sent and neither acknowledged, NACKed, declared lost nor withdrawn.
    pub fn inflight_bytes(&self) -> i64 {
        self.inflight_bytes
    }

    /// The same in packets.
    pub fn inflight_packets(&self) -> u32 {
        self.inflight_packets
    }

    /// The same on one port.
    pub fn inflight_on(&self, port: PortNum) -> u16 {
        self.by_port[usize::from(port.get())]
    }

    /// The smallest round trip seen, at most the configured one and at least half of it (P25).
    pub fn base_rtt_ns(&self) -> u64 {
        self.base_rtt_ns
    }

    /// Queueing delay that is aimed at (protocol.md §10.3).
    pub fn target_qdelay_ns(&self) -> u64 {
        if self.trimming {
            self.config_base_rtt_ns / 4 * 3
        } else {
            self.config_base_rtt_ns
        }
    }

    /// Ports on which another packet may be sent now; empty when the window is closed (protocol.md §5.3 rule 2).
    pub fn room(&self) -> PortSet {
        self.open
    }

    /// Does the window permit another packet on one of these ports?
    pub fn can_send(&self, ports: PortSet) -> bool {
        !self.open.intersection(ports).is_empty()
    }

    /// Less than one more packet fits, or the window is below the peer's SACK threshold: time to ask for an
    /// acknowledgement (protocol.md §5.3).
    pub fn nearly_closed(&self, ports: PortSet, _packet_bytes: u32, _sack_gen_threshold_bytes: u32) -> bool {
        !self.can_send(ports)
    }

    /// A packet enters the network.
    pub fn on_send(&mut self, port: PortNum, nominal_bytes: u32) {
        self.inflight_bytes += i64::from(nominal_bytes);
        self.inflight_packets += 1;
        let count = &mut self.by_port[usize::from(port.get())];
        *count = count.saturating_add(1);
        if *count >= self.packets_per_port {
            self.open.remove(port);
        }
    }

    /// A packet left it: delivered, NACKed, declared lost, or withdrawn because its port or queue pair went down.
    pub fn on_leave(&mut self, port: PortNum, nominal_bytes: u32) {
        self.inflight_bytes -= i64::from(nominal_bytes);
        self.inflight_packets = self.inflight_packets.saturating_sub(1);
        let count = &mut self.by_port[usize::from(port.get())];
        *count = count.saturating_sub(1);
        if *count < self.packets_per_port {
            self.open.insert(port);
        }
    }

    /// A SACK arrived.
    pub fn on_ack(&mut self, sample: &AckSample) {
        if let Some(rtt_ns) = sample.rtt_ns {
            self.update_base(rtt_ns);
        }
    }

    /// A packet was NACKed; `trim` = cut by a switch, else refused by the responder.
    pub fn on_nack(&mut self, _now: Instant, _nominal_bytes: u32, rtt_ns: Option<u64>, _trim: bool) {
        if let Some(rtt_ns) = rtt_ns {
            self.update_base(rtt_ns);
        }
    }

    /// A packet was declared lost without a NACK.
    pub fn on_inferred_loss(&mut self, _now: Instant, _nominal_bytes: u32) {}

    // protocol.md §10.4 UpdateBase
    fn update_base(&mut self, rtt_ns: u64) {
        self.base_rtt_ns = self.base_rtt_ns.min(rtt_ns).max(self.config_base_rtt_ns / 2).max(1);
    }
}
