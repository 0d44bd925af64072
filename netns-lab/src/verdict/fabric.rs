//! Measures of what switches have counted, and of single paths.

use std::collections::BTreeMap;

use netns_lab::PortCounters;

use super::Measured;
use crate::agent::{PathChange, PathDetail};
use crate::run::Record;
use crate::scenario::{Criterion, matches};

/// What the ports of some links have counted in a stretch of time, by switch and link.
fn counted(record: &Record, criterion: &Criterion, from: f64, to: f64) -> BTreeMap<(String, String), PortCounters> {
    let links = criterion.links.as_deref().unwrap_or("*");
    let switch = criterion.switch.as_deref().unwrap_or("*");
    let at = |time: f64| {
        let after = record.switches.partition_point(|(sampled, _)| *sampled <= time);
        record
            .switches
            .get(after.saturating_sub(1))
            .map(|(_, ports)| ports.as_slice())
            .unwrap_or_default()
    };
    let before = at(from);
    let mut counted = BTreeMap::new();
    for (place, port) in at(to).iter().enumerate() {
        if !matches(links, &port.link) || !matches(switch, &port.switch) {
            continue;
        }
        let old = before.get(place).map(|port| port.counters).unwrap_or_default();
        let new = port.counters;
        let difference = PortCounters {
            packets: new.packets - old.packets,
            bytes: new.bytes - old.bytes,
            trimmed: new.trimmed - old.trimmed,
            dropped: new.dropped - old.dropped,
            mrc_sent: new.mrc_sent - old.mrc_sent,
            ..new
        };
        counted.insert((port.switch.clone(), port.link.clone()), difference);
    }
    counted
}

fn stretch(record: &Record, criterion: &Criterion) -> (f64, f64) {
    let place = criterion
        .workload
        .as_deref()
        .and_then(|name| record.scenario.place(name));
    match place {
        Some(place) => super::measure::stretch(record, criterion, place, false),
        None => (criterion.from.unwrap_or(0.0), criterion.to.unwrap_or(record.seconds)),
    }
}

fn none() -> String {
    "no port of a switch is named so, or this topology has no switches that count".to_owned()
}

/// How evenly packets are spread: the least used link's share of the mean.
pub(super) fn spread(record: &Record, criterion: &Criterion) -> Measured {
    let (from, to) = stretch(record, criterion);
    let ports = counted(record, criterion, from, to);
    let packets: Vec<(u64, &String)> = ports.iter().map(|((_, link), port)| (port.mrc_sent, link)).collect();
    let (least, link) = packets.iter().min().ok_or_else(none)?;
    let sum: u64 = packets.iter().map(|(packets, _)| packets).sum();
    let mean = sum as f64 / packets.len() as f64;
    let detail = format!(
        "{least} of a mean of {mean:.0} packets on {link}, {} links",
        packets.len()
    );
    Ok((*least as f64 / mean, detail))
}

/// How much of its speed a link carried: the least of the links named.
pub(super) fn busy(record: &Record, criterion: &Criterion) -> Measured {
    /// Preamble, frame check and gap, which count against a link's speed but are in no counter.
    const UNCOUNTED: u64 = 24;
    let (from, to) = stretch(record, criterion);
    let rate = record
        .scenario
        .topology
        .host_link_bps()
        .ok_or("the links have no rate")? as f64;
    let ports = counted(record, criterion, from, to);
    // Counters are read a few times a second: the stretch is the one between two readings.
    let read = |time: f64| {
        record
            .switches
            .iter()
            .map(|(at, _)| *at)
            .rfind(|at| *at <= time)
            .unwrap_or(0.0)
    };
    let seconds = read(to) - read(from);
    let share = |port: &PortCounters| (port.bytes + UNCOUNTED * port.packets) as f64 * 8.0 / seconds / rate;
    let least = ports
        .iter()
        .map(|((_, link), port)| (share(port), link))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .ok_or_else(none)?;
    Ok((least.0, format!("on {}", least.1)))
}

/// Packets that switches have trimmed, or dropped.
pub(super) fn total(record: &Record, criterion: &Criterion, pick: fn(&PortCounters) -> u64) -> Measured {
    let (from, to) = stretch(record, criterion);
    let ports = counted(record, criterion, from, to);
    if ports.is_empty() {
        return Err(none());
    }
    let total: u64 = ports.values().map(pick).sum();
    let packets: u64 = ports.values().map(|port| port.packets).sum();
    Ok((total as f64, format!("of {packets} packets")))
}

/// The paths of a workload's senders, as they were at its end.
fn details(record: &Record, place: usize) -> Vec<(usize, &PathDetail)> {
    let outcomes = record.workloads[place].outcomes.iter();
    outcomes
        .flat_map(|(host, outcome)| outcome.paths.iter().map(|path| (*host, path)))
        .filter(|(_, path)| path.packets > 0)
        .collect()
}

