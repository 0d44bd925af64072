//! What a fault does, and to what: names become ports and directions before anything changes.

use std::collections::BTreeMap;

use super::{Fault, Loss};
use crate::LabError;
use crate::plan::{End, Link, Plan, Role};
use crate::switch::{
    Direction, FAULT_ALL, FAULT_CUT, FAULT_EV, FAULT_FLIP, FAULT_LOSS, FAULT_MRC_ONLY, FAULT_NTH, PortFault,
};

/// What a fault does to a lab, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    /// Ends that are down, each with its far end.
    pub(crate) down: Vec<(End, End)>,
    /// Links that come and go: as `down`, and the times.
    pub(crate) flapping: Vec<(End, End)>,
    /// What happens at ports of switches.
    pub(crate) at_ports: Vec<(End, Direction, PortFault)>,
    /// Ports that are slower, and how fast they are, percent.
    pub(crate) slow: Vec<(End, u32)>,
    /// Ports that take in late, and by how many microseconds.
    pub(crate) late: Vec<(End, u32)>,
}

impl Fault {
    /// Refuses what is not in a lab of that plan, or makes no sense.
    pub fn check(&self, plan: &Plan) -> Result<(), LabError> {
        self.effect(plan).map(drop)
    }

    /// Whether it is at a link or node of that name.
    pub fn is_at(&self, name: &str) -> bool {
        let place = match self {
            Self::LinkDown(place) | Self::Blackhole(place) | Self::Dead(place) => place,
            Self::LinkFlap(flap) => &flap.link,
            Self::Loss(loss) => &loss.link,
            Self::BitErrors(errors) => &errors.link,
            Self::OneWay(one) => &one.link,
            Self::SlowReceiver(slow) => &slow.host,
            Self::HostDelay(delay) => &delay.host,
        };
        matches(place, name)
    }

    /// What it does; an error for what is not in the lab or makes no sense.
    pub(crate) fn effect(&self, plan: &Plan) -> Result<Effect, LabError> {
        let mut effect = Effect::default();
        match self {
            Self::LinkDown(link) => effect.down = cables(&links(plan, link)?),
            Self::LinkFlap(flap) => {
                if flap.down_ms == 0 || flap.up_ms == 0 {
                    return Err(wrong(self, "down_ms and up_ms are at least 1"));
                }
                effect.flapping = cables(&links(plan, &flap.link)?);
            }
            Self::Blackhole(switch) => {
                let fault = PortFault {
                    flags: FAULT_ALL | FAULT_MRC_ONLY,
                    ..PortFault::default()
                };
                let ports = switch_ends(plan, switch)?.into_iter();
                effect.at_ports = ports.map(|(end, _)| (end, Direction::Inward, fault)).collect();
            }
            Self::Dead(switch) => effect.down = switch_ends(plan, switch)?,
            Self::Loss(loss) => {
                let fault = self.loss(loss)?;
                effect.at_ports = directions(plan, &loss.link, loss.from.as_deref(), fault)?;
            }
            Self::BitErrors(errors) => {
                let fault = PortFault {
                    flags: FAULT_FLIP,
                    flip: self.chance(errors.percent)?,
                    ..PortFault::default()
                };
                effect.at_ports = directions(plan, &errors.link, errors.from.as_deref(), fault)?;
            }
            Self::OneWay(one) => {
                let fault = PortFault {
                    flags: FAULT_CUT,
                    ..PortFault::default()
                };
                effect.at_ports = directions(plan, &one.link, Some(&one.from), fault)?;
            }
            Self::SlowReceiver(slow) => {
                if !(1..=100).contains(&slow.percent) {
                    return Err(wrong(self, "percent is 1 to 100"));
                }
                let ports = host_ports(plan, &slow.host)?.into_iter();
                effect.slow = ports.map(|port| (port, slow.percent)).collect();
            }
            Self::HostDelay(delay) => {
                if !(1..=1_000_000).contains(&delay.us) {
                    return Err(wrong(self, "us is 1 to 1000000"));
                }
                let ports = host_ports(plan, &delay.host)?.into_iter();
                effect.late = ports.map(|port| (port, delay.us)).collect();
            }
        }
        if !(effect.at_ports.is_empty() && effect.slow.is_empty() && effect.late.is_empty()) {
            needs_fabric(self, plan)?;
        }
        Ok(effect)
    }

