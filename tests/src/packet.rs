//! Frames of any content, sent by a packet socket past every check of the kernel.
#![expect(unsafe_code, reason = "no safe wrapper sends on a packet socket")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use netns_lab::Host;

/// A packet socket on one port of a host.
#[derive(Debug)]
pub struct Injector {
    socket: OwnedFd,
    index: i32,
}

impl Injector {
    /// Opens one on the interface `port`.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn new(host: Host<'_>, port: &str) -> Injector {
        let open = || -> io::Result<Injector> {
            let index = nix::net::if_::if_nametoindex(port)? as i32;
            // Protocol 0: it receives nothing.
            // SAFETY: a system call without pointers.
            let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: it was just opened, and nobody else knows it.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            Ok(Injector { socket, index })
        };
        host.enter(open)
            .expect("the host can be entered")
            .expect("a packet socket")
    }

    /// Sends one frame, from its Ethernet header on.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn send(&self, frame: &[u8]) {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0,
            sll_ifindex: self.index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: both pointers lead to values that outlive the call, and the lengths are theirs.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}
