//! A two-tier Clos fabric per plane, event by event: store-and-forward switches with queues, marks, trimming, loss and outages.
//!
//! Every link is a small node: a queue, a clock, faults. A frame comes to the far end of a link as one step; only where frames
//! wait, the link's clock is a second one. Clocks count picoseconds, so that no rate is rounded; steps happen at the first
//! nanosecond at which they can.

pub mod plan;
pub mod port;
mod routing;
pub mod sampler;
pub mod topology;

use crate::coverage::Coverage;
use crate::fabric::Next;
use crate::fabric::clos::plan::{ClosPlan, PlanError};
use crate::fabric::clos::port::{End, Far, Port, PortCounters, Rules};
use crate::fabric::clos::routing::{Key, Routes};
use crate::fabric::clos::sampler::{Sampler, Series};
use crate::fabric::clos::topology::{Link, LinkId, Place, Shape};
use crate::fabric::fault::{Fault, FaultNode, Outcome};
use crate::fabric::frame::Frame;
use crate::rng::Rng;

/// The fabric at work.
#[derive(Debug)]
pub struct Clos {
    plan: ClosPlan,
    ports: Vec<Port>,
    /// The far ends of all links, in little room: every hop asks for one.
    ends: Vec<End>,
    /// Links that are down, each as often as outages hold it.
    cuts: u32,
    routes: Routes,
    faults: Vec<FaultNode>,
    /// Rules of all ports but those of the last hop, and of those.
    rules: [Rules; 2],
    sampler: Sampler,
    totals: Totals,
    rng: Rng,
}

/// Something that happens inside the fabric.
#[derive(Debug)]
pub struct Step(Inner);

#[derive(Debug)]
enum Inner {
    /// A frame reaches the switch at the far end of a link.
    Hop { frame: Box<Frame>, link: LinkId },
    /// A link on which something waits is free.
    Free { link: LinkId },
    /// A part of an outage.
    Outage { index: u32, phase: Phase },
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Cut,
    Withdraw,
    Heal,
    Restore,
}

/// What became of all frames. `sent + copied == arrived + dropped + lost + unrouted + queued + on_links` at any time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sent by hosts.
    pub sent: u64,
    /// Added by faults.
    pub copied: u64,
    /// Put on the last link, intact or damaged, trimmed or whole. They reach the host.
    pub arrived: u64,
    /// Dropped by queues.
    pub dropped: u64,
    /// Lost on links.
    pub lost: u64,
    /// Dropped because there was no route.
    pub unrouted: u64,
    /// Waiting in switches.
    pub queued: u64,
    /// On links between hosts and switches or between switches.
    pub on_links: u64,
}

/// The links that a packet takes: two below one T0, four over a spine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(Vec<Link>);

impl Path {
    /// The links in order.
    pub fn links(&self) -> &[Link] {
        &self.0
    }

    /// The spine, unless the hosts share a T0.
    pub fn spine(&self) -> Option<usize> {
        self.0.iter().find_map(|link| match link {
            Link::SpineUp { spine, .. } => Some(*spine),
            _ => None,
        })
    }
}

impl Clos {
    /// The fabric of `plan` with `faults`, all of whose chances come from `seed`.
    pub fn new(plan: ClosPlan, faults: &[Fault], seed: u64) -> Result<Clos, PlanError> {
        plan.check()?;
        let shape = plan.shape;
        let mut rng = Rng::new(seed, "clos");
        let mut ports: Vec<Port> = shape.links().map(|link| port(&plan, link)).collect();
        let routes = Routes::new(plan.routing, shape, &mut rng);
        let nodes = faults.iter().map(|fault| FaultNode::new(*fault, rng.word())).collect();
        for (index, fault) in faults.iter().enumerate() {
            for link in links_of_fault(&shape, fault)? {
                let on_link = &mut ports[shape.id(link) as usize].faults;
                *on_link = on_link.iter().copied().chain([index as u16]).collect();
            }
        }
        Ok(Clos {
            ends: ports.iter().map(|port| port.end).collect(),
            cuts: 0,
            rules: [false, true].map(|last_hop| Rules::new(&plan.queues, plan.mtu_bytes, last_hop)),
            sampler: Sampler::new(plan.sampling.as_ref(), &shape),
            totals: Totals::default(),
            faults: nodes,
            plan,
            ports,
            routes,
            rng,
        })
    }

