//! The programs at a fabric's switch ports (bpf/switch.bpf.c): loaded once a lab, told what each port is and where each way leads.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::fabric::{FabricSpec, Overflow, Routing};
use crate::netlink::Rtnl;
use crate::plan::{End, Interface, Plan, Role, Tier, adjacency_sid, host_sid, t0_sid, t1_sid};
use crate::wiring::Wiring;
use crate::{LabError, PortCounters};

#[expect(
    unsafe_code,
    unreachable_pub,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "generated from the program"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/switch.skel.rs"));
}

// What follows is bpf/switch.h.
const SLOTS: usize = 1024;
const PORT_TRIM: u32 = 1;
const PORT_ECN: u32 = 2;
const HOP_HOST: u32 = 0x10000;
const HOP_UPLINK: u32 = 0x20000;
const HOP_NEIGHBOUR: u32 = 0;
const HOP_SELF: u32 = 1;
const HOP_ADJACENCY: u32 = 2;
const DSCP_TRIMMED: u32 = 12;
const DSCP_TRIMMED_LASTHOP: u32 = 16;

#[derive(Debug, Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Port {
    node: u32,
    flags: u32,
    limit: u32,
    control_room: u32,
    ecn_min: u32,
    ecn_max: u32,
    ecn_chance: u32,
    trim_len: u32,
    trimmed_dscp: u32,
    detour: u32,
}

/// `struct fault`: what happens to packets in one direction of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct PortFault {
    /// `FAULT_*`.
    pub(crate) flags: u32,
    pub(crate) loss: u32,
    pub(crate) flip: u32,
    pub(crate) nth: u32,
    pub(crate) ev: u32,
    pub(crate) ev_mask: u32,
    pub(crate) random: u32,
    pub(crate) seen: u32,
}

#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Counts {
    packets: u64,
    bytes: u64,
    marked: u64,
    trimmed: u64,
    dropped: u64,
    lost: u64,
    flipped: u64,
    no_path: u64,
    high_water: u64,
    mrc_in: u64,
    mrc_out: u64,
}

#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct HopKey {
    node: u32,
    what: u32,
}

#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Hop {
    kind: u32,
    ifindex: u32,
    macs: [u8; 12],
}

/// Nothing passes at all.
pub(crate) const FAULT_CUT: u32 = 1;
/// What the others choose is lost.
pub(crate) const FAULT_ALL: u32 = 2;
/// Only MRC is meant.
pub(crate) const FAULT_MRC_ONLY: u32 = 4;
/// Only packets whose EV is `ev` under `ev_mask` are meant.
pub(crate) const FAULT_EV: u32 = 8;
/// Every `nth` is lost.
pub(crate) const FAULT_NTH: u32 = 16;
/// `loss` of 2^32 are lost.
pub(crate) const FAULT_LOSS: u32 = 32;
/// `flip` of 2^32 are damaged.
pub(crate) const FAULT_FLIP: u32 = 64;

/// Room beyond the data's limit for what is urgent, as a time of the line rate: thousands of cut packets.
const CONTROL_ROOM_US: u32 = 10_000;

/// Which side of a port a fault is at, seen from the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Inward = 0,
    Outward = 1,
}

/// The loaded programs and their maps.
#[derive(Debug)]
pub(crate) struct Switches {
    first_index: u32,
    ports: MapHandle,
    faults: MapHandle,
    counts: MapHandle,
    ingress: OwnedFd,
    egress: OwnedFd,
}

