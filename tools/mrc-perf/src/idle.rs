//! Waiting without wasting a core: spin for a while, then sleep on the completion channel.

use std::time::{Duration, Instant};

use mrc_verbs::{CompletionChannel, CompletionQueue};

/// How long a loop polls after its last success before it sleeps.
const SPIN: Duration = Duration::from_micros(300);
/// Longest sleep: then the loop looks at the other end and at Ctrl-C.
const SLEEP: Duration = Duration::from_millis(10);

/// Asked after every turn of a polling loop.
pub(crate) struct Idle<'a> {
    channel: &'a CompletionChannel,
    queues: [&'a CompletionQueue; 2],
    since: Option<Instant>,
    armed: bool,
    turns: u32,
}

impl<'a> Idle<'a> {
    pub(crate) fn new(channel: &'a CompletionChannel, queues: [&'a CompletionQueue; 2]) -> Idle<'a> {
        Idle {
            channel,
            queues,
            since: None,
            armed: false,
            turns: 0,
        }
    }

    /// The turn did something.
    pub(crate) fn busy(&mut self) {
        self.since = None;
        self.armed = false;
    }

    /// The turn did nothing: spins, arms (then the caller polls once more), or sleeps.
    pub(crate) fn wait(&mut self) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < SPIN {
            // Where hosts share cores, the peer may be waiting for this one.
            std::thread::yield_now();
        } else if self.armed {
            self.channel.next(SLEEP);
            self.armed = false;
        } else {
            self.queues.iter().for_each(|queue| queue.arm(false));
            self.armed = true;
        }
    }

    /// How long nothing has happened.
    pub(crate) fn idle_for(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// True now and then: time to look at the other end.
    pub(crate) fn look_around(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.turns.is_multiple_of(256) || self.idle_for() > SPIN
    }
}
