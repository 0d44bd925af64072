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
    /// Its time is up, or its path another one. An answer is no verdict on its path any more, but a round trip and a snapshot like others.
    pub(super) is_lost: bool,
}

impl Probe {
    /// IP header as always counted, UDP, BTH, PETH, ICRC (wire-format.md §6).
    pub(super) const NOMINAL_BYTES: u32 = 40 + 8 + 12 + 16 + 4;
}

const CAPACITY: usize = 16;

/// Ids rise, so that one is not used again before 65535 others were.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    /// Lost ones stay until others need their places: where round trips are longer than was known when they were sent, their
    /// answers are the only ones that tell.
    slots: [Option<Probe>; CAPACITY],
    /// The last one that was answered: its answer may have several parts.
    answered: Option<Probe>,
    next_id: u16,
    next_due: Option<Instant>,
}

impl Probes {
    pub(super) fn is_full(&self) -> bool {
        self.slots.iter().flatten().filter(|probe| !probe.is_lost).count() == CAPACITY
    }

    /// The id of a new probe, which counts as lost after `timeout_ns`. There must be room.
    pub(super) fn add(&mut self, purpose: Purpose, ev: EvIndex, now: Instant, timeout_ns: u64) -> u16 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        for slot in &mut self.slots {
            // Lost so long ago that its id comes again.
            slot.take_if(|probe| probe.id == id);
        }
        // `None` comes first, then the oldest.
        let places = self
            .slots
            .iter_mut()
            .filter(|slot| slot.is_none_or(|probe| probe.is_lost));
        if let Some(slot) = places.min_by_key(|slot| slot.map(|probe| probe.sent)) {
            *slot = Some(Probe {
                id,
                purpose,
                ev,
                sent: now,
                due: now + timeout_ns,
                is_lost: false,
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
    pub(super) fn poll_lost(&mut self, now: Instant) -> Option<Probe> {
        if self.next_due.is_none_or(|due| due > now) {
            return None;
        }
        let mut waiting = self.slots.iter_mut().flatten().filter(|probe| !probe.is_lost);
        let probe = waiting.find(|probe| probe.due <= now)?;
        probe.is_lost = true;
        let lost = *probe;
        self.refresh();
        Some(lost)
    }

    fn refresh(&mut self) {
        let waiting = self.slots.iter().flatten().filter(|probe| !probe.is_lost);
        self.next_due = waiting.map(|probe| probe.due).min();
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.next_due
    }

    /// This path is another one now: what becomes of probes on it is no verdict on the new one.
    pub(super) fn forget_path(&mut self, ev: EvIndex) {
        for probe in self.slots.iter_mut().flatten().filter(|probe| probe.ev == ev) {
            probe.is_lost = true;
        }
        self.refresh();
    }

    /// Forgets all; ids go on.
    pub(super) fn clear(&mut self) {
        self.slots = [None; CAPACITY];
        self.answered = None;
        self.next_due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // protocol.md §9.1
    #[test]
    fn probe_is_lost_when_its_time_is_up_and_answered_once() {
        let now = Instant::from_ns(1000);
        let mut probes = Probes::default();
        let ids = [5, 9].map(|ns| probes.add(Purpose::Tail, 0, now, ns));
        assert_ne!(ids[0], ids[1]);
        assert_eq!(probes.next_due(), Some(now + 5));
        assert!(probes.poll_lost(now + 4).is_none());
        assert_eq!(probes.poll_lost(now + 5).map(|probe| probe.id), Some(ids[0]));
        assert!(probes.poll_lost(now + 5).is_none(), "once");
        assert!(
            probes.take(ids[0]).is_some_and(|probe| probe.is_lost),
            "a late answer is known as one"
        );
        assert!(probes.take(ids[0]).is_none());
        assert_eq!(probes.next_due(), Some(now + 9));
        assert_eq!(probes.take(ids[1]).map(|probe| probe.id), Some(ids[1]));
        assert!(probes.take(ids[1]).is_none(), "once");
        assert_eq!(probes.next_due(), None);
        // Further parts of the answer are known by its id only.
        assert!(probes.answered(ids[1]).is_some() && probes.answered(ids[0]).is_none());
    }

    #[test]
    fn probes_of_another_life_are_answered_by_nothing() {
        let mut probes = Probes::default();
        let ids = [1, 2].map(|ns| probes.add(Purpose::Check, 0, Instant::ZERO, ns));
        probes.take(ids[0]);
        probes.clear();
        assert!(
            ids.iter()
                .all(|&id| probes.take(id).is_none() && probes.answered(id).is_none())
        );
        assert_eq!(probes.next_due(), None);
        assert!(
            !ids.contains(&probes.add(Purpose::Check, 0, Instant::ZERO, 1)),
            "ids go on"
        );
    }

    // At most so many at once; each id comes back only after all others.
    #[test]
    fn places_are_few_and_ids_are_many() {
        let mut probes = Probes::default();
        for n in 0..CAPACITY {
            assert!(!probes.is_full(), "{n}");
            probes.add(Purpose::Check, 0, Instant::ZERO, 1);
        }
        assert!(probes.is_full());
        let first = probes.add(Purpose::Check, 0, Instant::ZERO, 1);
        let again = (0..=u16::MAX).find(|_| probes.add(Purpose::Check, 0, Instant::ZERO, 1) == first);
        assert_eq!(again, Some(u16::MAX));
    }
}
