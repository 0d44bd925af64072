//! Who is to be asked for packets: the window that has had least, and of each window one queue pair at a time (protocol.md §10.6).
//!
//! With queue pairs in turn, a peer with a thousand of them would have a thousand times the share of a peer with one. And windows are not
//! merely taken in turn: where a link carries less than they would send, it opens for one packet, and whoever happens to be asked first then,
//! because it has just had an acknowledgement, would have all of it. So bytes are counted, as in start-time fair queueing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes that a window may be behind the others when it begins to send: its first packets leave soon, and what it did not send
/// while it had nothing to send is not made up for.
const CREDIT: u64 = 64 << 10;

/// The ready list. A queue pair stands on it once, so it needs one link each, and nothing is allocated for a packet.
#[derive(Default)]
pub(super) struct Ready {
    /// Queues that are not empty but for the one whose turn it is: what it has had, when it came to stand here, and which it is.
    turns: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Queue 0 is of queue pairs without a window, which have nothing to send; that of window `n` is `n + 1`.
    queues: Vec<Queue>,
    /// By queue pair: who is behind it in its queue.
    behind: Vec<Option<u32>>,
    /// What the window with the last turn had had before it.
    level: u64,
    /// Counts places in `turns`, so that equals have turns in the order in which they came.
    count: u64,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    /// First and last.
    ends: Option<(u32, u32)>,
    /// Bytes that it was served, or has forgone.
    served: u64,
    /// Stands in `turns`, or has its turn.
    in_turn: bool,
}

/// A queue pair's turn, to be given back with [`Ready::end_turn`].
pub(super) struct Turn {
    pub(super) key: u32,
    at: u32,
}

