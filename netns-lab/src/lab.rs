//! A fabric that is up.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use mrc_ebpf::{Passing, PassingProgram};
use serde::{Deserialize, Serialize};

use crate::broken::Broken;
use crate::capture::Capture;
use crate::config;
use crate::plan::{self, End, Path, Plan, Role};
use crate::process::{Process, ProcessSpace};
use crate::switch::Switches;
use crate::wiring::Wiring;
use crate::{LabError, Topology};

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
    pub(crate) wiring: Arc<Wiring>,
    /// The programs on the switches' ports.
    passing: Vec<Passing>,
    /// What makes the switches of a fabric more than routers.
    pub(crate) switches: Option<Switches>,
    /// The configurations of a fabric's hosts, in files that have no name and end with their last holder.
    configs: Vec<OwnedFd>,
    pub(crate) broken: Mutex<Broken>,
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

/// What a switch's port has counted of what it sent, since the lab was built. `netns-lab/README.md` says what each is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortCounters {
    /// Packets queued for the link.
    pub packets: u64,
    /// Their bytes, Ethernet headers included, as they were sent.
    pub bytes: u64,
    /// Of these, packets that the queue marked.
    pub marked: u64,
    /// Of these, packets of which only the head was left.
    pub trimmed: u64,
    /// Packets that found the queue full and were lost.
    pub dropped: u64,
    /// Packets that a fault took, in either direction of the port.
    pub lost: u64,
    /// Packets that a fault damaged, in either direction.
    pub flipped: u64,
    /// Packets that came in by the port and whose address or EV named no way on.
    pub no_path: u64,
    /// Most bytes that have waited at once.
    pub high_water_bytes: u64,
    /// Packets of MRC that came in by the port and that no fault took.
    pub mrc_received: u64,
    /// Packets of MRC among `packets`.
    pub mrc_sent: u64,
}

/// A port of a fabric's switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPort {
    /// The switch.
    pub switch: String,
    /// The link that the port is at.
    pub link: String,
    /// The port's plane.
    pub plane: usize,
    /// What it has counted.
    pub counters: PortCounters,
}

impl Lab {
    /// Builds a topology; returns when every link is usable.
    pub fn build(topology: &Topology) -> Result<Self, LabError> {
        let wiring = Arc::new(Wiring::new(Plan::new(topology)?)?);
        let mut lab = Self {
            processes: Mutex::default(),
            wiring,
            passing: Vec::new(),
            switches: None,
            configs: Vec::new(),
            broken: Mutex::default(),
        };
        if let Some(spec) = &topology.fabric {
            let configs = (0..spec.hosts()).map(|host| config::file(lab.plan(), spec, host));
            lab.configs = configs.collect::<Result<_, _>>()?;
            lab.switches = Some(Switches::load(&lab.wiring, spec)?);
        }
        lab.wiring.make_links()?;
        lab.wiring.set_up(lab.switches.as_ref())?;
        lab.passing = lab.attach_passing()?;
        lab.wiring.complete()?;
        Ok(lab)
    }

    /// Completes what hosts send by AF_XDP as soon as it reaches a switch: without a program there, a packet stays charged to the
    /// sender's socket until it leaves the last queue of its path. Ports between switches need none: nothing there is a socket's.
    fn attach_passing(&self) -> Result<Vec<Passing>, LabError> {
        let mut passing = Vec::new();
        let mut program = None;
        let plan = self.plan();
        for (n, (node, ns)) in plan.nodes.iter().zip(&self.wiring.namespaces).enumerate() {
            let to_host = |interface: &usize| {
                let end = End {
                    node: n,
                    interface: *interface,
                };
                plan.far(end).is_some_and(|far| plan.nodes[far.node].role == Role::Host)
            };
            let ports: Vec<usize> = (0..node.interfaces.len()).filter(to_host).collect();
            if node.role != Role::Switch || ports.is_empty() {
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
                let names = ports.iter().map(|port| &node.interfaces[*port].name);
                names.map(|name| program.attach(name)).collect::<Result<Vec<_>, _>>()
            };
            passing.extend(ns.visit(attach)?.map_err(failed)?);
        }
        Ok(passing)
    }

