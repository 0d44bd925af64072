//! Where in memory the data of a test lies: the same arithmetic on both ends.
//!
//! One region: the sources of all queue pairs, then their destinations, then a guard. A queue pair has one area in each half,
//! cut into slots of the size under test; message `i` goes from slot `i % slots` to the peer's slot of the same number.

use crate::cli::Plan;

/// Memory that all sources of one end may take together, unless one message needs more.
const BUDGET: u64 = 64 << 20;
/// Bytes behind the last destination that nobody may write.
pub(crate) const GUARD: usize = 4096;

/// Sizes for one plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    area: usize,
    qps: usize,
    depth: u64,
    budget: u64,
}

impl Layout {
    pub(crate) fn new(plan: &Plan) -> Layout {
        let budget = (BUDGET / u64::from(plan.qps)).max(64 << 10);
        let mut layout = Layout {
            area: 0,
            qps: plan.qps as usize,
            depth: plan.depth.into(),
            budget,
        };
        let areas = plan.sizes.iter().map(|&size| layout.slots(size) * size);
        // Page by page, so that areas do not share cache lines.
        layout.area = areas.max().unwrap_or(0).next_multiple_of(4096) as usize;
        layout
    }

    /// Slots of one queue pair for messages of this size.
    pub(crate) fn slots(&self, size: u64) -> u64 {
        self.budget.checked_div(size).map_or(1, |fit| fit.clamp(1, self.depth))
    }

    /// Bytes of the region.
    pub(crate) fn len(&self) -> usize {
        2 * self.area * self.qps + GUARD
    }

    /// Offset of a source slot.
    pub(crate) fn source(&self, qp: usize, slot: u64, size: u64) -> usize {
        qp * self.area + (slot * size) as usize
    }

    /// Offset of a destination slot.
    pub(crate) fn destination(&self, qp: usize, slot: u64, size: u64) -> usize {
        self.qps * self.area + self.source(qp, slot, size)
    }

    /// Offset of the guard.
    pub(crate) fn guard(&self) -> usize {
        2 * self.area * self.qps
    }

    /// Bytes of one area.
    pub(crate) fn area(&self) -> usize {
        self.area
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Length, Op, Test};

    fn plan(sizes: Vec<u64>, qps: u32, depth: u32) -> Plan {
        Plan {
            test: Test::Bw,
            op: Op::Write,
            sizes,
            qps,
            depth,
            length: Length::Iters(1),
            verify: true,
            bidirectional: false,
            pmtu: None,
            gid: None,
            timeout: None,
            seed: 0,
            gbits: false,
        }
    }

    #[test]
    fn slots_never_overlap_and_stay_before_the_guard() {
        for (sizes, qps, depth) in [
            (vec![2, 64, 8 << 20], 3, 128),
            (vec![0], 1, 1),
            (vec![5000], 1024, 4096),
            (vec![1 << 30], 1, 9),
        ] {
            let layout = Layout::new(&plan(sizes.clone(), qps, depth));
            for size in sizes {
                let slots = layout.slots(size);
                assert!((1..=u64::from(depth)).contains(&slots));
                let mut at = 0;
                for qp in [0, qps as usize - 1] {
                    for slot in [0, slots - 1] {
                        let here = layout.source(qp, slot, size);
                        assert!(here >= at || size == 0 || slots == 1 || qps == 1);
                        at = here;
                        assert!(here + size as usize <= (qp + 1) * layout.area());
                        assert!(layout.destination(qp, slot, size) + size as usize <= layout.guard());
                    }
                }
            }
            assert_eq!(layout.guard() + GUARD, layout.len());
        }
    }
}
