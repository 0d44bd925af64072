//! Queues of switch ports: two classes, marks, heads of packets, drops.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use mrc_wire::{Condition, Dscps, Ecn, EvLayout, Frame, Headers, Packet, ReceiveRules, Reject, Tick, parse};
use netns_lab::fault::SlowReceiver;
use netns_lab::{FabricSpec, Fault, Lab, Overflow, PortCounters, QueueSpec, Routing, Topology};

use crate::mrc::{Injector, Write};
use crate::support::{privileged, wait_until};

/// Three hosts, hosts 0 and 1 under one T0; 8 Mbit/s, so that a queue of 10 ms holds 10,000 bytes.
fn slow(routing: Routing, queue: QueueSpec) -> FabricSpec {
    FabricSpec {
        planes: 1,
        t0: 2,
        t1: 1,
        hosts_per_t0: 2,
        host_link_bps: 80_000_000,
        fabric_link_bps: 8_000_000,
        routing,
        queue,
        ..FabricSpec::default()
    }
}

/// A burst of 64 packets at ten times the speed of the port that it has to pass.
fn burst(lab: &Lab, write: &Write) -> PortCounters {
    const PACKETS: u64 = 64;
    let port = Injector::new(&lab.host(0), "p1");
    (0..PACKETS as u32).for_each(|psn| port.send(&write.frame(psn)));
    let counters = || lab.port_counters("t0.0.p1", "t0.0.p1-t1.0.p1").unwrap();
    wait_until("all packets have come to the queue", || {
        let c = counters();
        c.mrc_sent + c.dropped == PACKETS
    });
    counters()
}

fn build(routing: Routing, queue: QueueSpec) -> Lab {
    Lab::build(&Topology::fabric(slow(routing, queue))).unwrap()
}

fn write(lab: &Lab) -> Write {
    Write::on(lab, 0, 2, &lab.paths(0, 2)[0])
}

#[test]
fn a_full_queue_trims_what_may_be_trimmed_and_drops_the_rest() {
    if !privileged() {
        return;
    }
    let lab = build(Routing::Ecmp, QueueSpec::default());
    let counters = burst(&lab, &write(&lab));
    assert!(counters.trimmed > 10 && counters.dropped == 0, "{counters:?}");
    // 10 ms of 8 Mbit/s, and the control class in addition.
    assert!((9_000..=20_000).contains(&counters.high_water_bytes), "{counters:?}");

    let untrimmable = Write { dscp: 0, ..write(&lab) };
    let before = burst_more(&lab, &untrimmable, &counters);
    assert!(before.dropped > 10 && before.trimmed == counters.trimmed, "{before:?}");
}

/// Another burst, counted from `before`.
fn burst_more(lab: &Lab, write: &Write, before: &PortCounters) -> PortCounters {
    let port = Injector::new(&lab.host(0), "p1");
    (0..64).for_each(|psn| port.send(&write.frame(psn)));
    let counters = || lab.port_counters("t0.0.p1", "t0.0.p1-t1.0.p1").unwrap();
    wait_until("all packets have come to the queue", || {
        let c = counters();
        c.mrc_sent + c.dropped - before.mrc_sent - before.dropped == 64
    });
    counters()
}

#[test]
fn a_fabric_that_drops_does_not_trim() {
    if !privileged() {
        return;
    }
    let lab = build(
        Routing::Srv6,
        QueueSpec {
            overflow: Overflow::Drop,
            ..QueueSpec::default()
        },
    );
    let counters = burst(&lab, &write(&lab));
    assert!(counters.dropped > 10 && counters.trimmed == 0, "{counters:?}");
    // The ramp begins at 2 ms and ends at 6: a queue that fills has marked some.
    assert!(
        counters.marked > 0 && counters.marked < counters.packets,
        "{counters:?}"
    );
}

#[test]
fn what_is_not_ecn_capable_and_what_is_switched_off_is_not_marked() {
    if !privileged() {
        return;
    }
    let off = QueueSpec {
        ecn_max_percent: 0,
        ..QueueSpec::default()
    };
    let lab = build(Routing::Ecmp, off);
    assert_eq!(burst(&lab, &write(&lab)).marked, 0);
    let lab = build(Routing::Ecmp, QueueSpec::default());
    let incapable = Write {
        ecn: Ecn::NotEct,
        ..write(&lab)
    };
    assert_eq!(burst(&lab, &incapable).marked, 0);
}

