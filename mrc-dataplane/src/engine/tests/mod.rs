//! Two engines in one process, joined by ports in memory: no privilege, real threads, real time.

mod control;
mod end;
mod endpoint;
mod faults;
mod garbage;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use mrc_protocol::RetryAttr;
use mrc_wire::{Pmtu, PortNum, Psn, Qpn};

use super::{Command, CommandError, CreateQp, Engine, EngineConfig, QpChange};
use crate::neigh::FixedNextHops;
use crate::port::{MemoryLink, MemoryPort, MemoryPortConfig, Port};
use crate::region::PdId;
use crate::ring::{CompletionEntry, SendData, SendEntry, Sge};
use end::{Choice, End, connect, create_qp, pattern, reply, steps, wait_for};

/// Both sides and the links between them.
struct Rig {
    a: End,
    b: End,
    links: Vec<MemoryLink>,
    hops: [Arc<FixedNextHops>; 2],
}

impl Rig {
    /// Two engines with connected queue pairs.
    fn new(choice: &Choice) -> Self {
        let rig = Self::unconnected(choice);
        connect(&rig.a, &rig.b, choice);
        connect(&rig.b, &rig.a, choice);
        rig
    }

    fn unconnected(choice: &Choice) -> Self {
        let mut ports: [Vec<Box<dyn Port>>; 2] = [Vec::new(), Vec::new()];
        let mut links = Vec::new();
        let mut macs = [Vec::new(), Vec::new()];
        for num in 1..=choice.planes {
            let num = PortNum::new(num).unwrap();
            let config = MemoryPortConfig {
                mtu: choice.mtu,
                link_speed_bps: choice.link_speed_bps,
                ..MemoryPortConfig::default()
            };
            let (left, right, link) = MemoryPort::pair(num, config).unwrap();
            macs[0].push((num, right.mac()));
            macs[1].push((num, left.mac()));
            ports[0].push(Box::new(left));
            ports[1].push(Box::new(right));
            links.push(link);
        }
        let hops = macs.map(|macs| Arc::new(FixedNextHops::one_peer_each(macs)));
        let [left, right] = ports;
        let a = start(0, left, hops[0].clone(), choice);
        let b = start(1, right, hops[1].clone(), choice);
        Self { a, b, links, hops }
    }
}

fn start(side: u8, ports: Vec<Box<dyn Port>>, hops: Arc<FixedNextHops>, choice: &Choice) -> End {
    let address_v4 = Some([10, 0, 0, side + 1].into());
    let address_v6 = Some(format!("fd4d:5243::{}", side + 1).parse().unwrap());
    let config = EngineConfig {
        address_v4,
        address_v6,
        ..choice.config.clone()
    };
    End::new(Engine::start_with_ports(config, ports, hops).unwrap(), choice)
}
