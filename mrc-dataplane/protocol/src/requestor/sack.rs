//! A SACK arrives: what was received, what that says about the path, the round trip, and losses (protocol.md §5.5).

use mrc_wire::{CcState, Opcode, PathVerdict, Psn, Seth, Tick};

use super::probe::{Probe, Purpose};
use super::queue::Segment;
use super::table::{Record, State};
use super::{Env, Requestor};
use crate::cc::{AckSample, Penalty, RttSample};
use crate::path::{EvIndex, Happening, Reason};
use crate::time::{Instant, MS};
use crate::work::DropReason;

/// What one SACK or Transport ACK acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Nominal bytes that were in flight.
    newly_acked_bytes: u64,
    /// Nominal bytes that had been declared lost.
    late_bytes: u64,
    packets: u32,
    spurious: bool,
}

/// Which copy of a packet was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Copy {
    /// When it was sent, or an earlier copy if that is not known.
    sent: Instant,
    /// It was the last one: the record's path and time are its own.
    is_last: bool,
}

/// What the SACK tells about the packet that triggered it.
#[derive(Clone, Copy, Debug)]
struct Echo {
    rtx: bool,
    /// 0 if there is none.
    tx_timestamp: Tick,
    /// Later than it was sent, by the peer's service time (§6.9).
    may_be_late: bool,
}

impl Echo {
    /// Can the stamp be that of a copy sent at `sent`?
    fn fits(self, sent: Instant, now: Instant) -> bool {
        let late_ns = u64::from(sent.tick().elapsed_ns(self.tx_timestamp));
        late_ns == 0 || self.may_be_late && late_ns <= now.since(sent)
    }
}

impl Requestor {
    pub(crate) fn on_sack(
        &mut self,
        rtx: bool,
        seth: &Seth,
        state: Option<&CcState>,
        env: &mut Env<'_>,
    ) -> Result<(), DropReason> {
        self.check_plausible(seth)?;
        env.stats.sacks_received += 1;
        self.hear_window(seth, state);
        let echo = Echo {
            rtx,
            may_be_late: self.conn.peer_svc_time,
            tx_timestamp: state.map_or(Tick(0), |state| state.tx_timestamp),
        };
        let trigger = seth.trigger_psn().and_then(|psn| Some((psn, self.known(psn)?)));
        // Its request may be gone once everything is acknowledged.
        let trigger_bytes = trigger.and_then(|(psn, _)| self.known_bytes(psn));
        let mut tally = Tally::default();

        // Step 2. The trigger first: for it alone it is known which copy arrived.
        if let Some((psn, _)) = trigger {
            self.acknowledge(psn, Some(echo), &mut tally, env);
        }
        self.acknowledge_bitmap(seth, &mut tally, env);
        // Step 3.
        self.acknowledge_up_to(seth.cack_psn, &mut tally, env);

        // Step 5, §9.1.
        let probe = seth.probe_id().and_then(|id| self.probes.take(id));
        let other_part = seth.probe_id().and_then(|id| self.probes.answered(id));
        let last_copy = trigger.filter(|(_, record)| copy_of(record, Some(echo), env.now).is_last);
        let in_time = probe.filter(|probe| !probe.is_lost);
        let hint = probe.map(|probe| probe.ev).or(last_copy.map(|(_, record)| record.ev));
        let named = match in_time {
            Some(probe) => Some(probe.ev),
            None => env.paths.lookup(seth.entropy, hint),
        };
        if let Some(ev) = named {
            self.judge(ev, seth.m, in_time.is_some(), env);
            // §6.10: the packet arrived on it, so control packets will.
            env.paths.confirm(ev, env.now);
        }
        // Step 6.
        let sent = probe
            .map(|probe| probe.sent)
            .or(last_copy.map(|(_, record)| record.sent));
        let rtt_ns = sent
            .filter(|&sent| !self.slept_through(sent, env))
            .and_then(|sent| round_trip(sent, echo.tx_timestamp, env.now));
        let bytes = if probe.is_some() {
            Some(Probe::NOMINAL_BYTES)
        } else {
            trigger_bytes
        };
        let mut rtt = rtt_ns.zip(bytes).map(|(ns, bytes)| RttSample { ns, bytes });
        // Of the control class: it overtakes what waits, and speaks of the length of the way only (§10.5).
        let overtook = probe.is_some_and(|probe| probe.purpose == Purpose::BaseRtt);
        if overtook {
            if let Some(rtt) = rtt.take() {
                env.cc.on_base_probe(rtt);
            }
        } else if let Some(rtt_ns) = rtt_ns {
            self.rtt.sample(rtt_ns);
        }
        // Step 7.
        let ce = seth.m == PathVerdict::SkipOnce;
        env.stats.marks_received += u64::from(ce);
        self.feed_congestion_control(&tally, ce, rtt, state, env);
        // Step 8. Rules A and B wait for the rest of the batch: the SACK of an older packet may be behind this one.
        // Further parts of an answer are no verdict and no round trip, but as good a snapshot.
        let snapshot = other_part.filter(|probe| probe.purpose != Purpose::BaseRtt);
        if let Some(probe) = snapshot {
            self.detect_unseen(probe.sent, seth, state, env);
        }
        self.tail.heard(env.now);
        self.waits.detection = true;
        self.review(env);
        Ok(())
    }

