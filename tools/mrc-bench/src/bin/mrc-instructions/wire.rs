//! Frames built and taken apart, ICRC included.

use std::hint::black_box;
use std::net::Ipv4Addr;

use mrc_wire::{
    Bth, DEFAULT_UDP_PORT, Dscps, Ecn, Ev, EvLayout, Frame, Headers, IpPair, L3Path, L3Template, Meth, Opcode,
    Outgoing, Psn, Qpn, ReceiveRules, Reth, build_frame,
};

use crate::{Fault, measured};

const PACKETS: u64 = 200;

/// Frames with `len` bytes of data.
pub(crate) fn build(len: usize) -> Result<u64, Fault> {
    let (template, data) = (template(), vec![0x5a; len]);
    let mut frame = vec![0; len + 200];
    let mut built = 0;
    measured(&mut || {
        for number in 0..PACKETS {
            let outgoing = outgoing(number as u32, len);
            built += u64::from(build_frame(&mut frame, &template, black_box(&outgoing), &data).is_ok());
            black_box(&mut frame);
        }
    });
    all(built)
}

/// One frame with `len` bytes of data, again and again.
pub(crate) fn parse(len: usize) -> Result<u64, Fault> {
    let mut frame = vec![0; len + 200];
    let end = build_frame(&mut frame, &template(), &outgoing(7, len), &vec![0x5a; len])?;
    let dscps = Dscps::default();
    let rules = ReceiveRules {
        udp_ports: &[DEFAULT_UDP_PORT],
        dscps: &dscps,
        ev_layout: EvLayout::PortHigh,
    };
    let mut taken = 0;
    measured(&mut || {
        for _ in 0..PACKETS {
            let head = black_box(&frame[..end]);
            let packet = mrc_wire::parse(Frame { head, tail: &[] }, &rules);
            taken += u64::from(black_box(packet).is_ok());
        }
    });
    all(taken)
}

fn all(done: u64) -> Result<u64, Fault> {
    if done == PACKETS {
        Ok(PACKETS)
    } else {
        Err(format!("only {done} of {PACKETS} frames were good").into())
    }
}

fn template() -> L3Template {
    L3Template::new(&L3Path {
        src_mac: [2, 0, 0, 0, 0, 1],
        dst_mac: [2, 0, 0, 0, 0, 2],
        vlan: None,
        ip: IpPair::V4 {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
        },
        srv6: None,
        hop_limit: 64,
        udp_port: DEFAULT_UDP_PORT,
    })
}

fn outgoing(number: u32, payload_len: usize) -> Outgoing {
    Outgoing {
        bth: Bth::new(Opcode::WriteMiddle, Qpn::new(0xa5), Psn::new(number)),
        headers: Headers::Write {
            meth: Meth { rqmsn: 0, msn: 7 },
            tseth: None,
            reth: Reth {
                va: 0x7f00_0000_0000,
                r_key: 0x1a2b_3c4d,
                dmalen: 1 << 20,
            },
            imm: None,
        },
        ev: Ev(0x1000_0000 + number),
        ev_layout: EvLayout::PortHigh,
        dscp: Dscps::default().no_trim,
        ecn: Ecn::Ect0,
        payload_len,
    }
}
