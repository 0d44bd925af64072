//! The thread that listens.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mrc_wire::PortNum;
use netlink_packet_route::RouteNetlinkMessage;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::resolve::Followed;
use super::route::{self, LinkFacts, Neighbour};
use super::shared::{Shared, Target, Watched};
use super::socket::{Events, Questions};
use super::{HostAddress, WatchError, WatchOptions};
use crate::port::LinkState;

/// Links, neighbours, addresses, routes, rules and next hop objects of both families (`RTNLGRP_*`).
const GROUPS: [u32; 9] = [1, 3, 5, 7, 8, 9, 11, 19, 32];
/// The kernel reports a lost carrier at once or, after another report anywhere, up to a second late. Asking is cheap.
const LINK_CHECK: Duration = Duration::from_millis(100);

pub(super) struct Worker {
    shared: Arc<Shared>,
    questions: Questions,
    events: Events,
    loopback: u32,
    neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    followed: BTreeMap<Target, Followed>,
    links_checked: Instant,
    /// Since something else than time has passed; else nothing needs to be worked out again.
    dirty: bool,
    addresses_due: bool,
    changed: bool,
}

impl Worker {
    /// Makes the sockets and reads everything once.
    pub(super) fn new(ports: &[(PortNum, String)], options: WatchOptions) -> Result<(Self, Arc<Shared>), WatchError> {
        let failed = |what| move |source| WatchError::Netlink { what, source };
        // Events first: what changes while we read is heard of afterwards.
        let events = Events::new(&GROUPS, options.event_buffer).map_err(failed("listen for changes"))?;
        let mut questions = Questions::new().map_err(failed("ask"))?;
        let mut watched = Vec::with_capacity(ports.len());
        for (num, name) in ports {
            let unknown = || WatchError::UnknownInterface { name: name.clone() };
            let ifindex = nix::net::if_::if_nametoindex(name.as_str()).map_err(|_| unknown())?;
            let facts = read_link(&mut questions, ifindex)
                .map_err(failed("read the state of a link"))?
                .ok_or_else(unknown)?;
            watched.push(Watched {
                num: *num,
                ifindex,
                link: Arc::new(LinkState::new(facts.up, facts.mtu, facts.mac)),
            });
        }
        let shared =
            Arc::new(Shared::new(watched).map_err(|errno| failed("make an eventfd for changes")(errno.into()))?);
        let mut worker = Self {
            shared: Arc::clone(&shared),
            questions,
            events,
            loopback: nix::net::if_::if_nametoindex("lo").unwrap_or(0),
            neighbours: BTreeMap::new(),
            followed: BTreeMap::new(),
            links_checked: Instant::now(),
            dirty: true,
            addresses_due: false,
            changed: false,
        };
        worker.read_neighbours().map_err(failed("read the neighbours"))?;
        worker.read_addresses().map_err(failed("read the addresses"))?;
        Ok((worker, shared))
    }

    pub(super) fn run(mut self) {
        while !self.shared.stopped() {
            self.wait();
            if let Err(error) = self.turn() {
                // Nothing here ends the engine: what is known stays, and the next turn tries again.
                tracing::warn!(%error, "netlink");
            }
            if std::mem::take(&mut self.changed) {
                self.shared.announce();
            }
        }
    }

