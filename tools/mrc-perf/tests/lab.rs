//! `mrc-perf` between the hosts of a lab: real packets over real planes. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use netns_lab::{FabricSpec, Lab, Process, Routing, Signal, Topology};
use serde_json::Value;

/// Longest run of anything here.
const PATIENCE: Duration = Duration::from_mins(2);

/// What became of one end.
struct End {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

fn lab(planes: usize) -> Lab {
    Lab::build(&Topology::pair(planes)).unwrap()
}

/// Starts `mrc-perf` with these words in a host.
fn start(lab: &Lab, host: usize, words: &[&str], variables: &[(&str, &str)]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mrc-perf"));
    command
        .args(words)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    lab.host(host).spawn(command).unwrap()
}

fn end(mut process: Process) -> End {
    let deadline = Instant::now() + PATIENCE;
    while process.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            process.kill().unwrap();
            let output = process.wait_with_output().unwrap();
            panic!(
                "still running after {PATIENCE:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let output = process.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    End {
        status: output.status,
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// A server on host 0 and a client with these options on host 1; both must succeed. The client's results.
fn run(lab: &Lab, options: &[&str]) -> Value {
    let server = start(lab, 0, &["server", "--json"], &[]);
    let address = lab.host(0).mgmt().to_string();
    let client = start(
        lab,
        1,
        &[&["client", &address, "--json", "--verify"], options].concat(),
        &[],
    );
    let (client, server) = (end(client), end(server));
    for end in [&client, &server] {
        assert!(end.status.success(), "{options:?}: {}{}", end.stdout, end.stderr);
    }
    let results: Value = serde_json::from_str(&client.stdout).unwrap();
    assert!(server.stdout.contains("\"results\""), "the server reports as well");
    results
}

#[test]
fn bandwidth_of_every_size_with_every_byte_compared() {
    let lab = lab(4);
    let results = run(&lab, &["--sweep", "--iters", "40", "--qps", "2"]);
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 23);
    for (row, bit) in rows.iter().zip(1..) {
        assert_eq!(
            (row["bytes"].as_u64(), row["iterations"].as_u64()),
            (Some(1 << bit), Some(80))
        );
        assert!(row["bw_average_mb_s"].as_f64().unwrap() > 0.0);
        assert!(row["bw_peak_mb_s"].as_f64() >= row["bw_average_mb_s"].as_f64());
    }
    let by_port: Vec<u64> = results["engine"]["tx_data_bytes_by_port"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port.as_u64().unwrap())
        .collect();
    let share = by_port.iter().sum::<u64>() / 4;
    assert!(
        by_port.iter().all(|port| port.abs_diff(share) < share / 4),
        "{by_port:?}"
    );
}

#[test]
fn every_routing_of_a_fabric_carries_data_on_all_its_paths() {
    for routing in [Routing::Ecmp, Routing::Structured, Routing::Srv6, Routing::Srv6Kernel] {
        let spec = FabricSpec {
            planes: 2,
            routing,
            ..FabricSpec::default()
        };
        let lab = Lab::build(&Topology::fabric(spec)).unwrap();
        run(&lab, &["--size", "65536", "--iters", "64"]);
        // What host 1 sent upwards, path by path.
        let bytes = |path: &netns_lab::Path| lab.port_counters(&format!("t0.1.p{}", path.plane), &path.links[1]);
        let paths = lab.paths(1, 0);
        let shares: Vec<u64> = paths.iter().map(|path| bytes(path).unwrap().bytes).collect();
        // Named EVs are used in turn; where hashes decide, the fewer packets of the two spines are still some.
        let least = if routing == Routing::Ecmp { 8 } else { 2 };
        let share = shares.iter().sum::<u64>() / shares.len() as u64;
        assert!(
            shares.iter().all(|bytes| *bytes > share / least),
            "{routing}: {shares:?}"
        );
        let ports = lab.switch_ports().unwrap();
        assert!(ports.iter().all(|port| port.counters.no_path == 0), "{routing}");
    }
}

#[test]
fn immediates_both_ways_at_once() {
    let lab = lab(2);
    let options = [
        "--op",
        "write-imm",
        "--bidirectional",
        "--size",
        "10000",
        "--iters",
        "600",
        "--depth",
        "32",
        "--gid",
        "v4",
    ];
    let results = run(&lab, &options);
    assert_eq!(results["results"][0]["iterations"], 1200);
    assert_eq!(results["peer_gid"], lab.host(0).gid_v4().to_string());
}

#[test]
fn latency_by_memory_and_by_completion() {
    let lab = lab(2);
    for (op, size) in [
        ("write", "2"),
        ("write-imm", "2"),
        ("write", "20000"),
        ("write-imm", "20000"),
    ] {
        let results = run(&lab, &["--test", "lat", "--op", op, "--size", size, "--iters", "200"]);
        let row = &results["results"][0];
        assert_eq!(row["iterations"], 200);
        let figure = |name: &str| row[name].as_f64().unwrap();
        assert!(figure("t_min_us") > 0.0 && figure("t_min_us") <= figure("t_typical_us"));
        assert!(figure("t_typical_us") <= figure("p99_us") && figure("p99_us") <= figure("p999_us"));
        assert!(figure("p999_us") <= figure("t_max_us"));
    }
}

#[test]
fn a_run_of_seconds_ends_by_the_clock_and_a_looping_server_takes_the_next_client() {
    let lab = lab(1);
    let server = start(&lab, 0, &["server", "--loop"], &[]);
    let address = lab.host(0).mgmt().to_string();
    for options in [
        &["--seconds", "1", "--size", "1000"][..],
        &["--test", "lat", "--seconds", "1"],
        &["--pmtu", "256"],
    ] {
        let client = end(start(
            &lab,
            1,
            &[&["client", &address, "--verify"], options].concat(),
            &[],
        ));
        assert!(
            client.status.success(),
            "{options:?}: {}{}",
            client.stdout,
            client.stderr
        );
        assert!(client.stdout.contains("#bytes"), "{}", client.stdout);
    }
    server.signal(netns_lab::Signal::SIGINT).unwrap();
    let server = end(server);
    assert_eq!(server.status.code(), Some(130), "{}", server.stderr);
}

#[test]
fn ends_that_do_not_fit_say_so_on_both_sides() {
    let lab = lab(1);
    let address = lab.host(0).mgmt().to_string();
    for (variable, theirs, says) in [
        ("MRC_UDP_PORT", "5000", ["4791", "5000"]),
        ("MRC_EV_LAYOUT", "port_hi", ["flow_hi", "port_hi"]),
        ("MRC_DSCPS", "control=40", ["46", "40"]),
    ] {
        let server = start(&lab, 0, &["server"], &[(variable, theirs)]);
        let client = start(&lab, 1, &["client", &address], &[]);
        for end in [end(client), end(server)] {
            assert_eq!(end.status.code(), Some(4), "{}", end.stderr);
            assert!(says.iter().all(|part| end.stderr.contains(part)), "{}", end.stderr);
            assert_eq!(end.stderr.lines().count(), 1, "{}", end.stderr);
        }
    }
}

#[test]
fn a_host_that_is_not_set_up_says_what_is_missing() {
    let lab = lab(1);
    for (words, variables, says) in [
        (&["server", "--ports", ","][..], &[][..], "MRC_PORTS"),
        (&["server", "--ports", "p9"], &[], "p9"),
        (&["server", "--ports", "p1,p1"], &[], "p1"),
        (&["server"], &[("MRC_GID4", "nowhere")], "MRC_GID4"),
    ] {
        let end = end(start(&lab, 0, words, variables));
        assert_eq!(end.status.code(), Some(3), "{words:?}: {}", end.stderr);
        assert!(
            end.stderr.contains(says) && end.stderr.lines().count() == 1,
            "{}",
            end.stderr
        );
    }
}

#[test]
fn a_peer_that_is_killed_is_noticed_by_the_other_end() {
    let lab = lab(2);
    let address = lab.host(0).mgmt().to_string();
    let long: [&[&str]; 3] = [
        &["--seconds", "600"],
        &["--seconds", "600", "--op", "write-imm"],
        &["--seconds", "600", "--test", "lat"],
    ];
    for options in long {
        for victim in [0, 1] {
            let server = start(&lab, 0, &["server", "--quiet"], &[]);
            let client = start(&lab, 1, &[&["client", &address, "--quiet"], options].concat(), &[]);
            let mut ends = [server, client];
            // In the middle of traffic: packets have passed and go on passing.
            let packets = || lab.counters(1, 1).unwrap().tx_packets;
            let before = packets();
            let deadline = Instant::now() + PATIENCE;
            while packets() < before + 2000 {
                assert!(Instant::now() < deadline, "no traffic with {options:?}");
                std::thread::park_timeout(Duration::from_millis(5));
            }
            ends[victim].kill().unwrap();
            let [server, client] = ends;
            let (survivor, dead) = if victim == 0 {
                (client, server)
            } else {
                (server, client)
            };
            let survivor = end(survivor);
            assert_eq!(
                survivor.status.code(),
                Some(4),
                "{options:?}, victim {victim}: {}",
                survivor.stderr
            );
            drop(dead);
        }
    }
}

#[test]
fn profiles_are_chosen_by_option_and_the_report_tells_window_shares_and_round_trip() {
    let lab = lab(2);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("host.toml");
    let text = "[[port]]\nname = 'p1'\nspeed_bps = 100_000_000\n[[port]]\nname = 'p2'\nspeed_bps = 100_000_000\n\
                [[ev_profile]]\nname = 'few'\nmode = 'AUTO'\ncount = 8\n[[cc_profile]]\nname = 'tight'\nbase_rtt_ns = 1_000_000\n";
    std::fs::write(&file, text).unwrap();
    let variables = [("MRC_CONFIG", file.to_str().unwrap())];
    let address = lab.host(0).mgmt().to_string();
    let words = [
        "client",
        &address,
        "--ev-profile",
        "few",
        "--cc-profile",
        "tight",
        "--iters",
        "20",
    ];
    let server = start(&lab, 0, &["server"], &variables);
    let client = end(start(&lab, 1, &[&words[..], &["--json"]].concat(), &variables));
    let server = end(server);
    assert!(
        client.status.success() && server.status.success(),
        "{}{}",
        client.stderr,
        server.stderr
    );
    let results: Value = serde_json::from_str(&client.stdout).unwrap();
    let qp = &results["queue_pair"];
    assert_eq!((&qp["ev_profile"], &qp["cc_profile"]), (&"few".into(), &"tight".into()));
    assert!(
        qp["rtt_us"].as_f64() > Some(0.0) && qp["cwnd_bytes"].as_u64() > Some(0),
        "{qp}"
    );
    let shares = results["engine"]["tx_data_share_by_port"].as_array().unwrap();
    let sum: f64 = shares.iter().filter_map(Value::as_f64).sum();
    assert!((sum - 100.0).abs() < 0.01 && shares.len() == 2, "{shares:?}");
    for wanted in ["Data sent [%]", "Retransmissions:", "Window", "EV profile      : 0"] {
        assert!(server.stdout.contains(wanted), "{wanted}: {}", server.stdout);
    }
    assert!(
        !client.stderr.contains('\u{1b}'),
        "no colours into a pipe: {}",
        client.stderr
    );
}

#[test]
fn a_client_that_is_stopped_but_keeps_its_connection_is_given_up() {
    let lab = lab(2);
    let address = lab.host(0).mgmt().to_string();
    let server = start(&lab, 0, &["server", "--quiet"], &[]);
    let client = start(&lab, 1, &["client", &address, "--seconds", "3000", "--quiet"], &[]);
    let deadline = Instant::now() + PATIENCE;
    while lab.counters(0, 1).unwrap().rx_packets < 1000 {
        assert!(Instant::now() < deadline, "no data");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    client.signal(Signal::SIGSTOP).unwrap();
    let server = end(server);
    assert_eq!(server.status.code(), Some(4), "{}", server.stderr);
    assert!(
        server.stderr.contains("no data and no word for 10 s"),
        "{}",
        server.stderr
    );
}
