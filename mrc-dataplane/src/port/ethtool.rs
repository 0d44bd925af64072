//! What the driver of an interface tells: how many receive queues it has, for what arrives on one that nobody serves never
//! reaches the engine; and how fast its link is, of which congestion control makes its windows (protocol.md §10.3).

#![expect(unsafe_code, reason = "an ioctl that nix does not have")]

use std::ffi::c_char;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
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

/// `struct ethtool_cmd`, as far as it matters.
#[repr(C)]
#[derive(Default)]
struct Settings {
    cmd: u32,
    modes: [u32; 2],
    speed_low: u16,
    medium: [u8; 6],
    interrupts: [u32; 2],
    speed_high: u16,
    rest: [u16; 7],
}

/// `struct ethtool_drvinfo`, as far as it matters.
#[repr(C)]
#[derive(Default)]
struct Driver {
    cmd: u32,
    name: [u8; 32],
    versions: [[u8; 32]; 2],
    bus: [u8; 32],
    rest: [[u8; 32]; 2],
}

/// Receive queues in use on an interface; `None` if its driver does not tell.
pub(super) fn receive_queues(interface: &str) -> Option<u32> {
    let mut channels = Channels {
        cmd: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    // SAFETY: the command writes a `struct ethtool_channels`, and this is one.
    unsafe { ask(interface, &mut channels) }?;
    let queues = channels.rx.checked_add(channels.combined)?;
    (queues > 0).then_some(queues)
}

/// Speed of the link of an interface in bit/s; `None` if there is none, or if its driver does not know.
pub(super) fn link_speed_bps(interface: &str) -> Option<u64> {
    let mut driver = Driver {
        cmd: ETHTOOL_GDRVINFO,
        ..Driver::default()
    };
    // SAFETY: the command writes a `struct ethtool_drvinfo`, which has this many bytes.
    unsafe { ask(interface, &mut driver) }?;
    let mut settings = Settings {
        cmd: ETHTOOL_GSET,
        ..Settings::default()
    };
    // SAFETY: the command writes a `struct ethtool_cmd`, which has this many bytes.
    unsafe { ask(interface, &mut settings) }?;
    believed_bps(&driver, &settings)
}

/// An interface that is no device says something all the same: a veth pair 10 Gbit/s, a tap 10 Mbit/s.
fn believed_bps(driver: &Driver, settings: &Settings) -> Option<u64> {
    let is_device = driver.bus[0] != 0 && !driver.name.starts_with(b"tun\0");
    let mbps = u32::from(settings.speed_high) << 16 | u32::from(settings.speed_low);
    // 0 and -1 are what drivers say of a link that is down.
    let is_known = mbps != 0 && i32::try_from(mbps).is_ok();
    (is_device && is_known).then(|| u64::from(mbps) * 1_000_000)
}

/// Has the driver of an interface fill in a command; `None` if it does not.
///
/// # Safety
///
/// `T` is the structure that the kernel writes for the command that it begins with.
unsafe fn ask<T>(interface: &str, command: &mut T) -> Option<()> {
    // Any socket will do; it has to be of this network namespace.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    for (slot, byte) in request.ifr_name.iter_mut().take(room).zip(interface.bytes()) {
        *slot = byte as c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
    // SAFETY: the request names an interface and points to a structure of the kind that the command writes, as the caller
    // vouches, and both live during the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    (result == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_does_not_tell_has_an_unknown_number_of_queues() {
        assert_eq!(receive_queues("nope"), None);
        assert_eq!(receive_queues("a name that is longer than any interface's"), None);
    }

    #[test]
    fn structures_are_as_long_as_what_the_kernel_writes() {
        assert_eq!(size_of::<Channels>(), 36);
        assert_eq!(size_of::<Settings>(), 44);
        assert_eq!(size_of::<Driver>(), 196);
    }

    #[test]
    fn what_is_no_device_has_no_speed() {
        assert_eq!(link_speed_bps("nope"), None);
        assert_eq!(link_speed_bps("lo"), None);
    }

    #[test]
    fn only_devices_are_believed_and_only_if_they_know() {
        let told = |name: &[u8], bus: &[u8], mbps: u32| {
            let mut driver = Driver::default();
            driver.name[..name.len()].copy_from_slice(name);
            driver.bus[..bus.len()].copy_from_slice(bus);
            let settings = Settings {
                speed_low: (mbps & 0xffff) as u16,
                speed_high: (mbps >> 16) as u16,
                ..Settings::default()
            };
            believed_bps(&driver, &settings)
        };
        assert_eq!(told(b"ice", b"0000:3b:00.0", 100_000), Some(100_000_000_000));
        assert_eq!(told(b"mlx5_core", b"0000:3b:00.0", 400_000), Some(400_000_000_000));
        assert_eq!(told(b"ice", b"0000:3b:00.0", u32::MAX), None, "the link is down");
        assert_eq!(told(b"virtio_net", b"0000:00:03.0", 0), None);
        assert_eq!(told(b"veth", b"", 10_000), None);
        assert_eq!(told(b"tun", b"tap", 10), None);
    }
}
