//! The Wireshark dissector beside the decoder of `mrc-wire`: both must see the same in every packet.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::tshark::{Shown, Tshark};
use support::*;

/// Fields that `mrc-dump` has no name for. All but the reserved ones are compared under another name.
const OTHERS: &[&str] = &[
    "mrc.ev",
    "mrc.ev.src_port",
    "mrc.ev.flow_label",
    "mrc.dscp",
    "mrc.ecn",
    "mrc.trimmed",
    "mrc.srv6",
    "mrc.srv6.block",
    "mrc.srv6.usid",
    "mrc.seth.trigger_psn",
    "mrc.seth.base_psn",
    "mrc.seth.missing",
    "mrc.data",
    "mrc.data.len",
    "mrc.pad",
    "mrc.icrc",
    "mrc.icrc.expected",
    "mrc.icrc.ok",
];

fn capture(dir: &tempfile::TempDir, frames: &[Vec<u8>]) -> PathBuf {
    file(dir, "capture.pcap", &ethernet(frames))
}

fn decoded(path: &Path) -> Vec<Value> {
    run(&["decode", "--json", "--data", text(path)]).objects()
}

/// As a number, whatever base it is written in.
fn number(text: &str) -> i128 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{text} is no number"))
}

fn number_of(value: &Value) -> i128 {
    value
        .as_i64()
        .map_or_else(|| number(value.as_str().unwrap()), i128::from)
}

#[test]
fn every_field_of_every_worked_packet_is_what_mrc_wire_decodes() {
    let Some(tshark) = Tshark::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = capture(
        &dir,
        &vectors()
            .iter()
            .map(|each| unhex(each["hex"].as_str().unwrap()))
            .collect::<Vec<_>>(),
    );
    let shown = tshark.read(&path, &[]);
    let decoded = decoded(&path);
    assert_eq!(shown.len(), decoded.len());
    let mut seen = BTreeSet::new();
    for ((vector, shown), decoded) in vectors().iter().zip(&shown).zip(&decoded) {
        let name = vector["name"].as_str().unwrap();
        // Each header is a field as well.
        let mut compared: BTreeSet<String> = decoded
            .as_object()
            .unwrap()
            .keys()
            .map(|name| format!("mrc.{name}"))
            .collect();
        for (section, fields) in decoded.as_object().unwrap() {
            if section == "immdt" {
                assert_eq!(number(shown.one("mrc.immdt.data")), number_of(fields), "{name}");
                compared.insert("mrc.immdt.data".to_owned());
            }
            let Some(fields) = fields.as_object() else { continue };
            if ["eth", "vlan", "ipv4", "ipv6", "outer", "srh", "udp"].contains(&section.as_str()) {
                continue;
            }
            for (field, value) in fields
                .iter()
                .filter(|(field, _)| !["name", "meaning"].contains(&field.as_str()))
            {
                let field = format!("mrc.{section}.{field}");
                assert_eq!(number(shown.one(&field)), number_of(value), "{name}: {field}");
                compared.insert(field);
            }
        }
        for field in shown.fields.keys().filter(|field| !compared.contains(*field)) {
            let reserved = field.rsplit('.').next().is_some_and(|last| last.starts_with("res"));
            if reserved {
                assert_eq!(number(shown.one(field)), 0, "{name}: {field}");
            } else {
                assert!(
                    OTHERS.contains(&field.as_str()),
                    "{name}: {field} is compared with nothing"
                );
            }
        }
        seen.extend(compared);
        compare_the_rest(name, shown, decoded);
    }
    // With this many packets no field of the table is left out, but those that only broken packets have.
    let unseen: Vec<String> = tshark
        .fields()
        .into_iter()
        .filter(|field| !seen.contains(field) && !OTHERS.contains(&field.as_str()))
        .filter(|field| field.matches('.').count() == 2 && !field.contains(".res") && !field.contains(".expert."))
        .collect();
    assert_eq!(unseen, Vec::<String>::new(), "no worked packet has these");
}

