//! A queue pair: creation, states, posting, end.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mrc_dataplane::engine::{CreateQp, PathInfo, QpChange, WindowInfo};
use mrc_dataplane::profile::ProfileRef;
use mrc_dataplane::ring::{Doorbell, RecvProducer};
use mrc_protocol::{InitAttr, ModifyAttr, PeerCaps, QpStats, RetryAttr, RtrAttr, RtsAttr, Tuning};
use mrc_wire::{Pmtu, Psn, Qpn};

use crate::access::Access;
use crate::context::ContextInner;
use crate::cq::{CompletionQueue, CqInner};
use crate::error::{Error, Result};
use crate::pd::{PdInner, ProtectionDomain};

use super::attr::{AttrLimits, QpAttr, QpAttrInForce, QpCapabilities, QpState};
use super::rules::plan;
use super::send::SendQueue;

/// Sizes of a queue pair; see [`QpInit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSizes {
    /// Sends outstanding.
    pub max_send_wr: u32,
    /// Receives outstanding.
    pub max_recv_wr: u32,
    /// Local pieces of one write.
    pub max_send_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Largest window, as requestor and as responder, unit 128 packets. Memory is allocated for it at creation.
    pub max_mpr: u8,
    /// Most writes with immediate in flight, as requestor and as responder.
    pub max_wimm: u16,
}

impl Default for QpSizes {
    fn default() -> Self {
        QpSizes {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_inline: 64,
            max_mpr: 8,
            max_wimm: 128,
        }
    }
}

/// What a queue pair is made from.
#[derive(Clone, Copy, Debug)]
pub struct QpInit<'a> {
    /// Where sends complete.
    pub send_cq: &'a CompletionQueue,
    /// Where receives complete; may be the same.
    pub recv_cq: &'a CompletionQueue,
    /// Sizes.
    pub sizes: QpSizes,
    /// Every send makes a completion, as if signaled.
    pub signal_all: bool,
    /// EV profile, by name or number; `None`: what the device says for the peer.
    pub ev_profile: Option<&'a str>,
    /// CC profile, by name or number; `None`: what the device says for the peer.
    pub cc_profile: Option<&'a str>,
}

