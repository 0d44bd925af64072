//! Two engines with a link in memory between them, through the programming interface; run by hand, since what threads do
//! depends on when they run.

use std::sync::Arc;

use mrc_dataplane::neigh::FixedNextHops;
use mrc_dataplane::port::{Fate, MemoryLink, MemoryPort, MemoryPortConfig, Port};
use mrc_verbs::{
    Access, AddressFamily, ApiVersion, CompletionQueue, Context, DeviceContext, EngineConfig, MemoryRegion, PortNum,
    ProtectionDomain, QpConfig, QpInit, QueuePair, SendRequest, WorkCompletion,
};

use crate::{Fault, measured};

const PACKETS: u64 = 1024;
/// Bytes of registered memory on either side.
const REGION: usize = 1 << 16;
/// Writes outstanding.
const DEPTH: u64 = 16;
/// Time from one pass of an engine to the next.
const STEP_NS: u64 = 20_000;
/// Passes after which it hangs.
const PATIENCE: u64 = 100_000;

/// Writes of `len` bytes, [`PACKETS`] packets of them; of the frames of the writing side every `lose`-th is lost.
pub(crate) fn writes(pmtu: u32, len: usize, lose: Option<u64>) -> Result<u64, Fault> {
    let rig = Rig::new(pmtu)?;
    let writes = PACKETS / (len.div_ceil(pmtu as usize) as u64);
    let mut counted = Ok(());
    {
        let mut engines = [
            rig.sides[0].device.engine().by_hand(),
            rig.sides[1].device.engine().by_hand(),
        ];
        let mut passes = 0;
        let mut turn = || {
            passes += 1;
            for engine in &mut engines {
                engine.pass(passes * STEP_NS);
            }
            passes < PATIENCE
        };
        let mut completions = vec![WorkCompletion::EMPTY; 64];
        // Pools and rings are as they will be from then on, and no path is new.
        rig.write(writes / 4, len, &mut completions, &mut turn)?;
        if let Some(every) = lose {
            rig.lose(every);
        }
        measured(&mut || counted = rig.write(writes, len, &mut completions, &mut turn));
    }
    counted?;
    let again = rig.sides[0].device.counters().retransmissions();
    if lose.is_some() != (again > 0) {
        return Err(format!("{again} packets were sent again").into());
    }
    Ok(PACKETS)
}

struct Rig {
    source: QueuePair,
    _target: QueuePair,
    completions: CompletionQueue,
    link: MemoryLink,
    sides: [Side; 2],
}

struct Side {
    device: DeviceContext,
    domain: ProtectionDomain,
    context: Context,
    memory: MemoryRegion,
}

impl Rig {
    fn new(pmtu: u32) -> Result<Self, Fault> {
        let num = PortNum::new(1).ok_or("no port 1")?;
        let (left, right, link) = MemoryPort::pair(num, MemoryPortConfig::default())?;
        let macs = [right.mac(), left.mac()];
        let sides = [Side::new(1, left, macs[0])?, Side::new(2, right, macs[1])?];
        let completions = sides[0].context.create_cq(64)?;
        let source = sides[0].queue_pair(&completions)?;
        let target = sides[1].queue_pair(&sides[1].context.create_cq(16)?)?;
        let mut offers = [
            source.offer()?.only(AddressFamily::V4)?,
            target.offer()?.only(AddressFamily::V4)?,
        ];
        for offer in &mut offers {
            offer.pmtu = pmtu;
        }
        let [ours, theirs] = offers;
        target.connect(&QpConfig::new(theirs.clone(), ours.clone()))?;
        source.connect(&QpConfig::new(ours, theirs))?;
        Ok(Self {
            source,
            _target: target,
            completions,
            link,
            sides,
        })
    }

    fn lose(&self, every: u64) {
        let mut count = 0;
        self.link.judge(0, move |_| {
            count += 1;
            if count % every == 0 { Fate::Drop } else { Fate::Deliver }
        });
    }

    /// So many writes of `len` bytes; `turn` lets the engines work, and says whether there is any patience left.
    fn write(
        &self,
        writes: u64,
        len: usize,
        completions: &mut [WorkCompletion],
        turn: &mut dyn FnMut() -> bool,
    ) -> Result<(), Fault> {
        let (mut posted, mut completed) = (0, 0);
        while completed < writes {
            while posted < writes && posted - completed < DEPTH {
                let piece = self.sides[0].memory.slice(0..len)?;
                let remote = self.sides[1].memory.remote().at(0);
                self.source.post_write(&SendRequest::write(posted, piece, remote))?;
                posted += 1;
            }
            if !turn() {
                return Err(format!("{completed} of {writes} writes completed").into());
            }
            let count = self.completions.poll(completions)?;
            for completion in &completions[..count] {
                completion
                    .result
                    .map_err(|status| format!("a write failed: {status}"))?;
                completed += 1;
            }
        }
        Ok(())
    }
}

impl Side {
    fn new(number: u8, port: MemoryPort, peer: [u8; 6]) -> Result<Self, Fault> {
        let config = EngineConfig {
            address_v4: Some([10, 0, 0, number].into()),
            ..EngineConfig::default()
        };
        let hops = FixedNextHops::one_peer_each([(port.num(), peer)]);
        let device = DeviceContext::open_with_ports(config, vec![Box::new(port)], Arc::new(hops))?;
        let domain = ProtectionDomain::new(&device)?;
        let context = Context::open(&device, ApiVersion::LATEST)?;
        let memory = domain.register_owned(REGION, Access::PEER_WRITABLE)?;
        Ok(Self {
            device,
            domain,
            context,
            memory,
        })
    }

    fn queue_pair(&self, completions: &CompletionQueue) -> Result<QueuePair, Fault> {
        Ok(self.context.create_qp(&self.domain, &QpInit::new(completions))?)
    }
}
