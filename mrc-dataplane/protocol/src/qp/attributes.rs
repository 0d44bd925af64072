//! The attributes of each state (protocol.md §2.2).

use super::state::Trigger;
use super::{Qp, QpState};
use crate::attr::{InitAttr, ModifyAttr, PathConfig, RetryAttr, RtrAttr, RtsAttr};
use crate::path::PathSet;
use crate::profile::{Containers, ProfileEv};
use crate::requestor::{Connection, SendLimits};
use crate::responder::ReceiveLimits;
use crate::time::Instant;
use crate::work::{Cx, StateError, UniverseError};

impl Qp {
    /// RESET to INIT.
    pub fn handle_init(&mut self, attr: &InitAttr) -> Result<(), StateError> {
        self.may(Trigger::Init)?;
        self.conn.p_key = attr.p_key;
        self.responder.set_remote_write(attr.remote_write);
        self.state = QpState::Init;
        Ok(())
    }

    /// Other paths than those of its creation: those of the EV profile that it is to use (protocol.md §2.2). Only in RESET and
    /// INIT, where nothing was sent yet: a profile may be chosen by the peer, who is known from RTR on. The one call after creation
    /// that allocates. The caller binds the profile, and releases it when the queue pair goes to RESET or is destroyed
    /// ([`crate::profile::Profiles::bind`]).
    pub fn handle_universe(&mut self, path: &PathConfig) -> Result<(), UniverseError> {
        if !matches!(self.state, QpState::Reset | QpState::Init) || self.lingering {
            return Err(UniverseError::State(self.state));
        }
        self.paths = PathSet::new(path, self.paths.draw_seed())?;
        self.fabric_trims = path.fabric_trims;
        self.requestor.set_paths(self.paths.len());
        Ok(())
    }

    /// The controller has changed an entry of the profile: its state, or the EV itself (protocol.md §8.2). False if this queue
    /// pair does not have it.
    pub fn handle_entry(&mut self, cx: &mut Cx<'_>, new: &ProfileEv) -> bool {
        let now = self.clock(cx.now);
        let Some(index) = self.paths.named(new.entry) else {
            return false;
        };
        let entry = self.paths.entry(index);
        let same = (entry.ev, entry.port, self.paths.encap(index)) == (new.tag, new.port, new.encap);
        let (requestor, mut env) = self.sending(cx);
        if same {
            env.paths.set_state(index, new.state, now);
        } else {
            requestor.withdraw_lane(index, &mut env);
            requestor.forget_path(index);
            env.paths.replace(index, new, now);
        }
        if self.state == QpState::Rts && !self.lingering {
            self.requestor.review_paths(&self.paths, now, &mut self.stats);
        }
        true
    }

    /// The controller has given the profile new fields: its EVs, and perhaps their number, are others
    /// ([`crate::profile::Touched::All`]). As after [`Qp::handle_entry`], what is in flight goes elsewhere and nobody is blamed; what
    /// is known of ports stays. Not in RESET, where [`Qp::handle_universe`] does it. Allocates.
    pub fn handle_regenerated(&mut self, cx: &mut Cx<'_>, path: &PathConfig) -> Result<(), UniverseError> {
        if self.state == QpState::Reset || self.lingering {
            return Err(UniverseError::NotLive);
        }
        let now = self.clock(cx.now);
        let new = PathSet::new(path, self.paths.draw_seed())?;
        let (requestor, mut env) = self.sending(cx);
        requestor.withdraw_all(&mut env);
        requestor.set_paths(new.len());
        env.paths.exchange(new, now);
        if self.state == QpState::Rts {
            self.requestor.review_paths(&self.paths, now, &mut self.stats);
        }
        Ok(())
    }

    /// A path of its profile that failed or returned since the last call: the entry, and whether it is bad now. For
    /// [`crate::profile::Profiles::handle_path`], which counts events and those that nobody took (P20); none is lost here.
    pub fn poll_path_report(&mut self) -> Option<(u32, bool)> {
        self.paths.poll_report()
    }

    /// Outer addresses of the packets on a path ([`crate::Transmit::path`]), with SRv6.
    pub fn encap(&self, path: u16) -> Option<Containers> {
        self.paths.encap(path)
    }

