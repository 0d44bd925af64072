//! Round trip times of one queue pair (protocol.md §10.5) and the tolerance of reordering (§5.6).

use crate::qpcc::Qpcc;
use crate::time::{Instant, US};

/// Smoothed round trip time and its variation (RFC 6298's filter).
#[expect(clippy::struct_field_names, reason = "units last")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    srtt_ns: u64,
    rttvar_ns: u64,
    min_ns: u64,
}

impl Rtt {
    pub(crate) fn sample(&mut self, rtt_ns: u64) {
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt_ns.max(1);
            self.rttvar_ns = rtt_ns / 2;
            self.min_ns = rtt_ns;
        } else {
            self.rttvar_ns = (3 * self.rttvar_ns + self.srtt_ns.abs_diff(rtt_ns)) / 4;
            self.srtt_ns = ((7 * self.srtt_ns + rtt_ns) / 8).max(1);
            self.min_ns = self.min_ns.min(rtt_ns);
        }
    }

    /// The smallest that was measured; 0 before the first sample.
    pub(crate) fn min_ns(&self) -> u64 {
        self.min_ns
    }

    /// What a round trip takes at most, but for a rare one (RFC 6298); 0 before the first sample.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.srtt_ns + 4 * self.rttvar_ns
    }

    /// How much longer than the shortest a round trip may be expected to take.
    fn spread_ns(&self) -> u64 {
        self.longest_ns().saturating_sub(self.min_ns)
    }

    /// Smoothed; before the first sample the base round trip.
    pub(crate) fn srtt_ns(&self, cc: &Qpcc) -> u64 {
        if self.srtt_ns == 0 {
            cc.base_rtt_ns()
        } else {
            self.srtt_ns
        }
    }

    /// As measured; 0 before the first sample.
    pub(crate) fn measured_ns(&self) -> (u64, u64) {
        (self.srtt_ns, self.rttvar_ns)
    }

    // protocol.md §9.1
    pub(crate) fn probe_timeout_ns(&self, cc: &Qpcc) -> u64 {
        (4 * self.srtt_ns(cc)).max(200 * US)
    }

    // protocol.md §5.8
    pub(crate) fn transport_ack_wait_ns(&self, cc: &Qpcc) -> u64 {
        (2 * self.srtt_ns(cc)).max(100 * US)
    }
}

/// `reo_wnd`: how much later than others a packet may arrive before it counts as lost (protocol.md §5.6).
///
/// The rule there trusts congestion control to hold queues to `target_qdelay`. Hosts that share their processors delay
/// packets and SACKs by more, and a fixed window does not hold queues at all: so what was measured counts too.
#[derive(Clone, Debug)]
pub(crate) struct Reordering {
    min_ns: u64,
    /// Above the start value only after spurious losses; 0 = at the start value.
    grown_ns: u64,
    quiet_since: Instant,
}

impl Reordering {
    pub(crate) fn new(min_ns: u64) -> Self {
        Self {
            min_ns,
            grown_ns: 0,
            quiet_since: Instant::ZERO,
        }
    }

    fn start_ns(&self, rtt: &Rtt, cc: &Qpcc) -> u64 {
        (cc.base_rtt_ns() + 2 * cc.target_qdelay_ns())
            .max(rtt.spread_ns())
            .max(self.min_ns)
    }

    pub(crate) fn wnd_ns(&self, rtt: &Rtt, cc: &Qpcc) -> u64 {
        self.start_ns(rtt, cc).max(self.grown_ns)
    }

    /// Rule A's wait: paths keep order, hosts nearly. SACKs come back on other paths, and on some of them so late that what they
    /// show seems to be missing: so the wait grows in proportion to `reo_wnd` after spurious losses.
    pub(crate) fn same_path_ns(&self, rtt: &Rtt, cc: &Qpcc) -> u64 {
        let least_ns = (cc.base_rtt_ns() / 4).max(self.min_ns);
        let start_ns = self.start_ns(rtt, cc).max(1);
        let scaled_ns = u128::from(least_ns) * u128::from(self.wnd_ns(rtt, cc)) / u128::from(start_ns);
        u64::try_from(scaled_ns).unwrap_or(u64::MAX)
    }

    /// A packet that was declared lost had arrived.
    pub(crate) fn on_spurious_loss(&mut self, rtt: &Rtt, cc: &Qpcc, now: Instant) {
        let limit_ns = (16 * cc.base_rtt_ns().max(rtt.min_ns())).max(self.start_ns(rtt, cc));
        self.grown_ns = (self.wnd_ns(rtt, cc) * 2).min(limit_ns);
        self.quiet_since = now;
    }

