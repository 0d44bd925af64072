//! What `mrc-dump summary` adds up, and which packets filters let through.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod support;

use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use serde_json::{Value, json};
use support::*;

const TX: u32 = 2;
const RX: u32 = 1;

/// A capture as engines write them: ports p1 and p2, a millisecond between packets, two dropped on each port.
fn pcapng(frames: &[(u32, u32, Vec<u8>)]) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    for name in ["p1", "p2"] {
        let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
        interface.options = vec![
            InterfaceDescriptionOption::IfName(name.into()),
            InterfaceDescriptionOption::IfTsResol(9),
        ];
        writer.write_pcapng_block(interface).unwrap();
    }
    for (at, (interface_id, direction, frame)) in frames.iter().enumerate() {
        let block = EnhancedPacketBlock {
            interface_id: *interface_id,
            timestamp: Duration::from_millis(1_000 + at as u64),
            original_len: frame.len() as u32,
            data: frame.into(),
            options: vec![EnhancedPacketOption::Flags(*direction)],
        };
        writer.write_pcapng_block(block).unwrap();
    }
    for interface_id in 0..2 {
        let block = InterfaceStatisticsBlock {
            interface_id,
            timestamp: 0,
            options: vec![InterfaceStatisticsOption::IsbIfDrop(2)],
        };
        writer.write_pcapng_block(block).unwrap();
    }
    writer.get_ref().clone()
}

/// Writes to 0xa5 and what comes back to 0x11, seen by the requestor; and an endpoint request, a probe, noise.
fn conversation() -> Vec<(u32, u32, Vec<u8>)> {
    let mut broken = bytes_of("write_only_stev_ipv6_tseth_pad");
    *broken.last_mut().unwrap() ^= 1;
    vec![
        (0, TX, bytes_of("write_first_ipv6_wrap")),
        (1, TX, bytes_of("write_last_imm_ipv6")),
        (1, TX, bytes_of("write_only_imm_rtx")),
        (0, TX, broken),
        (0, TX, bytes_of("trimmed_min_ipv6")),
        (0, TX, bytes_of("reliability_probe")),
        (0, RX, bytes_of("sack_two_holes_ecn")),
        (0, RX, bytes_of("nack_trimmed")),
        (1, RX, bytes_of("transport_ack")),
        (1, RX, bytes_of("transport_nak_access")),
        (1, TX, bytes_of("ep_req_ev_probe")),
        (1, RX, vec![0xff; 60]),
    ]
}

