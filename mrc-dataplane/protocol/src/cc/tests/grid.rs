//! The numbers of NSCC for every network that software may meet (protocol.md §10.3).

use crate::cc::{Fixed, Network, NsccParams};

/// Nominal sizes of full packets: PMTU 256 to 4096 (wire-format.md §6), and a jumbo frame's.
const MTUS: [u32; 6] = [344, 600, 1112, 2136, 4184, 9216];

/// To the resolution of the type; what is too large for it stops at its end.
fn close(got: Fixed, exact: f64) -> bool {
    let exact = exact.min(4_294_967_296.0);
    (f64::from(got.to_f32()) - exact).abs() <= exact * 1e-6 + 1.0 / 4_294_967_296.0
}

// protocol.md §10.3
#[test]
fn parameters_are_those_of_the_table_from_25_mbit_to_3_2_tbit_and_from_1_us_to_100_ms() {
    let rates = (0..)
        .map(|n| 25_000_000_u64 << n)
        .take_while(|&bps| bps < 3_200_000_000_000);
    let rates: std::vec::Vec<_> = rates.chain([3_200_000_000_000]).collect();
    let mut networks = 0;
    for &bps in &rates {
        for base_rtt_ns in (3..8)
            .flat_map(|n| [1, 2, 3, 5, 7].map(|digit| digit * 10_u64.pow(n)))
            .chain([100_000_000])
        {
            for mtu_bytes in MTUS {
                for (planes, trimming) in [(1, true), (8, false)] {
                    check(&Network {
                        base_rtt_ns: Some(base_rtt_ns),
                        trimming,
                        link_bps: bps,
                        ..Network::new(planes, bps / u64::from(planes), mtu_bytes)
                    });
                    networks += 1;
                }
            }
        }
    }
    assert_eq!(networks, 18 * 26 * 6 * 2);
}

fn check(network: &Network) {
    let params = NsccParams::new(network);
    let (rtt_ns, mtu_bytes) = (network.base_rtt_ns.unwrap_or(0), network.mtu_bytes);
    let bdp = u128::from(network.link_bps) * u128::from(rtt_ns);
    let window = (bdp * 3 / (2 * 8_000_000_000)).clamp(mtu_bytes.into(), u32::MAX.into());
    assert_eq!(u128::from(params.max_cwnd_bytes), window, "{network:?}");
    let target_ns = if network.trimming { rtt_ns * 3 / 4 } else { rtt_ns };
    assert_eq!(params.target_qdelay_ns, target_ns);
    assert_eq!(params.qa_threshold_ns, (!network.trimming).then_some(4 * target_ns));
    assert_eq!((params.config_base_rtt_ns, params.adjust_period_ns), (rtt_ns, rtt_ns));
    assert_eq!(
        (params.mtu_bytes, params.adjust_bytes),
        (mtu_bytes, 8 * u64::from(mtu_bytes))
    );

    let a = bdp as f64 / 8e9 / 150_000.0;
    let mtu = f64::from(mtu_bytes);
    for (name, got, exact) in [
        ("alpha", params.alpha, 4.0 * a * mtu / 12_000.0),
        ("fi", params.fi, 5.0 * mtu * a),
        ("fi_scale", params.fi_scale, 0.25 * a),
        ("eta", params.eta, 0.15 * mtu * a),
        ("gamma", params.gamma, 0.8),
        ("max_md_jump", params.max_md_jump, 0.5),
    ] {
        assert!(got > Fixed::ZERO, "{name} is 0 in {network:?}");
        assert!(close(got, exact), "{name} is {got:?} and not {exact} in {network:?}");
    }
    assert_eq!(params.config().check(), Ok(()), "{network:?}");
}
