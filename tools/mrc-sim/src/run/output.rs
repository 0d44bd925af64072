//! Time series as tables and as pictures.

use crate::fabric::clos::topology::Link;
use crate::plot::{Axis, Curve, Plot, PlotError};
use crate::run::{CaseReport, Run};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A file that cannot be written.
#[derive(Debug, Error)]
#[error("{path} cannot be written: {error}: give another directory")]
pub struct OutputError {
    path: String,
    error: io::Error,
}

impl OutputError {
    fn of(path: &Path) -> impl FnOnce(io::Error) -> OutputError {
        move |error| OutputError {
            path: path.display().to_string(),
            error,
        }
    }
}

/// The column that others are compared with.
const IDLE: &str = "idle";

/// One table: a column of times and others beside it.
struct Table {
    name: &'static str,
    title: &'static str,
    /// What the columns show, and in which unit.
    axis: (&'static str, &'static str),
    columns: Vec<(String, Vec<f64>)>,
    times_us: Vec<f64>,
}

/// Writes the series of a case into a directory, as CSV. Returns the files.
pub fn write_series(directory: &Path, scenario: &str, case: &CaseReport) -> Result<Vec<PathBuf>, OutputError> {
    let Ok(run) = &case.run else { return Ok(Vec::new()) };
    fs::create_dir_all(directory).map_err(OutputError::of(directory))?;
    let write = |table: &Table| {
        let mut text = "time_us".to_owned();
        for (name, _) in &table.columns {
            let unit = table.axis.1.replace('/', "p");
            let _ = write!(
                text,
                ",{}_{}",
                name.replace(' ', "_"),
                if unit.is_empty() { "count" } else { &unit }
            );
        }
        text.push('\n');
        for (row, time_us) in table.times_us.iter().enumerate() {
            let _ = write!(text, "{time_us}");
            for (_, values) in &table.columns {
                let _ = write!(text, ",{}", values.get(row).copied().unwrap_or(0.0));
            }
            text.push('\n');
        }
        let path = directory.join(file_name(scenario, case, table.name, "csv"));
        fs::write(&path, text).map_err(OutputError::of(&path))?;
        Ok(path)
    };
    tables(run).iter().map(write).collect()
}

/// Draws the series of a case into a directory, as SVG. Returns the files.
pub fn write_plots(
    directory: &Path,
    scenario: &str,
    title: &str,
    case: &CaseReport,
) -> Result<Vec<PathBuf>, OutputError> {
    let Ok(run) = &case.run else { return Ok(Vec::new()) };
    fs::create_dir_all(directory).map_err(OutputError::of(directory))?;
    let mut written = Vec::new();
    for table in tables(run) {
        let what = if case.name.is_empty() {
            format!("{title}: {}", table.title)
        } else {
            format!("{title} ({}): {}", case.name, table.title)
        };
        let milliseconds = table.times_us.last().is_some_and(|last| *last >= 5000.0);
        let (scale, unit) = if milliseconds { (1000.0, "ms") } else { (1.0, "us") };
        let mut plot = Plot::new(&what, Axis::new("time", unit), Axis::new(table.axis.0, table.axis.1));
        for (name, values) in &table.columns {
            let points = table
                .times_us
                .iter()
                .map(|time_us| time_us / scale)
                .zip(values.iter().copied());
            let curve = Curve::new(name, points.collect());
            plot = plot.curve(if name == IDLE { curve.dashed() } else { curve });
        }
        for (at_us, text) in &run.marks {
            plot = plot.mark(at_us / scale, text);
        }
        let path = directory.join(file_name(scenario, case, table.name, "svg"));
        let svg = match plot.svg() {
            Ok(svg) => svg,
            // A run that ended before the first sample.
            Err(PlotError::Empty { .. }) => continue,
            Err(error) => return Err(OutputError::of(&path)(io::Error::other(error))),
        };
        fs::write(&path, svg).map_err(OutputError::of(&path))?;
        written.push(path);
    }
    Ok(written)
}

