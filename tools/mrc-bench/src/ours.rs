//! The same work by the engine, through the programming interface.

use std::time::{Duration, Instant};

use mrc_verbs::{
    Access, AddressFamily, ApiVersion, CompletionQueue, Context, DeviceContext, EngineConfig, MemoryRegion,
    ProtectionDomain, QpConfig, QpInit, QpSizes, QueuePair, RemoteRegion, SendRequest, WorkCompletion,
};
use netns_lab::{Lab, Topology};

use crate::bare::{PORT, REGION, WARM_UP, pin};
use crate::error::BenchError;

/// Writes outstanding.
const DEPTH: usize = 128;
/// One in so many small writes asks for a completion.
const SIGNAL_EVERY: u64 = 16;

/// A lab of two hosts with an engine each.
pub(crate) struct Ours {
    // In the order in which they have to go.
    connections: Vec<Connection>,
    pub(crate) sides: [Side; 2],
    _lab: Lab,
}

/// One of the two hosts.
pub(crate) struct Side {
    pub(crate) device: DeviceContext,
    domain: ProtectionDomain,
    context: Context,
    pub(crate) memory: MemoryRegion,
}

/// Two connected queue pairs.
pub(crate) struct Connection {
    pmtu: u32,
    pub(crate) source: QueuePair,
    pub(crate) target: QueuePair,
    completions: CompletionQueue,
    memory: MemoryRegion,
    remote: RemoteRegion,
}

impl Ours {
    /// Builds the lab with links of this MTU, and a connection for each PMTU.
    pub(crate) fn build(mtu: u32, pmtus: &[u32]) -> Result<Ours, BenchError> {
        let lab = Lab::build(&Topology::pair(1).mtu(mtu))?;
        let sides = [Side::open(&lab, 0)?, Side::open(&lab, 1)?];
        let connections = pmtus
            .iter()
            .map(|pmtu| Connection::new(&sides, *pmtu))
            .collect::<Result<Vec<_>, BenchError>>()?;
        Ok(Ours {
            connections,
            sides,
            _lab: lab,
        })
    }

    /// Writes of `len` bytes for `seconds`; returns how many completed per second.
    pub(crate) fn run(&self, pmtu: u32, len: usize, seconds: f64) -> Result<f64, BenchError> {
        let connection = self.connection(pmtu)?;
        std::thread::scope(|scope| {
            let application = scope.spawn(|| {
                pin(0);
                connection.write(len, Duration::from_secs_f64(seconds))
            });
            application
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Ours {
    /// The connection with this PMTU.
    pub(crate) fn connection(&self, pmtu: u32) -> Result<&Connection, BenchError> {
        let connection = self.connections.iter().find(|connection| connection.pmtu == pmtu);
        connection.ok_or(BenchError::NoConnection { pmtu })
    }
}

impl Side {
    fn open(lab: &Lab, host: usize) -> Result<Side, BenchError> {
        // One core a host, as the bare loops have.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let config = EngineConfig {
            cores: vec![host % cores],
            ..EngineConfig::with_ports([PORT])
        };
        let device = lab.host(host).enter(|| DeviceContext::open(config))??;
        let domain = ProtectionDomain::new(&device)?;
        let context = Context::open(&device, ApiVersion::LATEST)?;
        let memory = domain.register_owned(REGION, Access::PEER_WRITABLE)?;
        Ok(Side {
            device,
            domain,
            context,
            memory,
        })
    }

    fn queue_pair(&self, completions: &CompletionQueue) -> Result<QueuePair, BenchError> {
        let sizes = QpSizes {
            max_send_wr: DEPTH as u32,
            ..QpSizes::default()
        };
        Ok(self.context.create_qp(
            &self.domain,
            &QpInit {
                sizes,
                ..QpInit::new(completions)
            },
        )?)
    }
}

impl Connection {
    fn new(sides: &[Side; 2], pmtu: u32) -> Result<Connection, BenchError> {
        let [left, right] = sides;
        let completions = left.context.create_cq(2 * DEPTH as u32)?;
        let source = left.queue_pair(&completions)?;
        let target = right.queue_pair(&right.context.create_cq(16)?)?;
        let offer = |queue_pair: &QueuePair, device: &DeviceContext| -> Result<_, BenchError> {
            let mut offer = queue_pair.offer()?.only(AddressFamily::V4)?;
            let active = device.limits().active_pmtu;
            if active < pmtu {
                return Err(BenchError::Pmtu { pmtu, active });
            }
            offer.pmtu = pmtu;
            Ok(offer)
        };
        let (ours, theirs) = (offer(&source, &left.device)?, offer(&target, &right.device)?);
        target.connect(&QpConfig::new(theirs.clone(), ours.clone()))?;
        source.connect(&QpConfig::new(ours, theirs))?;
        Ok(Connection {
            pmtu,
            source,
            target,
            completions,
            memory: left.memory.clone(),
            remote: right.memory.remote(),
        })
    }

    /// Writes for `duration` after the warm-up and returns writes per second.
    fn write(&self, len: usize, duration: Duration) -> Result<f64, BenchError> {
        // A window of large writes is full with few of them; small ones need many, and need not complete one by one.
        let (depth, every) = if len >= 4096 {
            (16, 1)
        } else {
            (DEPTH as u64, SIGNAL_EVERY)
        };
        let places = (REGION / len).max(1) as u64;
        let mut completions = vec![WorkCompletion::EMPTY; DEPTH];
        let (mut posted, mut completed) = (0_u64, 0_u64);
        let mut measured: Option<(Instant, u64)> = None;
        let started = Instant::now();
        let rate = loop {
            while posted - completed < depth {
                let offset = (posted % places) as usize * len;
                let piece = self.memory.slice(offset..offset + len)?;
                let mut request = SendRequest::write(posted, piece, self.remote.at(offset as u64));
                posted += 1;
                if !posted.is_multiple_of(every) {
                    request = request.unsignaled();
                }
                self.source.post_write(&request)?;
            }
            completed = self.poll(&mut completions, completed)?;
            match measured {
                None if started.elapsed() >= WARM_UP => measured = Some((Instant::now(), completed)),
                Some((from, before)) if from.elapsed() >= duration => {
                    break (completed - before) as f64 / from.elapsed().as_secs_f64();
                }
                _ => {}
            }
        };
        // Leave nothing behind for the next run.
        let last = posted - posted % every;
        while completed < last {
            completed = self.poll(&mut completions, completed)?;
        }
        if posted > last {
            self.source
                .post_write(&SendRequest::write(posted, self.memory.slice(0..len)?, self.remote))?;
            while completed <= posted {
                completed = self.poll(&mut completions, completed)?;
            }
        }
        Ok(rate)
    }

    /// Takes completions; they come in order, so the newest says how many writes are done.
    fn poll(&self, completions: &mut [WorkCompletion], mut completed: u64) -> Result<u64, BenchError> {
        let count = self.completions.poll(completions)?;
        for completion in &completions[..count] {
            if let Err(status) = completion.result {
                return Err(BenchError::Write { status });
            }
            completed = completion.wr_id + 1;
        }
        Ok(completed)
    }
}
