//! What a queue pair gets of a profile: which EVs, on which ports, and how packets carry them (protocol.md §7.2 to §7.4,
//! wire-format.md §3, §5).

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with a good enough message")]

mod profiles;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use mrc_protocol::profile::*;
use mrc_wire::{Ev, EvLayout, PortNum, PortSet};

use self::profiles::*;

fn universe(profiles: &Profiles) -> Vec<ProfileEv> {
    profiles
        .ev(ID)
        .unwrap()
        .universe(PortSet::first(31), EvLayout::FlowHigh)
}

fn per_port(profiles: &Profiles) -> Vec<usize> {
    let mut counts = BTreeMap::<PortNum, usize>::new();
    for path in universe(profiles) {
        *counts.entry(path.port).or_default() += 1;
    }
    counts.into_values().collect()
}

fn ranged(width: u32, init_val: u32, min_val: u32, max_val: u32, mask: u32) -> ProfileField {
    ProfileField {
        width,
        init_val,
        min_val,
        max_val,
        mask,
    }
}

#[test]
fn auto_draws_source_ports_each_on_one_port_of_the_device() {
    let mut profiles = profiles(3);
    profiles
        .modify(
            ID,
            &EvChange {
                mode: Some(EvMode::Auto),
                ..to(OFFLINE)
            },
        )
        .unwrap();
    profiles.modify(ID, &to(ONLINE)).unwrap();
    let paths = universe(&profiles);
    assert_eq!(per_port(&profiles), [43, 43, 43]);
    assert!(
        paths
            .iter()
            .all(|path| (0xc000..=0xffff).contains(&path.tag.0) && path.encap.is_none())
    );
    assert_eq!(
        paths.iter().map(|path| path.tag.0).collect::<BTreeSet<_>>().len(),
        paths.len()
    );
    let profile = profiles.ev(ID).unwrap();
    assert_eq!(profile.ev_mask(EvLayout::FlowHigh), 0xffff);
    assert_eq!(profile.ev_mask(EvLayout::PortHigh), 0xffff_0000);
    let other_way = profile.universe(PortSet::first(3), EvLayout::PortHigh);
    assert!(paths.iter().zip(other_way).all(|(a, b)| a.tag.0 << 16 == b.tag.0));
    // The controller knows them by their source port.
    assert_eq!(profile.entry(0).0.unwrap().value.first_u32() >> 16, paths[0].tag.0);
    assert_eq!(profile.advice().next(), None);
    let denied = profile.entry(0).0.unwrap();
    profiles
        .modify(ID, &set_states(&[set(denied, EntryState::Denied)]))
        .unwrap();
    assert_eq!(universe(&profiles)[0].state, EntryState::Denied);
}

#[test]
fn a_queue_pair_gets_the_paths_of_its_ports_only_and_only_online() {
    let mut profiles = profiles(4);
    with_format(&mut profiles, FormatMode::Stev, &[32]);
    explicit(&mut profiles, &[ev(&[1], 1), ev(&[2], 2), ev(&[3], 4), ev(&[4], 2)]);
    let profile = profiles.ev(ID).unwrap();
    let paths = profile.universe(PortSet::from_bits(0b10100), EvLayout::FlowHigh);
    assert_eq!(paths.iter().map(|path| path.entry).collect::<Vec<_>>(), [1, 2, 3]);
    profiles.modify(ID, &to(OFFLINE)).unwrap();
    assert_eq!(universe(&profiles), []);
}

#[test]
fn generated_entries_differ_and_are_equally_many_per_port() {
    let mut profiles = profiles(4);
    with_format(&mut profiles, FormatMode::Stev, &[16, 16]);
    let fields = [ranged(16, 0x100, 1, 15, 0xf), ranged(16, 0xc000, 0, 99, 0xff)];
    generated(&mut profiles, 203, &fields, &[]);
    assert_eq!(profiles.ev(ID).unwrap().ev_count(), 200);
    assert_eq!(per_port(&profiles), [50; 4]);
    let tags: BTreeSet<u32> = universe(&profiles).iter().map(|path| path.tag.0).collect();
    assert_eq!(tags.len(), 200, "no value on two ports");
    assert!(
        tags.iter()
            .all(|tag| (0x101..=0x10f).contains(&(tag >> 16)) && (0xc000..=0xc063).contains(&(tag & 0xffff)))
    );
    assert_eq!(profiles.ev(ID).unwrap().advice().next(), None);
    // The same configuration gives the same entries, another seed others.
    let first = universe(&profiles);
    profiles.modify(ID, &to(OFFLINE)).unwrap();
    profiles.modify(ID, &to(INIT)).unwrap();
    generated(&mut profiles, 203, &fields, &[]);
    assert_eq!(universe(&profiles), first);
    let mut elsewhere = Profiles::new(Limits::new(PortSet::first(4)), [6; 32]);
    with_format(&mut elsewhere, FormatMode::Stev, &[16, 16]);
    generated(&mut elsewhere, 203, &fields, &[]);
    assert_ne!(universe(&elsewhere), first);
}

