//! What no frame may do: panic, read past its end, be accepted when it is not whole, or depend on how it is fragmented.
//!
//! The frames are handed over in slices of exactly their size: a read past the end would be a panic.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod vectors;

use mrc_wire::*;
use proptest::prelude::*;
use vectors::rules;

/// Parses and dissects; both must come back.
fn survive(frame: Frame<'_>) -> Option<Condition> {
    let dscps = Dscps::default();
    let mut data = 0;
    dissect::dissect(
        frame,
        |_| true,
        |layer| {
            if let dissect::Layer::Data(payload) = layer {
                data = payload.len();
            }
        },
    );
    let mut result = None;
    for ev_layout in [EvLayout::FlowHigh, EvLayout::PortHigh] {
        if let Ok(packet) = parse(
            frame,
            &ReceiveRules {
                ev_layout,
                ..rules(&dscps)
            },
        ) {
            assert!(packet.payload.len() <= frame.len());
            if packet.condition == Condition::Whole {
                assert_eq!(packet.payload.len(), data, "parser and dissector see different data");
            }
            result = Some(packet.condition);
        }
    }
    result
}

#[test]
fn a_frame_cut_anywhere_is_never_accepted_as_whole() {
    for vector in vectors::all() {
        for keep in 0..vector.bytes.len() {
            let condition = survive(Frame::whole(&vector.bytes[..keep]));
            // A cut of what was trimmed already is another trimmed packet.
            let usable = vector.trimmed && keep >= 14 + 40 + 20;
            assert_eq!(
                condition.is_some(),
                usable,
                "{} cut to {keep} bytes: {condition:?}",
                vector.name
            );
            assert_ne!(condition, Some(Condition::Whole));
        }
    }
}

#[test]
fn a_frame_cut_anywhere_with_its_lengths_corrected_is_never_accepted() {
    // Lengths that fit leave only the ICRC to notice.
    for vector in vectors::untrimmed()
        .into_iter()
        .filter(|vector| vector.bytes[12..14] == [0x86, 0xdd])
    {
        if vector.bytes[20] != 17 {
            continue;
        }
        for keep in 14 + 40 + 8..vector.bytes.len() {
            let mut bytes = vector.bytes[..keep].to_vec();
            let length = u16::try_from(keep - 54).unwrap().to_be_bytes();
            bytes[18..20].copy_from_slice(&length);
            bytes[58..60].copy_from_slice(&length);
            assert_eq!(
                survive(Frame::whole(&bytes)),
                None,
                "{} cut to {keep} bytes",
                vector.name
            );
        }
    }
}

#[test]
fn where_a_frame_is_split_makes_no_difference() {
    let dscps = Dscps::default();
    for vector in vectors::all() {
        let whole = parse(Frame::whole(&vector.bytes), &rules(&dscps)).unwrap();
        for split in 0..=vector.bytes.len() {
            let (head, tail) = vector.bytes.split_at(split);
            let packet = parse(Frame { head, tail }, &rules(&dscps)).unwrap();
            assert_eq!(joined(&packet), joined(&whole), "{} split at {split}", vector.name);
            assert_eq!(
                Packet {
                    payload: Payload::EMPTY,
                    ..packet
                },
                Packet {
                    payload: Payload::EMPTY,
                    ..whole
                }
            );
            assert_eq!(
                packet.payload.parts().map(<[u8]>::len).sum::<usize>(),
                packet.payload.len()
            );
        }
    }
}

fn joined(packet: &Packet<'_>) -> Vec<u8> {
    let mut data = vec![0; packet.payload.len()];
    packet.payload.copy_to(&mut data);
    data
}

/// Every worked packet, and plain noise of all lengths.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let vectors: Vec<Vec<u8>> = vectors::all().into_iter().map(|vector| vector.bytes).collect();
    prop_oneof![
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        4 => proptest::sample::select(vectors),
    ]
}

/// A change that keeps some sense: single bytes, runs, cuts, insertions.
#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Flip(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    // The first 160 bytes hold the headers.
    let at = 0..160usize;
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, value)| Mutation::Set(at, value)),
        (at.clone(), 0..8u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (0..400usize).prop_map(Mutation::Cut),
        (at.clone(), 1..40usize).prop_map(|(at, len)| Mutation::Remove(at, len)),
        (at, proptest::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    match mutation {
        Mutation::Set(at, value) => {
            if let Some(byte) = bytes.get_mut(*at) {
                *byte = *value;
            }
        }
        Mutation::Flip(at, bit) => {
            if let Some(byte) = bytes.get_mut(*at) {
                *byte ^= 1 << bit;
            }
        }
        Mutation::Cut(len) => bytes.truncate(*len),
        Mutation::Remove(at, len) => {
            let from = (*at).min(bytes.len());
            let to = (at + len).min(bytes.len());
            bytes.drain(from..to);
        }
        Mutation::Insert(at, more) => {
            let at = (*at).min(bytes.len());
            bytes.splice(at..at, more.iter().copied());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise_and_mutated_packets_never_panic(
        frame in any_frame(),
        mutations in proptest::collection::vec(mutation(), 0..6),
        split in 0..400usize,
    ) {
        let mut bytes = frame;
        for change in &mutations {
            mutate(&mut bytes, change);
        }
        let bytes = bytes.into_boxed_slice();
        let (head, tail) = bytes.split_at(split.min(bytes.len()));
        let split_result = survive(Frame { head, tail });
        prop_assert_eq!(split_result, survive(Frame::whole(&bytes)));
        let dscps = Dscps::default();
        let whole = parse(Frame::whole(&bytes), &rules(&dscps));
        let split = parse(Frame { head, tail }, &rules(&dscps));
        match (whole, split) {
            (Ok(whole), Ok(split)) => prop_assert_eq!(joined(&whole), joined(&split)),
            (whole, split) => prop_assert_eq!(whole.map(|_| ()), split.map(|_| ())),
        }
    }

    #[test]
    fn noise_behind_a_valid_start_never_panics_and_never_passes(
        which in 0..21usize,
        keep in 14..180usize,
        noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let vector = &vectors::all()[which];
        let keep = keep.min(vector.bytes.len());
        let mut bytes = vector.bytes[..keep].to_vec();
        bytes.extend_from_slice(&noise);
        if let Some(Condition::Whole) = survive(Frame::whole(&bytes)) {
            // Only if the noise repeats what stood there, or stands behind the packet.
            prop_assert!(bytes.len() >= vector.bytes.len());
            prop_assert!(!vector.trimmed && bytes.starts_with(&vector.bytes));
        }
    }
}

/// Puts the ICRC right that a dissector finds wrong, so that a changed packet passes that check.
fn reseal(bytes: &mut [u8]) {
    let Some(check) = dissect::icrc(Frame::whole(bytes)).filter(|check| !check.is_right()) else {
        return;
    };
    // Where the wrong value stands last is the ICRC's place, but for rare packets that stay wrong then.
    if let Some(at) = bytes.windows(4).rposition(|window| window == check.found) {
        bytes[at..at + 4].copy_from_slice(&check.expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_packets_with_a_right_icrc_never_panic(
        frame in any_frame(),
        mutations in proptest::collection::vec(mutation(), 1..4),
        split in 0..400usize,
    ) {
        let mut bytes = frame;
        for change in &mutations {
            mutate(&mut bytes, change);
        }
        reseal(&mut bytes);
        let bytes = bytes.into_boxed_slice();
        let (head, tail) = bytes.split_at(split.min(bytes.len()));
        prop_assert_eq!(survive(Frame { head, tail }), survive(Frame::whole(&bytes)));
    }
}
