//! Timers of the requestor: rule E, the retry budget, the missing Transport ACK, and having no path (protocol.md §5.7,
//! §5.8, §8.3).

use mrc_wire::Psn;

use super::probe::Purpose;
use super::{Env, Failure, Requestor};
use crate::path::{Happening, PathSet, Reason};
use crate::stats::QpStats;
use crate::time::{Instant, MS, SEC, ack_timeout_ns, backoff_class, doubled_ns, earlier};
use crate::work::Status;

/// Packets that may be sent again after their timeout before anything is heard: enough to find out whether the peer lives.
const CAUTIOUS_PACKETS: u32 = 16;

/// What is waited for besides packets in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// The Transport ACK of delivered packets (P9).
    pub(super) ack: Option<AckWait>,
    /// A probe for it should go out.
    pub(super) probe: bool,
    /// The highest PSN should go out again for it.
    pub(super) resend: bool,
    /// After timeouts: how many more of the timed-out packets may be sent again. They may only be late, and a second copy on
    /// top of each would make everything later still.
    pub(super) caution: Option<u32>,
    /// SACKs came: rules A and B are to be looked at when the batch is complete.
    pub(super) detection: bool,
    /// Any eligible path.
    is_blocked: bool,
    blocked: Option<Blocked>,
    /// Deadlock guard: when it opens, and whether it has.
    pub(super) guard: Option<Instant>,
    pub(super) guard_open: bool,
    /// A path at the floor of the active set may be used again.
    pub(super) floor: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AckWait {
    tack_psn: Psn,
    unack_psn: Psn,
    /// The local ACK timeout ends the patience with probes.
    t0_ends: Option<Instant>,
    due: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Probes(u8),
    Resends,
}

#[derive(Clone, Copy, Debug)]
struct Blocked {
    due: Instant,
}

/// Pace of resends for the Transport ACK when the local ACK timeout is disabled.
const RESEND_WITHOUT_TIMEOUT_NS: u64 = SEC;

impl Requestor {
    /// Does what is due; the retry budget may end here.
    pub(crate) fn handle_timeout(&mut self, env: &mut Env<'_>) -> Option<Failure> {
        self.detect_losses(env);
        let mut failed = self.expire_packets(env);
        self.handle_marks(env);
        while let Some((_, psn)) = self
            .table
            .next_delayed(self.unack_psn, env.now)
            .filter(|&(at, _)| at <= env.now)
        {
            self.table.detach(psn);
            self.table.lose(psn);
        }
        while let Some(probe) = self.probes.poll_lost(env.now) {
            match probe.purpose {
                Purpose::Check => env.paths.handle(
                    probe.ev,
                    Happening::ProbeLost,
                    Reason::Lost,
                    env.now,
                    self.rtt.srtt_ns(env.cc),
                ),
                Purpose::Tail => self.lost_tail_probe(&probe, env),
                Purpose::TransportAck | Purpose::BaseRtt => {}
            }
        }
        env.paths.handle_check_timeout(env.now);
        self.handle_tail(env.now);
        failed |= self.handle_ack_wait(env);
        failed |= self.handle_blocked(env.now);
        if self.waits.guard.is_some_and(|at| at <= env.now) {
            self.waits.guard = None;
            self.waits.guard_open = true;
        }
        self.waits.floor = self.waits.floor.filter(|&at| at > env.now);
        let failure = if failed { self.count_failure(env.now) } else { None };
        self.review(env);
        failure
    }

    pub(crate) fn next_timeout(&self, paths: &PathSet, now: Instant) -> Option<Instant> {
        let deadlines = self
            .table
            .oldest(self.unack_psn)
            .filter_map(|(class, psn)| self.deadline(class, psn))
            .min();
        [
            deadlines,
            self.next_mark(),
            self.table.next_delayed(self.unack_psn, now).map(|(at, _)| at),
            self.probes.next_due(),
            self.next_tail_probe(),
            paths.next_check(),
            self.waits.ack.map(|wait| wait.due),
            self.waits.blocked.map(|blocked| blocked.due),
            self.waits.guard,
            self.waits.floor,
        ]
        .into_iter()
        .fold(None, earlier)
    }

