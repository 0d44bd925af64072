//! What everybody may know of the ports, without asking an engine thread.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mrc_wire::{Encap, Pmtu, PortNum};

use crate::port::{Port, PortMode, largest_pmtu};

/// One port as others see it; kept up to date by engine thread 0.
pub(super) struct PortFacts {
    pub(super) name: String,
    mode: PortMode,
    mac: [u8; 6],
    link_speed_bps: Option<u64>,
    up: AtomicBool,
    mtu: AtomicU32,
}

impl PortFacts {
    pub(super) fn of(port: &dyn Port, link_speed_bps: Option<u64>) -> Self {
        Self {
            name: port.name().to_owned(),
            mode: port.mode().clone(),
            mac: port.mac(),
            link_speed_bps,
            up: port.link_up().into(),
            mtu: port.mtu().into(),
        }
    }

    pub(super) fn follow(&self, port: &dyn Port) {
        self.up.store(port.link_up(), Ordering::Relaxed);
        self.mtu.store(port.mtu(), Ordering::Relaxed);
    }

    pub(super) fn link_speed_bps(&self) -> Option<u64> {
        self.link_speed_bps
    }

    pub(super) fn mtu(&self) -> u32 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// The largest PMTU whose frames the port can send and receive.
    pub(super) fn largest_pmtu(&self, encap: Encap) -> Option<Pmtu> {
        largest_pmtu(self.mtu(), self.mode.multi_buffer, encap)
    }

    pub(super) fn why_no_multi_buffer(&self) -> String {
        let reason = self.mode.reasons.iter().find(|reason| reason.contains("multi-buffer"));
        reason.map_or_else(
            || "its MTU was raised after it was opened: restart".to_owned(),
            String::clone,
        )
    }

    pub(super) fn attributes(&self, num: PortNum) -> PortAttributes {
        PortAttributes {
            num,
            name: self.name.clone(),
            mtu: self.mtu(),
            mac: self.mac,
            link_up: self.up.load(Ordering::Relaxed),
            link_speed_bps: self.link_speed_bps,
            mode: self.mode.clone(),
        }
    }
}

/// What is known of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortAttributes {
    /// Number, from 1.
    pub num: PortNum,
    /// Interface.
    pub name: String,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: [u8; 6],
    /// Can frames pass?
    pub link_up: bool,
    /// Speed, if the configuration says it, or else if the interface knows it.
    pub link_speed_bps: Option<u64>,
    /// How the port is driven, and why so.
    pub mode: PortMode,
}

/// What is known of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineAttributes {
    /// The ports.
    pub ports: Vec<PortAttributes>,
    /// Own node address.
    pub address_v4: Option<std::net::Ipv4Addr>,
    /// Own node address.
    pub address_v6: Option<std::net::Ipv6Addr>,
    /// UDP destination port.
    pub udp_port: u16,
    /// Code points.
    pub dscps: mrc_wire::Dscps,
    /// Which half of an EV is the source port.
    pub ev_layout: mrc_wire::EvLayout,
    /// Do switches trim?
    pub fabric_trims: bool,
    /// How the largest packets are carried, if an EV profile has tunnels.
    pub tunnel: Option<Encap>,
    /// Engine threads.
    pub threads: u8,
    /// Queue pairs.
    pub max_qps: u32,
    /// Largest send or receive queue.
    pub max_depth: u32,
    /// Largest completion queue.
    pub max_cqe: u32,
    /// Most pieces of a send request.
    pub max_sge: u32,
    /// Most inline data of a send request.
    pub max_inline: u32,
}

impl EngineAttributes {
    /// The largest PMTU that every port carries; `None` if not even 256 bytes fit.
    pub fn active_pmtu(&self, encap: Encap) -> Option<Pmtu> {
        let fits = |port: &PortAttributes| largest_pmtu(port.mtu, port.mode.multi_buffer, encap);
        self.ports.iter().map(fits).min()?
    }
}
