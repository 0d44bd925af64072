//! What a Clos fabric is like: shape, links, queues, routing, and what breaks when.

use crate::fabric::clos::topology::{Link, Place, Shape};
use mrc_wire::PortNum;
use thiserror::Error;

/// Preamble, FCS and gap: what a frame costs on a link beside its own bytes.
pub const FRAME_OVERHEAD: u32 = 24;

/// Bytes of a write of 4096 bytes with all its headers, from the Ethernet header on.
const FULL_FRAME: u32 = 14 + 4184;
/// Bytes of a SACK, roughly.
const ANSWER: u32 = 14 + 100;
/// Spines of a plane that a routing table can hold.
const MAX_SPINES: usize = 128;

/// A Clos fabric without faults of single frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosPlan {
    /// How many there are of everything.
    pub shape: Shape,
    /// Links between hosts and T0.
    pub host_link: LinkPlan,
    /// Links between T0 and T1.
    pub spine_link: LinkPlan,
    /// Largest frame from the Ethernet header on, without FCS; switches drop what is larger.
    pub mtu_bytes: u32,
    /// How the entropy value selects a path.
    pub routing: Routing,
    /// Queues of all switch ports.
    pub queues: QueuePlan,
    /// What breaks when.
    pub outages: Vec<Outage>,
    /// What is sampled.
    pub sampling: Option<Sampling>,
}

/// A link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkPlan {
    /// Mbit/s, from 25 to 400 000.
    pub rate_mbps: u32,
    /// Propagation, and what a switch takes to forward.
    pub delay_ns: u64,
}

/// How a T0 selects the spine from the entropy value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// By a hash of source, destination and EV that differs from switch to switch.
    Ecmp,
    /// By bits of the EV (wire-format.md §3), modulo the number of spines.
    Structured {
        /// Lowest of the bits.
        low_bit: u8,
        /// How many bits.
        bits: u8,
    },
}

/// Queues of a switch port: control above data, both lossy. All sizes are bytes that wait, without the frame that is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePlan {
    /// ECN marks, if any, at the departure of a data frame, by what waits behind it.
    pub ecn: Option<Ramp>,
    /// Marks at the last hop too. protocol.md §12: off.
    pub ecn_last_hop: bool,
    /// Trimming, if the switches can.
    pub trim: Option<TrimPlan>,
    /// Data beyond this is dropped, if it cannot be trimmed.
    pub drop_bytes: u32,
    /// Control beyond this is dropped.
    pub control_bytes: u32,
}

/// Probability from 0 at `low_bytes` to 1 at `high_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ramp {
    /// Nothing is marked up to here.
    pub low_bytes: u32,
    /// Everything is marked from here on.
    pub high_bytes: u32,
}

/// How switches trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimPlan {
    /// Trimmable data beyond this is cut.
    pub at_bytes: u32,
    /// The same at the last hop.
    pub at_last_hop_bytes: u32,
    /// Bytes that remain of a frame, from the Ethernet header on.
    pub keep_bytes: u32,
    /// Share of the link that trimmed frames may use; more are dropped.
    pub share_percent: u8,
}

/// A part of the fabric that is dead for some time: everything on it vanishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// What.
    pub place: Place,
    /// From when on.
    pub from_ns: u64,
    /// Until when; `u64::MAX`: for ever.
    pub until_ns: u64,
    /// How long the routing takes to go around it, and to come back; `None`: the control plane does not notice.
    pub reroute_ns: Option<u64>,
}

/// What the sampler writes down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampling {
    /// Interval.
    pub every_ns: u64,
    /// The links.
    pub links: Vec<Link>,
}

/// A plan that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// Too few or too many of something.
    #[error("the fabric has {found} {what}, but can have {least} to {most}: change the plan")]
    Count {
        /// What.
        what: &'static str,
        /// As planned.
        found: usize,
        /// Lower limit.
        least: usize,
        /// Upper limit.
        most: usize,
    },
    /// Thresholds that cannot be in this order.
    #[error("{lower} is {low} bytes and {upper} is {high}: make the second one larger")]
    Order {
        /// What should be less.
        lower: &'static str,
        /// Its value.
        low: u32,
        /// What should be more.
        upper: &'static str,
        /// Its value.
        high: u32,
    },
    /// A fault, outage or sample somewhere else.
    #[error("the fabric has no {0}: name a plane from 1 on, and hosts and switches from 0 on")]
    Place(String),
}

impl LinkPlan {
    /// Picoseconds on the wire of a frame of `bytes`, with everything that comes with a frame.
    pub fn transmit_ps(&self, bytes: u32) -> u64 {
        u64::from(bytes + FRAME_OVERHEAD) * 8_000_000 / u64::from(self.rate_mbps)
    }

    /// From the first bit at one end to the last at the other.
    fn pass_ns(&self, bytes: u32) -> u64 {
        self.transmit_ps(bytes).div_ceil(1000) + self.delay_ns
    }
}

