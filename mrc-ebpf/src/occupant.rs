//! Which XDP program sits on an interface.

use std::fmt;
use std::io;

use aya::programs::links::LinkType;
use aya::programs::{loaded_links, loaded_programs};
use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::error::Error;

/// An XDP program on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Its id, as `bpftool prog show id` takes it.
    pub id: u32,
    /// Its name, if it may be read.
    pub name: Option<String>,
    /// Whether it runs in generic mode.
    pub generic: bool,
    /// The id of the BPF link that holds it there, if one does.
    pub link: Option<u32>,
}

impl Occupant {
    /// The command that removes it from `interface`.
    pub fn removal(&self, interface: &str) -> String {
        match self.link {
            // An attachment by link is not for `ip link` to remove.
            Some(link) => format!("bpftool link detach id {link}"),
            None if self.generic => format!("ip link set dev {interface} xdpgeneric off"),
            None => format!("ip link set dev {interface} xdp off"),
        }
    }
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, ", name {name}")?;
        }
        Ok(())
    }
}

/// The XDP program on `interface`, if there is one.
pub fn occupant(interface: &str) -> Result<Option<Occupant>, Error> {
    let netlink = |source| Error::Netlink {
        interface: interface.to_owned(),
        source,
    };
    let attributes = link_attributes(ifindex(interface)?).map_err(netlink)?;
    let xdp = attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::Xdp(xdp) => Some(xdp),
        _ => None,
    });
    let mut found = None;
    for item in xdp.into_iter().flatten() {
        match item {
            LinkXdp::SkbProgId(id) => found = Some((id, true)),
            LinkXdp::DrvProgId(id) | LinkXdp::HwProgId(id) => found = Some((id, false)),
            LinkXdp::ProgId(id) if found.is_none() && id != 0 => found = Some((id, false)),
            _ => {}
        }
    }
    Ok(found.map(|(id, generic)| Occupant {
        id,
        name: loaded_programs()
            .filter_map(Result::ok)
            .find(|program| program.id() == id)
            .and_then(|program| program.name_as_str().map(ToOwned::to_owned)),
        generic,
        link: loaded_links()
            .filter_map(Result::ok)
            .find(|link| link.program_id() == id && link.link_type().is_ok_and(|kind| kind == LinkType::Xdp))
            .map(|link| link.id()),
    }))
}

/// The index of an interface in this network namespace.
pub(crate) fn ifindex(interface: &str) -> Result<u32, Error> {
    nix::net::if_::if_nametoindex(interface).map_err(|_| Error::UnknownInterface {
        interface: interface.to_owned(),
    })
}

fn link_attributes(index: u32) -> io::Result<Vec<LinkAttribute>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;

    let mut link = LinkMessage::default();
    link.header.index = index;
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetLink(link));
    request.header.flags = NLM_F_REQUEST;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    match answer.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(link.attributes),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected answer")),
    }
}
