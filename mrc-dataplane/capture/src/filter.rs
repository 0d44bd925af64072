//! Which packets: `qp=0x11,0xa5 opcode=sack,nack port=p1 dir=rx`. Every word must hold; of its values one must.

use std::fmt;
use std::str::FromStr;

use mrc_wire::{Ev, Glance, Opcode};

/// Which way a packet went, as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Sent.
    Tx,
    /// Received.
    Rx,
}

/// What is known of a packet where it is captured.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Number of the port, from 1.
    pub port: Option<u8>,
    /// Name of its interface.
    pub interface: Option<&'a str>,
    /// Which way it went.
    pub direction: Option<Direction>,
    /// Its fields; `None` if it is not MRC.
    pub mrc: Option<Glance>,
}

/// Which packets are wanted. The empty one wants all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Qp(Vec<u32>),
    Ev(Vec<u32>),
    About(Vec<u32>),
    Opcode(Vec<u8>),
    Port(Vec<String>),
    Direction(Direction),
}

/// A word that is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no filter: {remedy}")]
pub struct FilterError {
    word: String,
    remedy: &'static str,
}

const WORDS: &str = "use qp=, ev=, about=, opcode=, port= and dir=, as in `qp=0x11,0xa5 opcode=sack dir=rx`";
const OPCODES: &str = "opcodes are write, write_first, write_middle, write_last, write_last_imm, write_only, write_only_imm, ack, sack, nack, probe, ep_req, ep_rsp, or a number such as 0xca";

impl Filter {
    /// Does it want everything?
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Does it want this packet? What is not known does not match.
    #[inline]
    pub fn matches(&self, seen: &Seen<'_>) -> bool {
        self.terms.iter().all(|term| term.matches(seen))
    }

    /// Adds one word.
    pub(crate) fn add(&mut self, word: &str) -> Result<(), FilterError> {
        self.terms.push(word.parse()?);
        Ok(())
    }
}

impl Term {
    fn matches(&self, seen: &Seen<'_>) -> bool {
        let mrc = seen.mrc.as_ref();
        let has = |list: &[u32], ev: Option<Ev>| ev.is_some_and(|ev| list.contains(&ev.0));
        match self {
            Self::Qp(list) => mrc.is_some_and(|mrc| list.contains(&mrc.dqp.get())),
            Self::Ev(list) => has(list, mrc.map(|mrc| mrc.ev)),
            Self::About(list) => has(list, mrc.and_then(|mrc| mrc.entropy)),
            Self::Opcode(list) => mrc.is_some_and(|mrc| list.contains(&mrc.opcode)),
            Self::Port(list) => list
                .iter()
                .any(|name| seen.interface == Some(name) || seen.port.is_some_and(|num| name.parse::<u8>() == Ok(num))),
            Self::Direction(direction) => seen.direction == Some(*direction),
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let terms = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }
}

impl FromStr for Term {
    type Err = FilterError;

    fn from_str(word: &str) -> Result<Self, FilterError> {
        let wrong = |remedy| FilterError {
            word: word.to_owned(),
            remedy,
        };
        let (key, values) = word.split_once('=').ok_or(wrong(WORDS))?;
        let numbers = |most: u32, remedy| -> Result<Vec<u32>, FilterError> {
            let parsed = values
                .split(',')
                .map(|text| number(text).filter(|value| *value <= most));
            parsed.collect::<Option<_>>().ok_or(wrong(remedy))
        };
        Ok(match key {
            "qp" => Self::Qp(numbers(0xff_ffff, "queue pairs are numbers below 2^24, as in qp=0x11")?),
            "ev" => Self::Ev(numbers(u32::MAX, "EVs are numbers of 32 bits, as in ev=0x0004c2ac")?),
            "about" => Self::About(numbers(u32::MAX, "EVs are numbers of 32 bits, as in about=0x0004c2ac")?),
            "opcode" => {
                let mut list = Vec::new();
                for name in values.split(',') {
                    list.extend(opcodes(name).ok_or(wrong(OPCODES))?);
                }
                Self::Opcode(list)
            }
            "port" if values.split(',').all(|name| !name.is_empty()) => {
                Self::Port(values.split(',').map(str::to_owned).collect())
            }
            "port" => {
                return Err(wrong(
                    "ports are interfaces or their numbers, as in port=p1 or port=1,2",
                ));
            }
            "dir" => Self::Direction(match values {
                "tx" => Direction::Tx,
                "rx" => Direction::Rx,
                _ => return Err(wrong("a direction is tx or rx")),
            }),
            _ => return Err(wrong(WORDS)),
        })
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        // `from_str_radix` would take a sign.
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => u32::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// All opcodes in the order of their values.
const ALL: [Opcode; 12] = [
    Opcode::WriteFirst,
    Opcode::WriteMiddle,
    Opcode::WriteLast,
    Opcode::WriteLastImm,
    Opcode::WriteOnly,
    Opcode::WriteOnlyImm,
    Opcode::Ack,
    Opcode::EndpointRequest,
    Opcode::EndpointResponse,
    Opcode::Sack,
    Opcode::Nack,
    Opcode::Probe,
];

fn opcodes(name: &str) -> Option<Vec<u8>> {
    if name.eq_ignore_ascii_case("write") {
        return Some(
            ALL.iter()
                .filter(|each| each.is_write())
                .map(|each| each.wire())
                .collect(),
        );
    }
    let known = ALL.iter().find(|each| each.name().eq_ignore_ascii_case(name));
    let value = known.map(|each| each.wire());
    value.or_else(|| number(name)?.try_into().ok()).map(|value| vec![value])
}

/// As it can be parsed again.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            let hex = |list: &[u32]| {
                list.iter()
                    .map(|value| format!("{value:#x}"))
                    .collect::<Vec<_>>()
                    .join(",")
            };
            match term {
                Term::Qp(list) => write!(f, "{space}qp={}", hex(list))?,
                Term::Ev(list) => write!(f, "{space}ev={}", hex(list))?,
                Term::About(list) => write!(f, "{space}about={}", hex(list))?,
                Term::Opcode(list) => {
                    let list: Vec<u32> = list.iter().map(|value| u32::from(*value)).collect();
                    write!(f, "{space}opcode={}", hex(&list))?;
                }
                Term::Port(list) => write!(f, "{space}port={}", list.join(","))?,
                Term::Direction(Direction::Tx) => write!(f, "{space}dir=tx")?,
                Term::Direction(Direction::Rx) => write!(f, "{space}dir=rx")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mrc_wire::{Dscps, EvLayout, Frame, ReceiveRules, glance};

    use super::*;

    fn seen_of(name: &str) -> Seen<'static> {
        let file: serde_json::Value = serde_json::from_str(include_str!("../../wire/tests/vectors.json")).unwrap();
        let packets = file["packets"].as_array().unwrap();
        let packet = packets.iter().find(|packet| packet["name"] == name).unwrap();
        let hex = packet["hex"].as_str().unwrap();
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let rules = ReceiveRules {
            udp_ports: &[4791],
            dscps: &Dscps::default(),
            ev_layout: EvLayout::FlowHigh,
        };
        // In two pieces, as ports deliver large ones.
        let (head, tail) = bytes.split_at(70);
        let mrc = glance(Frame { head, tail }, &rules);
        assert!(mrc.is_some(), "{name}");
        Seen {
            port: Some(2),
            interface: Some("p2"),
            direction: Some(Direction::Rx),
            mrc,
        }
    }

