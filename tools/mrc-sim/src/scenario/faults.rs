//! Draws the faults of a run.

use crate::fabric::fault::{Fault, Kind, Scope};
use crate::forge::Forgery;
use crate::rng::Rng;
use crate::scenario::{Happening, Scenario, upset};

/// Adds between one and five faults to a scenario whose traffic is known to last about `span_ns`.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    let count = rng.pick(&[1, 1, 2, 2, 3, 4, 5]);
    for _ in 0..count {
        let from_ns = rng.below(span_ns / 2 + 1);
        let until_ns = from_ns + rng.range(20_000, 20_000 + span_ns);
        add_one(rng, scenario, from_ns, until_ns);
    }
}

fn add_one(rng: &mut Rng, scenario: &mut Scenario, from_ns: u64, until_ns: u64) {
    let planes = u64::from(scenario.planes);
    let hosts = scenario.hosts.len() as u64;
    let number = rng.range(1, planes) as u8;
    let plane = Some(number);
    let anywhere = Scope::default();
    // Mild faults may last for ever: what they cost stays bounded.
    let mild_until_ns = if rng.one_in(2) { u64::MAX } else { until_ns };
    let mild_scope = match rng.below(4) {
        0 => Scope { plane, ..anywhere },
        1 => Scope {
            ev_share_ppm: Some(300_000),
            ..anywhere
        },
        _ => anywhere,
    };
    let mild = |kind| Fault {
        kind,
        scope: mild_scope,
        from_ns: 0,
        until_ns: mild_until_ns,
    };
    let hard = |kind, scope| Fault {
        kind,
        scope,
        from_ns,
        until_ns,
    };
    let bytes = scenario.format != super::Format::Values;
    let fault = match rng.below(28) {
        0 | 1 => mild(Kind::Loss {
            ppm: rng.pick(&[1_000, 5_000, 20_000, 50_000]),
        }),
        2 => hard(
            Kind::Loss {
                ppm: rng.pick(&[100_000, 300_000, 600_000]),
            },
            anywhere,
        ),
        3 => hard(
            Kind::Loss {
                ppm: rng.pick(&[50_000, 300_000, 800_000]),
            },
            Scope {
                data: Some(false),
                ..anywhere
            },
        ),
        4 => hard(
            Kind::Loss {
                ppm: rng.pick(&[100_000, 500_000]),
            },
            Scope {
                ev_share_ppm: Some(250_000),
                ..anywhere
            },
        ),
        5 => mild(Kind::Burst {
            enter_ppm: rng.pick(&[1_000, 5_000]),
            within_ns: rng.pick(&[2_000, 20_000, 200_000]),
        }),
        6 => mild(Kind::Duplicate {
            ppm: rng.pick(&[10_000, 100_000, 500_000]),
            within_ns: rng.range(1, 60_000),
        }),
        7 => mild(Kind::Duplicate {
            ppm: rng.pick(&[10_000, 50_000]),
            within_ns: rng.range(1_000_000, 8_000_000),
        }),
        8 | 9 => mild(Kind::Jitter {
            ppm: rng.pick(&[10_000, 200_000, 800_000]),
            within_ns: rng.range(500, 300_000),
        }),
        10 | 11 if bytes => mild(Kind::BitFlip {
            ppm: rng.pick(&[1_000, 10_000, 50_000]),
            bits: rng.pick(&[1, 1, 2, 3]),
        }),
        10 | 12 => hard(
            Kind::Blackhole,
            Scope {
                ev_share_ppm: Some(rng.range(50_000, 700_000) as u32),
                ..anywhere
            },
        ),
        11 if planes > 1 => Fault {
            // Some paths of one plane, always the same in a run, are dead for ever: the other planes stay.
            kind: Kind::Blackhole,
            scope: Scope {
                plane: Some((scenario.seed % planes) as u8 + 1),
                ev_share_ppm: Some(rng.range(50_000, 500_000) as u32),
                ..anywhere
            },
            from_ns,
            until_ns: u64::MAX,
        },
        13 => hard(Kind::Blackhole, Scope { plane, ..anywhere }),
        14 => {
            let host = Some(rng.below(hosts) as usize);
            let toward = rng.one_in(2);
            let scope = if toward {
                Scope {
                    plane,
                    dst: host,
                    ..anywhere
                }
            } else {
                Scope {
                    plane,
                    src: host,
                    ..anywhere
                }
            };
            hard(Kind::Blackhole, scope)
        }
        11 | 15 => mild(Kind::CeMark {
            ppm: rng.pick(&[10_000, 100_000, 500_000]),
        }),
        16 => mild(Kind::Trim {
            ppm: rng.pick(&[5_000, 50_000, 200_000]),
            last_hop: rng.one_in(3),
        }),
        17 | 18 => {
            let host = rng.below(hosts) as usize;
            let ports = if rng.one_in(6) {
                1..=scenario.planes
            } else {
                number..=number
            };
            for plane in ports {
                for (at_ns, up) in [(from_ns, false), (until_ns, true)] {
                    let own_ns = rng.pick(&[0, 0, 1_000, 100_000]);
                    let peer_ns = own_ns + rng.pick(&[5_000, 50_000, 1_000_000]);
                    scenario.happenings.push((
                        at_ns,
                        Happening::Link {
                            host,
                            plane,
                            up,
                            own_ns,
                            peer_ns,
                        },
                    ));
                }
            }
            return;
        }
        19 => {
            for _ in 0..rng.range(3, 30) {
                let connection = rng.below(scenario.connections.len() as u64) as usize;
                let side = rng.below(2) as usize;
                let forgery = rng.pick(&Forgery::ALL);
                let at_ns = rng.range(from_ns, until_ns);
                scenario.happenings.push((
                    at_ns,
                    Happening::Forge {
                        connection,
                        side,
                        forgery,
                    },
                ));
            }
            return;
        }
        20 => {
            let host = rng.below(hosts) as usize;
            let for_ns = rng.range(20_000, 3_000_000);
            scenario.happenings.push((from_ns, Happening::Stall { host, for_ns }));
            return;
        }
        _ => {
            upset::draw(rng, scenario, from_ns, until_ns);
            return;
        }
    };
    scenario.faults.push(fault);
}

