//! The numbers of NSCC (protocol.md §10.3; UEC 1.0 Table 3-76), from what is known of the network or from a controller.

use super::config::NsccConfig;
use super::fixed::Fixed;
use super::network::{Network, Normaliser};
use crate::time::{SEC, US};

/// The reference network: 100 Gbit/s at 12 us (protocol.md §10.3).
const REFERENCE_BDP_BYTES: u128 = 150_000;
const REFERENCE_RTT_NS: u128 = 12 * US as u128;

/// Parameters of one window, ready for use.
///
/// ```
/// use mrc_protocol::cc::{Network, NsccParams};
///
/// // 100 Gbit/s and 12 us with trimming: the example of protocol.md §10.3.
/// let network = Network { base_rtt_ns: Some(12_000), trimming: true, ..Network::new(4, 25_000_000_000, 4184) };
/// let params = NsccParams::new(&network);
/// assert_eq!((params.max_cwnd_bytes, params.target_qdelay_ns, params.fi.floor()), (225_000, 9_000, 20_920));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NsccParams {
    /// Nominal size of a full packet, at least 1: also the smallest window.
    pub mtu_bytes: u32,
    /// Idle round trip of a full packet.
    pub config_base_rtt_ns: u64,
    /// `MaxWnd`: the largest window and the first one, while base round trip and link speed are as configured.
    pub max_cwnd_bytes: u32,
    /// Queueing delay that is aimed at.
    pub target_qdelay_ns: u64,
    /// Proportional increase, bytes per ns below the target.
    pub alpha: Fixed,
    /// Fair increase in bytes.
    pub fi: Fixed,
    /// Fast increase per byte.
    pub fi_scale: Fixed,
    /// Periodic increase in bytes.
    pub eta: Fixed,
    /// Strength of a decrease, at most 1.
    pub gamma: Fixed,
    /// Smallest factor of one decrease, at most 1.
    pub max_md_jump: Fixed,
    /// Quick adapt only while less than `max_wnd >> qa_gate` was received in its period.
    pub qa_gate: u8,
    /// Queueing delay that asks for quick adapt; `None` = none does.
    pub qa_threshold_ns: Option<u64>,
    /// Without quick adapt.
    pub disable_qa: bool,
    /// Increases are applied after so many bytes,
    pub adjust_bytes: u64,
    /// or after this time.
    pub adjust_period_ns: u64,
    /// The speed that `max_cwnd_bytes` was computed for: the slower of both ends.
    pub(super) linkspeed_bps: u64,
    pub(super) peer_bps: Option<u64>,
    pub(super) normaliser: Normaliser,
}

impl NsccParams {
    /// The defaults for a network.
    pub fn new(network: &Network) -> Self {
        let rtt_ns = network.config_base_rtt_ns();
        let bdp = Bdp::new(network, rtt_ns);
        let default_target_ns = if network.trimming { rtt_ns * 3 / 4 } else { rtt_ns };
        // P25: a target below the jitter of the hosts would be met by chance only.
        let target_ns = default_target_ns.max(network.jitter_ns.saturating_mul(4)).max(1);
        let mtu = u128::from(network.mtu_bytes.max(1));
        Self {
            mtu_bytes: network.mtu_bytes.max(1),
            config_base_rtt_ns: rtt_ns,
            // A window below one packet would never open.
            max_cwnd_bytes: bdp.times(3, 2).max(network.mtu_bytes.max(1)),
            target_qdelay_ns: target_ns,
            alpha: bdp.alpha(mtu),
            fi: bdp.scaling_a(5 * mtu, 1),
            fi_scale: bdp.scaling_a(1, 4),
            eta: bdp.scaling_a(15 * mtu, 100),
            gamma: Fixed::ratio(8, 10),
            max_md_jump: Fixed::ratio(1, 2),
            qa_gate: 3,
            qa_threshold_ns: (!network.trimming).then(|| target_ns.saturating_mul(4)),
            disable_qa: false,
            adjust_bytes: 8 * u64::from(network.mtu_bytes.max(1)),
            adjust_period_ns: rtt_ns,
            linkspeed_bps: network.linkspeed_bps(),
            peer_bps: network.peer_bps,
            normaliser: Normaliser::new(network),
        }
    }