fn summary(more: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir, "a.pcapng", &pcapng(&conversation()));
    let mut args = vec!["summary", "--json", text(&path)];
    args.extend(more);
    let run = run(&args);
    assert_eq!(run.status, 0, "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn a_summary_counts_each_queue_pair_and_joins_both_directions_of_a_connection() {
    let summary = summary(&[]);
    let bytes: usize = conversation().iter().map(|(_, _, frame)| frame.len()).sum();
    assert_eq!((&summary["packets"], &summary["bytes"]), (&json!(12), &json!(bytes)));
    assert!((summary["seconds"].as_f64().unwrap() - 0.011).abs() < 1e-9);
    assert_eq!(
        (&summary["not_mrc"], &summary["dropped_by_capture"]),
        (&json!(1), &json!(4))
    );
    assert_eq!(summary["interfaces"]["p1"], json!({"tx": 4, "rx": 2, "unknown": 0}));
    assert_eq!(summary["interfaces"]["p2"], json!({"tx": 3, "rx": 3, "unknown": 0}));
    let flows = summary["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 3);
    let [out, back, endpoint] = [&flows[0], &flows[1], &flows[2]];
    assert_eq!((&out["qp"], &out["from_qp"]), (&json!("0x0000a5"), &json!("0x000011")));
    assert_eq!(
        (&back["qp"], &back["from_qp"]),
        (&json!("0x000011"), &json!("0x0000a5"))
    );
    assert_eq!(
        (&out["connection"], &back["connection"], &endpoint["connection"]),
        (&json!(1), &json!(1), &json!(2))
    );
    assert_eq!(
        (&out["from"], &out["to"]),
        (&json!("2001:db8:a::1"), &json!("2001:db8:b::1"))
    );
    for (field, expected) in [
        ("packets", 6),
        ("writes", 5),
        ("data_bytes", 256 + 44 + 4 + 5),
        ("retransmitted", 1),
        ("probes", 1),
        ("trimmed", 1),
        ("bad", 1),
        ("ce", 0),
        ("sacks", 0),
    ] {
        assert_eq!(out[field], json!(expected), "{field} of {out}");
    }
    for (field, expected) in [
        ("packets", 4),
        ("sacks", 1),
        ("nacks", 1),
        ("acks", 1),
        ("naks", 1),
        ("bad", 0),
    ] {
        assert_eq!(back[field], json!(expected), "{field} of {back}");
    }
    assert_eq!(back["nack_reasons"], json!({"TRIMMED": 1}));
    assert_eq!(endpoint["endpoint"], json!(1));
}

#[test]
fn paths_have_what_was_sent_on_them_and_what_the_receiver_said_of_them() {
    let summary = summary(&[]);
    let evs = summary["flows"][0]["evs"].as_array().unwrap();
    let of = |ev: &str| {
        evs.iter()
            .find(|each| each["ev"] == ev)
            .unwrap_or_else(|| panic!("no {ev} in {evs:?}"))
    };
    // The write and what was left of it further on.
    let first = of("0x00aa9c01");
    assert_eq!(
        (&first["packets"], &first["trimmed"], &first["nacked"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(first["interfaces"], json!(["p1"]));
    // The one that the SACK calls marked.
    let marked = of("0x012b45c7");
    assert_eq!(
        (
            &marked["packets"],
            &marked["sacked"],
            &marked["skip_once"],
            &marked["always_skip"]
        ),
        (&json!(1), &json!(1), &json!(1), &json!(0))
    );
    let again = of("0x00ad9c04");
    assert_eq!((&again["retransmitted"], &again["sacked"]), (&json!(1), &json!(0)));
    assert_eq!(summary["flows"][1]["evs"].as_array().unwrap().len(), 4);
}

#[test]
fn the_text_of_a_summary_fits_a_page_and_says_what_it_leaves_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir, "a.pcapng", &pcapng(&conversation()));
    let shown = run(&["summary", "--evs", "2", text(&path)]).stdout;
    for line in [
        "12 packets, ",
        "; 1 not MRC, 4 dropped by the capture",
        "  p1: 4 sent, 2 received",
        "0x0000a5 2001:db8:a::1 > 2001:db8:b::1: 5 EVs",
        "  NACKs: 1 TRIMMED",
        "  and 3 more: --evs 5",
    ] {
        assert!(shown.contains(line), "no {line:?} in\n{shown}");
    }
    let head = shown.lines().find(|line| line.contains("RTX")).unwrap();
    let row = shown
        .lines()
        .find(|line| line.contains("0x0000a5") && line.contains("0x000011"))
        .unwrap();
    let cell = |name: &str| {
        let end = head.find(name).unwrap() + name.len();
        row[..end].split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(
        (cell("PACKETS"), cell("RTX"), cell("PROBE"), cell("BAD")),
        ("6".into(), "1".into(), "1".into(), "1".into())
    );
    assert!(shown.lines().all(|line| line.len() <= 180), "{shown}");
}

#[test]
fn captures_without_mrc_or_without_anything_have_a_summary() {
    let empty = run_with(&["summary", "-"], &ethernet(&[]));
    assert_eq!(
        (empty.status, empty.stdout.as_str()),
        (
            0,
            "0 packets, 0 bytes in 0.000000 s; 0 not MRC, 0 dropped by the capture\n"
        )
    );
    let noise = run_with(&["summary", "-"], &ethernet(&[vec![0xff; 60]]));
    assert!(
        noise.stdout.starts_with("1 packets, 60 bytes in 0.000000 s; 1 not MRC"),
        "{}",
        noise.stdout
    );
    run(&["summary", "no/such/file"]).complains(&["no/such/file"]);
    run(&["summary"]).complains(&["FILE"]);
}

#[test]
fn filters_choose_packets_of_a_file_by_what_they_are_and_where_they_were_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir, "a.pcapng", &pcapng(&conversation()));
    let numbers = |filter: &str| -> Vec<u64> {
        let run = run(&["decode", "--json", "--filter", filter, text(&path)]);
        assert_eq!(run.stderr, "");
        run.objects()
            .iter()
            .map(|object| object["number"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(numbers(""), (1..=12).collect::<Vec<_>>());
    assert_eq!(numbers("qp=0x11"), [7, 8, 9, 10]);
    assert_eq!(numbers("port=p2 dir=rx"), [9, 10, 12]);
    assert_eq!(numbers("port=1 opcode=write,probe"), [1, 4, 5, 6]);
    assert_eq!(numbers("about=0x00aa9c01"), [8]);
    assert_eq!(numbers("ev=0x00aa9c01 opcode=write"), [1, 5]);
    run(&["decode", "--filter", "color=red", text(&path)]).complains(&["color=red", "is no filter", "use qp="]);

    let first = &run(&["decode", "--json", text(&path)]).objects()[0];
    assert_eq!((&first["interface"], &first["direction"]), (&json!("p1"), &json!("tx")));
    let shown = run(&["decode", "--filter", "opcode=nack", text(&path)]).stdout;
    assert!(shown.contains("  p1 rx  98 bytes  NACK  "), "{shown}");
    assert_eq!(summary(&["--filter", "dir=tx"])["packets"], json!(7));
}

#[test]
fn filters_see_the_headers_of_cut_frames() {
    let write = bytes_of("write_first_ipv6_wrap");
    let capture = pcap(1, &[(0, write.len(), &write[..100])]);
    let run = run_with(
        &["decode", "--json", "--filter", "qp=0xa5 ev=0x00aa9c01", "-"],
        &capture,
    );
    assert_eq!(run.object()["verdict"], json!("unknown"));
    let cut = to_hex(&write[..100]);
    let cut = support::run(&["decode", "--json", "--filter", "opcode=write_first", &cut]);
    assert_eq!((cut.status, &cut.object()["verdict"]), (1, &json!("cut")));
}
