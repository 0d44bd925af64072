//! Draws hostile sequences of packets, and what the host says meanwhile.

use mrc_protocol::{AccessError, Shortage};
use mrc_sim::memory::{Trouble, When};
use proptest::prelude::*;

use crate::{BASE, KEY, PMTU, SIZE};

/// A write, drawn.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    /// PSN, counted from the expected one.
    pub(crate) ahead: i32,
    pub(crate) kind: u8,
    pub(crate) len: usize,
    pub(crate) offset: u64,
    pub(crate) dmalen: u32,
    pub(crate) key: u32,
    pub(crate) pad: u8,
    pub(crate) flags: [bool; 5],
    pub(crate) entropy: u32,
    pub(crate) stamp: u16,
    pub(crate) trimmed: Option<bool>,
    pub(crate) p_key: u16,
    pub(crate) lack: Option<Lack>,
}

/// What the host lacks when the packet arrives (protocol.md §6.3 step 2).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lack {
    /// Its memory says so.
    Memory(Trouble),
    /// A buffer for the packet.
    Buffer(Shortage),
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Write(Write),
    Probe {
        id: u16,
        entropy: u32,
        stamp: u16,
        ce: bool,
        rtx: bool,
    },
    Pass(u64),
    Post,
    Pressure(u32),
    RemoteWrite(bool),
    Window(u8),
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) first_psn: u32,
    pub(crate) mpr: u8,
    pub(crate) max_wimm: u16,
    pub(crate) trim_nack: bool,
    pub(crate) dynamic_mpr: bool,
    pub(crate) svc_time: bool,
    pub(crate) threshold: u32,
    pub(crate) hold_ns: u64,
    pub(crate) answers: (u32, u32),
    pub(crate) receives: u8,
    pub(crate) steps: Vec<Step>,
}

fn lack(faults: bool) -> impl Strategy<Value = Option<Lack>> {
    let shortage = || prop::sample::select(vec![Shortage::Bitmap, Shortage::PacketBuffer, Shortage::Other]);
    let when = || prop::sample::select(vec![When::Asked, When::Written, When::WrittenInPart]);
    let memory = |when, error| Some(Lack::Memory(Trouble { when, error }));
    prop_oneof![
        30 => Just(None),
        3 => (when(), shortage()).prop_map(move |(when, shortage)| memory(when, AccessError::Busy(shortage))),
        2 => shortage().prop_map(|shortage| Some(Lack::Buffer(shortage))),
        u32::from(faults) => when().prop_map(move |when| memory(when, AccessError::Broken)),
    ]
}

/// How a write may look. `faults`: now and then one that must be refused.
fn write(faults: bool) -> impl Strategy<Value = Write> {
    let ahead = prop_oneof![
        12 => Just(0),
        12 => 0..8_i32,
        8 => 0..140_i32,
        3 => 100..400_i32,
        4 => -70..0_i32,
        1 => any::<i32>(),
    ];
    let wrong = u32::from(faults);
    let shape = (
        0..6_u8,
        0..=PMTU,
        0..SIZE - 2 * PMTU as u64,
        any::<[bool; 5]>(),
        0..32_u8,
    );
    let odd = prop_oneof![
        40 => Just(0_u8),
        wrong => 1..9_u8,
    ];
    let trimmed = prop_oneof![12 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (ahead, shape, odd, trimmed, any::<(u32, u16)>(), lack(faults)).prop_map(
        |(ahead, (kind, len, offset, flags, dice), odd, trimmed, (entropy, stamp), lack)| {
            let kind_len = match kind {
                0 | 1 => PMTU,
                2 | 3 => len.max(1),
                _ => len,
            };
            let mut write = Write {
                ahead,
                kind,
                len: kind_len,
                offset,
                dmalen: if kind >= 4 { kind_len as u32 } else { 2 * PMTU as u32 },
                key: KEY,
                pad: if kind < 2 { 0 } else { (4 - kind_len % 4) as u8 % 4 },
                // Flags that are not set on every other packet, so that the counter has its say.
                flags: [
                    flags[0] && dice < 8,
                    flags[1] && dice % 8 == 0,
                    flags[2] && dice % 4 == 1,
                    flags[3],
                    flags[4],
                ],
                entropy,
                stamp,
                trimmed,
                p_key: 0x7fff | u16::from(flags[3]) << 15,
                lack,
            };
            match odd {
                1 => write.key ^= 1,
                2 => write.offset = SIZE - 1,
                3 => write.offset = u64::MAX - BASE - 5,
                4 => write.dmalen = write.dmalen.wrapping_add(1),
                5 => write.len = PMTU + 4,
                6 => write.pad ^= 1,
                7 => write.dmalen = u32::MAX,
                8 => write.p_key ^= 0x0100,
                _ => {}
            }
            write
        },
    )
}

fn step(faults: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => write(faults).prop_map(Step::Write),
        2 => any::<(u16, u32, u16, bool, bool)>().prop_map(|(id, entropy, stamp, ce, rtx)| Step::Probe {
            id, entropy, stamp, ce, rtx,
        }),
        6 => prop_oneof![1..3000_u64, 1..30_000_u64, 1..3_000_000_u64].prop_map(Step::Pass),
        2 => Just(Step::Post),
        1 => (0..=100_u32).prop_map(Step::Pressure),
        1 => (1..=3_u8).prop_map(Step::Window),
        u32::from(faults) => any::<bool>().prop_map(Step::RemoteWrite),
    ]
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let first = prop_oneof![1 << 23..(1_u32 << 23) + 3, (1_u32 << 24) - 20..1 << 24, any::<u32>()];
    let settings = (
        first,
        1..=3_u8,
        prop_oneof![1..4_u16, Just(128)],
        any::<[bool; 3]>(),
        prop_oneof![Just(0_u32), Just(16384), 1..65536_u32],
        prop_oneof![Just(0_u64), Just(20_000), 1..1_000_000_u64],
        prop_oneof![3 => Just((1_000_000_000, 1_000_000)), 1 => (prop_oneof![Just(1000_u32), Just(100_000)], 1..6_u32)],
        prop_oneof![1 => Just(1_u8), 3 => Just(200)],
    );
    let steps = any::<bool>().prop_flat_map(|faults| prop::collection::vec(step(faults), 1..160));
    (settings, steps).prop_map(|(settings, steps)| {
        let (first_psn, mpr, max_wimm, [trim_nack, dynamic_mpr, svc_time], threshold, hold_ns, answers, receives) =
            settings;
        Case {
            first_psn,
            mpr,
            max_wimm,
            trim_nack,
            dynamic_mpr,
            svc_time,
            threshold,
            hold_ns,
            answers,
            receives,
            steps,
        }
    })
}
