//! A frame decoded as far as it goes, with the verdict of a receiver.

use std::time::Duration;

use mrc_wire::dissect::{self, IcrcCheck, Layer};
use mrc_wire::{
    Bth, DropReason, Dscps, Ecn, Ev, EvLayout, Frame, Ipv4Header, Ipv6Header, NotMrc, Opcode, Payload, ReceiveRules,
    Reject, UdpHeader,
};

use crate::fields::{self, Section};
use crate::input::CapturedFrame;

/// No frame is longer; what a capture claims beyond that is not believed.
const LONGEST_FRAME: usize = 14 + 4 + 40 + 65_535;

/// What the receiver is configured for.
pub(crate) struct Settings {
    pub(crate) udp_ports: Vec<u16>,
    pub(crate) dscps: Dscps,
    pub(crate) ev_layout: EvLayout,
    pub(crate) show_data: bool,
}

/// One frame, decoded.
pub(crate) struct Decoded {
    pub(crate) number: u64,
    pub(crate) time: Option<Duration>,
    pub(crate) captured_len: usize,
    /// Length on the wire, if more than what was captured.
    pub(crate) cut_from: Option<usize>,
    pub(crate) opcode: Option<String>,
    pub(crate) sections: Vec<Section>,
    pub(crate) ev: Option<Ev>,
    /// The effective one: of the outer header when tunnelled.
    pub(crate) dscp: Option<u8>,
    /// After merging the outer header's mark into the inner one's.
    pub(crate) ecn: Option<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) show_data: bool,
    pub(crate) trimmed: bool,
    pub(crate) icrc: Option<IcrcCheck>,
    pub(crate) verdict: Verdict,
}

/// What a receiver does with the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Reject(Reject),
    /// The capture holds too little of the frame to tell.
    Unknown,
}

impl Verdict {
    pub(crate) fn is_drop(self) -> bool {
        matches!(self, Self::Reject(Reject::Drop(_)))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject(Reject::Drop(_)) => "drop",
            Self::Reject(Reject::NotMrc(_)) => "not-mrc",
            Self::Unknown => "unknown",
        }
    }

    /// Name of the reason, as in the engine's counters.
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            Self::Accept => None,
            Self::Reject(Reject::Drop(reason)) => Some(reason.code()),
            Self::Reject(Reject::NotMrc(reason)) => Some(reason.code()),
            Self::Unknown => Some("capture_cut"),
        }
    }

    /// The reason in words.
    pub(crate) fn detail(self) -> Option<String> {
        match self {
            Self::Accept => None,
            Self::Reject(Reject::Drop(reason)) => Some(reason.to_string()),
            Self::Reject(Reject::NotMrc(reason)) => Some(reason.to_string()),
            Self::Unknown => {
                Some("the capture holds only a part of the frame: capture with a larger snap length".into())
            }
        }
    }
}

pub(crate) fn decode(frame: &CapturedFrame, settings: &Settings) -> Decoded {
    let (verdict, trimmed) = judge(frame, settings);
    let mut decoded = Decoded {
        number: frame.number,
        time: frame.time,
        captured_len: frame.bytes.len(),
        cut_from: frame.cut_from,
        opcode: None,
        sections: frame.cooked.iter().cloned().collect(),
        ev: None,
        dscp: None,
        ecn: None,
        payload: Vec::new(),
        show_data: settings.show_data,
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

/// The verdict, and whether the packet was trimmed by a switch.
fn judge(frame: &CapturedFrame, settings: &Settings) -> (Verdict, bool) {
    let rules = ReceiveRules {
        udp_ports: &settings.udp_ports,
        dscps: &settings.dscps,
        ev_layout: settings.ev_layout,
    };
    let as_captured = mrc_wire::parse(Frame::whole(&frame.bytes), &rules);
    let Some(cut_from) = frame.cut_from else {
        return match as_captured {
            Ok(packet) => (Verdict::Accept, packet.is_trimmed()),
            Err(reject) => (Verdict::Reject(reject), reject == DropReason::TrimmedControl.into()),
        };
    };
    (judge_cut(&frame.bytes, cut_from, as_captured.err(), &rules), false)
}

/// The verdict on a frame of which only the first bytes were captured.
fn judge_cut(captured: &[u8], wire_len: usize, as_captured: Option<Reject>, rules: &ReceiveRules<'_>) -> Verdict {
    match as_captured {
        // These may follow from missing bytes.
        None | Some(Reject::Drop(_) | Reject::NotMrc(NotMrc::FrameShort | NotMrc::IpLength | NotMrc::PayloadShort)) => {
        }
        Some(reject) => return Verdict::Reject(reject),
    }
    // The missing bytes as zeros: what does not depend on them is judged, and only what hangs on the ICRC is not.
    let mut bytes = captured.to_vec();
    bytes.resize(wire_len.clamp(captured.len(), LONGEST_FRAME.max(captured.len())), 0);
    match mrc_wire::parse(Frame::whole(&bytes), rules) {
        Ok(packet) if !packet.is_trimmed() => Verdict::Accept,
        Ok(_) | Err(Reject::Drop(DropReason::Icrc | DropReason::TrimmedControl)) => Verdict::Unknown,
        // Headers that were not captured are zeros too.
        Err(_) if captured.len() < HEADERS_NEEDED => Verdict::Unknown,
        Err(reject) => Verdict::Reject(reject),
    }
}

/// With this much of a frame all headers are there, whatever its mode (but for a long segment list).
const HEADERS_NEEDED: usize = 14 + 4 + 40 + 24 + 40 + 8 + 12;