    fn loss(&self, loss: &Loss) -> Result<PortFault, LabError> {
        let mut fault = PortFault::default();
        match (loss.percent, loss.every) {
            (Some(percent), None) => {
                fault.flags = FAULT_LOSS;
                fault.loss = self.chance(percent)?;
            }
            (None, Some(every)) if every > 0 => {
                fault.flags = FAULT_NTH;
                fault.nth = every;
            }
            _ => return Err(wrong(self, "give either percent, or every (at least 1)")),
        }
        if loss.mrc_only {
            fault.flags |= FAULT_MRC_ONLY;
        }
        if let Some(ev) = loss.ev {
            fault.flags |= FAULT_EV | FAULT_MRC_ONLY;
            (fault.ev, fault.ev_mask) = (ev, u32::MAX);
        }
        Ok(fault)
    }

    fn chance(&self, percent: f64) -> Result<u32, LabError> {
        if percent > 0.0 && percent <= 100.0 {
            Ok((percent / 100.0 * f64::from(u32::MAX)) as u32)
        } else {
            Err(wrong(self, "percent is more than 0 and at most 100"))
        }
    }
}

fn wrong(fault: &Fault, why: &str) -> LabError {
    LabError::Fault {
        fault: fault.to_string(),
        why: why.to_owned(),
    }
}

fn needs_fabric(fault: &Fault, plan: &Plan) -> Result<(), LabError> {
    if plan.topology.fabric.is_some() {
        return Ok(());
    }
    Err(wrong(
        fault,
        "only the switches of a 'fabric' can do this; its links can go down",
    ))
}

/// The links of that name or pattern.
fn links(plan: &Plan, pattern: &str) -> Result<Vec<Link>, LabError> {
    if !pattern.contains('*') {
        return Ok(vec![plan.link(pattern)?]);
    }
    let found: Vec<Link> = plan
        .fabric_links()
        .filter(|l| matches(pattern, &plan.link_name(l)))
        .copied()
        .collect();
    if found.is_empty() {
        // Says what there is.
        plan.link(pattern)?;
    }
    Ok(found)
}

/// Whether a text is that of a pattern in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => {
            let Some(tail) = text.strip_prefix(head) else {
                return false;
            };
            (0..=tail.len()).any(|at| tail.get(at..).is_some_and(|tail| matches(rest, tail)))
        }
    }
}

/// The end that is set down, farther from the hosts, and the one that loses its carrier.
fn cables(links: &[Link]) -> Vec<(End, End)> {
    links.iter().map(|l| (l.ends[1], l.ends[0])).collect()
}

/// The switches' ports that a host is at.
fn host_ports(plan: &Plan, host: &str) -> Result<Vec<End>, LabError> {
    let node = plan.node(host)?;
    if plan.nodes[node].role != Role::Host {
        return Err(LabError::Fault {
            fault: format!("fault at '{host}'"),
            why: "it is no host".to_owned(),
        });
    }
    let links = plan.fabric_links().filter(|l| l.ends[0].node == node);
    Ok(links.map(|l| l.ends[1]).collect())
}

fn switch_ends(plan: &Plan, switch: &str) -> Result<Vec<(End, End)>, LabError> {
    let node = plan.node(switch)?;
    if plan.nodes[node].role != Role::Switch {
        return Err(LabError::Fault {
            fault: format!("fault at '{switch}'"),
            why: "it is no switch".to_owned(),
        });
    }
    let ends = plan
        .fabric_links()
        .flat_map(|l| [(l.ends[0], l.ends[1]), (l.ends[1], l.ends[0])]);
    Ok(ends.filter(|(near, _)| near.node == node).collect())
}

