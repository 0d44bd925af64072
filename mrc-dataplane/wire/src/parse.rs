//! Receive validation (wire-format.md §11): steps 1 to 6 and 8, in this order. Steps 7 and 9 need to know queue pairs;
//! of step 7 only what needs none is checked here: queue pair 2 and endpoint operations belong together.

use crate::headers::Ipv4Header;
use crate::icrc::Icrc;
use crate::network::{Ip, Network};
use crate::packet::write_headers_len;
use crate::{
    Aeth, Bth, CcState, Condition, DropReason, Dscps, Eeth, Erth, EvLayout, Frame, Headers, ICRC_LEN, ImmDt, Meth,
    Neth, NotMrc, Opcode, Packet, Payload, Peth, Qpn, Reject, Reth, Seth, Syndrome, Tseth, UdpHeader,
};

/// What a receiver must know to recognise its packets.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRules<'a> {
    /// UDP destination ports that carry MRC.
    pub udp_ports: &'a [u16],
    /// The deployment's code points: they tell trimmed packets.
    pub dscps: &'a Dscps,
    /// How to put the EV together.
    pub ev_layout: EvLayout,
}

/// Checks a frame and takes it apart.
///
/// A packet that is returned as [`Condition::Whole`] has a right ICRC. Its queue pair, addresses, `p_key`, PSN and
/// RETH are the caller's to check.
#[inline]
pub fn parse<'a>(frame: Frame<'a>, rules: &ReceiveRules<'_>) -> Result<Packet<'a>, Reject> {
    // Step 1.
    let net = Network::locate(&frame, rules.dscps)?;

    // Step 2.
    let udp_at = net.udp_at();
    let bth_at = udp_at + UdpHeader::LEN;
    let payload_len = net.end.checked_sub(bth_at).ok_or(NotMrc::PayloadShort)?;
    let udp = UdpHeader::parse(&frame.array(udp_at).ok_or(NotMrc::PayloadShort)?);
    if !rules.udp_ports.contains(&udp.dst_port) {
        return Err(NotMrc::UdpPort.into());
    }
    let needed = if net.trimmed.is_some() {
        Bth::LEN
    } else {
        Bth::LEN + ICRC_LEN
    };
    if payload_len < needed {
        return Err(NotMrc::PayloadShort.into());
    }
    let raw_bth = frame.array(bth_at).ok_or(NotMrc::PayloadShort)?;
    if !Opcode::in_mrc_range(Bth::raw_opcode(&raw_bth)) {
        return Err(NotMrc::OpcodeRange.into());
    }

    // Step 3.
    let bth = Bth::parse(&raw_bth).ok_or(DropReason::Opcode)?;
    if Bth::ignored(&raw_bth).tver != 0 {
        return Err(DropReason::Tver.into());
    }

    // Step 4.
    let lengths_agree = udp.length as usize == UdpHeader::LEN + payload_len;
    let mut icrc_checked = false;
    if let Some(last_hop) = net.trimmed {
        icrc_checked =
            net.lengths_fit && lengths_agree && payload_len >= Bth::LEN + ICRC_LEN && icrc_is_right(&frame, &net);
        if !icrc_checked {
            return trimmed(&frame, &net, udp, bth, last_hop, rules.ev_layout);
        }
    }

    // Step 5.
    if matches!(net.ip, Ip::V4(_)) && !frame.array(net.ip_at).is_some_and(|raw| Ipv4Header::checksum_ok(&raw)) {
        return Err(DropReason::Checksum.into());
    }
    if !lengths_agree {
        return Err(DropReason::UdpLength.into());
    }
    let headers_at = bth_at + Bth::LEN;
    let data_at = headers_at + headers_len(&bth);
    let data_and_pad = (net.end - ICRC_LEN).checked_sub(data_at).ok_or(DropReason::Short)?;
    let mut payload = Payload::EMPTY;
    if bth.opcode.is_write() {
        if data_and_pad % 4 != 0 {
            return Err(DropReason::Alignment.into());
        }
        let data_len = data_and_pad.checked_sub(bth.pad as usize).ok_or(DropReason::Short)?;
        payload = frame.slice(data_at, data_at + data_len);
    }

    // Step 6.
    if !icrc_checked && !icrc_is_right(&frame, &net) {
        return Err(DropReason::Icrc.into());
    }

    // The static part of step 7, and step 8.
    if (bth.dqp == Qpn::ENDPOINT) != bth.opcode.is_endpoint() {
        return Err(DropReason::Dqp.into());
    }
    let headers = read_headers(&frame, headers_at, &bth).ok_or(DropReason::Short)?;
    check_control(&bth, &headers)?;

    let (src, dst) = net.addresses();
    Ok(Packet {
        bth,
        headers,
        payload,
        condition: Condition::Whole,
        ev: net.ev(rules.ev_layout, udp.src_port),
        ce: net.ce(),
        dscp: net.dscp(),
        udp_len: udp.length,
        src,
        dst,
    })
}