#[test]
fn generated_uses_values_on_several_ports_only_when_there_are_not_enough() {
    let mut profiles = profiles(4);
    with_format(&mut profiles, FormatMode::Udp, &[16]);
    let fields = [ranged(16, 0xc000, 0, 9, 0xf)];
    generated(&mut profiles, 100, &fields, &[]);
    assert_eq!(profiles.ev(ID).unwrap().ev_count(), 40, "every value on every port");
    let pairs: BTreeSet<(Ev, PortNum)> = universe(&profiles).iter().map(|path| (path.tag, path.port)).collect();
    assert_eq!(pairs.len(), 40);
    let advice = profiles.ev(ID).unwrap().advice().next().unwrap();
    assert!(
        matches!(advice, Advice::ValueOnTwoPorts(one, other) if one.value == other.value && one.port != other.port)
    );
    assert!(!advice.to_string().contains('\n'));
    // Half of them, and no port has a value twice.
    profiles.modify(ID, &to(OFFLINE)).unwrap();
    profiles
        .modify(
            ID,
            &EvChange {
                count: Some(20),
                ..to(None)
            },
        )
        .unwrap();
    profiles.modify(ID, &to(ONLINE)).unwrap();
    assert_eq!(per_port(&profiles), [5; 4]);
    let uses = universe(&profiles)
        .iter()
        .fold(BTreeMap::<u32, usize>::new(), |mut uses, path| {
            *uses.entry(path.tag.0).or_default() += 1;
            uses
        });
    assert!(
        uses.len() == 10 && uses.values().all(|&n| n == 2),
        "shared as little as possible"
    );
}

#[test]
fn generated_draws_from_more_values_than_can_be_counted() {
    let mut profiles = profiles(8);
    with_format(&mut profiles, FormatMode::Srv6, &[32; 8]);
    generated(&mut profiles, 1024, &[ProfileField::free(32); 8], &[]);
    let paths = universe(&profiles);
    assert_eq!(per_port(&profiles), [128; 8]);
    let containers: BTreeSet<_> = paths
        .iter()
        .map(|path| (path.encap.unwrap().destination, path.encap.unwrap().srh))
        .collect();
    assert_eq!(containers.len(), 1024);
    assert!(
        paths.iter().all(|path| path.tag == Ev(path.entry)),
        "beyond 32 bits the index"
    );
}

#[test]
fn min_and_max_zero_with_a_mask_mean_the_full_range() {
    let mut profiles = profiles(1);
    with_format(&mut profiles, FormatMode::Udp, &[16]);
    generated(&mut profiles, 8, &[ranged(3, 0, 0, 0, 7)], &[]);
    let tags: BTreeSet<u32> = universe(&profiles).iter().map(|path| path.tag.0).collect();
    assert_eq!(tags, (0..8).collect());
}

#[test]
fn structured_evs_are_the_wire_value_itself() {
    // protocol.md §7.3, example 1.
    let mut profiles = profiles(2);
    with_format(&mut profiles, FormatMode::Stev, &[10, 8, 4]);
    let path = ev(&[0x55, 0x4a, 0xa4], 2);
    explicit(&mut profiles, &[path, path]);
    let paths = universe(&profiles);
    assert_eq!(
        paths.iter().map(|path| path.tag).collect::<Vec<_>>(),
        [Ev(0x554a_a400); 2],
        "copies share a tag"
    );
    assert_eq!(EvLayout::FlowHigh.place(paths[0].tag), (0x554a, 0xa400));
    assert_eq!(profiles.ev(ID).unwrap().ev_mask(EvLayout::FlowHigh), u32::MAX);
}

