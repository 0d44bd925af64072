//! Draws what the applications do: message sizes around the edges of packets, plain writes and immediates.

use crate::rng::{PPM, Rng};
use crate::scenario::{FlowPlan, HostPlan, MessagePlan, RegionPlan, Wrong};

/// A region that refuses remote writes stands at this index in every host.
pub(super) const READ_ONLY_REGION: usize = 0;

/// Length of the region at [`READ_ONLY_REGION`].
pub(super) const READ_ONLY_LEN: u64 = 8192;

/// A length, most often at an edge of the packet size.
fn length(rng: &mut Rng, pmtu: u32) -> u32 {
    match rng.below(16) {
        0 => 0,
        1 => 1,
        2 => pmtu - 1,
        3 => pmtu,
        4 => pmtu + 1,
        5 => 2 * pmtu - 1,
        6 => 2 * pmtu,
        7 => 2 * pmtu + 1,
        8 => rng.range(2, 64) as u32,
        9..=12 => rng.range(1, u64::from(8 * pmtu)) as u32,
        13 => rng.range(1, u64::from(3 * pmtu)) as u32,
        14 => pmtu * rng.range(3, 12) as u32,
        _ => rng.range(1, u64::from(48 * pmtu)) as u32 + 3,
    }
}

/// A flow of about `packets` packets, whose target regions are added to `target`.
pub(super) fn flow(rng: &mut Rng, pmtu: u32, packets: u64, target: &mut HostPlan) -> FlowPlan {
    let immediates_ppm = rng.pick(&[0, 100_000, 300_000, 500_000, PPM]);
    let signaled_ppm = rng.pick(&[PPM, PPM, 500_000, 50_000]);
    let mut messages = Vec::new();
    let mut sum = 0;
    let first_region = target.regions.len();
    let regions = rng.range(1, 3) as usize;
    let mut fill = vec![0u64; regions];
    while sum < packets {
        let len = length(rng, pmtu);
        let index = rng.below(regions as u64) as usize;
        fill[index] += rng.below(40);
        let imm = rng.chance(immediates_ppm).then(|| (rng.word() as u32).to_be_bytes());
        let message = MessagePlan {
            len,
            imm,
            solicited: imm.is_some() && rng.one_in(4),
            signaled: rng.chance(signaled_ppm),
            region: first_region + index,
            offset: fill[index],
            wrong: None,
        };
        fill[index] += u64::from(len);
        sum += u64::from(message.packets(pmtu));
        messages.push(message);
    }
    for len in fill {
        // The last region may end with the last byte of the last message: the guard begins right there.
        let guard = rng.range(16, 128);
        target.regions.push(RegionPlan {
            rkey: rng.word() as u32,
            len,
            guard,
            remote_write: true,
        });
    }
    let gap_ns = match rng.below(4) {
        0 => 0,
        1 => rng.below(2_000),
        2 => rng.below(20_000),
        _ => rng.below(200_000),
    };
    let immediates = messages.iter().filter(|message| message.imm.is_some()).count() as u32;
    FlowPlan {
        messages,
        gap_ns,
        receive_depth: 0,
        receives: immediates,
        held: 0,
    }
}

/// Makes one message of the flow a write that must be refused. Returns false if the flow has no message for that.
pub(super) fn spoil(rng: &mut Rng, flow: &mut FlowPlan) -> bool {
    let candidates: Vec<usize> = (0..flow.messages.len())
        .filter(|index| flow.messages[*index].len > 0)
        .collect();
    if candidates.is_empty() {
        return false;
    }
    let index = rng.pick(&candidates);
    let message = &mut flow.messages[index];
    let wrong = rng.pick(&[Wrong::Rkey, Wrong::BeyondEnd, Wrong::ReadOnly, Wrong::Overflow]);
    message.wrong = Some(wrong);
    if wrong == Wrong::ReadOnly {
        message.region = READ_ONLY_REGION;
        message.offset = 0;
        message.len = message.len.min(READ_ONLY_LEN as u32);
    }
    true
}
