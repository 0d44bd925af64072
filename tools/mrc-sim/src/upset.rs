//! Carries out the upsets of a scenario.

use crate::codec::Route;
use crate::coverage::FaultTag;
use crate::ensure;
use crate::fabric::frame::{Data, Frame};
use crate::host::Host;
use crate::oracle::balance::Balance;
use crate::oracle::completion::WorkModel;
use crate::oracle::flow::Flow;
use crate::oracle::{Breach, Checked, Oracle};
use crate::scenario::upset::Upset;
use crate::tap::{self, Seen};
use crate::trace;
use crate::world::{Event, World};
use mrc_protocol::{Cx, Instant, ModifyAttr, QpState, RetryAttr, StateError, Transmit};
use mrc_wire::{Bth, Condition, Ev, Headers, NackReason, Neth, Opcode, Packet, PortNum, Qpn, TrafficClass};

/// What upsets a host at present.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mood {
    /// The engine is slow: until when, how rarely it looks, and how many frames wait.
    slow: Option<(u64, u64, usize)>,
    /// New packets are refused: until when, how many, and why.
    refusing: Option<(u64, u32, NackReason)>,
    /// The host's clock, less the world's.
    leapt_ns: i64,
    /// The latest that the host's clock has shown.
    latest_ns: u64,
}

impl Mood {
    /// What the host's clock shows.
    pub fn clock_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add_signed(self.leapt_ns)
    }

    /// The protocol's idea of that: a clock that runs backwards stands still.
    pub fn steady_ns(&self, now_ns: u64) -> u64 {
        self.clock_ns(now_ns).max(self.latest_ns)
    }

    /// When the host's clock will show `at_ns`.
    pub fn world_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_add_signed(-self.leapt_ns)
    }

    /// From an arrival to the engine's look at it, at most.
    pub fn poll_ns(&self, now_ns: u64, usual_ns: u64) -> u64 {
        self.slow
            .filter(|(until_ns, ..)| now_ns < *until_ns)
            .map_or(usual_ns, |(_, poll_ns, _)| poll_ns)
    }

    /// How full the ring is, for whoever asks peers for less: `None` where nobody ever did.
    pub fn pressure(&self, now_ns: u64, waiting: usize) -> Option<(u32, u32)> {
        let (until_ns, _, ring) = self.slow?;
        let used = if now_ns < until_ns { waiting } else { 0 };
        Some((used as u32, ring as u32))
    }

    /// Whether a ring that holds `waiting` frames takes no more.
    pub fn overruns(&self, now_ns: u64, waiting: usize) -> bool {
        self.slow
            .is_some_and(|(until_ns, _, ring)| now_ns < until_ns && waiting >= ring)
    }
}

impl World {
    pub(crate) fn upset(&mut self, upset: Upset) -> Checked {
        let now_ns = self.now_ns;
        match upset {
            Upset::Slow {
                host,
                for_ns,
                poll_ns,
                ring,
            } => self.hosts[host].mood.slow = Some((now_ns + for_ns, poll_ns, ring)),
            Upset::Refuse {
                host,
                for_ns,
                ppm,
                reason,
            } => self.hosts[host].mood.refusing = Some((now_ns + for_ns, ppm, reason)),
            Upset::Short {
                host,
                for_ns,
                ppm,
                shortage,
                lack,
            } => self.hosts[host].want.begin(now_ns + for_ns, ppm, shortage, lack),
            Upset::Break { host, when } => self.hosts[host].want.break_down(when),
            Upset::Leap { host, by_ns } => self.leap(host, by_ns),
            Upset::Patience {
                connection,
                side,
                timeout,
            } => self.change_patience(connection, side, timeout)?,
            Upset::Window { connection, side, mpr } => self.change_window(connection, side, mpr)?,
            Upset::Restart {
                connection,
                side,
                notice_ns,
                anew,
                ..
            } => {
                self.coverage.fault(FaultTag::Restart);
                self.reset(connection, side, anew)?;
                self.events.post(now_ns + notice_ns, Event::Reconnect(upset));
            }
        }
        Ok(())
    }

    fn leap(&mut self, host: usize, by_ns: i64) {
        let now_ns = self.now_ns;
        let leaper = &mut self.hosts[host];
        let steady_ns = leaper.mood.steady_ns(now_ns);
        leaper.mood.latest_ns = steady_ns;
        leaper.mood.leapt_ns += by_ns;
        for slot in &mut leaper.qps {
            // All of them have seen the clock before it leaps.
            slot.qp.end_of_batch(Instant(steady_ns));
        }
        self.coverage.fault(if by_ns < 0 {
            FaultTag::ClockBack
        } else {
            FaultTag::ClockLeap
        });
        self.hosts[host].turn_at_ns = None;
        self.wake(host, now_ns);
    }