impl<'a> QpInit<'a> {
    /// Default sizes, both queues completing into `cq`.
    pub fn new(cq: &'a CompletionQueue) -> QpInit<'a> {
        QpInit {
            send_cq: cq,
            recv_cq: cq,
            sizes: QpSizes::default(),
            signal_all: false,
            ev_profile: None,
            cc_profile: None,
        }
    }
}

/// A queue pair: a connection to one queue pair of a peer, with a send and a receive queue.
///
/// Posting is serialised inside; share it between threads by reference or in an `Arc`. Dropping it destroys it: work that
/// is outstanding vanishes, acknowledgements that are owed go out first.
pub struct QueuePair {
    context: Arc<ContextInner>,
    pub(super) pd: Arc<PdInner>,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    qpn: Qpn,
    sizes: QpSizes,
    limits: AttrLimits,
    pub(super) send: Arc<SendQueue>,
    recv: Mutex<RecvProducer>,
    pub(super) doorbell: Doorbell,
    control: Mutex<Control>,
    /// State as far as posting is concerned: a failure on its own is not seen here, and need not be, since the engine flushes.
    posting: AtomicU8,
    /// Writes with immediate that may be in flight; 0 forbids them.
    pub(super) max_wimm: AtomicU32,
}

struct Control {
    attrs: QpAttrInForce,
    /// First PSN that is offered to the peer.
    psn: u32,
}

/// Answer to [`QueuePair::query`].
#[derive(Clone, Debug)]
pub struct QpQuery {
    /// Present state; ERR also after a failure on its own.
    pub state: QpState,
    /// Attributes in force.
    pub attrs: QpAttrInForce,
    /// Sizes.
    pub sizes: QpSizes,
    /// What the protocol has counted.
    pub stats: QpStats,
    /// Smoothed round trip and its variation in ns; 0 before the first sample.
    pub rtt_ns: (u64, u64),
    /// The congestion window that it sends under, from RTR on; queue pairs to the same peer share it, unless their CC profile says
    /// otherwise.
    pub window: Option<WindowInfo>,
    /// EV profile in use, by name if it has one, from RTR on.
    pub ev_profile: String,
    /// CC profile in use, by name if it has one, from RTR on.
    pub cc_profile: String,
    /// Why nothing can be sent on a port, per port (from 1) that has a reason.
    pub unreachable: Vec<(u8, String)>,
}

impl QueuePair {
    pub(crate) fn create(context: &Arc<ContextInner>, pd: &ProtectionDomain, init: &QpInit<'_>) -> Result<QueuePair> {
        let device = context.device();
        if !Arc::ptr_eq(pd.inner().device(), device) {
            return Err(Error::Foreign {
                what: "protection domain",
                scope: "device",
            });
        }
        for cq in [init.send_cq, init.recv_cq] {
            if !Arc::ptr_eq(cq.inner().context(), context) {
                return Err(Error::Foreign {
                    what: "completion queue",
                    scope: "context",
                });
            }
        }
        let sizes = checked(init.sizes, context)?;
        let (send_cq, recv_cq) = (Arc::clone(init.send_cq.inner()), Arc::clone(init.recv_cq.inner()));
        let (qpn, rings) = device.create_qp(CreateQp {
            sq_depth: sizes.max_send_wr,
            rq_depth: sizes.max_recv_wr,
            max_sge: sizes.max_send_sge,
            max_inline: sizes.max_inline,
            max_mpr: sizes.max_mpr,
            max_wimm: sizes.max_wimm.max(1),
            sq_sig_all: init.signal_all,
            path: None,
            tuning: Tuning::default(),
            ev_profile: init.ev_profile.map(ProfileRef::from),
            cc_profile: init.cc_profile.map(ProfileRef::from),
            ..CreateQp::new(pd.inner().id(), send_cq.engine_id(), recv_cq.engine_id(), 1)
        })?;
        let limits = AttrLimits {
            max_mpr: sizes.max_mpr,
            max_wimm: sizes.max_wimm,
            max_wimm_dest: sizes.max_wimm,
            active_pmtu: device.active_pmtu(),
            dynamic_mpr: device.limits().capabilities.dynamic_mpr,
        };
        let send = Arc::new(SendQueue::new(rings.send, init.signal_all, device.limits().max_message));
        send_cq.add_sender(qpn.get(), &send);
        device.router().add_qp(qpn.get(), context.events());
        let attrs = QpAttrInForce::defaults(&limits);
        Ok(QueuePair {
            context: Arc::clone(context),
            pd: Arc::clone(pd.inner()),
            send_cq,
            recv_cq,
            qpn,
            sizes,
            limits,
            send,
            recv: Mutex::new(rings.recv),
            doorbell: rings.doorbell,
            max_wimm: AtomicU32::new(attrs.max_wimm.into()),
            control: Mutex::new(Control {
                attrs,
                psn: random_psn(),
            }),
            posting: AtomicU8::new(QpState::Reset as u8),
        })
    }

    /// Its number, the same in every state.
    pub fn qpn(&self) -> u32 {
        self.qpn.get()
    }

    /// Sizes as created.
    pub fn sizes(&self) -> QpSizes {
        self.sizes
    }

    /// State, attributes and statistics.
    ///
    /// # Errors
    /// [`Error::Command`] when the engine has stopped.
    pub fn query(&self) -> Result<QpQuery> {
        let control = self.control();
        let info = self.context.device().query_qp(self.qpn)?;
        Ok(QpQuery {
            state: state_of(info.state),
            attrs: control.attrs.clone(),
            sizes: self.sizes,
            stats: info.stats,
            rtt_ns: info.rtt_ns,
            window: info.window,
            ev_profile: info.ev_profile,
            cc_profile: info.cc_profile,
            unreachable: info
                .unreachable
                .into_iter()
                .map(|(port, why)| (port.get(), why))
                .collect(),
        })
    }

    /// Its paths: the EV and port of each, what is thought of it, why and since when, and what it carried and lost. The engine
    /// answers between two batches of packets; nothing stops for it.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn paths(&self) -> Result<Vec<PathInfo>> {
        self.context.device().query_paths(self.qpn)
    }

