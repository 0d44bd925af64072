//! Congestion control towards one destination (protocol.md §10): what is in flight, and whether more may be.

use alloc::boxed::Box;

use mrc_wire::{PortNum, PortSet};

use crate::cc::{AckSample, Algorithm, CcProfile, MaxWindow, Network, Nscc, NsccParams, RttSample, SchedulerState};
use crate::time::Instant;

/// Congestion control of all queue pairs that share it: normally those towards one peer.
///
/// Two kinds of calls. *Accounting*: [`Qpcc::on_send`] and [`Qpcc::on_leave`], once per packet that enters or leaves the
/// network; the sum is `inflight`. *Verdicts*: [`Qpcc::on_ack`], [`Qpcc::on_nack`], [`Qpcc::on_inferred_loss`], after
/// the accounting of the packets they speak of.
///
/// There is always a limit of packets per port, since the rings of ports are finite. The window in bytes comes on top.
#[derive(Clone, Debug)]
pub struct Qpcc {
    window: Window,
    packets_per_port: u16,
    inflight_bytes: i64,
    inflight_packets: u32,
    /// Packets in flight by port number.
    by_port: [u16; PortNum::MAX as usize + 1],
    /// Ports below their limit.
    open: PortSet,
    base_probe: BaseProbe,
}

/// The window in bytes.
#[derive(Clone, Debug)]
enum Window {
    /// None: the ports' limits are all there is.
    Ports(Fixed),
    /// As large as it may be: congestion control is off.
    Max(MaxWindow),
    Nscc(Box<Nscc>),
}

/// What is known of the network without a window.
#[derive(Clone, Debug)]
struct Fixed {
    base_rtt_ns: u64,
    config_base_rtt_ns: u64,
    trimming: bool,
}

/// The probe that measures the way without queues (protocol.md §10.5; UEC 1.0 §3.6.13.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BaseProbe {
    /// After the first SACK or NACK.
    Later,
    Now,
    /// Sent, or not needed.
    Done,
}

impl Qpcc {
    /// Default of `config_base_rtt` in software (protocol.md §10.3).
    pub const DEFAULT_BASE_RTT_NS: u64 = Network::DEFAULT_BASE_RTT_NS;

    /// A window of so many packets on each port, whatever happens.
    pub fn fixed(packets_per_port: u16) -> Self {
        let fixed = Fixed {
            base_rtt_ns: Self::DEFAULT_BASE_RTT_NS,
            config_base_rtt_ns: Self::DEFAULT_BASE_RTT_NS,
            trimming: false,
        };
        Self::new(Window::Ports(fixed), packets_per_port, BaseProbe::Done)
    }

    /// NSCC, and at most so many packets on each port.
    pub fn nscc(params: NsccParams, packets_per_port: u16, now: Instant) -> Self {
        let window = Window::Nscc(Box::new(Nscc::new(params, now)));
        Self::new(window, packets_per_port, BaseProbe::Later)
    }

    /// No congestion control: the window stays at `max_wnd` of these parameters (protocol.md §10).
    pub fn uncontrolled(params: NsccParams, packets_per_port: u16) -> Self {
        let window = Window::Max(MaxWindow::new(params));
        Self::new(window, packets_per_port, BaseProbe::Later)
    }

    /// What a profile asks for on this network.
    pub fn of_profile(profile: &CcProfile, network: &Network, packets_per_port: u16, now: Instant) -> Self {
        let params = profile.params(network);
        match profile.algorithm() {
            Some(Algorithm::Nscc) => Self::nscc(params, packets_per_port, now),
            Some(Algorithm::Off) | None => Self::uncontrolled(params, packets_per_port),
        }
    }

    fn new(window: Window, packets_per_port: u16, base_probe: BaseProbe) -> Self {
        Self {
            window,
            packets_per_port: packets_per_port.max(1),
            inflight_bytes: 0,
            inflight_packets: 0,
            by_port: [0; PortNum::MAX as usize + 1],
            open: PortSet::first(PortNum::MAX),
            base_probe,
        }
    }

    /// Sets `config_base_rtt` of a fixed window: the idle round trip of a full packet. Others have it from their parameters.
    #[must_use]
    pub fn with_base_rtt(mut self, ns: u64) -> Self {
        if let Window::Ports(fixed) = &mut self.window {
            fixed.config_base_rtt_ns = ns.max(1);
            fixed.base_rtt_ns = fixed.config_base_rtt_ns;
        }
        self
    }

    /// The fabric of a fixed window trims: queues are kept shorter (protocol.md §10.3 `target_qdelay`).
    #[must_use]
    pub fn with_trimming(mut self, trimming: bool) -> Self {
        if let Window::Ports(fixed) = &mut self.window {
            fixed.trimming = trimming;
        }
        self
    }

