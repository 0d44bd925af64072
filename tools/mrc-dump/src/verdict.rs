//! What a receiver would do with a frame (wire-format.md §11), as far as it needs no queue pairs.

use std::borrow::Cow;

use mrc_wire::dissect::{Layer, dissect};
use mrc_wire::{
    Bth, DropReason, EthernetHeader, Frame, Ipv4Header, Ipv6Header, NotMrc, Opcode, ReceiveRules, Reject, UdpHeader,
    VlanTag, next_header,
};

use crate::decode::Settings;
use crate::input::CapturedFrame;

/// No frame is longer; what a capture claims beyond that is not believed.
const LONGEST_FRAME: usize = 14 + 4 + 40 + 65_535;

/// What a receiver does with the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Reject(Reject),
    /// The frame ends before its packet does: this many bytes of it are missing, if its headers tell.
    Cut(Option<usize>),
    /// The capture holds too little of the frame to tell.
    Unknown,
}

impl Verdict {
    /// Is something wrong with it?
    pub(crate) fn is_bad(self) -> bool {
        matches!(self, Self::Reject(Reject::Drop(_)) | Self::Cut(_))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject(Reject::Drop(_)) => "drop",
            Self::Reject(Reject::NotMrc(_)) => "not-mrc",
            Self::Cut(_) => "cut",
            Self::Unknown => "unknown",
        }
    }

    /// Name of the reason, as in the engine's counters.
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            Self::Accept => None,
            Self::Reject(Reject::Drop(reason)) => Some(reason.code()),
            Self::Reject(Reject::NotMrc(reason)) => Some(reason.code()),
            Self::Cut(_) => Some("frame_cut"),
            Self::Unknown => Some("capture_cut"),
        }
    }

    /// The reason in words.
    pub(crate) fn detail(self) -> Option<String> {
        match self {
            Self::Accept => None,
            Self::Reject(Reject::Drop(reason)) => Some(reason.to_string()),
            Self::Reject(Reject::NotMrc(reason)) => Some(reason.to_string()),
            Self::Cut(Some(missing)) => Some(format!("the frame ends {missing} bytes before its packet does")),
            Self::Cut(None) => Some("the frame ends inside its headers".into()),
            Self::Unknown => {
                Some("the capture holds only a part of the frame: capture with a larger snap length".into())
            }
        }
    }
}

/// The verdict, and whether the packet was trimmed by a switch.
pub(crate) fn judge(frame: &CapturedFrame, settings: &Settings) -> (Verdict, bool) {
    let rules = settings.rules();
    let as_captured = mrc_wire::parse(Frame::whole(&frame.bytes), &rules);
    let Some(cut_from) = frame.cut_from else {
        return match as_captured {
            Ok(packet) => (Verdict::Accept, packet.is_trimmed()),
            Err(reject) if let Some(verdict) = cut(&frame.bytes, reject, &rules) => (verdict, false),
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
    let bytes = extended(captured, wire_len);
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

/// The frame with zeros for what is missing of it, whether the capture or its headers tell.
pub(crate) fn whole(frame: &CapturedFrame) -> Cow<'_, [u8]> {
    let len = frame.cut_from.or_else(|| claimed_len(&frame.bytes));
    match len.filter(|len| *len > frame.bytes.len()) {
        Some(len) => extended(&frame.bytes, len).into(),
        None => (&frame.bytes).into(),
    }
}

fn extended(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(len.clamp(bytes.len(), LONGEST_FRAME.max(bytes.len())), 0);
    bytes
}

/// Is this a piece of what may well be an MRC packet? A receiver would not know, but whoever shows it should.
fn cut(bytes: &[u8], reject: Reject, rules: &ReceiveRules<'_>) -> Option<Verdict> {
    let Reject::NotMrc(NotMrc::FrameShort | NotMrc::IpLength | NotMrc::PayloadShort) = reject else {
        return None;
    };
    let claimed = claimed_len(bytes);
    if claimed.is_some_and(|claimed| claimed <= bytes.len()) {
        return None;
    }
    let mut may_be = true;
    dissect(
        Frame::whole(bytes),
        |port| rules.udp_ports.contains(&port),
        |layer| match layer {
            Layer::Ipv4(raw) => may_be &= Ipv4Header::parse(&raw).protocol == next_header::UDP,
            Layer::Ipv6(raw) => may_be &= Ipv6Header::parse(&raw).next_header == next_header::UDP,
            Layer::Udp(raw) => may_be &= rules.udp_ports.contains(&UdpHeader::parse(&raw).dst_port),
            Layer::Bth(raw) => may_be &= Opcode::in_mrc_range(Bth::raw_opcode(&raw)),
            _ => {}
        },
    );
    may_be.then_some(Verdict::Cut(claimed.map(|claimed| claimed - bytes.len())))
}

/// How long the frame would be by its first IP header, if that is there.
fn claimed_len(bytes: &[u8]) -> Option<usize> {
    let ethertype = bytes.get(12..14)?;
    let (ip_at, ethertype) = if ethertype == [0x81, 0] {
        (EthernetHeader::LEN + VlanTag::LEN, bytes.get(16..18)?)
    } else {
        (EthernetHeader::LEN, ethertype)
    };
    let ip = bytes.get(ip_at..)?;
    match ethertype {
        [0x08, 0x00] => Some(ip_at + Ipv4Header::parse(ip.first_chunk()?).total_length as usize),
        [0x86, 0xdd] => {
            let payload = Ipv6Header::parse(ip.first_chunk()?).payload_length as usize;
            Some(ip_at + Ipv6Header::LEN + payload)
        }
        _ => None,
    }
}
