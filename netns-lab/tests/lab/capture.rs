//! Packets as a T0 sees them.

use std::fs;
use std::net::{SocketAddr, UdpSocket};

use netns_lab::{Lab, LabError, Topology};

use crate::support::{privileged, wait_until};

#[test]
fn a_capture_on_a_switch_has_every_packet_that_passed() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::leaf(2, 2)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t0.pcap");
    let switch = lab.node("t0.p1").unwrap();
    let capture = match switch.capture("h1", &file, "udp port 4791") {
        Err(LabError::Program { package, .. }) => {
            eprintln!("skipped: needs {package}");
            return;
        }
        capture => capture.unwrap(),
    };
    let to = SocketAddr::new(lab.host(1).gid_v4().into(), 4791);
    let send = move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for n in 0..10 {
            // A destination that nobody listens to answers the packet before with an error; this one is sent all the same.
            while socket
                .send_to(format!("packet {n} of the test").as_bytes(), to)
                .is_err()
            {}
        }
    };
    lab.host(0).enter(send).unwrap();
    let in_file = |needle: &str| {
        fs::read(&file)
            .unwrap()
            .windows(needle.len())
            .any(|w| w == needle.as_bytes())
    };
    wait_until("the last packet is in the file", || in_file("packet 9 of the test"));
    let captured = capture.stop().unwrap();
    assert_eq!((captured.packets, captured.dropped), (10, 0));
    assert!((0..10).all(|n| in_file(&format!("packet {n} of the test"))));
}

#[test]
fn a_capture_that_cannot_start_says_why() {
    if !privileged() {
        return;
    }
    let lab = Lab::build(&Topology::leaf(2, 1)).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = lab.node("t0.p1").unwrap().capture("p9", file.path(), "").unwrap_err();
    if !matches!(error, LabError::Program { .. }) {
        let message = error.to_string();
        assert!(message.starts_with("tcpdump on 't0.p1' did not start: "), "{message}");
        assert!(message.contains("p9"), "{message}");
    }
}
