//! A fabric that is up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mrc_ebpf::{Passing, PassingProgram};

use crate::capture::Capture;
use crate::namespace::{self, NetNs};
use crate::netlink::LinkStatus;
use crate::plan::{self, End, Plan, Role};
use crate::process::{Process, ProcessSpace};
use crate::{LabError, Topology};

/// Interfaces of one lab have consecutive indices: this many are reserved for it.
const INDICES: u32 = 1 << 12;
/// How long a link may take to change its state on a machine that is busy with other things.
const LINK_DEADLINE: Duration = Duration::from_secs(10);
const BRIDGE: &str = "br0";
/// What the route of a switch's own uSID leaves by: any interface but `lo`, and one that never goes down.
const SID_INTERFACE: &str = "sid";

/// A fabric in namespaces. Everything in it ends when it is dropped or its process ends, however that ends.
///
/// ```no_run
/// use std::process::Command;
/// use netns_lab::{Lab, Topology};
///
/// let lab = Lab::build(&Topology::leaf(2, 4))?;
/// let mut ping = Command::new("ping");
/// ping.args(["-c", "1", &lab.host(1).gid_v4().to_string()]);
/// assert!(lab.host(0).spawn(ping)?.wait()?.success());
/// lab.set_link(0, 1, false)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lab {
    // First, so that programs end before their namespaces.
    processes: Mutex<Option<ProcessSpace>>,
    plan: Plan,
    namespaces: Vec<NetNs>,
    first_index: u32,
    /// The programs on the switches' ports.
    passing: Vec<Passing>,
}

/// Counters of one interface since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received, Ethernet headers included.
    pub rx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent, Ethernet headers included.
    pub tx_bytes: u64,
    /// Packets that could not be sent.
    pub tx_dropped: u64,
}

impl Lab {
    /// Builds a topology; returns when every link is usable.
    pub fn build(topology: &Topology) -> Result<Self, LabError> {
        let plan = Plan::new(topology)?;
        let namespaces = namespace::create(&plan.nodes)?;
        // Indices that no other lab on the machine uses: one BPF program can tell labs apart, and the two ends of a veth pair never
        // have the same index, which the kernel would take for "no peer" and report their carrier a second late.
        let number = (namespaces.first().map_or(0, NetNs::inode) % 0x7_fffe) as u32 + 1;
        let (processes, passing) = (Mutex::default(), Vec::new());
        let mut lab = Self {
            processes,
            plan,
            namespaces,
            first_index: number * INDICES,
            passing,
        };
        lab.make_links()?;
        lab.set_up()?;
        lab.passing = lab.attach_passing()?;
        let ends = || lab.plan.links.iter().flat_map(|l| l.ends);
        ends().try_for_each(|end| lab.wait_link(end, "up", LinkStatus::usable))?;
        ends().try_for_each(|end| lab.add_routes(end))?;
        (0..lab.plan.nodes.len()).try_for_each(|node| lab.add_spreads(node))?;
        ends().try_for_each(|end| lab.wait_addresses(end))?;
        Ok(lab)
    }

    fn make_links(&self) -> Result<(), LabError> {
        for link in &self.plan.links {
            let [near, far] = link.ends;
            let [near_if, far_if] = link.ends.map(|end| (self.plan.interface(end), self.index(end)));
            self.namespaces[near.node]
                .rtnl()
                .add_veth(near_if, far_if, self.namespaces[far.node].as_fd())?;
        }
        self.flush()
    }

