//! A NACK arrives: one packet was refused or trimmed (protocol.md §5.6, Table 7-3).

use mrc_wire::{NackReason, Neth, Tick};

use super::table::State;
use super::{Env, Failure, Requestor};
use crate::cc::RttSample;
use crate::path::{Happening, Reason};
use crate::time::US;
use crate::work::{DropReason, Status};

impl Requestor {
    pub(crate) fn on_nack(&mut self, neth: &Neth, env: &mut Env<'_>) -> Result<Option<Failure>, DropReason> {
        let psn = neth.nack_psn;
        if !self.is_outstanding(psn) || self.table.record(psn).state != State::InFlight {
            return Err(DropReason::NotOutstanding);
        }
        env.stats.nacks_received += 1;
        let record = *self.table.record(psn);
        let srtt_ns = self.rtt.srtt_ns(env.cc);
        if let Some(ev) = env.paths.lookup(neth.entropy, Some(record.ev)) {
            // The path is innocent of other refusals (§8.4): that row only counts.
            let happening = match neth.reason {
                NackReason::TRIMMED => Happening::Trimmed,
                _ => Happening::Refused,
            };
            env.paths.handle(ev, happening, Reason::Trimmed, env.now, srtt_ns);
        }
        let stamped = neth.tx_timestamp != Tick(0);
        if stamped && neth.tx_timestamp != record.sent.tick() {
            // It speaks of an older copy: only the path's column applies.
            return Ok(None);
        }
        if neth.reason == NackReason::UNEXP_EVENT {
            return self.fail_owner(psn, Status::RemoteOperation).map(Some);
        }

        let trim = matches!(neth.reason, NackReason::TRIMMED | NackReason::TRIMMED_LASTHOP);
        let bytes = self.leave(psn, env);
        self.table.detach(psn);
        let rtt = stamped.then(|| RttSample {
            ns: env.now.since(record.sent),
            // Cut on the way: how much of it was on which link is not known, so it counts as none.
            bytes: if trim { 0 } else { bytes },
        });
        env.cc.on_nack(env.now, bytes, rtt, trim);
        let repeated = record.nacks() > 0;
        let changed = self.table.record_mut(psn);
        changed.count_nack();
        changed.timeouts = 0;
        let until = if trim || neth.reason == NackReason::PSN_OOR_WINDOW {
            // At once; §14: but from NACKs once per round trip.
            if repeated {
                record.sent + env.cc.base_rtt_ns()
            } else {
                env.now
            }
        } else {
            // P7, unknown reasons too.
            let wait_ns = srtt_ns.max(20 * US) << record.nacks().min(20);
            env.now + wait_ns.min(self.t0_ns().unwrap_or(u64::MAX))
        };
        if until <= env.now {
            self.table.lose(psn);
        } else {
            self.table.delay(psn, until, env.now);
        }
        // P3: only a repeated NACK counts.
        let failure = if repeated { self.count_failure(env.now) } else { None };
        self.waits.caution = None;
        self.review(env);
        Ok(failure)
    }
}