#[test]
fn the_last_hop_does_not_mark_and_has_a_code_point_of_its_own() {
    if !privileged() {
        return;
    }
    // Only the port to host 2 fills: it carries a tenth of what host 0 may send.
    let spec = FabricSpec {
        t0: 1,
        t1: 0,
        hosts_per_t0: 3,
        host_link_bps: 8_000_000,
        ..slow(Routing::Structured, QueueSpec::default())
    };
    let lab = Lab::build(&Topology::fabric(spec)).unwrap();
    lab.fault(&Fault::SlowReceiver(SlowReceiver {
        host: "h2".to_owned(),
        percent: 10,
    }))
    .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let capture = lab.node("t0.0.p1").unwrap().capture("h2", file.path(), "ip6").unwrap();
    let write = Write::on(&lab, 0, 2, &lab.paths(0, 2)[0]);
    let port = Injector::new(&lab.host(0), "p1");
    (0..64).for_each(|psn| port.send(&write.frame(psn)));
    let counters = || lab.port_counters("t0.0.p1", "h2-t0.0.p1").unwrap();
    wait_until("all packets have come to the queue", || counters().mrc_sent == 64);
    assert!(counters().trimmed > 10 && counters().marked == 0, "{:?}", counters());
    wait_until("all packets are in the file", || frames(file.path()).len() == 64);
    capture.stop().unwrap();
    let cut = frames(file.path()).into_iter().filter(|f| f.len() == 128);
    assert!(cut.map(|f| received(&f, |p| p.dscp)).all(|dscp| dscp == 16));
}

/// The MRC frames of a capture.
fn frames(path: &std::path::Path) -> Vec<Vec<u8>> {
    let Ok(mut reader) = pcap_file::pcap::PcapReader::new(File::open(path).unwrap()) else {
        return Vec::new();
    };
    let mut frames = Vec::new();
    while let Some(Ok(packet)) = reader.next_packet() {
        let frame = packet.data.into_owned();
        if !matches!(parse(Frame::whole(&frame), &RULES), Err(Reject::NotMrc(_))) {
            frames.push(frame);
        }
    }
    frames
}

const RULES: ReceiveRules<'static> = ReceiveRules {
    udp_ports: &[4791],
    dscps: &Dscps {
        no_trim: 0,
        trimmable: Some(4),
        trimmable_retx: Some(8),
        trimmed: 12,
        trimmed_lasthop: Some(16),
        control: 46,
    },
    ev_layout: EvLayout::FlowHigh,
};

