//! The latency test: a ping-pong of writes, seen by watching memory, or of writes with immediate, seen by completions.
//!
//! The packets of a write land in any order, so its last byte says nothing about the others. Therefore the last byte of
//! *every packet's* part carries the round's number, and a message is here when all of them are.

use std::time::{Duration, Instant};

use mrc_verbs::{SendRequest, WorkCompletion};

use crate::bw::Step;
use crate::cli::{Length, Op};
use crate::control::{Message, unexpected};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::setup::Side;
use crate::stats::{Latency, Samples};

/// Rounds before the clock counts.
const WARM_UP: u64 = 100;
/// Longest time for one round.
const STUCK: Duration = Duration::from_mins(1);
/// Turns of the waiting loop between two looks at the rest of the world.
const TURNS: u32 = 4096;
/// Turns between two offers of the core to others: where hosts share cores, the peer may be waiting for this one.
const COURTESY: u32 = 32;

/// How the rounds ended.
pub(crate) struct Rounds {
    /// Figures, at the client.
    pub(crate) latency: Option<Latency>,
    /// Rounds played.
    pub(crate) played: u64,
}

/// The byte that marks a round; never 0, and never that of the round that used the slot before.
fn mark(round: u64, slots: u64) -> u8 {
    (round / slots % 255) as u8 + 1
}

