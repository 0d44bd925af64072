//! Between values and bytes: what a host sends becomes a frame, and what arrives becomes a packet again.

use crate::ensure;
use crate::fabric::frame::{Body, Data, Frame, Value};
use crate::oracle::Oracle::{Icrc, Wire};
use crate::oracle::{Breach, Checked};
use crate::scenario::Format;
use mrc_protocol::Transmit;
use mrc_wire::{
    Bth, Condition, DEFAULT_UDP_PORT, Dscps, Ecn, Ev, EvLayout, Headers, ICRC_LEN, IpPair, L3Path, L3Template,
    Outgoing, Packet, Payload, ReceiveRules, Reject, Reth, TrafficClass, build_frame, frame_len, parse,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHERNET_LEN: usize = 14;
const UDP_LEN: usize = 8;

/// Packs and unpacks the packets of a run.
#[derive(Debug)]
pub struct Codec {
    format: Format,
    dscps: Dscps,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Sending host.
    pub src: usize,
    /// Receiving host.
    pub dst: usize,
    /// Number of the transmission.
    pub id: u64,
}

impl Codec {
    /// For packets in this form.
    pub fn new(format: Format) -> Codec {
        Codec {
            format,
            dscps: Dscps::default(),
        }
    }

    /// Address of a host.
    pub fn address(&self, host: usize) -> IpAddr {
        match self.pair(host, host) {
            IpPair::V4 { src, .. } => src.into(),
            IpPair::V6 { src, .. } => src.into(),
        }
    }

    fn pair(&self, src: usize, dst: usize) -> IpPair {
        let v4 = |host: usize| Ipv4Addr::new(192, 0, 2, 1 + host as u8);
        let v6 = |host: usize| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1 + host as u16);
        match self.format {
            Format::BytesV4 => IpPair::V4 {
                src: v4(src),
                dst: v4(dst),
            },
            Format::BytesV6 | Format::Values => IpPair::V6 {
                src: v6(src),
                dst: v6(dst),
            },
        }
    }

    /// Packs a packet.
    pub fn pack(&self, route: Route, sent: &Transmit, data: Data) -> Result<Frame, Breach> {
        let payload = data.bytes();
        let dscp = self.dscps.of(sent.class);
        let pad = payload.len().wrapping_neg() & 3;
        let udp_len = UDP_LEN + Bth::LEN + sent.headers.wire_len() + payload.len() + pad + ICRC_LEN;
        let body = if self.format == Format::Values {
            let bth = Bth {
                pad: pad as u8,
                ..sent.bth
            };
            Body::Value(Value {
                bth,
                headers: sent.headers,
                payload: data,
                dscp,
                udp_len: udp_len as u16,
            })
        } else {
            Body::Bytes(self.build(route, sent, payload, dscp)?)
        };
        Ok(Frame {
            src: route.src,
            dst: route.dst,
            plane: sent.port.get(),
            ev: sent.ev.0,
            data: matches!(sent.headers, Headers::Write { .. } | Headers::Probe(_)),
            control: sent.class == TrafficClass::Control,
            trimmable: matches!(sent.class, TrafficClass::Trimmable | TrafficClass::TrimmableRetx),
            ect: sent.ect,
            size: (ETHERNET_LEN + 40 + udp_len) as u32,
            body,
            ce: false,
            trim: None,
            flips: Vec::new(),
            id: route.id,
        })
    }

    fn build(&self, route: Route, sent: &Transmit, payload: &[u8], dscp: u8) -> Result<Vec<u8>, Breach> {
        let template = L3Template::new(&L3Path {
            src_mac: [2, 0, 0, 0, route.src as u8, sent.port.get()],
            dst_mac: [2, 0, 0, 0, route.dst as u8, sent.port.get()],
            vlan: None,
            ip: self.pair(route.src, route.dst),
            srv6: None,
            hop_limit: 64,
            udp_port: DEFAULT_UDP_PORT,
        });
        let outgoing = Outgoing {
            bth: sent.bth,
            headers: sent.headers,
            ev: sent.ev,
            ev_layout: EvLayout::FlowHigh,
            dscp,
            ecn: if sent.ect { Ecn::Ect0 } else { Ecn::NotEct },
            payload_len: payload.len(),
        };
        let mut bytes = vec![0; frame_len(&template, &sent.headers, payload.len())];
        let built = build_frame(&mut bytes, &template, &outgoing, payload);
        let len = built.map_err(|error| Breach(Wire, format!("{sent:?} cannot be built: {error}")))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Unpacks an arrival. `Ok(None)`: it is dropped, as it should be.
    pub fn unpack<'a>(&self, frame: &'a Frame, scratch: &'a mut Vec<u8>) -> Result<Option<Packet<'a>>, Breach> {
        let bytes = match &frame.body {
            Body::Value(value) => return Ok(self.value_arrives(frame, value)),
            Body::Bytes(bytes) => bytes,
            Body::Baseline(_) => return Ok(None),
        };
        scratch.clear();
        scratch.extend_from_slice(bytes);
        self.leave_marks(frame, scratch);
        let bits = scratch.len() as u64 * 8;
        for flip in &frame.flips {
            let bit = flip % bits.max(1);
            if let Some(byte) = scratch.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
        let arrived = self.parse(scratch);
        match arrived {
            Ok(packet) if frame.flips.is_empty() || packet.condition != Condition::Whole => Ok(Some(packet)),
            Ok(packet) => {
                let original = self.parse(bytes);
                same_where_protected(&packet, original.as_ref().ok())?;
                Ok(Some(packet))
            }
            Err(_) if !frame.flips.is_empty() => Ok(None),
            // Cut packets that are no longer recognisable, or that nobody may cut.
            Err(_) if frame.trim.is_some() => Ok(None),
            Err(reject) => Err(Breach(
                Wire,
                format!("undamaged frame is rejected ({reject:?}): {scratch:02x?}"),
            )),
        }
    }

    fn parse<'a>(&self, bytes: &'a [u8]) -> Result<Packet<'a>, Reject> {
        let rules = ReceiveRules {
            udp_ports: &[DEFAULT_UDP_PORT],
            dscps: &self.dscps,
            ev_layout: EvLayout::FlowHigh,
        };
        parse(mrc_wire::Frame::whole(bytes), &rules)
    }

    fn value_arrives<'a>(&self, frame: &Frame, value: &'a Value) -> Option<Packet<'a>> {
        if !frame.flips.is_empty() {
            return None; // As the ICRC would have it.
        }
        let mut packet = Packet {
            bth: value.bth,
            headers: value.headers,
            payload: Payload::new(value.payload.bytes()),
            condition: Condition::Whole,
            ev: Ev(frame.ev),
            ce: frame.ce,
            dscp: value.dscp,
            udp_len: value.udp_len,
            src: self.address(frame.src),
            dst: self.address(frame.dst),
        };
        if let Some(trim) = frame.trim
            && (frame.size as usize) > trim.keep
        {
            packet.condition = Condition::Trimmed {
                last_hop: trim.last_hop,
            };
            packet.payload = Payload::EMPTY;
            if let Headers::Write { reth, .. } = &mut packet.headers {
                *reth = Reth {
                    va: 0,
                    r_key: 0,
                    dmalen: 0,
                };
            }
        }
        Some(packet)
    }

    /// Writes into the bytes what switches have done to the frame: ECN, trimming.
    fn leave_marks(&self, frame: &Frame, bytes: &mut Vec<u8>) {
        if let Some(trim) = frame.trim {
            bytes.truncate(trim.keep);
            let lasthop = self.dscps.trimmed_lasthop.filter(|_| trim.last_hop);
            let dscp = lasthop.unwrap_or(self.dscps.trimmed);
            change_tos(bytes, |tos| dscp << 2 | tos & 3);
        }
        if frame.ce {
            change_tos(bytes, |tos| tos | Ecn::Ce as u8);
        }
    }
}

