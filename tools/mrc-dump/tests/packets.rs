//! What `mrc-dump decode` says about single packets.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod support;

use serde_json::{Value, json};
use support::*;

#[test]
fn every_field_of_every_worked_packet_is_shown() {
    for vector in vectors() {
        let name = vector["name"].as_str().unwrap();
        let run = run(&["decode", "--json", "--data", vector["hex"].as_str().unwrap()]);
        assert_eq!(run.status, 0, "{name}: {}", run.stderr);
        let shown = run.object();
        let decoded = vector["decoded"].as_object().unwrap();
        for (key, expected) in decoded {
            match key.as_str() {
                "entropy" => assert_eq!(shown["ev"], *expected, "{name}"),
                "payload" => {
                    assert_eq!(shown["payload_len"], expected["length"], "{name}");
                    assert_eq!(shown["payload"], expected["hex"], "{name}");
                }
                "cut" => {}
                key => {
                    let section = &shown[if key == "outer_ipv6" { "outer" } else { key }];
                    let Some(fields) = expected.as_object() else {
                        assert_eq!(section, expected, "{name}: {key}");
                        continue;
                    };
                    for (field, value) in fields {
                        assert_eq!(section[field], *value, "{name}: {key}.{field}");
                    }
                }
            }
        }
        let ip = if decoded.contains_key("ipv4") {
            &decoded["ipv4"]
        } else {
            &decoded["ipv6"]
        };
        assert_eq!(shown["opcode"], decoded["bth"]["name"]);
        assert_eq!((&shown["dscp"], &shown["ecn"]), (&ip["dscp"], &ip["ecn"]), "{name}");
        assert_eq!(shown["trimmed"], vector["trimmed"], "{name}");
        let icrc_ok = if vector["trimmed"] == json!(true) {
            Value::Null
        } else {
            json!(true)
        };
        assert_eq!(shown["icrc_ok"], icrc_ok, "{name}");
        assert_eq!(
            (&shown["verdict"], &shown["reason"]),
            (&json!("accept"), &Value::Null),
            "{name}"
        );
    }
}

#[test]
fn the_text_holds_every_field_that_the_json_holds() {
    for vector in vectors() {
        let hex = vector["hex"].as_str().unwrap();
        let object = run(&["decode", "--json", hex]).object();
        let shown = run(&["decode", hex]);
        assert_eq!(shown.status, 0);
        for (section, fields) in object.as_object().unwrap() {
            let Some(fields) = fields.as_object() else { continue };
            assert!(
                shown.stdout.contains(&format!("\n  {section} ")),
                "{section} in\n{}",
                shown.stdout
            );
            for (field, value) in fields {
                let value = match value {
                    Value::String(text) => text.clone(),
                    Value::Null => "-".to_owned(),
                    Value::Array(list) => list[0].as_str().unwrap().to_owned(),
                    other => other.to_string(),
                };
                assert!(
                    shown.stdout.contains(&format!("{field}={value}")),
                    "{field}={value} in\n{}",
                    shown.stdout
                );
            }
        }
        assert!(shown.stdout.contains("  accept\n"));
        assert!(shown.stdout.lines().all(|line| line.len() <= 120), "{}", shown.stdout);
    }
}

#[test]
fn hex_may_have_spaces_colons_and_line_breaks_and_come_in_several_arguments() {
    let hex = hex_of("transport_ack");
    let plain = run(&["decode", "--json", &hex]);
    let pairs: Vec<&str> = hex
        .as_bytes()
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap())
        .collect();
    for spelled in [
        pairs.join(" "),
        pairs.join(":"),
        pairs.join("\n"),
        hex.to_uppercase(),
        format!(" {hex}\n"),
        format!("0x{hex}"),
    ] {
        assert_eq!(run(&["decode", "--json", &spelled]).stdout, plain.stdout);
    }
    let mut args = vec!["decode", "--json"];
    args.extend(pairs.iter().copied());
    assert_eq!(run(&args).stdout, plain.stdout);
}

fn flipped(name: &str, at: isize, bits: u8) -> String {
    let mut bytes = bytes_of(name);
    let at = if at < 0 {
        bytes.len() - at.unsigned_abs()
    } else {
        at.unsigned_abs()
    };
    bytes[at] ^= bits;
    to_hex(&bytes)
}

const BTH: isize = 14 + 40 + 8;

