//! The plan for people: `netns-lab show`.

use std::fmt;

use super::{Plan, Prefix, Role};
use crate::fabric::{FabricSpec, Overflow};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.topology;
        let (name, planes) = (t.shape.name(), t.planes);
        writeln!(f, "topology {name}: {} hosts, {planes} planes, MTU {}", t.hosts, t.mtu)?;
        if let Some(spec) = &t.fabric {
            writeln!(
                f,
                "per plane: {} T0, {} T1, {} hosts under each T0",
                spec.t0, spec.t1, spec.hosts_per_t0
            )?;
            writeln!(f, "routing {}, seed {}", spec.routing, spec.seed)?;
            write_queue(f, spec, "hosts", spec.host_link_bps, spec.queue.ecn_last_hop)?;
            if spec.t1 > 0 {
                write_queue(f, spec, "switches", spec.fabric_link_bps, true)?;
            }
        }
        for node in &self.nodes {
            let role = match node.role {
                Role::Host => "host",
                Role::Switch => "switch",
                Role::Management => "management bridge",
            };
            writeln!(f, "\n{} ({role})", node.name)?;
            if !node.loopback.is_empty() {
                writeln!(f, "  lo      {}", join(&node.loopback))?;
            }
            for (index, interface) in node.interfaces.iter().enumerate() {
                let here = node.name.as_str();
                let far = self
                    .links
                    .iter()
                    .flat_map(|l| [(l.ends[0], l.ends[1]), (l.ends[1], l.ends[0])]);
                let far = far.filter(|(a, _)| self.nodes[a.node].name == here && a.interface == index);
                let far: String = far.map(|(_, b)| self.end_name(b)).collect();
                write!(f, "  {:<7} to {far:<12}", interface.name)?;
                writeln!(f, " {}", join(&interface.addresses))?;
            }
        }
        writeln!(f, "\nlinks")?;
        for link in self.fabric_links() {
            let rate = self.interface(link.ends[0]).rate_bps;
            let rate = rate.map_or(String::new(), |bps| format!("{} Mbit/s", bps as f64 / 1e6));
            writeln!(f, "  {:<18} {rate}", self.link_name(link))?;
        }
        for (source, destination) in self.pairs() {
            let paths = self.paths(source, destination);
            if !paths.is_empty() {
                writeln!(f, "\npaths from h{source} to h{destination}")?;
            }
            for path in paths {
                writeln!(
                    f,
                    "  {:<8} {:<42} {}",
                    path.name,
                    path.ev.to_string(),
                    path.links.join(" ")
                )?;
            }
        }
        writeln!(f, "\nenvironment of every command")?;
        for (name, value) in self.env() {
            writeln!(f, "  {name}={value}")?;
        }
        Ok(())
    }
}

fn join(prefixes: &[Prefix]) -> String {
    prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>().join("  ")
}

/// What the queues of ports to hosts, or to switches, do at how many bytes.
fn write_queue(f: &mut fmt::Formatter<'_>, spec: &FabricSpec, to: &str, rate: u64, marks: bool) -> fmt::Result {
    let queue = &spec.queue;
    let bytes = |time_us| FabricSpec::bytes(rate, time_us);
    write!(f, "queues of ports to {to}: {} bytes, then ", bytes(queue.limit_us))?;
    match queue.overflow {
        Overflow::Trim => write!(f, "trimmed to {} bytes", queue.trim_bytes)?,
        Overflow::Drop => f.write_str("dropped")?,
    }
    if marks && queue.ecn_max_percent > 0 {
        let (min, max) = (bytes(queue.ecn_min_us), bytes(queue.ecn_max_us));
        writeln!(f, "; marks from {min} to {max} bytes")
    } else {
        writeln!(f, "; no marks")
    }
}
