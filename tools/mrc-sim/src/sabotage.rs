//! Deliberate damage to a run, to see that the oracles notice: each stands for a bug that the protocol could have.

use crate::memory::Spoil;
use crate::scenario::ConnectionPlan;
use mrc_protocol::{Completion, Queue, Transmit};
use mrc_wire::{Ev, Headers, NackReason, Packet, PortNum, Psn, Syndrome, Tick, TrafficClass, Tseth};

/// What is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A byte of placed data is wrong.
    SpoilData,
    /// A send completion never reaches the application.
    DropSendCompletion,
    /// A receive completion comes twice.
    RepeatReceiveCompletion,
    /// A SACK claims one more packet.
    ClaimInSack,
    /// A SACK says that one more packet came in order.
    ClaimInCack,
    /// A SACK is swallowed by its sender.
    SwallowSack,
    /// A Transport ACK covers one more packet.
    ClaimInAck,
    /// A packet leaves on a port that has no room or is down.
    WrongPort,
    /// A packet leaves on a path that the queue pair does not have.
    UnknownPath,
    /// A PSN is skipped.
    SkipPsn,
    /// A write goes to the wrong address.
    WrongAddress,
    /// Retransmissions do not say so.
    HideRetransmission,
    /// An immediate is altered.
    AlterImmediate,
    /// A placement also changes a byte that belongs to nobody.
    StrayWrite,
    /// A Transport ACK is swallowed by its sender.
    SwallowAck,
    /// A retransmission takes the path of the lost copy.
    SamePath,
    /// A packet is sent twice without a reason.
    Haste,
    /// All writes take one path.
    Favourite,
    /// Packets in flight are forgotten by the congestion controller.
    ForgetFlight,
    /// The requestor believes in twice the window.
    WideWindow,
    /// An engine has turns all the time.
    Restless,
    /// The protocol allocates memory.
    Allocate,
    /// A SACK reflects another stamp.
    ShiftStamp,
    /// A SACK asks for less than the queue is full.
    WrongPenalty,
    /// A SACK announces another window.
    WrongWindow,
    /// A requestor takes announced windows for as wide as its own limit.
    MishearWindow,
    /// A SACK shows the packet behind the highest one received.
    ClaimBeyond,
    /// Responders wait for twice as many bytes before they send a SACK.
    LateSack,
    /// Responders send a SACK for half as many bytes.
    EarlySack,
    /// A NACK gives another reason.
    WrongReason,
    /// A NACK is swallowed by its sender.
    SwallowNack,
    /// That a request has failed is not said.
    SwallowParting,
    /// Packets count as placed although the memory could not be written.
    IgnoreTrouble,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Sabotage; 33] = [
        Sabotage::SpoilData,
        Sabotage::DropSendCompletion,
        Sabotage::RepeatReceiveCompletion,
        Sabotage::ClaimInSack,
        Sabotage::ClaimInCack,
        Sabotage::SwallowSack,
        Sabotage::ClaimInAck,
        Sabotage::WrongPort,
        Sabotage::UnknownPath,
        Sabotage::SkipPsn,
        Sabotage::WrongAddress,
        Sabotage::HideRetransmission,
        Sabotage::AlterImmediate,
        Sabotage::StrayWrite,
        Sabotage::SwallowAck,
        Sabotage::SamePath,
        Sabotage::Haste,
        Sabotage::Favourite,
        Sabotage::ForgetFlight,
        Sabotage::WideWindow,
        Sabotage::Restless,
        Sabotage::Allocate,
        Sabotage::ShiftStamp,
        Sabotage::WrongPenalty,
        Sabotage::WrongWindow,
        Sabotage::MishearWindow,
        Sabotage::ClaimBeyond,
        Sabotage::LateSack,
        Sabotage::EarlySack,
        Sabotage::WrongReason,
        Sabotage::SwallowNack,
        Sabotage::SwallowParting,
        Sabotage::IgnoreTrouble,
    ];
}

