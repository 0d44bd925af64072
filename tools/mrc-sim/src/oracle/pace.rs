//! Timers and turns of the engine are bounded by what there is to do (protocol.md §5.7).
//!
//! Each packet sent or received starts a handful of timers: its deadline, the pause of rule A, the pause after a NACK, the
//! hold timer of its SACK, the pause before the answer to a duplicate. Besides, there are timers of the connection: probes of
//! bad paths, waiting for a path or a Transport ACK; none of these comes back sooner than a quarter of T0, or, for probes, 1 ms.

use crate::ensure;
use crate::oracle::Checked;
use crate::oracle::Oracle::Timer;

const PER_PACKET: u64 = 4;
const AT_ALL_TIMES: u64 = 64;

/// What a queue pair has had to do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// Packets sent and received.
    pub packets: u64,
    /// Times that a timer was served.
    pub timers: u64,
}

impl Pace {
    /// Judges the number of timers after `elapsed_ns`. `interval_ns`: the shortest of the connection's own.
    pub fn judge(&self, name: &str, elapsed_ns: u64, interval_ns: u64) -> Checked {
        let limit = AT_ALL_TIMES + PER_PACKET * self.packets + elapsed_ns / interval_ns.max(1);
        ensure!(
            self.timers <= limit,
            Timer,
            "{name}: {} timers for {} packets in {elapsed_ns} ns, at most {limit} have a reason",
            self.timers,
            self.packets
        );
        Ok(())
    }
}

/// Work of a host's engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Effort {
    /// Turns.
    pub turns: u64,
    /// Packets, timers, posted requests, news of ports: what turns are for.
    pub causes: u64,
}

impl Effort {
    /// Judges the number of turns.
    pub fn judge(&self, host: usize) -> Checked {
        let limit = AT_ALL_TIMES + PER_PACKET * self.causes;
        ensure!(
            self.turns <= limit,
            Timer,
            "h{host}: {} turns for {} causes, at most {limit} have a reason",
            self.turns,
            self.causes
        );
        Ok(())
    }
}
