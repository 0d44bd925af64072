//! A host: ports with transmit queues, received frames that wait, queue pairs, congestion controllers, memory.

use crate::controller::ProfileUse;
use crate::endpoint::Node;
use crate::fabric::frame::Frame;
use crate::link_news::PeerPorts;
use crate::memory::HostMemory;
use crate::oracle::balance::Balance;
use crate::oracle::completion::WorkModel;
use crate::oracle::pace::{Effort, Pace};
use crate::scenario::{ConnectionPlan, Control, Format, HostPlan, Scenario};
use crate::shortage::Want;
use crate::upset::Mood;
use mrc_protocol::cc::{Network, NsccParams};
use mrc_protocol::{
    EvEntry, InitAttr, Instant, PathConfig, PeerCaps, Qp, QpCreate, Qpcc, RetryAttr, RtrAttr, RtsAttr, Stall,
    StateError, Tuning, Universe,
};
use mrc_wire::{Ev, EvLayout, PortNum, PortSet, Psn, Qpn};
use std::collections::{BTreeMap, VecDeque};

/// A host at run time.
pub struct Host {
    /// As planned.
    pub plan: HostPlan,
    /// Its memory.
    pub memory: HostMemory,
    /// Its queue pairs.
    pub qps: Vec<QpSlot>,
    /// Where they are, by number.
    pub by_qpn: BTreeMap<u32, usize>,
    /// Its congestion controllers.
    pub qpccs: Vec<Qpcc>,
    /// Those that no queue pair has any more.
    pub spare_qpccs: Vec<usize>,
    /// Frames that have arrived and wait for a turn.
    pub received: VecDeque<Box<Frame>>,
    /// Its ports, port 1 first.
    pub ports: Vec<PortSide>,
    /// When the engine has its next turn.
    pub turn_at_ns: Option<u64>,
    /// The engine stands still until then.
    pub stalled_until_ns: u64,
    /// The last time it stood still.
    pub stall: Option<Stall>,
    /// It is gone for ever.
    pub gone: bool,
    /// Ports that are up here, as far as the host knows.
    pub local_up: PortSet,
    /// Ports that are up at each peer, as far as this host was told.
    pub peer_up: PeerPorts,
    /// What it has for endpoint operations, if hosts tell each other of their ports.
    pub node: Option<Node>,
    /// What its engine did.
    pub effort: Effort,
    /// What upsets it.
    pub mood: Mood,
    /// What it lacks.
    pub want: Want,
}

/// A queue pair and where it belongs.
pub struct QpSlot {
    /// Index of the connection.
    pub connection: usize,
    /// Side of the connection.
    pub side: usize,
    /// The queue pair.
    pub qp: Qp,
    /// Index of its congestion controller.
    pub qpcc: usize,
    /// The peer's host.
    pub peer: usize,
    /// Its work queues, as the application sees them.
    pub work: WorkModel,
    /// When the application posts the next send.
    pub next_post_ns: u64,
    /// It was restarted, and rests until then: an earlier appointment to get ready is void.
    pub rests_until_ns: u64,
    /// When it last sent an EV probe.
    pub probed_ns: Option<u64>,
    /// Its profile, if it has one.
    pub(crate) control: Option<ProfileUse>,
    /// Turns of its paths.
    pub balance: Balance,
    /// What its timers are for.
    pub pace: Pace,
    /// All its requests were posted and have ended.
    pub ended: bool,
}

/// One end of a link.
#[derive(Debug, Default)]
pub struct PortSide {
    /// The link is up, whatever anybody knows.
    pub link_up: bool,
    /// When the frames in the transmit queue will have left.
    pub departures_ns: VecDeque<u64>,
    /// What the last of them takes beyond its nanosecond, in bits * 1000 at the link's rate: at 400 Gb/s a SACK takes two and a
    /// half of them.
    rest: u64,
}

impl PortSide {
    /// Forgets frames that have left.
    pub fn advance(&mut self, now_ns: u64) {
        while self.departures_ns.front().is_some_and(|at_ns| *at_ns <= now_ns) {
            self.departures_ns.pop_front();
        }
    }

    /// Queues a frame of `size` bytes; returns when its last bit leaves.
    pub fn queue(&mut self, now_ns: u64, size: u32, rate_mbps: u64) -> u64 {
        let rate_mbps = rate_mbps.max(1);
        let (start_ns, rest) = match self.departures_ns.back() {
            Some(&busy_until_ns) if busy_until_ns >= now_ns => (busy_until_ns, self.rest),
            _ => (now_ns, 0),
        };
        // A frame costs 24 bytes more on the wire: preamble, FCS, gap.
        let work = (u64::from(size) + 24) * 8000 + rest;
        let end_ns = start_ns + work / rate_mbps;
        self.rest = work % rate_mbps;
        self.departures_ns.push_back(end_ns);
        end_ns
    }
}

