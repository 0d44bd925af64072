//! The measures of criteria.

use super::{Measured, fabric};
use crate::run::{Record, Way};
use crate::scenario::{Criterion, Flow, Measure, Workload, human_bytes};

/// Data on a plane below this share of its former rate is none.
const SILENT: f64 = 0.02;

/// Measures what a criterion is about.
pub(super) fn measure(record: &Record, criterion: &Criterion) -> Measured {
    match criterion.measure {
        Measure::PlaneLeft => return plane_left(record, criterion),
        Measure::LinkSpread => return fabric::spread(record, criterion),
        Measure::LinkBusy => return fabric::busy(record, criterion),
        Measure::Trimmed => return fabric::total(record, criterion, |port| port.trimmed),
        Measure::Dropped => return fabric::total(record, criterion, |port| port.dropped),
        _ if criterion.workload.is_none() => return Err("no workload is named".to_owned()),
        _ => {}
    }
    let place = place_of(record, criterion.workload.as_deref())?;
    match criterion.measure {
        Measure::Goodput => goodput(record, criterion, place),
        Measure::Interruption => Ok(interruption(record, criterion, place)),
        Measure::Recovery => recovery(record, criterion, place),
        Measure::Jain => Ok(jain(record, criterion, place)),
        Measure::Time => time(record, criterion, place),
        Measure::Speed => speed(record, criterion, place),
        Measure::Errors => Ok(errors(record, place)),
        Measure::Retransmissions => retransmissions(record, place),
        Measure::BadPaths => bad_paths(record, place),
        Measure::Blamed => Ok(fabric::blamed(record, criterion, place)),
        Measure::PacketsUntilLeft => fabric::packets_until_left(record, criterion, place),
        Measure::PathLosses => fabric::path_losses(record, place),
        Measure::PlaneBlame => fabric::plane_blame(record, criterion, place),
        Measure::PathsTaken => fabric::paths_taken(record, criterion, place),
        Measure::ExtraTime => extra_time(record, criterion, place),
        Measure::PlaneLeft | Measure::LinkSpread | Measure::LinkBusy | Measure::Trimmed | Measure::Dropped => {
            Err("it is of no workload".to_owned())
        }
    }
}

fn place_of(record: &Record, name: Option<&str>) -> Result<usize, String> {
    let name = name.unwrap_or_default();
    record
        .scenario
        .place(name)
        .ok_or_else(|| format!("there is no workload {name}"))
}

fn workload(record: &Record, place: usize) -> &Workload {
    &record.scenario.workload[place]
}

/// The stretch that a criterion is about: as given, or the workload's whole life.
///
/// What a stream had outstanding when its time was over belongs to no rate.
pub(super) fn stretch(record: &Record, criterion: &Criterion, place: usize, of: bool) -> (f64, f64) {
    let ran = &record.workloads[place];
    let over = workload(record, place)
        .seconds
        .map_or(ran.end, |seconds| ran.end.min(ran.start + seconds));
    let (from, to) = if of {
        (criterion.of_from, criterion.of_to)
    } else {
        (criterion.from, criterion.to)
    };
    let settled = ran.start + criterion.settle.unwrap_or(0.0);
    (from.unwrap_or(settled), to.unwrap_or(over))
}

/// Payload per second that the links of the hosts can carry one way.
fn capacity_bps(record: &Record, place: usize, way: Way) -> Result<f64, String> {
    let link = record
        .scenario
        .topology
        .payload_bps()
        .ok_or_else(|| "the links have no rate".to_owned())?;
    let flows = record.flows(place);
    let hosts = |pick: &dyn Fn(&Flow) -> usize| {
        let hosts: std::collections::BTreeSet<usize> = flows.iter().map(pick).collect();
        hosts.len() as f64
    };
    let (senders, receivers) = match way {
        Way::Forward => (hosts(&|flow| flow.from), hosts(&|flow| flow.to)),
        Way::Back => (hosts(&|flow| flow.to), hosts(&|flow| flow.from)),
    };
    Ok(senders.min(receivers) * record.planes as f64 * link)
}

/// What a criterion's figure is set in relation to, one way.
fn base_bps(record: &Record, criterion: &Criterion, place: usize, way: Way) -> Result<Option<f64>, String> {
    let share = criterion.share.unwrap_or(1.0);
    Ok(match criterion.of.as_deref() {
        None => None,
        Some("capacity") => Some(share * capacity_bps(record, place, way)?),
        Some(name) => {
            let (record, name) = referred(record, criterion, name)?;
            let other = place_of(record, Some(name))?;
            let (from, to) = stretch(record, criterion, other, true);
            Some(share * record.goodput_bps(other, way, from, to))
        }
    })
}