    /// Was the own engine away for most of the time since then, and for longer than a timeout may stretch (four T0)? What
    /// that took is no round trip (§10.5), and timers must not follow it. Shorter absences are part of round trips: on a busy
    /// host they come again.
    fn slept_through(&self, sent: Instant, env: &Env<'_>) -> bool {
        let away_ns = env.stalls.since(sent);
        away_ns >= 8 * self.guard_ns() && 2 * away_ns >= env.now.since(sent)
    }

    /// Step 1, §14: nothing that was never sent.
    fn check_plausible(&self, seth: &Seth) -> Result<(), DropReason> {
        let max = self.max_psn_sent();
        let beyond = |psn: Psn| psn.diff(max) > 0;
        let highest_bit = 63_u32.checked_sub(seth.sack_bitmap.leading_zeros());
        if beyond(seth.cack_psn)
            || highest_bit.is_some_and(|bit| beyond(seth.bitmap_base().add(bit)))
            || seth.trigger_psn().is_some_and(beyond)
        {
            return Err(DropReason::Implausible);
        }
        Ok(())
    }

    /// The record of a PSN, if it was sent and its place was not used again.
    fn known(&self, psn: Psn) -> Option<Record> {
        let age = self.next_psn.diff(psn);
        let record = self.table.record(psn);
        (age > 0 && age <= self.table.size() as i32 && record.copies() > 0).then_some(*record)
    }

    /// Nominal bytes of a packet whose request is still there: no Transport ACK covers it.
    fn known_bytes(&self, psn: Psn) -> Option<u32> {
        (psn.diff(self.tack_psn) > 0).then(|| self.nominal_bytes(psn))
    }

    fn acknowledge_bitmap(&mut self, seth: &Seth, tally: &mut Tally, env: &mut Env<'_>) {
        // Shifted so that bit 0 is the first PSN that may be outstanding: the offset may be 0 or negative.
        let first = self.unack_psn.next();
        let below = first.diff(seth.bitmap_base());
        let (base, bitmap) = match below {
            64.. => return,
            1..64 => (first, seth.sack_bitmap >> below),
            _ => (seth.bitmap_base(), seth.sack_bitmap),
        };
        let mut news = bitmap & self.table.open_window(base);
        while news != 0 {
            let psn = base.add(news.trailing_zeros());
            news &= news - 1;
            self.acknowledge(psn, None, tally, env);
        }
    }

