//! Captures that engines make of their own packets: nothing is missing, nothing is made up, and other programs read them.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use mrc_tests::{Connection, End, Fabric, Node, Options, built, until};
use mrc_verbs::{DeviceContext, EngineConfig};
use netns_lab::Topology;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;

const END_PROGRAM: &str = env!("CARGO_BIN_EXE_mrc-end");
const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/mrc-dump/wireshark/mrc.lua");

/// Two hosts, each with a capture of its engine in `directory`: `a.pcapng` and `b.pcapng`.
fn captured(directory: &Path, words: &str) -> Fabric {
    let lab = Fabric::lab(&Topology::pair(2));
    let open = |host, name| {
        let mut config = EngineConfig::default();
        config.capture.file = Some((directory.join(name), words.parse().unwrap()));
        Node::open(lab.host(host), config).unwrap()
    };
    let (a, b) = (open(0, "a.pcapng"), open(1, "b.pcapng"));
    Fabric { a, b, lab }
}

/// Packets by interface and direction (1 in, 2 out).
type Counts = BTreeMap<(u32, u32), u64>;

#[derive(Default)]
struct Contents {
    /// With their times.
    packets: Vec<(Duration, (u32, u32))>,
    /// Seen, wanted, dropped, written, over all interfaces.
    statistics: [u64; 4],
}

impl Contents {
    fn of(path: &Path) -> Contents {
        let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
        let mut contents = Contents::default();
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::EnhancedPacket(block) => {
                    let [EnhancedPacketOption::Flags(direction)] = block.options[..] else {
                        panic!("no direction: {block:?}");
                    };
                    contents
                        .packets
                        .push((block.timestamp, (block.interface_id, direction)));
                }
                Block::InterfaceStatistics(block) => {
                    for option in &block.options {
                        let (at, value) = match option {
                            InterfaceStatisticsOption::IsbIfRecv(value) => (0, value),
                            InterfaceStatisticsOption::IsbFilterAccept(value) => (1, value),
                            InterfaceStatisticsOption::IsbIfDrop(value) => (2, value),
                            InterfaceStatisticsOption::IsbUsrDeliv(value) => (3, value),
                            _ => continue,
                        };
                        contents.statistics[at] += value;
                    }
                }
                _ => {}
            }
        }
        contents
    }

    fn until(&self, time: Duration) -> Counts {
        let mut counts = Counts::new();
        for (_, key) in self.packets.iter().filter(|(stamp, _)| *stamp <= time) {
            *counts.entry(*key).or_default() += 1;
        }
        counts
    }
}

/// What the engine has counted at a moment when it was quiet, and that moment.
fn counted(device: &DeviceContext) -> (Counts, Duration) {
    let now = || {
        let ports = device.counters().ports;
        ports
            .iter()
            .zip(0..)
            .flat_map(|(port, id)| [((id, 1), port.rx_packets), ((id, 2), port.tx_packets)])
            .collect::<Counts>()
    };
    let mut found = None;
    until("a quiet moment", || {
        let before = now();
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        std::thread::yield_now();
        let is_quiet = before == now();
        found = Some((before, time));
        is_quiet
    });
    found.unwrap()
}

fn decode(path: &Path, more: &[&str]) -> Vec<Value> {
    let output = Command::new(built("mrc-dump"))
        .args(["decode", "--json"])
        .args(more)
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One line per packet that the display filter lets through.
fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command
        .args([
            "-n",
            "-X",
            &format!("lua_script:{DISSECTOR}"),
            "-T",
            "fields",
            "-E",
            "separator=;",
        ])
        .args(["-Y", filter, "-r"])
        .arg(path);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark is installed (apt-get install tshark)");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_captured_transfer_has_every_packet_that_the_engines_count_and_wireshark_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let fabric = captured(directory.path(), "buffer=65536");
    let connection = Connection::open(&fabric, &Options::default());
    for (seed, size) in [(1, 1), (2, 100_003), (3, 500_000)] {
        connection.write_and_compare(size, 77, seed);
    }
    let (of_a, of_b) = (counted(&fabric.a.device), counted(&fabric.b.device));
    // The engines end, and with them their captures.
    drop(connection);
    drop(fabric);

    let mut sizes = Vec::new();
    for (name, (counted, time)) in [("a.pcapng", of_a), ("b.pcapng", of_b)] {
        let path = directory.path().join(name);
        let contents = Contents::of(&path);
        let counted: Counts = counted.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(contents.until(time), counted, "{name}");
        assert_eq!(counted.len(), 4, "{name}: both ports, both directions");
        let all = contents.packets.len() as u64;
        assert_eq!(contents.statistics, [all, all, 0, all], "{name}");

        // All are MRC, whole and right: for mrc-dump, and for Wireshark.
        let decoded = decode(&path, &[]);
        assert!(decoded.iter().all(|packet| packet["verdict"] == "accept"), "{name}");
        let shown = tshark(
            &path,
            "mrc",
            &[
                "frame.interface_name",
                "frame.packet_flags_direction",
                "mrc.icrc.ok",
                "mrc.bth.opcode",
            ],
        );
        assert_eq!((decoded.len() as u64, shown.len() as u64), (all, all), "{name}");
        for (shown, packet) in shown.iter().zip(&decoded) {
            let direction = if packet["direction"] == "rx" {
                "0x00000001"
            } else {
                "0x00000002"
            };
            let [interface, opcode] =
                [&packet["interface"], &packet["bth"]["opcode"]].map(|value| value.as_str().unwrap());
            assert_eq!(
                *shown,
                format!("{interface};{direction};1;{opcode}"),
                "{name}: {packet}"
            );
        }
        let own = decode(&path, &["--filter", "opcode=write port=p1 dir=tx"]).len();
        let filter = "mrc.bth.opcode <= 0xcb && frame.interface_name == \"p1\" && frame.packet_flags_direction == 2";
        assert_eq!(tshark(&path, filter, &["frame.number"]).len(), own, "{name}");
        sizes.push((own, decode(&path, &["--filter", "opcode=sack"]).len()));
    }
    let [(written, sacks), (none, sacks_of_b)] = sizes[..] else {
        unreachable!("two captures");
    };
    assert!(
        written > 50 && none == 0 && sacks > 0 && sacks == sacks_of_b,
        "{sizes:?}"
    );
}