    /// The plan that was built.
    pub fn plan(&self) -> &Plan {
        &self.wiring.plan
    }

    /// A host, counted from 0.
    ///
    /// # Panics
    /// Where there is no such host, as an index does.
    pub fn host(&self, host: usize) -> Host<'_> {
        assert!(
            host < self.plan().topology.hosts,
            "no host {host}: the lab has {}",
            self.plan().topology.hosts
        );
        Host {
            namespace: Namespace { lab: self, node: host },
        }
    }

    /// All hosts in order.
    pub fn hosts(&self) -> impl Iterator<Item = Host<'_>> {
        (0..self.plan().topology.hosts).map(|h| self.host(h))
    }

    /// Any node by its name: `h0`, `t0.p1`, `mgmt`.
    pub fn node(&self, name: &str) -> Result<Namespace<'_>, LabError> {
        Ok(Namespace {
            lab: self,
            node: self.plan().node(name)?,
        })
    }

    /// The variables that every command in the lab finds in its environment.
    pub fn env(&self) -> Vec<(String, String)> {
        self.plan().env()
    }

    /// Takes the cable at a host's port of a plane away, or plugs it in again; returns when the link has that state at both ends and,
    /// if up, everything that the kernel had forgotten is back.
    ///
    /// It is the far end (the T0's port, or the other host's in `pair`) that is set down: the host's own port stays enabled and loses
    /// its carrier, as it does on a real machine.
    pub fn set_link(&self, host: usize, plane: usize, up: bool) -> Result<(), LabError> {
        let [near, far] = self.host_link(host, plane)?;
        self.wiring.set_end(far, near, up)
    }

    /// Sets a host's port down or up as its administrator would; else like [`Self::set_link`].
    pub fn set_port(&self, host: usize, plane: usize, up: bool) -> Result<(), LabError> {
        let [near, far] = self.host_link(host, plane)?;
        self.wiring.set_end(near, far, up)
    }

    /// Takes the cable of a link away, or plugs it in again, by its name (see [`Plan::link_name`]). At a host's link as
    /// [`Self::set_link`]; between switches it is the end farther from the hosts that is set down.
    pub fn set_link_named(&self, link: &str, up: bool) -> Result<(), LabError> {
        let [near, far] = self.plan().link(link)?.ends;
        self.wiring.set_end(far, near, up)
    }

    /// Every path from a host to another, with its name, its EV and the links that it crosses; none in a lab that is no fabric.
    pub fn paths(&self, source: usize, destination: usize) -> Vec<Path> {
        self.plan().paths(source, destination)
    }

    /// The names of all links of the fabric.
    pub fn links(&self) -> Vec<String> {
        self.plan().fabric_links().map(|l| self.plan().link_name(l)).collect()
    }

    fn host_link(&self, host: usize, plane: usize) -> Result<[End; 2], LabError> {
        let topology = &self.plan().topology;
        if host >= topology.hosts {
            self.plan().node(&format!("h{host}"))?;
        }
        self.plan().host_link(host, plane).ok_or(LabError::UnknownPlane {
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

    /// What the port of a fabric's switch at a link has counted, by the switch's and the link's names: `t0.0.p1` and
    /// `t0.0.p1-t1.2.p1` for the way up.
    pub fn port_counters(&self, switch: &str, link: &str) -> Result<PortCounters, LabError> {
        let (switches, end) = self.switch_port(switch, link)?;
        switches.counters(self.wiring.index(end))
    }

    /// All ports of a fabric's switches with what they have counted.
    pub fn switch_ports(&self) -> Result<Vec<SwitchPort>, LabError> {
        let Some(switches) = &self.switches else {
            return Ok(Vec::new());
        };
        let plan = self.plan();
        let ends = plan.fabric_links().flat_map(|link| link.ends.map(|end| (link, end)));
        let ports = ends.filter(|(_, end)| plan.nodes[end.node].role == Role::Switch);
        ports
            .map(|(link, end)| {
                Ok(SwitchPort {
                    switch: plan.nodes[end.node].name.clone(),
                    link: plan.link_name(link),
                    plane: plan.interface(end).plane.unwrap_or_default(),
                    counters: switches.counters(self.wiring.index(end))?,
                })
            })
            .collect()
    }

    fn switch_port(&self, switch: &str, link: &str) -> Result<(&Switches, End), LabError> {
        let node = self.plan().node(switch)?;
        let ends = self.plan().link(link)?.ends;
        let end = ends.into_iter().find(|end| end.node == node);
        match (&self.switches, end) {
            (Some(switches), Some(end)) if self.plan().nodes[node].role == Role::Switch => Ok((switches, end)),
            _ => Err(LabError::NoSwitchPort {
                switch: switch.to_owned(),
                link: link.to_owned(),
            }),
        }
    }

    fn end_counters(&self, end: End) -> Result<Counters, LabError> {
        let stats = self.wiring.status(end)?.stats;
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
        &self.lab.plan().nodes[self.node].name
    }

    /// The namespace's descriptor, for `setns`.
    pub fn fd(&self) -> BorrowedFd<'lab> {
        self.lab.wiring.namespaces[self.node].as_fd()
    }

    /// Where its processes find the configuration of a fabric's host: `MRC_CONFIG`.
    pub fn config_path(&self) -> Option<String> {
        let file = self.lab.configs.get(self.node)?;
        Some(format!("/proc/1/fd/{}", file.as_raw_fd()))
    }

    /// Runs `work` on a thread inside the namespace and returns what it returns. Threads and sockets that it makes belong to the
    /// namespace and may outlive the call; `/sys` shows the namespace on that thread and its children.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.lab.wiring.namespaces[self.node].enter(work)
    }

    /// Starts a program inside, with [`Lab::env`] and `LAB_NODE` (its name) in its environment. It leads its own process group, sees
    /// its namespace's `/sys` and only the lab's processes in `/proc`, and is killed when the lab ends.
    pub fn spawn(&self, mut command: Command) -> Result<Process, LabError> {
        command.envs(self.lab.env()).env("LAB_NODE", self.name());
        if let Some(path) = self.config_path() {
            command.env("MRC_CONFIG", path);
        }
        let mut processes = self.lab.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let space = match &mut *processes {
            Some(space) => space,
            none => none.insert(ProcessSpace::new(&self.lab.configs)?),
        };
        space.spawn(&self.lab.wiring.namespaces[self.node], self.name(), command)
    }
}

impl Namespace<'_> {
    /// Records what passes an interface of this node into a pcap file, from when this returns until [`Capture::stop`]. `filter` is
    /// tcpdump's (`""` for everything), which must be installed.
    ///
    /// On a switch it sees everything; on a host `AF_XDP` takes packets before a capture can see them.
    pub fn capture(&self, interface: &str, file: &std::path::Path, filter: &str) -> Result<Capture, LabError> {
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

    /// The text of its configuration, in a fabric: for engines in this process, which do not see the files of [`Lab::env`].
    pub fn config(&self) -> Result<Option<String>, LabError> {
        let plan = self.namespace.lab.plan();
        let spec = plan.topology.fabric.as_ref();
        spec.map(|spec| config::host_config(plan, spec, self.namespace.node))
            .transpose()
    }

    /// The name of its port in a plane.
    pub fn port_name(&self, plane: usize) -> String {
        plan::port_name(plane)
    }

    /// The names of all its ports, in order of their planes.
    pub fn port_names(&self) -> Vec<String> {
        (1..=self.namespace.lab.plan().topology.planes)
            .map(plan::port_name)
            .collect()
    }
}
