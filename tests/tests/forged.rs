//! Packets that nobody should have sent: dropped, counted by reason, nothing written, and the queue pair lives on.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use mrc_tests::{Connection, Fabric, Forge, Injector, Node, Options, next_psn, reseal, until};
use mrc_verbs::{AddressFamily, AsyncEvent, QpState, WcStatus};
use mrc_wire::{Aeth, Headers, Neth, Opcode, PathVerdict, Psn, Reth, Seth};
use netns_lab::Topology;

const ETHERNET: usize = 14;
/// From the start of the BTH.
const OPCODE: usize = 0;
const FLAGS: usize = 1;
const P_KEY: usize = 2;

/// A frame, and under which name its drop is to be counted; `None` where the kernel gets it before any engine.
type Case = (&'static str, Vec<u8>, Option<&'static str>);

/// Posts something that B has to refuse.
type Ask = fn(&Connection);

/// A connection, and somebody who can send anything to both its ends.
struct Scene {
    fabric: Fabric,
    connection: Connection,
    /// A to B.
    forge: Forge,
    bth: usize,
}

impl Scene {
    fn new(ipv6: bool) -> Scene {
        let fabric = Fabric::new(&Topology::pair(1));
        let family = if ipv6 { AddressFamily::V6 } else { AddressFamily::V4 };
        let connection = Connection::open(
            &fabric,
            &Options {
                family,
                ..Options::default()
            },
        );
        let forge = Forge::new(&fabric.lab, ipv6);
        let bth = ETHERNET + if ipv6 { 40 } else { 20 } + 8;
        Scene {
            fabric,
            connection,
            forge,
            bth,
        }
    }

    fn reth(&self) -> Reth {
        let region = self.connection.b.region.remote();
        Reth {
            va: region.addr + 1_000,
            r_key: region.rkey,
            dmalen: 100,
        }
    }

    /// The write that A would send next. B would accept it.
    fn genuine(&self) -> Vec<u8> {
        let Connection { a, b, .. } = &self.connection;
        self.forge
            .write(b.qp.qpn(), next_psn(&a.qp), 0, self.reth(), &[0xee; 100])
    }

    /// The same with other bytes under a right ICRC.
    fn changed(&self, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut frame = self.genuine();
        change(&mut frame);
        reseal(&mut frame);
        frame
    }

    /// The same, damaged on the way.
    fn damaged(&self, at: usize, bit: u8) -> Vec<u8> {
        let mut frame = self.genuine();
        frame[at] ^= bit;
        frame
    }

