//! Windows: one for all queue pairs towards a peer that use the same CC profile, or one for a queue pair alone
//! (protocol.md §10.6).

use std::collections::VecDeque;

use mrc_protocol::cc::{Algorithm, Network, NsccParams, SchedulerState};
use mrc_protocol::{Instant, Qpcc};
use mrc_wire::{Pmtu, PortNum, PortSet};

use crate::profile::{CcPlan, ProfileId};

/// What a full packet counts besides its data (protocol.md §10.3).
const NOMINAL_HEADERS: u32 = 88;

/// A window and those who share it.
pub(super) struct Flow {
    pub(super) peer: u32,
    kind: Kind,
    pub(super) cc: Qpcc,
    /// Queue pairs that wait for it.
    pub(super) waiting: VecDeque<u32>,
    users: u32,
}

/// Who shares a window towards a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All queue pairs with this CC profile.
    Profile(ProfileId),
    /// One queue pair.
    Alone(u32),
}

/// What is known of the way to a peer when its window is made.
pub(super) struct Way {
    /// Speeds by port number minus one; `None` = not known.
    pub(super) speeds: Speeds,
    /// Ports that lead to it.
    pub(super) ports: PortSet,
    pub(super) pmtu: Pmtu,
    /// Switches trim, and the peer says so.
    pub(super) trimming: bool,
    /// Packets in flight on a port, whatever the window says.
    pub(super) packets_per_port: u16,
    /// What hosts add to the idle round trip of a full packet.
    pub(super) host_rtt_ns: u32,
}

/// Speeds of the own links by port number minus one; `None` = not known.
#[derive(Clone, Debug, Default)]
pub(super) struct Speeds(pub(super) Vec<Option<u64>>);

impl Speeds {
    /// Of these ports together; `None` if one of the engine's is not known: then nobody knows what the network carries.
    fn sum(&self, ports: PortSet) -> Option<u64> {
        let all = self.0.iter().copied().collect::<Option<Vec<u64>>>()?;
        let of = |port: PortNum| all.get(port.index()).copied().unwrap_or(0);
        Some(ports.iter().map(of).fold(0, u64::saturating_add))
    }

    /// The slowest.
    fn slowest(&self) -> Option<u64> {
        self.0.iter().copied().min()?
    }
}

/// The windows of one engine thread.
#[derive(Default)]
pub(super) struct Flows(Vec<Option<Flow>>);

