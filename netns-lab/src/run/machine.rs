//! The machine that everything runs on: what it is, and whether it had time left.

use serde::Serialize;

/// What the machine is.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    /// Processors that are online.
    pub cores: usize,
    /// Their name.
    pub processor: String,
    /// The kernel's release.
    pub kernel: String,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// The build that ran.
    pub build: &'static str,
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':')
                .map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib = memory.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

/// Processor time in a stretch of time.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct MachineSample {
    /// End of the stretch, seconds from the start.
    pub at: f64,
    /// Share of all processors that nobody wanted.
    pub idle: f64,
    /// Share that a hypervisor gave to somebody else.
    pub stolen: f64,
}

/// Reads the kernel's account of processor time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Processors {
    idle: u64,
    stolen: u64,
    all: u64,
}

impl Processors {
    /// As of now; `None` without `/proc`.
    pub(crate) fn now() -> Option<Processors> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Processors> {
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is part of user.
        let (idle, wait, stolen) = (*ticks.get(3)?, *ticks.get(4)?, *ticks.get(7)?);
        Some(Processors {
            idle: idle + wait,
            stolen,
            all: ticks.iter().take(8).sum(),
        })
    }

    /// The stretch from `before` to now.
    pub(crate) fn since(self, before: Processors, at: f64) -> Option<MachineSample> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)? as f64;
        Some(MachineSample {
            at,
            idle: self.idle.saturating_sub(before.idle) as f64 / all,
            stolen: self.stolen.saturating_sub(before.stolen) as f64 / all,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_are_shares_of_a_stretch() {
        let parse = |text: &str| Processors::parse(text).unwrap();
        let before = parse("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        let after = parse("cpu  150 0 110 820 10 0 0 10 0 0\n");
        let sample = after.since(before, 1.0).unwrap();
        assert!(
            (sample.idle - 0.3).abs() < 1e-9 && (sample.stolen - 0.1).abs() < 1e-9,
            "{sample:?}"
        );
        assert!(before.since(before, 1.0).is_none());
    }
}
