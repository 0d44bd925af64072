//! Files and streams that `mrc-dump decode` reads, and what it says to those that it cannot.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod support;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::{DataLink, Endianness, TsResolution};
use serde_json::json;
use support::*;

fn all_frames() -> Vec<Vec<u8>> {
    vectors()
        .iter()
        .map(|vector| unhex(vector["hex"].as_str().unwrap()))
        .collect()
}

#[test]
fn pcap_files_of_either_byte_order_and_resolution_are_read() {
    let dir = tempfile::tempdir().unwrap();
    for endianness in [Endianness::Big, Endianness::Little] {
        for (ts_resolution, nanos) in [
            (TsResolution::MicroSecond, 123_456_000),
            (TsResolution::NanoSecond, 123_456_789),
        ] {
            let header = PcapHeader {
                endianness,
                ts_resolution,
                ..PcapHeader::default()
            };
            let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
            let frames = all_frames();
            for frame in &frames {
                let time = Duration::new(1_700_000_000, nanos);
                writer
                    .write_packet(&PcapPacket::new(time, frame.len() as u32, frame))
                    .unwrap();
            }
            let path = file(&dir, "a.pcap", &writer.into_writer());
            let run = run(&["decode", "--json", text(&path)]);
            assert_eq!(run.status, 0, "{}", run.stderr);
            let objects = run.objects();
            assert_eq!(objects.len(), frames.len());
            for (at, (object, frame)) in objects.iter().zip(&frames).enumerate() {
                assert_eq!(object["number"], json!(at + 1));
                assert_eq!(object["time"], json!(format!("1700000000.{nanos:09}")));
                assert_eq!(object["captured_len"], json!(frame.len()));
                assert_eq!(object["verdict"], json!("accept"));
            }
        }
    }
}

#[test]
fn pcapng_files_are_read_with_the_resolution_of_each_interface() {
    let dir = tempfile::tempdir().unwrap();
    let frame = bytes_of("transport_ack");
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    // Microseconds without being told, nanoseconds, and 2^-10 s.
    for resolution in [None, Some(9), Some(0x8a)] {
        let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0xffff);
        interface
            .options
            .extend(resolution.map(InterfaceDescriptionOption::IfTsResol));
        writer.write_pcapng_block(interface).unwrap();
    }
    for (interface_id, ticks) in [(0, 5_000_001), (1, 5_000_000_001), (2, 5 * 1024 + 512)] {
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(ticks),
            original_len: frame.len() as u32,
            data: (&frame).into(),
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).unwrap();
    }
    writer
        .write_pcapng_block(SimplePacketBlock {
            original_len: frame.len() as u32,
            data: (&frame).into(),
        })
        .unwrap();
    let path = file(&dir, "a.pcapng", writer.get_ref());
    let run = run(&["decode", "--json", text(&path)]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let times: Vec<_> = run.objects().iter().map(|object| object["time"].clone()).collect();
    assert_eq!(
        times,
        [
            json!("5.000001000"),
            json!("5.000000001"),
            json!("5.500000000"),
            json!(null)
        ]
    );
    assert!(run.objects().iter().all(|object| object["verdict"] == json!("accept")));
}

#[test]
fn standard_input_may_be_a_capture_or_a_frame_per_line() {
    let frames = all_frames();
    let from_pcap = run_with(&["decode", "--json", "-"], &ethernet(&frames));
    assert_eq!((from_pcap.status, from_pcap.objects().len()), (0, frames.len()));
    let lines: Vec<String> = frames.iter().map(|frame| to_hex(frame)).collect();
    let from_lines = run_with(
        &["decode", "--json", "-"],
        format!("{}\n\n", lines.join("\n\n")).as_bytes(),
    );
    assert_eq!((from_lines.status, from_lines.objects().len()), (0, frames.len()));
}

#[test]
fn one_bad_packet_among_good_ones_sets_the_exit_status() {
    let mut frames = all_frames();
    let last = frames[3].len() - 1;
    frames[3][last] ^= 1;
    let run = run_with(&["decode", "--json", "-"], &ethernet(&frames));
    assert_eq!((run.status, run.objects().len()), (1, frames.len()));
    let dropped: Vec<_> = run
        .objects()
        .into_iter()
        .filter(|object| object["verdict"] == json!("drop"))
        .collect();
    assert_eq!(dropped.len(), 1);
    assert_eq!(
        (&dropped[0]["number"], &dropped[0]["reason"]),
        (&json!(4), &json!("icrc"))
    );
}