/// A saboteur that strikes once, after some opportunities.
#[derive(Debug)]
pub struct Saboteur {
    what: Option<Sabotage>,
    wait: u32,
    /// Whether it has struck.
    pub struck: bool,
    /// A packet that it sends once more: host, queue pair, packet.
    again: Option<(usize, usize, Transmit)>,
    favourite: Option<(usize, usize, Ev, PortNum)>,
}

/// What the saboteur wants done with a packet or completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Keep,
    /// Make it vanish.
    Swallow,
    /// Deliver it twice.
    Repeat,
}

impl Saboteur {
    /// Strikes at the `wait`-th opportunity.
    pub fn new(what: Option<Sabotage>, wait: u32) -> Saboteur {
        Saboteur {
            what,
            wait,
            struck: false,
            again: None,
            favourite: None,
        }
    }

    fn strike(&mut self, what: Sabotage) -> bool {
        if self.what != Some(what) || self.struck {
            return false;
        }
        self.struck = self.wait == 0;
        self.wait = self.wait.saturating_sub(1);
        self.struck
    }

    /// Whether to break what is done once: the first opportunity counts.
    pub fn now(&mut self, what: Sabotage) -> bool {
        self.strike(what)
    }

    /// Whether it goes on with `what` from its strike on.
    pub fn goes_on(&mut self, what: Sabotage) -> bool {
        self.strike(what) || (self.struck && self.what == Some(what))
    }

    /// What queue pairs are made of, instead of `plan`.
    pub fn create(&mut self, plan: &ConnectionPlan) -> Option<ConnectionPlan> {
        let mut plan = plan.clone();
        let threshold = plan.sack_gen_threshold;
        if threshold > 0 && self.goes_on(Sabotage::EarlySack) {
            plan.sack_gen_threshold = threshold / 2;
        } else if threshold < 65_536 && self.goes_on(Sabotage::LateSack) {
            plan.sack_gen_threshold = (2 * threshold).max(2048);
        } else {
            return None;
        }
        Some(plan)
    }

    /// A packet that goes out once more instead of what the queue pair of `host` has to say.
    pub fn take_again(&mut self, host: usize, slot: usize, now_ns: u64) -> Option<Transmit> {
        let again = self
            .again
            .take_if(|(of_host, of_slot, _)| (*of_host, *of_slot) == (host, slot));
        let (_, _, mut sent) = again?;
        if let Headers::Write { tseth, .. } = &mut sent.headers {
            *tseth = Some(Tseth::new(Tick::from_ns(now_ns)));
        }
        Some(sent)
    }

    /// Works on a write of queue pair `slot` of `host` that is about to be sent.
    pub fn divert(&mut self, host: usize, slot: usize, sent: &mut Transmit) {
        if !matches!(sent.headers, Headers::Write { .. }) {
            return;
        }
        if !sent.is_retransmission && self.strike(Sabotage::Haste) {
            let mut again = *sent;
            (again.is_retransmission, again.bth.rtx, again.bth.a) = (true, true, true);
            again.class = match again.class {
                TrafficClass::Trimmable => TrafficClass::TrimmableRetx,
                class => class,
            };
            self.again = Some((host, slot, again));
        }
        if self.goes_on(Sabotage::Favourite) {
            let (of_host, of_slot, ev, port) = *self.favourite.get_or_insert((host, slot, sent.ev, sent.port));
            if (of_host, of_slot) == (host, slot) {
                (sent.ev, sent.port) = (ev, port);
            }
        }
    }

