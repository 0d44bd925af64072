//! What a parser cannot see: names that must exist, ranges, keys that do not go together.

use std::ops::RangeInclusive;

use netns_lab::plan::Plan;

use super::criterion::{Criterion, Measure};
use super::timeline::Moment;
use super::workload::{Hosts, Iterations, Kind, Workload, host_number};
use super::{MAX_SECONDS, Scenario};

/// What is wrong, in one line.
type Wrong = String;

/// Bytes that a host registers for one workload at most.
const MAX_MEMORY: u64 = 512 << 20;

/// Checks a scenario whole.
pub(super) fn check(scenario: &Scenario) -> Result<(), Wrong> {
    if scenario.title.is_empty() || scenario.title.contains('\n') {
        return Err("title: give one line that says what is shown".to_owned());
    }
    within("seconds", scenario.seconds, 0.0..=MAX_SECONDS)?;
    within("sample_ms", scenario.sample_ms as f64, 10.0..=1000.0)?;
    scenario
        .topology
        .topology(scenario.seed)
        .validate()
        .map_err(|e| format!("topology: {e}"))?;
    if let Some(reference) = &scenario.reference {
        let topology = reference.topology.topology(scenario.seed);
        topology.validate().map_err(|e| format!("reference.topology: {e}"))?;
        if (topology.hosts, topology.planes) != (scenario.topology.hosts(), scenario.topology.planes()) {
            return Err("reference.topology: it needs as many hosts and planes as topology has".to_owned());
        }
    }
    if scenario.workload.is_empty() {
        return Err("workload: there is none; write at least one [[workload]]".to_owned());
    }
    for (place, workload) in scenario.workload.iter().enumerate() {
        check_workload(scenario, place, workload)?;
    }
    for (place, moment) in scenario.timeline.iter().enumerate() {
        check_moment(scenario, place, moment)?;
    }
    for criterion in &scenario.criterion {
        check_criterion(scenario, criterion)?;
    }
    Ok(())
}

fn within(key: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), Wrong> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(format!("{key} = {value}: give {} to {}", range.start(), range.end()))
}

fn known_host(scenario: &Scenario, key: &str, name: &str) -> Result<usize, Wrong> {
    let hosts = scenario.topology.hosts();
    match host_number(name) {
        Some(host) if host < hosts => Ok(host),
        _ => Err(format!("{key} = \"{name}\": hosts are h0 to h{}", hosts - 1)),
    }
}

fn known_hosts(scenario: &Scenario, key: &str, names: &Hosts, least: usize) -> Result<(), Wrong> {
    let names = names.names();
    if names.len() < least {
        return Err(format!("{key}: {} hosts, give at least {least}", names.len()));
    }
    for (place, name) in names.iter().enumerate() {
        known_host(scenario, key, name)?;
        if names[..place].contains(name) {
            return Err(format!("{key}: \"{name}\" stands there twice"));
        }
    }
    Ok(())
}

/// What `after` may name: a workload above, so that there are no circles.
fn known_before(scenario: &Scenario, key: &str, place: usize, after: Option<&String>) -> Result<(), Wrong> {
    let Some(after) = after else { return Ok(()) };
    match scenario.place(after) {
        Some(before) if before < place => Ok(()),
        Some(_) => Err(format!("{key} = \"{after}\": it has to stand above in the file")),
        None => Err(format!("{key} = \"{after}\": no workload has this name")),
    }
}

