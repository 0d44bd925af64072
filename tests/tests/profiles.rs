//! Queue pairs on EV profiles: packets carry exactly the values that the profile names, each on its port, in SRv6 tunnels too.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use mrc_tests::{Connection, Fabric, Node, Options, Side, connect, until};
use mrc_verbs::{AddressFamily, EngineConfig, EntryState, EvSelection, EvState, PathInfo, parse_config};
use netns_lab::Topology;
use pcap_file::pcap::PcapReader;

/// Structured EVs, uSIDs and uSIDs with a segment routing header: the same four paths each way.
const FILE: &str = r#"
[[ev_format_profile]]
name = "structured"
mode = "STEV"
fields = [16, 16]

[[ev_format_profile]]
name = "usids"
mode = "SRV6"
fields = [32, 32, 32, 32]

[[ev_format_profile]]
name = "long"
mode = "SRV6"
fields = [32, 32, 32, 32, 32, 32]

[[ev_profile]]
name = "structured"
mode = "EXPLICIT"
format = "structured"
active = 4
evs = [
    { port = 1, name = "a", flow_label = 0x1001, source_port = 0xd001 },
    { port = 1, name = "b", flow_label = 0x1002, source_port = 0xd002 },
    { port = 2, name = "c", flow_label = 0x2001, source_port = 0xd003 },
    { port = 2, name = "d", flow_label = 0x2002, source_port = 0xd004 },
]

[[ev_profile]]
name = "usids"
mode = "EXPLICIT"
format = "usids"
active = 4
evs = [
    { port = 1, name = "a", dst = "fcbb:0:101:201::" },
    { port = 1, name = "b", dst = "fcbb:0:102:202::" },
    { port = 2, name = "c", dst = "fcbb:0:103:203::" },
    { port = 2, name = "d", dst = "fcbb:0:104:204::" },
]

[[ev_profile]]
name = "long"
mode = "EXPLICIT"
format = "long"
active = 2
evs = [
    { port = 1, name = "a", dst = "fcbb:0:101:201:301:401:501:601", srh = "fcbb:0:701::" },
    { port = 2, name = "c", dst = "fcbb:0:103:203:303:403:503:603", srh = "fcbb:0:703::" },
]
"#;

/// What a frame on the wire says of its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sighting {
    /// Of the outermost header.
    flow_label: u32,
    /// Destination of the outer header, and the entry of the segment routing header, in hexadecimal; empty: none.
    outer: String,
    srh: String,
    source_port: u16,
}

/// Of host 0; host 1 has other locators.
fn config(profile: &str) -> EngineConfig {
    let text = format!("device = {{ ev_profile = {profile:?} }}\n{FILE}");
    parse_config(&text, "profiles.toml", EngineConfig::with_ports(["p1", "p2"])).unwrap()
}

/// Frames of a capture on a switch, as far as they are MRC over IPv6 with or without a tunnel.
fn sightings(file: &Path) -> Vec<Sighting> {
    let mut reader = PcapReader::new(std::fs::File::open(file).unwrap()).unwrap();
    let mut seen = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let data = packet.unwrap().data.into_owned();
        let Some(ip) = data.get(14..).filter(|ip| ip.len() > 60 && ip[0] >> 4 == 6) else {
            continue;
        };
        let flow_label = u32::from_be_bytes([0, ip[1] & 0xf, ip[2], ip[3]]);
        let hex = |bytes: &[u8]| format!("{:032x}", u128::from_be_bytes(bytes.try_into().unwrap()));
        let (mut outer, mut srh) = (String::new(), String::new());
        let mut at = 0;
        match ip[6] {
            17 => {}
            41 => (outer, at) = (hex(&ip[24..40]), 40),
            43 => {
                // One entry of 16 bytes, which extends the path: one segment is left (wire-format.md §5).
                assert_eq!((ip[40], ip[41], ip[42], ip[43]), (41, 2, 4, 1), "routing header");
                (outer, srh, at) = (hex(&ip[24..40]), hex(&ip[48..64]), 64);
            }
            _ => continue,
        }
        let inner = &ip[at..];
        if inner.len() < 48 || inner[6] != 17 || u16::from_be_bytes([inner[42], inner[43]]) != 4791 {
            continue;
        }
        let inner_label = u32::from_be_bytes([0, inner[1] & 0xf, inner[2], inner[3]]);
        assert_eq!(
            inner_label, flow_label,
            "the outer flow label is a copy (wire-format.md §5)"
        );
        seen.push(Sighting {
            flow_label,
            outer,
            srh,
            source_port: u16::from_be_bytes([inner[40], inner[41]]),
        });
    }
    seen
}