    /// The base round trip is known from earlier: no probe for it (protocol.md §10.5).
    #[must_use]
    pub fn with_known_base(mut self) -> Self {
        self.base_probe = BaseProbe::Done;
        self
    }

    // ---- getters

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

    /// The window; `None` = only the ports have limits.
    pub fn cwnd_bytes(&self) -> Option<u64> {
        match &self.window {
            Window::Ports(_) => None,
            Window::Max(window) => Some(window.cwnd_bytes()),
            Window::Nscc(nscc) => Some(nscc.cwnd_bytes()),
        }
    }

    /// The window of NSCC, if that is at work.
    pub fn as_nscc(&self) -> Option<&Nscc> {
        match &self.window {
            Window::Nscc(nscc) => Some(nscc),
            _ => None,
        }
    }

    /// The smallest round trip seen, at most the configured one and at least half of it (P25).
    pub fn base_rtt_ns(&self) -> u64 {
        match &self.window {
            Window::Ports(fixed) => fixed.base_rtt_ns,
            Window::Max(window) => window.base_rtt_ns(),
            Window::Nscc(nscc) => nscc.base_rtt_ns(),
        }
    }

    /// Queueing delay that is aimed at (protocol.md §10.3).
    pub fn target_qdelay_ns(&self) -> u64 {
        match &self.window {
            Window::Ports(fixed) if fixed.trimming => fixed.config_base_rtt_ns / 4 * 3,
            Window::Ports(fixed) => fixed.config_base_rtt_ns,
            Window::Max(window) => window.params().target_qdelay_ns,
            Window::Nscc(nscc) => nscc.params().target_qdelay_ns,
        }
    }

    /// Where it stands in the scheduler (protocol.md §10.6). `data`: some queue pair of it has packets to send.
    pub fn scheduler_state(&self, data: bool) -> SchedulerState {
        SchedulerState::of(data, !self.room().is_empty(), self.inflight_packets)
    }

    /// protocol.md §5.3 rule 2: cwnd > inflight.
    fn is_open(&self) -> bool {
        match &self.window {
            Window::Ports(_) => true,
            Window::Max(window) => self.inflight_bytes < window.cwnd_bytes().cast_signed(),
            Window::Nscc(nscc) => nscc.can_send(self.inflight_bytes),
        }
    }

    /// Ports on which another packet may be sent now; empty when the window is closed (protocol.md §5.3 rule 2).
    pub fn room(&self) -> PortSet {
        if self.is_open() { self.open } else { PortSet::EMPTY }
    }

    /// Does the window permit another packet on one of these ports?
    pub fn can_send(&self, ports: PortSet) -> bool {
        !self.room().intersection(ports).is_empty()
    }

    /// Less than one more full packet fits, or the window is below the peer's SACK threshold: time to ask for an
    /// acknowledgement (protocol.md §5.3).
    pub fn nearly_closed(&self, ports: PortSet, sack_gen_threshold_bytes: u32) -> bool {
        let window = match &self.window {
            Window::Ports(_) => false,
            Window::Max(window) => {
                window.cwnd_bytes().cast_signed() - self.inflight_bytes < i64::from(window.params().mtu_bytes)
                    || window.cwnd_bytes() < u64::from(sack_gen_threshold_bytes)
            }
            Window::Nscc(nscc) => nscc.nearly_closed(self.inflight_bytes, sack_gen_threshold_bytes),
        };
        window || !self.can_send(ports)
    }

    /// Should a probe of the control class go out, to measure the way without queues?
    pub(crate) fn wants_base_probe(&self) -> bool {
        self.base_probe == BaseProbe::Now
    }

    // ---- accounting

    /// A packet enters the network (protocol.md §10.4 `OnSend`).
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

    // ---- verdicts

    /// A SACK or Transport ACK arrived.
    pub fn on_ack(&mut self, sample: &AckSample) {
        self.heard();
        match &mut self.window {
            Window::Ports(fixed) => fixed.hear(sample.rtt),
            Window::Max(window) => {
                if let Some(rtt) = sample.rtt {
                    window.hear(rtt);
                }
            }
            Window::Nscc(nscc) => nscc.on_ack(sample, self.inflight_bytes),
        }
    }

    /// A packet was NACKed; `trim` = cut by a switch, else refused by the responder.
    pub fn on_nack(&mut self, now: Instant, nominal_bytes: u32, rtt: Option<RttSample>, trim: bool) {
        self.heard();
        match &mut self.window {
            Window::Ports(fixed) => fixed.hear(rtt),
            Window::Max(window) => {
                if let Some(rtt) = rtt {
                    window.hear(rtt);
                }
            }
            Window::Nscc(nscc) => nscc.on_nack(now, nominal_bytes, rtt, trim, self.inflight_bytes),
        }
    }

