//! The figures of a leaf-spine fabric: what a `[topology]` table says.
//!
//! ```toml
//! [topology]
//! planes = 4
//! t0 = 2                        # leaf switches per plane
//! t1 = 4                        # spine switches per plane
//! hosts_per_t0 = 1
//! host_link_bps = 100_000_000
//! fabric_link_bps = 100_000_000
//! routing = "srv6"              # ecmp, structured, srv6, srv6-kernel
//!
//! [topology.queue]
//! overflow = "trim"             # or "drop"
//! ```

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{LabError, topology};

/// Most planes of a fabric.
pub const MAX_FABRIC_PLANES: usize = 8;
/// Most T0s of a plane, and most T1s.
pub const MAX_SWITCHES: usize = 4;
/// Most hosts of a fabric.
pub const MAX_FABRIC_HOSTS: usize = 10;
/// Most host ports of a fabric: 8 hosts with 8 planes.
pub const MAX_HOST_PORTS: usize = 64;
/// Slowest link: below, a single large packet takes a tenth of a second.
const MIN_RATE: u64 = 1_000_000;
/// Fastest link: the kernel's queues count bytes per second in 32 bits.
const MAX_RATE: u64 = 32_000_000_000;
/// Longest queue.
const MAX_QUEUE_US: u32 = 1_000_000;

/// How switches choose a port for MRC packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// The kernel's hash over addresses, ports and flow label (wire-format.md §3, "UDP" format).
    #[default]
    Ecmp,
    /// The bits of a structured EV name the ports (wire-format.md §3).
    Structured,
    /// The outer address names the switches (wire-format.md §5); BPF programs shift it.
    Srv6,
    /// The same, shifted by the kernel's own SRv6.
    Srv6Kernel,
}

impl Routing {
    /// Its name in a file and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecmp => "ecmp",
            Self::Structured => "structured",
            Self::Srv6 => "srv6",
            Self::Srv6Kernel => "srv6-kernel",
        }
    }

    /// Whether packets travel in an SRv6 tunnel.
    pub fn tunnelled(self) -> bool {
        matches!(self, Self::Srv6 | Self::Srv6Kernel)
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What becomes of a packet that finds its queue full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// Its head goes on in the control class (wire-format.md §10), if it may be cut.
    #[default]
    Trim,
    /// It is lost.
    Drop,
}

/// The queue at every switch port. Times are of the port's line rate: 1000 us at 100 Mbit/s are 12,500 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSpec {
    /// What happens at `limit_us`.
    pub overflow: Overflow,
    /// Data waiting at most.
    pub limit_us: u32,
    /// Data waiting when the first packets are marked...
    pub ecn_min_us: u32,
    /// ... and when `ecn_max_percent` of them are; beyond, all are. Equal to `ecn_min_us`: a step.
    pub ecn_max_us: u32,
    /// See `ecn_max_us`; 0 switches marking off.
    pub ecn_max_percent: u32,
    /// Marks on ports to hosts too (wire-format.md §4: meant to be off).
    pub ecn_last_hop: bool,
    /// What is left of a trimmed packet, Ethernet header included.
    pub trim_bytes: u32,
    /// Ports to hosts set the code point of their own (wire-format.md §10, `DSCP_TRIMMED_LASTHOP`).
    pub last_hop_code_point: bool,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self {
            overflow: Overflow::Trim,
            limit_us: 10_000,
            ecn_min_us: 2_000,
            ecn_max_us: 6_000,
            ecn_max_percent: 100,
            ecn_last_hop: false,
            trim_bytes: 128,
            last_hop_code_point: true,
        }
    }
}

/// A leaf-spine fabric of several planes; every plane is alike. Host h is under T0 h / `hosts_per_t0` of each plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FabricSpec {
    /// Number of planes; each host has one port per plane.
    pub planes: usize,
    /// T0 (leaf) switches per plane.
    pub t0: usize,
    /// T1 (spine) switches per plane; each is joined to every T0 of its plane. 0 with a single T0.
    pub t1: usize,
    /// Hosts under each T0.
    pub hosts_per_t0: usize,
    /// Speed of links between hosts and T0s, bits per second.
    pub host_link_bps: u64,
    /// Speed of links between T0s and T1s, bits per second.
    pub fabric_link_bps: u64,
    /// MTU of every fabric link, bytes.
    pub mtu: u32,
    /// How switches choose ports.
    pub routing: Routing,
    /// Of a plane's paths between two hosts, how many their engines keep as backup instead of using them.
    pub backup_evs: usize,
    /// What is drawn in the fabric (hashes, marks, losses) starts from this.
    pub seed: u32,
    /// The queue at every switch port.
    pub queue: QueueSpec,
}