/// Output of `ip` with these words on a switch.
fn ip(fabric: &Fabric, switch: &str, words: &str) -> String {
    let mut command = Command::new("ip");
    command.args(words.split_whitespace()).stdout(Stdio::piped());
    let process = fabric.lab.node(switch).unwrap().spawn(command).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "ip {words} on {switch}");
    String::from_utf8(output.stdout).unwrap()
}

/// Lets a switch forward what is tunnelled to a locator as it forwards what is sent to a host.
fn route_like(fabric: &Fabric, plane: usize, locator: &str, host: usize) {
    let switch = format!("t0.p{plane}");
    let found = ip(
        fabric,
        &switch,
        &format!("-6 route get {}", fabric.lab.host(host).gid_v6()),
    );
    let words: Vec<&str> = found.split_whitespace().collect();
    let after = |key: &str| words.iter().position(|word| *word == key).map(|at| words[at + 1]);
    let via = after("via").map(|via| format!("via {via} ")).unwrap_or_default();
    let device = after("dev").unwrap();
    ip(fabric, &switch, &format!("-6 route add {locator} {via}dev {device}"));
}

/// Writes under a profile; returns what each plane's switch saw and what the queue pair says of its paths.
fn run(profile: &str) -> (BTreeMap<usize, BTreeSet<Sighting>>, Vec<PathInfo>) {
    let directory = tempfile::tempdir().unwrap();
    let lab = Fabric::lab(&Topology::leaf(2, 2));
    let text = format!(
        "device = {{ ev_profile = {profile:?} }}\n{}",
        FILE.replace("fcbb:", "fcbc:")
    );
    let other = parse_config(&text, "profiles.toml", EngineConfig::with_ports(["p1", "p2"])).unwrap();
    let (a, b) = (
        Node::open(lab.host(0), config(profile)).unwrap(),
        Node::open(lab.host(1), other).unwrap(),
    );
    let fabric = Fabric { a, b, lab };
    for plane in 1..=2 {
        route_like(&fabric, plane, "fcbb::/16", 1);
        route_like(&fabric, plane, "fcbc::/16", 0);
    }
    let files = [1, 2].map(|plane| directory.path().join(format!("t0.p{plane}.pcap")));
    let captures = [1, 2].map(|plane| {
        let switch = fabric.lab.node(&format!("t0.p{plane}")).unwrap();
        switch.capture("h0", &files[plane - 1], "ip6").unwrap()
    });
    let connection = Connection::open(&fabric, &Options::default());
    for seed in 1..=8 {
        connection.write_and_compare(300_000, 77, seed);
    }
    let paths = connection.a.qp.paths().unwrap();
    let query = connection.a.qp.query().unwrap();
    assert_eq!(query.ev_profile, profile);
    assert_eq!(fabric.a.device.ev_profile(profile).unwrap().bound_qps, 1);
    for capture in captures {
        assert_eq!(capture.stop().unwrap().dropped, 0);
    }
    let seen = (1..)
        .zip(&files)
        .map(|(plane, file)| (plane, sightings(file).into_iter().collect()));
    (seen.collect(), paths)
}

/// What host 0 has sent in tunnels; host 1 has other locators.
fn forward(seen: &BTreeSet<Sighting>) -> impl Iterator<Item = &Sighting> {
    assert!(
        seen.iter().all(|one| !one.outer.is_empty()),
        "outside the tunnels: {seen:?}"
    );
    seen.iter().filter(|one| one.outer.starts_with("fcbb"))
}

#[test]
fn structured_evs_stand_in_flow_label_and_source_port() {
    let (seen, paths) = run("structured");
    let of = |label: u32, port: u16| Sighting {
        flow_label: label,
        outer: String::new(),
        srh: String::new(),
        source_port: port,
    };
    // Acknowledgements, which come the other way, take the peer's paths: the same ones here.
    assert_eq!(seen[&1], BTreeSet::from([of(0x1001, 0xd001), of(0x1002, 0xd002)]));
    assert_eq!(seen[&2], BTreeSet::from([of(0x2001, 0xd003), of(0x2002, 0xd004)]));
    let names: Vec<_> = paths.iter().map(|path| path.name.as_deref()).collect();
    assert_eq!(names, [Some("a"), Some("b"), Some("c"), Some("d")]);
    assert!(paths.iter().all(|path| path.packets > 50), "{paths:?}");
}

