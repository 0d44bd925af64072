//! Paths: every way between two hosts of a fabric, by name, and the EV that takes it.
//!
//! A path is named by the farthest switch on it: `t1.2.p1` over T1 2 of plane 1, `t0.0.p1` between two hosts under one T0.

use std::fmt;
use std::net::Ipv6Addr;

use super::{End, Plan, Tier, host_sid, leaf_spine, sid, t0_sid, t1_sid};
use crate::fabric::{FabricSpec, Routing};

/// One way from a host to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Its name.
    pub name: String,
    /// Its plane, which is also the number of the host's port.
    pub plane: usize,
    /// What makes switches take it.
    pub ev: PathEv,
    /// The names of the links that it crosses, in order.
    pub links: Vec<String>,
    /// The ends at which packets enter these links, in order.
    pub hops: Vec<End>,
}

/// What in a packet names its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathEv {
    /// Nothing: which of them a packet takes is up to hashes over its EV.
    Hashed,
    /// A structured EV (wire-format.md §3): hop 0 is the plane, in the uppermost 4 bits, hop 1 the uplink of the T0, in the next 4.
    Structured(u32),
    /// The outer address, and the EV that packets on this path carry in their inner headers (wire-format.md §3 and §5).
    Srv6 {
        /// Outer destination.
        destination: Ipv6Addr,
        /// Inner flow label and source port.
        tag: u32,
    },
}

impl PathEv {
    /// The 32 bits that packets on this path carry in flow label and source port.
    pub fn bits(&self) -> Option<u32> {
        match *self {
            Self::Hashed => None,
            Self::Structured(bits) | Self::Srv6 { tag: bits, .. } => Some(bits),
        }
    }
}

impl fmt::Display for PathEv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hashed => f.write_str("by hash"),
            Self::Structured(ev) => write!(f, "EV {ev:#010x}"),
            Self::Srv6 { destination, tag } => write!(f, "{destination} (EV {tag:#010x})"),
        }
    }
}

/// The source port of structured EVs, which must not be 0 (wire-format.md §3, W6).
pub(crate) const STRUCTURED_PORT: u16 = 0xc000;

/// A field of a uSID address: its 16 bits, and which of them tell the paths between two hosts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SidField {
    pub(crate) sid: u16,
    pub(crate) mask: u16,
}

/// The uSIDs of a path, the host's last: the first switch to read one is the sender's T0.
pub(crate) fn sid_fields(
    spec: &FabricSpec,
    source: usize,
    destination: usize,
    plane: usize,
    spine: usize,
) -> Vec<SidField> {
    let field = |sid, mask| SidField { sid, mask };
    let (from, to) = (spec.t0_of(source), spec.t0_of(destination));
    // The plane stands in every uSID, the uplink in the T1's. Between two hosts under one T0 the host's is taken whole, or the EV would
    // be too short to reach the source port.
    if from == to {
        return vec![
            field(t0_sid(plane, from), 0x0f00),
            field(host_sid(plane, destination), 0xffff),
        ];
    }
    vec![
        field(t0_sid(plane, from), 0x0f00),
        field(t1_sid(plane, spine), 0x0f0f),
        field(t0_sid(plane, to), 0x0f00),
        field(host_sid(plane, destination), 0x0f00),
    ]
}

/// The bits under the masks, one after the other, left-aligned: the unexpanded EV (wire-format.md §3, W5).
fn tag(fields: &[SidField]) -> u32 {
    let mut bits = 0_u64;
    let mut length = 0;
    for field in fields {
        for bit in (0..16).rev().filter(|bit| field.mask >> bit & 1 == 1) {
            bits = bits << 1 | u64::from(field.sid >> bit & 1);
            length += 1;
        }
    }
    (bits << (32 - length)) as u32
}

impl Plan {
    /// All paths from a host to another, plane by plane; none in a lab that is no fabric.
    pub fn paths(&self, source: usize, destination: usize) -> Vec<Path> {
        let Some(spec) = &self.topology.fabric else {
            return Vec::new();
        };
        if source == destination || source.max(destination) >= spec.hosts() {
            return Vec::new();
        }
        let local = spec.t0_of(source) == spec.t0_of(destination);
        let ways = if local { 1 } else { spec.t1 };
        (1..=spec.planes)
            .flat_map(|plane| (0..ways).map(move |spine| (plane, spine)))
            .filter_map(|(plane, spine)| self.path(spec, (source, destination), plane, spine))
            .collect()
    }

