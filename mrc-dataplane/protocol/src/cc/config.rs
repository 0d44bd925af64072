//! The parameters of NSCC as controllers give them (api.md §4.11).

use thiserror::Error;

/// `struct mrc_ctl_cc_nscc_cfg` of the profile algorithm "uet-1.0-nscc".
///
/// A config is complete: whoever wants to change one number starts from [`NsccParams::config`](super::NsccParams::config).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NsccConfig {
    /// Without quick adapt.
    pub disable_qa: bool,
    /// Bytes acknowledged between two changes of the window.
    pub adjust_bytes_threshold: u32,
    /// Longest time between two changes of the window.
    pub adjust_period_threshold_ns: u32,
    /// Idle round trip of a full packet.
    pub base_rtt_ns: u32,
    /// Periodic increase in bytes.
    pub eta: f32,
    /// Fair increase in bytes.
    pub fi: f32,
    /// Fast increase per byte.
    pub fi_scale: f32,
    /// Strength of a decrease, at most 1.
    pub gamma: f32,
    /// Smallest factor of one decrease, at most 1.
    pub max_md_jump: f32,
    /// Largest window, and first one.
    pub max_cwnd_bytes: u32,
    /// Quick adapt only if less than `max_cwnd / 2^qa_gate` was received.
    pub qa_gate: u8,
    /// Queueing delay that asks for quick adapt; `u32::MAX` = none does.
    pub qa_threshold_ns: u32,
    /// Queueing delay that is aimed at.
    pub target_delay_ns: u32,
}

/// Why a config is refused (api.md §4.11; all are EINVAL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A factor that is no number, infinite or negative.
    #[error("{0} must be a finite number that is not negative: correct it")]
    Number(&'static str),
    /// A factor above 1.
    #[error("{0} is above 1: lower it")]
    AboveOne(&'static str),
    /// A value that must not be 0.
    #[error("{0} is 0: set it, or use the defaults")]
    Zero(&'static str),
    /// The gate is a shift of 32 bits.
    #[error("qa_gate {0} is above 31: lower it")]
    Gate(u8),
}

impl NsccConfig {
    /// Largest `qa_gate`.
    pub const MAX_QA_GATE: u8 = 31;

    /// Is this a config that NSCC can work with?
    pub fn check(&self) -> Result<(), ConfigError> {
        let factors = [
            ("eta", self.eta),
            ("fi", self.fi),
            ("fi_scale", self.fi_scale),
            ("gamma", self.gamma),
            ("max_md_jump", self.max_md_jump),
        ];
        for (name, value) in factors {
            if !value.is_finite() || value < 0.0 {
                return Err(ConfigError::Number(name));
            }
        }
        for (name, value) in [("gamma", self.gamma), ("max_md_jump", self.max_md_jump)] {
            if value > 1.0 {
                return Err(ConfigError::AboveOne(name));
            }
        }
        if self.qa_gate > Self::MAX_QA_GATE {
            return Err(ConfigError::Gate(self.qa_gate));
        }
        let sizes = [
            ("max_cwnd", self.max_cwnd_bytes),
            ("base_rtt", self.base_rtt_ns),
            ("target_delay", self.target_delay_ns),
        ];
        match sizes.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}