fn compare_the_rest(name: &str, shown: &Shown, decoded: &Value) {
    let one = |field| number(shown.one(field));
    assert_eq!(one("mrc.ev"), number_of(&decoded["ev"]), "{name}");
    assert_eq!(one("mrc.ev.src_port"), number_of(&decoded["udp"]["src_port"]), "{name}");
    if let Some(ipv6) = decoded["ipv6"].as_object() {
        assert_eq!(one("mrc.ev.flow_label"), number_of(&ipv6["flow_label"]), "{name}");
    }
    assert_eq!(one("mrc.dscp"), number_of(&decoded["dscp"]), "{name}");
    assert_eq!(one("mrc.ecn"), number_of(&decoded["ecn"]), "{name}");
    assert_eq!(shown.is("mrc.trimmed"), decoded["trimmed"] == true, "{name}");
    assert!(
        shown.info.starts_with(decoded["opcode"].as_str().unwrap()),
        "{name}: {}",
        shown.info
    );
    if let Some(reason) = decoded["neth"]["name"].as_str() {
        assert!(shown.info.contains(reason), "{name}: {}", shown.info);
    }
    if decoded["reth"].is_object() {
        assert_eq!(one("mrc.data.len"), number_of(&decoded["payload_len"]), "{name}");
        let data = decoded["payload"].as_str().unwrap();
        assert_eq!(
            shown.fields.get("mrc.data").map_or("", |data| data[0].as_str()),
            data,
            "{name}"
        );
    }
    match decoded["icrc"].as_str() {
        Some(icrc) => {
            assert_eq!(one("mrc.icrc"), number(&format!("0x{icrc}")), "{name}");
            assert!(shown.is("mrc.icrc.ok"), "{name}");
        }
        None => assert!(!shown.fields.contains_key("mrc.icrc"), "{name}"),
    }
    // wire-format.md §5: what of the containers is not 0.
    let mut usids = Vec::new();
    let containers = [&decoded["outer"]["dst"], &decoded["srh"]["segment_list"][0]];
    for container in containers.into_iter().filter_map(Value::as_str) {
        let container: std::net::Ipv6Addr = container.parse().unwrap();
        usids.extend(
            container.segments()[2..]
                .iter()
                .filter(|usid| **usid != 0)
                .map(|usid| i128::from(*usid)),
        );
    }
    let found = shown.fields.get("mrc.srv6.usid");
    let found: Vec<i128> = found.into_iter().flatten().map(|usid| number(usid)).collect();
    assert_eq!(found, usids, "{name}");
}

/// What a receiver drops for, by the names that `mrc-dump` and the engine's counters have for it.
fn drops(shown: &Shown) -> BTreeSet<String> {
    let names = mrc_wire::DropReason::ALL.map(mrc_wire::DropReason::code);
    shown
        .experts
        .iter()
        .filter(|name| names.contains(&name.as_str()))
        .cloned()
        .collect()
}

/// Both on the same frames: not MRC for the one is not MRC for the other, and a drop has its reason among the expert
/// infos, of which there may be more than one.
fn agree(tshark: &Tshark, dir: &tempfile::TempDir, frames: &[Vec<u8>]) -> BTreeMap<String, usize> {
    let path = capture(dir, frames);
    let (shown, decoded) = (tshark.read_only("mrc.expert.", &path, &[]), decoded(&path));
    assert_eq!((shown.len(), decoded.len()), (frames.len(), frames.len()));
    let mut verdicts = BTreeMap::new();
    for ((frame, shown), decoded) in frames.iter().zip(&shown).zip(&decoded) {
        let what = format!("{} {:?}\n{decoded}\n{}", shown.info, shown.experts, to_hex(frame));
        assert!(!shown.info.contains("Lua Error"), "{what}");
        let reason = decoded["reason"].as_str().unwrap_or("-");
        match decoded["verdict"].as_str().unwrap() {
            // Shown all the same: whoever captures wants to see what the cut packet was.
            verdict if verdict == "cut" || ["ip_length", "payload_short"].contains(&reason) => {
                assert!(!shown.is_mrc() || drops(shown).contains("udp_length"), "{what}");
            }
            "not-mrc" => assert!(!shown.is_mrc(), "{what}"),
            "drop" => assert!(drops(shown).contains(reason), "{what}"),
            // A segment list that contradicts itself: no receiver looks at it, but Wireshark does, and gives up.
            _ if shown.info == "IPv6 routing[Malformed Packet]" => {}
            _ => assert!(shown.is_mrc() && drops(shown).is_empty(), "{what}"),
        }
        *verdicts.entry(reason.to_owned()).or_insert(0) += 1;
    }
    verdicts
}

