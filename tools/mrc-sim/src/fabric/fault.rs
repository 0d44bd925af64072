//! Faults: each is one small node that frames pass, with a scope in space and a window in time.

use crate::coverage::FaultTag;
use crate::fabric::clos::topology::Place;
use crate::fabric::frame::{Frame, Trim};
use crate::rng::{Rng, mix};

/// What happens to a frame that a fault meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Each frame is lost with this chance.
    Loss {
        /// Chance in parts per million.
        ppm: u32,
    },
    /// Losses in bursts: all frames are lost while one lasts.
    Burst {
        /// Chance that a burst begins, per frame.
        enter_ppm: u32,
        /// Upper limit of its duration.
        within_ns: u64,
    },
    /// A second copy follows within `within_ns`.
    Duplicate {
        /// Chance in parts per million.
        ppm: u32,
        /// Upper limit of the copy's delay.
        within_ns: u64,
    },
    /// An additional delay for single frames, so that even frames of one path overtake each other.
    Jitter {
        /// Chance in parts per million.
        ppm: u32,
        /// Upper limit of the delay.
        within_ns: u64,
    },
    /// Up to `bits` bits of the serialised frame flip.
    BitFlip {
        /// Chance in parts per million.
        ppm: u32,
        /// Upper limit of flipped bits.
        bits: u8,
    },
    /// Everything vanishes without a word.
    Blackhole,
    /// ECN marks on frames that permit them.
    CeMark {
        /// Chance in parts per million.
        ppm: u32,
    },
    /// A switch cuts trimmable frames.
    Trim {
        /// Chance in parts per million.
        ppm: u32,
        /// Whether the last hop does it.
        last_hop: bool,
    },
}

/// Which frames a fault meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scope {
    /// Only frames from this host.
    pub src: Option<usize>,
    /// Only frames to this host.
    pub dst: Option<usize>,
    /// Only frames on this plane.
    pub plane: Option<u8>,
    /// Only this share of the entropy values, chosen by a hash, so that a value is always or never met.
    pub ev_share_ppm: Option<u32>,
    /// Only this entropy value.
    pub ev: Option<u32>,
    /// Only at this place of a fabric with switches; without one, a fault meets every frame once. A fabric of delays has no
    /// places: there it meets every frame.
    pub place: Option<Place>,
    /// Only some of the frames that it would meet otherwise.
    pub nth: Option<Nth>,
    /// Only data (`Some(true)`) or only control packets (`Some(false)`).
    pub data: Option<bool>,
}

/// Some of many frames, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nth {
    /// First of them, counted from 1.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// A fault: what, where, when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub kind: Kind,
    /// To which frames.
    pub scope: Scope,
    /// Start of the window.
    pub from_ns: u64,
    /// End of the window; `u64::MAX`: for ever.
    pub until_ns: u64,
}

/// The outcome for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Goes on.
    Pass,
    /// Is gone.
    Lost,
    /// Goes on, and a copy follows.
    Twice {
        /// Delay of the copy behind the original.
        after_ns: u64,
    },
}

/// A fault at work in the fabric.
#[derive(Debug, Clone)]
pub struct FaultNode {
    fault: Fault,
    salt: u64,
    burst_until_ns: u64,
    /// Frames in scope so far.
    met: u64,
}

impl Scope {
    /// Whether `frame` is in scope, whatever its number and place; `salt` makes the choice of entropy values differ from fault to fault.
    pub fn covers(&self, frame: &Frame, salt: u64) -> bool {
        self.src.is_none_or(|src| src == frame.src)
            && self.dst.is_none_or(|dst| dst == frame.dst)
            && self.plane.is_none_or(|plane| plane == frame.plane)
            && self.ev.is_none_or(|ev| ev == frame.ev)
            && self.data.is_none_or(|data| data == frame.data)
            && self
                .ev_share_ppm
                .is_none_or(|ppm| mix(salt, frame.ev.into()) % 1_000_000 < ppm.into())
    }
}

impl FaultNode {
    /// Puts `fault` to work.
    pub fn new(fault: Fault, salt: u64) -> FaultNode {
        FaultNode {
            fault,
            salt,
            burst_until_ns: 0,
            met: 0,
        }
    }