    fn wait(&self) {
        let timeout = LINK_CHECK.saturating_sub(self.links_checked.elapsed());
        let mut fds = [
            PollFd::new(self.events.fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        // An interrupted wait is only a short one.
        let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None);
        let _ = self.shared.wake.read();
    }

    fn turn(&mut self) -> io::Result<()> {
        self.hear()?;
        if std::mem::take(&mut self.addresses_due) {
            self.read_addresses()?;
        }
        let since = self.links_checked.elapsed();
        let doubted = self
            .shared
            .ports
            .iter()
            .fold(false, |any, watched| watched.link.take_doubt() | any);
        if since >= LINK_CHECK || doubted {
            self.read_links()?;
        }
        if since >= LINK_CHECK {
            // Time itself asks neighbours again.
            self.dirty = true;
        }
        for target in self.shared.take_wanted() {
            self.followed.entry(target).or_insert_with(Followed::new);
            self.dirty = true;
        }
        if std::mem::take(&mut self.dirty) {
            self.resolve()?;
        }
        Ok(())
    }

    fn hear(&mut self) -> io::Result<()> {
        loop {
            match self.events.next() {
                Ok(None) => return Ok(()),
                Ok(Some(messages)) => messages.into_iter().for_each(|message| self.heard(message)),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    tracing::debug!(
                        fd = self.events.raw_fd(),
                        "netlink events were lost; reading everything anew"
                    );
                    self.shared.count_resync();
                    self.read_all()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn heard(&mut self, message: RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewLink(link) => self.link_is(&route::link_facts(&link)),
            RouteNetlinkMessage::DelLink(link) => self.link_gone(link.header.index),
            RouteNetlinkMessage::NewNeighbour(message) => {
                if let Some((ifindex, ip, state)) = route::neighbour_facts(&message) {
                    self.neighbour_is(ifindex, ip, state);
                }
            }
            RouteNetlinkMessage::DelNeighbour(message) => {
                if let Some((ifindex, ip, _)) = route::neighbour_facts(&message) {
                    self.neighbour_is(ifindex, ip, None);
                }
            }
            RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => {
                self.addresses_due = true;
                self.routes_due();
            }
            // Routes, rules, next hop objects.
            _ => self.routes_due(),
        }
    }

    fn read_all(&mut self) -> io::Result<()> {
        self.read_links()?;
        self.read_neighbours()?;
        self.read_addresses()?;
        self.routes_due();
        Ok(())
    }

    fn read_links(&mut self) -> io::Result<()> {
        self.links_checked = Instant::now();
        let shared = Arc::clone(&self.shared);
        for watched in shared.ports.iter().filter(|watched| watched.link.is_present()) {
            match read_link(&mut self.questions, watched.ifindex)? {
                Some(facts) => self.link_is(&facts),
                None => self.link_gone(watched.ifindex),
            }
        }
        Ok(())
    }

    fn link_is(&mut self, facts: &LinkFacts) {
        for watched in self
            .shared
            .ports
            .iter()
            .filter(|watched| watched.ifindex == facts.ifindex)
        {
            if watched.link.set(facts.up, facts.mtu, facts.mac) {
                tracing::info!(port = watched.num.get(), up = facts.up, mtu = facts.mtu, "link changed");
                self.changed = true;
                self.dirty = true;
                // The kernel drops routes of a link that goes down, and some come back with it.
                for (_, target) in self.followed.iter_mut().filter(|((port, _), _)| *port == watched.num) {
                    target.route_due = true;
                }
            }
        }
    }

    fn link_gone(&mut self, ifindex: u32) {
        for watched in self.shared.ports.iter().filter(|watched| watched.ifindex == ifindex) {
            if watched.link.set_gone() {
                tracing::warn!(port = watched.num.get(), "interface is gone");
                self.changed = true;
                self.dirty = true;
            }
        }
    }

    fn read_neighbours(&mut self) -> io::Result<()> {
        self.neighbours.clear();
        for message in self.questions.dump(route::neighbours_question())? {
            if let RouteNetlinkMessage::NewNeighbour(message) = message
                && let Some((ifindex, ip, state)) = route::neighbour_facts(&message)
            {
                self.neighbour_is(ifindex, ip, state);
            }
        }
        self.dirty = true;
        Ok(())
    }

    fn neighbour_is(&mut self, ifindex: u32, ip: IpAddr, state: Option<Neighbour>) {
        if !self.shared.ports.iter().any(|watched| watched.ifindex == ifindex) {
            return;
        }
        self.dirty = true;
        match state {
            Some(state) => self.neighbours.insert((ifindex, ip), state),
            None => self.neighbours.remove(&(ifindex, ip)),
        };
    }

    fn read_addresses(&mut self) -> io::Result<()> {
        let mut addresses: Vec<HostAddress> = Vec::new();
        for message in self.questions.dump(route::addresses_question())? {
            if let RouteNetlinkMessage::NewAddress(message) = message
                && let Some(mut address) = route::host_address(&message, self.loopback)
            {
                let port = self
                    .shared
                    .ports
                    .iter()
                    .find(|watched| watched.ifindex == address.ifindex);
                address.port = port.map(|watched| watched.num);
                addresses.push(address);
            }
        }
        self.changed |= self.shared.set_addresses(addresses);
        Ok(())
    }

    fn routes_due(&mut self) {
        self.followed.values_mut().for_each(|target| target.route_due = true);
        self.dirty = true;
    }

    /// Works out every answer anew; asks the routing table only where something has changed.
    fn resolve(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for ((port, destination), target) in &mut self.followed {
            let Some(watched) = self.shared.ports.iter().find(|watched| watched.num == *port) else {
                continue;
            };
            let up = watched.link.is_up();
            if target.route_due && up {
                target.set_gateway(find_gateway(&mut self.questions, watched.ifindex, *destination)?);
            }
            let neighbour = target
                .gateway
                .and_then(|gateway| self.neighbours.get(&(watched.ifindex, gateway)))
                .copied();
            let outcome = target.evaluate(up, neighbour, now);
            if outcome.ask
                && let Some(gateway) = target.gateway
            {
                provoke(&mut self.questions, watched, gateway);
            }
            self.changed |= self.shared.set_hop((*port, *destination), outcome.hop);
        }
        Ok(())
    }
}

/// Makes the kernel look for a neighbour.
fn provoke(questions: &mut Questions, watched: &Watched, gateway: IpAddr) {
    let (order, flags) = route::use_neighbour(watched.ifindex, gateway);
    if let Err(error) = questions.order(order, flags) {
        tracing::debug!(%error, %gateway, "the kernel does not look for a neighbour");
    }
    // An IPv6 solicitation that nobody's packet asks for goes out only with a link-local source address. Where the
    // interface has none, a packet does: an empty datagram to the discard service.
    if let IpAddr::V6(v6) = gateway
        && let Err(error) = send_datagram(watched.ifindex, v6)
    {
        tracing::debug!(%error, %gateway, "no datagram to a neighbour");
    }
}

fn send_datagram(ifindex: u32, to: Ipv6Addr) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
    let name = nix::net::if_::if_indextoname(ifindex)?;
    setsockopt(&socket, sockopt::BindToDevice, &OsString::from_vec(name.into_bytes()))?;
    socket.set_nonblocking(true)?;
    socket.send_to(&[], SocketAddrV6::new(to, 9, 0, ifindex)).map(drop)
}

/// The state of a link; `None` if there is no such interface.
fn read_link(questions: &mut Questions, ifindex: u32) -> io::Result<Option<LinkFacts>> {
    match questions.ask(route::link_question(ifindex)) {
        Ok(Some(RouteNetlinkMessage::NewLink(link))) => Ok(Some(route::link_facts(&link))),
        Ok(_) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The next hop towards a destination over one interface; `None`: no route.
fn find_gateway(questions: &mut Questions, ifindex: u32, destination: IpAddr) -> io::Result<Option<IpAddr>> {
    match questions.ask(route::route_question(ifindex, destination)) {
        Ok(Some(RouteNetlinkMessage::NewRoute(answer))) => Ok(route::next_hop(&answer, ifindex, destination)),
        Ok(_) => Ok(None),
        Err(error) => match error.raw_os_error() {
            // No route, in all the ways the kernel says so.
            Some(
                libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EINVAL | libc::ENODEV | libc::EACCES,
            ) => Ok(None),
            _ => Err(error),
        },
    }
}
