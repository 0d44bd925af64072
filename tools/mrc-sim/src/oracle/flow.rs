//! One direction of a connection, as the specification numbers it: messages, packets, and what both ends know of them.

use crate::fabric::frame::Data;
use crate::oracle::flight::Flight;
use crate::oracle::requestor::RequestorModel;
use crate::oracle::responder::ResponderModel;
use crate::rng::mix;
use crate::scenario::{ConnectionPlan, Wrong};
use mrc_wire::{Opcode, Psn};
use std::ops::Range;
use std::sync::Arc;

/// One message, with its addresses resolved.
#[derive(Debug, Clone)]
pub struct Message {
    /// Bytes.
    pub len: u32,
    /// Immediate.
    pub imm: Option<[u8; 4]>,
    /// Solicited event asked for.
    pub solicited: bool,
    /// Completion asked for.
    pub signaled: bool,
    /// Target address.
    pub va: u64,
    /// Target key.
    pub rkey: u32,
    /// Offset of its first byte in [`Flow::source`].
    pub source: usize,
    /// Number of its first packet in the flow.
    pub first: usize,
    /// Its packets.
    pub packets: usize,
    /// Number among the messages with an immediate.
    pub rqmsn: u16,
    /// The target must refuse it.
    pub wrong: Option<Wrong>,
}

/// One packet of a flow.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// Index of its message.
    pub message: usize,
    /// Offset of its data in the message.
    pub offset: u32,
    /// Bytes of data.
    pub len: u32,
    /// Opcode.
    pub opcode: Opcode,
    /// Last of its message.
    pub last: bool,
}

/// When things happened to a flow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// The first message was posted.
    pub begun_ns: Option<u64>,
    /// The last data was placed.
    pub placed_ns: u64,
    /// The last request has ended.
    pub ended_ns: Option<u64>,
}

/// A direction of a connection.
#[derive(Debug)]
pub struct Flow {
    /// Name in messages: connection and sending side.
    pub name: String,
    /// PSN of packet 0.
    pub first_psn: Psn,
    /// Messages in posting order.
    pub messages: Vec<Message>,
    /// Packets in the order of PSNs.
    pub packets: Vec<Packet>,
    /// All data to be sent, message after message. Frames on their way share it.
    pub source: Arc<Vec<u8>>,
    /// So many messages may be posted; the others wait for something.
    pub released: usize,
    /// Its queue pairs are gone, and its memory is used by others.
    pub closed: bool,
    /// When things happened to it.
    pub progress: Progress,
    /// The sending end.
    pub requestor: RequestorModel,
    /// What it has in flight.
    pub flight: Flight,
    /// The receiving end.
    pub responder: ResponderModel,
}

impl Flow {
    /// The flow from `side`; `target` resolves a region index to its address and key.
    pub fn new(
        seed: u64,
        name: String,
        plan: &ConnectionPlan,
        side: usize,
        target: impl Fn(usize) -> (u64, u32),
    ) -> Flow {
        let pmtu = plan.pmtu.bytes() as u32;
        let mut messages = Vec::new();
        let mut packets = Vec::new();
        let mut source_len = 0;
        let mut immediates = 0u16;
        for planned in &plan.flows[side].messages {
            let (region_va, region_rkey) = target(planned.region);
            let (va, rkey) = match planned.wrong {
                Some(Wrong::Rkey) => (region_va + planned.offset, !region_rkey),
                Some(Wrong::BeyondEnd) => (region_va + (1 << 40), region_rkey),
                Some(Wrong::Overflow) => (u64::MAX - u64::from(planned.len) / 2, region_rkey),
                Some(Wrong::ReadOnly) | None => (region_va + planned.offset, region_rkey),
            };
            let count = planned.packets(pmtu) as usize;
            messages.push(Message {
                len: planned.len,
                imm: planned.imm,
                solicited: planned.solicited,
                signaled: planned.signaled,
                va,
                rkey,
                source: source_len,
                first: packets.len(),
                packets: count,
                rqmsn: if planned.imm.is_some() { immediates } else { 0 },
                wrong: planned.wrong,
            });
            immediates = immediates.wrapping_add(planned.imm.is_some().into());
            source_len += planned.len as usize;
            for index in 0..count as u32 {
                let offset = index * pmtu;
                let (first, last) = (index == 0, index as usize + 1 == count);
                let opcode = match (first, last, planned.imm.is_some()) {
                    (true, true, false) => Opcode::WriteOnly,
                    (true, true, true) => Opcode::WriteOnlyImm,
                    (true, false, _) => Opcode::WriteFirst,
                    (false, false, _) => Opcode::WriteMiddle,
                    (false, true, false) => Opcode::WriteLast,
                    (false, true, true) => Opcode::WriteLastImm,
                };
                let len = (planned.len - offset).min(pmtu);
                packets.push(Packet {
                    message: messages.len() - 1,
                    offset,
                    len,
                    opcode,
                    last,
                });
            }
        }
        let count = packets.len();
        Flow {
            name,
            first_psn: Psn::new(plan.psn[side]),
            source: Arc::new(random_bytes(mix(seed, plan.psn[side].into()), source_len)),
            requestor: RequestorModel::new(plan, side, count),
            flight: Flight::new(plan.timeout_ns(), plan.linear_cnt).with_reo_min(plan.reo_min_ns),
            responder: ResponderModel::new(plan, 1 - side, count),
            released: messages.len() - plan.flows[side].held.min(messages.len()),
            closed: false,
            progress: Progress::default(),
            messages,
            packets,
        }
    }

