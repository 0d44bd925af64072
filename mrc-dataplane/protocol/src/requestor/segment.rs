//! Which packet goes next, and on which path (protocol.md §5.3).

use mrc_wire::{Bth, Headers, ImmDt, Meth, Opcode, Peth, PortSet, Psn, Reth, TrafficClass, Tseth};

use super::probe::Purpose;
use super::{Env, Requestor};
use crate::path::{Choice, EvIndex, Reason};
use crate::time::{backoff_class, earlier};
use crate::work::{Fragment, Transmit};

/// How far sending may run ahead of the Transport ACK: comparisons of PSNs must stay unambiguous (protocol.md §4).
const MAX_TACK_LAG: i32 = 1 << 22;

impl Requestor {
    /// The lowest PSN that must be sent again.
    pub(crate) fn poll_retransmission(&mut self, env: &mut Env<'_>, room: PortSet) -> Option<Transmit> {
        self.detect_losses(env);
        let ports = room.intersection(env.cc.room());
        if self.waits.resend {
            return self.poll_resend(env, ports);
        }
        let Some(psn) = self.table.first_lost(self.next_psn) else {
            self.waits.caution = None;
            return None;
        };
        // Rule 3.
        if psn.diff(self.unack_psn) > self.limits.window as i32 {
            return None;
        }
        let record = *self.table.record(psn);
        if record.timeouts > 0 && self.waits.caution == Some(0) {
            return None;
        }
        if self.table.record_mut(psn).take_suspect() {
            self.blame(record.ev, record.sent, Reason::Timeout, env);
        }
        // §5.6: a fresh EV.
        let ev = self
            .choose(env, ports, Some(record.ev))
            .or_else(|| self.guarded(env, ports))?;
        let class = backoff_class(u32::from(record.timeouts), self.limits.retry.linear_cnt);
        self.table.depart(psn, ev, class as usize, env.now);
        self.tail.sent(ev, env.now);
        if record.timeouts > 0 {
            self.waits.caution = self.waits.caution.map(|packets| packets.saturating_sub(1));
        }
        env.stats.packets_retransmitted += 1;
        Some(self.emit(psn, ev, true, true, env))
    }

    /// The next packet that was never sent.
    pub(crate) fn poll_new(&mut self, env: &mut Env<'_>, room: PortSet) -> Option<Transmit> {
        // Retransmissions go first, and nothing overtakes them.
        if !self.queue.has_unsent() || self.table.lost_count() > 0 || self.queue.waits_for_wimm(self.limits.max_wimm) {
            return None;
        }
        let psn = self.next_psn;
        if self.must_stop(psn) {
            return None;
        }
        let ports = room.intersection(env.cc.room());
        let ev = self.choose(env, ports, None)?;
        let (place, segment) = self.queue.take(psn, self.conn.pmtu)?;
        self.next_psn = psn.next();
        self.table.admit(psn, place, env.now);
        self.table.depart(psn, ev, 0, env.now);
        self.tail.sent(ev, env.now);
        env.stats.payload_bytes_sent += u64::from(segment.len);
        let ask = segment.opcode.is_last() || self.must_stop(self.next_psn);
        Some(self.emit(psn, ev, false, ask, env))
    }

    /// Rule 3 for a new PSN: the peer's window, and ours of completions.
    fn must_stop(&self, psn: Psn) -> bool {
        psn.diff(self.unack_psn) > self.limits.window as i32 || psn.diff(self.tack_psn) > MAX_TACK_LAG
    }

    /// Rule 5.
    pub(super) fn choose(&mut self, env: &mut Env<'_>, ports: PortSet, avoid: Option<EvIndex>) -> Option<EvIndex> {
        match env.paths.select(ports, avoid, env.now, self.rtt.srtt_ns(env.cc)) {
            Choice::Path(ev) => {
                self.waits.floor = None;
                Some(ev)
            }
            Choice::Wait(until) => {
                self.waits.floor = earlier(self.waits.floor, until);
                None
            }
        }
    }

    /// Deadlock guard (protocol.md §8.3, P23).
    fn guarded(&mut self, env: &mut Env<'_>, ports: PortSet) -> Option<EvIndex> {
        if !self.waits.guard_open {
            return None;
        }
        let ev = env.paths.least_recently_blamed(ports, env.now)?;
        self.waits.guard_open = false;
        self.waits.guard = Some(env.now + self.guard_ns());
        Some(ev)
    }

