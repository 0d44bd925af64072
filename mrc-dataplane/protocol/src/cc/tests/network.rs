//! Base round trip, its normalisation, and changes of link speed (protocol.md §10.4, P25).

use super::{Bench, MTU, fast, software};
use crate::cc::{AckSample, Network, NsccParams, RttSample};

#[test]
fn smaller_round_trip_lowers_base_and_maximum() {
    let mut bench = Bench::new(NsccParams::new(&fast()));
    bench.nscc.on_base_probe(RttSample { ns: 10_000, bytes: MTU });
    assert_eq!(
        (bench.nscc.base_rtt_ns(), bench.nscc.max_wnd_bytes()),
        (10_000, 187_500)
    );
    assert_eq!(bench.cwnd(), 187_500, "never above the maximum");
    assert_eq!(bench.nscc.avg_delay_ns(), 0);
    bench.nscc.on_base_probe(RttSample { ns: 30_000, bytes: MTU });
    assert_eq!(bench.nscc.base_rtt_ns(), 10_000, "larger ones do not count");
}

#[test]
fn base_does_not_fall_below_half_of_the_configured_one() {
    let mut bench = Bench::new(NsccParams::new(&fast()));
    bench.nscc.on_base_probe(RttSample { ns: 100, bytes: MTU });
    assert_eq!((bench.nscc.base_rtt_ns(), bench.nscc.max_wnd_bytes()), (6_000, 112_500));
    // A round trip shorter than that is no delay at all.
    let sample = AckSample {
        rtt: Some(RttSample { ns: 100, bytes: MTU }),
        ..AckSample::new(bench.now + 12_000, 4184)
    };
    bench.nscc.on_ack(&sample, 0);
    assert_eq!(bench.nscc.avg_delay_ns(), 0);
}

#[test]
fn small_packets_on_slow_links_are_compared_with_full_ones() {
    // 50 Mbit/s, two links: 160 ns per byte and link.
    let network = Network {
        base_rtt_ns: Some(1_500_000),
        ..Network::new(1, 50_000_000, MTU)
    };
    let mut bench = Bench::new(NsccParams::new(&network));
    // 100 bytes: 4084 bytes less, 1 306 880 ns.
    bench.nscc.on_base_probe(RttSample {
        ns: 150_000,
        bytes: 100,
    });
    assert_eq!(bench.nscc.base_rtt_ns(), 1_456_880);
    // The end of a message that met no queue is no faster than the rest of it.
    let sample = AckSample {
        rtt: Some(RttSample {
            ns: 150_000,
            bytes: 100,
        }),
        ..AckSample::new(bench.now + 1_500_000, 100)
    };
    bench.nscc.on_ack(&sample, 0);
    assert_eq!(bench.nscc.avg_delay_ns(), 0);
    bench.nscc.on_base_probe(RttSample {
        ns: 1_400_000,
        bytes: 10_000,
    });
    assert_eq!(bench.nscc.base_rtt_ns(), 1_400_000, "larger than full: as it is");
}

#[test]
fn maximum_follows_the_speed_of_the_links() {
    let mut bench = Bench::new(NsccParams::new(&fast()));
    bench.nscc.set_link_bps(75_000_000_000);
    assert_eq!((bench.nscc.max_wnd_bytes(), bench.cwnd()), (168_750, 168_750));
    bench.nscc.set_link_bps(100_000_000_000);
    assert_eq!((bench.nscc.max_wnd_bytes(), bench.cwnd()), (225_000, 168_750));
    bench.nscc.set_link_bps(0);
    assert_eq!(
        (bench.nscc.max_wnd_bytes(), bench.cwnd()),
        (u64::from(MTU), u64::from(MTU))
    );
    bench.nscc.set_link_bps(u64::MAX);
    assert_eq!(bench.nscc.max_wnd_bytes(), u64::from(u32::MAX));
}

#[test]
fn own_links_above_the_peers_do_not_count() {
    let network = Network {
        peer_bps: Some(50_000_000_000),
        ..fast()
    };
    let mut bench = Bench::new(NsccParams::new(&network));
    assert_eq!(bench.nscc.max_wnd_bytes(), 112_500);
    bench.nscc.set_link_bps(75_000_000_000);
    assert_eq!(bench.nscc.max_wnd_bytes(), 112_500);
    bench.nscc.set_link_bps(25_000_000_000);
    assert_eq!(bench.nscc.max_wnd_bytes(), 56_250);
}

#[test]
fn controllers_maximum_follows_in_proportion() {
    let mut config = NsccParams::new(&fast()).config();
    config.max_cwnd_bytes = 300_000;
    let mut bench = Bench::new(NsccParams::with_config(&config, &fast()));
    bench.nscc.on_base_probe(RttSample { ns: 9_000, bytes: MTU });
    assert_eq!(bench.nscc.max_wnd_bytes(), 225_000);
    bench.nscc.set_link_bps(50_000_000_000);
    assert_eq!(bench.nscc.max_wnd_bytes(), 112_500);
}

#[test]
fn new_parameters_keep_what_was_measured() {
    let mut bench = Bench::new(NsccParams::new(&fast())).shrunk_to(100_000);
    bench.nscc.on_base_probe(RttSample { ns: 10_000, bytes: MTU });
    bench.nscc.set_link_bps(50_000_000_000);
    assert_eq!((bench.nscc.max_wnd_bytes(), bench.cwnd()), (93_750, 93_750));
    let mut config = NsccParams::new(&fast()).config();
    config.max_cwnd_bytes = 120_000;
    bench.nscc.set_params(NsccParams::with_config(&config, &fast()));
    assert_eq!(
        (bench.nscc.base_rtt_ns(), bench.nscc.max_wnd_bytes(), bench.cwnd()),
        (10_000, 50_000, 50_000)
    );
    config.base_rtt_ns = 30_000;
    bench.nscc.set_params(NsccParams::with_config(&config, &fast()));
    assert_eq!(bench.nscc.base_rtt_ns(), 15_000, "at least half of the new one");
    config.base_rtt_ns = 5_000;
    bench.nscc.set_params(NsccParams::with_config(&config, &fast()));
    assert_eq!(bench.nscc.base_rtt_ns(), 5_000, "at most the new one");
}

// protocol.md §10.3: the minimum is one packet, however large packets have become.
#[test]
fn smallest_window_follows_a_larger_packet() {
    let small = NsccParams::new(&Network {
        mtu_bytes: 1112,
        ..software()
    });
    let mut bench = Bench::new(small).shrunk_to(1112);
    bench.nscc.set_params(NsccParams::new(&software()));
    assert_eq!(bench.cwnd(), u64::from(MTU));
}