/// Adds a fault that is sure to act, unless there is one: others may find nothing in their scope and time.
pub(super) fn make_sure(scenario: &mut Scenario) {
    let anywhere = Scope::default();
    let everywhere = |fault: &Fault| fault.scope == anywhere && fault.until_ns == u64::MAX;
    let often = |fault: &Fault| match fault.kind {
        Kind::Loss { ppm } | Kind::Duplicate { ppm, .. } | Kind::Jitter { ppm, .. } => ppm >= 50_000,
        _ => false,
    };
    let sure = scenario.faults.iter().any(|fault| everywhere(fault) && often(fault));
    let happens = |happening: &Happening| {
        matches!(
            happening,
            Happening::Link { .. } | Happening::Stall { .. } | Happening::Vanish { .. }
        )
    };
    if !sure && !scenario.happenings.iter().any(|(_, happening)| happens(happening)) {
        scenario.faults.push(Fault {
            kind: Kind::Jitter {
                ppm: 50_000,
                within_ns: 5_000,
            },
            scope: anywhere,
            from_ns: 0,
            until_ns: u64::MAX,
        });
    }
}

/// When the last fault that ends has ended.
pub(super) fn calm_from_ns(scenario: &Scenario) -> u64 {
    let fabric = scenario.faults.iter().map(|fault| match fault.until_ns {
        u64::MAX => fault.from_ns,
        until_ns => until_ns,
    });
    let hosts = scenario.happenings.iter().map(|(at_ns, happening)| match happening {
        Happening::Link { own_ns, peer_ns, .. } => at_ns + own_ns.max(peer_ns),
        Happening::Stall { for_ns, .. } => at_ns + for_ns,
        Happening::Upset(upset) => at_ns + upset.lasts_ns(),
        Happening::Vanish { .. }
        | Happening::Forge { .. }
        | Happening::ForgeNode { .. }
        | Happening::Control { .. }
        | Happening::GiveUp { .. } => *at_ns,
    });
    fabric.chain(hosts).max().unwrap_or(0)
}
