//! Carries out commands: keeps the register of objects, checks what does not need an engine thread, and hands the rest to the
//! threads that it concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mrc_protocol::{PathConfig, Qp, QpCreate, Universe};
use mrc_wire::{PortNum, PortSet, Qpn};

use super::check::{check_addresses, check_pmtu, find_way, in_range};
use super::command::{Command, CqId, CreateQp, Outcome, QpChange, QpRings, Reply, Rings};
use super::config::EngineConfig;
use super::error::CommandError;
use super::job::{Answer, NewQp, Task};
use super::ports::PortFacts;
use super::profiles::Bound;
use super::threads::Threads;
use crate::neigh::NextHops;
use crate::profile::Registry;
use crate::region::{Access, PdId, Region, RegionMemory, random_bytes, random_u32};
use crate::ring::{BELLS, Doorbell, completion_queue, recv_ring, send_ring};

/// How long a QPN rests before it is used again (protocol.md §2.2, P1), with some margin for the engine's own clock.
const QPN_REST: Duration = Duration::from_millis(1100);

/// Largest depth of any queue.
pub const MAX_DEPTH: u32 = 32768;
/// Largest completion queue.
pub const MAX_CQE: u32 = 1 << 20;
/// Most pieces of a send request.
pub const MAX_SGE: u32 = 32;
/// Most inline data of a send request.
pub const MAX_INLINE: u32 = 1024;

pub(super) struct QpRecord {
    pub(super) thread: usize,
    pub(super) key: u32,
    pd: PdId,
    send_cq: CqId,
    recv_cq: CqId,
    /// Peer and own address, from RTR on.
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    pub(super) profiles: Bound,
}

#[derive(Default)]
struct PdRecord {
    regions: u32,
    qps: u32,
}

/// The register of objects.
pub(super) struct Control {
    pub(super) config: EngineConfig,
    pub(super) registry: Registry,
    next_hops: Arc<dyn NextHops>,
    next_pd: u32,
    pds: BTreeMap<PdId, PdRecord>,
    /// Number of users.
    cqs: BTreeMap<CqId, u32>,
    regions: HashMap<u32, (Region, PdId)>,
    rkeys: BTreeSet<u32>,
    pub(super) qps: HashMap<Qpn, QpRecord>,
    /// Numbers and keys that are not to be used again yet.
    resting: VecDeque<(Instant, Qpn, usize, u32)>,
    /// By thread: the keys in use or resting.
    keys: Vec<BTreeSet<u32>>,
}

impl Control {
    pub(super) fn new(config: EngineConfig, registry: Registry, next_hops: Arc<dyn NextHops>) -> Self {
        let keys = vec![BTreeSet::new(); config.threads.into()];
        Self {
            config,
            registry,
            next_hops,
            next_pd: 1,
            pds: BTreeMap::new(),
            cqs: BTreeMap::new(),
            regions: HashMap::new(),
            rkeys: BTreeSet::new(),
            qps: HashMap::new(),
            resting: VecDeque::new(),
            keys,
        }
    }

