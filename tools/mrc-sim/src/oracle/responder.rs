//! What a responder must do with what arrives, and what it may say (protocol.md §6).

use crate::ensure;
use crate::memory::Access;
use crate::oracle::Checked;
use crate::oracle::Oracle::{Memory, State};
use crate::oracle::budget::Budget;
use crate::oracle::flow::Flow;
use crate::oracle::shortage::Lacks;
use crate::scenario::ConnectionPlan;
use mrc_protocol::{Disposition, QpState};
use mrc_wire::{Condition, Packet, Peth, Psn, Tick};
use std::collections::{BTreeMap, VecDeque};

/// The receiving end of a flow, as the specification has it.
#[derive(Debug)]
pub struct ResponderModel {
    window: i64,
    /// The largest window that it ever announced.
    announced: i64,
    windows_change: bool,
    max_wimm: usize,
    pub(super) peer_qpn: u32,
    trim_nack: bool,
    /// It reflects stamps without its service time.
    pub(super) svc_time: bool,
    pub(super) received: Vec<bool>,
    /// Highest packet such that it and all before were received; -1: none.
    pub cack: i64,
    pub(super) max_received: i64,
    pub(super) out_of_order: u64,
    pub(super) rx_bytes: u64,
    /// Received immediates above `cack`.
    stashed: usize,
    /// Copies that arrived whole, by packet; damage may show packets that do not exist.
    pub(super) copies: BTreeMap<i64, Vec<Copy>>,
    /// Copies that arrived cut and earned a NACK, by packet. Without an ICRC, damage shows packets that were never sent
    /// (wire-format.md §10).
    pub(super) trimmed: BTreeMap<i64, Vec<Copy>>,
    /// Copies beyond the window, but inside one announced before, by packet.
    pub(super) withdrawn: BTreeMap<i64, Vec<Copy>>,
    /// Probes that arrived, by id; a copy made on the way may carry another mark.
    pub(super) probes: BTreeMap<u16, Vec<Copy>>,
    /// Immediates whose turn has come and whose receive completions are due, as message numbers.
    pub deliverable: VecDeque<usize>,
    /// A write that must be refused has arrived: its packet and the syndromes that may refuse it.
    pub refused: Option<(i64, u8)>,
    /// What was not taken for want of something.
    pub lacks: Lacks,
    /// The request for a SACK that has not been answered.
    pub(super) sack_due: Option<(i64, &'static str)>,
    pub(super) ack_due: Option<i64>,
    pub(super) nak_sent: bool,
    /// Rules of the protocol that it has followed, and how often.
    pub exercised: BTreeMap<&'static str, u64>,
    /// What the threshold of SACKs is compared with: bytes since the last one.
    pub(super) unsacked_bytes: u64,
    /// When the first of them arrived.
    pub(super) unsacked_ns: Option<u64>,
    /// It has sent a SACK, and has had something to say all the time since.
    pub in_burst: bool,
    pub(super) sack_threshold: u64,
    /// The same of new packets alone: those that alone are sure to count.
    pub(super) new_bytes: u64,
    /// What limits its answers.
    pub(super) budget: Budget,
    /// How full the receiving side said that it is.
    pub pressure: Option<(u32, u32)>,
    /// Bytes of data placed, each once.
    pub placed_bytes: u64,
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
    /// Beyond the window, but inside one announced before.
    pub withdrawn: u64,
    /// New packets that were not the expected one.
    pub out_of_order: u64,
    /// Cut packets.
    pub trimmed: u64,
    /// Writes refused.
    pub refused: u64,
}

/// What a copy brought along and an answer may reflect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) entropy: u32,
    pub(super) timestamp: u16,
    /// When it arrived.
    pub(super) at: Tick,
    pub(super) ce: bool,
    pub(super) rtx: bool,
    pub(super) a: bool,
}

/// Where an arriving PSN lies (protocol.md §6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    New,
    DuplicateAbove,
    DuplicateBelow,
    /// Beyond the window, but inside one announced before.
    Withdrawn,
    OutOfWindow,
}

impl ResponderModel {
    /// The end at `side` before anything arrived.
    pub fn new(plan: &ConnectionPlan, side: usize, packets: usize) -> ResponderModel {
        ResponderModel {
            window: i64::from(plan.mpr[side]) * 128,
            announced: i64::from(plan.mpr[side]) * 128,
            windows_change: plan.windows_change(),
            max_wimm: plan.max_wimm[side].into(),
            peer_qpn: plan.qpn[1 - side],
            trim_nack: plan.trim_nack[side],
            svc_time: plan.svc_time[side],
            received: vec![false; packets],
            cack: -1,
            max_received: -1,
            out_of_order: 0,
            rx_bytes: 0,
            stashed: 0,
            copies: BTreeMap::new(),
            trimmed: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            probes: BTreeMap::new(),
            deliverable: VecDeque::new(),
            refused: None,
            lacks: Lacks::default(),
            sack_due: None,
            ack_due: None,
            nak_sent: false,
            exercised: BTreeMap::new(),
            unsacked_bytes: 0,
            unsacked_ns: None,
            in_burst: false,
            sack_threshold: plan.sack_gen_threshold.into(),
            new_bytes: 0,
            budget: Budget::new(plan, side),
            pressure: None,
            placed_bytes: 0,
            seen: Seen::default(),
        }
    }

