//! The numbers of the protocol: vectors, and laws of their arithmetic.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod vectors;

use mrc_wire::*;
use proptest::prelude::*;
use vectors::number;

// protocol.md §4, §6.2
#[test]
fn distances_between_psns_agree_with_the_classification_vectors() {
    for case in vectors::file()["psn_classification"].as_array().unwrap() {
        let psn = Psn::new(number(&case["psn"]) as u32);
        let distance = psn.diff(Psn::new(number(&case["epsn"]) as u32));
        let window = i32::try_from(number(&case["mpr_units"]) * 128).unwrap();
        let result = match distance {
            ..0 => "duplicate",
            _ if distance < window => "in_window",
            _ => "ahead_of_window",
        };
        assert_eq!(result, case["result"], "{case}");
    }
}

// wire-format.md §7.8
#[test]
fn received_bytes_are_counted_in_units_of_256_and_wrap() {
    for case in vectors::file()["rcvd_bytes"].as_array().unwrap() {
        let expected = number(&case["rcvd_bytes"]) as u32;
        assert_eq!(CcState::rcvd_bytes_of(number(&case["bytes"])), expected, "{case}");
    }
    assert_eq!(CcState::rcvd_bytes_of(u64::MAX), 0);
}

// protocol.md §4, §10.5; wire-format.md §7.3
#[test]
fn round_trip_times_come_from_wrapping_stamps() {
    for case in vectors::file()["rtt_from_timestamps"].as_array().unwrap() {
        let (tx, rx) = (Tick(number(&case["tx"]) as u16), Tick(number(&case["rx"]) as u16));
        assert_eq!(u64::from(tx.elapsed_ns(rx)), number(&case["rtt_ns"]), "{case}");
    }
    assert_eq!(Tick::from_ns(8_388_608), Tick(0));
    assert_eq!(Tick::from_ns(8_388_607), Tick(0xffff));
}

// wire-format.md §4
#[test]
fn the_default_code_points_are_those_of_the_vectors() {
    let expected = &vectors::file()["constants"]["dscp"];
    let dscps = Dscps::default();
    assert_eq!(dscps.named().count(), 6);
    for (name, value) in dscps.named() {
        assert_eq!(number(&expected[name.to_uppercase()]), u64::from(value), "{name}");
    }
    assert_eq!(
        number(&vectors::file()["constants"]["udp_dst_port"]),
        u64::from(DEFAULT_UDP_PORT)
    );
}

// wire-format.md §4
#[test]
fn code_points_must_fit_and_differ() {
    let dscps = Dscps::default();
    assert_eq!(dscps.validate(), Ok(()));
    assert_eq!(
        Dscps { control: 4, ..dscps }.validate(),
        Err(DscpError::NotDistinct {
            first: "trimmable",
            second: "control",
            value: 4
        })
    );
    assert_eq!(
        Dscps { trimmed: 64, ..dscps }.validate(),
        Err(DscpError::TooLarge {
            name: "trimmed",
            value: 64
        })
    );
    assert_eq!(
        Dscps {
            trimmable: None,
            ..dscps
        }
        .validate(),
        Err(DscpError::RetxAlone { value: 8 })
    );
    let message = Dscps { control: 4, ..dscps }.validate().unwrap_err().to_string();
    assert_eq!(
        message,
        "trimmable and control are both 4: give every DSCP a value of its own"
    );
}

// protocol.md §12; wire-format.md §4
#[test]
fn a_traffic_class_falls_back_to_what_is_configured() {
    let all = Dscps::default();
    let no_retx = Dscps {
        trimmable_retx: None,
        ..all
    };
    let no_trim = Dscps {
        trimmable: None,
        ..no_retx
    };
    let classes = [
        TrafficClass::NoTrim,
        TrafficClass::Trimmable,
        TrafficClass::TrimmableRetx,
        TrafficClass::Control,
    ];
    assert_eq!(classes.map(|class| all.of(class)), [0, 4, 8, 46]);
    assert_eq!(classes.map(|class| no_retx.of(class)), [0, 4, 4, 46]);
    assert_eq!(classes.map(|class| no_trim.of(class)), [0, 0, 0, 46]);
}

