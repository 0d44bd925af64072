//! A frame decoded as far as it goes, with the verdict of a receiver.

use std::time::Duration;

use mrc_capture::{Direction, Seen};
use mrc_wire::dissect::{self, IcrcCheck, Layer};
use mrc_wire::{
    Bth, Dscps, Ecn, Ev, EvLayout, Frame, Ipv4Header, Ipv6Header, Opcode, Payload, ReceiveRules, UdpHeader,
};

use crate::fields::{self, Section};
use crate::input::{CapturedFrame, Place};
use crate::verdict::{Verdict, judge, whole};

/// What the receiver is configured for.
pub(crate) struct Settings {
    pub(crate) udp_ports: Vec<u16>,
    pub(crate) dscps: Dscps,
    pub(crate) ev_layout: EvLayout,
}

impl Settings {
    pub(crate) fn rules(&self) -> ReceiveRules<'_> {
        ReceiveRules {
            udp_ports: &self.udp_ports,
            dscps: &self.dscps,
            ev_layout: self.ev_layout,
        }
    }

    /// What filters ask of a frame, also of one that was cut.
    pub(crate) fn seen<'a>(&self, frame: &'a CapturedFrame) -> Seen<'a> {
        let place = frame.place.as_ref();
        Seen {
            port: place.and_then(|place| place.number.try_into().ok()),
            interface: place.and_then(|place| place.name.as_deref()),
            direction: frame.direction,
            mrc: mrc_wire::glance(Frame::whole(&whole(frame)), &self.rules()),
        }
    }
}

/// One frame, decoded.
pub(crate) struct Decoded {
    pub(crate) number: u64,
    pub(crate) time: Option<Duration>,
    pub(crate) captured_len: usize,
    /// Length on the wire, if more than what was captured.
    pub(crate) cut_from: Option<usize>,
    pub(crate) place: Option<Place>,
    pub(crate) direction: Option<Direction>,
    pub(crate) opcode: Option<String>,
    pub(crate) sections: Vec<Section>,
    pub(crate) ev: Option<Ev>,
    /// The effective one: of the outer header when tunnelled.
    pub(crate) dscp: Option<u8>,
    /// After merging the outer header's mark into the inner one's.
    pub(crate) ecn: Option<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) trimmed: bool,
    pub(crate) icrc: Option<IcrcCheck>,
    pub(crate) verdict: Verdict,
}

pub(crate) fn decode(frame: &CapturedFrame, settings: &Settings) -> Decoded {
    let (verdict, trimmed) = judge(frame, settings);
    let mut decoded = Decoded {
        number: frame.number,
        time: frame.time,
        captured_len: frame.bytes.len(),
        cut_from: frame.cut_from,
        place: frame.place.clone(),
        direction: frame.direction,
        opcode: None,
        sections: frame.cooked.iter().cloned().collect(),
        ev: None,
        dscp: None,
        ecn: None,
        payload: Vec::new(),
        trimmed,
        icrc: None,
        verdict,
    };
    let mut below = Below::default();
    dissect::dissect(
        Frame::whole(&frame.bytes),
        |port| settings.udp_ports.contains(&port),
        |layer| {
            below.see(&layer, settings.ev_layout);
            match layer {
                // Made up in place of the header that `cooked` shows.
                Layer::Ethernet(_) if frame.cooked.is_some() => return,
                Layer::Bth(raw) => decoded.opcode = Some(opcode(&raw)),
                Layer::Data(data) => decoded.payload = joined(data),
                Layer::Icrc(check) => decoded.icrc = Some(check),
                _ => {}
            }
            decoded.sections.extend(fields::section(&layer));
        },
    );
    decoded.ev = below.ev;
    decoded.dscp = below.outer_tos.or(below.tos).map(|tos| tos >> 2);
    decoded.ecn = below.ecn().map(|ecn| ecn as u8);
    decoded
}

fn opcode(raw: &[u8; Bth::LEN]) -> String {
    let value = Bth::raw_opcode(raw);
    Opcode::from_wire(value).map_or_else(|| format!("{value:#04x}"), |known| known.name().to_owned())
}

fn joined(payload: Payload<'_>) -> Vec<u8> {
    let mut bytes = vec![0; payload.len()];
    payload.copy_to(&mut bytes);
    bytes
}

/// What the layers below the BTH say about the packet as a whole.
#[derive(Default)]
struct Below {
    outer_tos: Option<u8>,
    tos: Option<u8>,
    flow_label: Option<u32>,
    ev: Option<Ev>,
}

impl Below {
    fn see(&mut self, layer: &Layer<'_>, layout: EvLayout) {
        match layer {
            Layer::Outer(raw) => self.outer_tos = Some(Ipv6Header::parse(raw).traffic_class),
            Layer::Ipv4(raw) => self.tos = Some(Ipv4Header::parse(raw).tos),
            Layer::Ipv6(raw) => {
                let ip = Ipv6Header::parse(raw);
                self.tos = Some(ip.traffic_class);
                self.flow_label = Some(ip.flow_label);
            }
            Layer::Udp(raw) => {
                let port = UdpHeader::parse(raw).src_port;
                self.ev = Some(match self.flow_label {
                    Some(label) => layout.reflect(label, port),
                    None => EvLayout::reflect_ipv4(port),
                });
            }
            _ => {}
        }
    }

    fn ecn(&self) -> Option<Ecn> {
        let inner = Ecn::from_tos(self.tos?);
        Some(if inner.marked(self.outer_tos.map(Ecn::from_tos)) {
            Ecn::Ce
        } else {
            inner
        })
    }
}
