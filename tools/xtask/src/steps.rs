//! What `cargo xtask test` does, as a table.

use std::path::Path;

use crate::{citations, guard, purity, spec};

/// One step of the test command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Short, for `--only`.
    pub name: &'static str,
    /// What it shows.
    pub what: &'static str,
    /// What it cannot do without.
    pub needs: Needs,
    /// When it runs.
    pub tier: Tier,
    /// What it does.
    pub action: Action,
}

/// What a step cannot do without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Namespaces, XDP: root.
    pub root: bool,
    /// The system packages (BPF compiler, libelf, ...).
    pub packages: bool,
    /// valgrind, which nothing else needs.
    pub valgrind: bool,
}

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Always.
    Always,
    /// Only without `--full`, which has a longer step in its place.
    Short,
    /// Only with `--full`.
    Full,
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Runs cargo with these arguments and additions to the environment.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Looks at the sources, below the directory given, and returns what is wrong.
    Look(fn(&Path) -> Result<Vec<String>, String>),
}

const NOTHING: Needs = Needs {
    root: false,
    packages: false,
    valgrind: false,
};
const PACKAGES: Needs = Needs {
    root: false,
    packages: true,
    valgrind: false,
};
const ROOT: Needs = Needs {
    root: true,
    packages: true,
    valgrind: false,
};
const VALGRIND: Needs = Needs {
    root: false,
    packages: true,
    valgrind: true,
};

/// The lab's hosts share the cores with the test that drives them: one test at a time.
const ONE_AT_A_TIME: (&str, &str) = ("RUST_TEST_THREADS", "1");

/// The convention behind the table: unit tests (`--lib`, `--bins`) need no root. Integration tests (`tests/*.rs`) of the
/// crates that touch the kernel need it.
///
/// Cargo builds a crate once for each set of features that the selected packages agree on. So `lab` and
/// `end-to-end` select the benchmark and the demo as well, as `unit` does: they share what it has built. A program that
/// is named by `--bin` is one of all packages, and shares what `docs` has built.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "format",
        what: "the sources are formatted",
        needs: NOTHING,
        tier: Tier::Always,
        action: Action::Cargo(&["fmt", "--all", "--check"], &[]),
    },
    Step {
        name: "purity",
        what: "wire and protocol know no operating system",
        needs: NOTHING,
        tier: Tier::Always,
        action: Action::Look(purity::check),
    },
    Step {
        name: "citations",
        what: "every section that a comment cites stands in docs/protocol",
        needs: NOTHING,
        tier: Tier::Always,
        action: Action::Look(citations::check),
    },
    Step {
        name: "spec",
        what: "every section of the protocol has code and a test",
        needs: NOTHING,
        tier: Tier::Always,
        action: Action::Look(spec::check),
    },
    Step {
        name: "clippy",
        what: "no lint complains",
        needs: PACKAGES,
        tier: Tier::Always,
        action: Action::Cargo(
            &[
                "clippy",
                "--locked",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "--deny",
                "warnings",
            ],
            &[],
        ),
    },
    Step {
        name: "core",
        what: "wire, protocol, simulator, fuzz targets and decoder: unit, property and command tests",
        needs: NOTHING,
        tier: Tier::Always,
        action: Action::Cargo(
            &[
                "test",
                "--locked",
                "--no-fail-fast",
                "--tests",
                "-p",
                "mrc-wire",
                "-p",
                "mrc-protocol",
                "-p",
                "mrc-sim",
                "-p",
                "mrc-fuzz",
                "-p",
                "mrc-capture",
                "-p",
                "mrc-dump",
                "-p",
                "xtask",
            ],
            &[],
        ),
    },
    Step {
        name: "core-full",
        what: "the property tests of wire and protocol with many more cases",
        needs: NOTHING,
        tier: Tier::Full,
        action: Action::Cargo(
            &["test", "--locked", "--tests", "-p", "mrc-wire", "-p", "mrc-protocol"],
            &[("PROPTEST_CASES", "20000")],
        ),
    },
    Step {
        name: "unit",
        what: "engine, verbs, lab and tools: unit tests",
        needs: PACKAGES,
        tier: Tier::Always,
        action: Action::Cargo(
            &[
                "test",
                "--locked",
                "--no-fail-fast",
                "--lib",
                "--bins",
                "-p",
                "mrc-ebpf",
                "-p",
                "mrc-dataplane",
                "-p",
                "mrc-verbs",
                "-p",
                "netns-lab",
                "-p",
                "mrc-perf",
                "-p",
                "mrc-bench",
                "-p",
                "mrc-demo",
            ],
            &[],
        ),
    },
    Step {
        name: "guard",
        what: "the work per packet has not grown: instruction counts of wire, protocol and engine",
        needs: VALGRIND,
        tier: Tier::Always,
        action: Action::Look(guard::check),
    },
    Step {
        name: "docs",
        what: "the examples in the documentation compile and work",
        needs: PACKAGES,
        tier: Tier::Always,
        action: Action::Cargo(&["test", "--locked", "--workspace", "--doc"], &[]),
    },
    Step {
        name: "harness",
        what: "5,000 seeds of the protocol in a lossy, reordering, virtual network",
        needs: NOTHING,
        tier: Tier::Short,
        action: Action::Cargo(
            &[
                "run", "--locked", "--quiet", "--bin", "mrc-sim", "--", "harness", "--seeds", "5000",
            ],
            &[],
        ),
    },
    Step {
        name: "harness-full",
        what: "100,000 seeds of the same",
        needs: NOTHING,
        tier: Tier::Full,
        action: Action::Cargo(
            &[
                "run", "--locked", "--quiet", "--bin", "mrc-sim", "--", "harness", "--seeds", "100000",
            ],
            &[],
        ),
    },
    Step {
        name: "lab",
        what: "namespaces, BPF programs, AF_XDP ports, engine, verbs and tools in the lab",
        needs: ROOT,
        tier: Tier::Always,
        action: Action::Cargo(
            &[
                "test",
                "--locked",
                "--no-fail-fast",
                "--test",
                "*",
                "-p",
                "netns-lab",
                "-p",
                "mrc-ebpf",
                "-p",
                "mrc-dataplane",
                "-p",
                "mrc-verbs",
                "-p",
                "mrc-perf",
                "-p",
                "mrc-bench",
                "-p",
                "mrc-demo",
            ],
            &[ONE_AT_A_TIME],
        ),
    },
    Step {
        name: "end-to-end",
        what: "real writes between hosts: sizes, PMTUs, families, planes, failures",
        needs: ROOT,
        tier: Tier::Always,
        action: Action::Cargo(
            &[
                "test",
                "--locked",
                "-p",
                "mrc-tests",
                "-p",
                "mrc-bench",
                "-p",
                "mrc-demo",
            ],
            &[ONE_AT_A_TIME],
        ),
    },
    Step {
        name: "scenarios",
        what: "scenarios of the lab that are short and do not need a fast machine",
        needs: ROOT,
        tier: Tier::Always,
        action: Action::Cargo(
            &[
                "run",
                "--locked",
                "--quiet",
                "--bin",
                "netns-lab",
                "--",
                "run",
                "--retry",
                "2",
                "rebalance",
                "port-status",
                "gray-link",
                "srv6-conformance",
                "nic-link-flap",
                "reverse-path",
            ],
            &[],
        ),
    },
    Step {
        name: "demo",
        what: "the demo, with less data",
        needs: ROOT,
        tier: Tier::Short,
        action: Action::Cargo(
            &["run", "--locked", "--quiet", "-p", "mrc-demo", "--", "--mib", "128"],
            &[],
        ),
    },
    Step {
        name: "demo-full",
        what: "the demo as users see it, a gibibyte",
        needs: ROOT,
        tier: Tier::Full,
        action: Action::Cargo(&["run", "--locked", "--quiet", "--release", "-p", "mrc-demo"], &[]),
    },
];

