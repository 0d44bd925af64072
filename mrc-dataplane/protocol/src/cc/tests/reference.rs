//! NSCC a second time: in floating point, slow, written from protocol.md §10.3, §10.4 and §11 in the order of the text.

use crate::cc::Network;

#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) mtu: f64,
    pub(super) config_base_rtt: f64,
    pub(super) linkspeed: f64,
    pub(super) max_wnd: f64,
    pub(super) target: f64,
    pub(super) alpha: f64,
    pub(super) fi: f64,
    pub(super) fi_scale: f64,
    pub(super) eta: f64,
    pub(super) gamma: f64,
    pub(super) max_md_jump: f64,
    pub(super) qa_gate: u32,
    pub(super) qa_threshold: f64,
    pub(super) adjust_bytes: f64,
    pub(super) adjust_period: f64,
    pub(super) ns_per_byte: f64,
}

impl Numbers {
    /// The table of §10.3, from top to bottom.
    pub(super) fn new(network: &Network) -> Self {
        let mtu = f64::from(network.mtu_bytes);
        let config_base_rtt = network.config_base_rtt_ns() as f64;
        let own = network.link_bps as f64 / 8.0;
        let peer = network.peer_bps.map_or(own, |bps| bps as f64 / 8.0);
        let linkspeed = own.min(peer) / 1e9;
        let bdp = linkspeed * config_base_rtt;
        let target = if network.trimming { 0.75 } else { 1.0 } * config_base_rtt;
        let a = bdp / 150_000.0;
        let b = target / 12_000.0;
        Self {
            mtu,
            config_base_rtt,
            linkspeed,
            max_wnd: 1.5 * bdp,
            target,
            alpha: 4.0 * a * b * mtu / target,
            fi: 5.0 * mtu * a,
            fi_scale: 0.25 * a,
            eta: 0.15 * mtu * a,
            gamma: 0.8,
            max_md_jump: 0.5,
            qa_gate: 3,
            qa_threshold: if network.trimming { f64::INFINITY } else { 4.0 * target },
            adjust_bytes: 8.0 * mtu,
            adjust_period: config_base_rtt,
            ns_per_byte: f64::from(network.path_links) * 8e9 / network.path_bps as f64,
        }
    }
}

/// §10.2.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    p: Numbers,
    linkspeed: f64,
    pub(super) cwnd: f64,
    pub(super) inflight: f64,
    pub(super) max_wnd: f64,
    pub(super) base_rtt: f64,
    inc: f64,
    recv: f64,
    t_adj: f64,
    t_dec: f64,
    pub(super) fast: bool,
    fi_cnt: f64,
    achieved: f64,
    qa_end: f64,
    qa_trig: bool,
    ign_target: f64,
    ignored: f64,
    pub(super) saved: f64,
    pub(super) avg_delay: f64,
    t_last: f64,
}

impl Reference {
    pub(super) fn new(p: Numbers, now: f64) -> Self {
        Self {
            linkspeed: p.linkspeed,
            cwnd: p.max_wnd.max(p.mtu),
            inflight: 0.0,
            max_wnd: p.max_wnd.max(p.mtu),
            base_rtt: p.config_base_rtt,
            inc: 0.0,
            recv: 0.0,
            t_adj: now,
            t_dec: now,
            fast: false,
            fi_cnt: 0.0,
            achieved: 0.0,
            qa_end: 0.0,
            qa_trig: false,
            ign_target: 0.0,
            ignored: 0.0,
            saved: 0.0,
            avg_delay: 0.0,
            t_last: now,
            p,
        }
    }

    pub(super) fn on_send(&mut self, s: f64) {
        self.inflight += s;
    }

    #[expect(clippy::too_many_arguments, reason = "as in the text")]
    pub(super) fn on_ack(
        &mut self,
        now: f64,
        n: f64,
        late: f64,
        ce: bool,
        rtt: Option<(f64, f64)>,
        pen: f64,
        rc: bool,
    ) {
        // 1
        self.inflight -= n;
        self.ignored += n;
        self.recv += n;
        self.achieved += n + late;
        // 2
        let limited = self.apply_penalty(pen, rc, n);
        // 3
        let Some((rtt, bytes)) = rtt else { return };
        // 4
        let rtt = self.update_base(rtt, bytes);
        let d = (rtt - self.base_rtt).max(0.0);
        self.feed(d, now);
        // 5
        if self.quick_adapt(now, false, ce, d) {
            return;
        }
        // 6
        if !ce && d >= self.p.target && !limited {
            self.inc += self.p.fi * n;
        }
        if !ce && d < self.p.target && !limited {
            self.fast(n, d);
            if !self.fast {
                self.inc += self.p.alpha * n * (self.p.target - d);
            }
        }
        if ce && d >= self.p.target {
            self.decrease(now);
        }
        // 7
        if now - self.t_adj >= self.p.adjust_period || self.recv > self.p.adjust_bytes {
            self.apply(now, limited);
        }
    }

