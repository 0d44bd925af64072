//! What both ends need for a test: device, memory, queue pairs.

use mrc_verbs::{
    Access, AddressFamily, Agreement, ApiVersion, CompletionChannel, CompletionQueue, ConnectionInfo, Context,
    DeviceContext, MemoryRegion, ProtectionDomain, QpAttr, QpConfig, QpInit, QpSizes, QpState, QueuePair, RemoteRegion,
    WcStatus, WorkCompletion, config_from_env,
};

use crate::cli::{Family, LocalArgs, Op, Plan, Test};
use crate::control::Control;
use crate::failure::Failure;
use crate::layout::Layout;

/// Which end this is; its data differ from the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    /// The direction in which this side writes.
    pub(crate) fn direction(self) -> u64 {
        match self {
            Side::Client => 0,
            Side::Server => 1,
        }
    }

    pub(crate) fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// Everything that a test works with. Fields are dropped in this order.
pub(crate) struct Setup {
    pub(crate) qps: Vec<QueuePair>,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) recv_cq: CompletionQueue,
    pub(crate) channel: CompletionChannel,
    /// Sources, destinations, guard: see [`Layout`].
    pub(crate) region: MemoryRegion,
    /// Per queue pair how many receives the peer has posted again, written by the peer.
    pub(crate) credits: MemoryRegion,
    pub(crate) layout: Layout,
    pub(crate) peer_region: RemoteRegion,
    pub(crate) peer_credits: RemoteRegion,
    pub(crate) agreed: Agreement,
    pub(crate) device: DeviceContext,
    pub(crate) side: Side,
}

/// Queue entries beside the data: credits that are written to the peer.
const SPARE: u32 = 16;

/// Receives of one queue pair: what the peer may send before it needs a credit.
pub(crate) fn receives(plan: &Plan) -> u32 {
    if plan.op == Op::Write {
        0
    } else {
        (2 * plan.depth).max(16)
    }
}

/// Opens the device that the options or the environment name.
pub(crate) fn open_device(args: &LocalArgs) -> Result<DeviceContext, Failure> {
    Ok(DeviceContext::open(config_from_env(&args.ports)?)?)
}

impl Setup {
    /// Makes everything, tells the other end, and connects.
    pub(crate) fn new(
        device: DeviceContext,
        plan: &Plan,
        control: &Control,
        args: &LocalArgs,
        side: Side,
    ) -> Result<Setup, Failure> {
        let layout = Layout::new(plan);
        let context = Context::open(&device, ApiVersion::LATEST)?;
        let pd = ProtectionDomain::new(&device)?;
        let region = pd.register_owned(layout.len(), Access::PEER_WRITABLE)?;
        let credits = pd.register_owned(8 * plan.qps as usize, Access::PEER_WRITABLE)?;
        let channel = context.create_channel()?;
        let sizes = QpSizes {
            max_send_wr: plan.depth + SPARE,
            max_recv_wr: receives(plan).max(1),
            max_inline: 64,
            ..QpSizes::default()
        };
        let send_cq = context.create_cq_with_channel(plan.qps * sizes.max_send_wr, &channel)?;
        let recv_cq = context.create_cq_with_channel(plan.qps * sizes.max_recv_wr, &channel)?;
        let init = QpInit {
            recv_cq: &recv_cq,
            sizes,
            ev_profile: args.ev_profile.as_deref(),
            cc_profile: args.cc_profile.as_deref(),
            ..QpInit::new(&send_cq)
        };
        let qps = (0..plan.qps)
            .map(|_| context.create_qp(&pd, &init))
            .collect::<Result<Vec<_>, _>>()?;
        let mine = qps.iter().map(|qp| offer(qp, plan)).collect::<Result<Vec<_>, _>>()?;
        let (theirs, peer_region, peer_credits) = control.exchange(&mine, region.remote(), credits.remote())?;
        let mut agreed = None;
        for ((qp, mine), theirs) in qps.iter().zip(mine).zip(theirs) {
            let mut config = QpConfig::new(mine, theirs);
            if let Some(timeout) = plan.timeout {
                config = config.timeout(timeout);
            }
            qp.modify(&QpAttr::to_state(QpState::Init))?;
            for wr_id in 0..receives(plan) {
                qp.post_recv(wr_id.into())?;
            }
            agreed = Some(qp.connect(&config)?);
        }
        let agreed = agreed.ok_or_else(|| Failure::Usage("no queue pairs".into()))?;
        Ok(Setup {
            qps,
            send_cq,
            recv_cq,
            channel,
            region,
            credits,
            layout,
            peer_region,
            peer_credits,
            agreed,
            device,
            side,
        })
    }

    /// An error for a completion that failed.
    pub(crate) fn failed(&self, what: &str, completion: &WorkCompletion) -> Option<Failure> {
        let status = completion.result.err()?;
        let Agreement {
            local_gid, peer_gid, ..
        } = self.agreed;
        let text = format!(
            "{what} of queue pair {:#x} failed ({local_gid} to {peer_gid}): {status}",
            completion.qpn
        );
        Some(if status == WcStatus::RetryExcErr {
            Failure::Peer(text)
        } else {
            Failure::Test(text)
        })
    }
}

fn offer(qp: &QueuePair, plan: &Plan) -> Result<ConnectionInfo, Failure> {
    let mut info = qp.offer()?;
    if let Some(family) = plan.gid {
        let family = match family {
            Family::V4 => AddressFamily::V4,
            Family::V6 => AddressFamily::V6,
        };
        info = info.only(family).map_err(|error| Failure::Setup(error.to_string()))?;
    }
    if let Some(pmtu) = plan.pmtu {
        info.pmtu = pmtu;
    }
    Ok(info)
}

impl Plan {
    /// Does this side write data in a bandwidth test?
    pub(crate) fn sends(&self, side: Side) -> bool {
        side == Side::Client || self.bidirectional || self.test == Test::Lat
    }
}