#[test]
fn a_capture_without_frames_is_no_failure() {
    let run = run_with(&["decode", "-"], &ethernet(&[]));
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
}

#[test]
fn a_capture_that_is_cut_off_shows_what_is_there_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let whole = ethernet(&all_frames()[..3]);
    let two = ethernet(&all_frames()[..2]).len();
    for (len, frames) in [
        (whole.len() - 1, 2),
        (two + 16, 2),
        (two + 3, 2),
        (two - 1, 1),
        (30, 0),
        (23, 0),
    ] {
        let path = file(&dir, "cut.pcap", &whole[..len]);
        let run = run(&["decode", "--json", text(&path)]);
        run.complains(&[text(&path), &format!("after {frames} frames"), "capture again"]);
        assert_eq!(run.objects().len(), frames);
    }
}

#[test]
fn a_frame_that_the_snap_length_cut_is_not_judged_by_what_is_missing() {
    let write = bytes_of("write_first_ipv6_wrap");
    let ack = bytes_of("transport_ack");
    let arp = unhex("ffffffffffff02000000000108060001080006040001");
    let mut two_tags = bytes_of("write_only_srv6_srh");
    two_tags.splice(12..12, [0x81, 0, 0, 1, 0x81, 0, 0, 2]);
    let mut bad_version = write.clone();
    bad_version[14 + 40 + 8 + 1] |= 1;
    // Only bytes behind the IP packet are missing.
    let padded = (1_000_000, ack.len() + 4, ack.as_slice());
    let capture = pcap(
        1,
        &[
            (1_000_000, write.len(), &write[..150]),
            (1_000_000, write.len(), &write[..40]),
            (1_000_000, 60, &arp),
            padded,
            (1_000_000, bad_version.len(), &bad_version[..150]),
            (1_000_000, two_tags.len(), &two_tags[..150]),
        ],
    );
    let run = run_with(&["decode", "--json", "-"], &capture);
    let verdicts: Vec<String> = run
        .objects()
        .iter()
        .map(|object| {
            format!(
                "{} {}",
                object["verdict"].as_str().unwrap(),
                object["reason"].as_str().unwrap_or("-")
            )
        })
        .collect();
    assert_eq!(
        verdicts,
        [
            "unknown capture_cut",
            "unknown capture_cut",
            "not-mrc ethertype",
            "accept -",
            "drop tver",
            "not-mrc ethertype",
        ]
    );
    let first = &run.objects()[0];
    assert_eq!(
        (&first["captured_len"], &first["wire_len"]),
        (&json!(150), &json!(write.len()))
    );
    assert_eq!(
        (&first["reth"]["dmalen"], &first["icrc_ok"]),
        (&json!(300), &json!(null))
    );
    assert_eq!(run.status, 1, "only the wrong version is a drop");
}

#[test]
fn cooked_captures_of_any_interface_are_read() {
    let frame = bytes_of("sack_two_holes_ecn");
    let sll2 = [
        &[0x86, 0xdd, 0, 0, 0, 0, 0, 7, 0, 1, 4, 6, 2, 0, 0, 0, 0x0b, 1, 0, 0],
        &frame[14..],
    ]
    .concat();
    let sll = [&[0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0x0b, 1, 0, 0, 0x86, 0xdd], &frame[14..]].concat();
    for (link_type, name, bytes) in [(276, "sll2", sll2), (113, "sll", sll)] {
        let run = run_with(
            &["decode", "--json", "-"],
            &pcap(link_type, &[(0, bytes.len(), &bytes)]),
        );
        let object = run.object();
        assert_eq!((run.status, &object["verdict"]), (0, &json!("accept")), "{name}");
        assert_eq!(object["eth"], json!(null), "{name}: there is no Ethernet header");
        assert_eq!(object[name]["src"], json!("02:00:00:00:0b:01"));
        assert_eq!(object[name]["protocol"], json!("0x86dd"));
        assert_eq!(object["seth"]["mpr"], json!(8));
        let short = support::run_with(&["decode", "--json", "-"], &pcap(link_type, &[(0, 5, &bytes[..5])]));
        assert_eq!(short.object()["verdict"], json!("cut"));
    }
}