    /// Whether a packet is there.
    pub fn has(&self, index: usize) -> bool {
        self.received[index]
    }

    /// It announces another window from now on, in units of 128 PSNs (protocol.md §5.4).
    pub fn announce(&mut self, mpr: u8) {
        self.window = i64::from(mpr) * 128;
        self.announced = self.announced.max(self.window);
    }

    /// A packet counts for the threshold of SACKs (protocol.md §6.4).
    fn count(&mut self, packet: &Packet<'_>, at_ns: u64) {
        self.unsacked_bytes += (u64::from(packet.udp_len) + 40).max(1024);
        self.unsacked_ns.get_or_insert(at_ns);
    }

    /// What its SACKs say of the window.
    pub(super) fn mpr(&self) -> i64 {
        if self.windows_change { self.window / 128 } else { 0 }
    }

    /// In the window, but no packet of this flow.
    fn is_unknown(&self, index: i64) -> bool {
        index >= self.received.len() as i64 && index - (self.cack + 1) < self.window
    }

    pub(super) fn place_of(&self, index: i64) -> Place {
        let ahead = index - (self.cack + 1);
        if ahead < 0 {
            Place::DuplicateBelow
        } else if ahead >= self.announced || index >= self.received.len() as i64 {
            Place::OutOfWindow
        } else if self.received[index as usize] {
            // Even beyond a window that shrank.
            Place::DuplicateAbove
        } else if ahead >= self.window {
            Place::Withdrawn
        } else {
            Place::New
        }
    }
}

impl Copy {
    pub(super) fn of(packet: &Packet<'_>, at: Tick) -> Copy {
        let timestamp = packet.tx_timestamp().0;
        Copy {
            entropy: packet.ev.0,
            timestamp,
            at,
            ce: packet.ce,
            rtx: packet.bth.rtx,
            a: packet.bth.a,
        }
    }

    /// What a SACK says about it at `now`: with service time, a stamp that is later by the time it waited (protocol.md §6.9).
    pub(super) fn reflected(&self, svc_time: bool, now: Tick) -> Copy {
        let waited = now.0.wrapping_sub(self.at.0);
        Copy {
            // 0 would mean that there was none.
            timestamp: match self.timestamp {
                stamp @ 1.. if svc_time => stamp.wrapping_add(waited).max(1),
                stamp => stamp,
            },
            a: false,
            at: now,
            ..*self
        }
    }
}

/// What an arriving write has led to.
#[derive(Debug, Clone, Copy)]
pub struct Handled<'a> {
    /// When, by the host's clock.
    pub at_ns: u64,
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
    /// Whether this PSN lies in the window and has not been received.
    pub fn is_new(&self, psn: Psn) -> bool {
        self.responder.place_of(self.index_of(psn)) == Place::New
    }

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
        let copy = Copy::of(packet, Tick::from_ns(handled.at_ns));
        let place = self.responder.place_of(index);
        if packet.condition != Condition::Whole {
            self.responder.seen.trimmed += 1;
            ensure!(
                handled.accesses.is_empty(),
                Memory,
                "{name}: trimmed packet {index} touches memory"
            );
            let unknown = self.responder.is_unknown(index);
            match place {
                Place::OutOfWindow if unknown && self.responder.trim_nack => {
                    self.responder.trimmed.entry(index).or_default().push(copy);
                }
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
                Place::New | Place::Withdrawn | Place::OutOfWindow => {}
            }
            return Ok(());
        }
        let seen = &mut self.responder.seen;
        match place {
            Place::New => {}
            Place::DuplicateAbove => seen.duplicates_above += 1,
            Place::DuplicateBelow => seen.duplicates_below += 1,
            Place::Withdrawn => seen.withdrawn += 1,
            Place::OutOfWindow => seen.out_of_window += 1,
        }
        if place != Place::New {
            ensure!(
                placed.is_empty(),
                Memory,
                "{name}: packet {index} is {place:?} and is placed: {placed:?}"
            );
            let model = &mut self.responder;
            match place {
                Place::OutOfWindow => {}
                Place::Withdrawn => model.withdrawn.entry(index).or_default().push(copy),
                _ => {
                    model.count(packet, handled.at_ns);
                    model.copies.entry(index).or_default().push(copy);
                }
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
        if let Some(error) = handled.accesses.iter().find_map(|access| access.trouble) {
            return self.judge_trouble(index, copy, handled, error);
        }
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
        model.budget.earn();
        model.placed_bytes += u64::from(facts.len);
        model.copies.entry(index as i64).or_default().push(copy);
        model.max_received = model.max_received.max(index as i64);
        model.rx_bytes += u64::from(packet.udp_len) + 40;
        model.new_bytes += (u64::from(packet.udp_len) + 40).max(1024);
        model.count(packet, handled.at_ns);
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
                model.ack_due = Some(model.cack);
                if imm {
                    let waited = model.cack != index as i64;
                    let rule = if waited {
                        "§6.6 immediate waits for earlier packets"
                    } else {
                        "§6.6 immediate in its turn"
                    };
                    *model.exercised.entry(rule).or_default() += 1;
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
    pub fn note_probe(&mut self, packet: &Packet<'_>, peth: &Peth, at: Tick) {
        let copy = Copy::of(packet, at);
        self.responder.probes.entry(peth.probe_id).or_default().push(copy);
    }
}
