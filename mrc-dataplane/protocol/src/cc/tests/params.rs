//! Numbers (protocol.md §10.3).

use super::{Bench, MTU, fast, software};
use crate::cc::{ConfigError, Fixed, Network, NsccConfig, NsccParams};

#[test]
fn reference_network_has_the_numbers_of_the_text() {
    let params = NsccParams::new(&fast());
    assert_eq!(params.max_cwnd_bytes, 225_000);
    assert_eq!(params.target_qdelay_ns, 9_000);
    assert_eq!(params.fi.floor(), 20_920);
    assert_eq!(params.eta.times(10).floor(), 6_275, "627.6");
    assert_eq!(params.fi_scale.of(1000), 250);
    assert_eq!(params.alpha.of(100_000), 139_466, "1.39 B/ns");
    assert_eq!(
        (params.gamma.of(1000), params.max_md_jump.of(1000)),
        (799, 500),
        "0.8 from below"
    );
    assert_eq!(
        (params.qa_gate, params.qa_threshold_ns, params.disable_qa),
        (3, None, false)
    );
    assert_eq!((params.adjust_bytes, params.adjust_period_ns), (33_472, 12_000));
    assert_eq!(params.mtu_bytes, 4184);
}

#[test]
fn software_on_ten_gigabit_has_the_numbers_of_the_text() {
    let params = NsccParams::new(&software());
    assert_eq!(params.max_cwnd_bytes, 93_750);
    assert_eq!(params.target_qdelay_ns, 37_500);
    assert_eq!(params.fi.floor(), 8_716, "8716.67");
    assert_eq!(params.fi.times(3).floor(), 26_149, "8716.67 * 3 = 26150, from below");
    assert_eq!(params.alpha.of(1_000_000), 581_111, "0.581 B/ns");
    assert_eq!(params.fi_scale.of(1_000_000), 104_166, "0.25 * 0.417");
}

#[test]
fn without_trimming_the_target_is_the_base_and_delay_asks_for_quick_adapt() {
    let network = Network {
        trimming: false,
        ..fast()
    };
    let params = NsccParams::new(&network);
    assert_eq!(
        (params.target_qdelay_ns, params.qa_threshold_ns),
        (12_000, Some(48_000))
    );
    // alpha = 4 a b MTU / target, and b = target / 12 us: the same.
    assert_eq!(params.alpha, NsccParams::new(&fast()).alpha);
}

#[test]
fn slower_end_counts() {
    let network = Network {
        peer_bps: Some(10_000_000_000),
        ..fast()
    };
    assert_eq!(NsccParams::new(&network).max_cwnd_bytes, 22_500);
    let network = Network {
        peer_bps: Some(400_000_000_000),
        ..fast()
    };
    assert_eq!(NsccParams::new(&network).max_cwnd_bytes, 225_000);
}

#[test]
fn jitter_raises_the_target() {
    let network = Network {
        jitter_ns: 20_000,
        ..software()
    };
    assert_eq!(NsccParams::new(&network).target_qdelay_ns, 80_000);
}

#[test]
fn unmeasured_round_trip_is_that_of_hosts_or_of_slow_links() {
    assert_eq!(Network::new(1, 10_000_000_000, MTU).config_base_rtt_ns(), 50_000);
    assert_eq!(Network::new(8, 800_000_000_000, MTU).config_base_rtt_ns(), 50_000);
    // (4184 + 100) bytes over two links of 320 ns per byte.
    assert_eq!(Network::new(4, 25_000_000, MTU).config_base_rtt_ns(), 4284 * 640);
    let network = Network {
        path_links: 4,
        ..Network::new(4, 25_000_000, MTU)
    };
    assert_eq!(network.config_base_rtt_ns(), 4284 * 1280);
}

#[test]
fn smallest_window_is_one_packet() {
    let network = Network {
        base_rtt_ns: Some(12_000),
        ..Network::new(1, 25_000_000, MTU)
    };
    assert_eq!(NsccParams::new(&network).max_cwnd_bytes, MTU, "1.5 BDP is 56 bytes");
}

#[test]
fn absurd_networks_have_numbers() {
    for link_bps in [0, 1, 25_000_000, 800_000_000_000, u64::MAX] {
        for base_rtt_ns in [None, Some(0), Some(1), Some(u64::from(u32::MAX)), Some(u64::MAX)] {
            for mtu_bytes in [0, 1, 344, 9216, u32::MAX] {
                let network = Network {
                    link_bps,
                    base_rtt_ns,
                    path_links: 0,
                    jitter_ns: 1,
                    ..Network::new(31, link_bps, mtu_bytes)
                };
                let params = NsccParams::new(&network);
                assert!(params.max_cwnd_bytes >= params.mtu_bytes && params.mtu_bytes > 0);
                assert!(params.target_qdelay_ns > 0 && params.config_base_rtt_ns > 0);
                assert_eq!(params.config().check(), Ok(()), "{network:?}");
            }
        }
    }
}

