//! The packets between `unack_psn` and the newest sent: their records, in a ring indexed by PSN, and the lists they are
//! on. Every step is O(1).

use alloc::boxed::Box;
use alloc::vec;

use mrc_wire::Psn;

use crate::bitmap::{BitRing, ring_size};
use crate::path::EvIndex;
use crate::time::{BACKOFF_CLASSES, Instant};

/// Of a packet that was sent at least once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not sent, or ACKED.
    Gone,
    /// Sent, nothing heard.
    InFlight,
    /// Queued for retransmission.
    Lost,
    /// To be queued for retransmission later (NACK, protocol.md §5.6).
    Delayed,
}

/// protocol.md §5.1. What can be computed from the request (length, offset, nominal size) or the path (port) is not here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// When the last copy was sent.
    pub(super) sent: Instant,
    /// When the first copy was sent.
    first_sent: Coarse,
    /// When a delayed one becomes a lost one.
    pub(super) resend_at: Coarse,
    /// Links of `order` (in flight) or of the delay lists (delayed).
    order: Link,
    /// Links of the list of its path.
    lane: Link,
    /// Path of the last copy.
    pub(super) ev: EvIndex,
    /// Place of its request in the send queue.
    pub(super) wr: u16,
    pub(super) state: State,
    /// Consecutive timeouts.
    pub(super) timeouts: u8,
    /// Which list of `order` it is on.
    class: u8,
    /// Bits 0-1: copies sent, saturating. Bit 2: some copy was declared lost without a NACK, and not because its port
    /// went. Bit 3: the path of the last copy has yet to be blamed for a timeout. Bits 4-7: NACKs, saturating.
    counts: u8,
}

impl Record {
    const GONE: Self = Self {
        sent: Instant::ZERO,
        first_sent: Coarse(0),
        resend_at: Coarse(0),
        order: Link::FREE,
        lane: Link::FREE,
        ev: 0,
        wr: 0,
        state: State::Gone,
        timeouts: 0,
        class: 0,
        counts: 0,
    };

    pub(super) fn first_sent(&self, now: Instant) -> Instant {
        self.first_sent.before(now).min(self.sent)
    }

    /// Copies sent: 1, 2, or 3 for more.
    pub(super) fn copies(&self) -> u8 {
        self.counts & 3
    }

    fn count_copy(&mut self) {
        if self.copies() < 3 {
            self.counts += 1;
        }
    }

    /// Was some copy declared lost by a rule?
    pub(super) fn was_inferred_lost(&self) -> bool {
        self.counts & 4 != 0
    }

    pub(super) fn set_inferred_lost(&mut self) {
        self.counts |= 4;
    }

    /// The last copy timed out; its path gets the blame if the packet has to be sent again.
    pub(super) fn set_suspect(&mut self) {
        self.counts |= 8;
    }

    /// Was it suspect? Not any more.
    pub(super) fn take_suspect(&mut self) -> bool {
        let was = self.counts & 8 != 0;
        self.counts &= !8;
        was
    }

    /// NACKs of this packet, at most 15.
    pub(super) fn nacks(&self) -> u8 {
        self.counts >> 4
    }

    pub(super) fn count_nack(&mut self) {
        if self.nacks() < 15 {
            self.counts += 16;
        }
    }
}

/// A time in units of 1024 ns, modulo 2^32 (73 minutes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coarse(u32);

impl Coarse {
    /// Rounded up: not before `at`.
    pub(super) fn not_before(at: Instant) -> Self {
        Self((at.as_ns().saturating_add(1023) >> 10) as u32)
    }

    fn at(now: Instant) -> Self {
        Self((now.as_ns() >> 10) as u32)
    }

    /// The time that lies before `now`.
    fn before(self, now: Instant) -> Instant {
        let age = u64::from(Self::at(now).0.wrapping_sub(self.0));
        Instant((now.as_ns() >> 10).saturating_sub(age) << 10)
    }

    /// The time that lies within 36 minutes of `now`.
    pub(super) fn near(self, now: Instant) -> Instant {
        let whole = now.as_ns() >> 10;
        let apart = self.0.wrapping_sub(whole as u32).cast_signed();
        Instant(whole.saturating_add_signed(i64::from(apart)) << 10)
    }
}

/// Neighbours on a list, by place in the ring.
#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u16,
    next: u16,
}

const NONE: u16 = u16::MAX;

impl Link {
    const FREE: Self = Self { prev: NONE, next: NONE };
}

/// A doubly linked list through the records.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u16,
    tail: u16,
}

impl List {
    const EMPTY: Self = Self { head: NONE, tail: NONE };
}

#[derive(Clone, Copy)]
enum Chain {
    Order,
    Lane,
}

/// Lists of delayed packets: one per number of NACKs, so that each is in the order of time.
const DELAY_CLASSES: usize = 8;