fn received<T>(frame: &[u8], ask: impl FnOnce(&Packet<'_>) -> T) -> T {
    ask(&parse(Frame::whole(frame), &RULES).unwrap())
}

/// wire-format.md §10, byte by byte: what is cut off, which lengths are new and which stay, the code point, and that a receiver
/// takes it for what it is.
#[test]
fn a_trimmed_packet_on_the_wire_is_the_head_of_the_one_that_was_sent() {
    if !privileged() {
        return;
    }
    // Structured EVs and SRv6 forward by the programs, ECMP and IPv4 by the kernel.
    for (routing, ipv6) in [
        (Routing::Srv6, true),
        (Routing::Srv6Kernel, true),
        (Routing::Structured, true),
        (Routing::Ecmp, false),
    ] {
        let lab = build(routing, QueueSpec::default());
        let file = tempfile::NamedTempFile::new().unwrap();
        let capture = lab.node("t0.0.p1").unwrap().capture("t1.0", file.path(), "").unwrap();
        let write = if ipv6 {
            write(&lab)
        } else {
            Write::plain(lab.plan(), 0, 2, 1, false)
        };
        let counters = burst(&lab, &write);
        wait_until("all packets are in the file", || {
            frames(file.path()).len() as u64 == counters.mrc_sent
        });
        capture.stop().unwrap();
        let cut: Vec<Vec<u8>> = frames(file.path()).into_iter().filter(|f| f.len() == 128).collect();
        assert_eq!(cut.len() as u64, counters.trimmed);
        for frame in cut {
            let psn = received(&frame, |packet| {
                let Condition::Trimmed { last_hop, .. } = packet.condition else {
                    panic!("{packet:?}")
                };
                assert!(!last_hop);
                assert_eq!((packet.dscp, packet.ev.0 & 0xffff), (12, write.ev & 0xffff));
                let Headers::Write { tseth: Some(tseth), .. } = packet.headers else {
                    panic!("{packet:?}")
                };
                assert_eq!(tseth.tx_timestamp, Tick(0x1234));
                packet.bth.psn.get()
            });
            let sent = write.frame(psn);
            let mut expected = sent[..128].to_vec();
            // Another link: new MAC addresses, one hop less, and with SRv6 an address without the T0's uSID.
            expected[..12].copy_from_slice(&frame[..12]);
            if ipv6 {
                expected[14] = 6 << 4 | 12 >> 2;
                expected[15] = (12 << 6) as u8 | 0x20 | (frame[15] & 0x1f);
                assert_eq!(frame[15] & 0x0f, sent[15] & 0x0f, "the flow label stays");
                expected[18..20].copy_from_slice(&(128_u16 - 54).to_be_bytes());
                expected[21] = 63;
                if routing.tunnelled() {
                    expected.copy_within(44..54, 42);
                    expected[52..54].fill(0);
                }
            } else {
                expected[15] = 12 << 2 | 2;
                expected[16..18].copy_from_slice(&(128_u16 - 14).to_be_bytes());
                expected[22] = 63;
                expected[24..26].copy_from_slice(&frame[24..26]);
                let sum: u32 = frame[14..34]
                    .chunks(2)
                    .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                    .sum();
                assert_eq!(
                    (sum & 0xffff) + (sum >> 16),
                    0xffff,
                    "the checksum is that of the new header"
                );
            }
            assert_eq!(frame, expected, "{routing}");
        }
    }
}

#[test]
fn a_queue_that_was_full_when_its_link_went_down_is_empty_when_it_comes_back() {
    if !privileged() {
        return;
    }
    let lab = build(Routing::Srv6, QueueSpec::default());
    let before = burst(&lab, &write(&lab));
    // Ten milliseconds of data wait now, or nearly.
    let cable = Fault::LinkDown("t0.0.p1-t1.0.p1".to_owned());
    lab.fault(&cable).unwrap();
    lab.heal(&cable).unwrap();
    let port = Injector::new(&lab.host(0), "p1");
    (0..5).for_each(|psn| port.send(&write(&lab).frame(psn)));
    let counters = || lab.port_counters("t0.0.p1", "t0.0.p1-t1.0.p1").unwrap();
    wait_until("five more packets have come to the queue", || {
        counters().mrc_sent == before.mrc_sent + 5
    });
    assert_eq!(
        (counters().trimmed, counters().dropped),
        (before.trimmed, before.dropped)
    );
}

/// What is sent there.
const BYTES: usize = 1 << 20;

#[test]
fn what_a_kernel_sends_is_queued_packet_by_packet() {
    if !privileged() {
        return;
    }
    // Whatever the hosts' kernels put together for speed: a switch sees what would be on the wire.
    let lab = Lab::build(&Topology::fabric(FabricSpec {
        planes: 1,
        mtu: 1500,
        ..FabricSpec::default()
    }))
    .unwrap();
    let listener = lab
        .host(1)
        .enter(|| TcpListener::bind(("0.0.0.0", 0)).unwrap())
        .unwrap();
    let to = (lab.host(1).gid_v4(), listener.local_addr().unwrap().port());
    let sender = lab.host(0).enter(move || TcpStream::connect(to).unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (&sender).write_all(&vec![0; BYTES]).unwrap());
        receiver.read_exact(&mut vec![0; BYTES]).unwrap();
    });
    for port in lab.switch_ports().unwrap() {
        let c = port.counters;
        assert!(c.bytes <= c.packets * 1514, "{port:?}");
    }
}

#[test]
fn control_goes_ahead_of_data_that_waits() {
    if !privileged() {
        return;
    }
    let lab = build(Routing::Structured, QueueSpec::default());
    let file = tempfile::NamedTempFile::new().unwrap();
    let capture = lab.node("t0.0.p1").unwrap().capture("t1.0", file.path(), "").unwrap();
    let port = Injector::new(&lab.host(0), "p1");
    let data = Write {
        dscp: 0,
        payload: 900,
        ..write(&lab)
    };
    let control = Write {
        dscp: 46,
        payload: 8,
        ..write(&lab)
    };
    // Nine packets of about a millisecond each wait when the tenth comes.
    (0..9).for_each(|psn| port.send(&data.frame(psn)));
    port.send(&control.frame(9));
    let sent = || {
        frames(file.path())
            .iter()
            .map(|f| received(f, |p| p.bth.psn.get()))
            .collect::<Vec<_>>()
    };
    wait_until("all packets are in the file", || sent().len() == 10);
    capture.stop().unwrap();
    let place = sent().iter().position(|psn| *psn == 9).unwrap();
    assert!(place < 8, "{:?}", sent());
}
