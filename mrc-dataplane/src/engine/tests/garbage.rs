//! Frames that nobody should have sent: counted, never a panic, never a byte written.

use std::sync::mpsc::channel;

use super::*;
use crate::port::Fate;

/// Lets `spoil` change the frames that A sends, for a while, and says what B counted.
fn spoil(change: impl FnMut(&mut Vec<u8>) + Send + 'static) -> (Rig, super::super::Snapshot) {
    let mut change = change;
    let mut rig = Rig::new(&Choice::default());
    let (spoiled, wait) = channel();
    rig.links[0].judge(0, move |frame| {
        change(frame);
        // The receiver goes when the test has seen enough.
        let _ = spoiled.send(());
        Fate::Deliver
    });
    let target = rig.b.target();
    rig.a.write(1, &target, 0, 10_000);
    for _ in 0..3 {
        wait.recv_timeout(Duration::from_secs(30)).unwrap();
    }
    rig.links[0].blackhole(0, true);
    let counters = wait_for("B to count", || {
        let counters = rig.b.engine.counters();
        (counters.drops.iter().map(|(_, count)| count).sum::<u64>() >= 3).then_some(counters)
    });
    assert_eq!(
        rig.b.memory.read(0, 10_000),
        [0; 10_000],
        "spoiled frames wrote something"
    );
    (rig, counters)
}

/// Offset of the UDP header in our IPv4 frames.
const UDP: usize = 34;
const BTH: usize = UDP + 8;

/// Makes the ICRC right again, so that the lie is believed so far.
fn reseal(frame: &mut [u8]) {
    let end = frame.len() - 4;
    let mut masked = vec![0xff; 8];
    masked.extend_from_slice(&frame[14..end]);
    for at in [1, 8, 10, 11, 26, 27, 32] {
        masked[8 + at] = 0xff;
    }
    let crc = crc32(&masked);
    frame[end..].copy_from_slice(&crc.to_le_bytes());
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

#[test]
fn a_flipped_bit_fails_the_icrc() {
    let (_rig, counters) = spoil(|frame| {
        if let Some(byte) = frame.get_mut(BTH + 40) {
            *byte ^= 4;
        }
    });
    assert!(counters.dropped("malformed.icrc") >= 3, "{counters:?}");
}

#[test]
fn an_unknown_queue_pair_is_counted() {
    let (_rig, counters) = spoil(|frame| {
        frame[BTH + 7] ^= 1;
        reseal(frame);
    });
    assert!(counters.dropped("engine.unknown_qp") >= 3, "{counters:?}");
}

#[test]
fn a_packet_from_another_address_is_counted() {
    let (_rig, counters) = spoil(|frame| {
        frame[29] = 77;
        fix_ipv4_checksum(frame);
        reseal(frame);
    });
    assert!(counters.dropped("engine.wrong_source") >= 3, "{counters:?}");
}

#[test]
fn a_packet_to_another_address_is_counted() {
    let (_rig, counters) = spoil(|frame| {
        frame[33] = 77;
        fix_ipv4_checksum(frame);
        reseal(frame);
    });
    assert!(counters.dropped("engine.wrong_destination") >= 3, "{counters:?}");
}

fn fix_ipv4_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let mut sum: u32 = frame[14..34]
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[test]
fn random_and_truncated_frames_only_count() {
    let mut seed = 1;
    let (_rig, counters) = spoil(move |frame| {
        seed += 1;
        let noise = pattern(seed, frame.len());
        match seed % 3 {
            0 => frame.copy_from_slice(&noise),
            1 => frame.truncate(noise[0] as usize % frame.len()),
            _ => {
                let at = usize::from(u16::from_le_bytes([noise[0], noise[1]])) % (frame.len() - 14) + 14;
                frame[at] ^= noise[2] | 1;
            }
        }
    });
    assert!(counters.drops.iter().map(|(_, count)| count).sum::<u64>() >= 3);
}
