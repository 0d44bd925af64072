//! Arithmetic and lengths, tried with every value that there is.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod vectors;

use mrc_wire::*;
use vectors::edit::*;

/// Half of the numbers.
const HALF: i32 = 1 << 23;

// protocol.md §4, §6.2
#[test]
fn every_psn_has_its_distance_from_the_seams() {
    for anchor in [0, 0x7f_ffff, 0x80_0000, 0xff_ffff].map(Psn::new) {
        let (mut psn, mut distance) = (anchor, 0);
        for _ in 0..1 << 24 {
            let backwards = if distance == -HALF { -HALF } else { -distance };
            assert!(
                psn.diff(anchor) == distance && anchor.diff(psn) == backwards && anchor.offset(distance) == psn,
                "{psn} from {anchor}: {}, back {}",
                psn.diff(anchor),
                anchor.diff(psn)
            );
            psn = psn.next();
            // Halfway the way back becomes the shorter one.
            distance = if distance == HALF - 1 { -HALF } else { distance + 1 };
        }
        assert_eq!((psn, distance), (anchor, 0), "all of them");
    }
}

// protocol.md §4, §10.5; wire-format.md §7.3
#[test]
fn every_pair_of_stamps_has_its_round_trip() {
    for sent in [0, 1, 0x7fff, 0x8000, 0xffff] {
        for ticks in 0..1_u32 << 16 {
            let back = (sent + ticks) % (1 << 16);
            assert_eq!(Tick(sent as u16).elapsed_ns(Tick(back as u16)), ticks * 128);
        }
    }
    for wrap in [0, 1, 1000, u64::MAX / (128 << 16)] {
        for tick in 0..1_u64 << 16 {
            let from_ns = (wrap * (1 << 16) + tick) * 128;
            assert_eq!(Tick::from_ns(from_ns), Tick(tick as u16));
            assert_eq!(Tick::from_ns(from_ns + 127), Tick(tick as u16));
        }
    }
}

/// Where the two bytes that hold an IP header's traffic class begin, and whether the header is IPv4.
#[derive(Clone, Copy)]
struct Class {
    at: usize,
    v4: bool,
}

impl Class {
    fn write(self, bytes: &mut [u8], tos: u8) {
        if self.v4 {
            bytes[self.at + 1] = tos;
            return;
        }
        bytes[self.at] = 0x60 | tos >> 4;
        bytes[self.at + 1] = bytes[self.at + 1] & 0x0f | tos << 4;
    }
}

// wire-format.md §4
#[test]
fn every_traffic_class_is_code_point_and_mark() {
    for tos in 0..=255_u8 {
        assert_eq!(Ecn::from_tos(tos).tos(tos >> 2), tos);
        assert_eq!(
            DSCPS.trimmed(tos),
            match tos {
                12 => Some(false),
                16 => Some(true),
                _ => None,
            }
        );
    }
    for (name, v4) in [(V4, true), (V6, false)] {
        let class = Class { at: ETH, v4 };
        let (mut bytes, plain) = (vector(name).bytes, vector(name));
        for tos in 0..=255 {
            class.write(&mut bytes, tos);
            bytes = resealed(bytes);
            let packet = check(&bytes).unwrap();
            assert_eq!((packet.dscp, packet.ce), (tos >> 2, tos & 3 == 3), "{name} {tos:#x}");
            // A trimmed code point on a complete packet is no trim (§10).
            assert_eq!((packet.condition, packet.ev), (Condition::Whole, plain.ev()));
        }
    }
}

// wire-format.md §4 (W10)
#[test]
fn every_pair_of_marks_in_a_tunnel_merges_as_rfc_6040_says() {
    let inner_at = [(USID, ETH + 40), (SRH, ETH + 40 + 24)];
    for (name, inner_at) in inner_at {
        let (outer, inner) = (
            Class { at: ETH, v4: false },
            Class {
                at: inner_at,
                v4: false,
            },
        );
        let mut bytes = vector(name).bytes;
        for outer_tos in 0..=255_u8 {
            outer.write(&mut bytes, outer_tos);
            for inner_tos in 0..=255_u8 {
                inner.write(&mut bytes, inner_tos);
                let packet = check(&bytes).unwrap();
                let (outer_ce, capable) = (outer_tos & 3 == 3, inner_tos & 3 != 0);
                let marked = inner_tos & 3 == 3 || outer_ce && capable;
                assert!(
                    packet.ce == marked && packet.dscp == outer_tos >> 2,
                    "{name}: outer {outer_tos:#x}, inner {inner_tos:#x}: {packet:?}"
                );
            }
        }
    }
}

/// What is in front of the UDP header of a vector without a tunnel.
struct Layout {
    name: &'static str,
    /// Of the IP header's length field, and what it counts besides the UDP packet.
    length_at: usize,
    ip_extra: usize,
    udp_at: usize,
}