/// A write one byte too short, with the lengths of the IP and UDP headers and the ICRC to suit.
fn unaligned() -> Vec<u8> {
    let mut frame = bytes_of("write_only_stev_ipv6_tseth_pad");
    frame.remove(frame.len() - 5);
    frame[19] -= 1;
    frame[59] -= 1;
    let icrc = mrc_wire::dissect::icrc(mrc_wire::Frame::whole(&frame)).unwrap();
    let end = frame.len();
    frame[end - 4..].copy_from_slice(&icrc.expected);
    frame
}

#[test]
fn broken_packets_are_marked_with_the_reason_for_which_a_receiver_drops_them() {
    let Some(tshark) = Tshark::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut frames = vec![unaligned()];
    for vector in vectors() {
        let mut frame = unhex(vector["hex"].as_str().unwrap());
        // DSCP_TRIMMED, whole and with a wrong ICRC.
        if frame[12..14] == [0x86, 0xdd] {
            (frame[14], frame[15]) = (0x63, 0x20);
            frames.push(frame.clone());
            *frame.last_mut().unwrap() ^= 1;
            frames.push(frame);
        }
        let frame = unhex(vector["hex"].as_str().unwrap());
        let (headers, bth) = (
            frame.len().min(160),
            frame.len() - vector["icrc_input"].as_str().map_or(0, |_| 4),
        );
        for at in 12..headers {
            for bit in [0, 1, 4, 7] {
                let mut broken = frame.clone();
                broken[at] ^= 1 << bit;
                frames.push(broken.clone());
                // Behind a right ICRC the later checks are reached.
                if let Some(icrc) = mrc_wire::dissect::icrc(mrc_wire::Frame::whole(&broken)).filter(|_| at < bth) {
                    let end = broken.len();
                    broken[end - 4..].copy_from_slice(&icrc.expected);
                    frames.push(broken);
                }
            }
        }
    }
    let verdicts = agree(&tshark, &dir, &frames);
    for reason in mrc_wire::DropReason::ALL.map(mrc_wire::DropReason::code) {
        assert!(
            verdicts.contains_key(reason),
            "no packet was dropped for {reason}: {verdicts:?}"
        );
    }
}

#[test]
fn packets_cut_anywhere_are_shown_as_far_as_they_go() {
    let Some(tshark) = Tshark::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut frames = Vec::new();
    for vector in vectors() {
        let frame = unhex(vector["hex"].as_str().unwrap());
        frames.extend((14..frame.len().min(170)).map(|len| frame[..len].to_vec()));
    }
    agree(&tshark, &dir, &frames);
    // The same by a snap length: the frame was longer on the wire.
    let cut: Vec<(u64, usize, &[u8])> = frames.iter().map(|frame| (0, 400, frame.as_slice())).collect();
    let path = file(&dir, "snapped.pcap", &pcap(1, &cut));
    for shown in tshark.read(&path, &[]) {
        assert!(!shown.info.contains("Lua Error"), "{}", shown.info);
    }
}

/// The RoCEv2 packet of wire-format.md §9.
const CNP: &str = "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b700280000\
                   8100ffff40000118000000000000000000000000000000000000000082fd002a";

fn with_ports(mut frame: Vec<u8>, udp_at: usize, src: u16, dst: u16) -> Vec<u8> {
    frame[udp_at..udp_at + 2].copy_from_slice(&src.to_be_bytes());
    frame[udp_at + 2..udp_at + 4].copy_from_slice(&dst.to_be_bytes());
    frame
}

