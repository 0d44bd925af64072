//! One end of a link: the queues before it, and the link's clock.

use crate::fabric::clos::plan::{LinkPlan, QueuePlan, Ramp, TrimPlan};
use crate::fabric::frame::{Frame, Trim};
use crate::rng::Rng;
use std::collections::VecDeque;

const CONTROL: usize = 0;
const DATA: usize = 1;
/// Trimmed frames that may follow each other without regard to their share of the link.
const TRIM_BURST: u64 = 16;

/// What a port has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames sent.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on, without FCS.
    pub bytes: u64,
    /// Of these frames, marked here.
    pub marked: u64,
    /// Frames cut here.
    pub trimmed: u64,
    /// Frames that did not fit into the queue, the trimmed share or the MTU.
    pub dropped: u64,
    /// Frames lost on the link: to a fault or an outage.
    pub lost: u64,
    /// Most bytes that have waited.
    pub high_water_bytes: u32,
}

/// What stands at the far end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Far {
    Host,
    Leaf(u16),
    Spine(u16),
}

/// The far end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) far: Far,
    pub(super) plane: u8,
}

/// How a port's queues treat frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) ecn: Option<Ramp>,
    pub(super) trim: Option<TrimPlan>,
    pub(super) last_hop: bool,
    pub(super) drop_bytes: u32,
    pub(super) control_bytes: u32,
    pub(super) mtu_bytes: u32,
}

/// A port of a switch or host, with the link that leaves it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) end: End,
    pub(super) link: LinkPlan,
    /// Outages that hold the link down.
    pub(super) cuts: u16,
    /// Outages because of which the control plane does not believe in the link.
    pub(super) withdrawals: u16,
    /// Numbers of the faults on the link.
    pub(super) faults: Box<[u16]>,
    queues: [VecDeque<Waiting>; 2],
    waiting: [u32; 2],
    /// When the link is free.
    pub(super) free_ps: u64,
    /// Somebody will call [`Port::next`] at that instant.
    pub(super) clocked: bool,
    /// When the trimmed frames so far would have been sent at just their share.
    trimmed_ps: u64,
    pub(super) busy_ps: u64,
    pub(super) counters: PortCounters,
}

/// A frame in a queue, with its size at hand: at the time of its departure nobody needs to look at the frame itself, which
/// the processor's cache has long forgotten.
#[derive(Debug)]
struct Waiting {
    frame: Box<Frame>,
    bytes: u32,
}

impl Rules {
    pub(super) fn new(plan: &QueuePlan, mtu_bytes: u32, last_hop: bool) -> Rules {
        Rules {
            ecn: plan.ecn.filter(|_| !last_hop || plan.ecn_last_hop),
            trim: plan.trim,
            last_hop,
            drop_bytes: plan.drop_bytes,
            control_bytes: plan.control_bytes,
            mtu_bytes,
        }
    }
}

impl Ramp {
    /// Probability of a mark in parts of 2^32 with `bytes` waiting.
    fn chance(self, bytes: u32) -> u64 {
        let above = u64::from(bytes.saturating_sub(self.low_bytes));
        let span = u64::from(self.high_bytes - self.low_bytes);
        (above << 32) / span
    }
}

impl Port {
    pub(super) fn new(end: End, link: LinkPlan) -> Port {
        Port {
            end,
            link,
            cuts: 0,
            withdrawals: 0,
            faults: Box::default(),
            queues: [VecDeque::new(), VecDeque::new()],
            waiting: [0, 0],
            free_ps: 0,
            clocked: false,
            trimmed_ps: 0,
            busy_ps: 0,
            counters: PortCounters::default(),
        }
    }

    /// Bytes that wait.
    pub(super) fn waiting_bytes(&self) -> u32 {
        self.waiting[CONTROL] + self.waiting[DATA]
    }

    /// Frames that wait.
    pub(super) fn waiting_frames(&self) -> usize {
        self.queues[CONTROL].len() + self.queues[DATA].len()
    }

    /// Whether a frame that comes now can leave at once.
    pub(super) fn is_idle(&self, now_ns: u64) -> bool {
        self.waiting_frames() == 0 && self.free_ps <= now_ns * 1000
    }

