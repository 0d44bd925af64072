//! The engine beside the bare loops, in interleaved rounds.

use serde::Serialize;

use crate::bare::{Bare, Mode};
use crate::error::BenchError;
use crate::frame::WRITE_OVERHEAD;
use crate::ours::Ours;
use crate::report::Median;

/// Bytes of a large write.
const LARGE: usize = 1 << 20;

/// One comparison.
#[derive(Clone, Copy)]
struct Case {
    pmtu: u32,
    /// Bytes of a write.
    message: usize,
    mtu: u32,
}

/// Up to MTU 3506 a frame is one buffer; 4096 bytes of data need more.
const ONE_BUFFER: u32 = 3506;
const TWO_BUFFERS: u32 = 9000;

const CASES: [Case; 5] = [
    Case {
        pmtu: 1024,
        message: LARGE,
        mtu: ONE_BUFFER,
    },
    Case {
        pmtu: 2048,
        message: LARGE,
        mtu: ONE_BUFFER,
    },
    Case {
        pmtu: 4096,
        message: LARGE,
        mtu: TWO_BUFFERS,
    },
    Case {
        pmtu: 1024,
        message: 2,
        mtu: ONE_BUFFER,
    },
    Case {
        pmtu: 1024,
        message: 64,
        mtu: ONE_BUFFER,
    },
];

impl Case {
    /// Bytes of data in a frame.
    fn data(&self) -> usize {
        self.message.min(self.pmtu as usize)
    }

    /// Frames per write.
    fn frames(&self) -> f64 {
        self.message.div_ceil(self.pmtu as usize).max(1) as f64
    }
}

/// What one comparison gave.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) pmtu: u32,
    pub(crate) message_bytes: usize,
    pub(crate) frame_bytes: usize,
    /// Million frames with data per second.
    pub(crate) ours_mpps: Median,
    pub(crate) bare_mpps: Median,
    pub(crate) fair_mpps: Median,
    /// Gb/s of data.
    pub(crate) ours_gbps: f64,
    pub(crate) bare_gbps: f64,
    pub(crate) fair_gbps: f64,
    /// Medians of the ratios of each round.
    pub(crate) to_bare: Median,
    pub(crate) to_fair: Median,
}

/// Runs all comparisons; `progress` hears of each round.
pub(crate) fn run(rounds: usize, seconds: f64, mut progress: impl FnMut(usize)) -> Result<Vec<Row>, BenchError> {
    let mut fabrics = [Fabric::build(ONE_BUFFER)?, Fabric::build(TWO_BUFFERS)?];
    let mut samples = vec![Vec::new(); CASES.len()];
    for round in 0..rounds.max(1) {
        progress(round);
        for (case, samples) in CASES.iter().zip(&mut samples) {
            let fabric = &mut fabrics[usize::from(case.mtu == TWO_BUFFERS)];
            samples.push(fabric.sample(case, seconds)?);
        }
    }
    Ok(CASES
        .iter()
        .zip(&samples)
        .map(|(case, samples)| Row::new(case, samples))
        .collect())
}

/// The labs of one MTU. Only one of them works at a time.
struct Fabric {
    bare: Bare,
    ours: Ours,
}

/// Million frames with data per second: ours, bare, fair.
#[derive(Clone, Copy)]
struct Sample {
    ours: f64,
    bare: f64,
    fair: f64,
}

impl Fabric {
    fn build(mtu: u32) -> Result<Fabric, BenchError> {
        let mut pmtus: Vec<_> = CASES
            .iter()
            .filter(|case| case.mtu == mtu)
            .map(|case| case.pmtu)
            .collect();
        pmtus.dedup();
        Ok(Fabric {
            bare: Bare::build(mtu)?,
            ours: Ours::build(mtu, &pmtus)?,
        })
    }

    fn sample(&mut self, case: &Case, seconds: f64) -> Result<Sample, BenchError> {
        let frame = case.data() + WRITE_OVERHEAD;
        Ok(Sample {
            bare: self.bare.run(Mode::Bare, frame, seconds)?.mpps(),
            ours: self.ours.run(case.pmtu, case.message, seconds)? * case.frames() / 1e6,
            fair: self.bare.run(Mode::Fair, frame, seconds)?.mpps(),
        })
    }
}

impl Row {
    fn new(case: &Case, samples: &[Sample]) -> Row {
        let median = |value: &dyn Fn(&Sample) -> f64| Median::of(samples.iter().map(value));
        let (ours_mpps, bare_mpps, fair_mpps) = (median(&|s| s.ours), median(&|s| s.bare), median(&|s| s.fair));
        let gbps = |mpps: Median| mpps.median * case.data() as f64 * 8.0 / 1e3;
        Row {
            pmtu: case.pmtu,
            message_bytes: case.message,
            frame_bytes: case.data() + WRITE_OVERHEAD,
            ours_gbps: gbps(ours_mpps),
            bare_gbps: gbps(bare_mpps),
            fair_gbps: gbps(fair_mpps),
            ours_mpps,
            bare_mpps,
            fair_mpps,
            to_bare: median(&|s| s.ours / s.bare),
            to_fair: median(&|s| s.ours / s.fair),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_write_is_many_frames_and_a_small_one_is_one() {
        assert!((CASES[0].frames() - 1024.0).abs() < f64::EPSILON);
        assert!((CASES[2].frames() - 256.0).abs() < f64::EPSILON);
        assert!((CASES[4].frames() - 1.0).abs() < f64::EPSILON);
        assert_eq!((CASES[0].data(), CASES[3].data()), (1024, 2));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // A machine that became twice as slow between rounds has not changed the ratio.
        let samples = [
            Sample {
                ours: 1.0,
                bare: 2.0,
                fair: 1.0,
            },
            Sample {
                ours: 0.5,
                bare: 1.0,
                fair: 0.5,
            },
        ];
        let row = Row::new(&CASES[0], &samples);
        assert!((row.to_bare.median - 0.5).abs() < 1e-9 && row.to_bare.spread_percent() < 1e-9);
    }
}
