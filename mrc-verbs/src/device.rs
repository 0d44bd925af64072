//! The device: an engine and what it can do.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mrc_dataplane::engine::{
    Command, CommandError, CqId, CreateQp, Engine, EngineConfig, EvProfileInfo, EvSelection, EventSink, MAX_MESSAGE,
    Outcome, PathInfo, QpChange, QpInfo, QpRings, Reply, Rings, Snapshot,
};
use mrc_dataplane::neigh::NextHops;
use mrc_dataplane::port::Port;
use mrc_dataplane::profile::ProfileRef;
use mrc_dataplane::region::{PdId, RegionMemory};
use mrc_dataplane::ring::CompletionConsumer;
use mrc_protocol::profile::EntryState;
use mrc_wire::{Encap, EvLayout, Qpn};

use crate::access::Access;
use crate::connection::{DscpSet, EvEncoding, PeerCapabilities};
use crate::error::{Error, Result};
use crate::event::Router;
use crate::gid::Gid;
use crate::qp::MAX_PIECES;
use crate::settings;

/// A device that could be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    config: EngineConfig,
}

impl Device {
    /// The devices of this host: one, if the environment names its ports or a file that does.
    ///
    /// # Errors
    /// [`Error::Setting`] for a variable without a usable value, [`Error::ConfigFile`] for a file that cannot be used.
    pub fn list() -> Result<Vec<Device>> {
        let is_unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
        if is_unset("MRC_PORTS") && is_unset("MRC_CONFIG") {
            return Ok(Vec::new());
        }
        Ok(vec![Device {
            config: config_from_env(&[])?,
        }])
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        "mrc0"
    }

    /// Opens it.
    ///
    /// # Errors
    /// As [`DeviceContext::open`].
    pub fn open(&self) -> Result<DeviceContext> {
        DeviceContext::open(self.config.clone())
    }
}

/// An open device. A cheap handle; the engine stops when the last object made from it is gone.
#[derive(Clone, Debug)]
pub struct DeviceContext {
    inner: Arc<DeviceInner>,
}

/// What a device can do, and how it is set up (api.md §3.2, §4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Node addresses, at most one per family.
    pub gids: Vec<Gid>,
    /// Number of ports.
    pub ports: u8,
    /// Largest PMTU, in bytes, that all ports carry.
    pub active_pmtu: u32,
    /// Largest message, in bytes.
    pub max_message: u32,
    /// Requests outstanding per queue.
    pub max_qp_wr: u32,
    /// Local pieces of one write.
    pub max_sge: u32,
    /// Inline data, in bytes.
    pub max_inline: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Window, unit 128 packets.
    pub max_mpr: u8,
    /// Writes with immediate in flight, as requestor and as responder.
    pub max_wimm: u16,
    /// Optional features of the engine.
    pub capabilities: PeerCapabilities,
    /// UDP destination port.
    pub udp_port: u16,
    /// Encoding of entropy values.
    pub ev_layout: EvEncoding,
    /// DSCPs.
    pub dscps: DscpSet,
}

pub(crate) struct DeviceInner {
    engine: Engine,
    router: Arc<Router>,
    limits: DeviceLimits,
}

impl DeviceContext {
    /// Starts an engine over the ports of `config` in this process.
    ///
    /// # Errors
    /// [`Error::Engine`]: a port that does not exist or is busy, a missing privilege, no node address, ...
    pub fn open(config: EngineConfig) -> Result<DeviceContext> {
        DeviceContext::over(Engine::start(config)?)
    }

    /// Opens the device that the environment describes; what is not set keeps its default.
    ///
    /// | Variable | Meaning |
    /// |---|---|
    /// | `MRC_PORTS` | interfaces, plane 1 first: `p1,p2`; with a link speed in Mbit/s: `p1@200` |
    /// | `MRC_GID4`, `MRC_GID6` | node addresses; default: the global ones on `lo` |
    /// | `MRC_UDP_PORT` | default 4791 |
    /// | `MRC_EV_LAYOUT` | `flow_hi` (default) or `port_hi` |
    /// | `MRC_DSCPS` | `no_trim=0,trimmable=4,trimmable_retx=8,trimmed=12,trimmed_lasthop=16,control=46`; any part; `none` where optional |
    /// | `MRC_THREADS` | engine threads, default 1 |
    /// | `MRC_CAPTURE` | a pcapng file that gets all packets sent and received: `FILE` or `FILE,snaplen=96 qp=0x11 dir=tx`; `%p` is the process id |
    /// | `MRC_CONTROL` | directory of the socket for `mrc-dump live`; default `XDG_RUNTIME_DIR`, and none without either |
    /// | `MRC_CONFIG` | a file with all of this, and profiles: `mrc-verbs/CONFIG.md`; the other variables win over it |
    /// | `MRC_EV_PROFILE`, `MRC_CC_PROFILE` | profiles of queue pairs that choose none, by name or number |
    ///
    /// # Errors
    /// [`Error::Setting`] for a variable that is missing or has no usable value, [`Error::ConfigFile`] for a file that cannot be
    /// used, else as [`open`](Self::open).
    pub fn from_env() -> Result<DeviceContext> {
        DeviceContext::open(config_from_env(&[])?)
    }

