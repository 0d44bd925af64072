//! Captures of frames that two ports in memory exchange.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use mrc_capture::Request;
use mrc_capture::control::{self, Directory};
use mrc_wire::{Dscps, EvLayout, Frame, PortNum};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::{Capture, CaptureConfig, CaptureError, Ports, Reading};
use crate::port::{MemoryPort, MemoryPortConfig, Port, TxResult};

fn vector(name: &str) -> Vec<u8> {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../wire/tests/vectors.json")).unwrap();
    let packets = file["packets"].as_array().unwrap();
    let packet = packets.iter().find(|packet| packet["name"] == name).unwrap();
    let hex = packet["hex"].as_str().unwrap();
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn wanted(directory: &Path) -> Directory {
    Directory {
        path: directory.to_owned(),
        is_wanted: true,
    }
}

/// A tapped port, and the bare one at the other end of its link.
struct Rig {
    port: Box<dyn Port>,
    peer: MemoryPort,
    capture: Option<Capture>,
}

impl Rig {
    fn new(config: &CaptureConfig) -> Result<Self, CaptureError> {
        let num = PortNum::new(1).unwrap();
        // Frames straddle two pieces.
        let measures = MemoryPortConfig {
            chunk_len: 200,
            ..MemoryPortConfig::default()
        };
        let (port, peer, _) = MemoryPort::pair(num, measures).unwrap();
        let reading = Reading {
            udp_port: 4791,
            dscps: Dscps::default(),
            ev_layout: EvLayout::FlowHigh,
        };
        let ports: Ports = vec![vec![Box::new(port)]];
        let (capture, mut ports) = Capture::start(config, reading, &[Some(1_000)], ports)?;
        let port = ports.remove(0).remove(0);
        Ok(Self { port, peer, capture })
    }

    fn to_file(directory: &Path, words: &str) -> (Self, std::path::PathBuf) {
        let path = directory.join("a.pcapng");
        let file = Some((path.clone(), words.parse().unwrap()));
        (Self::new(&CaptureConfig { file, control: None }).unwrap(), path)
    }

    fn send(&mut self, frame: &[u8]) {
        send(&mut *self.port, frame);
    }

    fn receive(&mut self, frame: &[u8]) {
        send(&mut self.peer, frame);
        let mut received = Vec::new();
        let count = self.port.rx_batch(8, &mut |frame: Frame<'_>| {
            received.push([frame.head, frame.tail].concat());
        });
        assert_eq!((count, received), (1, vec![frame.to_vec()]));
    }
}

fn send(port: &mut dyn Port, frame: &[u8]) {
    let result = port.tx_frame(frame.len(), &mut |head, tail| {
        let (first, second) = frame.split_at(head.len());
        head.copy_from_slice(first);
        tail.copy_from_slice(second);
        true
    });
    assert_eq!(result, TxResult::Queued);
    port.tx_flush().unwrap();
}

#[derive(Debug, Default)]
struct Written {
    names: Vec<String>,
    filters: Vec<String>,
    /// Direction, bytes, length on the wire.
    packets: Vec<(u32, Vec<u8>, u32)>,
    times: Vec<Duration>,
    /// Seen, wanted, dropped, written.
    statistics: Vec<[u64; 4]>,
}

fn read(from: impl Read) -> Written {
    let mut reader = PcapNgReader::new(from).unwrap();
    let mut read = Written::default();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(block) => {
                for option in block.options {
                    match option {
                        InterfaceDescriptionOption::IfName(name) => read.names.push(name.into_owned()),
                        InterfaceDescriptionOption::IfTsResol(value) => assert_eq!(value, 9),
                        InterfaceDescriptionOption::IfSpeed(value) => assert_eq!(value, 1_000),
                        InterfaceDescriptionOption::IfFilter(filter) => {
                            read.filters.push(String::from_utf8(filter[1..].to_vec()).unwrap());
                        }
                        _ => {}
                    }
                }
            }
            Block::EnhancedPacket(block) => {
                let Some(EnhancedPacketOption::Flags(flags)) = block.options.first() else {
                    panic!("no direction in {block:?}");
                };
                read.packets.push((*flags, block.data.into_owned(), block.original_len));
                read.times.push(block.timestamp);
            }
            Block::InterfaceStatistics(block) => {
                let find = |which: fn(&InterfaceStatisticsOption<'_>) -> Option<u64>| {
                    block.options.iter().find_map(which).unwrap()
                };
                read.statistics.push([
                    find(|option| {
                        if let InterfaceStatisticsOption::IsbIfRecv(value) = option {
                            Some(*value)
                        } else {
                            None
                        }
                    }),
                    find(|option| {
                        if let InterfaceStatisticsOption::IsbFilterAccept(value) = option {
                            Some(*value)
                        } else {
                            None
                        }
                    }),
                    find(|option| {
                        if let InterfaceStatisticsOption::IsbIfDrop(value) = option {
                            Some(*value)
                        } else {
                            None
                        }
                    }),
                    find(|option| {
                        if let InterfaceStatisticsOption::IsbUsrDeliv(value) = option {
                            Some(*value)
                        } else {
                            None
                        }
                    }),
                ]);
            }
            _ => {}
        }
    }
    read
}

