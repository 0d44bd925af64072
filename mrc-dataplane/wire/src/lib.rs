//! MRC packets: bytes to headers and back, ICRC and entropy values.
//!
//! No I/O, no clock, no allocation; nothing that arrives from a network can make this crate panic.
//!
//! * Receiving: [`parse`] takes a [`Frame`] (one or two fragments, as `AF_XDP` delivers it) and [`ReceiveRules`], and
//!   yields a borrowed [`Packet`] or a [`Reject`] that says whether the frame is not MRC at all (it belongs to the
//!   kernel) or an MRC packet to drop and count.
//! * Sending: an [`L3Template`] holds everything of a path that does not change; [`FrameWriter`] patches it into the
//!   caller's buffer, takes the payload from any number of sources while it computes the ICRC, and seals the frame.
//!
//! ```
//! use mrc_wire::*;
//!
//! let template = L3Template::new(&L3Path {
//!     src_mac: [2, 0, 0, 0, 0x0a, 1],
//!     dst_mac: [2, 0, 0, 0, 0x0b, 1],
//!     vlan: None,
//!     ip: IpPair::V6 { src: "2001:db8:a::1".parse()?, dst: "2001:db8:b::1".parse()? },
//!     srv6: None,
//!     hop_limit: 64,
//!     udp_port: DEFAULT_UDP_PORT,
//! });
//! let headers = Headers::Write {
//!     meth: Meth { rqmsn: 0, msn: 7 },
//!     tseth: None,
//!     reth: Reth { va: 0x7f00_1234_0000, r_key: 0x1a2b_3c4d, dmalen: 5 },
//!     imm: None,
//! };
//! let outgoing = Outgoing {
//!     bth: Bth { a: true, ..Bth::new(Opcode::WriteOnly, Qpn::new(0xa5), Psn::new(0x100)) },
//!     headers,
//!     ev: Ev(0x012b_45c7),
//!     ev_layout: EvLayout::FlowHigh,
//!     dscp: Dscps::default().no_trim,
//!     ecn: Ecn::Ect0,
//!     payload_len: 5,
//! };
//! let mut buffer = [0u8; 256];
//! let mut frame = FrameWriter::start(&mut buffer, &mut [], &template, &outgoing)?;
//! frame.copy(b"he")?;
//! frame.copy(b"llo")?;
//! let len = frame.finish()?;
//!
//! let rules = ReceiveRules { udp_ports: &[DEFAULT_UDP_PORT], dscps: &Dscps::default(), ev_layout: EvLayout::FlowHigh };
//! let packet = parse(Frame::whole(&buffer[..len]), &rules)?;
//! assert_eq!(packet.headers, headers);
//! assert_eq!(packet.payload.head, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]

mod build;
mod bytes;
pub mod dissect;
mod dscp;
mod ev;
mod glance;
mod headers;
mod icrc;
mod network;
mod num;
mod opcode;
pub mod overhead;
mod packet;
mod parse;
mod reject;
mod template;

pub use build::{BuildError, FrameWriter, Outgoing, build_frame, frame_len, seal, write_headers};
pub use bytes::Frame;
pub use dscp::{DscpError, Dscps, Ecn, TrafficClass};
pub use ev::EvLayout;
pub use glance::{Glance, glance};
pub use headers::{
    Aeth, Bth, BthIgnored, CcState, Eeth, EndpointOp, Erth, EthernetHeader, ImmDt, Ipv4Header, Ipv6Header, Meth,
    NackReason, Neth, PathVerdict, Peth, PethIgnored, Reth, Seth, SrhHeader, Syndrome, Tseth, TsethIgnored, TypeNxt,
    UdpHeader, VlanTag, ether_type, next_header,
};
pub use num::{Ev, PortNum, PortSet, Psn, Qpn, Tick};
pub use opcode::Opcode;
pub use overhead::{Encap, Pmtu};
pub use packet::{Condition, Headers, Packet, Payload};
pub use parse::{ReceiveRules, parse};
pub use reject::{DropReason, NotMrc, Reject};
pub use template::{IpPair, L3Path, L3Template, SrhEntry, Srv6Path};

/// RoCEv2's UDP destination port, MRC's default (wire-format.md §2.4, W3).
pub const DEFAULT_UDP_PORT: u16 = 4791;

/// Bytes of the invariant CRC at the end of the UDP payload.
pub const ICRC_LEN: usize = 4;
