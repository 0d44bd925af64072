//! Each check of wire-format.md §11, and which of two failures is reported when a frame has both.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod vectors;

use mrc_wire::*;
use vectors::edit::*;

// wire-format.md §2.1
#[test]
fn other_ethertypes_and_second_tags_are_not_mrc() {
    not_mrc(
        &edited(V4, |b| b[12..14].copy_from_slice(&[0x08, 0x06])),
        NotMrc::EtherType,
    );
    not_mrc(
        &edited(V4, |b| b[12..14].copy_from_slice(&[0x88, 0xa8])),
        NotMrc::EtherType,
    );
    for name in [V4, V6, USID, SRH] {
        let tagged = edited(name, |b| drop(b.splice(12..12, [0x81, 0x00, 0x20, 0x05])));
        let plain = vector(name);
        let packet = check(&tagged).unwrap();
        assert_eq!(packet, check(&plain.bytes).unwrap());
        let twice = edited(name, |b| drop(b.splice(12..12, [0x81, 0, 0, 5, 0x81, 0, 0, 6])));
        not_mrc(&twice, NotMrc::EtherType);
    }
}

// wire-format.md §2.2, §2.3
#[test]
fn ip_headers_that_are_not_ours_are_not_mrc() {
    not_mrc(&edited(V4, |b| b[ETH] = 0x65), NotMrc::IpVersion);
    not_mrc(&edited(V4, |b| b[ETH] = 0x46), NotMrc::IpOptions);
    not_mrc(&edited(V4, |b| b[ETH + 6] = 0x20), NotMrc::Fragment);
    not_mrc(&edited(V4, |b| b[ETH + 7] = 1), NotMrc::Fragment);
    not_mrc(&edited(V4, |b| b[ETH + 9] = 6), NotMrc::NotUdp);
    not_mrc(&edited(V6, |b| b[ETH] = 0x40), NotMrc::IpVersion);
    not_mrc(&edited(V6, |b| b[ETH + 6] = 44), NotMrc::NotUdp);
    not_mrc(&edited(V6, |b| b[ETH + 6] = 0), NotMrc::NotUdp);
    not_mrc(&edited(USID, |b| b[ETH + 6] = 4), NotMrc::NotUdp);
    not_mrc(&edited(USID, |b| b[ETH + 40 + 6] = 43), NotMrc::NotUdp);
    not_mrc(&edited(USID, |b| b[ETH + 40] = 0x40), NotMrc::IpVersion);
    not_mrc(&edited(SRH, |b| b[ETH + 40] = 17), NotMrc::RoutingHeader);
    not_mrc(&edited(SRH, |b| b[ETH + 40 + 2] = 2), NotMrc::RoutingHeader);
}

// wire-format.md §2.2
#[test]
fn the_reserved_and_dont_fragment_bits_do_not_make_a_fragment() {
    for flags in [0x00, 0x80, 0xc0] {
        let bytes = resealed(edited(V4, |b| b[ETH + 6] = flags));
        assert!(check(&bytes).is_ok());
    }
}

#[test]
fn ip_lengths_beyond_the_frame_are_not_mrc_without_a_trimmed_dscp() {
    not_mrc(&edited(V4, |b| b[ETH + 3] += 1), NotMrc::IpLength);
    not_mrc(&edited(V4, |b| b[ETH + 3] = 19), NotMrc::PayloadShort);
    not_mrc(&edited(V4, |b| b.truncate(b.len() - 1)), NotMrc::IpLength);
    not_mrc(&edited(V6, |b| b[ETH + 5] += 1), NotMrc::IpLength);
    not_mrc(&edited(USID, |b| b[ETH + 5] += 1), NotMrc::IpLength);
    not_mrc(&edited(USID, |b| b[ETH + 40 + 5] += 1), NotMrc::IpLength);
    // The inner packet may not run past the outer one either.
    not_mrc(&edited(USID, |b| b[ETH + 5] -= 1), NotMrc::IpLength);
    not_mrc(&edited(SRH, |b| b[ETH + 40 + 1] = 255), NotMrc::IpLength);
}

#[test]
fn bytes_behind_the_ip_packet_are_ignored() {
    for vector in vectors::untrimmed() {
        let mut bytes = vector.bytes.clone();
        bytes.extend_from_slice(&[0x5a; 13]);
        assert_eq!(check(&bytes), check(&vector.bytes), "{}", vector.name);
        assert!(check(&bytes).is_ok());
    }
}