    /// Everything up to `psn` was received.
    pub(super) fn acknowledge_up_to(&mut self, psn: Psn, tally: &mut Tally, env: &mut Env<'_>) {
        if psn.diff(self.unack_psn) <= 0 {
            return;
        }
        while self.unack_psn != psn {
            self.acknowledge(self.unack_psn.next(), None, tally, env);
            self.unack_psn = self.unack_psn.next();
        }
        self.retries = 0;
    }

    /// Steps 2 and 4 for one PSN.
    fn acknowledge(&mut self, psn: Psn, echo: Option<Echo>, tally: &mut Tally, env: &mut Env<'_>) {
        if !self.is_outstanding(psn) {
            return;
        }
        let bytes = self.leave(psn, env);
        let record = *self.table.record(psn);
        let copy = copy_of(&record, echo, env.now);
        self.table.detach(psn);
        self.table.close(psn);
        // What is heard of may be answered: two for one, until all that timed out went again.
        self.waits.caution = self.waits.caution.map(|packets| packets + 2);
        tally.packets += 1;
        if record.state == State::InFlight {
            tally.newly_acked_bytes += u64::from(bytes);
        } else {
            tally.late_bytes += u64::from(bytes);
        }
        // §5.6: a copy that was declared lost had arrived. Either it was not sent again yet, or the echo says so, or the
        // new copy cannot be back already.
        let first_copy = record.copies() > 1
            && (echo.is_some_and(|echo| !echo.rtx) || env.now.since(record.sent) < self.rtt.min_ns());
        if record.was_inferred_lost() && (record.state == State::Lost || first_copy) {
            tally.spurious = true;
            env.stats.losses_spurious += 1;
        }
        self.newest_acked = self.newest_acked.max(Some(copy.sent));
        if copy.is_last && env.paths.born(record.ev) <= copy.sent {
            let rtt_ns = self.rtt.srtt_ns(env.cc);
            env.paths
                .handle(record.ev, Happening::Delivered, Reason::Turn, env.now, rtt_ns);
            self.note_delivery(record.ev, copy.sent, env);
        }
    }

    /// The path's verdict (§8.2).
    fn judge(&mut self, ev: EvIndex, m: PathVerdict, probed: bool, env: &mut Env<'_>) {
        let (happening, reason) = match (m, probed) {
            // Deliveries were counted packet by packet.
            (PathVerdict::None, false) => return,
            (PathVerdict::None, true) => (Happening::ProbeDelivered, Reason::Probed),
            (PathVerdict::SkipOnce, false) => (Happening::Marked, Reason::Marked),
            (PathVerdict::SkipOnce, true) => (Happening::ProbeMarked, Reason::Marked),
            (PathVerdict::AlwaysSkip, false) => (Happening::Verdict, Reason::Verdict),
            (PathVerdict::AlwaysSkip, true) => (Happening::ProbeVerdict, Reason::Verdict),
        };
        env.paths
            .handle(ev, happening, reason, env.now, self.rtt.srtt_ns(env.cc));
    }

    pub(super) fn feed_congestion_control(
        &mut self,
        tally: &Tally,
        ce: bool,
        rtt: Option<RttSample>,
        state: Option<&CcState>,
        env: &mut Env<'_>,
    ) {
        self.check_count(tally, state, env);
        env.cc.on_ack(&AckSample {
            now: env.now,
            newly_acked_bytes: tally.newly_acked_bytes,
            late_bytes: tally.late_bytes,
            ce,
            rtt,
            // §11: off per queue pair.
            penalty: state.filter(|_| self.flow_control).map(|state| Penalty {
                rcv_cwnd_pen: state.rcv_cwnd_pen,
                rc: state.rc,
            }),
        });
        if tally.spurious {
            self.reo.on_spurious_loss(&self.rtt, env.cc, env.now);
        } else {
            self.reo.decay(&self.rtt, env.cc, env.now);
        }
    }
}

