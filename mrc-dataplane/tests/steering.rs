//! The steering program in the kernel's own test run: what goes to the engine and what stays with the kernel, and that the
//! engine would judge the same (wire-format.md §11 steps 1 and 2).

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod common;

use common::{mrc_frame, privileged};
use mrc_ebpf::{Settings, Steering, Verdict, VerdictCounts};
use mrc_wire::{Dscps, EvLayout, Frame, ReceiveRules, Reject, parse};

struct Bench {
    steering: Steering,
    before: VerdictCounts,
}

impl Bench {
    fn new() -> Self {
        let steering = Steering::load("the test", &Settings::new(&[4791, 4971], [12, 16]).unwrap()).unwrap();
        let before = steering.counts().unwrap();
        Self { steering, before }
    }

    /// Without a socket, what would be steered counts as [`Verdict::NoSocket`].
    fn verdict(&mut self, frame: &[u8]) -> Verdict {
        self.steering.run(frame).unwrap();
        let now = self.steering.counts().unwrap();
        let mut risen = Verdict::ALL
            .into_iter()
            .filter(|verdict| now.of(*verdict) > self.before.of(*verdict));
        let verdict = risen.next().unwrap();
        assert!(risen.next().is_none(), "one frame, one verdict");
        self.before = now;
        if verdict == Verdict::NoSocket {
            Verdict::Steered
        } else {
            verdict
        }
    }
}

fn worked_packets() -> Vec<(String, Vec<u8>)> {
    let file: serde_json::Value = serde_json::from_str(include_str!("../wire/tests/vectors.json")).unwrap();
    let packets = file["packets"].as_array().unwrap();
    packets
        .iter()
        .map(|packet| {
            let hex = packet["hex"].as_str().unwrap();
            let bytes = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
            (packet["name"].as_str().unwrap().to_owned(), bytes.collect())
        })
        .collect()
}

fn worked_packet(name: &str) -> Vec<u8> {
    worked_packets().into_iter().find(|(known, _)| known == name).unwrap().1
}

/// The frame with bytes put in at an offset.
fn insert(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    [&frame[..at], bytes, &frame[at..]].concat()
}

