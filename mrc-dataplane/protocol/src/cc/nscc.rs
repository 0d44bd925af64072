//! NSCC: a window clocked by SACKs and driven by ECN and queueing delay (protocol.md §10; MRC 1.0 §8, UEC 1.0 §3.6.13).

use super::base::Base;
use super::delay::AverageDelay;
use super::fixed::Fixed;
use super::params::NsccParams;
use super::sample::{AckSample, Penalty, RttSample};
use crate::time::{Instant, US};

/// One congestion window (protocol.md §10.2; MRC 1.0 Table 8-3).
///
/// `inflight_bytes` is an argument of the events that need it: what is in flight *after* the packets they speak of have
/// left the network. It may be negative, where somebody counts by the responder's counter. At all times
/// `mtu <= cwnd <= max_wnd`.
#[derive(Clone, Debug)]
pub struct Nscc {
    params: NsccParams,
    base: Base,
    /// In bytes.
    cwnd: Fixed,
    /// Sum of the increases in square bytes: bytes once it is divided by the window.
    inc: u64,
    recv_bytes: u64,
    t_adj: Instant,
    t_dec: Instant,
    fast: bool,
    fi_cnt_bytes: u64,
    achieved_bytes: u64,
    /// `None`: no period has begun.
    qa_end: Option<Instant>,
    qa_trig: bool,
    ign_target_bytes: u64,
    ignored_bytes: u64,
    /// The window before the responder asked for less.
    saved: Option<Fixed>,
    average: AverageDelay,
}

impl Nscc {
    /// Starts with the largest window.
    pub fn new(params: NsccParams, now: Instant) -> Self {
        let base = Base::new(&params);
        Self {
            cwnd: Fixed::whole(base.max_wnd_bytes()),
            base,
            params,
            inc: 0,
            recv_bytes: 0,
            t_adj: now,
            t_dec: now,
            fast: false,
            fi_cnt_bytes: 0,
            achieved_bytes: 0,
            qa_end: None,
            qa_trig: false,
            ign_target_bytes: 0,
            ignored_bytes: 0,
            saved: None,
            average: AverageDelay::new(now),
        }
    }

    // ---- getters

    /// The window.
    pub fn cwnd_bytes(&self) -> u64 {
        self.cwnd.floor()
    }

    /// Its upper limit; follows the base round trip and the link speed.
    pub fn max_wnd_bytes(&self) -> u64 {
        u64::from(self.base.max_wnd_bytes())
    }

    /// The smallest round trip that was seen, at most the configured one and at least half of it (P25).
    pub fn base_rtt_ns(&self) -> u64 {
        self.base.rtt_ns()
    }

    /// Average queueing delay over about one base round trip.
    pub fn avg_delay_ns(&self) -> u64 {
        self.average.ns()
    }

    /// Is the window growing fast, because there was no queue for a whole window?
    pub fn is_fast(&self) -> bool {
        self.fast
    }

    /// Does the responder ask for less at present?
    pub fn is_limited(&self) -> bool {
        self.saved.is_some()
    }

    /// The parameters.
    pub fn params(&self) -> &NsccParams {
        &self.params
    }

    /// May another packet be sent (protocol.md §5.3 rule 2; MRC 1.0 §8.3.1)?
    pub fn can_send(&self, inflight_bytes: i64) -> bool {
        inflight_bytes < self.cwnd_bytes().cast_signed()
    }

    /// Should this packet, counted already, ask for an acknowledgement (protocol.md §5.3, P5)?
    pub fn nearly_closed(&self, inflight_bytes: i64, sack_gen_threshold_bytes: u32) -> bool {
        let cwnd = self.cwnd_bytes();
        cwnd.cast_signed().saturating_sub(inflight_bytes) < i64::from(self.params.mtu_bytes)
            || cwnd < u64::from(sack_gen_threshold_bytes)
    }

    // ---- events

