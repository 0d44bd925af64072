//! A fabric with its events, and the frames that the tests send.

use mrc_sim::coverage::Coverage;
use mrc_sim::fabric::Next;
use mrc_sim::fabric::clos::plan::{ClosPlan, LinkPlan, QueuePlan};
use mrc_sim::fabric::clos::topology::{Link, Shape};
use mrc_sim::fabric::clos::{Clos, Totals};
use mrc_sim::fabric::fault::{Fault, Kind, Scope};
use mrc_sim::fabric::frame::{Body, Frame};
use mrc_sim::queue::EventQueue;

pub(crate) const SHAPE: Shape = Shape {
    planes: 2,
    leaves: 3,
    spines: 4,
    hosts_per_leaf: 4,
};
/// A frame of 976 bytes takes 8 µs at this rate.
pub(crate) const GIGABIT: LinkPlan = LinkPlan {
    rate_mbps: 1000,
    delay_ns: 500,
};
pub(crate) const FULL: u32 = 976;

/// A fabric and its events.
pub(crate) struct Net {
    pub(crate) clos: Clos,
    pub(crate) events: EventQueue<Next>,
    pub(crate) coverage: Coverage,
    pub(crate) arrived: Vec<(u64, Frame)>,
    pub(crate) now_ns: u64,
}

impl Net {
    pub(crate) fn new(plan: ClosPlan, faults: &[Fault]) -> Net {
        let mut net = Net {
            clos: Clos::new(plan, faults, 7).expect("a plan that makes sense"),
            events: EventQueue::new(),
            coverage: Coverage::default(),
            arrived: Vec::new(),
            now_ns: 0,
        };
        net.clos.start(|next| post(&mut net.events, next));
        net
    }

    /// Sends a frame of which the last bit leaves at `at_ns`.
    pub(crate) fn send(&mut self, at_ns: u64, frame: Frame) {
        let events = &mut self.events;
        self.clos
            .send(Box::new(frame), at_ns, &mut self.coverage, |next| post(events, next));
    }

    /// Runs until nothing happens before `until_ns`.
    pub(crate) fn run_until(&mut self, until_ns: u64) {
        while let Some((at_ns, next)) = self.events.pop() {
            if at_ns > until_ns {
                self.events.post(at_ns, next);
                break;
            }
            self.now_ns = at_ns;
            match next {
                Next::Arrive(_, frame) => self.arrived.push((at_ns, *frame)),
                Next::Step(_, step) => {
                    let events = &mut self.events;
                    self.clos
                        .step(step, at_ns, &mut self.coverage, |next| post(events, next));
                }
            }
            let t = self.clos.totals();
            assert_eq!(
                t.sent + t.copied,
                t.arrived + t.dropped + t.lost + t.unrouted + t.queued + t.on_links,
                "{t:?}"
            );
        }
    }

    pub(crate) fn run(&mut self) -> Totals {
        self.run_until(u64::MAX);
        let totals = self.clos.totals();
        assert_eq!((totals.queued, totals.on_links), (0, 0));
        assert_eq!(totals.arrived, self.arrived.len() as u64);
        totals
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.arrived.iter().map(|(_, frame)| frame.id).collect()
    }
}

fn post(events: &mut EventQueue<Next>, next: Next) {
    let (Next::Arrive(at_ns, _) | Next::Step(at_ns, _)) = &next;
    events.post(*at_ns, next);
}

pub(crate) fn frame(src: usize, dst: usize, ev: u32, size: u32) -> Frame {
    Frame {
        src,
        dst,
        plane: 1,
        ev,
        data: true,
        control: false,
        trimmable: true,
        ect: true,
        size,
        body: Body::Bytes(Vec::new()),
        ce: false,
        trim: None,
        flips: Vec::new(),
        id: 0,
    }
}

pub(crate) fn answer(src: usize, dst: usize, size: u32) -> Frame {
    Frame {
        data: false,
        control: true,
        trimmable: false,
        ect: false,
        ..frame(src, dst, 0, size)
    }
}

/// Queues that do nothing but drop at `drop_bytes`.
pub(crate) fn plain(drop_bytes: u32) -> QueuePlan {
    QueuePlan {
        ecn: None,
        ecn_last_hop: false,
        trim: None,
        drop_bytes,
        control_bytes: 100_000,
    }
}

pub(crate) fn gigabit(queues: QueuePlan) -> ClosPlan {
    ClosPlan {
        queues,
        ..ClosPlan::new(SHAPE, GIGABIT)
    }
}

pub(crate) fn always(kind: Kind, scope: Scope) -> Fault {
    Fault {
        kind,
        scope,
        from_ns: 0,
        until_ns: u64::MAX,
    }
}

pub(crate) const DOWN_TO_4: Link = Link::HostDown { plane: 1, host: 4 };
