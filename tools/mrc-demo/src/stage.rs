//! Builds the lab, starts the programs in its hosts, takes a plane down and up, and shows what they tell.

use std::env::current_exe;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use netns_lab::{Lab, Process, Topology};

use crate::error::{DemoError, io};
use crate::event::{Event, Finished, Verdict, now_ns};
use crate::screen::{Arrivals, Frame, Screen};
use crate::summary::{Pause, Summary, Times, render};

/// What is to be shown.
pub(crate) struct Play {
    pub(crate) size: usize,
    pub(crate) seed: u64,
    pub(crate) planes: usize,
    pub(crate) mtu: u32,
    pub(crate) plain: bool,
}

/// The plane that dies, and when: shares of the data that have moved.
const PLANE: usize = 2;
const DOWN_AT: f64 = 0.3;
const UP_AT: f64 = 0.6;
/// However fast the data moves, each act lasts at least so long: before the failure, while the plane is down, and after its return.
/// More data than asked for is moved where it takes that.
const ACT: Duration = Duration::from_secs(1);
/// A plane has come back when it carries this share of what the others do.
const BACK_AT: f64 = 0.5;
/// How long it may take to come back.
const BACK_PATIENCE: Duration = Duration::from_secs(15);
/// Nothing arrives for so long: something is broken.
const STUCK: Duration = Duration::from_secs(20);
/// The target's host: its plane dies, so that the source has to find out by itself.
const TARGET: usize = 1;

/// Runs the show; `false` if something went wrong that its summary tells.
pub(crate) fn run(play: &Play) -> Result<bool, DemoError> {
    enough_memory(play.size)?;
    let mut screen = Screen::new(play.plain);
    screen.say(&format!(
        "two hosts, {} planes with a T0 switch each, MTU {}; {} MiB of random data to move with one queue pair",
        play.planes,
        play.mtu,
        play.size >> 20
    ));
    let lab = Lab::build(&Topology::leaf(2, play.planes).mtu(play.mtu))?;
    let (sender, events) = channel();
    let target = start(&lab, TARGET, "target", play, &sender)?;
    let source = start(&lab, 0, "source", play, &sender)?;
    drop(sender);
    let mut show = Show {
        lab: &lab,
        play,
        screen,
        arrivals: Arrivals::new(play.planes),
        phase: Phase::Before,
        source,
        times: Times::default(),
        pauses: Vec::new(),
        started_ns: 0,
        done: 0,
        moved: Instant::now(),
        plane_returned: false,
        written: false,
        finished: None,
        verdict: None,
    };
    let outcome = show.run(&events);
    let (mut source, mut target) = (show.source, target);
    if outcome.is_err() {
        // The lab's end kills them as well; this makes their own errors come out before ours.
        let _ = source.wait_briefly();
        let _ = target.kill();
    }
    let summary = outcome?;
    print!("\n{}", render(&summary));
    Ok(summary.ok())
}

trait WaitBriefly {
    fn wait_briefly(&mut self) -> std::io::Result<()>;
}

impl WaitBriefly for Process {
    fn wait_briefly(&mut self) -> std::io::Result<()> {
        let deadline = Instant::now() + Duration::from_millis(200);
        while self.try_wait()?.is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        self.kill()
    }
}

fn start(
    lab: &Lab,
    host: usize,
    role: &'static str,
    play: &Play,
    events: &Sender<(&'static str, Option<Event>)>,
) -> Result<Process, DemoError> {
    let mut command = Command::new(current_exe().map_err(io("finding this program"))?);
    command.args([
        "--mib",
        &(play.size >> 20).to_string(),
        "--seed",
        &play.seed.to_string(),
        role,
    ]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = lab.host(host).spawn(command)?;
    if let Some(output) = process.stdout.take() {
        let events = events.clone();
        thread::spawn(move || forward(role, output, &events));
    }
    Ok(process)
}

/// Hands on what a program tells, and its end as `None`.
fn forward(role: &'static str, output: impl Read, events: &Sender<(&'static str, Option<Event>)>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(event) => {
                if events.send((role, Some(event))).is_err() {
                    return;
                }
            }
            Err(_) => println!("{role}: {line}"),
        }
    }
    let _ = events.send((role, None));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Before,
    Down,
    Up,
    /// The plane carries data again, since then.
    Back(Instant),
    /// Nothing more is to be seen.
    Settled,
}

struct Show<'a> {
    lab: &'a Lab,
    play: &'a Play,
    screen: Screen,
    arrivals: Arrivals,
    phase: Phase,
    source: Process,
    times: Times,
    pauses: Vec<Pause>,
    started_ns: u64,
    done: u64,
    moved: Instant,
    plane_returned: bool,
    written: bool,
    finished: Option<Finished>,
    verdict: Option<Verdict>,
}

