//! Diagnosis of peers that could not be heard, before they are only silent.

use crate::gid::{AddressFamily, Gid};

use super::{CONNECTION_INFO_VERSION, ConnectionInfo, EvEncoding};

/// Why two sides cannot talk. One line each: both values and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Incompatible {
    /// Not a connection info at all.
    #[error("cannot read the peer's connection info: {reason}; is the peer an MRC program of this family?")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// Another layout of the connection info.
    #[error("connection info version differs: ours {local}, peer's {peer}; update the older of the two programs")]
    InfoVersion {
        /// Ours.
        local: u16,
        /// The peer's.
        peer: u16,
    },
    /// No common wire protocol.
    #[error("no common MRC protocol version: ours {local:#x}, peer's {peer:#x} (bitmaps); update the older engine")]
    ProtocolVersion {
        /// Ours.
        local: u32,
        /// The peer's.
        peer: u32,
    },
    /// Another UDP port: packets would arrive nowhere.
    #[error("UDP port differs: ours {local}, peer's {peer}; set the same on both (MRC_UDP_PORT, default 4791)")]
    UdpPort {
        /// Ours.
        local: u16,
        /// The peer's.
        peer: u16,
    },
    /// Another encoding of entropy values: EVs would come back scrambled.
    #[error("EV layout differs: ours {local}, peer's {peer}; set the same on both (MRC_EV_LAYOUT, default flow_hi)")]
    EvLayout {
        /// Ours.
        local: EvEncoding,
        /// The peer's.
        peer: EvEncoding,
    },
    /// Another DSCP for a traffic class: packets would be taken for another class.
    #[error("DSCP of class {class} differs: ours {}, peer's {}; set the same on both (MRC_DSCPS) and in the switches", dscp(*local), dscp(*peer))]
    Dscp {
        /// The class.
        class: &'static str,
        /// Ours.
        local: Option<u8>,
        /// The peer's.
        peer: Option<u8>,
    },
    /// No address family in common.
    #[error(
        "no common address family: ours {local}, peer's {peer}; give both nodes an address of the same family on lo, or choose it on both"
    )]
    AddressFamily {
        /// Our addresses.
        local: String,
        /// The peer's addresses.
        peer: String,
    },
    /// This node has no address of the wanted family.
    #[error("this node has no {family} address: add one to lo (ip addr add ADDRESS dev lo) or choose the other family")]
    NoAddress {
        /// The family.
        family: AddressFamily,
    },
}

fn dscp(value: Option<u8>) -> String {
    value.map_or_else(|| "none".into(), |v| v.to_string())
}

/// What two compatible sides agree on (protocol.md §2.1), from the view of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Our address.
    pub local_gid: Gid,
    /// The peer's address.
    pub peer_gid: Gid,
    /// The smaller PMTU, in bytes.
    pub pmtu: u32,
    /// Our send window in units of 128 packets: no more than the peer takes.
    pub mpr: u8,
    /// Immediates that we may have in flight: no more than the peer holds.
    pub max_wimm: u16,
    /// Both can change the window at run time.
    pub dynamic_mpr: bool,
}

impl ConnectionInfo {
    /// Checks that this side and `peer` can talk, and says on what terms. Both sides come to the same result.
    ///
    /// # Errors
    /// The first difference that would keep packets from being understood.
    pub fn check_compatible(&self, peer: &ConnectionInfo) -> Result<Agreement, Incompatible> {
        for version in [self.version, peer.version] {
            if version != CONNECTION_INFO_VERSION {
                return Err(Incompatible::InfoVersion {
                    local: self.version,
                    peer: peer.version,
                });
            }
        }
        if self.protocol_versions & peer.protocol_versions == 0 {
            return Err(Incompatible::ProtocolVersion {
                local: self.protocol_versions,
                peer: peer.protocol_versions,
            });
        }
        if self.udp_port != peer.udp_port {
            return Err(Incompatible::UdpPort {
                local: self.udp_port,
                peer: peer.udp_port,
            });
        }
        let (local_gid, peer_gid) = common_family(self, peer)?;
        if self.ev_layout != peer.ev_layout {
            return Err(Incompatible::EvLayout {
                local: self.ev_layout,
                peer: peer.ev_layout,
            });
        }
        let classes = [
            ("no_trim", Some(self.dscps.no_trim), Some(peer.dscps.no_trim)),
            ("trimmable", self.dscps.trimmable, peer.dscps.trimmable),
            ("trimmable_retx", self.dscps.trimmable_retx, peer.dscps.trimmable_retx),
            ("trimmed", Some(self.dscps.trimmed), Some(peer.dscps.trimmed)),
            (
                "trimmed_lasthop",
                self.dscps.trimmed_lasthop,
                peer.dscps.trimmed_lasthop,
            ),
            ("control", Some(self.dscps.control), Some(peer.dscps.control)),
        ];
        for (class, local, peer) in classes {
            if local != peer {
                return Err(Incompatible::Dscp { class, local, peer });
            }
        }
        Ok(Agreement {
            local_gid,
            peer_gid,
            pmtu: self.pmtu.min(peer.pmtu),
            mpr: self.max_mpr_dest.min(peer.max_mpr_dest),
            max_wimm: self.max_wimm_dest.min(peer.max_wimm_dest),
            dynamic_mpr: self.capabilities.dynamic_mpr && peer.capabilities.dynamic_mpr,
        })
    }
}

