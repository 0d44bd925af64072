//! Packets that a switch trimmed (wire-format.md §10).

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod vectors;

use mrc_wire::*;
use vectors::edit::*;

#[test]
fn a_whole_packet_with_a_trimmed_dscp_is_an_ordinary_packet() {
    let v6 = edited(V6, |b| (b[ETH], b[ETH + 1]) = (0x63, 0x20 | b[ETH + 1] & 0xf));
    let packet = check(&v6).unwrap();
    assert_eq!(
        (packet.condition, packet.dscp, packet.payload.len()),
        (Condition::Whole, 12, 5)
    );
    // With every check of §11: the IPv4 header checksum does not hold yet.
    let v4 = edited(V4, |b| b[IP4_TOS] = 12 << 2);
    dropped(&v4, DropReason::Checksum);
    assert_eq!(check(&resealed(v4)).unwrap().condition, Condition::Whole);
    // The same for control packets.
    let ack = edited("transport_ack", |b| (b[ETH], b[ETH + 1]) = (0x63, b[ETH + 1] & 0xf));
    assert_eq!(check(&ack).unwrap().condition, Condition::Whole);
    let padded = resealed(edited("transport_ack", |b| {
        (b[ETH], b[ETH + 1]) = (0x63, b[ETH + 1] & 0xf);
        b[ETH + 48 + 1] |= 0x10;
    }));
    dropped(&padded, DropReason::ControlPad);
}

#[test]
fn a_trimmed_dscp_with_a_wrong_icrc_or_udp_length_is_a_trimmed_packet() {
    let wrong = edited(V6, |b| {
        (b[ETH], b[ETH + 1]) = (0x63, 0x20 | b[ETH + 1] & 0xf);
        *b.last_mut().unwrap() ^= 1;
    });
    let packet = check(&wrong).unwrap();
    assert_eq!(packet.condition, Condition::Trimmed { last_hop: false });
    assert!(packet.payload.is_empty());
    let Headers::Write {
        tseth: Some(tseth),
        reth,
        ..
    } = packet.headers
    else {
        panic!("no TSETH")
    };
    assert_eq!((tseth.tx_timestamp, reth), (Tick(0x3039), Reth::default()));
}

#[test]
fn a_write_cut_anywhere_behind_its_bth_is_usable_as_trimmed() {
    let first = vector(FIRST);
    for (dscp, last_hop) in [(12u8, false), (16, true)] {
        for keep in 0..first.bytes.len() {
            let mut bytes = first.bytes.clone();
            let tos = dscp << 2 | 2;
            bytes[ETH] = 0x60 | tos >> 4;
            bytes[ETH + 1] = tos << 4 | bytes[ETH + 1] & 0xf;
            bytes.truncate(keep);
            let result = check(&bytes);
            if keep < ETH + 40 + 20 {
                assert!(matches!(result, Err(Reject::NotMrc(_))), "{keep} bytes: {result:?}");
                continue;
            }
            let packet = result.unwrap();
            assert_eq!(packet.condition, Condition::Trimmed { last_hop });
            assert_eq!((packet.bth, packet.udp_len, packet.ev), (first.bth(), 304, first.ev()));
            assert!(packet.payload.is_empty());
            let Headers::Write { meth, tseth, reth, imm } = packet.headers else {
                panic!("no write")
            };
            let whole_meth = keep >= ETH + 40 + 24;
            assert_eq!(
                meth,
                if whole_meth {
                    Meth { rqmsn: 7, msn: 0x102 }
                } else {
                    Meth::default()
                }
            );
            assert_eq!(tseth.is_some(), keep >= ETH + 40 + 28, "{keep} bytes");
            assert_eq!((reth, imm), (Reth::default(), None));
        }
    }
}

