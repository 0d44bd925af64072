//! The agents' processes, as the runner sees them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use netns_lab::{Lab, Process};

use super::RunError;
use crate::agent::{Order, Report};

/// What comes from outside while a scenario runs.
#[derive(Debug)]
pub(crate) enum News {
    /// An agent has said something.
    Said(usize, Report),
    /// An agent's output has ended or cannot be understood.
    Gone(usize, String),
    /// Somebody wants an end.
    Signal(netns_lab::Signal),
}

/// An agent in each host. They end with the lab at the latest.
pub(crate) struct Agents {
    processes: Vec<Process>,
    inputs: Vec<ChildStdin>,
    readers: Vec<JoinHandle<()>>,
}

/// The hidden command by which this program becomes an agent.
pub(crate) const COMMAND: &str = "agent";

impl Agents {
    /// Starts them; each will say that it is ready.
    pub(crate) fn start(lab: &Lab, sample_ms: u64, news: &Sender<News>) -> Result<Agents, RunError> {
        let mut agents = Agents {
            processes: Vec::new(),
            inputs: Vec::new(),
            readers: Vec::new(),
        };
        for (host, place) in lab.hosts().enumerate() {
            // This very program, even if another build has taken its place in the meantime.
            let mut command = Command::new("/proc/self/exe");
            command.arg(COMMAND).arg(sample_ms.to_string());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = place.spawn(command)?;
            let closed = |what: &str| RunError::Agent {
                host: format!("h{host}"),
                message: format!("the agent has no standard {what}"),
            };
            let out = process.stdout.take().ok_or_else(|| closed("output"))?;
            agents.inputs.push(process.stdin.take().ok_or_else(|| closed("input"))?);
            agents.processes.push(process);
            let news = news.clone();
            agents.readers.push(thread::spawn(move || {
                for line in BufReader::new(out).lines() {
                    let report = line.map_err(|e| e.to_string());
                    let report = report.and_then(|line| serde_json::from_str(&line).map_err(|e| e.to_string()));
                    let told = match report {
                        Ok(report) => news.send(News::Said(host, report)),
                        Err(error) => news.send(News::Gone(host, error)),
                    };
                    if told.is_err() {
                        return;
                    }
                }
                let _ = news.send(News::Gone(host, "the agent has ended".to_owned()));
            }));
        }
        Ok(agents)
    }

    /// Gives a host's agent an order.
    pub(crate) fn tell(&mut self, host: usize, order: &Order) -> Result<(), RunError> {
        let error = |message: String| RunError::Agent {
            host: format!("h{host}"),
            message,
        };
        let mut line = serde_json::to_string(order).map_err(|e| error(e.to_string()))?;
        line.push('\n');
        let input = &mut self.inputs[host];
        input
            .write_all(line.as_bytes())
            .and_then(|()| input.flush())
            .map_err(|e| error(format!("the agent does not listen: {e}")))
    }

    /// Lets them end: engines give their ports back before the ports vanish.
    pub(crate) fn quit(mut self) {
        for host in 0..self.inputs.len() {
            // What has ended needs no order.
            let _ = self.tell(host, &Order::Quit);
        }
        self.inputs.clear();
        for process in &mut self.processes {
            let _ = process.wait();
        }
        // Then their last words have been said, and nobody takes them for those of the next run's.
        for reader in self.readers {
            let _ = reader.join();
        }
    }
}
