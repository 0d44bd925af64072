//! The rows of the comparison, in the order of the goals.

use std::cell::RefCell;

use crate::bare::{Bare, Mode};
use crate::contest::{self, Bound, Contest, Contestant, Effort, Line};
use crate::error::BenchError;
use crate::frame::WRITE_OVERHEAD;
use crate::kernel::{Kernel, Offload, Tcp};
use crate::ours::Ours;

/// Measures a row of this name; is told of each round before it begins.
type RunRow = fn(&'static str, Effort, &mut dyn FnMut(usize)) -> Result<Vec<Line>, BenchError>;

/// One row: some lines of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    run: RunRow,
}

impl Row {
    pub(crate) fn run(&self, effort: Effort, before: &mut dyn FnMut(usize)) -> Result<Vec<Line>, BenchError> {
        (self.run)(self.name, effort, before)
    }
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "goodput",
        what: "1 MiB writes of one queue pair beside the loops with and without copies and CRCs",
        run: goodput,
    },
    Row {
        name: "tcp",
        what: "the same beside the kernel's TCP, with and without segmentation offload",
        run: tcp,
    },
    Row {
        name: "udp",
        what: "the same beside UDP with sendmmsg and recvmmsg",
        run: udp,
    },
    Row {
        name: "latency",
        what: "half a round trip of 2-byte writes, both sides spinning, beside bare frames",
        run: latency,
    },
    Row {
        name: "rate",
        what: "small writes beside a bare exchange of such frames",
        run: rate,
    },
];

/// The rows of these names, in the order of the table; all if there are none.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Row>, BenchError> {
    if let Some(unknown) = names.iter().find(|name| ROWS.iter().all(|row| row.name != **name)) {
        let known: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        return Err(BenchError::Row {
            name: unknown.clone(),
            known: known.join(", "),
        });
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| name == row.name);
    Ok(ROWS.iter().filter(wanted).collect())
}

/// Bytes of a large write.
const LARGE: usize = 1 << 20;
/// Up to this MTU a frame is one buffer.
const ONE_BUFFER: u32 = 3506;
const TWO_BUFFERS: u32 = 9000;
const GBPS: &str = "Gb/s";

/// Gb/s of 1 MiB writes.
fn ours(ours: &Ours, pmtu: u32) -> Contestant<'_> {
    Contestant::new("ours", Bound::Reported, move |seconds| {
        Ok(ours.run(pmtu, LARGE, seconds)? * LARGE as f64 * 8.0 / 1e9)
    })
}

/// The labs of one MTU, of which only one works at a time.
struct Labs {
    ours: Ours,
    bare: RefCell<Bare>,
}

impl Labs {
    fn build(mtu: u32, pmtus: &[u32]) -> Result<Labs, BenchError> {
        Ok(Labs {
            ours: Ours::build(mtu, pmtus)?,
            bare: RefCell::new(Bare::build(mtu)?),
        })
    }

    /// Gb/s of data of the bare loops.
    fn loops(&self, mode: Mode, pmtu: u32, bound: Bound) -> Contestant<'_> {
        Contestant::new(mode.name(), bound, move |seconds| {
            let data = pmtu as usize;
            let speed = self.bare.borrow_mut().run(mode, data + WRITE_OVERHEAD, seconds)?;
            Ok(speed.gbps(data))
        })
    }
}

fn goodput(row: &'static str, effort: Effort, before: &mut dyn FnMut(usize)) -> Result<Vec<Line>, BenchError> {
    let one = Labs::build(ONE_BUFFER, &[1024, 2048])?;
    let two = Labs::build(TWO_BUFFERS, &[4096])?;
    let cases = [
        (&one, 1024, Bound::AtLeast(0.65), Bound::AtLeast(0.9)),
        (&one, 2048, Bound::AtLeast(0.65), Bound::AtLeast(0.9)),
        (&two, 4096, Bound::Reported, Bound::AtLeast(0.85)),
    ];
    let contests = cases.map(|(labs, pmtu, to_bare, to_fair)| Contest {
        label: format!("PMTU {pmtu}"),
        unit: GBPS,
        contestants: vec![
            ours(&labs.ours, pmtu),
            labs.loops(Mode::Bare, pmtu, to_bare),
            labs.loops(Mode::Fair, pmtu, to_fair),
        ],
    });
    contest::run(row, contests.into(), effort, before)
}