/// Where switches see what a node, or both, send into links: on its way out if that node is a switch, else on its way in at the other.
fn directions(
    plan: &Plan,
    pattern: &str,
    from: Option<&str>,
    fault: PortFault,
) -> Result<Vec<(End, Direction, PortFault)>, LabError> {
    let from = from.map(|name| plan.node(name)).transpose()?;
    let mut places = Vec::new();
    for link in links(plan, pattern)? {
        let [a, b] = link.ends;
        for (sender, receiver) in [(a, b), (b, a)] {
            if from.is_some_and(|node| node != sender.node) {
                continue;
            }
            let out = plan.nodes[sender.node].role == Role::Switch;
            places.push(if out {
                (sender, Direction::Outward, fault)
            } else {
                (receiver, Direction::Inward, fault)
            });
        }
    }
    if places.is_empty() {
        return Err(LabError::Fault {
            fault: format!("fault on '{pattern}'"),
            why: "'from' is at neither end of the link".to_owned(),
        });
    }
    Ok(places)
}

/// Faults by node, interface and direction.
pub(crate) type AtPorts = BTreeMap<(usize, usize, u32), (End, Direction, PortFault)>;

/// All faults at one side of a port as one; an error if two of them cannot be told apart there.
pub(crate) fn merge(effects: &[(Fault, Effect)], seed: u32) -> Result<AtPorts, LabError> {
    let mut merged = AtPorts::new();
    for (fault, effect) in effects {
        for (end, direction, new) in &effect.at_ports {
            let key = (end.node, end.interface, *direction as u32);
            let slot = (key.0 * 31 + key.1) as u32 * 2 + key.2;
            let whole = |flags: u32| flags & (FAULT_CUT | FAULT_ALL) != 0;
            match merged.get_mut(&key) {
                None => {
                    let random = seed.wrapping_add(slot).wrapping_mul(0x9e37_79b1) | 1;
                    merged.insert(key, (*end, *direction, PortFault { random, ..*new }));
                }
                // What loses everything of a kind hides what would lose some of it.
                Some((_, _, old)) if whole(new.flags) => {
                    old.flags = if old.flags & FAULT_CUT != 0 {
                        old.flags
                    } else {
                        new.flags
                    };
                }
                Some((_, _, old)) if whole(old.flags) => {}
                Some(_) => {
                    return Err(wrong(
                        fault,
                        "packets of this direction are lost or damaged already; heal that first",
                    ));
                }
            }
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{FabricSpec, Topology};

    fn plan() -> Plan {
        Plan::new(&Topology::fabric(FabricSpec {
            planes: 2,
            ..FabricSpec::default()
        }))
        .unwrap()
    }

    #[derive(Deserialize)]
    struct Moment {
        fault: Vec<Fault>,
    }

    fn read(text: &str) -> Vec<Fault> {
        toml::from_str::<Moment>(text).unwrap().fault
    }

    #[test]
    fn every_fault_is_written_in_one_line_of_toml() {
        let faults = read(
            r#"fault = [
                { link-down = "h0-t0.0.p1" },
                { link-flap = { link = "t0.0.p1-t1.1.p1", down_ms = 5, up_ms = 9 } },
                { blackhole = "t1.0.p2" },
                { dead = "t0.1.p2" },
                { loss = { link = "h*", percent = 0.1 } },
                { loss = { link = "t0.0.p1-t1.0.p1", from = "t0.0.p1", every = 50, ev = 0x11011000 } },
                { bit-errors = { link = "*p2", percent = 1.0, from = "h1" } },
                { one-way = { link = "h0-t0.0.p2", from = "h0" } },
                { slow-receiver = { host = "h1", percent = 10 } },
                { host-delay = { host = "h1", us = 500 } },
            ]"#,
        );
        let told: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            told,
            [
                "link h0-t0.0.p1 down",
                "link t0.0.p1-t1.1.p1 down 5 ms, up 9 ms",
                "t1.0.p2 blackholes",
                "t0.1.p2 dead",
                "0.1 % loss on h*",
                "loss of every 50. packet on t0.0.p1-t1.0.p1 from t0.0.p1, EV 0x11011000",
                "1 % bit errors on *p2 from h1",
                "nothing from h0 on h0-t0.0.p2",
                "h1 receives at 10 %",
                "h1 sends 500 us late",
            ]
        );
        for fault in faults {
            fault.effect(&plan()).unwrap();
        }
    }

    #[test]
    fn a_direction_is_where_a_switch_sees_it() {
        let plan = plan();
        let at = |text: &str| {
            let effect = read(text)[0].effect(&plan).unwrap();
            let places = effect.at_ports.iter().map(|(end, d, _)| (plan.end_name(*end), *d));
            places.collect::<Vec<_>>()
        };
        assert_eq!(
            at(r#"fault = [{ one-way = { link = "h0-t0.0.p1", from = "h0" } }]"#),
            [("t0.0.p1:h0".to_owned(), Direction::Inward)]
        );
        assert_eq!(
            at(r#"fault = [{ loss = { link = "t0.0.p1-t1.1.p1", every = 2 } }]"#),
            [
                ("t0.0.p1:t1.1".to_owned(), Direction::Outward),
                ("t1.1.p1:t0.0".to_owned(), Direction::Outward)
            ]
        );
        assert_eq!(at(r#"fault = [{ loss = { link = "h*p2", every = 2 } }]"#).len(), 4);
        assert_eq!(at(r#"fault = [{ blackhole = "t1.0.p1" }]"#).len(), 2);
    }

    #[test]
    fn a_fault_that_makes_no_sense_says_why_in_one_line() {
        let leaf = Plan::new(&Topology::leaf(2, 1)).unwrap();
        let fabric = plan();
        let cases = [
            (
                &fabric,
                r#"{ link-down = "h0-t0.9.p1" }"#,
                "no link 'h0-t0.9.p1' in this lab",
            ),
            (&fabric, r#"{ link-down = "x*" }"#, "no link 'x*' in this lab"),
            (&fabric, r#"{ dead = "h0" }"#, "fault at 'h0': it is no switch"),
            (
                &fabric,
                r#"{ host-delay = { host = "t0.0.p1", us = 5 } }"#,
                "fault at 't0.0.p1': it is no host",
            ),
            (
                &fabric,
                r#"{ loss = { link = "h*" } }"#,
                "loss on h*: give either percent",
            ),
            (
                &fabric,
                r#"{ loss = { link = "h*", percent = 101.0 } }"#,
                "101 % loss on h*: percent is more than 0",
            ),
            (
                &fabric,
                r#"{ one-way = { link = "h0-t0.0.p1", from = "h1" } }"#,
                "fault on 'h0-t0.0.p1': 'from' is at neither end",
            ),
            (
                &leaf,
                r#"{ loss = { link = "h*", every = 2 } }"#,
                "loss of every 2. packet on h*: only the switches of a 'fabric'",
            ),
        ];
        for (plan, fault, start) in cases {
            let message = read(&format!("fault = [{fault}]"))[0]
                .effect(plan)
                .unwrap_err()
                .to_string();
            assert!(message.starts_with(start), "{message}");
        }
    }

    #[test]
    fn two_losses_of_one_direction_are_refused_and_a_blackhole_hides_one() {
        let plan = plan();
        let effects = |text: &str| -> Vec<(Fault, Effect)> {
            read(text)
                .into_iter()
                .map(|f| (f.clone(), f.effect(&plan).unwrap()))
                .collect()
        };
        let two = effects(
            r#"fault = [{ loss = { link = "h*", every = 2 } }, { loss = { link = "h0-t0.0.p1", every = 3 } }]"#,
        );
        assert!(merge(&two, 1).unwrap_err().to_string().contains("heal that first"));
        let hidden = effects(
            r#"fault = [{ loss = { link = "h0-t0.0.p1", from = "h0", every = 2 } }, { blackhole = "t0.0.p1" }]"#,
        );
        let merged = merge(&hidden, 1).unwrap();
        assert!(
            merged
                .values()
                .all(|(_, _, f)| f.flags == FAULT_ALL | FAULT_MRC_ONLY && f.random != 0)
        );
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in [
            ("*", "a"),
            ("h*", "h0-t"),
            ("*p1", "h0-t0.0.p1"),
            ("h*.p*", "h0-t0.0.p1"),
            ("a", "a"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("h*", "t0"), ("*p1", "h0.p12"), ("a", "ab"), ("a*b", "ac")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
