//! Frames through real `AF_XDP` ports on a veth pair.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod common;

use common::{Netns, exchange, mrc_frame, open_port, privileged};
use mrc_dataplane::port::Port;

#[test]
fn frames_of_every_length_pass_unchanged_both_ways() {
    if !privileged("frames_of_every_length_pass_unchanged_both_ways") {
        return;
    }
    let (a, b) = (Netns::new(), Netns::new());
    a.join(&b, "p1", 1, 9000);
    let (mut left, mut right) = (open_port(&a, 9000), open_port(&b, 9000));
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
