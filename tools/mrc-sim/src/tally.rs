//! Adds up, at the end of a run, what the protocol went through.

use crate::world::World;

impl World {
    pub(crate) fn count_events(&mut self) {
        let coverage = &mut self.coverage;
        for flow in self.flows.iter().flatten() {
            let seen = flow.responder.seen;
            coverage.event("duplicates below ePSN", seen.duplicates_below);
            coverage.event("duplicates above ePSN", seen.duplicates_above);
            coverage.event("packets out of the window", seen.out_of_window);
            coverage.event("packets out of order", seen.out_of_order);
            coverage.event("trimmed packets arrived", seen.trimmed);
            coverage.event("writes refused", seen.refused);
            coverage.event("retransmissions", flow.requestor.resent);
        }
        for slot in self.hosts.iter().flat_map(|host| &host.qps) {
            coverage.event("requests completed", slot.work.succeeded as u64);
            coverage.event("requests failed", slot.work.failed as u64);
        }
    }
}