    /// Present state.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn state(&self) -> Result<QpState> {
        Ok(state_of(self.context.device().query_qp(self.qpn)?.state))
    }

    /// Changes state or attributes; see [`QpAttr`] for what goes when. On failure nothing has changed.
    ///
    /// Going to RESET drops what is posted, and completions that nobody has taken. Going to ERR flushes what is posted.
    ///
    /// # Errors
    /// [`Error::Transition`], [`Error::AttributeState`], [`Error::MissingAttribute`], [`Error::Invalid`],
    /// [`Error::CurrentState`]; [`Error::Command`] for what only the engine knows, such as an address that is not ours.
    pub fn modify(&self, attr: &QpAttr) -> Result<()> {
        let mut control = self.control();
        self.modify_locked(&mut control, attr)
    }

    fn modify_locked(&self, control: &mut Control, attr: &QpAttr) -> Result<()> {
        let device = self.context.device();
        let from = state_of(device.query_qp(self.qpn)?.state);
        let limits = AttrLimits {
            active_pmtu: device.active_pmtu(),
            ..self.limits
        };
        let (to, next) = plan(from, &control.attrs, &limits, attr)?;
        if to == QpState::Reset {
            self.reset()?;
            control.psn = random_psn();
        } else {
            if from == to && next.mpr_dest != control.attrs.mpr_dest && from >= QpState::Rtr {
                device.modify_qp(self.qpn, QpChange::Window(next.mpr_dest))?;
            }
            if let Some(change) = self.change(from, to, &control.attrs, &next)? {
                device.modify_qp(self.qpn, change)?;
                self.posting.store(to as u8, Ordering::Release);
            }
        }
        self.max_wimm.store(next.max_wimm.into(), Ordering::Release);
        control.attrs = next;
        Ok(())
    }

    /// The command for a transition that is legal; `None` if the engine need not know.
    fn change(
        &self,
        from: QpState,
        to: QpState,
        now: &QpAttrInForce,
        next: &QpAttrInForce,
    ) -> Result<Option<QpChange>> {
        let remote_write = next.access.contains(Access::REMOTE_WRITE);
        let retry = RetryAttr {
            timeout: next.timeout,
            linear_cnt: next.retry.linear,
            exp_cnt: next.retry.exponential,
        };
        if from == to {
            let changed = next.access != now.access || next.timeout != now.timeout || next.retry != now.retry;
            let adjust = ModifyAttr {
                remote_write: (from != QpState::Err).then_some(remote_write),
                retry: (from == QpState::Rts).then_some(retry),
            };
            return Ok((changed && !matches!(from, QpState::Reset | QpState::Err)).then_some(QpChange::Adjust(adjust)));
        }
        Ok(Some(match to {
            QpState::Reset => QpChange::ToReset,
            QpState::Err => QpChange::ToErr,
            QpState::Init => QpChange::ToInit(InitAttr {
                p_key: 0xffff,
                remote_write,
            }),
            QpState::Rtr => {
                let missing = |attribute| Error::MissingAttribute { attribute };
                let address = next.address.ok_or_else(|| missing("address"))?;
                let capabilities = &self.context.device().limits().capabilities;
                let attr = RtrAttr {
                    dest_qpn: Qpn::new(next.dest_qpn.ok_or_else(|| missing("dest_qpn"))?),
                    rq_psn: Psn::new(next.rq_psn),
                    pmtu: Pmtu::from_bytes(next.pmtu as usize).ok_or_else(|| Error::Invalid {
                        what: "pmtu",
                        value: next.pmtu.to_string(),
                        limit: "256, 512, 1024, 2048 or 4096",
                    })?,
                    mpr_dest: next.mpr_dest,
                    max_wimm_dest: next.max_wimm_dest.max(1),
                    trim_nack: capabilities.trim_nack,
                    dynamic_mpr: next.capabilities.contains(QpCapabilities::DYNAMIC_MPR),
                    svc_time: capabilities.svc_time,
                    peer: PeerCaps {
                        dynamic_mpr: next.capabilities.contains(QpCapabilities::DYNAMIC_MPR),
                        svc_time: !next.capabilities.contains(QpCapabilities::SVC_TIME_DEST_UNSUPPORTED),
                        trim_nack: !next.capabilities.contains(QpCapabilities::TRIM_NACK_DEST_UNSUPPORTED),
                    },
                };
                QpChange::ToRtr {
                    attr,
                    local: address.local.ip(),
                    remote: address.remote.ip(),
                }
            }
            QpState::Rts => QpChange::ToRts(RtsAttr {
                sq_psn: Psn::new(next.sq_psn),
                mpr: next.mpr,
                max_wimm: next.max_wimm.max(1),
                retry,
            }),
        }))
    }

    /// To RESET: nothing that was posted or completed before is seen afterwards.
    fn reset(&self) -> Result<()> {
        let mut posted = self.send.lock();
        let _recv = self.recv_queue();
        self.context.device().modify_qp(self.qpn, QpChange::ToReset)?;
        self.posting.store(QpState::Reset as u8, Ordering::Release);
        self.send_cq.discard(self.qpn());
        self.recv_cq.discard(self.qpn());
        self.send.forget(&mut posted);
        Ok(())
    }

    /// The first PSN that this side offers to a peer; random, drawn anew by RESET.
    pub(crate) fn offered_psn(&self) -> u32 {
        self.control().psn
    }

    pub(crate) fn context(&self) -> &Arc<ContextInner> {
        &self.context
    }

    pub(crate) fn attr_limits(&self) -> &AttrLimits {
        &self.limits
    }

    pub(super) fn posting_state(&self) -> QpState {
        match self.posting.load(Ordering::Acquire) {
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            6 => QpState::Err,
            _ => QpState::Reset,
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn recv_queue(&self) -> MutexGuard<'_, RecvProducer> {
        self.recv.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let (device, qpn) = (self.context.device(), self.qpn());
        device.destroy_qp(self.qpn);
        device.router().remove_qp(qpn);
        self.send_cq.discard(qpn);
        self.recv_cq.discard(qpn);
        self.send_cq.remove_sender(qpn);
        self.send.forget(&mut self.send.lock());
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:#x}, {})", self.qpn(), self.posting_state())
    }
}