    /// Decides about a frame that comes now: it is as it may be queued, perhaps trimmed, or false: it is dropped.
    pub(super) fn admits(&mut self, frame: &mut Frame, rules: &Rules, now_ns: u64) -> bool {
        let admitted = frame.wire_size() <= rules.mtu_bytes && self.fits(frame, rules, now_ns);
        self.counters.dropped += u64::from(!admitted);
        admitted
    }

    fn fits(&mut self, frame: &mut Frame, rules: &Rules, now_ns: u64) -> bool {
        let mut cut = false;
        if frame.is_data_class() {
            let after = self.waiting[DATA].saturating_add(frame.size);
            let Some(trim) = rules.trim.filter(|_| frame.trimmable) else {
                return after <= rules.drop_bytes;
            };
            let last_hop = rules.last_hop;
            if after
                <= if last_hop {
                    trim.at_last_hop_bytes
                } else {
                    trim.at_bytes
                }
            {
                return true;
            }
            cut = true;
            frame.trim = Some(Trim {
                last_hop,
                keep: trim.keep_bytes as usize,
            });
        }
        let fits = self.waiting[CONTROL].saturating_add(frame.wire_size()) <= rules.control_bytes
            && self.has_share_for(frame, rules.trim, now_ns);
        self.counters.trimmed += u64::from(cut && fits);
        fits
    }

    /// Trimmed frames get so much of the link and no more (protocol.md §12): they could starve the data that they stand for.
    fn has_share_for(&mut self, frame: &Frame, trim: Option<TrimPlan>, now_ns: u64) -> bool {
        let Some(trim) = trim.filter(|_| frame.trim.is_some()) else {
            return true;
        };
        let cost_ps = self.link.transmit_ps(frame.wire_size()) * 100 / u64::from(trim.share_percent.max(1));
        let now_ps = now_ns * 1000;
        if self.trimmed_ps > now_ps + TRIM_BURST * cost_ps {
            return false;
        }
        self.trimmed_ps = self.trimmed_ps.max(now_ps) + cost_ps;
        true
    }

    /// Queues a frame that was admitted.
    pub(super) fn push(&mut self, frame: Box<Frame>) {
        let class = if frame.is_data_class() { DATA } else { CONTROL };
        let bytes = frame.wire_size();
        self.waiting[class] += bytes;
        self.queues[class].push_back(Waiting { frame, bytes });
        self.counters.high_water_bytes = self.counters.high_water_bytes.max(self.waiting_bytes());
    }

    /// The frame that leaves next, with its size: control before data.
    pub(super) fn pop(&mut self) -> Option<(Box<Frame>, u32)> {
        let class = if self.queues[CONTROL].is_empty() { DATA } else { CONTROL };
        let Waiting { frame, bytes } = self.queues[class].pop_front()?;
        self.waiting[class] -= bytes;
        Some((frame, bytes))
    }

    /// Marks a frame that leaves, by what waits behind it: so the mark tells of the queue now, not of that when it came.
    pub(super) fn mark(&mut self, frame: &mut Frame, ramp: Ramp, rng: &mut Rng) {
        if self.waiting[DATA] <= ramp.low_bytes || !frame.ect || !frame.is_data_class() {
            return;
        }
        if rng.word() >> 32 < ramp.chance(self.waiting[DATA]) {
            frame.ce = true;
            self.counters.marked += 1;
        }
    }

    /// Puts a frame of `bytes` on the link, not before `from_ps`. Returns when its last bit has left.
    pub(super) fn transmit(&mut self, bytes: u32, from_ps: u64) -> u64 {
        let takes_ps = self.link.transmit_ps(bytes);
        self.free_ps = self.free_ps.max(from_ps) + takes_ps;
        self.busy_ps += takes_ps;
        self.counters.packets += 1;
        self.counters.bytes += u64::from(bytes);
        self.free_ps
    }

    /// How long the link has been busy until `at_ns`: a frame under way counts with the part that has left.
    pub(super) fn busy_until_ps(&self, at_ns: u64) -> u64 {
        self.busy_ps - self.free_ps.saturating_sub(at_ns * 1000).min(self.busy_ps)
    }
}
