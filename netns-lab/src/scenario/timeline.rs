//! What breaks and heals, and when.

use netns_lab::Fault;
use serde::{Deserialize, Serialize};

/// One moment of the timeline.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Moment {
    /// Seconds from the start, or from the end of `after`; negative: before the workloads' connections are made.
    #[serde(default)]
    pub at: f64,
    /// Counts from the end of that workload.
    #[serde(default)]
    pub after: Option<String>,
    /// For the report; default: what happens.
    #[serde(default)]
    pub note: Option<String>,
    /// What breaks.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// What becomes whole again, as it broke.
    #[serde(default)]
    pub heal: Vec<Fault>,
    /// Everything becomes whole.
    #[serde(default)]
    pub heal_all: bool,
    /// Paths that a host is forbidden, by its EV profile.
    #[serde(default)]
    pub deny: Vec<Denial>,
    /// Paths that it may use again.
    #[serde(default)]
    pub allow: Vec<Denial>,
}

/// Paths from a host to another: all in a plane, or one by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Denial {
    /// The host whose profile it is.
    pub host: String,
    /// The peer.
    pub to: String,
    /// The plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plane: Option<usize>,
    /// The path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Moment {
    /// Something breaks, or is taken away.
    pub(crate) fn breaks(&self) -> bool {
        !self.fault.is_empty() || !self.deny.is_empty()
    }

    /// Nothing happens in it.
    pub(crate) fn is_empty(&self) -> bool {
        !self.breaks() && self.heal.is_empty() && self.allow.is_empty() && !self.heal_all
    }

    /// For the report.
    pub(crate) fn describe(&self) -> String {
        if let Some(note) = &self.note {
            return note.clone();
        }
        let mut parts: Vec<String> = self.fault.iter().map(Fault::to_string).collect();
        parts.extend(self.heal.iter().map(|fault| format!("healed: {fault}")));
        if self.heal_all {
            parts.push("everything healed".to_owned());
        }
        let paths = |denial: &Denial| {
            let what = match (&denial.path, denial.plane) {
                (Some(path), _) => format!("path {path}"),
                (None, plane) => format!("plane {}", plane.unwrap_or(0)),
            };
            format!("{what} from {} to {}", denial.host, denial.to)
        };
        parts.extend(self.deny.iter().map(|denial| format!("denied: {}", paths(denial))));
        parts.extend(self.allow.iter().map(|denial| format!("allowed: {}", paths(denial))));
        parts.join(", ")
    }
}
