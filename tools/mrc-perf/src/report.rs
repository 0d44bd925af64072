//! The table and the JSON object.

use std::fmt::Arguments;
use std::io::Write;

use mrc_verbs::{Agreement, QpQuery, Snapshot};
use serde_json::{Value, json};

use crate::cli::{Op, Plan, Test};
use crate::failure::Failure;
use crate::stats::{Bandwidth, Latency};

const RULE: &str = "---------------------------------------------------------------------------------------";
const MIB: f64 = 1024.0 * 1024.0;

/// Collects and prints results.
pub(crate) struct Report {
    json: bool,
    gbits: bool,
    head: Value,
    rows: Vec<Value>,
}

impl Report {
    /// Prints the head of the table.
    pub(crate) fn begin(
        plan: &Plan,
        agreed: &Agreement,
        ports: &[String],
        json_wanted: bool,
    ) -> Result<Report, Failure> {
        let (test, op) = (name(plan), if plan.op == Op::Write { "write" } else { "write-imm" });
        if !json_wanted {
            line(format_args!("{RULE}"))?;
            line(format_args!("                    {test}"))?;
            line(format_args!(
                " Number of qps   : {:<12} Depth          : {}",
                plan.qps, plan.depth
            ))?;
            line(format_args!(
                " Mtu             : {:<12} Ports          : {}",
                agreed.pmtu,
                ports.join(",")
            ))?;
            line(format_args!(
                " Data verified   : {:<12} Bidirectional  : {}",
                on(plan.verify),
                on(plan.bidirectional)
            ))?;
            line(format_args!(
                " GID             : {} -> {}",
                agreed.local_gid, agreed.peer_gid
            ))?;
            line(format_args!("{RULE}"))?;
            line(format_args!("{}", header(plan)))?;
        }
        let head = json!({
            "test": if plan.test == Test::Bw { "bw" } else { "lat" },
            "op": op,
            "qps": plan.qps,
            "depth": plan.depth,
            "pmtu": agreed.pmtu,
            "ports": ports,
            "gid": agreed.local_gid.to_string(),
            "peer_gid": agreed.peer_gid.to_string(),
            "bidirectional": plan.bidirectional,
            "verify": plan.verify,
        });
        Ok(Report {
            json: json_wanted,
            gbits: plan.gbits,
            head,
            rows: Vec::new(),
        })
    }

    /// One size of a bandwidth test: one direction, or both.
    pub(crate) fn bandwidth(&mut self, size: u64, directions: &[Bandwidth]) -> Result<(), Failure> {
        let iterations = directions
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(one.messages));
        let average: f64 = directions.iter().map(Bandwidth::msg_per_s).sum();
        let peak: f64 = directions.iter().map(|one| one.peak_msg_per_s).sum();
        let elapsed_ns = directions.iter().map(|one| one.elapsed_ns).max().unwrap_or(0);
        let unit = if self.gbits { 8.0 / 1e9 } else { 1.0 / MIB };
        if !self.json {
            line(format_args!(
                " {size:<10} {iterations:<13} {:<18.2} {:<20.2} {:<12.6}",
                peak * size as f64 * unit,
                average * size as f64 * unit,
                average / 1e6
            ))?;
        }
        self.rows.push(json!({
            "bytes": size,
            "iterations": iterations,
            "elapsed_s": elapsed_ns as f64 / 1e9,
            "bw_peak_mb_s": peak * size as f64 / MIB,
            "bw_average_mb_s": average * size as f64 / MIB,
            "bw_average_gbit_s": average * size as f64 * 8.0 / 1e9,
            "msg_rate_mpps": average / 1e6,
        }));
        Ok(())
    }

    /// One size of a latency test.
    pub(crate) fn latency(&mut self, size: u64, latency: &Latency) -> Result<(), Failure> {
        let Latency {
            iterations,
            min_us,
            max_us,
            typical_us,
            avg_us,
            stdev_us,
            p99_us,
            p999_us,
        } = *latency;
        if !self.json {
            line(format_args!(
                " {size:<8} {iterations:<13} {min_us:<14.2} {max_us:<14.2} {typical_us:<18.2} {avg_us:<14.2} {stdev_us:<16.2} {p99_us:<22.2} {p999_us:<20.2}"
            ))?;
        }
        self.rows.push(json!({
            "bytes": size,
            "iterations": iterations,
            "t_min_us": min_us,
            "t_max_us": max_us,
            "t_typical_us": typical_us,
            "t_avg_us": avg_us,
            "t_stdev_us": stdev_us,
            "p99_us": p99_us,
            "p999_us": p999_us,
        }));
        Ok(())
    }

    /// The end of the table, or the whole object.
    pub(crate) fn end(mut self, counters: &Snapshot, qp: Option<&QpQuery>) -> Result<(), Failure> {
        let shares = shares(counters);
        if !self.json {
            line(format_args!("{RULE}"))?;
            let planes = counters.ports.iter().zip(&shares);
            let planes: Vec<_> = planes
                .map(|(port, share)| format!("{} {share:.1}", port.name))
                .collect();
            line(format_args!(
                " Data sent [%]   : {:<28} Retransmissions: {}",
                planes.join(", "),
                counters.retransmissions()
            ))?;
            if let Some(qp) = qp {
                let window = qp.window.and_then(|window| window.cwnd_bytes);
                let cwnd = window.map_or_else(|| "packets per port".to_owned(), |bytes| format!("{bytes} bytes"));
                line(format_args!(
                    " Window          : {cwnd:<28} Round trip     : {:.1} us",
                    qp.rtt_ns.0 as f64 / 1e3
                ))?;
                line(format_args!(
                    " EV profile      : {:<28} CC profile     : {}",
                    qp.ev_profile, qp.cc_profile
                ))?;
            }
            return line(format_args!("{RULE}"));
        }
        self.head["results"] = Value::Array(self.rows);
        self.head["engine"] = json!({
            "retransmissions": counters.retransmissions(),
            "evs_withdrawn": counters.evs_withdrawn(),
            "evs_returned": counters.evs_returned(),
            "tx_packets_by_port": counters.ports.iter().map(|port| port.tx_packets).collect::<Vec<_>>(),
            "rx_packets_by_port": counters.ports.iter().map(|port| port.rx_packets).collect::<Vec<_>>(),
            "tx_data_bytes_by_port": counters.ports.iter().map(|port| port.tx_data_bytes).collect::<Vec<_>>(),
            "tx_data_share_by_port": shares,
            "retransmissions_by_port": counters.ports.iter().map(|port| port.retransmissions).collect::<Vec<_>>(),
        });
        self.head["queue_pair"] = qp.map_or(Value::Null, queue_pair);
        line(format_args!("{}", self.head))
    }
}

