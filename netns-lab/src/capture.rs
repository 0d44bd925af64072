//! Packets as a switch sees them, by tcpdump.

use std::io::{self, BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};

use crate::lab::Namespace;
use crate::process::Process;
use crate::{LabError, Signal};

/// Room for bursts between the kernel and tcpdump, KiB.
const BUFFER_KIB: &str = "16384";

/// A capture that is running. It ends with the lab at the latest.
#[derive(Debug)]
pub struct Capture {
    node: String,
    process: Process,
    messages: Lines<BufReader<ChildStderr>>,
}

/// What a capture did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Captured {
    /// Packets in the file.
    pub packets: u64,
    /// Packets that the kernel had no room for.
    pub dropped: u64,
}

impl Capture {
    pub(crate) fn start(node: &Namespace<'_>, interface: &str, file: &Path, filter: &str) -> Result<Self, LabError> {
        let mut command = Command::new("tcpdump");
        // Every packet at once into the file, which root may be the only one to write to.
        command
            .args([
                "-n",
                "-U",
                "--immediate-mode",
                "-Z",
                "root",
                "-B",
                BUFFER_KIB,
                "-i",
                interface,
                "-w",
            ])
            .arg(file);
        if !filter.is_empty() {
            command.arg(filter);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = node.spawn(command).map_err(|error| match error {
            LabError::Kernel { source, .. } if source.kind() == io::ErrorKind::NotFound => LabError::Program {
                program: "tcpdump".to_owned(),
                package: "tcpdump",
                source,
            },
            other => other,
        })?;
        let failed = |message: String| LabError::Capture {
            node: node.name().to_owned(),
            message,
        };
        let messages = process
            .stderr
            .take()
            .ok_or_else(|| failed("it has no standard error".to_owned()))?;
        let mut messages = BufReader::new(messages).lines();
        let mut said = Vec::new();
        for line in messages.by_ref() {
            let line = line.map_err(|e| failed(e.to_string()))?;
            if line.contains("listening on") {
                return Ok(Self {
                    node: node.name().to_owned(),
                    process,
                    messages,
                });
            }
            said.push(line);
        }
        Err(failed(said.join("; ")))
    }

    /// Ends it; the file is complete when this returns.
    pub fn stop(mut self) -> Result<Captured, LabError> {
        let failed = |e: io::Error| LabError::kernel(format!("end the capture on '{}'", self.node), e);
        self.process.signal(Signal::SIGINT).map_err(failed)?;
        let mut captured = Captured::default();
        for line in self.messages.by_ref() {
            count(&line.map_err(failed)?, &mut captured);
        }
        self.process.wait().map_err(failed)?;
        Ok(captured)
    }
}

/// tcpdump's last words: `12 packets captured`, `0 packets dropped by kernel`.
fn count(line: &str, captured: &mut Captured) {
    let Some((number, what)) = line.split_once(' ') else {
        return;
    };
    let Ok(number) = number.parse() else { return };
    if what.contains("captured") {
        captured.packets = number;
    } else if what.contains("dropped by kernel") {
        captured.dropped = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_tcpdump_are_understood() {
        let mut captured = Captured::default();
        for line in [
            "12 packets captured",
            "24 packets received by filter",
            "1 packet dropped by kernel",
            "",
            "odd",
        ] {
            count(line, &mut captured);
        }
        assert_eq!(
            captured,
            Captured {
                packets: 12,
                dropped: 1
            }
        );
    }
}
