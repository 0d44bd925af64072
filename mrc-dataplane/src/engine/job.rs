//! What commands become for an engine thread, and how it answers.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use crossbeam::channel::Sender;
use mrc_protocol::profile::ProfileEv;
use mrc_protocol::{PathConfig, Qp};
use mrc_wire::{Encap, Qpn};

use super::command::{CqId, PathInfo, QpChange, QpInfo};
use super::error::CommandError;
use super::event::EventSink;
use crate::profile::CcPlan;
use crate::region::{PdId, Region};
use crate::ring::{CompletionProducer, RecvConsumer, SendConsumer};

/// One task for an engine thread, done between two batches.
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) reply: Sender<Result<Answer, CommandError>>,
}

/// What there is to do.
pub(super) enum Task {
    AddRegion(Region),
    RemoveRegion {
        lkey: u32,
    },
    AddCq {
        cq: CqId,
        producer: CompletionProducer,
    },
    RemoveCq {
        cq: CqId,
    },
    AddQp(Box<NewQp>),
    Modify {
        key: u32,
        change: QpChange,
        /// Goes with [`QpChange::ToRtr`].
        wiring: Option<Box<Wiring>>,
    },
    /// Entries of the profile of a queue pair that have changed.
    Entries {
        key: u32,
        entries: Vec<ProfileEv>,
    },
    /// What queue pairs found out about the paths of their profiles.
    PathReports {
        keys: Vec<u32>,
    },
    Query {
        key: u32,
    },
    QueryPaths {
        key: u32,
    },
    RemoveQp {
        key: u32,
    },
    /// A queue pair of another thread has connected to this node, or left it.
    NotePeer {
        remote: IpAddr,
        local: IpAddr,
        joined: bool,
    },
    Subscribe(Arc<dyn EventSink>),
}

/// What a queue pair gets of the device's profiles towards its peer.
pub(super) struct Wiring {
    /// Other paths than it has; `None`: it keeps them.
    pub(super) path: Option<PathConfig>,
    /// Outer source address of its paths, with SRv6.
    pub(super) outer_source: Option<Ipv6Addr>,
    /// How its largest packets are carried.
    pub(super) encap: Encap,
    /// The paths are those of a profile: packets between the nodes take them too.
    pub(super) of_profile: bool,
    pub(super) cc: CcPlan,
}

/// A queue pair and the engine's ends of its rings.
pub(super) struct NewQp {
    pub(super) key: u32,
    pub(super) qpn: Qpn,
    pub(super) pd: PdId,
    pub(super) qp: Qp,
    pub(super) send: SendConsumer,
    pub(super) recv: RecvConsumer,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
}

/// What came of it.
pub(super) enum Answer {
    Done,
    Info(Box<QpInfo>),
    Paths(Vec<PathInfo>),
    /// By queue pair: the entry, and whether it is bad.
    PathReports(Vec<(u32, u32, bool)>),
}
