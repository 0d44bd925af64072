//! Who is to be asked for packets: windows in turn, and of each window one queue pair at a time (protocol.md §10.6).
//!
//! With queue pairs in turn, a peer with a thousand of them would have a thousand times the turns of a peer with one.

use std::collections::VecDeque;

/// The ready list. A queue pair stands on it once, so it needs one link each, and nothing is allocated for a packet.
#[derive(Default)]
pub(super) struct Ready {
    /// Queues that are not empty, in the order of their turns.
    turns: VecDeque<u32>,
    /// Queue 0 is of queue pairs without a window, which have nothing to send; that of window `n` is `n + 1`.
    queues: Vec<Queue>,
    /// By queue pair: who is behind it in its queue.
    behind: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    /// First and last.
    ends: Option<(u32, u32)>,
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
            None => {
                self.turns.push_back(at);
                key
            }
        };
        queue.ends = Some((first, key));
    }

    /// The next one of the window whose turn it is; that window's next turn comes after all others'.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let at = self.turns.pop_front()?;
        let queue = &mut self.queues[at as usize];
        let (first, last) = queue.ends?;
        queue.ends = self.behind[first as usize].take().map(|second| (second, last));
        if queue.ends.is_some() {
            self.turns.push_back(at);
        }
        Some(first)
    }

    /// Takes a queue pair off, wherever it stands: its window may have become another's meanwhile.
    pub(super) fn remove(&mut self, key: u32) {
        for at in self.turns.clone() {
            let mut next = self.queues[at as usize].ends.take().map(|(first, _)| first);
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
            self.queues[at as usize].ends = ends;
        }
        let queues = &self.queues;
        self.turns.retain(|&at| queues[at as usize].ends.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(ready: &mut Ready) -> Vec<u32> {
        std::iter::from_fn(|| ready.pop()).collect()
    }

    // protocol.md §10.6
    #[test]
    fn windows_have_turns_and_queue_pairs_have_theirs_inside() {
        let mut ready = Ready::default();
        for (key, window) in [(1, 0), (2, 0), (3, 0), (4, 7), (5, 2), (6, 2)] {
            ready.push(key, Some(window));
        }
        let mut served = Vec::new();
        // Each has more to send, as long as anybody looks.
        for _ in 0..12 {
            let key = ready.pop().unwrap();
            served.push(key);
            ready.push(
                key,
                Some(match key {
                    1..=3 => 0,
                    4 => 7,
                    _ => 2,
                }),
            );
        }
        assert_eq!(served, [1, 4, 5, 2, 4, 6, 3, 4, 5, 1, 4, 6]);
        assert_eq!(drain(&mut ready), [2, 4, 5, 3, 6, 1], "each is left once");
        assert!(ready.is_empty());
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
