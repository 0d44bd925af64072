//! Worked packets changed by hand, and what a receiver with default settings says to them.

use mrc_wire::*;

pub(crate) fn vector(name: &str) -> super::Vector {
    super::all().into_iter().find(|vector| vector.name == name).unwrap()
}

pub(crate) fn check(bytes: &[u8]) -> Result<Packet<'_>, Reject> {
    parse(
        Frame::whole(bytes),
        &ReceiveRules {
            udp_ports: &[4791],
            dscps: &DSCPS,
            ev_layout: EvLayout::FlowHigh,
        },
    )
}

pub(crate) const DSCPS: Dscps = Dscps {
    no_trim: 0,
    trimmable: Some(4),
    trimmable_retx: Some(8),
    trimmed: 12,
    trimmed_lasthop: Some(16),
    control: 46,
};

pub(crate) const ETH: usize = 14;
pub(crate) const IP4_TOS: usize = ETH + 1;

/// The vector changed by hand.
pub(crate) fn edited(name: &str, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vector(name).bytes;
    edit(&mut bytes);
    bytes
}

/// Puts the right ICRC at the end, and the right header checksum for IPv4 without a tag.
pub(crate) fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes[12..14] == [8, 0] {
        bytes[24..26].fill(0);
        let sum: u32 = bytes[ETH..34]
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
            .sum();
        let folded = (sum >> 16) + (sum & 0xffff);
        bytes[24..26].copy_from_slice(&(!((folded >> 16) + folded) as u16).to_be_bytes());
    }
    let expected = dissect::icrc(Frame::whole(&bytes)).unwrap().expected;
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&expected);
    bytes
}

#[track_caller]
pub(crate) fn not_mrc(bytes: &[u8], reason: NotMrc) {
    assert_eq!(check(bytes).map(|_| ()), Err(Reject::NotMrc(reason)));
}

#[track_caller]
pub(crate) fn dropped(bytes: &[u8], reason: DropReason) {
    assert_eq!(check(bytes).map(|_| ()), Err(Reject::Drop(reason)));
}

pub(crate) const V4: &str = "write_only_ecmp_ipv4";
pub(crate) const V6: &str = "write_only_stev_ipv6_tseth_pad";
pub(crate) const USID: &str = "write_only_srv6_usid";
pub(crate) const SRH: &str = "write_only_srv6_srh";
pub(crate) const FIRST: &str = "write_first_ipv6_wrap";
