//! Ports in memory: two ends joined by queues, with switches for faults. For tests and examples; needs no privilege.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mrc_wire::{Frame, PortNum};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{AttachMode, LinkState, Port, PortCounters, PortMode, TxResult};

/// What a link does with one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Delivers it.
    Deliver,
    /// Loses it.
    Drop,
    /// Delivers it twice.
    Twice,
    /// Delivers it behind the next frame of this direction that is delivered.
    Late,
}

/// Decides over each frame of a direction; may change its bytes.
type Judge = Box<dyn FnMut(&mut Vec<u8>) -> Fate + Send>;

/// Measures of a [`MemoryPort`] pair.
#[derive(Debug, Clone, Copy)]
pub struct MemoryPortConfig {
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// How many frames a direction holds; beyond it the sender has no room.
    pub depth: usize,
    /// Length of the first piece of a frame, as a UMEM chunk would limit it.
    pub chunk_len: usize,
    /// Speed that the interface claims to have.
    pub link_speed_bps: Option<u64>,
}

impl Default for MemoryPortConfig {
    fn default() -> Self {
        Self {
            mtu: 9000,
            depth: 192,
            chunk_len: 3840,
            link_speed_bps: None,
        }
    }
}

/// One end of a link in memory.
pub struct MemoryPort {
    num: PortNum,
    name: String,
    config: MemoryPortConfig,
    mode: PortMode,
    link: Arc<LinkState>,
    tx: Arc<Direction>,
    rx: Arc<Direction>,
    queued: Vec<Vec<u8>>,
    taken: Vec<Vec<u8>>,
    counters: PortCounters,
}

/// The switches of a pair, beside its two ends.
#[derive(Clone)]
pub struct MemoryLink {
    ends: [Arc<LinkState>; 2],
    directions: [Arc<Direction>; 2],
}

impl MemoryPort {
    /// Two ends of one link, numbered `num` on both sides, and the link's switches. Their MAC addresses are
    /// `02:4d:52:43:00:NN` and `02:4d:52:43:01:NN` with the port number in NN.
    pub fn pair(num: PortNum, config: MemoryPortConfig) -> io::Result<(Self, Self, MemoryLink)> {
        let directions = [Arc::new(Direction::new()?), Arc::new(Direction::new()?)];
        let ends = [0, 1].map(|side| {
            Arc::new(LinkState::new(
                true,
                config.mtu,
                [0x02, 0x4d, 0x52, 0x43, side, num.get()],
            ))
        });
        let [left, right] = [0, 1].map(|side| MemoryPort {
            num,
            name: format!("mem{}{}", num.get(), if side == 0 { 'a' } else { 'b' }),
            config,
            mode: PortMode {
                attach: AttachMode::Memory,
                zero_copy: false,
                multi_buffer: true,
                reasons: Vec::new(),
            },
            link: Arc::clone(&ends[side]),
            tx: Arc::clone(&directions[side]),
            rx: Arc::clone(&directions[1 - side]),
            queued: Vec::new(),
            taken: Vec::new(),
            counters: PortCounters::default(),
        });
        Ok((left, right, MemoryLink { ends, directions }))
    }
}