pub(super) struct Table {
    records: Box<[Record]>,
    mask: u32,
    /// Packets in flight by number of doublings of their timeout, each in the order of sending: the head has the earliest
    /// deadline of its list.
    order: [List; BACKOFF_CLASSES],
    /// Which of them are not empty.
    order_used: u32,
    delayed: [List; DELAY_CLASSES],
    /// Packets in flight of each path, in the order of sending.
    lanes: Box<[List]>,
    /// Sent and not ACKED.
    open: BitRing,
    lost: BitRing,
    lost_count: u32,
    /// No lost PSN is before this one.
    lost_from: Psn,
}

impl Table {
    /// For windows up to `psns` (at most 32768) and so many paths.
    pub(super) fn new(psns: u32, paths: usize) -> Self {
        let size = ring_size(psns);
        Self {
            records: vec![Record::GONE; size as usize].into_boxed_slice(),
            mask: size - 1,
            order: [List::EMPTY; BACKOFF_CLASSES],
            order_used: 0,
            delayed: [List::EMPTY; DELAY_CLASSES],
            lanes: vec![List::EMPTY; paths].into_boxed_slice(),
            open: BitRing::new(psns),
            lost: BitRing::new(psns),
            lost_count: 0,
            lost_from: Psn::new(0),
        }
    }

    /// Another number of paths; nothing is in flight.
    pub(super) fn set_paths(&mut self, paths: usize) {
        self.lanes = vec![List::EMPTY; paths].into_boxed_slice();
        for record in &mut self.records {
            // There is always a first one, and it is too young for what was sent before.
            record.ev = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        self.records.fill(Record::GONE);
        self.order = [List::EMPTY; BACKOFF_CLASSES];
        self.order_used = 0;
        self.delayed = [List::EMPTY; DELAY_CLASSES];
        self.lanes.fill(List::EMPTY);
        self.open.clear_all();
        self.lost.clear_all();
        self.lost_count = 0;
    }

    fn place(&self, psn: Psn) -> u16 {
        (psn.get() & self.mask) as u16
    }

    pub(super) fn record(&self, psn: Psn) -> &Record {
        &self.records[usize::from(self.place(psn))]
    }

    pub(super) fn record_mut(&mut self, psn: Psn) -> &mut Record {
        let place = self.place(psn);
        &mut self.records[usize::from(place)]
    }

    /// Records there is room for.
    pub(super) fn size(&self) -> u32 {
        self.mask + 1
    }

    /// The PSN of a place, in the ring that begins behind `unack_psn`.
    fn psn_of(&self, place: u16, unack_psn: Psn) -> Psn {
        let first = unack_psn.next();
        first.add(u32::from(place).wrapping_sub(first.get()) & self.mask)
    }

    pub(super) fn is_open(&self, psn: Psn) -> bool {
        self.open.get(psn)
    }

    /// Which of `base..base + 64` are sent and not ACKED; speaks only of PSNs in the ring.
    pub(super) fn open_window(&self, base: Psn) -> u64 {
        self.open.window(base)
    }

    /// Is any of `from..to` sent and not ACKED?
    pub(super) fn any_open(&self, from: Psn, to: Psn) -> bool {
        self.open.first_set(from, to).is_some()
    }

    // ---- lists

    fn link(&mut self, chain: Chain, place: u16) -> &mut Link {
        let record = &mut self.records[usize::from(place)];
        match chain {
            Chain::Order => &mut record.order,
            Chain::Lane => &mut record.lane,
        }
    }

    #[must_use]
    fn append(&mut self, chain: Chain, mut list: List, place: u16) -> List {
        *self.link(chain, place) = Link {
            prev: list.tail,
            next: NONE,
        };
        if list.tail == NONE {
            list.head = place;
        } else {
            self.link(chain, list.tail).next = place;
        }
        list.tail = place;
        list
    }

    #[must_use]
    fn unlink(&mut self, chain: Chain, mut list: List, place: u16) -> List {
        let Link { prev, next } = core::mem::replace(self.link(chain, place), Link::FREE);
        if prev == NONE {
            list.head = next;
        } else {
            self.link(chain, prev).next = next;
        }
        if next == NONE {
            list.tail = prev;
        } else {
            self.link(chain, next).prev = prev;
        }
        list
    }

    // ---- transitions

    /// A new PSN, about to be sent for the first time.
    pub(super) fn admit(&mut self, psn: Psn, wr: u16, now: Instant) {
        *self.record_mut(psn) = Record {
            wr,
            first_sent: Coarse::at(now),
            ..Record::GONE
        };
        self.open.set(psn);
    }

    /// A copy goes out. `class`: how often its timeout has been doubled.
    pub(super) fn depart(&mut self, psn: Psn, ev: EvIndex, class: usize, now: Instant) {
        if self.lost.clear(psn) {
            self.lost_count -= 1;
        }
        let place = self.place(psn);
        let record = &mut self.records[usize::from(place)];
        record.sent = now;
        record.ev = ev;
        record.state = State::InFlight;
        record.count_copy();
        let class = class.min(BACKOFF_CLASSES - 1);
        record.class = class as u8;
        self.order[class] = self.append(Chain::Order, self.order[class], place);
        self.order_used |= 1 << class;
        self.lanes[usize::from(ev)] = self.append(Chain::Lane, self.lanes[usize::from(ev)], place);
    }

    /// Takes a packet off the lists it is on.
    pub(super) fn detach(&mut self, psn: Psn) {
        let place = self.place(psn);
        let record = self.records[usize::from(place)];
        match record.state {
            State::InFlight => {
                let class = usize::from(record.class);
                self.order[class] = self.unlink(Chain::Order, self.order[class], place);
                if self.order[class].head == NONE {
                    self.order_used &= !(1 << class);
                }
                let lane = usize::from(record.ev);
                self.lanes[lane] = self.unlink(Chain::Lane, self.lanes[lane], place);
            }
            State::Delayed => {
                let class = delay_class(&record);
                self.delayed[class] = self.unlink(Chain::Order, self.delayed[class], place);
            }
            State::Lost => {
                if self.lost.clear(psn) {
                    self.lost_count -= 1;
                }
            }
            State::Gone => {}
        }
        self.records[usize::from(place)].state = State::Gone;
    }

    /// Detached: delivered.
    pub(super) fn close(&mut self, psn: Psn) {
        self.open.clear(psn);
    }

    /// Detached: queue it for retransmission.
    pub(super) fn lose(&mut self, psn: Psn) {
        self.record_mut(psn).state = State::Lost;
        if self.lost.set(psn) {
            if self.lost_count == 0 || psn.diff(self.lost_from) < 0 {
                self.lost_from = psn;
            }
            self.lost_count += 1;
        }
    }

    /// Detached: queue it for retransmission at some time, or later if others of its class are due later.
    pub(super) fn delay(&mut self, psn: Psn, until: Instant, now: Instant) {
        let place = self.place(psn);
        let class = delay_class(self.record(psn));
        let tail = self.delayed[class].tail;
        let until = if tail == NONE {
            until
        } else {
            until.max(self.records[usize::from(tail)].resend_at.near(now))
        };
        let record = &mut self.records[usize::from(place)];
        record.state = State::Delayed;
        record.resend_at = Coarse::not_before(until);
        self.delayed[class] = self.append(Chain::Order, self.delayed[class], place);
    }

    // ---- questions

    /// The lowest PSN to send again.
    pub(super) fn first_lost(&mut self, end: Psn) -> Option<Psn> {
        if self.lost_count == 0 {
            return None;
        }
        let found = self.lost.first_set(self.lost_from, end);
        if let Some(psn) = found {
            self.lost_from = psn;
        }
        found
    }

    pub(super) fn lost_count(&self) -> u32 {
        self.lost_count
    }

    /// Heads of the lists of packets in flight: number of doublings and PSN of the one that was sent first.
    pub(super) fn oldest(&self, unack_psn: Psn) -> impl Iterator<Item = (usize, Psn)> + '_ {
        let mut used = self.order_used;
        core::iter::from_fn(move || {
            if used == 0 {
                return None;
            }
            let class = used.trailing_zeros() as usize;
            used &= used - 1;
            Some((class, self.psn_of(self.order[class].head, unack_psn)))
        })
    }