    fn matches(filter: &str, name: &str) -> bool {
        let parsed: Filter = filter.parse().unwrap();
        assert_eq!(parsed.to_string().parse::<Filter>().unwrap(), parsed);
        parsed.matches(&seen_of(name))
    }

    #[test]
    fn every_word_must_hold_and_one_of_its_values() {
        let sack = "sack_two_holes_ecn";
        for filter in [
            "",
            "qp=0x11",
            "qp=3,17",
            "ev=0x0004c2ac",
            "about=0x012b45c7",
            "opcode=SACK",
            "opcode=write,0xdc",
            "port=p2",
            "port=1,2",
            "dir=rx",
            "  qp=0x11   opcode=sack,nack dir=rx port=2 about=0x12b45c7 ",
        ] {
            assert!(matches(filter, sack), "{filter}");
        }
        for filter in [
            "qp=0x12",
            "ev=0x012b45c7",
            "about=0x0004c2ac",
            "opcode=nack",
            "port=p1,3",
            "dir=tx",
            "qp=0x11 dir=tx",
        ] {
            assert!(!matches(filter, sack), "{filter}");
        }
    }

    #[test]
    fn write_means_all_writes_also_in_tunnels_and_trimmed_ones() {
        for name in [
            "write_only_ecmp_ipv4",
            "write_first_ipv6_wrap",
            "write_only_srv6_srh",
            "trimmed_min_ipv6",
            "trimmed_lasthop_128_ipv6",
        ] {
            assert!(matches("opcode=write qp=0xa5", name), "{name}");
        }
        assert!(matches("ev=0x00020107", "write_only_srv6_srh"));
        assert!(!matches("opcode=write", "reliability_probe"));
    }

    #[test]
    fn what_is_not_known_does_not_match() {
        let nothing = Seen {
            port: None,
            interface: None,
            direction: None,
            mrc: None,
        };
        assert!(Filter::default().matches(&nothing) && Filter::default().is_empty());
        for filter in ["qp=0", "ev=0", "about=0", "opcode=write", "port=1", "dir=tx"] {
            assert!(!filter.parse::<Filter>().unwrap().matches(&nothing), "{filter}");
        }
    }

    #[test]
    fn wrong_words_are_named_with_the_remedy() {
        for (filter, remedy) in [
            ("loud", "use qp="),
            ("tcp=5", "use qp="),
            ("qp=0x1000000", "below 2^24"),
            ("qp=", "below 2^24"),
            ("qp=0x+1", "below 2^24"),
            ("ev=0x100000000", "32 bits"),
            ("about=x", "32 bits"),
            ("opcode=read", "opcodes are"),
            ("opcode=256", "opcodes are"),
            ("port=,", "ports are"),
            ("dir=up", "tx or rx"),
        ] {
            let error = format!("qp=1 {filter}").parse::<Filter>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{filter:?} is no filter: ")) && error.contains(remedy),
                "{error}"
            );
        }
    }
}