#[test]
fn a_buffer_that_is_too_small_costs_packets_of_the_capture_which_are_counted_and_none_of_the_transfer() {
    let directory = tempfile::tempdir().unwrap();
    let fabric = captured(directory.path(), "buffer=1 snaplen=64");
    let connection = Connection::open(&fabric, &Options::default());
    connection.write_and_compare(900_000, 77, 5);
    let (counted, time) = counted(&fabric.a.device);
    drop(connection);
    drop(fabric);
    let path = directory.path().join("a.pcapng");
    let contents = Contents::of(&path);
    let [seen, wanted, dropped, written] = contents.statistics;
    assert!(dropped > 0, "{:?}", contents.statistics);
    assert_eq!((seen, seen - dropped), (wanted, written));
    assert_eq!(contents.packets.len() as u64, written);
    assert!(seen >= counted.values().sum(), "{seen} seen, {counted:?}");
    assert!(contents.until(time).values().sum::<u64>() < counted.values().sum());
    let summary = Command::new(built("mrc-dump"))
        .arg("summary")
        .arg(&path)
        .output()
        .unwrap();
    let summary = String::from_utf8(summary.stdout).unwrap();
    assert!(
        summary.contains(&format!("{dropped} dropped by the capture")),
        "{summary}"
    );
}

/// Two processes, one writing to the other without end; the first offers its packets in `directory`.
fn processes(directory: &Path, lab: &netns_lab::Lab) -> [End; 2] {
    let control = format!("MRC_CONTROL={}", directory.display());
    let mut source = End::start(lab.host(0), END_PROGRAM, "source", &["env", &control]);
    let mut target = End::start(lab.host(1), END_PROGRAM, "target", &["env", "-u", "XDG_RUNTIME_DIR"]);
    let (of_source, of_target) = (source.offer(), target.offer());
    source.tell(&of_target.0, of_target.1);
    target.tell(&of_source.0, of_source.1);
    for end in [&mut source, &mut target] {
        assert_eq!(end.line(), "connected");
    }
    assert_eq!(source.line(), "writing");
    [source, target]
}

fn live(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(built("mrc-dump"));
    command.arg("live").args(args).env("MRC_CONTROL", directory);
    command
}

#[test]
fn a_running_engine_is_captured_from_outside_with_a_filter_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let lab = Fabric::lab(&Topology::pair(2));
    let [source, target] = processes(directory.path(), &lab);
    let path: PathBuf = directory.path().join("live.pcapng");
    for (filter, packets) in [("opcode=write dir=tx port=p2", 200), ("opcode=sack dir=rx", 50)] {
        let count = packets.to_string();
        let args = [
            "--filter",
            filter,
            "--count",
            &count,
            "--snaplen",
            "256",
            "-w",
            path.to_str().unwrap(),
        ];
        let output = live(directory.path(), &args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let all = decode(&path, &[]);
        assert!(all.len() >= packets, "{} packets", all.len());
        assert_eq!(decode(&path, &["--filter", filter]).len(), all.len(), "{filter}");
        assert!(all.iter().all(|packet| packet["captured_len"].as_u64() <= Some(256)));
    }
    // By number of its process, as text.
    let pid = source.process.id().to_string();
    let output = live(directory.path(), &[&pid, "--count", "5"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().matches("\n#").count(), 4);

    // It dies in the middle of a capture; what was captured until then is there.
    let mut child = live(directory.path(), &["--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut String::new()).unwrap();
    source.kill();
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && said.contains("the engine ended without a word"),
        "{said}"
    );
    target.kill();
}

#[test]
fn another_user_may_not_capture_even_if_the_socket_lets_it_connect() {
    const NOBODY: u32 = 65_534;
    let directory = tempfile::tempdir().unwrap();
    let lab = Fabric::lab(&Topology::pair(1));
    let control = format!("MRC_CONTROL={}", directory.path().display());
    let mut end = End::start(lab.host(0), END_PROGRAM, "open", &["env", &control]);
    assert_eq!(end.line(), "open");
    let program = directory.path().join("mrc-dump");
    std::fs::copy(built("mrc-dump"), &program).unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(directory.path(), 0o755);
    mode(&program, 0o755);
    let capture = || {
        let mut command = Command::new(&program);
        command
            .arg("live")
            .env("MRC_CONTROL", directory.path())
            .uid(NOBODY)
            .gid(NOBODY);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = capture();
    assert!(
        said.contains("Permission denied") && said.contains("its user or root"),
        "{said}"
    );
    let sockets = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let socket = sockets
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "sock"))
        .unwrap();
    mode(&socket, 0o666);
    let said = capture();
    assert!(said.contains("user 65534 may not capture from user 0"), "{said}");
    end.kill();
}