/// What is left of a trimmed write (wire-format.md §10).
#[cold]
fn trimmed<'a>(
    frame: &Frame<'a>,
    net: &Network,
    udp: UdpHeader,
    bth: Bth,
    last_hop: bool,
    ev_layout: EvLayout,
) -> Result<Packet<'a>, Reject> {
    if !bth.opcode.is_write() {
        return Err(DropReason::TrimmedControl.into());
    }
    if bth.dqp == Qpn::ENDPOINT {
        return Err(DropReason::Dqp.into());
    }
    let meth_at = net.udp_at() + UdpHeader::LEN + Bth::LEN;
    let tseth_at = meth_at + Meth::LEN;
    let meth = if tseth_at <= net.end {
        frame.array(meth_at)
    } else {
        None
    };
    let tseth = if bth.ts && tseth_at + Tseth::LEN <= net.end {
        frame.array(tseth_at)
    } else {
        None
    };
    let (src, dst) = net.addresses();
    Ok(Packet {
        bth,
        headers: Headers::Write {
            meth: meth.map_or_else(Meth::default, |raw| Meth::parse(&raw)),
            tseth: tseth.map(|raw| Tseth::parse(&raw)),
            reth: Reth::default(),
            imm: None,
        },
        payload: Payload::EMPTY,
        condition: Condition::Trimmed { last_hop },
        ev: net.ev(ev_layout, udp.src_port),
        ce: net.ce(),
        dscp: net.dscp(),
        udp_len: udp.length,
        src,
        dst,
    })
}

/// Compares the last four bytes of the packet with the calculation. The caller has checked that BTH and ICRC fit.
fn icrc_is_right(frame: &Frame<'_>, net: &Network) -> bool {
    let icrc_at = net.end - ICRC_LEN;
    let body = frame.slice(net.ip_at, icrc_at);
    match (Icrc::of(net.kind(), body), frame.array::<ICRC_LEN>(icrc_at)) {
        (Some(expected), Some(found)) => expected == found,
        _ => false,
    }
}

/// Bytes of the fixed headers behind the BTH (wire-format.md §6). `ts` has a meaning on writes only.
pub(crate) const fn headers_len(bth: &Bth) -> usize {
    match bth.opcode {
        Opcode::Ack => Aeth::LEN,
        Opcode::Sack => Seth::LEN + CcState::LEN,
        Opcode::Nack => Neth::LEN,
        Opcode::Probe => Peth::LEN,
        Opcode::EndpointRequest => Erth::LEN,
        Opcode::EndpointResponse => Eeth::LEN,
        write => write_headers_len(bth.ts, write.has_imm()),
    }
}

/// The headers behind the BTH; `None` if the frame ends before.
#[inline]
fn read_headers(frame: &Frame<'_>, at: usize, bth: &Bth) -> Option<Headers> {
    Some(match bth.opcode {
        Opcode::Ack => Headers::Ack(Aeth::parse(&frame.array(at)?)),
        Opcode::Sack => {
            let seth = Seth::parse(&frame.array(at)?);
            let state = CcState::parse(&frame.array(at + Seth::LEN)?);
            Headers::Sack(seth, (seth.cc_type == Seth::CC_NSCC).then_some(state))
        }
        Opcode::Nack => Headers::Nack(Neth::parse(&frame.array(at)?)),
        Opcode::Probe => Headers::Probe(Peth::parse(&frame.array(at)?)),
        Opcode::EndpointRequest => Headers::EndpointRequest(Erth::parse(&frame.array(at)?)),
        Opcode::EndpointResponse => Headers::EndpointResponse(Eeth::parse(&frame.array(at)?)),
        write => {
            let meth = Meth::parse(&frame.array(at)?);
            let tseth_at = at + Meth::LEN;
            let (tseth, reth_at) = if bth.ts {
                (Some(Tseth::parse(&frame.array(tseth_at)?)), tseth_at + Tseth::LEN)
            } else {
                (None, tseth_at)
            };
            let reth = Reth::parse(&frame.array(reth_at)?);
            let imm = if write.has_imm() {
                Some(ImmDt::parse(&frame.array(reth_at + Reth::LEN)?))
            } else {
                None
            };
            Headers::Write { meth, tseth, reth, imm }
        }
    })
}

/// Step 8, and the values that the header descriptions say to drop.
#[inline]
fn check_control(bth: &Bth, headers: &Headers) -> Result<(), DropReason> {
    if bth.pad != 0 && !bth.opcode.is_write() {
        return Err(DropReason::ControlPad);
    }
    match headers {
        Headers::Sack(seth, _) if seth.cack_psn != bth.psn => Err(DropReason::PsnMismatch),
        Headers::Nack(neth) if neth.nack_psn != bth.psn => Err(DropReason::PsnMismatch),
        Headers::EndpointRequest(erth) if erth.op.is_reserved() => Err(DropReason::EndpointOp),
        Headers::Ack(aeth) if aeth.meaning() == Syndrome::Unused => Err(DropReason::Syndrome),
        _ => Ok(()),
    }
}