#[test]
fn overheads_and_pmtus_are_those_of_the_specification() {
    let encaps = [Encap::Ipv4, Encap::Ipv6, Encap::Srv6, Encap::Srv6Srh];
    assert_eq!(encaps.map(overhead::of_write), [72, 92, 132, 156]);
    for (code, pmtu) in (1..).zip(Pmtu::ALL) {
        assert_eq!((pmtu.code(), Pmtu::from_code(code)), (code, Some(pmtu)));
        assert_eq!(pmtu.bytes(), 128 << code);
        assert_eq!(Pmtu::from_bytes(pmtu.bytes()), Some(pmtu));
        for encap in encaps {
            let least = pmtu.min_ip_mtu(encap);
            assert_eq!(Pmtu::from_mtu(least, encap), Some(pmtu));
            assert_ne!(Pmtu::from_mtu(least - 1, encap), Some(pmtu));
        }
    }
    assert_eq!(
        (Pmtu::from_code(0), Pmtu::from_code(6), Pmtu::from_bytes(1500)),
        (None, None, None)
    );
    assert_eq!(Pmtu::from_mtu(1500, Encap::Ipv4), Some(Pmtu::B1024));
    assert_eq!(Pmtu::from_mtu(9000, Encap::Srv6Srh), Some(Pmtu::B4096));
    assert_eq!(Pmtu::from_mtu(300, Encap::Ipv6), None);
}

// wire-format.md §7.11
#[test]
fn port_sets_are_port_status_masks() {
    let port = |num| PortNum::new(num).unwrap();
    let mut ports = PortSet::first(8);
    ports.remove(port(3));
    assert_eq!(ports.bits(), 0x1f6);
    assert_eq!(
        ports.iter().map(PortNum::get).collect::<Vec<_>>(),
        [1, 2, 4, 5, 6, 7, 8]
    );
    assert_eq!(
        (ports.len(), ports.contains(port(3)), ports.contains(port(4))),
        (7, false, true)
    );
    assert_eq!(PortSet::from_bits(!0), PortSet::first(31));
    assert_eq!(PortSet::first(200).len(), 31);
    assert_eq!(PortSet::first(0), PortSet::EMPTY);
    assert_eq!(
        [port(2), port(31)].into_iter().collect::<PortSet>().bits(),
        1 << 2 | 1 << 31
    );
    assert_eq!((PortNum::new(0), PortNum::new(32)), (None, None));
    assert_eq!(port(1).index(), 0);
}

// wire-format.md §6
#[test]
fn opcodes_know_their_kind() {
    for opcode in Opcode::ALL {
        assert_eq!(Opcode::from_wire(opcode.wire()), Some(opcode));
        assert!(Opcode::in_mrc_range(opcode.wire()));
        assert_eq!(opcode.is_write(), opcode.name().starts_with("WRITE"));
        assert_eq!(opcode.has_imm(), opcode.name().ends_with("IMM"));
        assert_eq!(opcode.is_endpoint(), opcode.name().starts_with("EP_"));
        assert_eq!(
            opcode.is_first(),
            opcode.name().contains("FIRST") || opcode.name().contains("ONLY")
        );
        assert_eq!(
            opcode.is_last(),
            opcode.name().contains("LAST") || opcode.name().contains("ONLY")
        );
    }
    assert_eq!((0..=255).filter_map(Opcode::from_wire).count(), Opcode::ALL.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn psn_distance_inverts_addition(base in any::<u32>(), step in -0x80_0000..0x80_0000i32) {
        let base = Psn::new(base);
        prop_assert_eq!(base.offset(step).diff(base), step);
        prop_assert_eq!(base.add(step.unsigned_abs()).sub(step.unsigned_abs()), base);
    }

    #[test]
    fn psn_distance_is_the_specified_formula(a in any::<u32>(), b in any::<u32>()) {
        let (a, b) = (Psn::new(a), Psn::new(b));
        let formula = (i64::from(a.get()) - i64::from(b.get()) + (1 << 23)).rem_euclid(1 << 24) - (1 << 23);
        prop_assert_eq!(i64::from(a.diff(b)), formula);
        prop_assert!(a.get() < 1 << 24);
    }

    #[test]
    fn an_ev_survives_either_layout(ev in any::<u32>()) {
        for layout in [EvLayout::FlowHigh, EvLayout::PortHigh] {
            let (flow_label, src_port) = layout.place(Ev(ev));
            prop_assert!(flow_label <= 0xffff);
            prop_assert_eq!(layout.reflect(flow_label, src_port), Ev(ev));
            prop_assert_eq!(layout.reflect(flow_label | 0xf_0000, src_port), Ev(ev));
        }
    }
}