/// Changes the TOS or traffic class byte, and the IPv4 checksum with it.
fn change_tos(bytes: &mut [u8], change: impl Fn(u8) -> u8) {
    let Some(ip) = bytes.get_mut(ETHERNET_LEN..ETHERNET_LEN + 20) else {
        return;
    };
    if ip[0] >> 4 == 6 {
        let tos = change(ip[0] << 4 | ip[1] >> 4);
        ip[0] = 0x60 | tos >> 4;
        ip[1] = tos << 4 | ip[1] & 0x0f;
        return;
    }
    ip[1] = change(ip[1]);
    ip[10..12].fill(0);
    let sum: u32 = ip
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// A frame with flipped bits that is accepted may differ only where the ICRC does not look (wire-format.md §9).
fn same_where_protected(packet: &Packet<'_>, original: Option<&Packet<'_>>) -> Checked {
    let same = original.is_some_and(|original| {
        packet.bth == original.bth
            && packet.headers == original.headers
            && packet.payload == original.payload
            && packet.udp_len == original.udp_len
            && (packet.src, packet.dst) == (original.src, original.dst)
            && packet.ev.0 & 0xffff == original.ev.0 & 0xffff
    });
    ensure!(
        same,
        Icrc,
        "a damaged frame is accepted as {packet:?}; it was {original:?}"
    );
    Ok(())
}
