//! The bandwidth test: as many writes outstanding as allowed.

use std::time::{Duration, Instant};

use mrc_verbs::{Error, SendRequest, WorkCompletion};

use crate::cli::{Length, Op, Plan};
use crate::control::{Control, Message};
use crate::failure::Failure;
use crate::idle::Idle;
use crate::progress::Progress;
use crate::setup::{Setup, receives};
use crate::stats::{Bandwidth, Peak};

/// Completions taken at once.
const BATCH: usize = 32;
/// Longest wait for what the peer says it has sent.
const LATE: Duration = Duration::from_secs(30);

/// Longest time without a packet and a word of a peer whose data is awaited: it may be stopped, and its connection stays.
const SILENT: Duration = Duration::from_secs(10);

/// What this side knows across the steps of a test.
pub(crate) struct Flows {
    /// Messages sent in all, by queue pair: what credits count against.
    sent: Vec<u64>,
    /// Receives posted again in all, by queue pair, and how many of them the peer knows of.
    reposted: Vec<u64>,
    granted: Vec<u64>,
}

/// One step (one size) of the test.
pub(crate) struct Step<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) plan: &'a Plan,
    pub(crate) control: &'a Control,
    pub(crate) number: usize,
    pub(crate) size: u64,
}

/// What a step ends with.
pub(crate) struct StepEnd {
    /// This side's figures, if it sent.
    pub(crate) own: Option<Bandwidth>,
    /// The peer's figures, if it sent.
    pub(crate) peer: Option<Bandwidth>,
    /// Messages that the peer sent, by queue pair.
    pub(crate) received: Vec<u64>,
    /// The first wrong receive completion, in words.
    pub(crate) difference: Option<String>,
}

/// What the peer says at its end of a step: messages by queue pair (none if it does not send), and its figures.
type PeerDone = (Vec<u64>, Option<Bandwidth>);

/// The sending half of a step.
struct Sender {
    posted: Vec<u64>,
    completed: Vec<u64>,
    last_signaled: Vec<bool>,
    /// Messages of each queue pair; unknown while time runs.
    limit: Option<u64>,
    deadline: Option<Instant>,
    every: u64,
    started: Instant,
    peak: Peak,
}

/// The receiving half of a step with immediates.
#[derive(Default)]
struct Receiver {
    received: Vec<u64>,
    difference: Option<String>,
}

impl Flows {
    pub(crate) fn new(plan: &Plan) -> Flows {
        let zeroes = vec![0; plan.qps as usize];
        Flows {
            sent: zeroes.clone(),
            reposted: zeroes.clone(),
            granted: zeroes,
        }
    }
}

