//! A frame layer by layer as far as its bytes go, for tools that show packets: also what [`crate::parse`] rejects.

use crate::icrc::{Icrc, IpKind};
use crate::parse::headers_len;
use crate::{
    Aeth, Bth, CcState, Eeth, Erth, EthernetHeader, Frame, ICRC_LEN, ImmDt, Ipv4Header, Ipv6Header, Meth, Neth, Opcode,
    Payload, Peth, Reth, Seth, SrhHeader, Tseth, UdpHeader, VlanTag, ether_type, next_header,
};

/// One layer as it stands in the frame. Its header type has `parse` for the fields, and `ignored` for those that a
/// receiver does not look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer<'a> {
    /// Ethernet.
    Ethernet([u8; EthernetHeader::LEN]),
    /// 802.1Q tag.
    Vlan([u8; VlanTag::LEN]),
    /// IPv6 header of a tunnel.
    Outer([u8; Ipv6Header::LEN]),
    /// Segment routing header: fixed part and as much of the segment list as there is.
    Srh([u8; SrhHeader::LEN], Payload<'a>),
    /// IPv4.
    Ipv4([u8; Ipv4Header::LEN]),
    /// IPv6 above Ethernet or above a tunnel.
    Ipv6([u8; Ipv6Header::LEN]),
    /// UDP.
    Udp([u8; UdpHeader::LEN]),
    /// Base transport header; its opcode may be unknown.
    Bth([u8; Bth::LEN]),
    /// Message numbers.
    Meth([u8; Meth::LEN]),
    /// Timestamp.
    Tseth([u8; Tseth::LEN]),
    /// Where a write goes.
    Reth([u8; Reth::LEN]),
    /// Immediate data.
    ImmDt([u8; ImmDt::LEN]),
    /// Transport ACK.
    Aeth([u8; Aeth::LEN]),
    /// SACK.
    Seth([u8; Seth::LEN]),
    /// Behind a SACK.
    CcState([u8; CcState::LEN]),
    /// NACK.
    Neth([u8; Neth::LEN]),
    /// Reliability probe.
    Peth([u8; Peth::LEN]),
    /// Endpoint request.
    Erth([u8; Erth::LEN]),
    /// Endpoint response.
    Eeth([u8; Eeth::LEN]),
    /// What lies between the headers and the pad, or between the headers and the place where the packet was cut.
    Data(Payload<'a>),
    /// Pad bytes.
    Pad(Payload<'a>),
    /// The last four bytes of a packet that was not cut, and what the calculation gives.
    Icrc(IcrcCheck),
}

/// An ICRC in the frame beside the calculated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcrcCheck {
    /// As it stands in the packet.
    pub found: [u8; ICRC_LEN],
    /// As it should be.
    pub expected: [u8; ICRC_LEN],
}

impl IcrcCheck {
    /// Do they agree?
    pub fn is_right(&self) -> bool {
        self.found == self.expected
    }
}

/// The ICRC of a frame that carries RoCEv2 or MRC; `None` if the frame does not reach to its end.
pub fn icrc(frame: Frame<'_>) -> Option<IcrcCheck> {
    let mut check = None;
    dissect(
        frame,
        |_| true,
        |layer| {
            if let Layer::Icrc(found) = layer {
                check = Some(found);
            }
        },
    );
    check
}

/// Hands every layer to `show`, from the outside in, and stops where the bytes end or the next layer is none of ours.
/// `is_our_port` says whether a UDP destination port carries MRC.
pub fn dissect<'a>(frame: Frame<'a>, is_our_port: impl Fn(u16) -> bool, mut show: impl FnMut(Layer<'a>)) {
    let mut walk = Walk {
        frame,
        at: 0,
        end: frame.len(),
        cut: false,
    };
    // `None` only says where the frame stopped making sense.
    let _ = walk.link(&is_our_port, &mut show);
}

struct Walk<'a> {
    frame: Frame<'a>,
    at: usize,
    /// End of the packet by its IP lengths, or of the frame where that comes first.
    end: usize,
    /// Some length runs past the frame: the last bytes are no ICRC.
    cut: bool,
}

