//! Packets that a queue pair's peer never sent.

use std::net::IpAddr;

use mrc_verbs::QueuePair;
use mrc_wire::{
    Bth, Ecn, Ev, EvLayout, Headers, IpPair, L3Path, L3Template, Meth, Opcode, Outgoing, Psn, Qpn, Reth, build_frame,
};
use netns_lab::{Host, Lab};

use crate::icrc;

/// Makes frames that look as if host 0 had sent them to host 1 in plane 1.
#[derive(Debug, Clone)]
pub struct Forge {
    /// The lower layers; a test may change them.
    pub path: L3Path,
}

impl Forge {
    /// Learns the addresses.
    ///
    /// # Panics
    /// If the hosts have no port `p1`.
    pub fn new(lab: &Lab, ipv6: bool) -> Forge {
        let (a, b) = (lab.host(0), lab.host(1));
        let ip = if ipv6 {
            IpPair::V6 {
                src: a.gid_v6(),
                dst: b.gid_v6(),
            }
        } else {
            IpPair::V4 {
                src: a.gid_v4(),
                dst: b.gid_v4(),
            }
        };
        let path = L3Path {
            src_mac: mac(a),
            dst_mac: mac(b),
            vlan: None,
            ip,
            srv6: None,
            hop_limit: 64,
            udp_port: 4791,
        };
        Forge { path }
    }

    /// The same in the other direction.
    #[must_use]
    pub fn turned(&self) -> Forge {
        let ip = match self.path.ip {
            IpPair::V4 { src, dst } => IpPair::V4 { src: dst, dst: src },
            IpPair::V6 { src, dst } => IpPair::V6 { src: dst, dst: src },
        };
        let path = L3Path {
            src_mac: self.path.dst_mac,
            dst_mac: self.path.src_mac,
            ip,
            ..self.path
        };
        Forge { path }
    }

    /// The same from another node.
    ///
    /// # Panics
    /// If the families differ.
    #[must_use]
    pub fn from_node(&self, source: IpAddr) -> Forge {
        let ip = match (self.path.ip, source) {
            (IpPair::V4 { dst, .. }, IpAddr::V4(src)) => IpPair::V4 { src, dst },
            (IpPair::V6 { dst, .. }, IpAddr::V6(src)) => IpPair::V6 { src, dst },
            _ => panic!("{source} is of the other family"),
        };
        Forge {
            path: L3Path { ip, ..self.path },
        }
    }

    /// A whole write in one packet.
    pub fn write(&self, dqp: u32, psn: u32, msn: u16, reth: Reth, payload: &[u8]) -> Vec<u8> {
        let headers = Headers::Write {
            meth: Meth { rqmsn: 0, msn },
            tseth: None,
            reth,
            imm: None,
        };
        self.frame(Opcode::WriteOnly, dqp, psn, headers, payload)
    }

    /// Any packet.
    ///
    /// # Panics
    /// If the headers do not fit the opcode.
    pub fn frame(&self, opcode: Opcode, dqp: u32, psn: u32, headers: Headers, payload: &[u8]) -> Vec<u8> {
        let packet = Outgoing {
            bth: Bth::new(opcode, Qpn::new(dqp), Psn::new(psn)),
            headers,
            ev: Ev(0xc123),
            ev_layout: EvLayout::default(),
            dscp: 0,
            ecn: Ecn::NotEct,
            payload_len: payload.len(),
        };
        let mut frame = vec![0; 9000];
        let len = build_frame(&mut frame, &L3Template::new(&self.path), &packet, payload).expect("a frame");
        frame.truncate(len);
        frame
    }
}

/// The PSN of the next new packet of a queue pair that has nothing outstanding.
///
/// # Panics
/// If its engine has ended.
pub fn next_psn(qp: &QueuePair) -> u32 {
    let query = qp.query().expect("the queue pair");
    let new = query.stats.packets_sent - query.stats.packets_retransmitted;
    query.attrs.sq_psn.wrapping_add(new as u32) & 0xff_ffff
}

/// Makes the ICRC of a frame right again after its bytes were changed.
///
/// # Panics
/// If it is too short to have one.
pub fn reseal(frame: &mut [u8]) {
    let sum = icrc(&frame[14..]).expect("long enough");
    let end = frame.len() - 4;
    frame[end..].copy_from_slice(&sum);
}

fn mac(host: Host<'_>) -> [u8; 6] {
    let text = host
        .enter(|| std::fs::read_to_string("/sys/class/net/p1/address"))
        .expect("the host can be entered")
        .expect("port p1");
    let mut mac = [0; 6];
    for (byte, digits) in mac.iter_mut().zip(text.trim().split(':')) {
        *byte = u8::from_str_radix(digits, 16).expect("hex digits");
    }
    mac
}