    /// A sixteenth less for each 16 round trips without a spurious loss.
    pub(crate) fn decay(&mut self, rtt: &Rtt, cc: &Qpcc, now: Instant) {
        if self.grown_ns != 0 && now.since(self.quiet_since) >= 16 * rtt.srtt_ns(cc) {
            self.quiet_since = now;
            self.grown_ns -= self.grown_ns / 16;
            if self.grown_ns <= self.start_ns(rtt, cc) {
                self.grown_ns = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_follows_the_samples() {
        let cc = Qpcc::fixed(1);
        let mut rtt = Rtt::default();
        assert_eq!(rtt.srtt_ns(&cc), Qpcc::DEFAULT_BASE_RTT_NS);
        rtt.sample(80_000);
        assert_eq!(rtt.measured_ns(), (80_000, 40_000));
        rtt.sample(160_000);
        assert_eq!(rtt.measured_ns(), (90_000, 50_000));
        assert_eq!(rtt.probe_timeout_ns(&cc), 360_000);
        assert_eq!(rtt.transport_ack_wait_ns(&cc), 180_000);
    }

    #[test]
    fn tolerance_doubles_up_to_its_limit_and_decays_back() {
        let cc = Qpcc::fixed(1);
        let rtt = Rtt::default();
        let mut reo = Reordering::new(50_000);
        assert_eq!((reo.wnd_ns(&rtt, &cc), reo.same_path_ns(&rtt, &cc)), (150_000, 50_000));
        let mut now = Instant::from_ns(1);
        reo.on_spurious_loss(&rtt, &cc, now);
        assert_eq!(reo.wnd_ns(&rtt, &cc), 300_000);
        assert_eq!(reo.same_path_ns(&rtt, &cc), 100_000, "rule A's wait too");
        for _ in 0..5 {
            reo.on_spurious_loss(&rtt, &cc, now);
        }
        assert_eq!(reo.wnd_ns(&rtt, &cc), 800_000, "16 base round trips");
        reo.decay(&rtt, &cc, now + 799_999);
        assert_eq!(reo.wnd_ns(&rtt, &cc), 800_000);
        now = now + 800_000;
        reo.decay(&rtt, &cc, now);
        assert_eq!(reo.wnd_ns(&rtt, &cc), 750_000, "a sixteenth, after 16 round trips");
        for _ in 0..100 {
            now = now + 800_000;
            reo.decay(&rtt, &cc, now);
        }
        assert_eq!((reo.wnd_ns(&rtt, &cc), reo.same_path_ns(&rtt, &cc)), (150_000, 50_000));
    }

    // protocol.md §5.6: 16 base_rtt, or 16 of the shortest round trip where all are longer.
    #[test]
    fn tolerance_grows_with_the_shortest_round_trip() {
        let cc = Qpcc::fixed(1);
        let mut rtt = Rtt::default();
        for _ in 0..100 {
            rtt.sample(1_000_000);
        }
        let mut reo = Reordering::new(50_000);
        for _ in 0..20 {
            reo.on_spurious_loss(&rtt, &cc, Instant::from_ns(1));
        }
        assert_eq!(reo.wnd_ns(&rtt, &cc), 16_000_000);
    }

    // protocol.md §5.6 rule A: max(base RTT / 4, reo_min)
    #[test]
    fn one_path_has_a_quarter_of_the_base_round_trip_if_that_is_more() {
        let cc = Qpcc::fixed(1).with_base_rtt(1_000_000);
        let rtt = Rtt::default();
        assert_eq!(Reordering::new(50_000).same_path_ns(&rtt, &cc), 250_000);
        assert_eq!(Reordering::new(300_000).same_path_ns(&rtt, &cc), 300_000);
        let wide = cc.clone().with_trimming(true);
        assert_eq!(Reordering::new(50_000).wnd_ns(&rtt, &cc), 3_000_000);
        assert_eq!(Reordering::new(50_000).wnd_ns(&rtt, &wide), 2_500_000, "§10.3: 0.75");
    }

    #[test]
    fn tolerance_follows_round_trips_that_vary() {
        let cc = Qpcc::fixed(1);
        let reo = Reordering::new(50_000);
        let mut rtt = Rtt::default();
        for n in 0..100 {
            rtt.sample(if n % 4 == 0 { 3_000_000 } else { 200_000 });
        }
        assert!(
            (2_800_000..6_000_000).contains(&reo.wnd_ns(&rtt, &cc)),
            "{}",
            reo.wnd_ns(&rtt, &cc)
        );
        for _ in 0..100 {
            rtt.sample(200_000);
        }
        assert_eq!(reo.wnd_ns(&rtt, &cc), 150_000);
    }
}
