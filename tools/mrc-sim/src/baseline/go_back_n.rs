//! Go-back-N: order is everything.

use crate::baseline::segment::Answer;
use crate::baseline::transport::{Receiver, Sender, Sent};

/// The sending end.
#[derive(Debug)]
pub(super) struct GoBackNSender {
    window: u64,
    end: u64,
    acked: u64,
    next: u64,
    /// First packet that was never sent.
    fresh: u64,
    order: u64,
}

/// The receiving end.
#[derive(Debug, Default)]
pub(super) struct GoBackNReceiver {
    expected: u64,
    /// The NAK for what is missing has been sent; there is no second one.
    complained: bool,
}

impl GoBackNSender {
    pub(super) fn new(window: u64) -> GoBackNSender {
        GoBackNSender {
            window,
            end: 0,
            acked: 0,
            next: 0,
            fresh: 0,
            order: 0,
        }
    }
}

impl Sender for GoBackNSender {
    fn post(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    fn is_ready(&self) -> bool {
        self.next < self.end.min(self.acked + self.window)
    }

    fn poll(&mut self) -> Option<Sent> {
        self.is_ready().then(|| {
            let sent = Sent {
                psn: self.next,
                order: self.order,
                again: self.next < self.fresh,
            };
            self.next += 1;
            self.order += 1;
            self.fresh = self.fresh.max(self.next);
            sent
        })
    }

    fn answer(&mut self, answer: &Answer) -> bool {
        let news = answer.expected > self.acked && answer.expected <= self.fresh;
        if news {
            self.acked = answer.expected;
            self.next = self.next.max(self.acked);
        }
        if answer.nak && answer.expected == self.acked {
            self.next = self.acked;
        }
        news || answer.nak
    }

    fn timeout(&mut self) {
        self.next = self.acked;
    }

    fn acked(&self) -> u64 {
        self.acked
    }

    fn is_waiting(&self) -> bool {
        self.acked < self.fresh
    }
}

impl Receiver for GoBackNReceiver {
    fn receive(&mut self, psn: u64, order: u64, place: &mut dyn FnMut(u64)) -> Option<Answer> {
        let mut answer = Answer {
            expected: self.expected,
            nak: false,
            order,
            base: 0,
            bits: [0, 0],
        };
        if psn > self.expected {
            answer.nak = true;
            return (!std::mem::replace(&mut self.complained, true)).then_some(answer);
        }
        if psn == self.expected {
            place(psn);
            self.expected += 1;
            self.complained = false;
            answer.expected = self.expected;
        }
        Some(answer)
    }

    fn expected(&self) -> u64 {
        self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psns(sender: &mut GoBackNSender) -> Vec<u64> {
        std::iter::from_fn(|| sender.poll().map(|sent| sent.psn)).collect()
    }

    #[test]
    fn a_gap_is_reported_once_and_everything_behind_it_goes_again() {
        let (mut sender, mut receiver) = (GoBackNSender::new(5), GoBackNReceiver::default());
        sender.post(8);
        assert_eq!(psns(&mut sender), [0, 1, 2, 3, 4]);
        let mut placed = Vec::new();
        // Packet 1 is lost.
        let answers: Vec<Option<Answer>> = [0, 2, 3, 4]
            .iter()
            .map(|psn| receiver.receive(*psn, 0, &mut |psn| placed.push(psn)))
            .collect();
        assert_eq!(answers[2..], [None, None]);
        for answer in answers.iter().flatten() {
            assert!(sender.answer(answer));
        }
        assert_eq!(psns(&mut sender), [1, 2, 3, 4, 5]);
        assert_eq!((placed, receiver.expected()), (vec![0], 1));
    }

    #[test]
    fn a_timeout_goes_back_and_a_duplicate_is_acknowledged_again() {
        let (mut sender, mut receiver) = (GoBackNSender::new(2), GoBackNReceiver::default());
        sender.post(2);
        assert_eq!(psns(&mut sender), [0, 1]);
        assert!(receiver.receive(0, 0, &mut |_| ()).is_some());
        sender.timeout();
        assert_eq!(psns(&mut sender), [0, 1]);
        let mut placed = 0;
        let answer = receiver.receive(0, 2, &mut |_| placed += 1).expect("an answer");
        assert_eq!((answer.expected, answer.nak, placed), (1, false, 0));
        assert!(sender.answer(&answer) && sender.is_waiting());
        assert!(!sender.answer(&answer), "the same again is no news");
    }
}
