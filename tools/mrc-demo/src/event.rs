//! What the programs in the hosts tell the stage: a JSON object per line on their standard output.

use std::io::{Write, stdout};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::{DemoError, io};

/// Something that happened in a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// Source: the queue pair is connected, data starts to move.
    Connected { at_ns: u64, pmtu: u32 },
    /// Source: so many bytes are written and acknowledged.
    Progress { at_ns: u64, done: u64 },
    /// Source: for so long no write completed, until then.
    Gap { at_ns: u64, gap_ns: u64 },
    /// Source: everything is written and acknowledged.
    Written { at_ns: u64 },
    /// Source: its part is over.
    Finished(Finished),
    /// Target: so many bytes of data have arrived on each plane.
    Arrived { at_ns: u64, planes: Vec<u64> },
    /// Target: the comparison.
    Verdict(Verdict),
}

/// What the source knows at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finished {
    pub(crate) bytes: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) retransmissions: u64,
    /// By plane.
    pub(crate) evs_withdrawn: Vec<u64>,
    /// By plane.
    pub(crate) evs_returned: Vec<u64>,
    pub(crate) errors: u64,
}

/// What the target found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Of what arrived, in hexadecimal.
    pub(crate) sha256: String,
    /// It is that of what was sent.
    pub(crate) equal: bool,
    /// The memory around the region is as it was.
    pub(crate) surroundings_untouched: bool,
}

impl Event {
    /// Tells the stage.
    pub(crate) fn tell(&self) -> Result<(), DemoError> {
        let mut line = serde_json::to_string(self).map_err(|error| DemoError::Io {
            what: "telling the stage",
            source: error.into(),
        })?;
        line.push('\n');
        stdout()
            .write_all(line.as_bytes())
            .and_then(|()| stdout().flush())
            .map_err(io("telling the stage"))
    }
}

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub(crate) fn now_ns() -> u64 {
    // The clock is always there.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_one_line_and_come_back() {
        for event in [
            Event::Connected { at_ns: 1, pmtu: 4096 },
            Event::Arrived {
                at_ns: 2,
                planes: vec![1, 2, 3],
            },
            Event::Finished(Finished {
                bytes: 7,
                ..Finished::default()
            }),
            Event::Verdict(Verdict {
                sha256: "ab".to_owned(),
                equal: true,
                surroundings_untouched: true,
            }),
        ] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }
}
