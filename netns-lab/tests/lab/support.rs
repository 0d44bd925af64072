//! What the tests share.

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netns_lab::{Host, Lab};
use socket2::{Domain, Protocol, Socket, Type};

/// Whether labs can be built here; says so if not.
pub(crate) fn privileged() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root to create network namespaces");
    }
    root
}

/// Waits until `reached`, or fails after a deadline that only a broken machine exceeds.
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A datagram socket per plane on one port of a host's node address. The kernel gives each what comes by its plane, and routes what
/// it sends by its plane.
pub(crate) struct PlaneSockets {
    sockets: Vec<UdpSocket>,
    address: SocketAddr,
}

impl PlaneSockets {
    pub(crate) fn new(host: &Host<'_>, v6: bool) -> Self {
        let node: IpAddr = if v6 { host.gid_v6().into() } else { host.gid_v4().into() };
        let names = host.port_names();
        let open = move || {
            let mut address = SocketAddr::new(node, 0);
            let open = |name: String| {
                let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).unwrap();
                socket.bind_device(Some(name.as_bytes())).unwrap();
                socket.bind(&address.into()).unwrap();
                let socket = UdpSocket::from(socket);
                address = socket.local_addr().unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                socket
            };
            let sockets = names.into_iter().map(open).collect();
            Self { sockets, address }
        };
        host.enter(open).unwrap()
    }

    pub(crate) fn plane(&self, plane: usize) -> &UdpSocket {
        &self.sockets[plane - 1]
    }
}

/// Sends a datagram per plane, direction and family between two hosts and checks that it comes by the same plane's port.
pub(crate) fn check_planes(lab: &Lab, a: usize, b: usize, planes: impl Iterator<Item = usize>) {
    let planes: Vec<usize> = planes.collect();
    for v6 in [false, true] {
        let [a, b] = [a, b].map(|h| PlaneSockets::new(&lab.host(h), v6));
        for &plane in &planes {
            for (from, to) in [(&a, &b), (&b, &a)] {
                let sent = format!("by plane {plane}");
                from.plane(plane).send_to(sent.as_bytes(), to.address).unwrap();
                let mut received = [0; 100];
                let (length, source) = to.plane(plane).recv_from(&mut received).unwrap_or_else(|error| {
                    panic!("from {} to {} by plane {plane}: {error}", from.address, to.address);
                });
                assert_eq!((&received[..length], source), (sent.as_bytes(), from.address));
            }
        }
    }
}

/// An echo request from the kernel's own stack, answered by the peer's.
pub(crate) fn ping(from: &Host<'_>, to: IpAddr) {
    let (domain, protocol, request, reply) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let exchange = move || {
        let mut socket = Socket::new(domain, Type::DGRAM, Some(protocol)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.connect(&SocketAddr::new(to, 0).into()).unwrap();
        socket.send(&[request, 0, 0, 0, 0, 0, 0, 1]).unwrap();
        let mut answer = [0xff; 64];
        assert_eq!(socket.read(&mut answer).unwrap(), 8);
        answer[0]
    };
    assert_eq!(from.enter(exchange).unwrap(), reply);
}