impl Default for FabricSpec {
    fn default() -> Self {
        Self {
            planes: 4,
            t0: 2,
            t1: 2,
            hosts_per_t0: 1,
            host_link_bps: 100_000_000,
            fabric_link_bps: 100_000_000,
            mtu: 9000,
            routing: Routing::default(),
            backup_evs: 0,
            seed: 1,
            queue: QueueSpec::default(),
        }
    }
}

/// A file that has a `[topology]`; what else a scenario says is not asked here.
#[derive(Deserialize)]
struct File {
    topology: FabricSpec,
}

impl FabricSpec {
    /// Reads the `[topology]` table of a TOML text; `name` is what errors call it.
    pub fn from_toml(text: &str, name: &str) -> Result<Self, LabError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            LabError::File {
                file: name.to_owned(),
                line: text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1,
                message: error.message().replace('\n', " "),
            }
        })?;
        file.topology.validate()?;
        Ok(file.topology)
    }

    /// Reads a file; see [`Self::from_toml`].
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let name = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| LabError::kernel(format!("read '{name}'"), source))?;
        Self::from_toml(&text, &name)
    }

    /// Hosts in all.
    pub fn hosts(&self) -> usize {
        self.t0.saturating_mul(self.hosts_per_t0)
    }

    /// The T0 of a host, in every plane.
    pub fn t0_of(&self, host: usize) -> usize {
        host / self.hosts_per_t0.max(1)
    }

    /// Bytes that leave a port of that speed in a time.
    pub fn bytes(rate_bps: u64, time_us: u32) -> u64 {
        (u128::from(rate_bps) * u128::from(time_us) / 8_000_000) as u64
    }

    /// Bytes of an IP packet's headers up to and with the timestamp of a write, which a trimmed packet has to keep
    /// (wire-format.md §10).
    fn least_trim_bytes(&self) -> u32 {
        if self.routing.tunnelled() { 122 } else { 82 }
    }

    /// Checks every figure against its range.
    pub fn validate(&self) -> Result<(), LabError> {
        let queue = &self.queue;
        let within = |what: &'static str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(LabError::OutOfRange {
                what,
                value: value as usize,
                topology: topology::FABRIC,
                low: low as usize,
                high: high as usize,
            })
        };
        let least_t1 = u64::from(self.t0 > 1);
        let least_hosts_per_t0 = if self.t0 > 1 { 1 } else { 2 };
        let largest_trim = u64::from(self.mtu.min(1024)) + 14;
        within("planes", self.planes as u64, 1, MAX_FABRIC_PLANES as u64)?;
        within("t0", self.t0 as u64, 1, MAX_SWITCHES as u64)?;
        within("t1", self.t1 as u64, least_t1, MAX_SWITCHES as u64)?;
        within(
            "hosts_per_t0",
            self.hosts_per_t0 as u64,
            least_hosts_per_t0,
            MAX_FABRIC_HOSTS as u64,
        )?;
        within(
            "the number of hosts (t0 times hosts_per_t0)",
            self.hosts() as u64,
            2,
            MAX_FABRIC_HOSTS as u64,
        )?;
        within(
            "the number of host ports (hosts times planes)",
            (self.hosts() * self.planes) as u64,
            1,
            MAX_HOST_PORTS as u64,
        )?;
        within("host_link_bps", self.host_link_bps, MIN_RATE, MAX_RATE)?;
        within("fabric_link_bps", self.fabric_link_bps, MIN_RATE, MAX_RATE)?;
        within(
            "mtu",
            self.mtu.into(),
            topology::MIN_MTU.into(),
            topology::MAX_MTU.into(),
        )?;
        within("backup_evs", self.backup_evs as u64, 0, self.t1.max(1) as u64 - 1)?;
        within("queue.limit_us", queue.limit_us.into(), 100, MAX_QUEUE_US.into())?;
        within("queue.ecn_min_us", queue.ecn_min_us.into(), 0, MAX_QUEUE_US.into())?;
        within(
            "queue.ecn_max_us",
            queue.ecn_max_us.into(),
            queue.ecn_min_us.into(),
            MAX_QUEUE_US.into(),
        )?;
        within("queue.ecn_max_percent", queue.ecn_max_percent.into(), 0, 100)?;
        within(
            "queue.trim_bytes",
            queue.trim_bytes.into(),
            self.least_trim_bytes().into(),
            largest_trim,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FabricSpec, LabError> {
        FabricSpec::from_toml(text, "f.toml")
    }

    #[test]
    fn what_a_file_does_not_say_keeps_its_default() {
        let spec =
            read("[topology]\nplanes = 2\nrouting = \"srv6-kernel\"\n[topology.queue]\noverflow = \"drop\"\n").unwrap();
        let expected = FabricSpec {
            planes: 2,
            routing: Routing::Srv6Kernel,
            queue: QueueSpec {
                overflow: Overflow::Drop,
                ..QueueSpec::default()
            },
            ..FabricSpec::default()
        };
        assert_eq!(spec, expected);
    }

    #[test]
    fn a_file_that_is_written_reads_the_same() {
        let spec = FabricSpec {
            routing: Routing::Structured,
            seed: 7,
            ..FabricSpec::default()
        };
        let text = toml::to_string(&std::collections::BTreeMap::from([("topology", &spec)])).unwrap();
        assert_eq!(read(&text).unwrap(), spec);
    }

    #[test]
    fn other_tables_of_a_scenario_do_not_matter() {
        assert!(read("[topology]\n[[timeline]]\nat_ms = 3\n").is_ok());
    }

    #[test]
    fn a_file_is_refused_whole_in_one_line() {
        let cases = [
            ("[topology]\nplane = 2\n", "f.toml:2: unknown field `plane`"),
            ("[topology]\nplanes = -1\n", "f.toml:2: "),
            ("[topology]\nrouting = \"ospf\"\n", "f.toml:2: unknown variant `ospf`"),
            (
                "[topology]\n[topology.queue]\nred = 1\n",
                "f.toml:3: unknown field `red`",
            ),
            ("planes = 2\n", "f.toml:1: missing field `topology`"),
            ("[topology\n", "f.toml:1: "),
            (
                "[topology]\nplanes = 9\n",
                "planes is 9: topology 'fabric' takes 1 to 8",
            ),
            ("[topology]\nt1 = 0\n", "t1 is 0: topology 'fabric' takes 1 to 4"),
            (
                "[topology]\nt0 = 4\nhosts_per_t0 = 3\n",
                "the number of hosts (t0 times hosts_per_t0) is 12",
            ),
            (
                "[topology]\nplanes = 8\nhosts_per_t0 = 5\n",
                "the number of host ports (hosts times planes) is 80: topology 'fabric' takes 1 to 64",
            ),
            ("[topology]\nhost_link_bps = 1000\n", "host_link_bps is 1000"),
            (
                "[topology]\nbackup_evs = 2\n",
                "backup_evs is 2: topology 'fabric' takes 0 to 1",
            ),
            (
                "[topology]\nrouting = \"srv6\"\nqueue = { trim_bytes = 100 }\n",
                "queue.trim_bytes is 100: topology 'fabric' takes 122 to",
            ),
            (
                "[topology]\nqueue = { ecn_min_us = 9, ecn_max_us = 8 }\n",
                "queue.ecn_max_us is 8: topology 'fabric' takes 9 to",
            ),
        ];
        for (text, start) in cases {
            let message = read(text).unwrap_err().to_string();
            assert!(message.starts_with(start), "{text}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn the_largest_fabrics_are_taken() {
        let largest = FabricSpec {
            planes: 8,
            t0: 4,
            t1: 4,
            hosts_per_t0: 2,
            ..FabricSpec::default()
        };
        let most_hosts = FabricSpec {
            planes: 2,
            hosts_per_t0: 5,
            ..FabricSpec::default()
        };
        for spec in [largest, most_hosts] {
            spec.validate().unwrap();
        }
    }
}