#[test]
fn a_wrong_icrc_is_a_drop_that_still_shows_everything() {
    let run = run(&["decode", "--json", &flipped("sack_two_holes_ecn", -1, 1)]);
    assert_eq!(run.status, 1);
    let object = run.object();
    assert_eq!(
        (&object["verdict"], &object["reason"]),
        (&json!("drop"), &json!("icrc"))
    );
    assert_eq!(object["icrc_ok"], json!(false));
    assert_eq!(
        (&object["icrc"], &object["icrc_expected"]),
        (&json!("7c5cd8e0"), &json!("7c5cd8e1"))
    );
    assert_eq!(object["seth"]["sack_bitmap"], json!("0x0000000000000076"));
    assert_eq!(object["opcode"], json!("SACK"));
    let text = support::run(&["decode", &flipped("sack_two_holes_ecn", -1, 1)]);
    assert!(text.stdout.contains("drop icrc: ICRC is wrong"), "{}", text.stdout);
    assert!(
        text.stdout.contains("7c5cd8e0 WRONG, expected 7c5cd8e1"),
        "{}",
        text.stdout
    );
}

#[test]
fn dropped_packets_are_shown_as_far_as_they_decode() {
    for (hex, reason, opcode, section) in [
        (flipped("write_first_ipv6_wrap", BTH, 0x0a), "opcode", "0xcc", "bth"),
        (
            flipped("write_first_ipv6_wrap", BTH + 1, 1),
            "tver",
            "WRITE_FIRST",
            "reth",
        ),
        (
            flipped("write_first_ipv6_wrap", 14 + 5, 0x10),
            "udp_length",
            "WRITE_FIRST",
            "reth",
        ),
        (flipped("write_only_ecmp_ipv4", 24, 1), "checksum", "WRITE_ONLY", "reth"),
        (flipped("ep_req_ev_probe", BTH + 7, 1), "icrc", "EP_REQ", "erth"),
    ] {
        let run = run(&["decode", "--json", &hex]);
        let object = run.object();
        assert_eq!(object["reason"], json!(reason));
        assert_eq!((run.status, &object["verdict"]), (1, &json!("drop")), "{reason}");
        assert_eq!(object["opcode"], json!(opcode));
        assert!(object[section].is_object(), "{reason}: no {section}");
        assert!(!object["detail"].as_str().unwrap().is_empty());
    }
    let unknown = run(&["decode", "--json", &flipped("write_first_ipv6_wrap", BTH, 0x0a)]).object();
    assert_eq!(unknown["bth"]["opcode"], json!("0xcc"));
    assert_eq!(unknown["bth"]["name"], Value::Null);
    assert_eq!(unknown["bth"]["psn"], json!("0xfffffe"));
}

#[test]
fn reserved_bits_that_are_set_are_shown() {
    let object = run(&["decode", "--json", &flipped("write_first_ipv6_wrap", BTH + 4, 0x5a)]).object();
    assert_eq!(object["bth"]["var_res"], json!("0x5a"));
    assert_eq!(object["verdict"], json!("accept"), "var_res is masked in the ICRC");
    let object = run(&["decode", "--json", &flipped("write_first_ipv6_wrap", BTH + 8, 0x4d)]).object();
    assert_eq!(
        (&object["bth"]["r"], &object["bth"]["inv_res"]),
        (&json!(1), &json!(13))
    );
    let object = run(&["decode", "--json", &flipped("sack_two_holes_ecn", BTH + 12, 0xa5)]).object();
    assert_eq!(
        (&object["seth"]["type"], &object["seth"]["nxt"]),
        (&json!(10), &json!(10))
    );
}

