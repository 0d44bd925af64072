//! The send queue: work requests from posting to completion, and how they are cut into packets (protocol.md §5.2, §5.8).

use alloc::boxed::Box;
use alloc::vec;

use mrc_wire::{Opcode, Psn, Qpn};

use crate::work::{Completion, PostError, Queue, SendRequest, Status};

/// A posted write.
#[expect(clippy::struct_field_names, reason = "`wr_id` is the field's name everywhere")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Wr {
    wr_id: u64,
    pub(super) remote_addr: u64,
    pub(super) slot: u32,
    pub(super) len: u32,
    pub(super) r_key: u32,
    pub(super) imm: Option<[u8; 4]>,
    pub(super) solicited: bool,
    signaled: bool,
    /// Valid from its first packet on, as are the numbers below.
    first_psn: Psn,
    pub(super) msn: u16,
    pub(super) rqmsn: u16,
}

impl Wr {
    const EMPTY: Self = Self {
        wr_id: 0,
        remote_addr: 0,
        slot: 0,
        len: 0,
        r_key: 0,
        imm: None,
        solicited: false,
        signaled: false,
        first_psn: Psn::new(0),
        msn: 0,
        rqmsn: 0,
    };

    // protocol.md §5.2: at most 2^31 / 256 = 2^23 packets.
    fn packets(&self, pmtu: u32) -> u32 {
        self.len.div_ceil(pmtu).max(1)
    }

    fn last_psn(&self, pmtu: u32) -> Psn {
        self.first_psn.add(self.packets(pmtu) - 1)
    }

    /// The packet with this PSN, which is one of this request's.
    pub(super) fn segment(&self, psn: Psn, pmtu: u32) -> Segment {
        let index = psn.diff(self.first_psn).max(0) as u32;
        let offset = index.saturating_mul(pmtu).min(self.len);
        let len = (self.len - offset).min(pmtu);
        let last = index + 1 >= self.packets(pmtu);
        let opcode = match (index == 0, last, self.imm.is_some()) {
            (true, true, false) => Opcode::WriteOnly,
            (true, true, true) => Opcode::WriteOnlyImm,
            (true, false, _) => Opcode::WriteFirst,
            (false, false, _) => Opcode::WriteMiddle,
            (false, true, false) => Opcode::WriteLast,
            (false, true, true) => Opcode::WriteLastImm,
        };
        Segment { opcode, offset, len }
    }
}

/// One packet's part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) opcode: Opcode,
    pub(super) offset: u32,
    pub(super) len: u32,
}

impl Segment {
    /// UDP length + 40, with TSETH (protocol.md §5.1).
    pub(super) fn nominal_bytes(&self) -> u32 {
        const HEADERS: u32 = 8 + 12 + 4 + 4 + 16 + 4;
        40 + HEADERS + if self.opcode.has_imm() { 4 } else { 0 } + self.len.next_multiple_of(4)
    }
}

/// Requests by rising counters: `head <= done <= sending <= tail`.
pub(super) struct SendQueue {
    ring: Box<[Wr]>,
    mask: u32,
    depth: u32,
    signal_all: bool,
    /// Oldest whose completion was not polled.
    head: u32,
    /// Oldest that no Transport ACK covers.
    done: u32,
    /// Oldest that was not sent completely.
    sending: u32,
    /// Where the next is posted.
    tail: u32,
    /// Has `sending` a first PSN already?
    begun: bool,
    next_msn: u16,
    next_rqmsn: u16,
    /// WriteIMMs from the first packet until a Transport ACK covers the last (P4).
    wimm_in_flight: u32,
    /// In the error state: what is not done is flushed.
    failed: bool,
    /// Then: which request failed, and how.
    culprit: Option<(u32, Status)>,
}

impl SendQueue {
    pub(super) fn new(depth: u32, signal_all: bool) -> Self {
        let size = depth.next_power_of_two();
        Self {
            ring: vec![Wr::EMPTY; size as usize].into_boxed_slice(),
            mask: size - 1,
            depth,
            signal_all,
            head: 0,
            done: 0,
            sending: 0,
            tail: 0,
            begun: false,
            next_msn: 0,
            next_rqmsn: 0,
            wimm_in_flight: 0,
            failed: false,
            culprit: None,
        }
    }

    pub(super) fn clear(&mut self) {
        (self.head, self.done, self.sending, self.tail) = (0, 0, 0, 0);
        (self.next_msn, self.next_rqmsn, self.wimm_in_flight) = (0, 0, 0);
        self.begun = false;
        self.failed = false;
        self.culprit = None;
    }

    fn at(&self, counter: u32) -> &Wr {
        &self.ring[(counter & self.mask) as usize]
    }

    /// The request of a packet record.
    pub(super) fn by_place(&self, place: u16) -> &Wr {
        &self.ring[(u32::from(place) & self.mask) as usize]
    }

