//! Whether the figures of a run can be trusted: a lab on a machine without time to spare measures the machine.

use crate::run::Record;

/// A stretch of time with less idle than this has none.
const NO_IDLE: f64 = 0.02;
/// Longest time without any that is no reason to doubt, seconds: engines that start, a burst.
const PATIENCE_S: f64 = 1.0;
/// Largest share of time without any.
const MOST_BUSY: f64 = 0.25;
/// Largest share of the processors that a hypervisor may give to others.
const MOST_STOLEN: f64 = 0.1;

/// Why not. `holds`: so do all criteria, which a machine that was taken away now and then does not help.
pub(super) fn doubts(record: &Record, holds: bool) -> Vec<String> {
    let mut doubts = Vec::new();
    doubts.extend(processors(record, holds));
    doubts.extend(lost_in_hosts(record));
    doubts.extend(unfinished(record));
    for (host, samples) in record.samples.iter().enumerate() {
        if samples.is_empty() {
            doubts.push(format!("could not measure: h{host} has sent no samples"));
        }
    }
    doubts
}

fn processors(record: &Record, holds: bool) -> Option<String> {
    let stretches = &record.processors;
    let (mut busy, mut longest, mut run, mut before, mut stolen) = (0.0, 0.0_f64, 0.0, 0.0, 0.0);
    for stretch in stretches {
        let length = stretch.at - before;
        before = stretch.at;
        stolen += stretch.stolen * length;
        if stretch.idle < NO_IDLE {
            busy += length;
            run += length;
            longest = longest.max(run);
        } else {
            run = 0.0;
        }
    }
    if before > 0.0 && stolen / before > MOST_STOLEN {
        let share = 100.0 * stolen / before;
        return (!holds).then(|| format!("the hypervisor gave {share:.0} % of the processors to others"));
    }
    if before > 0.0 && longest > PATIENCE_S && busy / before > MOST_BUSY {
        return Some(format!(
            "ran out of CPU: no idle time for {longest:.1} s on end and {:.0} % of the run; lower the link rates, or leave the machine to the lab",
            100.0 * busy / before
        ));
    }
    None
}

fn lost_in_hosts(record: &Record) -> Option<String> {
    let lost = |samples: &Vec<crate::agent::Sample>| samples.last().map_or(0, |sample| sample.lost_here);
    let by_host: Vec<(usize, u64)> = record
        .samples
        .iter()
        .map(lost)
        .enumerate()
        .filter(|(_, n)| *n > 0)
        .collect();
    let total: u64 = by_host.iter().map(|(_, lost)| lost).sum();
    let (host, _) = by_host.first()?;
    let sent: u64 = record
        .samples
        .iter()
        .filter_map(|samples| samples.last())
        .flat_map(|sample| sample.ports.iter().map(|port| port.tx_packets))
        .sum();
    // Losses that recovery has hidden a hundred times over are no reason to throw a run away.
    (total * 1000 > sent).then(|| {
        format!(
            "the lab lost {total} of {sent} packets in its own hosts' rings (h{host} first): not the fabric's doing"
        )
    })
}

fn unfinished(record: &Record) -> Option<String> {
    let place = record.workloads.iter().position(|ran| !ran.finished)?;
    Some(format!(
        "could not measure: {} did not end",
        record.scenario.workload[place].name
    ))
}