impl Step<'_> {
    /// Runs the step; both sides have passed the barrier.
    pub(crate) fn run(&self, flows: &mut Flows, progress: &mut Progress) -> Result<StepEnd, Failure> {
        let sends = self.plan.sends(self.setup.side);
        let receives = self.plan.sends(self.setup.side.other());
        let mut sender = sends.then(|| self.sender());
        let mut receiver = Receiver {
            received: vec![0; self.setup.qps.len()],
            difference: None,
        };
        let mut idle = Idle::new(&self.setup.channel, [&self.setup.send_cq, &self.setup.recv_cq]);
        let mut own = None;
        let mut theirs: Option<PeerDone> = None;
        if !sends {
            self.tell_done(vec![], None)?;
        }
        loop {
            let mut worked = false;
            if let Some(sender) = &mut sender {
                worked |= self.post(sender, flows)?;
            }
            worked |= self.reap(sender.as_mut())?;
            if self.plan.op == Op::WriteImm && receives {
                worked |= self.receive(&mut receiver, flows)?;
            }
            if let Some(done) = sender.take_if(|sender| sender.is_done()) {
                let bandwidth = done.figures();
                self.tell_done(done.completed, Some(bandwidth))?;
                own = Some(bandwidth);
            }
            if worked {
                idle.busy();
            }
            if idle.look_around() {
                if let Some(sender) = &sender {
                    let total = sender.limit.map(|limit| limit * self.setup.qps.len() as u64);
                    progress.note(self.size, sender.completed.iter().sum(), total);
                } else if self.plan.op == Op::WriteImm {
                    progress.note(self.size, receiver.received.iter().sum(), None);
                }
                if theirs.is_none() {
                    theirs = self.hear_done()?;
                }
            }
            if sender.is_none()
                && let Some((sent, bandwidth)) = &theirs
            {
                let all_here = !receives || self.plan.op == Op::Write || *sent == receiver.received;
                if all_here {
                    let received = if receives { sent.clone() } else { vec![] };
                    return Ok(StepEnd {
                        own,
                        peer: *bandwidth,
                        received,
                        difference: receiver.difference,
                    });
                }
                if idle.idle_for() > LATE {
                    let got: u64 = receiver.received.iter().sum();
                    let want = sent.iter().fold(0, |sum: u64, one| sum.saturating_add(*one));
                    return Err(Failure::Test(format!(
                        "{got} immediates arrived, the peer says that it sent {want}"
                    )));
                }
            }
            if sender.is_none() && theirs.is_none() && idle.idle_for() > SILENT {
                return Err(self.silent());
            }
            if !worked {
                // Nothing to poll for while only the peer works: its message wakes us.
                if sender.is_none() && self.plan.op == Op::Write && theirs.is_none() {
                    theirs = self.wait_for_done(progress)?;
                } else {
                    idle.wait();
                }
            }
        }
    }

    fn sender(&self) -> Sender {
        let count = self.setup.qps.len();
        let now = Instant::now();
        let (limit, deadline) = match self.plan.length {
            Length::Iters(iters) => (Some(iters), None),
            Length::Seconds(seconds) => (None, Some(now + Duration::from_secs(seconds))),
        };
        // Completions come in bursts of all that is outstanding: a shorter window would measure the burst.
        let outstanding = u64::from(self.plan.depth) * count as u64;
        let tenth = limit.map_or(0, |iters| iters * count as u64 / 10);
        let window = tenth.max(4 * outstanding);
        Sender {
            posted: vec![0; count],
            completed: vec![0; count],
            last_signaled: vec![true; count],
            limit,
            deadline,
            every: u64::from(self.plan.depth / 8).clamp(1, 16),
            started: now,
            peak: Peak::new(window, 0),
        }
    }

    /// Fills the send queues. True if something was posted.
    fn post(&self, sender: &mut Sender, flows: &mut Flows) -> Result<bool, Failure> {
        let Setup {
            qps,
            region,
            layout,
            peer_region,
            credits,
            ..
        } = self.setup;
        let depth = u64::from(self.plan.depth);
        let slots = layout.slots(self.size);
        if sender.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            sender.close();
        }
        let mut worked = false;
        for (number, qp) in qps.iter().enumerate() {
            let mut room = depth.saturating_sub(sender.posted[number] - sender.completed[number]);
            if self.plan.op == Op::WriteImm {
                // The peer writes the credits: any number may stand there.
                let granted = credits.load_u64(8 * number)?.saturating_add(receives(self.plan).into());
                room = room.min(granted.saturating_sub(flows.sent[number]));
            }
            while room > 0 && sender.limit.is_none_or(|limit| sender.posted[number] < limit) {
                let index = sender.posted[number];
                let slot = index % slots;
                let from = layout.source(number, slot, self.size);
                let to = peer_region.at(layout.destination(number, slot, self.size) as u64);
                let piece = region.slice(from..from + self.size as usize)?;
                let signaled = (index + 1).is_multiple_of(sender.every) || sender.limit == Some(index + 1);
                let mut request = SendRequest::write((number as u64) << 40 | index, piece, to);
                if !signaled {
                    request = request.unsignaled();
                }
                if self.plan.op == Op::WriteImm {
                    request = request.with_imm((index as u32).to_be_bytes());
                }
                match qp.post_write(&request) {
                    // Credits share the queue; their slots come back soon.
                    Err(Error::QueueFull { .. }) => break,
                    other => other?,
                }
                sender.posted[number] += 1;
                sender.last_signaled[number] = signaled;
                flows.sent[number] += 1;
                room -= 1;
                worked = true;
            }
        }
        Ok(worked)
    }

    /// Takes send completions. They come in order, so one stands for all before it.
    fn reap(&self, sender: Option<&mut Sender>) -> Result<bool, Failure> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.setup.send_cq.poll(&mut batch)?;
        if let Some(failure) = batch[..count]
            .iter()
            .find_map(|completion| self.setup.failed("a write", completion))
        {
            return Err(failure);
        }
        if let Some(sender) = sender
            && count > 0
        {
            for completion in &batch[..count] {
                let (number, index) = ((completion.wr_id >> 40) as usize, completion.wr_id & ((1 << 40) - 1));
                if let Some(completed) = sender.completed.get_mut(number) {
                    *completed = index + 1;
                }
            }
            sender.peak.note(
                sender.completed.iter().sum(),
                sender.started.elapsed().as_nanos() as u64,
            );
        }
        Ok(count > 0)
    }

    /// Takes receive completions, checks them, posts the receives again and tells the peer now and then.
    fn receive(&self, receiver: &mut Receiver, flows: &mut Flows) -> Result<bool, Failure> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.setup.recv_cq.poll(&mut batch)?;
        for completion in &batch[..count] {
            if let Some(failure) = self.setup.failed("a receive", completion) {
                return Err(failure);
            }
            let Some(number) = self.setup.qps.iter().position(|qp| qp.qpn() == completion.qpn) else {
                continue;
            };
            let index = receiver.received[number];
            receiver.received[number] += 1;
            if receiver.difference.is_none() {
                receiver.difference = self.check(number, index, completion)?;
            }
            self.setup.qps[number].post_recv(completion.wr_id)?;
            flows.reposted[number] += 1;
            if flows.reposted[number] - flows.granted[number] >= u64::from(receives(self.plan) / 4).max(1) {
                self.grant(number, flows)?;
            }
        }
        Ok(count > 0)
    }

    fn grant(&self, number: usize, flows: &mut Flows) -> Result<(), Failure> {
        let count = flows.reposted[number].to_ne_bytes();
        let to = self.setup.peer_credits.at(8 * number as u64);
        match self.setup.qps[number].post_write(&SendRequest::inline(0, &count, to).unsignaled()) {
            Ok(()) => flows.granted[number] = flows.reposted[number],
            // Next time.
            Err(Error::QueueFull { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A receive completion must tell of the next message, whole and in place.
    fn check(&self, number: usize, index: u64, completion: &WorkCompletion) -> Result<Option<String>, Failure> {
        let (size, imm) = (u64::from(completion.byte_len), completion.imm.map(u32::from_be_bytes));
        if size != self.size || imm != Some(index as u32) {
            return Ok(Some(format!(
                "queue pair {number}: receive {index} tells of {size} B with immediate {imm:?}, expected {} B with {index}",
                self.size
            )));
        }
        // The slot's first message is checked at once: its data must be here before its immediate.
        if self.plan.verify && index < self.setup.layout.slots(self.size) {
            return self
                .setup
                .compare_slot(self.plan, self.number, self.size, (number, index), &|_, _, _| {});
        }
        Ok(None)
    }

    fn tell_done(&self, sent: Vec<u64>, bandwidth: Option<Bandwidth>) -> Result<(), Failure> {
        self.control.send(&Message::Done {
            step: self.number,
            sent,
            bandwidth,
            latency: None,
        })
    }

    fn hear_done(&self) -> Result<Option<PeerDone>, Failure> {
        self.control
            .try_receive()?
            .map(|message| self.done_of(message))
            .transpose()
    }

    fn wait_for_done(&self, progress: &mut Progress) -> Result<Option<PeerDone>, Failure> {
        let incoming = || {
            self.setup
                .device
                .counters()
                .ports
                .iter()
                .map(|port| port.rx_data_bytes)
                .sum::<u64>()
        };
        let before = incoming();
        let mut heard = (before, Instant::now());
        loop {
            if let Some(message) = self.control.receive_within(Duration::from_millis(100))? {
                return self.done_of(message).map(Some);
            }
            let so_far = incoming();
            if so_far != heard.0 {
                heard = (so_far, Instant::now());
            } else if heard.1.elapsed() > SILENT {
                return Err(self.silent());
            }
            progress.note_incoming(self.size, so_far - before);
        }
    }

    fn silent(&self) -> Failure {
        Failure::Peer(format!(
            "lost the peer {}: no data and no word for {} s; is it stopped?",
            self.control.peer(),
            SILENT.as_secs()
        ))
    }

    fn done_of(&self, message: Message) -> Result<PeerDone, Failure> {
        match message {
            Message::Done {
                step, sent, bandwidth, ..
            } if step == self.number => {
                if sent.len() == self.setup.qps.len() || sent.is_empty() {
                    return Ok((sent, bandwidth));
                }
                Err(Failure::Peer(format!("the peer reports {} queue pairs", sent.len())))
            }
            other => Err(crate::control::unexpected("the end of the step", &other)),
        }
    }
}

impl Sender {
    /// Time is up: no more messages than posted, but for one where the end would not be seen otherwise.
    fn close(&mut self) {
        self.deadline = None;
        let most = self.posted.iter().copied().max().unwrap_or(0);
        let seen = self
            .posted
            .iter()
            .zip(&self.last_signaled)
            .all(|(posted, signaled)| *posted == most && *signaled);
        self.limit = Some(if seen && most > 0 { most } else { most + 1 });
    }

    fn is_done(&self) -> bool {
        self.limit
            .is_some_and(|limit| self.completed.iter().all(|completed| *completed >= limit))
    }

    fn figures(&self) -> Bandwidth {
        let messages = self.completed.iter().sum();
        let mut figures = Bandwidth {
            messages,
            elapsed_ns: self.started.elapsed().as_nanos() as u64,
            peak_msg_per_s: 0.0,
        };
        figures.peak_msg_per_s = self.peak.best(figures.msg_per_s());
        figures
    }
}
