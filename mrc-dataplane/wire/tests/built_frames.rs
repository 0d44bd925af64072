//! What the builder makes, the parser takes, and `etherparse`, which shares no code with either, reads the same layers.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};
use mrc_wire::*;
use proptest::prelude::*;

prop_compose! {
    fn path()(
        macs in any::<[[u8; 6]; 2]>(), vlan in proptest::option::of(0..0x1000u16), v4 in any::<[u32; 2]>(),
        v6 in any::<[u128; 5]>(), mode in 0..4u8, segments_left in 0..2u8, hop_limit in 1..=255u8,
        udp_port in 1..=u16::MAX,
    ) -> L3Path {
        let address = v6.map(Ipv6Addr::from_bits);
        let ip = match mode {
            0 => IpPair::V4 { src: Ipv4Addr::from_bits(v4[0]), dst: Ipv4Addr::from_bits(v4[1]) },
            _ => IpPair::V6 { src: address[0], dst: address[1] },
        };
        let srv6 = (mode > 1).then(|| Srv6Path {
            src: address[2],
            container: address[3],
            srh: (mode == 3).then(|| SrhEntry { container: address[4], segments_left }),
        });
        L3Path { src_mac: macs[0], dst_mac: macs[1], vlan, ip, srv6, hop_limit, udp_port }
    }
}

fn headers(opcode: Opcode, n: [u16; 6], w: [u32; 3], bits: u64) -> Headers {
    match opcode {
        Opcode::Ack => Headers::Ack(Aeth {
            syndrome: 0x60 | (n[0] % 3 + 1) as u8,
            msn: w[0] & 0xff_ffff,
        }),
        Opcode::Sack => Headers::Sack(
            Seth {
                m: PathVerdict::SkipOnce,
                pr: bits & 1 == 1,
                ack_psn_offset_or_probe_id: n[0],
                entropy: Ev(w[0]),
                spdcid: n[1],
                dpdcid: n[2],
                cack_psn: Psn::new(w[2]),
                mpr: n[3] as u8,
                sack_offset: n[4].cast_signed(),
                sack_bitmap: bits,
                ..Seth::default()
            },
            Some(CcState {
                tx_timestamp: Tick(n[5]),
                rcvd_bytes: w[1] & 0xff_ffff,
                ..CcState::default()
            }),
        ),
        Opcode::Nack => Headers::Nack(Neth {
            reason: NackReason::NO_BITMAP,
            vendor_info: 0,
            entropy: Ev(w[0]),
            spdcid: n[1],
            dpdcid: n[2],
            nack_psn: Psn::new(w[2]),
            tx_timestamp: Tick(n[5]),
        }),
        Opcode::Probe => Headers::Probe(Peth {
            probe_id: n[0],
            ftype: 1,
            ..Peth::default()
        }),
        Opcode::EndpointRequest => Headers::EndpointRequest(Erth {
            op: EndpointOp::new(n[0] as u8 & 1),
            port_status_mask: w[0],
            tx_timestamp: Tick(n[5]),
            ftype: 1,
        }),
        Opcode::EndpointResponse => Headers::EndpointResponse(Eeth {
            op: EndpointOp::EV_PROBE,
            tx_timestamp: Tick(n[5]),
        }),
        write => Headers::Write {
            meth: Meth { rqmsn: n[0], msn: n[1] },
            tseth: (bits & 1 == 1).then(|| Tseth::new(Tick(n[5]))),
            reth: Reth {
                va: bits,
                r_key: w[0],
                dmalen: w[1],
            },
            imm: write.has_imm().then(|| ImmDt(w[0].to_be_bytes())),
        },
    }
}