#[test]
fn srv6_tags_are_the_short_ev_or_else_the_index_of_the_first_copy() {
    // protocol.md §7.3, example 3.
    let mut profiles = profiles(2);
    with_format(&mut profiles, FormatMode::Srv6, &[32, 16, 16, 16, 16]);
    let fields = [
        ProfileField::constant(32, 0x5f00_0002),
        ranged(16, 0x100, 0, 0, 0xff),
        ranged(16, 0x200, 0, 0, 0xff),
        ranged(8, 0, 0, 0, 0xf),
        ProfileField::constant(16, 0xe05),
    ];
    let entries = [
        put(None, ev(&[0x03, 0x07, 0xa0], 1)),
        put(None, ev(&[0x03, 0x07, 0xb0], 2)),
    ];
    profiles
        .modify(
            ID,
            &EvChange {
                fields: Some(&fields),
                ..count(EvMode::Explicit, 2)
            },
        )
        .unwrap();
    profiles
        .modify(
            ID,
            &EvChange {
                state: ONLINE,
                ..replace(&entries)
            },
        )
        .unwrap();
    let path = universe(&profiles)[0];
    let destination: Ipv6Addr = "5f00:2:103:207:a:e05::".parse().unwrap();
    assert_eq!(path.encap, Some(Containers { destination, srh: None }));
    assert_eq!(path.tag, Ev(0x0307_a000), "left-aligned");
    let tunnel = path.encap.unwrap().tunnel(Ipv6Addr::LOCALHOST);
    assert_eq!((tunnel.container, tunnel.srh), (destination, None));

    profiles.modify(ID, &to(OFFLINE)).unwrap();
    profiles.modify(ID, &to(INIT)).unwrap();
    let (a, b) = (ev(&[1; 12], 1), ev(&[2; 12], 1));
    explicit(&mut profiles, &[a, b, a, b, a]);
    let tags: Vec<u32> = universe(&profiles).iter().map(|path| path.tag.0).collect();
    assert_eq!(tags, [0, 1, 0, 1, 0]);
}

#[test]
fn a_routing_header_exists_when_the_format_and_the_value_go_beyond_one_container() {
    let mut profiles = profiles(1);
    with_format(&mut profiles, FormatMode::Srv6, &[32, 32, 32, 32, 32, 16]);
    let (mut long, mut short) = ([0; 32], [0; 32]);
    long[..16].copy_from_slice(&[0x5f; 16]);
    long[16..22].copy_from_slice(&[0x5e; 6]);
    short[..16].copy_from_slice(&[0x5f; 16]);
    explicit(&mut profiles, &[ev(&long, 1), ev(&short, 1)]);
    let paths = universe(&profiles);
    let second: Ipv6Addr = "5e5e:5e5e:5e5e::".parse().unwrap();
    assert_eq!(paths[0].encap.unwrap().srh, Some(second));
    assert_eq!(paths[1].encap.unwrap().srh, None, "zeros are no container");
    let entry = paths[0].encap.unwrap().tunnel(Ipv6Addr::LOCALHOST).srh.unwrap();
    assert_eq!((entry.container, entry.segments_left), (second, 1));
}

#[test]
fn wire_values_of_endpoint_requests_are_not_expanded_but_checked() {
    let wire = |len: usize| {
        let mut value = EvValue::ZERO;
        value.0[..len].fill(0x11);
        value
    };
    assert_eq!(
        Output::parse(FormatMode::Stev, &wire(4)),
        Ok(Output::Stev(Ev(0x1111_1111)))
    );
    assert_eq!(Output::parse(FormatMode::Udp, &wire(2)), Ok(Output::Udp(0x1111)));
    for (mode, len) in [(FormatMode::Stev, 5), (FormatMode::Udp, 3)] {
        let (bit, limit) = (8 * len as u32 - 1, mode.max_bits());
        assert_eq!(
            Output::parse(mode, &wire(len)),
            Err(FieldError::BeyondMode { bit, mode, limit })
        );
    }
    for (len, srh) in [(16, false), (17, true), (32, true)] {
        let Ok(Output::Srv6(containers)) = Output::parse(FormatMode::Srv6, &wire(len)) else {
            panic!("SRv6")
        };
        assert_eq!(containers.srh.is_some(), srh, "{len}");
    }
}