const LAYOUTS: [Layout; 2] = [
    Layout {
        name: V4,
        length_at: ETH + 2,
        ip_extra: 20,
        udp_at: ETH + 20,
    },
    Layout {
        name: V6,
        length_at: ETH + 4,
        ip_extra: 0,
        udp_at: ETH + 40,
    },
];

impl Layout {
    /// The vector's headers, then data up to the end of a frame that is longer than its packet.
    fn long_frame(&self) -> Vec<u8> {
        let mut bytes = vector(self.name).bytes;
        let headers = bytes.len();
        bytes.extend((headers..1500).map(|at| at as u8));
        bytes
    }

    /// Both lengths, and whatever has to agree with them, for a UDP packet of `udp_len` bytes; `ip_len` as in the header.
    fn write(&self, bytes: &mut [u8], ip_len: u16, udp_len: u16) {
        bytes[self.length_at..self.length_at + 2].copy_from_slice(&ip_len.to_be_bytes());
        bytes[self.udp_at + 4..self.udp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
        if self.ip_extra > 0 {
            bytes[ETH + 10..ETH + 12].fill(0);
            let words = bytes[ETH..ETH + 20].chunks(2);
            let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            bytes[ETH + 10..ETH + 12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        }
        let end = self.udp_at + usize::from(udp_len);
        if end <= bytes.len() && usize::from(udp_len) >= UdpHeader::LEN + Bth::LEN + 4 {
            let expected = dissect::icrc(Frame::whole(&bytes[..end])).map(|icrc| icrc.expected);
            if let Some(expected) = expected {
                bytes[end - 4..end].copy_from_slice(&expected);
            }
        }
    }
}

// wire-format.md §2, §11 steps 1, 2, 5, 6
#[test]
fn a_packet_is_as_long_as_it_says_or_refused_whatever_it_says() {
    for layout in LAYOUTS {
        let base = layout.long_frame();
        let bth = vector(layout.name).bth();
        let headers =
            vector(layout.name).udp_len() as usize - vector(layout.name).payload().len() - usize::from(bth.pad);
        let room = base.len() - layout.udp_at;
        let mut accepted = 0;
        for ip_len in 0..=u16::MAX {
            let udp_len = usize::from(ip_len).saturating_sub(layout.ip_extra);
            let mut bytes = base.clone();
            layout.write(&mut bytes, ip_len, udp_len as u16);
            let data = udp_len.checked_sub(headers + usize::from(bth.pad));
            let fits = udp_len <= room && data.is_some_and(|data| (data + usize::from(bth.pad)) % 4 == 0);
            match check(&bytes) {
                Ok(packet) => {
                    assert!(fits, "{} with IP length {ip_len}: {packet:?}", layout.name);
                    assert_eq!(Some(packet.payload.len()), data, "{} {ip_len}", layout.name);
                    let payload: Vec<u8> = packet.payload.parts().flatten().copied().collect();
                    let at = layout.udp_at + headers - 4;
                    assert_eq!(payload, bytes[at..at + payload.len()], "{} {ip_len}", layout.name);
                    accepted += 1;
                }
                Err(reject) => assert!(!fits, "{} with IP length {ip_len}: {reject:?}", layout.name),
            }
        }
        let least = usize::from(bth.pad).div_ceil(4);
        assert_eq!(accepted, (room - headers) / 4 - least + 1, "{}", layout.name);
    }
}

// wire-format.md §11 step 5
#[test]
fn of_all_udp_lengths_only_that_of_the_ip_payload_is_right() {
    for layout in LAYOUTS {
        let bytes = vector(layout.name).bytes;
        let right = vector(layout.name).udp_len();
        for udp_len in 0..=u16::MAX {
            let mut changed = bytes.clone();
            changed[layout.udp_at + 4..layout.udp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
            if udp_len == right {
                assert!(check(&changed).is_ok());
            } else {
                dropped(&changed, DropReason::UdpLength);
            }
        }
    }
}

// wire-format.md §10, §11 step 4
#[test]
fn a_trimmed_packet_carries_no_data_whatever_length_it_says() {
    for layout in LAYOUTS {
        let class = Class {
            at: ETH,
            v4: layout.ip_extra > 0,
        };
        let mut base = vector(layout.name).bytes;
        class.write(&mut base, DSCPS.trimmed << 2);
        // The data and the ICRC are gone.
        base.truncate(layout.udp_at + UdpHeader::LEN + Bth::LEN + 8);
        let mut trimmed = 0_u32;
        for length in 0..=u16::MAX {
            let mut bytes = base.clone();
            bytes[layout.length_at..layout.length_at + 2].copy_from_slice(&length.to_be_bytes());
            if let Ok(packet) = check(&bytes) {
                assert_eq!(packet.condition, Condition::Trimmed { last_hop: false });
                assert!(packet.payload.is_empty(), "{} {length}", layout.name);
                trimmed += 1;
            }
        }
        // All lengths that leave room for a BTH: what was cut says nothing about what is there.
        let least = (layout.ip_extra + UdpHeader::LEN + Bth::LEN) as u32;
        assert_eq!(trimmed, (1 << 16) - least, "{}", layout.name);
    }
}
