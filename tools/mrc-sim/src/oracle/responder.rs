//! What a responder must do with what arrives, and what it may say (protocol.md §6).

use crate::ensure;
use crate::memory::Access;
use crate::oracle::Oracle::{Duty, Memory, Nack, Sack, State, TransportAck};
use crate::oracle::flow::Flow;
use crate::oracle::{Breach, Checked};
use crate::scenario::ConnectionPlan;
use mrc_protocol::{Disposition, QpState};
use mrc_wire::{Aeth, Bth, CcState, Condition, NackReason, Neth, Packet, PathVerdict, Peth, Psn, Seth, Syndrome};
use std::collections::{BTreeMap, VecDeque};

/// The receiving end of a flow, as the specification has it.
#[derive(Debug)]
pub struct ResponderModel {
    window: i64,
    max_wimm: usize,
    peer_qpn: u32,
    trim_nack: bool,
    received: Vec<bool>,
    /// Highest packet such that it and all before were received; -1: none.
    pub cack: i64,
    max_received: i64,
    out_of_order: u64,
    rx_bytes: u64,
    messages_done: u32,
    /// Received immediates above `cack`.
    stashed: usize,
    /// Copies that arrived whole, by packet; damage may show packets that do not exist.
    copies: BTreeMap<i64, Vec<Copy>>,
    /// Copies that arrived cut and earned a NACK, by packet.
    trimmed: BTreeMap<i64, Vec<Copy>>,
    /// Probes that arrived, by id; a copy made on the way may carry another mark.
    probes: BTreeMap<u16, Vec<Copy>>,
    /// Immediates whose turn has come and whose receive completions are due, as message numbers.
    pub deliverable: VecDeque<usize>,
    /// A write that must be refused has arrived: its packet and the syndromes that may refuse it.
    pub refused: Option<(i64, u8)>,
    /// The request for a SACK that has not been answered.
    sack_due: Option<(i64, &'static str)>,
    ack_due: Option<i64>,
    nak_sent: bool,
    /// Counts for the summary.
    pub seen: Seen,
}

/// What arrived, for the coverage summary.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Duplicates below the expected PSN.
    pub duplicates_below: u64,
    /// Duplicates above it.
    pub duplicates_above: u64,
    /// Beyond the window.
    pub out_of_window: u64,
    /// New packets that were not the expected one.
    pub out_of_order: u64,
    /// Cut packets.
    pub trimmed: u64,
    /// Writes refused.
    pub refused: u64,
}

/// What a copy brought along and an answer may reflect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Copy {
    entropy: u32,
    timestamp: u16,
    ce: bool,
    rtx: bool,
}

/// Where an arriving PSN lies (protocol.md §6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    New,
    DuplicateAbove,
    DuplicateBelow,
    OutOfWindow,
}

impl ResponderModel {
    /// The end at `side` before anything arrived.
    pub fn new(plan: &ConnectionPlan, side: usize, packets: usize) -> ResponderModel {
        ResponderModel {
            window: i64::from(plan.mpr[side]) * 128,
            max_wimm: plan.max_wimm[side].into(),
            peer_qpn: plan.qpn[1 - side],
            trim_nack: plan.trim_nack[side],
            received: vec![false; packets],
            cack: -1,
            max_received: -1,
            out_of_order: 0,
            rx_bytes: 0,
            messages_done: 0,
            stashed: 0,
            copies: BTreeMap::new(),
            trimmed: BTreeMap::new(),
            probes: BTreeMap::new(),
            deliverable: VecDeque::new(),
            refused: None,
            sack_due: None,
            ack_due: None,
            nak_sent: false,
            seen: Seen::default(),
        }
    }

    /// Whether a packet is there.
    pub fn has(&self, index: usize) -> bool {
        self.received[index]
    }

    /// Its window in PSNs.
    pub fn window(&self) -> i64 {
        self.window
    }

    fn place_of(&self, index: i64) -> Place {
        let ahead = index - (self.cack + 1);
        if ahead < 0 {
            Place::DuplicateBelow
        } else if ahead >= self.window || index >= self.received.len() as i64 {
            Place::OutOfWindow
        } else if self.received[index as usize] {
            Place::DuplicateAbove
        } else {
            Place::New
        }
    }
}

impl Copy {
    fn of(packet: &Packet<'_>) -> Copy {
        let timestamp = packet.tx_timestamp().0;
        Copy {
            entropy: packet.ev.0,
            timestamp,
            ce: packet.ce,
            rtx: packet.bth.rtx,
        }
    }
}

