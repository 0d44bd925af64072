//! EV probes: does this path lead to that node, and how long is it? (protocol.md §9.2)

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use mrc_wire::{EndpointOp, Ev, PortNum, PortSet, Tick};

use super::{EndpointOps, EndpointRequest, RequestClass};
use crate::profile::Containers;
use crate::time::{Instant, MS};

/// EV probes that may be unanswered, or whose results wait to be polled.
pub const MAX_EV_PROBES: usize = 256;

/// A path to probe. There is no retransmission: the caller decides what silence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvProbe {
    /// The caller's name of the node; only an answer from there counts.
    pub peer: u32,
    /// The caller's own, given back with the result: which batch, which request of it.
    pub token: u64,
    /// The path.
    pub ev: Ev,
    /// Its outer addresses, with SRv6 only.
    pub encap: Option<Containers>,
    /// Its port.
    pub port: PortNum,
    /// Any; that of data by default.
    pub class: RequestClass,
    /// How long an answer is waited for.
    pub timeout_ns: u64,
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvProbeResult {
    /// The probe.
    pub probe: EvProbe,
    /// `None`: none in time.
    pub answer: Option<EvProbeAnswer>,
}

/// It proves the path of the probe and some way back; of congestion it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvProbeAnswer {
    /// Where it arrived.
    pub port: PortNum,
    /// Round trip in ns.
    pub rtt_ns: u64,
    /// The responder took its own time off (protocol.md §6.9).
    pub service_time_removed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Free,
    /// Until then.
    Waiting(EvProbe, Instant),
    Sent {
        probe: EvProbe,
        id: u16,
        at: Instant,
        until: Instant,
    },
    Done(EvProbeResult),
}

