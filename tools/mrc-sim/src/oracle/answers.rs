//! What a responder may say, given what it has received (protocol.md §6.4 to §6.8).

use crate::ensure;
use crate::oracle::Oracle::{Duty, Nack, Sack, TransportAck};
use crate::oracle::flow::Flow;
use crate::oracle::responder::Copy;
use crate::oracle::shortage;
use crate::oracle::{Breach, Checked};
use mrc_wire::{Aeth, Bth, CcState, NackReason, Neth, PathVerdict, Seth, Syndrome, Tick};

impl Flow {
    /// Judges a SACK on its way out (protocol.md §6.5).
    pub fn judge_sack(&mut self, bth: &Bth, seth: &Seth, cc: Option<&CcState>, now_ns: u64) -> Checked {
        let now = Tick::from_ns(now_ns);
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
            bth.psn == seth.cack_psn && bth.dqp.get() == model.peer_qpn && i64::from(seth.mpr) == model.mpr(),
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
            at: now,
            ce: seth.m == PathVerdict::SkipOnce,
            rtx: bth.rtx,
            a: false,
        };
        // Whether a copy asked for a SACK does not show in the SACK.
        let is_answered = |copy: &Copy| copy.reflected(model.svc_time, now) == answered;
        ensure!(seth.m != PathVerdict::AlwaysSkip, Sack, "{name}: SACK with m = 10");
        match (seth.probe_id(), seth.trigger_psn()) {
            (Some(id), _) => {
                let copies = model.probes.get(&id);
                ensure!(
                    copies.is_some_and(|copies| copies.iter().any(is_answered)),
                    Sack,
                    "{name}: SACK answers probe {id}, which came as {copies:?}, with {answered:?}"
                );
            }
            (None, Some(psn)) => {
                let index = self.index_of(psn);
                let copies = model.copies.get(&index);
                // A very old duplicate, whose distance has no place in the field, goes by the name of cack_psn (protocol.md §6.5).
                let old = i64::from(i16::MIN);
                let ancient = || {
                    let mut ancient = model.copies.range(..cack + old);
                    index == cack && ancient.any(|(_, copies)| copies.iter().any(is_answered))
                };
                ensure!(
                    copies.is_some_and(|copies| copies.iter().any(is_answered)) || ancient(),
                    Sack,
                    "{name}: SACK reflects {answered:?} of packet {index}, which came as {copies:?}"
                );
            }
            (None, None) => {}
        }
        judge_penalty(name, model.pressure, cc)?;
        let copies = seth.trigger_psn().and_then(|psn| model.copies.get(&self.index_of(psn)));
        let asked = copies.is_some_and(|copies| copies.iter().any(|copy| is_answered(copy) && copy.a));
        let again = copies.is_some_and(|copies| copies.len() > 1);
        let old =
            seth.trigger_psn() == Some(seth.cack_psn) && !copies.is_some_and(|copies| copies.iter().any(is_answered));
        let trigger = if seth.pr {
            "§6.4 probe"
        } else if answered.ce {
            "§6.4 CE"
        } else if old {
            "§6.5 very old duplicate"
        } else if answered.rtx {
            "§6.4 rtx"
        } else if again {
            "§6.4 duplicate"
        } else if asked {
            "§6.4 a"
        } else if model.unsacked_bytes >= model.sack_threshold.max(1) {
            "§6.4 threshold"
        } else if model
            .unsacked_ns
            .is_some_and(|since_ns| now_ns >= since_ns + SACK_HOLD_NS)
        {
            "§6.4 hold timer"
        } else {
            // More than one shows, or what another one has answered meanwhile.
            ensure!(
                model.in_burst,
                Sack,
                "{name}: SACK of packet {:?} without a cause: {} bytes since {:?} ns, threshold {}",
                seth.trigger_psn().map(|psn| self.index_of(psn)),
                model.unsacked_bytes,
                model.unsacked_ns,
                model.sack_threshold
            );
            "§6.5 bitmap away from cack_psn"
        };
        let waited = copies.is_some_and(|copies| {
            copies
                .iter()
                .any(|copy| is_answered(copy) && copy.timestamp != answered.timestamp)
        });
        let model = &mut self.responder;
        let mut follow = |rule| *model.exercised.entry(rule).or_default() += 1;
        follow(trigger);
        if base > cack + 1 {
            follow("§6.5 bitmap away from cack_psn");
        }
        if waited {
            follow("§6.9 service time");
        }
        if cc.rcv_cwnd_pen > 0 {
            follow("§11 penalty");
        }
        (model.unsacked_bytes, model.unsacked_ns) = (0, None);
        model.in_burst = true;
        // §9.1: an answer may come in parts, of which the first begins behind cack_psn.
        if seth.pr && base <= cack + 1 {
            model.budget.answer_probe(&self.name, now_ns)?;
        }
        model.new_bytes = 0;
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
            "{name}: Transport ACK {index} after a NAK, or after it broke down"
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
    pub fn judge_nack(&mut self, bth: &Bth, neth: &Neth, now_ns: u64) -> Checked {
        let name = &self.name;
        let index = self.index_of(neth.nack_psn);
        let reflected = (neth.entropy.0, neth.tx_timestamp.0, bth.rtx);
        let same = |copy: &Copy| (copy.entropy, copy.timestamp, copy.rtx) == reflected;
        let lacks = &mut self.responder.lacks;
        let lacking = match neth.reason {
            NackReason::UNEXP_EVENT => lacks.tell(index).is_some_and(|copy| same(&copy)),
            reason => (lacks.copies.get(&index).into_iter().flatten()).any(|(copy, why)| same(copy) && *why == reason),
        };
        let earning = match neth.reason {
            NackReason::TRIMMED | NackReason::TRIMMED_LASTHOP => self.responder.trimmed.get(&index),
            NackReason::PSN_OOR_WINDOW => self.responder.withdrawn.get(&index),
            _ => None,
        };
        let earned = lacking || earning.is_some_and(|copies| copies.iter().any(same));
        ensure!(earned, Nack, "{name}: NACK {neth:?} of packet {index} out of nothing");
        ensure!(bth.psn == neth.nack_psn, Nack, "{name}: NACK with {bth:?} {neth:?}");
        let model = &mut self.responder;
        model.lacks.answered(index);
        if neth.reason != NackReason::UNEXP_EVENT {
            model.budget.nack(&self.name, now_ns)?;
        }
        // protocol.md §5.9: after it nothing follows.
        model.nak_sent |= model.lacks.broke();
        if let Some(rule) = shortage::rule(neth.reason) {
            *model.exercised.entry(rule).or_default() += 1;
        }
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
        ensure!(
            model.lacks.due.is_empty(),
            Duty,
            "{}: packets {:?} could not be taken and got no NACK",
            self.name,
            model.lacks.due
        );
        let most = model.sack_threshold.max(1);
        ensure!(
            model.new_bytes < most,
            Duty,
            "{}: {} bytes of new packets without a SACK, threshold {most}",
            self.name,
            model.new_bytes
        );
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

    /// The same of one that has failed: it owes the last word (protocol.md §5.9, §6.3 step 2).
    pub fn judge_parting(&self) -> Checked {
        let model = &self.responder;
        ensure!(
            model.nak_sent || model.refused.is_none() && !model.lacks.broke(),
            Duty,
            "{}: {:x?} was refused, {:?} failed, and nobody is told",
            self.name,
            model.refused,
            model.lacks
        );
        Ok(())
    }

    /// The responding queue pair has failed: it owes nothing any more but to say why.
    pub fn release_duties(&mut self) {
        self.responder.lacks.due.clear();
        self.responder.sack_due = None;
        self.responder.ack_due = None;
        self.responder.new_bytes = 0;
    }
}

/// Longest time without a SACK for what has arrived (protocol.md §6.4, P13).
const SACK_HOLD_NS: u64 = 20_000;

/// What the responder asks for follows from what it was told of its receiving side (protocol.md §11, P27).
fn judge_penalty(name: &str, pressure: Option<(u32, u32)>, cc: &CcState) -> Checked {
    let (used, capacity) = pressure.unwrap_or_default();
    let percent = if capacity == 0 {
        0.0
    } else {
        100.0 * f64::from(used) / f64::from(capacity)
    };
    let linear = 127.0 * (percent - 50.0) / 45.0;
    let (least, most) = match percent {
        ..40.0 => (0.0, 0.0),
        ..50.0 => (0.0, 1.0),
        ..95.0 => (linear.floor(), linear.ceil().max(1.0)),
        _ => (127.0, 127.0),
    };
    let pen = f64::from(cc.rcv_cwnd_pen);
    ensure!(
        (least..=most).contains(&pen) && cc.rc == pressure.is_some(),
        Sack,
        "{name}: SACK asks for {cc:?} with {used} of {capacity} places taken"
    );
    Ok(())
}