impl Ready {
    /// Makes room for queue pairs below `qps`. There are no more windows than queue pairs.
    pub(super) fn make_places(&mut self, qps: usize) {
        if self.behind.len() < qps {
            self.behind.resize(qps, None);
            self.queues.resize(qps + 1, Queue::default());
            self.turns.reserve((qps + 1).saturating_sub(self.turns.len()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// To the end of the queue of its window. It must not be on the list already.
    pub(super) fn push(&mut self, key: u32, window: Option<u32>) {
        let at = window.map_or(0, |window| window + 1);
        self.make_places((key as usize + 1).max(at as usize));
        self.behind[key as usize] = None;
        let queue = &mut self.queues[at as usize];
        let first = match queue.ends {
            Some((first, last)) => {
                self.behind[last as usize] = Some(key);
                first
            }
            None => key,
        };
        queue.ends = Some((first, key));
        if !std::mem::replace(&mut queue.in_turn, true) {
            queue.served = queue.served.max(self.level.saturating_sub(CREDIT));
            self.line_up(at);
        }
    }

    /// The next queue pair of the window that has had least.
    pub(super) fn next(&mut self) -> Option<Turn> {
        let Reverse((served, _, at)) = self.turns.pop()?;
        self.level = self.level.max(served);
        let queue = &mut self.queues[at as usize];
        let (key, last) = queue.ends?;
        queue.ends = self.behind[key as usize].take().map(|second| (second, last));
        Some(Turn { key, at })
    }

    /// The turn is over, and so many bytes were sent in it.
    pub(super) fn end_turn(&mut self, turn: &Turn, sent_bytes: u64) {
        let queue = &mut self.queues[turn.at as usize];
        queue.served += sent_bytes;
        queue.in_turn = queue.ends.is_some();
        if queue.in_turn {
            self.line_up(turn.at);
        }
    }

    fn line_up(&mut self, at: u32) {
        self.count += 1;
        let served = self.queues[at as usize].served;
        self.turns.push(Reverse((served, self.count, at)));
    }

    /// Takes a queue pair off, wherever it stands: its window may have become another's meanwhile.
    pub(super) fn remove(&mut self, key: u32) {
        for queue in &mut self.queues {
            let mut next = queue.ends.take().map(|(first, _)| first);
            let mut ends: Option<(u32, u32)> = None;
            while let Some(one) = next {
                next = self.behind[one as usize].take();
                if one == key {
                    continue;
                }
                if let Some((_, last)) = ends {
                    self.behind[last as usize] = Some(one);
                }
                ends = Some((ends.map_or(one, |(first, _)| first), one));
            }
            queue.ends = ends;
        }
        let queues = &mut self.queues;
        self.turns.retain(|&Reverse((_, _, at))| {
            let queue = &mut queues[at as usize];
            queue.in_turn = queue.ends.is_some();
            queue.in_turn
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = 4210;

    fn serve(ready: &mut Ready, sent_bytes: u64) -> Option<u32> {
        let turn = ready.next()?;
        ready.end_turn(&turn, sent_bytes);
        Some(turn.key)
    }

    fn drain(ready: &mut Ready) -> Vec<u32> {
        std::iter::from_fn(|| serve(ready, FRAME)).collect()
    }

    // protocol.md §10.6
    #[test]
    fn windows_have_turns_and_queue_pairs_have_theirs_inside() {
        let mut ready = Ready::default();
        for (key, window) in [(1, 0), (2, 0), (3, 0), (4, 7), (5, 2), (6, 2)] {
            ready.push(key, Some(window));
        }
        let window = |key| match key {
            1..=3 => 0,
            4 => 7,
            _ => 2,
        };
        let mut served = Vec::new();
        // Each has more to send, as long as anybody looks.
        for _ in 0..12 {
            let key = serve(&mut ready, FRAME).unwrap();
            served.push(key);
            ready.push(key, Some(window(key)));
        }
        assert_eq!(served, [1, 4, 5, 2, 4, 6, 3, 4, 5, 1, 4, 6]);
        assert_eq!(drain(&mut ready), [2, 4, 5, 3, 6, 1], "each is left once");
        assert!(ready.is_empty());
    }

    // A link that opens for one packet at a time, and is then asked by the one that has just had an acknowledgement.
    #[test]
    fn who_is_always_first_to_ask_has_no_more_than_its_share() {
        let mut ready = Ready::default();
        let mut sent = [0; 4];
        for _ in 0..400 {
            for key in 0..4 {
                ready.push(key, Some(key));
            }
            sent[serve(&mut ready, FRAME).unwrap() as usize] += 1;
            // The others find the link closed.
            while serve(&mut ready, 0).is_some() {}
        }
        assert_eq!(sent, [100; 4]);
    }

    #[test]
    fn what_a_window_did_not_want_is_not_made_up_for() {
        let mut ready = Ready::default();
        for _ in 0..1000 {
            ready.push(1, Some(1));
            serve(&mut ready, FRAME);
        }
        let mut sent = [0; 3];
        for _ in 0..200 {
            ready.push(1, Some(1));
            ready.push(2, Some(2));
            sent[serve(&mut ready, FRAME).unwrap() as usize] += 1;
            while serve(&mut ready, 0).is_some() {}
        }
        let ahead = sent[2] - sent[1];
        assert!((1..=2 * CREDIT / FRAME + 2).contains(&ahead), "{sent:?}");
    }

    #[test]
    fn one_that_comes_back_during_its_own_turn_stands_once() {
        let mut ready = Ready::default();
        ready.push(1, Some(0));
        let turn = ready.next().unwrap();
        ready.push(1, Some(0));
        ready.push(2, Some(0));
        assert!(ready.next().is_none(), "the window has its turn already");
        ready.end_turn(&turn, FRAME);
        assert_eq!(drain(&mut ready), [1, 2]);
    }

    #[test]
    fn who_leaves_is_asked_no_more_wherever_it_stood() {
        for gone in 1..=5 {
            let mut ready = Ready::default();
            for (key, window) in [(1, Some(0)), (2, Some(0)), (3, Some(0)), (4, Some(1)), (5, None)] {
                ready.push(key, window);
            }
            ready.remove(gone);
            let left = drain(&mut ready);
            let expected: Vec<u32> = [1, 4, 5, 2, 3].into_iter().filter(|&key| key != gone).collect();
            let mut sorted = (left.clone(), expected);
            sorted.0.sort_unstable();
            sorted.1.sort_unstable();
            assert_eq!(sorted.0, sorted.1, "without {gone}");
            assert!(ready.is_empty());
            // And its place can be used again.
            ready.push(gone, Some(0));
            assert_eq!(drain(&mut ready), [gone]);
        }
    }
}