impl Slot {
    fn until(&self) -> Option<Instant> {
        match *self {
            Self::Waiting(_, until) | Self::Sent { until, .. } => Some(until),
            Self::Free | Self::Done(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Probes {
    slots: Box<[Slot]>,
    /// Slots of probes to send, in order.
    waiting: VecDeque<u16>,
    /// Slots of results, in the order in which they came.
    done: VecDeque<u16>,
    next_due: Option<Instant>,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            slots: vec![Slot::Free; MAX_EV_PROBES].into_boxed_slice(),
            waiting: VecDeque::with_capacity(MAX_EV_PROBES),
            done: VecDeque::with_capacity(MAX_EV_PROBES),
            next_due: None,
        }
    }
}

impl Probes {
    fn finish(&mut self, at: usize, probe: EvProbe, answer: Option<EvProbeAnswer>) {
        self.slots[at] = Slot::Done(EvProbeResult { probe, answer });
        self.waiting.retain(|&other| usize::from(other) != at);
        self.done.push_back(at as u16);
    }

    fn refresh(&mut self) {
        self.next_due = self.slots.iter().filter_map(Slot::until).min();
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.next_due
    }

    pub(super) fn expire(&mut self, now: Instant) {
        if self.next_due.is_none_or(|due| due > now) {
            return;
        }
        for at in 0..self.slots.len() {
            let (Slot::Waiting(probe, until) | Slot::Sent { probe, until, .. }) = self.slots[at] else {
                continue;
            };
            if until <= now {
                self.finish(at, probe, None);
            }
        }
        self.refresh();
    }

    /// True if a probe with this id is on its way to this peer.
    pub(super) fn answered(&mut self, peer: u32, id: u16, stamp: Tick, port: PortNum, now: Instant) -> bool {
        let found = self.slots.iter().enumerate().find_map(|(at, slot)| match *slot {
            Slot::Sent {
                probe,
                id: sent,
                at: when,
                ..
            } if sent == id && probe.peer == peer => Some((at, probe, when)),
            _ => None,
        });
        let Some((at, probe, sent)) = found else { return false };
        let (rtt_ns, service_time_removed) = round_trip(sent, stamp, now);
        let answer = EvProbeAnswer {
            port,
            rtt_ns,
            service_time_removed,
        };
        self.finish(at, probe, Some(answer));
        self.refresh();
        true
    }
}

/// The own clock knows better than the stamp, unless the responder has moved that on by its service time (§6.9, P16).
fn round_trip(sent: Instant, stamp: Tick, now: Instant) -> (u64, bool) {
    let age_ns = now.since(sent);
    let moved_ns = u64::from(sent.tick().elapsed_ns(stamp));
    if stamp != Tick(0) && age_ns < 8 * MS && (1..=age_ns).contains(&moved_ns) {
        (age_ns - moved_ns, true)
    } else {
        (age_ns, false)
    }
}

impl EndpointOps {
    /// Starts a probe; false if too many are under way. A batch is several calls.
    #[must_use = "false: nothing was started"]
    pub fn handle_probe(&mut self, probe: &EvProbe, now: Instant) -> bool {
        let probes = &mut self.probes;
        let Some(at) = probes.slots.iter().position(|slot| matches!(slot, Slot::Free)) else {
            return false;
        };
        probes.slots[at] = Slot::Waiting(*probe, now + probe.timeout_ns);
        probes.waiting.push_back(at as u16);
        probes.refresh();
        true
    }

    /// The next probe to send, on one of the ports of `room`, and the peer that it goes to.
    pub fn poll_probe(&mut self, room: PortSet, now: Instant) -> Option<(u32, EndpointRequest)> {
        let probes = &mut self.probes;
        let (place, at, probe, until) =
            probes
                .waiting
                .iter()
                .enumerate()
                .find_map(|(place, &at)| match probes.slots.get(usize::from(at)) {
                    Some(&Slot::Waiting(probe, until)) if room.contains(probe.port) => Some((place, at, probe, until)),
                    _ => None,
                })?;
        probes.waiting.remove(place);
        let id = self.ids.take();
        self.probes.slots[usize::from(at)] = Slot::Sent {
            probe,
            id,
            at: now,
            until,
        };
        let (bth, headers) = self.request(id, EndpointOp::EV_PROBE, PortSet::EMPTY, now);
        let request = EndpointRequest {
            bth,
            headers,
            ev: probe.ev,
            encap: probe.encap,
            port: probe.port,
            class: probe.class,
        };
        Some((probe.peer, request))
    }

    /// The next result, in the order in which they came.
    pub fn poll_result(&mut self) -> Option<EvProbeResult> {
        let at = usize::from(self.probes.done.pop_front()?);
        match core::mem::replace(self.probes.slots.get_mut(at)?, Slot::Free) {
            Slot::Done(result) => Some(result),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // protocol.md §9.2, §6.9: only a stamp that was moved forward says that service time was taken off.
    #[test]
    fn stamp_counts_only_if_it_was_moved_within_the_round_trip() {
        let sent = Instant::from_ns(128 * 1000);
        let after = |ns| sent + ns;
        let moved = |ticks: u16| Tick(sent.tick().0.wrapping_add(ticks));
        assert_eq!(round_trip(sent, moved(0), after(12_800)), (12_800, false));
        assert_eq!(round_trip(sent, moved(1), after(12_800)), (12_672, true));
        assert_eq!(round_trip(sent, moved(100), after(12_800)), (0, true));
        assert_eq!(
            round_trip(sent, moved(101), after(12_800)),
            (12_800, false),
            "beyond now"
        );
        assert_eq!(round_trip(sent, moved(1), after(8 * MS - 1)), (8 * MS - 129, true));
        assert_eq!(
            round_trip(sent, moved(1), after(8 * MS)),
            (8 * MS, false),
            "it may have wrapped"
        );
        // Sent a tick before the stamps wrap: 0 is none.
        let sent = Instant::from_ns(128 * 65_535);
        assert_eq!(round_trip(sent, Tick(0), sent + 12_800), (12_800, false));
    }
}
