//! Leaf-spine fabrics carry packets the way the plan says.

use netns_lab::{FabricSpec, Lab, Routing, Topology};

use crate::support::{check_planes, privileged};

fn spec(planes: usize, t0: usize, t1: usize, hosts_per_t0: usize) -> FabricSpec {
    FabricSpec {
        planes,
        t0,
        t1,
        hosts_per_t0,
        ..FabricSpec::default()
    }
}

#[test]
fn every_host_reaches_every_other_on_every_plane_whatever_the_routing() {
    if !privileged() {
        return;
    }
    for routing in [Routing::Ecmp, Routing::Structured, Routing::Srv6, Routing::Srv6Kernel] {
        let lab = Lab::build(&Topology::fabric(FabricSpec {
            routing,
            ..spec(2, 2, 2, 2)
        }))
        .unwrap();
        for a in 0..4 {
            for b in a + 1..4 {
                check_planes(&lab, a, b, 1..=2);
            }
        }
    }
}

#[test]
fn the_largest_fabrics_are_built_and_carry_packets() {
    if !privileged() {
        return;
    }
    for spec in [spec(8, 4, 4, 2), spec(2, 2, 2, 5)] {
        let lab = Lab::build(&Topology::fabric(spec.clone())).unwrap();
        check_planes(&lab, 0, spec.hosts() - 1, 1..=spec.planes);
    }
}

#[test]
fn every_link_has_a_name_and_comes_back_as_it_was() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::fabric(spec(2, 2, 1, 1))).unwrap();
    let links = lab.links();
    assert_eq!(
        links,
        [
            "h0-t0.0.p1",
            "h1-t0.1.p1",
            "t0.0.p1-t1.0.p1",
            "t0.1.p1-t1.0.p1",
            "h0-t0.0.p2",
            "h1-t0.1.p2",
            "t0.0.p2-t1.0.p2",
            "t0.1.p2-t1.0.p2"
        ]
    );
    for link in links.iter().filter(|l| l.ends_with("p1")) {
        lab.set_link_named(link, false).unwrap();
        check_planes(&lab, 0, 1, 2..=2);
        lab.set_link_named(link, true).unwrap();
        check_planes(&lab, 0, 1, 1..=2);
    }
    let message = lab.set_link_named("t0.0.p3-t1.0.p3", false).unwrap_err().to_string();
    assert_eq!(
        message,
        "no link 't0.0.p3-t1.0.p3' in this lab: `netns-lab show` lists them, for example h0-t0.0.p1"
    );
}
