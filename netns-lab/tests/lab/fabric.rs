//! What is built carries packets the way the plan says.

use netns_lab::{Lab, Topology};

use crate::support::{check_planes, privileged};

#[test]
fn a_packet_sent_by_a_port_comes_by_the_same_port_of_the_peer() {
    if !privileged() {
        return;
    }
    for planes in 1..=8 {
        for topology in [Topology::pair(planes), Topology::leaf(2, planes)] {
            let start = std::time::Instant::now();
            let lab = Lab::build(&topology).unwrap();
            eprintln!("{topology:?}: {:?}", start.elapsed());
            check_planes(&lab, 0, 1, 1..=planes);
            let start = std::time::Instant::now();
            drop(lab);
            eprintln!("down: {:?}", start.elapsed());
        }
    }
}
