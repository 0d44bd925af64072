//! The parts of the simulated network, each alone.

use mrc_protocol::{Memory, Transmit};
use mrc_sim::codec::{Codec, Route};
use mrc_sim::coverage::{Coverage, FaultTag};
use mrc_sim::fabric::delay::{DelayFabric, DelayPlan};
use mrc_sim::fabric::fault::{Fault, Kind, Scope};
use mrc_sim::fabric::frame::{Body, Frame, Trim};
use mrc_sim::memory::HostMemory;
use mrc_sim::scenario::Format;
use mrc_wire::{
    Bth, Condition, Ev, Headers, Meth, Opcode, Payload, PortNum, Psn, Qpn, Reth, Tick, TrafficClass, Tseth,
};

const DATA: &[u8] = &[7; 300];

fn write(port: u8, ev: u32) -> Transmit {
    Transmit {
        bth: Bth {
            ts: true,
            ..Bth::new(Opcode::WriteOnly, Qpn::new(7), Psn::new(9))
        },
        headers: Headers::Write {
            meth: Meth { rqmsn: 0, msn: 1 },
            tseth: Some(Tseth::new(Tick(5))),
            reth: Reth {
                va: 0x1000,
                r_key: 3,
                dmalen: 300,
            },
            imm: None,
        },
        ev: Ev(ev),
        path: 0,
        port: PortNum::new(port).expect("a port number"),
        class: TrafficClass::Trimmable,
        ect: true,
        payload: None,
        is_retransmission: false,
    }
}

fn frame(format: Format, port: u8, ev: u32) -> Frame {
    Codec::new(format)
        .pack(Route { src: 0, dst: 1, id: 0 }, &write(port, ev), DATA.into())
        .expect("a packet that can be built")
}

/// Arrivals of frames on the paths `(port, ev)`, sent at intervals of 10 ns.
fn arrivals(skew_ns: u64, faults: &[Fault], paths: &[(u8, u32)]) -> (Vec<(u64, Frame)>, Coverage) {
    let plan = DelayPlan {
        delay_ns: vec![1000; 4],
        skew_ns,
        noise_ns: 500,
    };
    let mut fabric = DelayFabric::new(plan, faults, 1);
    let mut coverage = Coverage::default();
    let mut arrived = Vec::new();
    for (at, (port, ev)) in paths.iter().enumerate() {
        let mut sent = frame(Format::Values, *port, *ev);
        sent.id = at as u64;
        fabric.send(Box::new(sent), at as u64 * 10, &mut coverage, |at_ns, frame| {
            arrived.push((at_ns, *frame));
        });
    }
    arrived.sort_by_key(|(at_ns, _)| *at_ns);
    (arrived, coverage)
}

fn fault(kind: Kind, scope: Scope) -> Fault {
    Fault {
        kind,
        scope,
        from_ns: 0,
        until_ns: u64::MAX,
    }
}

#[test]
fn one_path_keeps_its_order_and_several_paths_do_not() {
    let same: Vec<(u8, u32)> = vec![(1, 5); 200];
    let (arrived, _) = arrivals(20_000, &[], &same);
    assert!(arrived.windows(2).all(|pair| pair[0].1.id < pair[1].1.id));
    let many: Vec<(u8, u32)> = (0..200).map(|ev| (1, ev % 8)).collect();
    let (arrived, _) = arrivals(20_000, &[], &many);
    assert_eq!(arrived.len(), 200);
    assert!(arrived.windows(2).any(|pair| pair[0].1.id > pair[1].1.id));
}

#[test]
fn a_blackhole_swallows_its_plane_and_no_other() {
    let scope = Scope {
        plane: Some(2),
        ..Scope::default()
    };
    let paths: Vec<(u8, u32)> = (0..100).map(|at| (at % 4 + 1, 1)).collect();
    let (arrived, coverage) = arrivals(0, &[fault(Kind::Blackhole, scope)], &paths);
    assert_eq!(arrived.len(), 75);
    assert!(arrived.iter().all(|(_, frame)| frame.plane != 2));
    assert_eq!(coverage.faults[&FaultTag::PlaneBlackhole].times, 25);
}

#[test]
fn a_path_is_in_the_scope_of_a_share_always_or_never() {
    let scope = Scope {
        ev_share_ppm: Some(500_000),
        ..Scope::default()
    };
    let paths: Vec<(u8, u32)> = (0..400).map(|at| (1, at % 40)).collect();
    let (arrived, _) = arrivals(0, &[fault(Kind::Blackhole, scope)], &paths);
    for ev in 0..40 {
        let count = arrived.iter().filter(|(_, frame)| frame.ev == ev).count();
        assert!(count == 0 || count == 10, "EV {ev}: {count} of 10 arrive");
    }
    assert!((80..320).contains(&arrived.len()));
}

