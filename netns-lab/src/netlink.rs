//! A routing socket of one namespace: requests in batches, answers checked one by one.
//!
//! The socket belongs for life to the namespace that it was opened in, so any thread can use it without entering. A lab of 72
//! namespaces sends thousands of requests; several in one datagram save most of the system calls.

mod tc;

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    DefaultNla, Emitable as _, NLA_F_NESTED, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Stats64,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteLwEnCapType, RouteLwTunnelEncap, RouteMessage, RouteNextHop, RouteProtocol,
    RouteScope, RouteSeg6LocalTunnel, RouteType, RouteVia, Seg6LocalAction,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{
    AddressFamily as SocketFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::LabError;
use crate::plan::{Interface, Prefix, Route};

/// Requests in one datagram: each is answered by a buffer that is charged to the socket, and its default limit holds about 200.
const BATCH: usize = 64;
/// Metric of routes over several interfaces.
const SPREAD_METRIC: u32 = 100;

// <linux/seg6_local.h>, which netlink-packet-route knows up to the flavors.
const SEG6_LOCAL_FLAVORS: u16 = 11;
const SEG6_LOCAL_FLV_OPERATION: u16 = 1;
const SEG6_LOCAL_FLV_LCBLOCK_BITS: u16 = 2;
const SEG6_LOCAL_FLV_LCNODE_FN_BITS: u16 = 3;
const SEG6_LOCAL_FLV_OP_NEXT_CSID: u32 = 4;

/// The kernel answers at once; this only keeps a lost answer from hanging the lab.
const ANSWER_TIMEOUT_S: i64 = 10;

/// What the kernel says about an interface.
#[derive(Debug, Clone)]
pub(crate) struct LinkStatus {
    pub(crate) flags: LinkFlags,
    pub(crate) stats: Stats64,
}

impl LinkStatus {
    /// Set up by its owner.
    pub(crate) fn admin_up(&self) -> bool {
        self.flags.contains(LinkFlags::Up)
    }

    /// Set up, with carrier, and known as such to the rest of the kernel.
    pub(crate) fn usable(&self) -> bool {
        self.flags
            .contains(LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp)
    }

    /// Neither carrier nor a kernel that still believes in it.
    pub(crate) fn unusable(&self) -> bool {
        !self.flags.intersects(LinkFlags::Running | LinkFlags::LowerUp)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Rtnl {
    socket: OwnedFd,
    sequence: u32,
    /// Serialised requests that are still to be sent, and what each of them does.
    batch: Vec<u8>,
    actions: Vec<String>,
}

impl Rtnl {
    /// Opens a socket in the calling thread's namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket(
            SocketFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_TIMEOUT_S, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
            batch: Vec::new(),
            actions: Vec::new(),
        })
    }

    /// Adds a request to the batch. Errors are those of the batch that it completes.
    fn push(&mut self, action: String, message: RouteNetlinkMessage, flags: u16) -> Result<(), LabError> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence.wrapping_add(self.actions.len() as u32);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let start = self.batch.len();
        self.batch.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut self.batch[start..]);
        self.actions.push(action);
        if self.actions.len() >= BATCH {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Sends what is batched and waits for every answer; the first refusal is the error.
    pub(crate) fn flush(&mut self) -> Result<(), LabError> {
        if self.actions.is_empty() {
            return Ok(());
        }
        let actions = std::mem::take(&mut self.actions);
        let batch = std::mem::take(&mut self.batch);
        let first = self.sequence;
        self.sequence = first.wrapping_add(actions.len() as u32);
        let all = || format!("{} (and what follows)", actions[0]);
        send(self.socket.as_raw_fd(), &batch, MsgFlags::empty()).map_err(|e| LabError::kernel(all(), e))?;
        let mut refusal = None;
        let mut outstanding = actions.len();
        while outstanding > 0 {
            for message in self.receive().map_err(|e| LabError::kernel(all(), e))? {
                let NetlinkPayload::Error(answer) = message.payload else {
                    continue;
                };
                let Some(action) = actions.get(message.header.sequence_number.wrapping_sub(first) as usize) else {
                    continue;
                };
                outstanding -= 1;
                if answer.code.is_some() && refusal.is_none() {
                    refusal = Some(LabError::kernel(action.as_str(), answer.to_io()));
                }
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    fn receive(&self) -> io::Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
        let mut buffer = vec![0; 64 * 1024];
        let length = loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Err(nix::Error::EINTR) => {}
                other => break other?,
            }
        };
        let mut rest = &buffer[..length];
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
            let length = (message.header.length as usize)
                .next_multiple_of(4)
                .clamp(4, rest.len());
            rest = &rest[length..];
            messages.push(message);
        }
        Ok(messages)
    }

    /// What the kernel says about one interface.
    pub(crate) fn link(&mut self, index: u32) -> Result<LinkStatus, LabError> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        let answer = self.ask(RouteNetlinkMessage::GetLink(request), |answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(status(&link)),
            _ => None,
        });
        answer.map_err(|e| LabError::kernel(format!("ask for the state of interface {index}"), e))
    }

    /// Whether the kernel receives packets to an IPv6 address of its own. It starts to do so some time after the address was added.
    pub(crate) fn receives(&mut self, index: u32, address: Ipv6Addr) -> bool {
        let mut request = RouteMessage::default();
        request.header.address_family = AddressFamily::Inet6;
        request.header.destination_prefix_length = 128;
        request.attributes = vec![RouteAttribute::Destination(RouteAddress::Inet6(address))];
        if address.is_unicast_link_local() {
            request.attributes.push(RouteAttribute::Oif(index));
        }
        let answer = self.ask(RouteNetlinkMessage::GetRoute(request), |answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route.header.kind == RouteType::Local),
            _ => None,
        });
        // No route at all is an error to the kernel.
        answer.unwrap_or(false)
    }

    /// Sends one question and takes the first answer to it that `pick` wants.
    fn ask<T>(
        &mut self,
        question: RouteNetlinkMessage,
        pick: impl Fn(RouteNetlinkMessage) -> Option<T>,
    ) -> io::Result<T> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        header.sequence_number = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        send(self.socket.as_raw_fd(), &buffer, MsgFlags::empty())?;
        loop {
            for message in self.receive()? {
                if message.header.sequence_number != header.sequence_number {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        if let Some(answer) = pick(answer) {
                            return Ok(answer);
                        }
                    }
                    NetlinkPayload::Error(answer) => return Err(answer.to_io()),
                    _ => {}
                }
            }
        }
    }

    /// Creates a veth pair, each end down, the second in the namespace `far`.
    pub(crate) fn add_veth(
        &mut self,
        near: (&Interface, u32),
        far: (&Interface, u32),
        far_ns: BorrowedFd<'_>,
    ) -> Result<(), LabError> {
        let end = |(interface, index): (&Interface, u32)| {
            let mut link = LinkMessage::default();
            link.header.index = index;
            link.attributes = vec![
                LinkAttribute::IfName(interface.name.clone()),
                LinkAttribute::Mtu(interface.mtu),
                LinkAttribute::Address(interface.mac.to_vec()),
                // One queue each way: an AF_XDP socket receives from one queue, and a lab host has one engine thread.
                LinkAttribute::NumTxQueues(1),
                LinkAttribute::NumRxQueues(1),
            ];
            link
        };
        let mut link = end(near);
        let mut peer = end(far);
        peer.attributes.push(LinkAttribute::NetNsFd(far_ns.as_raw_fd()));
        link.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let action = format!("create the veth pair of '{}' and '{}'", near.0.name, far.0.name);
        self.push(action, RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Creates a bridge.
    pub(crate) fn add_bridge(&mut self, name: &str, index: u32) -> Result<(), LabError> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.push(
            format!("create bridge '{name}'"),
            RouteNetlinkMessage::NewLink(link),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Makes an interface a port of a bridge.
    pub(crate) fn set_bridge(&mut self, index: u32, bridge: u32) -> Result<(), LabError> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::Controller(bridge)];
        self.push(
            format!("add interface {index} to bridge {bridge}"),
            RouteNetlinkMessage::SetLink(link),
            0,
        )
    }

    /// Lets an interface neither put packets together that it receives nor send several as one: a switch counts, marks and loses
    /// packets as they are on the wire.
    pub(crate) fn keep_apart(&mut self, index: u32) -> Result<(), LabError> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![
            LinkAttribute::GsoMaxSegs(1),
            LinkAttribute::GroMaxSize(1),
            LinkAttribute::GroIpv4MaxSize(1),
        ];
        self.push(
            format!("keep the packets of interface {index} apart"),
            RouteNetlinkMessage::SetLink(link),
            0,
        )
    }

    /// Deletes an interface, and with it the other end of its link.
    pub(crate) fn delete_link(&mut self, index: u32) -> Result<(), LabError> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        self.push(
            format!("delete interface {index}"),
            RouteNetlinkMessage::DelLink(link),
            0,
        )
    }

    /// Sets an interface up or down.
    pub(crate) fn set_up(&mut self, index: u32, up: bool) -> Result<(), LabError> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.change_mask = LinkFlags::Up;
        link.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        let action = format!("set interface {index} {}", if up { "up" } else { "down" });
        self.push(action, RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Adds an address, or leaves it where it is.
    pub(crate) fn add_address(&mut self, index: u32, prefix: Prefix) -> Result<(), LabError> {
        let mut message = AddressMessage::default();
        message.header.family = family(prefix.address);
        message.header.prefix_len = prefix.length;
        message.header.index = index;
        if prefix.address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes = vec![
            AddressAttribute::Local(prefix.address),
            AddressAttribute::Address(prefix.address),
        ];
        let action = format!("add address {prefix} to interface {index}");
        self.push(
            action,
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Adds a route to the main table, or leaves it where it is.
    pub(crate) fn add_route(&mut self, index: u32, route: &Route) -> Result<(), LabError> {
        let mut message = static_route(route.destination);
        message.attributes = vec![
            RouteAttribute::Destination(route.destination.address.into()),
            gateway(route.destination.address, route.via),
            RouteAttribute::Oif(index),
            RouteAttribute::Priority(route.metric),
        ];
        if let Some(source) = route.source {
            message.attributes.push(RouteAttribute::PrefSource(source.into()));
        }
        let action = format!(
            "add the route to {} via {} on interface {index}",
            route.destination, route.via
        );
        self.push(
            action,
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Adds a route over several interfaces, or replaces it by this one.
    pub(crate) fn add_spread(&mut self, destination: Prefix, legs: &[(u32, Ipv6Addr)]) -> Result<(), LabError> {
        let mut message = static_route(destination);
        let hops = legs.iter().map(|&(index, via)| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            hop.attributes = vec![gateway(destination.address, via.into())];
            hop
        });
        message.attributes = vec![
            RouteAttribute::Destination(destination.address.into()),
            RouteAttribute::MultiPath(hops.collect()),
            RouteAttribute::Priority(SPREAD_METRIC),
        ];
        let action = format!("add the route to {destination} over {} interfaces", legs.len());
        self.push(
            action,
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Lets the kernel process a uSID (RFC 9800, End with NEXT-CSID): it shifts the address and looks the next one up.
    pub(crate) fn add_sid(&mut self, index: u32, prefix: Prefix, block_bits: u8) -> Result<(), LabError> {
        let operation = (1_u32 << SEG6_LOCAL_FLV_OP_NEXT_CSID).to_ne_bytes();
        let flavors = [
            DefaultNla::new(SEG6_LOCAL_FLV_OPERATION, operation.to_vec()),
            DefaultNla::new(SEG6_LOCAL_FLV_LCBLOCK_BITS, vec![block_bits]),
            DefaultNla::new(SEG6_LOCAL_FLV_LCNODE_FN_BITS, vec![prefix.length - block_bits]),
        ];
        let mut nested_flavors = vec![0; flavors.as_slice().buffer_len()];
        flavors.as_slice().emit(&mut nested_flavors);
        let mut message = static_route(prefix);
        message.attributes = vec![
            RouteAttribute::Destination(prefix.address.into()),
            RouteAttribute::Oif(index),
            RouteAttribute::EncapType(RouteLwEnCapType::Seg6Local),
            RouteAttribute::Encap(vec![
                RouteLwTunnelEncap::Seg6Local(RouteSeg6LocalTunnel::Action(Seg6LocalAction::End)),
                RouteLwTunnelEncap::Seg6Local(RouteSeg6LocalTunnel::Other(DefaultNla::new(
                    SEG6_LOCAL_FLAVORS | NLA_F_NESTED,
                    nested_flavors,
                ))),
            ]),
        ];
        let action =
            format!("let the kernel process the uSID {prefix} (needs CONFIG_IPV6_SEG6_LWTUNNEL and Linux 6.3)");
        self.push(
            action,
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Creates an interface that always has a carrier and no other end.
    pub(crate) fn add_ifb(&mut self, name: &str, index: u32) -> Result<(), LabError> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]),
        ];
        self.push(
            format!("create the interface '{name}' (needs CONFIG_IFB)"),
            RouteNetlinkMessage::NewLink(link),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Adds a permanent neighbour entry, or leaves it where it is.
    pub(crate) fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> Result<(), LabError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            NeighbourAttribute::Destination(address.into()),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        let action = format!("add neighbour {address} to interface {index}");
        self.push(
            action,
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }

    /// Gives an interface a plain queue at its egress.
    pub(crate) fn add_queue(&mut self, index: u32) -> Result<(), LabError> {
        let mut message = TcMessage::with_index(index as i32);
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![TcAttribute::Kind("pfifo".to_owned())];
        let action = format!("add a queue to interface {index}");
        self.push(
            action,
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }
}

fn static_route(destination: Prefix) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination.address);
    message.header.destination_prefix_length = destination.length;
    message.header.table = netlink_packet_route::route::RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message
}

/// The next hop of a route: an IPv4 destination may have one of the other family.
fn gateway(destination: IpAddr, via: IpAddr) -> RouteAttribute {
    match via {
        IpAddr::V6(v6) if destination.is_ipv4() => RouteAttribute::Via(RouteVia::Inet6(v6)),
        other => RouteAttribute::Gateway(other.into()),
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn status(link: &LinkMessage) -> LinkStatus {
    let stats = link.attributes.iter().find_map(|a| {
        if let LinkAttribute::Stats64(s) = a {
            Some(*s)
        } else {
            None
        }
    });
    LinkStatus {
        flags: link.header.flags,
        stats: stats.unwrap_or_default(),
    }
}
