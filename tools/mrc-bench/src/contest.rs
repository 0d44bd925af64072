//! What is compared with what: contestants that take turns, round after round, so that a noisy machine disturbs all alike.

use serde::Serialize;

use crate::error::BenchError;
use crate::report::Median;

/// What is wanted of the first contestant beside another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Only to be seen.
    Reported,
}

impl Bound {
    fn holds(self, ratio: f64) -> Option<bool> {
        match self {
            Bound::AtLeast(bound) => Some(ratio >= bound),
            Bound::AtMost(bound) => Some(ratio <= bound),
            Bound::Reported => None,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Bound::AtLeast(bound) => format!(">= {bound}"),
            Bound::AtMost(bound) => format!("<= {bound}"),
            Bound::Reported => String::new(),
        }
    }
}

/// One measurement of the seconds given.
type Run<'a> = Box<dyn FnMut(f64) -> Result<f64, BenchError> + 'a>;

/// Somebody who does the work.
pub(crate) struct Contestant<'a> {
    pub(crate) name: &'static str,
    pub(crate) run: Run<'a>,
    /// What the first contestant is to be beside this one.
    pub(crate) bound: Bound,
}

impl<'a> Contestant<'a> {
    pub(crate) fn new(
        name: &'static str,
        bound: Bound,
        run: impl FnMut(f64) -> Result<f64, BenchError> + 'a,
    ) -> Contestant<'a> {
        Contestant {
            name,
            run: Box::new(run),
            bound,
        }
    }
}

/// One line of the table: the first contestant is compared with each other one.
pub(crate) struct Contest<'a> {
    pub(crate) label: String,
    pub(crate) unit: &'static str,
    pub(crate) contestants: Vec<Contestant<'a>>,
}

/// How long and how often.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

/// What one contest gave.
#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) row: &'static str,
    pub(crate) label: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: Median,
    pub(crate) beside: Vec<Beside>,
}

/// The first contestant beside another one.
#[derive(Serialize)]
pub(crate) struct Beside {
    pub(crate) name: &'static str,
    pub(crate) value: Median,
    /// Of the ratios of each round.
    pub(crate) ratio: Median,
    pub(crate) goal: String,
    /// `null` without a goal.
    pub(crate) holds: Option<bool>,
    /// The rounds differ by so much that the ratio means little.
    pub(crate) noisy: bool,
}

/// Rounds whose ratios lie further apart than this, in per cent of their median, say little.
const NOISE_PERCENT: f64 = 40.0;

/// Lets all take turns. `before` is called before each round.
pub(crate) fn run(
    row: &'static str,
    contests: Vec<Contest<'_>>,
    effort: Effort,
    mut before: impl FnMut(usize),
) -> Result<Vec<Line>, BenchError> {
    let mut contests = contests;
    let mut samples: Vec<Vec<Vec<f64>>> = contests
        .iter()
        .map(|contest| vec![Vec::new(); contest.contestants.len()])
        .collect();
    for round in 0..effort.rounds.max(1) {
        before(round);
        for (contest, samples) in contests.iter_mut().zip(&mut samples) {
            for (contestant, samples) in contest.contestants.iter_mut().zip(samples) {
                samples.push((contestant.run)(effort.seconds)?);
            }
        }
    }
    Ok(contests
        .iter()
        .zip(&samples)
        .map(|(contest, samples)| line(row, contest, samples))
        .collect())
}

fn line(row: &'static str, contest: &Contest<'_>, samples: &[Vec<f64>]) -> Line {
    let ours = samples.first().map_or(&[][..], Vec::as_slice);
    let beside = contest.contestants.iter().zip(samples).skip(1);
    Line {
        row,
        label: contest.label.clone(),
        unit: contest.unit,
        ours: Median::of(ours.iter().copied()),
        beside: beside
            .map(|(other, theirs)| {
                let ratio = Median::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs));
                Beside {
                    name: other.name,
                    value: Median::of(theirs.iter().copied()),
                    ratio,
                    goal: other.bound.text(),
                    holds: other.bound.holds(ratio.median),
                    noisy: ratio.spread_percent() > NOISE_PERCENT,
                }
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest(ours: Vec<f64>, theirs: Vec<f64>, bound: Bound) -> Contest<'static> {
        let (mut ours, mut theirs) = (ours.into_iter(), theirs.into_iter());
        Contest {
            label: "x".to_owned(),
            unit: "Gb/s",
            contestants: vec![
                Contestant::new("ours", Bound::Reported, move |_| Ok(ours.next().unwrap())),
                Contestant::new("theirs", bound, move |_| Ok(theirs.next().unwrap())),
            ],
        }
    }

    fn play(contest: Contest<'static>, rounds: usize) -> Line {
        let effort = Effort { rounds, seconds: 1.0 };
        run("row", vec![contest], effort, |_| {}).unwrap().remove(0)
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // A machine that became twice as slow between rounds has not changed the ratio.
        let line = play(contest(vec![1.0, 0.5], vec![2.0, 1.0], Bound::AtLeast(0.5)), 2);
        let beside = &line.beside[0];
        assert!((beside.ratio.median - 0.5).abs() < 1e-9 && !beside.noisy);
        assert_eq!(beside.holds, Some(true));
    }

    #[test]
    fn goals_have_a_direction_and_noise_is_said() {
        assert_eq!(
            play(contest(vec![2.0], vec![1.0], Bound::AtMost(1.3)), 1).beside[0].holds,
            Some(false)
        );
        assert_eq!(
            play(contest(vec![2.0], vec![1.0], Bound::Reported), 1).beside[0].holds,
            None
        );
        let line = play(
            contest(vec![1.0, 2.0, 3.0], vec![1.0, 1.0, 1.0], Bound::AtLeast(1.0)),
            3,
        );
        assert!(line.beside[0].noisy);
    }
}