    fn deadline(&self, class: usize, psn: Psn) -> Option<Instant> {
        Some(self.table.record(psn).sent + doubled_ns(self.t0_ns()?, class as u32))
    }

    /// Rule E. The backoff belongs to the packet.
    fn expire_packets(&mut self, env: &mut Env<'_>) -> bool {
        let mut any = false;
        while let Some(psn) = self.expired(env.now) {
            self.infer_lost(psn, Reason::Timeout, env);
            any = true;
        }
        if any && self.waits.caution.is_none() {
            self.waits.caution = Some(CAUTIOUS_PACKETS);
        }
        any
    }

    fn expired(&self, now: Instant) -> Option<Psn> {
        let is_due = |class, psn| self.deadline(class, psn).is_some_and(|at| at <= now);
        self.table
            .oldest(self.unack_psn)
            .find(|&(class, psn)| is_due(class, psn))
            .map(|(_, psn)| psn)
    }

    /// T0, or longer where round trips are longer: a host that queues must not send everything twice. At most four times T0,
    /// as verbs permit, so that the retry budget stays one. `None` = disabled.
    pub(super) fn t0_ns(&self) -> Option<u64> {
        let t0_ns = self.configured_t0_ns()?;
        Some(self.rtt.longest_ns().clamp(t0_ns, 4 * t0_ns))
    }

    /// T0 as in protocol.md §4; `None` = disabled.
    pub(super) fn configured_t0_ns(&self) -> Option<u64> {
        ack_timeout_ns(self.limits.retry.timeout, 0, 0)
    }

    /// The timeout after `k` of them in a row.
    fn timeout_ns(&self, k: u32) -> Option<u64> {
        Some(doubled_ns(
            self.t0_ns()?,
            backoff_class(k, self.limits.retry.linear_cnt),
        ))
    }

    /// A recoverable failure: R grows, as if it counted the timeouts of one packet: not before its next timeout (P3).
    /// Eight of them with the defaults take 65 T0.
    pub(super) fn count_failure(&mut self, now: Instant) -> Option<Failure> {
        const WITHOUT_TIMEOUT_NS: u64 = 1024 << 14;
        let spacing_ns = self.timeout_ns(self.retries).unwrap_or(WITHOUT_TIMEOUT_NS);
        if self.retried_at.is_some_and(|at| now.since(at) < spacing_ns) {
            return None;
        }
        self.retried_at = Some(now);
        self.retries += 1;
        let retry = self.limits.retry;
        let limit = u32::from(retry.linear_cnt) + u32::from(retry.exp_cnt);
        // 25 = for ever.
        if retry.exp_cnt >= 25 || self.retries < limit {
            return None;
        }
        Some(Failure {
            culprit: self.queue.oldest().map(|counter| (counter, Status::RetryExceeded)),
        })
    }

    /// To be called after every change: begins and ends waiting.
    pub(super) fn review(&mut self, env: &mut Env<'_>) {
        let missing = self.tack_psn != self.max_psn_sent() && self.all_acked();
        let same = |wait: &AckWait| wait.tack_psn == self.tack_psn && wait.unack_psn == self.unack_psn;
        if !missing {
            self.waits.ack = None;
        } else if !self.waits.ack.as_ref().is_some_and(same) {
            let t0_ends = self.t0_ns().map(|t0_ns| env.now + t0_ns);
            let due = env.now + self.rtt.transport_ack_wait_ns(env.cc);
            self.waits.ack = Some(AckWait {
                tack_psn: self.tack_psn,
                unack_psn: self.unack_psn,
                t0_ends,
                due: t0_ends.map_or(due, |end| end.min(due)),
                stage: Stage::Probes(0),
            });
            (self.waits.probe, self.waits.resend) = (false, false);
        }
        if self.waits.ack.is_none() {
            (self.waits.probe, self.waits.resend) = (false, false);
        }
        // A new try when the last one has ended, however it did: only what is in flight can bring more.
        if self.waits.caution == Some(0) && !self.table.any_in_flight() {
            self.waits.caution = Some(CAUTIOUS_PACKETS);
        }
        self.review_paths(env.paths, env.now, env.stats);
    }