fn check_workload(scenario: &Scenario, place: usize, workload: &Workload) -> Result<(), Wrong> {
    if workload.name.is_empty() || ["capacity", "reference"].contains(&workload.name.as_str()) {
        return Err(format!(
            "workload {place}: name = \"{}\": give it a name of its own (\"capacity\" and \"reference\" are taken)",
            workload.name
        ));
    }
    if scenario.place(&workload.name) != Some(place) {
        return Err(format!("workload {place}: name = \"{}\" is taken", workload.name));
    }
    let kind = workload.kind.name();
    let key = |key: &str| format!("workload {}: {key}", workload.name);
    known_before(scenario, &key("after"), place, workload.after.as_ref())?;
    let stranger = |name: &str, is_there: bool| {
        if is_there {
            return Err(format!("{}: kind \"{kind}\" has no such key", key(name)));
        }
        Ok(())
    };
    if workload.kind.is_collective() {
        stranger("from", workload.from.is_some())?;
        stranger("to", workload.to.is_some())?;
        stranger("depth", workload.depth.is_some())?;
        stranger("seconds", workload.seconds.is_some())?;
        stranger("qps", workload.qps.is_some())?;
        if let Some(hosts) = &workload.hosts {
            known_hosts(scenario, &key("hosts"), hosts, 2)?;
        }
        let ranks = workload.ranks(scenario.topology.hosts()).len();
        if workload.kind == Kind::Pairs && !ranks.is_multiple_of(2) {
            return Err(format!("{}: {ranks} hosts, pairs need an even number", key("hosts")));
        }
        check_collective_sizes(workload, ranks)?;
    } else {
        stranger("hosts", workload.hosts.is_some())?;
        stranger("sizes", !workload.sizes.is_empty())?;
        for (name, hosts) in [("from", &workload.from), ("to", &workload.to)] {
            let hosts = hosts
                .as_ref()
                .ok_or_else(|| format!("{}: is missing; give a host, as in \"h0\", or a list", key(name)))?;
            known_hosts(scenario, &key(name), hosts, 1)?;
        }
        if workload.flows(scenario.topology.hosts()).is_empty() {
            return Err(format!("{}: nobody is left to write to", key("to")));
        }
    }
    if workload.kind != Kind::Write {
        stranger("both", workload.both)?;
        stranger("burst", workload.burst.is_some())?;
        stranger("every", workload.every.is_some())?;
    }
    if workload.kind == Kind::Latency {
        stranger("depth", workload.depth.is_some())?;
        stranger("qps", workload.qps.is_some())?;
    }
    if workload.kind == Kind::Write {
        stranger("iterations", workload.iterations.is_some())?;
    }
    if workload.burst.is_some() != workload.every.is_some() {
        return Err(format!("{}: burst and every go together", key("burst")));
    }
    for (name, value, range) in [
        (
            "size",
            workload.size.map(|size| size.0 as f64),
            1.0..=(256 << 20) as f64,
        ),
        ("qps", workload.qps.map(|qps| qps as f64), 1.0..=64.0),
        ("depth", workload.depth.map(f64::from), 1.0..=1024.0),
        ("burst", workload.burst.map(f64::from), 1.0..=1024.0),
        ("every", workload.every, 0.001..=60.0),
        ("start", Some(workload.start), 0.0..=MAX_SECONDS),
        ("seconds", workload.seconds, 0.05..=MAX_SECONDS),
    ] {
        if let Some(value) = value {
            within(&key(name), value, range)?;
        }
    }
    for count in workload.iterations.iter().flat_map(Iterations::all) {
        within(&key("iterations"), f64::from(*count), 1.0..=100_000.0)?;
    }
    if let Some(Iterations::BySize(counts)) = &workload.iterations
        && counts.len() != workload.sizes.len()
    {
        return Err(format!(
            "{}: {} numbers for {} sizes; name one for each of sizes, or one for all",
            key("iterations"),
            counts.len(),
            workload.sizes.len()
        ));
    }
    if workload.kind == Kind::Write && workload.seconds.is_none() && workload.after.is_some() {
        return Err(format!(
            "{}: is missing; a stream after another workload has no end of its own",
            key("seconds")
        ));
    }
    if workload.kind == Kind::Write && workload.seconds.is_none() && scenario.seconds <= workload.start {
        return Err(format!(
            "{}: is missing, and the scenario's own seconds ({}) end before its start",
            key("seconds"),
            scenario.seconds
        ));
    }
    let memory = workload.all_sizes()[0].saturating_mul(u64::from(workload.outstanding()))
        * workload.flows(scenario.topology.hosts()).len() as u64;
    if !workload.kind.is_collective() && memory > MAX_MEMORY {
        return Err(format!(
            "{}: size times depth times connections is {memory} B, more than {MAX_MEMORY}",
            key("size")
        ));
    }
    Ok(())
}

fn check_collective_sizes(workload: &Workload, ranks: usize) -> Result<(), Wrong> {
    for size in workload.all_sizes() {
        let unit = 4 * ranks as u64;
        if size == 0 || !size.is_multiple_of(unit) || size > MAX_MEMORY / 8 {
            return Err(format!(
                "workload {}: size {size} B: {ranks} ranks take multiples of {unit} B up to {} B",
                workload.name,
                MAX_MEMORY / 8
            ));
        }
    }
    Ok(())
}