#[test]
fn both_directions_are_captured_with_names_times_and_statistics() {
    let directory = tempfile::tempdir().unwrap();
    let (mut rig, path) = Rig::to_file(directory.path(), "");
    let (write, ack) = (vector("write_first_ipv6_wrap"), vector("transport_ack"));
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    rig.send(&write);
    rig.receive(&ack);
    drop(rig.capture);
    let read = read(File::open(path).unwrap());
    assert_eq!(read.names, ["mem1a"]);
    let expected = [
        (2, write.clone(), write.len() as u32),
        (1, ack.clone(), ack.len() as u32),
    ];
    assert_eq!(read.packets, expected);
    let after = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(read.times.iter().all(|time| before <= *time && *time <= after));
    assert_eq!(read.statistics, [[2, 2, 0, 2]]);
}

#[test]
fn only_what_the_filter_wants_is_captured_and_only_so_much_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut rig, path) = Rig::to_file(directory.path(), "qp=0xa5 opcode=write dir=tx port=mem1a snaplen=70");
    let write = vector("write_first_ipv6_wrap");
    rig.send(&write);
    rig.receive(&write);
    rig.send(&vector("transport_ack"));
    rig.send(&vector("write_only_srv6_srh"));
    rig.send(&[0; 60]);
    drop(rig.capture);
    let read = read(File::open(path).unwrap());
    assert_eq!(
        read.filters,
        ["qp=0xa5 opcode=0xc6,0xc7,0xc8,0xc9,0xca,0xcb dir=tx port=mem1a"]
    );
    let srh = vector("write_only_srv6_srh");
    let expected = [
        (2, write[..70].to_vec(), write.len() as u32),
        (2, srh[..70].to_vec(), srh.len() as u32),
    ];
    assert_eq!(read.packets, expected);
    assert_eq!(read.statistics, [[5, 2, 0, 2]]);
}

#[test]
fn what_finds_no_buffer_is_dropped_and_counted() {
    // Without a writer nothing is taken out.
    let directory = tempfile::tempdir().unwrap();
    let config = CaptureConfig {
        file: None,
        control: Some(wanted(directory.path())),
    };
    let mut rig = Rig::new(&config).unwrap();
    let taps = rig.capture.as_ref().unwrap().taps.clone();
    let session = taps.open(&"buffer=3".parse().unwrap()).unwrap();
    let ack = vector("transport_ack");
    for _ in 0..8 {
        rig.send(&ack);
    }
    taps.close(&session);
    rig.send(&ack);
    session.finish();
    let mut file = Vec::new();
    super::writer::run(&session, &mut file, || false).unwrap();
    let read = read(file.as_slice());
    assert_eq!(read.packets.len(), 3);
    assert_eq!(read.statistics, [[8, 8, 5, 3]]);
}

/// A client of the control socket.
struct Client {
    stream: BufReader<UnixStream>,
    answer: String,
}

impl Client {
    fn new(directory: &Path, line: &str) -> Self {
        let (_, path) = control::sockets(directory).unwrap().pop().unwrap();
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        let answer = answer.trim_end().to_owned();
        Self { stream, answer }
    }

    fn finish(self) -> Written {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        read(self.stream)
    }
}

fn with_socket(directory: &Path) -> Rig {
    let control = Some(wanted(directory));
    Rig::new(&CaptureConfig { file: None, control }).unwrap()
}

#[test]
fn a_client_of_the_control_socket_gets_what_it_asks_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut rig = with_socket(directory.path());
    let (write, ack) = (vector("write_first_ipv6_wrap"), vector("transport_ack"));
    rig.send(&write);
    let all = Client::new(directory.path(), "capture\n");
    let some = Client::new(directory.path(), "capture opcode=ack snaplen=64\n");
    assert_eq!((all.answer.as_str(), some.answer.as_str()), ("ok", "ok"));
    rig.send(&write);
    rig.receive(&ack);
    let (all, some) = (all.finish(), some.finish());
    rig.send(&write);
    assert_eq!(all.packets.iter().map(|packet| packet.0).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(all.statistics, [[2, 2, 0, 2]]);
    assert_eq!(some.packets, [(1, ack[..64].to_vec(), ack.len() as u32)]);
    assert_eq!(some.statistics, [[2, 1, 0, 1]]);
}

