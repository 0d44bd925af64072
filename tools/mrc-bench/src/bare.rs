//! Two loops, a thread and a core a side, joined by AF_XDP and nothing else: what this machine can do at most.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use mrc_ebpf::{Settings, Steering};
use netns_lab::{Lab, Topology};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;

use crate::error::BenchError;
use crate::frame::{self, ACK, HEADER, Template, WRITE_OVERHEAD};
use crate::xsk::Xsk;

/// Packets in flight at most: a veth ring holds 256.
const WINDOW: u32 = 192;
/// Frames per acknowledgement.
const ACK_EVERY: u32 = 16;
/// Frames per kick.
const BATCH: u32 = 32;
/// Memory of the application on either side, used round and round: as large as the messages it is compared with.
pub(crate) const REGION: usize = 1 << 20;
/// A window that does not move for so long has lost frames.
const STALL: Duration = Duration::from_millis(20);
/// Time before the measurement starts.
pub(crate) const WARM_UP: Duration = Duration::from_millis(100);
pub(crate) const PORT: &str = "p1";

/// What the loops do beside moving frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Send and count: no window, no acknowledgement, no copy.
    OneWay,
    /// A window of 192, an acknowledgement per 16 frames, and a copy into application memory.
    Bare,
    /// As `bare`, and a copy into the frame and a CRC at either end.
    Fair,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::OneWay => "one-way",
            Mode::Bare => "bare",
            Mode::Fair => "fair",
        }
    }
}

/// What one run of the loops gave.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Speed {
    /// Frames per second that arrived.
    pub(crate) frames_per_second: f64,
    /// Frames that were sent and did not arrive, of a thousand.
    pub(crate) lost_per_mille: f64,
}

impl Speed {
    /// Gb/s of data, `bytes` a frame.
    pub(crate) fn gbps(&self, bytes: usize) -> f64 {
        self.frames_per_second * bytes as f64 * 8.0 / 1e9
    }

    /// Million frames per second.
    pub(crate) fn mpps(&self) -> f64 {
        self.frames_per_second / 1e6
    }
}

/// A lab of two hosts with a socket each, for frames up to some size.
pub(crate) struct Bare {
    // In the order in which they have to go.
    pub(crate) sides: [Side; 2],
    _steering: [Steering; 2],
    _lab: Lab,
    largest: usize,
    pub(crate) run: u16,
}

/// One of the two hosts.
pub(crate) struct Side {
    pub(crate) socket: Xsk,
    pub(crate) mac: [u8; 6],
    pub(crate) address: Ipv4Addr,
}

impl Bare {
    /// Builds the lab with links of this MTU.
    pub(crate) fn build(mtu: u32) -> Result<Bare, BenchError> {
        let lab = Lab::build(&Topology::pair(1).mtu(mtu))?;
        let largest = mtu as usize + 14;
        let (left, left_steering) = Side::open(&lab, 0, largest)?;
        let (right, right_steering) = Side::open(&lab, 1, largest)?;
        Ok(Bare {
            sides: [left, right],
            _steering: [left_steering, right_steering],
            _lab: lab,
            largest,
            run: 0,
        })
    }

    /// Runs the loops for `seconds` with frames of `len` bytes, Ethernet header included.
    pub(crate) fn run(&mut self, mode: Mode, len: usize, seconds: f64) -> Result<Speed, BenchError> {
        if !(WRITE_OVERHEAD..=self.largest).contains(&len) {
            return Err(BenchError::FrameSize {
                frame: len,
                smallest: WRITE_OVERHEAD,
                largest: self.largest,
            });
        }
        self.run = self.run.wrapping_add(1);
        let shared = Shared {
            run: self.run,
            ..Shared::default()
        };
        let [left, right] = &mut self.sides;
        let ends = [(left.mac, left.address), (right.mac, right.address)];
        let data = Template::new(shared.run, len, ends[0], ends[1]);
        let acknowledgement = Template::new(shared.run, ACK, ends[1], ends[0]);
        let duration = Duration::from_secs_f64(seconds);
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                pin(0);
                send_loop(&mut left.socket, mode, len, &data, &shared)
            });
            let receiver = scope.spawn(|| {
                pin(1);
                receive_loop(&mut right.socket, mode, len, &acknowledgement, &shared)
            });
            thread::sleep(WARM_UP);
            let (from, sent_from) = (
                shared.received.load(Ordering::Relaxed),
                shared.sent.load(Ordering::Relaxed),
            );
            let started = Instant::now();
            thread::sleep(duration);
            let frames = shared.received.load(Ordering::Relaxed) - from;
            let sent = shared.sent.load(Ordering::Relaxed) - sent_from;
            let elapsed = started.elapsed().as_secs_f64();
            shared.stop.store(true, Ordering::Relaxed);
            for thread in [sender, receiver] {
                let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome.map_err(|source| BenchError::Io {
                    what: "a bare loop",
                    source,
                })?;
            }
            if frames == 0 {
                return Err(BenchError::Silence {
                    what: mode.name(),
                    seconds: elapsed,
                });
            }
            let lost = sent.saturating_sub(frames) as f64 / sent.max(1) as f64;
            Ok(Speed {
                frames_per_second: frames as f64 / elapsed,
                lost_per_mille: lost * 1000.0,
            })
        })
    }
}

