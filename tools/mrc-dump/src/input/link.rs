//! Link types: Ethernet, and the two "cooked" ones that `tcpdump -i any` writes.

use mrc_wire::EthernetHeader;
use pcap_file::DataLink;

use crate::fields::{Section, hex, mac};

/// A link type that can be read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    Ethernet,
    /// `LINUX_SLL`: packet type, ARPHRD type, address length, address (8), protocol.
    Sll,
    /// `LINUX_SLL2`: protocol, reserved, interface, ARPHRD type, packet type, address length, address (8).
    Sll2,
}

impl Link {
    pub(super) fn of(link_type: DataLink) -> Option<Self> {
        match link_type {
            DataLink::ETHERNET => Some(Self::Ethernet),
            DataLink::LINUX_SLL => Some(Self::Sll),
            DataLink::LINUX_SLL2 => Some(Self::Sll2),
            _ => None,
        }
    }

    /// The frame with an Ethernet header. A cooked one is replaced, since it knows neither the destination nor a tag
    /// that the kernel has taken off, and shown under its own name.
    pub(super) fn ethernet(self, data: &[u8]) -> (Vec<u8>, Option<Section>) {
        match self {
            Self::Ethernet => (data.to_vec(), None),
            Self::Sll => match data.split_first_chunk::<16>() {
                Some((head, rest)) => {
                    let protocol = u16::from_be_bytes([head[14], head[15]]);
                    let section = Section::new("sll")
                        .field("packet_type", u16::from_be_bytes([head[0], head[1]]))
                        .field("arphrd_type", u16::from_be_bytes([head[2], head[3]]))
                        .field("src", mac(address(head, 6)))
                        .field("protocol", hex(protocol, 4));
                    (rebuilt(address(head, 6), protocol, rest), Some(section))
                }
                None => (Vec::new(), Some(Section::new("sll"))),
            },
            Self::Sll2 => match data.split_first_chunk::<20>() {
                Some((head, rest)) => {
                    let protocol = u16::from_be_bytes([head[0], head[1]]);
                    let section = Section::new("sll2")
                        .field("protocol", hex(protocol, 4))
                        .field(
                            "interface_index",
                            u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
                        )
                        .field("arphrd_type", u16::from_be_bytes([head[8], head[9]]))
                        .field("packet_type", head[10])
                        .field("src", mac(address(head, 12)));
                    (rebuilt(address(head, 12), protocol, rest), Some(section))
                }
                None => (Vec::new(), Some(Section::new("sll2"))),
            },
        }
    }
}

fn address<const N: usize>(head: &[u8; N], at: usize) -> [u8; 6] {
    head.get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or_default()
}

fn rebuilt(src: [u8; 6], ethertype: u16, rest: &[u8]) -> Vec<u8> {
    let mut header = [0; EthernetHeader::LEN];
    EthernetHeader {
        dst: [0; 6],
        src,
        ethertype,
    }
    .emit(&mut header);
    [&header, rest].concat()
}
