//! Carries out what hosts lack: a memory that can be written, a buffer for what arrives (protocol.md §6.3 step 2), a way to send.

use crate::coverage::{Coverage, FaultTag};
use crate::fabric::frame::Frame;
use crate::host::Host;
use crate::memory::{Access, Trouble, When};
use crate::meter::without_allocation;
use crate::oracle::Breach;
use crate::scenario::upset::Lack;
use crate::tap::{self, Seen};
use crate::trace;
use crate::world::World;
use mrc_protocol::{AccessError, Cx, Instant, NoMemory, Shortage, Transmit};
use mrc_wire::{Condition, Headers, Packet, Tick};

/// What a host lacks at present.
#[derive(Debug, Clone, Copy, Default)]
pub struct Want {
    passing: Option<Passing>,
    broken: Option<When>,
}

/// What is lacking for a while.
#[derive(Debug, Clone, Copy)]
struct Passing {
    until_ns: u64,
    /// So often.
    ppm: u32,
    shortage: Shortage,
    lack: Lack,
}

impl Want {
    /// Something is lacking until `until_ns`.
    pub(crate) fn begin(&mut self, until_ns: u64, ppm: u32, shortage: Shortage, lack: Lack) {
        self.passing = Some(Passing {
            until_ns,
            ppm,
            shortage,
            lack,
        });
    }

    /// The memory breaks.
    pub(crate) fn break_down(&mut self, when: When) {
        self.broken = Some(when);
    }

    fn passing(&self, now_ns: u64) -> Option<Passing> {
        self.passing.filter(|passing| now_ns < passing.until_ns)
    }
}

/// Counts what a memory said.
pub(crate) fn note_trouble(coverage: &mut Coverage, accesses: &[Access]) {
    match accesses.iter().find_map(|access| access.trouble) {
        Some(AccessError::Broken) => coverage.fault(FaultTag::MemoryBroken),
        Some(_) => coverage.fault(FaultTag::MemoryBusy),
        None => {}
    }
}

impl World {
    /// What the memory of a host will say of a packet that it is about to take.
    pub(crate) fn draw_trouble(&mut self, host: usize, packet: &Packet<'_>) -> Option<Trouble> {
        let want = self.hosts[host].want;
        if !matches!(packet.headers, Headers::Write { .. }) {
            return None;
        }
        if let Some(when) = want.broken {
            let error = AccessError::Broken;
            return Some(Trouble { when, error });
        }
        let passing = want.passing(self.now_ns)?;
        let Lack::Memory(when) = passing.lack else { return None };
        let error = AccessError::Busy(passing.shortage);
        self.rng.chance(passing.ppm).then_some(Trouble { when, error })
    }

    /// Whether the host cannot send a packet after all. Then its queue pair was told so.
    pub(crate) fn leaves_unsent(&mut self, index: usize, slot: usize, transmit: &Transmit) -> Result<bool, Breach> {
        let passing = self.hosts[index].want.passing(self.now_ns);
        let short = passing.is_some_and(|passing| passing.lack == Lack::Port && self.rng.chance(passing.ppm));
        if !short {
            return Ok(false);
        }
        let Host {
            qps,
            qpccs,
            mood,
            stall,
            ..
        } = &mut self.hosts[index];
        let place = &mut qps[slot];
        let mut cx = Cx {
            now: Instant(mood.clock_ns(self.now_ns)),
            cc: &mut qpccs[place.qpcc],
            memory: &mut NoMemory,
            stall: *stall,
        };
        without_allocation(|| place.qp.handle_unsent(&mut cx, transmit))?;
        if transmit.bth.opcode.is_write() {
            let flow = &mut self.flows[place.connection][place.side];
            flow.flight.unsent(flow.index_of(transmit.bth.psn));
        }
        self.coverage.fault(FaultTag::Unsent);
        trace!(self.trace, self.now_ns, "h{index} cannot send that");
        Ok(true)
    }

    /// Whether the host has no buffer for a write. Then its queue pair was told so.
    pub(crate) fn lacks_buffer(
        &mut self,
        index: usize,
        slot: usize,
        frame: &Frame,
        packet: &Packet<'_>,
    ) -> Result<bool, Breach> {
        let passing = self.hosts[index].want.passing(self.now_ns);
        let Some(passing) = passing.filter(|passing| passing.lack == Lack::Buffer) else {
            return Ok(false);
        };
        let write = matches!(packet.headers, Headers::Write { .. }) && packet.condition == Condition::Whole;
        if !write || !self.rng.chance(passing.ppm) {
            return Ok(false);
        }
        let Host { qps, mood, .. } = &mut self.hosts[index];
        let (now, clock_ns) = (Instant(mood.clock_ns(self.now_ns)), mood.steady_ns(self.now_ns));
        let place = &mut qps[slot];
        let before = place.qp.state();
        let why = passing.shortage;
        let disposition = without_allocation(|| place.qp.handle_refused(now, packet, why))?;
        place.pace.packets += 1;
        let seen = Seen::Refused {
            packet,
            why,
            disposition,
        };
        tap::show(&mut self.tap, place, clock_ns, &seen);
        trace!(
            self.trace,
            self.now_ns,
            "h{index} has no buffer for #{}, psn {}: {disposition:?}",
            frame.id,
            packet.bth.psn.get()
        );
        self.coverage.fault(FaultTag::NoBuffer);
        let flow = &mut self.flows[place.connection][1 - place.side];
        flow.judge_refused(packet, why, disposition, before, Tick::from_ns(clock_ns))?;
        Ok(true)
    }
}