    fn change_patience(&mut self, connection: usize, side: usize, timeout: u8) -> Checked {
        let plan = &mut self.scenario.connections[connection];
        let host = plan.hosts[side];
        let retry = RetryAttr {
            timeout,
            linear_cnt: plan.linear_cnt,
            exp_cnt: plan.exp_cnt,
        };
        let slots = &mut self.hosts[host].qps;
        let found = slots
            .iter_mut()
            .find(|slot| (slot.connection, slot.side) == (connection, side));
        if let Some(slot) = found.filter(|slot| slot.qp.state() == QpState::Rts) {
            let changed = slot.qp.handle_modify(&ModifyAttr {
                retry: Some(retry),
                ..ModifyAttr::default()
            });
            changed.map_err(|error| Breach(Oracle::State, format!("c{connection}.{side}: {error}")))?;
            self.flows[connection][side].flight.change_t0(Some(1024 << timeout));
            self.coverage.fault(FaultTag::RetryChanged);
            self.wake(host, self.now_ns);
        }
        Ok(())
    }

    /// A responder announces another window, or is told that both ends have to agree to that first.
    fn change_window(&mut self, connection: usize, side: usize, mpr: u8) -> Checked {
        let plan = &self.scenario.connections[connection];
        let host = &mut self.hosts[plan.hosts[side]];
        let now_ns = host.mood.steady_ns(self.now_ns);
        let found = host
            .qps
            .iter_mut()
            .find(|slot| (slot.connection, slot.side) == (connection, side));
        let Some(slot) = found.filter(|slot| matches!(slot.qp.state(), QpState::Rtr | QpState::Rts)) else {
            return Ok(());
        };
        let changed = slot.qp.handle_window(mpr);
        let expected = if plan.windows_change() {
            Ok(())
        } else {
            Err(StateError::FixedWindow)
        };
        ensure!(
            changed == expected,
            Oracle::Window,
            "c{connection}.{side}: {changed:?} when a window of {mpr} is to be announced, not {expected:?}"
        );
        if changed.is_ok() {
            self.flows[connection][1 - side].responder.announce(mpr);
            tap::show(&mut self.tap, slot, now_ns, &Seen::Window(mpr));
            self.coverage.fault(FaultTag::WindowChanged);
            trace!(
                self.trace,
                self.now_ns, "c{connection}.{side} announces {mpr} times 128 PSNs"
            );
        }
        Ok(())
    }

    /// One end forgets everything.
    fn reset(&mut self, connection: usize, side: usize, anew: bool) -> Checked {
        let plan = &self.scenario.connections[connection];
        let host = plan.hosts[side];
        let seed = self.rng.seed();
        let fresh = anew.then(|| crate::host::create_attributes(&self.scenario, plan, side, seed));
        let Host {
            qps,
            qpccs,
            memory,
            stall,
            local_up,
            peer_up,
            mood,
            ..
        } = &mut self.hosts[host];
        let now = Instant(mood.clock_ns(self.now_ns));
        for slot in qps
            .iter_mut()
            .filter(|slot| (slot.connection, slot.side) == (connection, side))
        {
            let mut cx = Cx {
                now,
                cc: &mut qpccs[slot.qpcc],
                memory,
                stall: *stall,
            };
            slot.qp.handle_reset(&mut cx);
            ensure!(
                slot.qp.state() == QpState::Reset && slot.qp.poll_completion().is_none(),
                Oracle::State,
                "c{connection}.{side}: {:?} after a reset, or something completes",
                slot.qp.state()
            );
            let paths = match &mut slot.control {
                Some(control) => {
                    control.unbind(&format!("c{connection}.{side}"))?;
                    Some(
                        control
                            .paths(&self.scenario, plan)
                            .map_err(|detail| Breach(Oracle::State, detail))?,
                    )
                }
                None => None,
            };
            if let Some(fresh) = &fresh {
                slot.qp = mrc_protocol::Qp::new(fresh.clone())
                    .map_err(|error| Breach(Oracle::State, format!("c{connection}.{side}: {error}")))?;
                slot.qp.handle_ports(&mut cx, *local_up, peer_up.of(slot.peer));
                // It takes over where the old one's clock stood.
                slot.qp.end_of_batch(Instant(mood.steady_ns(self.now_ns)));
            }
            if let Some(paths) = &paths {
                let done = slot.qp.handle_universe(paths);
                done.map_err(|error| Breach(Oracle::State, format!("c{connection}.{side}: {error}")))?;
                slot.qp.handle_ports(&mut cx, *local_up, peer_up.of(slot.peer));
                self.coverage.rule("§7.1 universe of a queue pair in RESET", 1);
            }
            slot.work = WorkModel::default();
            slot.balance = Balance::default();
            slot.probed_ns = None;
            tap::show(&mut self.tap, slot, now.as_ns(), &Seen::Reset);
        }
        self.flows[connection][1 - side].release_duties();
        trace!(self.trace, self.now_ns, "c{connection}.{side} is reset");
        Ok(())
    }

