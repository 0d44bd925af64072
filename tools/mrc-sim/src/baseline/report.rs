//! What a baseline has achieved.

use crate::baseline::Kind;
use crate::fabric::clos::Totals;
use serde_json::{Value, json};

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineReport {
    /// The model.
    pub kind: Kind,
    /// For each transfer, from its post to its completion at the sender; `None`: not complete at the deadline.
    pub completions_ns: Vec<Option<u64>>,
    /// Payload that was delivered in order.
    pub delivered_bytes: u64,
    /// First post to last completion, or to the deadline.
    pub span_ns: u64,
    /// First post to the last data that was placed.
    pub placed_ns: u64,
    /// Data packets sent, repetitions among them.
    pub packets: u64,
    /// Repetitions.
    pub repeated: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// NAKs received.
    pub naks: u64,
    /// Packets whose data is not, or not once, where it belongs although they were delivered. Always 0, unless the model is wrong.
    pub misplaced: u64,
    /// What became of all frames.
    pub frames: Totals,
}

impl BaselineReport {
    /// Whether all transfers are complete.
    pub fn is_complete(&self) -> bool {
        self.completions_ns.iter().all(Option::is_some)
    }

    /// Payload delivered per time, in bit/s.
    pub fn goodput_bps(&self) -> f64 {
        self.delivered_bytes as f64 * 8e9 / self.span_ns.max(1) as f64
    }

    /// The completion time that `percent` of all transfers do not exceed; `None` if that one is not complete.
    pub fn completion_ns(&self, percent: usize) -> Option<u64> {
        let mut sorted: Vec<u64> = self.completions_ns.iter().map(|ns| ns.unwrap_or(u64::MAX)).collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().filter(|ns| *ns < u64::MAX)
    }

    /// As JSON, times in nanoseconds and rates in bit/s.
    pub fn json(&self) -> Value {
        json!({
            "transport": self.kind.to_string(),
            "model": true,
            "complete": self.completions_ns.iter().flatten().count(),
            "transfers": self.completions_ns.len(),
            "goodput_bps": self.goodput_bps(),
            "completion_ns": {
                "p50": self.completion_ns(50),
                "p99": self.completion_ns(99),
                "max": self.completion_ns(100),
            },
            "span_ns": self.span_ns,
            "placed_ns": self.placed_ns,
            "packets": self.packets,
            "repeated": self.repeated,
            "timeouts": self.timeouts,
            "naks": self.naks,
            "dropped": self.frames.dropped,
            "lost": self.frames.lost,
        })
    }
}
