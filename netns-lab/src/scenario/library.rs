//! The scenarios that come with the program.

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        /// Their names, in the order of the list.
        pub(crate) const NAMES: &[&str] = &[$($name),*];

        /// The text of one.
        pub(crate) fn text_of(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../../scenarios/", $name, ".toml"))),)*
                _ => None,
            }
        }
    };
}

scenarios![
    "p2p-bandwidth",
    "nic-link-down",
    "nic-link-flap",
    "p2p-latency",
    "port-status",
    "allreduce-loss",
    "alltoall-loss",
    "t0-t1-down",
    "t0-t1-flap",
    "t0-down",
    "t1-down",
    "ev-loss-20",
    "startup-bad-paths",
    "incast-victim",
    "incast-trim",
    "gray-link",
    "rebalance",
    "ecmp",
    "structured-ev",
    "srv6-conformance",
    "reverse-path",
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_scenario_of_the_readme_can_be_read() {
        let readme = include_str!("../../README.md");
        let (_, section) = readme.split_once("## Scenarios").unwrap();
        let text = section
            .split("```toml")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let scenario = super::super::file::parse("README.md", text.unwrap()).unwrap();
        assert_eq!(scenario.timeline.len(), 2);
    }

    #[test]
    fn every_scenario_can_be_read() {
        for name in super::NAMES {
            let (read, scenario) = super::super::load(name).unwrap();
            assert_eq!(&read, name);
            assert!(!scenario.criterion.is_empty(), "{name} demands nothing");
        }
    }
}