#[test]
fn other_link_types_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for (link_type, name) in [
        (105, "IEEE802_11"),
        (101, "RAW"),
        (127, "IEEE802_11_RADIOTAP"),
        (9999, "9999"),
    ] {
        let path = file(&dir, "other.pcap", &pcap(link_type, &[(0, 4, &[1, 2, 3, 4])]));
        let run = run(&["decode", text(&path)]);
        run.complains(&[text(&path), name, "not Ethernet", "convert the file"]);
        assert_eq!(run.stdout, "");
    }
    // pcapng tells it per interface.
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    writer
        .write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::USB_LINUX, 0))
        .unwrap();
    writer
        .write_pcapng_block(SimplePacketBlock {
            original_len: 4,
            data: vec![1, 2, 3, 4].into(),
        })
        .unwrap();
    let path = file(&dir, "other.pcapng", writer.get_ref());
    run(&["decode", text(&path)]).complains(&["USB_LINUX", "not Ethernet"]);
}

#[test]
fn a_pcapng_frame_of_an_unknown_interface_is_damage() {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    writer
        .write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0))
        .unwrap();
    let mut bytes = writer.get_ref().clone();
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    writer
        .write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0))
        .unwrap();
    writer
        .write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::ZERO,
            original_len: 4,
            data: vec![1, 2, 3, 4].into(),
            options: Vec::new(),
        })
        .unwrap();
    let mut packet = writer.get_ref()[bytes.len()..].to_vec();
    let endian_big = bytes[8..12] == [0x1a, 0x2b, 0x3c, 0x4d];
    packet[8..12].copy_from_slice(&if endian_big {
        9u32.to_be_bytes()
    } else {
        9u32.to_le_bytes()
    });
    bytes.extend_from_slice(&packet);
    run_with(&["decode", "-"], &bytes).complains(&["standard input", "interface id: 9"]);
}

#[test]
fn bad_input_is_answered_with_one_line_that_names_it_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let noise = file(&dir, "noise.bin", b"\x7fELF\x00\x01 not a capture");
    let empty = file(&dir, "empty.pcap", b"");
    run(&["decode", text(&noise)]).complains(&[text(&noise), "not a hex digit", "pcapng"]);
    run(&["decode", text(&empty)]).complains(&[text(&empty), "is empty"]);
    run(&["decode", text(dir.path())]).complains(&[text(dir.path()), "check the path"]);
    run(&["decode", "no/such/file.pcap"]).complains(&["no/such/file.pcap", "neither a file nor hex digits"]);
    run(&["decode", ""]).complains(&["neither a file nor hex digits"]);
    run(&["decode", "0200000"]).complains(&["odd number of hex digits (7)", "two digits per byte"]);
    run_with(&["decode", "-"], b"").complains(&["standard input is empty"]);
    run_with(&["decode", "-"], b"02 00 xy").complains(&["standard input", "'x' is not a hex digit"]);
}

#[test]
fn bad_options_are_answered_with_one_line() {
    run(&[]).complains(&["subcommand"]);
    run(&["decode"]).complains(&["<INPUT>", "mrc-dump decode --help"]);
    run(&["encode", "00"]).complains(&["encode"]);
    run(&["decode", "--udp-port", "65536", "00"]).complains(&["65536", "--udp-port"]);
    run(&["decode", "--ev-layout", "middle", "00"]).complains(&["middle", "flow_hi", "port_hi"]);
    run(&["decode", "--dscp", "trimmed", "00"]).complains(&["NAME=VALUE"]);
    run(&["decode", "--dscp", "loud=3", "00"]).complains(&["no DSCP called loud"]);
    run(&["decode", "--dscp", "control=64", "00"]).complains(&["from 0 to 63"]);
    run(&["decode", "--dscp", "control=none", "00"]).complains(&["from 0 to 63"]);
    run(&["decode", "--dscp", "control=12", "00"]).complains(&["trimmed and control are both 12"]);
}

#[test]
fn help_shows_examples_and_exit_statuses() {
    let help = run(&["decode", "--help"]);
    assert_eq!((help.status, help.stderr.as_str()), (0, ""));
    for word in [
        "Examples:",
        "mrc-dump decode capture.pcapng",
        "Exit status:",
        "--udp-port",
        "--ev-layout",
        "--dscp",
    ] {
        assert!(help.stdout.contains(word), "{word}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    // More output than a pipe holds.
    let frames = vec![bytes_of("write_first_ipv6_wrap"); 2000];
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir, "long.pcap", &ethernet(&frames));
    let mut child = Command::new(env!("CARGO_BIN_EXE_mrc-dump"))
        .args(["decode", text(&path)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 16];
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}