fn file_name(scenario: &str, case: &CaseReport, table: &str, extension: &str) -> String {
    let stem = Path::new(scenario)
        .file_stem()
        .map_or_else(|| scenario.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let case = if case.name.is_empty() {
        String::new()
    } else {
        format!("{}-", case.name)
    };
    format!("{stem}-{case}{table}.{extension}")
}

fn tables(run: &Run) -> Vec<Table> {
    let times_us: Vec<f64> = run.samples.iter().map(|sample| sample.at_ns as f64 / 1000.0).collect();
    let table = |name, title, axis, columns: Vec<(String, Vec<f64>)>| Table {
        name,
        title,
        axis,
        columns,
        times_us: times_us.clone(),
    };
    let column = |name: &str, value: &dyn Fn(&crate::series::Sample) -> f64| {
        (name.to_owned(), run.samples.iter().map(value).collect::<Vec<f64>>())
    };
    let planes =
        (0..usize::from(run.facts.planes)).map(|plane| (format!("plane {}", plane + 1), plane_rates(run, plane)));
    let mut all = vec![
        table("planes", "goodput by plane", ("goodput", "Gb/s"), planes.collect()),
        table(
            "window",
            "window of the first sender",
            ("data", "KiB"),
            vec![
                column("window", &|sample| sample.cwnd_bytes as f64 / 1024.0),
                column("in flight", &|sample| sample.inflight_bytes as f64 / 1024.0),
            ],
        ),
        table(
            "rtt",
            "round trips of the first sender",
            ("round trip", "us"),
            vec![
                column("smoothed", &|sample| sample.srtt_ns as f64 / 1000.0),
                (
                    IDLE.to_owned(),
                    vec![run.facts.base_rtt_ns as f64 / 1000.0; run.samples.len()],
                ),
            ],
        ),
        table(
            "paths",
            "paths of the first sender by state",
            ("paths", ""),
            vec![
                column("active", &|sample| sample.active.into()),
                column("backup", &|sample| sample.backup.into()),
                column("skip", &|sample| sample.skip.into()),
                column("assumed bad", &|sample| sample.bad.into()),
            ],
        ),
    ];
    if !run.links.is_empty() {
        all.push(queues(run));
    }
    all
}

/// Payload per time between samples, in Gb/s.
fn plane_rates(run: &Run, plane: usize) -> Vec<f64> {
    let mut before = (0, 0);
    let rates = run.samples.iter().map(|sample| {
        let now = (sample.at_ns, sample.plane_bytes.get(plane).copied().unwrap_or(0));
        let rate = (now.1 - before.1) as f64 * 8.0 / (now.0 - before.0).max(1) as f64;
        before = now;
        rate
    });
    rates.collect()
}

/// The longest queue of each plane and kind of link.
fn queues(run: &Run) -> Table {
    let mut columns: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let every_ns = run.links.first().map_or(1, |series| series.every_ns);
    let count = run.links.iter().map(|series| series.samples.len()).max().unwrap_or(0);
    for series in &run.links {
        let tier = match series.link {
            Link::HostUp { .. } => continue,
            Link::HostDown { .. } => "to hosts",
            Link::SpineUp { .. } => "to spines",
            Link::SpineDown { .. } => "from spines",
        };
        let column = columns.entry(tier.to_owned()).or_insert_with(|| vec![0.0; count]);
        for (most, sample) in column.iter_mut().zip(&series.samples) {
            *most = most.max(f64::from(sample.queue_bytes) / 1024.0);
        }
    }
    Table {
        name: "queues",
        title: "longest queue of the switches",
        axis: ("queue", "KiB"),
        columns: columns.into_iter().collect(),
        times_us: (1..=count as u64).map(|at| (at * every_ns) as f64 / 1000.0).collect(),
    }
}
