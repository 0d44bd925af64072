//! What memory a run would take, before anything of it is made.

use crate::fabric::clos::topology::Shape;
use crate::run::file::{FileError, Section};
use crate::scenario::ConnectionPlan;

/// Bytes of a link with its queues, of a host, of a message and of a packet in all accounts, as measured with a margin.
const LINK: f64 = 400.0;
const HOST: f64 = 1_500.0;
const MESSAGE: f64 = 150.0;
const PACKET: f64 = 180.0;
/// Payload is with the sender, with the receiver, and once more while the end is judged.
const COPIES: f64 = 3.0;
/// Bytes of a queue pair, besides those of its paths, of its window and of its send queue.
const QUEUE_PAIR: f64 = 15_000.0;
const PATH: f64 = 120.0;
const WINDOW_PACKET: f64 = 40.0;
const SEND: f64 = 120.0;

const MIB: f64 = (1 << 20) as f64;
/// Where nobody knows how much there is.
const ELSEWHERE_MIB: f64 = 8192.0;
/// Of what the machine has to spare.
const SHARE: f64 = 0.8;

/// What a run may take.
#[derive(Debug)]
pub(super) struct Budget {
    most_mib: f64,
    /// What the fabric takes of it.
    fabric: f64,
    /// Where the limit comes from.
    source: String,
}

/// What a load makes of its keys.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Volume {
    /// Connections that exist at a time.
    pub connections: f64,
    /// Payload of these, both ways.
    pub bytes: f64,
    /// Messages of these.
    pub messages: f64,
    /// Payload that stays elsewhere.
    pub stays: f64,
}

impl Budget {
    /// As the file says, or as the machine has to spare.
    pub(super) fn new(limits: &Section<'_>) -> Result<Budget, FileError> {
        let asked = limits.number("memory_mib", 16..=1 << 30, 16)?;
        if limits.has("memory_mib") {
            return Ok(Budget {
                most_mib: asked as f64,
                fabric: 0.0,
                source: format!("limits.memory_mib = {asked}"),
            });
        }
        let most_mib = available_mib().map_or(ELSEWHERE_MIB, |mib| mib * SHARE);
        Ok(Budget {
            most_mib,
            fabric: 0.0,
            source: "80 % of what this machine has to spare; limits.memory_mib sets another limit".to_owned(),
        })
    }

    /// Refuses a fabric that is too large.
    pub(super) fn check_fabric(&mut self, section: &Section<'_>, shape: &Shape) -> Result<(), FileError> {
        self.fabric = fabric_bytes(shape);
        let keys = "with planes, spines and hosts_per_leaf";
        self.check(0.0)
            .map_err(|what| section.error("leaves", format_args!("{keys}: {what}: make the fabric smaller")))
    }

    /// Refuses a load that is too large for hosts that have so many planes.
    pub(super) fn check_load(
        &self,
        section: &Section<'_>,
        planes: u8,
        template: &ConnectionPlan,
        volume: Volume,
    ) -> Result<(), FileError> {
        let pmtu = template.pmtu.bytes() as f64;
        let packets = volume.bytes / pmtu;
        let paths = f64::from(planes) * f64::from(template.evs_per_plane);
        let window = f64::from(template.max_mpr()) * 128.0;
        let each = QUEUE_PAIR + PATH * paths + WINDOW_PACKET * window + SEND * f64::from(template.sq_depth);
        let pairs = 2.0 * volume.connections * each;
        let payload = COPIES * volume.bytes + volume.stays + PACKET * packets;
        // A message begins a packet of its own.
        let messages = (MESSAGE + PACKET) * volume.messages;
        let (key, keys, remedy) = if pairs > payload + messages {
            (
                "kind",
                format!(
                    "makes {:.0} queue pairs, with qp.mpr, qp.sq_depth and qp.evs_per_plane",
                    2.0 * volume.connections
                ),
                "make fewer or smaller ones",
            )
        } else if messages > payload {
            (
                "message_bytes",
                format!("makes {:.3e} messages", volume.messages),
                "make fewer",
            )
        } else {
            (
                "bytes",
                format!("makes {:.1} GiB of payload", volume.bytes / MIB / 1024.0),
                "make it less",
            )
        };
        self.check(pairs + payload + messages)
            .map_err(|what| section.error(key, format_args!("{keys}: {what}: {remedy}")))
    }

    fn check(&self, bytes: f64) -> Result<(), String> {
        let mib = (self.fabric + bytes) / MIB;
        if mib <= self.most_mib {
            return Ok(());
        }
        Err(format!(
            "the run would take about {:.1} GiB of memory, and may take {:.1} GiB ({})",
            mib / 1024.0,
            self.most_mib / 1024.0,
            self.source
        ))
    }
}

fn fabric_bytes(shape: &Shape) -> f64 {
    let hosts = shape.leaves as f64 * shape.hosts_per_leaf as f64;
    let cables = hosts + shape.leaves as f64 * shape.spines as f64;
    f64::from(shape.planes) * 2.0 * cables * LINK + hosts * HOST
}

/// What the machine, or the group that this process is in, has to spare.
fn available_mib() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group_mib = group
        .and_then(|text| text.trim().parse::<f64>().ok())
        .map(|bytes| bytes / MIB);
    Some((kib / 1024.0).min(group_mib.unwrap_or(f64::INFINITY)))
}
