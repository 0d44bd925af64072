//! Endpoint requests of others, and their answers (protocol.md §9.2, §9.3, §14).

use mrc_wire::{Bth, Eeth, EndpointOp, Ev, Headers, Opcode, Packet, PortNum, Psn, Qpn, TrafficClass};

use super::{EndpointOps, Peer};
use crate::time::Instant;

/// How many endpoint requests are answered (protocol.md §14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointLimits {
    /// Per second and peer.
    pub answers_per_s_and_peer: u32,
    /// Per second in total.
    pub answers_per_s: u32,
    /// How many of them may come at once.
    pub burst: u32,
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self {
            answers_per_s_and_peer: 1000,
            answers_per_s: 10_000,
            burst: 64,
        }
    }
}

/// An answer to send to the address that the request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointReply {
    /// Base header.
    pub bth: Bth,
    /// The header after it.
    pub headers: Headers,
    /// A path.
    pub ev: Ev,
    /// The port that the request arrived on (wire-format.md W22).
    pub port: PortNum,
    /// DSCP; Not-ECT.
    pub class: TrafficClass,
    /// The peer said which of its ports are up: tell its queue pairs.
    pub ports_changed: bool,
}

/// Why an endpoint request gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EndpointDrop {
    /// Neither an endpoint request nor an answer.
    NotEndpoint,
    /// From nobody we know.
    UnknownPeer,
    /// Not in the default partition.
    PKey,
    /// Reserved operation (wire-format.md §7.11).
    Operation,
    /// Too many.
    RateLimited,
    /// An answer to nothing that was asked of this peer, or that came too late.
    UnknownId,
}

impl EndpointDrop {
    /// How many reasons there are: the size of a table indexed by `reason as usize`.
    pub const COUNT: usize = Self::UnknownId as usize + 1;
}

impl EndpointOps {
    /// A packet for QP 2 arrived. `peer`: the record that its source address belongs to.
    pub fn handle_request(
        &mut self,
        peer: Option<&mut Peer>,
        packet: &Packet<'_>,
        port: PortNum,
        now: Instant,
    ) -> Result<EndpointReply, EndpointDrop> {
        let Headers::EndpointRequest(erth) = &packet.headers else {
            return Err(EndpointDrop::NotEndpoint);
        };
        let peer = peer.ok_or(EndpointDrop::UnknownPeer)?;
        if (packet.bth.p_key ^ self.p_key) & 0x7fff != 0 {
            return Err(EndpointDrop::PKey);
        }
        if erth.op.is_reserved() {
            return Err(EndpointDrop::Operation);
        }
        if peer.answers.next(now) > now || self.answers.next(now) > now {
            return Err(EndpointDrop::RateLimited);
        }
        peer.answers.take(now);
        self.answers.take(now);
        let ports_changed = erth.op == EndpointOp::PORT_STATUS_UPDATE && peer.tell(erth.ports(), now);
        Ok(EndpointReply {
            bth: Bth {
                p_key: self.p_key,
                // wire-format.md §8: the id.
                ..Bth::new(
                    Opcode::EndpointResponse,
                    Qpn::ENDPOINT,
                    Psn::new(packet.bth.psn.get() & 0xffff),
                )
            },
            headers: Headers::EndpointResponse(Eeth {
                op: erth.op,
                tx_timestamp: erth.tx_timestamp,
            }),
            ev: self.any_ev(),
            port,
            class: TrafficClass::Control,
            ports_changed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mrc_wire::{Condition, Erth, EvLayout, Payload, PortSet, Tick};
    use std::net::{IpAddr, Ipv4Addr};

    fn request(op: u8, mask: u32) -> Packet<'static> {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Packet {
            bth: Bth::new(Opcode::EndpointRequest, Qpn::ENDPOINT, Psn::new(0xab_1234)),
            headers: Headers::EndpointRequest(Erth {
                op: EndpointOp::new(op),
                port_status_mask: mask,
                tx_timestamp: Tick(77),
                ftype: 1,
            }),
            payload: Payload::EMPTY,
            condition: Condition::Whole,
            ev: Ev(1),
            ce: false,
            dscp: 0,
            udp_len: 40,
            src: here,
            dst: here,
        }
    }

    fn port(num: u8) -> PortNum {
        PortNum::new(num).unwrap()
    }

    #[test]
    fn ev_probe_is_answered_with_id_operation_and_timestamp_on_its_port() {
        let limits = EndpointLimits::default();
        let mut ops = EndpointOps::new(&limits, EvLayout::FlowHigh);
        let mut peer = Peer::new(&limits, PortSet::first(4));
        let reply = ops
            .handle_request(Some(&mut peer), &request(1, 0), port(3), Instant::ZERO)
            .unwrap();
        assert_eq!(
            (reply.bth.opcode, reply.bth.dqp),
            (Opcode::EndpointResponse, Qpn::ENDPOINT)
        );
        assert_eq!(reply.bth.psn, Psn::new(0x1234));
        assert_eq!((reply.port, reply.class), (port(3), TrafficClass::Control));
        let eeth = Eeth {
            op: EndpointOp::EV_PROBE,
            tx_timestamp: Tick(77),
        };
        assert_eq!(reply.headers, Headers::EndpointResponse(eeth));
        assert!(!reply.ports_changed);
        assert_eq!(peer.ports().len(), 31);
    }

    #[test]
    fn strangers_reserved_operations_and_other_partitions_get_nothing() {
        let limits = EndpointLimits::default();
        let mut ops = EndpointOps::new(&limits, EvLayout::FlowHigh);
        let mut peer = Peer::new(&limits, PortSet::first(4));
        let mut ask = |peer: Option<&mut Peer>, packet: &Packet<'_>| {
            ops.handle_request(peer, packet, port(1), Instant::ZERO).map(|_| ())
        };
        assert_eq!(ask(None, &request(1, 0)), Err(EndpointDrop::UnknownPeer));
        assert_eq!(ask(Some(&mut peer), &request(2, 0)), Err(EndpointDrop::Operation));
        let mut packet = request(1, 0);
        packet.bth.p_key = 0x1234;
        assert_eq!(ask(Some(&mut peer), &packet), Err(EndpointDrop::PKey));
        packet.bth.p_key = 0x7fff;
        assert_eq!(
            ask(Some(&mut peer), &packet),
            Ok(()),
            "the membership bit does not count"
        );
    }

