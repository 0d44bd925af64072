//! What a requestor may send, and what it knows (protocol.md §5).

use crate::ensure;
use crate::oracle::Oracle::{Retransmission, Segmentation, Window, WriteImm};
use crate::oracle::flight::Tolerance;
use crate::oracle::flow::Flow;
use crate::oracle::{Checked, Oracle};
use crate::scenario::ConnectionPlan;
use mrc_protocol::Transmit;
use mrc_wire::{Aeth, Bth, CcState, Headers, Psn, Seth, Syndrome, Tick, TrafficClass};
use std::collections::BTreeMap;

/// The sending end of a flow, as far as the network shows it.
#[derive(Debug)]
pub struct RequestorModel {
    window: i64,
    /// Its own limit of the window.
    max_window: i64,
    windows_change: bool,
    /// How new the SACK is that the window is from: its `cack_psn` and `rcvd_bytes`.
    window_news: Option<(i64, u32)>,
    wimm_limit: usize,
    dest_qpn: u32,
    /// Writes may be trimmed: both the fabric and the peer know how.
    trimmable: bool,
    /// Messages that the application has posted.
    pub posted: usize,
    /// Packets sent at least once: they are the first so many.
    pub sent: usize,
    /// Retransmissions.
    pub resent: u64,
    /// Highest packet covered by a cumulative acknowledgement that arrived here; -1: none.
    pub unack: i64,
    /// Highest packet covered by a Transport ACK that arrived here; -1: none.
    pub transport_acked: i64,
    packets: Vec<SentPacket>,
    acked: usize,
    /// Rules of the protocol that it has followed, and how often.
    pub exercised: BTreeMap<&'static str, u64>,
    /// Messages with an immediate, by their last packets, sent in part or whole and not yet transport-acked.
    wimm_inflight: std::collections::VecDeque<i64>,
}

/// What is known of a packet at the sending end.
#[derive(Debug, Clone, Copy, Default)]
pub struct SentPacket {
    /// Times sent.
    pub copies: u32,
    /// Path of the last copy: EV and port.
    pub path: (u32, u8),
    /// An acknowledgement of any kind has arrived.
    pub acked: bool,
}

impl RequestorModel {
    /// The end at `side` before anything was sent.
    pub fn new(plan: &ConnectionPlan, side: usize, packets: usize) -> RequestorModel {
        RequestorModel {
            window: i64::from(plan.mpr[1 - side]) * 128,
            max_window: i64::from(plan.max_mpr()) * 128,
            windows_change: plan.windows_change(),
            window_news: None,
            wimm_limit: plan.believed_wimm[1 - side].into(),
            dest_qpn: plan.qpn[1 - side],
            trimmable: plan.fabric_trims && plan.trim_nack[1 - side],
            posted: 0,
            sent: 0,
            resent: 0,
            unack: -1,
            transport_acked: -1,
            packets: vec![SentPacket::default(); packets],
            acked: 0,
            exercised: BTreeMap::new(),
            wimm_inflight: std::collections::VecDeque::new(),
        }
    }

    /// The record of a packet.
    pub fn packet(&self, index: usize) -> SentPacket {
        self.packets[index]
    }

    /// Everything sent was acknowledged in some way.
    pub fn all_acked(&self) -> bool {
        self.acked == self.sent
    }

    /// Packets sent and not acknowledged in any way.
    pub fn unanswered(&self) -> usize {
        self.sent - self.acked
    }

    fn mark(&mut self, index: i64) {
        if let Some(packet) = usize::try_from(index)
            .ok()
            .and_then(|index| self.packets.get_mut(index))
        {
            self.acked += usize::from(!packet.acked);
            packet.acked = true;
        }
    }

    /// The window that a SACK announces, unless a newer one has come (protocol.md §5.4).
    fn learn_window(&mut self, mpr: u8, news: (i64, u32)) {
        // `rcvd_bytes` counts modulo 2^24.
        let older = |known: (i64, u32)| {
            let fewer = known.1.wrapping_sub(news.1) & 0xff_ffff;
            news.0 < known.0 || (news.0 == known.0 && (1..1 << 23).contains(&fewer))
        };
        if !self.windows_change || mpr == 0 || self.window_news.is_some_and(older) {
            return;
        }
        self.window_news = Some(news);
        let before = self.window;
        self.window = (i64::from(mpr) * 128).min(self.max_window);
        let rule = match self.window - before {
            0 => return,
            1.. => "§5.4 window grows",
            _ if self.sent as i64 - 1 - self.unack.max(news.0) > self.window => "§5.4 window shrinks below what is out",
            _ => "§5.4 window shrinks",
        };
        *self.exercised.entry(rule).or_default() += 1;
    }

    fn mark_through(&mut self, index: i64) {
        for earlier in (self.unack + 1)..=index {
            self.mark(earlier);
        }
        self.unack = self.unack.max(index);
    }
}