prop_compose! {
    fn outgoing()(
        at in 0..Opcode::ALL.len(), n in any::<[u16; 6]>(), w in any::<[u32; 3]>(), bits in any::<u64>(),
        flags in any::<[bool; 4]>(), ev in any::<u32>(), port_high in any::<bool>(), dscp in 0..64u8, ecn in 0..4u8,
        len in 0..600usize,
    ) -> (Outgoing, Vec<u8>) {
        let opcode = Opcode::ALL[at];
        let [se, a, rtx, _] = flags;
        let dqp = if opcode.is_endpoint() { Qpn::ENDPOINT } else { Qpn::new(w[1] | 4) };
        let payload: Vec<u8> = if opcode.is_write() { (0..len).map(|i| (i * 7) as u8).collect() } else { Vec::new() };
        let outgoing = Outgoing {
            bth: Bth { se, a, rtx, p_key: n[3], ..Bth::new(opcode, dqp, Psn::new(w[2])) },
            headers: headers(opcode, n, w, bits),
            ev: Ev(ev),
            ev_layout: if port_high { EvLayout::PortHigh } else { EvLayout::FlowHigh },
            dscp,
            ecn: Ecn::from_tos(ecn),
            payload_len: payload.len(),
        };
        (outgoing, payload)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_built_parses_to_what_was_asked_for(path in path(), (outgoing, payload) in outgoing(), split in 230..900usize) {
        let template = L3Template::new(&path);
        let len = frame_len(&template, &outgoing.headers, payload.len());
        let (mut head, mut tail) = (vec![0xaa; split.min(len)], vec![0xaa; len - split.min(len)]);
        let mut frame = FrameWriter::start(&mut head, &mut tail, &template, &outgoing).unwrap();
        for piece in payload.chunks(113) {
            frame.copy(piece).unwrap();
        }
        prop_assert_eq!(frame.finish().unwrap(), len);

        let rules = ReceiveRules {
            udp_ports: &[path.udp_port], dscps: &Dscps::default(), ev_layout: outgoing.ev_layout,
        };
        let packet = parse(Frame { head: &head, tail: &tail }, &rules).unwrap();
        prop_assert_eq!(packet.condition, Condition::Whole);
        prop_assert_eq!(packet.headers, outgoing.headers);
        let ts = matches!(outgoing.headers, Headers::Write { tseth: Some(_), .. });
        let pad = (4 - payload.len() % 4) % 4;
        prop_assert_eq!(packet.bth, Bth { ts, pad: pad as u8, ..outgoing.bth });
        prop_assert_eq!([packet.payload.head, packet.payload.tail].concat(), payload);
        prop_assert_eq!(packet.dscp, outgoing.dscp);
        prop_assert_eq!(packet.ce, outgoing.ecn == Ecn::Ce);
        let (ev, addresses) = match path.ip {
            IpPair::V4 { src, dst } => (outgoing.ev.0 & 0xffff, (IpAddr::V4(src), IpAddr::V4(dst))),
            IpPair::V6 { src, dst } => (outgoing.ev.0, (IpAddr::V6(src), IpAddr::V6(dst))),
        };
        prop_assert_eq!(packet.ev, Ev(ev));
        prop_assert_eq!((packet.src, packet.dst), addresses);
        prop_assert_eq!(template.encap().ip_len() + usize::from(packet.udp_len) + 14 + path.vlan.map_or(0, |_| 4), len);
        prop_assert_eq!(packet.nominal_size(), u32::from(packet.udp_len) + 40);
    }

    #[test]
    fn etherparse_reads_the_same_layers(path in path(), (outgoing, payload) in outgoing()) {
        let mut buffer = [0; 2048];
        let template = L3Template::new(&path);
        let len = build_frame(&mut buffer, &template, &outgoing, &payload).unwrap();
        let tos = outgoing.ecn.tos(outgoing.dscp);
        let (flow_label, v6_port) = outgoing.ev_layout.place(outgoing.ev);
        let mut at = 14;

        let sliced = SlicedPacket::from_ethernet(&buffer[..len]).unwrap();
        let ethernet = sliced.link.as_ref().unwrap().to_header().unwrap().ethernet2().unwrap();
        prop_assert_eq!((ethernet.source, ethernet.destination), (path.src_mac, path.dst_mac));
        match (path.vlan, sliced.link_exts.first()) {
            (Some(tci), Some(LinkExtSlice::Vlan(tag))) => {
                let header = tag.to_header();
                prop_assert_eq!(u16::from_be_bytes(header.to_bytes()[..2].try_into().unwrap()), tci);
                at += 4;
            }
            (None, None) => {}
            other => panic!("VLAN tag: {other:?}"),
        }

        let tunnel = template.encap().ip_len() - if matches!(path.ip, IpPair::V4 { .. }) { 20 } else { 40 };
        if let Some(srv6) = path.srv6 {
            let Some(NetSlice::Ipv6(outer)) = &sliced.net else { panic!("no outer header") };
            let header = outer.header();
            prop_assert_eq!(header.source_addr(), srv6.src);
            prop_assert_eq!(header.destination_addr(), srv6.container);
            prop_assert_eq!(header.traffic_class(), tos);
            prop_assert_eq!(header.flow_label().value(), flow_label);
            prop_assert_eq!(usize::from(header.payload_length()), len - at - 40);
            prop_assert_eq!(header.hop_limit(), path.hop_limit);
            prop_assert_eq!(outer.extensions().is_empty(), srv6.srh.is_none());
            prop_assert_eq!(outer.payload().ip_number.0, 41);
            prop_assert_eq!(outer.payload().payload.len(), len - at - tunnel);
        }
        at += tunnel;

        let inner = SlicedPacket::from_ip(&buffer[at..len]).unwrap();
        match (path.ip, inner.net.as_ref().unwrap()) {
            (IpPair::V4 { src, dst }, NetSlice::Ipv4(ip)) => {
                let header = ip.header();
                prop_assert_eq!((header.source_addr(), header.destination_addr()), (src, dst));
                prop_assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
                prop_assert_eq!((header.dcp().value(), header.ecn().value()), (tos >> 2, tos & 3));
                prop_assert_eq!((header.ttl(), header.dont_fragment(), header.more_fragments()), (path.hop_limit, true, false));
                prop_assert_eq!(usize::from(header.total_len()), len - at);
            }
            (IpPair::V6 { src, dst }, NetSlice::Ipv6(ip)) => {
                let header = ip.header();
                prop_assert_eq!((header.source_addr(), header.destination_addr()), (src, dst));
                prop_assert_eq!(header.traffic_class(), tos);
                prop_assert_eq!(header.flow_label().value(), flow_label);
                prop_assert_eq!(usize::from(header.payload_length()), len - at - 40);
                prop_assert_eq!(header.hop_limit(), path.hop_limit);
            }
            (_, other) => panic!("IP: {other:?}"),
        }
        let Some(TransportSlice::Udp(udp)) = &inner.transport else { panic!("no UDP") };
        let port = if matches!(path.ip, IpPair::V4 { .. }) { outgoing.ev.0 as u16 } else { v6_port };
        prop_assert_eq!((udp.source_port(), udp.destination_port()), (port, path.udp_port));
        prop_assert_eq!(usize::from(udp.length()), udp.payload().len() + 8);
        prop_assert_eq!(udp.checksum(), 0);
    }
}

const PATH: L3Path = L3Path {
    src_mac: [2, 0, 0, 0, 0, 1],
    dst_mac: [2, 0, 0, 0, 0, 2],
    vlan: None,
    ip: IpPair::V6 {
        src: Ipv6Addr::LOCALHOST,
        dst: Ipv6Addr::LOCALHOST,
    },
    srv6: None,
    hop_limit: 64,
    udp_port: DEFAULT_UDP_PORT,
};

fn write(payload_len: usize) -> Outgoing {
    Outgoing {
        bth: Bth::new(Opcode::WriteOnly, Qpn::new(5), Psn::new(1)),
        headers: headers(Opcode::WriteOnly, [0; 6], [0; 3], 1),
        ev: Ev(1),
        ev_layout: EvLayout::FlowHigh,
        dscp: 0,
        ecn: Ecn::Ect0,
        payload_len,
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let template = L3Template::new(&PATH);
    let mut buffer = [0; 512];
    let mut build = |outgoing: &Outgoing| build_frame(&mut buffer, &template, outgoing, &[]).unwrap_err();
    let misfit = Outgoing {
        headers: headers(Opcode::Ack, [0; 6], [0; 3], 0),
        ..write(0)
    };
    assert_eq!(build(&misfit), BuildError::Headers(Opcode::WriteOnly));
    let no_imm = Outgoing {
        bth: Bth::new(Opcode::WriteOnlyImm, Qpn::new(5), Psn::new(1)),
        ..write(0)
    };
    assert_eq!(build(&no_imm), BuildError::Headers(Opcode::WriteOnlyImm));
    let mut data = Outgoing {
        bth: Bth::new(Opcode::Ack, Qpn::new(5), Psn::new(1)),
        ..misfit
    };
    data.payload_len = 4;
    assert_eq!(build(&data), BuildError::Data(Opcode::Ack));
    for payload_len in [65_500, 65_536, usize::MAX] {
        assert_eq!(build(&write(payload_len)), BuildError::TooLong { payload_len });
    }
}

#[test]
fn buffers_that_are_too_small_are_refused_before_anything_is_sealed() {
    let template = L3Template::new(&PATH);
    let outgoing = write(10);
    let (headers_end, len) = (14 + 40 + 8 + 12 + 24, 14 + 40 + 8 + 12 + 24 + 12 + 4);
    for room in 0..len {
        let mut buffer = vec![0; room];
        let expected = if room < headers_end {
            BuildError::HeadRoom {
                needed: headers_end,
                room,
            }
        } else {
            BuildError::Room { needed: len, room }
        };
        assert_eq!(
            build_frame(&mut buffer, &template, &outgoing, &[1; 10]),
            Err(expected),
            "{room} bytes"
        );
        assert_eq!(
            seal(&mut buffer, &template, &outgoing.headers, 10),
            Err(BuildError::Room { needed: len, room })
        );
    }
    let huge = seal(&mut [0; 512], &template, &outgoing.headers, usize::MAX);
    assert_eq!(
        huge,
        Err(BuildError::Room {
            needed: usize::MAX,
            room: 512
        })
    );
    // Headers do not straddle, whatever the second buffer offers.
    let (mut head, mut tail) = ([0; 60], [0; 400]);
    let error = FrameWriter::start(&mut head, &mut tail, &template, &outgoing).err();
    assert_eq!(
        error,
        Some(BuildError::HeadRoom {
            needed: headers_end,
            room: 60
        })
    );
}

#[test]
fn too_much_or_too_little_data_is_refused() {
    let template = L3Template::new(&PATH);
    let mut buffer = [0; 512];
    let mut frame = FrameWriter::start(&mut buffer, &mut [], &template, &write(10)).unwrap();
    frame.copy(&[1; 6]).unwrap();
    assert_eq!(
        frame.copy(&[1; 5]),
        Err(BuildError::DataLength {
            payload_len: 10,
            given: 11
        })
    );
    assert_eq!(frame.remaining(), 4);
    assert_eq!(
        frame.finish(),
        Err(BuildError::DataLength {
            payload_len: 10,
            given: 6
        })
    );
}

#[test]
fn a_source_that_fails_stops_the_frame_with_its_own_error() {
    #[derive(Debug, PartialEq)]
    enum Fault {
        Build(BuildError),
        Unmapped,
    }
    impl From<BuildError> for Fault {
        fn from(error: BuildError) -> Self {
            Self::Build(error)
        }
    }
    let template = L3Template::new(&PATH);
    let mut buffer = [0; 512];
    let mut frame = FrameWriter::start(&mut buffer, &mut [], &template, &write(10)).unwrap();
    assert_eq!(frame.fill(4, |_| Err(Fault::Unmapped)), Err(Fault::Unmapped));
    let too_long = frame.fill(11, |_| -> Result<(), Fault> { unreachable!() });
    assert_eq!(
        too_long,
        Err(Fault::Build(BuildError::DataLength {
            payload_len: 10,
            given: 11
        }))
    );
}

#[test]
fn new_mac_addresses_reach_the_next_frame() {
    let mut template = L3Template::new(&PATH);
    template.set_macs([9; 6], [8; 6]);
    assert_eq!(template.dst_mac(), [8; 6]);
    let mut buffer = [0; 512];
    build_frame(&mut buffer, &template, &write(0), &[]).unwrap();
    assert_eq!(buffer[..12], [8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9]);
}
