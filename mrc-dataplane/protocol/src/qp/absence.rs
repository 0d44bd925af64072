//! When this engine was away, as its own timers show (protocol.md §5.6, "no blame").

use super::Qp;
use crate::qpcc::Qpcc;
use crate::time::Stall;
use crate::work::Cx;

impl Qp {
    /// Lets the clock go on. A timer that is served late, or after a packet that came later, shows that this engine was away:
    /// to it a clock that leaps is the same.
    pub(super) fn notice_absence(&mut self, cx: &Cx<'_>) {
        let long = cx.now.since(self.now) > self.requestor.stall_ns(cx.cc);
        let due = if long { self.next_timeout() } else { None };
        let now = self.clock(cx.now);
        if let Some(from) = due {
            self.note_stall(Stall { from, to: now }, cx.cc);
        }
    }

    /// Remembers an absence that was long enough to matter.
    pub(super) fn note_stall(&mut self, stall: Stall, cc: &Qpcc) {
        if stall.to.since(stall.from) > self.requestor.stall_ns(cc) {
            self.stalls.note(stall);
        }
    }
}
