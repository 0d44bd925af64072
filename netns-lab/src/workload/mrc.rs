//! Data over queue pairs.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mrc_verbs::{
    Access, AddressFamily, ApiVersion, CompletionChannel, CompletionQueue, Context, DeviceContext, Error, Ev, EvState,
    MemoryRegion, PathInfo, PortNum, ProtectionDomain, QpAttr, QpConfig, QpInit, QpSizes, QpState, QueuePair,
    RemoteAddress, SendRequest, WorkCompletion,
};

use super::{Failure, Memory, Moved, Mover, Probe, Ready};
use crate::agent::{End, EndSample, Job, PathChange, PathCounts, PathDetail};
use crate::scenario::Kind;

/// How long a loop polls after its last success before it sleeps: hosts share cores, so not long.
const SPIN: Duration = Duration::from_micros(30);
/// Receives posted per queue pair.
const RECEIVES: u32 = 128;
/// Completions taken at once.
const BATCH: usize = 32;

/// The host's engine.
pub(crate) struct Device {
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    pub(crate) open: DeviceContext,
}

impl Device {
    /// Starts the engine that the environment describes.
    pub(crate) fn open() -> Result<Device, Failure> {
        let device = DeviceContext::from_env()?;
        Ok(Device {
            context: Context::open(&device, ApiVersion::LATEST)?,
            domain: ProtectionDomain::new(&device)?,
            open: device,
        })
    }
}

/// Queue pairs and memory of a job.
pub(crate) struct Queues {
    job: Job,
    memory: Memory,
    region: MemoryRegion,
    channel: CompletionChannel,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    qps: Vec<Arc<QueuePair>>,
    offers: Vec<mrc_verbs::ConnectionInfo>,
    /// Ports of the engine.
    ports: u8,
}