    fn apply(&mut self, now: f64, limited: bool) {
        // §11: increases are suppressed while limited.
        if !limited {
            self.cwnd += self.inc / self.cwnd;
        }
        if now - self.t_adj >= self.p.adjust_period {
            self.t_adj = now;
            if !limited {
                self.cwnd += self.p.eta;
            }
        }
        self.cwnd = self.cwnd.min(self.max_wnd);
        self.inc = 0.0;
        self.recv = 0.0;
    }

    fn fast(&mut self, n: f64, d: f64) {
        let near_zero = (self.base_rtt / 8.0).floor().max(1000.0);
        if d < near_zero {
            self.fi_cnt += n;
            if self.fi_cnt > self.cwnd || self.fast {
                self.cwnd = (self.cwnd + n * self.p.fi_scale).min(self.max_wnd);
                self.fast = true;
                return;
            }
        }
        if d >= near_zero {
            self.fi_cnt = 0.0;
        }
        self.fast = false;
    }

    fn decrease(&mut self, now: f64) {
        self.fast = false;
        self.fi_cnt = 0.0;
        let (avg, target) = (self.avg_delay, self.p.target);
        if avg > target && now - self.t_dec > self.base_rtt {
            let factor = (1.0 - self.p.gamma * (avg - target) / avg).max(self.p.max_md_jump);
            self.cwnd = (self.cwnd * factor).max(self.p.mtu);
            self.t_dec = now;
        }
    }

    fn quick_adapt(&mut self, now: f64, loss: bool, ce: bool, d: f64) -> bool {
        let mut result = false;
        if self.ignored < self.ign_target && ce {
            result = true;
        } else if now >= self.qa_end {
            let gate = ((self.max_wnd as u64) >> self.p.qa_gate) as f64;
            if self.qa_end != 0.0 && (self.qa_trig || loss || d > self.p.qa_threshold) && self.achieved < gate {
                self.cwnd = self.achieved.max(self.p.mtu);
                self.ign_target = self.inflight;
                self.ignored = 0.0;
                self.qa_trig = false;
                result = true;
            }
            self.achieved = 0.0;
            self.qa_end = now + self.base_rtt + self.p.target;
        }
        if result {
            self.inc = 0.0;
            self.recv = 0.0;
        }
        result
    }

    pub(super) fn on_nack(&mut self, now: f64, s: f64, rtt: Option<(f64, f64)>, trim: bool) {
        self.inflight -= s;
        if let Some((rtt, bytes)) = rtt {
            self.update_base(rtt, bytes);
        }
        if trim {
            self.feed(self.p.config_base_rtt, now);
            self.ignored += s;
            self.qa_trig = true;
            if !self.quick_adapt(now, true, true, 0.0) {
                self.cwnd = (self.cwnd - s).max(self.p.mtu);
            }
        }
    }

    pub(super) fn on_inferred_loss(&mut self, s: f64) {
        self.cwnd = (self.cwnd - s).max(self.p.mtu);
        self.ignored += s;
        self.inflight -= s;
    }

    pub(super) fn update_base(&mut self, r: f64, bytes: f64) -> f64 {
        let r = r + ((self.p.mtu - bytes).max(0.0) * self.p.ns_per_byte).round();
        let bounded = r.max((self.p.config_base_rtt / 2.0).floor());
        if bounded < self.base_rtt {
            self.base_rtt = bounded;
            self.resize();
        }
        r
    }

    pub(super) fn set_linkspeed(&mut self, bytes_per_ns: f64) {
        self.linkspeed = bytes_per_ns;
        self.resize();
    }

    fn resize(&mut self) {
        self.max_wnd = (1.5 * self.linkspeed * self.base_rtt).max(self.p.mtu);
        self.cwnd = self.cwnd.min(self.max_wnd);
    }

    fn feed(&mut self, d: f64, now: f64) {
        let w = ((now - self.t_last) / self.base_rtt).min(1.0);
        self.avg_delay += w * (d - self.avg_delay);
        self.t_last = now;
    }

    /// §11, where the window is compared with what was in flight when the SACK arrived.
    fn apply_penalty(&mut self, pen: f64, rc: bool, n: f64) -> bool {
        if pen > 0.0 {
            if self.saved == 0.0 {
                self.saved = self.cwnd;
            }
            self.cwnd = self.cwnd.min(self.inflight.max(0.0) + n);
            self.cwnd = (self.cwnd - (pen * n / 128.0).floor()).max(self.p.mtu);
            return true;
        }
        if rc && self.saved > 0.0 {
            self.cwnd = self.saved.min(self.max_wnd);
        }
        self.saved = 0.0;
        false
    }
}