    /// A SACK arrived (protocol.md §10.4 OnACK, with its numbers).
    pub fn on_ack(&mut self, sample: &AckSample, inflight_bytes: i64) {
        let (n, now) = (sample.newly_acked_bytes, sample.now);
        // 1
        self.ignored_bytes = self.ignored_bytes.saturating_add(n);
        self.recv_bytes = self.recv_bytes.saturating_add(n);
        // protocol.md §10.5: late packets count here, and only here.
        self.achieved_bytes = self.achieved_bytes.saturating_add(n).saturating_add(sample.late_bytes);
        // 2
        let limited = match sample.penalty {
            Some(penalty) => self.apply_penalty(penalty, n, inflight_bytes),
            None => self.is_limited(),
        };
        // 3
        let Some(rtt) = sample.rtt else { return };
        // 4
        let delay_ns = self.update_base(rtt).saturating_sub(self.base.rtt_ns());
        self.average.feed(delay_ns, now, self.base.rtt_ns());
        // 5
        if self.quick_adapt(now, false, sample.ce, delay_ns, inflight_bytes) {
            return;
        }
        // 6; protocol.md §10.1, MRC 1.0 Table 8-1
        let target_ns = self.params.target_qdelay_ns;
        match (sample.ce, delay_ns < target_ns) {
            (false, false) if !limited => self.fair_increase(n),
            (false, true) if !limited => {
                self.fast_increase(n, delay_ns);
                if !self.fast {
                    self.proportional_increase(n, target_ns - delay_ns);
                }
            }
            (true, false) => self.decrease(now),
            // Starting, or unbalanced: the choice of paths reacts.
            (true, true) | (false, _) => {}
        }
        // 7
        if now.since(self.t_adj) >= self.params.adjust_period_ns || self.recv_bytes > self.params.adjust_bytes {
            self.apply(now, limited);
        }
    }

    /// A packet was NACKed: `trim` = cut by a switch, else refused by the responder (protocol.md §10.4 `OnNACK`).
    pub fn on_nack(
        &mut self,
        now: Instant,
        nominal_bytes: u32,
        rtt: Option<RttSample>,
        trim: bool,
        inflight_bytes: i64,
    ) {
        if let Some(rtt) = rtt {
            self.update_base(rtt);
        }
        if !trim {
            return;
        }
        // A trimmed packet overtook the queue that cut it: its own round trip says nothing about that.
        self.average
            .feed(self.params.config_base_rtt_ns, now, self.base.rtt_ns());
        self.ignored_bytes = self.ignored_bytes.saturating_add(u64::from(nominal_bytes));
        self.qa_trig = true;
        if !self.quick_adapt(now, true, true, 0, inflight_bytes) {
            self.shrink(u64::from(nominal_bytes));
        }
    }

    /// A packet was declared lost without a NACK (protocol.md §10.4 `OnInferredLoss`).
    pub fn on_inferred_loss(&mut self, nominal_bytes: u32) {
        self.shrink(u64::from(nominal_bytes));
        self.ignored_bytes = self.ignored_bytes.saturating_add(u64::from(nominal_bytes));
    }

    /// A probe of the control class came back: it says how long the way is, and nothing about queues (protocol.md §10.5,
    /// UEC 1.0 §3.6.13.7).
    pub fn on_base_probe(&mut self, rtt: RttSample) {
        self.update_base(rtt);
    }

    /// The speed of the own links has changed: a port went down or came up (protocol.md §10.4).
    pub fn set_link_bps(&mut self, link_bps: u64) {
        self.base.set_link_bps(link_bps, &self.params);
        self.clip();
    }

    /// A controller has changed the profile while it is in use (api.md §4.11). The window stays, within its new limits.
    pub fn set_params(&mut self, params: NsccParams) {
        self.params = params;
        self.base.adopt(&self.params);
        self.cwnd = self.cwnd.max(Fixed::whole(self.params.mtu_bytes));
        self.clip();
    }

    // ---- parts

    /// Returns the round trip of a full packet.
    fn update_base(&mut self, rtt: RttSample) -> u64 {
        let full_ns = self.base.hear(rtt, &self.params);
        self.clip();
        full_ns
    }

    fn clip(&mut self) {
        self.cwnd = self.cwnd.min(Fixed::whole(self.base.max_wnd_bytes()));
    }

    /// The window loses these bytes, but never its last packet.
    fn shrink(&mut self, bytes: u64) {
        self.set_cwnd(self.cwnd.minus(whole(bytes)));
    }

    /// At least one packet.
    fn set_cwnd(&mut self, cwnd: Fixed) {
        self.cwnd = cwnd.max(Fixed::whole(self.params.mtu_bytes));
    }

    /// Every window grows by the same number of bytes per round trip, so small ones catch up.
    fn fair_increase(&mut self, n: u64) {
        self.inc = self.inc.saturating_add(self.params.fi.of(n));
    }

    /// The further from the target, the faster.
    fn proportional_increase(&mut self, n: u64, gap_ns: u64) {
        self.inc = self.inc.saturating_add(self.params.alpha.of(n.saturating_mul(gap_ns)));
    }

