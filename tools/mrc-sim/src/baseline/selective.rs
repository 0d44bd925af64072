//! Selective repeat: only what is missing goes again.

use crate::baseline::segment::Answer;
use crate::baseline::transport::{Receiver, Sender, Sent};
use std::collections::VecDeque;

/// Packets that the bitmap of an answer covers.
const BITS: u64 = 128;
/// Windows between the first packet that is missing and the last that is sent. With one only, every loss would stop the sender
/// for a round trip.
const SPAN: u64 = 8;

/// The sending end.
#[derive(Debug)]
pub(super) struct SelectiveSender {
    /// Packets in flight.
    window: u64,
    end: u64,
    acked: u64,
    /// First packet that was never sent.
    fresh: u64,
    order: u64,
    /// Whether each packet from `acked` to `fresh` has arrived, and the number of its last transmission.
    packets: VecDeque<Packet>,
    /// Transmissions in their order, without those that are answered or overtaken.
    flying: VecDeque<Flight>,
    /// What is to be repeated.
    lost: VecDeque<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    arrived: bool,
    order: u64,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    order: u64,
    psn: u64,
}

/// The receiving end.
#[derive(Debug, Default)]
pub(super) struct SelectiveReceiver {
    expected: u64,
    /// Whether each packet from `expected` on has arrived.
    arrived: VecDeque<bool>,
}

impl SelectiveSender {
    pub(super) fn new(window: u64) -> SelectiveSender {
        SelectiveSender {
            window,
            end: 0,
            acked: 0,
            fresh: 0,
            order: 0,
            packets: VecDeque::new(),
            flying: VecDeque::new(),
            lost: VecDeque::new(),
        }
    }

    /// The window has room.
    fn has_room(&self) -> bool {
        (self.flying.len() as u64) < self.window
    }

    /// There is a packet that was never sent, and the receiver has a place for it.
    fn has_fresh(&self) -> bool {
        self.fresh < self.end.min(self.acked + SPAN * self.window)
    }

    fn packet(&mut self, psn: u64) -> Option<&mut Packet> {
        self.packets.get_mut(psn.checked_sub(self.acked)? as usize)
    }

    fn mark(&mut self, psn: u64) -> bool {
        self.packet(psn)
            .is_some_and(|packet| !std::mem::replace(&mut packet.arrived, true))
    }

    /// One path keeps its order: what was sent before a transmission that has arrived, and has not arrived, is lost.
    fn judge(&mut self, answered: u64) {
        while let Some(flight) = self.flying.front().copied().filter(|flight| flight.order <= answered) {
            self.flying.pop_front();
            let missing = |packet: &mut Packet| !packet.arrived && packet.order == flight.order;
            if self.packet(flight.psn).is_some_and(missing) {
                self.lost.push_back(flight.psn);
            }
        }
    }

    /// What is lost and has not arrived by now.
    fn next_lost(&mut self) -> Option<u64> {
        while let Some(psn) = self.lost.pop_front() {
            if self.packet(psn).is_some_and(|packet| !packet.arrived) {
                return Some(psn);
            }
        }
        None
    }
}

impl Sender for SelectiveSender {
    fn post(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    fn is_ready(&self) -> bool {
        self.has_room() && (!self.lost.is_empty() || self.has_fresh())
    }

    fn poll(&mut self) -> Option<Sent> {
        if !self.has_room() {
            return None;
        }
        let order = self.order;
        let (psn, again) = if let Some(psn) = self.next_lost() {
            self.packet(psn)?.order = order;
            (psn, true)
        } else if self.has_fresh() {
            self.packets.push_back(Packet { arrived: false, order });
            self.fresh += 1;
            (self.fresh - 1, false)
        } else {
            return None;
        };
        self.order += 1;
        self.flying.push_back(Flight { order, psn });
        Some(Sent { psn, order, again })
    }

    fn answer(&mut self, answer: &Answer) -> bool {
        let mut news = false;
        for (word, bits) in answer.bits.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let at = word as u64 * 64 + u64::from(bits.trailing_zeros());
                news |= self.mark(answer.base + at);
                bits &= bits - 1;
            }
        }
        while self.acked < answer.expected.min(self.fresh) {
            self.packets.pop_front();
            self.acked += 1;
            news = true;
        }
        self.judge(answer.order);
        news
    }

    fn timeout(&mut self) {
        self.judge(u64::MAX);
    }

    fn acked(&self) -> u64 {
        self.acked
    }

    fn is_waiting(&self) -> bool {
        self.acked < self.fresh
    }
}