    /// A packet that was put into the table, or is repeated beside it.
    fn emit(&mut self, psn: Psn, ev: EvIndex, rtx: bool, ask: bool, env: &mut Env<'_>) -> Transmit {
        let place = self.table.record(psn).wr;
        let port = env.paths.entry(ev).port;
        let bytes = self.queue.by_place(place).segment(psn, self.conn.pmtu).nominal_bytes();
        env.cc.on_send(port, bytes);
        // P5: ask when the window is nearly closed, this packet counted.
        let ask = ask || env.cc.nearly_closed(env.paths.usable(), self.sack_gen_threshold_bytes);
        self.write(psn, place, ev, rtx, ask, env)
    }

    fn write(&self, psn: Psn, place: u16, ev: EvIndex, rtx: bool, a: bool, env: &mut Env<'_>) -> Transmit {
        let wr = self.queue.by_place(place);
        let segment = wr.segment(psn, self.conn.pmtu);
        let imm = wr.imm.filter(|_| segment.opcode.has_imm());
        let entry = env.paths.entry(ev);
        env.paths.pay_for_checks();
        env.stats.packets_sent += 1;
        Transmit {
            bth: Bth {
                se: imm.is_some() && wr.solicited,
                pad: (segment.len.wrapping_neg() & 3) as u8,
                p_key: self.conn.p_key,
                a,
                rtx,
                ts: true,
                ..Bth::new(segment.opcode, self.conn.dest_qpn, psn)
            },
            headers: Headers::Write {
                meth: Meth {
                    rqmsn: wr.rqmsn,
                    msn: wr.msn,
                },
                tseth: Some(Tseth::new(env.now.tick())),
                reth: Reth {
                    va: wr.remote_addr.wrapping_add(u64::from(segment.offset)),
                    r_key: wr.r_key,
                    dmalen: wr.len,
                },
                imm: imm.map(ImmDt),
            },
            ev: entry.ev,
            path: ev,
            port: entry.port,
            // protocol.md §12
            class: match (self.conn.trimmable, rtx) {
                (false, _) => TrafficClass::NoTrim,
                (true, false) => TrafficClass::Trimmable,
                (true, true) => TrafficClass::TrimmableRetx,
            },
            ect: true,
            payload: Some(Fragment {
                slot: wr.slot,
                offset: segment.offset,
                len: segment.len,
            }),
            is_retransmission: rtx,
        }
    }

    /// The highest PSN again, to provoke the Transport ACK (P9). Everything was delivered, so it is not in flight.
    fn poll_resend(&mut self, env: &mut Env<'_>, ports: PortSet) -> Option<Transmit> {
        let psn = self.last_in_window();
        let counter = self.queue.owner(psn)?;
        let ev = self.choose(env, ports, None)?;
        self.waits.resend = false;
        env.stats.packets_retransmitted += 1;
        env.stats.ack_resends += 1;
        Some(self.write(psn, self.queue.place_of(counter), ev, true, true, env))
    }

    /// A reliability probe that is due (protocol.md §9.1): not limited by window or MPR, and not in flight.
    pub(crate) fn poll_probe(&mut self, env: &mut Env<'_>, room: PortSet) -> Option<Transmit> {
        let wants_base = env.cc.wants_base_probe();
        if !(self.waits.probe || self.tail.wanted || wants_base || env.paths.has_checks()) || self.probes.is_full() {
            return None;
        }
        let (ev, purpose) = if self.waits.probe
            && let Some(ev) = self.choose(env, room, None)
        {
            self.waits.probe = false;
            (ev, Purpose::TransportAck)
        } else if self.tail.wanted
            && let Some(ev) = self.choose_for_tail(env, room)
        {
            self.tail.probed(ev);
            env.stats.tail_probes_sent += 1;
            (ev, Purpose::Tail)
        } else if wants_base && let Some(ev) = self.choose(env, room, None) {
            env.cc.on_base_probe_sent();
            (ev, Purpose::BaseRtt)
        } else {
            (env.paths.poll_check(room, env.now)?, Purpose::Check)
        };
        let probe_id = self.probes.add(purpose, ev, env.now, self.rtt.probe_timeout_ns(env.cc));
        let entry = env.paths.entry(ev);
        env.stats.probes_sent += 1;
        Some(Transmit {
            bth: Bth {
                p_key: self.conn.p_key,
                ..Bth::new(Opcode::Probe, self.conn.dest_qpn, Psn::new(0))
            },
            headers: Headers::Probe(Peth {
                probe_id,
                spdcid: self.conn.qpn.low16(),
                dpdcid: self.conn.dest_qpn.low16(),
                tx_timestamp: env.now.tick(),
                ftype: Tseth::FTYPE_PRESENT,
            }),
            ev: entry.ev,
            path: ev,
            port: entry.port,
            // protocol.md §12
            class: if purpose == Purpose::BaseRtt {
                TrafficClass::Control
            } else {
                TrafficClass::NoTrim
            },
            ect: true,
            payload: None,
            is_retransmission: false,
        })
    }
}