impl Flow {
    /// Judges a write on its way out, and remembers it. `slot` is the slot of its message.
    pub fn judge_write(&mut self, sent: &Transmit, slot: Option<u32>, tolerance: Tolerance) -> Checked {
        let now_ns = tolerance.now_ns;
        let bth = &sent.bth;
        let index = self.index_of(bth.psn);
        let name = &self.name;
        let Headers::Write { meth, tseth, reth, imm } = &sent.headers else {
            ensure!(
                false,
                Segmentation,
                "{name}: opcode {:?} with headers {:?}",
                bth.opcode,
                sent.headers
            );
            return Ok(());
        };
        let model = &self.requestor;
        ensure!(
            index >= 0 && index <= model.sent as i64 && index < self.packets.len() as i64,
            Segmentation,
            "{name}: packet {index} sent when {} were: PSNs are consecutive",
            model.sent
        );
        let at = index as usize;
        let (new, packet) = (at == model.sent, self.packets[at]);
        let message = &self.messages[packet.message];
        ensure!(
            packet.message < model.posted,
            Segmentation,
            "{name}: packet {at} of a message nobody posted"
        );
        ensure!(
            bth.opcode == packet.opcode,
            Segmentation,
            "{name}: packet {at} is {:?}, not {:?}",
            packet.opcode,
            bth.opcode
        );
        ensure!(
            (meth.msn, meth.rqmsn) == (packet.message as u16, message.rqmsn),
            Segmentation,
            "{name}: packet {at} of message {} (immediate {}) has {meth:?}",
            packet.message,
            message.rqmsn
        );
        let va = message.va.wrapping_add(packet.offset.into());
        ensure!(
            (reth.va, reth.r_key, reth.dmalen) == (va, message.rkey, message.len),
            Segmentation,
            "{name}: packet {at} has {reth:x?}, not va {va:#x} r_key {:#x} dmalen {}",
            message.rkey,
            message.len
        );
        let expected_imm = if packet.last { message.imm } else { None };
        ensure!(
            imm.map(|imm| imm.0) == expected_imm,
            Segmentation,
            "{name}: packet {at} has immediate {imm:?}"
        );
        let solicited = packet.last && message.solicited;
        ensure!(
            bth.se == solicited,
            Segmentation,
            "{name}: packet {at} has SE = {}, asked: {solicited}",
            bth.se
        );
        let fragment = sent
            .payload
            .map(|fragment| (fragment.slot, fragment.offset, fragment.len));
        let data_ok = match (fragment, slot) {
            (Some((found, offset, len)), Some(slot)) => (found, offset, len) == (slot, packet.offset, packet.len),
            _ => packet.len == 0,
        };
        ensure!(
            data_ok,
            Segmentation,
            "{name}: packet {at} takes {:?}, not {packet:?} of slot {slot:?}",
            sent.payload
        );
        ensure!(
            bth.rtx != new && sent.is_retransmission != new,
            Segmentation,
            "{name}: packet {at} has rtx = {}, sent {} times before",
            bth.rtx,
            model.packets[at].copies
        );
        ensure!(
            bth.ts && tseth.is_some_and(|tseth| tseth.tx_timestamp == Tick::from_ns(now_ns) && !tseth.tsr),
            Segmentation,
            "{name}: packet {at} has ts = {}, {tseth:?}",
            bth.ts
        );
        ensure!(
            bth.dqp.get() == model.dest_qpn && bth.p_key == 0xffff,
            Segmentation,
            "{name}: packet {at} goes to {:?}",
            bth.dqp
        );
        let ahead = index - model.unack;
        // What was delivered is in no window; below is judged whether it may be sent.
        let delivered = !new && model.packets[at].acked;
        ensure!(
            ahead <= model.window || delivered,
            Window,
            "{name}: packet {at} is {ahead} ahead, window {}",
            model.window
        );
        let must_ask = packet.last || !new || ahead == model.window;
        ensure!(
            bth.a || !must_ask,
            Oracle::Duty,
            "{name}: packet {at} (last {}, repeated {}, {ahead} ahead of window {}) does not ask for an acknowledgement",
            packet.last,
            !new,
            model.window
        );
        if new && packet.offset == 0 && message.imm.is_some() {
            ensure!(
                model.wimm_inflight.len() < model.wimm_limit,
                WriteImm,
                "{name}: message {} is WriteIMM number {} in flight",
                packet.message,
                model.wimm_inflight.len() + 1
            );
        }
        if !new && model.packets[at].acked {
            // protocol.md §5.8: only when all is acknowledged and the Transport ACK is missing, the highest one again.
            ensure!(
                model.all_acked() && at + 1 == model.sent,
                Retransmission,
                "{name}: packet {at} is sent again after its acknowledgement"
            );
        }
        if new || !model.packets[at].acked {
            // UDP length + 40 (protocol.md §5.1).
            let bytes = 48 + Bth::LEN as u32 + sent.headers.wire_len() as u32 + packet.len.next_multiple_of(4) + 4;
            let path = (sent.ev.0, sent.port.get());
            self.flight.judge_send(name, index, path, bytes, tolerance)?;
        }
        let limit_reached = new
            && packet.offset == 0
            && message.imm.is_some()
            && self.requestor.wimm_inflight.len() + 1 == self.requestor.wimm_limit;
        let followed = [
            ("§5.3 3 responder's window closes", ahead == self.requestor.window),
            ("§5.3 4 limit of WriteIMM is reached", limit_reached),
            (
                "§8.3 fresh path for a retransmission",
                !new && self.requestor.packets[at].path != (sent.ev.0, sent.port.get()),
            ),
            ("§12 trimmable write", sent.class == TrafficClass::Trimmable),
            ("§12 trimmable write again", sent.class == TrafficClass::TrimmableRetx),
        ];
        for (rule, _) in followed.iter().filter(|(_, followed)| *followed) {
            *self.requestor.exercised.entry(rule).or_default() += 1;
        }
        let last_of_message = (message.first + message.packets) as i64 - 1;
        let is_first_of_wimm = new && packet.offset == 0 && message.imm.is_some();
        let model = &mut self.requestor;
        if is_first_of_wimm {
            model.wimm_inflight.push_back(last_of_message);
        }
        if new {
            model.sent += 1;
        } else {
            model.resent += 1;
        }
        let record = &mut model.packets[at];
        record.copies += 1;
        record.path = (sent.ev.0, sent.port.get());
        Ok(())
    }