/// The record and the workload that `of` means: the same workload in the reference, or another in the same run.
fn referred<'a>(record: &'a Record, criterion: &'a Criterion, name: &'a str) -> Result<(&'a Record, &'a str), String> {
    if name != "reference" {
        return Ok((record, name));
    }
    let reference = record.reference.as_deref().ok_or("there is no reference run")?;
    Ok((reference, criterion.workload.as_deref().unwrap_or_default()))
}

fn goodput(record: &Record, criterion: &Criterion, place: usize) -> Measured {
    let (from, to) = stretch(record, criterion, place, false);
    if to <= from {
        return Err(format!("there is no time between {from} and {to:.2} s"));
    }
    let mut worst: Option<(f64, String)> = None;
    for &way in record.ways(place) {
        let base = base_bps(record, criterion, place, way)?;
        for (start, end) in windows(from, to, criterion.window) {
            let bps = record.goodput_bps(place, way, start, end);
            let figure = base.map_or(bps / 1e6, |base| if base > 0.0 { bps / base } else { f64::NAN });
            if worst.as_ref().is_none_or(|(least, _)| figure < *least) {
                let (way, mbps) = (way_name(record, place, way), bps / 1e6);
                worst = Some((figure, format!("{mbps:.1} Mbit/s from {start:.2} to {end:.2} s{way}")));
            }
        }
    }
    worst.ok_or_else(|| "there is no window".to_owned())
}

fn way_name(record: &Record, place: usize, way: Way) -> String {
    match (record.ways(place).len(), record.flows(place).first(), way) {
        (1, _, _) | (_, None, _) => String::new(),
        (_, Some(flow), Way::Forward) => format!(", h{} to h{}", flow.from, flow.to),
        (_, Some(flow), Way::Back) => format!(", h{} to h{}", flow.to, flow.from),
    }
}

/// Overlapping windows that cover a stretch; one that is the stretch, without a length.
fn windows(from: f64, to: f64, window: Option<f64>) -> Vec<(f64, f64)> {
    let Some(window) = window.filter(|window| *window < to - from) else {
        return vec![(from, to)];
    };
    let step = window / 4.0;
    let count = ((to - from - window) / step).floor() as usize;
    (0..=count)
        .map(|n| from + n as f64 * step)
        .map(|start| (start, start + window))
        .collect()
}

/// The longest time in which a receiver's account of payload did not grow.
fn interruption(record: &Record, criterion: &Criterion, place: usize) -> (f64, String) {
    let (from, to) = stretch(record, criterion, place, false);
    let mut worst = (0.0, "at no time".to_owned());
    let arrivals = record.arrivals(place);
    for &way in record.ways(place) {
        for (number, flow) in record.flows(place).iter().enumerate() {
            let receiver = if way == Way::Forward { flow.to } else { flow.from };
            let (mut since, mut before) = (from, None);
            for at in record
                .moments(receiver)
                .into_iter()
                .filter(|at| (from..=to).contains(at))
            {
                let now = arrivals.of(number, way, at);
                if before.is_none_or(|before| now > before) {
                    since = at;
                }
                before = Some(now);
                if at - since > worst.0 {
                    let way = way_name(record, place, way);
                    worst = (at - since, format!("from {since:.2} to {at:.2} s{way}"));
                }
            }
        }
    }
    worst
}

fn recovery(record: &Record, criterion: &Criterion, place: usize) -> Measured {
    let (from, to) = stretch(record, criterion, place, false);
    let window = criterion.window.unwrap_or(0.2);
    let reaches = criterion.reaches.unwrap_or(1.0);
    let mut worst = (0.0, String::new());
    for &way in record.ways(place) {
        let base = base_bps(record, criterion, place, way)?.ok_or("there is nothing to compare with")?;
        let reached = windows(from, to, Some(window))
            .into_iter()
            .find(|(start, end)| record.goodput_bps(place, way, *start, *end) >= reaches * base);
        let name = way_name(record, place, way);
        let Some((start, _)) = reached else {
            return Err(format!("never within {:.1} s{name}", to - from));
        };
        if start - from >= worst.0 {
            worst = (start - from, format!("reached at {start:.2} s{name}"));
        }
    }
    Ok(worst)
}