#[test]
fn other_protocols_keep_their_packets() {
    let Some(tshark) = Tshark::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let ack = bytes_of("transport_ack");
    let frames = [
        unhex(CNP),
        with_ports(unhex(CNP), 34, 53, 4791),
        // Echo, from and to another port; and MRC from the port of echo.
        with_ports(ack.clone(), 54, 7, 4000),
        with_ports(ack.clone(), 54, 4791, 7),
        with_ports(ack.clone(), 54, 7, 4791),
        with_ports(ack, 54, 50_000, 4971),
    ];
    let path = capture(&dir, &frames);
    let protocols = |more: &[&str]| -> Vec<String> {
        tshark
            .read(&path, more)
            .into_iter()
            .map(|shown| shown.protocol)
            .collect()
    };
    assert_eq!(protocols(&[]), ["RRoCE", "DNS", "ECHO", "ECHO", "MRC", "UDP"]);
    let both = ["-o", "mrc.udp_ports:4791,4971"];
    assert_eq!(protocols(&both), ["RRoCE", "DNS", "ECHO", "ECHO", "MRC", "MRC"]);
    let other = ["-o", "mrc.udp_ports:4971"];
    assert_eq!(protocols(&other), ["RRoCE", "DNS", "ECHO", "ECHO", "ECHO", "MRC"]);
    let polite = ["-o", "mrc.any_source:FALSE"];
    assert_eq!(protocols(&polite), ["RRoCE", "DNS", "ECHO", "ECHO", "ECHO", "UDP"]);
    let as_told = ["-d", "udp.port==4971,mrc"];
    assert_eq!(protocols(&as_told), ["RRoCE", "DNS", "ECHO", "ECHO", "MRC", "MRC"]);
}

#[test]
fn fields_serve_in_display_filters_and_preferences_change_what_they_say() {
    let Some(tshark) = Tshark::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = vectors()
        .iter()
        .map(|vector| vector["name"].as_str().unwrap().to_owned())
        .collect();
    let path = capture(&dir, &names.iter().map(|name| bytes_of(name)).collect::<Vec<_>>());
    let matching = |more: &[&str]| -> Vec<String> {
        let mut args = vec!["-r", text(&path), "-T", "fields", "-e", "frame.number"];
        args.extend(more);
        let shown = tshark.run(&args);
        shown
            .lines()
            .map(|line| names[line.parse::<usize>().unwrap() - 1].clone())
            .collect()
    };
    for (filter, expected) in [
        (
            "mrc.bth.opcode == \"WRITE_FIRST\" && mrc.trimmed == 0",
            vec!["write_first_ipv6_wrap"],
        ),
        ("mrc.seth.missing == 5", vec!["sack_two_holes_ecn"]),
        (
            "mrc.seth.trigger_psn == 0x00000b && mrc.seth.base_psn == 5",
            vec!["sack_two_holes_ecn"],
        ),
        ("mrc.seth.sack_offset < 0", vec!["sack_negative_offset"]),
        (
            "mrc.neth.nack_reason == 1 || mrc.neth.nack_reason == 0x0b",
            vec!["nack_trimmed", "nack_oor_window"],
        ),
        ("mrc.ev == 0x00020007", vec!["write_only_srv6_usid"]),
        ("mrc.srv6.usid == 0x010e", vec!["write_only_srv6_srh"]),
        ("mrc.trimmed == 1", vec!["trimmed_min_ipv6", "trimmed_lasthop_128_ipv6"]),
        ("mrc.expert.nak", vec!["transport_nak_access"]),
        ("mrc.erth.port_status_mask & 8 && mrc.bth.psn == 0x1234", vec![]),
        ("mrc.erth.port_status_mask & 4", vec!["ep_req_port_status"]),
    ] {
        assert_eq!(matching(&["-Y", filter]), expected, "{filter}");
    }
    let port_hi = ["-o", "mrc.port_hi:TRUE", "-Y", "mrc.ev == 0x00070002"];
    assert_eq!(matching(&port_hi), ["write_only_srv6_usid"]);
    let other_dscp = ["-o", "mrc.dscp_trimmed:9", "-Y", "mrc.expert.udp_length"];
    assert_eq!(matching(&other_dscp), ["trimmed_min_ipv6"]);
    assert_eq!(
        matching(&["-o", "mrc.check_icrc:FALSE", "-Y", "mrc.icrc.ok"]),
        Vec::<String>::new()
    );
}
