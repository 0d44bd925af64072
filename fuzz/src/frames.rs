//! Decoders: whatever arrives, nothing panics, and what is accepted can be built again (wire-format.md §11).

use crate::draw::Draw;
use crate::headers;
use mrc_wire::{
    Condition, Dscps, Ecn, EvLayout, Frame, Headers, IpPair, L3Path, L3Template, Outgoing, Packet, ReceiveRules,
    build_frame, dissect, frame_len, parse,
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::net::IpAddr;

/// Frames that random bytes would not become: a parser turns them away at the first field.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let frame = |_| {
        let mut bytes = [0; 300];
        rng.fill_bytes(&mut bytes);
        [vec![1, bytes[0]], headers::frame(&mut Draw::new(&bytes[1..]), 4791)].concat()
    };
    (0..48).map(frame).collect()
}

/// One byte of decisions, one that says where the frame is split in two, the frame.
pub(crate) fn target(data: &[u8]) {
    accepts(data);
}

/// Does the decoder take this for a packet, whole or trimmed?
fn accepts(data: &[u8]) -> bool {
    let mut draw = Draw::new(data);
    let decisions: u8 = draw.any();
    let split = usize::from(draw.any::<u8>());
    let mut bytes = draw.rest().to_vec();
    if decisions & 1 != 0 {
        seal(&mut bytes);
    }
    let ev_layout = if decisions & 2 == 0 {
        EvLayout::FlowHigh
    } else {
        EvLayout::PortHigh
    };
    let bytes = bytes.into_boxed_slice();
    let (head, tail) = bytes.split_at(split.min(bytes.len()));
    let dscps = Dscps::default();
    let rules = ReceiveRules {
        udp_ports: &[4791, 4971],
        dscps: &dscps,
        ev_layout,
    };
    let (whole, parts) = (Frame::whole(&bytes), Frame { head, tail });
    dissect::dissect(parts, |_| true, |_| {});
    match (parse(whole, &rules), parse(parts, &rules)) {
        (Ok(packet), Ok(same)) => {
            assert_eq!(
                data_of(&packet),
                data_of(&same),
                "where a frame is split makes no difference"
            );
            assert_eq!((packet.bth, packet.headers), (same.bth, same.headers));
            judge(&packet, &rules);
            true
        }
        (one, other) => {
            assert_eq!(one.err(), other.err(), "where a frame is split makes no difference");
            false
        }
    }
}

fn data_of(packet: &Packet<'_>) -> Vec<u8> {
    packet.payload.parts().flatten().copied().collect()
}

/// Puts a right ICRC where a dissector finds a wrong one.
fn seal(bytes: &mut [u8]) {
    if let Some(check) = dissect::icrc(Frame::whole(bytes)).filter(|check| !check.is_right())
        && let Some(at) = bytes.windows(4).rposition(|window| window == check.found)
    {
        bytes[at..at + 4].copy_from_slice(&check.expected);
    }
}

/// What a packet says can be said again.
fn judge(packet: &Packet<'_>, rules: &ReceiveRules<'_>) {
    if packet.condition != Condition::Whole {
        assert!(packet.payload.is_empty() && packet.bth.opcode.is_write(), "{packet:?}");
        return;
    }
    assert!(packet.headers.fit(packet.bth.opcode));
    let ip = match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => IpPair::V4 { src, dst },
        (IpAddr::V6(src), IpAddr::V6(dst)) => IpPair::V6 { src, dst },
        other => panic!("addresses of two families: {other:?}"),
    };
    let template = L3Template::new(&L3Path {
        src_mac: [2; 6],
        dst_mac: [4; 6],
        vlan: None,
        ip,
        srv6: None,
        hop_limit: 64,
        udp_port: 4791,
    });
    let data = data_of(packet);
    let outgoing = Outgoing {
        bth: packet.bth,
        headers: packet.headers,
        ev: packet.ev,
        ev_layout: rules.ev_layout,
        dscp: rules.dscps.no_trim,
        ecn: Ecn::Ect0,
        payload_len: data.len(),
    };
    let mut buffer = vec![0; frame_len(&template, &packet.headers, data.len())];
    let len = build_frame(&mut buffer, &template, &outgoing, &data).expect("what was parsed can be built");
    let again = parse(Frame::whole(&buffer[..len]), rules).expect("what was built can be parsed");
    // The builder fills in what follows from the rest; a SACK with another congestion control's state loses it.
    let headers = match (packet.headers, again.headers) {
        (Headers::Sack(seth, None), Headers::Sack(_, None)) => Headers::Sack(seth, None),
        (_, headers) => headers,
    };
    assert_eq!(headers, packet.headers);
    assert_eq!(data_of(&again), data);
    assert_eq!((again.ev, again.src, again.dst), (packet.ev, packet.src, packet.dst));
    let mut bth = again.bth;
    (bth.pad, bth.ts) = (packet.bth.pad, packet.bth.ts);
    assert_eq!(bth, packet.bth);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_seeds_get_past_every_check_and_a_flipped_bit_in_the_icrc_gets_past_none() {
        let seeds = seeds();
        let accepted = seeds.iter().filter(|seed| accepts(seed)).count();
        assert!(accepted * 2 > seeds.len(), "{accepted} of {}", seeds.len());
        for mut seed in seeds {
            seed[0] = 0;
            let last = seed.len() - 1;
            seed[last] ^= 1;
            let whole = accepts(&seed) && !trimmed(&seed);
            assert!(!whole, "{seed:?}");
        }
    }

    fn trimmed(seed: &[u8]) -> bool {
        let dscps = Dscps::default();
        let rules = ReceiveRules {
            udp_ports: &[4791],
            dscps: &dscps,
            ev_layout: EvLayout::FlowHigh,
        };
        parse(Frame::whole(&seed[2..]), &rules).is_ok_and(|packet| packet.is_trimmed())
    }
}
