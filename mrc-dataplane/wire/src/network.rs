//! From the first byte of a frame to its UDP header: Ethernet, VLAN tag, IP, SRv6 tunnel (wire-format.md §11 step 1).

use core::net::IpAddr;

use crate::icrc::IpKind;
use crate::{
    Dscps, Ecn, EthernetHeader, Ev, EvLayout, Frame, Ipv4Header, Ipv6Header, NotMrc, SrhHeader, VlanTag, ether_type,
    next_header,
};

/// What lies below UDP in an accepted frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// The IP header that carries UDP: the inner one when tunnelled.
    pub(crate) ip: Ip,
    /// Where that header starts.
    pub(crate) ip_at: usize,
    /// End of the packet in the frame: the smallest of frame end and the ends that the IP lengths give.
    pub(crate) end: usize,
    /// Every IP length was within the frame. Without a trimmed DSCP always true.
    pub(crate) lengths_fit: bool,
    /// DSCP << 2 | ECN of the outer header, if there is a tunnel.
    outer_tos: Option<u8>,
    /// The effective DSCP says that a switch trimmed this; true = the last hop.
    pub(crate) trimmed: Option<bool>,
}

/// The IP header that carries UDP.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ip {
    V4(Ipv4Header),
    V6(Ipv6Header),
}

impl Network {
    /// Finds the way to UDP. Lengths that run past the frame are tolerated with a trimmed DSCP only (§10).
    #[inline]
    pub(crate) fn locate(frame: &Frame<'_>, dscps: &Dscps) -> Result<Self, NotMrc> {
        let eth = EthernetHeader::parse(&frame.array(0).ok_or(NotMrc::FrameShort)?);
        let (ethertype, ip_at) = if eth.ethertype == ether_type::VLAN {
            let tag = frame.array(EthernetHeader::LEN).ok_or(NotMrc::FrameShort)?;
            (VlanTag::parse(&tag).ethertype, EthernetHeader::LEN + VlanTag::LEN)
        } else {
            (eth.ethertype, EthernetHeader::LEN)
        };
        match ethertype {
            ether_type::IPV4 => Self::ipv4(frame, dscps, ip_at),
            ether_type::IPV6 => Self::ipv6(frame, dscps, ip_at),
            // Also a second tag (W2).
            _ => Err(NotMrc::EtherType),
        }
    }

    fn ipv4(frame: &Frame<'_>, dscps: &Dscps, ip_at: usize) -> Result<Self, NotMrc> {
        let ip = Ipv4Header::parse(&frame.array(ip_at).ok_or(NotMrc::FrameShort)?);
        if ip.version_ihl >> 4 != 4 {
            return Err(NotMrc::IpVersion);
        }
        if ip.version_ihl != Ipv4Header::VERSION_IHL {
            return Err(NotMrc::IpOptions);
        }
        let trimmed = dscps.trimmed(ip.tos >> 2);
        let mut span = Span::new(frame.len(), trimmed.is_some());
        span.limit(ip_at + ip.total_length as usize)?;
        if ip.is_fragment() {
            return Err(NotMrc::Fragment);
        }
        if ip.protocol != next_header::UDP {
            return Err(NotMrc::NotUdp);
        }
        Ok(Self {
            ip: Ip::V4(ip),
            ip_at,
            end: span.end,
            lengths_fit: span.fits,
            outer_tos: None,
            trimmed,
        })
    }