    /// The other end is reset too; both begin with other PSNs, or the same, and with all their messages.
    pub(crate) fn reconnect(&mut self, upset: Upset) -> Checked {
        let Upset::Restart {
            connection,
            side,
            rest_ns,
            shift,
            anew,
            ..
        } = upset
        else {
            return Ok(());
        };
        self.reset(connection, 1 - side, anew)?;
        for flow in &self.flows[connection] {
            flow.count_events(&mut self.coverage);
            flow.count_rules(&mut self.coverage);
        }
        let plan = &mut self.scenario.connections[connection];
        for psn in &mut plan.psn {
            *psn = psn.wrapping_add(shift) & 0x00ff_ffff;
        }
        self.flows[connection] = crate::world::flows_of(&self.scenario, connection, &self.hosts);
        let hosts = self.scenario.connections[connection].hosts;
        for (side, host) in hosts.into_iter().enumerate() {
            for slot in &mut self.hosts[host].qps {
                if (slot.connection, slot.side) == (connection, side) {
                    slot.init().map_err(|detail| Breach(Oracle::State, detail))?;
                    slot.rests_until_ns = self.now_ns + rest_ns;
                }
            }
            self.events
                .post(self.now_ns + rest_ns, Event::Ready { connection, side });
            self.wake(host, self.now_ns);
        }
        Ok(())
    }

    /// Tells a queue pair how full the ring of its host is.
    pub(crate) fn press(&mut self, index: usize, slot: usize, waiting: usize) {
        let host = &mut self.hosts[index];
        if let Some((used, capacity)) = host.mood.pressure(self.now_ns, waiting) {
            let slot = &mut host.qps[slot];
            if !matches!(slot.qp.state(), QpState::Rtr | QpState::Rts) {
                return;
            }
            slot.qp.handle_pressure(used, capacity);
            let now_ns = host.mood.steady_ns(self.now_ns);
            tap::show(&mut self.tap, slot, now_ns, &Seen::Pressure(used, capacity));
            self.flows[slot.connection][1 - slot.side].responder.pressure = Some((used, capacity));
        }
    }

    /// Whether the host refuses a new packet, as it does for a while when it cannot take some. Then the NACK is on its way.
    pub(crate) fn refuses(
        &mut self,
        index: usize,
        slot: usize,
        frame: &Frame,
        packet: &Packet<'_>,
    ) -> Result<bool, Breach> {
        let host = &self.hosts[index];
        let Some((until_ns, ppm, reason)) = host.mood.refusing else {
            return Ok(false);
        };
        let slot = &host.qps[slot];
        let flow: &Flow = &self.flows[slot.connection][1 - slot.side];
        let refusable = matches!(packet.headers, Headers::Write { .. })
            && packet.condition == Condition::Whole
            && matches!(slot.qp.state(), QpState::Rtr | QpState::Rts)
            && flow.is_new(packet.bth.psn)
            && packet.bth.p_key == 0xffff;
        let Some(port) = PortNum::new(frame.plane) else {
            return Ok(false);
        };
        if self.now_ns >= until_ns || !refusable || !self.rng.chance(ppm) {
            return Ok(false);
        }
        let plan = &self.scenario.connections[slot.connection];
        let neth = Neth {
            reason,
            entropy: packet.ev,
            nack_psn: packet.bth.psn,
            tx_timestamp: packet.tx_timestamp(),
            ..Neth::default()
        };
        let bth = Bth {
            rtx: packet.bth.rtx,
            ..Bth::new(Opcode::Nack, Qpn::new(plan.qpn[1 - slot.side]), packet.bth.psn)
        };
        let nack = Transmit {
            bth,
            headers: Headers::Nack(neth),
            ev: Ev(0xBAD),
            path: 0,
            port,
            class: TrafficClass::Control,
            ect: false,
            payload: None,
            is_retransmission: false,
        };
        let route = Route {
            src: index,
            dst: slot.peer,
            id: self.sent,
        };
        let answer = self.codec.pack(route, &nack, Data::default())?;
        self.sent += 1;
        self.coverage.fault(FaultTag::Refusal);
        trace!(self.trace, self.now_ns, "h{index} refuses #{}: {reason}", frame.id);
        self.send(index, port, answer);
        Ok(true)
    }
}