    /// INIT to RTR.
    pub fn handle_rtr(&mut self, attr: &RtrAttr, now: Instant) -> Result<(), StateError> {
        self.may(Trigger::Rtr)?;
        within("mpr_dest", u32::from(attr.mpr_dest), u32::from(self.max_mpr))?;
        within("max_wimm_dest", u32::from(attr.max_wimm_dest), u32::from(self.max_wimm))?;
        self.clock(now);
        // protocol.md §12, §8.2 (2)
        let trimmable = self.fabric_trims && attr.peer.trim_nack;
        self.paths.set_loss_condemns(trimmable);
        // protocol.md §2.1: both must agree.
        let dynamic_mpr = attr.dynamic_mpr && attr.peer.dynamic_mpr;
        self.conn = Connection {
            qpn: self.qpn,
            dest_qpn: attr.dest_qpn,
            p_key: self.conn.p_key,
            pmtu: attr.pmtu.bytes() as u32,
            trimmable,
            dynamic_mpr,
            peer_svc_time: attr.peer.svc_time,
        };
        self.responder.start(
            self.conn,
            ReceiveLimits {
                rq_psn: attr.rq_psn,
                window: u32::from(attr.mpr_dest) * 128,
                max_wimm: attr.max_wimm_dest,
                trim_nack: attr.trim_nack,
                dynamic_mpr,
                svc_time: attr.svc_time,
            },
        );
        self.state = QpState::Rtr;
        Ok(())
    }

    /// RTR to RTS.
    pub fn handle_rts(&mut self, attr: &RtsAttr, now: Instant) -> Result<(), StateError> {
        self.may(Trigger::Rts)?;
        within("mpr", u32::from(attr.mpr), u32::from(self.max_mpr))?;
        within("max_wimm", u32::from(attr.max_wimm), u32::from(u16::MAX))?;
        check_retry(attr.retry)?;
        self.clock(now);
        self.requestor.start(
            self.conn,
            SendLimits {
                sq_psn: attr.sq_psn,
                window: u32::from(attr.mpr) * 128,
                max_wimm: attr.max_wimm,
                retry: attr.retry,
            },
        );
        self.state = QpState::Rts;
        Ok(())
    }

    /// Changes what may be changed in the present state.
    pub fn handle_modify(&mut self, attr: &ModifyAttr) -> Result<(), StateError> {
        let here = StateError::Transition(self.state, self.state);
        let live = matches!(self.state, QpState::Init | QpState::Rtr | QpState::Rts);
        if attr.remote_write.is_some() && !live || attr.retry.is_some() && self.state != QpState::Rts {
            return Err(here);
        }
        if let Some(retry) = attr.retry {
            check_retry(retry)?;
            self.requestor.set_retry(retry);
        }
        if let Some(remote_write) = attr.remote_write {
            self.responder.set_remote_write(remote_write);
        }
        Ok(())
    }

    /// Changes the window as responder, in units of 128 PSNs: 1 to `max_mpr` of creation. The peer learns it from the next SACK.
    /// Only with Dynamic MPR (protocol.md §5.4). What it sends beyond a shrunk window, not knowing better, is NACKed and
    /// comes again (§6.2).
    pub fn handle_window(&mut self, mpr: u8) -> Result<(), StateError> {
        if !self.state.permits().requests {
            return Err(StateError::Transition(self.state, self.state));
        }
        if !self.conn.dynamic_mpr {
            return Err(StateError::FixedWindow);
        }
        within("mpr", u32::from(mpr), u32::from(self.max_mpr))?;
        self.responder.set_window(u32::from(mpr) * 128);
        Ok(())
    }

    fn may(&self, trigger: Trigger) -> Result<(), StateError> {
        if self.state.permits().triggers.contains(&trigger) && !self.lingering {
            Ok(())
        } else {
            Err(StateError::Transition(self.state, trigger.target()))
        }
    }
}

fn within(name: &'static str, value: u32, max: u32) -> Result<(), StateError> {
    if (1..=max).contains(&value) {
        Ok(())
    } else {
        Err(StateError::Limit { name, value, max })
    }
}

fn check_retry(retry: RetryAttr) -> Result<(), StateError> {
    if retry.timeout <= 24 && retry.linear_cnt <= 7 && retry.exp_cnt <= 25 {
        Ok(())
    } else {
        Err(StateError::Retry)
    }
}
