//! Starting: addresses, ports, threads.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam::channel::bounded;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

use super::clock::Clock;
use super::config::{EngineConfig, PortConfig};
use super::control::{Control, port_num};
use super::core::Core;
use super::counters::Cells;
use super::error::EngineError;
use super::flow::Speeds;
use super::handover::Handover;
use super::pace::Pacer;
use super::peer::Peers;
use super::ports::PortFacts;
use super::threads::{Thread, Threads};
use super::wait::{self, Patience, Shared};
use super::worker::Worker;
use super::{Engine, Inner};
use crate::capture::{Capture, Reading};
use crate::neigh::NextHops;
use crate::netlink::{WatchOptions, Watcher};
use crate::port::{Port, PortError, PortOptions, PortSpec, open_ports};
use crate::ring::Board;

/// AUTO and GENERATED profiles draw from this: the same configuration gives the same EVs (api.md §4.7).
const PROFILE_SEED: [u8; 32] = *b"MRC as software, profiles, v0001";

/// Jobs that may wait for one thread.
const JOBS: usize = 64;

/// The ports of one engine thread each, and who knows the way.
pub(super) struct Plumbing {
    pub(super) ports: Vec<Vec<Box<dyn Port>>>,
    pub(super) next_hops: Arc<dyn NextHops>,
    /// Readable after a change of links or next hops; the closure takes that notice back.
    pub(super) news: Option<(OwnedFd, Box<dyn Fn() + Send + Sync>)>,
}

impl Engine {
    /// Starts an engine on the interfaces of the configuration. Needs the privilege to open `AF_XDP` sockets and to load the
    /// steering program.
    pub fn start(mut config: EngineConfig) -> Result<Self, EngineError> {
        config.validate()?;
        if config.ports.is_empty() {
            return Err(EngineError::NoPorts);
        }
        let numbered = config.ports.iter().enumerate();
        let named: Vec<_> = numbered
            .filter_map(|(at, port)| Some((port_num(at)?, port.name.clone())))
            .collect();
        let watcher = Arc::new(Watcher::start(&named, WatchOptions::default())?);
        choose_addresses(&mut config, watcher.node_addresses())?;

        // Thread after thread, so that each gets its ports in order.
        let threads = u32::from(config.threads);
        let mut specs = Vec::with_capacity(named.len() * threads as usize);
        for thread in 0..threads {
            for ((num, name), port) in named.iter().zip(&config.ports) {
                let link = watcher
                    .link(*num)
                    .ok_or_else(|| PortError::UnknownInterface { name: name.clone() })?;
                specs.push(PortSpec {
                    num: *num,
                    name: name.clone(),
                    queue: port.queue + thread,
                    link,
                });
            }
        }
        let trimmed = [Some(config.dscps.trimmed), config.dscps.trimmed_lasthop];
        let options = PortOptions {
            udp_ports: vec![config.udp_port],
            trimmed_dscps: trimmed.into_iter().flatten().collect(),
            rx_chunks: config.receive_buffers,
            tx_window: config.transmit_frames,
            ..PortOptions::default()
        };
        let mut opened = open_ports(&specs, &options)?
            .into_iter()
            .map(|port| Box::new(port) as Box<dyn Port>);
        let ports = (0..threads)
            .map(|_| opened.by_ref().take(named.len()).collect())
            .collect();
        let fd = watcher
            .fd()
            .try_clone_to_owned()
            .map_err(EngineError::os("copy a descriptor"))?;
        let news = watcher.clone();
        launch(
            config,
            Plumbing {
                ports,
                next_hops: watcher,
                news: Some((fd, Box::new(move || news.drain()))),
            },
        )
    }

    /// Starts an engine on ports that are there already, one thread. For tests, and for ports of one's own.
    pub fn start_with_ports(
        config: EngineConfig,
        ports: Vec<Box<dyn Port>>,
        next_hops: Arc<dyn NextHops>,
    ) -> Result<Self, EngineError> {
        let config = EngineConfig { threads: 1, ..config };
        config.validate()?;
        launch(
            config,
            Plumbing {
                ports: vec![ports],
                next_hops,
                news: None,
            },
        )
    }
}