    /// A SACK reaches the requestor.
    pub fn learn_sack(&mut self, seth: &Seth, cc: Option<&CcState>, now_ns: u64) {
        let newest = self.requestor.sent as i64 - 1;
        let cack = self.index_of(seth.cack_psn);
        let base = self.index_of(seth.bitmap_base());
        let bits = (0..64)
            .filter(|bit| seth.sack_bitmap >> bit & 1 == 1)
            .map(|bit| base + bit);
        let trigger = seth.trigger_psn().map(|psn| self.index_of(psn));
        let facts: Vec<i64> = bits.chain(trigger).collect();
        if cack > newest || facts.iter().any(|index| *index > newest) {
            return; // protocol.md §5.5 step 1
        }
        if let Some(cc) = cc {
            self.requestor.learn_window(seth.mpr, (cack, cc.rcvd_bytes));
        }
        self.requestor.mark_through(cack);
        self.flight.acked_through(cack, now_ns);
        if let Some(id) = seth.probe_id() {
            self.flight.probe_answered(id);
        }
        for index in facts {
            self.requestor.mark(index);
            self.flight.acked(index, now_ns);
        }
    }

    /// A Transport ACK reaches the requestor.
    pub fn learn_ack(&mut self, psn: Psn, aeth: &Aeth, now_ns: u64) {
        let index = self.index_of(psn);
        if aeth.meaning() != Syndrome::Ack || index >= self.requestor.sent as i64 {
            return;
        }
        self.flight.acked_through(index, now_ns);
        let model = &mut self.requestor;
        model.mark_through(index);
        model.transport_acked = model.transport_acked.max(index);
        while model
            .wimm_inflight
            .front()
            .is_some_and(|last| *last <= model.transport_acked)
        {
            model.wimm_inflight.pop_front();
        }
    }

    /// Judges the traffic class and the ECN capability of a packet from this side (protocol.md §12; wire-format.md §4).
    pub fn judge_class(&self, sent: &Transmit) -> Checked {
        let request = matches!(sent.headers, Headers::Write { .. } | Headers::Probe(_));
        let expected: &[TrafficClass] = match (&sent.headers, self.requestor.trimmable) {
            (Headers::Write { .. }, true) if sent.bth.rtx => &[TrafficClass::TrimmableRetx],
            (Headers::Write { .. }, true) => &[TrafficClass::Trimmable],
            (Headers::Write { .. }, false) => &[TrafficClass::NoTrim],
            // The probe for the base RTT is to meet no queue.
            (Headers::Probe(_), _) => &[TrafficClass::NoTrim, TrafficClass::Control],
            _ => &[TrafficClass::Control],
        };
        ensure!(
            expected.contains(&sent.class) && sent.ect == request,
            Segmentation,
            "{}: {:?} (rtx {}) goes as {:?}, ECN-capable {}",
            self.name,
            sent.bth.opcode,
            sent.bth.rtx,
            sent.class,
            sent.ect
        );
        Ok(())
    }

    /// Judges a probe on its way out.
    pub fn judge_probe(&mut self, bth: &Bth, id: u16, now_ns: u64) -> Checked {
        self.flight.probed(id, now_ns);
        let dest = self.requestor.dest_qpn;
        ensure!(
            bth.dqp.get() == dest && bth.psn.get() == 0,
            Segmentation,
            "{}: probe with {bth:?}",
            self.name
        );
        Ok(())
    }
}