#[test]
fn other_traffic_is_not_mrc_and_no_failure() {
    // A RoCEv2 congestion notification captured from a NIC (wire-format.md §9).
    let cnp = "e41d2dab2bc2 7cfe90643b32 0800 45c2003c718c4000401191610a0011010a001201 000012b700280000 \
               8100ffff4000011800000000 00000000000000000000000000000000 82fd002a";
    let roce = run(&["decode", "--json", cnp]);
    let object = roce.object();
    assert_eq!(
        (roce.status, &object["verdict"], &object["reason"]),
        (0, &json!("not-mrc"), &json!("opcode_range"))
    );
    assert_eq!((&object["icrc_ok"], &object["opcode"]), (&json!(true), &json!("0x81")));

    let arp = run(&["decode", "--json", "ffffffffffff0200000000010806 0001080006040001"]);
    let object = arp.object();
    assert_eq!((arp.status, &object["reason"]), (0, &json!("ethertype")));
    assert_eq!(object["eth"]["ethertype"], json!("0x0806"));
    assert_eq!(
        (&object["ev"], &object["opcode"], &object["icrc_ok"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
}

#[test]
fn a_trimmed_control_packet_is_a_drop() {
    let mut bytes = bytes_of("transport_ack");
    bytes[14] = 0x63;
    bytes[15] &= 0x0f;
    bytes.truncate(14 + 40 + 8 + 12);
    let run = run(&["decode", "--json", &to_hex(&bytes)]);
    let object = run.object();
    assert_eq!(
        (run.status, &object["reason"], &object["trimmed"]),
        (1, &json!("trimmed_control"), &json!(true))
    );
}

#[test]
fn a_tag_and_a_tunnel_are_shown_under_their_own_names() {
    let mut bytes = bytes_of("write_only_srv6_srh");
    bytes.splice(12..12, [0x81, 0x00, 0xb0, 0x05]);
    // The outer header says CE, the inner one that it can be marked.
    bytes[19] |= 0x10;
    let object = run(&["decode", "--json", &to_hex(&bytes)]).object();
    assert_eq!(
        object["vlan"],
        json!({"pcp": 5, "dei": 1, "vid": 5, "ethertype": "0x86dd"})
    );
    assert_eq!(object["outer"]["dst"], json!("5f00:2:103:207:10a:20b:10c:10d"));
    assert_eq!(object["srh"]["segment_list"], json!(["5f00:2:10e:e05::"]));
    assert_eq!(
        (&object["ecn"], &object["outer"]["ecn"], &object["ipv6"]["ecn"]),
        (&json!(3), &json!(3), &json!(2))
    );
}

#[test]
fn options_say_what_the_receiver_is_configured_for() {
    let hex = hex_of("write_only_stev_ipv6_tseth_pad");
    let object = run(&["decode", "--json", "--udp-port", "4971", &hex]).object();
    assert_eq!(
        (&object["verdict"], &object["reason"]),
        (&json!("not-mrc"), &json!("udp_port"))
    );
    assert_eq!(object["bth"], Value::Null);
    let object = run(&["decode", "--json", "--udp-port", "4971", "--udp-port", "4791", &hex]).object();
    assert_eq!(object["verdict"], json!("accept"));
    let object = run(&["decode", "--json", "--ev-layout", "port_hi", &hex]).object();
    assert_eq!(object["ev"], json!("0x45c7012b"));

    let trimmed = hex_of("trimmed_min_ipv6");
    let moved = run(&["decode", "--json", "--dscp", "trimmed=13", &trimmed]);
    assert_eq!((moved.status, &moved.object()["reason"]), (1, &json!("udp_length")));
    let lasthop = hex_of("trimmed_lasthop_128_ipv6");
    let without = run(&["decode", "--json", "--dscp", "trimmed_lasthop=none", &lasthop]).object();
    assert_eq!(
        (&without["verdict"], &without["reason"]),
        (&json!("cut"), &json!("frame_cut"))
    );
}

#[test]
fn long_data_is_shortened_unless_asked_for() {
    let hex = hex_of("write_first_ipv6_wrap");
    let short = run(&["decode", &hex]).stdout;
    assert!(short.contains("1e1f and 224 more bytes\n"), "{short}");
    let long = run(&["decode", "--data", &hex]).stdout;
    assert!(
        long.contains("e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\n"),
        "{long}"
    );
    assert!(!long.contains("more bytes"));
    assert_eq!(run(&["decode", "--json", &hex]).object()["payload"], Value::Null);
}

#[test]
fn noise_is_decoded_without_a_crash() {
    // The first bytes of every packet, cut everywhere.
    for name in ["write_only_srv6_srh", "write_last_imm_ipv6", "sack_probe_response_ipv4"] {
        let lines: Vec<String> = (1..bytes_of(name).len())
            .map(|keep| to_hex(&bytes_of(name)[..keep]))
            .collect();
        let run = run_with(&["decode", "--json", "-"], lines.join("\n").as_bytes());
        assert_eq!(run.status, 1, "{}", run.stderr);
        assert_eq!(run.objects().len(), lines.len());
        for (keep, object) in run.objects().iter().enumerate() {
            assert_eq!(object["verdict"], json!("cut"), "{object}");
            let detail = object["detail"].as_str().unwrap();
            // As soon as the IP header is there, what is missing is known.
            if keep >= 14 + 40 {
                let missing = bytes_of(name).len() - 1 - keep;
                assert_eq!(detail, format!("the frame ends {missing} bytes before its packet does"));
            }
        }
    }
}

#[test]
fn a_cut_frame_of_another_protocol_is_none_of_ours() {
    let ack = bytes_of("transport_ack");
    let (mut tcp, mut port, mut roce) = (ack.clone(), ack.clone(), ack);
    tcp[20] = 6;
    port[56] = 0;
    roce[62] = 0x81;
    for (bytes, keep) in [(tcp, 60), (port, 70), (roce, 80)] {
        let run = run(&["decode", "--json", &to_hex(&bytes[..keep])]);
        assert_eq!(
            (run.status, &run.object()["verdict"]),
            (0, &json!("not-mrc")),
            "{}",
            run.stdout
        );
    }
}
