//! The uplink choice of a T0, the only choice on a path: from a spine, one link leads down to every T0.

use crate::fabric::clos::plan::Routing;
use crate::fabric::clos::topology::{Link, Shape};
use crate::rng::{Rng, mix};

/// The routing tables of all T0 switches.
#[derive(Debug)]
pub(super) struct Routes {
    routing: Routing,
    shape: Shape,
    /// Per plane and leaf.
    tables: Vec<Table>,
}

#[derive(Debug)]
struct Table {
    salt: u64,
    /// Spines to which this leaf has a link that the control plane believes in, one bit each.
    up: u128,
    /// Spines from which such a link leads to this leaf.
    down: u128,
}

/// Where a packet comes from and goes to, as far as routing looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) src: usize,
    pub(super) dst: usize,
    pub(super) ev: u32,
}

impl Routes {
    pub(super) fn new(routing: Routing, shape: Shape, rng: &mut Rng) -> Routes {
        let all = u128::MAX.checked_shr(128 - shape.spines as u32).unwrap_or(0);
        let table = |_| Table {
            salt: rng.word(),
            up: all,
            down: all,
        };
        Routes {
            routing,
            shape,
            tables: (0..usize::from(shape.planes) * shape.leaves).map(table).collect(),
        }
    }

    fn index(&self, plane: u8, leaf: usize) -> usize {
        usize::from(plane - 1) * self.shape.leaves + leaf
    }

    /// The spine over which a packet from `leaf` to `to_leaf` goes; `None` if there is no route.
    pub(super) fn spine(&self, plane: u8, leaf: usize, to_leaf: usize, key: Key) -> Option<usize> {
        let table = &self.tables[self.index(plane, leaf)];
        let usable = table.up & self.tables[self.index(plane, to_leaf)].down;
        let is_usable = |spine: usize| usable >> spine & 1 == 1;
        match self.routing {
            // The EV is the path: when it is gone, so is the packet.
            Routing::Structured { low_bit, bits } => {
                let field = u64::from(key.ev) >> low_bit & ((1 << bits) - 1);
                Some(field as usize % self.shape.spines).filter(|spine| is_usable(*spine))
            }
            Routing::Ecmp => {
                let hash = mix(table.salt ^ u64::from(key.ev), (key.src as u64) << 32 | key.dst as u64);
                // Packets move only when the link that they would take has gone ("resilient hashing").
                let first = (hash % self.shape.spines as u64) as usize;
                if is_usable(first) {
                    return Some(first);
                }
                let count = usable.count_ones();
                (count > 0).then(|| nth_bit(usable, (hash >> 32) as u32 % count))
            }
        }
    }

    /// The control plane stops believing in a link, or believes in it again. Links to hosts have no alternative.
    pub(super) fn believe(&mut self, link: Link, usable: bool) {
        let (plane, leaf, spine) = match link {
            Link::SpineUp { plane, leaf, spine } | Link::SpineDown { plane, leaf, spine } => (plane, leaf, spine),
            Link::HostUp { .. } | Link::HostDown { .. } => return,
        };
        let index = self.index(plane, leaf);
        let table = &mut self.tables[index];
        let spines = match link {
            Link::SpineUp { .. } => &mut table.up,
            _ => &mut table.down,
        };
        *spines = *spines & !(1 << spine) | u128::from(usable) << spine;
    }
}

/// Position of the one that has `before` ones below it.
fn nth_bit(mut bits: u128, before: u32) -> usize {
    for _ in 0..before {
        bits &= bits - 1;
    }
    bits.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        planes: 1,
        leaves: 3,
        spines: 8,
        hosts_per_leaf: 2,
    };

    fn routes(routing: Routing) -> Routes {
        Routes::new(routing, SHAPE, &mut Rng::new(1, "routes"))
    }

    fn spines_of(routes: &Routes, evs: u32) -> Vec<Option<usize>> {
        (0..evs)
            .map(|ev| routes.spine(1, 0, 1, Key { src: 0, dst: 2, ev }))
            .collect()
    }

    #[test]
    fn ecmp_spreads_the_entropy_values_evenly_and_each_switch_in_its_own_way() {
        let routes = routes(Routing::Ecmp);
        let mut counts = [0u32; 8];
        for spine in spines_of(&routes, 8000).into_iter().flatten() {
            counts[spine] += 1;
        }
        // Standard deviation of 1000 draws of 8000 at 1/8: 29.6.
        assert!(counts.iter().all(|count| count.abs_diff(1000) < 130), "{counts:?}");
        let other: Vec<Option<usize>> = (0..64)
            .map(|ev| routes.spine(1, 2, 1, Key { src: 0, dst: 2, ev }))
            .collect();
        assert_ne!(other, spines_of(&routes, 64));
    }

    #[test]
    fn structured_values_name_their_spine() {
        let routes = routes(Routing::Structured { low_bit: 22, bits: 10 });
        for spine in 0..8 {
            let key = Key {
                src: 0,
                dst: 2,
                ev: spine << 22 | 0x3f_ffff,
            };
            assert_eq!(routes.spine(1, 0, 1, key), Some(spine as usize));
        }
    }

    #[test]
    fn only_packets_of_a_withdrawn_link_move_and_all_come_back() {
        let mut routes = routes(Routing::Ecmp);
        let before = spines_of(&routes, 1000);
        let links = [
            Link::SpineUp {
                plane: 1,
                leaf: 0,
                spine: 3,
            },
            Link::SpineDown {
                plane: 1,
                leaf: 1,
                spine: 5,
            },
        ];
        for link in links {
            routes.believe(link, false);
        }
        for (now, then) in spines_of(&routes, 1000).iter().zip(&before) {
            match then {
                Some(3 | 5) => assert!(now.is_some_and(|spine| spine != 3 && spine != 5)),
                _ => assert_eq!(now, then),
            }
        }
        for link in links {
            routes.believe(link, true);
        }
        assert_eq!(spines_of(&routes, 1000), before);
    }

    #[test]
    fn without_any_spine_there_is_no_route() {
        let mut routes = routes(Routing::Ecmp);
        for spine in 0..8 {
            routes.believe(
                Link::SpineUp {
                    plane: 1,
                    leaf: 0,
                    spine,
                },
                false,
            );
        }
        assert!(spines_of(&routes, 10).iter().all(Option::is_none));
    }
}