impl Step<'_> {
    /// Plays all rounds of a size.
    pub(crate) fn ping_pong(&self, progress: &mut Progress) -> Result<Rounds, Failure> {
        if self.setup.side == Side::Client {
            self.ping(progress)
        } else {
            self.pong()
        }
    }

    fn ping(&self, progress: &mut Progress) -> Result<Rounds, Failure> {
        let mut samples = Samples::new();
        let started = Instant::now();
        let (rounds, until) = match self.plan.length {
            Length::Iters(iters) => (Some(WARM_UP + iters), None),
            Length::Seconds(seconds) => (None, Some(started + Duration::from_secs(seconds))),
        };
        let mut game = Game { done: 0 };
        let mut round = 0;
        while rounds.is_none_or(|rounds| round < rounds) {
            let before = Instant::now();
            if until.is_some_and(|until| before >= until) {
                break;
            }
            self.post_round(&mut game, round)?;
            self.wait_round(&mut game, round)?;
            if round >= WARM_UP {
                samples.add(before.elapsed().as_nanos() as u64 / 2);
            }
            round += 1;
            if round.is_multiple_of(256) {
                progress.note(self.size, round, rounds);
            }
        }
        self.finish_sends(&mut game, round)?;
        let latency = samples.latency();
        self.control.send(&Message::Done {
            step: self.number,
            sent: vec![round],
            bandwidth: None,
            latency,
        })?;
        match self.control.receive(STUCK)? {
            Message::Done { step, .. } if step == self.number => Ok(Rounds { latency, played: round }),
            other => Err(unexpected("the end of the step", &other)),
        }
    }

    fn pong(&self) -> Result<Rounds, Failure> {
        let mut game = Game { done: 0 };
        let mut round = 0;
        let latency = loop {
            let end = self.wait_round(&mut game, round)?;
            if let Some(Message::Done { latency: theirs, .. }) = end {
                break theirs;
            }
            self.post_round(&mut game, round)?;
            round += 1;
        };
        self.finish_sends(&mut game, round)?;
        self.control.send(&Message::Done {
            step: self.number,
            sent: vec![round],
            bandwidth: None,
            latency: None,
        })?;
        Ok(Rounds { latency, played: round })
    }

    /// Marks and sends this side's message of a round.
    fn post_round(&self, game: &mut Game, round: u64) -> Result<(), Failure> {
        let setup = self.setup;
        let slots = setup.layout.slots(self.size);
        // Memory of an outstanding write is left alone.
        while round - game.done >= slots.min(self.plan.depth.into()) {
            self.reap_one(game)?;
        }
        let start = setup.layout.source(0, round % slots, self.size);
        for tail in self.tails() {
            setup.region.store_u8(start + tail, mark(round, slots))?;
        }
        let piece = setup.region.slice(start..start + self.size as usize)?;
        let to = setup
            .peer_region
            .at(setup.layout.destination(0, round % slots, self.size) as u64);
        let request = SendRequest::write(round, piece, to);
        let request = if self.plan.op == Op::WriteImm {
            request.with_imm((round as u32).to_be_bytes())
        } else {
            request
        };
        Ok(setup.qps[0].post_write(&request)?)
    }

    /// Waits for the peer's message of a round. At the server the end of the game may come instead.
    fn wait_round(&self, game: &mut Game, round: u64) -> Result<Option<Message>, Failure> {
        let slots = self.setup.layout.slots(self.size);
        let start = self.setup.layout.destination(0, round % slots, self.size);
        let since = Instant::now();
        let mut turns = 0_u32;
        loop {
            let here = match self.plan.op {
                Op::Write => self.marked(start, mark(round, slots))?,
                Op::WriteImm => self.take_immediate(round)?,
            };
            if here {
                return Ok(None);
            }
            if self.plan.op == Op::Write {
                self.setup.device.progress();
            }
            turns += 1;
            if turns.is_multiple_of(COURTESY) {
                std::thread::yield_now();
            }
            if turns.is_multiple_of(TURNS) {
                self.reap_rounds(game)?;
                if let Some(end) = self.control.try_receive()? {
                    return match end {
                        Message::Done { step, .. } if step == self.number && self.setup.side == Side::Server => {
                            Ok(Some(end))
                        }
                        other => Err(unexpected("a round", &other)),
                    };
                }
                if since.elapsed() > STUCK {
                    return Err(Failure::Peer(format!(
                        "round {round} got no answer for {} s",
                        STUCK.as_secs()
                    )));
                }
            }
        }
    }

    fn marked(&self, start: usize, mark: u8) -> Result<bool, Failure> {
        for tail in self.tails() {
            if self.setup.region.load_u8(start + tail)? != mark {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take_immediate(&self, round: u64) -> Result<bool, Failure> {
        let Some(completion) = self.setup.recv_cq.poll_one()? else {
            return Ok(false);
        };
        if let Some(failure) = self.setup.failed("a receive", &completion) {
            return Err(failure);
        }
        if completion.imm != Some((round as u32).to_be_bytes()) {
            return Err(Failure::Test(format!(
                "round {round} came with immediate {:?}",
                completion.imm
            )));
        }
        self.setup.qps[0].post_recv(completion.wr_id)?;
        Ok(true)
    }

    /// Last byte of each packet's part of a message, the last part first.
    fn tails(&self) -> impl Iterator<Item = usize> {
        let (size, pmtu) = (self.size as usize, self.setup.agreed.pmtu as usize);
        (0..size.div_ceil(pmtu))
            .rev()
            .map(move |packet| size.min((packet + 1) * pmtu) - 1)
    }

    /// Sets the marks that a slot must have after `played` rounds in an expected piece that starts at `at` of the message.
    pub(crate) fn set_marks(&self, played: u64, slot: u64, at: usize, piece: &mut [u8]) {
        let slots = self.setup.layout.slots(self.size);
        let last = (played.saturating_sub(slot + 1)) / slots * slots + slot;
        for tail in self.tails() {
            if let Some(byte) = tail.checked_sub(at).and_then(|offset| piece.get_mut(offset)) {
                *byte = mark(last, slots);
            }
        }
    }

    fn finish_sends(&self, game: &mut Game, posted: u64) -> Result<(), Failure> {
        let since = Instant::now();
        while game.done < posted {
            self.reap_one(game)?;
            if since.elapsed() > STUCK {
                return Err(Failure::Peer("the last writes are not acknowledged".into()));
            }
        }
        Ok(())
    }

    fn reap_one(&self, game: &mut Game) -> Result<(), Failure> {
        if !self.reap_rounds(game)? {
            std::hint::spin_loop();
            crate::stop::check()?;
        }
        Ok(())
    }

    fn reap_rounds(&self, game: &mut Game) -> Result<bool, Failure> {
        let mut batch = [WorkCompletion::EMPTY; 16];
        let count = self.setup.send_cq.poll(&mut batch)?;
        for completion in &batch[..count] {
            if let Some(failure) = self.setup.failed("a write", completion) {
                return Err(failure);
            }
            game.done += 1;
        }
        Ok(count > 0)
    }
}

/// The state of one side.
struct Game {
    /// Own messages acknowledged.
    done: u64,
}

#[cfg(test)]
mod tests {
    use super::mark;

    #[test]
    fn marks_are_never_zero_and_change_with_every_use_of_a_slot() {
        for slots in [1, 2, 128, 254, 255, 256, 4096] {
            for round in 0..10_000 {
                assert_ne!(mark(round, slots), 0);
                assert_ne!(mark(round, slots), mark(round + slots, slots));
            }
        }
    }
}