/// The addresses of the family that both sides offer; IPv6 if both offer both, so that both choose alike.
fn common_family(local: &ConnectionInfo, peer: &ConnectionInfo) -> Result<(Gid, Gid), Incompatible> {
    let of = |info: &ConnectionInfo, family| info.gids.iter().copied().find(|gid| gid.family() == family);
    for family in [AddressFamily::V6, AddressFamily::V4] {
        if let (Some(ours), Some(theirs)) = (of(local, family), of(peer, family)) {
            return Ok((ours, theirs));
        }
    }
    let list = |info: &ConnectionInfo| {
        let gids: Vec<String> = info
            .gids
            .iter()
            .map(|gid| format!("{} ({gid})", gid.family()))
            .collect();
        gids.join(", ")
    };
    Err(Incompatible::AddressFamily {
        local: list(local),
        peer: list(peer),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut ConnectionInfo)) -> String {
        let local = ConnectionInfo::example();
        let mut peer = local.clone();
        change(&mut peer);
        local.check_compatible(&peer).expect_err("compatible").to_string()
    }

    #[test]
    fn equal_configurations_agree_on_the_smaller_values() {
        let local = ConnectionInfo::example();
        let mut peer = local.clone();
        peer.pmtu = 1024;
        peer.max_mpr_dest = 200;
        peer.max_wimm_dest = 5;
        let agreed = local.check_compatible(&peer).unwrap();
        assert_eq!((agreed.pmtu, agreed.mpr, agreed.max_wimm), (1024, 8, 5));
        let mirrored = peer.check_compatible(&local).unwrap();
        assert_eq!((mirrored.pmtu, mirrored.mpr, mirrored.max_wimm), (1024, 8, 5));
        assert_eq!(mirrored.local_gid, agreed.peer_gid);
    }

    #[test]
    fn every_difference_names_both_values_and_the_remedy_in_one_line() {
        let refusals = [
            (refusal(|p| p.version = 7), vec!["1", "7", "update"]),
            (refusal(|p| p.protocol_versions = 2), vec!["0x1", "0x2", "update"]),
            (refusal(|p| p.udp_port = 4792), vec!["4791", "4792", "MRC_UDP_PORT"]),
            (
                refusal(|p| p.ev_layout = EvEncoding::PortHi),
                vec!["flow_hi", "port_hi", "MRC_EV_LAYOUT"],
            ),
            (
                refusal(|p| p.dscps.control = 40),
                vec!["control", "46", "40", "MRC_DSCPS"],
            ),
            (refusal(|p| p.dscps.trimmable = None), vec!["trimmable", "4", "none"]),
            (
                refusal(|p| p.gids = vec!["2001:db8::1".parse().unwrap()]),
                vec!["IPv4 (192.0.2.1)", "IPv6 (2001:db8::1)", "lo"],
            ),
        ];
        for (message, parts) in refusals {
            assert!(!message.contains('\n'), "{message}");
            for part in parts {
                assert!(message.contains(part), "{part:?} missing in {message:?}");
            }
        }
    }

    #[test]
    fn both_sides_choose_the_same_family() {
        let v4: Gid = "192.0.2.1".parse().unwrap();
        let v6: Gid = "2001:db8::1".parse().unwrap();
        for (ours, theirs, family) in [
            (vec![v4, v6], vec![v6, v4], AddressFamily::V6),
            (vec![v4], vec![v6, v4], AddressFamily::V4),
            (vec![v4, v6], vec![v6], AddressFamily::V6),
        ] {
            let mut a = ConnectionInfo::example();
            let mut b = a.clone();
            a.gids = ours;
            b.gids = theirs;
            assert_eq!(a.check_compatible(&b).unwrap().peer_gid.family(), family);
            assert_eq!(b.check_compatible(&a).unwrap().peer_gid.family(), family);
        }
    }

    #[test]
    fn text_form_round_trips_and_ignores_what_it_does_not_know() {
        let info = ConnectionInfo::example();
        assert_eq!(info.to_string().parse::<ConnectionInfo>().unwrap(), info);
        let with_more = info.to_string().replacen('{', r#"{"colour":"red","#, 1);
        assert_eq!(with_more.parse::<ConnectionInfo>().unwrap(), info);
    }

    #[test]
    fn text_of_another_version_is_told_apart_from_garbage() {
        let future = r#"{"version":2,"something":"else"}"#;
        assert_eq!(
            future.parse::<ConnectionInfo>(),
            Err(Incompatible::InfoVersion { local: 1, peer: 2 })
        );
        for garbage in ["", "{}", "GET / HTTP/1.1", "\u{0}", "[1,2]", &"x".repeat(5000)] {
            let error = garbage.parse::<ConnectionInfo>().expect_err("parsed");
            assert!(matches!(error, Incompatible::Malformed { .. }), "{error}");
            assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn values_out_of_range_are_malformed() {
        for (from, to) in [
            ("\"qpn\":1193046", "\"qpn\":16777216"),
            ("\"qpn\":1193046", "\"qpn\":2"),
            ("\"psn\":11259375", "\"psn\":16777216"),
            ("\"pmtu\":4096", "\"pmtu\":1500"),
            ("\"max_mpr_dest\":8", "\"max_mpr_dest\":0"),
            ("[\"192.0.2.1\"]", "[]"),
            ("192.0.2.1", "nowhere"),
        ] {
            let text = ConnectionInfo::example().to_string();
            let bad = text.replace(from, to);
            assert_ne!(text, bad, "{from}");
            assert!(
                matches!(bad.parse::<ConnectionInfo>(), Err(Incompatible::Malformed { .. })),
                "{bad}"
            );
        }
    }
}