/// Whether link counters agree with what engines say they sent on each path: the worst difference, as a share.
pub(super) fn paths_taken(record: &Record, criterion: &Criterion, place: usize) -> Measured {
    let mut claimed: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (host, path) in details(record, place) {
        let flow = record.flows(place)[path.flow];
        let peer = if flow.from == host { flow.to } else { flow.from };
        let name = path
            .name
            .as_ref()
            .ok_or("the paths have no names: the routing hashes")?;
        let known = record.shape.paths.get(&(host, peer)).and_then(|paths| paths.get(name));
        let hops = known.ok_or_else(|| format!("the fabric has no path {name} from h{host} to h{peer}"))?;
        for hop in hops {
            *claimed.entry(hop.clone()).or_default() += path.packets;
        }
    }
    // Everything that this workload sent, so from before its start to after its end.
    let counted = counted(record, criterion, record.workloads[place].start - 0.5, f64::INFINITY);
    let mut worst = (0.0, String::new());
    // Probes and answers are on no path's account, but small: bytes tell what became of data.
    let frame = record.scenario.topology.full_frame().ok_or("the links have no rate")?;
    let (mut links, mut packets) = (0, 0);
    for ((switch, link), port) in &counted {
        let said = claimed.get(&(switch.clone(), link.clone())).copied().unwrap_or(0);
        // The other direction carries acknowledgements, which no path is asked about.
        if said == 0 && !claimed.keys().any(|(other, _)| other == switch) {
            continue;
        }
        if said == 0 && port.mrc_sent > 0 && is_way_back(record, switch, link) {
            continue;
        }
        links += 1;
        packets += said;
        let expected = said * frame;
        let difference = expected.abs_diff(port.bytes) as f64 / expected.max(frame) as f64;
        if difference >= worst.0 {
            worst = (
                difference,
                format!("{} at {switch} into {link}, {said} sent on its paths", port.mrc_sent),
            );
        }
    }
    if packets == 0 {
        return Err("no path has carried a packet".to_owned());
    }
    Ok((worst.0, format!("{}; {links} ports", worst.1)))
}

/// Whether a port leads to a host that only answers, or up from its T0.
fn is_way_back(record: &Record, switch: &str, link: &str) -> bool {
    let senders: Vec<String> = record
        .scenario
        .workload
        .iter()
        .enumerate()
        .flat_map(|(place, _)| record.flows(place).into_iter().map(|flow| format!("h{}-", flow.from)))
        .collect();
    let forward = record
        .shape
        .paths
        .iter()
        .filter(|((from, _), _)| senders.contains(&format!("h{from}-")))
        .any(|(_, paths)| {
            paths
                .values()
                .flatten()
                .any(|(other, hop)| other == switch && hop == link)
        });
    !forward
}

/// Most losses of one path.
pub(super) fn path_losses(record: &Record, place: usize) -> Measured {
    let worst = details(record, place).into_iter().max_by_key(|(_, path)| path.losses);
    let (host, path) = worst.ok_or("no path has carried a packet")?;
    Ok((
        f64::from(path.losses),
        format!(
            "h{host}, {} in plane {}, {} packets",
            path.label(),
            path.plane,
            path.packets
        ),
    ))
}

/// Share of a workload's losses that lie on paths of one plane.
pub(super) fn plane_blame(record: &Record, criterion: &Criterion, place: usize) -> Measured {
    let plane = criterion.plane.ok_or("no plane is named")?;
    let (mut there, mut all) = (0, 0);
    for (_, path) in details(record, place) {
        all += path.losses;
        if usize::from(path.plane) == plane {
            there += path.losses;
        }
    }
    if all == 0 {
        return Err("no path has lost a packet".to_owned());
    }
    Ok((f64::from(there) / f64::from(all), format!("{there} of {all} losses")))
}

fn left<'a>(record: &'a Record, criterion: &'a Criterion, place: usize) -> Vec<(usize, f64, &'a PathChange)> {
    let (from, to) = stretch(record, criterion);
    let mut left = Vec::new();
    for (host, samples) in record.samples.iter().enumerate() {
        for sample in samples {
            let at = record.seconds_of(sample.at_ns);
            let changes = sample
                .ends
                .iter()
                .filter(|end| end.id == place)
                .flat_map(|end| &end.changes);
            left.extend(changes.filter(|change| change.bad).map(|change| (host, at, change)));
        }
    }
    left.retain(|(_, at, change)| {
        (from..=to + 0.5).contains(at)
            && criterion.why.as_ref().is_none_or(|why| *why == change.why)
            && criterion.path.as_ref().is_none_or(|path| matches(path, &change.ev))
    });
    left
}

/// How often paths came to be taken for bad.
pub(super) fn blamed(record: &Record, criterion: &Criterion, place: usize) -> (f64, String) {
    let left = left(record, criterion, place);
    let first = left.first().map_or_else(
        || "none".to_owned(),
        |(host, at, change)| {
            format!(
                "first h{host} at {at:.2} s: {} in plane {}, {}",
                change.ev, change.plane, change.why
            )
        },
    );
    (left.len() as f64, first)
}

/// Most packets that a path had carried since something happened when it came to be taken for bad.
pub(super) fn packets_until_left(record: &Record, criterion: &Criterion, place: usize) -> Measured {
    let left = left(record, criterion, place);
    let (host, at, change) = left.first().ok_or("it never left")?;
    let (from, _) = stretch(record, criterion);
    // What it had carried by then is not about the fault.
    let before = record.samples[*host]
        .iter()
        .take_while(|sample| record.seconds_of(sample.at_ns) <= from)
        .flat_map(|sample| sample.ends.iter().filter(|end| end.id == place))
        .flat_map(|end| &end.named)
        .filter(|(ev, _)| *ev == change.ev)
        .map(|(_, packets)| *packets)
        .last()
        .unwrap_or(0);
    let packets = change.packets.saturating_sub(before);
    Ok((
        packets as f64,
        format!("{} left at {at:.2} s ({})", change.ev, change.why),
    ))
}