    /// Starts an engine over ports that the caller made, such as [`MemoryPort`](mrc_dataplane::port::MemoryPort)s, one thread.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn open_with_ports(
        config: EngineConfig,
        ports: Vec<Box<dyn Port>>,
        next_hops: Arc<dyn NextHops>,
    ) -> Result<DeviceContext> {
        DeviceContext::over(Engine::start_with_ports(config, ports, next_hops)?)
    }

    fn over(engine: Engine) -> Result<DeviceContext> {
        let limits = limits(&engine);
        let router = Arc::new(Router::default());
        let sink: Arc<dyn EventSink> = Arc::clone(&router) as Arc<_>;
        engine.subscribe(&sink)?;
        Ok(DeviceContext {
            inner: Arc::new(DeviceInner { engine, router, limits }),
        })
    }

    /// What the device can do at present; `active_pmtu` follows the MTU of the ports.
    pub fn limits(&self) -> DeviceLimits {
        limits(&self.inner.engine)
    }

    /// The engine's counters.
    pub fn counters(&self) -> Snapshot {
        self.inner.engine.counters()
    }

    /// An EV profile, by name or number: its EVs, their names and states. A state is ASSUMED_BAD if any queue pair of this device
    /// found the path bad (api.md §4.7).
    ///
    /// # Errors
    /// [`Error::Command`] if there is no such profile.
    pub fn ev_profile(&self, profile: &str) -> Result<EvProfileInfo> {
        self.inner.query_ev_profile(ProfileRef::from(profile))
    }

    /// Denies or allows EVs of a profile, at once and in all queue pairs that use it (api.md §4.8). Returns how many those are.
    ///
    /// # Errors
    /// [`Error::Command`] if there is no such profile, or none of its EVs is meant.
    pub fn set_ev_state(&self, profile: &str, evs: EvSelection, state: EntryState) -> Result<usize> {
        self.inner.set_ev_state(ProfileRef::from(profile), evs, state)
    }

    /// The engine itself, for its command line tools.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Lets the engine work for a moment in the calling thread, if its own thread is not at it. For a program that spins on a
    /// memory word: it then does not fight the engine for the core. Never necessary for progress. True if there was work.
    pub fn progress(&self) -> bool {
        self.inner.progress()
    }

    pub(crate) fn inner(&self) -> &Arc<DeviceInner> {
        &self.inner
    }
}

/// The configuration that the environment describes (see [`DeviceContext::from_env`]); `ports`, if there are any, stand for
/// `MRC_PORTS`.
///
/// # Errors
/// [`Error::Setting`].
pub fn config_from_env(ports: &[String]) -> Result<EngineConfig> {
    settings::from_environment(|name| match name {
        "MRC_PORTS" if !ports.is_empty() => Some(ports.join(",")),
        _ => std::env::var(name).ok(),
    })
}

fn limits(engine: &Engine) -> DeviceLimits {
    let attributes = engine.attributes();
    let gids = attributes
        .address_v6
        .map(Gid::from)
        .into_iter()
        .chain(attributes.address_v4.map(Gid::from))
        .collect();
    let encap = match (attributes.tunnel, attributes.address_v6) {
        (Some(tunnel), _) => tunnel,
        (None, Some(_)) => Encap::Ipv6,
        (None, None) => Encap::Ipv4,
    };
    DeviceLimits {
        gids,
        ports: attributes.ports.len() as u8,
        active_pmtu: attributes.active_pmtu(encap).map_or(0, |pmtu| pmtu.bytes() as u32),
        max_message: MAX_MESSAGE.min(1 << 30),
        max_qp_wr: attributes.max_depth,
        max_sge: attributes.max_sge.min(MAX_PIECES as u32),
        max_inline: attributes.max_inline,
        max_cqe: attributes.max_cqe,
        max_mpr: u8::MAX,
        max_wimm: 4096,
        capabilities: PeerCapabilities {
            trim_nack: true,
            dynamic_mpr: true,
            svc_time: true,
        },
        udp_port: attributes.udp_port,
        ev_layout: match attributes.ev_layout {
            EvLayout::FlowHigh => EvEncoding::FlowHi,
            EvLayout::PortHigh => EvEncoding::PortHi,
        },
        dscps: DscpSet {
            no_trim: attributes.dscps.no_trim,
            trimmable: attributes.dscps.trimmable,
            trimmable_retx: attributes.dscps.trimmable_retx,
            trimmed: attributes.dscps.trimmed,
            trimmed_lasthop: attributes.dscps.trimmed_lasthop,
            control: attributes.dscps.control,
        },
    }
}