fn jain(record: &Record, criterion: &Criterion, place: usize) -> (f64, String) {
    let (from, to) = stretch(record, criterion, place, false);
    let flows = record.flows(place).len();
    let arrivals = record.arrivals(place);
    let one = |flow| arrivals.of(flow, Way::Forward, to) - arrivals.of(flow, Way::Forward, from);
    let rates: Vec<f64> = (0..flows).map(one).collect();
    let (sum, squares) = (
        rates.iter().sum::<f64>(),
        rates.iter().map(|rate| rate * rate).sum::<f64>(),
    );
    let mbps = |bytes: f64| bytes * 8.0 / 1e6 / (to - from);
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let index = if squares > 0.0 {
        sum * sum / (flows as f64 * squares)
    } else {
        f64::NAN
    };
    let detail = format!("{flows} connections, {:.1} to {:.1} Mbit/s", mbps(least), mbps(most));
    (index, detail)
}

/// Message times in ms of a size, or of all. A collective's iteration takes as long as at its slowest rank.
pub(crate) fn times_ms(record: &Record, place: usize, size: Option<u64>) -> Vec<f64> {
    let outcomes = || record.workloads[place].outcomes.values();
    let matches = |times: &&crate::agent::SizeTimes| size.is_none_or(|size| times.size == size);
    let ns: Vec<u64> = if workload(record, place).kind.is_collective() {
        let by_host: Vec<Vec<u64>> = outcomes()
            .map(|outcome| {
                let times = outcome.times.iter().filter(matches);
                times.flat_map(|times| times.times_ns.iter().copied()).collect()
            })
            .collect();
        let count = by_host.iter().map(Vec::len).min().unwrap_or(0);
        let slowest = |n: usize| by_host.iter().map(|times| times[n]).max().unwrap_or(0);
        (0..count).map(slowest).collect()
    } else {
        let times = outcomes().flat_map(|outcome| outcome.times.iter().filter(matches));
        times.flat_map(|times| times.times_ns.iter().copied()).collect()
    };
    ns.into_iter().map(|ns| ns as f64 / 1e6).collect()
}

/// A percentile by the nearest rank.
pub(crate) fn percentile(times: &[f64], percent: f64) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Sizes that a criterion is about.
fn sizes(record: &Record, criterion: &Criterion, place: usize) -> Vec<u64> {
    criterion
        .size
        .map_or_else(|| workload(record, place).all_sizes(), |size| vec![size.0])
}

fn time(record: &Record, criterion: &Criterion, place: usize) -> Measured {
    let percent = criterion.percentile.unwrap_or(50.0);
    let of = |record: &Record, place| {
        let times = times_ms(record, place, criterion.size.map(|size| size.0));
        let figure = percentile(&times, percent).ok_or("there is no message")?;
        Ok::<_, String>((figure, times.len()))
    };
    let (figure, count) = of(record, place)?;
    let detail = format!("p{percent} of {count} is {figure:.3} ms");
    let Some(other) = criterion.of.as_deref() else {
        return Ok((figure, detail));
    };
    let (base_record, base_name) = referred(record, criterion, other)?;
    let (base, _) = of(base_record, place_of(base_record, Some(base_name))?)?;
    Ok((figure / base, format!("{detail}, {other}'s is {base:.3} ms")))
}

/// How much longer a workload takes than another, in relation to how much longer two others differ.
fn extra_time(record: &Record, criterion: &Criterion, place: usize) -> Measured {
    let percent = criterion.percentile.unwrap_or(50.0);
    let time = |place| percentile(&times_ms(record, place, None), percent).ok_or("there is no message");
    let named = |name: &Option<String>| time(place_of(record, name.as_deref())?).map_err(str::to_owned);
    let (far, near) = (time(place)?, named(&criterion.minus)?);
    let (base_far, base_near) = (named(&criterion.of)?, named(&criterion.of_minus)?);
    let detail = format!(
        "{:.4} - {:.4} = {:.4} ms; base {:.4} - {:.4} = {:.4} ms",
        far,
        near,
        far - near,
        base_far,
        base_near,
        base_far - base_near
    );
    Ok(((far - near) / (base_far - base_near), detail))
}

fn speed(record: &Record, criterion: &Criterion, place: usize) -> Measured {
    let name = criterion.of.as_deref().unwrap_or_default();
    let other = place_of(record, Some(name))?;
    let mut worst: Option<(f64, String)> = None;
    for size in sizes(record, criterion, place) {
        let mean = |place| {
            let times = times_ms(record, place, Some(size));
            if times.is_empty() {
                return Err(format!("no message of {}", human_bytes(size)));
            }
            Ok(times.iter().sum::<f64>() / times.len() as f64)
        };
        let (own, base) = (mean(place)?, mean(other)?);
        let (factor, human) = (base / own, human_bytes(size));
        if worst.as_ref().is_none_or(|(least, _)| factor < *least) {
            worst = Some((factor, format!("{human}: {own:.2} ms, {name}: {base:.2} ms")));
        }
    }
    worst.ok_or_else(|| "there is no size".to_owned())
}