    /// What B has to refuse.
    fn writes(&self) -> Vec<Case> {
        let Connection { a, b, .. } = &self.connection;
        let (qpn, psn, bth) = (b.qp.qpn(), next_psn(&a.qp), self.bth);
        let end = self.genuine().len();
        let write = |forge: &Forge, qpn: u32, psn: u32| forge.write(qpn, psn, 0, self.reth(), &[0xee; 100]);
        let stranger = match self.forge.path.ip {
            mrc_wire::IpPair::V4 { .. } => IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77)),
            mrc_wire::IpPair::V6 { .. } => IpAddr::V6(Ipv6Addr::new(0xfd4d, 0x5243, 0, 0, 0, 0, 0, 0x77)),
        };
        vec![
            ("wrong ICRC", self.damaged(end - 1, 0x80), Some("malformed.icrc")),
            ("flipped data", self.damaged(end - 10, 0x01), Some("malformed.icrc")),
            (
                "flipped address",
                self.damaged(bth + 12 + 4 + 6, 0x10),
                Some("malformed.icrc"),
            ),
            (
                "flipped rkey",
                self.damaged(bth + 12 + 4 + 9, 0x10),
                Some("malformed.icrc"),
            ),
            ("flipped QPN", self.damaged(bth + 7, 0x01), Some("malformed.icrc")),
            (
                "another QPN",
                write(&self.forge, qpn ^ 0x5555, psn),
                Some("engine.unknown_qp"),
            ),
            ("endpoint QPN", write(&self.forge, 2, psn), Some("malformed.dqp")),
            (
                "another source",
                write(&self.forge.from_node(stranger), qpn, psn),
                Some("engine.wrong_source"),
            ),
            (
                "PSN far ahead",
                write(&self.forge, qpn, psn + 100_000),
                Some("protocol.out_of_window"),
            ),
            (
                "PSN at the end of the window",
                write(&self.forge, qpn, psn + 8 * 128),
                Some("protocol.out_of_window"),
            ),
            (
                "another partition",
                self.changed(|frame| frame[bth + P_KEY] = 0x12),
                Some("protocol.p_key"),
            ),
            (
                "undefined opcode",
                self.changed(|frame| frame[bth + OPCODE] = 0xc1),
                Some("malformed.opcode"),
            ),
            (
                "another version",
                self.changed(|frame| frame[bth + FLAGS] |= 0x03),
                Some("malformed.tver"),
            ),
            (
                "UDP longer than IP",
                self.changed(|frame| frame[bth - 3] += 4),
                Some("malformed.udp_length"),
            ),
            ("no room for the headers", self.short(16), Some("malformed.short")),
            ("cut off by four bytes", self.genuine()[..end - 4].to_vec(), None),
            ("cut off in the BTH", self.genuine()[..bth + 5].to_vec(), None),
            ("plain RoCE", self.changed(|frame| frame[bth + OPCODE] = 0x0a), None),
        ]
    }

    /// A packet whose lengths fit each other, but not the headers of its opcode: `len` bytes behind the UDP header.
    fn short(&self, len: usize) -> Vec<u8> {
        let mut frame = self.genuine();
        frame.truncate(self.bth + len);
        let udp = (8 + len) as u16;
        frame[self.bth - 4..self.bth - 2].copy_from_slice(&udp.to_be_bytes());
        if self.bth == ETHERNET + 48 {
            frame[18..20].copy_from_slice(&udp.to_be_bytes());
        } else {
            frame[16..18].copy_from_slice(&(udp + 20).to_be_bytes());
            fix_ipv4_checksum(&mut frame);
        }
        reseal(&mut frame);
        frame
    }

    /// What A has to refuse: answers of B that B never gave.
    fn answers(&self) -> Vec<Case> {
        let Connection { a, .. } = &self.connection;
        let forge = self.forge.turned();
        let (qpn, ahead) = (a.qp.qpn(), next_psn(&a.qp) + 5);
        let answer = |opcode, headers| forge.frame(opcode, qpn, ahead, headers, &[]);
        let ack = |syndrome| Headers::Ack(Aeth { syndrome, msn: 9 });
        let seth = Seth {
            m: PathVerdict::AlwaysSkip,
            cack_psn: Psn::new(ahead),
            sack_bitmap: u64::MAX,
            ..Seth::default()
        };
        let nack = Neth {
            nack_psn: Psn::new(ahead),
            ..Neth::default()
        };
        let mut torn = answer(Opcode::Sack, Headers::Sack(seth, None));
        torn[self.bth + 11] ^= 1;
        reseal(&mut torn);
        vec![
            (
                "Transport ACK of what was not sent",
                answer(Opcode::Ack, ack(0)),
                Some("protocol.implausible"),
            ),
            (
                "NAK of what was not sent",
                answer(Opcode::Ack, ack(0x62)),
                Some("protocol.not_outstanding"),
            ),
            (
                "SACK of what was not sent",
                answer(Opcode::Sack, Headers::Sack(seth, None)),
                Some("protocol.implausible"),
            ),
            (
                "NACK of what was not sent",
                answer(Opcode::Nack, Headers::Nack(nack)),
                Some("protocol.not_outstanding"),
            ),
            (
                "syndrome that MRC does not use",
                answer(Opcode::Ack, ack(0x20)),
                Some("malformed.syndrome"),
            ),
            ("SACK with two PSNs", torn, Some("malformed.psn_mismatch")),
        ]
    }

    /// Sends one frame, waits until it is counted, and compares everything that must not have changed.
    fn check(&self, node: &Node, injector: &Injector, (name, frame, counter): Case) {
        let Connection { a, b, .. } = &self.connection;
        let before = node.device.counters();
        let memory = [a, b].map(|side| side.region.to_vec(0, side.region.len()).unwrap());
        injector.send(&frame);
        // What the kernel gets is told by something else that comes behind it on the same way.
        let counter = counter.unwrap_or_else(|| {
            injector.send(&self.damaged(self.genuine().len() - 1, 0x80));
            "malformed.icrc"
        });
        let count = before.dropped(counter) + 1;
        let dropped = || node.device.counters().dropped(counter);
        until(&format!("{name} to be counted as {counter}"), || dropped() == count);
        let after = node.device.counters();
        let sum = |drops: &[(String, u64)]| drops.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(sum(&after.drops), sum(&before.drops) + 1, "{name}: {:?}", after.drops);
        for (side, memory) in [a, b].into_iter().zip(memory) {
            assert!(
                side.region.to_vec(0, memory.len()).unwrap() == memory,
                "{name}: something was written"
            );
            assert_eq!(side.cq.poll_one().unwrap(), None, "{name}");
            assert_eq!(side.qp.state().unwrap(), QpState::Rts, "{name}");
        }
    }
}

fn fix_ipv4_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let words = frame[14..34]
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn check_all(ipv6: bool) {
    let scene = Scene::new(ipv6);
    let Scene { fabric, connection, .. } = &scene;
    connection.write_and_compare(50_000, 5, 1);
    let near_b = Injector::new(fabric.lab.host(0), "p1");
    let near_a = Injector::new(fabric.lab.host(1), "p1");
    for case in scene.writes() {
        scene.check(&fabric.b, &near_b, case);
    }
    if !ipv6 {
        let mut frame = scene.genuine();
        frame[ETHERNET + 8] -= 1;
        scene.check(&fabric.b, &near_b, ("IPv4 checksum", frame, Some("malformed.checksum")));
    }
    for case in scene.answers() {
        scene.check(&fabric.a, &near_a, case);
    }
    connection.write_and_compare(50_000, 5, 2);

    // All of this was refused for what was changed: unchanged, it is what A would send, and nobody can tell.
    near_b.send(&scene.genuine());
    until("the genuine packet", || {
        connection.b.region.to_vec(1_000, 100).unwrap() == [0xee; 100]
    });
}

