//! The simulator's networks with a responder written from the specification beside every shipped one: it sees the same
//! packets, ends of batches, timers and receive requests, and judges every answer, completion and placement.
//!
//! Seeds 0 to 499; `MRC_REFERENCE_SEEDS=20000` runs so many.

use mrc_protocol::{Disposition, DropReason, Instant, QpState, Queue, Tuning};
use mrc_sim::memory::{Trouble, When};
use mrc_sim::reference::{Attributes, Compare, Ground, Responder};
use mrc_sim::sabotage::Sabotage;
use mrc_sim::scenario::{ConnectionPlan, Scenario};
use mrc_sim::tap::{Place, Seen};
use mrc_sim::trace::Trace;
use mrc_sim::world::{RunResult, World};
use mrc_wire::{Headers, Psn, Qpn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The responders beside those of one run.
#[derive(Default)]
struct Watch {
    responders: BTreeMap<(usize, usize), Responder>,
    /// Receives posted before there was a responder.
    early: BTreeMap<(usize, usize), Vec<u64>>,
    /// What each queue pair takes for the time: a clock that leaps back stands still.
    clocks: BTreeMap<(usize, usize), Instant>,
    judged: u64,
    problem: Option<String>,
}

fn attributes(plan: &ConnectionPlan, own: usize) -> Attributes {
    let (peer, tuning) = (1 - own, Tuning::default());
    Attributes {
        qpn: Qpn::new(plan.qpn[own]),
        dest_qpn: Qpn::new(plan.qpn[peer]),
        p_key: 0xffff,
        rq_psn: Psn::new(plan.psn[peer]),
        pmtu: plan.pmtu.bytes(),
        window: u64::from(plan.mpr[own]) * 128,
        max_wimm: plan.max_wimm[own].into(),
        dynamic_mpr: plan.windows_change(),
        svc_time: plan.svc_time[own],
        trim_nack: plan.trim_nack[own],
        remote_write: true,
        sack_gen_threshold: plan.sack_gen_threshold.into(),
        sack_hold_ns: tuning.sack_hold_ns,
        answers_per_s: plan.answers_per_s.into(),
        answers_burst: plan.answers_burst.into(),
    }
}

impl Watch {
    fn see(&mut self, mut place: Place, seen: &Seen<'_>) {
        let clock = self
            .clocks
            .entry((place.connection, place.side))
            .or_insert(Instant::ZERO);
        // The application does not tell the time.
        if !matches!(
            seen,
            Seen::Connected(_) | Seen::Receive(_) | Seen::Completion(_) | Seen::Pressure(..) | Seen::Window(_)
        ) {
            *clock = place.now.max(*clock);
        }
        place.now = *clock;
        if self.problem.is_none()
            && let Err(problem) = self.judge(place, seen)
        {
            let Place {
                connection, side, now, ..
            } = place;
            self.problem = Some(format!("at {now}, c{connection}.{side}: {problem}"));
        }
    }

    fn judge(&mut self, place: Place, seen: &Seen<'_>) -> Result<(), String> {
        let key = (place.connection, place.side);
        let Some(responder) = self.responders.get_mut(&key) else {
            return self.before_rtr(place, seen);
        };
        if matches!(seen, Seen::Reset) {
            self.responders.remove(&key);
            return Ok(());
        }
        match seen {
            Seen::Packet {
                packet,
                disposition,
                accesses,
                memory,
            } => {
                if !matches!(packet.headers, Headers::Write { .. } | Headers::Probe(_)) {
                    if place.state == QpState::Err {
                        responder.fail();
                    }
                    return Ok(());
                }
                // It had failed before: a packet that makes it fail is accepted.
                if place.state == QpState::Err && *disposition == Disposition::Dropped(DropReason::State) {
                    responder.fail();
                }
                let permits = |rkey, va: u64, len| {
                    memory.regions().iter().any(|region| {
                        let end = va.checked_add(len);
                        region.rkey == rkey
                            && region.remote_write
                            && va >= region.va
                            && end.is_some_and(|end| end <= region.va + region.len)
                    })
                };
                // What stood in its way stands in the other one's.
                let trouble = accesses.iter().find_map(|access| {
                    let when = if access.placed { When::Written } else { When::Asked };
                    access.trouble.map(|error| Trouble { when, error })
                });
                let permits = &permits;
                let took = responder.take(place.now, packet, Ground { permits, trouble });
                if took.disposition != *disposition {
                    return Err(format!(
                        "{:?} {}: {disposition:?}, not {:?}",
                        packet.bth.opcode, packet.bth.psn, took.disposition
                    ));
                }
                let placed: Vec<_> = (accesses.iter().filter(|access| access.placed && access.granted))
                    .map(|access| (access.rkey, access.va, access.len))
                    .collect();
                let expected: Vec<_> = took.placed.into_iter().collect();
                if placed != expected && !(took.either && placed.is_empty()) {
                    return Err(format!("{} placed {placed:?}, not {expected:?}", packet.bth.psn));
                }
            }
            Seen::Refused {
                packet,
                why,
                disposition,
            } => {
                if place.state == QpState::Err {
                    responder.fail();
                }
                let took = responder.lack_buffer(place.now, packet, *why);
                if took.disposition != *disposition {
                    return Err(format!(
                        "{} could not be kept: {disposition:?}, not {:?}",
                        packet.bth.psn, took.disposition
                    ));
                }
            }
            Seen::Window(mpr) => responder.set_window(u64::from(*mpr) * 128),
            Seen::Pressure(used, capacity) => responder.set_pressure(*used, *capacity),
            Seen::EndOfBatch => responder.end_of_batch(),
            Seen::Timeout => {
                if place.state == QpState::Err {
                    responder.fail();
                }
                responder.timeout(place.now);
            }
            Seen::Transmit(sent) if !matches!(sent.headers, Headers::Write { .. } | Headers::Probe(_)) => {
                self.judged += 1;
                responder.judge(place.now, sent)?;
            }
            Seen::Silent { answers_wait: false } => {
                if place.state == QpState::Err {
                    responder.fail();
                }
                responder.judge_silence()?;
                responder.settle();
            }
            Seen::Receive(wr_id) => responder.post(*wr_id),
            Seen::Completion(completion) if completion.queue == Queue::Recv => {
                if place.state == QpState::Err {
                    responder.fail();
                }
                responder.judge_completion(completion)?;
            }
            _ => {}
        }
        if responder.failed() && place.state != QpState::Err {
            return Err(format!("in {:?}, and should have failed", place.state));
        }
        Ok(())
    }

    /// protocol.md §2.2
    fn before_rtr(&mut self, place: Place, seen: &Seen<'_>) -> Result<(), String> {
        let key = (place.connection, place.side);
        match seen {
            Seen::Connected(plan) => {
                let extra_sacks = Tuning::default().extra_sacks;
                let mut responder = Responder::new(attributes(plan, place.side), Compare::Batches { extra_sacks });
                for wr_id in self.early.remove(&key).unwrap_or_default() {
                    responder.post(wr_id);
                }
                self.responders.insert(key, responder);
            }
            Seen::Reset => drop(self.early.remove(&key)),
            Seen::Receive(wr_id) => self.early.entry(key).or_default().push(*wr_id),
            Seen::Packet { disposition, .. } | Seen::Refused { disposition, .. }
                if *disposition != Disposition::Dropped(DropReason::State) =>
            {
                return Err(format!("{disposition:?} before RTR"));
            }
            Seen::Transmit(sent) => return Err(format!("sends {sent:?} before RTR")),
            _ => {}
        }
        Ok(())
    }
}

/// How a run went: what the responders beside it found wrong, what the oracles found wrong, how many answers were judged.
struct Outcome {
    problem: Option<String>,
    run: RunResult,
    judged: u64,
}

fn watch(seed: u64, sabotage: Option<(Sabotage, u32)>) -> Outcome {
    let watch = Rc::new(RefCell::new(Watch::default()));
    let eye = Rc::clone(&watch);
    let world = World::new(Scenario::from_seed(seed), Trace::off(), sabotage).expect("hosts as planned");
    let world = world.tapped(Box::new(move |place, seen| eye.borrow_mut().see(place, seen)));
    let run = world.run();
    let mut watch = watch.borrow_mut();
    Outcome {
        problem: watch.problem.take(),
        run,
        judged: watch.judged,
    }
}

#[test]
fn shipped_responders_say_what_the_specification_says() {
    let seeds: u64 =
        std::env::var("MRC_REFERENCE_SEEDS").map_or(500, |seeds| seeds.parse().expect("a number of seeds"));
    let (next, judged) = (AtomicU64::new(0), AtomicU64::new(0));
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let outcome = watch(seed, None);
            assert_eq!(outcome.problem, None, "seed {seed}");
            assert!(outcome.run.is_ok(), "seed {seed}: {:?}", outcome.run);
            judged.fetch_add(outcome.judged, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let judged = judged.into_inner();
    assert!(judged > 100 * seeds, "only {judged} answers in {seeds} runs");
}

#[test]
fn wrong_and_missing_answers_are_noticed() {
    for (what, least) in [
        (Sabotage::ClaimInSack, 10),
        (Sabotage::ClaimInCack, 10),
        (Sabotage::ClaimInAck, 10),
        // One that only shows more of the window need not be sent.
        (Sabotage::SwallowSack, 5),
        (Sabotage::SwallowAck, 5),
    ] {
        let (mut struck, mut noticed) = (0, 0);
        for seed in 0..2000 {
            let outcome = watch(seed, Some((what, seed as u32 % 40)));
            let spoilt = outcome.run.as_ref().map_or(true, |outcome| outcome.sabotaged);
            assert!(
                spoilt || outcome.problem.is_none(),
                "seed {seed}: {:?}",
                outcome.problem
            );
            struck += u32::from(spoilt);
            noticed += u32::from(outcome.problem.is_some());
            if struck == 10 {
                break;
            }
        }
        assert!(
            struck == 10 && noticed >= least,
            "{what:?} passes unnoticed: {noticed} of {struck}"
        );
    }
}
