//! Packets that no peer of this kind would send: forged near what the receiver knows, or changed on their way. Their
//! ICRC is right; anybody can calculate one.

use mrc_protocol::Transmit;
use mrc_wire::{Bth, Condition, Ev, Headers, Opcode, Psn, TrafficClass};

use super::World;
use super::end::{BASE, End, R_KEY, Wire};
use super::setup::port;
use crate::draw::Draw;
use crate::headers;

pub(super) fn step(world: &mut World<'_>, to: usize) {
    world.honest = false;
    let wire = if world.draw.any() {
        forged(&mut world.draw, &world.ends[to])
    } else {
        let Some((_, wire)) = world.network.iter().rev().find(|(at, _)| *at == to).cloned() else {
            return;
        };
        changed(&mut world.draw, &world.ends[to], wire)
    };
    let port = port(&mut world.draw);
    let end = &mut world.ends[to];
    end.receive(&wire, port);
    if world.draw.any() {
        end.qp.end_of_batch(end.now);
    }
}

/// Near something that the receiver knows.
fn psn(draw: &mut Draw<'_>, to: &End) -> Psn {
    let known = draw.pick(&[to.qp.unack_psn(), to.qp.cack_psn(), to.qp.next_psn()]);
    let by = match draw.below(4) {
        0 => draw.any::<i32>(),
        1 => draw.any::<i16>().into(),
        _ => draw.any::<i8>().into(),
    };
    known.offset(by)
}

fn forged(draw: &mut Draw<'_>, to: &End) -> Wire {
    let (bth, mut headers) = headers::packet(draw);
    let bth = Bth {
        p_key: if draw.below(16) == 15 { bth.p_key } else { 0xffff },
        psn: psn(draw, to),
        ts: matches!(headers, Headers::Write { tseth: Some(_), .. }),
        ..bth
    };
    aim(draw, &mut headers, bth.psn);
    let data = if bth.opcode.is_write() {
        let len = draw.pick(&[0, 1, 255, 256, 1024, 4096, 5000]);
        vec![0xee; len]
    } else {
        Vec::new()
    };
    let condition = if bth.opcode.is_write() && draw.below(4) == 3 {
        Condition::Trimmed { last_hop: draw.any() }
    } else {
        Condition::Whole
    };
    let sent = Transmit {
        bth,
        headers,
        ev: Ev(0x1000 + draw.below(16)),
        path: 0,
        port: port(draw),
        class: TrafficClass::NoTrim,
        ect: true,
        payload: None,
        is_retransmission: false,
    };
    Wire {
        sent,
        data,
        ce: draw.any(),
        condition,
        life: None,
    }
}

/// Makes the headers such as a queue pair does not turn away at once.
fn aim(draw: &mut Draw<'_>, headers: &mut Headers, psn: Psn) {
    let near = i16::from(draw.any::<i8>());
    match headers {
        Headers::Sack(seth, _) => {
            // wire-format.md §8: a parser lets nothing else through.
            seth.cack_psn = psn;
            if draw.any() {
                seth.sack_offset = near;
            }
            if draw.any() {
                seth.ack_psn_offset_or_probe_id &= 0xff;
            }
            seth.entropy = Ev(0x1000 + draw.below(16));
            seth.sack_bitmap >>= draw.below(64);
        }
        Headers::Nack(neth) => {
            neth.nack_psn = psn;
            neth.entropy = Ev(0x1000 + draw.below(16));
            neth.reason.0 &= 15;
        }
        Headers::Write { meth, reth, .. } => {
            if draw.below(4) != 3 {
                reth.r_key = R_KEY;
                reth.va = BASE + u64::from(draw.any::<u16>());
            }
            if draw.any() {
                reth.dmalen &= 0xffff;
            }
            if draw.any() {
                meth.msn &= 0xff;
                meth.rqmsn &= 0xff;
            }
        }
        Headers::Ack(aeth) if draw.any() => aeth.msn &= 0xff,
        _ => {}
    }
}

/// One field is another one.
fn changed(draw: &mut Draw<'_>, to: &End, mut wire: Wire) -> Wire {
    wire.life = None;
    let bth = &mut wire.sent.bth;
    match draw.below(6) {
        0 => bth.psn = psn(draw, to),
        1 => bth.rtx ^= true,
        2 => bth.a ^= true,
        3 => wire.data.truncate(draw.below(5000) as usize),
        4 if bth.opcode.is_write() => {
            let has_imm = bth.opcode.has_imm();
            let mut others = Opcode::ALL.into_iter();
            let from = draw.below(6);
            let other = others
                .by_ref()
                .filter(|other| other.is_write() && other.has_imm() == has_imm)
                .nth(from as usize);
            bth.opcode = other.unwrap_or(bth.opcode);
        }
        _ => {
            let psn = bth.psn;
            aim(draw, &mut wire.sent.headers, psn);
        }
    }
    let psn = wire.sent.bth.psn;
    match &mut wire.sent.headers {
        Headers::Sack(seth, _) => seth.cack_psn = psn,
        Headers::Nack(neth) => neth.nack_psn = psn,
        _ => {}
    }
    wire
}