    pub(super) fn post(&mut self, request: &SendRequest) -> Result<(), PostError> {
        if request.len > 1 << 31 {
            return Err(PostError::TooLong(request.len));
        }
        if self.outstanding() >= self.depth {
            return Err(PostError::Full);
        }
        self.ring[(self.tail & self.mask) as usize] = Wr {
            wr_id: request.wr_id,
            remote_addr: request.remote_addr,
            slot: request.slot,
            len: request.len,
            r_key: request.r_key,
            imm: request.imm,
            solicited: request.solicited,
            signaled: request.signaled,
            ..Wr::EMPTY
        };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Posted, and its completion not polled.
    pub(super) fn outstanding(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Is there a packet that was never sent?
    pub(super) fn has_unsent(&self) -> bool {
        self.sending != self.tail
    }

    /// Would the next new packet begin one more WriteIMM than `max_wimm`? (protocol.md §5.3 rule 4)
    pub(super) fn waits_for_wimm(&self, max_wimm: u16) -> bool {
        self.has_unsent()
            && !self.begun
            && self.at(self.sending).imm.is_some()
            && self.wimm_in_flight >= u32::from(max_wimm)
    }

    /// Gives the next new packet the number `psn`: its request's place, and itself.
    pub(super) fn take(&mut self, psn: Psn, pmtu: u32) -> Option<(u16, Segment)> {
        if !self.has_unsent() {
            return None;
        }
        let place = self.sending & self.mask;
        let wr = &mut self.ring[place as usize];
        if !self.begun {
            self.begun = true;
            wr.first_psn = psn;
            // protocol.md §5.2, wire-format.md §7.2 (W15)
            wr.msn = self.next_msn;
            self.next_msn = self.next_msn.wrapping_add(1);
            wr.rqmsn = 0;
            if wr.imm.is_some() {
                wr.rqmsn = self.next_rqmsn;
                self.next_rqmsn = self.next_rqmsn.wrapping_add(1);
                self.wimm_in_flight += 1;
            }
        }
        let segment = wr.segment(psn, pmtu);
        if segment.opcode.is_last() {
            self.begun = false;
            self.sending = self.sending.wrapping_add(1);
        }
        Some((place as u16, segment))
    }

    /// A Transport ACK covers every PSN up to `psn`.
    pub(super) fn complete(&mut self, psn: Psn, pmtu: u32) {
        while self.done != self.sending && self.at(self.done).last_psn(pmtu).diff(psn) <= 0 {
            if self.at(self.done).imm.is_some() {
                self.wimm_in_flight -= 1;
            }
            self.done = self.done.wrapping_add(1);
        }
    }

    /// The unfinished request that owns a sent PSN: its counter.
    pub(super) fn owner(&self, psn: Psn) -> Option<u32> {
        let sent = self.sending.wrapping_sub(self.done) + u32::from(self.begun);
        // The last one that does not begin after `psn`.
        let (mut low, mut high) = (0, sent);
        while low < high {
            let middle = low.midpoint(high);
            if self.at(self.done.wrapping_add(middle)).first_psn.diff(psn) <= 0 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low > 0).then(|| self.done.wrapping_add(low - 1))
    }

    pub(super) fn place_of(&self, counter: u32) -> u16 {
        (counter & self.mask) as u16
    }

    /// The oldest unfinished request.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.done != self.tail).then_some(self.done)
    }

    /// The unfinished request with this slot.
    pub(super) fn with_slot(&self, slot: u32) -> Option<u32> {
        let unfinished = self.tail.wrapping_sub(self.done);
        (0..unfinished)
            .map(|n| self.done.wrapping_add(n))
            .find(|&counter| self.at(counter).slot == slot)
    }

    /// Into the error state (protocol.md §5.9).
    pub(super) fn fail(&mut self, culprit: Option<(u32, Status)>) {
        if !self.failed {
            self.failed = true;
            self.culprit = culprit;
        }
    }

    /// protocol.md §5.8, §5.9: in posting order.
    pub(super) fn poll(&mut self, peer: Qpn) -> Option<Completion> {
        if self.head == self.tail {
            return None;
        }
        let mut signaled = self.signal_all || self.at(self.head).signaled;
        let status = if self.head == self.done {
            if !self.failed {
                return None;
            }
            // Flushed and failed requests complete whether they asked for it or not.
            signaled = true;
            self.done = self.done.wrapping_add(1);
            self.culprit
                .filter(|&(counter, _)| counter == self.head)
                .map_or(Status::Flushed, |(_, status)| status)
        } else {
            Status::Success
        };
        let wr = self.at(self.head);
        let completion = Completion {
            wr_id: wr.wr_id,
            queue: Queue::Send,
            status,
            byte_len: wr.len,
            imm: wr.imm,
            solicited: false,
            src_qp: peer,
            slot: wr.slot,
            signaled,
        };
        self.head = self.head.wrapping_add(1);
        Some(completion)
    }
}