    /// What a queue pair hears instead of a packet that announces a window.
    pub fn mishear<'a>(&mut self, packet: &Packet<'a>) -> Option<Packet<'a>> {
        let announces = matches!(&packet.headers, Headers::Sack(seth, _) if seth.mpr > 0);
        let mut misheard = (announces && self.goes_on(Sabotage::MishearWindow)).then_some(*packet)?;
        if let Headers::Sack(seth, _) = &mut misheard.headers {
            seth.mpr = u8::MAX;
        }
        Some(misheard)
    }

    /// What to do to the next placement.
    pub fn placement(&mut self) -> Option<Spoil> {
        if self.strike(Sabotage::SpoilData) {
            Some(Spoil::Data)
        } else if self.strike(Sabotage::StrayWrite) {
            Some(Spoil::Stray)
        } else {
            None
        }
    }

    /// Works on a packet that is about to be sent; `before` is the path of the previous copy of a write, `max_rcv_psn` what
    /// the sender has received.
    pub fn transmit(&mut self, sent: &mut Transmit, before: Option<(u32, u8)>, max_rcv_psn: Psn) -> Verdict {
        match &mut sent.headers {
            Headers::Sack(seth, state) => {
                if let Some(state) = state {
                    if state.tx_timestamp != Tick(0) && self.strike(Sabotage::ShiftStamp) {
                        state.tx_timestamp.0 ^= 0x400;
                    }
                    if self.strike(Sabotage::WrongPenalty) {
                        state.rcv_cwnd_pen ^= 0x40;
                    }
                }
                if self.strike(Sabotage::WrongWindow) {
                    seth.mpr ^= 0x10;
                }
                let beyond = max_rcv_psn.next().diff(seth.bitmap_base());
                if (0..64).contains(&beyond) && self.strike(Sabotage::ClaimBeyond) {
                    seth.sack_bitmap |= 1 << beyond;
                }
                let free_bit = (!seth.sack_bitmap).trailing_zeros().min(63);
                if self.strike(Sabotage::ClaimInSack) {
                    seth.sack_bitmap |= 1 << free_bit;
                }
                if self.strike(Sabotage::ClaimInCack) {
                    seth.cack_psn = seth.cack_psn.next();
                    sent.bth.psn = seth.cack_psn;
                }
                if !seth.pr && self.strike(Sabotage::SwallowSack) {
                    return Verdict::Swallow;
                }
            }
            Headers::Ack(aeth) if aeth.meaning() != Syndrome::Ack && self.strike(Sabotage::SwallowParting) => {
                return Verdict::Swallow;
            }
            Headers::Nack(neth) => {
                let parting = neth.reason == NackReason::UNEXP_EVENT;
                if parting && self.strike(Sabotage::SwallowParting) || self.strike(Sabotage::SwallowNack) {
                    return Verdict::Swallow;
                }
                if self.strike(Sabotage::WrongReason) {
                    neth.reason = match neth.reason {
                        NackReason::NO_RESOURCE => NackReason::NO_BITMAP,
                        _ => NackReason::NO_RESOURCE,
                    };
                }
            }
            Headers::Ack(_) if self.strike(Sabotage::ClaimInAck) => sent.bth.psn = sent.bth.psn.next(),
            Headers::Ack(_) if self.strike(Sabotage::SwallowAck) => return Verdict::Swallow,
            Headers::Write { reth, imm, .. } => {
                if !sent.is_retransmission && self.strike(Sabotage::SkipPsn) {
                    sent.bth.psn = sent.bth.psn.next();
                }
                if self.strike(Sabotage::WrongAddress) {
                    reth.va = reth.va.wrapping_add(4);
                }
                if let Some(imm) = imm
                    && self.strike(Sabotage::AlterImmediate)
                {
                    imm.0[3] ^= 1;
                }
                if sent.is_retransmission && self.strike(Sabotage::HideRetransmission) {
                    sent.bth.rtx = false;
                }
                if let Some((ev, port)) = before
                    && (sent.ev.0, sent.port.get()) != (ev, port)
                    && self.strike(Sabotage::SamePath)
                {
                    sent.ev.0 = ev;
                    sent.port = PortNum::new(port).unwrap_or(sent.port);
                }
                if self.strike(Sabotage::UnknownPath) {
                    sent.ev.0 ^= 0x1357;
                }
                if self.strike(Sabotage::WrongPort) {
                    sent.port = PortNum::new(PortNum::MAX).unwrap_or(sent.port);
                }
            }
            _ => {}
        }
        Verdict::Keep
    }

    /// Works on a completion that is about to reach the application.
    pub fn completion(&mut self, completion: &Completion) -> Verdict {
        match completion.queue {
            Queue::Send if self.strike(Sabotage::DropSendCompletion) => Verdict::Swallow,
            Queue::Recv if self.strike(Sabotage::RepeatReceiveCompletion) => Verdict::Repeat,
            Queue::Send | Queue::Recv => Verdict::Keep,
        }
    }
}
