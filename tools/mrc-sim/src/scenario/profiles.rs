//! Draws EV profiles for queue pairs, and what a controller does with them meanwhile (protocol.md §7.1, §8.2, api.md §4.8).

use crate::fabric::fault::{Fault, Kind};
use crate::rng::Rng;
use crate::scenario::{Format, Happening, Scenario};
use std::fmt;

/// Where the EVs of a profile go in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    /// The UDP source port.
    Udp,
    /// Source port and flow label.
    Stev,
    /// An outer address. The network takes it off before the last hop.
    Srv6,
    /// An outer address and the entry of a segment routing header.
    Srv6Srh,
}

/// The profile of both queue pairs of a connection; each has one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfilePlan {
    /// Where its EVs go.
    pub tags: Tags,
    /// GENERATED, in contrast to EXPLICIT.
    pub generated: bool,
}

/// What a controller does. `pick` chooses the first entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// So many entries become DENIED; only one copy of each, unless all are meant.
    Deny {
        /// First.
        pick: u32,
        /// How many.
        count: u32,
        /// All copies.
        all_copies: bool,
    },
    /// An entry becomes ASSUMED_BAD.
    Banish {
        /// Which.
        pick: u32,
    },
    /// An entry becomes GOOD.
    Allow {
        /// Which.
        pick: u32,
    },
    /// All entries that are DENIED become GOOD.
    AllowAll,
    /// An entry of EXPLICIT gets another EV, perhaps on another port.
    Replace {
        /// Which.
        pick: u32,
        /// Its new port, counted from 1; 0: as before.
        plane: u8,
    },
    /// GENERATED gets other fields, and so all its EVs are others.
    Regenerate,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Command::Deny {
                pick,
                count,
                all_copies,
            } => {
                let copies = if all_copies { "all copies" } else { "one copy" };
                write!(f, "denies {count} EVs from number {pick} on, {copies} of each")
            }
            Command::Banish { pick } => write!(f, "calls EV number {pick} bad"),
            Command::Allow { pick } => write!(f, "calls EV number {pick} good"),
            Command::AllowAll => write!(f, "permits all EVs again"),
            Command::Replace { pick, plane: 0 } => write!(f, "exchanges EV number {pick}"),
            Command::Replace { pick, plane } => write!(f, "exchanges EV number {pick} for one of plane {plane}"),
            Command::Regenerate => write!(f, "has all EVs generated anew"),
        }
    }
}

/// Adds some to a scenario whose traffic is known to last about `span_ns`.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    let v4 = scenario.format == Format::BytesV4;
    for connection in 0..scenario.connections.len() {
        let opinionated = rng.one_in(12);
        if opinionated {
            scenario.connections[connection].verdict_ppm = rng.pick(&[5_000, 50_000]);
        }
        if !rng.one_in(3) {
            continue;
        }
        let tags = if v4 {
            Tags::Udp
        } else {
            rng.pick(&[Tags::Udp, Tags::Stev, Tags::Srv6, Tags::Srv6Srh])
        };
        let generated = rng.one_in(3);
        let plan = &mut scenario.connections[connection];
        plan.auto_evs = false;
        plan.profile = Some(ProfilePlan { tags, generated });
        for _ in 0..rng.range(0, 8) {
            command(rng, scenario, connection, generated, span_ns);
        }
        for side in 0..2 {
            // What was forbidden is permitted in the end.
            let command = Command::AllowAll;
            let happening = Happening::Control {
                connection,
                side,
                command,
            };
            scenario.happenings.push((span_ns, happening));
        }
    }
}

fn command(rng: &mut Rng, scenario: &mut Scenario, connection: usize, generated: bool, span_ns: u64) {
    let pick = rng.word() as u32;
    let link = |happening: &Happening| matches!(happening, Happening::Link { .. } | Happening::ForgeNode { .. });
    let links = scenario.happenings.iter().any(|(_, happening)| link(happening));
    let dead = |fault: &Fault| fault.kind == Kind::Blackhole && fault.until_ns == u64::MAX;
    let dead = scenario.faults.iter().any(dead);
    let command = match rng.below(8) {
        0..=2 => Command::Deny {
            pick,
            count: rng.pick(&[1, 1, 1, 2, 4, 64]),
            all_copies: rng.one_in(2),
        },
        3 => Command::Banish { pick },
        4 => Command::Allow { pick },
        5 => Command::AllowAll,
        _ if generated => Command::Regenerate,
        _ => Command::Replace {
            pick,
            // Where ports go down, each plane keeps its paths: one is needed that is up at both ends. So does it where paths
            // of one plane are dead for ever: they may be all there are.
            plane: if links || dead {
                0
            } else {
                rng.range(1, scenario.planes.into()) as u8
            },
        },
    };
    let happening = Happening::Control {
        connection,
        side: rng.below(2) as usize,
        command,
    };
    scenario.happenings.push((rng.below(span_ns), happening));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_paths_of_one_plane_are_dead_for_ever_others_keep_theirs() {
        let mut exchanges = 0;
        for seed in 0..4000 {
            let scenario = Scenario::from_seed(seed);
            let dead = |fault: &Fault| fault.scope.plane.is_some() && fault.until_ns == u64::MAX;
            if !scenario
                .faults
                .iter()
                .any(|fault| fault.kind == Kind::Blackhole && dead(fault))
            {
                continue;
            }
            for (_, happening) in &scenario.happenings {
                if let Happening::Control {
                    command: Command::Replace { plane, .. },
                    ..
                } = happening
                {
                    exchanges += 1;
                    assert_eq!(*plane, 0, "seed {seed}");
                }
            }
        }
        assert!(exchanges > 10, "{exchanges}");
    }
}
