//! Every packet of `vectors.json`, both ways.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod vectors;

use mrc_wire::*;

#[test]
fn every_worked_packet_parses_to_its_values() {
    let dscps = Dscps::default();
    for vector in vectors::all() {
        let packet = parse(Frame::whole(&vector.bytes), &vectors::rules(&dscps)).expect(&vector.name);
        let name = &vector.name;
        assert_eq!(packet.bth, vector.bth(), "{name}");
        assert_eq!(packet.headers, vector.headers(), "{name}");
        assert_eq!(packet.ev, vector.ev(), "{name}");
        assert_eq!(packet.dscp, vector.dscp(), "{name}");
        assert_eq!(packet.udp_len, vector.udp_len(), "{name}");
        assert_eq!((packet.src, packet.dst), vector.addresses(), "{name}");
        assert_eq!(packet.ce, vector.ecn() == Ecn::Ce, "{name}");
        if vector.trimmed {
            let last_hop = vector.dscp() == 16;
            assert_eq!(packet.condition, Condition::Trimmed { last_hop }, "{name}");
            assert!(packet.payload.is_empty(), "{name}: data of a trimmed packet");
        } else {
            assert_eq!(packet.condition, Condition::Whole, "{name}");
            assert_eq!(packet.payload.head, vector.payload(), "{name}");
        }
    }
}

#[test]
fn every_worked_packet_is_built_from_its_values() {
    for vector in vectors::untrimmed() {
        let template = L3Template::new(&vector.path());
        let mut buffer = [0xaa; 2048];
        let len = build_frame(&mut buffer, &template, &vector.outgoing(), &vector.payload()).unwrap();
        assert_eq!(buffer[..len], vector.bytes, "{}", vector.name);
        assert_eq!(len, frame_len(&template, &vector.headers(), vector.payload().len()));
        assert!(
            buffer[len..].iter().all(|byte| *byte == 0xaa),
            "{}: wrote behind the frame",
            vector.name
        );
    }
}

#[test]
fn headers_data_and_seal_one_by_one_give_the_same_frame() {
    for vector in vectors::untrimmed() {
        let template = L3Template::new(&vector.path());
        let (outgoing, payload) = (vector.outgoing(), vector.payload());
        let mut buffer = [0xaa; 2048];
        let data_at = write_headers(&mut buffer, &template, &outgoing).unwrap();
        buffer[data_at..data_at + payload.len()].copy_from_slice(&payload);
        let len = seal(&mut buffer, &template, &outgoing.headers, payload.len()).unwrap();
        assert_eq!(buffer[..len], vector.bytes, "{}", vector.name);
    }
}

#[test]
fn a_frame_in_two_buffers_from_pieces_equals_the_frame_in_one() {
    for vector in vectors::untrimmed() {
        let template = L3Template::new(&vector.path());
        let (outgoing, payload) = (vector.outgoing(), vector.payload());
        let headers_end = template.header_len() + Bth::LEN + outgoing.headers.wire_len();
        for split in headers_end..=vector.bytes.len() {
            for piece_len in [1, 3, 7, 64, 1024] {
                let mut head = vec![0xaa; split];
                let mut tail = vec![0xaa; vector.bytes.len() - split];
                let mut frame = FrameWriter::start(&mut head, &mut tail, &template, &outgoing).unwrap();
                for piece in payload.chunks(piece_len) {
                    frame.copy(piece).unwrap();
                }
                assert_eq!(frame.remaining(), 0);
                assert_eq!(frame.finish().unwrap(), vector.bytes.len());
                head.extend_from_slice(&tail);
                assert_eq!(head, vector.bytes, "{} split at {split}", vector.name);
            }
        }
    }
}

/// CRC-32 bit by bit, as independent of the library as it gets.
fn crc32_bitwise(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

#[test]
fn the_published_icrc_input_gives_the_icrc_of_the_packet() {
    for vector in vectors::untrimmed() {
        let icrc = crc32_bitwise(vector.icrc_input.as_ref().unwrap()).to_le_bytes();
        assert_eq!(vector.bytes[vector.bytes.len() - 4..], icrc, "{}", vector.name);
    }
}

#[test]
fn a_changed_invariant_field_is_in_the_icrc_and_a_changed_variant_field_is_not() {
    let dscps = Dscps::default();
    for vector in vectors::untrimmed() {
        // Which bits the calculation masks: those where all ones stand in its input but not in the packet.
        let input = vector.icrc_input.as_ref().unwrap();
        let body_len = input.len() - 8;
        let ip_at = vector.bytes.len() - 4 - body_len;
        let v6 = vector.bytes[ip_at] >> 4 == 6;
        let ip_len = if v6 { 40 } else { 20 };
        let masked = |at: usize, bit: u8| {
            if v6 {
                (at == 0 && bit < 4) || (1..4).contains(&at) || at == 7
            } else {
                matches!(at, 1 | 8 | 10 | 11)
            }
        };
        for at in 0..body_len + 4 {
            for bit in 0..8 {
                let mut bytes = vector.bytes.clone();
                bytes[ip_at + at] ^= 1 << bit;
                let result = parse(Frame::whole(&bytes), &vectors::rules(&dscps));
                let variant = masked(at, bit) || (ip_len + 6..ip_len + 8).contains(&at) || at == ip_len + 8 + 4;
                if !variant {
                    assert!(
                        result.is_err(),
                        "{}: bit {bit} of byte {at} changed and nobody noticed",
                        vector.name
                    );
                } else if v6 || at >= ip_len {
                    // In IPv4 the header checksum notices. A trimmed DSCP is a value like another: it is complete.
                    let packet = result.unwrap_or_else(|e| panic!("{}: byte {at} bit {bit}: {e}", vector.name));
                    assert_eq!(packet.bth, vector.bth());
                }
            }
        }
    }
}

#[test]
fn the_published_roce_cnp_has_the_icrc_that_this_crate_computes() {
    // wire-format.md §9: captured from a hardware NIC. Plain RoCEv2, so it goes on to the kernel.
    let cnp = vectors::unhex(
        "e41d2dab2bc2 7cfe90643b32 0800 45c2003c718c4000401191610a0011010a001201
         000012b700280000 8100ffff4000011800000000 00000000000000000000000000000000 82fd002a",
    );
    let dscps = Dscps::default();
    assert_eq!(
        parse(Frame::whole(&cnp), &vectors::rules(&dscps)),
        Err(Reject::NotMrc(NotMrc::OpcodeRange))
    );
    assert_eq!(
        dissect::icrc(Frame::whole(&cnp)),
        Some(dissect::IcrcCheck {
            found: [0x82, 0xfd, 0x00, 0x2a],
            expected: [0x82, 0xfd, 0x00, 0x2a]
        })
    );
}