// wire-format.md §5
#[test]
fn a_routing_header_of_any_length_is_skipped() {
    for ext_len in 0..=255u8 {
        let body = 8 * usize::from(ext_len);
        let bytes = edited(SRH, |b| {
            let srh_at = ETH + 40;
            b.splice(srh_at + 8..srh_at + 24, vec![0x77; body]);
            b[srh_at + 1] = ext_len;
            b[srh_at + 3] = 0x99; // Segments Left: not looked at
            let outer = u16::try_from(8 + body + 40 + 64).unwrap();
            b[ETH + 4..ETH + 6].copy_from_slice(&outer.to_be_bytes());
        });
        assert_eq!(
            check(&bytes).unwrap(),
            check(&vector(SRH).bytes).unwrap(),
            "Hdr Ext Len {ext_len}"
        );
    }
}

// wire-format.md §1, §5
#[test]
fn a_tunnelled_packet_and_its_inner_packet_alone_are_the_same() {
    for (name, tunnel) in [(USID, 40), (SRH, 64)] {
        let bare = edited(name, |b| drop(b.drain(ETH..ETH + tunnel)));
        assert_eq!(check(&bare).unwrap(), check(&vector(name).bytes).unwrap());
    }
}

#[test]
fn a_tunnel_gives_its_dscp_and_merges_its_congestion_mark() {
    // (inner ECN, outer ECN) -> marked, after RFC 6040.
    for (inner, outer, marked) in [
        (2, 2, false),
        (2, 3, true),
        (1, 3, true),
        (3, 0, true),
        (3, 3, true),
        (0, 3, false),
        (0, 0, false),
    ] {
        let bytes = edited(USID, |b| {
            let outer_tos: u8 = 46 << 2 | outer;
            let inner_tos: u8 = 4 << 2 | inner;
            for (at, tos) in [(ETH, outer_tos), (ETH + 40, inner_tos)] {
                b[at] = 0x60 | tos >> 4;
                b[at + 1] = tos << 4 | b[at + 1] & 0x0f;
            }
        });
        let packet = check(&bytes).unwrap();
        assert_eq!(packet.dscp, 46);
        assert_eq!(packet.ce, marked, "inner {inner}, outer {outer}");
    }
}

// wire-format.md §2.4
#[test]
fn only_configured_udp_ports_are_ours() {
    not_mrc(&edited(V6, |b| b[ETH + 40 + 3] ^= 1), NotMrc::UdpPort);
    let dscps = Dscps::default();
    let rules = ReceiveRules {
        udp_ports: &[4971, 4791],
        dscps: &dscps,
        ev_layout: EvLayout::FlowHigh,
    };
    let other = resealed(edited(V6, |b| {
        b[ETH + 40 + 2..ETH + 40 + 4].copy_from_slice(&4971u16.to_be_bytes());
    }));
    assert!(parse(Frame::whole(&other), &rules).is_ok());
    assert!(parse(Frame::whole(&vector(V6).bytes), &rules).is_ok());
}

#[test]
fn udp_payloads_below_sixteen_bytes_are_not_mrc() {
    let short = |len: u8| {
        edited(V6, |b| {
            b.truncate(ETH + 40 + 8 + usize::from(len));
            b[ETH + 5] = 8 + len;
            b[ETH + 40 + 5] = 8 + len;
        })
    };
    for len in 0..16 {
        not_mrc(&short(len), NotMrc::PayloadShort);
    }
    dropped(&short(16), DropReason::Short);
}

// wire-format.md §6
#[test]
fn plain_roce_goes_to_the_kernel_and_unknown_mrc_opcodes_are_dropped() {
    for value in 0..=255u8 {
        let bytes = edited(V6, |b| b[ETH + 40 + 8] = value);
        if value >> 5 != 0b110 {
            not_mrc(&bytes, NotMrc::OpcodeRange);
        } else if Opcode::from_wire(value).is_none() {
            dropped(&bytes, DropReason::Opcode);
        }
    }
}

// wire-format.md §7.1
#[test]
fn transport_versions_other_than_zero_are_dropped() {
    for tver in 1..16 {
        dropped(&resealed(edited(V6, |b| b[ETH + 40 + 8 + 1] |= tver)), DropReason::Tver);
    }
}

