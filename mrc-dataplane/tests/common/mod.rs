//! Two or more network namespaces joined by veth pairs, held by threads of the test: gone with it, even when it is killed.

#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use mrc_dataplane::port::PortSpec;
use mrc_dataplane::port::{AfXdpPort, LinkState, Port, PortError, PortOptions, TxResult, open_ports};
use mrc_wire::PortNum;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, gettid};

type Job = Box<dyn FnOnce() + Send>;

/// Whether the test can run; says so when it cannot.
pub(crate) fn privileged(test: &str) -> bool {
    let root = Uid::effective().is_root();
    if !root {
        eprintln!("skipped {test}: it makes network namespaces, which needs root");
    }
    root
}

/// A network namespace and the thread that lives in it.
pub(crate) struct Netns {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    tid: i32,
}

impl Netns {
    pub(crate) fn new() -> Self {
        let (jobs, queue) = channel::<Job>();
        let (ready, started) = channel();
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("unshare: are we root?");
            ready.send(gettid().as_raw()).expect("the test waits");
            for job in queue {
                job();
            }
        });
        let tid = started.recv().expect("the thread has started");
        let netns = Self {
            jobs: Some(jobs),
            thread: Some(thread),
            tid,
        };
        netns.ip("link set lo up");
        netns
    }

    /// Runs something on the thread of the namespace.
    pub(crate) fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (result, answer) = channel();
        let job: Job = Box::new(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            let _ = result.send(outcome);
        });
        self.jobs
            .as_ref()
            .expect("not dropped")
            .send(job)
            .expect("the thread lives");
        match answer.recv().expect("the job answers") {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs `ip` with these words; panics with its words if it fails.
    pub(crate) fn ip(&self, words: &str) -> String {
        self.command("ip", words)
    }

    pub(crate) fn command(&self, program: &str, words: &str) -> String {
        let (ok, text) = self.try_command(program, words);
        assert!(ok, "{program} {words}: {text}");
        text
    }

    pub(crate) fn try_command(&self, program: &str, words: &str) -> (bool, String) {
        let (program, words) = (program.to_owned(), words.to_owned());
        self.run(move || {
            let output = Command::new(&program)
                .args(words.split_whitespace())
                .output()
                .expect("program runs");
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            (output.status.success(), text)
        })
    }

    /// Joins this namespace to another: interface `name` on both sides, up, with addresses `10.9.PLANE.{1,2}/24` and
    /// `fd09:PLANE::{1,2}/64`, fixed MAC addresses, no duplicate address detection.
    pub(crate) fn join(&self, other: &Self, name: &str, plane: u8, mtu: u32) {
        let peer = other.tid;
        self.ip(&format!(
            "link add {name} address 02:00:00:00:0{plane}:01 mtu {mtu} type veth peer name {name} address 02:00:00:00:0{plane}:02 mtu {mtu} netns {peer}"
        ));
        for (side, netns) in [(1, self), (2, other)] {
            netns.ip(&format!("link set {name} addrgenmode none"));
            netns.ip(&format!("link set {name} up"));
            netns.ip(&format!("addr add 10.9.{plane}.{side}/24 dev {name}"));
            netns.ip(&format!("addr add fd09:{plane}::{side}/64 dev {name} nodad"));
        }
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until `done`, with a deadline that only a failure meets.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// A frame that steering takes for MRC: Ethernet, IPv6, UDP to 4791, an opcode of MRC, then bytes that follow from `seed`.
pub(crate) fn mrc_frame(len: usize, seed: u32) -> Vec<u8> {
    assert!(len >= 14 + 40 + 8 + 16);
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 1, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 1, 1]);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14] = 0x60;
    let udp_len = (len - 54) as u16;
    frame[18..20].copy_from_slice(&udp_len.to_be_bytes());
    frame[20] = 17;
    frame[21] = 64;
    frame[54..56].copy_from_slice(&49152u16.to_be_bytes());
    frame[56..58].copy_from_slice(&4791u16.to_be_bytes());
    frame[58..60].copy_from_slice(&udp_len.to_be_bytes());
    frame[62] = 0xca;
    let mut word = seed.wrapping_mul(0x9e37_79b9) | 1;
    for byte in &mut frame[63..] {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        *byte = word as u8;
    }
    frame
}

/// Port 1 on `p1`, whose link is taken to be up.
pub(crate) fn spec(mtu: u32) -> PortSpec {
    PortSpec {
        num: PortNum::new(1).unwrap(),
        name: "p1".into(),
        queue: 0,
        link: Arc::new(LinkState::new(true, mtu, [2, 0, 0, 0, 1, 1])),
    }
}

pub(crate) fn try_open(netns: &Netns, mtu: u32) -> Result<AfXdpPort, PortError> {
    netns.run(move || open_ports(&[spec(mtu)], &PortOptions::default()).map(|mut ports| ports.pop().unwrap()))
}

pub(crate) fn open_port(netns: &Netns, mtu: u32) -> AfXdpPort {
    try_open(netns, mtu).unwrap_or_else(|error| panic!("{error}"))
}

fn send(port: &mut AfXdpPort, frame: &[u8]) {
    let result = port.tx_frame(frame.len(), &mut |head, tail| {
        let (first, second) = frame.split_at(head.len());
        head.copy_from_slice(first);
        tail.copy_from_slice(second);
        true
    });
    assert_eq!(result, TxResult::Queued);
}

fn receive(port: &mut AfXdpPort, frames: &mut Vec<Vec<u8>>) {
    port.rx_batch(64, &mut |frame| frames.push([frame.head, frame.tail].concat()));
}

/// Sends frames from one port to another and compares what arrives.
pub(crate) fn exchange(from: &mut AfXdpPort, to: &mut AfXdpPort, frames: &[Vec<u8>]) {
    // As a protocol would: no more on the way than the receiver has memory for.
    const WINDOW: usize = 192;
    let mut received = Vec::new();
    let mut sent = 0;
    wait_until("all frames have come", || {
        while from.tx_room() > 0 && sent < frames.len().min(received.len() + WINDOW) {
            send(from, &frames[sent]);
            sent += 1;
        }
        from.tx_flush().unwrap();
        receive(to, &mut received);
        received.len() >= frames.len()
    });
    assert_eq!(received.len(), frames.len());
    for (index, (sent, got)) in frames.iter().zip(&received).enumerate() {
        assert!(
            sent == got,
            "frame {index} of {} bytes arrived as {} other bytes",
            sent.len(),
            got.len()
        );
    }
}
