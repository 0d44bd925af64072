//! Draws throughput per plane: bars on a terminal, lines elsewhere.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

/// Rates are averages over this time.
const AVERAGE_NS: u64 = 250_000_000;
const BAR: usize = 40;
const REDRAW_EVERY: Duration = Duration::from_millis(50);
const LINE_EVERY: Duration = Duration::from_millis(500);

/// What has arrived on each plane, over time.
pub(crate) struct Arrivals {
    samples: VecDeque<(u64, Vec<u64>)>,
    planes: usize,
}

impl Arrivals {
    pub(crate) fn new(planes: usize) -> Self {
        Self {
            samples: VecDeque::new(),
            planes,
        }
    }

    /// Adds what had arrived at some time.
    pub(crate) fn add(&mut self, at_ns: u64, bytes: Vec<u64>) {
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| at_ns.saturating_sub(*at) >= AVERAGE_NS)
        {
            self.samples.pop_front();
        }
        self.samples.push_back((at_ns, bytes));
    }

    /// Bytes that have arrived on each plane.
    pub(crate) fn totals(&self) -> Vec<u64> {
        self.samples
            .back()
            .map_or_else(|| vec![0; self.planes], |(_, bytes)| bytes.clone())
    }

    /// Gb/s of each plane of late.
    pub(crate) fn gbps(&self) -> Vec<f64> {
        let (Some((from_ns, from)), Some((to_ns, to))) = (self.samples.front(), self.samples.back()) else {
            return vec![0.0; self.planes];
        };
        let elapsed_ns = to_ns.saturating_sub(*from_ns).max(1) as f64;
        (0..self.planes)
            .map(|plane| {
                let bytes = |counts: &[u64]| counts.get(plane).copied().unwrap_or(0);
                bytes(to).saturating_sub(bytes(from)) as f64 * 8.0 / elapsed_ns
            })
            .collect()
    }
}

/// Where the show is drawn.
pub(crate) struct Screen {
    bars: bool,
    drawn_lines: usize,
    last: Option<Instant>,
    /// Full scale of the bars, Gb/s.
    scale: f64,
}

/// One moment of the show.
pub(crate) struct Frame<'a> {
    pub(crate) seconds: f64,
    pub(crate) done: f64,
    pub(crate) gbps: &'a [f64],
    /// The plane that is down, counted from 0.
    pub(crate) down: Option<usize>,
}

impl Screen {
    pub(crate) fn new(plain: bool) -> Self {
        Self {
            bars: !plain && stdout().is_terminal(),
            drawn_lines: 0,
            last: None,
            scale: 0.1,
        }
    }

    /// Draws if it is time to.
    pub(crate) fn draw(&mut self, frame: &Frame<'_>) {
        let every = if self.bars { REDRAW_EVERY } else { LINE_EVERY };
        if self.last.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        self.last = Some(Instant::now());
        self.scale = frame.gbps.iter().copied().fold(self.scale, f64::max);
        if self.bars {
            let text = bars(frame, self.scale);
            let up = if self.drawn_lines > 0 {
                format!("\x1b[{}A", self.drawn_lines)
            } else {
                String::new()
            };
            self.drawn_lines = text.lines().count();
            put(&format!("{up}{text}"));
        } else {
            put(&line(frame));
        }
    }

    /// Says something that stays.
    pub(crate) fn say(&mut self, text: &str) {
        // Below the bars, which are drawn anew under it.
        self.drawn_lines = 0;
        put(&format!("{text}\n"));
    }
}

/// A screen that has gone away is no reason to stop.
fn put(text: &str) {
    let _ = stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush());
}

fn bars(frame: &Frame<'_>, scale: f64) -> String {
    let total: f64 = frame.gbps.iter().sum();
    let mut text = format!(
        "\x1b[K{:>7.1} s {:>4.0} %  {:>6.2} Gb/s\n",
        frame.seconds,
        frame.done * 100.0,
        total
    );
    for (plane, gbps) in frame.gbps.iter().enumerate() {
        let full = ((gbps / scale * BAR as f64).round() as usize).min(BAR);
        let (colour, note) = if frame.down == Some(plane) {
            ("31", "  down")
        } else {
            ("32", "")
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\x1b[K  plane {} \x1b[{colour}m{}\x1b[0m{} {gbps:>6.2} Gb/s{note}",
            plane + 1,
            "█".repeat(full),
            "░".repeat(BAR - full)
        );
    }
    text
}

fn line(frame: &Frame<'_>) -> String {
    let mut text = format!("{:>6.1} s {:>4.0} %", frame.seconds, frame.done * 100.0);
    for (plane, gbps) in frame.gbps.iter().enumerate() {
        let mark = if frame.down == Some(plane) { "!" } else { " " };
        let _ = write!(text, "  p{}{mark}{gbps:>5.2}", plane + 1);
    }
    let _ = writeln!(text, "  total {:>5.2} Gb/s", frame.gbps.iter().sum::<f64>());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame<'_> = Frame {
        seconds: 1.5,
        done: 0.25,
        gbps: &[1.0, 0.0, 0.5],
        down: Some(1),
    };

    #[test]
    fn the_rate_is_that_of_late() {
        let mut arrivals = Arrivals::new(2);
        assert_eq!(arrivals.gbps(), [0.0, 0.0]);
        for step in 0..100_u64 {
            // One byte a nanosecond is 8 Gb/s; the second plane stops after a while.
            let at = step * 20_000_000;
            arrivals.add(at, vec![at, at.min(1_000_000_000)]);
        }
        let gbps = arrivals.gbps();
        assert!((gbps[0] - 8.0).abs() < 0.01 && gbps[1] < 0.01, "{gbps:?}");
    }

    #[test]
    fn a_line_names_every_plane_and_marks_the_dead_one() {
        assert_eq!(
            line(&FRAME),
            "   1.5 s   25 %  p1  1.00  p2! 0.00  p3  0.50  total  1.50 Gb/s\n"
        );
    }

    #[test]
    fn bars_are_as_long_as_the_rate() {
        let text = bars(&FRAME, 1.0);
        let count = |index: usize| text.lines().nth(index).unwrap().matches('█').count();
        assert_eq!([count(1), count(2), count(3)], [BAR, 0, BAR / 2]);
        assert!(text.lines().nth(2).unwrap().ends_with("down"));
    }
}