#[test]
fn a_trimmed_ipv4_packet_needs_no_right_checksum() {
    for total_length in [20 + 8 + 12u16, 72, 9000] {
        let bytes = edited(V4, |b| {
            b.truncate(ETH + 20 + 8 + 12);
            b[IP4_TOS] = 12 << 2 | 2;
            b[ETH + 2..ETH + 4].copy_from_slice(&total_length.to_be_bytes());
        });
        assert_eq!(check(&bytes).unwrap().condition, Condition::Trimmed { last_hop: false });
    }
    // Stale upwards only: a length that leaves no room for the BTH is believed.
    let bytes = edited(V4, |b| {
        b[IP4_TOS] = 12 << 2 | 2;
        b[ETH + 2..ETH + 4].copy_from_slice(&39u16.to_be_bytes());
    });
    not_mrc(&bytes, NotMrc::PayloadShort);
}

#[test]
fn the_outer_header_says_whether_a_tunnelled_packet_is_trimmed() {
    for (name, tunnel) in [(USID, 40), (SRH, 64)] {
        let cut = |tos: u8, at: usize| {
            edited(name, |b| {
                b[at] = 0x60 | tos >> 4;
                b[at + 1] = tos << 4 | b[at + 1] & 0xf;
                b.truncate(ETH + tunnel + 40 + 28);
            })
        };
        let outer = cut(16 << 2 | 2, ETH);
        let packet = check(&outer).unwrap();
        assert_eq!(
            (packet.condition, packet.dscp),
            (Condition::Trimmed { last_hop: true }, 16)
        );
        assert_eq!(packet.ev, Ev(if name == USID { 0x0002_0007 } else { 0x0002_0107 }));
        let Headers::Write { tseth: Some(tseth), .. } = packet.headers else {
            panic!("no TSETH")
        };
        assert_eq!(tseth.tx_timestamp, Tick(0x5555));
        not_mrc(&cut(16 << 2 | 2, ETH + tunnel), NotMrc::IpLength);
    }
}

#[test]
fn trimmed_packets_that_are_not_writes_are_dropped() {
    for name in [
        "transport_ack",
        "sack_two_holes_ecn",
        "nack_trimmed",
        "reliability_probe",
        "ep_req_ev_probe",
    ] {
        let bytes = edited(name, |b| {
            (b[ETH], b[ETH + 1]) = (0x63, b[ETH + 1] & 0xf);
            b.truncate(ETH + 40 + 8 + 14);
        });
        dropped(&bytes, DropReason::TrimmedControl);
    }
}

#[test]
fn a_cut_packet_without_a_trimmed_dscp_is_malformed() {
    let bytes = edited("trimmed_min_ipv6", |b| {
        (b[ETH], b[ETH + 1]) = (0x61, 0x20 | b[ETH + 1] & 0xf);
    });
    dropped(&bytes, DropReason::UdpLength);
    let bytes = edited("trimmed_lasthop_128_ipv6", |b| {
        (b[ETH], b[ETH + 1]) = (0x61, 0x20 | b[ETH + 1] & 0xf);
    });
    not_mrc(&bytes, NotMrc::IpLength);
}

#[test]
fn trimmed_packets_still_need_port_range_version_and_queue_pair() {
    let trimmed = "trimmed_min_ipv6";
    not_mrc(&edited(trimmed, |b| b[ETH + 40 + 3] ^= 1), NotMrc::UdpPort);
    not_mrc(&edited(trimmed, |b| b[ETH + 48] = 0x06), NotMrc::OpcodeRange);
    dropped(&edited(trimmed, |b| b[ETH + 48] = 0xcc), DropReason::Opcode);
    dropped(&edited(trimmed, |b| b[ETH + 48 + 1] = 1), DropReason::Tver);
    dropped(&edited(trimmed, |b| b[ETH + 48 + 7] = 2), DropReason::Dqp);
}

#[test]
fn without_a_last_hop_code_point_that_value_is_an_ordinary_one() {
    let dscps = Dscps {
        trimmed_lasthop: None,
        ..Dscps::default()
    };
    let rules = ReceiveRules {
        udp_ports: &[4791],
        dscps: &dscps,
        ev_layout: EvLayout::FlowHigh,
    };
    let bytes = vector("trimmed_lasthop_128_ipv6").bytes;
    assert_eq!(
        parse(Frame::whole(&bytes), &rules).map(|_| ()),
        Err(Reject::NotMrc(NotMrc::IpLength))
    );
}
