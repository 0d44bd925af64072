//! What a write has to be like before it is placed (protocol.md §6.3 steps 3 and 4).

use std::vec::Vec;

use mrc_wire::{Headers, ImmDt, Opcode, Payload};

use super::errors::nak_of;
use crate::qp::QpState;
use crate::testing::*;
use crate::work::{AccessError, Cx, Memory, QpEvent};

/// A packet with this opcode and these lengths, and what the responder thinks of it: its NAK, if there is one.
fn judged(opcode: Opcode, len: usize, pad: u8, dmalen: u32) -> Option<u8> {
    let (mut a, mut b) = Setup::default().pair();
    b.qp.handle_recv(1).unwrap();
    a.post(write(1, 1, 0));
    let mut sent = a.poll().unwrap().sent;
    sent.bth.opcode = opcode;
    sent.bth.pad = pad;
    let Headers::Write { reth, imm, .. } = &mut sent.headers else {
        panic!("no write")
    };
    reth.dmalen = dmalen;
    *imm = opcode.has_imm().then_some(ImmDt([1, 2, 3, 4]));
    let back = b.receive_all(&[Wire::forged(sent, len)]);
    if b.qp.state() == QpState::Rts {
        assert_eq!(b.region.placed, usize::from(len > 0));
        return None;
    }
    assert_eq!((b.region.placed, b.events()), (0, [QpEvent::RequestError].to_vec()));
    Some(nak_of(&back).1)
}

// protocol.md §6.3 step 3, with PMTU 4096
#[test]
fn lengths_are_judged_by_opcode() {
    const INVALID: Option<u8> = Some(0x61);
    use Opcode::{WriteFirst, WriteLast, WriteLastImm, WriteMiddle, WriteOnly, WriteOnlyImm};
    for (opcode, len, pad, dmalen, verdict) in [
        (WriteFirst, 4096, 0, 4097, None),
        (WriteFirst, 4096, 0, 4096, INVALID),
        (WriteFirst, 4092, 0, 8192, INVALID),
        (WriteFirst, 4100, 0, 8192, INVALID),
        (WriteFirst, 4096, 1, 8192, INVALID),
        (WriteMiddle, 4096, 0, 12288, None),
        (WriteMiddle, 4092, 0, 12288, INVALID),
        (WriteMiddle, 4100, 0, 12288, INVALID),
        (WriteMiddle, 4096, 1, 12288, INVALID),
        (WriteMiddle, 4096, 0, 1 << 31, None),
        (WriteMiddle, 4096, 0, (1 << 31) + 1, INVALID),
        (WriteLast, 1, 3, 4097, None),
        (WriteLast, 4096, 0, 8192, None),
        (WriteLast, 0, 0, 8192, INVALID),
        (WriteLast, 4100, 0, 8192, INVALID),
        (WriteLast, 1, 3, (1 << 31) + 1, INVALID),
        (WriteLastImm, 1, 3, 4097, None),
        (WriteLastImm, 0, 0, 8192, INVALID),
        (WriteOnly, 0, 0, 0, None),
        (WriteOnly, 5, 3, 5, None),
        (WriteOnly, 4096, 0, 4096, None),
        (WriteOnly, 5, 3, 6, INVALID),
        (WriteOnly, 0, 0, 1, INVALID),
        (WriteOnly, 4100, 0, 4100, INVALID),
        (WriteOnlyImm, 0, 0, 0, None),
        (WriteOnlyImm, 5, 3, 4, INVALID),
        (WriteOnlyImm, 4100, 0, 4100, INVALID),
    ] {
        assert_eq!(
            judged(opcode, len, pad, dmalen),
            verdict,
            "{opcode:?}: {len} bytes, pad {pad}, of {dmalen}"
        );
    }
}

/// A region without bounds: whatever the caller's memory says, ranges do not wrap.
struct Boundless;

impl Memory for Boundless {
    fn check(&mut self, _: u32, _: u64, _: u64) -> Result<(), AccessError> {
        Ok(())
    }

    fn place(&mut self, _: u32, _: u64, _: &Payload<'_>) -> Result<(), AccessError> {
        Ok(())
    }
}

// protocol.md §6.3 step 4: neither the packet's range nor, on First, the message's.
#[test]
fn range_that_wraps_is_refused_whatever_the_memory_says() {
    for (len, va, fits) in [
        (4096, u64::MAX - 4095, true),
        (4096, u64::MAX - 4094, false),
        (4096, u64::MAX, false),
        (8192, u64::MAX - 8191, true),
        // The first packet ends in time, the message does not.
        (8192, u64::MAX - 8190, false),
    ] {
        let (mut a, mut b) = Setup::default().pair();
        a.post(write(1, len, 0));
        let mut sent = a.poll().unwrap();
        if let Headers::Write { reth, .. } = &mut sent.sent.headers {
            reth.va = va;
        }
        let mut memory = Boundless;
        let mut cx = Cx::new(b.now, &mut b.cc, &mut memory);
        b.qp.handle_packet(&mut cx, &sent.packet(), port(1));
        b.qp.end_of_batch(b.now);
        let events = if fits {
            Vec::new()
        } else {
            [QpEvent::AccessError].to_vec()
        };
        assert_eq!(b.events(), events, "{len} bytes at {va:#x}");
    }
}
