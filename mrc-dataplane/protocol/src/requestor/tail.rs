//! The tail probe: nothing more is sent that could show a loss, and no SACK comes (protocol.md §5.7, P8).

use mrc_wire::PortSet;

use super::probe::{Probe, Purpose};
use super::{Env, Requestor};
use crate::path::{EvIndex, Happening, Reason};
use crate::time::{Instant, US};

/// Probes of one silence; after them the local ACK timeout decides.
const MAX_PROBES: u8 = 2;

/// How long it has been quiet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    /// When something was last sent, or a SACK or Transport ACK last came.
    since: Instant,
    /// Path of the last write or tail probe.
    last: Option<EvIndex>,
    /// Probes called for since something came.
    probes: u8,
    /// One is to go out.
    pub(super) wanted: bool,
}

impl Tail {
    /// A write goes out. While others follow, their SACKs show what is missing; the last one before a stop has its `a` bit
    /// set (P5), and so it is the last one whose answer is waited for.
    pub(super) fn sent(&mut self, ev: EvIndex, now: Instant) {
        self.since = now;
        self.last = Some(ev);
    }

    /// A probe goes out: the next one is to take another plane again. If both avoided the plane of the last write, and that was
    /// the only one alive, neither could arrive.
    pub(super) fn probed(&mut self, ev: EvIndex) {
        self.last = Some(ev);
        self.wanted = false;
    }

    /// The universe is another one.
    pub(super) fn forget_path(&mut self) {
        self.last = None;
    }

    /// A SACK or a Transport ACK came.
    pub(super) fn heard(&mut self, now: Instant) {
        self.since = now;
        self.probes = 0;
        self.wanted = false;
    }
}

impl Requestor {
    /// PTO; `None` = no tail probes: the local ACK timeout is off, or not longer.
    ///
    /// Before the first round trip was measured nothing is known of the queues ahead, and a probe that overtook them would
    /// make rule C condemn what is only waiting: T0 / 4 at least.
    fn probe_timeout_ns(&self) -> Option<u64> {
        let t0_ns = self.configured_t0_ns()?;
        let pto_ns = match self.rtt.measured_ns() {
            (0, _) => t0_ns / 4,
            (srtt_ns, _) => (2 * srtt_ns).max(self.rtt.longest_ns()),
        };
        Some(pto_ns.max(100 * US)).filter(|&pto_ns| pto_ns < t0_ns)
    }

    /// When the next tail probe is due: PTO after the silence began, then 2 PTO after the first probe.
    pub(super) fn next_tail_probe(&self) -> Option<Instant> {
        if self.tail.probes >= MAX_PROBES || !self.table.any_in_flight() {
            return None;
        }
        Some(self.tail.since + (self.probe_timeout_ns()? << self.tail.probes))
    }

    pub(super) fn handle_tail(&mut self, now: Instant) {
        if self.next_tail_probe().is_some_and(|at| at <= now) {
            self.tail.since = now;
            self.tail.probes += 1;
            self.tail.wanted = true;
        }
        // What was in flight is gone: nobody waits for it any more.
        self.tail.wanted &= self.table.any_in_flight();
    }

    /// A path for the probe, preferably of another plane than that of the last packet, be it a write or a probe.
    pub(super) fn choose_for_tail(&mut self, env: &mut Env<'_>, room: PortSet) -> Option<EvIndex> {
        let last = self.tail.last.map(|ev| env.paths.entry(ev).port);
        let elsewhere = last.map_or(room, |port| room.difference(PortSet::EMPTY.with(port)));
        self.choose(env, elsewhere, None)
            .or_else(|| self.choose(env, room, None))
    }

    /// No answer came. Where congestion loses packets that counts as the loss of a packet on its path (protocol.md §8.2
    /// (4)); where it trims, a probe is the one packet that it drops, and says nothing.
    pub(super) fn lost_tail_probe(&mut self, probe: &Probe, env: &mut Env<'_>) {
        debug_assert_eq!(probe.purpose, Purpose::Tail);
        if !env.excuses(probe.ev, probe.sent) {
            let rtt_ns = self.rtt.srtt_ns(env.cc);
            env.paths
                .handle(probe.ev, Happening::TailProbeLost, Reason::Lost, env.now, rtt_ns);
        }
    }
}