/// Starts the threads.
pub(super) fn launch(config: EngineConfig, plumbing: Plumbing) -> Result<Engine, EngineError> {
    let Plumbing { ports, next_hops, news } = plumbing;
    let Some(first) = ports.first().filter(|ports| !ports.is_empty()) else {
        return Err(EngineError::NoPorts);
    };
    for (at, port) in first.iter().enumerate() {
        if Some(port.num()) != port_num(at) {
            return Err(EngineError::Config(format!(
                "port {} is not number {}",
                port.name(),
                at + 1
            )));
        }
    }
    let first_port = first[0].num();
    let configured = |at: usize| config.ports.get(at).and_then(|port| port.link_speed_bps);
    let facts = first
        .iter()
        .enumerate()
        .map(|(at, port)| PortFacts::of(&**port, configured(at).or_else(|| port.link_speed_bps())));
    let facts: Arc<Vec<PortFacts>> = Arc::new(facts.collect());
    // The ports that there are, and not those of the configuration: they may have been handed over.
    let registry = EngineConfig {
        ports: first.iter().map(|port| PortConfig::new(port.name())).collect(),
        ..config.clone()
    }
    .registry(PROFILE_SEED)?;
    let tunnel = registry.tunnel(config.ev_layout);
    let speeds = Speeds(facts.iter().map(PortFacts::link_speed_bps).collect());
    // A link that knows its speed needs no help.
    let paced: Vec<Option<u64>> = (0..facts.len()).map(configured).collect();
    let threads = ports.len();
    let reading = Reading {
        udp_port: config.udp_port,
        dscps: config.dscps,
        ev_layout: config.ev_layout,
    };
    let (capture, ports) = Capture::start(&config.capture, reading, &paced, ports)?;
    let clock = Clock::new();
    let shared_config = Arc::new(config.clone());
    let boards = ports
        .iter()
        .map(|_| Board::new().map(Arc::new))
        .collect::<Result<Vec<_>, _>>();
    let boards = boards.map_err(EngineError::os("make an event fd"))?;

    // Built at once, so that a failure on the way stops and joins what runs already.
    let mut inner = Inner {
        control: Mutex::new(Control::new(config.clone(), registry, next_hops.clone())),
        config,
        threads: Threads(Vec::new()),
        shared: Vec::new(),
        cells: Vec::new(),
        facts: facts.clone(),
        tunnel,
        _capture: capture,
    };
    let mut news = news;
    let mut handovers = Handover::between(&boards, first_port).into_iter();
    for (index, ports) in ports.into_iter().enumerate() {
        let (jobs, queue) = bounded(JOBS);
        let mut fds = descriptors(&ports)?;
        let cells = Arc::new(Cells::new(ports.len()));
        let handover = handovers.next().unwrap_or_default();
        let inbox = handover.inbox();
        let peers = Peers::new(next_hops.clone());
        let core = Core::new(
            index,
            shared_config.clone(),
            cells.clone(),
            peers,
            handover,
            speeds.clone(),
        );
        let board = boards[index].clone();
        let worker = Worker::new(index, core, ports, queue.clone(), board.clone(), facts.clone(), clock)
            .paced(Pacer::new(&paced, threads));
        let shared = Arc::new(Shared {
            worker: Mutex::new(worker),
            board: board.clone(),
            jobs: queue,
            inbox,
            stop: AtomicBool::new(false),
            inline_runs: AtomicU64::new(0),
            planned: AtomicU64::new(0),
            clock,
        });
        // One thread hears the news and passes them on.
        let take_news = news.take().map(|(fd, take)| {
            fds.push(fd);
            let others: Vec<_> = boards
                .iter()
                .filter(|other| !Arc::ptr_eq(other, &board))
                .cloned()
                .collect();
            move || {
                take();
                for board in &others {
                    board.wake();
                }
            }
        });
        let dead = Arc::new(AtomicBool::new(false));
        let patience = Patience {
            spin_ns: shared_config.spin_ns,
            yield_ns: shared_config.yield_ns,
        };
        let core_id = shared_config.cores.get(index).copied();
        let (its_shared, its_dead) = (shared.clone(), dead.clone());
        let join = std::thread::Builder::new()
            .name(format!("mrc-engine-{index}"))
            .spawn(move || {
                let _announce = Announce(its_dead);
                prepare(core_id);
                wait::run(&its_shared, &fds, patience, || {
                    if let Some(take) = &take_news {
                        take();
                    }
                });
            })
            .map_err(EngineError::os("start a thread"))?;
        inner.threads.0.push(Thread {
            jobs,
            board,
            dead,
            join: Some(join),
        });
        inner.shared.push(shared);
        inner.cells.push(cells);
    }
    Ok(Engine(Arc::new(inner)))
}

/// Says that the thread has ended, even by a panic.
struct Announce(Arc<AtomicBool>);

impl Drop for Announce {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn descriptors(ports: &[Box<dyn Port>]) -> Result<Vec<OwnedFd>, EngineError> {
    ports
        .iter()
        .filter_map(|port| port.fd())
        .map(|fd| {
            fd.as_fd()
                .try_clone_to_owned()
                .map_err(EngineError::os("copy a descriptor"))
        })
        .collect()
}

/// Signals belong to the application; timers of 20 us need more precision than the default slack of 50 us.
fn prepare(core: Option<usize>) {
    if let Err(error) = SigSet::all().thread_block() {
        tracing::warn!("engine thread cannot block signals: {error}");
    }
    if let Err(error) = nix::sys::prctl::set_timerslack(1_000) {
        tracing::warn!("engine thread keeps its timer slack: {error}");
    }
    if let Some(core) = core {
        let mut set = CpuSet::new();
        if let Err(error) = set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)) {
            tracing::warn!("engine thread cannot be pinned to core {core}: {error}; it runs on any");
        }
    }
}

/// The node addresses: those of the configuration, else those that `lo` has.
fn choose_addresses(
    config: &mut EngineConfig,
    (v4, v6): (Option<Ipv4Addr>, Option<Ipv6Addr>),
) -> Result<(), EngineError> {
    config.address_v4 = config.address_v4.or(v4);
    config.address_v6 = config.address_v6.or(v6);
    if config.address_v4.is_none() && config.address_v6.is_none() {
        return Err(EngineError::NoAddress);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_configuration_come_before_those_of_lo() {
        let (v4, v6) = (Ipv4Addr::new(10, 1, 0, 1), "2001:db8::1".parse().unwrap());
        let own = Ipv4Addr::new(10, 2, 0, 1);
        let mut config = EngineConfig {
            address_v4: Some(own),
            ..EngineConfig::default()
        };
        choose_addresses(&mut config, (Some(v4), Some(v6))).unwrap();
        assert_eq!((config.address_v4, config.address_v6), (Some(own), Some(v6)));
        assert!(matches!(
            choose_addresses(&mut EngineConfig::default(), (None, None)),
            Err(EngineError::NoAddress)
        ));
    }
}