fn edit(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn every_worked_packet_is_steered() {
    if !privileged("every_worked_packet_is_steered") {
        return;
    }
    let mut bench = Bench::new();
    for (name, frame) in worked_packets() {
        assert_eq!(bench.verdict(&frame), Verdict::Steered, "{name}");
        let tagged = insert(&frame, 12, &[0x81, 0x00, 0x20, 0x05]);
        assert_eq!(bench.verdict(&tagged), Verdict::Steered, "{name} with a VLAN tag");
    }
}

#[test]
fn everything_else_stays_with_the_kernel() {
    if !privileged("everything_else_stays_with_the_kernel") {
        return;
    }
    let v4 = worked_packet("write_only_ecmp_ipv4");
    let v6 = worked_packet("write_only_stev_ipv6_tseth_pad");
    let srv6 = worked_packet("write_only_srv6_usid");
    let srh = worked_packet("write_only_srv6_srh");
    let tag = [0x81, 0x00, 0x00, 0x05];
    let cases = [
        ("ARP", edit(&v4, 12, &[0x08, 0x06]), Verdict::NotIp),
        ("an IPv6 packet that says IPv4", edit(&v4, 14, &[0x65]), Verdict::NotIp),
        (
            "two VLAN tags",
            insert(&insert(&v4, 12, &tag), 12, &tag),
            Verdict::SecondTag,
        ),
        (
            "an 802.1ad tag",
            insert(&v4, 12, &[0x88, 0xa8, 0, 5]),
            Verdict::SecondTag,
        ),
        ("IPv4 options", edit(&v4, 14, &[0x46]), Verdict::IpOptions),
        ("the first fragment", edit(&v4, 20, &[0x20, 0x00]), Verdict::Fragment),
        ("a later fragment", edit(&v4, 20, &[0x00, 0x10]), Verdict::Fragment),
        ("an IPv6 fragment", edit(&v6, 20, &[44]), Verdict::Fragment),
        ("TCP", edit(&v4, 23, &[6]), Verdict::NotUdp),
        ("ICMPv6", edit(&v6, 20, &[58]), Verdict::NotUdp),
        ("hop-by-hop options", edit(&v6, 20, &[0]), Verdict::NotUdp),
        ("a routing header that is no SRH", edit(&srh, 56, &[3]), Verdict::NotUdp),
        ("an SRH before something else", edit(&srh, 54, &[17]), Verdict::NotUdp),
        ("a tunnel with ICMPv6 in it", edit(&srv6, 60, &[58]), Verdict::NotUdp),
        ("another port", edit(&v4, 36, &[0x12, 0xb5]), Verdict::OtherPort),
        ("RoCEv2: RC SEND only", edit(&v4, 42, &[0x04]), Verdict::OtherOpcode),
        ("RoCEv2: CNP", edit(&v4, 42, &[0x81]), Verdict::OtherOpcode),
        ("an opcode above MRC's", edit(&v4, 42, &[0xe0]), Verdict::OtherOpcode),
        (
            "an IPv4 length beyond the frame",
            edit(&v4, 16, &[0x05, 0xdc]),
            Verdict::BadLength,
        ),
        (
            "an IPv6 length beyond the frame",
            edit(&v6, 18, &[0x05, 0xdc]),
            Verdict::BadLength,
        ),
        (
            "an inner length beyond the outer",
            edit(&srv6, 58, &[0x05, 0xdc]),
            Verdict::BadLength,
        ),
        (
            "less than BTH and ICRC",
            edit(&v4, 16, &[0, 20 + 8 + 15]),
            Verdict::BadLength,
        ),
        ("an empty frame", vec![0; 14], Verdict::NotIp),
    ];
    let mut bench = Bench::new();
    for (what, frame, verdict) in cases {
        assert_eq!(bench.verdict(&frame), verdict, "{what}");
    }
    assert_eq!(
        bench.verdict(&edit(&v4, 36, &4971u16.to_be_bytes())),
        Verdict::Steered,
        "the second port"
    );
}

#[test]
fn an_srh_of_any_length_is_skipped() {
    if !privileged("an_srh_of_any_length_is_skipped") {
        return;
    }
    let srh = worked_packet("write_only_srv6_srh");
    let outer_len = u16::from_be_bytes([srh[18], srh[19]]);
    let mut bench = Bench::new();
    for entries in [0u8, 1, 2, 7, 100, 127] {
        // Ethernet 14, outer IPv6 40, 8 bytes of SRH, then one entry that is taken out.
        let frame = [&srh[..62], &vec![0; 16 * entries as usize], &srh[78..]].concat();
        let frame = edit(&frame, 55, &[2 * entries]);
        let len = outer_len - 16 + 16 * u16::from(entries);
        assert_eq!(
            bench.verdict(&edit(&frame, 18, &len.to_be_bytes())),
            Verdict::Steered,
            "{entries} entries"
        );
        assert_eq!(
            bench.verdict(&edit(&frame, 18, &(len + 1).to_be_bytes())),
            Verdict::BadLength,
            "{entries} entries"
        );
    }
}

#[test]
fn frames_of_several_buffers_are_steered_by_their_whole_length() {
    if !privileged("frames_of_several_buffers_are_steered_by_their_whole_length") {
        return;
    }
    let mut bench = Bench::new();
    let frame = mrc_frame(4210, 1);
    assert_eq!(bench.verdict(&frame), Verdict::Steered);
    assert_eq!(bench.verdict(&frame[..4209]), Verdict::BadLength);
}

#[test]
fn settings_change_at_once() {
    if !privileged("settings_change_at_once") {
        return;
    }
    let mut bench = Bench::new();
    let frame = worked_packet("write_only_ecmp_ipv4");
    // Its IP length is the one from before the cut.
    let trimmed = edit(&worked_packet("trimmed_min_ipv6"), 18, &[0x10, 0x44]);
    bench.steering.set(&Settings::new(&[4792], []).unwrap()).unwrap();
    assert_eq!(bench.verdict(&frame), Verdict::OtherPort);
    bench
        .steering
        .set(&Settings::new(&[1, 2, 3, 4, 5, 6, 7, 4791], []).unwrap())
        .unwrap();
    assert_eq!(bench.verdict(&frame), Verdict::Steered);
    assert_eq!(bench.verdict(&trimmed), Verdict::BadLength);
    bench.steering.set(&Settings::new(&[4791], [12]).unwrap()).unwrap();
    assert_eq!(bench.verdict(&trimmed), Verdict::Steered);
}

/// The engine drops what is not MRC, so a packet that the program steers and the engine disowns would be lost to the kernel.
#[test]
fn the_program_and_the_parser_agree_on_what_is_mrc() {
    if !privileged("the_program_and_the_parser_agree_on_what_is_mrc") {
        return;
    }
    let dscps = Dscps::default();
    let rules = ReceiveRules {
        udp_ports: &[4791, 4971],
        dscps: &dscps,
        ev_layout: EvLayout::FlowHigh,
    };
    let mut frames: Vec<_> = worked_packets().into_iter().map(|(_, frame)| frame).collect();
    let tagged: Vec<_> = frames.iter().map(|frame| insert(frame, 12, &[0x81, 0, 0, 5])).collect();
    frames.extend(tagged);
    let mut bench = Bench::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let mut steered = 0;
    for round in 0..30_000 {
        let mut frame = frames[random(frames.len())].clone();
        for _ in 0..random(3) {
            // Mostly in the headers, and mostly values that mean something.
            let at = random(frame.len().min(110));
            frame[at] = match random(4) {
                0 => random(256) as u8,
                1 => frame[at] ^ (1 << random(8)),
                2 => frame[at].wrapping_add(1),
                _ => [0, 4, 17, 41, 43, 44, 0x45, 0x60, 0xff][random(9)],
            };
        }
        if random(3) == 0 {
            // The kernel's test run takes nothing shorter than an Ethernet header.
            frame.truncate(14 + random(frame.len() - 13));
        }
        let engine = !matches!(parse(Frame::whole(&frame), &rules), Err(Reject::NotMrc(_)));
        let verdict = bench.verdict(&frame);
        steered += usize::from(engine);
        assert_eq!(
            verdict == Verdict::Steered,
            engine,
            "round {round}: {verdict}, {:?}: {frame:02x?}",
            parse(Frame::whole(&frame), &rules)
        );
    }
    assert!(
        (3_000..27_000).contains(&steered),
        "{steered} of 30000 frames were MRC: the test has lost its balance"
    );
}
