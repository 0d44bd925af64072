//! Congestion control over real interfaces: which window a queue pair gets, and ports that keep to the speed of their link.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

use std::time::Instant;

use mrc_tests::{Connection, Fabric, Options, Stream};
use mrc_verbs::{EngineConfig, WindowInfo, parse_config};
use netns_lab::Topology;

const PLANES: usize = 2;
const LINK_BPS: u64 = 100_000_000;

/// Ports with a speed, or without.
fn node_config(text: &str, speed: bool) -> EngineConfig {
    let mut config = parse_config(text, "congestion.toml", EngineConfig::with_ports(["p1", "p2"])).unwrap();
    for port in &mut config.ports {
        port.link_speed_bps = speed.then_some(LINK_BPS);
    }
    config
}

fn fabric(text: &str, speed: bool) -> Fabric {
    let lab = Fabric::lab(&Topology::pair(PLANES));
    let open = |host| mrc_tests::Node::open_exactly(lab.host(host), node_config(text, speed)).unwrap();
    let (a, b) = (open(0), open(1));
    Fabric { a, b, lab }
}

fn window(connection: &Connection) -> WindowInfo {
    connection.a.qp.query().unwrap().window.unwrap()
}

#[test]
fn ports_with_a_speed_are_paced_and_have_a_window_of_their_bandwidth_times_delay() {
    let fabric = fabric("", true);
    let options = Options {
        region: 4 << 20,
        ..Options::default()
    };
    let connection = Connection::open(&fabric, &options);
    // 1.5 times 200 Mbit/s times 2 ms of the hosts and 685 us on the links (protocol.md §10.3).
    assert_eq!(window(&connection).cwnd_bytes, Some(100_704));
    let start = Instant::now();
    let mut stream = Stream::new(&connection, 64 << 10);
    stream.pump(64);
    stream.finish();
    let (elapsed, counters) = (start.elapsed(), fabric.a.device.counters());
    for port in &counters.ports {
        let least = port.tx_bytes as f64 * 8.0 / LINK_BPS as f64;
        assert!(port.tx_data_bytes > 1 << 20, "{counters:?}");
        // 2 ms are made up for, and 100 us sent ahead.
        assert!(
            elapsed.as_secs_f64() + 0.01 > least,
            "{} sent in {elapsed:?} what takes {least:.3} s",
            port.name
        );
    }
    let window = window(&connection);
    assert!((1_342_000..=2_686_000).contains(&window.base_rtt_ns), "{window:?}");
    assert!(window.cwnd_bytes <= window.max_wnd_bytes, "{window:?}");
    let query = connection.a.qp.query().unwrap();
    assert!(query.rtt_ns.0 > 0 && query.stats.packets_sent > 1000, "{query:?}");
    assert_eq!((query.ev_profile.as_str(), query.cc_profile.as_str()), ("0", "0"));
}

#[test]
fn the_window_shrinks_with_a_link_that_goes_down_and_grows_with_it_again() {
    let fabric = fabric("", true);
    let connection = Connection::open(&fabric, &Options::default());
    let full = window(&connection).max_wnd_bytes.unwrap();
    fabric.lab.set_link(0, 2, false).unwrap();
    mrc_tests::until("the window is that of one link", || {
        window(&connection).max_wnd_bytes.unwrap() < full * 3 / 4
    });
    connection.write_and_compare(100_000, 0, 1);
    fabric.lab.set_link(0, 2, true).unwrap();
    mrc_tests::until("the window is that of two links", || {
        let window = window(&connection);
        // The base round trip may have been found to be up to half of what was configured.
        window.max_wnd_bytes.unwrap() > full / 2 * 5 / 4 * window.base_rtt_ns / 2_685_440
    });
    connection.write_and_compare(100_000, 0, 2);
}

#[test]
fn without_speeds_or_without_congestion_control_packets_per_port_are_the_limit() {
    let plain = fabric("", false);
    let connection = Connection::open(&plain, &Options::default());
    assert_eq!(window(&connection).cwnd_bytes, None);
    connection.write_and_compare(1_000_000, 0, 1);
    drop((connection, plain));

    let text = "device = { cc_profile = 'off' }\n[[cc_profile]]\nname = 'off'\nalgorithm = 'none'\n";
    let off = fabric(text, true);
    let connection = Connection::open(&off, &Options::default());
    assert_eq!(window(&connection).cwnd_bytes, None);
    assert_eq!(connection.a.qp.query().unwrap().cc_profile, "off");
    connection.write_and_compare(500_000, 0, 2);
}

#[test]
fn a_peer_may_have_profiles_of_its_own() {
    let lab = Fabric::lab(&Topology::pair(PLANES));
    let peer = lab.host(1).gid_v6();
    let text = format!(
        "[[ev_profile]]\nname = 'few'\nmode = 'AUTO'\ncount = 4\n\
         [[cc_profile]]\nname = 'small'\nbase_rtt_ns = 1_000_000\nmax_cwnd_bytes = 20_000\nper_qp = true\n\
         [peer.'{peer}']\nev_profile = 'few'\ncc_profile = 'small'\n"
    );
    let open = |host, text: &str| mrc_tests::Node::open_exactly(lab.host(host), node_config(text, true)).unwrap();
    let (a, b) = (open(0, &text), open(1, ""));
    let fabric = Fabric { a, b, lab };
    let first = Connection::open(&fabric, &Options::default());
    let second = Connection::open(&fabric, &Options::default());
    for connection in [&first, &second] {
        let query = connection.a.qp.query().unwrap();
        assert_eq!((query.ev_profile.as_str(), query.cc_profile.as_str()), ("few", "small"));
        assert_eq!(query.window.unwrap().max_wnd_bytes, Some(20_000));
        assert_eq!(connection.a.qp.paths().unwrap().len(), 4);
        assert_eq!(connection.b.qp.query().unwrap().ev_profile, "0");
    }
    // Bytes of the one are none of the other's: each has its own window.
    first.write_and_compare(300_000, 0, 1);
    assert_eq!(window(&second).inflight_bytes, 0);
    assert_eq!(fabric.a.device.ev_profile("few").unwrap().bound_qps, 2);
    drop(first);
    assert_eq!(fabric.a.device.ev_profile("few").unwrap().bound_qps, 1);
}
