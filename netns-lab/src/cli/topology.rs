//! What to build, as the command line says it.

use std::path::Path;
use std::str::FromStr;

use clap::Args;
use netns_lab::{FabricSpec, LabError, NAMES, Overflow, Routing, Topology};

#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    /// `pair`, `leaf`, `fabric`, or a TOML file with a `[topology]`
    topology: String,
    /// Number of planes, 1 to 16 (fabric: 1 to 8); each host has one port per plane [default: 4]
    #[arg(long, value_name = "P")]
    planes: Option<usize>,
    /// Number of hosts of `leaf`, 2 to 64 [default: 2]
    #[arg(long, value_name = "N")]
    hosts: Option<usize>,
    /// MTU of the fabric links in bytes, 1280 to 65535 [default: 9000]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Permanent neighbour entries instead of ARP and neighbour discovery (`fabric` has no others)
    #[arg(long)]
    static_neighbours: bool,
    #[command(flatten)]
    fabric: FabricArgs,
}

/// What only a fabric has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of a fabric")]
struct FabricArgs {
    /// T0 (leaf) switches per plane, 1 to 4 [default: 2]
    #[arg(long, value_name = "N")]
    t0: Option<usize>,
    /// T1 (spine) switches per plane, 1 to 4, or 0 with a single T0 [default: 2]
    #[arg(long, value_name = "N")]
    t1: Option<usize>,
    /// Hosts under each T0 [default: 1]
    #[arg(long, value_name = "N")]
    hosts_per_t0: Option<usize>,
    /// How switches choose ports: `ecmp`, `structured`, `srv6`, `srv6-kernel` [default: ecmp]
    #[arg(long, value_parser = routing)]
    routing: Option<Routing>,
    /// Speed of links between hosts and T0s, with k, M or G [default: 100M]
    #[arg(long, value_name = "BPS")]
    host_link: Option<Rate>,
    /// Speed of links between T0s and T1s [default: 100M]
    #[arg(long, value_name = "BPS")]
    fabric_link: Option<Rate>,
    /// What happens to packets that find a queue full: `trim` or `drop` [default: trim]
    #[arg(long, value_parser = overflow)]
    overflow: Option<Overflow>,
    /// What is drawn in the fabric starts from this [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u32>,
}

/// Bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no speed: a number of bits per second, as in 100M or 1G");
        let (number, unit) = match text.char_indices().last() {
            Some((at, 'k')) => (&text[..at], 1_000),
            Some((at, 'M')) => (&text[..at], 1_000_000),
            Some((at, 'G')) => (&text[..at], 1_000_000_000),
            _ => (text, 1),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(unit).map(Self).ok_or_else(wrong)
    }
}

fn routing(text: &str) -> Result<Routing, String> {
    [Routing::Ecmp, Routing::Structured, Routing::Srv6, Routing::Srv6Kernel]
        .into_iter()
        .find(|routing| routing.name() == text)
        .ok_or_else(|| "known are ecmp, structured, srv6 and srv6-kernel".to_owned())
}

fn overflow(text: &str) -> Result<Overflow, String> {
    match text {
        "trim" => Ok(Overflow::Trim),
        "drop" => Ok(Overflow::Drop),
        _ => Err("known are trim and drop".to_owned()),
    }
}

impl TopologyArgs {
    pub(crate) fn topology(&self) -> Result<Topology, LabError> {
        let is_file = Path::new(&self.topology).extension().is_some_and(|e| e == "toml") || self.topology.contains('/');
        if !is_file && !NAMES.contains(&self.topology.as_str()) {
            return Topology::named(&self.topology);
        }
        let mut topology = if is_file {
            Topology::fabric(FabricSpec::read(Path::new(&self.topology))?)
        } else {
            Topology::named(&self.topology)?
        };
        match &topology.fabric {
            Some(spec) => {
                if self.hosts.is_some() {
                    return Err(LabError::Usage {
                        message: "--hosts does not go with a fabric: its hosts are t0 times hosts_per_t0 (--t0, --hosts-per-t0)".to_owned(),
                    });
                }
                topology = Topology::fabric(self.apply(spec.clone()));
            }
            None if self.fabric.any() => {
                return Err(LabError::Usage {
                    message: format!(
                        "'{}' has neither T1s nor queues: use 'fabric' with those options",
                        self.topology
                    ),
                });
            }
            None => {
                topology.static_neighbours = self.static_neighbours;
                topology.planes = self.planes.unwrap_or(topology.planes);
                topology.hosts = self.hosts.unwrap_or(topology.hosts);
                topology.mtu = self.mtu.unwrap_or(topology.mtu);
            }
        }
        topology.validate()?;
        Ok(topology)
    }

    /// Flags go over the file.
    fn apply(&self, mut spec: FabricSpec) -> FabricSpec {
        let flags = &self.fabric;
        spec.planes = self.planes.unwrap_or(spec.planes);
        spec.mtu = self.mtu.unwrap_or(spec.mtu);
        spec.t0 = flags.t0.unwrap_or(spec.t0);
        spec.t1 = flags.t1.unwrap_or(spec.t1);
        spec.hosts_per_t0 = flags.hosts_per_t0.unwrap_or(spec.hosts_per_t0);
        spec.routing = flags.routing.unwrap_or(spec.routing);
        spec.host_link_bps = flags.host_link.map_or(spec.host_link_bps, |r| r.0);
        spec.fabric_link_bps = flags.fabric_link.map_or(spec.fabric_link_bps, |r| r.0);
        spec.queue.overflow = flags.overflow.unwrap_or(spec.queue.overflow);
        spec.seed = flags.seed.unwrap_or(spec.seed);
        spec
    }
}

impl FabricArgs {
    fn any(&self) -> bool {
        self.t0.or(self.t1).or(self.hosts_per_t0).is_some()
            || self.host_link.or(self.fabric_link).is_some()
            || self.routing.is_some()
            || self.overflow.is_some()
            || self.seed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_has_a_unit_or_none() {
        for (text, rate) in [("100M", 100_000_000), ("1G", 1_000_000_000), ("5k", 5_000), ("7", 7)] {
            assert_eq!(text.parse(), Ok(Rate(rate)));
        }
        for wrong in ["", "M", "1.5M", "-1", "1T", "99999999999G"] {
            assert!(wrong.parse::<Rate>().unwrap_err().contains("is no speed"), "{wrong}");
        }
    }

    #[test]
    fn every_routing_is_known_by_its_name() {
        for mode in [Routing::Ecmp, Routing::Structured, Routing::Srv6, Routing::Srv6Kernel] {
            assert_eq!(routing(mode.name()), Ok(mode));
        }
        assert!(routing("ospf").is_err());
    }
}
