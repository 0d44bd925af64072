//! What hosts hear of ports, their own and those of their peers (protocol.md §9.3).

use crate::host::Host;
use crate::world::World;
use mrc_protocol::{Cx, Instant};
use mrc_wire::{PortNum, PortSet};
use std::collections::BTreeMap;

/// Ports that are up at the peers of a host, as far as it was told.
#[derive(Debug, Clone, Default)]
pub struct PeerPorts {
    /// Of those peers of which not all are: in a large run there are few.
    some: BTreeMap<usize, PortSet>,
}

impl PeerPorts {
    const ALL: PortSet = PortSet::first(PortNum::MAX);

    /// Those of a peer; all, until something else is heard.
    pub fn of(&self, peer: usize) -> PortSet {
        self.some.get(&peer).copied().unwrap_or(PeerPorts::ALL)
    }

    /// The host was told which ports of a peer are up.
    pub fn learn(&mut self, peer: usize, up: PortSet) {
        if up == PeerPorts::ALL {
            self.some.remove(&peer);
        } else {
            self.some.insert(peer, up);
        }
    }
}

impl World {
    /// The news are late, but not older than the last ones: a host hears how things are.
    pub(crate) fn hear(&mut self, told: usize, about: usize, plane: u8) {
        let up = self.hosts[about].ports[usize::from(plane) - 1].link_up;
        let Some(port) = PortNum::new(plane) else { return };
        let change = |ports: &mut PortSet| if up { ports.insert(port) } else { ports.remove(port) };
        let host = &mut self.hosts[told];
        if told == about {
            change(&mut host.local_up);
            self.announce(told);
        } else {
            let mut known = host.peer_up.of(about);
            change(&mut known);
            // A peer without any port cannot say so (protocol.md §9.3).
            if !known.intersection(PortSet::first(self.scenario.planes)).is_empty() {
                host.peer_up.learn(about, known);
            }
        }
        self.hosts[told].effort.causes += 1;
        self.ports_changed(told);
        self.wake(told, self.now_ns);
    }

    /// All queue pairs of the host learn how its ports and those of their peers are.
    pub(crate) fn ports_changed(&mut self, index: usize) {
        let now = Instant(self.hosts[index].mood.clock_ns(self.now_ns));
        let Host {
            qps,
            qpccs,
            memory,
            stall,
            local_up,
            peer_up,
            ..
        } = &mut self.hosts[index];
        for slot in qps {
            let mut cx = Cx {
                now,
                cc: &mut qpccs[slot.qpcc],
                memory,
                stall: *stall,
            };
            slot.qp.handle_ports(&mut cx, *local_up, peer_up.of(slot.peer));
            let up = |port| PortNum::new(port).is_some_and(|port| local_up.contains(port));
            self.flows[slot.connection][slot.side].flight.withdraw(up);
        }
    }
}
