//! Tests over two engines joined in memory: no privilege, real threads, the whole way but the kernel.

mod channel;
mod errors;
mod lifecycle;
mod posting;
mod transfer;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mrc_dataplane::engine::EngineConfig;
use mrc_dataplane::neigh::FixedNextHops;
use mrc_dataplane::port::{MemoryLink, MemoryPort, MemoryPortConfig, Port};
use mrc_wire::PortNum;

use crate::{
    Access, ApiVersion, CompletionQueue, Context, DeviceContext, MemoryRegion, ProtectionDomain, QpConfig, QpInit,
    QpSizes, QueuePair, WorkCompletion,
};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// One host: an engine and the objects that most tests want.
struct Host {
    device: DeviceContext,
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
}

/// Two hosts and the links between them.
struct Fabric {
    a: Host,
    b: Host,
    links: Vec<MemoryLink>,
}

const REGION: usize = 1 << 20;

fn config(number: u8) -> EngineConfig {
    EngineConfig {
        address_v4: Some(Ipv4Addr::new(192, 0, 2, number)),
        address_v6: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into())),
        ..EngineConfig::default()
    }
}

fn devices(planes: u8, mtu: u32, configs: [EngineConfig; 2]) -> ([DeviceContext; 2], Vec<MemoryLink>) {
    let (mut left, mut right) = (Vec::<Box<dyn Port>>::new(), Vec::<Box<dyn Port>>::new());
    let mut links = vec![];
    let (mut left_macs, mut right_macs) = (vec![], vec![]);
    for plane in 1..=planes {
        let num = PortNum::new(plane).unwrap();
        let (a, b, link) = MemoryPort::pair(
            num,
            MemoryPortConfig {
                mtu,
                ..MemoryPortConfig::default()
            },
        )
        .unwrap();
        left_macs.push((num, a.mac()));
        right_macs.push((num, b.mac()));
        left.push(Box::new(a));
        right.push(Box::new(b));
        links.push(link);
    }
    let [config_a, config_b] = configs;
    let open = |config, ports, peers| {
        DeviceContext::open_with_ports(config, ports, Arc::new(FixedNextHops::one_peer_each(peers))).unwrap()
    };
    (
        [open(config_a, left, right_macs), open(config_b, right, left_macs)],
        links,
    )
}

impl Host {
    fn new(device: DeviceContext) -> Host {
        let context = Context::open(&device, ApiVersion::LATEST).unwrap();
        let pd = ProtectionDomain::new(&device).unwrap();
        let cq = context.create_cq(1024).unwrap();
        let region = pd.register_owned(REGION, Access::PEER_WRITABLE).unwrap();
        Host {
            device,
            context,
            pd,
            cq,
            region,
        }
    }

    fn qp(&self) -> QueuePair {
        self.qp_of(QpSizes::default())
    }

    fn qp_of(&self, sizes: QpSizes) -> QueuePair {
        self.context
            .create_qp(
                &self.pd,
                &QpInit {
                    sizes,
                    ..QpInit::new(&self.cq)
                },
            )
            .unwrap()
    }

    /// The next completion, waited for.
    fn completion(&self) -> WorkCompletion {
        completion(&self.cq)
    }

    fn completions(&self, count: usize) -> Vec<WorkCompletion> {
        (0..count).map(|_| self.completion()).collect()
    }
}

impl Fabric {
    fn new(planes: u8) -> Fabric {
        Fabric::with_mtu(planes, 9000)
    }

    fn with_mtu(planes: u8, mtu: u32) -> Fabric {
        Fabric::with_configs(planes, mtu, [config(1), config(2)])
    }

    fn with_configs(planes: u8, mtu: u32, configs: [EngineConfig; 2]) -> Fabric {
        let ([a, b], links) = devices(planes, mtu, configs);
        Fabric {
            a: Host::new(a),
            b: Host::new(b),
            links,
        }
    }

    /// A queue pair on each host, connected.
    fn connected(&self) -> (QueuePair, QueuePair) {
        let (a, b) = (self.a.qp(), self.b.qp());
        connect(&a, &b);
        (a, b)
    }
}

fn connect(a: &QueuePair, b: &QueuePair) {
    let (of_a, of_b) = (a.offer().unwrap(), b.offer().unwrap());
    a.connect(&QpConfig::new(of_a.clone(), of_b.clone())).unwrap();
    b.connect(&QpConfig::new(of_b, of_a)).unwrap();
}

fn completion(cq: &CompletionQueue) -> WorkCompletion {
    let mut found = None;
    until("a completion", || {
        found = cq.poll_one().unwrap();
        found.is_some()
    });
    found.unwrap()
}

/// Waits for a condition.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::yield_now();
    }
}

/// Bytes that differ from place to place.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
