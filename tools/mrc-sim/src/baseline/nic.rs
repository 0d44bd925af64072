//! A port of a host: answers first, then its connections in turn, as fast as the link takes them.

use crate::fabric::clos::plan::LinkPlan;
use crate::fabric::frame::Frame;
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Nic {
    link: LinkPlan,
    free_ps: u64,
    /// Somebody comes when the link is free.
    pub(super) clocked: bool,
    pub(super) answers: VecDeque<Box<Frame>>,
    /// Connections that have something to send.
    pub(super) ready: VecDeque<u32>,
}

impl Nic {
    pub(super) fn new(link: LinkPlan) -> Nic {
        Nic {
            link,
            free_ps: 0,
            clocked: false,
            answers: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.answers.is_empty() || !self.ready.is_empty()
    }

    /// When the link is free, from `now_ns` on.
    pub(super) fn free_ns(&self, now_ns: u64) -> u64 {
        self.free_ps.div_ceil(1000).max(now_ns)
    }

    /// Sends `bytes` once the link is free. Returns when the last bit leaves.
    pub(super) fn send(&mut self, bytes: u32, now_ns: u64) -> u64 {
        // The link was free a fraction of a nanosecond ago, if it is free now and was busy before.
        let from_ps = if self.free_ps.div_ceil(1000) == now_ns {
            self.free_ps
        } else {
            now_ns * 1000
        };
        self.free_ps = from_ps + self.link.transmit_ps(bytes);
        self.free_ps.div_ceil(1000)
    }
}