impl Port for MemoryPort {
    fn num(&self) -> PortNum {
        self.num
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> &LinkState {
        &self.link
    }

    fn link_speed_bps(&self) -> Option<u64> {
        self.config.link_speed_bps
    }

    fn mode(&self) -> &PortMode {
        &self.mode
    }

    fn tx_room(&self) -> usize {
        if !self.link_up() {
            return 0;
        }
        self.config
            .depth
            .saturating_sub(self.tx.lock().frames.len() + self.queued.len())
    }

    fn tx_frame(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8], &mut [u8]) -> bool) -> TxResult {
        if len < 14 || len > self.link().mtu() as usize + 18 || len > 2 * self.config.chunk_len {
            return TxResult::BadLength;
        }
        if self.tx_room() == 0 {
            return TxResult::NoRoom;
        }
        // Not zeroed memory in the real port: a byte that `fill` forgets shows as this pattern.
        let mut frame = vec![0xa5; len];
        let (head, tail) = frame.split_at_mut(len.min(self.config.chunk_len));
        if !fill(head, tail) {
            return TxResult::Abandoned;
        }
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
        self.queued.push(frame);
        TxResult::Queued
    }

    fn tx_flush(&mut self) -> io::Result<()> {
        if self.queued.is_empty() {
            return Ok(());
        }
        self.counters.tx_kicks += 1;
        if !self.link_up() {
            self.queued.clear();
            return Ok(());
        }
        self.tx.deliver(self.queued.drain(..))
    }

    fn rx_batch(&mut self, max: usize, each: &mut dyn FnMut(Frame<'_>)) -> usize {
        self.rx.take(max, &mut self.taken);
        for frame in &self.taken {
            let (head, tail) = frame.split_at(frame.len().min(self.config.chunk_len));
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.len() as u64;
            each(Frame { head, tail });
        }
        self.taken.len()
    }

    fn tx_pending(&self) -> bool {
        !self.queued.is_empty() && self.link_up()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.rx.wake.as_fd())
    }

    fn chunk_len(&self) -> usize {
        self.config.chunk_len
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl MemoryLink {
    /// Takes the link down or up, as both ends see it. What is under way on a link that goes down is lost.
    pub fn set_up(&self, up: bool) {
        for (end, direction) in self.ends.iter().zip(&self.directions) {
            end.set_up(up);
            let mut queue = direction.lock();
            if !up {
                queue.frames.clear();
                queue.late = None;
            }
            drop(queue);
            // Both ends look again, even if they sleep. A full counter means they are awake already.
            let _ = direction.wake.write(1);
        }
    }

    /// Takes one end (0 = first of the pair, otherwise the second) down or up; the other one sees no change, as with a switch
    /// between them. What is sent to an end that is down is lost.
    pub fn set_end_up(&self, end: usize, up: bool) {
        let end = end.min(1);
        self.ends[end].set_up(up);
        self.blackhole(1 - end, !up);
        let mut queue = self.directions[1 - end].lock();
        if !up {
            queue.frames.clear();
            queue.late = None;
        }
        drop(queue);
        let _ = self.directions[1 - end].wake.write(1);
    }

    /// Changes the MTU of both ends.
    pub fn set_mtu(&self, mtu: u32) {
        for (end, direction) in self.ends.iter().zip(&self.directions) {
            end.set(end.is_up(), mtu, end.mac());
            let _ = direction.wake.write(1);
        }
    }

    /// Lets `judge` decide over every frame that the end `from` (0 = first of the pair, otherwise the second) sends.
    pub fn judge(&self, from: usize, judge: impl FnMut(&mut Vec<u8>) -> Fate + Send + 'static) {
        self.directions[from.min(1)].lock().judge = Some(Box::new(judge));
    }

    /// Loses everything that the end `from` sends while both ends see the link up.
    pub fn blackhole(&self, from: usize, on: bool) {
        self.directions[from.min(1)].lock().judge = on.then(|| -> Judge { Box::new(|_| Fate::Drop) });
    }
}

/// One direction of a link.
struct Direction {
    queue: Mutex<Queue>,
    /// Readable while frames wait (and once after the link changed).
    wake: EventFd,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    late: Option<Vec<u8>>,
    judge: Option<Judge>,
}

impl Direction {
    fn new() -> io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self {
            queue: Mutex::default(),
            wake,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, frames: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
        let mut queue = self.lock();
        for mut frame in frames {
            let fate = queue.judge.as_mut().map_or(Fate::Deliver, |judge| judge(&mut frame));
            match fate {
                Fate::Drop => continue,
                Fate::Late => {
                    if let Some(earlier) = queue.late.replace(frame) {
                        queue.frames.push_back(earlier);
                    }
                    continue;
                }
                Fate::Twice => queue.frames.push_back(frame.clone()),
                Fate::Deliver => {}
            }
            queue.frames.push_back(frame);
            if let Some(late) = queue.late.take() {
                queue.frames.push_back(late);
            }
        }
        if !queue.frames.is_empty() {
            self.wake.write(1)?;
        }
        Ok(())
    }

    fn take(&self, max: usize, into: &mut Vec<Vec<u8>>) {
        into.clear();
        let mut queue = self.lock();
        let count = max.min(queue.frames.len());
        into.extend(queue.frames.drain(..count));
        if queue.frames.is_empty() {
            // Empty already is the usual answer, and fine.
            let _ = self.wake.read();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (MemoryPort, MemoryPort, MemoryLink) {
        MemoryPort::pair(PortNum::new(1).unwrap(), MemoryPortConfig::default()).unwrap()
    }

    fn send(port: &mut MemoryPort, byte: u8, len: usize) {
        let result = port.tx_frame(len, &mut |head, tail| {
            head.fill(byte);
            tail.fill(byte);
            true
        });
        assert_eq!(result, TxResult::Queued);
    }

    fn received(port: &mut MemoryPort) -> Vec<(u8, usize)> {
        let mut frames = Vec::new();
        port.rx_batch(64, &mut |frame| {
            frames.push((frame.head[0], frame.len()));
        });
        frames
    }

    #[test]
    fn frames_arrive_in_order_and_in_two_pieces_when_long() {
        let (mut a, mut b, _) = pair();
        send(&mut a, 1, 64);
        send(&mut a, 2, 4210);
        a.tx_flush().unwrap();
        let mut pieces = Vec::new();
        b.rx_batch(64, &mut |frame| pieces.push((frame.head.len(), frame.tail.len())));
        assert_eq!(pieces, [(64, 0), (3840, 370)]);
    }

    #[test]
    fn a_judge_loses_repeats_and_reorders() {
        let (mut a, mut b, link) = pair();
        link.judge(0, |frame| match frame[0] {
            1 => Fate::Drop,
            2 => Fate::Twice,
            3 => Fate::Late,
            _ => Fate::Deliver,
        });
        for byte in 1..=4 {
            send(&mut a, byte, 60);
        }
        a.tx_flush().unwrap();
        assert_eq!(received(&mut b), [(2, 60), (2, 60), (4, 60), (3, 60)]);
    }

    #[test]
    fn a_link_that_is_down_takes_nothing_and_delivers_nothing() {
        let (mut a, mut b, link) = pair();
        send(&mut a, 1, 60);
        a.tx_flush().unwrap();
        link.set_up(false);
        assert_eq!(a.tx_room(), 0);
        assert_eq!(a.tx_frame(60, &mut |_, _| true), TxResult::NoRoom);
        assert!(received(&mut b).is_empty());
        link.set_up(true);
        send(&mut a, 2, 60);
        a.tx_flush().unwrap();
        assert_eq!(received(&mut b), [(2, 60)]);
    }

    #[test]
    fn a_full_queue_has_no_room() {
        let (mut a, mut b, _) = pair();
        while a.tx_room() > 0 {
            send(&mut a, 1, 60);
        }
        assert_eq!(a.tx_frame(60, &mut |_, _| true), TxResult::NoRoom);
        a.tx_flush().unwrap();
        assert_eq!(received(&mut b).len(), 64);
        assert_eq!(a.tx_room(), 64);
    }
}
