//! The links of a lab, their addresses and routes: made once, and completed again whenever one of them comes back.

use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use crate::LabError;
use crate::namespace::{self, NetNs};
use crate::netlink::LinkStatus;
use crate::plan::{self, End, Plan, Role};
use crate::switch::Switches;

/// Interfaces of one lab have consecutive indices: this many are reserved for it.
const INDICES: u32 = 1 << 12;
/// A fabric has fewer ends of links than this, and the switch programs know twice as many.
const DETOURS: u32 = 512;
/// How long a link may take to change its state on a machine that is busy with other things.
const LINK_DEADLINE: Duration = Duration::from_secs(10);
const BRIDGE: &str = "br0";
/// What the route of a switch's own uSID leaves by: any interface but `lo`, and one that never goes down.
const SID_INTERFACE: &str = "sid";

const LOOPBACK_INDEX: u32 = 1;

/// The namespaces of a plan and what joins them.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(crate) plan: Plan,
    pub(crate) namespaces: Vec<NetNs>,
    pub(crate) first_index: u32,
}

impl Wiring {
    /// Creates the namespaces.
    pub(crate) fn new(plan: Plan) -> Result<Self, LabError> {
        let namespaces = namespace::create(&plan.nodes)?;
        // Indices that no other lab on the machine uses: one BPF program can tell labs apart, and the two ends of a veth pair never
        // have the same index, which the kernel would take for "no peer" and report their carrier a second late.
        let number = (namespaces.first().map_or(0, NetNs::inode) % 0x7_fffe) as u32 + 1;
        Ok(Self {
            plan,
            namespaces,
            first_index: number * INDICES,
        })
    }

    /// Creates all links, down.
    pub(crate) fn make_links(&self) -> Result<(), LabError> {
        for link in &self.plan.links {
            let [near, far] = link.ends;
            let [near_if, far_if] = link.ends.map(|end| (self.plan.interface(end), self.index(end)));
            self.namespaces[near.node]
                .rtnl()
                .add_veth(near_if, far_if, self.namespaces[far.node].as_fd())?;
        }
        self.flush()
    }

    /// Gives every interface its addresses and its queue, and sets it up.
    pub(crate) fn set_up(&self, switches: Option<&Switches>) -> Result<(), LabError> {
        for (n, (node, ns)) in self.plan.nodes.iter().zip(&self.namespaces).enumerate() {
            let mut rtnl = ns.rtnl();
            rtnl.set_up(LOOPBACK_INDEX, true)?;
            for &address in &node.loopback {
                rtnl.add_address(LOOPBACK_INDEX, address)?;
            }
            let bridge = self.first_index + INDICES - 1;
            if node.role == Role::Management {
                rtnl.add_bridge(BRIDGE, bridge)?;
                rtnl.set_up(bridge, true)?;
            }
            for (i, interface) in node.interfaces.iter().enumerate() {
                let index = self.index(End { node: n, interface: i });
                for &address in &interface.addresses {
                    rtnl.add_address(index, address)?;
                }
                if interface.rate_bps.is_some() {
                    rtnl.keep_apart(index)?;
                }
                match (node.role, interface.rate_bps) {
                    (Role::Management, _) => rtnl.set_bridge(index, bridge)?,
                    (Role::Switch, Some(rate)) => rtnl.add_switch_queue(index, rate)?,
                    // Several hosts may send to one: the 256 places of a veth ring would overflow.
                    (Role::Switch, None) => rtnl.add_queue(index)?,
                    (Role::Host, Some(rate)) => rtnl.add_host_queue(index, rate)?,
                    (Role::Host, None) => {}
                }
                if let (Role::Switch, Some(switches)) = (node.role, switches) {
                    switches.attach(&mut rtnl, index)?;
                }
                rtnl.set_up(index, true)?;
            }
            if let Some(sid) = node.kernel_sid {
                let index = self.first_index + INDICES - 2;
                rtnl.add_ifb(SID_INTERFACE, index)?;
                rtnl.set_up(index, true)?;
                rtnl.add_sid(index, plan::sid_prefix(sid), plan::BLOCK_BITS)?;
            }
        }
        self.flush()
    }

    /// Waits until all links are up, and completes them.
    pub(crate) fn complete(&self) -> Result<(), LabError> {
        let ends = || self.plan.links.iter().flat_map(|l| l.ends);
        ends().try_for_each(|end| self.wait_link(end, "up", LinkStatus::usable))?;
        ends().try_for_each(|end| self.add_routes(end))?;
        (0..self.plan.nodes.len()).try_for_each(|node| self.add_spreads(node))?;
        ends().try_for_each(|end| self.wait_addresses(end))
    }

