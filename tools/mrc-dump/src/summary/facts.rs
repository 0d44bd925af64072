//! What a summary wants to know of a packet.

use std::net::IpAddr;

use mrc_wire::dissect::{Layer, dissect};
use mrc_wire::{
    Aeth, Bth, Ecn, Ev, Frame, Ipv4Header, Ipv6Header, NackReason, Neth, Opcode, PathVerdict, Peth, Qpn, Seth, Syndrome,
};

use crate::decode::Settings;
use crate::input::CapturedFrame;
use crate::verdict::{judge, whole};

/// An MRC packet.
pub(super) struct Facts {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) qp: Qpn,
    pub(super) ev: Ev,
    pub(super) opcode: Option<Opcode>,
    pub(super) is_retransmission: bool,
    pub(super) data_len: usize,
    pub(super) is_marked: bool,
    pub(super) is_trimmed: bool,
    /// A receiver would drop it, or it is cut.
    pub(super) is_bad: bool,
    pub(super) is_nak: bool,
    /// Low bits of the sender's own queue pair.
    pub(super) sender: Option<u16>,
    pub(super) report: Option<Report>,
}

/// What a SACK or NACK says of a path.
#[derive(Clone, Copy)]
pub(super) struct Report {
    pub(super) entropy: Ev,
    pub(super) says: Says,
}

#[derive(Clone, Copy)]
pub(super) enum Says {
    Sack(PathVerdict),
    Nack(NackReason),
}

/// `None` if the frame is not MRC.
pub(super) fn of(frame: &CapturedFrame, settings: &Settings) -> Option<Facts> {
    let glance = settings.seen(frame).mrc?;
    let (verdict, is_trimmed) = judge(frame, settings);
    let mut facts = Facts {
        src: IpAddr::from([0; 4]),
        dst: IpAddr::from([0; 4]),
        qp: glance.dqp,
        ev: glance.ev,
        opcode: Opcode::from_wire(glance.opcode),
        is_retransmission: false,
        data_len: 0,
        is_marked: false,
        is_trimmed,
        is_bad: verdict.is_bad(),
        is_nak: false,
        sender: None,
        report: None,
    };
    let (mut outer, mut inner) = (None, Ecn::NotEct);
    let bytes = whole(frame);
    dissect(
        Frame::whole(&bytes),
        |port| settings.udp_ports.contains(&port),
        |layer| match layer {
            Layer::Outer(raw) => outer = Some(Ecn::from_tos(Ipv6Header::parse(&raw).traffic_class)),
            Layer::Ipv4(raw) => {
                let ip = Ipv4Header::parse(&raw);
                (facts.src, facts.dst, inner) = (ip.src.into(), ip.dst.into(), Ecn::from_tos(ip.tos));
            }
            Layer::Ipv6(raw) => {
                let ip = Ipv6Header::parse(&raw);
                (facts.src, facts.dst, inner) = (ip.src.into(), ip.dst.into(), Ecn::from_tos(ip.traffic_class));
            }
            Layer::Bth(raw) => facts.is_retransmission = Bth::parse(&raw).is_some_and(|bth| bth.rtx),
            Layer::Data(data) if !is_trimmed => facts.data_len = data.len(),
            Layer::Aeth(raw) => facts.is_nak = !matches!(Aeth::parse(&raw).meaning(), Syndrome::Ack),
            Layer::Seth(raw) => {
                let seth = Seth::parse(&raw);
                facts.sender = Some(seth.spdcid);
                facts.report = Some(Report {
                    entropy: seth.entropy,
                    says: Says::Sack(seth.m),
                });
            }
            Layer::Neth(raw) => {
                let neth = Neth::parse(&raw);
                facts.sender = Some(neth.spdcid);
                facts.report = Some(Report {
                    entropy: neth.entropy,
                    says: Says::Nack(neth.reason),
                });
            }
            Layer::Peth(raw) => facts.sender = Some(Peth::parse(&raw).spdcid),
            _ => {}
        },
    );
    facts.is_marked = inner.marked(outer);
    Some(facts)
}
