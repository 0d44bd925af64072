//! MRC packets made by hand, sent past every check of a host's kernel.
#![expect(unsafe_code, reason = "no safe wrapper sends on a packet socket")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use mrc_wire::{
    Bth, Ecn, Ev, EvLayout, Headers, IpPair, L3Path, L3Template, Meth, Opcode, Outgoing, Psn, Qpn, Reth, SrhEntry,
    Srv6Path, Tick, Tseth, build_frame,
};
use netns_lab::plan::{Plan, node_v4, node_v6};
use netns_lab::{Host, Lab, Path, PathEv};

/// A packet socket on one port of a host.
#[derive(Debug)]
pub(crate) struct Injector {
    socket: OwnedFd,
    index: i32,
}

impl Injector {
    pub(crate) fn new(host: &Host<'_>, port: &str) -> Self {
        let open = || {
            let index = nix::net::if_::if_nametoindex(port).unwrap() as i32;
            // SAFETY: a system call without pointers. Protocol 0: it receives nothing.
            let fd =
                unsafe { nix::libc::socket(nix::libc::AF_PACKET, nix::libc::SOCK_RAW | nix::libc::SOCK_CLOEXEC, 0) };
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            // SAFETY: it was just opened, and nobody else knows it.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            Self { socket, index }
        };
        host.enter(open).unwrap()
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: all zeroes is a valid address.
        let mut address: nix::libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = nix::libc::AF_PACKET as u16;
        address.sll_ifindex = self.index;
        // SAFETY: both pointers lead to values that outlive the call, and the lengths are theirs.
        let sent = unsafe {
            nix::libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of::<nix::libc::sockaddr_ll>() as nix::libc::socklen_t,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}

/// A write as a host's engine would send it.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) path: L3Path,
    pub(crate) ev: u32,
    pub(crate) dscp: u8,
    pub(crate) ecn: Ecn,
    pub(crate) payload: usize,
}

impl Write {
    /// From a host to another by the port of a plane, whatever the switches make of it.
    pub(crate) fn plain(plan: &Plan, from: usize, to: usize, plane: usize, ipv6: bool) -> Self {
        let [near, far] = plan.host_link(from, plane).unwrap();
        let ip = if ipv6 {
            IpPair::V6 {
                src: node_v6(from),
                dst: node_v6(to),
            }
        } else {
            IpPair::V4 {
                src: node_v4(from),
                dst: node_v4(to),
            }
        };
        Self {
            path: L3Path {
                src_mac: plan.interface(near).mac,
                dst_mac: plan.interface(far).mac,
                vlan: None,
                ip,
                srv6: None,
                hop_limit: 64,
                udp_port: 4791,
            },
            ev: 0xc001,
            dscp: 4,
            ecn: Ecn::Ect0,
            payload: 1024,
        }
    }

    /// Along a path.
    pub(crate) fn on(lab: &Lab, from: usize, to: usize, path: &Path) -> Self {
        let mut write = Self::plain(lab.plan(), from, to, path.plane, true);
        write.ev = path.ev.bits().unwrap_or(write.ev);
        if let PathEv::Srv6 { destination, .. } = path.ev {
            write.tunnel(node_v6(from), destination, None);
        }
        write
    }

    /// Into a tunnel of its own.
    pub(crate) fn tunnel(&mut self, src: std::net::Ipv6Addr, container: std::net::Ipv6Addr, srh: Option<SrhEntry>) {
        self.path.srv6 = Some(Srv6Path { src, container, srh });
    }

    pub(crate) fn frame(&self, psn: u32) -> Vec<u8> {
        let payload: Vec<u8> = (0..self.payload).map(|n| n as u8).collect();
        let packet = Outgoing {
            bth: Bth::new(Opcode::WriteOnly, Qpn::new(0x1234), Psn::new(psn)),
            headers: Headers::Write {
                meth: Meth { rqmsn: 0, msn: 7 },
                tseth: Some(Tseth::new(Tick(0x1234))),
                reth: Reth {
                    va: 0x1000,
                    r_key: 9,
                    dmalen: self.payload as u32,
                },
                imm: None,
            },
            ev: Ev(self.ev),
            ev_layout: EvLayout::default(),
            dscp: self.dscp,
            ecn: self.ecn,
            payload_len: payload.len(),
        };
        let mut frame = vec![0; 9000];
        let length = build_frame(&mut frame, &L3Template::new(&self.path), &packet, &payload).unwrap();
        frame.truncate(length);
        frame
    }
}