#[test]
fn a_wrong_ipv4_checksum_is_dropped_before_the_icrc_is_looked_at() {
    dropped(&edited(V4, |b| b[ETH + 10] ^= 1), DropReason::Checksum);
    dropped(
        &edited(V4, |b| {
            b[ETH + 10] ^= 1;
            *b.last_mut().unwrap() ^= 1;
        }),
        DropReason::Checksum,
    );
}

#[test]
fn a_udp_length_that_differs_from_the_ip_payload_is_dropped() {
    for difference in [1u8, 4, 0xfc, 0xff] {
        let bytes = edited(V6, |b| b[ETH + 40 + 5] = b[ETH + 40 + 5].wrapping_add(difference));
        dropped(&bytes, DropReason::UdpLength);
    }
}

/// The vector with its UDP payload made longer or shorter before the ICRC, all lengths and the ICRC right.
fn stretched(name: &str, by: i8) -> Vec<u8> {
    resealed(edited(name, |b| {
        let icrc_at = b.len() - 4;
        if by >= 0 {
            b.splice(icrc_at..icrc_at, vec![0; by.unsigned_abs().into()]);
        } else {
            b.drain(icrc_at - usize::from(by.unsigned_abs())..icrc_at);
        }
        let v4 = b[12..14] == [8, 0];
        let (length_at, udp_at) = if v4 { (ETH + 2, ETH + 20) } else { (ETH + 4, ETH + 40) };
        for at in [length_at, udp_at + 4] {
            let length = u16::from_be_bytes([b[at], b[at + 1]]).wrapping_add_signed(by.into());
            b[at..at + 2].copy_from_slice(&length.to_be_bytes());
        }
    }))
}

#[test]
fn writes_whose_data_and_pad_are_no_multiple_of_four_are_dropped() {
    for by in [1, 2, 3] {
        dropped(&stretched(V6, by), DropReason::Alignment);
        dropped(&stretched(V4, by), DropReason::Alignment);
    }
    assert_eq!(check(&stretched(V6, 4)).unwrap().payload.len(), 5 + 4);
}

#[test]
fn headers_or_pad_that_do_not_fit_are_short() {
    // 5 bytes of data and 3 of pad: without data the pad of 3 has no room.
    dropped(&stretched(V6, -8), DropReason::Short);
    dropped(&stretched(V6, -12), DropReason::Short);
    for name in [
        "transport_ack",
        "sack_two_holes_ecn",
        "nack_trimmed",
        "reliability_probe",
        "ep_req_ev_probe",
        "ep_rsp_ev_probe",
        "write_only_zero_length",
    ] {
        assert!(check(&stretched(name, 0)).is_ok());
        dropped(&stretched(name, -4), DropReason::Short);
    }
}

#[test]
fn control_packets_may_be_longer_than_their_headers() {
    for name in [
        "transport_ack",
        "sack_two_holes_ecn",
        "sack_probe_response_ipv4",
        "nack_trimmed",
        "reliability_probe",
        "ep_req_ev_probe",
        "ep_rsp_ev_probe",
    ] {
        for by in [1, 4, 16, 40] {
            let bytes = stretched(name, by);
            let packet = check(&bytes).unwrap();
            assert_eq!(packet.headers, vector(name).headers());
            assert!(packet.payload.is_empty());
        }
    }
}

#[test]
fn a_wrong_icrc_is_dropped_before_anything_behind_it_is_judged() {
    for vector in vectors::untrimmed() {
        for byte in 1..=4 {
            let mut bytes = vector.bytes.clone();
            let at = bytes.len() - byte;
            bytes[at] ^= 0x40;
            dropped(&bytes, DropReason::Icrc);
        }
    }
    // A control packet with pad, whose ICRC is not right either.
    dropped(
        &edited("transport_ack", |b| b[ETH + 40 + 8 + 1] |= 0x10),
        DropReason::Icrc,
    );
}

#[test]
fn control_packets_with_pad_are_dropped() {
    for name in [
        "transport_ack",
        "sack_two_holes_ecn",
        "nack_trimmed",
        "reliability_probe",
        "ep_rsp_ev_probe",
    ] {
        dropped(
            &resealed(edited(name, |b| b[ETH + 40 + 8 + 1] |= 0x20)),
            DropReason::ControlPad,
        );
    }
}