/// Errors of a workload, and the first in words.
pub(super) fn errors(record: &Record, place: usize) -> (f64, String) {
    let ran = &record.workloads[place];
    let mut errors: u64 = ran.outcomes.values().map(|outcome| outcome.errors).sum();
    // Ranks that were stopped because another had failed have nothing to say of it.
    let mut problems: Vec<(bool, String)> = ran
        .outcomes
        .iter()
        .filter_map(|(host, outcome)| Some((outcome.stopped, format!("h{host}: {}", outcome.problem.as_ref()?))))
        .collect();
    problems.sort();
    let problem = problems.into_iter().next().map(|(_, problem)| problem);
    let difference = ran
        .compared
        .iter()
        .find_map(|(host, compared)| Some(format!("h{host}: {}", compared.difference.as_ref()?)));
    errors += u64::from(difference.is_some());
    let messages: u64 = ran.outcomes.values().map(|outcome| outcome.messages).sum();
    let bytes: u64 = ran.outcomes.values().map(|outcome| outcome.compared_bytes).sum();
    let bytes = bytes + ran.compared.values().map(|compared| compared.bytes).sum::<u64>();
    let unit = if workload(record, place).kind.is_collective() {
        "iterations"
    } else {
        "messages"
    };
    let fine = || format!("{messages} {unit}, {:.1} MB compared", bytes as f64 / 1e6);
    (errors as f64, problem.or(difference).unwrap_or_else(fine))
}

fn retransmissions(record: &Record, place: usize) -> Measured {
    let (mut sent, mut again) = (0, 0);
    for samples in &record.samples {
        let mut last = std::collections::BTreeMap::new();
        for end in samples
            .iter()
            .flat_map(|sample| &sample.ends)
            .filter(|end| end.id == place)
        {
            last.insert(end.flow, (end.packets_sent, end.packets_again));
        }
        sent += last.values().map(|(sent, _)| sent).sum::<u64>();
        again += last.values().map(|(_, again)| again).sum::<u64>();
    }
    if sent == 0 {
        return Err("no packet was sent".to_owned());
    }
    Ok((again as f64 / sent as f64, format!("{again} of {sent} packets")))
}

fn bad_paths(record: &Record, place: usize) -> Measured {
    let (mut bad, mut all) = (0, 0);
    for samples in &record.samples {
        let last = samples
            .iter()
            .rev()
            .find(|sample| sample.ends.iter().any(|end| end.id == place));
        for end in last
            .iter()
            .flat_map(|sample| &sample.ends)
            .filter(|end| end.id == place)
        {
            for paths in &end.paths {
                bad += paths.bad;
                all += paths.active + paths.bad + paths.denied + paths.backup;
            }
        }
    }
    if all == 0 {
        return Err("there are no paths".to_owned());
    }
    Ok((f64::from(bad) / f64::from(all), format!("{bad} of {all}")))
}

/// When a host sent its last data on a plane after something happened.
fn plane_left(record: &Record, criterion: &Criterion) -> Measured {
    let host = criterion
        .host
        .as_deref()
        .and_then(|host| host.strip_prefix('h')?.parse::<usize>().ok());
    let (Some(host), Some(plane), Some(from)) = (host, criterion.plane, criterion.from) else {
        return Err("host, plane or from is missing".to_owned());
    };
    let to = criterion.to.unwrap_or(record.seconds);
    let port = |sample: &crate::agent::Sample| sample.ports.get(plane - 1).map_or(0, |port| port.tx_data_bytes);
    let points: Vec<(f64, f64)> = record.samples[host]
        .iter()
        .map(|sample| (record.seconds_of(sample.at_ns), port(sample) as f64))
        .collect();
    let at = |x: f64| crate::run::interpolate(points.iter().copied(), x);
    let before = at(from) - at(from - 1.0);
    if before <= 0.0 {
        return Err(format!("h{host} did not send on plane {plane} before"));
    }
    let mut last = from;
    for pair in points.windows(2).filter(|pair| pair[1].0 > from && pair[1].0 <= to) {
        let rate = (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
        if rate > SILENT * before {
            last = pair[1].0;
        }
    }
    let sent = at(to) - at(from);
    Ok((last - from, format!("{:.1} kB after it", sent / 1e3)))
}
