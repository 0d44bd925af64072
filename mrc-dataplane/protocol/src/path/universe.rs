//! The EV universe of a queue pair, and what it is split into (protocol.md §7.1, §7.4, §15).

use alloc::vec;
use alloc::vec::Vec;

use mrc_wire::{Ev, EvLayout, PortSet};
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

use crate::attr::{EvEntry, PathConfig, Universe};
use crate::profile::{EntryState, ProfileEv, auto_ports};
use crate::work::CreateError;

/// Source ports of AUTO: 0xC000-0xFFFF (W6).
const SOURCE_PORTS: usize = 0x4000;
/// Defaults of protocol.md §15.
const EV_COUNT: usize = 128;
const ACTIVE: usize = 64;

/// All EVs.
pub(super) fn entries(config: &PathConfig, rng: &mut ChaCha8Rng) -> Result<Vec<ProfileEv>, CreateError> {
    let entries = match &config.universe {
        Universe::Profile(entries) => entries.clone(),
        Universe::Explicit(entries) => named(entries.iter().copied()),
        Universe::Auto {
            ports,
            per_port,
            layout,
            flow_label,
        } => {
            let planes = ports.len().max(1);
            let per_port = per_port.map_or(EV_COUNT.div_ceil(planes).max(2), usize::from);
            if planes * per_port > SOURCE_PORTS {
                return Err(CreateError::Universe(planes * per_port));
            }
            auto(*ports, per_port, *layout, *flow_label, rng)
        }
    };
    if entries.is_empty() || entries.len() > SOURCE_PORTS {
        return Err(CreateError::Universe(entries.len()));
    }
    Ok(entries)
}

/// Of no profile: named by their places.
fn named(entries: impl Iterator<Item = EvEntry>) -> Vec<ProfileEv> {
    let path = |(entry, EvEntry { ev, port })| ProfileEv {
        tag: ev,
        port,
        encap: None,
        entry,
        state: EntryState::Good,
    };
    (0..).zip(entries).map(path).collect()
}

/// Each source port once: the port is not in a SACK, so that a value on two ports would be ambiguous (§5.5 step 5).
fn auto(ports: PortSet, per_port: usize, layout: EvLayout, flow_label: bool, rng: &mut ChaCha8Rng) -> Vec<ProfileEv> {
    let drawn = auto_ports((ports.len() * per_port) as u32, ports, rng);
    named(drawn.into_iter().map(|(port, source_port)| {
        let source_port = u32::from(source_port);
        let label = if flow_label { rng.next_u32() & 0xffff } else { 0 };
        let ev = match layout {
            EvLayout::FlowHigh => label << 16 | source_port,
            EvLayout::PortHigh => source_port << 16 | label,
        };
        EvEntry { ev: Ev(ev), port }
    }))
}

/// EVs of each port in the active set: the same number everywhere, since planes must stay balanced (§7.4, §8.3), unless a
/// port has fewer. The second value is the floor of the whole set.
pub(super) fn shares(active: Option<u16>, min_active: Option<u16>, counts: &[usize]) -> (Vec<usize>, usize) {
    let planes = counts.iter().filter(|&&count| count > 0).count().max(1);
    let universe: usize = counts.iter().sum();
    let active = match active {
        Some(active) => usize::from(active),
        None if universe < ACTIVE => universe - planes.min(universe),
        None => ACTIVE,
    };
    let share = (active / planes).max(1);
    let shares: Vec<usize> = counts.iter().map(|&count| share.min(count)).collect();
    let total: usize = shares.iter().sum();
    let floor = min_active.map_or(total / 4, usize::from).clamp(1, total.max(1));
    (shares, floor)
}

/// Numbers of EVs by port, indexed by port number, up to the highest port that has any.
pub(super) fn counts(entries: &[ProfileEv]) -> Vec<usize> {
    let highest = entries.iter().map(|entry| entry.port.get()).max().unwrap_or(0);
    let mut counts = vec![0; usize::from(highest) + 1];
    for entry in entries {
        counts[usize::from(entry.port.get())] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;
    use std::collections::BTreeSet;

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::from_seed([7; 32])
    }

    #[test]
    fn auto_gives_each_source_port_once_and_each_plane_the_same_number() {
        let config = PathConfig::auto(PortSet::first(4));
        let entries = entries(&config, &mut rng()).unwrap();
        assert_eq!(entries.len(), 128);
        assert_eq!(entries.iter().map(|e| e.tag.0).collect::<BTreeSet<_>>().len(), 128);
        assert!(entries.iter().all(|e| (0xc000..=0xffff).contains(&e.tag.0)));
        assert_eq!(counts(&entries)[1..5], [32, 32, 32, 32]);
        assert_eq!(
            shares(config.active, config.min_active, &counts(&entries)),
            (counts(&entries).iter().map(|c| c / 2).collect(), 16)
        );
    }

    #[test]
    fn auto_puts_the_halves_where_the_layout_says() {
        let mut config = PathConfig::auto(PortSet::first(2));
        config.universe = Universe::Auto {
            ports: PortSet::first(2),
            per_port: Some(3),
            layout: EvLayout::PortHigh,
            flow_label: false,
        };
        let entries = entries(&config, &mut rng()).unwrap();
        assert!(
            entries
                .iter()
                .all(|e| e.tag.0 >= 0xc000_0000 && e.tag.0.trailing_zeros() >= 16)
        );
        assert_eq!(
            shares(config.active, config.min_active, &counts(&entries)).0[1..3],
            [2, 2],
            "all but one per plane"
        );
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut config = PathConfig::auto(PortSet::EMPTY);
        assert_eq!(entries(&config, &mut rng()), Err(CreateError::Universe(0)));
        config.universe = Universe::Auto {
            ports: PortSet::first(31),
            per_port: Some(600),
            layout: EvLayout::FlowHigh,
            flow_label: true,
        };
        assert_eq!(entries(&config, &mut rng()), Err(CreateError::Universe(31 * 600)));
    }

    // protocol.md §15: 64 active ones; of a universe below 64 all but one per plane. §7.4: as many in each plane.
    #[test]
    fn defaults_change_at_a_universe_of_sixty_four_and_no_plane_goes_without() {
        assert_eq!(shares(None, None, &[0, 32, 32]), (vec![0, 32, 32], 16));
        assert_eq!(shares(None, None, &[0, 32, 31]), (vec![0, 30, 30], 15));
        assert_eq!(shares(None, None, &[0, 65, 65]), (vec![0, 32, 32], 16));
        assert_eq!(shares(Some(1), None, &[0, 4, 4]), (vec![0, 1, 1], 1));
        assert_eq!(
            shares(Some(4), Some(9), &[0, 4, 4]),
            (vec![0, 2, 2], 4),
            "no floor above the set"
        );
    }
}