#[test]
fn a_psn_that_differs_from_its_copy_is_dropped() {
    for name in ["sack_two_holes_ecn", "nack_trimmed"] {
        dropped(
            &resealed(edited(name, |b| b[ETH + 40 + 8 + 11] ^= 1)),
            DropReason::PsnMismatch,
        );
    }
    // Where the BTH's PSN is reserved, or a request id whose upper byte is ignored, it may be anything.
    for name in ["reliability_probe", "ep_req_ev_probe", "ep_rsp_ev_probe"] {
        assert!(check(&resealed(edited(name, |b| b[ETH + 40 + 8 + 9] = 0x7f))).is_ok());
    }
}

// wire-format.md §8
#[test]
fn queue_pair_two_and_endpoint_operations_belong_together() {
    let dqp_low = ETH + 40 + 8 + 7;
    for name in ["ep_req_ev_probe", "ep_rsp_ev_probe"] {
        dropped(&resealed(edited(name, |b| b[dqp_low] = 3)), DropReason::Dqp);
    }
    for name in [V6, "transport_ack", "sack_two_holes_ecn", "reliability_probe"] {
        dropped(&resealed(edited(name, |b| b[dqp_low] = 2)), DropReason::Dqp);
    }
}

// wire-format.md §7.6, §7.11
#[test]
fn reserved_endpoint_operations_and_unused_syndromes_are_dropped() {
    for op in [2, 3] {
        dropped(
            &resealed(edited("ep_req_ev_probe", |b| b[ETH + 40 + 20 + 1] = op)),
            DropReason::EndpointOp,
        );
    }
    for syndrome in 0..=255u8 {
        let bytes = resealed(edited("transport_ack", |b| b[ETH + 40 + 20] = syndrome));
        match syndrome {
            0x00..=0x1f | 0x61..=0x7f => assert!(check(&bytes).is_ok(), "{syndrome:#x}"),
            _ => dropped(&bytes, DropReason::Syndrome),
        }
    }
}

// wire-format.md §7.8
#[test]
fn a_sack_of_another_congestion_control_keeps_its_seth_and_loses_its_cc_state() {
    let bytes = resealed(edited("sack_two_holes_ecn", |b| b[ETH + 40 + 20 + 16] = 0x10));
    let Headers::Sack(seth, state) = check(&bytes).unwrap().headers else {
        panic!("no SACK")
    };
    assert_eq!((seth.cc_type, state), (1, None));
    assert_eq!(seth.sack_bitmap, 0x76);
}

// wire-format.md §7.3
#[test]
fn the_timestamp_bit_means_nothing_on_packets_that_are_not_writes() {
    for name in [
        "transport_ack",
        "sack_two_holes_ecn",
        "nack_trimmed",
        "reliability_probe",
        "ep_req_ev_probe",
    ] {
        let bytes = resealed(edited(name, |b| b[ETH + 40 + 8 + 8] |= 0x10));
        assert_eq!(check(&bytes).unwrap().headers, vector(name).headers());
    }
}

#[test]
fn reserved_bits_are_ignored() {
    // var_res, R and inv_res of the BTH; M.
    let bytes = resealed(edited(V6, |b| {
        b[ETH + 48 + 4] = 0xff;
        b[ETH + 48 + 8] |= 0x4f;
        b[ETH + 48 + 1] |= 0x40;
        b[ETH + 40 + 6..ETH + 40 + 8].copy_from_slice(&[0x12, 0x34]); // UDP checksum: never verified
    }));
    let packet = check(&bytes).unwrap();
    assert_eq!(Bth { m: false, ..packet.bth }, vector(V6).bth());
}

#[test]
fn the_layout_of_the_ev_is_a_setting() {
    let dscps = Dscps::default();
    let rules = ReceiveRules {
        udp_ports: &[4791],
        dscps: &dscps,
        ev_layout: EvLayout::PortHigh,
    };
    for (name, ev) in [(V4, 0xc0de), (V6, 0x45c7_012b), (USID, 0x0007_0002)] {
        assert_eq!(
            parse(Frame::whole(&vector(name).bytes), &rules).unwrap().ev,
            Ev(ev),
            "{name}"
        );
    }
}

#[test]
fn reasons_count_and_name_themselves() {
    for (index, reason) in DropReason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
        assert!(!reason.code().is_empty() && !reason.to_string().is_empty());
    }
    for (index, reason) in NotMrc::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
        assert!(!reason.code().is_empty() && !reason.to_string().is_empty());
    }
    assert_eq!(Reject::from(DropReason::Icrc).to_string(), "dropped: ICRC is wrong");
}