impl Side {
    fn open(lab: &Lab, host: usize, largest: usize) -> Result<(Side, Steering), BenchError> {
        let address = lab.host(host).gid_v4();
        let (socket, steering, mac) = lab.host(host).enter(|| {
            let settings = Settings::new(&[4791], []).map_err(|error| BenchError::socket(PORT, error))?;
            let mut steering = Steering::load(PORT, &settings)?;
            let socket = Xsk::open(PORT, largest)?;
            steering.set_socket(0, &socket.as_raw_fd())?;
            steering.attach(PORT, true)?;
            Ok::<_, BenchError>((socket, steering, mac_of(PORT)?))
        })??;
        Ok((Side { socket, mac, address }, steering))
    }
}

fn mac_of(interface: &str) -> Result<[u8; 6], BenchError> {
    let unreadable = |source| BenchError::Io {
        what: "the MAC address of the port",
        source,
    };
    let addresses = nix::ifaddrs::getifaddrs().map_err(|errno| unreadable(errno.into()))?;
    addresses
        .filter(|address| address.interface_name == interface)
        .find_map(|address| address.address?.as_link_addr()?.addr())
        .ok_or_else(|| unreadable(std::io::ErrorKind::NotFound.into()))
}

/// What both loops and their observer see.
#[derive(Default)]
struct Shared {
    run: u16,
    stop: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
}

/// The loops of both sides have a core each where there are two; that is what the comparison is about.
pub(crate) fn pin(side: usize) {
    let mut cores = CpuSet::new();
    let count = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // Failing to pin only makes the figures less steady.
    let _ = cores
        .set(side % count)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores));
}

