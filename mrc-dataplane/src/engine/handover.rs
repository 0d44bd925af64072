//! Frames that the NIC put into another thread's queue than their queue pair lives on.
//!
//! Between any two threads there is a bounded queue of full buffers one way and of empty ones back, filled once at the start.
//! The frame is copied: the memory that it arrived in goes back to the queue that it came from at once. How often this happens
//! is counted; hashing on addresses only (one peer, one queue) makes it rare.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use mrc_wire::{Frame, PortNum};

use crate::ring::Board;

/// Frames under way between two threads.
const DEPTH: usize = 64;
/// The largest frame: PMTU 4096 with all headers, tunnel and tag.
const LARGEST: usize = 4096 + 256;

struct Parcel {
    port: PortNum,
    len: usize,
    bytes: Box<[u8; LARGEST]>,
}

/// From one thread to another.
struct Lane {
    full: ArrayQueue<Parcel>,
    empty: ArrayQueue<Parcel>,
}

impl Lane {
    fn new(port: PortNum) -> Self {
        let (full, empty) = (ArrayQueue::new(DEPTH), ArrayQueue::new(DEPTH));
        for _ in 0..DEPTH {
            // As many as there is room for.
            let _ = empty.push(Parcel {
                port,
                len: 0,
                bytes: Box::new([0; LARGEST]),
            });
        }
        Self { full, empty }
    }
}

/// One thread's ends of all its lanes.
#[derive(Default)]
pub(super) struct Handover {
    /// By thread; none to itself.
    out: Vec<Option<Arc<Lane>>>,
    into: Vec<Option<Arc<Lane>>>,
    boards: Vec<Arc<Board>>,
    /// Threads that have been sent something since they were last woken.
    sent: Vec<bool>,
}

impl Handover {
    /// The ends of every thread.
    pub(super) fn between(boards: &[Arc<Board>], port: PortNum) -> Vec<Self> {
        let count = boards.len();
        let lanes: Vec<Vec<Option<Arc<Lane>>>> = (0..count)
            .map(|from| {
                (0..count)
                    .map(|to| (from != to).then(|| Arc::new(Lane::new(port))))
                    .collect()
            })
            .collect();
        let ends = (0..count).map(|own| Self {
            out: lanes[own].clone(),
            into: lanes.iter().map(|row| row[own].clone()).collect(),
            boards: boards.to_vec(),
            sent: vec![false; count],
        });
        ends.collect()
    }

    /// How many threads there are.
    pub(super) fn threads(&self) -> usize {
        self.out.len()
    }

    /// Copies a frame for another thread; false if that thread is too far behind, or the frame is none of ours.
    pub(super) fn send(&mut self, to: usize, frame: Frame<'_>, port: PortNum) -> bool {
        let Some(Some(lane)) = self.out.get(to) else {
            return false;
        };
        let len = frame.len();
        if len > LARGEST {
            return false;
        }
        let Some(mut parcel) = lane.empty.pop() else {
            return false;
        };
        let (head, tail) = parcel.bytes[..len].split_at_mut(frame.head.len());
        head.copy_from_slice(frame.head);
        tail.copy_from_slice(frame.tail);
        parcel.len = len;
        parcel.port = port;
        self.sent[to] = true;
        // There are no more parcels than places.
        lane.full.push(parcel).is_ok()
    }

    /// Wakes those that were sent something.
    pub(super) fn wake(&mut self) {
        for (board, sent) in self.boards.iter().zip(&mut self.sent) {
            if std::mem::take(sent) {
                board.wake();
            }
        }
    }

    /// Hands what the others have sent to `each`. True if there was anything.
    pub(super) fn receive(&self, mut each: impl FnMut(Frame<'_>, PortNum)) -> bool {
        let mut any = false;
        for lane in self.into.iter().flatten() {
            for _ in 0..DEPTH {
                let Some(parcel) = lane.full.pop() else { break };
                any = true;
                each(Frame::whole(&parcel.bytes[..parcel.len]), parcel.port);
                // There are no more parcels than places.
                let _ = lane.empty.push(parcel);
            }
        }
        any
    }

    /// Something has come; to be asked before sleeping.
    pub(super) fn inbox(&self) -> Inbox {
        Inbox(self.into.iter().flatten().cloned().collect())
    }
}

/// What others have sent, as seen without the thread's lock.
pub(super) struct Inbox(Vec<Arc<Lane>>);

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|lane| lane.full.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_reach_the_other_thread_and_buffers_come_back() {
        let boards: Vec<_> = (0..3).map(|_| Arc::new(Board::new().unwrap())).collect();
        let port = PortNum::new(1).unwrap();
        let mut ends = Handover::between(&boards, port);
        for round in 0..3 * DEPTH {
            let bytes = vec![round as u8; 100];
            assert!(ends[0].send(
                2,
                Frame {
                    head: &bytes[..40],
                    tail: &bytes[40..]
                },
                port
            ));
            assert!(!ends[2].inbox().is_empty());
            assert!(!ends[1].receive(|_, _| ()));
            let mut got = Vec::new();
            assert!(ends[2].receive(|frame, _| got.push(frame.head.to_vec())));
            assert_eq!(got, [bytes]);
        }
    }

    #[test]
    fn a_full_lane_and_an_oversized_frame_are_refused() {
        let boards: Vec<_> = (0..2).map(|_| Arc::new(Board::new().unwrap())).collect();
        let port = PortNum::new(1).unwrap();
        let mut ends = Handover::between(&boards, port);
        assert!(!ends[0].send(1, Frame::whole(&[0; LARGEST + 1]), port));
        assert!(!ends[0].send(0, Frame::whole(&[0; 1]), port), "not to itself");
        for _ in 0..DEPTH {
            assert!(ends[0].send(1, Frame::whole(&[1; 60]), port));
        }
        assert!(!ends[0].send(1, Frame::whole(&[1; 60]), port));
    }
}
