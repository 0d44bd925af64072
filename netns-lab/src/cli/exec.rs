//! Commands inside hosts.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netns_lab::plan::Plan;
use netns_lab::{Lab, LabError, Process, ProcessGroup, Signal, Topology};

use super::{output, signals};

/// How long commands may take to end after they have been asked to.
const GRACE: Duration = Duration::from_secs(3);

/// `NODE:COMMAND`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeCommand {
    node: String,
    line: String,
}

impl FromStr for NodeCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((node, line)) if !node.is_empty() && !line.trim().is_empty() => Ok(Self {
                node: node.to_owned(),
                line: line.to_owned(),
            }),
            _ => Err("expected NODE:COMMAND, for example h0:'ip addr'".to_owned()),
        }
    }
}

enum Event {
    Ended { place: usize, status: ExitStatus },
    Asked(Signal),
}

/// Builds the lab, runs the commands, and returns the worst exit status.
pub(crate) fn run(topology: &Topology, commands: &[NodeCommand], stop_on_failure: bool) -> Result<u8, LabError> {
    // Before anything is built: a wrong name should cost nothing.
    let plan = Plan::new(topology)?;
    commands.iter().try_for_each(|c| plan.node(&c.node).map(drop))?;
    let (events, inbox) = mpsc::channel();
    let asked = events.clone();
    signals::watch(move |signal| {
        let _ = asked.send(Event::Asked(signal));
    })?;
    let lab = Lab::build(topology)?;
    let mut groups = Vec::new();
    let mut outputs = Vec::new();
    for (place, command) in commands.iter().enumerate() {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(&command.line);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = lab.node(&command.node)?.spawn(shell)?;
        outputs.extend(follow(&mut process, &command.node, place));
        groups.push(process.group());
        wait(process, place, events.clone());
    }

    let mut worst = 0;
    let mut running = groups.len();
    let mut deadline = None;
    while running > 0 {
        let patience = deadline.map_or(Duration::MAX, |d: Instant| d.saturating_duration_since(Instant::now()));
        match inbox.recv_timeout(patience) {
            Ok(Event::Ended { place, status }) => {
                running -= 1;
                let code = exit_code(status);
                // How commands end that were told to is not their result.
                if deadline.is_none() || code < 128 {
                    worst = worst.max(code);
                }
                if code != 0 && deadline.is_none() {
                    eprintln!("netns-lab: {}: {}", commands[place].node, describe(status));
                    if stop_on_failure {
                        signal_all(&groups, Signal::SIGTERM);
                        deadline = Some(Instant::now() + GRACE);
                    }
                }
            }
            // The second time, without grace.
            Ok(Event::Asked(signal)) => {
                worst = worst.max(128 + signal as u8);
                if deadline.is_some() {
                    break;
                }
                signal_all(&groups, signal);
                deadline = Some(Instant::now() + GRACE);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    // What is left of the commands ends here, and with it the last writer of every output.
    drop(lab);
    for output in outputs {
        let _ = output.join();
    }
    Ok(worst)
}

fn signal_all(groups: &[ProcessGroup], signal: Signal) {
    for group in groups {
        // What has ended needs no signal.
        let _ = group.signal(signal);
    }
}

/// Copies a command's outputs until they end.
fn follow(process: &mut Process, node: &str, place: usize) -> Vec<JoinHandle<()>> {
    let (out_terminal, err_terminal) = output::terminals();
    let mut threads = Vec::new();
    if let Some(from) = process.stdout.take() {
        let prefix = output::prefix(node, place, out_terminal);
        threads.push(thread::spawn(move || {
            output::copy_lines(from, std::io::stdout(), &prefix);
        }));
    }
    if let Some(from) = process.stderr.take() {
        let prefix = output::prefix(node, place, err_terminal);
        threads.push(thread::spawn(move || {
            output::copy_lines(from, std::io::stderr(), &prefix);
        }));
    }
    threads
}

fn wait(mut process: Process, place: usize, events: Sender<Event>) {
    thread::spawn(move || {
        if let Ok(status) = process.wait() {
            let _ = events.send(Event::Ended { place, status });
        }
    });
}

/// As a shell tells it: 128 and the signal where a signal ended the command.
fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 255,
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal().map(Signal::try_from)) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(Ok(signal))) => format!("ended by {signal}"),
        (None, _) => format!("{status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_its_node_before_the_first_colon() {
        let command: NodeCommand = "h0:ping -c 1 fd4d::1".parse().unwrap();
        assert_eq!(
            command,
            NodeCommand {
                node: "h0".to_owned(),
                line: "ping -c 1 fd4d::1".to_owned()
            }
        );
        for wrong in ["ping", ":ping", "h0:", "h0: "] {
            assert!(wrong.parse::<NodeCommand>().unwrap_err().contains("NODE:COMMAND"));
        }
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