impl fmt::Debug for DeviceInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("gids", &self.limits.gids)
            .field("ports", &self.limits.ports)
            .finish_non_exhaustive()
    }
}

/// The commands, typed: the only place that knows how they are sent.
impl DeviceInner {
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// What does not change while the device is open.
    pub(crate) fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    pub(crate) fn active_pmtu(&self) -> u32 {
        limits(&self.engine).active_pmtu
    }

    pub(crate) fn progress(&self) -> bool {
        self.engine.run_once()
    }

    fn command(&self, command: Command) -> Result<Outcome> {
        Ok(self.engine.command(command)?)
    }

    /// A command whose failure can only mean that the engine is gone, and the object with it.
    fn farewell(&self, what: &'static str, command: Command) {
        match self.engine.command(command) {
            Ok(_) | Err(CommandError::Stopped) => {}
            Err(error) => tracing::error!(%error, "{what} could not be given back to the engine"),
        }
    }

    pub(crate) fn create_pd(&self) -> Result<PdId> {
        match self.command(Command::CreatePd)?.reply {
            Reply::Pd(pd) => Ok(pd),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn destroy_pd(&self, pd: PdId) {
        self.farewell("a protection domain", Command::DestroyPd { pd });
    }

    pub(crate) fn register(&self, pd: PdId, memory: RegionMemory, access: Access) -> Result<(u32, u32)> {
        let access = mrc_dataplane::region::Access::from_bits_truncate(access.bits());
        match self.command(Command::RegisterRegion { pd, memory, access })?.reply {
            Reply::Region { lkey, rkey } => Ok((lkey, rkey)),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn deregister(&self, lkey: u32) {
        self.farewell("a memory region", Command::DeregisterRegion { lkey });
    }

    pub(crate) fn create_cq(&self, depth: u32, channel: Option<Arc<OwnedFd>>) -> Result<(CqId, CompletionConsumer)> {
        let outcome = self.engine.command_with(Command::CreateCq { depth }, channel)?;
        match (outcome.reply, outcome.rings) {
            (Reply::Cq(id), Some(Rings::Cq(ring))) => Ok((id, ring)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    pub(crate) fn destroy_cq(&self, cq: CqId) {
        self.farewell("a completion queue", Command::DestroyCq { cq });
    }

    pub(crate) fn create_qp(&self, create: CreateQp) -> Result<(Qpn, QpRings)> {
        let outcome = self.command(Command::CreateQp(create))?;
        match (outcome.reply, outcome.rings) {
            (Reply::Qp(qpn), Some(Rings::Qp(rings))) => Ok((qpn, rings)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    pub(crate) fn modify_qp(&self, qpn: Qpn, change: QpChange) -> Result<()> {
        self.command(Command::ModifyQp { qpn, change }).map(|_| ())
    }

    pub(crate) fn query_qp(&self, qpn: Qpn) -> Result<Box<QpInfo>> {
        match self.command(Command::QueryQp { qpn })?.reply {
            Reply::QpInfo(info) => Ok(info),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn query_paths(&self, qpn: Qpn) -> Result<Vec<PathInfo>> {
        match self.command(Command::QueryPaths { qpn })?.reply {
            Reply::Paths(paths) => Ok(paths),
            other => Err(unexpected(&other)),
        }
    }

    fn query_ev_profile(&self, profile: ProfileRef) -> Result<EvProfileInfo> {
        match self.command(Command::QueryEvProfile { profile })?.reply {
            Reply::EvProfile(info) => Ok(*info),
            other => Err(unexpected(&other)),
        }
    }

    fn set_ev_state(&self, profile: ProfileRef, evs: EvSelection, state: EntryState) -> Result<usize> {
        match self.command(Command::SetEvState { profile, evs, state })?.reply {
            Reply::Changed(count) => Ok(count),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn destroy_qp(&self, qpn: Qpn) {
        self.farewell("a queue pair", Command::DestroyQp { qpn });
    }
}

fn unexpected(reply: &Reply) -> Error {
    tracing::error!(?reply, "the engine answered another question");
    Error::Closed
}