/// How much of the data each port has sent, in percent.
fn shares(counters: &Snapshot) -> Vec<f64> {
    let all: u64 = counters.ports.iter().map(|port| port.tx_data_bytes).sum();
    let ports = counters.ports.iter();
    ports
        .map(|port| 100.0 * port.tx_data_bytes as f64 / all.max(1) as f64)
        .collect()
}

/// What the first queue pair says at the end.
fn queue_pair(qp: &QpQuery) -> Value {
    json!({
        "ev_profile": qp.ev_profile,
        "cc_profile": qp.cc_profile,
        "rtt_us": qp.rtt_ns.0 as f64 / 1e3,
        "rtt_variation_us": qp.rtt_ns.1 as f64 / 1e3,
        "cwnd_bytes": qp.window.and_then(|window| window.cwnd_bytes),
        "max_cwnd_bytes": qp.window.and_then(|window| window.max_wnd_bytes),
        "base_rtt_us": qp.window.map(|window| window.base_rtt_ns as f64 / 1e3),
        "queueing_delay_us": qp.window.and_then(|window| window.avg_delay_ns).map(|ns| ns as f64 / 1e3),
        "packets_sent": qp.stats.packets_sent,
        "packets_retransmitted": qp.stats.packets_retransmitted,
        "losses_spurious": qp.stats.losses_spurious,
    })
}

/// Writes a line to standard output, which may be a full disk or a pipe that nobody reads any more.
fn line(text: Arguments<'_>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| {
        Failure::Setup(format!(
            "cannot write the results: {error}; check where standard output goes"
        ))
    })
}

fn name(plan: &Plan) -> String {
    let op = if plan.op == Op::Write {
        "Write"
    } else {
        "Write with Immediate"
    };
    match plan.test {
        Test::Bw if plan.bidirectional => format!("MRC {op} Bidirectional BW Test"),
        Test::Bw => format!("MRC {op} BW Test"),
        Test::Lat => format!("MRC {op} Latency Test"),
    }
}

fn header(plan: &Plan) -> String {
    match plan.test {
        Test::Bw => {
            let unit = if plan.gbits { "Gb/sec" } else { "MB/sec" };
            let (peak, average) = (format!("BW peak[{unit}]"), format!("BW average[{unit}]"));
            format!(
                " {:<10} {:<13} {peak:<18} {average:<20} {:<12}",
                "#bytes", "#iterations", "MsgRate[Mpps]"
            )
        }
        Test::Lat => format!(
            " {:<8} {:<13} {:<14} {:<14} {:<18} {:<14} {:<16} {:<22} {:<20}",
            "#bytes",
            "#iterations",
            "t_min[usec]",
            "t_max[usec]",
            "t_typical[usec]",
            "t_avg[usec]",
            "t_stdev[usec]",
            "99% percentile[usec]",
            "99.9% percentile[usec]"
        ),
    }
}

fn on(is_on: bool) -> &'static str {
    if is_on { "ON" } else { "OFF" }
}
