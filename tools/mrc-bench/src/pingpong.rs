//! Half a round trip: one message to and fro, both sides spinning.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mrc_verbs::{QueuePair, SendRequest};

use crate::bare::{Bare, pin};
use crate::error::BenchError;
use crate::frame::{self, Template};
use crate::ours::{Ours, Side};
use crate::report::Median;
use crate::xsk::Xsk;

/// A message without an answer for so long was lost.
const STUCK: Duration = Duration::from_secs(2);
/// The first round trips do not count.
const WARM_UP: u32 = 1000;

impl Bare {
    /// Median of half a round trip of frames of `len` bytes, in microseconds.
    pub(crate) fn half_round_trip_us(&mut self, len: usize, seconds: f64) -> Result<f64, BenchError> {
        self.run = self.run.wrapping_add(1);
        let run = self.run;
        let [left, right] = &mut self.sides;
        let ends = [(left.mac, left.address), (right.mac, right.address)];
        let end = |socket, from, to| BareEnd {
            socket,
            template: Template::new(run, len, from, to),
            run,
            len,
        };
        play(
            end(&mut left.socket, ends[0], ends[1]),
            end(&mut right.socket, ends[1], ends[0]),
            seconds,
        )
    }
}

impl Ours {
    /// Median of half a round trip of 2-byte writes, in microseconds.
    pub(crate) fn half_round_trip_us(&self, pmtu: u32, seconds: f64) -> Result<f64, BenchError> {
        let connection = self.connection(pmtu)?;
        let [left, right] = &self.sides;
        let end = |queue_pair, own, peer| OurEnd { queue_pair, own, peer };
        let (ping, pong) = (
            end(&connection.source, left, right),
            end(&connection.target, right, left),
        );
        // Marks of an earlier game are forgotten.
        for side in [left, right] {
            side.memory.store_u8(HERE + 1, 0)?;
        }
        play(ping, pong, seconds)
    }
}

/// One player.
trait End {
    /// Sends the message of a round.
    fn send(&mut self, round: u32) -> Result<(), BenchError>;
    /// Whether the message of a round is here. Asked again and again.
    fn is_here(&mut self, round: u32) -> Result<bool, BenchError>;
}

struct BareEnd<'a> {
    socket: &'a mut Xsk,
    template: Template,
    run: u16,
    len: usize,
}

impl End for BareEnd<'_> {
    fn send(&mut self, round: u32) -> Result<(), BenchError> {
        let sent = self
            .socket
            .send(self.len, 1, |head, _| self.template.write(head, round));
        sent.map(|_| ()).map_err(|source| BenchError::Io {
            what: "a bare ping-pong",
            source,
        })
    }

    fn is_here(&mut self, round: u32) -> Result<bool, BenchError> {
        let (mut here, run) = (false, self.run);
        self.socket
            .receive(|head, _| here |= frame::sequence(head, run) == Some(round));
        Ok(here)
    }
}

/// Where messages are made, and where they arrive.
const SOURCE: usize = 0;
const HERE: usize = 64;

struct OurEnd<'a> {
    queue_pair: &'a QueuePair,
    own: &'a Side,
    peer: &'a Side,
}

/// What a message of a round ends with; never 0.
fn mark(round: u32) -> u8 {
    (round % 251 + 1) as u8
}

impl End for OurEnd<'_> {
    fn send(&mut self, round: u32) -> Result<(), BenchError> {
        self.own.memory.store_u8(SOURCE + 1, mark(round))?;
        let piece = self.own.memory.slice(SOURCE..SOURCE + 2)?;
        let to = self.peer.memory.remote().at(HERE as u64);
        self.queue_pair
            .post_write(&SendRequest::write(u64::from(round), piece, to).unsignaled())?;
        Ok(())
    }

    fn is_here(&mut self, round: u32) -> Result<bool, BenchError> {
        if self.own.memory.load_u8(HERE + 1)? == mark(round) {
            return Ok(true);
        }
        self.own.device.progress();
        Ok(false)
    }
}

/// Plays for `seconds`, a core a player.
fn play(ping: impl End + Send, pong: impl End + Send, seconds: f64) -> Result<f64, BenchError> {
    let (mut ping, mut pong) = (ping, pong);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let answers = scope.spawn(|| {
            pin(1);
            for round in 0.. {
                if !wait(&mut pong, round, &over)? {
                    break;
                }
                pong.send(round)?;
            }
            Ok::<_, BenchError>(())
        });
        let asks = scope.spawn(|| {
            pin(0);
            let halves = ask(&mut ping, Duration::from_secs_f64(seconds), &over);
            over.store(true, Ordering::Relaxed);
            halves
        });
        let halves = asks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        answers
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Median::of(halves?).median)
    })
}

fn ask(ping: &mut impl End, duration: Duration, over: &AtomicBool) -> Result<Vec<f64>, BenchError> {
    let mut halves = Vec::with_capacity(1 << 20);
    let mut started = Instant::now();
    for round in 0.. {
        let sent = Instant::now();
        ping.send(round)?;
        if !wait(ping, round, over)? {
            break;
        }
        if round == WARM_UP {
            started = sent;
        }
        if round >= WARM_UP {
            halves.push(sent.elapsed().as_secs_f64() * 1e6 / 2.0);
            if started.elapsed() >= duration {
                break;
            }
        }
    }
    Ok(halves)
}

/// False if the game is over.
fn wait(end: &mut impl End, round: u32, over: &AtomicBool) -> Result<bool, BenchError> {
    let since = Instant::now();
    let mut turns = 0_u32;
    while !end.is_here(round)? {
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(1024) {
            if over.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if since.elapsed() > STUCK {
                over.store(true, Ordering::Relaxed);
                return Err(BenchError::Silence {
                    what: "ping-pong",
                    seconds: STUCK.as_secs_f64(),
                });
            }
        }
    }
    Ok(true)
}