    /// The next packet in flight on the list of `psn`.
    pub(super) fn after(&self, psn: Psn, unack_psn: Psn) -> Option<Psn> {
        let next = self.record(psn).order.next;
        (next != NONE).then(|| self.psn_of(next, unack_psn))
    }

    pub(super) fn any_in_flight(&self) -> bool {
        self.order_used != 0
    }

    /// The packet in flight on this list that was sent first.
    pub(super) fn oldest_of(&self, class: usize, unack_psn: Psn) -> Option<Psn> {
        let head = self.order[class].head;
        (head != NONE).then(|| self.psn_of(head, unack_psn))
    }

    /// The packet in flight on this path that was sent first.
    pub(super) fn lane_head(&self, ev: EvIndex, unack_psn: Psn) -> Option<Psn> {
        let head = self.lanes[usize::from(ev)].head;
        (head != NONE).then(|| self.psn_of(head, unack_psn))
    }

    /// Delayed packets whose time has come first, one per class.
    pub(super) fn next_delayed(&self, unack_psn: Psn, now: Instant) -> Option<(Instant, Psn)> {
        let heads = self.delayed.iter().filter(|list| list.head != NONE);
        heads
            .map(|list| {
                let until = self.records[usize::from(list.head)].resend_at.near(now);
                (until, self.psn_of(list.head, unack_psn))
            })
            .min_by_key(|&(until, _)| until)
    }
}

fn delay_class(record: &Record) -> usize {
    usize::from(record.nacks().saturating_sub(1)).min(DELAY_CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_half_a_cache_line() {
        assert_eq!(size_of::<Record>(), 32);
    }

    #[test]
    fn coarse_times_come_back() {
        let now = Instant::from_ns(5_000_000_000_000_000);
        assert_eq!(
            Coarse::at(now).before(now + 1_000_000_000).as_ns(),
            now.as_ns() >> 10 << 10
        );
        let at = now + 17_000_000_001;
        let back = Coarse::not_before(at).near(now);
        assert!(back >= at && back.since(at) < 1024);
    }
}