impl Flows {
    pub(super) fn get(&self, index: u32) -> Option<&Flow> {
        self.0.get(index as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Flow> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    /// The window of a queue pair, made if needed.
    pub(super) fn join(&mut self, peer: u32, key: u32, plan: &CcPlan, way: &Way, now: Instant) -> u32 {
        let kind = if plan.per_qp {
            Kind::Alone(key)
        } else {
            Kind::Profile(plan.id)
        };
        let same = |flow: &Flow| (flow.peer, flow.kind) == (peer, kind);
        let known = self.0.iter().position(|flow| flow.as_ref().is_some_and(same));
        let at = known.unwrap_or_else(|| {
            let flow = Flow {
                peer,
                kind,
                cc: window(plan, way, now),
                waiting: VecDeque::new(),
                users: 0,
            };
            let free = self.0.iter().position(Option::is_none);
            let at = free.unwrap_or(self.0.len());
            if at == self.0.len() {
                self.0.push(None);
            }
            self.0[at] = Some(flow);
            at
        });
        if let Some(flow) = &mut self.0[at] {
            flow.users += 1;
            // Each waits once: no allocation later.
            let room = (flow.users as usize).saturating_sub(flow.waiting.len());
            flow.waiting.reserve(room);
        }
        at as u32
    }

    /// One queue pair less.
    pub(super) fn leave(&mut self, index: u32, key: u32) {
        if let Some(flow) = self.get_mut(index) {
            flow.waiting.retain(|&other| other != key);
            flow.users -= 1;
            if flow.users == 0 {
                self.0[index as usize] = None;
            }
        }
    }

    /// Ports went down or came up: `ports` says which lead to a peer now (protocol.md §10.4).
    pub(super) fn follow_ports(&mut self, speeds: &Speeds, ports: impl Fn(u32) -> PortSet) {
        for flow in self.0.iter_mut().flatten() {
            // Nothing leads there: it will not last, and a window of one packet would.
            if let Some(link_bps) = speeds.sum(ports(flow.peer)).filter(|bps| *bps > 0) {
                flow.cc.set_link_bps(link_bps);
            }
        }
    }
}

impl Flow {
    /// protocol.md §10.6. `data`: a queue pair of it has some.
    pub(super) fn state(&self, data: bool) -> SchedulerState {
        self.cc.scheduler_state(data)
    }
}

/// The window that a CC profile asks for (protocol.md §10). Where link speeds are not known there is nothing to compute one
/// from: then packets per port are the only limit.
fn window(plan: &CcPlan, way: &Way, now: Instant) -> Qpcc {
    let fixed = || Qpcc::fixed(way.packets_per_port).with_trimming(way.trimming);
    let mtu_bytes = way.pmtu.bytes() as u32 + NOMINAL_HEADERS;
    let speeds = way.speeds.sum(way.ports).zip(way.speeds.slowest());
    let told = || {
        // A window and a round trip are a speed, too.
        let (bytes, rtt_ns) = (plan.numbers.max_cwnd_bytes?, plan.numbers.base_rtt_ns?);
        let bps = u128::from(bytes) * 8 * 1_000_000_000 * 2 / (3 * u128::from(rtt_ns.max(1)));
        let bps = u64::try_from(bps).unwrap_or(u64::MAX);
        Some((bps, bps / way.ports.len().max(1) as u64))
    };
    let Some((link_bps, path_bps)) = speeds.filter(|(sum, _)| *sum > 0).or_else(told) else {
        return fixed();
    };
    let network = Network {
        link_bps,
        peer_bps: plan.peer_bps,
        trimming: way.trimming,
        path_links: plan.numbers.path_links.unwrap_or(2),
        ..Network::new(1, path_bps.max(1), mtu_bytes)
    };
    // protocol.md §10.3, P25: the links' part is computed, the hosts' part is told.
    let base_rtt_ns = network.config_base_rtt_ns() + u64::from(way.host_rtt_ns);
    let network = plan.numbers.on(Network {
        base_rtt_ns: Some(base_rtt_ns),
        ..network
    });
    let computed = NsccParams::new(&network);
    let params = NsccParams::with_config(&plan.numbers.over(&computed.config()), &network);
    match (plan.algorithm, plan.numbers.max_cwnd_bytes) {
        (Algorithm::Nscc, _) => Qpcc::nscc(params, way.packets_per_port, now),
        (Algorithm::Off, Some(_)) => Qpcc::uncontrolled(params, way.packets_per_port),
        (Algorithm::Off, None) => fixed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::CcNumbers;

    const NOW: Instant = Instant::from_ns(1);

    fn plan() -> CcPlan {
        CcPlan {
            id: 0,
            algorithm: Algorithm::Nscc,
            numbers: CcNumbers::default(),
            per_qp: false,
            peer_bps: None,
        }
    }

    fn way(speeds: &[Option<u64>]) -> Way {
        Way {
            speeds: Speeds(speeds.to_vec()),
            ports: PortSet::first(speeds.len() as u8),
            pmtu: Pmtu::B4096,
            trimming: false,
            packets_per_port: 192,
            host_rtt_ns: 0,
        }
    }

    // protocol.md §10.3, the example: 10 Gb/s and 50 us.
    #[test]
    fn known_speeds_give_the_window_of_the_specification() {
        let cc = window(&plan(), &way(&[Some(5_000_000_000); 2]), NOW);
        assert_eq!(cc.cwnd_bytes(), Some(93_750));
        assert!(cc.as_nscc().is_some());
    }

    #[test]
    fn slow_links_and_busy_hosts_make_the_round_trip_longer() {
        let speeds = [Some(100_000_000); 2];
        let hosts = Way {
            host_rtt_ns: 2_000_000,
            ..way(&speeds)
        };
        let base_rtt_ns = |way: &Way| window(&plan(), way, NOW).base_rtt_ns();
        // A full packet and its SACK on two links.
        assert_eq!(base_rtt_ns(&way(&speeds)), (4184 + 100) * 2 * 80);
        assert_eq!(base_rtt_ns(&hosts), (4184 + 100) * 2 * 80 + 2_000_000);
    }

    #[test]
    fn an_unknown_speed_leaves_packets_per_port_as_the_only_limit() {
        let cc = window(&plan(), &way(&[Some(5_000_000_000), None]), NOW);
        assert_eq!(cc.cwnd_bytes(), None);
    }

    #[test]
    fn a_window_and_a_round_trip_stand_for_a_speed() {
        let numbers = CcNumbers {
            max_cwnd_bytes: Some(300_000),
            base_rtt_ns: Some(2_000_000),
            ..CcNumbers::default()
        };
        let cc = window(&CcPlan { numbers, ..plan() }, &way(&[None; 2]), NOW);
        assert_eq!(cc.cwnd_bytes(), Some(300_000));
    }

    #[test]
    fn congestion_control_can_be_off() {
        let off = CcPlan {
            algorithm: Algorithm::Off,
            ..plan()
        };
        assert_eq!(window(&off, &way(&[Some(5_000_000_000); 2]), NOW).cwnd_bytes(), None);
        let numbers = CcNumbers {
            max_cwnd_bytes: Some(50_000),
            ..CcNumbers::default()
        };
        let cc = window(&CcPlan { numbers, ..off }, &way(&[Some(5_000_000_000); 2]), NOW);
        assert_eq!((cc.cwnd_bytes(), cc.as_nscc().is_none()), (Some(50_000), true));
    }

    #[test]
    fn queue_pairs_share_the_window_of_their_profile_unless_it_is_one_per_queue_pair() {
        let mut flows = Flows::default();
        let way = way(&[Some(1_000_000_000)]);
        let alone = CcPlan {
            id: 7,
            per_qp: true,
            ..plan()
        };
        let other = CcPlan { id: 8, ..plan() };
        let joined = [
            flows.join(0, 1, &plan(), &way, NOW),
            flows.join(0, 2, &plan(), &way, NOW),
            flows.join(1, 3, &plan(), &way, NOW),
            flows.join(0, 4, &other, &way, NOW),
            flows.join(0, 5, &alone, &way, NOW),
            flows.join(0, 6, &alone, &way, NOW),
        ];
        assert_eq!(joined, [0, 0, 1, 2, 3, 4]);
        flows.leave(0, 1);
        assert!(flows.get(0).is_some());
        flows.leave(0, 2);
        assert!(flows.get(0).is_none());
        assert_eq!(flows.join(9, 7, &plan(), &way, NOW), 0, "its place is free");
    }

    #[test]
    fn a_port_that_goes_down_takes_its_speed_with_it() {
        let mut flows = Flows::default();
        let way = way(&[Some(5_000_000_000); 2]);
        let at = flows.join(0, 1, &plan(), &way, NOW);
        flows.follow_ports(&way.speeds, |_| PortSet::first(1));
        assert_eq!(flows.get(at).unwrap().cc.cwnd_bytes(), Some(46_875));
        flows.follow_ports(&way.speeds, |_| PortSet::EMPTY);
        assert_eq!(flows.get(at).unwrap().cc.cwnd_bytes(), Some(46_875));
    }
}
