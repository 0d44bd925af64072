//! Questions to rtnetlink and what their answers mean to us.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkMessage, State};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::HostAddress;

/// What a link message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkFacts {
    pub(super) ifindex: u32,
    pub(super) up: bool,
    pub(super) mtu: u32,
    pub(super) mac: [u8; 6],
}

pub(super) fn link_question(ifindex: u32) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    // Statistics are most of the answer and none of our business.
    link.attributes
        .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    RouteNetlinkMessage::GetLink(link)
}

pub(super) fn link_facts(link: &LinkMessage) -> LinkFacts {
    let mut facts = LinkFacts {
        ifindex: link.header.index,
        up: false,
        mtu: 0,
        mac: [0; 6],
    };
    // Administratively up and a carrier. The state below lags behind the carrier by up to a second, so it can only veto.
    facts.up = link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => facts.mtu = *mtu,
            LinkAttribute::Address(bytes) => facts.mac = bytes.as_slice().try_into().unwrap_or_default(),
            LinkAttribute::OperState(State::NotPresent | State::Testing | State::Dormant) => facts.up = false,
            _ => {}
        }
    }
    facts
}

/// A neighbour, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Neighbour {
    /// Usable; `stale`: the kernel has not checked it for a while.
    Known { mac: [u8; 6], stale: bool },
    /// Being asked.
    Asked,
    /// Did not answer.
    Failed,
}

pub(super) fn neighbours_question() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default())
}

/// Whom a neighbour message is about, and what it says.
pub(super) fn neighbour_facts(message: &NeighbourMessage) -> Option<(u32, IpAddr, Option<Neighbour>)> {
    let mut ip = None;
    let mut mac = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => ip = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => ip = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = <[u8; 6]>::try_from(bytes.as_slice()).ok(),
            _ => {}
        }
    }
    let state = match (message.header.state, mac) {
        (NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp, Some(mac)) => {
            Some(Neighbour::Known { mac, stale: false })
        }
        (NeighbourState::Delay | NeighbourState::Probe, Some(mac)) => Some(Neighbour::Known { mac, stale: false }),
        (NeighbourState::Stale, Some(mac)) => Some(Neighbour::Known { mac, stale: true }),
        (NeighbourState::Failed, _) => Some(Neighbour::Failed),
        (NeighbourState::Incomplete, _) => Some(Neighbour::Asked),
        _ => None,
    };
    Some((message.header.ifindex, ip?, state))
}

/// An order to look for a neighbour as if a packet were to be sent to it.
pub(super) fn use_neighbour(ifindex: u32, ip: IpAddr) -> (RouteNetlinkMessage, u16) {
    let mut message = NeighbourMessage::default();
    message.header.family = family(ip);
    message.header.ifindex = ifindex;
    message.header.flags = NeighbourFlags::Use;
    message.attributes.push(NeighbourAttribute::Destination(match ip {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    }));
    (RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// The route to `destination` over one interface, as the table has it: without this the kernel takes an IPv4 destination
/// that no route covers for a neighbour as soon as an interface is named.
pub(super) fn route_question(ifindex: u32, destination: IpAddr) -> RouteNetlinkMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(destination);
    route.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
    route.header.flags = RouteFlags::FibMatch;
    route.attributes.push(RouteAttribute::Destination(destination.into()));
    route.attributes.push(RouteAttribute::Oif(ifindex));
    RouteNetlinkMessage::GetRoute(route)
}

/// The next hop of a route on one interface: a gateway or, on the same link, the destination itself.
pub(super) fn next_hop(route: &RouteMessage, ifindex: u32, destination: IpAddr) -> Option<IpAddr> {
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let mut oif = None;
    let mut gateway = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => oif = Some(*index),
            RouteAttribute::MultiPath(hops) => {
                // Of a route over several planes, the leg of this one.
                let leg = hops.iter().find(|hop| hop.interface_index == ifindex)?;
                return Some(leg.attributes.iter().find_map(gateway_of).unwrap_or(destination));
            }
            other => gateway = gateway.or_else(|| gateway_of(other)),
        }
    }
    (oif == Some(ifindex)).then(|| gateway.unwrap_or(destination))
}

fn gateway_of(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(v4)) | RouteAttribute::Via(RouteVia::Inet(v4)) => Some((*v4).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(v6)) | RouteAttribute::Via(RouteVia::Inet6(v6)) => {
            Some((*v6).into())
        }
        _ => None,
    }
}

pub(super) fn addresses_question() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetAddress(AddressMessage::default())
}

/// An address message as an address; its port is filled in by the caller.
pub(super) fn host_address(message: &AddressMessage, loopback: u32) -> Option<HostAddress> {
    // Not ours before nobody else has claimed it; on the loopback interface nobody can.
    if message.header.flags.contains(AddressHeaderFlags::Tentative) && message.header.index != loopback {
        return None;
    }
    let find = |local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(ip) if local => Some(*ip),
            AddressAttribute::Address(ip) if !local => Some(*ip),
            _ => None,
        })
    };
    Some(HostAddress {
        // On a point-to-point link the other one is the peer's.
        ip: find(true).or_else(|| find(false))?,
        prefix_len: message.header.prefix_len,
        ifindex: message.header.index,
        port: None,
        loopback: message.header.index == loopback,
        global: message.header.scope == AddressScope::Universe,
    })
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}