    /// Its queue pairs are gone: what it knows of its packets is not needed any more.
    pub fn close(&mut self) {
        self.closed = true;
        self.source = Arc::default();
        self.packets = Vec::new();
        self.messages = Vec::new();
    }

    /// Number of the packet with this PSN; may lie outside the flow.
    pub fn index_of(&self, psn: Psn) -> i64 {
        i64::from(psn.diff(self.first_psn))
    }

    /// Highest PSN that has arrived.
    pub fn max_rcv_psn(&self) -> Psn {
        self.psn_of(self.responder.max_received)
    }

    /// PSN of a packet.
    pub fn psn_of(&self, index: i64) -> Psn {
        self.first_psn.offset(index as i32)
    }

    /// The data of a message.
    pub fn data(&self, message: usize) -> &[u8] {
        let message = &self.messages[message];
        &self.source[message.source..message.source + message.len as usize]
    }

    /// The data of a packet.
    pub fn packet_data(&self, index: usize) -> &[u8] {
        &self.source[self.stretch(index)]
    }

    /// The data of a packet, for a frame.
    pub fn packet_payload(&self, index: usize) -> Data {
        Data::new(&self.source, self.stretch(index))
    }

    /// Where in the source the data of a packet lies.
    fn stretch(&self, index: usize) -> Range<usize> {
        let packet = &self.packets[index];
        let start = self.messages[packet.message].source + packet.offset as usize;
        start..start + packet.len as usize
    }

    /// Sets what a message says. It must not have been sent yet.
    pub fn say(&mut self, message: usize, data: &[u8]) {
        let from = self.messages[message].source;
        Arc::make_mut(&mut self.source)[from..from + data.len()].copy_from_slice(data);
    }
}

/// Bytes that are made at a time.
const LINE: usize = 64;
/// Seed of what makes the words of a line differ.
const VARIATIONS: u64 = 0x5EED;

/// `len` bytes that follow from `seed`; no two stretches are alike.
fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    // A mixed word for a line of eight, each of which varies it: large runs spend their time elsewhere then.
    let vary: [u64; 8] = std::array::from_fn(|at| mix(VARIATIONS, at as u64));
    let mut bytes = Vec::with_capacity(len.next_multiple_of(LINE));
    for number in 0..len.div_ceil(LINE) as u64 {
        let word = mix(seed, number);
        let mut line = [0; LINE];
        for (place, vary) in line.chunks_exact_mut(8).zip(vary) {
            place.copy_from_slice(&(word ^ vary).to_le_bytes());
        }
        bytes.extend_from_slice(&line);
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_stretches_of_data_are_alike() {
        let bytes = random_bytes(7, 100_003);
        assert_eq!(bytes.len(), 100_003);
        let stretches: BTreeSet<&[u8]> = bytes.windows(16).collect();
        assert_eq!(stretches.len(), bytes.len() - 15, "wherever they begin");
        assert_eq!(random_bytes(7, 1000), bytes[..1000], "they follow from the seed");
        let others = random_bytes(8, 100_003);
        assert!(
            others.windows(16).all(|other| !stretches.contains(other)),
            "and from it alone"
        );
    }
}