impl Requestor {
    /// §10.5, P26: does the peer count what the table counts?
    fn check_count(&mut self, tally: &Tally, state: Option<&CcState>, env: &mut Env<'_>) {
        self.received
            .acked(tally.newly_acked_bytes + tally.late_bytes, tally.packets);
        if let Some(state) = state {
            let full = Segment {
                opcode: Opcode::WriteMiddle,
                offset: 0,
                len: self.conn.pmtu,
            };
            let all_shown = state.ooo_count == 0;
            let ahead = self.received.hear(state.rcvd_bytes, all_shown, full.nominal_bytes());
            env.stats.bytes_overcounted += ahead.unwrap_or(0);
        }
    }
}

/// §5.5 step 5, §5.6: which copy arrived. Without an echo that tells, the first is assumed: it is the oldest.
fn copy_of(record: &Record, echo: Option<Echo>, now: Instant) -> Copy {
    let is_last = match (record.copies(), echo) {
        (1, _) => true,
        (2, Some(echo)) => echo.rtx,
        (_, Some(echo)) => echo.rtx && echo.fits(record.sent, now),
        (_, None) => false,
    };
    Copy {
        sent: if is_last { record.sent } else { record.first_sent(now) },
        is_last,
    }
}

/// §10.5: the round trip of a copy sent at `sent`.
fn round_trip(sent: Instant, stamp: Tick, now: Instant) -> Option<u64> {
    let age_ns = now.since(sent);
    // The stamp has wrapped: the record knows better.
    if age_ns >= 8 * MS {
        return Some(age_ns);
    }
    if stamp == Tick(0) && sent.tick() != Tick(0) {
        return None;
    }
    // The responder may have moved the stamp forward by its service time (§6.9), never back.
    let rtt_ns = u64::from(stamp.elapsed_ns(now.tick()));
    (rtt_ns <= age_ns + Tick::NS).then_some(rtt_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_knows_wrapped_absent_and_impossible_stamps() {
        let sent = Instant::from_ns(1_000_000);
        let now = sent + 40_000;
        assert_eq!(round_trip(sent, sent.tick(), now), Some(40_064), "in ticks");
        assert_eq!(
            round_trip(sent, Tick(sent.tick().0 + 100), now),
            Some(40_064 - 12_800),
            "less service time"
        );
        assert_eq!(round_trip(sent, Tick(0), now), None, "no stamp came back");
        assert_eq!(
            round_trip(sent, Tick(sent.tick().0 - 100), now),
            None,
            "older than the packet"
        );
        assert_eq!(round_trip(sent, sent.tick(), sent + 9 * MS), Some(9 * MS), "wrapped");
        let moved = Tick(sent.tick().0 + 100);
        assert_eq!(round_trip(sent, moved, sent + 8 * MS), Some(8 * MS), "from 8 ms on");
        assert!(round_trip(sent, moved, sent + 8 * MS - 1).is_some_and(|ns| ns < 7 * MS + 995_000));
        assert_eq!(round_trip(sent, Tick(sent.tick().0 - 1), now), None, "by a tick");
        // A stamp of 0 is one if that was the time.
        assert_eq!(
            round_trip(Instant::ZERO, Tick(0), Instant::from_ns(12_800)),
            Some(12_800)
        );
    }

    // protocol.md §10.5: from 8 ms on the stamp has wrapped; and it never goes back by more than a tick.
    #[test]
    fn stamps_count_below_eight_milliseconds_and_within_a_tick() {
        let sent = Instant::from_ns(128 * 1000);
        assert_eq!(round_trip(sent, Tick(0), sent + (8 * MS - 1)), None);
        assert_eq!(round_trip(sent, Tick(0), sent + 8 * MS), Some(8 * MS));
        let now = Instant::from_ns(128 * 1010);
        assert_eq!(round_trip(sent, Tick(999), now), Some(11 * 128));
        assert_eq!(round_trip(sent + 1, Tick(999), now), None);
    }
}