    /// Emits the outages.
    pub fn start(&mut self, mut emit: impl FnMut(Next)) {
        for (index, outage) in self.plan.outages.iter().enumerate() {
            let mut plan = |at_ns: u64, phase| {
                let index = index as u32;
                if at_ns < u64::MAX {
                    emit(Next::Step(at_ns, Step(Inner::Outage { index, phase })));
                }
            };
            plan(outage.from_ns, Phase::Cut);
            plan(outage.until_ns, Phase::Heal);
            if let Some(after_ns) = outage.reroute_ns {
                plan(outage.from_ns.saturating_add(after_ns), Phase::Withdraw);
                plan(outage.until_ns.saturating_add(after_ns), Phase::Restore);
            }
        }
    }

    /// Takes `frame`, whose last bit leaves the host at `leaves_ns`, or when all before it have left the link.
    pub fn send(&mut self, frame: Box<Frame>, leaves_ns: u64, coverage: &mut Coverage, mut emit: impl FnMut(Next)) {
        self.totals.sent += 1;
        let Shape { planes, .. } = self.plan.shape;
        let hosts = self.plan.shape.hosts();
        if !(1..=planes).contains(&frame.plane) || frame.src >= hosts || frame.dst >= hosts {
            self.totals.unrouted += 1;
            return;
        }
        let link = self.base(frame.plane) + frame.src;
        let port = &mut self.ports[link];
        let bytes = frame.wire_size();
        let from_ps = (leaves_ns * 1000).saturating_sub(port.link.transmit_ps(bytes));
        let end_ps = port.transmit(bytes, from_ps);
        self.travel(link as LinkId, frame, end_ps, coverage, &mut emit);
    }

    /// Takes a step that is due at `now_ns`.
    pub fn step(&mut self, step: Step, now_ns: u64, coverage: &mut Coverage, mut emit: impl FnMut(Next)) {
        self.sampler.advance(now_ns, &self.ports);
        match step.0 {
            Inner::Hop { frame, link } => {
                self.totals.on_links -= 1;
                if self.cuts > 0 && self.ports[link as usize].cuts > 0 {
                    self.lose(link);
                } else if let Some(next) = self.next_link(link, &frame) {
                    self.forward(next, frame, now_ns, coverage, &mut emit);
                } else {
                    self.totals.unrouted += 1;
                }
            }
            Inner::Free { link } => {
                let port = &mut self.ports[link as usize];
                port.clocked = false;
                let from_ps = port.free_ps;
                if let Some((frame, bytes)) = port.pop() {
                    self.totals.queued -= 1;
                    self.transmit(link, frame, bytes, from_ps, coverage, &mut emit);
                }
            }
            Inner::Outage { index, phase } => self.change(index as usize, phase),
        }
    }

    /// First link of a plane; the uplink of host h is number h from there.
    fn base(&self, plane: u8) -> usize {
        usize::from(plane - 1) * self.plan.shape.links_per_plane()
    }

    /// Where a frame goes on from the far end of `link`.
    fn next_link(&self, link: LinkId, frame: &Frame) -> Option<LinkId> {
        let Shape { leaves, spines, .. } = self.plan.shape;
        let (hosts, to_leaf) = (self.plan.shape.hosts(), self.plan.shape.leaf_of(frame.dst));
        let End { far, plane } = self.ends[link as usize];
        let offset = match far {
            Far::Host => return None,
            Far::Leaf(leaf) if to_leaf == usize::from(leaf) => hosts + frame.dst,
            Far::Leaf(leaf) => {
                let leaf = usize::from(leaf);
                let (src, dst, ev) = (frame.src, frame.dst, frame.ev);
                let spine = self.routes.spine(plane, leaf, to_leaf, Key { src, dst, ev })?;
                2 * hosts + leaf * spines + spine
            }
            Far::Spine(spine) => 2 * hosts + (leaves + to_leaf) * spines + usize::from(spine),
        };
        Some((self.base(plane) + offset) as LinkId)
    }

