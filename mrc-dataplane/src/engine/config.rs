//! What an engine is started with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mrc_wire::{DEFAULT_UDP_PORT, Dscps, EvLayout, PortNum, PortSet};

use super::error::EngineError;
use crate::capture::CaptureConfig;
use crate::profile::{ProfileConfig, Registry};

/// One network interface to use. Ports are numbered from 1 in the order of [`EngineConfig::ports`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// Name of the interface.
    pub name: String,
    /// Its first queue; engine thread n uses queue `queue + n`.
    pub queue: u32,
    /// Real speed of the link, which it is paced to; `None`: what the interface knows, if it is a device and not a veth pair.
    pub link_speed_bps: Option<u64>,
}

impl PortConfig {
    /// Queue 0 of this interface.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queue: 0,
            link_speed_bps: None,
        }
    }
}

/// What an engine is started with. Everything but the ports has a default.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// The ports (planes).
    pub ports: Vec<PortConfig>,
    /// Node address; `None`: the host's global IPv4 address on `lo`.
    pub address_v4: Option<Ipv4Addr>,
    /// Node address; `None`: the host's global IPv6 address on `lo`.
    pub address_v6: Option<Ipv6Addr>,
    /// UDP destination port, the same at every peer.
    pub udp_port: u16,
    /// Code points of the traffic classes, the same in the whole fabric.
    pub dscps: Dscps,
    /// Which half of an EV is the source port, the same at every peer.
    pub ev_layout: EvLayout,
    /// Switches trim instead of dropping (protocol.md §8.2 (2)).
    pub fabric_trims: bool,
    /// IPv4 TTL, IPv6 hop limit.
    pub hop_limit: u8,
    /// Engine threads; each needs a queue of its own on every port.
    pub threads: u8,
    /// Cores that the threads are pinned to, one each; empty: anywhere.
    pub cores: Vec<usize>,
    /// Packets in flight per port towards one peer. A veth ring holds 256.
    pub window_packets: u16,
    /// What both hosts add to the idle round trip of a full packet, besides the time on the links: congestion control starts from
    /// the sum, unless the CC profile says another (protocol.md §10.3). Engines share their cores with others, and a window that
    /// is made for less leaves the links idle whenever a thread has to wait for its turn (P25).
    pub host_rtt_ns: u32,
    /// How long a thread polls after its last work before it sleeps.
    pub spin_ns: u64,
    /// How long a thread leaves its work to an application that does it itself by polling ([`super::Engine::run_once`]) before it
    /// looks again whether that is still so.
    pub yield_ns: u64,
    /// Buffers of 4 KiB to receive into, per port and thread, at most 512. Few are fast: they stay in the cache.
    pub receive_buffers: u32,
    /// Frames that may be with the kernel, per port and thread. A veth ring holds 256 and drops what is more.
    pub transmit_frames: u32,
    /// Queue pairs per thread.
    pub max_qps: u32,
    /// Format, EV and CC profiles at the start.
    pub profiles: ProfileConfig,
    /// Captures of what it sends and receives.
    pub capture: CaptureConfig,
    /// The file that says so, for errors about it.
    pub config_file: Option<String>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            address_v4: None,
            address_v6: None,
            udp_port: DEFAULT_UDP_PORT,
            dscps: Dscps::default(),
            ev_layout: EvLayout::default(),
            fabric_trims: false,
            hop_limit: 64,
            threads: 1,
            cores: Vec::new(),
            window_packets: 192,
            host_rtt_ns: 2_000_000,
            spin_ns: 50_000,
            yield_ns: 200_000,
            receive_buffers: 512,
            transmit_frames: 192,
            max_qps: 4096,
            profiles: ProfileConfig::default(),
            capture: CaptureConfig::default(),
            config_file: None,
        }
    }
}

impl EngineConfig {
    /// Defaults over these interfaces.
    pub fn with_ports<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            ports: names.into_iter().map(PortConfig::new).collect(),
            ..Self::default()
        }
    }

    /// Most engine threads: they take the low bits of a QPN.
    pub const MAX_THREADS: u8 = 16;

    /// Checks everything that can be checked without the operating system.
    pub fn validate(&self) -> Result<(), EngineError> {
        let count = self.ports.len();
        if count > usize::from(PortNum::MAX) {
            return Err(EngineError::Config(format!(
                "{count} ports: at most {} can be used",
                PortNum::MAX
            )));
        }
        if let Some(twice) = self.ports.iter().enumerate().find_map(|(at, port)| {
            self.ports[..at]
                .iter()
                .any(|other| other.name == port.name)
                .then_some(&port.name)
        }) {
            return Err(EngineError::Config(format!("port {twice} is listed twice")));
        }
        self.dscps
            .validate()
            .map_err(|error| EngineError::Config(error.to_string()))?;
        if self.threads == 0 || self.threads > Self::MAX_THREADS {
            return Err(EngineError::Config(format!(
                "{} engine threads: give 1 to {}",
                self.threads,
                Self::MAX_THREADS
            )));
        }
        if !self.cores.is_empty() && self.cores.len() != usize::from(self.threads) {
            let (cores, threads) = (self.cores.len(), self.threads);
            return Err(EngineError::Config(format!(
                "{cores} cores for {threads} threads: give one core per thread"
            )));
        }
        if self.udp_port == 0 {
            return Err(EngineError::Config(
                "UDP port 0 cannot be used: the default is 4791".into(),
            ));
        }
        // Once for nothing, so that a profile that is wrong is refused before any port is opened.
        self.registry([0; 32])?;
        if self.max_qps == 0 || self.max_qps > crate::ring::BELLS {
            let most = crate::ring::BELLS;
            return Err(EngineError::Config(format!(
                "max_qps is {}: give 1 to {most}",
                self.max_qps
            )));
        }
        Ok(())
    }

    /// The register of its profiles.
    pub(crate) fn registry(&self, seed: [u8; 32]) -> Result<Registry, EngineError> {
        let ports = PortSet::first(self.ports.len() as u8);
        Registry::new(&self.profiles, ports, seed).map_err(|fault| {
            let file = self.config_file.as_ref();
            EngineError::Config(file.map_or_else(|| fault.to_string(), |file| format!("{file}: {fault}")))
        })
    }

    /// Is this one of the own node addresses?
    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.address_v4 == Some(address),
            IpAddr::V6(address) => self.address_v6 == Some(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(config: &EngineConfig) -> String {
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_valid() {
        EngineConfig::with_ports(["p1", "p2"]).validate().unwrap();
    }

    #[test]
    fn bad_values_are_named() {
        let config = EngineConfig::with_ports(["p1", "p2", "p1"]);
        assert_eq!(message(&config), "port p1 is listed twice");
        let config = EngineConfig {
            threads: 0,
            ..EngineConfig::default()
        };
        assert_eq!(message(&config), "0 engine threads: give 1 to 16");
        let config = EngineConfig {
            threads: 2,
            cores: vec![1],
            ..EngineConfig::default()
        };
        assert_eq!(message(&config), "1 cores for 2 threads: give one core per thread");
    }
}