#[test]
fn config_of_the_defaults_is_the_defaults() {
    for network in [fast(), software(), Network::new(4, 25_000_000, MTU)] {
        let params = NsccParams::new(&network);
        let again = NsccParams::with_config(&params.config(), &network);
        assert_eq!(again.config(), params.config());
        assert_eq!(again.alpha, params.alpha);
        assert_eq!(
            NsccParams {
                fi: params.fi,
                fi_scale: params.fi_scale,
                eta: params.eta,
                gamma: params.gamma,
                ..again
            },
            params,
            "all but the rounding of the floats"
        );
    }
}

#[test]
fn controllers_numbers_are_taken() {
    let mut config = NsccParams::new(&fast()).config();
    config.max_cwnd_bytes = 1_000_000;
    config.base_rtt_ns = 24_000;
    config.target_delay_ns = 5_000;
    config.disable_qa = true;
    config.qa_threshold_ns = 77;
    let params = NsccParams::with_config(&config, &fast());
    assert_eq!((params.max_cwnd_bytes, params.target_qdelay_ns), (1_000_000, 5_000));
    assert_eq!((params.disable_qa, params.qa_threshold_ns), (true, Some(77)));
    // a is twice what it was.
    assert_eq!(params.alpha.of(100_000), 278_933);
}

#[test]
fn wrong_configs_are_refused() {
    let good = NsccParams::new(&fast()).config();
    assert_eq!(good.check(), Ok(()));
    let refused = |change: &dyn Fn(&mut NsccConfig)| {
        let mut config = good;
        change(&mut config);
        config.check().unwrap_err()
    };
    assert_eq!(refused(&|c| c.eta = f32::NAN), ConfigError::Number("eta"));
    assert_eq!(refused(&|c| c.fi = f32::INFINITY), ConfigError::Number("fi"));
    assert_eq!(refused(&|c| c.fi_scale = -0.1), ConfigError::Number("fi_scale"));
    assert_eq!(refused(&|c| c.gamma = 1.01), ConfigError::AboveOne("gamma"));
    assert_eq!(refused(&|c| c.max_md_jump = 2.0), ConfigError::AboveOne("max_md_jump"));
    assert_eq!(refused(&|c| c.qa_gate = 32), ConfigError::Gate(32));
    assert_eq!(refused(&|c| c.max_cwnd_bytes = 0), ConfigError::Zero("max_cwnd"));
    assert_eq!(refused(&|c| c.base_rtt_ns = 0), ConfigError::Zero("base_rtt"));
    assert_eq!(refused(&|c| c.target_delay_ns = 0), ConfigError::Zero("target_delay"));
}

// protocol.md §10.5: integers and fixed point, from the slowest links to the fastest.
#[test]
fn no_number_is_rounded_away_or_cut_off_between_25_mbit_and_eight_planes_of_400_gbit() {
    let slow = Network {
        base_rtt_ns: Some(3_000_000),
        ..Network::new(1, 25_000_000, 1112)
    };
    let fast = Network::new(8, 400_000_000_000, 9000);
    for network in [slow, fast] {
        let params = NsccParams::new(&network);
        let bdp = network.linkspeed_bps() as f64 / 8.0e9 * network.config_base_rtt_ns() as f64;
        let (a, mtu) = (bdp / 150_000.0, f64::from(network.mtu_bytes));
        let near = |found: Fixed, wanted: f64, what: &str| {
            let found = f64::from(found.to_f32());
            assert!(
                (found - wanted).abs() <= wanted * 1.0e-6,
                "{what}: {found}, not {wanted}"
            );
        };
        near(params.alpha, 4.0 * a * mtu / 12_000.0, "alpha");
        near(params.fi, 5.0 * mtu * a, "fi");
        near(params.fi_scale, 0.25 * a, "fi_scale");
        near(params.eta, 0.15 * mtu * a, "eta");
        assert_eq!(params.max_cwnd_bytes, (1.5 * bdp) as u32);
        // A window of one packet grows with one SACK, of the smallest packet, 1 ns below the target and above it.
        for delay_ns in [params.target_qdelay_ns - 1, params.target_qdelay_ns] {
            let mut bench = Bench::new(params).shrunk_to(u64::from(params.mtu_bytes));
            bench.wait(2 * params.config_base_rtt_ns);
            let before = bench.cwnd();
            bench.sack(64, delay_ns, false);
            let grown = bench.cwnd() - before;
            assert!(grown >= params.eta.floor(), "{grown} at {delay_ns}");
        }
        // And one of the whole window, all at once, leads to the maximum and not beyond.
        let mut bench = Bench::new(params).shrunk_to(u64::from(params.mtu_bytes));
        bench.wait(2 * params.config_base_rtt_ns);
        bench.sack(u64::from(params.max_cwnd_bytes), 0, false);
        assert!(bench.cwnd() <= bench.nscc.max_wnd_bytes());
        assert!(bench.cwnd() > u64::from(params.mtu_bytes) + params.eta.floor());
    }
}