/// What an arriving write has led to.
#[derive(Debug, Clone, Copy)]
pub struct Handled<'a> {
    /// What the protocol said.
    pub disposition: Disposition,
    /// State of the queue pair before.
    pub before: QpState,
    /// State of the queue pair after.
    pub after: QpState,
    /// What it did to the memory.
    pub accesses: &'a [Access],
    /// Receives that the application had posted.
    pub receives: usize,
}

impl Flow {
    /// Judges what became of an arriving write, and remembers it.
    pub fn judge_arrival(&mut self, packet: &Packet<'_>, handled: &Handled<'_>) -> Checked {
        let name = self.name.clone();
        let index = self.index_of(packet.bth.psn);
        let placed: Vec<&Access> = handled
            .accesses
            .iter()
            .filter(|access| access.placed && access.granted)
            .collect();
        if !matches!(handled.before, QpState::Rtr | QpState::Rts) {
            ensure!(
                handled.accesses.is_empty(),
                State,
                "{name}: packet {index} touches memory in {:?}",
                handled.before
            );
            return Ok(());
        }
        if packet.bth.p_key & 0x7fff != 0x7fff {
            let dropped = handled.accesses.is_empty() && matches!(handled.disposition, Disposition::Dropped(_));
            ensure!(
                dropped,
                State,
                "{name}: packet {index} with p_key {:#x} has an effect",
                packet.bth.p_key
            );
            return Ok(());
        }
        let copy = Copy::of(packet);
        let place = self.responder.place_of(index);
        if packet.condition != Condition::Whole {
            self.responder.seen.trimmed += 1;
            ensure!(
                handled.accesses.is_empty(),
                Memory,
                "{name}: trimmed packet {index} touches memory"
            );
            match place {
                Place::New if self.responder.trim_nack => {
                    self.responder.trimmed.entry(index).or_default().push(copy);
                }
                // A duplicate may be answered by a SACK like others; what a mark on it means is left open.
                Place::DuplicateAbove | Place::DuplicateBelow => {
                    self.responder
                        .copies
                        .entry(index)
                        .or_default()
                        .extend([copy, Copy { ce: false, ..copy }]);
                }
                Place::New | Place::OutOfWindow => {}
            }
            return Ok(());
        }
        let seen = &mut self.responder.seen;
        match place {
            Place::New => {}
            Place::DuplicateAbove => seen.duplicates_above += 1,
            Place::DuplicateBelow => seen.duplicates_below += 1,
            Place::OutOfWindow => seen.out_of_window += 1,
        }
        if place != Place::New {
            ensure!(
                placed.is_empty(),
                Memory,
                "{name}: packet {index} is {place:?} and is placed: {placed:?}"
            );
            if place != Place::OutOfWindow {
                self.responder.copies.entry(index).or_default().push(copy);
            }
            let dropped = matches!(handled.disposition, Disposition::Dropped(_));
            ensure!(
                dropped || place != Place::OutOfWindow,
                Memory,
                "{name}: packet {index} lies beyond the window and is accepted"
            );
            return Ok(());
        }
        self.judge_new(packet, index as usize, copy, handled, &placed)
    }