impl Show<'_> {
    fn run(&mut self, events: &Receiver<(&'static str, Option<Event>)>) -> Result<Summary, DemoError> {
        loop {
            match events.recv_timeout(Duration::from_millis(50)) {
                Ok((role, Some(event))) => self.handle(role, event)?,
                Ok((role, None)) => self.ended(role)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(DemoError::Ended { role: "source" }),
            }
            if let (Some(finished), Some(verdict)) = (&self.finished, &self.verdict) {
                return Ok(Summary {
                    finished: finished.clone(),
                    verdict: verdict.clone(),
                    plane: PLANE,
                    times: self.times,
                    pauses: std::mem::take(&mut self.pauses),
                    plane_returned: self.plane_returned,
                    arrived: self.arrivals.totals(),
                });
            }
            if self.finished.is_none() && self.moved.elapsed() > STUCK {
                return Err(DemoError::Stuck {
                    seconds: STUCK.as_secs(),
                    done_mib: self.done >> 20,
                });
            }
        }
    }

    fn ended(&self, role: &'static str) -> Result<(), DemoError> {
        let over = if role == "source" {
            self.finished.is_some()
        } else {
            self.verdict.is_some()
        };
        if over { Ok(()) } else { Err(DemoError::Ended { role }) }
    }

    fn handle(&mut self, role: &'static str, event: Event) -> Result<(), DemoError> {
        match event {
            Event::Connected { at_ns, pmtu } => {
                self.started_ns = at_ns;
                self.moved = Instant::now();
                self.screen.say(&format!("connected, {pmtu} bytes of data a packet"));
            }
            Event::Progress { done, .. } => {
                if done > self.done {
                    self.moved = Instant::now();
                }
                self.done = done;
                self.act()?;
            }
            Event::Gap { at_ns, gap_ns } => self.pauses.push(Pause {
                end_ns: at_ns,
                length_ns: gap_ns,
            }),
            Event::Arrived { at_ns, planes } => {
                self.arrivals.add(at_ns, planes);
                if self.started_ns == 0 {
                    self.moved = Instant::now();
                } else if !self.written {
                    self.draw(at_ns);
                    self.act()?;
                }
            }
            Event::Written { at_ns } => {
                self.written = true;
                self.screen.say(&format!(
                    "everything is written and acknowledged after {:.2} s; the target compares",
                    at_ns.saturating_sub(self.started_ns) as f64 / 1e9
                ));
            }
            Event::Finished(finished) => self.finished = Some(finished),
            Event::Verdict(verdict) if role == "target" => self.verdict = Some(verdict),
            Event::Verdict(_) => {}
        }
        Ok(())
    }

    fn share_done(&self) -> f64 {
        self.done as f64 / self.play.size as f64
    }

    fn draw(&mut self, at_ns: u64) {
        let gbps = self.arrivals.gbps();
        self.screen.draw(&Frame {
            seconds: at_ns.saturating_sub(self.started_ns) as f64 / 1e9,
            done: self.share_done(),
            gbps: &gbps,
            down: (self.phase == Phase::Down).then_some(PLANE - 1),
        });
    }

    /// Takes the plane down and up when it is time.
    fn act(&mut self) -> Result<(), DemoError> {
        let since = |ns: u64| Duration::from_nanos(now_ns().saturating_sub(ns));
        match self.phase {
            Phase::Before if self.share_done() >= DOWN_AT && since(self.started_ns) >= ACT => {
                self.times.down_ns = now_ns();
                self.lab.set_link(TARGET, PLANE, false)?;
                self.screen.say(&format!(
                    "-- plane {PLANE} goes down: the cable between its T0 and the target"
                ));
                self.phase = Phase::Down;
            }
            Phase::Down if self.share_done() >= UP_AT && since(self.times.down_ns) >= ACT => {
                self.lab.set_link(TARGET, PLANE, true)?;
                self.times.up_ns = now_ns();
                self.screen.say(&format!("-- plane {PLANE} is up again"));
                self.phase = Phase::Up;
            }
            Phase::Up => {
                let gbps = self.arrivals.gbps();
                let others = gbps.iter().sum::<f64>() - gbps[PLANE - 1];
                let average = others / (gbps.len() - 1) as f64;
                if average > 0.0 && gbps[PLANE - 1] >= BACK_AT * average {
                    self.plane_returned = true;
                    self.phase = Phase::Back(Instant::now());
                } else if since(self.times.up_ns) >= BACK_PATIENCE {
                    self.enough()?;
                }
            }
            Phase::Back(at) if at.elapsed() >= ACT => self.enough()?,
            Phase::Before | Phase::Down | Phase::Back(_) | Phase::Settled => {}
        }
        Ok(())
    }

    /// Tells the source that it may end, once all data has been written.
    fn enough(&mut self) -> Result<(), DemoError> {
        self.phase = Phase::Settled;
        let told = self
            .source
            .stdin
            .as_mut()
            .map_or(Ok(()), |input| input.write_all(b"enough\n"));
        told.map_err(io("telling the source that it is enough"))
    }
}

/// Both hosts hold all data, and this machine has to hold both.
fn enough_memory(size: usize) -> Result<(), DemoError> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match available_mib(&meminfo) {
        Some(free_mib) if free_mib < need_mib(size as u64 >> 20) => Err(DemoError::Memory {
            need_mib: need_mib(size as u64 >> 20),
            free_mib,
            fitting: (free_mib.saturating_sub(OTHER_MIB) / 2).max(16),
        }),
        _ => Ok(()),
    }
}

const OTHER_MIB: u64 = 128;

fn need_mib(size_mib: u64) -> u64 {
    2 * size_mib + OTHER_MIB
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_much_memory_is_free() {
        assert_eq!(
            available_mib("MemTotal: 9 kB\nMemAvailable:    4194304 kB\n"),
            Some(4096)
        );
        assert_eq!(available_mib("nothing of the kind"), None);
    }

    #[test]
    fn what_programs_tell_is_handed_on_and_their_end_too() {
        let (sender, events) = channel();
        forward(
            "source",
            "{\"event\":\"progress\",\"at_ns\":1,\"done\":2}\n".as_bytes(),
            &sender,
        );
        assert_eq!(
            events.recv().unwrap(),
            ("source", Some(Event::Progress { at_ns: 1, done: 2 }))
        );
        assert_eq!(events.recv().unwrap(), ("source", None));
    }
}
