//! What can break in a lab, and how it becomes whole again.

mod effect;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::PathEv;
pub(crate) use effect::{AtPorts, Effect, merge};

/// Something that breaks. Links are named as in `netns-lab show`; in a link's name `*` stands for any text, so that one fault can be at
/// many links. All but `link-down`, `link-flap` and `dead` need a `fabric`.
///
/// In TOML: `{ link-down = "h0-t0.0.p1" }`, `{ loss = { link = "h*", percent = 0.1 } }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Fault {
    /// The cable is away: both ends lose their carrier.
    LinkDown(String),
    /// The cable comes and goes, until healed.
    LinkFlap(Flap),
    /// A switch forwards no MRC any more. Its links stay up, and whatever else it forwards goes on: ping sees nothing.
    Blackhole(String),
    /// A switch is off: all its links are down.
    Dead(String),
    /// Packets are lost on a link. Not those that the fabric itself lives on (ARP, neighbour discovery, ping).
    Loss(Loss),
    /// Packets are damaged: one bit of each that is chosen.
    BitErrors(BitErrors),
    /// Nothing passes a link in one direction, and both ends believe that it is up.
    OneWay(OneWay),
    /// The links to a host carry less: it reads slowly.
    SlowReceiver(SlowReceiver),
    /// What a host sends, and so its answers too, comes later.
    HostDelay(HostDelay),
}

/// See [`Fault::LinkFlap`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flap {
    /// The link.
    pub link: String,
    /// How long it is down.
    pub down_ms: u32,
    /// How long it is up.
    pub up_ms: u32,
}

/// See [`Fault::Loss`]. One of `percent` and `every` says how many packets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Loss {
    /// The link.
    pub link: String,
    /// The node that sends what is lost; none: both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The chance of each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// Every n-th packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// Only packets with this EV (the 32 bits of flow label and source port), as `netns-lab show` lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ev: Option<u32>,
    /// Only MRC, not what kernels send.
    pub mrc_only: bool,
}

/// See [`Fault::BitErrors`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitErrors {
    /// The link.
    pub link: String,
    /// The node that sends what is damaged; none: both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The chance of each packet.
    pub percent: f64,
}

/// See [`Fault::OneWay`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneWay {
    /// The link.
    pub link: String,
    /// The node whose packets do not arrive.
    pub from: String,
}

/// See [`Fault::SlowReceiver`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowReceiver {
    /// The host, as in `h0`.
    pub host: String,
    /// What is left of the links' speed.
    pub percent: u32,
}

/// See [`Fault::HostDelay`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostDelay {
    /// The host, as in `h0`.
    pub host: String,
    /// How much later, in every plane.
    pub us: u32,
}

impl Loss {
    /// Only packets on a path.
    #[must_use]
    pub fn of_path(mut self, ev: PathEv) -> Self {
        self.ev = ev.bits();
        self
    }
}

/// For people: `loss on t0.0.p1-t1.2.p1`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = |from: &Option<String>| from.as_ref().map_or(String::new(), |n| format!(" from {n}"));
        match self {
            Self::LinkDown(link) => write!(f, "link {link} down"),
            Self::LinkFlap(flap) => write!(f, "link {} down {} ms, up {} ms", flap.link, flap.down_ms, flap.up_ms),
            Self::Blackhole(switch) => write!(f, "{switch} blackholes"),
            Self::Dead(switch) => write!(f, "{switch} dead"),
            Self::Loss(loss) => {
                match (loss.percent, loss.every) {
                    (Some(percent), _) => write!(f, "{percent} % loss")?,
                    (None, Some(n)) => write!(f, "loss of every {n}. packet")?,
                    (None, None) => f.write_str("loss")?,
                }
                write!(f, " on {}{}", loss.link, from(&loss.from))?;
                loss.ev.map_or(Ok(()), |ev| write!(f, ", EV {ev:#010x}"))
            }
            Self::BitErrors(e) => write!(f, "{} % bit errors on {}{}", e.percent, e.link, from(&e.from)),
            Self::OneWay(one) => write!(f, "nothing from {} on {}", one.from, one.link),
            Self::SlowReceiver(slow) => write!(f, "{} receives at {} %", slow.host, slow.percent),
            Self::HostDelay(delay) => write!(f, "{} sends {} us late", delay.host, delay.us),
        }
    }
}