    /// A frame has come to the port before `link`.
    fn forward(
        &mut self,
        link: LinkId,
        mut frame: Box<Frame>,
        now_ns: u64,
        coverage: &mut Coverage,
        emit: &mut impl FnMut(Next),
    ) {
        let port = &mut self.ports[link as usize];
        let rules = &self.rules[usize::from(port.end.far == Far::Host)];
        if !port.admits(&mut frame, rules, now_ns) {
            self.totals.dropped += 1;
        } else if port.is_idle(now_ns) {
            let bytes = frame.wire_size();
            self.transmit(link, frame, bytes, now_ns * 1000, coverage, emit);
        } else {
            port.push(frame);
            self.totals.queued += 1;
            self.clock(link, emit);
        }
    }

    /// The link's clock, if something waits.
    fn clock(&mut self, link: LinkId, emit: &mut impl FnMut(Next)) {
        let port = &mut self.ports[link as usize];
        if !port.clocked && port.waiting_frames() > 0 {
            port.clocked = true;
            emit(Next::Step(port.free_ps.div_ceil(1000), Step(Inner::Free { link })));
        }
    }

    fn transmit(
        &mut self,
        link: LinkId,
        mut frame: Box<Frame>,
        bytes: u32,
        from_ps: u64,
        coverage: &mut Coverage,
        emit: &mut impl FnMut(Next),
    ) {
        let port = &mut self.ports[link as usize];
        if let Some(ramp) = self.rules[usize::from(port.end.far == Far::Host)].ecn {
            port.mark(&mut frame, ramp, &mut self.rng);
        }
        let end_ps = port.transmit(bytes, from_ps);
        let cut = port.cuts > 0;
        self.clock(link, emit);
        if cut {
            self.lose(link);
        } else {
            self.travel(link, frame, end_ps, coverage, emit);
        }
    }

    /// A frame whose last bit leaves at `end_ps` is on the link, with the faults that wait there.
    fn travel(
        &mut self,
        link: LinkId,
        frame: Box<Frame>,
        end_ps: u64,
        coverage: &mut Coverage,
        emit: &mut impl FnMut(Next),
    ) {
        let port = &self.ports[link as usize];
        let (leaves_ns, delay_ns) = (end_ps.div_ceil(1000), port.link.delay_ns);
        if port.faults.is_empty() {
            self.end_travel(link, frame, leaves_ns + delay_ns, emit);
        } else {
            self.meet_faults(link, frame, [leaves_ns, leaves_ns + delay_ns], 0, coverage, emit);
        }
    }

    fn meet_faults(
        &mut self,
        link: LinkId,
        mut frame: Box<Frame>,
        [leaves_ns, mut arrives_ns]: [u64; 2],
        first: usize,
        coverage: &mut Coverage,
        emit: &mut impl FnMut(Next),
    ) {
        for at in first..self.ports[link as usize].faults.len() {
            let node = &mut self.faults[usize::from(self.ports[link as usize].faults[at])];
            let (outcome, acted) = node.pass(&mut frame, &mut arrives_ns, leaves_ns, &mut self.rng);
            if acted {
                coverage.fault(node.tag());
            }
            match outcome {
                Outcome::Pass => {}
                Outcome::Lost => return self.lose(link),
                Outcome::Twice { after_ns } => {
                    self.totals.copied += 1;
                    let times = [leaves_ns, arrives_ns + after_ns];
                    self.meet_faults(link, frame.clone(), times, at + 1, coverage, emit);
                }
            }
        }
        self.end_travel(link, frame, arrives_ns, emit);
    }

