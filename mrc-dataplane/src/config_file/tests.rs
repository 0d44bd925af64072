use super::*;
use mrc_protocol::profile::{EntryState, EvMode, EvValue};

fn read(text: &str) -> Result<EngineConfig, String> {
    let base = EngineConfig::with_ports(["p1", "p2"]);
    let config = parse(text, "h0.toml", base).map_err(|error| error.to_string())?;
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

/// All that a file may say.
const WHOLE: &str = r#"
[device]
gid4 = "192.0.2.1"
gid6 = "2001:db8::1"
udp_port = 4792
ev_layout = "port_hi"
threads = 2
fabric_trims = true
window_packets = 100
spin_ns = 7000
ev_profile = "auto"
cc_profile = "lab"
dscps = { control = 40, trimmable = false, trimmable_retx = false }

[[port]]
name = "p1"
speed_bps = 200_000_000

[[port]]
name = "p2"
queue = 3

[[ev_format_profile]]
name = "structured"
mode = "STEV"
fields = [16, 16]

[[ev_format_profile]]
name = "usids"
mode = "SRV6"
fields = [32, 16, 16, 16, 16, 16, 16]

[[ev_profile]]
name = "auto"
mode = "AUTO"
count = 64

[[ev_profile]]
name = "to-h1"
mode = "EXPLICIT"
format = "usids"
ev_min_active = 1
active = 2
outer_source = "2001:db8::1"
evs = [
    { port = 1, name = "t0.0.p1-t1.0.p1", dst = "fcbb:0:101:201:301::" },
    { port = 2, dst = "fcbb:0:102:202:302::", state = "DENIED", weight = 2 },
]

[[ev_profile]]
id = 70
name = "spread"
mode = "GENERATED"
format = "structured"
count = 16
fields = [
    { width = 16, init = 0xa000, mask = 0x000f, plane = true, min = 1, max = 8 },
    { width = 16, init = 0xc000, mask = 0x00ff },
]

[[cc_profile]]
name = "lab"
base_rtt_ns = 2_000_000
target_delay_ns = 5_000_000
gamma = 0.7

[[cc_profile]]
name = "off"
algorithm = "none"

[peer."2001:db8::2"]
ev_profile = "to-h1"
cc_profile = "off"
speed_bps = 400_000_000
"#;

#[test]
fn everything_can_be_said() {
    let config = read(WHOLE).unwrap();
    let ports: Vec<_> = config
        .ports
        .iter()
        .map(|port| (port.queue, port.link_speed_bps))
        .collect();
    assert_eq!(ports, [(0, Some(200_000_000)), (3, None)]);
    assert_eq!((config.udp_port, config.threads, config.window_packets), (4792, 2, 100));
    assert_eq!(config.spin_ns, 7000);
    assert!(config.fabric_trims && config.ev_layout == EvLayout::PortHigh);
    assert_eq!((config.dscps.control, config.dscps.trimmable), (40, None));

    let ProfileConfig { evs, ccs, peers, .. } = &config.profiles;
    assert_eq!(evs.iter().map(|ev| ev.id).collect::<Vec<_>>(), [1, 2, 70]);
    let explicit = &evs[1];
    assert_eq!(
        (explicit.mode, explicit.entries.len(), explicit.active),
        (EvMode::Explicit, 3, Some(2))
    );
    assert_eq!(explicit.entries[0].name.as_deref(), Some("t0.0.p1-t1.0.p1"));
    assert_eq!(explicit.entries[2].state, EntryState::Denied);
    assert_eq!(
        explicit.entries[0].ev.value,
        EvValue::left_aligned(&[0xfc, 0xbb, 0, 0, 1, 1, 2, 1, 3, 1]).unwrap()
    );
    assert_eq!(evs[2].plane_fields, [0]);
    assert_eq!(ccs[0].numbers.base_rtt_ns, Some(2_000_000));
    assert_eq!(ccs[1].algorithm, Algorithm::Off);
    assert_eq!(peers[0].ev, Some(ProfileRef::Name("to-h1".into())));
    assert_eq!(config.profiles.ev_default, Some(ProfileRef::Name("auto".into())));
}

#[test]
fn an_empty_file_changes_nothing() {
    let config = read("").unwrap();
    assert!(config.profiles.is_empty());
    assert_eq!(config.ports, EngineConfig::with_ports(["p1", "p2"]).ports);
}

#[test]
fn evs_come_as_bits_or_as_they_stand_in_packets() {
    let format = "[[ev_format_profile]]\nname = 'f'\nmode = 'STEV'\nfields = [16, 16]\n";
    let profile = "[[ev_profile]]\nname = 'e'\nmode = 'EXPLICIT'\nformat = 'f'\n";
    let fields =
        "fields = [{ width = 16, init = 0xA000, mask = 0x0F0F }, { width = 16, init = 0xB050, mask = 0x000F }]\n";
    // protocol.md §7.3, example 2.
    let evs = "evs = [{ port = 1, ev = '5c7' }, { port = 1, flow_label = 0xa50c, source_port = 0xb057 }]\n";
    let config = read(&[format, profile, fields, evs].concat()).unwrap();
    let values = config.profiles.evs[0].entries.iter().map(|entry| entry.ev.value);
    let expected = EvValue::left_aligned(&[0x5c, 0x70]).unwrap();
    assert_eq!(values.collect::<Vec<_>>(), [expected, expected]);
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_the_file_and_the_key() {
    let stev = "[[ev_format_profile]]\nname = 'f'\nmode = 'STEV'\nfields = [16, 16]\n";
    let srv6 = "[[ev_format_profile]]\nname = 'f'\nmode = 'SRV6'\nfields = [32, 32, 32, 32]\n";
    let explicit = "[[ev_profile]]\nname = 'e'\nmode = 'EXPLICIT'\nformat = 'f'\n";
    let cases: &[(&[&str], &str)] = &[
        (
            &["[[port]]\nname = 'p1'\nspeed_bps = -1"],
            "h0.toml:3: speed_bps = -1: ",
        ),
        (
            &["[[port]]\nname = 'p1'\nspeed_bps = 0"],
            "h0.toml: port \"p1\": speed_bps = 0: ",
        ),
        (&["[device]\nports = 3"], "h0.toml:2: ports = 3: unknown field `ports`"),
        (&["x"], "h0.toml:1: x: "),
        (
            &["[device]\nev_profile = 'x'"],
            "h0.toml: default ev_profile: no ev_profile \"x\": none is configured",
        ),
        (
            &["[device]\ndscps = { control = 64 }"],
            "h0.toml: device.dscps.control: ",
        ),
        (
            &["[device]\ndscps = { control = false }"],
            "h0.toml: device.dscps.control: ",
        ),
        (&["[device]\ndscps = { colour = 1 }"], "h0.toml: device.dscps.colour: "),
        (
            &[stev, explicit],
            "h0.toml: ev_profile \"e\": mode EXPLICIT without EVs",
        ),
        (
            &[explicit, "evs = [{ port = 1, ev = '1' }]"],
            "h0.toml: ev_profile \"e\": format = \"f\": no ev_format_profile",
        ),
        (
            &[stev, explicit, "evs = [{ port = 3, ev = '1' }]"],
            "h0.toml: ev_profile \"e\": evs[0]: port 3 is not",
        ),
        (
            &[stev, explicit, "evs = [{ port = 0, ev = '1' }]"],
            "h0.toml: ev_profile \"e\": evs[0]: port = 0: ",
        ),
        (
            &[stev, explicit, "evs = [{ port = 1 }]"],
            "h0.toml: ev_profile \"e\": evs[0]: no value: give ev, or flow_label",
        ),
        (
            &[stev, explicit, "evs = [{ port = 1, ev = 'wx' }]"],
            "h0.toml: ev_profile \"e\": evs[0]: ev = \"wx\": ",
        ),
        (
            &[stev, explicit, "evs = [{ port = 1, ev = '123456789' }]"],
            "h0.toml: ev_profile \"e\": evs[0]: bit 35 ",
        ),
        (
            &[stev, explicit, "evs = [{ port = 1, dst = '::1' }]"],
            "h0.toml: ev_profile \"e\": evs[0]: dst has no place",
        ),
        (
            &[srv6, explicit, "evs = [{ port = 1, dst = 'fc::', srh = 'fc::' }]"],
            "h0.toml: ev_profile \"e\": evs[0]: bits 128",
        ),
        (
            &[stev, explicit, "active = 2\nevs = [{ port = 1, ev = '1' }]"],
            "h0.toml: ev_profile \"e\": active 2 is outside 1 to 1",
        ),
        (
            &[stev, explicit, "ev_min_active = 2\nevs = [{ port = 1, ev = '1' }]"],
            "h0.toml: ev_profile \"e\": ev_min_active 2 is above",
        ),
        (
            &["[[ev_profile]]\nname = '7'\nmode = 'AUTO'"],
            "h0.toml: ev_profile \"7\": a name must not",
        ),
        (
            &["[[ev_profile]]\nname = 'a'\nmode = 'AUTO'\n[[ev_profile]]\nname = 'a'\nmode = 'AUTO'"],
            "h0.toml: ev_profile \"a\": its name or its number 2 is taken",
        ),
        (
            &["[[cc_profile]]\nname = 'c'\nalgorithm = 'cubic'"],
            "h0.toml: cc_profile \"c\": algorithm = \"cubic\": ",
        ),
        (
            &["[[cc_profile]]\nname = 'c'\ngamma = 1.5"],
            "h0.toml: cc_profile \"c\": gamma is above 1",
        ),
        (
            &["[[cc_profile]]\nname = 'c'\nalgorithm = 'none'\ngamma = 0.5"],
            "h0.toml: cc_profile \"c\": without congestion control",
        ),
        (
            &["[peer.'h1']\nev_profile = 'x'"],
            "h0.toml: peer.\"h1\": the key is not an address",
        ),
        (
            &["[peer.'192.0.2.2']\ncc_profile = 'x'"],
            "h0.toml: peer.\"192.0.2.2\": no cc_profile \"x\"",
        ),
    ];
    for (parts, expected) in cases {
        let message = read(&parts.concat()).expect_err("accepted");
        assert!(message.starts_with(expected), "{message}\nnot {expected}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = super::read(Path::new("/nowhere/h0.toml"), EngineConfig::default()).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("/nowhere/h0.toml: cannot read it: "), "{message}");
}

#[test]
fn the_files_that_the_documentation_shows_can_be_read() {
    let page = include_str!("../../../mrc-verbs/CONFIG.md");
    let blocks = page.split("```toml\n").skip(1);
    let text: String = blocks.filter_map(|block| block.split("```").next()).collect();
    let config = EngineConfig {
        ports: Vec::new(),
        ..EngineConfig::default()
    };
    let mut config = parse(&text, "CONFIG.md", config).unwrap();
    assert_eq!(
        (config.ports.len(), config.profiles.evs.len(), config.profiles.ccs.len()),
        (1, 3, 1)
    );
    config.ports.push(PortConfig::new("p2"));
    config.validate().unwrap();
}
