//! Two engines over AF_XDP, in two hosts of a lab. Needs root.

#[path = "../src/engine/tests/end.rs"]
mod end;

use end::{Choice, End, connect, create_qp, pattern, steps, wait_for};
use mrc_dataplane::engine::{Command, CreateQp, Engine, EngineConfig};
use mrc_protocol::RetryAttr;
use mrc_wire::Pmtu;
use netns_lab::{Lab, Topology};

struct Rig {
    // Before the lab, so that ports go before their interfaces do.
    a: End,
    b: End,
    lab: Lab,
}

impl Rig {
    fn new(topology: &Topology, choice: &Choice) -> Self {
        let lab = Lab::build(topology).expect("the lab can be built (needs root)");
        let start = |host: usize| {
            let host = lab.host(host);
            let config = EngineConfig {
                ports: EngineConfig::with_ports(host.port_names()).ports,
                ..choice.config.clone()
            };
            End::new(
                host.enter(|| Engine::start(config))
                    .expect("inside the host")
                    .expect("an engine"),
                choice,
            )
        };
        let (a, b) = (start(0), start(1));
        connect(&a, &b, choice);
        connect(&b, &a, choice);
        Self { a, b, lab }
    }

    /// Writes all of A's memory to B in messages of `piece` bytes, and compares.
    fn transfer(&mut self, seed: u64, piece: usize) {
        let bytes = pattern(seed, self.a.memory.len());
        self.a.memory.write(0, &bytes);
        let target = self.b.target();
        let mut posted = 0;
        let mut done = 0;
        let count = bytes.len().div_ceil(piece);
        while done < count {
            while posted < count && posted - done < 32 {
                let offset = posted * piece;
                self.a
                    .write(posted as u64, &target, offset, piece.min(bytes.len() - offset));
                posted += 1;
            }
            let completion = self.a.completion();
            assert_eq!(
                (completion.wr_id, completion.status),
                (done as u64, 0),
                "{:?}",
                self.a.info()
            );
            done += 1;
        }
        assert!(self.b.memory.read(0, bytes.len()) == bytes, "other bytes arrived");
    }
}

#[test]
fn every_pmtu_and_family_over_two_planes() {
    for ipv6 in [false, true] {
        for pmtu in Pmtu::ALL {
            let choice = Choice {
                pmtu,
                ipv6,
                memory: (1 << 20) + 3,
                ..Choice::default()
            };
            let mut rig = Rig::new(&Topology::pair(2), &choice);
            rig.transfer(1, 64 << 10);
            for size in [
                0,
                1,
                pmtu.bytes() - 1,
                pmtu.bytes(),
                pmtu.bytes() + 1,
                2 * pmtu.bytes() + 1,
            ] {
                let target = rig.b.target();
                rig.a.write(7, &target, 3, size);
                assert_eq!(rig.a.completion().status, 0);
            }
        }
    }
}

#[test]
fn four_planes_of_a_leaf_carry_equal_shares() {
    let choice = Choice {
        memory: 16 << 20,
        ..Choice::default()
    };
    let mut rig = Rig::new(&Topology::leaf(2, 4), &choice);
    rig.transfer(2, 1 << 20);
    let counters = rig.a.engine.counters();
    let all: u64 = counters.ports.iter().map(|port| port.tx_data_bytes).sum();
    for port in &counters.ports {
        let share = port.tx_data_bytes as f64 / all as f64;
        assert!(
            (0.225..0.275).contains(&share),
            "{} carried {share}: {counters:?}",
            port.name
        );
    }
}

#[test]
fn a_plane_goes_down_and_up_under_load() {
    let choice = Choice {
        memory: 8 << 20,
        ..Choice::default()
    };
    let mut rig = Rig::new(&Topology::leaf(2, 2), &choice);
    rig.transfer(3, 1 << 20);
    rig.lab.set_link(0, 1, false).unwrap();
    rig.transfer(4, 1 << 20);
    let quiet = rig.a.engine.counters().ports[0].tx_packets;
    rig.transfer(5, 1 << 20);
    assert_eq!(
        rig.a.engine.counters().ports[0].tx_packets,
        quiet,
        "a port that is down was used"
    );
    rig.lab.set_link(0, 1, true).unwrap();
    let mut seed = 6;
    wait_for("the plane to carry data again", || {
        seed += 1;
        rig.transfer(seed, 1 << 20);
        (rig.a.engine.counters().ports[0].tx_data_bytes > 0 && rig.a.engine.counters().ports[0].tx_packets > quiet)
            .then_some(())
    });
}

#[test]
fn all_planes_down_is_an_error_completion() {
    let retry = RetryAttr {
        timeout: 12,
        linear_cnt: 2,
        exp_cnt: 2,
    };
    let mut rig = Rig::new(
        &Topology::pair(2),
        &Choice {
            retry,
            ..Choice::default()
        },
    );
    for plane in 1..=2 {
        rig.lab.set_link(0, plane, false).unwrap();
    }
    let target = rig.b.target();
    rig.a.write(1, &target, 0, 100_000);
    assert_eq!(rig.a.completion().status, 12);
}

#[test]
fn a_peer_without_a_route_is_refused_in_one_line() {
    let choice = Choice::default();
    let rig = Rig::new(&Topology::pair(2), &choice);
    let (qpn, _rings) = create_qp(&rig.a.engine, CreateQp::new(rig.a.pd, rig.a.cq, rig.a.cq, 1));
    let nowhere = "192.0.2.77".parse().unwrap();
    let [init, rtr, _] = steps(&rig.a, rig.b.qpn, nowhere, &choice);
    rig.a.engine.command(Command::ModifyQp { qpn, change: init }).unwrap();
    let refused = rig.a.engine.command(Command::ModifyQp { qpn, change: rtr });
    let message = refused.err().expect("no route leads there").to_string();
    assert!(
        message.starts_with("peer 192.0.2.77: no route over p1, p2; add one per port: ip route add"),
        "{message}"
    );
}