    /// protocol.md §10.4 Fast.
    fn fast_increase(&mut self, n: u64, delay_ns: u64) {
        if delay_ns < self.near_zero_ns() {
            self.fi_cnt_bytes = self.fi_cnt_bytes.saturating_add(n);
            if self.fi_cnt_bytes > self.cwnd_bytes() || self.fast {
                self.cwnd = self.cwnd.plus(self.params.fi_scale.times(n));
                self.clip();
                self.fast = true;
                return;
            }
        } else {
            self.fi_cnt_bytes = 0;
        }
        self.fast = false;
    }

    /// Delay that counts as none (protocol.md §10.3, P25).
    fn near_zero_ns(&self) -> u64 {
        US.max(self.base.rtt_ns() / 8)
    }

    /// protocol.md §10.4 Decrease: at most once per round trip, since the effect of one shows only after that.
    fn decrease(&mut self, now: Instant) {
        self.fast = false;
        self.fi_cnt_bytes = 0;
        let Some(excess) = self.average.excess(self.params.target_qdelay_ns) else {
            return;
        };
        if now.since(self.t_dec) > self.base.rtt_ns() {
            let factor = Fixed::ONE.minus(self.params.gamma.mul(excess));
            self.set_cwnd(self.cwnd.mul(factor.max(self.params.max_md_jump)));
            self.t_dec = now;
        }
    }

    /// protocol.md §10.4 Apply. While the responder asks for less nothing grows (§11), `eta` included.
    fn apply(&mut self, now: Instant, limited: bool) {
        let periodic = now.since(self.t_adj) >= self.params.adjust_period_ns;
        if periodic {
            self.t_adj = now;
        }
        if !limited {
            self.cwnd = self.cwnd.plus(Fixed::quotient(self.inc, self.cwnd));
            if periodic {
                self.cwnd = self.cwnd.plus(self.params.eta);
            }
            self.clip();
        }
        self.restart();
    }

    fn restart(&mut self) {
        self.inc = 0;
        self.recv_bytes = 0;
    }

    /// protocol.md §10.4 `QuickAdapt`: far too little arrives, so the window becomes what did arrive. True: nothing else is
    /// to be done with this event.
    fn quick_adapt(&mut self, now: Instant, loss: bool, ce: bool, delay_ns: u64, inflight_bytes: i64) -> bool {
        if self.params.disable_qa {
            return false;
        }
        // Marks of packets that were in flight at the last jump speak of the window before it.
        let stale = ce && self.ignored_bytes < self.ign_target_bytes;
        let mut adapted = false;
        if !stale && self.qa_end.is_none_or(|end| now >= end) {
            let asked = self.qa_trig || loss || self.params.qa_threshold_ns.is_some_and(|limit| delay_ns > limit);
            let starved = self.achieved_bytes < self.max_wnd_bytes() >> self.params.qa_gate;
            if self.qa_end.is_some() && asked && starved {
                self.set_cwnd(whole(self.achieved_bytes));
                self.ign_target_bytes = inflight_bytes.max(0).cast_unsigned();
                self.ignored_bytes = 0;
                self.qa_trig = false;
                adapted = true;
            }
            self.achieved_bytes = 0;
            self.qa_end = Some(now + self.base.rtt_ns() + self.params.target_qdelay_ns);
        }
        if stale || adapted {
            self.restart();
        }
        stale || adapted
    }

    /// protocol.md §11 `ApplyPenalty` (MRC 1.0 §7.5.1): the responder cannot keep up. True: it asks for less at present.
    ///
    /// A window that was not used is given up first. It is compared with what was in flight *before* this SACK: compared
    /// with what is left after it, every penalty, however small, would close the window within a round trip, and 64 could
    /// not mean half.
    fn apply_penalty(&mut self, penalty: Penalty, n: u64, inflight_bytes: i64) -> bool {
        if penalty.rcv_cwnd_pen == 0 {
            if let Some(saved) = self.saved.take().filter(|_| penalty.rc) {
                self.cwnd = saved;
                self.clip();
            }
            return false;
        }
        self.saved.get_or_insert(self.cwnd);
        let used = inflight_bytes.max(0).cast_unsigned().saturating_add(n);
        let cut = u64::from(penalty.rcv_cwnd_pen.min(127)).saturating_mul(n) >> 7;
        self.set_cwnd(self.cwnd.min(whole(used)).minus(whole(cut)));
        true
    }
}

fn whole(bytes: u64) -> Fixed {
    Fixed::whole(u32::try_from(bytes).unwrap_or(u32::MAX))
}
