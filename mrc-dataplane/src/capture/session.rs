//! One capture: its filter, its buffers, and what it has counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use crossbeam::queue::ArrayQueue;
use mrc_capture::{Direction, Request, Seen};
use mrc_wire::{Frame, PortNum, ReceiveRules, glance};

use super::{Interface, Reading};

/// One packet, copied.
pub(super) struct Record {
    /// Index of its port.
    pub(super) port: usize,
    pub(super) direction: Direction,
    pub(super) time: SystemTime,
    /// Bytes of it that were kept.
    pub(super) kept: usize,
    /// Bytes that it had.
    pub(super) len: usize,
    /// `snaplen` of them.
    pub(super) bytes: Box<[u8]>,
}

/// What a port has counted for a session.
#[derive(Default)]
pub(super) struct Counts {
    /// Packets that came by.
    pub(super) seen: AtomicU64,
    /// Packets that the filter wants.
    pub(super) wanted: AtomicU64,
    /// Wanted ones for which no buffer was free.
    pub(super) dropped: AtomicU64,
    /// Packets written.
    pub(super) written: AtomicU64,
}

/// A capture under way. Engine threads offer it frames, one writer takes them.
pub(super) struct Session {
    pub(super) request: Request,
    pub(super) interfaces: Vec<Interface>,
    pub(super) started: SystemTime,
    pub(super) counts: Vec<Counts>,
    reading: Reading,
    /// Full and empty buffers: together as many as the request says.
    full: ArrayQueue<Record>,
    empty: ArrayQueue<Record>,
    finished: AtomicBool,
}

impl Session {
    pub(super) fn new(request: &Request, interfaces: Vec<Interface>, reading: Reading) -> Self {
        let places = request.buffer as usize;
        let (full, empty) = (ArrayQueue::new(places), ArrayQueue::new(places));
        let now = SystemTime::now();
        for _ in 0..places {
            // As many as there is room for.
            let _ = empty.push(Record {
                port: 0,
                direction: Direction::Tx,
                time: now,
                kept: 0,
                len: 0,
                bytes: vec![0; request.snaplen as usize].into(),
            });
        }
        Self {
            request: request.clone(),
            counts: interfaces.iter().map(|_| Counts::default()).collect(),
            interfaces,
            started: now,
            reading,
            full,
            empty,
            finished: AtomicBool::new(false),
        }
    }

    /// Takes a copy of the frame, if it is wanted. On the engine's thread: no allocation, no lock, no system call.
    pub(super) fn offer(&self, frame: Frame<'_>, port: PortNum, direction: Direction) {
        let Some((counts, interface)) = self.counts.get(port.index()).zip(self.interfaces.get(port.index())) else {
            return;
        };
        counts.seen.fetch_add(1, Ordering::Relaxed);
        if !self.request.filter.is_empty() {
            let udp_ports = [self.reading.udp_port];
            let rules = ReceiveRules {
                udp_ports: &udp_ports,
                dscps: &self.reading.dscps,
                ev_layout: self.reading.ev_layout,
            };
            let seen = Seen {
                port: Some(port.get()),
                interface: Some(&interface.name),
                direction: Some(direction),
                mrc: glance(frame, &rules),
            };
            if !self.request.filter.matches(&seen) {
                return;
            }
        }
        counts.wanted.fetch_add(1, Ordering::Relaxed);
        let Some(mut record) = self.empty.pop() else {
            counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        record.port = port.index();
        record.direction = direction;
        record.time = SystemTime::now();
        record.len = frame.len();
        record.kept = record.len.min(record.bytes.len());
        let in_head = record.kept.min(frame.head.len());
        let (head, tail) = record.bytes[..record.kept].split_at_mut(in_head);
        head.copy_from_slice(&frame.head[..in_head]);
        tail.copy_from_slice(&frame.tail[..tail.len()]);
        // There are no more buffers than places.
        let _ = self.full.push(record);
    }

    /// The oldest packet that waits, for `write`; its buffer is free afterwards. `None` if none waits.
    pub(super) fn take<T>(&self, write: impl FnOnce(&Record) -> T) -> Option<T> {
        let record = self.full.pop()?;
        let result = write(&record);
        if let Some(counts) = self.counts.get(record.port) {
            counts.written.fetch_add(1, Ordering::Relaxed);
        }
        let _ = self.empty.push(record);
        Some(result)
    }

    /// No more frames will be offered: the writer is to end when it has written what is there.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }
}
