//! When a packet counts as lost, and what follows (protocol.md §5.6).

use mrc_wire::{CcState, Psn, Seth};

use super::table::Table;
use super::{Env, Requestor};
use crate::path::{EvIndex, Happening, Reason};
use crate::time::Instant;

/// Rule A's view of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    /// Send time of the newest copy on this path that was acknowledged.
    acked_sent: Instant,
    /// From `due` on, what was sent on this path before `before` is lost. Zero: nothing is suspected.
    before: Instant,
    due: Instant,
}

impl Lane {
    fn is_marked(&self) -> bool {
        self.due > Instant::ZERO
    }
}

impl Requestor {
    /// A copy that was sent at `sent` on this path arrived. If earlier ones are still missing, they have a short time.
    pub(super) fn note_delivery(&mut self, ev: EvIndex, sent: Instant, env: &mut Env<'_>) {
        let lane = &mut self.lanes[usize::from(ev)];
        if sent <= lane.acked_sent {
            return;
        }
        lane.acked_sent = sent;
        if !lane.is_marked() {
            self.mark(ev, env);
        }
    }

    fn mark(&mut self, ev: EvIndex, env: &mut Env<'_>) {
        let lane = self.lanes[usize::from(ev)];
        let Some(head) = self.table.lane_head(ev, self.unack_psn) else {
            return;
        };
        if self.table.record(head).sent >= lane.acked_sent {
            return;
        }
        // In the order of time, even when the round trip shrinks meanwhile.
        let last = self
            .marks
            .back()
            .map_or(Instant::ZERO, |&ev| self.lanes[usize::from(ev)].due);
        let due = (env.now + self.reo.same_path_ns(&self.rtt, env.cc)).max(last);
        let lane = &mut self.lanes[usize::from(ev)];
        (lane.before, lane.due) = (lane.acked_sent, due);
        self.marks.push_back(ev);
    }

    /// Rules A and B, if SACKs came since they were looked at. To be called when a batch of packets has been handled.
    pub(crate) fn detect_losses(&mut self, env: &mut Env<'_>) {
        if core::mem::take(&mut self.waits.detection) {
            self.detect_late(env);
            self.handle_marks(env);
            self.review(env);
        }
    }

    /// Rule A: one path keeps order.
    pub(super) fn handle_marks(&mut self, env: &mut Env<'_>) {
        while let Some(&ev) = self.marks.front() {
            let Lane { before, due, .. } = self.lanes[usize::from(ev)];
            if due > env.now {
                return;
            }
            self.marks.pop_front();
            self.lanes[usize::from(ev)].due = Instant::ZERO;
            while let Some(psn) = self.table.lane_head(ev, self.unack_psn)
                && self.table.record(psn).sent < before
            {
                self.infer_lost(psn, Reason::Lost, env);
                env.stats.losses_same_path += 1;
            }
            // Newer deliveries may have come since: those between get the same time.
            self.mark(ev, env);
        }
    }

    pub(super) fn next_mark(&self) -> Option<Instant> {
        self.marks.front().map(|&ev| self.lanes[usize::from(ev)].due)
    }

    /// Rule B: other paths may be slower, but not by more than `reo_wnd`.
    pub(super) fn detect_late(&mut self, env: &mut Env<'_>) {
        let Some(newest) = self.newest_acked else { return };
        let wnd_ns = self.reo.wnd_ns(&self.rtt, env.cc);
        let late = |table: &Table, unack_psn| {
            table
                .oldest(unack_psn)
                .map(|(_, psn)| psn)
                .find(|&psn| table.record(psn).sent + wnd_ns < newest)
        };
        while let Some(psn) = late(&self.table, self.unack_psn) {
            self.infer_lost(psn, Reason::Lost, env);
            env.stats.losses_late += 1;
        }
    }

    /// Rule C: the answer to a probe shows the responder later than the limit of reordering allows.
    pub(super) fn detect_unseen(
        &mut self,
        probe_sent: Instant,
        seth: &Seth,
        state: Option<&CcState>,
        env: &mut Env<'_>,
    ) {
        let wnd_ns = self.reo.wnd_ns(&self.rtt, env.cc);
        let base = seth.bitmap_base();
        // Bits of PSNs above cack_psn.
        let at_or_below = seth.cack_psn.diff(base) + 1;
        let above = match at_or_below {
            64.. => 0,
            1..64 => seth.sack_bitmap >> at_or_below,
            _ => seth.sack_bitmap,
        };
        // Then nothing was received beyond the bitmap either.
        let shows_all = state.is_some_and(|state| {
            state.ooo_count < CcState::MAX_OOO_COUNT && u32::from(state.ooo_count) == above.count_ones()
        });
        let absent = |psn: Psn| match psn.diff(base) {
            0..64 => true,
            64.. => shows_all,
            _ => false,
        };
        for class in 0..crate::time::BACKOFF_CLASSES {
            let mut at = self.table.oldest_of(class, self.unack_psn);
            while let Some(psn) = at {
                if self.table.record(psn).sent + wnd_ns >= probe_sent {
                    break;
                }
                at = self.table.after(psn, self.unack_psn);
                if absent(psn) {
                    self.infer_lost(psn, Reason::Lost, env);
                    env.stats.losses_unseen += 1;
                }
            }
        }
    }

    /// Queued for retransmission.
    pub(super) fn infer_lost(&mut self, psn: Psn, reason: Reason, env: &mut Env<'_>) {
        let bytes = self.leave(psn, env);
        let record = *self.table.record(psn);
        self.table.detach(psn);
        self.table.lose(psn);
        let changed = self.table.record_mut(psn);
        changed.set_inferred_lost();
        if reason == Reason::Timeout {
            changed.timeouts = changed.timeouts.saturating_add(1);
            changed.set_suspect();
            env.stats.timeouts += 1;
        } else {
            changed.timeouts = 0;
            env.stats.losses_inferred += 1;
        }
        env.cc.on_inferred_loss(env.now, bytes);
        if reason != Reason::Timeout {
            self.blame(record.ev, record.sent, reason, env);
        }
    }

    /// The path of a lost copy gets the blame, unless there is a better explanation: a port was down, or we ourselves were
    /// away. Away for a good part of the time, that is: on a host whose cores are shared, every long wait has short absences
    /// in it, and a dead path would never be found out.
    ///
    /// Of a timeout it gets it when the packet is sent again: what is acknowledged before was only late.
    pub(super) fn blame(&self, ev: EvIndex, sent: Instant, reason: Reason, env: &mut Env<'_>) {
        if env.excuses(ev, sent) {
            return;
        }
        let rtt_ns = self.rtt.srtt_ns(env.cc);
        env.paths.handle(ev, Happening::Loss, reason, env.now, rtt_ns);
    }
}

impl Env<'_> {
    /// Is there a better explanation for the loss of something sent at `sent` than its path?
    pub(super) fn excuses(&self, ev: EvIndex, sent: Instant) -> bool {
        let stalled = 2 * self.stalls.since(sent) >= self.now.since(sent);
        stalled || self.paths.was_down_since(ev, sent)
    }
}