    #[test]
    fn answers_are_limited_per_peer_and_in_total() {
        let limits = EndpointLimits {
            answers_per_s_and_peer: 10,
            answers_per_s: 1000,
            burst: 4,
        };
        let mut ops = EndpointOps::new(&limits, EvLayout::FlowHigh);
        let now = Instant::from_ns(1 << 40);
        let (mut one, mut other) = (
            Peer::new(&limits, PortSet::first(4)),
            Peer::new(&limits, PortSet::first(4)),
        );
        let mut ask = |peer: &mut Peer, now| ops.handle_request(Some(peer), &request(1, 0), port(1), now).is_ok();
        assert_eq!((0..10).filter(|_| ask(&mut one, now)).count(), 4);
        assert_eq!((0..10).filter(|_| ask(&mut other, now)).count(), 0, "the total");
        assert_eq!(
            (0..10).filter(|_| ask(&mut other, now + 4_000_000)).count(),
            4,
            "its own were kept"
        );
        assert_eq!((0..10).filter(|_| ask(&mut one, now + 100_000_000)).count(), 1);
    }

    #[test]
    fn port_status_is_remembered_and_acknowledged() {
        let limits = EndpointLimits::default();
        let mut ops = EndpointOps::new(&limits, EvLayout::PortHigh);
        let mut peer = Peer::new(&limits, PortSet::first(4));
        let reply = ops
            .handle_request(Some(&mut peer), &request(0, 0b0110), port(1), Instant::ZERO)
            .unwrap();
        assert!(reply.ports_changed);
        assert_eq!(peer.ports(), PortSet::first(2));
        assert!(reply.ev.0 >= 0xc000_0000);
        let again = ops
            .handle_request(Some(&mut peer), &request(0, 0b0110), port(1), Instant::ZERO)
            .unwrap();
        assert!(!again.ports_changed);
    }
}
