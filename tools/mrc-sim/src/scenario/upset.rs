//! What upsets hosts besides links and stalls: slow engines, clocks, refusals, changed attributes, restarts.

use crate::memory::When;
use crate::rng::{PPM, Rng};
use crate::scenario::{Happening, Scenario};
use mrc_protocol::Shortage;
use mrc_wire::NackReason;

/// An upset, from an instant on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upset {
    /// The engine looks at its receive ring rarely, and the ring is short: what does not fit is lost.
    Slow {
        /// Host.
        host: usize,
        /// How long.
        for_ns: u64,
        /// From an arrival to the engine's look at it, at most.
        poll_ns: u64,
        /// Frames that wait.
        ring: usize,
    },
    /// The host's clock leaps by so much; a negative leap is the caller's mistake, which must do no harm.
    Leap {
        /// Host.
        host: usize,
        /// By how much.
        by_ns: i64,
    },
    /// The host cannot take some of the new packets, and says so with NACKs (protocol.md §6.3 step 2).
    Refuse {
        /// Host.
        host: usize,
        /// How long.
        for_ns: u64,
        /// How many of the new packets.
        ppm: u32,
        /// What it says.
        reason: NackReason,
    },
    /// The host lacks something for a while, and its queue pairs say so (protocol.md §6.3 step 2).
    Short {
        /// Host.
        host: usize,
        /// How long.
        for_ns: u64,
        /// For how many of the packets.
        ppm: u32,
        /// What the NACKs say.
        shortage: Shortage,
        /// What it lacks.
        lack: Lack,
    },
    /// The memory of the host fails for good.
    Break {
        /// Host.
        host: usize,
        /// When it says so.
        when: When,
    },
    /// The application changes when to give up.
    Patience {
        /// Connection.
        connection: usize,
        /// Side.
        side: usize,
        /// Local ACK timeout exponent.
        timeout: u8,
    },
    /// A responder announces another window (protocol.md §5.4).
    Window {
        /// Connection.
        connection: usize,
        /// Side whose window it is.
        side: usize,
        /// The window, in units of 128 PSNs.
        mpr: u8,
    },
    /// One end starts anew, the other learns of it; then both connect again, and send everything again.
    Restart {
        /// Connection.
        connection: usize,
        /// Side that starts anew.
        side: usize,
        /// From there to the reset of the other one.
        notice_ns: u64,
        /// From there to the new connection.
        rest_ns: u64,
        /// How far the new PSNs are from the old ones.
        shift: u32,
        /// The queue pair is destroyed and made again, in contrast to a reset.
        anew: bool,
    },
}

/// What a host may lack for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Memory that can be written.
    Memory(When),
    /// A buffer for what has arrived.
    Buffer,
    /// A way to send what its queue pairs have given it to send.
    Port,
}

/// Longest life of a packet in the fabric of delays, copies of it included, with what may wait at a host.
const PACKET_LIFE_NS: u64 = 1_000_000_000;

/// Draws one for the stretch from `from_ns` to `until_ns`.
pub(super) fn draw(rng: &mut Rng, scenario: &mut Scenario, from_ns: u64, until_ns: u64) {
    let host = rng.below(scenario.hosts.len() as u64) as usize;
    let for_ns = until_ns - from_ns;
    let upset = match rng.below(10) {
        0 | 1 => Upset::Slow {
            host,
            for_ns,
            poll_ns: rng.pick(&[20_000, 100_000, 400_000]),
            ring: rng.pick(&[2, 8, 32, 64]),
        },
        2 => Upset::Leap {
            host,
            by_ns: rng.pick(&[1_000, 300_000, 9_000_000, 100_000_000, 3_000_000_000]),
        },
        3 => Upset::Leap {
            host,
            by_ns: -rng.pick(&[500, 50_000, 2_000_000]),
        },
        4 | 5 => Upset::Refuse {
            host,
            for_ns,
            ppm: rng.pick(&[20_000, 200_000, PPM]),
            reason: rng.pick(&[
                NackReason::NO_BITMAP,
                NackReason::NO_PKT_BUFFER,
                NackReason::NO_RESOURCE,
                NackReason::PSN_OOR_WINDOW,
                NackReason(0x77),
            ]),
        },
        6 => {
            let connection = rng.below(scenario.connections.len() as u64) as usize;
            let old = scenario.connections[connection].timeout;
            let most = if scenario.class.must_succeed() { 12 } else { old };
            Upset::Patience {
                connection,
                side: rng.below(2) as usize,
                timeout: rng.range(8, most.into()) as u8,
            }
        }
        _ => return windows(rng, scenario, from_ns, until_ns),
    };
    scenario.happenings.push((from_ns, Happening::Upset(upset)));
}

/// Draws windows of one side that change a few times.
fn windows(rng: &mut Rng, scenario: &mut Scenario, from_ns: u64, until_ns: u64) {
    let connection = rng.below(scenario.connections.len() as u64) as usize;
    let side = rng.below(2) as usize;
    let plan = &mut scenario.connections[connection];
    if rng.one_in(2) {
        // Enough is on its way that a window can shrink below it.
        plan.dynamic_mpr = [true, true];
        plan.mpr[side] = 8;
        plan.sq_depth = 1024;
        plan.flows[1 - side].gap_ns = 0;
        scenario.hosts[plan.hosts[1 - side]].cwnd_packets = 192;
    }
    let max_mpr = plan.max_mpr();
    for _ in 0..rng.range(2, 6) {
        let some = rng.range(1, max_mpr.into()) as u8;
        let mpr = rng.pick(&[1, max_mpr, some]);
        let upset = Upset::Window { connection, side, mpr };
        let at_ns = rng.range(from_ns, until_ns);
        scenario.happenings.push((at_ns, Happening::Upset(upset)));
    }
}

/// Draws a restart at `at_ns`.
pub(super) fn restart(rng: &mut Rng, scenario: &mut Scenario, at_ns: u64) {
    let same = rng.one_in(2);
    let upset = Upset::Restart {
        connection: rng.below(scenario.connections.len() as u64) as usize,
        side: rng.below(2) as usize,
        notice_ns: rng.below(300_000),
        // protocol.md §2.2 (P1): the same numbers only after a rest. Far away, old packets are recognised as such.
        rest_ns: if same { PACKET_LIFE_NS } else { rng.below(5_000) },
        shift: if same {
            0
        } else {
            rng.range(1 << 21, (1 << 24) - (1 << 21)) as u32
        },
        anew: rng.one_in(2),
    };
    scenario.happenings.push((at_ns, Happening::Upset(upset)));
}

impl Upset {
    /// How long after its beginning it still has an effect.
    pub fn lasts_ns(&self) -> u64 {
        match self {
            Upset::Slow { for_ns, .. } | Upset::Refuse { for_ns, .. } | Upset::Short { for_ns, .. } => *for_ns,
            Upset::Leap { by_ns, .. } => by_ns.min(&0).unsigned_abs(),
            Upset::Break { .. } | Upset::Patience { .. } | Upset::Window { .. } => 0,
            Upset::Restart { notice_ns, rest_ns, .. } => notice_ns + rest_ns,
        }
    }
}
