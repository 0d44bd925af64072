//! Names of links and switches, and their numbers.
//!
//! A plane has leaf switches (T0) with hosts below and spine switches (T1) above; every leaf has one cable to every spine.
//! Every host has one port on every plane, so that planes share nothing but the hosts. A cable is two links, one each way.

use std::fmt;

/// One direction of a cable. Planes count from 1, everything else from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    /// From a host to its leaf.
    HostUp {
        /// Plane.
        plane: u8,
        /// Host.
        host: usize,
    },
    /// From a leaf to a host: the last hop.
    HostDown {
        /// Plane.
        plane: u8,
        /// Host.
        host: usize,
    },
    /// From a leaf to a spine.
    SpineUp {
        /// Plane.
        plane: u8,
        /// Leaf.
        leaf: usize,
        /// Spine.
        spine: usize,
    },
    /// From a spine to a leaf.
    SpineDown {
        /// Plane.
        plane: u8,
        /// Leaf.
        leaf: usize,
        /// Spine.
        spine: usize,
    },
}

/// A switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Switch {
    /// T0.
    Leaf {
        /// Plane.
        plane: u8,
        /// Number in the plane.
        leaf: usize,
    },
    /// T1.
    Spine {
        /// Plane.
        plane: u8,
        /// Number in the plane.
        spine: usize,
    },
}

/// A part of the fabric that a fault can befall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// One direction of a cable.
    Link(Link),
    /// The cable of a link: both directions.
    Cable(Link),
    /// All links that leave a switch: what passes the switch passes one of them.
    Switch(Switch),
    /// All links of a plane that leave a host: what passes the plane passes one of them.
    Plane(u8),
}

/// The shape of the fabric: how many there are of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Planes.
    pub planes: u8,
    /// T0 switches in a plane.
    pub leaves: usize,
    /// T1 switches in a plane.
    pub spines: usize,
    /// Hosts below a T0.
    pub hosts_per_leaf: usize,
}

/// Number of a link, dense from 0.
pub(super) type LinkId = u32;

impl Link {
    /// The other direction.
    #[must_use]
    pub fn reverse(self) -> Link {
        match self {
            Link::HostUp { plane, host } => Link::HostDown { plane, host },
            Link::HostDown { plane, host } => Link::HostUp { plane, host },
            Link::SpineUp { plane, leaf, spine } => Link::SpineDown { plane, leaf, spine },
            Link::SpineDown { plane, leaf, spine } => Link::SpineUp { plane, leaf, spine },
        }
    }

    /// The plane.
    pub fn plane(self) -> u8 {
        match self {
            Link::HostUp { plane, .. }
            | Link::HostDown { plane, .. }
            | Link::SpineUp { plane, .. }
            | Link::SpineDown { plane, .. } => plane,
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::HostUp { plane, host } => write!(f, "p{plane} h{host}->t0"),
            Link::HostDown { plane, host } => write!(f, "p{plane} t0->h{host}"),
            Link::SpineUp { plane, leaf, spine } => write!(f, "p{plane} t0.{leaf}->t1.{spine}"),
            Link::SpineDown { plane, leaf, spine } => write!(f, "p{plane} t1.{spine}->t0.{leaf}"),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Switch::Leaf { plane, leaf } => write!(f, "p{plane} t0.{leaf}"),
            Switch::Spine { plane, spine } => write!(f, "p{plane} t1.{spine}"),
        }
    }
}

impl Shape {
    /// Hosts of the fabric.
    pub fn hosts(&self) -> usize {
        self.leaves * self.hosts_per_leaf
    }

    /// Leaf above a host, the same in every plane.
    pub fn leaf_of(&self, host: usize) -> usize {
        host / self.hosts_per_leaf
    }

