//! When which queue pair wants to be woken: a heap with one place per queue pair.
//!
//! Deadlines mostly move later (each packet postpones its queue pair's next one), so a later time only notes itself and the
//! entry is put right when it comes to the top. An earlier one moves up at once. Nothing is allocated after a queue pair's
//! place was made.

use mrc_protocol::Instant;

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    at: Instant,
    key: u32,
}

#[derive(Clone, Copy)]
struct Place {
    /// Where in the heap.
    position: u32,
    /// The wanted time, never before the one in the heap.
    wanted: Option<Instant>,
}

/// Deadlines by a small number.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Vec<Entry>,
    places: Vec<Place>,
}

impl Timers {
    /// Makes places for all keys up to and with `key`.
    pub(crate) fn make_place(&mut self, key: u32) {
        let count = key as usize + 1;
        if self.places.len() < count {
            self.places.resize(
                count,
                Place {
                    position: NOWHERE,
                    wanted: None,
                },
            );
            self.heap.reserve(count - self.heap.len());
        }
    }

    /// The time at which `key` shall come up, replacing the one before.
    pub(crate) fn set(&mut self, key: u32, wanted: Option<Instant>) {
        let Some(place) = self.places.get_mut(key as usize) else {
            return;
        };
        place.wanted = wanted;
        let Some(at) = wanted else { return };
        if place.position == NOWHERE {
            place.position = self.heap.len() as u32;
            self.heap.push(Entry { at, key });
            self.rise(self.heap.len() - 1);
        } else {
            let position = place.position as usize;
            if at < self.heap[position].at {
                self.heap[position].at = at;
                self.rise(position);
            }
        }
    }

    /// The next key whose time has come. Its deadline is gone then.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        loop {
            let top = *self.heap.first()?;
            if top.at > now {
                return None;
            }
            match self.places[top.key as usize].wanted {
                Some(wanted) if wanted > now => {
                    self.heap[0].at = wanted;
                    self.sink(0);
                }
                wanted => {
                    self.remove_top();
                    if wanted.is_some() {
                        self.places[top.key as usize].wanted = None;
                        return Some(top.key);
                    }
                }
            }
        }
    }

    /// The earliest time at which something may be due.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        // Put stale entries right, so that nobody is woken for nothing.
        loop {
            let top = *self.heap.first()?;
            match self.places[top.key as usize].wanted {
                Some(wanted) if wanted > top.at => {
                    self.heap[0].at = wanted;
                    self.sink(0);
                }
                Some(_) => return Some(top.at),
                None => self.remove_top(),
            }
        }
    }

    fn remove_top(&mut self) {
        let last = self.heap.len() - 1;
        self.swap(0, last);
        if let Some(entry) = self.heap.pop() {
            self.places[entry.key as usize].position = NOWHERE;
        }
        if !self.heap.is_empty() {
            self.sink(0);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].key as usize].position = a as u32;
        self.places[self.heap[b].key as usize].position = b as u32;
    }

    fn rise(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].at <= self.heap[position].at {
                break;
            }
            self.swap(parent, position);
            position = parent;
        }
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let left = 2 * position + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.heap[right].at < self.heap[left].at {
                right
            } else {
                left
            };
            if self.heap[position].at <= self.heap[child].at {
                return;
            }
            self.swap(position, child);
            position = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn keys_come_up_in_order_of_their_last_setting() {
        let mut timers = Timers::default();
        timers.make_place(3);
        timers.set(1, Some(at(10)));
        timers.set(2, Some(at(20)));
        timers.set(3, Some(at(30)));
        timers.set(1, Some(at(25)));
        timers.set(3, Some(at(5)));
        timers.set(2, None);
        assert_eq!(timers.next(), Some(at(5)));
        assert_eq!(timers.pop_due(at(4)), None);
        assert_eq!(timers.pop_due(at(100)), Some(3));
        assert_eq!(timers.next(), Some(at(25)));
        assert_eq!(timers.pop_due(at(100)), Some(1));
        assert_eq!(timers.pop_due(at(100)), None);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn an_unknown_key_is_ignored() {
        let mut timers = Timers::default();
        timers.set(7, Some(at(1)));
        assert_eq!(timers.next(), None);
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map(steps in prop::collection::vec((0_u32..12, prop::option::of(0_u64..50), 0_u64..5), 1..200)) {
            let mut timers = Timers::default();
            timers.make_place(11);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 0;
            for (key, wanted, advance) in steps {
                now += advance;
                let wanted = wanted.map(|offset| now + offset);
                timers.set(key, wanted.map(at));
                match wanted {
                    Some(wanted) => { model.insert(key, wanted); }
                    None => { model.remove(&key); }
                }
                prop_assert_eq!(timers.next(), model.values().min().map(|&ns| at(ns)));
                while let Some(due) = timers.pop_due(at(now)) {
                    let wanted = model.remove(&due);
                    prop_assert!(wanted.is_some_and(|wanted| wanted <= now));
                }
                prop_assert!(model.values().all(|&wanted| wanted > now));
            }
        }
    }
}
