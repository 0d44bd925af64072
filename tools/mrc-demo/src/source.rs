//! The program in the first host: fills memory with random data and writes it to the target, over and over until it is told to
//! stop, but at least once.

use std::io::stdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mrc_verbs::{
    Access, ApiVersion, CompletionQueue, Context, DeviceContext, MemoryRegion, ProtectionDomain, QpConfig, QpInit,
    QueuePair, RemoteRegion, SendRequest,
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

use crate::error::DemoError;
use crate::event::{Event, Finished, now_ns};
use crate::rendezvous::{Claim, Introduction, Rendezvous};

/// Bytes of one write.
const MESSAGE: usize = 256 << 10;
/// Writes outstanding.
const DEPTH: u64 = 32;
/// How often the stage hears of progress.
const TELL_EVERY: Duration = Duration::from_millis(20);
/// Shorter pauses between completions are not worth telling.
const GAP: Duration = Duration::from_millis(1);
/// How long paths get to come back after the last write.
const PATHS_PATIENCE: Duration = Duration::from_secs(3);

pub(crate) fn run(size: usize, seed: u64) -> Result<(), DemoError> {
    let device = DeviceContext::from_env()?;
    let pd = ProtectionDomain::new(&device)?;
    let region = pd.register_owned(size, Access::empty())?;
    let sha256 = fill(&region, seed)?;

    let context = Context::open(&device, ApiVersion::LATEST)?;
    let cq = context.create_cq(DEPTH as u32 * 2)?;
    let qp = context.create_qp(&pd, &QpInit::new(&cq))?;
    let mut target = Rendezvous::call()?;
    let mine = qp.offer()?;
    target.say(&Introduction {
        queue_pair: mine.clone(),
        region: None,
    })?;
    let theirs: Introduction = target.hear()?;
    let remote = theirs.region.ok_or(DemoError::Unexpected {
        from: "the target",
        line: "no region".to_owned(),
    })?;
    let agreed = qp.connect(&QpConfig::new(mine, theirs.queue_pair))?;

    Event::Connected {
        at_ns: now_ns(),
        pmtu: agreed.pmtu,
    }
    .tell()?;
    let enough = stop_when_told();
    let started = Instant::now();
    let bytes = write_all(&qp, &cq, &region, remote, &enough)?;
    let elapsed_ns = started.elapsed().as_nanos() as u64;
    Event::Written { at_ns: now_ns() }.tell()?;
    wait_for_paths(&device);
    let counters = device.counters();
    Event::Finished(Finished {
        bytes,
        elapsed_ns,
        retransmissions: counters.retransmissions(),
        evs_withdrawn: counters.ports.iter().map(|port| port.evs_withdrawn).collect(),
        evs_returned: counters.ports.iter().map(|port| port.evs_returned).collect(),
        errors: counters.completion_errors,
    })
    .tell()?;
    target.say(&Claim { sha256 })?;
    // The target's end of the line closes when it has compared.
    let _: Result<Claim, _> = target.hear();
    Ok(())
}

/// Random data, and its hash.
fn fill(region: &MemoryRegion, seed: u64) -> Result<String, DemoError> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut hash = Sha256::new();
    let mut piece = vec![0; MESSAGE];
    for offset in (0..region.len()).step_by(MESSAGE) {
        let piece = &mut piece[..MESSAGE.min(region.len() - offset)];
        random.fill_bytes(piece);
        hash.update(&*piece);
        region.write_at(offset, piece)?;
    }
    Ok(format!("{:x}", hash.finalize()))
}

/// The stage says that it is enough by a line, or by going away.
fn stop_when_told() -> Arc<AtomicBool> {
    let enough = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&enough);
    thread::spawn(move || {
        let mut line = String::new();
        // Whatever comes, even an error, is the end.
        let _ = stdin().read_line(&mut line);
        told.store(true, Ordering::Release);
    });
    enough
}

/// Returns how many bytes were written and acknowledged.
fn write_all(
    qp: &QueuePair,
    cq: &CompletionQueue,
    region: &MemoryRegion,
    remote: RemoteRegion,
    enough: &AtomicBool,
) -> Result<u64, DemoError> {
    let pieces = (region.len() / MESSAGE) as u64;
    let (mut posted, mut completed) = (0, 0);
    let (mut last_completion, mut last_told) = (Instant::now(), Instant::now());
    let mut completions = vec![mrc_verbs::WorkCompletion::EMPTY; DEPTH as usize];
    loop {
        let more = posted < pieces || !enough.load(Ordering::Acquire);
        if !more && completed == posted {
            break;
        }
        while more && posted - completed < DEPTH {
            let offset = (posted % pieces) as usize * MESSAGE;
            let piece = region.slice(offset..offset + MESSAGE)?;
            qp.post_write(&SendRequest::write(posted, piece, remote.at(offset as u64)))?;
            posted += 1;
        }
        let count = cq.poll(&mut completions)?;
        if count > 0 {
            let gap = last_completion.elapsed();
            last_completion = Instant::now();
            if gap >= GAP {
                Event::Gap {
                    at_ns: now_ns(),
                    gap_ns: gap.as_nanos() as u64,
                }
                .tell()?;
            }
        } else {
            thread::yield_now();
        }
        for completion in &completions[..count] {
            if let Err(status) = completion.result {
                return Err(DemoError::Write {
                    index: completion.wr_id,
                    status,
                });
            }
            completed += 1;
        }
        if last_told.elapsed() >= TELL_EVERY {
            last_told = Instant::now();
            Event::Progress {
                at_ns: now_ns(),
                done: completed * MESSAGE as u64,
            }
            .tell()?;
        }
    }
    Event::Progress {
        at_ns: now_ns(),
        done: completed * MESSAGE as u64,
    }
    .tell()?;
    Ok(completed * MESSAGE as u64)
}

/// Paths that were withdrawn are probed with growing pauses; give the last ones the time to answer.
fn wait_for_paths(device: &DeviceContext) {
    let deadline = Instant::now() + PATHS_PATIENCE;
    loop {
        let counters = device.counters();
        if counters.evs_returned() >= counters.evs_withdrawn() || Instant::now() >= deadline {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
