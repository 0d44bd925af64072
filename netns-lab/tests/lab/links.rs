//! Links that go down and come back.

use std::fs;

use netns_lab::{Lab, LabError, Topology};

use crate::support::{check_planes, privileged};

type Set = fn(&Lab, usize, usize, bool) -> Result<(), LabError>;

/// `carrier` and whether the port is enabled, as the host sees them.
fn port_state(lab: &Lab, host: usize, port: &str) -> (Option<bool>, bool) {
    let read = || {
        // Of a disabled port the kernel tells no carrier.
        let carrier = fs::read_to_string(format!("/sys/class/net/{port}/carrier")).ok();
        let flags = fs::read_to_string(format!("/sys/class/net/{port}/flags")).unwrap();
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap();
        (carrier.map(|c| c.trim() == "1"), flags & 1 == 1)
    };
    lab.host(host).enter(read).unwrap()
}

#[test]
fn a_cable_that_is_pulled_takes_the_carrier_and_leaves_the_port_enabled() {
    if !privileged() {
        return;
    }
    for topology in [Topology::pair(2), Topology::leaf(2, 2)] {
        let lab = Lab::build(&topology).unwrap();
        assert_eq!(port_state(&lab, 0, "p1"), (Some(true), true));
        lab.set_link(0, 1, false).unwrap();
        assert_eq!(port_state(&lab, 0, "p1"), (Some(false), true));
        assert_eq!(port_state(&lab, 0, "p2"), (Some(true), true));
        lab.set_link(0, 1, true).unwrap();
        assert_eq!(port_state(&lab, 0, "p1"), (Some(true), true));
        lab.set_port(0, 1, false).unwrap();
        assert_eq!(port_state(&lab, 0, "p1"), (None, false));
    }
}

#[test]
fn a_link_that_comes_back_carries_packets_in_both_families_again() {
    if !privileged() {
        return;
    }
    let ways: [Set; 2] = [Lab::set_link, Lab::set_port];
    for set in ways {
        for fixed in [false, true] {
            for topology in [Topology::pair(3), Topology::leaf(2, 3)] {
                let lab = Lab::build(&topology.static_neighbours(fixed)).unwrap();
                check_planes(&lab, 0, 1, 1..=3);
                for (host, plane) in [(0, 2), (1, 1)] {
                    set(&lab, host, plane, false).unwrap();
                    check_planes(&lab, 0, 1, (1..=3).filter(|&p| p != plane));
                    set(&lab, host, plane, true).unwrap();
                    check_planes(&lab, 0, 1, 1..=3);
                }
            }
        }
    }
}

#[test]
fn all_links_down_and_up_again_leave_the_fabric_as_it_was() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::leaf(2, 4)).unwrap();
    for up in [false, false, true, true] {
        for host in 0..2 {
            for plane in 1..=4 {
                lab.set_link(host, plane, up).unwrap();
            }
        }
    }
    check_planes(&lab, 0, 1, 1..=4);
}

#[test]
fn a_link_with_both_ends_down_comes_up_with_the_second() {
    if !privileged() {
        return;
    }
    for topology in [Topology::pair(1), Topology::leaf(2, 1)] {
        let lab = Lab::build(&topology).unwrap();
        lab.set_link(0, 1, false).unwrap();
        lab.set_port(0, 1, false).unwrap();
        lab.set_link(0, 1, true).unwrap();
        assert_eq!(port_state(&lab, 0, "p1"), (None, false));
        lab.set_port(0, 1, true).unwrap();
        check_planes(&lab, 0, 1, 1..=1);
    }
}

#[test]
fn a_host_or_plane_that_is_not_there_is_told() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::pair(2)).unwrap();
    let message = |host, plane| lab.set_link(host, plane, false).unwrap_err().to_string();
    assert_eq!(message(0, 0), "no plane 0 in this lab: planes are 1 to 2");
    assert_eq!(message(0, 3), "no plane 3 in this lab: planes are 1 to 2");
    assert_eq!(message(2, 1), "no 'h2' in this lab: it has h0, h1, mgmt");
}