impl ClosPlan {
    /// A fabric of this shape with one kind of link, ECMP, marking and trimming by the defaults of protocol.md §12.
    pub fn new(shape: Shape, link: LinkPlan) -> ClosPlan {
        let mut plan = ClosPlan {
            shape,
            host_link: link,
            spine_link: link,
            mtu_bytes: 9216,
            routing: Routing::Ecmp,
            queues: QueuePlan::of_bdp(0),
            outages: Vec::new(),
            sampling: None,
        };
        plan.queues = QueuePlan::of_bdp(plan.bdp_bytes());
        plan
    }

    /// From the first bit of a full frame to the answer, over a spine and idle links.
    pub fn base_rtt_ns(&self) -> u64 {
        let one_way = |bytes| 2 * (self.host_link.pass_ns(bytes) + self.spine_link.pass_ns(bytes));
        one_way(FULL_FRAME) + one_way(ANSWER)
    }

    /// What one plane of a host holds in flight: its rate times the base RTT.
    pub fn bdp_bytes(&self) -> u32 {
        let bytes = u128::from(self.base_rtt_ns()) * u128::from(self.host_link.rate_mbps) / 8000;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        let count = |what, found, least, most| {
            let fits = (least..=most).contains(&found);
            fits.then_some(()).ok_or(PlanError::Count {
                what,
                found,
                least,
                most,
            })
        };
        let Shape {
            planes,
            leaves,
            spines,
            hosts_per_leaf,
        } = self.shape;
        count("planes", planes.into(), 1, PortNum::MAX.into())?;
        count("T0 switches in a plane", leaves, 1, 1 << 12)?;
        count("hosts below a T0", hosts_per_leaf, 1, 1 << 10)?;
        count("T1 switches in a plane", spines, usize::from(leaves > 1), MAX_SPINES)?;
        for link in [self.host_link, self.spine_link] {
            count("Mbit/s on a link", link.rate_mbps as usize, 25, 400_000)?;
        }
        count("bytes in the largest frame", self.mtu_bytes as usize, 256, 1 << 16)?;
        if let Routing::Structured { low_bit, bits } = self.routing {
            count("bits of the EV to select the spine", bits.into(), 1, 16)?;
            count(
                "bits of the EV up to the selection's last",
                usize::from(low_bit) + usize::from(bits),
                1,
                32,
            )?;
        }
        if let Some(sampling) = &self.sampling {
            count("ns between two samples", sampling.every_ns as usize, 1, usize::MAX)?;
        }
        self.queues.check()?;
        let places = self.outages.iter().map(|outage| outage.place);
        let sampled = self.sampling.iter().flat_map(|sampling| &sampling.links);
        for place in places.chain(sampled.map(|link| Place::Link(*link))) {
            self.shape
                .links_of(place)
                .ok_or_else(|| PlanError::Place(format!("{place:?}")))?;
        }
        Ok(())
    }
}

impl QueuePlan {
    /// The defaults of protocol.md §12 for a plane that holds `bdp_bytes` in flight, with trimming.
    pub fn of_bdp(bdp_bytes: u32) -> QueuePlan {
        // Below a few frames, thresholds would act on single frames instead of queues.
        let bdp_bytes = bdp_bytes.max(4 * FULL_FRAME);
        let part = |percent: u64| u32::try_from(u64::from(bdp_bytes) * percent / 100).unwrap_or(u32::MAX);
        QueuePlan {
            ecn: Some(Ramp {
                low_bytes: part(20),
                high_bytes: part(80),
            }),
            ecn_last_hop: false,
            trim: Some(TrimPlan {
                at_bytes: part(100),
                at_last_hop_bytes: part(150),
                keep_bytes: 128,
                share_percent: 50,
            }),
            drop_bytes: part(300),
            control_bytes: part(100),
        }
    }

    /// The same without trimming.
    #[must_use]
    pub fn without_trimming(self) -> QueuePlan {
        QueuePlan { trim: None, ..self }
    }

    fn check(&self) -> Result<(), PlanError> {
        let order = |lower, low, upper, high| {
            (low < high).then_some(()).ok_or(PlanError::Order {
                lower,
                low,
                upper,
                high,
            })
        };
        if let Some(Ramp { low_bytes, high_bytes }) = self.ecn {
            order("the first ECN threshold", low_bytes, "the second", high_bytes)?;
        }
        if let Some(trim) = self.trim {
            let (drop, cut) = (self.drop_bytes, "the drop threshold");
            order("the trim threshold", trim.at_bytes, cut, drop)?;
            order("the trim threshold of the last hop", trim.at_last_hop_bytes, cut, drop)?;
            order(
                "a trimmed frame",
                trim.keep_bytes,
                "the control queue",
                self.control_bytes,
            )?;
        }
        Ok(())
    }
}

impl Outage {
    /// `place` is dead for ever.
    pub fn dead(place: Place, from_ns: u64, reroute_ns: Option<u64>) -> Outage {
        Outage {
            place,
            from_ns,
            until_ns: u64::MAX,
            reroute_ns,
        }
    }

    /// `place` goes down `times` times for `down_ns`, once in `period_ns`.
    pub fn flap(self, down_ns: u64, period_ns: u64, times: u64) -> impl Iterator<Item = Outage> {
        (0..times).map(move |time| {
            let from_ns = self.from_ns + time * period_ns;
            Outage {
                from_ns,
                until_ns: from_ns + down_ns,
                ..self
            }
        })
    }
}
