//! Encoders: whatever is built on whatever path is parsed as what it was, also after a switch has cut it
//! (wire-format.md §2 to §10).

use crate::draw::Draw;
use mrc_wire::{
    Aeth, Bth, CcState, Condition, DropReason, Dscps, Ecn, Eeth, EndpointOp, Erth, Ev, EvLayout, Frame, Headers, ImmDt,
    IpPair, L3Path, L3Template, Meth, NackReason, Neth, Opcode, Outgoing, PathVerdict, Peth, Psn, Qpn, ReceiveRules,
    Reject, Reth, Seth, SrhEntry, Srv6Path, Syndrome, Tick, Tseth, build_frame, dissect, frame_len, parse,
};
use std::net::{Ipv4Addr, Ipv6Addr};

const OPS: [EndpointOp; 2] = [EndpointOp::PORT_STATUS_UPDATE, EndpointOp::EV_PROBE];

pub(crate) fn target(data: &[u8]) {
    let mut draw = Draw::new(data);
    let path = path(&mut draw);
    let template = L3Template::new(&path);
    let (bth, headers) = packet(&mut draw);
    let dscps = Dscps::default();
    let (dscp, ev_layout) = (
        draw.any::<u8>() & 63,
        draw.pick(&[EvLayout::FlowHigh, EvLayout::PortHigh]),
    );
    let trims = [Some(dscps.trimmed), dscps.trimmed_lasthop].contains(&Some(dscp));
    let ev = Ev(draw.any());
    let cut = usize::from(draw.any::<u16>());
    let len = usize::from(draw.any::<u16>() % 4097);
    let ecn = draw.pick(&[Ecn::NotEct, Ecn::Ect0, Ecn::Ce]);
    let data: Vec<u8> = if bth.opcode.is_write() {
        draw.rest()
            .iter()
            .copied()
            .chain(std::iter::repeat(0xa5))
            .take(len)
            .collect()
    } else {
        Vec::new()
    };
    let outgoing = Outgoing {
        bth,
        headers,
        ev,
        ev_layout,
        dscp,
        ecn,
        payload_len: data.len(),
    };
    let mut buffer = vec![0; frame_len(&template, &headers, data.len())];
    let len = build_frame(&mut buffer, &template, &outgoing, &data).expect("any packet can be built");
    assert_eq!(len, buffer.len());
    let rules = ReceiveRules {
        udp_ports: &[path.udp_port],
        dscps: &dscps,
        ev_layout,
    };
    dissect::dissect(Frame::whole(&buffer), |_| true, |_| {});
    let result = parse(Frame::whole(&buffer), &rules);
    let unused = matches!(headers, Headers::Ack(aeth) if aeth.meaning() == Syndrome::Unused);
    if unused || misplaced(&bth, &headers) {
        assert!(matches!(result, Err(Reject::Drop(_))), "{result:?}");
        return;
    }
    let packet = result.expect("what was built can be parsed");
    assert_eq!(
        (packet.headers, packet.condition, packet.dscp),
        (headers, Condition::Whole, dscp)
    );
    assert_eq!(packet.payload.parts().flatten().copied().collect::<Vec<_>>(), data);
    let expected_ev = match path.ip {
        IpPair::V4 { .. } => Ev(ev.0 & 0xffff),
        IpPair::V6 { .. } => ev,
    };
    assert_eq!(packet.ev, expected_ev);
    assert_eq!(packet.ce, ecn == Ecn::Ce);
    let same = Bth {
        pad: packet.bth.pad,
        ts: packet.bth.ts,
        ..bth
    };
    assert_eq!(packet.bth, same);
    cut_short(&buffer, cut, trims, &packet.bth, &rules);
}

/// What a switch leaves of it is a trimmed packet, or nothing.
fn cut_short(frame: &[u8], cut: usize, trims: bool, bth: &Bth, rules: &ReceiveRules<'_>) {
    let cut = cut % frame.len();
    match parse(Frame::whole(&frame[..cut]), rules) {
        Ok(packet) => {
            assert!(trims && bth.opcode.is_write(), "{packet:?}");
            assert!(packet.is_trimmed() && packet.payload.is_empty());
            assert_eq!((packet.bth.psn, packet.bth.dqp), (bth.psn, bth.dqp));
        }
        Err(Reject::Drop(DropReason::TrimmedControl)) => assert!(trims && !bth.opcode.is_write()),
        Err(_) => {}
    }
}

/// Rules about queue pair 2 and the copies of the PSN (wire-format.md §8).
fn misplaced(bth: &Bth, headers: &Headers) -> bool {
    let copy = match headers {
        Headers::Sack(seth, _) => Some(seth.cack_psn),
        Headers::Nack(neth) => Some(neth.nack_psn),
        _ => None,
    };
    copy.is_some_and(|copy| copy != bth.psn) || bth.opcode.is_endpoint() != (bth.dqp == Qpn::ENDPOINT)
}

