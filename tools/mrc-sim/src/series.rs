//! Time series of a run: what hosts see, at regular intervals.

use crate::world::{Event, World};
use mrc_protocol::EvState;

/// Samples of a run.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Interval.
    pub every_ns: u64,
    /// What was seen.
    pub samples: Vec<Sample>,
}

/// What is seen at an instant. Of the queue pairs it is the first one that sends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// When.
    pub at_ns: u64,
    /// Payload that was placed since the last sample, by plane, everywhere.
    pub plane_bytes: Vec<u64>,
    /// Window; 0 if there is none.
    pub cwnd_bytes: u64,
    /// In flight.
    pub inflight_bytes: i64,
    /// Smoothed round trip.
    pub srtt_ns: u64,
    /// Paths in the active set that are good.
    pub active: u32,
    /// Good paths that are not.
    pub backup: u32,
    /// Paths that lose a turn.
    pub skip: u32,
    /// Paths that are assumed bad.
    pub bad: u32,
}

impl Recorder {
    /// More than anybody looks at; a run that wants more is sampled too often.
    pub const MOST: usize = 100_000;

    /// Whether there are as many samples as there may be.
    pub(crate) fn is_full(&self) -> bool {
        self.samples.len() >= Recorder::MOST
    }

    /// Samples at this interval.
    pub fn new(every_ns: u64) -> Recorder {
        Recorder {
            every_ns: every_ns.max(1),
            samples: Vec::new(),
        }
    }
}

impl World {
    /// Writes down how things are, and plans the next time. Returns whether there are as many samples as there may be.
    pub(crate) fn sample(&mut self) -> bool {
        let planes = usize::from(self.scenario.planes);
        let mut sample = Sample {
            at_ns: self.now_ns,
            plane_bytes: self.measure.plane_bytes[..planes].to_vec(),
            ..Sample::default()
        };
        let sender = self.hosts.iter().find_map(|host| {
            let slot = host
                .qps
                .iter()
                .find(|slot| !self.flows[slot.connection][slot.side].messages.is_empty())?;
            Some((slot, &host.qpccs[slot.qpcc]))
        });
        if let Some((slot, qpcc)) = sender {
            sample.cwnd_bytes = qpcc.cwnd_bytes().unwrap_or(0);
            sample.inflight_bytes = qpcc.inflight_bytes();
            sample.srtt_ns = slot.qp.rtt_ns().0;
            for view in slot.qp.ev_states() {
                let count = match (view.state, view.active) {
                    (EvState::Good, true) => &mut sample.active,
                    (EvState::Good, false) => &mut sample.backup,
                    (EvState::Skip, _) => &mut sample.skip,
                    _ => &mut sample.bad,
                };
                *count += 1;
            }
        }
        if let Some(recorder) = &mut self.recorder {
            self.events.post(self.now_ns + recorder.every_ns, Event::Sample);
            recorder.samples.push(sample);
        }
        self.recorder.as_ref().is_some_and(Recorder::is_full)
    }
}