    pub(super) fn execute(
        &mut self,
        command: Command,
        channel: Option<&Arc<OwnedFd>>,
        threads: &Threads,
        ports: &[PortFacts],
    ) -> Result<Outcome, CommandError> {
        match command {
            Command::CreatePd => {
                let pd = PdId(self.next_pd);
                self.next_pd += 1;
                self.pds.insert(pd, PdRecord::default());
                Ok(Reply::Pd(pd).into())
            }
            Command::DestroyPd { pd } => {
                let record = self.pds.get(&pd).ok_or(CommandError::NoSuchPd(pd))?;
                if record.regions + record.qps > 0 {
                    return Err(CommandError::Busy {
                        what: "protection domain",
                        users: "regions or queue pairs",
                    });
                }
                self.pds.remove(&pd);
                Ok(Reply::Done.into())
            }
            Command::RegisterRegion { pd, memory, access } => self.register(pd, memory, access, threads),
            Command::DeregisterRegion { lkey } => {
                let (region, pd) = *self.regions.get(&lkey).ok_or(CommandError::NoSuchRegion(lkey))?;
                threads.all(|| Task::RemoveRegion { lkey })?;
                self.regions.remove(&lkey);
                self.rkeys.remove(&region.rkey);
                if let Some(record) = self.pds.get_mut(&pd) {
                    record.regions -= 1;
                }
                Ok(Reply::Done.into())
            }
            Command::CreateCq { depth } => self.create_cq(depth, channel, threads),
            Command::DestroyCq { cq } => {
                if *self.cqs.get(&cq).ok_or(CommandError::NoSuchCq(cq))? > 0 {
                    return Err(CommandError::Busy {
                        what: "completion queue",
                        users: "queue pairs",
                    });
                }
                threads.all(|| Task::RemoveCq { cq })?;
                self.cqs.remove(&cq);
                Ok(Reply::Done.into())
            }
            Command::CreateQp(create) => self.create_qp(create, threads, ports),
            Command::ModifyQp { qpn, change } => self.modify(qpn, change, threads, ports),
            Command::QueryQp { qpn } => {
                let record = self.qp(qpn)?;
                match threads.one(record.thread, Task::Query { key: record.key })? {
                    Answer::Info(mut info) => {
                        self.name_profiles(record, &mut info);
                        Ok(Reply::QpInfo(info).into())
                    }
                    _ => Ok(Reply::Done.into()),
                }
            }
            Command::QueryPaths { qpn } => {
                let record = self.qp(qpn)?;
                match threads.one(record.thread, Task::QueryPaths { key: record.key })? {
                    Answer::Paths(mut paths) => {
                        self.name_paths(record, &mut paths);
                        Ok(Reply::Paths(paths).into())
                    }
                    _ => Ok(Reply::Done.into()),
                }
            }
            Command::QueryEvProfile { profile } => {
                let info = self.ev_profile_info(&profile, threads)?;
                Ok(Reply::EvProfile(Box::new(info)).into())
            }
            Command::SetEvState { profile, evs, state } => {
                let changed = self.set_ev_state(&profile, &evs, state, threads)?;
                Ok(Reply::Changed(changed).into())
            }
            Command::DestroyQp { qpn } => self.destroy_qp(qpn, threads),
        }
    }

    fn qp(&self, qpn: Qpn) -> Result<&QpRecord, CommandError> {
        self.qps.get(&qpn).ok_or(CommandError::NoSuchQp(qpn))
    }

    fn register(
        &mut self,
        pd: PdId,
        memory: RegionMemory,
        access: Access,
        threads: &Threads,
    ) -> Result<Outcome, CommandError> {
        if !self.pds.contains_key(&pd) {
            return Err(CommandError::NoSuchPd(pd));
        }
        // New keys for each registration, over all 32 bits but 0 (protocol.md §14).
        let lkey = draw(|key| key != 0 && !self.regions.contains_key(&key))?;
        let rkey = draw(|key| key != 0 && !self.rkeys.contains(&key))?;
        let region = Region {
            lkey,
            rkey,
            pd,
            access,
            memory,
        };
        threads.all(|| Task::AddRegion(region))?;
        self.regions.insert(lkey, (region, pd));
        self.rkeys.insert(rkey);
        if let Some(record) = self.pds.get_mut(&pd) {
            record.regions += 1;
        }
        Ok(Reply::Region { lkey, rkey }.into())
    }

    fn create_cq(
        &mut self,
        depth: u32,
        channel: Option<&Arc<OwnedFd>>,
        threads: &Threads,
    ) -> Result<Outcome, CommandError> {
        in_range("completion queue depth", depth, 1, MAX_CQE)?;
        // The smallest free number: threads keep completion queues in a dense table.
        let cq = (0..=self.cqs.len() as u32)
            .map(CqId)
            .find(|cq| !self.cqs.contains_key(cq))
            .unwrap_or(CqId(u32::MAX));
        let (consumer, producers) = completion_queue(depth, threads.count(), channel);
        let mut producers = producers.into_iter();
        threads.each(|_| producers.next().map(|producer| Task::AddCq { cq, producer }))?;
        self.cqs.insert(cq, 0);
        Ok(Outcome {
            reply: Reply::Cq(cq),
            rings: Some(Rings::Cq(consumer)),
        })
    }