impl Receiver for SelectiveReceiver {
    fn receive(&mut self, psn: u64, order: u64, place: &mut dyn FnMut(u64)) -> Option<Answer> {
        if let Some(ahead) = psn.checked_sub(self.expected) {
            let ahead = ahead as usize;
            if ahead >= self.arrived.len() {
                self.arrived.resize(ahead + 1, false);
            }
            if !std::mem::replace(&mut self.arrived[ahead], true) {
                place(psn);
            }
            while self.arrived.front() == Some(&true) {
                self.arrived.pop_front();
                self.expected += 1;
            }
        }
        // The bitmap ends with the packet that is answered, if that is far ahead.
        let base = self.expected.max((psn + 1).saturating_sub(BITS));
        let mut bits = [0, 0];
        let first = (base - self.expected) as usize;
        for (at, arrived) in self.arrived.iter().skip(first).take(BITS as usize).enumerate() {
            bits[at / 64] |= u64::from(*arrived) << (at % 64);
        }
        Some(Answer {
            expected: self.expected,
            nak: false,
            order,
            base,
            bits,
        })
    }

    fn expected(&self) -> u64 {
        self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(sender: &mut SelectiveSender) -> Vec<Sent> {
        std::iter::from_fn(|| sender.poll()).collect()
    }

    #[test]
    fn only_what_is_missing_goes_again_even_if_it_is_lost_twice() {
        let (mut sender, mut receiver) = (SelectiveSender::new(6), SelectiveReceiver::default());
        sender.post(8);
        let mut placed = Vec::new();
        let mut deliver = |sender: &mut SelectiveSender, sent: &Sent| {
            let answer = receiver.receive(sent.psn, sent.order, &mut |psn| placed.push(psn));
            sender.answer(&answer.expect("every packet is answered"))
        };
        let psns = |sent: &[Sent]| sent.iter().map(|sent| (sent.psn, sent.again)).collect::<Vec<_>>();
        let first = all(&mut sender);
        assert_eq!(first.len(), 6);
        // Packets 1 and 3 are lost; nothing else is behind packet 5.
        for at in [0, 2, 4, 5] {
            assert!(deliver(&mut sender, &first[at]));
        }
        let second = all(&mut sender);
        assert_eq!(psns(&second), [(1, true), (3, true), (6, false), (7, false)]);
        // So is the repetition of 1; that of 3 tells.
        assert!(deliver(&mut sender, &second[1]));
        let third = all(&mut sender);
        assert_eq!(psns(&third), [(1, true)]);
        for sent in [&second[2], &second[3], &third[0]] {
            assert!(deliver(&mut sender, sent));
        }
        assert!(!sender.is_waiting());
        assert_eq!((sender.acked(), placed), (8, vec![0, 2, 4, 5, 3, 6, 7, 1]));
    }

    #[test]
    fn the_window_counts_what_is_in_flight_and_the_span_what_is_missing() {
        let (mut sender, mut receiver) = (SelectiveSender::new(4), SelectiveReceiver::default());
        sender.post(1000);
        let lost = sender.poll().expect("room");
        let mut sent = 1;
        for _ in 0..100 {
            for packet in all(&mut sender).iter().filter(|packet| packet.psn != lost.psn) {
                sent = sent.max(packet.psn + 1);
                let answer = receiver.receive(packet.psn, packet.order, &mut |_| ());
                sender.answer(&answer.expect("every packet is answered"));
                assert!(sender.flying.len() <= 4);
            }
        }
        assert_eq!((sent, sender.acked()), (SPAN * 4, 0));
    }

    #[test]
    fn a_timeout_repeats_the_silent_tail_and_answers_far_ahead_reach_their_packet() {
        let mut sender = SelectiveSender::new(300);
        sender.post(300);
        let first = all(&mut sender);
        let mut receiver = SelectiveReceiver::default();
        let answer = receiver.receive(299, first[299].order, &mut |_| ()).expect("an answer");
        assert!(sender.answer(&answer));
        assert_eq!(all(&mut sender).len(), 299);
        sender.timeout();
        assert_eq!(all(&mut sender).len(), 299);
        assert!(!sender.answer(&answer));
    }
}