    fn set_up(&self) -> Result<(), LabError> {
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
                match node.role {
                    Role::Management => rtnl.set_bridge(index, bridge)?,
                    // Several hosts may send to one: the 256 places of a veth ring would overflow.
                    Role::Switch => rtnl.add_queue(index)?,
                    Role::Host => {}
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

    /// Completes what hosts send by AF_XDP as soon as it reaches a switch: without a program there, a packet stays charged to the
    /// sender's socket until it leaves the last queue of its path.
    fn attach_passing(&self) -> Result<Vec<Passing>, LabError> {
        let mut passing = Vec::new();
        let mut program = None;
        for (node, ns) in self.plan.nodes.iter().zip(&self.namespaces) {
            if node.role != Role::Switch {
                continue;
            }
            let failed = |source: mrc_ebpf::Error| LabError::Xdp {
                node: node.name.clone(),
                source: source.into(),
            };
            let program = match &mut program {
                Some(program) => program,
                none => none.insert(PassingProgram::load().map_err(failed)?),
            };
            let attach = || {
                node.interfaces
                    .iter()
                    .map(|port| program.attach(&port.name))
                    .collect::<Result<Vec<_>, _>>()
            };
            passing.extend(ns.enter(attach)?.map_err(failed)?);
        }
        Ok(passing)
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

    fn index(&self, end: End) -> u32 {
        let before: usize = self.plan.nodes[..end.node].iter().map(|n| n.interfaces.len()).sum();
        self.first_index + (before + end.interface) as u32
    }

    fn status(&self, end: End) -> Result<LinkStatus, LabError> {
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

    /// The plan that was built.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A host, counted from 0.
    ///
    /// # Panics
    /// Where there is no such host, as an index does.
    pub fn host(&self, host: usize) -> Host<'_> {
        assert!(
            host < self.plan.topology.hosts,
            "no host {host}: the lab has {}",
            self.plan.topology.hosts
        );
        Host {
            namespace: Namespace { lab: self, node: host },
        }
    }

    /// All hosts in order.
    pub fn hosts(&self) -> impl Iterator<Item = Host<'_>> {
        (0..self.plan.topology.hosts).map(|h| self.host(h))
    }

    /// Any node by its name: `h0`, `t0.p1`, `mgmt`.
    pub fn node(&self, name: &str) -> Result<Namespace<'_>, LabError> {
        Ok(Namespace {
            lab: self,
            node: self.plan.node(name)?,
        })
    }

    /// The variables that every command in the lab finds in its environment.
    pub fn env(&self) -> Vec<(String, String)> {
        self.plan.env()
    }

    /// Takes the cable at a host's port of a plane away, or plugs it in again; returns when the link has that state at both ends and,
    /// if up, everything that the kernel had forgotten is back.
    ///
    /// It is the far end (the T0's port, or the other host's in `pair`) that is set down: the host's own port stays enabled and loses
    /// its carrier, as it does on a real machine.
    pub fn set_link(&self, host: usize, plane: usize, up: bool) -> Result<(), LabError> {
        let [near, far] = self.host_link(host, plane)?;
        self.set_end(far, near, up)
    }

    /// Sets a host's port down or up as its administrator would; else like [`Self::set_link`].
    pub fn set_port(&self, host: usize, plane: usize, up: bool) -> Result<(), LabError> {
        let [near, far] = self.host_link(host, plane)?;
        self.set_end(near, far, up)
    }

    /// Takes the cable of a link away, or plugs it in again, by its name (see [`Plan::link_name`]). At a host's link as
    /// [`Self::set_link`]; between switches it is the end farther from the hosts that is set down.
    pub fn set_link_named(&self, link: &str, up: bool) -> Result<(), LabError> {
        let [near, far] = self.plan.link(link)?.ends;
        self.set_end(far, near, up)
    }

    /// The names of all links of the fabric.
    pub fn links(&self) -> Vec<String> {
        self.plan.fabric_links().map(|l| self.plan.link_name(l)).collect()
    }

    fn set_end(&self, end: End, other: End, up: bool) -> Result<(), LabError> {
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

    fn host_link(&self, host: usize, plane: usize) -> Result<[End; 2], LabError> {
        let topology = &self.plan.topology;
        if host >= topology.hosts {
            self.plan.node(&format!("h{host}"))?;
        }
        self.plan.host_link(host, plane).ok_or(LabError::UnknownPlane {
            plane,
            planes: topology.planes,
        })
    }

    /// The counters of a host's port in a plane.
    pub fn counters(&self, host: usize, plane: usize) -> Result<Counters, LabError> {
        let [near, _] = self.host_link(host, plane)?;
        self.end_counters(near)
    }

    /// The counters at the other end of a host's port: the T0's port, or the other host's in `pair`.
    pub fn far_counters(&self, host: usize, plane: usize) -> Result<Counters, LabError> {
        let [_, far] = self.host_link(host, plane)?;
        self.end_counters(far)
    }

    fn end_counters(&self, end: End) -> Result<Counters, LabError> {
        let stats = self.status(end)?.stats;
        Ok(Counters {
            rx_packets: stats.rx_packets,
            rx_bytes: stats.rx_bytes,
            rx_dropped: stats.rx_dropped,
            tx_packets: stats.tx_packets,
            tx_bytes: stats.tx_bytes,
            tx_dropped: stats.tx_dropped,
        })
    }
}

const LOOPBACK_INDEX: u32 = 1;

/// A node of a lab: what runs in its namespace.
#[derive(Clone, Copy)]
pub struct Namespace<'lab> {
    lab: &'lab Lab,
    node: usize,
}

impl fmt::Debug for Namespace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Namespace").field(&self.name()).finish()
    }
}