impl Host {
    /// A host as planned, without queue pairs.
    pub fn new(plan: HostPlan, planes: u8) -> Host {
        let mut memory = HostMemory::new();
        for region in &plan.regions {
            memory.add_region(region.rkey, region.len, region.guard, region.remote_write);
        }
        let ports = (0..planes)
            .map(|_| PortSide {
                link_up: true,
                ..PortSide::default()
            })
            .collect();
        Host {
            plan,
            memory,
            qps: Vec::new(),
            by_qpn: BTreeMap::new(),
            spare_qpccs: Vec::new(),
            qpccs: Vec::new(),
            received: VecDeque::new(),
            ports,
            turn_at_ns: None,
            stalled_until_ns: 0,
            stall: None,
            gone: false,
            local_up: PortSet::first(planes),
            peer_up: PeerPorts::default(),
            node: None,
            effort: Effort::default(),
            mood: Mood::default(),
            want: Want::default(),
        }
    }

    /// Adds the queue pair of `side` of a connection, in INIT, and its congestion controller.
    pub fn add_qp(
        &mut self,
        scenario: &Scenario,
        plan: &ConnectionPlan,
        (connection, side): (usize, usize),
        seed: [u8; 32],
        now: Instant,
    ) -> Result<(), String> {
        let peer = plan.hosts[1 - side];
        let mut create = create_attributes(scenario, plan, side, seed);
        let mut control = None;
        if let Some(profile) = plan.profile {
            let made = ProfileUse::new(plan, profile, scenario.planes, seed)?;
            create.path = made.paths(scenario, plan)?;
            control = Some(made);
        }
        let qp = Qp::new(create).map_err(|error| format!("queue pair cannot be created: {error}"))?;
        let shared = self
            .qps
            .iter()
            .find(|slot| slot.peer == peer && self.plan.shared_qpcc)
            .map(|slot| slot.qpcc);
        let qpcc = shared.unwrap_or_else(|| {
            let made = congestion_control(&self.plan, scenario.planes, plan, side, now);
            if let Some(spare) = self.spare_qpccs.pop() {
                self.qpccs[spare] = made;
                return spare;
            }
            self.qpccs.push(made);
            self.qpccs.len() - 1
        });
        let mut slot = QpSlot {
            connection,
            side,
            qp,
            qpcc,
            peer,
            work: WorkModel::default(),
            next_post_ns: 0,
            rests_until_ns: 0,
            probed_ns: None,
            control,
            balance: Balance::default(),
            pace: Pace::default(),
            ended: false,
        };
        slot.init()?;
        self.by_qpn.insert(plan.qpn[side], self.qps.len());
        self.qps.push(slot);
        Ok(())
    }

    /// Takes the queue pair of `side` of a connection away, and its congestion controller if nobody else has it.
    pub fn remove_qp(&mut self, connection: usize, side: usize) -> Option<QpSlot> {
        let at = self
            .qps
            .iter()
            .position(|slot| (slot.connection, slot.side) == (connection, side))?;
        let gone = self.qps.swap_remove(at);
        self.by_qpn.remove(&gone.qp.qpn().get());
        if let Some(moved) = self.qps.get(at) {
            self.by_qpn.insert(moved.qp.qpn().get(), at);
        }
        if self.qps.iter().all(|slot| slot.qpcc != gone.qpcc) {
            self.spare_qpccs.push(gone.qpcc);
        }
        Some(gone)
    }

    /// Ports with transmit room.
    pub fn room(&mut self, now_ns: u64) -> PortSet {
        let mut room = PortSet::EMPTY;
        for (index, port) in self.ports.iter_mut().enumerate() {
            port.advance(now_ns);
            if let Some(num) = PortNum::new(index as u8 + 1)
                && (port.departures_ns.len() as u64) < self.plan.tx_queue
            {
                room.insert(num);
            }
        }
        room
    }

    /// When a full port will have room again.
    pub fn next_room_ns(&self) -> Option<u64> {
        let full = self
            .ports
            .iter()
            .filter(|port| port.departures_ns.len() as u64 >= self.plan.tx_queue);
        full.filter_map(|port| port.departures_ns.front().copied()).min()
    }
}

impl QpSlot {
    /// RESET to INIT.
    pub fn init(&mut self) -> Result<(), String> {
        let init = InitAttr {
            p_key: 0xffff,
            remote_write: true,
        };
        let done = self.qp.handle_init(&init);
        done.map_err(|error| format!("queue pair cannot go to INIT: {error}"))?;
        self.control.as_mut().map_or(Ok(()), ProfileUse::bind)
    }