fn check_moment(scenario: &Scenario, place: usize, moment: &Moment) -> Result<(), Wrong> {
    let key = |key: &str| format!("timeline {place}: {key}");
    within(&key("at"), moment.at, -1.0..=MAX_SECONDS)?;
    known_before(scenario, &key("after"), scenario.workload.len(), moment.after.as_ref())?;
    if moment.is_empty() {
        return Err(format!(
            "{}: nothing happens; give fault, heal, heal_all, deny or allow",
            key("fault")
        ));
    }
    let plan = Plan::new(&scenario.topology.topology(scenario.seed)).map_err(|e| format!("topology: {e}"))?;
    for (name, faults) in [("fault", &moment.fault), ("heal", &moment.heal)] {
        for fault in faults {
            fault.check(&plan).map_err(|e| format!("{}: {e}", key(name)))?;
        }
    }
    for (name, denials) in [("deny", &moment.deny), ("allow", &moment.allow)] {
        for denial in denials {
            known_host(scenario, &key(name), &denial.host)?;
            known_host(scenario, &key(name), &denial.to)?;
            if denial.plane.is_some() == denial.path.is_some() {
                return Err(format!("{}: give either a plane or a path", key(name)));
            }
            if let Some(plane) = denial.plane {
                within(&key("plane"), plane as f64, 1.0..=scenario.topology.planes() as f64)?;
            }
        }
    }
    Ok(())
}