fn checked(sizes: QpSizes, context: &ContextInner) -> Result<QpSizes> {
    let device = context.device().limits();
    let within = |what, value: u64, most: u64, limit| {
        if value <= most {
            Ok(())
        } else {
            Err(Error::Invalid {
                what,
                value: value.to_string(),
                limit,
            })
        }
    };
    let most_wr = device.max_qp_wr.into();
    within(
        "max_send_wr",
        sizes.max_send_wr.into(),
        most_wr,
        "at most the device's max_qp_wr",
    )?;
    within(
        "max_recv_wr",
        sizes.max_recv_wr.into(),
        most_wr,
        "at most the device's max_qp_wr",
    )?;
    let most_sge = device.max_sge.into();
    within(
        "max_send_sge",
        sizes.max_send_sge.into(),
        most_sge,
        "at most the device's max_sge",
    )?;
    within(
        "max_inline",
        sizes.max_inline.into(),
        device.max_inline.into(),
        "at most the device's max_inline",
    )?;
    within(
        "max_mpr",
        sizes.max_mpr.into(),
        device.max_mpr.into(),
        "at most the device's max_mpr",
    )?;
    within(
        "max_wimm",
        sizes.max_wimm.into(),
        device.max_wimm.into(),
        "at most the device's max_wimm",
    )?;
    if sizes.max_mpr == 0 {
        return Err(Error::Invalid {
            what: "max_mpr",
            value: "0".into(),
            limit: "at least 1 (128 packets)",
        });
    }
    let at_least_one = |size: u32| size.max(1);
    Ok(QpSizes {
        max_send_wr: at_least_one(sizes.max_send_wr),
        max_recv_wr: at_least_one(sizes.max_recv_wr),
        ..sizes
    })
}

/// A first PSN that a stranger cannot guess (protocol.md §2.1); the hasher's keys come from the operating system.
fn random_psn() -> u32 {
    RandomState::new().hash_one(std::time::Instant::now()) as u32 & 0xff_ffff
}

fn state_of(state: mrc_protocol::QpState) -> QpState {
    match state {
        mrc_protocol::QpState::Reset => QpState::Reset,
        mrc_protocol::QpState::Init => QpState::Init,
        mrc_protocol::QpState::Rtr => QpState::Rtr,
        mrc_protocol::QpState::Rts => QpState::Rts,
        mrc_protocol::QpState::Err => QpState::Err,
    }
}
