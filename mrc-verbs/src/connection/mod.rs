//! What two programs tell each other before their queue pairs can talk: [`ConnectionInfo`], over any channel they like.
//!
//! MRC has no connection manager (protocol.md §2.1): the application carries these values in a socket, a file or a
//! key-value store. The text form is one line of JSON. It carries a version of its own, and everything that would
//! otherwise show as silence on the wire (another UDP port, another encoding of EVs, other DSCPs) is compared before the
//! first packet, see [`ConnectionInfo::check_compatible`].

mod compat;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use compat::{Agreement, Incompatible};

use crate::gid::{AddressFamily, Gid};

/// Version of the layout of [`ConnectionInfo`]. It changes only when an old reader would misunderstand a new writer;
/// fields that may be ignored are added without a change.
pub const CONNECTION_INFO_VERSION: u16 = 1;

/// Longest text form that is looked at; a longer one is not ours.
pub const CONNECTION_INFO_MAX_LEN: usize = 4096;

/// One side's description of its queue pair.
///
/// ```
/// # use mrc_verbs::{ConnectionInfo, CONNECTION_INFO_VERSION};
/// # let mine = ConnectionInfo::example();
/// let line = mine.to_string(); // one line: send it, with a newline, to the peer
/// assert!(!line.contains('\n'));
/// let theirs: ConnectionInfo = line.parse()?;
/// assert_eq!(theirs, mine);
/// # Ok::<(), mrc_verbs::Incompatible>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// [`CONNECTION_INFO_VERSION`] of the writer.
    pub version: u16,
    /// Wire protocol versions that the writer speaks; bit 0 = MRC 1.0.
    pub protocol_versions: u32,
    /// The node's addresses that this queue pair may use, at most one per family.
    pub gids: Vec<Gid>,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// PSN of the first packet that the writer will send, 24 bits.
    pub psn: u32,
    /// Largest payload of a packet that the writer can take, in bytes: 256, 512, 1024, 2048 or 4096.
    pub pmtu: u32,
    /// The writer's receive window in units of 128 packets.
    pub max_mpr_dest: u8,
    /// Writes with immediate in flight that the writer can hold as responder.
    pub max_wimm_dest: u16,
    /// Features of the writer's engine.
    pub capabilities: PeerCapabilities,
    /// UDP destination port of the protocol.
    pub udp_port: u16,
    /// Which half of an entropy value is the flow label: `flow_hi` or `port_hi`.
    pub ev_layout: EvEncoding,
    /// DSCP of each traffic class.
    pub dscps: DscpSet,
}

/// Optional features of an engine (protocol.md §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerCapabilities {
    /// Answers trimmed packets with NACKs.
    pub trim_nack: bool,
    /// Can change its receive window at run time; used only if both sides can.
    pub dynamic_mpr: bool,
    /// Removes its service time from the timestamps that it reflects.
    pub svc_time: bool,
}

/// Where the two halves of an entropy value go in an IPv6 packet (wire-format.md §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvEncoding {
    /// High half = flow label, low half = UDP source port.
    #[default]
    FlowHi,
    /// High half = UDP source port, low half = flow label.
    PortHi,
}

impl fmt::Display for EvEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EvEncoding::FlowHi => "flow_hi",
            EvEncoding::PortHi => "port_hi",
        })
    }
}

/// DSCP of each traffic class (wire-format.md §4); `None` where the fabric has no such class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DscpSet {
    /// Requests that switches must not trim.
    pub no_trim: u8,
    /// First transmissions of writes.
    #[serde(default)]
    pub trimmable: Option<u8>,
    /// Retransmitted writes.
    #[serde(default)]
    pub trimmable_retx: Option<u8>,
    /// Set by a switch on a trimmed packet.
    pub trimmed: u8,
    /// Set by the last switch on a trimmed packet.
    #[serde(default)]
    pub trimmed_lasthop: Option<u8>,
    /// Acknowledgements and the like.
    pub control: u8,
}

impl ConnectionInfo {
    /// Keeps only the address of one family, so that both sides use that one.
    ///
    /// # Errors
    /// [`Incompatible::NoAddress`] if this node has none of that family.
    pub fn only(mut self, family: AddressFamily) -> Result<ConnectionInfo, Incompatible> {
        self.gids.retain(|gid| gid.family() == family);
        if self.gids.is_empty() {
            return Err(Incompatible::NoAddress { family });
        }
        Ok(self)
    }

    /// An example with every field set, for documentation and tests.
    #[doc(hidden)]
    pub fn example() -> ConnectionInfo {
        ConnectionInfo {
            version: CONNECTION_INFO_VERSION,
            protocol_versions: 1,
            gids: vec![Gid::from(std::net::Ipv4Addr::new(192, 0, 2, 1))],
            qpn: 0x12_3456,
            psn: 0xab_cdef,
            pmtu: 4096,
            max_mpr_dest: 8,
            max_wimm_dest: 128,
            capabilities: PeerCapabilities {
                trim_nack: true,
                dynamic_mpr: false,
                svc_time: true,
            },
            udp_port: 4791,
            ev_layout: EvEncoding::FlowHi,
            dscps: DscpSet {
                no_trim: 0,
                trimmable: Some(4),
                trimmable_retx: Some(8),
                trimmed: 12,
                trimmed_lasthop: Some(16),
                control: 46,
            },
        }
    }

    /// Range checks that JSON does not express.
    fn checked(self) -> Result<ConnectionInfo, Incompatible> {
        let malformed = |reason: String| Err(Incompatible::Malformed { reason });
        if !(3..1 << 24).contains(&self.qpn) {
            return malformed(format!("qpn {} is not between 3 and 2^24-1", self.qpn));
        }
        if self.psn >= 1 << 24 {
            return malformed(format!("psn {} does not fit 24 bits", self.psn));
        }
        if ![256, 512, 1024, 2048, 4096].contains(&self.pmtu) {
            return malformed(format!("pmtu {} is not one of 256, 512, 1024, 2048, 4096", self.pmtu));
        }
        if self.max_mpr_dest == 0 {
            return malformed("max_mpr_dest is 0".into());
        }
        if self.gids.is_empty() || self.gids.len() > 2 {
            return malformed(format!("{} gids, expected 1 or 2", self.gids.len()));
        }
        Ok(self)
    }
}

impl fmt::Display for ConnectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&line)
    }
}

impl FromStr for ConnectionInfo {
    type Err = Incompatible;

    fn from_str(text: &str) -> Result<ConnectionInfo, Incompatible> {
        #[derive(Deserialize)]
        struct VersionOnly {
            version: u16,
        }

        if text.len() > CONNECTION_INFO_MAX_LEN {
            return Err(Incompatible::Malformed {
                reason: format!("{} bytes, more than {CONNECTION_INFO_MAX_LEN}", text.len()),
            });
        }
        let malformed = |error: serde_json::Error| Incompatible::Malformed {
            reason: error.to_string(),
        };
        // The version first: a peer with another layout must be told apart from a damaged line.
        let VersionOnly { version } = serde_json::from_str(text).map_err(malformed)?;
        if version != CONNECTION_INFO_VERSION {
            return Err(Incompatible::InfoVersion {
                local: CONNECTION_INFO_VERSION,
                peer: version,
            });
        }
        serde_json::from_str::<ConnectionInfo>(text)
            .map_err(malformed)?
            .checked()
    }
}
