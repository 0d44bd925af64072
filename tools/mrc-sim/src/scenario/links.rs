//! Draws what hosts have to tell each other about their ports, and who hinders or imitates them (protocol.md §9.3).

use crate::fabric::fault::{Fault, Kind, Scope};
use crate::rng::Rng;
use crate::scenario::{Happening, Scenario};

/// A packet between nodes that nobody sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeForgery {
    /// A port status update in the name of the peer, with this mask: it counts, as long as nothing else is heard.
    Update(u32),
    /// An update from an address that is no peer's.
    Stranger,
    /// Another partition.
    WrongPKey,
    /// An answer to nothing.
    Answer,
    /// So many EV probes at once.
    Probes(u32),
}

/// Adds some to a scenario whose traffic is known to last about `span_ns`. It must have its other faults already.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    if rng.one_in(6) {
        flaps(rng, scenario, span_ns);
    }
    let dead_for_ever = |fault: &Fault| fault.kind == Kind::Blackhole && fault.until_ns == u64::MAX;
    // Where paths are dead for ever, the others are needed.
    if scenario.faults.iter().any(dead_for_ever) {
        return;
    }
    // A lie that a port is up that never will be is believed for ever.
    match rng.below(8) {
        0 if scenario.planes > 1 => for_good(rng, scenario, span_ns),
        1 => forgeries(rng, scenario, span_ns),
        _ => {}
    }
}

/// A port whose link is unsteady.
fn flaps(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    let host = rng.below(scenario.hosts.len() as u64) as usize;
    let plane = rng.range(1, scenario.planes.into()) as u8;
    let mut at_ns = rng.below(span_ns);
    for _ in 0..rng.range(1, 5) {
        for up in [false, true] {
            let own_ns = rng.pick(&[0, 0, 1_000, 100_000]);
            let peer_ns = own_ns;
            let link = Happening::Link {
                host,
                plane,
                up,
                own_ns,
                peer_ns,
            };
            scenario.happenings.push((at_ns, link));
            at_ns += rng.pick(&[20_000, 150_000, 700_000, 2_500_000]);
        }
    }
}

/// A port that goes down and stays down: both ends must agree on that too. Perhaps nothing that its host says is heard for a
/// while.
fn for_good(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    let host = rng.below(scenario.hosts.len() as u64) as usize;
    let plane = rng.range(1, scenario.planes.into()) as u8;
    let at_ns = rng.below(span_ns);
    let own_ns = rng.pick(&[0, 1_000, 100_000]);
    let link = Happening::Link {
        host,
        plane,
        up: false,
        own_ns,
        peer_ns: own_ns,
    };
    // Nothing brings it up again.
    let same = |happening: &Happening| matches!(happening, Happening::Link { host: h, plane: p, .. } if (*h, *p) == (host, plane));
    scenario.happenings.retain(|(_, happening)| !same(happening));
    scenario.happenings.push((at_ns, link));
    if rng.one_in(3) {
        scenario.faults.push(Fault {
            kind: Kind::Blackhole,
            scope: Scope {
                src: Some(host),
                data: Some(false),
                ..Scope::default()
            },
            from_ns: at_ns,
            until_ns: at_ns + own_ns + rng.pick(&[500_000, 5_000_000, 25_000_000]),
        });
    }
}

fn forgeries(rng: &mut Rng, scenario: &mut Scenario, span_ns: u64) {
    let planes = u64::from(scenario.planes);
    for _ in 0..rng.range(1, 4) {
        let plan = &scenario.connections[rng.below(scenario.connections.len() as u64) as usize];
        let [mut from, mut to] = plan.hosts;
        if rng.one_in(2) {
            std::mem::swap(&mut from, &mut to);
        }
        // Masks have a bit for each port, counted from 1.
        let some = (rng.below(1 << planes) << 1) as u32;
        let forgery = match rng.below(8) {
            0..=2 => NodeForgery::Update(some),
            3 => NodeForgery::Update(0),
            4 => NodeForgery::Stranger,
            5 => NodeForgery::WrongPKey,
            6 => NodeForgery::Answer,
            _ => NodeForgery::Probes(rng.pick(&[1, 80])),
        };
        let at_ns = rng.below(span_ns);
        scenario
            .happenings
            .push((at_ns, Happening::ForgeNode { from, to, forgery }));
    }
}
