//! `mrc-dump live` with a test in the engine's place: what is said over the control socket, and what comes of it.
//! A capture from a real engine is in the tests across crates.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

use mrc_capture::control;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use serde_json::json;
use support::*;

/// How the test's engine behaves.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Three packets, then patience until the client has enough, then statistics.
    Proper,
    /// As many, and then nothing more.
    Dies,
    Refuses,
}

fn packets() -> Vec<Vec<u8>> {
    ["write_first_ipv6_wrap", "sack_two_holes_ecn", "transport_ack"]
        .map(bytes_of)
        .to_vec()
}

/// Serves one client, and returns its request.
fn engine(directory: &Path, pid: u32, manner: Manner) -> JoinHandle<String> {
    let listener = UnixListener::bind(control::socket(directory, pid, 1)).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut request = String::new();
        lines.read_line(&mut request).unwrap();
        let mut stream = stream;
        if manner == Manner::Refuses {
            // A client that only looks has gone by now.
            let _ = stream.write_all(b"error: not today: come back tomorrow\n");
            return request;
        }
        stream.write_all(b"ok\n").unwrap();
        let mut writer = PcapNgWriter::new(stream).unwrap();
        writer
            .write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0))
            .unwrap();
        for frame in packets() {
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: std::time::Duration::ZERO,
                original_len: frame.len() as u32,
                data: frame.into(),
                options: Vec::new(),
            };
            writer.write_pcapng_block(block).unwrap();
        }
        if manner == Manner::Proper {
            lines.read_to_end(&mut Vec::new()).unwrap();
            let block = InterfaceStatisticsBlock {
                interface_id: 0,
                timestamp: 0,
                options: vec![InterfaceStatisticsOption::IsbIfDrop(7)],
            };
            writer.write_pcapng_block(block).unwrap();
        }
        request
    })
}

fn live(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mrc-dump"))
        .arg("live")
        .args(args)
        .env("MRC_CONTROL", directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn packets_are_shown_until_there_are_enough_and_the_drops_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path(), 12, Manner::Proper);
    let args = [
        "--json",
        "--count",
        "3",
        "--filter",
        "qp=0x11,0xa5 dir=tx",
        "--snaplen",
        "128",
        "--buffer",
        "99",
    ];
    let output = live(directory.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        engine.join().unwrap(),
        "capture snaplen=128 buffer=99 qp=0x11,0xa5 dir=tx\n"
    );
    // What the engine sends is shown even where it knows of no direction: it has filtered.
    let shown = String::from_utf8(output.stdout).unwrap();
    let opcodes: Vec<serde_json::Value> = shown
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["opcode"].clone())
        .collect();
    assert_eq!(opcodes, [json!("WRITE_FIRST"), json!("SACK"), json!("ACK")]);
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "3 packets captured, 7 dropped for want of buffers\n"
    );
}

#[test]
fn the_stream_can_be_written_to_a_file_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pcapng");
    let engine = engine(directory.path(), 12, Manner::Proper);
    let output = live(directory.path(), &["12", "-c", "1", "-w", text(&path)]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
    engine.join().unwrap();
    assert_eq!(run(&["decode", "--json", text(&path)]).objects().len(), packets().len());
    let summary = run(&["summary", text(&path)]).stdout;
    assert!(summary.contains("7 dropped by the capture"), "{summary}");
}

#[test]
fn an_engine_that_ends_leaves_what_it_has_sent() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path(), 12, Manner::Dies);
    let output = live(directory.path(), &["--json"]);
    engine.join().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("3 packets captured") && said.contains("the engine ended without a word"),
        "{said}"
    );
}

#[test]
fn what_is_wrong_is_said_in_a_line_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let said = complaint(&live(at, &[]));
    assert!(
        said.contains("no engine listens in") && said.contains("MRC_CONTROL="),
        "{said}"
    );
    let said = complaint(&live(at, &["4711"]));
    assert!(said.contains("no engine of process 4711 listens in"), "{said}");
    let said = complaint(&live(at, &["./none.sock"]));
    assert!(
        said.contains("cannot reach ./none.sock") && said.contains("still running"),
        "{said}"
    );
    let said = complaint(&live(&at.join("none"), &[]));
    assert!(said.contains("cannot look into"), "{said}");
    let said = complaint(&live(at, &["--filter", "x"]));
    assert!(said.contains("is no filter"), "{said}");
    let said = complaint(&live(at, &["--snaplen", "0"]));
    assert!(said.contains("--snaplen"), "{said}");

    let refusing = engine(at, 12, Manner::Refuses);
    let said = complaint(&live(at, &[]));
    refusing.join().unwrap();
    assert!(said.contains("the engine says: not today"), "{said}");

    // The first one's socket is left over: nobody listens there.
    let (second, third) = (engine(at, 13, Manner::Refuses), engine(at, 14, Manner::Refuses));
    let said = complaint(&live(at, &[]));
    assert!(
        said.contains("2 engines listen") && said.contains("mrc-13.sock") && said.contains("mrc-14.sock"),
        "{said}"
    );
    assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
    // Both have seen a client come and go.
    assert_eq!(
        (second.join().unwrap(), third.join().unwrap()),
        (String::new(), String::new())
    );

    let output = Command::new(env!("CARGO_BIN_EXE_mrc-dump"))
        .arg("live")
        .env_remove("MRC_CONTROL")
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap();
    let said = complaint(&output);
    assert!(said.contains("set MRC_CONTROL"), "{said}");
}