#[test]
fn forged_ipv4_packets_are_dropped_and_counted_by_reason() {
    check_all(false);
}

#[test]
fn forged_ipv6_packets_are_dropped_and_counted_by_reason() {
    check_all(true);
}

#[test]
fn noise_in_mid_traffic_does_no_harm() {
    let scene = Scene::new(true);
    let Scene { fabric, connection, .. } = &scene;
    let injector = Injector::new(fabric.lab.host(0), "p1");
    let frame = scene.genuine();
    let mut stream = mrc_tests::Stream::new(connection, 32 << 10);
    for round in 0..2_000_usize {
        // Any bit of the headers and the data, and any length.
        let mut frame = frame.clone();
        let bit = ETHERNET * 8 + (round * 7_919) % ((frame.len() - ETHERNET) * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        frame.truncate(60 + (round * 31) % (frame.len() - 60));
        injector.send(&frame);
        if round % 50 == 0 {
            stream.pump(1);
        }
    }
    stream.pump(20);
    stream.finish();
    connection.write_and_compare(300_003, 17, 5);
}

/// A write that comes from the right place and asks for what it may not have kills the queue pair, and nothing else.
#[test]
fn a_forged_write_with_a_wrong_key_is_refused_for_good() {
    let scene = Scene::new(true);
    let Scene { fabric, connection, .. } = &scene;
    let bystander = Connection::open(fabric, &Options::default());
    connection.write_and_compare(50_000, 5, 1);
    let Connection { a, b, .. } = connection;
    let before = b.region.to_vec(0, b.region.len()).unwrap();
    let reth = Reth {
        r_key: scene.reth().r_key ^ 1,
        ..scene.reth()
    };
    let frame = scene.forge.write(b.qp.qpn(), next_psn(&a.qp), 0, reth, &[0xee; 100]);
    Injector::new(fabric.lab.host(0), "p1").send(&frame);
    let event = fabric.b.context.next_event(Some(Duration::from_mins(1)));
    assert_eq!(event, Some(AsyncEvent::QpAccessError { qpn: b.qp.qpn() }));
    assert_eq!(b.qp.state().unwrap(), QpState::Err);
    assert!(b.region.to_vec(0, before.len()).unwrap() == before);
    // A never sent it, so B's refusal concerns nothing that is outstanding.
    until("the refusal to be dropped", || {
        fabric.a.device.counters().dropped("protocol.not_outstanding") == 1
    });
    assert_eq!(a.qp.state().unwrap(), QpState::Rts);
    bystander.write_and_compare(50_000, 5, 2);
    bystander.turned().write_and_compare(50_000, 5, 2);
}

#[test]
fn writes_that_the_peer_refuses_name_the_reason_and_spare_other_queue_pairs() {
    let fabric = Fabric::new(&Topology::pair(2));
    let bystander = Connection::open(&fabric, &Options::default());
    let beyond: Ask = |c| c.a.write(1, 0..5_000, &c.b, c.b.region.len() - 4_999);
    let unknown_key: Ask = |c| {
        let mut remote = c.b.region.remote();
        remote.rkey ^= 0x8000;
        let piece = c.a.region.slice(0..5_000).unwrap();
        c.a.qp
            .post_write(&mrc_verbs::SendRequest::write(1, piece, remote))
            .unwrap();
    };
    let no_receive: Ask = |c| {
        let piece = c.a.region.slice(0..0).unwrap();
        let request = mrc_verbs::SendRequest::write(1, piece, c.b.region.remote()).with_imm([0; 4]);
        c.a.qp.post_write(&request).unwrap();
    };
    for (ask, status) in [
        (beyond, WcStatus::RemAccessErr),
        (unknown_key, WcStatus::RemAccessErr),
        (no_receive, WcStatus::RemOpErr),
    ] {
        let connection = Connection::open(&fabric, &Options::default());
        let Connection { a, b, .. } = &connection;
        a.region.fill(0, a.region.len(), 0xee).unwrap();
        ask(&connection);
        a.write(2, 0..100, b, 0);
        assert_eq!(a.completion().result, Err(status));
        assert_eq!(a.completion().result, Err(WcStatus::WrFlushErr));
        assert_eq!(a.qp.state().unwrap(), QpState::Err);
        until("the responder's failure", || b.qp.state().unwrap() == QpState::Err);
        let event = fabric.b.context.next_event(Some(Duration::from_mins(1)));
        assert_eq!(event, Some(AsyncEvent::QpAccessError { qpn: b.qp.qpn() }));
        let written = b.region.to_vec(100, b.region.len() - 100).unwrap();
        assert!(written.iter().all(|&byte| byte == 0), "{status}: something was written");
        bystander.write_and_compare(50_000, 5, 2);
    }
}