fn check_criterion(scenario: &Scenario, criterion: &Criterion) -> Result<(), Wrong> {
    let key = |key: &str| format!("criterion \"{}\": {key}", criterion.name);
    if criterion.at_least.is_none() && criterion.at_most.is_none() {
        return Err(format!(
            "{}: is missing, and so is at_most; give one of them",
            key("at_least")
        ));
    }
    let workload = match &criterion.workload {
        Some(name) => Some(
            scenario
                .workload(name)
                .ok_or_else(|| format!("{} = \"{name}\": no workload has this name", key("workload")))?,
        ),
        None if !criterion.measure.is_of_workload() => None,
        None => return Err(format!("{}: is missing", key("workload"))),
    };
    match criterion.of.as_deref() {
        Some("capacity") if scenario.topology.host_link_bps().is_none() => {
            return Err(format!(
                "{} = \"capacity\": the links of this topology are as fast as the machine; leave shape out for links with a speed",
                key("of")
            ));
        }
        Some("reference") => {
            let fits = matches!(criterion.measure, Measure::Time | Measure::Goodput);
            if scenario.reference.is_none() || !fits {
                return Err(format!(
                    "{} = \"reference\": needs a [reference], and measure time or goodput",
                    key("of")
                ));
            }
        }
        None | Some("capacity") => {}
        Some(name) if scenario.workload(name).is_some() => {}
        Some(name) => {
            return Err(format!(
                "{} = \"{name}\": give \"capacity\" or a workload's name",
                key("of")
            ));
        }
    }
    let needs = |name: &str, is_there: bool| {
        if is_there {
            return Ok(());
        }
        Err(format!("{}: is missing, this measure needs it", key(name)))
    };
    match criterion.measure {
        Measure::Recovery => {
            needs("reaches", criterion.reaches.is_some())?;
            needs("of", criterion.of.is_some())?;
            needs("from", criterion.from.is_some())?;
        }
        Measure::Speed => needs("of", criterion.of.is_some())?,
        Measure::PlaneLeft => {
            needs("from", criterion.from.is_some())?;
            needs("plane", criterion.plane.is_some())?;
            let host = criterion.host.as_deref();
            needs("host", host.is_some())?;
            known_host(scenario, &key("host"), host.unwrap_or_default())?;
        }
        _ => {}
    }
    if let (Some(size), Some(workload)) = (criterion.size, workload)
        && !workload.all_sizes().contains(&size.0)
    {
        return Err(format!(
            "{} = {}: workload {} has no such size",
            key("size"),
            size.0,
            workload.name
        ));
    }
    for (name, value, range) in [
        ("share", criterion.share, 0.001..=1.0),
        ("window", criterion.window, 0.05..=60.0),
        ("settle", criterion.settle, 0.0..=60.0),
        ("reaches", criterion.reaches, 0.01..=1.0),
        ("percentile", criterion.percentile, 0.0..=100.0),
        ("from", criterion.from, 0.0..=MAX_SECONDS),
        ("to", criterion.to, 0.0..=MAX_SECONDS),
    ] {
        if let Some(value) = value {
            within(&key(name), value, range)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::file::parse;

    const GOOD: &str = r#"
title = "A stream"
seconds = 2
[topology]
planes = 4
t0 = 1
t1 = 0
hosts_per_t0 = 3
[[workload]]
name = "stream"
kind = "write"
from = "h0"
to = ["h1", "h2"]
size = "32 KiB"
[[timeline]]
at = 1
fault = [{ link-down = "h0-t0.0.p2" }]
[[criterion]]
name = "fast"
measure = "goodput"
workload = "stream"
of = "capacity"
at_least = 0.9
"#;

    fn refusal(replace: &str, by: &str) -> String {
        assert!(GOOD.contains(replace), "{replace}");
        let message = parse("x.toml", &GOOD.replace(replace, by)).unwrap_err().to_string();
        assert!(message.starts_with("x.toml: ") && !message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn a_good_file_is_read() {
        let scenario = parse("x.toml", GOOD).unwrap();
        let flows = scenario.workload[0].flows(3);
        assert_eq!(
            flows.iter().map(|flow| (flow.from, flow.to)).collect::<Vec<_>>(),
            [(0, 1), (0, 2)]
        );
        assert_eq!(scenario.workload[0].all_sizes(), [32768]);
    }

    #[test]
    fn refusals_name_the_file_the_key_the_value_and_the_limit() {
        for (replace, by, expected) in [
            ("seconds = 2", "seconds = 2000", "seconds = 2000: give 0 to 600"),
            ("seconds = 2", "secs = 2", "line 3: unknown field `secs`"),
            (
                "planes = 4",
                "planes = 9",
                "topology: planes is 9: topology 'fabric' takes 1 to 8",
            ),
            ("t1 = 0", "t2 = 0", "unknown field `t2`"),
            (
                "planes = 4\nt0 = 1\nt1 = 0\nhosts_per_t0 = 3",
                "shape = \"torus\"",
                "unknown variant `torus`",
            ),
            (
                "\"h1\", \"h2\"",
                "\"h9\"",
                "workload stream: to = \"h9\": hosts are h0 to h2",
            ),
            ("\"h1\", \"h2\"", "\"h1\", \"h1\"", "\"h1\" stands there twice"),
            ("\"h1\", \"h2\"", "\"h0\"", "nobody is left to write to"),
            (
                "from = \"h0\"",
                "hosts = \"h0\"",
                "hosts: kind \"write\" has no such key",
            ),
            ("32 KiB", "32 kB", "'32 kB' is no size"),
            ("32 KiB", "100 MiB", "more than 536870912"),
            (
                "name = \"stream\"",
                "name = \"capacity\"",
                "\"capacity\" and \"reference\" are taken",
            ),
            ("size =", "burst = 4\nsize =", "burst and every go together"),
            (
                "size =",
                "after = \"later\"\nsize =",
                "after = \"later\": no workload has this name",
            ),
            (
                "size =",
                "after = \"stream\"\nsize =",
                "it has to stand above in the file",
            ),
            (
                "size =",
                "depth = 0\nsize =",
                "workload stream: depth = 0: give 1 to 1024",
            ),
            ("h0-t0.0.p2", "h0-t0.0.p9", "timeline 0: fault: "),
            ("link-down", "link-gone", "unknown variant `link-gone`"),
            (
                "fault = [{ link-down = \"h0-t0.0.p2\" }]",
                "",
                "timeline 0: fault: nothing happens",
            ),
            ("at_least = 0.9", "", "criterion \"fast\": at_least: is missing"),
            (
                "of = \"capacity\"",
                "of = \"other\"",
                "give \"capacity\" or a workload's name",
            ),
            ("measure = \"goodput\"", "measure = \"recovery\"", "reaches: is missing"),
            (
                "workload = \"stream\"",
                "workload = \"x\"",
                "workload = \"x\": no workload has this name",
            ),
        ] {
            let message = refusal(replace, by);
            assert!(message.contains(expected), "{message}\nshould contain\n{expected}");
        }
    }

    #[test]
    fn capacity_needs_links_with_a_speed() {
        let plain = GOOD
            .replace(
                "planes = 4\nt0 = 1\nt1 = 0\nhosts_per_t0 = 3",
                "shape = \"leaf\"\nhosts = 3",
            )
            .replace("h0-t0.0.p2", "h0-t0.p2");
        let message = parse("x.toml", &plain).unwrap_err().to_string();
        assert!(
            message.contains("the links of this topology are as fast as the machine"),
            "{message}"
        );
    }

    #[test]
    fn collectives_take_sizes_that_their_ranks_can_share() {
        let ring = "kind = \"all-reduce\"\nsizes = [\"64 KiB\", 100]\n";
        let text = GOOD.replace(
            "kind = \"write\"\nfrom = \"h0\"\nto = [\"h1\", \"h2\"]\nsize = \"32 KiB\"",
            ring,
        );
        let message = parse("x.toml", &text).unwrap_err().to_string();
        assert!(
            message.contains("size 65536 B: 3 ranks take multiples of 12 B"),
            "{message}"
        );
    }
}