    /// A controller's numbers on a network. What the controller does not set (`alpha`) follows from what it sets.
    pub fn with_config(config: &NsccConfig, network: &Network) -> Self {
        let rtt_ns = u64::from(config.base_rtt_ns.max(1));
        let mtu_bytes = network.mtu_bytes.max(1);
        Self {
            mtu_bytes,
            config_base_rtt_ns: rtt_ns,
            max_cwnd_bytes: config.max_cwnd_bytes.max(mtu_bytes),
            target_qdelay_ns: u64::from(config.target_delay_ns.max(1)),
            alpha: Bdp::new(network, rtt_ns).alpha(u128::from(mtu_bytes)),
            fi: Fixed::from_f32(config.fi),
            fi_scale: Fixed::from_f32(config.fi_scale),
            eta: Fixed::from_f32(config.eta),
            gamma: Fixed::from_f32(config.gamma).min(Fixed::ONE),
            max_md_jump: Fixed::from_f32(config.max_md_jump).min(Fixed::ONE),
            qa_gate: config.qa_gate.min(NsccConfig::MAX_QA_GATE),
            qa_threshold_ns: (config.qa_threshold_ns != u32::MAX).then_some(u64::from(config.qa_threshold_ns)),
            disable_qa: config.disable_qa,
            adjust_bytes: u64::from(config.adjust_bytes_threshold),
            adjust_period_ns: u64::from(config.adjust_period_threshold_ns),
            linkspeed_bps: network.linkspeed_bps(),
            peer_bps: network.peer_bps,
            normaliser: Normaliser::new(network),
        }
    }

    /// What a query of a profile shows.
    pub fn config(&self) -> NsccConfig {
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        NsccConfig {
            disable_qa: self.disable_qa,
            adjust_bytes_threshold: narrow(self.adjust_bytes),
            adjust_period_threshold_ns: narrow(self.adjust_period_ns),
            base_rtt_ns: narrow(self.config_base_rtt_ns),
            eta: self.eta.to_f32(),
            fi: self.fi.to_f32(),
            fi_scale: self.fi_scale.to_f32(),
            gamma: self.gamma.to_f32(),
            max_md_jump: self.max_md_jump.to_f32(),
            max_cwnd_bytes: self.max_cwnd_bytes,
            qa_gate: self.qa_gate,
            qa_threshold_ns: self.qa_threshold_ns.map_or(u32::MAX, narrow),
            target_delay_ns: narrow(self.target_qdelay_ns),
        }
    }
}

/// Bandwidth times delay, not rounded: bit/s * ns.
struct Bdp(u128);

impl Bdp {
    /// In one byte.
    const UNITS: u128 = 8 * SEC as u128;

    fn new(network: &Network, rtt_ns: u64) -> Self {
        Self(u128::from(network.linkspeed_bps()) * u128::from(rtt_ns))
    }

    fn times(&self, numerator: u128, denominator: u128) -> u32 {
        let bytes = self.0.saturating_mul(numerator) / (denominator * Self::UNITS);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// `scaling_a * numerator / denominator`.
    fn scaling_a(&self, numerator: u128, denominator: u128) -> Fixed {
        Fixed::ratio(
            self.0.saturating_mul(numerator),
            denominator * Self::UNITS * REFERENCE_BDP_BYTES,
        )
    }

    /// `4 * scaling_a * scaling_b * MTU / target_qdelay`, where `scaling_b` = `target_qdelay` / 12 us: the target cancels.
    fn alpha(&self, mtu: u128) -> Fixed {
        self.scaling_a(4 * mtu, REFERENCE_RTT_NS)
    }
}
