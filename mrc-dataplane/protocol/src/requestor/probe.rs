//! Reliability probes in flight (protocol.md §9.1).

use crate::path::EvIndex;
use crate::time::Instant;

/// Why a probe was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Is this ASSUMED_BAD path alive?
    Check,
    /// Where is the Transport ACK?
    TransportAck,
    /// Why is it so quiet? (protocol.md §5.7)
    Tail,
    /// How long is the way without queues (protocol.md §10.5)? Of the control class.
    BaseRtt,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) id: u16,
    pub(super) purpose: Purpose,
    pub(super) ev: EvIndex,
    pub(super) sent: Instant,
    due: Instant,
}

impl Probe {
    /// IP header as always counted, UDP, BTH, PETH, ICRC (wire-format.md §6).
    pub(super) const NOMINAL_BYTES: u32 = 40 + 8 + 12 + 16 + 4;
}

const CAPACITY: usize = 16;

/// Ids rise, so that one is not used again before 65535 others were.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    slots: [Option<Probe>; CAPACITY],
    /// The last one that was answered: its answer may have several parts.
    answered: Option<Probe>,
    next_id: u16,
    next_due: Option<Instant>,
}

impl Probes {
    pub(super) fn is_full(&self) -> bool {
        self.slots.iter().all(Option::is_some)
    }

    /// The id of a new probe, which counts as lost after `timeout_ns`. There must be room.
    pub(super) fn add(&mut self, purpose: Purpose, ev: EvIndex, now: Instant, timeout_ns: u64) -> u16 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(Probe {
                id,
                purpose,
                ev,
                sent: now,
                due: now + timeout_ns,
            });
            self.refresh();
        }
        id
    }

    /// The probe that a SACK answers.
    pub(super) fn take(&mut self, id: u16) -> Option<Probe> {
        let slot = self
            .slots
            .iter_mut()
            .find(|slot| slot.is_some_and(|probe| probe.id == id))?;
        self.answered = slot.take();
        self.refresh();
        self.answered
    }

    /// The probe of which this SACK is another part of the answer.
    pub(super) fn answered(&self, id: u16) -> Option<Probe> {
        self.answered.filter(|probe| probe.id == id)
    }

    /// One whose time is up.
    pub(super) fn take_lost(&mut self, now: Instant) -> Option<Probe> {
        if self.next_due.is_none_or(|due| due > now) {
            return None;
        }
        let slot = self
            .slots
            .iter_mut()
            .find(|slot| slot.is_some_and(|probe| probe.due <= now))?;
        let probe = slot.take();
        self.refresh();
        probe
    }

    fn refresh(&mut self) {
        self.next_due = self.slots.iter().flatten().map(|probe| probe.due).min();
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.next_due
    }

    /// Forgets all; ids go on.
    pub(super) fn clear(&mut self) {
        self.slots = [None; CAPACITY];
        self.answered = None;
        self.next_due = None;
    }
}