/// The frame of any packet on any path, to this UDP port.
pub(crate) fn frame(draw: &mut Draw<'_>, udp_port: u16) -> Vec<u8> {
    let path = L3Path { udp_port, ..path(draw) };
    let template = L3Template::new(&path);
    let (bth, headers) = packet(draw);
    let dscps = Dscps::default();
    let dscp = draw.pick(&[dscps.no_trim, dscps.trimmed]);
    let data = if bth.opcode.is_write() { draw.bytes(64) } else { &[] };
    let outgoing = Outgoing {
        bth,
        headers,
        ev: Ev(draw.any()),
        ev_layout: EvLayout::FlowHigh,
        dscp,
        ecn: Ecn::Ect0,
        payload_len: data.len(),
    };
    let mut buffer = vec![0; frame_len(&template, &headers, data.len())];
    build_frame(&mut buffer, &template, &outgoing, data).expect("any packet can be built");
    buffer
}

fn path(draw: &mut Draw<'_>) -> L3Path {
    let ip = if draw.any() {
        IpPair::V4 {
            src: Ipv4Addr::from_bits(draw.any()),
            dst: Ipv4Addr::from_bits(draw.any()),
        }
    } else {
        IpPair::V6 {
            src: Ipv6Addr::from_bits(draw.any()),
            dst: Ipv6Addr::from_bits(draw.any()),
        }
    };
    let srv6 = draw.maybe(|draw| Srv6Path {
        src: Ipv6Addr::from_bits(draw.any()),
        container: Ipv6Addr::from_bits(draw.any()),
        srh: draw.maybe(|draw| SrhEntry {
            container: Ipv6Addr::from_bits(draw.any()),
            segments_left: draw.any::<u8>() & 1,
        }),
    });
    L3Path {
        src_mac: draw.any(),
        dst_mac: draw.any(),
        vlan: draw.maybe(Draw::any),
        ip,
        srv6,
        hop_limit: draw.any(),
        udp_port: draw.any(),
    }
}

/// Any packet.
pub(crate) fn packet(draw: &mut Draw<'_>) -> (Bth, Headers) {
    let opcode = draw.pick(&Opcode::ALL);
    let dqp = if opcode.is_endpoint() {
        Qpn::ENDPOINT
    } else {
        Qpn::new(draw.any())
    };
    let bth = Bth {
        se: draw.any(),
        m: draw.any(),
        p_key: draw.any(),
        a: draw.any(),
        rtx: draw.any(),
        ..Bth::new(opcode, dqp, Psn::new(draw.any()))
    };
    let stamp = Tick(draw.any());
    let headers = match opcode {
        Opcode::Ack => Headers::Ack(Aeth {
            syndrome: draw.any(),
            msn: draw.any::<u32>() & 0x00ff_ffff,
        }),
        Opcode::Sack => Headers::Sack(
            Seth {
                m: draw.pick(&[PathVerdict::None, PathVerdict::SkipOnce, PathVerdict::AlwaysSkip]),
                pr: draw.any(),
                ack_psn_offset_or_probe_id: draw.any(),
                entropy: Ev(draw.any()),
                spdcid: draw.any(),
                dpdcid: draw.any(),
                cack_psn: if draw.any() { bth.psn } else { Psn::new(draw.any()) },
                cc_type: Seth::CC_NSCC,
                cc_fl: draw.any::<u8>() & 15,
                mpr: draw.any(),
                sack_offset: draw.any(),
                sack_bitmap: draw.any(),
            },
            Some(CcState {
                tx_timestamp: stamp,
                ooo_count: draw.any::<u16>() & 0x7fff,
                rc: draw.any(),
                rcv_cwnd_pen: draw.any::<u8>() & 0x7f,
                rcvd_bytes: draw.any::<u32>() & 0x00ff_ffff,
            }),
        ),
        Opcode::Nack => Headers::Nack(Neth {
            reason: NackReason(draw.any()),
            vendor_info: draw.any(),
            entropy: Ev(draw.any()),
            spdcid: draw.any(),
            dpdcid: draw.any(),
            nack_psn: if draw.any() { bth.psn } else { Psn::new(draw.any()) },
            tx_timestamp: stamp,
        }),
        Opcode::Probe => Headers::Probe(Peth {
            probe_id: draw.any(),
            spdcid: draw.any(),
            dpdcid: draw.any(),
            tx_timestamp: stamp,
            ftype: draw.any::<u8>() & 15,
        }),
        Opcode::EndpointRequest => Headers::EndpointRequest(Erth {
            op: draw.pick(&OPS),
            port_status_mask: draw.any(),
            tx_timestamp: stamp,
            ftype: draw.any::<u8>() & 15,
        }),
        Opcode::EndpointResponse => Headers::EndpointResponse(Eeth {
            op: draw.pick(&OPS),
            tx_timestamp: stamp,
        }),
        _ => Headers::Write {
            meth: Meth {
                rqmsn: draw.any(),
                msn: draw.any(),
            },
            tseth: draw.maybe(|draw| Tseth {
                tsr: draw.any(),
                ..Tseth::new(stamp)
            }),
            reth: Reth {
                va: draw.any(),
                r_key: draw.any(),
                dmalen: draw.any(),
            },
            imm: opcode.has_imm().then(|| ImmDt(draw.any())),
        },
    };
    (bth, headers)
}
