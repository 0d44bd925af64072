//! What commands become for an engine thread, and how it answers.

use std::net::IpAddr;
use std::sync::Arc;

use crossbeam::channel::Sender;
use mrc_protocol::Qp;
use mrc_wire::Qpn;

use super::command::{CqId, PathInfo, QpChange, QpInfo};
use super::error::CommandError;
use super::event::EventSink;
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
}
