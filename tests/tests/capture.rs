//! What a switch sees, as other programs read it.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::path::Path;
use std::process::Command;

use mrc_tests::{Connection, Fabric, Options, built, icrc};
use mrc_verbs::AddressFamily;
use netns_lab::Topology;
use pcap_file::pcap::PcapReader;
use serde_json::Value;

/// Writes of several sizes in both families and with immediates, as the T0 of a leaf saw them. One plane: what went over
/// another would be missing.
fn record(file: &Path) -> u64 {
    let fabric = Fabric::new(&Topology::leaf(2, 1));
    let switch = fabric.lab.node("t0.p1").unwrap();
    let capture = switch.capture("h1", file, "udp port 4791").unwrap();
    for (family, pmtu) in [(AddressFamily::V4, 1024), (AddressFamily::V6, 4096)] {
        let options = Options {
            family,
            pmtu: Some(pmtu),
            ..Options::default()
        };
        let connection = Connection::open(&fabric, &options);
        for (seed, size) in [(1, 1), (2, 3), (3, 100_003), (4, 0), (5, 250_000)] {
            connection.write_and_compare(size, 77, seed);
        }
        let Connection { a, b, .. } = &connection;
        for wr_id in 0..8 {
            b.qp.post_recv(wr_id).unwrap();
            let piece = a.region.slice(0..2_000 * wr_id as usize).unwrap();
            let request = mrc_verbs::SendRequest::write(wr_id, piece, b.region.remote()).with_imm(*b"imm!");
            a.qp.post_write(&request).unwrap();
            assert!(a.completion().is_ok() && b.completion().is_ok());
        }
    }
    let captured = capture.stop().unwrap();
    assert_eq!(captured.dropped, 0);
    captured.packets
}

/// Frames of a pcap file, from the Ethernet header on.
fn frames(file: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(std::fs::File::open(file).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        assert_eq!(packet.data.len(), packet.orig_len as usize, "cut off");
        frames.push(packet.data.into_owned());
    }
    frames
}

/// `mrc-dump decode --json`, one object per packet. It reports success only if no packet would be dropped.
fn decode(file: &Path) -> Vec<Value> {
    let output = Command::new(built("mrc-dump"))
        .args(["decode", "--json"])
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{:?} {text}", output.status);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Chosen fields of each packet by `tshark`.
fn tshark<const N: usize>(file: &Path, fields: [&str; N]) -> Vec<[String; N]> {
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-T", "fields", "-E", "separator=;", "-r"])
        .arg(file);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark is installed (apt-get install tshark)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| {
            let fields: Vec<_> = line.split(';').map(str::to_owned).collect();
            fields.try_into().unwrap()
        })
        .collect()
}

#[test]
fn a_capture_on_a_switch_reads_well_by_mrc_dump_tshark_and_the_specification() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t0.pcap");
    let count = record(&file) as usize;
    let (frames, decoded) = (frames(&file), decode(&file));
    assert_eq!((frames.len(), decoded.len()), (count, count));

    // The calculation of this crate, which shares nothing with the one under test.
    for (number, frame) in frames.iter().enumerate() {
        let packet = &frame[14..];
        assert_eq!(icrc(packet).unwrap(), packet[packet.len() - 4..], "packet {number}");
    }

    for packet in &decoded {
        assert_eq!(packet["verdict"], "accept", "{packet}");
        assert_eq!(packet["icrc_ok"], true, "{packet}");
    }
    let count_of = |opcode: &str| decoded.iter().filter(|packet| packet["opcode"] == opcode).count();
    let seen: Vec<_> = decoded.iter().map(|packet| packet["opcode"].to_string()).collect();
    for opcode in [
        "WRITE_FIRST",
        "WRITE_MIDDLE",
        "WRITE_LAST",
        "WRITE_LAST_IMM",
        "WRITE_ONLY",
        "WRITE_ONLY_IMM",
    ] {
        assert!(count_of(opcode) > 0, "no {opcode} among {seen:?}");
    }
    let versions = |key: &str| decoded.iter().filter(|packet| !packet[key].is_null()).count();
    assert!(versions("ipv4") > 10 && versions("ipv6") > 10);
    assert_eq!(versions("ipv4") + versions("ipv6"), count);

    let seen = tshark(
        &file,
        [
            "udp.dstport",
            "frame.protocols",
            "infiniband.bth.opcode",
            "infiniband.bth.destqp",
            "_ws.malformed",
        ],
    );
    assert_eq!(seen.len(), count);
    for (fields, packet) in seen.iter().zip(&decoded) {
        let [port, layers, opcode, queue_pair, malformed] = fields.each_ref().map(String::as_str);
        assert_eq!((port, malformed), ("4791", ""), "{packet}");
        assert!(layers.ends_with(":udp:infiniband"), "{layers}");
        let bth = &packet["bth"];
        assert_eq!(
            format!("{:#x}", opcode.parse::<u8>().unwrap()),
            bth["opcode"],
            "{packet}"
        );
        assert_eq!(queue_pair, bth["dqp"], "{packet}");
    }
}