impl Switches {
    /// Loads the programs and fills their tables.
    pub(crate) fn load(wiring: &Wiring, spec: &FabricSpec) -> Result<Self, LabError> {
        let (plan, first_index) = (&wiring.plan, wiring.first_index);
        let mut object = MaybeUninit::uninit();
        let mut open = skeleton::SwitchSkelBuilder::default()
            .open(&mut object)
            .map_err(|e| failed(&e))?;
        let constants = open
            .maps
            .rodata_data
            .as_deref_mut()
            .ok_or_else(|| LabError::SwitchPrograms {
                message: "they have no constants".to_owned(),
            })?;
        constants.first_index = first_index;
        constants.routing = match spec.routing {
            Routing::Ecmp | Routing::Srv6Kernel => 0,
            Routing::Structured => 1,
            Routing::Srv6 => 2,
        };
        let loaded = open.load().map_err(|e| failed(&e))?;
        let hops = MapHandle::try_from(&loaded.maps.hops).map_err(|e| failed(&e))?;
        let switches = Self {
            first_index,
            ports: MapHandle::try_from(&loaded.maps.ports).map_err(|e| failed(&e))?,
            faults: MapHandle::try_from(&loaded.maps.faults).map_err(|e| failed(&e))?,
            counts: MapHandle::try_from(&loaded.maps.counts).map_err(|e| failed(&e))?,
            ingress: duplicate(loaded.progs.ingress.as_fd())?,
            egress: duplicate(loaded.progs.egress.as_fd())?,
        };
        for (node, end, interface) in switch_ports(plan) {
            let slot = switches.slot(wiring.index(end))?;
            let last_hop = plan.far(end).is_some_and(|far| plan.nodes[far.node].role == Role::Host);
            switches.set_port(slot, &port(spec, node, interface, last_hop))?;
        }
        for (key, hop) in all_hops(wiring, spec) {
            hops.update(key.as_bytes(), hop.as_bytes(), MapFlags::ANY)
                .map_err(|e| failed(&e))?;
        }
        Ok(switches)
    }

    /// Puts the programs at a port.
    pub(crate) fn attach(&self, rtnl: &mut Rtnl, index: u32) -> Result<(), LabError> {
        rtnl.add_programs(index, self.ingress.as_fd(), Some(self.egress.as_fd()))
    }

    /// Makes the interface `entry` take packets in as the port `index` does.
    pub(crate) fn attach_detour(&self, rtnl: &mut Rtnl, index: u32, entry: u32) -> Result<(), LabError> {
        let port = self.port(index)?;
        self.set_port(self.slot(entry)?, &Port { detour: 0, ..port })?;
        rtnl.add_programs(entry, self.ingress.as_fd(), None)
    }

    /// Hands what comes in by a port to another interface; 0: to nobody.
    pub(crate) fn set_detour(&self, index: u32, entry: u32) -> Result<(), LabError> {
        let port = self.port(index)?;
        self.set_port(self.slot(index)?, &Port { detour: entry, ..port })
    }

    fn port(&self, index: u32) -> Result<Port, LabError> {
        let slot = self.slot(index)?;
        let value = self
            .ports
            .lookup(slot.as_bytes(), MapFlags::ANY)
            .map_err(|e| failed(&e))?;
        let port = value.and_then(|v| Port::read_from_bytes(&v).ok());
        port.ok_or_else(|| LabError::SwitchPrograms {
            message: format!("they do not know interface {index}"),
        })
    }

    fn set_port(&self, slot: u32, port: &Port) -> Result<(), LabError> {
        let written = self.ports.update(slot.as_bytes(), port.as_bytes(), MapFlags::ANY);
        written.map_err(|e| failed(&e))
    }

    fn slot(&self, index: u32) -> Result<u32, LabError> {
        let slot = index.wrapping_sub(self.first_index);
        if (slot as usize) < SLOTS {
            Ok(slot)
        } else {
            Err(LabError::SwitchPrograms {
                message: format!("interface {index} is none of the {SLOTS} from {}", self.first_index),
            })
        }
    }

    /// What a port has counted.
    pub(crate) fn counters(&self, index: u32) -> Result<PortCounters, LabError> {
        let slot = self.slot(index)?;
        let value = self
            .counts
            .lookup(slot.as_bytes(), MapFlags::ANY)
            .map_err(|e| failed(&e))?;
        let counts = value.and_then(|v| Counts::read_from_bytes(&v).ok()).unwrap_or_default();
        Ok(PortCounters {
            packets: counts.packets,
            bytes: counts.bytes,
            marked: counts.marked,
            trimmed: counts.trimmed,
            dropped: counts.dropped,
            lost: counts.lost,
            flipped: counts.flipped,
            no_path: counts.no_path,
            high_water_bytes: counts.high_water,
            mrc_received: counts.mrc_in,
            mrc_sent: counts.mrc_out,
        })
    }

