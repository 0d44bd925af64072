//! EV probes of queue pairs that only receive, for the paths of their answers (protocol.md §6.10, §9.2).

use crate::ensure;
use crate::host::Host;
use crate::meter::without_allocation;
use crate::oracle::probes::{CLASS, NOBODY};
use crate::oracle::{Checked, Oracle};
use crate::trace;
use crate::world::World;
use mrc_protocol::{Cx, EvEntry, EvProbe, EvProbeResult, EvState, EvView, Instant, NoMemory, QpStats, RequestClass};
use mrc_wire::{Ev, PortNum, Psn};

/// How long an answer is waited for.
const TIMEOUT_NS: u64 = 20_000_000;
/// Least time between two probes to a peer, over all queue pairs: it answers 1000 requests a second (protocol.md §14).
const PACE_NS: u64 = 2_000_000;
/// Least time between two probes of a queue pair (protocol.md §6.10).
const INTERVAL_NS: u64 = 5_000_000;

/// All of a queue pair that an EV probe must leave alone.
#[derive(Debug, PartialEq)]
struct Rest {
    psns: [Psn; 3],
    stats: QpStats,
    in_flight: (u32, i64),
    retries: u32,
}

impl World {
    /// Starts a probe. It leaves when its port has room.
    pub(crate) fn start_probe(&mut self, index: usize, peer: usize, ev: Ev, port: PortNum, token: u64) {
        let host = &mut self.hosts[index];
        let now = Instant(host.mood.clock_ns(self.now_ns));
        let Some(node) = &mut host.node else { return };
        let probe = EvProbe {
            peer: peer as u32,
            token,
            ev,
            encap: None,
            port,
            class: RequestClass::Of(CLASS),
            timeout_ns: TIMEOUT_NS,
        };
        if node.ops.handle_probe(&probe, now) {
            node.probing.ask(&probe);
        }
    }

    /// A queue pair has had packets: it may want to know where its answers arrive.
    pub(crate) fn probe_reverse(&mut self, index: usize, slot: usize) -> Checked {
        let Host {
            qps,
            qpccs,
            node,
            mood,
            stall,
            local_up,
            peer_up,
            ..
        } = &mut self.hosts[index];
        let Some(node) = node else { return Ok(()) };
        let clock_ns = mood.clock_ns(self.now_ns);
        let steady_ns = mood.steady_ns(self.now_ns);
        let place = &mut qps[slot];
        let Some(peer) = node.peers.get_mut(&place.peer) else {
            return Ok(());
        };
        if peer.probed_ns.is_some_and(|at_ns| clock_ns < at_ns + PACE_NS) {
            return Ok(());
        }
        let cx = Cx {
            now: Instant(clock_ns),
            cc: &mut qpccs[place.qpcc],
            memory: &mut NoMemory,
            stall: *stall,
        };
        let qp = &mut place.qp;
        let Some(EvEntry { ev, port }) = without_allocation(|| qp.poll_ev_probe(&cx))? else {
            return Ok(());
        };
        let name = format!("c{}.{}", place.connection, place.side);
        let path = |view: &EvView| view.entry == EvEntry { ev, port };
        let sound = |view: &EvView| view.eligible && matches!(view.state, EvState::Good | EvState::Skip);
        ensure!(
            place.qp.ev_states().any(|view| path(&view) && sound(&view)) && local_up.contains(port),
            Oracle::Path,
            "{name}: an EV probe on ev {:#x} port {}; {:?} are up here, {:?} there",
            ev.0,
            port.get(),
            *local_up,
            peer_up.of(place.peer)
        );
        let before_ns = place.probed_ns.replace(steady_ns);
        ensure!(
            before_ns.is_none_or(|before_ns| steady_ns - before_ns >= INTERVAL_NS),
            Oracle::Timer,
            "{name}: EV probes at {before_ns:?} and {steady_ns} ns"
        );
        peer.probed_ns = Some(clock_ns);
        let (token, peer) = (2 * place.connection as u64 + place.side as u64, place.peer);
        self.start_probe(index, peer, ev, port, token);
        self.coverage.rule("§6.10 EV probe for a reverse EV", 1);
        Ok(())
    }

    /// Tells a queue pair what became of its probe. That may change the path's state, as protocol.md §8.2 says, and where
    /// answers go; nothing else.
    pub(crate) fn take_probe_result(&mut self, index: usize, result: &EvProbeResult, now: Instant) -> Checked {
        let host = &mut self.hosts[index];
        let Host {
            qps,
            qpccs,
            node,
            stall,
            ..
        } = host;
        let Some(node) = node else { return Ok(()) };
        let rule = node.probing.judge_result(&format!("h{index}"), result)?;
        self.coverage.rule(rule, 1);
        let asks = |token, connection, side| token == 2 * connection as u64 + side as u64;
        let token = result.probe.token;
        if token == NOBODY {
            return Ok(());
        }
        let Some(slot) = qps.iter_mut().find(|slot| asks(token, slot.connection, slot.side)) else {
            return Ok(());
        };
        let entry = EvEntry {
            ev: result.probe.ev,
            port: result.probe.port,
        };
        let answered = result.answer.is_some();
        trace!(
            self.trace,
            self.now_ns,
            "h{index} c{}.{} EV probe on ev {:#x} port {} answered: {answered}",
            slot.connection,
            slot.side,
            entry.ev.0,
            entry.port.get()
        );
        let cc = &mut qpccs[slot.qpcc];
        let rest = |qp: &mrc_protocol::Qp, cc: &mrc_protocol::Qpcc| Rest {
            psns: [qp.next_psn(), qp.unack_psn(), qp.cack_psn()],
            stats: *qp.stats(),
            in_flight: (cc.inflight_packets(), cc.inflight_bytes()),
            retries: qp.retries(),
        };
        let before: Vec<EvView> = slot.qp.ev_states().collect();
        let rest_before = rest(&slot.qp, cc);
        let qp = &mut slot.qp;
        let cx = Cx {
            now,
            cc,
            memory: &mut NoMemory,
            stall: *stall,
        };
        without_allocation(|| qp.handle_ev_probe(&cx, entry, answered))?;
        let rest_after = rest(&slot.qp, &qpccs[slot.qpcc]);
        ensure!(
            rest_before == rest_after,
            Oracle::Ports,
            "c{}.{}: an EV probe changes {rest_before:?} to {rest_after:?}",
            slot.connection,
            slot.side
        );
        for (before, after) in before.iter().zip(slot.qp.ev_states()) {
            let revived = answered && before.state == EvState::AssumedBad && after.state == EvState::Good;
            ensure!(
                before.entry == after.entry
                    && (before.state == after.state || revived && before.entry == entry)
                    && (before.active == after.active || revived && before.entry == entry),
                Oracle::Ports,
                "c{}.{}: an EV probe on {entry:?}, answered: {answered}, makes {after:?} of {before:?}",
                slot.connection,
                slot.side
            );
        }
        Ok(())
    }
}