    fn path(
        &self,
        spec: &FabricSpec,
        (source, destination): (usize, usize),
        plane: usize,
        spine: usize,
    ) -> Option<Path> {
        let (from, to) = (spec.t0_of(source), spec.t0_of(destination));
        let mut way = vec![format!("h{source}"), leaf_spine::t0_name(plane, from)];
        if from != to {
            way.push(leaf_spine::t1_name(plane, spine));
            way.push(leaf_spine::t0_name(plane, to));
        }
        way.push(format!("h{destination}"));
        let name = way[if from == to { 1 } else { 2 }].clone();
        let mut links = Vec::new();
        let mut hops = Vec::new();
        for step in way.windows(2) {
            let (link, end) = self.step(&step[0], &step[1], plane)?;
            links.push(link);
            hops.push(end);
        }
        let ev = match spec.routing {
            Routing::Ecmp => PathEv::Hashed,
            Routing::Structured => {
                PathEv::Structured((plane as u32) << 28 | (spine as u32) << 24 | u32::from(STRUCTURED_PORT))
            }
            Routing::Srv6 | Routing::Srv6Kernel => {
                let fields = sid_fields(spec, source, destination, plane, spine);
                let sids: Vec<u16> = fields.iter().map(|f| f.sid).collect();
                PathEv::Srv6 {
                    destination: sid::container(&sids),
                    tag: tag(&fields),
                }
            }
        };
        Some(Path {
            name,
            plane,
            ev,
            links,
            hops,
        })
    }

    /// The link between two nodes in a plane, and its end at the first.
    fn step(&self, from: &str, to: &str, plane: usize) -> Option<(String, End)> {
        let (from, to) = (self.node(from).ok()?, self.node(to).ok()?);
        self.fabric_links()
            .filter(|link| self.interface(link.ends[0]).plane == Some(plane))
            .find_map(|link| {
                let [a, b] = link.ends;
                let near = [a, b].into_iter().find(|end| end.node == from)?;
                (a.node == to || b.node == to).then(|| (self.link_name(link), near))
            })
    }

    /// Whether a node is a T1.
    pub fn is_spine(&self, node: usize) -> bool {
        self.nodes[node].place.is_some_and(|p| p.tier == Tier::T1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Topology;

    fn plan(routing: Routing) -> Plan {
        Plan::new(&Topology::fabric(FabricSpec {
            planes: 2,
            t0: 2,
            t1: 4,
            hosts_per_t0: 2,
            routing,
            ..FabricSpec::default()
        }))
        .unwrap()
    }

    #[test]
    fn a_path_over_a_spine_crosses_four_links_and_one_under_a_leaf_two() {
        let plan = plan(Routing::Srv6);
        let paths = plan.paths(0, 3);
        assert_eq!(paths.len(), 8);
        assert_eq!(paths[6].name, "t1.2.p2");
        assert_eq!(
            paths[6].links,
            ["h0-t0.0.p2", "t0.0.p2-t1.2.p2", "t0.1.p2-t1.2.p2", "h3-t0.1.p2"]
        );
        assert_eq!(paths[6].ev.to_string(), "5f00:0:1200:2202:1201:4203:: (EV 0x22222000)");
        let near = plan.paths(0, 1);
        assert_eq!(near.len(), 2);
        assert_eq!(near[0].name, "t0.0.p1");
        assert_eq!(near[0].links, ["h0-t0.0.p1", "h1-t0.0.p1"]);
        assert_eq!(near[0].ev.to_string(), "5f00:0:1100:4101:: (EV 0x14101000)");
    }

    #[test]
    fn every_path_of_a_pair_of_hosts_has_an_ev_of_its_own_with_a_source_port() {
        for routing in [Routing::Structured, Routing::Srv6] {
            let plan = plan(routing);
            for (a, b) in [(0, 1), (0, 2), (3, 0), (3, 2)] {
                let paths = plan.paths(a, b);
                let evs: HashSet<u32> = paths.iter().map(|p| p.ev.bits().unwrap()).collect();
                assert_eq!(evs.len(), paths.len());
                assert!(evs.iter().all(|ev| ev & 0xffff != 0));
                let names: HashSet<&str> = paths.iter().map(|p| p.name.as_str()).collect();
                assert_eq!(names.len(), paths.len());
            }
        }
    }

    #[test]
    fn a_structured_ev_names_plane_and_uplink() {
        assert_eq!(
            plan(Routing::Structured).paths(0, 2)[6].ev,
            PathEv::Structured(0x2200_c000)
        );
    }

    #[test]
    fn there_is_no_path_to_oneself_or_to_nobody() {
        let plan = plan(Routing::Srv6);
        assert!(plan.paths(1, 1).is_empty());
        assert!(plan.paths(0, 4).is_empty());
        assert!(Plan::new(&Topology::leaf(2, 2)).unwrap().paths(0, 1).is_empty());
    }
}