fn tcp(row: &'static str, effort: Effort, before: &mut dyn FnMut(usize)) -> Result<Vec<Line>, BenchError> {
    let cases = [
        (1500, 1024, Bound::AtLeast(1.25)),
        (3506, 2048, Bound::AtLeast(1.5)),
        (9000, 4096, Bound::Reported),
    ];
    let labs = cases
        .iter()
        .map(|(mtu, pmtu, _)| {
            let kernel = |offload| Kernel::build(*mtu, offload);
            Ok((
                Ours::build(*mtu, &[*pmtu])?,
                kernel(Offload::Off)?,
                kernel(Offload::On)?,
            ))
        })
        .collect::<Result<Vec<_>, BenchError>>()?;
    let contests = cases
        .iter()
        .zip(&labs)
        .map(|((mtu, pmtu, bound), (engine, plain, offloaded))| Contest {
            label: format!("MTU {mtu}, PMTU {pmtu}"),
            unit: GBPS,
            contestants: vec![
                ours(engine, *pmtu),
                stream_of("cubic", plain, Tcp::Cubic, *bound),
                stream_of("bbr", plain, Tcp::Bbr, *bound),
                stream_of("cubic+TSO", offloaded, Tcp::Cubic, Bound::Reported),
                stream_of("bbr+TSO", offloaded, Tcp::Bbr, Bound::Reported),
            ],
        });
    contest::run(row, contests.collect(), effort, before)
}

/// Gb/s that arrive over one TCP connection.
fn stream_of<'a>(name: &'static str, kernel: &'a Kernel, control: Tcp, bound: Bound) -> Contestant<'a> {
    Contestant::new(name, bound, move |seconds| kernel.tcp(control, seconds))
}

fn udp(row: &'static str, effort: Effort, before: &mut dyn FnMut(usize)) -> Result<Vec<Line>, BenchError> {
    let engine = Ours::build(ONE_BUFFER, &[1024, 2048])?;
    let kernel = Kernel::build(ONE_BUFFER, Offload::On)?;
    let contests = [1024, 2048].map(|pmtu| Contest {
        label: format!("PMTU {pmtu}"),
        unit: GBPS,
        contestants: vec![
            ours(&engine, pmtu),
            Contestant::new("sendmmsg", Bound::AtLeast(2.0), {
                let kernel = &kernel;
                move |seconds| kernel.udp(pmtu as usize, seconds)
            }),
        ],
    });
    contest::run(row, contests.into(), effort, before)
}

fn latency(row: &'static str, effort: Effort, before: &mut dyn FnMut(usize)) -> Result<Vec<Line>, BenchError> {
    const PMTU: u32 = 1024;
    let labs = Labs::build(ONE_BUFFER, &[PMTU])?;
    let contest = Contest {
        label: "2 bytes, spinning".to_owned(),
        unit: "us",
        contestants: vec![
            Contestant::new("ours", Bound::Reported, |seconds| {
                labs.ours.half_round_trip_us(PMTU, seconds)
            }),
            Contestant::new("bare", Bound::AtMost(1.3), |seconds| {
                labs.bare.borrow_mut().half_round_trip_us(2 + WRITE_OVERHEAD, seconds)
            }),
        ],
    };
    contest::run(row, vec![contest], effort, before)
}

fn rate(row: &'static str, effort: Effort, before: &mut dyn FnMut(usize)) -> Result<Vec<Line>, BenchError> {
    const PMTU: u32 = 1024;
    let labs = Labs::build(ONE_BUFFER, &[PMTU])?;
    let contests = [(64, Bound::AtLeast(0.6)), (2, Bound::Reported)].map(|(len, bound)| Contest {
        label: format!("{len} bytes"),
        unit: "M/s",
        contestants: vec![
            Contestant::new("ours", Bound::Reported, {
                let engine = &labs.ours;
                move |seconds| Ok(engine.run(PMTU, len, seconds)? / 1e6)
            }),
            Contestant::new("bare", bound, {
                let bare = &labs.bare;
                move |seconds| {
                    let speed = bare.borrow_mut().run(Mode::Bare, len + WRITE_OVERHEAD, seconds)?;
                    Ok(speed.mpps())
                }
            }),
        ],
    });
    contest::run(row, contests.into(), effort, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_and_an_unknown_one_is_an_error_that_lists_them() {
        let names = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            chosen(&names).map(|rows| rows.iter().map(|row| row.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["tcp", "goodput"]).unwrap(), ["goodput", "tcp"]);
        assert_eq!(names(&[]).unwrap().len(), ROWS.len());
        let error = names(&["nosuch"]).unwrap_err().to_string();
        assert!(error.contains("nosuch") && error.contains("goodput"), "{error}");
    }

    #[test]
    fn rows_have_names_of_their_own() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.name != row.name), "{}", row.name);
        }
    }
}