    /// What happens to packets in one direction of a port from now on.
    pub(crate) fn set_fault(&self, index: u32, direction: Direction, fault: &PortFault) -> Result<(), LabError> {
        let key = self.slot(index)? * 2 + direction as u32;
        self.faults
            .update(key.as_bytes(), fault.as_bytes(), MapFlags::ANY)
            .map_err(|e| failed(&e))
    }
}

fn failed(error: &libbpf_rs::Error) -> LabError {
    LabError::SwitchPrograms {
        message: format!("{error:#}").lines().next().unwrap_or_default().to_owned(),
    }
}

fn duplicate(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, LabError> {
    fd.try_clone_to_owned()
        .map_err(|e| LabError::kernel("keep a switch program", e))
}

/// All ports of all switches, with their nodes' numbers.
fn switch_ports(plan: &Plan) -> impl Iterator<Item = (u32, End, &Interface)> {
    let switches = plan.nodes.iter().enumerate().filter(|(_, n)| n.role == Role::Switch);
    switches.flat_map(|(node, n)| {
        let ports = n.interfaces.iter().enumerate();
        ports.map(move |(interface, port)| (node_number(node), End { node, interface }, port))
    })
}

/// 0 means "no port" to the programs.
fn node_number(node: usize) -> u32 {
    node as u32 + 1
}

fn port(spec: &FabricSpec, node: u32, interface: &Interface, last_hop: bool) -> Port {
    let queue = &spec.queue;
    let rate = interface.rate_bps.unwrap_or(spec.fabric_link_bps);
    let bytes = |time_us| FabricSpec::bytes(rate, time_us).min(u64::from(u32::MAX / 2)) as u32;
    let mut flags = 0;
    if queue.overflow == Overflow::Trim {
        flags |= PORT_TRIM;
    }
    if queue.ecn_max_percent > 0 && (!last_hop || queue.ecn_last_hop) {
        flags |= PORT_ECN;
    }
    Port {
        node,
        flags,
        limit: bytes(queue.limit_us),
        control_room: bytes(CONTROL_ROOM_US),
        ecn_min: bytes(queue.ecn_min_us),
        ecn_max: bytes(queue.ecn_max_us),
        ecn_chance: (u64::from(u32::MAX) * u64::from(queue.ecn_max_percent) / 100) as u32,
        trim_len: queue.trim_bytes,
        trimmed_dscp: if last_hop && queue.last_hop_code_point {
            DSCP_TRIMMED_LASTHOP
        } else {
            DSCP_TRIMMED
        },
        detour: 0,
    }
}

/// Where every uSID, host and uplink leads, at every switch.
fn all_hops(wiring: &Wiring, spec: &FabricSpec) -> Vec<(HopKey, Hop)> {
    let plan = &wiring.plan;
    let mut hops = Vec::new();
    for (node, end, port) in switch_ports(plan) {
        let (Some(place), Some(far)) = (plan.nodes[end.node].place, plan.far(end)) else {
            continue;
        };
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&plan.interface(far).mac);
        macs[6..].copy_from_slice(&port.mac);
        let hop = |kind| Hop {
            kind,
            ifindex: wiring.index(end),
            macs,
        };
        let mut add = |what: u32, kind| hops.push((HopKey { node, what }, hop(kind)));
        add(place.sid().into(), HOP_SELF);
        add(adjacency_sid(end.interface).into(), HOP_ADJACENCY);
        match (place.tier, plan.nodes[far.node].place) {
            (Tier::T0, None) => {
                add(host_sid(place.plane, far.node).into(), HOP_NEIGHBOUR);
                add(HOP_HOST | host_number(far.node), HOP_NEIGHBOUR);
            }
            (Tier::T0, Some(up)) => {
                add(t1_sid(up.plane, up.number).into(), HOP_NEIGHBOUR);
                add(HOP_UPLINK | up.number as u32, HOP_NEIGHBOUR);
            }
            (Tier::T1, Some(down)) => {
                add(t0_sid(down.plane, down.number).into(), HOP_NEIGHBOUR);
                let hosts = (0..spec.hosts()).filter(|h| spec.t0_of(*h) == down.number);
                hosts.for_each(|h| add(HOP_HOST | host_number(h), HOP_NEIGHBOUR));
            }
            (Tier::T1, None) => {}
        }
    }
    hops
}

/// The last 16 bits of a host's node address.
fn host_number(host: usize) -> u32 {
    host as u32 + 1
}
