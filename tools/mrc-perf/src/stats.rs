//! From times to the figures that perftest prints.

use serde::{Deserialize, Serialize};

/// One direction's bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bandwidth {
    /// Messages of all queue pairs.
    pub(crate) messages: u64,
    /// From the first post to the last completion.
    pub(crate) elapsed_ns: u64,
    /// Best rate over a window, in messages per second.
    pub(crate) peak_msg_per_s: f64,
}

impl Bandwidth {
    /// Average rate in messages per second.
    pub(crate) fn msg_per_s(&self) -> f64 {
        self.messages as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Finds the best rate over windows of a certain number of messages.
pub(crate) struct Peak {
    window: u64,
    from: (u64, u64),
    best: f64,
}

impl Peak {
    /// Windows of at least `window` messages, starting at `now_ns`.
    pub(crate) fn new(window: u64, now_ns: u64) -> Peak {
        Peak {
            window: window.max(1),
            from: (0, now_ns),
            best: 0.0,
        }
    }

    /// `messages` have been completed at `now_ns`.
    pub(crate) fn note(&mut self, messages: u64, now_ns: u64) {
        let (count, since) = self.from;
        if messages - count >= self.window {
            let rate = (messages - count) as f64 * 1e9 / (now_ns - since).max(1) as f64;
            self.best = self.best.max(rate);
            self.from = (messages, now_ns);
        }
    }

    /// The best rate; at least the average.
    pub(crate) fn best(&self, average: f64) -> f64 {
        self.best.max(average)
    }
}

/// Figures of a latency test, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) iterations: u64,
    pub(crate) min_us: f64,
    pub(crate) max_us: f64,
    /// The median.
    pub(crate) typical_us: f64,
    pub(crate) avg_us: f64,
    pub(crate) stdev_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
}

/// Histogram of nanoseconds with steps of at most 1/128: keeps any number of samples in fixed memory.
pub(crate) struct Samples {
    buckets: Vec<u64>,
    count: u64,
    min: u64,
    max: u64,
    sum: f64,
    squares: f64,
}

const FRACTION_BITS: u32 = 7;

impl Samples {
    pub(crate) fn new() -> Samples {
        let buckets = vec![0; (64 - FRACTION_BITS as usize + 1) << FRACTION_BITS];
        Samples {
            buckets,
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0.0,
            squares: 0.0,
        }
    }

    pub(crate) fn add(&mut self, ns: u64) {
        if let Some(bucket) = self.buckets.get_mut(bucket_of(ns)) {
            *bucket += 1;
        }
        self.count += 1;
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum += ns as f64;
        self.squares += (ns as f64) * (ns as f64);
    }

    /// The figures, or none without samples.
    pub(crate) fn latency(&self) -> Option<Latency> {
        if self.count == 0 {
            return None;
        }
        let count = self.count as f64;
        let avg = self.sum / count;
        let variance = (self.squares / count - avg * avg).max(0.0);
        Some(Latency {
            iterations: self.count,
            min_us: self.min as f64 / 1e3,
            max_us: self.max as f64 / 1e3,
            typical_us: self.quantile(0.5),
            avg_us: avg / 1e3,
            stdev_us: variance.sqrt() / 1e3,
            p99_us: self.quantile(0.99),
            p999_us: self.quantile(0.999),
        })
    }

    fn quantile(&self, share: f64) -> f64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (number, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen >= rank {
                return middle_of(number).clamp(self.min, self.max) as f64 / 1e3;
            }
        }
        self.max as f64 / 1e3
    }
}

fn bucket_of(ns: u64) -> usize {
    let octave = (64 - ns.leading_zeros()).saturating_sub(FRACTION_BITS + 1);
    let fraction = (ns >> octave) as usize;
    ((octave as usize) << FRACTION_BITS) + fraction
}

fn middle_of(bucket: usize) -> u64 {
    let octave = (bucket >> FRACTION_BITS).saturating_sub(1);
    let fraction = (bucket - (octave << FRACTION_BITS)) as u64;
    (fraction << octave) + ((1_u64 << octave) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_exact_when_small_and_within_one_percent_when_large() {
        for ns in (0..1000).chain([4_999, 123_456, 99_999_999, u64::from(u32::MAX) * 1000, u64::MAX / 2]) {
            let middle = middle_of(bucket_of(ns));
            let off = middle.abs_diff(ns) as f64 / ns.max(1) as f64;
            assert!(off < 0.01, "{ns} became {middle}");
            assert!(ns >= 256 || middle == ns, "{ns} became {middle}");
        }
        assert!(bucket_of(u64::MAX) < Samples::new().buckets.len());
    }

    #[test]
    fn figures_of_a_known_series() {
        let mut samples = Samples::new();
        (1..=1000).for_each(|us| samples.add(us * 1000));
        let latency = samples.latency().unwrap();
        assert_eq!(
            (latency.iterations, latency.min_us as u64, latency.max_us as u64),
            (1000, 1, 1000)
        );
        assert!((latency.avg_us - 500.5).abs() < 0.001);
        assert!((latency.stdev_us - 288.675).abs() < 0.01, "{}", latency.stdev_us);
        assert!((latency.typical_us - 500.0).abs() < 5.0);
        assert!((latency.p99_us - 990.0).abs() < 10.0);
        assert!((latency.p999_us - 999.0).abs() < 10.0);
        assert_eq!(Samples::new().latency(), None);
    }

    #[test]
    fn the_peak_is_the_best_window_and_at_least_the_average() {
        let mut peak = Peak::new(10, 0);
        peak.note(10, 1_000);
        peak.note(15, 1_100);
        peak.note(20, 1_500);
        assert!((peak.best(1.0) - 2e7).abs() < 1.0);
        assert!((Peak::new(10, 0).best(3.0) - 3.0).abs() < f64::EPSILON);
    }
}