#[test]
fn usids_stand_in_the_outer_destination() {
    let (seen, paths) = run("usids");
    let outer = |plane: usize| -> BTreeSet<&str> { forward(&seen[&plane]).map(|one| one.outer.as_str()).collect() };
    let of = |text: &str| format!("fcbb0000{text}{}", "0".repeat(16));
    assert_eq!(outer(1), BTreeSet::from([&*of("01010201"), &*of("01020202")]));
    assert_eq!(outer(2), BTreeSet::from([&*of("01030203"), &*of("01040204")]));
    assert!(paths.iter().all(|path| path.packets > 50), "{paths:?}");
}

#[test]
fn a_second_container_stands_in_a_segment_routing_header() {
    let (seen, _) = run("long");
    let pairs = |plane: usize| -> BTreeSet<(&str, &str)> {
        forward(&seen[&plane])
            .map(|one| (one.outer.as_str(), one.srh.as_str()))
            .collect()
    };
    let srh = |text: &str| format!("fcbb0000{text}{}", "0".repeat(20));
    assert_eq!(
        pairs(1),
        BTreeSet::from([("fcbb0000010102010301040105010601", &*srh("0701"))])
    );
    assert_eq!(
        pairs(2),
        BTreeSet::from([("fcbb0000010302030303040305030603", &*srh("0703"))])
    );
}

#[test]
fn the_mtu_is_checked_with_the_tunnel() {
    // Room for 4096 bytes over IPv6, and not in a tunnel (wire-format.md §6).
    let fabric = Fabric::with(&Topology::pair(2).mtu(4096 + 92 + 20), &config("usids"));
    let options = Options::default();
    let (a, b) = (Side::new(&fabric.a, &options), Side::new(&fabric.b, &options));
    let (of_a, of_b) = (a.offer(&options), b.offer(&options));
    assert_eq!(of_a.pmtu, 2048, "the offer knows of tunnels");
    let large = |mut info: mrc_verbs::ConnectionInfo| {
        info.pmtu = 4096;
        info
    };
    let error = connect(&a.qp, large(of_a.clone()), large(of_b.clone()), &options).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("path MTU 4096 needs an MTU of 4228 on p1, which has 4208"),
        "{text}"
    );
    connect(&a.qp, of_a, of_b, &options).unwrap();
}

#[test]
fn tunnels_over_ipv4_are_refused() {
    let fabric = Fabric::with(&Topology::pair(2), &config("usids"));
    let options = Options {
        family: AddressFamily::V4,
        ..Options::default()
    };
    let (a, b) = (Side::new(&fabric.a, &options), Side::new(&fabric.b, &options));
    let error = connect(&a.qp, a.offer(&options), b.offer(&options), &options).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("ev_profile \"usids\": SRv6 carries IPv6 only"),
        "{error}"
    );
}

#[test]
fn an_ev_that_is_denied_while_data_flows_carries_none_until_it_is_allowed() {
    let fabric = Fabric::with(&Topology::pair(2), &config("structured"));
    let connection = Connection::open(&fabric, &Options::default());
    let packets = |name: &str| {
        let paths = connection.a.qp.paths().unwrap();
        let path = paths
            .into_iter()
            .find(|path| path.name.as_deref() == Some(name))
            .unwrap();
        (path.packets, path.state)
    };
    connection.write_and_compare(500_000, 0, 1);
    assert!(packets("b").0 > 0);
    let deny = |evs, state| fabric.a.device.set_ev_state("structured", evs, state).unwrap();
    assert_eq!(deny(EvSelection::Named("b".into()), EntryState::Denied), 1);
    let (before, state) = packets("b");
    assert_eq!(state, EvState::Denied);
    connection.write_and_compare(500_000, 0, 2);
    assert_eq!(packets("b").0, before);
    // A whole plane.
    assert_eq!(
        deny(
            EvSelection::OnPort(mrc_verbs::PortNum::new(2).unwrap()),
            EntryState::Denied
        ),
        2
    );
    let before = packets("c").0;
    connection.write_and_compare(500_000, 0, 3);
    assert_eq!(packets("c").0, before);
    assert_eq!(deny(EvSelection::All, EntryState::Good), 4);
    until("the path is used again", || {
        connection.write_and_compare(500_000, 0, 4);
        packets("b").0 > before && packets("c").0 > before
    });
    let states = fabric.a.device.ev_profile("structured").unwrap().entries;
    assert!(states.iter().all(|entry| entry.state == EntryState::Good));
    let missing = fabric
        .a
        .device
        .set_ev_state("structured", EvSelection::Named("x".into()), EntryState::Good);
    let text = missing.unwrap_err().to_string();
    assert!(
        text.starts_with("ev_profile \"structured\": it has no such EV"),
        "{text}"
    );
}
