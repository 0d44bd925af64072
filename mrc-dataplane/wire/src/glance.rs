//! What filters of captures ask of a frame. Nothing is checked: a broken packet is what somebody who captures looks for.

use crate::network::Network;
use crate::{Bth, Ev, Frame, Opcode, Qpn, ReceiveRules, UdpHeader};

/// A few fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// `BTH.opcode`, perhaps one that MRC does not use.
    pub opcode: u8,
    /// `BTH.dqp`.
    pub dqp: Qpn,
    /// The path that the packet is on.
    pub ev: Ev,
    /// The path that a SACK or NACK reports on.
    pub entropy: Option<Ev>,
}

/// Bytes of SETH and NETH before their `entropy` (wire-format.md §7.7, §7.9).
const ENTROPY_AT: usize = 4;

/// The fields of a frame that is MRC (wire-format.md §11 steps 1 and 2), right or not.
#[inline]
pub fn glance(frame: Frame<'_>, rules: &ReceiveRules<'_>) -> Option<Glance> {
    let net = Network::locate(&frame, rules.dscps).ok()?;
    let udp_at = net.udp_at();
    let udp = UdpHeader::parse(&frame.array(udp_at)?);
    if !rules.udp_ports.contains(&udp.dst_port) {
        return None;
    }
    let bth_at = udp_at + UdpHeader::LEN;
    let raw: [u8; Bth::LEN] = frame.array(bth_at)?;
    let opcode = Bth::raw_opcode(&raw);
    if !Opcode::in_mrc_range(opcode) {
        return None;
    }
    let reports = [Opcode::Sack, Opcode::Nack].map(Opcode::wire).contains(&opcode);
    let entropy = if reports {
        frame.array(bth_at + Bth::LEN + ENTROPY_AT)
    } else {
        None
    };
    Some(Glance {
        opcode,
        dqp: Qpn::new(u32::from_be_bytes([0, raw[5], raw[6], raw[7]])),
        ev: net.ev(rules.ev_layout, udp.src_port),
        entropy: entropy.map(|raw| Ev(u32::from_be_bytes(raw))),
    })
}