fn send_loop(socket: &mut Xsk, mode: Mode, len: usize, template: &Template, shared: &Shared) -> std::io::Result<()> {
    let source = vec![0x5A_u8; REGION];
    let payload = len - WRITE_OVERHEAD;
    let (mut sent, mut acknowledged) = (0_u32, 0_u32);
    let mut moved = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        let mut count = BATCH;
        if mode != Mode::OneWay {
            let before = acknowledged;
            socket.receive(|head, _| {
                if let Some(up_to) = frame::sequence(head, shared.run)
                    && up_to.wrapping_sub(acknowledged) <= sent.wrapping_sub(acknowledged)
                {
                    acknowledged = up_to;
                }
            });
            if acknowledged != before {
                moved = Instant::now();
            }
            count = count.min(WINDOW - sent.wrapping_sub(acknowledged));
            if count == 0 {
                if moved.elapsed() > STALL {
                    acknowledged = sent;
                    moved = Instant::now();
                }
                socket.kick()?;
                continue;
            }
        }
        let queued = socket.send(len, count as usize, |head, tail| {
            template.write(head, sent);
            if mode == Mode::Fair {
                let from = offset(sent, payload);
                fill_checked(head, tail, &source[from..from + payload]);
            }
            sent = sent.wrapping_add(1);
        })?;
        shared.sent.fetch_add(queued as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn receive_loop(socket: &mut Xsk, mode: Mode, len: usize, template: &Template, shared: &Shared) -> std::io::Result<()> {
    let mut target = vec![0_u8; REGION];
    let payload = len - WRITE_OVERHEAD;
    let (mut next, mut unacknowledged) = (0_u32, 0_u32);
    while !shared.stop.load(Ordering::Relaxed) {
        let mut frames = 0;
        let mut damaged = false;
        socket.receive(|head, tail| {
            let Some(sequence) = frame::sequence(head, shared.run) else {
                return;
            };
            frames += 1;
            next = sequence.wrapping_add(1);
            if mode == Mode::Fair && !is_whole(head, tail) {
                damaged = true;
                return;
            }
            if mode != Mode::OneWay {
                let to = offset(sequence, payload);
                copy_out(head, tail, &mut target[to..to + payload]);
            }
        });
        if damaged {
            return Err(std::io::Error::other("a frame arrived damaged"));
        }
        if frames == 0 {
            std::hint::spin_loop();
            continue;
        }
        shared.received.fetch_add(u64::from(frames), Ordering::Relaxed);
        if mode != Mode::OneWay {
            unacknowledged += frames;
            let due = (unacknowledged / ACK_EVERY) as usize;
            if due > 0 {
                unacknowledged %= ACK_EVERY;
                socket.send(ACK, due, |head, _| template.write(head, next))?;
            }
        }
    }
    std::hint::black_box(&target);
    Ok(())
}

/// Where in the application's memory the data of a frame belongs.
fn offset(sequence: u32, payload: usize) -> usize {
    let places = (REGION / payload.max(1)).max(1);
    sequence as usize % places * payload
}

/// Where the data begins in a frame.
const DATA: usize = WRITE_OVERHEAD - 4;
/// The CRC covers everything from the IP header on.
const CRC_FROM: usize = 14;

fn fill_checked(head: &mut [u8], tail: &mut [u8], data: &[u8]) {
    head[HEADER..DATA].fill(0);
    let in_head = data.len().min(head.len() - DATA);
    head[DATA..DATA + in_head].copy_from_slice(&data[..in_head]);
    tail[..data.len() - in_head].copy_from_slice(&data[in_head..]);
    let crc = crc(head, tail).to_le_bytes();
    let last = head.len() + tail.len() - 4;
    for (at, byte) in (last..).zip(crc) {
        if at < head.len() {
            head[at] = byte;
        } else {
            tail[at - head.len()] = byte;
        }
    }
}

/// CRC-32 of a frame in two pieces, without the last four bytes.
fn crc(head: &[u8], tail: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(Crc32IsoHdlc);
    let end = head.len() + tail.len() - 4;
    digest.update(&head[CRC_FROM..end.min(head.len())]);
    digest.update(&tail[..end.saturating_sub(head.len())]);
    digest.finalize() as u32
}

fn is_whole(head: &[u8], tail: &[u8]) -> bool {
    let last = head.len() + tail.len() - 4;
    let found = [0, 1, 2, 3].map(|i| {
        let at = last + i;
        if at < head.len() {
            head[at]
        } else {
            tail[at - head.len()]
        }
    });
    crc(head, tail).to_le_bytes() == found
}

fn copy_out(head: &[u8], tail: &[u8], target: &mut [u8]) {
    let end = (DATA + target.len()).min(head.len());
    let in_head = end - DATA.min(end);
    target[..in_head].copy_from_slice(&head[end - in_head..end]);
    let rest = (target.len() - in_head).min(tail.len());
    target[in_head..in_head + rest].copy_from_slice(&tail[..rest]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(len: usize, chunk: usize) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let data: Vec<u8> = (0..len - WRITE_OVERHEAD).map(|i| i as u8).collect();
        let mut head = vec![0xEE; len.min(chunk)];
        let mut tail = vec![0xEE; len.saturating_sub(chunk)];
        fill_checked(&mut head, &mut tail, &data);
        (head, tail, data)
    }

    #[test]
    fn a_checked_frame_gives_its_data_back_wherever_it_is_split() {
        for len in [
            WRITE_OVERHEAD,
            WRITE_OVERHEAD + 1,
            1106,
            3839,
            3840,
            3841,
            3844,
            3845,
            4178,
        ] {
            let (head, tail, data) = checked(len, 3840);
            assert!(is_whole(&head, &tail), "{len}");
            let mut target = vec![0; data.len()];
            copy_out(&head, &tail, &mut target);
            assert_eq!(target, data, "{len}");
        }
    }

    #[test]
    fn one_flipped_bit_is_seen() {
        let (mut head, mut tail, _) = checked(4178, 3840);
        head[100] ^= 1;
        assert!(!is_whole(&head, &tail));
        head[100] ^= 1;
        tail[7] ^= 0x80;
        assert!(!is_whole(&head, &tail));
    }

    #[test]
    fn data_of_consecutive_frames_does_not_overlap_and_stays_inside() {
        for payload in [1, 64, 1024, 4096] {
            assert_eq!(offset(1, payload), payload);
            assert!((0..5000).all(|sequence| offset(sequence, payload) + payload <= REGION));
        }
    }
}