#[test]
fn plane_fields_agree_with_the_port() {
    // Plane copied into both uSIDs, uplink drawn.
    let mut profiles = profiles(4);
    with_format(&mut profiles, FormatMode::Srv6, &[32, 16, 16]);
    let fields = [
        ProfileField::constant(32, 0x5f00_0000),
        ranged(16, 0x1000, 2, 5, 0x7),
        ranged(16, 0x2000, 2, 5, 0x700),
        ranged(16, 0x3000, 0, 9, 0xf),
    ];
    let error = profiles
        .modify(
            ID,
            &EvChange {
                fields: Some(&fields),
                ..count(EvMode::Generated, 1)
            },
        )
        .unwrap_err();
    assert!(matches!(
        error,
        ProfileError::Field(FieldError::Fields { count: 4, limit: 3 })
    ));
    let fields = [fields[1], fields[2], fields[3]].map(|field| ProfileField { width: 16, ..field });
    generated(&mut profiles, 100, &fields, &[0, 1]);
    assert_eq!(profiles.ev(ID).unwrap().ev_count(), 40, "the plane is no choice");
    for path in universe(&profiles) {
        let segments = path.encap.unwrap().destination.segments();
        let plane = u16::from(path.port.get()) + 1;
        assert_eq!(segments[1], 0x1000 | plane, "right-aligned in 32 bits");
        assert_eq!(segments[2], 0x2000 | plane << 8);
    }
    assert_eq!(profiles.ev(ID).unwrap().advice().next(), None);

    // EXPLICIT entries have to agree too: 3 + 3 bits of plane, 4 of uplink.
    profiles.modify(ID, &to(OFFLINE)).unwrap();
    profiles
        .modify(
            ID,
            &EvChange {
                mode: Some(EvMode::Explicit),
                count: Some(1),
                ..to(None)
            },
        )
        .unwrap();
    let right = ev(&[0b0110_1100, 0b1000_0000], 2);
    let wrong = PortEv {
        port: PortNum::new(3).unwrap(),
        ..right
    };
    let error = ProfileError::PlaneValue {
        field: 0,
        port: 3,
        actual: 3,
        expected: 4,
    };
    assert_eq!(profiles.modify(ID, &replace(&[put(None, wrong)])), Err(error));
    profiles.modify(ID, &replace(&[put(None, right)])).unwrap();
    profiles.modify(ID, &to(ONLINE)).unwrap();

    // A range too short for all ports, a constant, a field that does not exist.
    for (plane, field) in [
        (0, ranged(16, 0, 2, 4, 7)),
        (0, ProfileField::constant(16, 1)),
        (1, fields[0]),
    ] {
        let error = profiles.modify(
            9,
            &EvChange {
                fields: Some(&[field]),
                plane_fields: Some(&[plane]),
                ..count(EvMode::Generated, 4)
            },
        );
        assert!(matches!(error, Err(ProfileError::PlaneField { .. })), "{error:?}");
    }
}

#[test]
fn source_port_zero_is_advised_against() {
    let mut profiles = profiles(1);
    with_format(&mut profiles, FormatMode::Stev, &[16, 16]);
    let path = ev(&[0x12, 0x34], 1);
    explicit(&mut profiles, &[path]);
    let advice: Vec<_> = profiles.ev(ID).unwrap().advice().collect();
    assert_eq!(advice, [Advice::SourcePortZero(path)]);
    assert!(advice[0].to_string().starts_with("EV 1234 on port 1"));
}

#[test]
fn generated_is_limited_by_its_format() {
    // protocol.md §7.1: ECMP and UDP 16, STEV 32, SRv6 128, with a routing header 256.
    for (mode, widths, limit) in [
        (FormatMode::Udp, &[16][..], 16),
        (FormatMode::Stev, &[32], 32),
        (FormatMode::Srv6, &[32, 32, 32, 32], 128),
        (FormatMode::Srv6, &[32, 32, 32, 32, 32, 32, 32, 32], 256),
    ] {
        let mut profiles = profiles(1);
        with_format(&mut profiles, mode, widths);
        let full: Vec<_> = widths.iter().map(|&width| ProfileField::free(width)).collect();
        generated(&mut profiles, 4, &full, &[]);
        assert_eq!(profiles.ev(ID).unwrap().expansion().unwrap().taken_bits(), limit);
        let more = [&full[..], &[ProfileField::free(1)]].concat();
        let change = EvChange {
            fields: Some(&more),
            ..to(None)
        };
        assert!(profiles.modify(ID, &change).is_err());
    }
}
