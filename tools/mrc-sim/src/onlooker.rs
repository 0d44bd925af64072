//! Lets somebody see how far a run is.

use crate::world::World;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is seen of a run in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// Which run it is.
    pub what: String,
    /// Virtual time.
    pub now_ns: u64,
    /// Packets sent so far, of all kinds.
    pub packets: u64,
    /// Payload written so far.
    pub placed_bytes: u64,
    /// Payload to be written in all.
    pub planned_bytes: u64,
}

/// Somebody who looks at runs now and then.
#[derive(Clone)]
pub struct Onlooker(Arc<dyn Fn(&Sight) + Send + Sync>);

impl Onlooker {
    /// Calls `look`, some times a second.
    pub fn new(look: impl Fn(&Sight) + Send + Sync + 'static) -> Onlooker {
        Onlooker(Arc::new(look))
    }

    /// The same, for a run of another name.
    #[must_use]
    pub(crate) fn named(&self, what: &str) -> Onlooker {
        let (look, what) = (Arc::clone(&self.0), what.to_owned());
        Onlooker::new(move |sight| {
            look(&Sight {
                what: what.clone(),
                ..sight.clone()
            });
        })
    }
}

impl fmt::Debug for Onlooker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Onlooker")
    }
}

/// An onlooker at a run.
#[derive(Debug)]
pub(crate) struct Watch {
    onlooker: Onlooker,
    sight: Sight,
    events: u32,
    next: Instant,
}

impl Watch {
    const PAUSE: Duration = Duration::from_millis(100);
    /// The clock is asked once in so many events.
    const EVENTS: u32 = 1024;

    pub(crate) fn new(onlooker: Onlooker, what: String, planned_bytes: u64) -> Watch {
        Watch {
            onlooker,
            sight: Sight {
                what,
                planned_bytes,
                ..Sight::default()
            },
            events: 0,
            next: Instant::now() + Watch::PAUSE,
        }
    }

    fn is_due(&mut self) -> bool {
        self.events = (self.events + 1) % Watch::EVENTS;
        if self.events > 0 || Instant::now() < self.next {
            return false;
        }
        self.next = Instant::now() + Watch::PAUSE;
        true
    }
}

impl World {
    /// An event is about to happen.
    pub(crate) fn show_onlooker(&mut self) {
        if !self.watch.as_mut().is_some_and(Watch::is_due) {
            return;
        }
        let (now_ns, packets, placed_bytes) = (self.now_ns, self.sent, self.placed_bytes());
        if let Some(watch) = &mut self.watch {
            watch.sight.now_ns = now_ns;
            watch.sight.packets = packets;
            watch.sight.placed_bytes = placed_bytes;
            (watch.onlooker.0)(&watch.sight);
        }
    }

    /// Payload that has been placed so far.
    pub(crate) fn placed_bytes(&self) -> u64 {
        let open = self.flows.iter().flatten().filter(|flow| !flow.closed);
        self.measure.closed_bytes + open.map(|flow| flow.responder.placed_bytes).sum::<u64>()
    }
}