    fn judge_new(
        &mut self,
        packet: &Packet<'_>,
        index: usize,
        copy: Copy,
        handled: &Handled<'_>,
        placed: &[&Access],
    ) -> Checked {
        let name = self.name.clone();
        let facts = self.packets[index];
        let message = &self.messages[facts.message];
        let model = &mut self.responder;
        let is_imm = facts.last && message.imm.is_some();
        let in_order = index as i64 == model.cack + 1;
        let wrong = message.wrong.is_some() && facts.len > 0;
        let stash_full = is_imm && model.stashed >= model.max_wimm;
        if wrong || (stash_full && handled.after == QpState::Err) {
            let syndrome = if wrong { 0x62 } else { 0x61 };
            ensure!(
                placed.is_empty(),
                Memory,
                "{name}: packet {index} must be refused and is placed: {placed:?}"
            );
            ensure!(
                handled.after == QpState::Err,
                State,
                "{name}: packet {index} must be refused, and is not"
            );
            model.seen.refused += 1;
            model.refused = Some((index as i64, syndrome));
            return Ok(());
        }
        ensure!(
            !stash_full || in_order,
            State,
            "{name}: packet {index} finds the stash full and is accepted"
        );
        let va = message.va + u64::from(facts.offset);
        let exact = match placed {
            [] => facts.len == 0,
            [access] => (access.rkey, access.va, access.len) == (message.rkey, va, facts.len.into()),
            _ => false,
        };
        ensure!(
            exact,
            Memory,
            "{name}: packet {index} ({facts:?} at {va:#x}) led to {placed:x?}"
        );
        ensure!(
            handled.disposition == Disposition::Accepted,
            State,
            "{name}: packet {index} is new, right, and {:?}",
            handled.disposition
        );
        model.received[index] = true;
        model.copies.entry(index as i64).or_default().push(copy);
        model.max_received = model.max_received.max(index as i64);
        model.rx_bytes += u64::from(packet.udp_len) + 40;
        model.out_of_order += 1;
        model.stashed += usize::from(is_imm);
        model.seen.out_of_order += u64::from(!in_order);
        let reason = [(packet.bth.a, "a"), (packet.bth.rtx, "rtx"), (packet.ce, "CE")];
        if let Some((_, reason)) = reason.iter().find(|(due, _)| *due) {
            model.sack_due = Some((index as i64, reason));
        }
        while model.received.get((model.cack + 1) as usize) == Some(&true) {
            model.cack += 1;
            model.out_of_order -= 1;
            let facts = self.packets[model.cack as usize];
            let imm = self.messages[facts.message].imm.is_some();
            if facts.last {
                model.messages_done += 1;
                model.ack_due = Some(model.cack);
                if imm {
                    model.stashed -= 1;
                    model.deliverable.push_back(facts.message);
                }
            }
        }
        if model.deliverable.len() > handled.receives {
            // protocol.md §6.6: no receive for the immediate.
            ensure!(
                handled.after == QpState::Err,
                State,
                "{name}: an immediate without a receive, and all goes on"
            );
            model.seen.refused += 1;
            let message = &self.messages[model.deliverable[handled.receives]];
            model.refused = Some(((message.first + message.packets) as i64 - 1, 0x63));
        } else {
            ensure!(
                handled.after == handled.before,
                State,
                "{name}: packet {index} is right and leads to ERR"
            );
        }
        Ok(())
    }

    /// A probe reaches the responder.
    pub fn note_probe(&mut self, packet: &Packet<'_>, peth: &Peth) {
        let copy = Copy::of(packet);
        self.responder.probes.entry(peth.probe_id).or_default().push(copy);
    }

    /// Judges a SACK on its way out (protocol.md §6.5).
    pub fn judge_sack(&mut self, bth: &Bth, seth: &Seth, cc: Option<&CcState>) -> Checked {
        let name = &self.name;
        let model = &self.responder;
        let cack = self.index_of(seth.cack_psn);
        ensure!(
            cack == model.cack,
            Sack,
            "{name}: SACK says cack {cack}, received up to {}",
            model.cack
        );
        ensure!(
            bth.psn == seth.cack_psn && bth.dqp.get() == model.peer_qpn && seth.mpr == 0,
            Sack,
            "{name}: SACK with {bth:?} {seth:?}"
        );
        let base = self.index_of(seth.bitmap_base());
        for bit in 0..64 {
            let index = base + bit;
            let received = index <= model.cack || model.received.get(index as usize) == Some(&true);
            let claimed = seth.sack_bitmap >> bit & 1 == 1;
            // Nothing above the highest PSN received; and the shape of an empty bitmap: protocol.md §6.5.
            let idle = model.max_received <= model.cack;
            ensure!(
                claimed == received || (idle && !claimed && index <= model.cack),
                Sack,
                "{name}: SACK claims packet {index}: {claimed}; received: {received} (cack {cack}, base {base})"
            );
        }
        let Some(cc) = cc else {
            return Err(Breach(Sack, format!("{name}: SACK without CC_STATE")));
        };
        let rcvd = (model.rx_bytes.div_ceil(256) & 0xff_ffff) as u32;
        ensure!(
            u64::from(cc.ooo_count) == model.out_of_order.min(32767) && cc.rcvd_bytes == rcvd,
            Sack,
            "{name}: SACK says {cc:?}; out of order {}, rcvd_bytes {rcvd}",
            model.out_of_order
        );
        let answered = Copy {
            entropy: seth.entropy.0,
            timestamp: cc.tx_timestamp.0,
            ce: seth.m == PathVerdict::SkipOnce,
            rtx: bth.rtx,
        };
        ensure!(seth.m != PathVerdict::AlwaysSkip, Sack, "{name}: SACK with m = 10");
        match (seth.probe_id(), seth.trigger_psn()) {
            (Some(id), _) => {
                let copies = model.probes.get(&id);
                ensure!(
                    copies.is_some_and(|copies| copies.contains(&answered)),
                    Sack,
                    "{name}: SACK answers probe {id}, which came as {copies:?}, with {answered:?}"
                );
            }
            (None, Some(psn)) => {
                let index = self.index_of(psn);
                let copies = model.copies.get(&index);
                ensure!(
                    copies.is_some_and(|copies| copies.contains(&answered)),
                    Sack,
                    "{name}: SACK reflects {answered:?} of packet {index}, which came as {copies:?}"
                );
            }
            (None, None) => {}
        }
        self.responder.sack_due = None;
        Ok(())
    }

