//! What can be built: the shape of a fabric and its figures, before any address is given.

use crate::fabric::FabricSpec;
use crate::{LabError, fabric};

/// The names of the known topologies.
pub const NAMES: [&str; 3] = ["pair", "leaf", FABRIC];
pub(crate) const FABRIC: &str = "fabric";

/// Most planes of a lab. The paper's fabrics have 8; ports are named `p1` to `p16`.
pub const MAX_PLANES: usize = 16;
/// Most hosts of a lab.
pub const MAX_HOSTS: usize = 64;
/// Smallest MTU: IPv6 works from 1280.
pub const MIN_MTU: u32 = 1280;
/// Largest MTU of a veth pair that carries XDP programs with fragments.
pub const MAX_MTU: u32 = 65535;

/// How hosts are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Two hosts, port n of one joined to port n of the other.
    Pair,
    /// Two or more hosts, one T0 switch per plane: port n of every host goes to the T0 of plane n.
    Leaf,
    /// T0 and T1 switches with queues, several per plane; the rest is in a [`FabricSpec`].
    Fabric,
}

impl Shape {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Leaf => "leaf",
            Self::Fabric => FABRIC,
        }
    }
}

/// A fabric to build: see [`Topology::pair`], [`Topology::leaf`] and [`Topology::fabric`].
///
/// ```
/// use netns_lab::Topology;
/// let four_planes = Topology::leaf(3, 4).mtu(1500);
/// assert_eq!(four_planes.hosts, 3);
/// assert!(four_planes.validate().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// How hosts are joined.
    pub shape: Shape,
    /// Number of hosts.
    pub hosts: usize,
    /// Number of planes; each host has one port per plane.
    pub planes: usize,
    /// MTU of every fabric link, bytes.
    pub mtu: u32,
    /// Permanent neighbour entries instead of ARP and neighbour discovery.
    pub static_neighbours: bool,
    /// The figures of [`Shape::Fabric`].
    pub fabric: Option<FabricSpec>,
}

impl Topology {
    /// Two hosts, `planes` links back to back.
    pub fn pair(planes: usize) -> Self {
        Self {
            shape: Shape::Pair,
            hosts: 2,
            planes,
            mtu: 9000,
            static_neighbours: false,
            fabric: None,
        }
    }

    /// `hosts` hosts under one T0 switch per plane.
    pub fn leaf(hosts: usize, planes: usize) -> Self {
        Self {
            shape: Shape::Leaf,
            hosts,
            planes,
            mtu: 9000,
            static_neighbours: false,
            fabric: None,
        }
    }

    /// A leaf-spine fabric. Its neighbours are always permanent.
    pub fn fabric(spec: FabricSpec) -> Self {
        Self {
            shape: Shape::Fabric,
            hosts: spec.hosts(),
            planes: spec.planes,
            mtu: spec.mtu,
            static_neighbours: true,
            fabric: Some(spec),
        }
    }

    /// The topology of that name with its default figures (4 planes, 2 hosts).
    pub fn named(name: &str) -> Result<Self, LabError> {
        match name {
            "pair" => Ok(Self::pair(4)),
            "leaf" => Ok(Self::leaf(2, 4)),
            FABRIC => Ok(Self::fabric(FabricSpec::default())),
            _ => Err(LabError::UnknownTopology { name: name.to_owned() }),
        }
    }

    /// Sets the MTU of the fabric links (default 9000).
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Uses permanent neighbour entries, so that nothing has to be resolved. By default the kernel resolves, as on a real fabric.
    #[must_use]
    pub fn static_neighbours(mut self, yes: bool) -> Self {
        self.static_neighbours = yes;
        self
    }

    /// Checks every figure against its range.
    pub fn validate(&self) -> Result<(), LabError> {
        if let Some(spec) = &self.fabric {
            return spec.validate();
        }
        let max_hosts = match self.shape {
            Shape::Pair => 2,
            Shape::Leaf => MAX_HOSTS,
            Shape::Fabric => fabric::MAX_FABRIC_HOSTS,
        };
        let figures = [
            ("the number of hosts", self.hosts, 2, max_hosts),
            ("the number of planes", self.planes, 1, MAX_PLANES),
            ("the MTU", self.mtu as usize, MIN_MTU as usize, MAX_MTU as usize),
        ];
        for (what, value, low, high) in figures {
            if !(low..=high).contains(&value) {
                return Err(LabError::OutOfRange {
                    what,
                    value,
                    topology: self.shape.name(),
                    low,
                    high,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_topology_of_that_name() {
        for name in NAMES {
            let topology = Topology::named(name).unwrap();
            assert_eq!(topology.shape.name(), name);
            topology.validate().unwrap();
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = Topology::named("torus").unwrap_err().to_string();
        assert_eq!(message, "unknown topology 'torus': known are pair, leaf, fabric");
    }

    #[test]
    fn a_figure_out_of_range_names_figure_and_range() {
        let message = |t: Topology| t.validate().unwrap_err().to_string();
        assert_eq!(
            message(Topology::pair(0)),
            "the number of planes is 0: topology 'pair' takes 1 to 16"
        );
        assert_eq!(
            message(Topology::leaf(1, 1)),
            "the number of hosts is 1: topology 'leaf' takes 2 to 64"
        );
        assert_eq!(
            message(Topology::pair(1).mtu(576)),
            "the MTU is 576: topology 'pair' takes 1280 to 65535"
        );
        assert_eq!(
            message(Topology {
                hosts: 3,
                ..Topology::pair(1)
            }),
            "the number of hosts is 3: topology 'pair' takes 2 to 2"
        );
    }
}
