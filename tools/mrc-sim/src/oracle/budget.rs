//! No more answers than their limit permits (protocol.md §14, P29): so many at once, so many a second, and those that packets
//! received have earned.

use crate::ensure;
use crate::oracle::Checked;
use crate::oracle::Oracle::{Nack, Sack};
use crate::scenario::ConnectionPlan;

/// NACKs that a packet received pays for.
const NACKS_PER_PACKET: u64 = 16;

/// What a responder may still say.
#[derive(Debug)]
pub(super) struct Budget {
    per_s: u64,
    burst: u64,
    /// PSNs of the window that it began with: a requestor may have all of them cut.
    window: u64,
    received: u64,
    nacks: u64,
    probes: u64,
}

impl Budget {
    pub(super) fn new(plan: &ConnectionPlan, side: usize) -> Budget {
        Budget {
            per_s: plan.answers_per_s.into(),
            burst: plan.answers_burst.into(),
            window: u64::from(plan.mpr[side]) * 128,
            received: 0,
            nacks: 0,
            probes: 0,
        }
    }

    /// A new packet was placed.
    pub(super) fn earn(&mut self) {
        self.received += 1;
    }

    /// A NACK leaves.
    pub(super) fn nack(&mut self, name: &str, now_ns: u64) -> Checked {
        self.nacks += 1;
        let most = self.burst.max(self.window) + self.filled(now_ns) + NACKS_PER_PACKET * self.received;
        ensure!(
            self.nacks <= most,
            Nack,
            "{name}: NACK number {}, at most {most}: {self:?}",
            self.nacks
        );
        Ok(())
    }

    /// The answer to a probe leaves.
    pub(super) fn answer_probe(&mut self, name: &str, now_ns: u64) -> Checked {
        self.probes += 1;
        let most = self.burst + self.filled(now_ns) + self.received;
        ensure!(
            self.probes <= most,
            Sack,
            "{name}: answer to a probe, number {}, at most {most}: {self:?}",
            self.probes
        );
        Ok(())
    }

    /// What has come in since the clock began.
    fn filled(&self, now_ns: u64) -> u64 {
        (u128::from(now_ns) * u128::from(self.per_s) / 1_000_000_000) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mrc_wire::Pmtu;

    #[test]
    fn nacks_are_bounded_by_a_window_the_rate_and_what_was_received() {
        let plan = ConnectionPlan {
            answers_burst: 1,
            mpr: [1, 8],
            ..ConnectionPlan::new([0, 1], [2, 3], Pmtu::B4096)
        };
        let mut budget = Budget::new(&plan, 0);
        budget.earn();
        let sent = (0..10_000).take_while(|_| budget.nack("f", 5_000_000).is_ok());
        assert_eq!(sent.count(), 128 + 5 + 1 + 16);
        let answered = (0..10_000).take_while(|_| budget.answer_probe("f", 5_000_000).is_ok());
        assert_eq!(answered.count(), 1 + 5 + 1 + 1);
    }
}