#[test]
fn the_end_of_the_engine_is_the_end_of_the_stream_with_statistics() {
    let directory = tempfile::tempdir().unwrap();
    let mut rig = with_socket(directory.path());
    let client = Client::new(directory.path(), "capture\n");
    rig.send(&vector("transport_ack"));
    drop(rig);
    let read = read(client.stream);
    assert_eq!((read.packets.len(), read.statistics), (1, vec![[1, 1, 0, 1]]));
    assert_eq!(control::sockets(directory.path()).unwrap(), [], "the socket is gone");
}

#[test]
fn requests_that_cannot_be_met_are_answered_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let _rig = with_socket(directory.path());
    for (line, reason) in [
        ("capture qp=x\n", "error: \"qp=x\" is no filter"),
        ("capture buffer=0\n", "error: \"buffer=0\" is out of range"),
        ("dance\n", "error: \"dance\" is unknown"),
        ("\n", "error: \"\" is unknown"),
    ] {
        let client = Client::new(directory.path(), line);
        assert!(client.answer.starts_with(reason), "{}", client.answer);
    }
    let long = format!("capture {}\n", "x".repeat(control::LONGEST_LINE));
    let client = Client::new(directory.path(), &long[..=control::LONGEST_LINE]);
    assert!(client.answer.contains("longer than 4096"), "{}", client.answer);
    let four: Vec<_> = (0..4).map(|_| Client::new(directory.path(), "capture\n")).collect();
    assert!(four.iter().all(|client| client.answer == "ok"));
    let fifth = Client::new(directory.path(), "capture\n");
    assert_eq!(fifth.answer, "error: 4 captures are running: end one of them");
}

#[test]
fn the_socket_is_for_its_user_and_replaces_those_of_the_dead() {
    let directory = tempfile::tempdir().unwrap();
    let dead = control::socket(directory.path(), 1, 9);
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let _rig = with_socket(directory.path());
    let sockets = control::sockets(directory.path()).unwrap();
    let [(pid, path)] = sockets.as_slice() else {
        panic!("{sockets:?}");
    };
    assert_eq!(*pid, std::process::id());
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn engines_with_the_same_process_id_get_sockets_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let rigs = [with_socket(directory.path()), with_socket(directory.path())];
    let expected = [2, 1].map(|number| {
        (
            std::process::id(),
            control::socket(directory.path(), std::process::id(), number),
        )
    });
    assert_eq!(control::sockets(directory.path()).unwrap(), expected);
    drop(rigs);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_client_that_does_not_read_costs_the_engine_packets_of_the_capture_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut rig = with_socket(directory.path());
    let client = Client::new(directory.path(), "capture buffer=16\n");
    let write = vector("write_first_ipv6_wrap");
    // Far more than the socket and the buffers hold.
    for _ in 0..20_000 {
        rig.send(&write);
        while rig.peer.rx_batch(64, &mut |_| {}) > 0 {}
    }
    let read = client.finish();
    let [[seen, wanted, dropped, written]] = read.statistics[..] else {
        panic!("{:?}", read.statistics);
    };
    assert_eq!((seen, wanted), (20_000, 20_000));
    assert!(
        dropped > 0 && written + dropped == wanted,
        "{dropped} dropped, {written} written"
    );
    assert_eq!(read.packets.len() as u64, written);
}

#[test]
fn a_client_that_vanishes_makes_room_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let rig = with_socket(directory.path());
    for _ in 0..4 {
        drop(Client::new(directory.path(), "capture\n"));
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while Client::new(directory.path(), "capture\n").answer != "ok" {
        assert!(Instant::now() < deadline, "the first clients still count");
        std::thread::yield_now();
    }
    drop(rig);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let file = Some(("/no/such/dir/a.pcapng".into(), Request::default()));
    let error = Rig::new(&CaptureConfig { file, control: None })
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("cannot write the capture /no/such/dir/a.pcapng: "),
        "{error}"
    );
}

#[test]
fn a_socket_that_cannot_be_made_is_an_error_only_where_it_is_wanted() {
    let new = |is_wanted| {
        let path = "/nowhere".into();
        let control = Some(Directory { path, is_wanted });
        Rig::new(&CaptureConfig { file: None, control })
    };
    let error = new(true).err().unwrap().to_string();
    assert!(
        error.starts_with("cannot listen in /nowhere: ") && error.contains("MRC_CONTROL"),
        "{error}"
    );
    let mut rig = new(false).unwrap();
    rig.receive(&vector("transport_ack"));
}