    fn end_travel(&mut self, link: LinkId, frame: Box<Frame>, arrives_ns: u64, emit: &mut impl FnMut(Next)) {
        if self.ports[link as usize].end.far == Far::Host {
            self.totals.arrived += 1;
            emit(Next::Arrive(arrives_ns, frame));
        } else {
            self.totals.on_links += 1;
            emit(Next::Step(arrives_ns, Step(Inner::Hop { frame, link })));
        }
    }

    fn lose(&mut self, link: LinkId) {
        self.totals.lost += 1;
        self.ports[link as usize].counters.lost += 1;
    }

    fn change(&mut self, index: usize, phase: Phase) {
        let place = self.plan.outages[index].place;
        for link in self.plan.shape.links_of(place).unwrap_or_default() {
            let port = &mut self.ports[self.plan.shape.id(link) as usize];
            match phase {
                Phase::Cut => {
                    self.cuts += 1;
                    port.cuts += 1;
                }
                Phase::Heal => {
                    self.cuts -= 1;
                    port.cuts -= 1;
                }
                Phase::Withdraw => port.withdrawals += 1,
                Phase::Restore => port.withdrawals -= 1,
            }
            self.routes.believe(link, port.withdrawals == 0);
        }
    }
}

/// What the fabric has to tell.
impl Clos {
    /// The plan that it follows.
    pub fn plan(&self) -> &ClosPlan {
        &self.plan
    }

    /// The links that a packet would take now if nothing waited; `None` if there is no route. Both hosts and the plane must exist.
    pub fn path_of(&self, src: usize, dst: usize, plane: u8, ev: u32) -> Option<Path> {
        let shape = self.plan.shape;
        let (leaf, to_leaf) = (shape.leaf_of(src), shape.leaf_of(dst));
        let mut links = vec![Link::HostUp { plane, host: src }];
        if leaf != to_leaf {
            let spine = self.routes.spine(plane, leaf, to_leaf, Key { src, dst, ev })?;
            links.push(Link::SpineUp { plane, leaf, spine });
            let leaf = to_leaf;
            links.push(Link::SpineDown { plane, leaf, spine });
        }
        links.push(Link::HostDown { plane, host: dst });
        links.iter().all(|link| shape.has_link(*link)).then_some(Path(links))
    }

    /// Counters of the port before a link; `None` if there is no such link.
    pub fn counters(&self, link: Link) -> Option<PortCounters> {
        let shape = self.plan.shape;
        shape
            .has_link(link)
            .then(|| self.ports[shape.id(link) as usize].counters)
    }

    /// Counters of all ports.
    pub fn all_counters(&self) -> impl Iterator<Item = (Link, PortCounters)> + '_ {
        self.plan.shape.links().zip(self.ports.iter().map(|port| port.counters))
    }

    /// What became of all frames.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Takes the samples up to `now_ns` and returns the time series.
    pub fn series(&mut self, now_ns: u64) -> Vec<Series> {
        self.sampler.advance(now_ns, &self.ports);
        self.sampler.series().collect()
    }
}

fn port(plan: &ClosPlan, link: Link) -> Port {
    let shape = plan.shape;
    let (far, rate) = match link {
        Link::HostUp { host, .. } => (Far::Leaf(shape.leaf_of(host) as u16), plan.host_link),
        Link::HostDown { .. } => (Far::Host, plan.host_link),
        Link::SpineUp { spine, .. } => (Far::Spine(spine as u16), plan.spine_link),
        Link::SpineDown { leaf, .. } => (Far::Leaf(leaf as u16), plan.spine_link),
    };
    let plane = link.plane();
    Port::new(End { far, plane }, rate)
}

/// A fault without a place meets every frame once: on the first link.
fn links_of_fault(shape: &Shape, fault: &Fault) -> Result<Vec<Link>, PlanError> {
    match fault.scope.place {
        Some(place) => shape
            .links_of(place)
            .ok_or_else(|| PlanError::Place(format!("{place:?}"))),
        None => Ok((1..=shape.planes)
            .flat_map(|plane| shape.links_of(Place::Plane(plane)).unwrap_or_default())
            .collect()),
    }
}
