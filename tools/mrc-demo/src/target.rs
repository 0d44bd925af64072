//! The program in the second host: offers memory, watches what arrives, and compares at the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mrc_verbs::{Access, ApiVersion, Context, DeviceContext, MemoryRegion, ProtectionDomain, QpConfig, QpInit};
use sha2::{Digest, Sha256};

use crate::error::DemoError;
use crate::event::{Event, Verdict, now_ns};
use crate::rendezvous::{Claim, Introduction, Rendezvous};

/// Untouched memory on both sides of what may be written.
const MARGIN: usize = 64 << 10;
const MARGIN_BYTE: u8 = 0xA5;
/// How often the stage hears what has arrived.
const TELL_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn run(size: usize) -> Result<(), DemoError> {
    let device = DeviceContext::from_env()?;
    let pd = ProtectionDomain::new(&device)?;
    let region = pd.register_owned(size + 2 * MARGIN, Access::PEER_WRITABLE)?;
    region.fill(0, MARGIN, MARGIN_BYTE)?;
    region.fill(MARGIN + size, MARGIN, MARGIN_BYTE)?;

    let context = Context::open(&device, ApiVersion::LATEST)?;
    let cq = context.create_cq(16)?;
    let qp = context.create_qp(&pd, &QpInit::new(&cq))?;
    let mut source = Rendezvous::accept()?;
    let mine = qp.offer()?;
    let inner = region.remote().slice(MARGIN as u64, size as u64)?;
    let theirs: Introduction = source.hear()?;
    qp.connect(&QpConfig::new(mine.clone(), theirs.queue_pair))?;
    source.say(&Introduction {
        queue_pair: mine,
        region: Some(inner),
    })?;

    let over = AtomicBool::new(false);
    let claim: Claim = thread::scope(|scope| {
        let watcher = scope.spawn(|| tell_arrivals(&device, &over));
        let claim = source.hear();
        over.store(true, Ordering::Release);
        watcher
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        claim
    })?;
    let sha256 = hash(&region, size)?;
    let verdict = Verdict {
        equal: sha256 == claim.sha256,
        sha256,
        surroundings_untouched: is_margin(&region, 0)? && is_margin(&region, MARGIN + size)?,
    };
    Event::Verdict(verdict).tell()
}

fn tell_arrivals(device: &DeviceContext, over: &AtomicBool) -> Result<(), DemoError> {
    while !over.load(Ordering::Acquire) {
        let planes = device.counters().ports.iter().map(|port| port.rx_data_bytes).collect();
        Event::Arrived {
            at_ns: now_ns(),
            planes,
        }
        .tell()?;
        thread::sleep(TELL_EVERY);
    }
    Ok(())
}

fn hash(region: &MemoryRegion, size: usize) -> Result<String, DemoError> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    for offset in (0..size).step_by(piece.len()) {
        let piece_len = piece.len().min(size - offset);
        let piece = &mut piece[..piece_len];
        region.read_at(MARGIN + offset, piece)?;
        hash.update(&*piece);
    }
    Ok(format!("{:x}", hash.finalize()))
}

fn is_margin(region: &MemoryRegion, offset: usize) -> Result<bool, DemoError> {
    Ok(region.to_vec(offset, MARGIN)?.iter().all(|byte| *byte == MARGIN_BYTE))
}
