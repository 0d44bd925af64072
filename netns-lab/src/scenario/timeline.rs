//! What breaks and heals, and when.

use serde::{Deserialize, Serialize};

/// One moment of the timeline.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Moment {
    /// Seconds from the start, or from the end of `after`.
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
    pub fault: Vec<Change>,
    /// What becomes whole again.
    #[serde(default)]
    pub heal: Vec<Change>,
}

/// Something that can break.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Change {
    /// The cable of a host's port: `h0.p2`. The port stays enabled and loses its carrier.
    Link(String),
    /// A host's port, as its administrator would set it down: `h0.p2`.
    Port(String),
}

impl Change {
    /// Host and plane of `h0.p2`.
    pub(crate) fn port_of(text: &str) -> Option<(usize, usize)> {
        let (host, plane) = text.split_once('.')?;
        Some((
            super::workload::host_number(host)?,
            plane.strip_prefix('p')?.parse().ok()?,
        ))
    }

    /// Whether it is about that port.
    pub(crate) fn is_port(&self, node: &str, plane: usize) -> bool {
        let (Self::Link(port) | Self::Port(port)) = self;
        *port == format!("{node}.p{plane}")
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Link(name) => format!("link {name}"),
            Self::Port(name) => format!("port {name}"),
        }
    }
}

impl Moment {
    /// For the report.
    pub(crate) fn describe(&self) -> String {
        if let Some(note) = &self.note {
            return note.clone();
        }
        let list = |changes: &[Change]| changes.iter().map(Change::describe).collect::<Vec<_>>().join(", ");
        match (self.fault.is_empty(), self.heal.is_empty()) {
            (false, true) => format!("{} down", list(&self.fault)),
            (true, false) => format!("{} up", list(&self.heal)),
            _ => format!("{} down, {} up", list(&self.fault), list(&self.heal)),
        }
    }
}