impl<'a> Walk<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.at + N > self.end {
            return None;
        }
        let bytes = self.frame.array(self.at)?;
        self.at += N;
        Some(bytes)
    }

    fn limit(&mut self, end: usize) {
        self.cut |= end > self.end;
        self.end = self.end.min(end);
    }

    fn link(&mut self, is_our_port: &impl Fn(u16) -> bool, show: &mut impl FnMut(Layer<'a>)) -> Option<()> {
        let raw = self.take()?;
        show(Layer::Ethernet(raw));
        let mut ethertype = EthernetHeader::parse(&raw).ethertype;
        if ethertype == ether_type::VLAN {
            let raw = self.take()?;
            show(Layer::Vlan(raw));
            ethertype = VlanTag::parse(&raw).ethertype;
        }
        let kind = match ethertype {
            ether_type::IPV4 => self.ipv4(show)?,
            ether_type::IPV6 => self.ipv6(show)?,
            _ => return None,
        };
        let ip_at = self.at - kind.header_len();
        let raw = self.take()?;
        show(Layer::Udp(raw));
        let udp = UdpHeader::parse(&raw);
        if !is_our_port(udp.dst_port) {
            return None;
        }
        self.cut |= self.at - UdpHeader::LEN + udp.length as usize > self.end;
        self.transport(kind, ip_at, show)
    }

    fn ipv4(&mut self, show: &mut impl FnMut(Layer<'a>)) -> Option<IpKind> {
        let ip_at = self.at;
        let raw = self.take()?;
        show(Layer::Ipv4(raw));
        let ip = Ipv4Header::parse(&raw);
        if ip.version_ihl != Ipv4Header::VERSION_IHL || ip.is_fragment() || ip.protocol != next_header::UDP {
            return None;
        }
        self.limit(ip_at + ip.total_length as usize);
        Some(IpKind::V4)
    }

    fn ipv6(&mut self, show: &mut impl FnMut(Layer<'a>)) -> Option<IpKind> {
        let raw = self.take()?;
        let ip = Ipv6Header::parse(&raw);
        if !matches!(ip.next_header, next_header::IPV6 | next_header::ROUTING) || ip.version != 6 {
            show(Layer::Ipv6(raw));
            return self.above_ipv6(&ip);
        }
        show(Layer::Outer(raw));
        self.limit(self.at + ip.payload_length as usize);
        if ip.next_header == next_header::ROUTING {
            let raw = self.take()?;
            let srh = SrhHeader::parse(&raw);
            let behind = self.at - SrhHeader::LEN + srh.total_len();
            show(Layer::Srh(raw, self.frame.slice(self.at, behind.min(self.end))));
            if srh.routing_type != SrhHeader::ROUTING_TYPE || srh.next_header != next_header::IPV6 {
                return None;
            }
            self.at = behind;
        }
        let raw = self.take()?;
        show(Layer::Ipv6(raw));
        self.above_ipv6(&Ipv6Header::parse(&raw))
    }

    fn above_ipv6(&mut self, ip: &Ipv6Header) -> Option<IpKind> {
        if ip.version != 6 || ip.next_header != next_header::UDP {
            return None;
        }
        self.limit(self.at + ip.payload_length as usize);
        Some(IpKind::V6)
    }

    fn transport(&mut self, kind: IpKind, ip_at: usize, show: &mut impl FnMut(Layer<'a>)) -> Option<()> {
        let raw = self.take()?;
        show(Layer::Bth(raw));
        let bth = Bth::parse(&raw);
        // Not MRC, but RoCEv2 all the same: its ICRC can be shown.
        let fixed = bth.map_or(0, |bth| headers_len(&bth));
        let icrc_at = self.end.checked_sub(ICRC_LEN).filter(|at| !self.cut && *at >= self.at);
        if let Some(bth) = bth {
            let whole_end = self.end;
            if let Some(icrc_at) = icrc_at.filter(|at| *at >= self.at + fixed) {
                self.end = icrc_at;
            }
            let complete = self.headers(&bth, show);
            if complete.is_some() && bth.opcode.is_write() {
                let pad = if self.end < whole_end {
                    (bth.pad as usize).min(self.end - self.at)
                } else {
                    0
                };
                show(Layer::Data(self.frame.slice(self.at, self.end - pad)));
                if pad > 0 {
                    show(Layer::Pad(self.frame.slice(self.end - pad, self.end)));
                }
            }
        }
        let icrc_at = icrc_at?;
        let expected = Icrc::of(kind, self.frame.slice(ip_at, icrc_at))?;
        show(Layer::Icrc(IcrcCheck {
            found: self.frame.array(icrc_at)?,
            expected,
        }));
        Some(())
    }

    fn headers(&mut self, bth: &Bth, show: &mut impl FnMut(Layer<'a>)) -> Option<()> {
        match bth.opcode {
            Opcode::Ack => show(Layer::Aeth(self.take()?)),
            Opcode::Sack => {
                show(Layer::Seth(self.take()?));
                show(Layer::CcState(self.take()?));
            }
            Opcode::Nack => show(Layer::Neth(self.take()?)),
            Opcode::Probe => show(Layer::Peth(self.take()?)),
            Opcode::EndpointRequest => show(Layer::Erth(self.take()?)),
            Opcode::EndpointResponse => show(Layer::Eeth(self.take()?)),
            write => {
                show(Layer::Meth(self.take()?));
                if bth.ts {
                    show(Layer::Tseth(self.take()?));
                }
                show(Layer::Reth(self.take()?));
                if write.has_imm() {
                    show(Layer::ImmDt(self.take()?));
                }
            }
        }
        Some(())
    }
}
