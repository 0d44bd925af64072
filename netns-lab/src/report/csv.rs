//! The series as tables.

use std::fmt::Write as _;

use crate::run::Record;
use crate::scenario::human_bytes;
use crate::verdict::times_ms;

/// A line per sample and plane of each host, with what has happened since the start; then a line per sample and connection end.
pub(crate) fn series(record: &Record) -> String {
    let mut text = String::from(
        "seconds,host,what,plane_or_connection,tx_data_bytes,rx_data_bytes,packets_sent,packets_again,paths_active,paths_skip,paths_bad,paths_denied,paths_backup,cpu_s\n",
    );
    for (host, samples) in record.samples.iter().enumerate() {
        for sample in samples {
            let at = record.seconds_of(sample.at_ns);
            for (plane, port) in sample.ports.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "{at:.4},h{host},port,p{},{},{},{},{},,,,,,{:.3}",
                    plane + 1,
                    port.tx_data_bytes,
                    port.rx_data_bytes,
                    port.tx_packets,
                    port.retransmissions,
                    sample.cpu_s
                );
            }
            for end in &sample.ends {
                let name = record
                    .scenario
                    .workload
                    .get(end.id)
                    .map_or("", |workload| &workload.name);
                let sum = |pick: fn(&crate::agent::PathCounts) -> u32| end.paths.iter().map(pick).sum::<u32>();
                let _ = writeln!(
                    text,
                    "{at:.4},h{host},connection,{name}.{},,{},{},{},{},{},{},{},{},{:.3}",
                    end.flow,
                    end.delivered_bytes,
                    end.packets_sent,
                    end.packets_again,
                    sum(|paths| paths.active),
                    sum(|paths| paths.skip),
                    sum(|paths| paths.bad),
                    sum(|paths| paths.denied),
                    sum(|paths| paths.backup),
                    sample.cpu_s
                );
            }
        }
    }
    text
}

/// A line per message.
pub(crate) fn messages(record: &Record) -> String {
    let mut text = String::from("workload,transport,size,milliseconds\n");
    for (place, workload) in record.scenario.workload.iter().enumerate() {
        for size in workload.all_sizes() {
            for time in times_ms(record, place, Some(size)) {
                let (name, label) = (&workload.name, workload.transport.label());
                let _ = writeln!(text, "{name},{label},{},{time:.4}", human_bytes(size));
            }
        }
    }
    text
}