    /// Name of the fault for the coverage summary.
    pub fn tag(&self) -> FaultTag {
        match (self.fault.kind, self.fault.scope) {
            (Kind::Loss { .. }, Scope { data: Some(false), .. }) => FaultTag::ControlLoss,
            (
                Kind::Loss { .. },
                Scope {
                    ev_share_ppm: Some(_), ..
                },
            ) => FaultTag::PathLoss,
            (Kind::Loss { .. }, _) => FaultTag::Loss,
            (Kind::Burst { .. }, _) => FaultTag::BurstLoss,
            (Kind::Duplicate { within_ns, .. }, _) if within_ns >= 1_000_000 => FaultTag::LateDuplicate,
            (Kind::Duplicate { .. }, _) => FaultTag::Duplicate,
            (Kind::Jitter { .. }, _) => FaultTag::Reorder,
            (Kind::BitFlip { .. }, _) => FaultTag::BitFlip,
            (
                Kind::Blackhole,
                Scope {
                    ev_share_ppm: Some(_), ..
                },
            ) => FaultTag::PathBlackhole,
            (Kind::Blackhole, Scope { src: Some(_), .. } | Scope { dst: Some(_), .. }) => FaultTag::OneWayBlackhole,
            (Kind::Blackhole, Scope { plane: Some(_), .. }) => FaultTag::PlaneBlackhole,
            (Kind::Blackhole, _) => FaultTag::Partition,
            (Kind::CeMark { .. }, _) => FaultTag::CeMark,
            (Kind::Trim { last_hop: false, .. }, _) => FaultTag::Trim,
            (Kind::Trim { last_hop: true, .. }, _) => FaultTag::TrimLastHop,
        }
    }

    /// Lets `frame`, which would arrive at `arrives_ns`, pass. Returns the outcome and whether the fault did anything.
    pub fn pass(&mut self, frame: &mut Frame, arrives_ns: &mut u64, now_ns: u64, rng: &mut Rng) -> (Outcome, bool) {
        let Fault {
            kind,
            scope,
            from_ns,
            until_ns,
        } = self.fault;
        if now_ns < from_ns || now_ns >= until_ns || !scope.covers(frame, self.salt) {
            return (Outcome::Pass, false);
        }
        self.met += 1;
        if scope
            .nth
            .is_some_and(|nth| self.met < nth.first || self.met - nth.first >= nth.count)
        {
            return (Outcome::Pass, false);
        }
        match kind {
            Kind::Loss { ppm } => lost_if(rng.chance(ppm)),
            Kind::Burst { enter_ppm, within_ns } => {
                if now_ns >= self.burst_until_ns && rng.chance(enter_ppm) {
                    self.burst_until_ns = now_ns + rng.range(1, within_ns);
                }
                lost_if(now_ns < self.burst_until_ns)
            }
            Kind::Blackhole => lost_if(true),
            Kind::Duplicate { ppm, within_ns } if rng.chance(ppm) => (
                Outcome::Twice {
                    after_ns: rng.below(within_ns),
                },
                true,
            ),
            Kind::Jitter { ppm, within_ns } if rng.chance(ppm) => {
                *arrives_ns += rng.below(within_ns);
                (Outcome::Pass, true)
            }
            Kind::BitFlip { ppm, bits } if rng.chance(ppm) => {
                let count = rng.range(1, bits.into());
                frame.flips.extend((0..count).map(|_| rng.word()));
                (Outcome::Pass, true)
            }
            Kind::CeMark { ppm } if frame.ect && rng.chance(ppm) => {
                frame.ce = true;
                (Outcome::Pass, true)
            }
            Kind::Trim { ppm, last_hop } if frame.trimmable && rng.chance(ppm) => {
                frame.trim = Some(Trim {
                    last_hop,
                    keep: rng.pick(&[128, 64, 96, 160]),
                });
                (Outcome::Pass, true)
            }
            _ => (Outcome::Pass, false),
        }
    }
}

fn lost_if(lost: bool) -> (Outcome, bool) {
    (if lost { Outcome::Lost } else { Outcome::Pass }, lost)
}