    fn create_qp(&mut self, create: CreateQp, threads: &Threads, ports: &[PortFacts]) -> Result<Outcome, CommandError> {
        let (pd, send_cq, recv_cq) = (create.pd, create.send_cq, create.recv_cq);
        if !self.pds.contains_key(&pd) {
            return Err(CommandError::NoSuchPd(pd));
        }
        for cq in [send_cq, recv_cq] {
            if !self.cqs.contains_key(&cq) {
                return Err(CommandError::NoSuchCq(cq));
            }
        }
        in_range("send queue depth", create.sq_depth, 1, MAX_DEPTH)?;
        in_range("receive queue depth", create.rq_depth, 1, MAX_DEPTH)?;
        in_range("number of pieces per request", create.max_sge, 0, MAX_SGE)?;
        in_range("inline data", create.max_inline, 0, MAX_INLINE)?;
        let profiles = self.choose_profiles(&create)?;
        self.wake_rested();
        let (thread, key) = self.draw_key(threads)?;
        let qpn = self.draw_qpn(thread)?;
        let qp = Qp::new(QpCreate {
            qpn,
            sq_depth: create.sq_depth,
            rq_depth: create.rq_depth,
            max_mpr: create.max_mpr,
            max_wimm: create.max_wimm,
            sq_sig_all: create.sq_sig_all,
            seed: random_bytes().map_err(no_randomness)?,
            path: create.path.unwrap_or_else(|| self.default_path(ports.len())),
            tuning: create.tuning,
        })?;
        let (send, send_consumer) = send_ring(create.sq_depth, create.max_sge, create.max_inline);
        let (recv, recv_consumer) = recv_ring(create.rq_depth);
        let new = NewQp {
            key,
            qpn,
            pd,
            qp,
            send: send_consumer,
            recv: recv_consumer,
            send_cq,
            recv_cq,
        };
        threads.one(thread, Task::AddQp(Box::new(new)))?;

        self.keys[thread].insert(key);
        self.qps.insert(
            qpn,
            QpRecord {
                thread,
                key,
                pd,
                send_cq,
                recv_cq,
                addresses: None,
                profiles,
            },
        );
        for cq in [send_cq, recv_cq] {
            *self.cqs.entry(cq).or_default() += 1;
        }
        if let Some(record) = self.pds.get_mut(&pd) {
            record.qps += 1;
        }
        let doorbell = Doorbell::new(threads.board(thread), key);
        Ok(Outcome {
            reply: Reply::Qp(qpn),
            rings: Some(Rings::Qp(QpRings { send, recv, doorbell })),
        })
    }

    pub(super) fn default_path(&self, ports: usize) -> PathConfig {
        let mut path = PathConfig::auto(PortSet::first(ports as u8));
        path.fabric_trims = self.config.fabric_trims;
        if let Universe::Auto { layout, .. } = &mut path.universe {
            *layout = self.config.ev_layout;
        }
        path
    }

    fn modify(
        &mut self,
        qpn: Qpn,
        change: QpChange,
        threads: &Threads,
        ports: &[PortFacts],
    ) -> Result<Outcome, CommandError> {
        let record = self.qps.get(&qpn).ok_or(CommandError::NoSuchQp(qpn))?;
        let (thread, key) = (record.thread, record.key);
        let mut wiring = None;
        if let QpChange::ToRtr { attr, local, remote } = change {
            check_addresses(&self.config, local, remote)?;
            find_way(&*self.next_hops, ports, remote)?;
            let wired = self.wire(qpn, remote, ports.len())?;
            check_pmtu(ports, attr.pmtu, wired.encap)?;
            wiring = Some(Box::new(wired));
        }
        let cc = wiring.as_ref().map(|wiring| wiring.cc.id);
        threads.one(thread, Task::Modify { key, change, wiring })?;
        match (change, cc) {
            (QpChange::ToRtr { remote, .. }, Some(cc)) => self.bind(qpn, remote, cc),
            (QpChange::ToReset, _) => self.unbind(qpn),
            _ => {}
        }
        let record = self.qps.get_mut(&qpn).ok_or(CommandError::NoSuchQp(qpn))?;
        let (before, after) = match change {
            QpChange::ToRtr { remote, local, .. } => (record.addresses.replace((remote, local)), record.addresses),
            QpChange::ToReset => (record.addresses.take(), None),
            _ => (None, None),
        };
        let thread = record.thread;
        for (addresses, joined) in [(before, false), (after, true)] {
            note_peer(threads, thread, addresses, joined)?;
        }
        Ok(Reply::Done.into())
    }