#[test]
fn bursts_lose_runs_of_frames_and_duplicates_add_frames() {
    let paths = vec![(1, 1); 5000];
    let burst = fault(
        Kind::Burst {
            enter_ppm: 10_000,
            within_ns: 100,
        },
        Scope::default(),
    );
    let (arrived, _) = arrivals(0, &[burst], &paths);
    let gaps: Vec<u64> = arrived.windows(2).map(|pair| pair[1].1.id - pair[0].1.id).collect();
    assert!(gaps.iter().any(|gap| *gap > 4), "no burst of more than three");
    let twice = fault(
        Kind::Duplicate {
            ppm: 100_000,
            within_ns: 1000,
        },
        Scope::default(),
    );
    let (arrived, coverage) = arrivals(0, &[twice], &paths);
    assert_eq!(arrived.len() as u64, 5000 + coverage.faults[&FaultTag::Duplicate].times);
}

#[test]
fn packets_read_back_as_they_were_sent_in_every_form() {
    for format in [Format::Values, Format::BytesV4, Format::BytesV6] {
        let codec = Codec::new(format);
        let mut scratch = Vec::new();
        let mut sent = frame(format, 3, 0xC001);
        sent.ce = true;
        let packet = codec.unpack(&sent, &mut scratch).unwrap().unwrap();
        assert_eq!(
            (packet.headers, packet.payload.head),
            (write(3, 0xC001).headers, DATA),
            "{format:?}"
        );
        assert_eq!(
            (packet.ev, packet.ce, packet.condition),
            (Ev(0xC001), true, Condition::Whole),
            "{format:?}"
        );
        assert_eq!(
            (packet.src, packet.dst),
            (codec.address(0), codec.address(1)),
            "{format:?}"
        );
        assert_eq!(packet.udp_len, 8 + 12 + 4 + 4 + 16 + 300 + 4, "{format:?}");
    }
}

#[test]
fn trimmed_packets_arrive_as_trimmed_in_every_form() {
    for format in [Format::Values, Format::BytesV4, Format::BytesV6] {
        for last_hop in [false, true] {
            let mut scratch = Vec::new();
            let mut sent = frame(format, 1, 0xC001);
            sent.trim = Some(Trim { last_hop, keep: 96 });
            let packet = Codec::new(format).unpack(&sent, &mut scratch).unwrap().unwrap();
            assert_eq!(packet.condition, Condition::Trimmed { last_hop }, "{format:?}");
            assert_eq!(
                (packet.bth.psn, packet.tx_timestamp()),
                (Psn::new(9), Tick(5)),
                "{format:?}"
            );
            assert!(packet.payload.is_empty());
        }
    }
}

#[test]
fn no_flipped_bit_changes_a_packet_unnoticed() {
    for format in [Format::BytesV4, Format::BytesV6] {
        let codec = Codec::new(format);
        let mut scratch = Vec::new();
        let mut accepted = 0;
        let Body::Bytes(bytes) = frame(format, 1, 0xC001).body else {
            panic!("not serialised")
        };
        let bits = bytes.len() as u64 * 8;
        for bit in 0..bits {
            let mut sent = frame(format, 1, 0xC001);
            sent.flips.push(bit);
            accepted += u64::from(codec.unpack(&sent, &mut scratch).unwrap().is_some());
        }
        // MAC addresses, hop limit, traffic class, flow label, UDP checksum and `var_res` are all that the ICRC leaves out.
        assert!(
            accepted < 200,
            "{format:?}: {accepted} of {bits} damaged frames are accepted"
        );
    }
}

#[test]
fn memory_refuses_what_no_region_permits_and_finds_every_stray_byte() {
    let mut memory = HostMemory::new();
    let open = memory.add_region(1, 100, 16, true);
    let closed = memory.add_region(2, 100, 16, false);
    let data = Payload::new(&[1, 2, 3, 4]);
    assert!(memory.place(1, open.va, &data).is_ok());
    assert!(memory.place(1, open.va + 96, &data).is_ok());
    for (rkey, va) in [
        (1, open.va + 97),
        (1, open.va - 1),
        (2, closed.va),
        (3, open.va),
        (1, u64::MAX - 1),
    ] {
        assert!(memory.place(rkey, va, &data).is_err(), "key {rkey} at {va:#x}");
    }
    let written = [(open.va, data.head), (open.va + 96, data.head)];
    assert_eq!(memory.first_difference([].into_iter(), written.into_iter()), None);
    let without_second = || written.into_iter().take(1);
    assert_eq!(
        memory.first_difference([].into_iter(), without_second()),
        Some(open.va + 96)
    );
    assert_eq!(
        memory.first_difference([(open.va + 96, 4)].into_iter(), without_second()),
        None,
        "where anything may stand"
    );
}
