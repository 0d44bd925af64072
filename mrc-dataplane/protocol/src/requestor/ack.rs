//! A Transport ACK or NAK arrives: what was carried out (protocol.md §5.8).

use mrc_wire::{Aeth, Psn, Syndrome};

use super::sack::Tally;
use super::{Env, Failure, Requestor};
use crate::work::{DropReason, Status};

impl Requestor {
    pub(crate) fn on_ack(&mut self, psn: Psn, aeth: Aeth, env: &mut Env<'_>) -> Result<Option<Failure>, DropReason> {
        let status = match aeth.meaning() {
            Syndrome::Ack => return self.on_positive_ack(psn, env).map(|()| None),
            Syndrome::InvalidRequest => Status::RemoteInvalidRequest,
            Syndrome::RemoteAccess => Status::RemoteAccess,
            Syndrome::RemoteOperational => Status::RemoteOperation,
            Syndrome::Unused => return Err(DropReason::Syndrome),
        };
        self.fail_owner(psn, status).map(Some)
    }

    fn on_positive_ack(&mut self, psn: Psn, env: &mut Env<'_>) -> Result<(), DropReason> {
        if psn.diff(self.max_psn_sent()) > 0 {
            return Err(DropReason::Implausible);
        }
        env.stats.acks_received += 1;
        self.tail.heard(env.now);
        if psn.diff(self.tack_psn) <= 0 {
            return Ok(());
        }
        self.tack_psn = psn;
        self.retries = 0;
        // It acknowledges on both layers.
        let mut tally = Tally::default();
        self.acknowledge_up_to(psn, &mut tally, env);
        self.queue.complete(psn, self.conn.pmtu);
        self.feed_congestion_control(&tally, false, None, None, env);
        self.waits.detection = true;
        self.waits.ack = None;
        self.review(env);
        Ok(())
    }

    /// A refused packet, if it is outstanding: SACKed ones may be refused too (protocol.md §6.3). Nothing is acknowledged
    /// (P15).
    pub(super) fn fail_owner(&self, psn: Psn, status: Status) -> Result<Failure, DropReason> {
        if psn.diff(self.tack_psn) <= 0 || psn.diff(self.max_psn_sent()) > 0 {
            return Err(DropReason::NotOutstanding);
        }
        let counter = self.queue.owner(psn).ok_or(DropReason::NotOutstanding)?;
        Ok(Failure {
            culprit: Some((counter, status)),
        })
    }
}