    /// RTR and RTS, with what both sides have told each other. The window is taken for `widen` times as wide as it is.
    pub fn connect(&mut self, plan: &ConnectionPlan, now: Instant, widen: u8) -> Result<(), StateError> {
        let (own, peer) = (self.side, 1 - self.side);
        let rtr = RtrAttr {
            dest_qpn: Qpn::new(plan.qpn[peer]),
            rq_psn: Psn::new(plan.psn[peer]),
            pmtu: plan.pmtu,
            mpr_dest: plan.mpr[own],
            max_wimm_dest: plan.max_wimm[own],
            trim_nack: plan.trim_nack[own],
            dynamic_mpr: plan.dynamic_mpr[own],
            svc_time: plan.svc_time[own],
            peer: PeerCaps {
                trim_nack: plan.trim_nack[peer],
                svc_time: plan.svc_time[peer],
                dynamic_mpr: plan.dynamic_mpr[peer],
            },
        };
        self.qp.handle_rtr(&rtr, now)?;
        let retry = RetryAttr {
            timeout: plan.timeout,
            linear_cnt: plan.linear_cnt,
            exp_cnt: plan.exp_cnt,
        };
        let rts = RtsAttr {
            sq_psn: Psn::new(plan.psn[own]),
            mpr: plan.mpr[peer].saturating_mul(widen),
            max_wimm: plan.believed_wimm[peer],
            retry,
        };
        self.qp.handle_rts(&rts, now)
    }
}

fn congestion_control(host: &HostPlan, planes: u8, plan: &ConnectionPlan, side: usize, now: Instant) -> Qpcc {
    // Headers with TSETH above the data: protocol.md §10.3 has 4184 bytes for a PMTU of 4096.
    let mtu_bytes = plan.pmtu.bytes() as u32 + 88;
    let trimming = plan.fabric_trims && plan.trim_nack[1 - side];
    let network = Network {
        trimming,
        base_rtt_ns: host.speed.base_rtt_ns,
        path_links: host.speed.path_links,
        ..Network::new(planes, host.rate_mbps * 1_000_000, mtu_bytes)
    };
    let mut params = NsccParams::new(&network);
    let percent = u64::from(host.speed.max_cwnd_percent);
    params.max_cwnd_bytes = (u64::from(params.max_cwnd_bytes) * percent / 100).max(mtu_bytes.into()) as u32;
    match host.control {
        Control::Ports => Qpcc::fixed(host.cwnd_packets).with_trimming(trimming),
        Control::Nscc => Qpcc::nscc(params, host.cwnd_packets, now),
        Control::Off => Qpcc::uncontrolled(params, host.cwnd_packets),
    }
}

/// The values of paths that are listed differ from plane to plane; IPv4 carries 16 bits of them.
pub(crate) fn explicit_ev(format: Format, plane: u8, index: u16) -> u32 {
    let high = if format == Format::BytesV4 { 0 } else { 0x0001_0000 };
    let low = 0xC000 + u32::from(plane) * 0x400 + u32::from(index);
    low + high * u32::from(index + 1)
}

/// What the queue pair of `side` is made of.
pub(crate) fn create_attributes(scenario: &Scenario, plan: &ConnectionPlan, side: usize, seed: [u8; 32]) -> QpCreate {
    let ports = PortSet::first(scenario.planes);
    let planes = u16::from(scenario.planes);
    let universe = if plan.auto_evs {
        let layout = EvLayout::FlowHigh;
        Universe::Auto {
            ports,
            per_port: Some(plan.evs_per_plane),
            layout,
            flow_label: false,
        }
    } else {
        let format = scenario.format;
        let entries = ports.iter().flat_map(|port| {
            (0..plan.evs_per_plane).map(move |index| EvEntry {
                ev: Ev(explicit_ev(format, port.get(), index)),
                port,
            })
        });
        Universe::Explicit(entries.collect())
    };
    let v4 = scenario.format == crate::scenario::Format::BytesV4;
    let path = PathConfig {
        universe,
        active: Some(plan.active_per_plane * planes),
        min_active: Some(plan.ev_min_active * planes),
        ev_mask: if v4 || plan.auto_evs { 0xffff } else { u32::MAX },
        fabric_trims: plan.fabric_trims,
        ..PathConfig::auto(ports)
    };
    let max_wimm = plan.believed_wimm.into_iter().chain(plan.max_wimm).max().unwrap_or(1);
    QpCreate {
        qpn: Qpn::new(plan.qpn[side]),
        sq_depth: plan.sq_depth,
        rq_depth: plan.flows[1 - side].receive_depth.max(1),
        max_mpr: plan.max_mpr(),
        max_wimm,
        sq_sig_all: false,
        seed,
        path,
        tuning: Tuning {
            sack_gen_threshold_bytes: plan.sack_gen_threshold,
            answers_per_s: plan.answers_per_s,
            answers_burst: plan.answers_burst,
            reo_min_ns: plan.reo_min_ns,
            ..Tuning::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_fractions_of_a_nanosecond_leave_at_the_rate_of_the_link() {
        let mut port = PortSide::default();
        // 100 and 24 bytes at 400 Gb/s: 2.48 ns.
        let ends: Vec<u64> = (0..100).map(|_| port.queue(1000, 100, 400_000)).collect();
        assert_eq!((ends[0], ends[99]), (1002, 1248));
        // A pause owes nothing.
        assert_eq!(port.queue(2000, 100, 400_000), 2002);
    }
}