    /// Judges a Transport ACK or NAK on its way out (protocol.md §6.7).
    pub fn judge_ack(&mut self, bth: &Bth, aeth: &Aeth) -> Checked {
        let name = &self.name;
        let index = self.index_of(bth.psn);
        let model = &self.responder;
        ensure!(
            !model.nak_sent,
            TransportAck,
            "{name}: Transport ACK {index} after a NAK"
        );
        ensure!(
            bth.dqp.get() == model.peer_qpn,
            TransportAck,
            "{name}: Transport ACK goes to {:?}",
            bth.dqp
        );
        if aeth.meaning() == Syndrome::Ack {
            ensure!(
                index <= model.cack,
                TransportAck,
                "{name}: ACK {index} beyond the hole at {}",
                model.cack + 1
            );
            let done = self
                .packets
                .iter()
                .take((index + 1) as usize)
                .filter(|packet| packet.last)
                .count() as u32;
            ensure!(
                aeth.msn == done & 0xff_ffff && aeth.syndrome == 0x1f,
                TransportAck,
                "{name}: ACK {index} has {aeth:?}, messages done: {done}"
            );
            if self.responder.ack_due.is_some_and(|due| due <= index) {
                self.responder.ack_due = None;
            }
        } else {
            ensure!(
                model.refused == Some((index, aeth.syndrome)),
                TransportAck,
                "{name}: NAK {:#x} of packet {index}; to be refused: {:x?}",
                aeth.syndrome,
                model.refused
            );
            self.responder.nak_sent = true;
        }
        Ok(())
    }

    /// Judges a NACK on its way out (protocol.md §6.8).
    pub fn judge_nack(&mut self, bth: &Bth, neth: &Neth) -> Checked {
        let name = &self.name;
        let index = self.index_of(neth.nack_psn);
        let reflected = (neth.entropy.0, neth.tx_timestamp.0, bth.rtx);
        let earned = self.responder.trimmed.get(&index).is_some_and(|copies| {
            copies
                .iter()
                .any(|copy| (copy.entropy, copy.timestamp, copy.rtx) == reflected)
        });
        let trimmed = matches!(neth.reason, NackReason::TRIMMED | NackReason::TRIMMED_LASTHOP);
        ensure!(
            trimmed && earned,
            Nack,
            "{name}: NACK {neth:?} of packet {index} out of nothing"
        );
        ensure!(bth.psn == neth.nack_psn, Nack, "{name}: NACK with {bth:?} {neth:?}");
        Ok(())
    }

    /// After a turn in which everything could leave: answers that are due were sent (protocol.md §6.4, §6.7).
    pub fn judge_duties(&self) -> Checked {
        let model = &self.responder;
        if let Some((index, reason)) = model.sack_due {
            ensure!(
                false,
                Duty,
                "{}: packet {index} asked for a SACK ({reason}) and got none",
                self.name
            );
        }
        if let Some(index) = model.ack_due {
            ensure!(
                false,
                Duty,
                "{}: packet {index} ended a message and got no Transport ACK",
                self.name
            );
        }
        Ok(())
    }

    /// The responding queue pair has failed: it owes nothing any more.
    pub fn release_duties(&mut self) {
        self.responder.sack_due = None;
        self.responder.ack_due = None;
    }

    /// PSN of the highest packet received in order, for messages.
    pub fn cack_psn(&self) -> Psn {
        self.psn_of(self.responder.cack)
    }
}
