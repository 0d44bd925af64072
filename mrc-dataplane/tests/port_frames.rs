//! Frames through real `AF_XDP` ports on a veth pair.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod common;

use std::sync::Arc;

use common::{Netns, mrc_frame, privileged, wait_until};
use mrc_dataplane::port::{AfXdpPort, LinkState, Port, PortOptions, PortSpec, TxResult, open_ports};
use mrc_wire::PortNum;

fn open(netns: &Netns, mtu: u32) -> AfXdpPort {
    netns.run(move || {
        let spec = PortSpec {
            num: PortNum::new(1).unwrap(),
            name: "p1".into(),
            queue: 0,
            link: Arc::new(LinkState::new(true, mtu, [2, 0, 0, 0, 1, 1])),
        };
        open_ports(&[spec], &PortOptions::default())
            .unwrap_or_else(|error| panic!("{error}"))
            .pop()
            .unwrap()
    })
}

fn send(port: &mut AfXdpPort, frame: &[u8]) {
    let result = port.tx_frame(frame.len(), &mut |head, tail| {
        let (first, second) = frame.split_at(head.len());
        head.copy_from_slice(first);
        tail.copy_from_slice(second);
        true
    });
    assert_eq!(result, TxResult::Queued);
}

fn receive(port: &mut AfXdpPort, frames: &mut Vec<Vec<u8>>) {
    port.rx_batch(64, &mut |frame| frames.push([frame.head, frame.tail].concat()));
}

fn exchange(from: &mut AfXdpPort, to: &mut AfXdpPort, frames: &[Vec<u8>]) {
    // As a protocol would: no more on the way than the receiver has memory for.
    const WINDOW: usize = 192;
    let mut received = Vec::new();
    let mut sent = 0;
    wait_until("all frames have come", || {
        while from.tx_room() > 0 && sent < frames.len().min(received.len() + WINDOW) {
            send(from, &frames[sent]);
            sent += 1;
        }
        from.tx_flush().unwrap();
        receive(to, &mut received);
        received.len() >= frames.len()
    });
    assert_eq!(received.len(), frames.len());
    for (index, (sent, got)) in frames.iter().zip(&received).enumerate() {
        assert!(
            sent == got,
            "frame {index} of {} bytes arrived as {} other bytes",
            sent.len(),
            got.len()
        );
    }
}

#[test]
fn frames_of_every_length_pass_unchanged_both_ways() {
    if !privileged("frames_of_every_length_pass_unchanged_both_ways") {
        return;
    }
    let (a, b) = (Netns::new(), Netns::new());
    a.join(&b, "p1", 1, 9000);
    let (mut left, mut right) = (open(&a, 9000), open(&b, 9000));
    assert_eq!(
        left.mode().to_string(),
        "native, copy, multi-buffer; the driver has no zero-copy"
    );
    // Lengths around one chunk on receipt and on transmission, and the largest of PMTU 4096.
    let lengths = (78..500).chain(3800..3900).chain(4080..4110).chain([4210, 4270]);
    let frames: Vec<_> = lengths
        .enumerate()
        .map(|(seed, len)| mrc_frame(len, seed as u32))
        .collect();
    exchange(&mut left, &mut right, &frames);
    exchange(&mut right, &mut left, &frames);
    // Long and short alternate: what one frame leaves in a descriptor must not stick to the next.
    let frames: Vec<_> = (0..4000)
        .map(|seed| mrc_frame(if seed % 2 == 0 { 4210 } else { 90 }, seed))
        .collect();
    exchange(&mut left, &mut right, &frames);
    exchange(&mut right, &mut left, &frames);
    for port in [&left, &right] {
        let counters = port.counters();
        assert_eq!((counters.tx_busy, counters.rx_dropped, counters.rx_too_long), (0, 0, 0));
    }
}