impl Queues {
    /// Makes them.
    pub(crate) fn new(job: Job, device: &Device) -> Result<Queues, Failure> {
        let memory = Memory::of(&job);
        let Device { context, domain, open } = device;
        let region = domain.register_owned(memory.len(), Access::PEER_WRITABLE)?;
        let channel = context.create_channel()?;
        let sizes = QpSizes {
            max_send_wr: job.workload.outstanding().max(64),
            max_recv_wr: RECEIVES,
            ..QpSizes::default()
        };
        let count = job.ends.len().max(1) as u32;
        let send_cq = context.create_cq_with_channel(count * sizes.max_send_wr, &channel)?;
        let recv_cq = context.create_cq_with_channel(count * sizes.max_recv_wr, &channel)?;
        let init = QpInit {
            recv_cq: &recv_cq,
            sizes,
            ..QpInit::new(&send_cq)
        };
        let qps = job
            .ends
            .iter()
            .map(|_| context.create_qp(domain, &init).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let offer = |qp: &Arc<QueuePair>| -> Result<_, Failure> {
            qp.offer()?
                .only(AddressFamily::V6)
                .map_err(|error| Failure::Other(error.to_string()))
        };
        let offers = qps.iter().map(offer).collect::<Result<_, _>>()?;
        Ok(Queues {
            memory,
            region,
            channel,
            send_cq,
            recv_cq,
            qps,
            offers,
            ports: open.limits().ports,
            job,
        })
    }

    /// What peers need to know.
    pub(crate) fn ends(&self) -> Vec<End> {
        let end = |(place, offer): (usize, &mrc_verbs::ConnectionInfo)| End {
            info: Some(offer.clone()),
            region: Some(self.region.remote()),
            offset: self.memory.target_of(place) as u64,
            listens: Vec::new(),
        };
        self.offers.iter().enumerate().map(end).collect()
    }

    /// Connects every queue pair with its peer.
    pub(crate) fn connect(self, peers: &[End]) -> Result<Ready, Failure> {
        let incomplete = || Failure::Other("a peer did not say how it is reached".to_owned());
        let mut remotes = Vec::new();
        for ((qp, mine), peer) in self.qps.iter().zip(&self.offers).zip(peers) {
            let theirs = peer.info.clone().ok_or_else(incomplete)?;
            let region = peer.region.ok_or_else(incomplete)?;
            qp.modify(&QpAttr::to_state(QpState::Init))?;
            if self.job.workload.kind.is_collective() {
                qp.post_recv_list(&vec![0; RECEIVES as usize]).map_err(|e| e.error)?;
            }
            qp.connect(&QpConfig::new(mine.clone(), theirs))?;
            remotes.push(region.at(peer.offset));
        }
        let by_qpn = self.qps.iter().enumerate().map(|(end, qp)| (qp.qpn(), end)).collect();
        let probe = QueueProbe {
            flows: self.job.ends.iter().map(|end| end.flow).collect(),
            seen: vec![Vec::new(); self.qps.len()],
            qps: self.qps.clone(),
            ports: self.ports,
        };
        let mover = QueueMover {
            spins: self.job.workload.kind == Kind::Latency,
            region: self.region,
            channel: self.channel,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            qps: self.qps,
            by_qpn,
            remotes,
            since: None,
            armed: false,
            problem: None,
        };
        Ok(Ready {
            job: self.job,
            mover: Box::new(mover),
            probe: Box::new(probe),
        })
    }
}

struct QueueMover {
    // Before the queues that they complete into.
    qps: Vec<Arc<QueuePair>>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    channel: CompletionChannel,
    region: MemoryRegion,
    by_qpn: HashMap<u32, usize>,
    remotes: Vec<RemoteAddress>,
    /// Never sleeps: wake-ups would be measured.
    spins: bool,
    since: Option<Instant>,
    armed: bool,
    problem: Option<String>,
}

/// Work request ids: the end above, the tag below.
const TAG_BITS: u32 = 48;

impl Mover for QueueMover {
    fn post(&mut self, end: usize, tag: u64, from: Range<usize>, to: usize, notify: bool) -> Result<bool, Failure> {
        let piece = self.region.slice(from)?;
        let remote = self.remotes[end];
        let to = RemoteAddress {
            addr: remote.addr + to as u64,
            ..remote
        };
        let mut request = SendRequest::write((end as u64) << TAG_BITS | tag, piece, to);
        if notify {
            request = request.with_imm((tag as u32).to_be_bytes());
        }
        match self.qps[end].post_write(&request) {
            Ok(()) => Ok(true),
            Err(Error::QueueFull { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn poll(&mut self, moved: &mut Vec<Moved>) -> Result<(), Failure> {
        let before = moved.len();
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.send_cq.poll(&mut batch)?;
        for done in &batch[..count] {
            let (end, tag) = ((done.wr_id >> TAG_BITS) as usize, done.wr_id & ((1 << TAG_BITS) - 1));
            if let Err(status) = done.result {
                self.problem
                    .get_or_insert_with(|| format!("a write of queue pair {:#x} failed: {status}", done.qpn));
                moved.push(Moved::Failed { end });
            } else {
                moved.push(Moved::Sent { end, tag });
            }
        }
        let count = self.recv_cq.poll(&mut batch)?;
        for done in &batch[..count] {
            let Some(&end) = self.by_qpn.get(&done.qpn) else {
                continue;
            };
            if let Err(status) = done.result {
                self.problem
                    .get_or_insert_with(|| format!("a receive of queue pair {:#x} failed: {status}", done.qpn));
                moved.push(Moved::Failed { end });
                continue;
            }
            self.qps[end].post_recv(0)?;
            let tag = done.imm.map_or(0, u32::from_be_bytes);
            moved.push(Moved::Received { end, tag });
        }
        if moved.len() > before {
            self.since = None;
            self.armed = false;
        }
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.spins || since.elapsed() < SPIN {
            std::thread::yield_now();
        } else if self.armed {
            self.channel.next(at_most);
            self.armed = false;
        } else {
            // Then the caller polls once more: what came before gives no event.
            self.send_cq.arm(false);
            self.recv_cq.arm(false);
            self.armed = true;
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.region.write_at(at, bytes)?)
    }

    fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), Failure> {
        Ok(self.region.read_at(at, bytes)?)
    }

    fn problem(&self) -> Option<String> {
        self.problem.clone()
    }
}

struct QueueProbe {
    flows: Vec<usize>,
    qps: Vec<Arc<QueuePair>>,
    /// What was thought of each path at the last sample, per end.
    seen: Vec<Vec<Seen>>,
    ports: u8,
}

/// A path at the last sample.
#[derive(Clone, Copy)]
struct Seen {
    ev: Ev,
    port: PortNum,
    /// Taken for bad.
    bad: bool,
    /// In the rotation.
    active: bool,
}

impl Probe for QueueProbe {
    fn sample(&mut self, id: usize) -> Vec<EndSample> {
        let mut samples = Vec::new();
        for ((qp, &flow), seen) in self.qps.iter().zip(&self.flows).zip(&mut self.seen) {
            // An engine that has stopped has nothing to tell.
            let (Ok(query), Ok(paths)) = (qp.query(), qp.paths()) else {
                continue;
            };
            let mut counts = vec![PathCounts::default(); usize::from(self.ports)];
            let mut changes = Vec::new();
            for (place, path) in paths.iter().enumerate() {
                // Another may have come to its place.
                let before = seen
                    .get(place)
                    .filter(|before| (before.ev, before.port) == (path.ev, path.port));
                let was_bad = before.is_some_and(|before| before.bad);
                let was_active = before.is_some_and(|before| before.active);
                let is_bad = path.state == EvState::AssumedBad;
                // Probes may bring a path back sooner than the next sample: that it left the rotation is seen all the same.
                let has_left = was_active && !path.active && path.eligible && path.state != EvState::Denied;
                if (is_bad && !was_bad) || (!is_bad && has_left) {
                    changes.push(change(path, true, format!("{:?}", path.why)));
                } else if was_bad && !is_bad {
                    changes.push(change(path, false, "Probed".to_owned()));
                }
                let now = Seen {
                    ev: path.ev,
                    port: path.port,
                    bad: is_bad,
                    active: path.active,
                };
                match seen.get_mut(place) {
                    Some(place) => *place = now,
                    None => seen.push(now),
                }
                let Some(count) = counts.get_mut(path.port.index()) else {
                    continue;
                };
                match path.state {
                    EvState::AssumedBad => count.bad += 1,
                    EvState::Denied => count.denied += 1,
                    EvState::Skip if path.active => {
                        count.active += 1;
                        count.skip += 1;
                    }
                    _ if path.active => count.active += 1,
                    _ => count.backup += 1,
                }
            }
            seen.truncate(paths.len());
            let named = paths.iter().filter_map(|path| Some((path.name.clone()?, path.packets)));
            samples.push(EndSample {
                id,
                flow,
                delivered_bytes: query.stats.payload_bytes_placed,
                packets_sent: query.stats.packets_sent,
                packets_again: query.stats.packets_retransmitted,
                paths: counts,
                changes,
                named: named.collect(),
                cwnd_bytes: query.window.and_then(|window| window.cwnd_bytes),
                rtt_ns: query.rtt_ns.0,
            });
        }
        samples
    }

    fn paths(&self) -> Vec<PathDetail> {
        let mut details = Vec::new();
        for (qp, &flow) in self.qps.iter().zip(&self.flows) {
            details.extend(qp.paths().unwrap_or_default().into_iter().map(|path| PathDetail {
                flow,
                plane: path.port.get(),
                ev: path.ev.to_string(),
                state: format!("{:?}", path.state),
                packets: path.packets,
                losses: path.losses,
                name: path.name,
            }));
        }
        details
    }
}

fn change(path: &PathInfo, bad: bool, why: String) -> PathChange {
    PathChange {
        plane: path.port.get(),
        ev: path.name.clone().unwrap_or_else(|| path.ev.to_string()),
        packets: if bad { path.packets } else { 0 },
        bad,
        why,
    }
}
