//! How many receive queues an interface has: what arrives on one that nobody serves never reaches the engine.

#![expect(unsafe_code, reason = "an ioctl that nix does not have")]

use std::ffi::c_char;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const ETHTOOL_GCHANNELS: u32 = 0x3c;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `struct ethtool_channels` of <linux/ethtool.h>.
#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// Receive queues in use on an interface; `None` if its driver does not tell.
pub(super) fn receive_queues(interface: &str) -> Option<u32> {
    // Any socket will do; it has to be of this network namespace.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    let mut channels = Channels {
        cmd: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    for (slot, byte) in request.ifr_name.iter_mut().take(room).zip(interface.bytes()) {
        *slot = byte as c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the request names an interface and points to a structure of the kind that the command writes, and both live
    // during the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    let queues = channels.rx.checked_add(channels.combined)?;
    (result == 0 && queues > 0).then_some(queues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_does_not_tell_has_an_unknown_number_of_queues() {
        assert_eq!(receive_queues("nope"), None);
        assert_eq!(receive_queues("a name that is longer than any interface's"), None);
    }
}