    /// Adds, or adds again, what the kernel forgets when the interface goes down.
    fn add_routes(&self, end: End) -> Result<(), LabError> {
        let (interface, index) = (self.plan.interface(end), self.index(end));
        let mut rtnl = self.namespaces[end.node].rtnl();
        for &address in &interface.addresses {
            rtnl.add_address(index, address)?;
        }
        for route in &interface.routes {
            rtnl.add_route(index, route)?;
        }
        for &(address, mac) in &interface.neighbours {
            rtnl.add_neighbour(index, address, mac)?;
        }
        rtnl.flush()
    }

    /// Adds, or adds again, a node's routes over several interfaces; those that are disabled take no part.
    fn add_spreads(&self, node: usize) -> Result<(), LabError> {
        let mut routes = Vec::new();
        for spread in &self.plan.nodes[node].spread {
            let mut legs = Vec::new();
            for &(interface, via) in &spread.legs {
                let end = End { node, interface };
                if self.status(end)?.admin_up() {
                    legs.push((self.index(end), via));
                }
            }
            routes.push((spread.destination, legs));
        }
        let mut rtnl = self.namespaces[node].rtnl();
        for (destination, legs) in routes.iter().filter(|(_, legs)| !legs.is_empty()) {
            rtnl.add_spread(*destination, legs)?;
        }
        rtnl.flush()
    }

    fn flush(&self) -> Result<(), LabError> {
        self.namespaces.iter().try_for_each(|ns| ns.rtnl().flush())
    }

    /// The index of an interface.
    pub(crate) fn index(&self, end: End) -> u32 {
        let before: usize = self.plan.nodes[..end.node].iter().map(|n| n.interfaces.len()).sum();
        self.first_index + (before + end.interface) as u32
    }

    /// The indices of the two ends of a port's detour (src/delay.rs): beyond those of all links, the first one known to the programs.
    pub(crate) fn detour(&self, end: End) -> [u32; 2] {
        let index = self.index(end);
        [index + DETOURS, index + INDICES / 2]
    }

    /// Waits until an interface that is no end of a link is up.
    pub(crate) fn wait_index(&self, node: usize, index: u32) -> Result<(), LabError> {
        let start = Instant::now();
        while !self.namespaces[node].rtnl().link(index)?.usable() {
            if start.elapsed() > LINK_DEADLINE {
                return Err(LabError::LinkTimeout {
                    link: format!("{}: interface {index}", self.plan.nodes[node].name),
                    state: "up",
                    waited_ms: start.elapsed().as_millis(),
                });
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// What the kernel says about an interface.
    pub(crate) fn status(&self, end: End) -> Result<LinkStatus, LabError> {
        self.namespaces[end.node].rtnl().link(self.index(end))
    }

    fn wait_link(&self, end: End, state: &'static str, reached: impl Fn(&LinkStatus) -> bool) -> Result<(), LabError> {
        self.wait(end, state, || Ok(reached(&self.status(end)?)))
    }

    /// Waits until a fabric port receives at all its IPv6 addresses: the kernel lets an address begin its work later than it says so,
    /// even without duplicate address detection, and what comes before is lost.
    fn wait_addresses(&self, end: End) -> Result<(), LabError> {
        let interface = self.plan.interface(end);
        if interface.plane.is_none() {
            return Ok(());
        }
        let index = self.index(end);
        let own = interface.addresses.iter().chain(&self.plan.nodes[end.node].loopback);
        let v6 = own.filter_map(|p| if let IpAddr::V6(v6) = p.address { Some(v6) } else { None });
        for address in v6.chain([interface.link_local()]) {
            self.wait(end, "receiving", || {
                Ok(self.namespaces[end.node].rtnl().receives(index, address))
            })?;
        }
        Ok(())
    }

    fn wait(
        &self,
        end: End,
        state: &'static str,
        mut reached: impl FnMut() -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let start = Instant::now();
        while !reached()? {
            if start.elapsed() > LINK_DEADLINE {
                return Err(LabError::LinkTimeout {
                    link: self.plan.end_name(end),
                    state,
                    waited_ms: start.elapsed().as_millis(),
                });
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Sets one end of a link down or up; `other` is its far end. Returns when both ends have noticed and nothing is missing.
    pub(crate) fn set_end(&self, end: End, other: End, up: bool) -> Result<(), LabError> {
        {
            let mut rtnl = self.namespaces[end.node].rtnl();
            rtnl.set_up(self.index(end), up)?;
            rtnl.flush()?;
        }
        if !up {
            self.wait_link(end, "down", LinkStatus::unusable)?;
            return self.wait_link(other, "down", LinkStatus::unusable);
        }
        // The other end may be down for a reason of its own; then the link waits for that.
        if !self.status(other)?.admin_up() {
            return Ok(());
        }
        let ends = [end, other];
        ends.into_iter()
            .try_for_each(|e| self.wait_link(e, "up", LinkStatus::usable))?;
        ends.into_iter().try_for_each(|e| self.add_routes(e))?;
        ends.into_iter().try_for_each(|e| self.add_spreads(e.node))?;
        ends.into_iter().try_for_each(|e| self.wait_addresses(e))
    }
}
