//! What a connection is, and which ones a workload needs.

use crate::baseline::Kind;
use crate::baseline::go_back_n::{GoBackNReceiver, GoBackNSender};
use crate::baseline::segment::Segment;
use crate::baseline::selective::{SelectiveReceiver, SelectiveSender};
use crate::baseline::transport::{Receiver, Sender};
use crate::baseline::workload::{Transfer, Workload};
use crate::fabric::frame::{Body, Frame};
use crate::rng::mix;
use std::collections::BTreeMap;

/// A connection, both ends of it.
pub(super) struct Connection {
    pub(super) src: usize,
    pub(super) dst: usize,
    pub(super) plane: u8,
    pub(super) ev: u32,
    pub(super) salt: u64,
    pub(super) sender: Box<dyn Sender>,
    pub(super) receiver: Box<dyn Receiver>,
    pub(super) messages: Vec<Message>,
    pub(super) posted: usize,
    pub(super) completed: usize,
    /// In its port's list.
    pub(super) listed: bool,
    /// Last news from the receiver, or the first packet after a pause.
    pub(super) heard_ns: u64,
    pub(super) backoff: u32,
    pub(super) timed: bool,
    /// One word per packet, and how often it was written.
    pub(super) memory: Vec<(u64, u32)>,
}

/// A transfer's part on a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) transfer: usize,
    pub(super) start_ns: u64,
    pub(super) bytes: u64,
    pub(super) first: u64,
    pub(super) end: u64,
}

/// What makes a connection another one. In this order, stripes of a pair of hosts are on different planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ends {
    src: usize,
    dst: usize,
    stripe: usize,
}

impl Connection {
    pub(super) fn message_of(&self, psn: u64) -> Message {
        let at = self.messages.partition_point(|message| message.end <= psn);
        self.messages[at]
    }
}

impl Message {
    pub(super) fn payload(&self, psn: u64, pmtu: u32) -> u32 {
        let before = (psn - self.first) * u64::from(pmtu);
        self.bytes.saturating_sub(before).min(pmtu.into()) as u32
    }
}

pub(super) fn frame(connection: &Connection, [src, dst]: [usize; 2], size: u32, segment: Segment) -> Box<Frame> {
    Box::new(Frame {
        src,
        dst,
        trim: None,
        size,
        ev: connection.ev,
        plane: connection.plane,
        data: true,
        control: false,
        trimmable: false,
        ect: false,
        ce: false,
        body: Body::Baseline(segment),
        flips: Vec::new(),
        id: 0,
    })
}

/// For each transfer, its parts.
pub(super) fn parts(workload: &Workload) -> Vec<usize> {
    let count = |transfer: &Transfer| {
        (0..workload.stripes)
            .filter_map(|stripe| transfer.part(stripe, workload.stripes))
            .count()
    };
    workload.transfers.iter().map(count).collect()
}

/// The connections of a workload, with windows of `window` packets.
pub(super) fn connections(kind: Kind, workload: &Workload, planes: u8, window: u64, seed: u64) -> Vec<Connection> {
    let mut by_ends: BTreeMap<Ends, Vec<usize>> = BTreeMap::new();
    for (index, transfer) in workload.transfers.iter().enumerate() {
        for stripe in 0..workload.stripes {
            if transfer.part(stripe, workload.stripes).is_some() {
                let Transfer { src, dst, .. } = *transfer;
                by_ends.entry(Ends { src, dst, stripe }).or_default().push(index);
            }
        }
    }
    let connection = |(index, (ends, mut transfers)): (usize, (Ends, Vec<usize>))| {
        let Ends { src, dst, stripe } = ends;
        transfers.sort_by_key(|at| workload.transfers[*at].start_ns);
        let messages = messages(workload, &transfers, stripe);
        let (sender, receiver): (Box<dyn Sender>, Box<dyn Receiver>) = match kind {
            Kind::GoBackN => (Box::new(GoBackNSender::new(window)), Box::<GoBackNReceiver>::default()),
            Kind::SelectiveRepeat => (
                Box::new(SelectiveSender::new(window)),
                Box::<SelectiveReceiver>::default(),
            ),
        };
        let salt = mix(seed, index as u64);
        Connection {
            src,
            dst,
            plane: (index % usize::from(planes)) as u8 + 1,
            ev: 0xC000 | salt as u32 & 0x3fff,
            salt,
            sender,
            receiver,
            memory: vec![(0, 0); messages.last().map_or(0, |message| message.end as usize)],
            messages,
            posted: 0,
            completed: 0,
            listed: false,
            heard_ns: 0,
            backoff: 0,
            timed: false,
        }
    };
    by_ends.into_iter().enumerate().map(connection).collect()
}

/// The parts of these transfers that a connection carries, one behind the other.
fn messages(workload: &Workload, transfers: &[usize], stripe: usize) -> Vec<Message> {
    let mut end = 0;
    let message = |transfer: &usize| {
        let of = workload.transfers[*transfer];
        let bytes = of.part(stripe, workload.stripes).unwrap_or(0);
        let first = end;
        end += bytes.div_ceil(workload.pmtu.into()).max(1);
        Message {
            transfer: *transfer,
            start_ns: of.start_ns,
            bytes,
            first,
            end,
        }
    };
    transfers.iter().map(message).collect()
}
