//! The plots of a run, from its record.

use super::plot::{COLOURS, Plot, Scale, Series};
use crate::agent::PathCounts;
use crate::run::{Record, interpolate};
use crate::scenario::{Kind, human_bytes};
use crate::verdict::times_ms;
use plotters::style::RGBColor;

/// Width of the windows that throughput is a mean of, seconds; at least two samples.
const WINDOW_S: f64 = 0.1;
/// More message times than that are thinned out.
const MOST_POINTS: usize = 400;

/// A plot with what it shows, and how to read it.
pub(super) struct Figure {
    pub title: &'static str,
    pub caption: String,
    pub svg: String,
}

/// All plots that have something to show, in the order of the page.
pub(super) fn figures(record: &Record) -> Vec<Figure> {
    [
        throughput(record),
        planes(record),
        paths(record),
        comparison(record),
        message_times(record),
        processors(record),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn marks(record: &Record) -> Vec<(f64, bool)> {
    record
        .happened
        .iter()
        .map(|happened| (happened.at, happened.broke))
        .collect()
}

/// Moments at which rates are drawn.
fn grid(record: &Record) -> Vec<f64> {
    let step = WINDOW_S.max(2.0 * record.scenario.sample_ms as f64 / 1e3);
    let count = (record.seconds / step).ceil() as usize;
    (1..=count).map(|n| n as f64 * step).collect()
}

/// Differences over time of what has been counted, times 8 and in millions.
fn rates(grid: &[f64], counted: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let mut before = (0.0, counted(0.0));
    let mut points = Vec::new();
    for &at in grid {
        let now = counted(at);
        points.push((
            f64::midpoint(before.0, at),
            (now - before.1) * 8.0 / 1e6 / (at - before.0),
        ));
        before = (at, now);
    }
    points
}

fn throughput(record: &Record) -> Option<Figure> {
    let grid = grid(record);
    let mut series = Vec::new();
    for (place, workload) in record.scenario.workload.iter().enumerate() {
        let arrivals = record.arrivals(place);
        for &way in record.ways(place) {
            let name = if record.ways(place).len() > 1 {
                format!("{} ({})", workload.name, way.arrow())
            } else {
                workload.name.clone()
            };
            let points = rates(&grid, |at| arrivals.all(way, at));
            let ran = &record.workloads[place];
            let alive = |(x, _): &(f64, f64)| *x >= ran.start - 0.1 && *x <= ran.end + 0.1;
            series.push(Series::new(
                name,
                series.len(),
                points.into_iter().filter(alive).collect(),
            ));
        }
    }
    if let Some(payload) = record.scenario.topology.payload_bps() {
        let mbps = payload * record.planes as f64 / 1e6;
        let mut capacity = Series::new("all links of a host", 6, vec![(0.0, mbps), (record.seconds, mbps)]);
        capacity.colour = RGBColor(90, 90, 90);
        series.push(capacity.dashed());
    }
    let mut plot = Plot::over_time("Mbit/s of payload", series);
    plot.marks = marks(record);
    Some(Figure {
        title: "Goodput over time",
        caption: "Payload as the targets receive it, by workload; vertical lines are the events of the timeline (red: something breaks, green: it heals)."
            .to_owned(),
        svg: plot.svg()?,
    })
}

fn planes(record: &Record) -> Option<Figure> {
    let grid = grid(record);
    let curve = |plane: usize| {
        let of_host = |host| {
            record.of_ports(host, |ports| {
                ports.get(plane).map_or(0.0, |port| port.rx_data_bytes as f64)
            })
        };
        let by_host: Vec<Vec<(f64, f64)>> = (0..record.hosts).map(of_host).collect();
        let counted = |at: f64| -> f64 {
            by_host
                .iter()
                .map(|points| interpolate(points.iter().copied(), at))
                .sum()
        };
        Series::new(format!("plane {}", plane + 1), plane, rates(&grid, counted))
    };
    let mut plot = Plot::over_time("Mbit/s of payload", (0..record.planes).map(curve).collect());
    plot.marks = marks(record);
    Some(Figure {
        title: "Throughput per plane",
        caption: "Message data that arrives at all hosts by each plane, duplicates included.".to_owned(),
        svg: plot.svg()?,
    })
}

fn paths(record: &Record) -> Option<Figure> {
    type Pick = fn(&PathCounts) -> u32;
    let states: [(&str, RGBColor, Pick); 5] = [
        ("active, good", COLOURS[2], |paths| paths.active - paths.skip),
        ("active, congested (SKIP)", COLOURS[4], |paths| paths.skip),
        ("backup", RGBColor(205, 205, 205), |paths| paths.backup),
        ("bad (ASSUMED_BAD)", RGBColor(190, 30, 30), |paths| paths.bad),
        ("denied", RGBColor(60, 60, 60), |paths| paths.denied),
    ];
    // The host whose connections see most of it.
    let total = |host: usize, pick: Pick| -> u64 {
        let ends = record.samples[host].iter().flat_map(|sample| &sample.ends);
        ends.flat_map(|end| &end.paths)
            .map(|paths| u64::from(pick(paths)))
            .sum()
    };
    let host = (0..record.hosts).max_by_key(|host| {
        (
            total(*host, |paths| paths.bad),
            total(*host, |paths| paths.active),
            usize::MAX - host,
        )
    })?;
    let series = states.map(|(name, colour, pick)| {
        let samples = record.samples[host].iter().map(|sample| {
            let paths = sample.ends.iter().flat_map(|end| &end.paths);
            (record.seconds_of(sample.at_ns), f64::from(paths.map(pick).sum::<u32>()))
        });
        Series {
            name: name.to_owned(),
            points: samples.filter(|(at, _)| *at >= 0.0).collect(),
            colour,
            dashed: false,
        }
    });
    let mut plot = Plot::over_time("paths", series.into());
    if plot
        .series
        .iter()
        .all(|series| series.points.iter().all(|(_, y)| *y == 0.0))
    {
        return None;
    }
    plot.stacked = true;
    plot.marks = marks(record);
    Some(Figure {
        title: "States of paths over time",
        caption: format!("Entropy values of all connections of h{host}, by what its engine thinks of them."),
        svg: plot.svg()?,
    })
}

/// Speed by size, a curve per workload that has sizes.
fn comparison(record: &Record) -> Option<Figure> {
    let mut series = Vec::new();
    for (place, workload) in record.scenario.workload.iter().enumerate() {
        if !workload.kind.is_collective() || workload.all_sizes().len() < 2 {
            continue;
        }
        let point = |size: u64| {
            let times = times_ms(record, place, Some(size));
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            (size as f64, size as f64 * 8.0 / mean / 1e3)
        };
        let name = format!("{} ({})", workload.name, workload.transport.label());
        let points = workload.all_sizes().into_iter().map(point).collect();
        series.push(Series::new(name, series.len(), points));
    }
    if series.is_empty() {
        return None;
    }
    let plot = Plot {
        x: "size".to_owned(),
        y: "size / time, Mbit/s".to_owned(),
        scale: Scale::Logarithmic,
        series,
        stacked: false,
        dots: true,
        marks: Vec::new(),
        ticks: |x| human_size(x),
    };
    Some(Figure {
        title: "Speed by size",
        caption: "Bytes of each rank's data per time of an iteration at its slowest rank, mean of all iterations."
            .to_owned(),
        svg: plot.svg()?,
    })
}

fn human_size(bytes: f64) -> String {
    let near = [(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB")];
    match near.iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", bytes / size),
        None => human_bytes(bytes.round() as u64),
    }
}

/// The share of messages that took at most so long.
fn message_times(record: &Record) -> Option<Figure> {
    let mut series = Vec::new();
    for (place, workload) in record.scenario.workload.iter().enumerate() {
        let reference = record.reference.as_deref();
        let of_all = workload.all_sizes().into_iter().map(|size| (record, size, ""));
        let of_reference = reference.into_iter().flat_map(|record| {
            workload
                .all_sizes()
                .into_iter()
                .map(move |size| (record, size, " (reference)"))
        });
        for (record, size, suffix) in of_all.chain(of_reference) {
            let mut times = times_ms(record, place, Some(size));
            if times.len() < 5 {
                continue;
            }
            times.sort_by(f64::total_cmp);
            let step = times.len().div_ceil(MOST_POINTS);
            let share = |at: usize| (times[at], 100.0 * (at + 1) as f64 / times.len() as f64);
            let mut points: Vec<(f64, f64)> = (0..times.len()).step_by(step).map(share).collect();
            points.push(share(times.len() - 1));
            let name = if workload.all_sizes().len() > 1 {
                format!("{}, {}{suffix}", workload.name, human_bytes(size))
            } else {
                format!("{}{suffix}", workload.name)
            };
            series.push(Series::new(name, series.len(), points));
        }
    }
    if series.is_empty() {
        return None;
    }
    let halves = record
        .scenario
        .workload
        .iter()
        .any(|workload| workload.kind == Kind::Latency);
    let plot = Plot {
        x: "milliseconds".to_owned(),
        y: "% of messages".to_owned(),
        scale: Scale::Logarithmic,
        series,
        stacked: false,
        dots: false,
        marks: Vec::new(),
        ticks: super::number,
    };
    let latency = if halves {
        " Of latency workloads: half of it."
    } else {
        ""
    };
    Some(Figure {
        title: "Message times",
        caption: format!(
            "Share of messages that took at most so long, from being posted (or due) to their completion.{latency}"
        ),
        svg: plot.svg()?,
    })
}

fn processors(record: &Record) -> Option<Figure> {
    let busy = record
        .processors
        .iter()
        .map(|sample| (sample.at, 100.0 * (1.0 - sample.idle)));
    let mut plot = Plot::over_time("% busy", vec![Series::new("all processors", 6, busy.collect())]);
    plot.marks = marks(record);
    Some(Figure {
        title: "Processors",
        caption: "How busy the machine was. A run without time to spare is not judged by its figures.".to_owned(),
        svg: plot.svg()?,
    })
}