    fn destroy_qp(&mut self, qpn: Qpn, threads: &Threads) -> Result<Outcome, CommandError> {
        let QpRecord { thread, key, .. } = *self.qp(qpn)?;
        threads.one(thread, Task::RemoveQp { key })?;
        self.unbind(qpn);
        let Some(record) = self.qps.remove(&qpn) else {
            return Err(CommandError::NoSuchQp(qpn));
        };
        for cq in [record.send_cq, record.recv_cq] {
            if let Some(users) = self.cqs.get_mut(&cq) {
                *users -= 1;
            }
        }
        if let Some(record) = self.pds.get_mut(&record.pd) {
            record.qps -= 1;
        }
        note_peer(threads, thread, record.addresses, false)?;
        self.resting.push_back((Instant::now(), qpn, thread, key));
        Ok(Reply::Done.into())
    }

    /// Frees the numbers that have rested long enough.
    fn wake_rested(&mut self) {
        while let Some(&(since, _, thread, key)) = self.resting.front() {
            if since.elapsed() < QPN_REST {
                break;
            }
            self.keys[thread].remove(&key);
            self.resting.pop_front();
        }
    }

    /// A place in the thread with the fewest queue pairs.
    fn draw_key(&self, threads: &Threads) -> Result<(usize, u32), CommandError> {
        let live = |thread: usize| self.qps.values().filter(|record| record.thread == thread).count();
        let thread = (0..threads.count()).min_by_key(|&thread| live(thread)).unwrap_or(0);
        if live(thread) >= self.config.max_qps as usize {
            let limit = u64::from(self.config.max_qps) * threads.count() as u64;
            return Err(CommandError::Limit {
                what: "queue pairs",
                limit,
                setting: "max_qps",
            });
        }
        let key = (0..BELLS)
            .find(|key| !self.keys[thread].contains(key))
            .ok_or(CommandError::Limit {
                what: "queue pairs, those destroyed within the last second included",
                limit: BELLS.into(),
                setting: "the number of engine threads",
            })?;
        Ok((thread, key))
    }

    /// A random number that says its thread in its low bits (design: any thread that receives a packet knows its owner).
    fn draw_qpn(&self, thread: usize) -> Result<Qpn, CommandError> {
        let bits = thread_bits(self.config.threads);
        loop {
            let random = random_u32().map_err(no_randomness)? & 0x00ff_ffff;
            let qpn = Qpn::new((random & !((1 << bits) - 1)) | thread as u32);
            let resting = self.resting.iter().any(|&(_, other, ..)| other == qpn);
            if qpn >= Qpn::FIRST_USER && !self.qps.contains_key(&qpn) && !resting {
                return Ok(qpn);
            }
        }
    }
}

/// Low bits of a QPN that name the thread.
pub(super) fn thread_bits(threads: u8) -> u32 {
    u32::from(threads).next_power_of_two().trailing_zeros()
}

/// A peer of one thread may send endpoint requests to the queues of all.
fn note_peer(
    threads: &Threads,
    thread: usize,
    addresses: Option<(IpAddr, IpAddr)>,
    joined: bool,
) -> Result<(), CommandError> {
    let Some((remote, local)) = addresses else {
        return Ok(());
    };
    threads.each(|other| (other != thread).then_some(Task::NotePeer { remote, local, joined }))
}

fn draw(free: impl Fn(u32) -> bool) -> Result<u32, CommandError> {
    loop {
        let key = random_u32().map_err(no_randomness)?;
        if free(key) {
            return Ok(key);
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn no_randomness(error: std::io::Error) -> CommandError {
    CommandError::Os {
        what: "get random numbers",
        error: error.to_string(),
    }
}

/// Number of the port at this place in the configuration.
pub(super) fn port_num(at: usize) -> Option<PortNum> {
    u8::try_from(at + 1).ok().and_then(PortNum::new)
}