    /// A packet was declared lost without a NACK.
    pub fn on_inferred_loss(&mut self, _now: Instant, nominal_bytes: u32) {
        if let Window::Nscc(nscc) = &mut self.window {
            nscc.on_inferred_loss(nominal_bytes);
        }
    }

    fn heard(&mut self) {
        if self.base_probe == BaseProbe::Later {
            self.base_probe = BaseProbe::Now;
        }
    }

    /// The probe for the base round trip goes out; there is only one.
    pub(crate) fn on_base_probe_sent(&mut self) {
        self.base_probe = BaseProbe::Done;
    }

    /// It came back: that says how long the way is, and nothing about queues.
    pub(crate) fn on_base_probe(&mut self, rtt: RttSample) {
        match &mut self.window {
            Window::Ports(fixed) => fixed.hear(Some(rtt)),
            Window::Max(window) => window.hear(rtt),
            Window::Nscc(nscc) => nscc.on_base_probe(rtt),
        }
    }

    // ---- changes

    /// The speed of the own links over the planes in use has changed: a port went down or came up (protocol.md §10.4).
    pub fn set_link_bps(&mut self, link_bps: u64) {
        match &mut self.window {
            Window::Ports(_) => {}
            Window::Max(window) => window.set_link_bps(link_bps),
            Window::Nscc(nscc) => nscc.set_link_bps(link_bps),
        }
    }

    /// The profile was changed while it is in use; the algorithm cannot have been (api.md §4.11).
    pub fn set_params(&mut self, params: NsccParams) {
        match &mut self.window {
            Window::Ports(_) => {}
            Window::Max(window) => window.set_params(params),
            Window::Nscc(nscc) => nscc.set_params(params),
        }
    }
}

impl Fixed {
    // protocol.md §10.4 UpdateBase; of links nothing is known
    fn hear(&mut self, rtt: Option<RttSample>) {
        if let Some(rtt) = rtt {
            self.base_rtt_ns = self.base_rtt_ns.min(rtt.ns).max(self.config_base_rtt_ns / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_ns(1);

    fn port() -> PortNum {
        PortNum::new(1).unwrap()
    }

    fn params() -> NsccParams {
        NsccParams::new(&Network::new(1, 10_000_000_000, 4184))
    }

    // protocol.md §5.3 rule 2: cwnd > inflight
    #[test]
    fn windows_are_open_while_one_byte_is_missing() {
        for mut cc in [Qpcc::uncontrolled(params(), 100), Qpcc::nscc(params(), 100, NOW)] {
            let cwnd = cc.cwnd_bytes().unwrap() as u32;
            cc.on_send(port(), cwnd - 1);
            assert!(cc.can_send(PortSet::first(1)));
            cc.on_send(port(), 1);
            assert!(!cc.can_send(PortSet::first(1)));
            cc.on_leave(port(), 1);
            assert!(cc.can_send(PortSet::first(1)));
        }
    }

    #[test]
    fn a_port_is_closed_while_as_many_packets_as_it_may_are_on_it() {
        let mut cc = Qpcc::fixed(3);
        let one = PortSet::first(1);
        for open in [true, true, false] {
            cc.on_send(port(), 4184);
            assert_eq!(cc.can_send(one), open);
        }
        assert!(cc.can_send(PortSet::first(2)), "on another one");
        cc.on_leave(port(), 4184);
        assert!(cc.can_send(one));
    }

    // protocol.md §10.5: "after the first SACK or NACK of a new QPCC"
    #[test]
    fn the_first_nack_calls_for_the_base_probe_like_the_first_sack() {
        let answers: [fn(&mut Qpcc); 3] = [
            |cc| cc.on_ack(&AckSample::new(NOW, 4184)),
            |cc| cc.on_nack(NOW, 4184, None, true),
            |cc| cc.on_nack(NOW, 4184, None, false),
        ];
        for answer in answers {
            for mut cc in [Qpcc::uncontrolled(params(), 9), Qpcc::nscc(params(), 9, NOW)] {
                cc.on_inferred_loss(NOW, 4184);
                assert!(!cc.wants_base_probe(), "nothing was heard");
                answer(&mut cc);
                assert!(cc.wants_base_probe());
                cc.on_base_probe_sent();
                answer(&mut cc);
                assert!(!cc.wants_base_probe(), "one");
            }
        }
    }

    // protocol.md §10.4 UpdateBase, P25
    #[test]
    fn base_of_a_fixed_window_is_at_least_half_of_the_configured_one() {
        let mut cc = Qpcc::fixed(1).with_base_rtt(100_000);
        for (ns, expected) in [(100_001, 100_000), (50_001, 50_001), (49_999, 50_000), (90_000, 50_000)] {
            cc.on_nack(NOW, 4184, Some(RttSample { ns, bytes: 4184 }), false);
            assert_eq!(cc.base_rtt_ns(), expected);
        }
    }
}
