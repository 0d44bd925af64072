//! What a command asks for is checked before anything changes.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use mrc_wire::{Encap, Pmtu};

use super::config::EngineConfig;
use super::control::port_num;
use super::error::CommandError;
use super::ports::PortFacts;
use crate::neigh::{NextHop, NextHops, Unreachable};

pub(super) fn in_range(what: &'static str, value: u32, least: u32, most: u32) -> Result<(), CommandError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(CommandError::OutOfRange {
        what,
        value: value.into(),
        least: least.into(),
        most: most.into(),
    })
}

pub(super) fn check_addresses(config: &EngineConfig, local: IpAddr, remote: IpAddr) -> Result<(), CommandError> {
    if !config.owns(local) {
        return Err(CommandError::NotOurAddress(local));
    }
    if local.is_ipv4() != remote.is_ipv4() || remote.is_multicast() || remote.is_unspecified() {
        return Err(CommandError::PeerAddress(remote));
    }
    Ok(())
}

/// Refuses a peer that the kernel has no route to on any port: nothing would ever be sent. Waits a little for the answers, so
/// that the first packets need not. Next hops that do not answer, and links that are down, may come back: such a peer is
/// accepted, and its requests fail when their retries are used up.
pub(super) fn find_way(next_hops: &dyn NextHops, ports: &[PortFacts], remote: IpAddr) -> Result<(), CommandError> {
    const PATIENCE: Duration = Duration::from_millis(250);
    const STEP: Duration = Duration::from_micros(500);
    let start = Instant::now();
    loop {
        let hops = (0..ports.len())
            .filter_map(port_num)
            .map(|num| next_hops.lookup(num, remote));
        let (mut pending, mut hopeless) = (false, true);
        for hop in hops {
            match hop {
                NextHop::Resolved(_) => return Ok(()),
                NextHop::Pending => pending = true,
                NextHop::Unreachable(why) => hopeless &= why == Unreachable::NoRoute,
            }
        }
        if !pending && hopeless {
            let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
            return Err(CommandError::NoRoute {
                peer: remote,
                ports: names.join(", "),
            });
        }
        if !pending || start.elapsed() > PATIENCE {
            return Ok(());
        }
        std::thread::sleep(STEP);
    }
}

/// How packets to this peer are wrapped without a tunnel.
pub(super) fn encap_towards(remote: IpAddr) -> Encap {
    if remote.is_ipv4() { Encap::Ipv4 } else { Encap::Ipv6 }
}

/// MRC packets are never fragmented, so every port must carry the largest (api.md D6).
pub(super) fn check_pmtu(ports: &[PortFacts], pmtu: Pmtu, encap: Encap) -> Result<(), CommandError> {
    let fits = |port: &PortFacts| port.largest_pmtu(encap);
    let Some(small) = ports.iter().find(|port| fits(port) < Some(pmtu)) else {
        return Ok(());
    };
    let usable = ports.iter().map(fits).min().flatten().map_or(0, Pmtu::bytes);
    let (port, mtu, needed) = (small.name.clone(), small.mtu(), pmtu.min_ip_mtu(encap));
    let pmtu = pmtu.bytes();
    if needed > mtu as usize {
        return Err(CommandError::PmtuTooLarge {
            pmtu,
            port,
            mtu,
            needed,
            usable,
        });
    }
    Err(CommandError::PmtuNeedsMultiBuffer {
        pmtu,
        port,
        reason: small.why_no_multi_buffer(),
        usable,
    })
}