/// Which steps are asked for.
pub(crate) struct Selection {
    /// The long version.
    pub full: bool,
    /// Only these; all if empty.
    pub only: Vec<String>,
}

impl Selection {
    /// The steps asked for, in the table's order. Steps named expressly run whatever their tier.
    pub(crate) fn steps(&self) -> Result<Vec<Step>, String> {
        if let Some(unknown) = self
            .only
            .iter()
            .find(|name| STEPS.iter().all(|step| step.name != **name))
        {
            let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
            return Err(format!(
                "no test step is called {unknown:?}; there are {}",
                names.join(", ")
            ));
        }
        let wanted = |step: &&Step| {
            if self.only.is_empty() {
                match step.tier {
                    Tier::Always => true,
                    Tier::Short => !self.full,
                    Tier::Full => self.full,
                }
            } else {
                self.only.iter().any(|name| name == step.name)
            }
        };
        Ok(STEPS.iter().filter(wanted).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn names(full: bool, only: &[&str]) -> Vec<&'static str> {
        let selection = Selection {
            full,
            only: only.iter().map(|&name| name.to_owned()).collect(),
        };
        selection.steps().unwrap().iter().map(|step| step.name).collect()
    }

    #[test]
    fn names_are_unique() {
        let unique: HashSet<_> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(unique.len(), STEPS.len());
    }

    #[test]
    fn the_long_version_replaces_the_short_steps_it_contains() {
        let (short, full) = (names(false, &[]), names(true, &[]));
        assert!(short.contains(&"harness") && !short.contains(&"harness-full"));
        assert!(!full.contains(&"harness") && full.contains(&"harness-full"));
        assert!(short.contains(&"end-to-end") && full.contains(&"end-to-end"));
    }

    #[test]
    fn named_steps_come_in_the_order_of_the_table() {
        assert_eq!(names(false, &["clippy", "format"]), ["format", "clippy"]);
        assert_eq!(names(false, &["harness-full"]), ["harness-full"]);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let error = Selection {
            full: false,
            only: vec!["nosuch".to_owned()],
        }
        .steps()
        .unwrap_err();
        assert!(error.contains("nosuch") && error.contains("end-to-end"), "{error}");
    }

    #[test]
    fn what_needs_root_needs_the_packages_too() {
        assert!(STEPS.iter().all(|step| !step.needs.root || step.needs.packages));
    }
}