impl<'lab> Namespace<'lab> {
    /// `h0`, `t0.p1`, ...
    pub fn name(&self) -> &'lab str {
        &self.lab.plan.nodes[self.node].name
    }

    /// The namespace's descriptor, for `setns`.
    pub fn fd(&self) -> BorrowedFd<'lab> {
        self.lab.namespaces[self.node].as_fd()
    }

    /// Runs `work` on a thread inside the namespace and returns what it returns. Threads and sockets that it makes belong to the
    /// namespace and may outlive the call; `/sys` shows the namespace on that thread and its children.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.lab.namespaces[self.node].enter(work)
    }

    /// Starts a program inside, with [`Lab::env`] and `LAB_NODE` (its name) in its environment. It leads its own process group, sees
    /// its namespace's `/sys` and only the lab's processes in `/proc`, and is killed when the lab ends.
    pub fn spawn(&self, mut command: Command) -> Result<Process, LabError> {
        command.envs(self.lab.env()).env("LAB_NODE", self.name());
        let mut processes = self.lab.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let space = match &mut *processes {
            Some(space) => space,
            none => none.insert(ProcessSpace::new()?),
        };
        space.spawn(&self.lab.namespaces[self.node], self.name(), command)
    }
}

impl Namespace<'_> {
    /// Records what passes an interface of this node into a pcap file, from when this returns until [`Capture::stop`]. `filter` is
    /// tcpdump's (`""` for everything), which must be installed.
    ///
    /// On a switch it sees everything; on a host `AF_XDP` takes packets before a capture can see them.
    pub fn capture(&self, interface: &str, file: &Path, filter: &str) -> Result<Capture, LabError> {
        Capture::start(self, interface, file, filter)
    }
}

/// A host of a lab; dereferences to its [`Namespace`].
#[derive(Debug, Clone, Copy)]
pub struct Host<'lab> {
    namespace: Namespace<'lab>,
}

impl<'lab> Deref for Host<'lab> {
    type Target = Namespace<'lab>;

    fn deref(&self) -> &Self::Target {
        &self.namespace
    }
}

impl Host<'_> {
    /// Its node address, IPv4.
    pub fn gid_v4(&self) -> Ipv4Addr {
        plan::node_v4(self.namespace.node)
    }

    /// Its node address, IPv6.
    pub fn gid_v6(&self) -> Ipv6Addr {
        plan::node_v6(self.namespace.node)
    }

    /// Its address in the management network.
    pub fn mgmt(&self) -> Ipv4Addr {
        plan::mgmt_v4(self.namespace.node)
    }

    /// The name of its port in a plane.
    pub fn port_name(&self, plane: usize) -> String {
        plan::port_name(plane)
    }

    /// The names of all its ports, in order of their planes.
    pub fn port_names(&self) -> Vec<String> {
        (1..=self.namespace.lab.plan.topology.planes)
            .map(plan::port_name)
            .collect()
    }
}