    /// Links of all planes, in the order of their numbers.
    pub fn links(&self) -> impl Iterator<Item = Link> + '_ {
        let hosts = self.hosts();
        let ends = move || (0..self.leaves).flat_map(|leaf| (0..self.spines).map(move |spine| (leaf, spine)));
        (1..=self.planes).flat_map(move |plane| {
            let up = (0..hosts).map(move |host| Link::HostUp { plane, host });
            let down = (0..hosts).map(move |host| Link::HostDown { plane, host });
            let climb = ends().map(move |(leaf, spine)| Link::SpineUp { plane, leaf, spine });
            let descend = ends().map(move |(leaf, spine)| Link::SpineDown { plane, leaf, spine });
            up.chain(down).chain(climb).chain(descend)
        })
    }

    /// Links of one plane.
    pub(super) fn links_per_plane(&self) -> usize {
        2 * (self.hosts() + self.leaves * self.spines)
    }

    /// Number of a link; the link must exist.
    pub(super) fn id(&self, link: Link) -> LinkId {
        let hosts = self.hosts();
        let cable = |leaf: usize, spine: usize| leaf * self.spines + spine;
        let offset = match link {
            Link::HostUp { host, .. } => host,
            Link::HostDown { host, .. } => hosts + host,
            Link::SpineUp { leaf, spine, .. } => 2 * hosts + cable(leaf, spine),
            Link::SpineDown { leaf, spine, .. } => 2 * hosts + self.leaves * self.spines + cable(leaf, spine),
        };
        (usize::from(link.plane() - 1) * self.links_per_plane() + offset) as LinkId
    }

    fn has_plane(&self, plane: u8) -> bool {
        (1..=self.planes).contains(&plane)
    }

    /// Whether there is such a link.
    pub fn has_link(&self, link: Link) -> bool {
        self.has_plane(link.plane())
            && match link {
                Link::HostUp { host, .. } | Link::HostDown { host, .. } => host < self.hosts(),
                Link::SpineUp { leaf, spine, .. } | Link::SpineDown { leaf, spine, .. } => {
                    leaf < self.leaves && spine < self.spines
                }
            }
    }

    /// The links that a place consists of; `None` if there is no such place.
    pub fn links_of(&self, place: Place) -> Option<Vec<Link>> {
        let links = match place {
            Place::Link(link) => vec![link],
            Place::Cable(link) => vec![link, link.reverse()],
            Place::Switch(Switch::Leaf { plane, leaf }) if leaf < self.leaves => {
                let hosts = leaf * self.hosts_per_leaf..(leaf + 1) * self.hosts_per_leaf;
                let down = hosts.map(|host| Link::HostDown { plane, host });
                let up = (0..self.spines).map(|spine| Link::SpineUp { plane, leaf, spine });
                down.chain(up).collect()
            }
            Place::Switch(Switch::Spine { plane, spine }) if spine < self.spines => (0..self.leaves)
                .map(|leaf| Link::SpineDown { plane, leaf, spine })
                .collect(),
            Place::Switch(_) => return None,
            Place::Plane(plane) => (0..self.hosts()).map(|host| Link::HostUp { plane, host }).collect(),
        };
        links.iter().all(|link| self.has_link(*link)).then_some(links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        planes: 3,
        leaves: 4,
        spines: 5,
        hosts_per_leaf: 2,
    };

    #[test]
    fn every_link_has_the_number_of_its_place_in_the_list() {
        let links: Vec<Link> = SHAPE.links().collect();
        assert_eq!(links.len(), 3 * 2 * (8 + 20));
        for (at, link) in links.iter().enumerate() {
            assert_eq!(SHAPE.id(*link) as usize, at, "{link}");
            assert!(SHAPE.has_link(*link) && SHAPE.has_link(link.reverse()));
            assert_eq!(link.reverse().reverse(), *link);
        }
    }

    #[test]
    fn places_that_the_fabric_does_not_have_are_none() {
        let plane = 1;
        for place in [
            Place::Plane(0),
            Place::Plane(4),
            Place::Link(Link::HostUp { plane, host: 8 }),
            Place::Cable(Link::SpineUp {
                plane,
                leaf: 4,
                spine: 0,
            }),
            Place::Switch(Switch::Leaf { plane, leaf: 4 }),
            Place::Switch(Switch::Spine { plane, spine: 5 }),
            Place::Switch(Switch::Spine { plane: 9, spine: 0 }),
        ] {
            assert_eq!(SHAPE.links_of(place), None, "{place:?}");
        }
        let leaf = Place::Switch(Switch::Leaf { plane, leaf: 3 });
        assert_eq!(SHAPE.links_of(leaf).map(|links| links.len()), Some(2 + 5));
    }
}