    fn ipv6(frame: &Frame<'_>, dscps: &Dscps, first_at: usize) -> Result<Self, NotMrc> {
        let first = Ipv6Header::parse(&frame.array(first_at).ok_or(NotMrc::FrameShort)?);
        if first.version != 6 {
            return Err(NotMrc::IpVersion);
        }
        let trimmed = dscps.trimmed(first.traffic_class >> 2);
        let mut span = Span::new(frame.len(), trimmed.is_some());
        let behind = first_at + Ipv6Header::LEN;
        span.limit(behind + first.payload_length as usize)?;
        let ip_at = match first.next_header {
            next_header::UDP => {
                let (end, lengths_fit) = (span.end, span.fits);
                return Ok(Self {
                    ip: Ip::V6(first),
                    ip_at: first_at,
                    end,
                    lengths_fit,
                    outer_tos: None,
                    trimmed,
                });
            }
            next_header::IPV6 => behind,
            next_header::ROUTING => {
                let srh = SrhHeader::parse(&span.read(frame, behind)?);
                if srh.routing_type != SrhHeader::ROUTING_TYPE || srh.next_header != next_header::IPV6 {
                    return Err(NotMrc::RoutingHeader);
                }
                // Any length; Segments Left is not looked at (§5).
                behind + srh.total_len()
            }
            _ => return Err(NotMrc::NotUdp),
        };
        let inner = Ipv6Header::parse(&span.read(frame, ip_at)?);
        if inner.version != 6 {
            return Err(NotMrc::IpVersion);
        }
        span.limit(ip_at + Ipv6Header::LEN + inner.payload_length as usize)?;
        if inner.next_header != next_header::UDP {
            return Err(NotMrc::NotUdp);
        }
        let (end, lengths_fit) = (span.end, span.fits);
        Ok(Self {
            ip: Ip::V6(inner),
            ip_at,
            end,
            lengths_fit,
            outer_tos: Some(first.traffic_class),
            trimmed,
        })
    }

    pub(crate) const fn kind(&self) -> IpKind {
        match self.ip {
            Ip::V4(_) => IpKind::V4,
            Ip::V6(_) => IpKind::V6,
        }
    }

    /// Where the UDP header starts; it may lie behind `end`.
    pub(crate) const fn udp_at(&self) -> usize {
        self.ip_at + self.kind().header_len()
    }

    const fn inner_tos(&self) -> u8 {
        match &self.ip {
            Ip::V4(ip) => ip.tos,
            Ip::V6(ip) => ip.traffic_class,
        }
    }

    /// The effective DSCP: the outer one when tunnelled (W10).
    pub(crate) const fn dscp(&self) -> u8 {
        match self.outer_tos {
            Some(tos) => tos >> 2,
            None => self.inner_tos() >> 2,
        }
    }

    /// Does the packet count as marked (W10)?
    pub(crate) fn ce(&self) -> bool {
        Ecn::from_tos(self.inner_tos()).marked(self.outer_tos.map(Ecn::from_tos))
    }

    pub(crate) const fn ev(&self, layout: EvLayout, src_port: u16) -> Ev {
        match &self.ip {
            Ip::V4(_) => EvLayout::reflect_ipv4(src_port),
            Ip::V6(ip) => layout.reflect(ip.flow_label, src_port),
        }
    }

    /// Source and destination of the packet that carries UDP.
    pub(crate) const fn addresses(&self) -> (IpAddr, IpAddr) {
        match &self.ip {
            Ip::V4(ip) => (IpAddr::V4(ip.src), IpAddr::V4(ip.dst)),
            Ip::V6(ip) => (IpAddr::V6(ip.src), IpAddr::V6(ip.dst)),
        }
    }
}

/// The part of the frame that the IP lengths seen so far leave.
struct Span {
    end: usize,
    fits: bool,
    trimmed: bool,
}

impl Span {
    const fn new(frame_len: usize, trimmed: bool) -> Self {
        Self {
            end: frame_len,
            fits: true,
            trimmed,
        }
    }

    /// A length says that the packet ends here. It may be stale, upwards only, in a trimmed packet.
    const fn limit(&mut self, end: usize) -> Result<(), NotMrc> {
        if end <= self.end {
            self.end = end;
        } else if self.trimmed {
            self.fits = false;
        } else {
            return Err(NotMrc::IpLength);
        }
        Ok(())
    }

    fn read<const N: usize>(&self, frame: &Frame<'_>, at: usize) -> Result<[u8; N], NotMrc> {
        if at + N > self.end {
            return Err(NotMrc::IpLength);
        }
        frame.array(at).ok_or(NotMrc::FrameShort)
    }
}