    /// Have SACKs acknowledged everything that the window lets out (§5.8)? Cumulatively; or bit by bit, by somebody who does not
    /// hold to it: then nothing else may be left to wait for, and the missing Transport ACK must end it (§14 "forged SACK").
    fn all_acked(&self) -> bool {
        let first = self.unack_psn.next();
        !self.table.any_open(first, self.last_in_window().next())
    }

    /// The highest PSN that was sent and is inside the window.
    pub(super) fn last_in_window(&self) -> Psn {
        let last = self.unack_psn.add(self.limits.window);
        let max = self.max_psn_sent();
        if last.diff(max) < 0 { last } else { max }
    }

    /// The same for what depends on the paths only.
    pub(crate) fn review_paths(&mut self, paths: &PathSet, now: Instant, stats: &mut QpStats) {
        let blocked = (self.has_data() || self.waits.resend) && !paths.any_eligible();
        if !blocked {
            self.waits.is_blocked = false;
            self.waits.blocked = None;
            self.waits.guard = None;
            self.waits.guard_open = false;
            return;
        }
        stats.blocked += u64::from(!core::mem::replace(&mut self.waits.is_blocked, true));
        if self.waits.blocked.is_none()
            && let Some(t0_ns) = self.t0_ns()
        {
            self.waits.blocked = Some(Blocked { due: now + t0_ns });
        }
        // P23: retransmissions only, and only if some port works.
        if self.table.lost_count() == 0 || paths.usable().is_empty() {
            self.waits.guard = None;
            self.waits.guard_open = false;
        } else if self.waits.guard.is_none() && !self.waits.guard_open {
            self.waits.guard = Some(now + self.guard_ns());
        }
    }

    /// T0 / 2.
    pub(super) fn guard_ns(&self) -> u64 {
        self.configured_t0_ns().map_or(10 * MS, |t0_ns| t0_ns / 2)
    }

    /// No path at all for another timeout: that uses up the retry budget as a packet's timeouts would.
    fn handle_blocked(&mut self, now: Instant) -> bool {
        if self.waits.blocked.is_none_or(|blocked| blocked.due > now) {
            return false;
        }
        self.waits.blocked = self.timeout_ns(self.retries + 1).map(|ns| Blocked { due: now + ns });
        true
    }

    /// P9: two probes, then the highest PSN again and again. True if that counts as a timeout.
    fn handle_ack_wait(&mut self, env: &mut Env<'_>) -> bool {
        let probe_ns = self.rtt.probe_timeout_ns(env.cc);
        let next_ns = self.timeout_ns(self.retries + 1);
        let now = env.now;
        let Some(wait) = self.waits.ack.as_mut().filter(|wait| wait.due <= now) else {
            return false;
        };
        // What still waits for room on the link has not been tried, so it has not failed. Without a path there will be no room.
        if (self.waits.probe || self.waits.resend) && env.paths.any_eligible() {
            wait.due = now + probe_ns;
            return false;
        }
        let t0_over = wait.t0_ends.is_some_and(|end| end <= now);
        match wait.stage {
            Stage::Probes(sent) if sent < 2 && !t0_over => {
                wait.stage = Stage::Probes(sent + 1);
                let due = now + probe_ns;
                wait.due = wait.t0_ends.map_or(due, |end| end.min(due));
                self.waits.probe = true;
                return false;
            }
            Stage::Probes(_) | Stage::Resends => wait.stage = Stage::Resends,
        }
        wait.due = now + next_ns.unwrap_or(RESEND_WITHOUT_TIMEOUT_NS);
        self.waits.probe = false;
        self.waits.resend = true;
        next_ns.is_some()
    }
}
