//! Fuzz targets: functions that take any bytes and must come back.
//!
//! Each draws from its bytes what it does — a frame, a sequence of calls — and checks after every step what must always
//! hold. [`TARGETS`] lists them; [`run`] mutates a corpus without knowing anything of coverage, which works everywhere;
//! `fuzz/libfuzzer` hands the same functions to libFuzzer. See `fuzz/README.md`.

mod draw;
mod frames;
mod headers;
mod nodes;
mod nscc;
mod pair;
mod profiles;
pub mod run;

/// Something that takes any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, also that of its corpus.
    pub name: &'static str,
    /// What it exercises.
    pub what: &'static str,
    /// Panics if something is wrong.
    pub target: fn(&[u8]),
    /// Inputs to begin with besides its corpus, for those that random bytes never reach.
    pub seeds: Option<fn() -> Vec<Vec<u8>>>,
    /// Longest input that is worth trying.
    pub max_len: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        what: "decoders: any bytes as a frame, with or without a right ICRC; what is accepted is built and parsed again",
        target: frames::target,
        seeds: Some(frames::seeds),
        max_len: 512,
    },
    Target {
        name: "headers",
        what: "encoders: any packet on any path is built, tagged, tunnelled, trimmed, and parsed again",
        target: headers::target,
        seeds: None,
        max_len: 512,
    },
    Target {
        name: "profiles",
        what: "controller operations on EV and format profiles, and queue pairs that use them",
        target: profiles::target,
        seeds: None,
        max_len: 1024,
    },
    Target {
        name: "pair",
        what: "two queue pairs: work, a network that does anything, forged packets, timers, ports, errors, resets",
        target: pair::target,
        seeds: None,
        max_len: 2048,
    },
    Target {
        name: "nodes",
        what: "endpoint operations: requests, answers, probes and port status between nodes",
        target: nodes::target,
        seeds: None,
        max_len: 1024,
    },
    Target {
        name: "nscc",
        what: "congestion control: any events keep the window between one packet and its maximum",
        target: nscc::target,
        seeds: None,
        max_len: 1024,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
